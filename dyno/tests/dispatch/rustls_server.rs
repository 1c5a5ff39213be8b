//! A small HTTPS server on rustls, with a ticket key of its own or with sessions that it keeps itself.

use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;

use rustls::crypto::aws_lc_rs;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ServerConfig, ServerConnection, StreamOwned, SupportedProtocolVersion};

use crate::crowd::SMALL;
use crate::support::backend;

/// Starts one; `tickets`: stateless tickets, else rustls' default, which is stateful.
pub fn start(tickets: bool, versions: &[&'static SupportedProtocolVersion]) -> SocketAddr {
    let config = config(tickets, versions);
    let (address, _) = backend(move |stream: TcpStream| serve(stream, Arc::clone(&config)));
    address
}

/// Its settings, with a certificate and ticket keys of its own.
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

fn serve(stream: TcpStream, config: Arc<ServerConfig>) {
    stream.set_nodelay(true).unwrap();
    let connection = ServerConnection::new(config).unwrap();
    let mut reader = BufReader::new(StreamOwned::new(connection, stream));
    loop {
        let (mut line, mut close) = (String::new(), false);
        while line != "\r\n" {
            line.clear();
            if !matches!(reader.read_line(&mut line), Ok(1..)) {
                return;
            }
            close |= line == "Connection: close\r\n";
        }
        let mut answer = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", SMALL.content.len()).into_bytes();
        answer.extend_from_slice(&SMALL.content);
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
