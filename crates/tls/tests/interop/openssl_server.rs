//! A server on OpenSSL (libssl through the `openssl` crate).

use std::io::{self, Read, Write};
use std::sync::{Arc, Mutex};

use openssl::pkey::PKey;
use openssl::ssl::{
    ErrorCode, ShutdownState, Ssl, SslContext, SslContextBuilder, SslMethod, SslOptions, SslSessionCacheMode,
    SslStream, SslVersion,
};
use openssl::x509::X509;
use tlsdyno_tls::{Group, Suite, Version};

use crate::harness::{KeyKind, Server, View, answer, identity};

/// A context, from which any number of servers is made; they share sessions and ticket keys.
pub struct OpensslContext {
    context: SslContext,
    /// Lines in the format of NSS key logs.
    pub key_log: Arc<Mutex<Vec<String>>>,
}

impl OpensslContext {
    pub fn new(key: KeyKind, configure: impl FnOnce(&mut SslContextBuilder)) -> OpensslContext {
        let identity = identity(key);
        let mut builder = SslContext::builder(SslMethod::tls_server()).unwrap();
        builder.set_security_level(0);
        builder.set_certificate(&X509::from_der(&identity.certificate_der).unwrap()).unwrap();
        builder.set_private_key(&PKey::private_key_from_pkcs8(&identity.key_pkcs8).unwrap()).unwrap();
        builder.set_min_proto_version(Some(SslVersion::TLS1_2)).unwrap();
        builder.set_session_cache_mode(SslSessionCacheMode::SERVER);
        builder.set_session_id_context(b"interop").unwrap();
        let key_log = Arc::new(Mutex::new(Vec::new()));
        let log = Arc::clone(&key_log);
        builder.set_keylog_callback(move |_, line| log.lock().unwrap().push(line.to_owned()));
        configure(&mut builder);
        OpensslContext { context: builder.build(), key_log }
    }

    /// A context that speaks one suite and one group only.
    pub fn narrow(
        key: KeyKind,
        suite: Suite,
        group: Group,
        configure: impl FnOnce(&mut SslContextBuilder),
    ) -> OpensslContext {
        OpensslContext::new(key, |builder| {
            match suite.version() {
                Version::Tls13 => builder.set_ciphersuites(suite.openssl_name()).unwrap(),
                Version::Tls12 => {
                    builder.set_cipher_list(&format!("{}:@SECLEVEL=0", suite.openssl_name())).unwrap();
                    builder.set_max_proto_version(Some(SslVersion::TLS1_2)).unwrap();
                }
            }
            builder.set_groups_list(&groups(suite, key, group)).unwrap();
            configure(builder);
        })
    }

    pub fn server(&self) -> OpensslServer {
        let pipe = Pipe::default();
        let mut ssl = Ssl::new(&self.context).unwrap();
        ssl.set_accept_state();
        OpensslServer {
            stream: SslStream::new(ssl, pipe).unwrap(),
            view: View::default(),
            requests: Vec::new(),
            demands_cookie: false,
        }
    }

    /// A server that demands a cookie by HelloRetryRequest before it keeps any state.
    pub fn stateless_server(&self) -> OpensslServer {
        let mut server = self.server();
        server.demands_cookie = true;
        server
    }
}

pub fn no_tickets(builder: &mut SslContextBuilder) {
    builder.set_options(SslOptions::NO_TICKET);
}

/// libssl (TLS 1.2) wants the certificate's curve among the groups too; the key agreement's comes first.
fn groups(suite: Suite, key: KeyKind, group: Group) -> String {
    let curve = match key {
        KeyKind::P256 => "P-256",
        KeyKind::P384 => "P-384",
        KeyKind::Rsa2048 => return group.to_string(),
    };
    match suite.version() {
        Version::Tls12 if curve != group.to_string() => format!("{group}:{curve}"),
        _ => group.to_string(),
    }
}

#[derive(Default)]
struct Pipe {
    input: Vec<u8>,
    output: Vec<u8>,
}

impl Read for Pipe {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.input.is_empty() {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        let length = buffer.len().min(self.input.len());
        buffer[..length].copy_from_slice(&self.input[..length]);
        self.input.drain(..length);
        Ok(length)
    }
}

impl Write for Pipe {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.output.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

pub struct OpensslServer {
    stream: SslStream<Pipe>,
    view: View,
    requests: Vec<u8>,
    demands_cookie: bool,
}

impl OpensslServer {
    /// The connection in OpenSSL, for calls that only some tests make.
    pub fn stream(&mut self) -> &mut SslStream<impl Read + Write + use<>> {
        &mut self.stream
    }

    /// Bytes that arrive, to be read by such calls.
    pub fn input(&mut self, bytes: &[u8]) {
        self.stream.get_mut().input.extend_from_slice(bytes);
    }

    /// Whether it has resumed a session, though its handshake may not be over.
    pub fn is_resuming(&self) -> bool {
        self.stream.ssl().session_reused()
    }

    fn advance(&mut self) {
        if self.demands_cookie {
            self.demands_cookie = !self.stream.stateless().unwrap();
            if self.demands_cookie {
                return;
            }
        }
        if !self.view.connected {
            match self.stream.accept() {
                Ok(()) => {
                    self.view.connected = true;
                    self.view.resumed = self.stream.ssl().session_reused();
                }
                Err(error) => return self.note(&error),
            }
        }
        let mut buffer = [0; 4096];
        loop {
            match self.stream.ssl_read(&mut buffer) {
                Ok(length) => {
                    self.requests.extend_from_slice(&buffer[..length]);
                    let answers = answer(&mut self.requests);
                    if !answers.is_empty() {
                        self.stream.write_all(&answers).unwrap();
                    }
                }
                Err(error) => return self.note(&error),
            }
        }
    }

    fn note(&mut self, error: &openssl::ssl::Error) {
        match error.code() {
            ErrorCode::WANT_READ => (),
            ErrorCode::ZERO_RETURN => self.view.peer_closed = true,
            _ => {
                // libssl reports a received alert as reason 1000 + description.
                let reasons = error.ssl_error().map(|stack| stack.errors().to_vec()).unwrap_or_default();
                let alert = reasons.iter().map(|reason| reason.reason_code()).find(|reason| *reason >= 1000);
                match alert {
                    Some(reason) => self.view.alert = Some((reason - 1000) as u8),
                    None => self.view.failure = Some(format!("{error}")),
                }
            }
        }
    }
}

impl Server for OpensslServer {
    fn receive(&mut self, bytes: &[u8]) {
        self.stream.get_mut().input.extend_from_slice(bytes);
        if self.view.alert.is_none() && self.view.failure.is_none() && !self.view.peer_closed {
            self.advance();
        }
    }

    fn take_output(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.stream.get_mut().output)
    }

    fn close(&mut self) {
        self.stream.shutdown().unwrap();
    }

    fn view(&self) -> View {
        self.view.clone()
    }
}

impl Drop for OpensslServer {
    /// Otherwise libssl marks the session as not resumable.
    fn drop(&mut self) {
        self.stream.set_shutdown(ShutdownState::SENT | ShutdownState::RECEIVED);
    }
}
