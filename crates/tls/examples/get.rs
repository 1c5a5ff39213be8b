//! Fetches a path over TLS with the lean client and says what was negotiated; then again with the session that it got.
//!
//! ```text
//! cargo run -p tlsdyno-tls --example get -- 127.0.0.1:8443 localhost /index.html \
//!     [suite=AES128-SHA] [group=P-384] [tls=1.2] [effort=lean] [off=cipher,mac] [ca=FILE.pem] \
//!     [times=3] [tickets=no] [etm=no] [ems=no]
//! ```

use std::error::Error;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject;
use tlsdyno_tls::{Client, Config, Effort, Entropy, Receiver, Session, Settings};

/// Random bytes of the system.
struct System;

impl Entropy for System {
    fn fill(&mut self, bytes: &mut [u8]) {
        aws_lc_rs::rand::fill(bytes).expect("the system gives randomness");
    }
}

#[derive(Default)]
struct Received {
    response: Vec<u8>,
    sessions: Vec<Session>,
}

impl Receiver for Received {
    fn plaintext(&mut self, bytes: &[u8]) {
        self.response.extend_from_slice(bytes);
    }

    fn session(&mut self, session: Session) {
        self.sessions.push(session);
    }
}

fn now_ms() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis() as u64)
}

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("get: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [address, host, path, options @ ..] = &arguments[..] else {
        return Err("usage: get ADDRESS:PORT HOST PATH [option=value ...]".into());
    };
    let mut times = 2;
    let mut settings = Settings {
        effort: Effort::Lean,
        server_name: Some(host.clone()),
        now_unix_s: now_ms() / 1000,
        ..Settings::default()
    };
    for option in options {
        let (name, value) = option.split_once('=').ok_or("options are name=value")?;
        match name {
            "suite" => settings.suites = value.split(',').map(str::parse).collect::<Result<_, _>>()?,
            "group" => settings.groups = value.split(',').map(str::parse).collect::<Result<_, _>>()?,
            "tls" => settings.versions = value.split(',').map(str::parse).collect::<Result<_, _>>()?,
            "effort" => settings.effort = value.parse()?,
            "off" => settings.stages_off = value.split(',').map(str::parse).collect::<Result<_, _>>()?,
            "ca" => {
                let certificates = CertificateDer::pem_file_iter(value)?.collect::<Result<Vec<_>, _>>()?;
                settings.trust_anchors = certificates.iter().map(|der| der.to_vec()).collect();
            }
            "times" => times = value.parse()?,
            "tickets" => settings.tickets = value != "no",
            "etm" => settings.encrypt_then_mac = value != "no",
            "ems" => settings.extended_master_secret = value != "no",
            _ => return Err(format!("unknown option `{name}`").into()),
        }
    }
    let config = Arc::new(Config::new(settings)?);
    let request = format!("GET {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n");
    let mut session = None;
    for _ in 0..times {
        let mut received = Received::default();
        fetch(address, &config, session.clone(), request.as_bytes(), &mut received)?;
        println!("{} bytes of response, {} sessions", received.response.len(), received.sessions.len());
        session = received.sessions.pop().or(session);
    }
    Ok(())
}

fn fetch(
    address: &str,
    config: &Arc<Config>,
    session: Option<Session>,
    request: &[u8],
    received: &mut Received,
) -> Result<(), Box<dyn Error>> {
    let mut stream = TcpStream::connect(address)?;
    let mut out = Vec::new();
    let mut client = Client::new(config, session, &mut System, now_ms(), &mut out);
    let mut requested = false;
    let mut buffer = vec![0; 1 << 16];
    loop {
        stream.write_all(&out)?;
        out.clear();
        if client.peer_closed() {
            return Ok(());
        }
        let read = stream.read(&mut buffer)?;
        if read == 0 {
            return Ok(client.end_of_input()?);
        }
        if let Err(error) = client.receive(&mut buffer[..read], now_ms(), &mut System, &mut out, received) {
            stream.write_all(&out)?;
            return Err(error.into());
        }
        if let (false, Some(handshake)) = (requested, client.handshake()) {
            println!("{handshake:?}");
            client.send(request, &mut out)?;
            requested = true;
        }
    }
}
