//! Seeds for the client's targets: what servers say in whole conversations.

use tlsdyno_wire::codec::{put_u16, put_vector8, put_vector16};
use tlsdyno_wire::handshake::{
    self, Body, Certificate12, Certificate13, CertificateRequest12, CertificateRequest13, CertificateVerify,
    EncryptedExtensions, KeyUpdate, NewSessionTicket12, NewSessionTicket13, ServerKeyExchange,
};
use tlsdyno_wire::hello::{self, Extensions, ServerHello, put_extension};
use tlsdyno_wire::record;

use super::script::{PROTECTED_12, PROTECTED_13, RAW, put_record};
use super::stages;

/// Seeds for [`client_receive`](super::client_receive): whole conversations of both versions, full and resumed.
pub fn conversations() -> Vec<Vec<u8>> {
    vec![
        tls13_conversation(),
        tls13_hybrid(),
        tls13_resumed(),
        tls13_retry(),
        tls13_retry_for_a_hybrid(),
        tls12_conversation(),
        tls12_resumed(),
    ]
}

pub(super) fn tls13_conversation() -> Vec<u8> {
    let mut script = vec![0];
    put_record(&mut script, record::HANDSHAKE, &server_hello(0x1301, &[], &[1; 32], put_tls13_share));
    put_tls13_authenticated(&mut script, 32);
    script
}

/// With a share for X25519MLKEM768.
fn tls13_hybrid() -> Vec<u8> {
    let mut script = vec![0];
    let hello = server_hello(0x1301, &[], &[1; 32], |out| put_tls13_share_of(0x11ec, &[9; 1120], out));
    put_record(&mut script, record::HANDSHAKE, &hello);
    put_tls13_authenticated(&mut script, 32);
    script
}

/// The second flight with certificate, and what follows it.
fn put_tls13_authenticated(script: &mut Vec<u8>, hash_bytes: u8) {
    put_record(script, record::CHANGE_CIPHER_SPEC, &[1]);
    let mut alpn = Vec::new();
    put_extension(&mut alpn, hello::ALPN, |out| {
        put_vector16(out, |out| put_vector8(out, |out| out.extend_from_slice(b"http/1.1")));
    });
    let extensions = Extensions::decode("seed", &alpn).expect("a well-formed block");
    let mut flight = message(&EncryptedExtensions { extensions });
    let mut algorithms = Vec::new();
    put_extension(&mut algorithms, hello::SIGNATURE_ALGORITHMS, |out| out.extend_from_slice(&[0, 2, 4, 3]));
    let extensions = Extensions::decode("seed", &algorithms).expect("a well-formed block");
    flight.extend(message(&CertificateRequest13 { context: &[], extensions }));
    let chain = vec![(&[0x30; 200][..], Extensions::default())];
    flight.extend(message(&Certificate13 { context: &[], chain }));
    flight.extend(message(&CertificateVerify { scheme: 0x0403, signature: &[1; 70] }));
    flight.extend(finished(hash_bytes));
    put_record(script, record::HANDSHAKE | PROTECTED_13, &flight);
    put_tls13_after_handshake(script);
}

fn tls13_resumed() -> Vec<u8> {
    let mut script = vec![2];
    let hello = server_hello(0x1301, &[], &[1; 32], |out| {
        put_tls13_share(out);
        put_extension(out, hello::PRE_SHARED_KEY, |out| put_u16(out, 0));
    });
    put_record(&mut script, record::HANDSHAKE, &hello);
    let mut flight = message(&EncryptedExtensions { extensions: Extensions::default() });
    flight.extend(finished(32));
    put_record(&mut script, record::HANDSHAKE | PROTECTED_13, &flight);
    put_tls13_after_handshake(&mut script);
    script
}

/// HelloRetryRequest with cookie, at a client that offers both versions.
fn tls13_retry() -> Vec<u8> {
    let mut script = vec![4];
    let retry = server_hello(0x1302, &[], &hello::RETRY_RANDOM, |out| {
        put_extension(out, hello::SUPPORTED_VERSIONS, |out| put_u16(out, hello::TLS13));
        put_extension(out, hello::COOKIE, |out| put_vector16(out, |out| out.extend_from_slice(b"cookie")));
    });
    put_record(&mut script, record::HANDSHAKE, &retry);
    put_record(&mut script, record::HANDSHAKE, &server_hello(0x1302, &[], &[1; 32], put_tls13_share));
    put_tls13_authenticated(&mut script, 48);
    script
}

/// HelloRetryRequest for SecP384r1MLKEM1024, and a share of it.
fn tls13_retry_for_a_hybrid() -> Vec<u8> {
    let mut script = vec![0];
    let retry = server_hello(0x1301, &[], &hello::RETRY_RANDOM, |out| {
        put_extension(out, hello::SUPPORTED_VERSIONS, |out| put_u16(out, hello::TLS13));
        put_extension(out, hello::KEY_SHARE, |out| put_u16(out, 0x11ed));
    });
    put_record(&mut script, record::HANDSHAKE, &retry);
    let hello = server_hello(0x1301, &[], &[1; 32], |out| put_tls13_share_of(0x11ed, &[4; 1665], out));
    put_record(&mut script, record::HANDSHAKE, &hello);
    put_tls13_authenticated(&mut script, 32);
    script
}

fn tls12_extensions(out: &mut Vec<u8>) {
    put_extension(out, hello::RENEGOTIATION_INFO, |out| out.push(0));
    put_extension(out, hello::EXTENDED_MASTER_SECRET, |_| ());
    put_extension(out, hello::SESSION_TICKET, |_| ());
}

