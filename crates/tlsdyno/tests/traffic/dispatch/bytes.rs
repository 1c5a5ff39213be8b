//! Clients and backends that speak bytes instead of TLS, and digests of what they sent and got.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};

use tlsdyno_wire::codec::{put_u16, put_vector8};
use tlsdyno_wire::hello::{self, Template, put_extension};

use super::support::{Dispatcher, backend};

/// SHA-256 of bytes.
pub type Digest = [u8; 32];

pub fn digest(bytes: &[u8]) -> Digest {
    openssl::sha::sha256(bytes)
}

/// A hello that offers no session.
pub fn client_hello() -> Vec<u8> {
    let template = Template::new(&[0x1301, 0xc02b], |out| {
        put_extension(out, hello::SUPPORTED_VERSIONS, |out| put_vector8(out, |out| put_u16(out, hello::TLS13)));
    });
    let mut out = Vec::new();
    template.write(&mut out, 0x0301, &[5; 32], &[]).finish();
    out
}

/// A backend that answers with its name, then with what it was sent.
pub fn echo(name: &'static [u8]) -> SocketAddr {
    let (address, _) = backend(move |mut stream: TcpStream| {
        let _ = stream.write_all(name);
        let mut bytes = [0; 4096];
        while let Ok(count @ 1..) = stream.read(&mut bytes) {
            if stream.write_all(&bytes[..count]).is_err() {
                return;
            }
        }
    });
    address
}

/// What comes back for these bytes, up to the end.
pub fn exchange(dispatcher: &Dispatcher, bytes: &[u8]) -> Vec<u8> {
    let mut client = dispatcher.connect();
    client.write_all(bytes).unwrap();
    client.shutdown(Shutdown::Write).unwrap();
    let mut answer = Vec::new();
    client.read_to_end(&mut answer).unwrap();
    answer
}

/// These bytes come back from an [`echo`] without a name as they were sent: both ways they were forwarded unchanged.
pub fn assert_echoed(dispatcher: &Dispatcher, bytes: &[u8]) {
    let mut client = dispatcher.connect();
    let mut sender = client.try_clone().unwrap();
    let mut answer = Vec::new();
    std::thread::scope(|scope| {
        scope.spawn(move || {
            sender.write_all(bytes).unwrap();
            sender.shutdown(Shutdown::Write).unwrap();
        });
        client.read_to_end(&mut answer).unwrap();
    });
    assert_eq!((answer.len(), digest(&answer)), (bytes.len(), digest(bytes)));
}

/// A port on which nobody listens.
pub fn nobody() -> SocketAddr {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap()
}
