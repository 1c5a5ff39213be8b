//! Clients of real servers that reset, half-close, dawdle or talk nonsense, while others go on: those are served, and
//! nothing stays behind.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, Shutdown, TcpStream};
use std::thread;
use std::time::Duration;

use tlsdyno::model::ServerName;
use tlsdyno_wire::codec::{put_u16, put_vector8, put_vector16};
use tlsdyno_wire::hello::{self, Template, put_extension};

use super::bytes::client_hello;
use super::cluster::{Cluster, Sessions};
use super::crowd::{Crowd, LARGE, Member, SMALL, ask, receive};
use super::support::{ControlPath, Dispatcher, Holdings, control_path, noise};
use crate::place::eventually;

const MEMBERS: usize = 3;
const X25519: u16 = 29;

/// Three nginx, a dispatcher, and clients that behave.
struct Scene {
    dispatcher: Dispatcher,
    control: ControlPath,
    crowd: Crowd,
    before: Holdings,
    _cluster: Cluster,
}

impl Scene {
    fn new(arguments: &[&str]) -> Scene {
        let cluster = Cluster::new(ServerName::Nginx, Sessions::Tickets13, 3);
        let control = control_path();
        let arguments = [&["--policy", "session", "--control", &control], arguments].concat();
        let dispatcher = Dispatcher::new(&cluster.addresses(), &arguments);
        let crowd = Crowd::start(dispatcher.address, MEMBERS);
        crowd.await_more(100);
        let before = dispatcher.holdings();
        Scene { dispatcher, control, crowd, before, _cluster: cluster }
    }

    fn count(&self, name: &str) -> u64 {
        self.dispatcher.count(&self.control, name)
    }

    /// Those that behave were all served, meanwhile and still.
    fn end(self) {
        self.crowd.await_more(50);
        let tally = self.crowd.finish();
        println!("{} served, {} of {} sessions taken", tally.visits.len(), tally.resumed(), tally.offered());
        assert!(tally.cut.is_empty(), "nobody else is disturbed: {:?}", tally.cut);
        self.dispatcher.assert_at_rest(&self.control, &self.before);
    }
}

fn reset(stream: &TcpStream) {
    socket2::SockRef::from(stream).set_linger(Some(Duration::ZERO)).unwrap();
}

#[test]
fn clients_that_reset_at_any_moment_disturb_nobody() {
    const ROUNDS: u64 = 40;
    let scene = Scene::new(&[]);
    let member = Member::new(scene.dispatcher.address, Ipv4Addr::LOCALHOST);
    for _ in 0..ROUNDS {
        let (_, hello) = member.hello();
        // In the hello, behind it, behind the server's first bytes.
        for (bytes, answered) in [(hello.len() / 2, 0), (hello.len(), 0), (hello.len(), 1)] {
            let mut client = scene.dispatcher.connect();
            client.write_all(&hello[..bytes]).unwrap();
            client.read_exact(&mut vec![0; answered]).unwrap();
            reset(&client);
        }
        // In the middle of an answer.
        let (mut stream, _) = member.begin().unwrap();
        ask(&mut stream, &LARGE).unwrap();
        stream.read_exact(&mut [0; 20_000]).unwrap();
        reset(&stream.sock);
    }
    eventually("the resets are noticed", || scene.count("reset_by_client") >= 3 * ROUNDS);
    scene.end();
}

#[test]
fn clients_that_half_close_get_their_answer() {
    let scene = Scene::new(&[]);
    let member = Member::new(scene.dispatcher.address, Ipv4Addr::LOCALHOST);
    for _ in 0..40 {
        // Behind the request: the whole answer comes.
        let (mut stream, _) = member.begin().unwrap();
        ask(&mut stream, &LARGE).unwrap();
        stream.sock.shutdown(Shutdown::Write).unwrap();
        receive(stream, &LARGE).unwrap();
        // In the hello, and behind it: the server ends it.
        let (_, hello) = member.hello();
        for bytes in [hello.len() / 2, hello.len()] {
            let mut client = scene.dispatcher.connect();
            client.write_all(&hello[..bytes]).unwrap();
            client.shutdown(Shutdown::Write).unwrap();
            client.read_to_end(&mut Vec::new()).unwrap();
        }
    }
    scene.end();
}

#[test]
fn clients_that_send_byte_by_byte_are_served() {
    let scene = Scene::new(&[]);
    let member = Member::new(scene.dispatcher.address, Ipv4Addr::LOCALHOST);
    for _ in 0..20 {
        let (tls, hello) = member.hello();
        let socket = scene.dispatcher.connect();
        socket.set_nodelay(true).unwrap();
        let mut stream = rustls::StreamOwned::new(tls, ByteByByte(socket));
        stream.sock.write_all(&hello).unwrap();
        write!(stream, "GET {} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n", SMALL.path).unwrap();
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).unwrap();
        assert!(answer.ends_with(&SMALL.content));
    }
    scene.end();
}

