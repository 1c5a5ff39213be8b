//! The provider of remote keys: what it exports, and what it makes of an agent's answers.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;
use std::process::Command;

use tlsdyno::servers::certificates;
use tlsdyno_cryptoserver::front_end;

use crate::build::{self, Build};

/// A front end for a certificate of RSA in a directory of its own.
fn front_end(directory: &tempfile::TempDir) -> (PathBuf, Vec<PathBuf>) {
    fs::set_permissions(directory.path(), fs::Permissions::from_mode(0o700)).unwrap();
    let site = certificates::create(tlsdyno::model::CertificateKind::Rsa2048, directory.path()).unwrap();
    let socket = directory.path().join("socket");
    let made = front_end::write(&directory.path().join("front"), &socket, &[site.chain]).unwrap();
    (made.openssl_cnf, vec![socket, made.stubs[0].clone(), site.key])
}

#[test]
fn exports_one_symbol_and_brings_no_libcrypto() {
    let directory = tempfile::tempdir().unwrap();
    let library = front_end(&directory).0.with_file_name(tlsdyno::native::remote_keys::FILE);
    let symbols = build::run(Command::new("nm").args(["-D", "--defined-only"]).arg(&library));
    let names: Vec<&str> = symbols.lines().filter_map(|line| line.split(' ').next_back()).collect();
    assert_eq!(names, ["OSSL_provider_init"]);
    let dynamic = build::run(Command::new("readelf").args(["-d", "-W"]).arg(&library));
    let needed: Vec<&str> = dynamic.lines().filter(|line| line.contains("(NEEDED)")).collect();
    assert!(!needed.iter().any(|line| line.contains("crypto") || line.contains("ssl")), "{needed:?}");
    assert!(dynamic.contains("NODELETE"), "{dynamic}");
}

fn takes_right_answers_only(build: Build) {
    let directory = tempfile::tempdir().unwrap();
    let (openssl_cnf, files) = front_end(&directory);
    let (program, library) = build.of("cryptoserver", "remote_keys", &[]);
    if let Some(library) = library {
        fs::copy(library, openssl_cnf.with_file_name(tlsdyno::native::remote_keys::FILE)).unwrap();
    }
    build::run(Command::new(program).args(files).env("OPENSSL_CONF", openssl_cnf));
}

build::plain_and_sanitized!(takes_right_answers_only);
