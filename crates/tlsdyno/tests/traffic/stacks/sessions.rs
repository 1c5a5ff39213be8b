//! How a server keeps sessions.

use tlsdyno::model::SessionCache;
use tlsdyno::servers::{CertificateFiles, ServerTls};
use tlsdyno_tls::Version;

/// One way to keep them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sessions {
    Ids,
    Tickets12,
    Tickets13,
}

impl Sessions {
    pub const ALL: [Sessions; 3] = [Sessions::Ids, Sessions::Tickets12, Sessions::Tickets13];

    /// The only version of TLS in which they are kept so.
    pub fn version(self) -> Version {
        if self == Sessions::Tickets13 { Version::Tls13 } else { Version::Tls12 }
    }

    /// What a driver's server is told, for sessions of this kind only.
    pub fn tls(self, certificate: CertificateFiles) -> ServerTls {
        let (tickets, session_cache) = match self {
            Sessions::Ids => (false, SessionCache::Shared),
            Sessions::Tickets12 | Sessions::Tickets13 => (true, SessionCache::Off),
        };
        ServerTls { versions: vec![self.version()], tickets, session_cache, ..ServerTls::new(certificate) }
    }
}
