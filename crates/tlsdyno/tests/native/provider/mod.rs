//! The provider inside real libcrypto, `openssl s_server` and nginx: vectors, the matrix of stages, refusals, processes
//! and threads.
//!
//! `TLSDYNO_OPENSSL_PREFIX=DIR` runs the matrix and the programs that need nothing but libcrypto on another OpenSSL,
//! installed in DIR, with shared libraries in DIR/shared; `make test-openssl` does so for other series.

mod hardware;
mod library;
mod modes;
mod nginx;
mod processes;
mod refusal;
mod stages;
pub mod tls;
mod vectors;
