//! A client over TCP that asks for a page.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;

use tlsdyno_tls::{Config, Error, Session};
use tlsdyno_wire::proxy_protocol::{put_v1, put_v2};

use crate::PATIENCE;
use crate::harness::Caller;

/// What a proxy would put before the hello.
#[derive(Clone, Copy)]
pub enum Header {
    None,
    Version1,
    Version2,
}

const REQUEST: &[u8] = b"GET / HTTP/1.1\r\nHost: server.example\r\nConnection: close\r\n\r\n";

/// Shakes hands, asks, reads to the end, and gives the sessions that came.
pub fn visit(
    address: SocketAddr,
    header: Header,
    config: &Arc<Config>,
    session: Option<Session>,
) -> Result<Vec<Session>, Error> {
    let stream = TcpStream::connect(address).unwrap();
    let mut before = Vec::new();
    match header {
        Header::None => {}
        Header::Version1 => put_v1(&mut before, stream.local_addr().unwrap(), address),
        Header::Version2 => put_v2(&mut before, stream.local_addr().unwrap(), address),
    }
    ask(stream, before, Caller::new(config, session), REQUEST, usize::MAX)
}

/// Shakes hands behind what comes before, asks, reads until so much of an answer came, and gives the sessions.
pub fn ask(
    mut stream: TcpStream,
    before: Vec<u8>,
    mut caller: Caller,
    request: &[u8],
    answer_bytes: usize,
) -> Result<Vec<Session>, Error> {
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.set_nodelay(true).unwrap();
    caller.output.splice(0..0, before);
    let mut asked = false;
    while caller.taken.data.len() < answer_bytes {
        if caller.client.is_connected() && !asked {
            caller.client.send(request, &mut caller.output)?;
            asked = true;
        }
        // The server may have closed already.
        let _ = stream.write_all(&std::mem::take(&mut caller.output));
        let mut buffer = [0; 4096];
        let length = stream.read(&mut buffer).unwrap_or(0);
        if length == 0 {
            assert!(asked, "the server closed");
            break;
        }
        if let Err(error) = caller.receive(&mut buffer[..length]) {
            let _ = stream.write_all(&caller.output);
            return Err(error);
        }
    }
    Ok(std::mem::take(&mut caller.taken.sessions))
}
