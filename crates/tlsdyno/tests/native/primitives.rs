//! The program that measures primitives, plain and under sanitizers: every kind of operation on this machine's OpenSSL,
//! and commands that are none.

use std::io::Write;
use std::process::{Command, Stdio};

use tlsdyno::servers::{certificates, mapped};

use crate::build::{Build, SANITIZERS, leak_check, native, out, plain_and_sanitized, run};

fn every_operation_and_garbage(build: Build) {
    let sources = native().join("primitives");
    let (compiler, sanitizers, label) = match build {
        Build::Plain => ("cc", &[][..], "plain"),
        Build::Sanitized => ("clang", SANITIZERS, "sanitized"),
    };
    let program = out().join(format!("tlsdyno-primitives-{label}-{}", std::process::id()));
    let files = ["library.c", "main.c", "operations.c", "records.c"].map(|name| sources.join(name));
    run(Command::new(compiler)
        .args(["-std=c11", "-D_GNU_SOURCE", "-O1", "-g", "-Wall", "-Wextra", "-Werror", "-Wshadow", "-Wconversion"])
        .args(sanitizers)
        .args(files)
        .arg("-o")
        .arg(&program)
        .arg("-ldl"));
    let libraries = mapped::mapped_libraries(std::process::id()).unwrap();
    let find = |start: &str| {
        let is_it = |name: &str| name.starts_with(start);
        let found = libraries.iter().find(|of| of.path.file_name().and_then(|name| name.to_str()).is_some_and(is_it));
        found.unwrap_or_else(|| panic!("{start} is not mapped")).path.clone()
    };
    let directory = tempfile::tempdir().unwrap();
    let rsa = tlsdyno::model::CertificateKind::Rsa2048;
    let identity = certificates::create(rsa, directory.path()).unwrap();
    let good = [
        "cipher AES-128-GCM 16384 1000000",
        "cipher ChaCha20-Poly1305 1 1000000",
        "cipher AES-256-CBC 1048576 1000000",
        "digest SHA384 8 1000000",
        "hmac SHA1 64 1000000",
        "record TLS_AES_256_GCM_SHA384 16384 1000000",
        "record ECDHE-RSA-AES128-SHA 1 1000000",
    ];
    let long = "x".repeat(1000);
    let bad =
        ["", "cipher", "cipher NONE 8 1", "record NONE 8 1", "cipher AES-128-GCM 0 1", "cipher AES-128-GCM 99999999 1"];
    let mut child = Command::new(&program)
        .args([find("libcrypto.so"), find("libssl.so"), identity.chain.clone(), identity.key.clone()])
        .env("LSAN_OPTIONS", leak_check())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let lines = good.iter().chain(&bad).map(|line| format!("{line}\n")).collect::<String>() + &long + "\n";
    child.stdin.take().unwrap().write_all(lines.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    let answers: Vec<&str> = said.lines().collect();
    assert!(answers[0].starts_with("OpenSSL 3") || answers[0].starts_with("OpenSSL 4"), "{said}");
    for answer in &answers[1..=good.len()] {
        let numbers: Vec<u64> = answer.split(' ').map(|text| text.parse().expect(answer)).collect();
        assert!(numbers.len() == 3 && numbers[0] > 0 && numbers[1] >= 1_000_000, "{said}");
    }
    assert!(answers[1 + good.len()..].iter().filter(|line| line.starts_with("! ")).count() >= bad.len(), "{said}");
}

plain_and_sanitized!(every_operation_and_garbage);
