//! The OpenSSL provider that asks a cryptoserver for what a private key does (`native/cryptoserver`). Unlike the other
//! libraries it takes no security away, so it needs no area and outlives this process.

use std::path::Path;

use anyhow::Result;

use crate::unpacked::configuration_value;

pub const FILE: &str = "tlsdyno-cryptoserver.so";
pub const IMAGE: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/tlsdyno-cryptoserver.so"));

/// An openssl.cnf that loads it in place of `default`, so that a library that does not load leaves a server without
/// ciphers, which shows at once.
pub fn openssl_cnf(library: &Path, socket: &Path) -> Result<String> {
    Ok(format!(
        "# Made by tlsdyno: private keys at a cryptoserver. For the variable OPENSSL_CONF of a web server.\n\
         openssl_conf = init\n\
         [init]\n\
         providers = providers\n\
         [providers]\n\
         tlsdyno = tlsdyno\n\
         [tlsdyno]\n\
         module = {}\n\
         activate = 1\n\
         socket = {}\n",
        configuration_value(library)?,
        configuration_value(socket)?,
    ))
}
