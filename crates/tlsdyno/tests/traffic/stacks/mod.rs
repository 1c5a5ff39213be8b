//! How sessions are kept, and small HTTPS servers on TLS stacks that no driver starts: Go's crypto/tls and rustls. Each
//! answers every request with one object, and can log what [`tlsdyno::servers::session_log`] reads: `RESUMED PROTOCOL
//! CIPHER NUMBER` for each request, `r` for a resumed session.

pub mod go_server;
pub mod rustls_server;
pub mod sessions;
