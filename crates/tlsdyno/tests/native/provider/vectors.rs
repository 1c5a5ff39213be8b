//! `native/vectors/`: what the provider puts on the wire, written by the C side and compared with the files that both
//! sides test against.
//!
//! `TLSDYNO_WRITE_VECTORS=1 cargo test -p tlsdyno --test native provider::vectors` writes the files anew.

use std::fs;
use std::path::Path;
use std::process::Command;

use tlsdyno::native::Injection;
use tlsdyno_tls::StageSet;

use crate::build;

/// One file: its section of the C program, what it holds, and the sets of stages that are off.
struct VectorFile {
    section: &'static str,
    about: &'static str,
    off: &'static [&'static str],
}

const HALVES: &[&str] = &["none", "cipher", "mac", "cipher,mac"];

const AEAD: &str = "\
Records of the AEAD suites. `secret` (TLS 1.3 only) is the traffic secret of `key` and `iv`; `iv` is the
# static part of the nonce: 12 bytes, or the 4 fixed bytes of TLS 1.2 GCM, whose 8 explicit bytes stand
# in the record and are zero. TLS 1.3: `plaintext` ends with the content type 23. `record` is the whole
# record with its header.";

const CBC: &str = "\
TLS 1.2 records of the CBC suites, content type 23. `record` is the whole record: header, explicit IV,
# data, MAC, padding; with encrypt-then-MAC header, explicit IV, data, padding, MAC. The stitched
# implementations write the same bytes.";

const FILES: [VectorFile; 8] = [
    VectorFile { section: "aead", about: AEAD, off: HALVES },
    VectorFile { section: "cbc", about: CBC, off: HALVES },
    VectorFile {
        section: "digest",
        about: "The checksum that takes the place of libssl's own hashing.",
        off: &["digest"],
    },
    VectorFile {
        section: "kdf",
        about: "Derived bytes and the HMAC of the handshake. The inputs make no difference.",
        off: &["kdf"],
    },
    VectorFile {
        section: "signature",
        about: "Signatures by kind of key, and the block of the static-RSA key exchange (`premaster` in, `block` out).",
        off: &["authentication"],
    },
    VectorFile { section: "exchange", about: "Shared secrets by group.", off: &["key_agreement"] },
    VectorFile {
        section: "kem",
        about: "Hybrid groups: the size of the server's share, and the secret. Written on OpenSSL 3.5 or later.",
        off: &["key_agreement"],
    },
    VectorFile {
        section: "ml_dsa",
        about: "Signatures by ML-DSA keys. Written on OpenSSL 3.5 or later.",
        off: &["authentication"],
    },
];

#[test]
fn vectors_are_those_of_the_provider() {
    let program = build::test_program("cc", "vectors", &[]);
    let folder = build::native().join("vectors");
    for file in &FILES {
        let Some(fresh) = generate(&program, file) else {
            assert!(["kem", "ml_dsa"].contains(&file.section), "what is in every OpenSSL: {}", file.section);
            continue;
        };
        let path = folder.join(format!("{}.txt", file.section));
        if std::env::var_os("TLSDYNO_WRITE_VECTORS").is_some() {
            fs::write(&path, &fresh).unwrap();
        }
        let kept = fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        assert!(
            fresh == kept,
            "the provider no longer writes {}; if the contract was changed on purpose, write the vectors anew",
            path.display()
        );
    }
}

/// The file's text; `None` if the OpenSSL under test has nothing of it.
fn generate(program: &Path, file: &VectorFile) -> Option<String> {
    let mut text = format!(
        "# {}\n#\n\
         # Written by native/tests/vectors.c through OpenSSL and the provider; do not edit. Blocks end with an empty\n\
         # line. `off` names the stages that are off. Bytes are hexadecimal.\n\n",
        file.about
    );
    for off in file.off {
        let dir = tempfile::tempdir().unwrap();
        let injection = Injection::prepare(dir.path(), stages(off)).unwrap();
        let mut command = Command::new(program);
        command.args([file.section, off]).envs(injection.let_children_inherit().unwrap());
        let blocks = build::run(&mut command);
        if blocks.is_empty() {
            return None;
        }
        text += &blocks;
        // Without this the program might have run on the default provider.
        assert_eq!(
            injection.counters().unwrap().iter().all(|(.., count)| count == 0),
            *off == "none",
            "{} with {off} off",
            file.section
        );
    }
    Some(text)
}

/// `none`, or stage names separated by commas.
pub fn stages(off: &str) -> StageSet {
    match off {
        "none" => StageSet::NONE,
        names => names.split(',').map(|name| name.parse().unwrap()).collect(),
    }
}
