//! Scripts to begin with: handshakes of every kind.

use tlsdyno_wire::codec::{put_u16, put_vector8, put_vector16};
use tlsdyno_wire::handshake::{self, NewSessionTicket12};
use tlsdyno_wire::hello::{self, ClientHello, Extensions, RETRY_RANDOM, ServerHello, put_extension};
use tlsdyno_wire::record;

use super::{put_step, relay, route};

const CHANGE: &[u8] = b"\x14\x03\x03\x00\x01\x01";

fn ticket(key: u8) -> Vec<u8> {
    [vec![key; 16], vec![0xee; 80]].concat()
}

fn client_hello(id: &[u8], ticket: &[u8], identities: &[Vec<u8>]) -> Vec<u8> {
    let mut extensions = Vec::new();
    let out = &mut extensions;
    put_extension(out, hello::SESSION_TICKET, |out| out.extend_from_slice(ticket));
    if !identities.is_empty() {
        put_extension(out, hello::SUPPORTED_VERSIONS, |out| put_vector8(out, |out| put_u16(out, hello::TLS13)));
        put_extension(out, hello::PRE_SHARED_KEY, |out| {
            put_vector16(out, |out| {
                for identity in identities {
                    put_vector16(out, |out| out.extend_from_slice(identity));
                    out.extend_from_slice(&[0; 4]);
                }
            });
            put_vector16(out, |out| identities.iter().for_each(|_| put_vector8(out, |out| out.push(1))));
        });
    }
    let extensions = Extensions::decode("seed", &extensions).expect("a well-formed block");
    let (suites, compression) = (&[0x13, 1][..], &[0][..]);
    let hello =
        ClientHello { version: hello::TLS12, random: &[2; 32], session_id: id, suites, compression, extensions };
    let (mut message, mut out) = (Vec::new(), Vec::new());
    handshake::put(&mut message, &hello);
    record::put_plain(&mut out, record::HANDSHAKE, &message);
    out
}

fn server_hello(random: &[u8; 32], id: &[u8], version: u16, identity: Option<u16>) -> Vec<u8> {
    let mut extensions = Vec::new();
    if version == hello::TLS13 {
        put_extension(&mut extensions, hello::SUPPORTED_VERSIONS, |out| put_u16(out, version));
    }
    if let Some(index) = identity {
        put_extension(&mut extensions, hello::PRE_SHARED_KEY, |out| put_u16(out, index));
    }
    let extensions = Extensions::decode("seed", &extensions).expect("a well-formed block");
    let hello =
        ServerHello { version: hello::TLS12, random, session_id: id, suite: 0x1301, compression: 0, extensions };
    let (mut message, mut out) = (Vec::new(), Vec::new());
    handshake::put(&mut message, &hello);
    record::put_plain(&mut out, record::HANDSHAKE, &message);
    out
}

fn new_ticket() -> Vec<u8> {
    let (mut message, mut out) = (Vec::new(), Vec::new());
    handshake::put(&mut message, &NewSessionTicket12 { lifetime_s: 300, ticket: &ticket(7) });
    record::put_plain(&mut out, record::HANDSHAKE, &message);
    out
}

/// What client and server say in turn.
fn handshakes() -> Vec<[Vec<u8>; 4]> {
    let tls13 = |identity| [server_hello(&[1; 32], &[9; 32], hello::TLS13, identity), CHANGE.to_vec()].concat();
    let retry = [server_hello(&RETRY_RANDOM, &[], hello::TLS13, None), CHANGE.to_vec()].concat();
    let issued = [server_hello(&[1; 32], &[9; 32], hello::TLS12, None), new_ticket(), CHANGE.to_vec()].concat();
    let taken = [server_hello(&[1; 32], &[3; 32], hello::TLS12, None), CHANGE.to_vec()].concat();
    let both = [ticket(7), ticket(8)];
    let offered = client_hello(&[], &[], &both);
    vec![
        [client_hello(&[], &[], &[]), issued, CHANGE.to_vec(), Vec::new()],
        [client_hello(&[9; 32], &[], &[]), taken.clone(), CHANGE.to_vec(), Vec::new()],
        [client_hello(&[3; 32], &ticket(7), &[]), taken, CHANGE.to_vec(), Vec::new()],
        [offered.clone(), tls13(Some(1)), CHANGE.to_vec(), Vec::new()],
        [offered.clone(), tls13(None), CHANGE.to_vec(), Vec::new()],
        [offered, retry, client_hello(&[], &[], &both[1..]), tls13(Some(0))],
    ]
}

/// Connections for objects, some of them again, under changing loads; and what is no request.
fn requests() -> Vec<u8> {
    let mut seed = vec![route::BY_OBJECT | 0x1e];
    let overlong = [b"GET /".to_vec(), vec![b'x'; 17_000]].concat();
    let said: [&[u8]; 6] = [
        b"GET /a HTTP/1.1\r\nHost: x\r\n\r\n",
        b"\r\nGET http://x/a?b HTTP/1.0\r\n\r\n",
        b"OPTIONS * HTTP/1.1\r\n",
        b"\x16\x03\x01\x02\0\x01",
        b"HEAD /b HTTP/1.1\r\n",
        &overlong,
    ];
    for (turn, bytes) in said.iter().chain(&said).enumerate() {
        put_step(&mut seed, route::CLIENT, bytes);
        put_step(&mut seed, route::NEXT_CONNECTION, &[]);
        put_step(&mut seed, route::LOADS, &[131 * (turn as u8 % 2), 66, 24, turn as u8]);
        put_step(&mut seed, 100, &[]);
    }
    seed
}

/// Seeds for [`route::dispatch_route`].
pub fn route_seeds() -> Vec<Vec<u8>> {
    let (mut seeds, mut all) = (Vec::new(), vec![4]);
    for [client, server, second, last] in handshakes() {
        let mut seed = vec![0x2d];
        for script in [&mut seed, &mut all] {
            put_step(script, route::CLIENT, &client);
            put_step(script, route::SERVER, &server);
            put_step(script, route::CLIENT, &second);
            put_step(script, route::SERVER, &last);
            put_step(script, route::NEXT_CONNECTION, &[]);
            put_step(script, route::BACKENDS_UP, &[5]);
            put_step(script, 100, &[]);
        }
        seeds.push(seed);
    }
    seeds.push([&all[..], &all[1..]].concat());
    seeds.push(requests());
    seeds
}

/// Seeds for [`relay::dispatch_relay`].
pub fn relay_seeds() -> Vec<Vec<u8>> {
    let mut seeds = Vec::new();
    for (number, [client, server, second, last]) in handshakes().into_iter().enumerate() {
        let mut seed = vec![0];
        put_step(&mut seed, relay::CLIENT_SENDS, &client[..40]);
        put_step(&mut seed, relay::CLIENT_SENDS, &client[40..]);
        put_step(&mut seed, relay::SERVER_SENDS, &server);
        put_step(&mut seed, relay::CLIENT_SENDS, &second);
        put_step(&mut seed, relay::SERVER_SENDS, &last);
        put_step(&mut seed, relay::SERVER_SENDS_MUCH, &[number as u8; 600]);
        put_step(&mut seed, relay::CLIENT_SENDS_MUCH, &[7; 300]);
        put_step(&mut seed, relay::CLIENT_ENDS + number as u8 % 4, &[]);
        seeds.push(seed);
    }
    seeds
}
