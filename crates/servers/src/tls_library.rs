//! Which TLS library a server process has. Only an OpenSSL 3 that is mapped as a shared library can be given a
//! provider; any other is named, so that nobody has to guess why nothing can be replaced.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Result, anyhow};
use memchr::memmem;
use object::Object;
use tlsdyno_base::fault::Fault;

use super::library::texts_of_openssl;
use super::mapped::{self, MappedLibrary};

const FROM_OUTSIDE: &str = "Nothing can be put into it, so that no part of it can be replaced or doubled; measure it \
                            from outside: `tlsdyno load URL`, `tlsdyno reuse URL`, or two builds of it by `tlsdyno \
                            compare --run … --run …`";
/// Sections that Go's linker makes.
const OF_GO: [&str; 3] = [".go.buildinfo", ".note.go.buildid", ".gopclntab"];
/// Shared libraries by the beginning of their names.
const SHARED: [(&str, &str); 10] = [
    ("libgnutls.so", "GnuTLS"),
    ("libnss3.so", "NSS"),
    ("libwolfssl.so", "wolfSSL"),
    ("libmbedtls.so", "Mbed TLS"),
    ("libbotan-", "Botan"),
    ("libs2n.so", "s2n-tls"),
    ("librustls.so", "rustls"),
    ("libjvm.so", "the Java virtual machine"),
    ("libssl.so.1", "OpenSSL 1, which has no providers"),
    ("libssl.so.5", "LibreSSL"),
];
/// What a library that is part of a program leaves in it. The first that is found counts: BoringSSL and AWS-LC say that
/// they are compatible with OpenSSL, and rustls has one of several libraries below it.
const INSIDE: [(&str, &str); 9] = [
    ("rustls-0.", "rustls"),
    // In mangled names, where its sources lay elsewhere than in cargo's registry.
    ("6rustls6server", "rustls"),
    ("(compatible; BoringSSL)", "BoringSSL"),
    ("(compatible; AWS-LC", "AWS-LC"),
    ("AWS-LC", "AWS-LC"),
    ("LibreSSL ", "LibreSSL"),
    ("Mbed TLS ", "Mbed TLS"),
    ("wolfSSL", "wolfSSL"),
    ("GnuTLS", "GnuTLS"),
];
/// Refuses a server none of whose processes has mapped an OpenSSL 3.
pub fn require_openssl(pids: &[u32]) -> Result<()> {
    let mut found = None;
    for &pid in pids {
        let libraries = mapped::mapped_libraries(pid)?;
        if libraries.iter().any(|library| is_openssl_3(&library.path)) {
            return Ok(());
        }
        found = found.or_else(|| Some((pid, name(pid, &libraries))));
    }
    let Some((pid, has)) = found else { return Ok(()) };
    let program = fs::read_link(format!("/proc/{pid}/exe")).unwrap_or_default();
    let program = program.display();
    let error = anyhow!("the server (process {pid}, {program}) has no shared OpenSSL 3: {has}. {FROM_OUTSIDE}");
    Err(Fault::Environment.wrap(error))
}

fn is_openssl_3(path: &Path) -> bool {
    let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    mapped::is_openssl(path) && !["libssl.so.1", "libcrypto.so.1"].iter().any(|old| name.starts_with(old))
}

fn name(pid: u32, libraries: &[MappedLibrary]) -> String {
    let file_name = |path: &Path| path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    let shared = |library: &MappedLibrary| {
        let name = file_name(&library.path);
        let known = SHARED.iter().find(|(beginning, _)| name.starts_with(beginning));
        known.map(|(_, what)| format!("it uses {what} ({})", library.path.display()))
    };
    if let Some(what) = libraries.iter().find_map(shared) {
        return what;
    }
    // The program first, then what it has loaded, which an interpreter has its TLS in.
    let program = PathBuf::from(format!("/proc/{pid}/exe"));
    let files = [program].into_iter().chain(libraries.iter().map(|library| library.path.clone()));
    let mut inside = files.filter_map(|path| {
        let what = inside_file(&path)?;
        let path = fs::read_link(&path).unwrap_or(path);
        Some(format!("it uses {what}, which is part of {}", path.display()))
    });
    inside.next().unwrap_or_else(|| "what does its TLS is not known".to_owned())
}

