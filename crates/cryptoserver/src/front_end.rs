//! What a web server's machine needs: the provider, an openssl.cnf that names it, and a stub for each certificate.

use std::fs::{self, File};
use std::io::Write as _;
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use tlsdyno_base::fault::{Fault, OrFault};
use tlsdyno_base::input;
use tlsdyno_native::remote_keys;

use crate::stub;

#[derive(Debug)]
pub struct FrontEnd {
    /// For the environment variable OPENSSL_CONF of the web server.
    pub openssl_cnf: PathBuf,
    /// In place of the private keys, in the order of the certificates.
    pub stubs: Vec<PathBuf>,
}

/// Writes `tlsdyno-cryptoserver.so`, `openssl.cnf` and `NAME.key` for each `NAME.pem` into `directory`, which is made.
/// Files that are there are replaced. Nothing of it is secret.
///
/// # Errors
/// [`Fault::Input`]: a certificate cannot be used. [`Fault::Environment`]: a file cannot be written, or a path stand in
/// an openssl.cnf.
pub fn write(directory: &Path, socket: &Path, certificates: &[PathBuf]) -> Result<FrontEnd> {
    let mut stubs: Vec<(PathBuf, Vec<u8>)> = Vec::new();
    for path in certificates {
        let made = stub::of_certificate(&input::read(path, input::TEXT_BYTES_MAX)?);
        let made = made.with_context(|| format!("{}", path.display())).or_fault(Fault::Input)?;
        // No `with_extension`: names of sites have dots.
        let mut name = path.file_stem().unwrap_or(path.as_os_str()).to_owned();
        name.push(".key");
        let stub = directory.join(name);
        let is_new = stubs.iter().all(|(other, _)| *other != stub);
        ensure_fault!(Usage, is_new, "two certificates would have the stub {}; rename one", stub.display());
        stubs.push((stub, made));
    }
    let put = || -> Result<FrontEnd> {
        fs::DirBuilder::new().recursive(true).mode(0o755).create(directory)?;
        let directory = fs::canonicalize(directory)?;
        let library = directory.join(remote_keys::FILE);
        replace(&library, remote_keys::IMAGE, 0o755)?;
        let openssl_cnf = directory.join("openssl.cnf");
        replace(&openssl_cnf, remote_keys::openssl_cnf(&library, socket)?.as_bytes(), 0o644)?;
        for (path, stub) in &stubs {
            replace(path, stub, 0o644)?;
        }
        Ok(FrontEnd { openssl_cnf, stubs: stubs.iter().map(|(path, _)| path.clone()).collect() })
    };
    put().with_context(|| format!("failed to write into {}", directory.display())).or_fault(Fault::Environment)
}

/// A server that runs has the old file mapped or reads it: it keeps that.
fn replace(path: &Path, content: &[u8], mode: u32) -> Result<()> {
    let mut new = path.as_os_str().to_owned();
    new.push(".new");
    let mut file = File::options().write(true).create(true).truncate(true).mode(mode).open(&new)?;
    file.set_permissions(fs::Permissions::from_mode(mode))?;
    file.write_all(content)?;
    fs::rename(&new, path).with_context(|| format!("replace {}", path.display()))
}
