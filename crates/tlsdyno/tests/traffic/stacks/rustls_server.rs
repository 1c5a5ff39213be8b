//! A small HTTPS server on rustls, with a ticket key of its own or with sessions that it keeps itself.

use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use rustls::crypto::aws_lc_rs;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{HandshakeKind, ServerConfig, ServerConnection, StreamOwned, SupportedProtocolVersion};

/// How long a connection may stand still.
const PATIENCE: Duration = Duration::from_secs(60);

/// What all connections share.
struct Site {
    config: Arc<ServerConfig>,
    content: Vec<u8>,
    /// Opened for appending.
    log: Option<File>,
}

/// Starts one that answers with `content`, until the process ends; `log`: where to write a line about each request.
pub fn start(config: Arc<ServerConfig>, content: &[u8], log: Option<File>) -> SocketAddr {
    let site = Arc::new(Site { config, content: content.to_vec(), log });
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            let site = Arc::clone(&site);
            thread::spawn(move || serve(stream, &site));
        }
    });
    address
}

/// Settings of one with a certificate and ticket keys of its own; `tickets`: stateless tickets, else rustls' default,
/// which is stateful.
pub fn config(tickets: bool, versions: &[&'static SupportedProtocolVersion]) -> Arc<ServerConfig> {
    let key = rcgen::KeyPair::generate().unwrap();
    let params = rcgen::CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
    let certificate = params.self_signed(&key).unwrap();
    let chain = vec![CertificateDer::from(certificate.der().to_vec())];
    let key = PrivateKeyDer::try_from(key.serialize_der()).unwrap();
    let config = ServerConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()));
    let mut config =
        config.with_protocol_versions(versions).unwrap().with_no_client_auth().with_single_cert(chain, key).unwrap();
    if tickets {
        config.ticketer = aws_lc_rs::Ticketer::new().unwrap();
    }
    Arc::new(config)
}

fn serve(stream: TcpStream, site: &Site) {
    stream.set_nodelay(true).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.set_write_timeout(Some(PATIENCE)).unwrap();
    let connection = ServerConnection::new(Arc::clone(&site.config)).unwrap();
    let mut reader = BufReader::new(StreamOwned::new(connection, stream));
    for number in 1.. {
        let (mut line, mut close) = (String::new(), false);
        while line != "\r\n" {
            line.clear();
            if !matches!(reader.read_line(&mut line), Ok(1..)) {
                return;
            }
            close |= line == "Connection: close\r\n";
        }
        if let Some(mut log) = site.log.as_ref() {
            // Before the answer, so that whoever has that finds the line; in one piece, for many threads write.
            log.write_all(said(&reader.get_ref().conn, number).as_bytes()).unwrap();
        }
        let mut answer = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", site.content.len()).into_bytes();
        answer.extend_from_slice(&site.content);
        if reader.get_mut().write_all(&answer).and_then(|()| reader.get_mut().flush()).is_err() {
            return;
        }
        if close {
            reader.get_mut().conn.send_close_notify();
            let _ = reader.get_mut().flush();
            return;
        }
    }
}

fn said(connection: &ServerConnection, number: u32) -> String {
    let resumed = if connection.handshake_kind() == Some(HandshakeKind::Resumed) { "r" } else { "." };
    let version = connection.protocol_version().and_then(|version| version.as_str()).unwrap_or("-");
    let suite = connection.negotiated_cipher_suite().and_then(|suite| suite.suite().as_str()).unwrap_or("-");
    format!("{resumed} {version} {suite} {number}\n")
}
