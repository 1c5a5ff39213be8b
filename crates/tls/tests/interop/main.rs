//! The whole client, in memory against servers of OpenSSL and rustls, and over sockets against Go, GnuTLS and nginx:
//! every version, suite, group, effort and kind of session; what it must refuse, and with which alert; and every way in
//! which its input can be cut.

mod cuts;
mod early_data;
mod harness;
mod hybrids;
mod meddler;
mod openssl_server;
mod over_sockets;
mod processes;
mod refusals;
mod rustls_server;
mod scripted_server;
mod shim_stages;
mod with_gnutls;
mod with_openssl;
mod with_rustls;