/// The TLS library that is, or is part of, this program or library, as it calls itself: `OpenSSL 3.0.19`.
pub fn inside_file(path: &Path) -> Option<String> {
    inside(&fs::read(path).ok()?)
}

/// The TLS library that is part of a program or library of these bytes.
fn inside(bytes: &[u8]) -> Option<String> {
    let is_of_go = object::File::parse(bytes)
        .is_ok_and(|file| OF_GO.iter().any(|section| file.section_by_name(section).is_some()));
    if is_of_go {
        return Some("Go's crypto/tls".to_owned());
    }
    let known = INSIDE.iter().find(|(mark, _)| memmem::find(bytes, mark.as_bytes()).is_some());
    known.map(|(_, what)| (*what).to_owned()).or_else(|| openssl_inside(bytes))
}

/// `OpenSSL 3.0.19`: its version stands with a date behind it.
fn openssl_inside(bytes: &[u8]) -> Option<String> {
    let version = |text: String| {
        let mut words = text.split_ascii_whitespace().skip(1);
        let number = words.next().filter(|number| number.starts_with(|first: char| first.is_ascii_digit()))?;
        let is_dated = words.next()?.parse::<u8>().is_ok() && words.next()?.len() == 3;
        is_dated.then(|| format!("OpenSSL {number}"))
    };
    texts_of_openssl(bytes).find_map(version)
}

#[cfg(test)]
mod tests {
    use std::process::{Command, Stdio};

    use super::*;
    use tlsdyno_base::fault::fault_of;

    #[test]
    fn what_is_part_of_a_program_is_named() {
        let library_in = |text: &str| inside(format!("\x7fELF…\0{text}\0").as_bytes());
        assert_eq!(library_in("OpenSSL 3.0.19 27 Jan 2026").as_deref(), Some("OpenSSL 3.0.19"));
        assert_eq!(library_in("OpenSSL 1.1.1w  11 Sep 2023").as_deref(), Some("OpenSSL 1.1.1w"));
        assert_eq!(library_in("OpenSSL 1.1.1 (compatible; BoringSSL)").as_deref(), Some("BoringSSL"));
        assert_eq!(library_in("OpenSSL 1.1.1 (compatible; AWS-LC 1.61.4)").as_deref(), Some("AWS-LC"));
        assert_eq!(library_in("AWS-LC\0…/rustls-0.23.46/src/server/hs.rs").as_deref(), Some("rustls"));
        for nothing in ["", "OpenSSL is a registered trademark", "OpenSSL 3 is needed", "OpenSSL "] {
            assert_eq!(library_in(nothing), None, "{nothing}");
        }
    }

    #[test]
    fn shared_libraries_are_known_by_their_names() {
        let library = |path: &str| MappedLibrary { path: path.into(), deleted: false };
        let name_of = |path: &str| name(u32::MAX, &[library(path)]);
        assert!(name_of("/usr/lib/libgnutls.so.30.37.1").contains("GnuTLS (/usr/lib/libgnutls"));
        assert!(name_of("/opt/libssl.so.1.1").contains("OpenSSL 1, which has no providers"));
        assert!(is_openssl_3(Path::new("/usr/lib/libcrypto.so.3")) && is_openssl_3(Path::new("/x/libssl.so")));
        assert!(!is_openssl_3(Path::new("/usr/lib/libssl.so.1.1")) && !is_openssl_3(Path::new("/usr/lib/libc.so.6")));
    }

    /// A process that is no TLS server at all stands for one whose library nobody knows.
    #[test]
    fn a_process_without_openssl_is_refused_with_the_way_that_works() {
        let mut stranger = Command::new("sleep").arg("60").stdin(Stdio::null()).spawn().unwrap();
        let refused = require_openssl(&[stranger.id()]).unwrap_err();
        stranger.kill().unwrap();
        stranger.wait().unwrap();
        assert_eq!(fault_of(&refused), Some(Fault::Environment));
        let error = format!("{refused:#}");
        assert!(error.contains("is not known") && error.contains("tlsdyno load URL"), "{error}");
        require_openssl(&[]).unwrap();
    }
}
