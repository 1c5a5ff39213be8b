//! `tlsdyno cryptoserver`: private keys on another machine than the web server (Coarfa et al. 2006, section 5.1).
//!
//! The service signs and decrypts over mutually authenticated TLS 1.3; the agent on the web server's machine
//! carries the requests of a provider (`native/cryptoserver`) there; a stub is what the web server loads as its key.
//!
//! What is signed is a handshake's, and the service sees that it is: [`form`].

#![forbid(unsafe_code)]
// They panic where the reader has gone (`2>&1 | head -1`): `tell!` and `output::print` do not.
#![cfg_attr(not(test), deny(clippy::print_stderr, clippy::print_stdout))]

#[macro_use]
extern crate tlsdyno_base;

pub mod agent;
pub mod batch;
pub mod batch_keys;
pub mod command;
pub mod form;
pub mod frame;
pub mod front_end;
pub mod gathering;
pub mod identity;
#[cfg(test)]
mod kept_inputs;
pub mod keys;
mod link;
pub mod metrics;
mod padding;
pub mod premaster;
pub mod rate;
pub mod service;
mod strangers;
pub mod stub;

use tlsdyno_base::program::Program;
use tlsdyno_base::subcommand::subcommand;

pub fn program() -> Program {
    let only = subcommand!("cryptoserver", command).with_short_help(
        &["keys", "listen", "cert", "cert_key", "client_ca", "allow_decryption", "rate", "max_connections"],
        "tlsdyno cryptoserver --key site.key --cert keys.pem --cert-key keys.key --client-ca agents.pem",
    );
    Program::satellite("tlsdyno-cryptoserver", vec![only])
}