/// Sends, and takes, one byte at a time, each in a segment of its own.
struct ByteByByte(TcpStream);

impl Read for ByteByByte {
    fn read(&mut self, bytes: &mut [u8]) -> std::io::Result<usize> {
        let most = bytes.len().min(1);
        self.0.read(&mut bytes[..most])
    }
}

impl Write for ByteByByte {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.write(&bytes[..bytes.len().min(1)])
    }

    fn flush(&mut self) -> std::io::Result<()> {
        self.0.flush()
    }
}

#[test]
fn ten_thousand_malformed_and_truncated_hellos_disturb_nobody() {
    let scene = Scene::new(&[]);
    let hello = client_hello();
    thread::scope(|scope| {
        for part in 0..2_u64 {
            let (dispatcher, hello) = (&scene.dispatcher, &hello);
            scope.spawn(move || {
                for number in (part..10_000).step_by(2) {
                    let mut client = dispatcher.connect();
                    // A server may reset what it does not like, before it has read all of it.
                    let _ = client.write_all(&garbled(hello, number)).and_then(|()| client.shutdown(Shutdown::Write));
                    let ended = client.read_to_end(&mut Vec::new());
                    assert!(!ended.is_err_and(|error| error.kind() == std::io::ErrorKind::WouldBlock), "it is stuck");
                }
            });
        }
    });
    assert!(scene.count("hellos_malformed") > 100 && scene.count("not_tls") > 100);
    scene.end();
}

/// A hello with one byte changed, cut somewhere, and with a few bytes of noise behind it.
pub fn garbled(hello: &[u8], number: u64) -> Vec<u8> {
    let mut bytes = hello.to_vec();
    let random = noise(number, 8);
    bytes[usize::from(random[0]) % hello.len()] = random[1];
    bytes.truncate(usize::from(random[2]) % (hello.len() * 2) + 1);
    bytes.extend_from_slice(&random[3..]);
    bytes
}

#[test]
fn a_flood_of_made_up_identities_drives_no_session_out() {
    let scene = Scene::new(&[]);
    thread::scope(|scope| {
        for part in 0..2_u64 {
            let dispatcher = &scene.dispatcher;
            scope.spawn(move || {
                for number in (part..6_000).step_by(2) {
                    let mut client = dispatcher.connect();
                    client.write_all(&hello_with_made_up_identity(number)).unwrap();
                    // The server's answer, whatever it is: until then it is not known what became of the identity.
                    let _ = client.read(&mut [0; 16]);
                }
            });
        }
    });
    let status = scene.dispatcher.status(&scene.control);
    let keys = &status["tables"][0];
    println!("ticket keys after the flood: {keys}");
    assert!(keys["entries"].as_u64() <= keys["capacity"].as_u64());
    let (offered, accepted) = (scene.count("sessions_offered"), scene.count("sessions_accepted"));
    scene.crowd.await_more(200);
    let tally = scene.crowd.finish();
    println!("flood: {accepted} of {offered}; those with sessions: {} of {}", tally.resumed(), tally.offered());
    assert!(offered > 6_000, "the servers have looked at them");
    assert!(tally.resumed() * 100 >= tally.offered() * 99 - 300, "{} of {}", tally.resumed(), tally.offered());
    assert!(tally.cut.is_empty(), "{:?}", tally.cut);
    scene.dispatcher.assert_at_rest(&scene.control, &scene.before);
}

/// A hello that a server answers with a full handshake: its identity names a key that nobody has, in a ticket of any
/// length.
fn hello_with_made_up_identity(number: u64) -> Vec<u8> {
    let identity = noise(number, 48 + 16 * (number as usize % 64));
    let template = Template::new(&[0x1301], |out| {
        put_extension(out, hello::SUPPORTED_VERSIONS, |out| put_vector8(out, |out| put_u16(out, hello::TLS13)));
        put_extension(out, hello::SUPPORTED_GROUPS, |out| put_vector16(out, |out| put_u16(out, X25519)));
        put_extension(out, hello::SIGNATURE_ALGORITHMS, |out| put_vector16(out, |out| put_u16(out, 0x0403)));
        put_extension(out, hello::KEY_SHARE, |out| {
            put_vector16(out, |out| {
                put_u16(out, X25519);
                put_vector16(out, |out| out.extend_from_slice(&noise(number + 1, 32)));
            });
        });
        put_extension(out, hello::PSK_KEY_EXCHANGE_MODES, |out| put_vector8(out, |out| out.push(1)));
        put_extension(out, hello::PRE_SHARED_KEY, |out| {
            put_vector16(out, |out| {
                put_vector16(out, |out| out.extend_from_slice(&identity));
                out.extend_from_slice(&[0; 4]);
            });
            put_vector16(out, |out| put_vector8(out, |out| out.extend_from_slice(&[7; 32])));
        });
    });
    let mut out = Vec::new();
    template.write(&mut out, 0x0301, &[5; 32], &[]).finish();
    out
}
