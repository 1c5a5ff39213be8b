//! A server on rustls.

use std::io::{Read, Write};
use std::sync::Arc;

use rustls::crypto::{CryptoProvider, aws_lc_rs};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use rustls::server::NoServerSessionStorage;
use rustls::{NamedGroup, ServerConfig, ServerConnection};
use tlsdyno_tls::{Group, Suite};

use crate::harness::{KeyKind, Server, View, answer, identity};

/// A configuration that speaks these suites and groups, with stateless tickets or a session cache.
pub fn rustls_config(key: KeyKind, suites: &[Suite], groups: &[Group], tickets: bool) -> Arc<ServerConfig> {
    let mut provider = aws_lc_rs::default_provider();
    provider.cipher_suites.retain(|known| suites.iter().any(|suite| suite.code() == u16::from(known.suite())));
    provider.kx_groups = groups.iter().map(|group| kx_group(*group)).collect();
    let identity = identity(key);
    let mut config = ServerConfig::builder_with_provider(Arc::new(provider))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(
            vec![CertificateDer::from(identity.certificate_der.clone())],
            PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(identity.key_pkcs8.clone())),
        )
        .unwrap();
    if tickets {
        config.ticketer = aws_lc_rs::Ticketer::new().unwrap();
        config.session_storage = Arc::new(NoServerSessionStorage {});
    }
    Arc::new(config)
}

/// Whether rustls speaks it (no CBC, no static RSA).
pub fn speaks(suite: Suite) -> bool {
    let provider: CryptoProvider = aws_lc_rs::default_provider();
    provider.cipher_suites.iter().any(|known| u16::from(known.suite()) == suite.code())
}

/// Whether rustls has it: all but SecP384r1MLKEM1024.
pub fn has_group(group: Group) -> bool {
    find_group(group).is_some()
}

fn kx_group(group: Group) -> &'static dyn rustls::crypto::SupportedKxGroup {
    find_group(group).expect("rustls has the group")
}

fn find_group(group: Group) -> Option<&'static dyn rustls::crypto::SupportedKxGroup> {
    aws_lc_rs::ALL_KX_GROUPS.iter().copied().find(|known| known.name() == NamedGroup::from(group.code()))
}

pub struct RustlsServer {
    connection: ServerConnection,
    view: View,
    requests: Vec<u8>,
}

impl RustlsServer {
    pub fn new(config: &Arc<ServerConfig>) -> RustlsServer {
        let connection = ServerConnection::new(Arc::clone(config)).unwrap();
        RustlsServer { connection, view: View::default(), requests: Vec::new() }
    }
}

impl Server for RustlsServer {
    fn receive(&mut self, bytes: &[u8]) {
        let mut rest = bytes;
        while !rest.is_empty() && self.view.failure.is_none() && self.view.alert.is_none() {
            self.connection.read_tls(&mut rest).unwrap();
            match self.connection.process_new_packets() {
                Ok(state) => self.view.peer_closed |= state.peer_has_closed(),
                Err(rustls::Error::AlertReceived(alert)) => self.view.alert = Some(u8::from(alert)),
                Err(error) => self.view.failure = Some(error.to_string()),
            }
            if let Some(mut early) = self.connection.early_data() {
                early.read_to_end(&mut self.requests).unwrap();
            }
            // An error here only says that nothing more is there for now, or ever.
            let _ = self.connection.reader().read_to_end(&mut self.requests);
        }
        let answers = answer(&mut self.requests);
        self.connection.writer().write_all(&answers).unwrap();
        self.view.connected = !self.connection.is_handshaking();
        self.view.resumed = self.connection.handshake_kind() == Some(rustls::HandshakeKind::Resumed);
    }

    fn take_output(&mut self) -> Vec<u8> {
        let mut output = Vec::new();
        while self.connection.wants_write() {
            self.connection.write_tls(&mut output).unwrap();
        }
        output
    }

    fn close(&mut self) {
        self.connection.send_close_notify();
    }

    fn view(&self) -> View {
        self.view.clone()
    }
}