fn put_tls12_end(script: &mut Vec<u8>) {
    let ticket = NewSessionTicket12 { lifetime_s: 300, ticket: &[7; 100] };
    put_record(script, record::HANDSHAKE, &message(&ticket));
    put_record(script, record::CHANGE_CIPHER_SPEC, &[1]);
    put_record(script, record::HANDSHAKE | PROTECTED_12, &finished(12));
    put_record(script, record::HANDSHAKE | PROTECTED_12, &[0; 4]); // HelloRequest
    put_record(script, record::APPLICATION_DATA | PROTECTED_12, b"HTTP/1.1 200 OK\r\n\r\n");
    put_record(script, record::ALERT | PROTECTED_12, &[1, 0]);
}

pub(super) fn tls12_conversation() -> Vec<u8> {
    let mut script = vec![4];
    let mut flight = server_hello(0xc02f, &[], &[1; 32], tls12_extensions);
    flight.extend(message(&Certificate12 { chain: vec![&[0x30; 200]] }));
    let (parameters, public, signature) = (&[][..], &[9; 32][..], &[1; 256][..]);
    flight.extend(message(&ServerKeyExchange { parameters, group: 29, public, scheme: 0x0401, signature }));
    flight.extend(message(&CertificateRequest12 { types: &[1], schemes: &[4, 1], authorities: &[] }));
    flight.extend([handshake::SERVER_HELLO_DONE, 0, 0, 0]);
    put_record(&mut script, record::HANDSHAKE, &flight);
    put_tls12_end(&mut script);
    script
}

fn tls12_resumed() -> Vec<u8> {
    let mut script = vec![6];
    // The made-up session id of a client that offers a ticket is constant here.
    put_record(&mut script, record::HANDSHAKE, &server_hello(0xc02f, &[0x42; 32], &[1; 32], tls12_extensions));
    put_tls12_end(&mut script);
    script
}

fn message<'a>(message: &impl Body<'a>) -> Vec<u8> {
    let mut out = Vec::new();
    handshake::put(&mut out, message);
    out
}

fn server_hello(suite: u16, session_id: &[u8], random: &[u8; 32], extensions: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
    let mut block = Vec::new();
    extensions(&mut block);
    let extensions = Extensions::decode("seed", &block).expect("a well-formed block");
    let version = hello::TLS12;
    message(&ServerHello { version, random, session_id, suite, compression: 0, extensions })
}

fn put_tls13_share(out: &mut Vec<u8>) {
    put_tls13_share_of(29, &[9; 32], out);
}

fn put_tls13_share_of(group: u16, share: &[u8], out: &mut Vec<u8>) {
    put_extension(out, hello::SUPPORTED_VERSIONS, |out| put_u16(out, hello::TLS13));
    put_extension(out, hello::KEY_SHARE, |out| {
        put_u16(out, group);
        put_vector16(out, |out| out.extend_from_slice(share));
    });
}

fn finished(length: u8) -> Vec<u8> {
    let mut out = vec![handshake::FINISHED, 0, 0, length];
    out.resize(4 + usize::from(length), 0x3c);
    out
}

/// What follows the server's Finished in TLS 1.3: ticket, KeyUpdate, data, close_notify.
fn put_tls13_after_handshake(script: &mut Vec<u8>) {
    let protected = |kind| kind | PROTECTED_13;
    let extensions = Extensions::default();
    let ticket = NewSessionTicket13 { lifetime_s: 7200, age_add: 1, nonce: &[0; 8], ticket: &[7; 100], extensions };
    put_record(script, protected(record::HANDSHAKE), &message(&ticket));
    put_record(script, protected(record::HANDSHAKE), &message(&KeyUpdate { requested: true }));
    put_record(script, protected(record::APPLICATION_DATA), b"HTTP/1.1 200 OK\r\n\r\n");
    put_record(script, protected(record::ALERT), &[1, 0]);
}

/// Seeds for [`client_stages`](super::client_stages): what the shim says in each case.
pub fn stages_seeds() -> Vec<Vec<u8>> {
    let flight = |bytes: usize| [&[record::HANDSHAKE][..], &vec![1; bytes - 2], &[0]].concat();
    let said = |case: u8, parts: &[&[u8]]| [&[case][..], &parts.concat()].concat();
    let [second, fourth] = stages::FULL_FLIGHTS.map(|bytes| flight(bytes as usize));
    let reply = flight(stages::RESUMED_FLIGHT as usize);
    let data = b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\nx";
    let plain = |case: u8, mut conversation: Vec<u8>| {
        conversation[0] = case;
        // In place of the protected data and the alert at the end.
        conversation.truncate(conversation.len() - 3 - 19 - 3 - 2);
        put_record(&mut conversation, RAW, data);
        conversation
    };
    vec![
        said(stages::SKELETON, &[&second, &fourth, data]),
        said(stages::SKELETON_RESUMED, &[&reply, data]),
        said(stages::SKELETON_AT_ONCE, &[&reply, data]),
        plain(stages::FAST, tls12_resumed()),
        plain(stages::PLAIN_13, tls13_conversation()),
        plain(stages::PLAIN_12, tls12_conversation()),
        said(stages::SETUP_13, &[&[23, 3, 3, 0, 22], b"HTTP/", &[23], &[0; 16]]),
        said(stages::SETUP_12, &[&[23, 3, 3, 0, 29], &[0; 8], b"HTTP/", &[0; 16]]),
    ]
}
