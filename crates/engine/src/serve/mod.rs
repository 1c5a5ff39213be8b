//! The built-in server: static objects over HTTP/1.1, plain or through OpenSSL, one epoll loop per worker.
//!
//! Its cost per request is meant to be like nginx's: one system call to read, one to write, one record for head and
//! small body, 16 KB records for the rest, no allocation per request on a kept-alive connection. It is a subject to be
//! measured, not a server for the world: it reads the docroot once, at start, and bounds everything (see `limits`), but
//! it has no access control.

mod answer;
mod connection;
mod date;
mod docroot;
pub mod limits;
mod origin;
mod pages;
mod sending;
mod socket;
mod tls;
mod transaction;
mod transport;
mod worker;

#[cfg(test)]
mod tests;

pub use crate::listen::bind;
pub use answer::{Answer, Status};
pub use docroot::{Content, Docroot, DocrootError, Object};
pub use pages::Pages;
pub use tls::{TlsError, TlsSettings};
pub use transaction::{STAMPS_MAX, Stamp, Transaction};
pub use worker::{Listener, Settings, run};
