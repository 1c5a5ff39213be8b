//! What is known of TLS libraries: by which files or functions they are seen on a stack, and which of their functions
//! do which part of TLS. One table a library, in a file of its own.

mod boringssl;
mod gnutls;
mod go;
mod nss;
mod openssl;
mod rustls;
mod wolfssl;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Result;
use tlsdyno_servers::tls_library::inside_file;
use tlsdyno_servers::{MappedLibrary, mapped_libraries};

use crate::part::Part;

/// A TLS library. Names are given by their beginnings; a name behind `*` may stand anywhere.
#[derive(Debug)]
pub struct Library {
    /// Its name in JSON.
    pub id: &'static str,
    /// How it is called, and the beginning of what programs that it is part of say of it.
    pub name: &'static str,
    /// Files of TLS itself, where it is a shared library.
    pub files: &'static [&'static str],
    /// Files of the cryptography that it calls.
    pub beneath_files: &'static [&'static str],
    /// Those of its files that have assembler without tables for unwinding.
    pub assembler: &'static [&'static str],
    /// Functions of TLS itself, where it is part of a program, and those that programs call.
    pub functions: &'static [&'static str],
    /// Functions of the cryptography that it calls, where it is part of a program.
    pub beneath_functions: &'static [&'static str],
    /// Which functions do which part. The outermost function of a stack that a rule is about decides.
    pub rules: &'static [Rule],
}

/// Functions that do a part of TLS.
#[derive(Debug)]
pub struct Rule {
    pub part: Part,
    pub functions: &'static [&'static str],
    /// It holds only where one of these is called in them; empty: always.
    pub within: &'static [&'static str],
}

const fn rule(part: Part, functions: &'static [&'static str]) -> Rule {
    Rule { part, functions, within: &[] }
}

/// All that are known. Of those that are part of a program, the first that it names counts.
pub const LIBRARIES: [&Library; 8] = [
    &openssl::OPENSSL,
    &gnutls::GNUTLS,
    &wolfssl::WOLFSSL,
    &nss::NSS,
    &rustls::RUSTLS,
    &boringssl::AWS_LC,
    &boringssl::BORINGSSL,
    &go::GO,
];

/// A library that a process has.
#[derive(Clone, Debug)]
pub struct Found {
    pub library: &'static Library,
    /// It is part of the program of this file name, where only functions tell it.
    pub program: Option<String>,
    /// As it calls itself: `OpenSSL 3.0.17`.
    pub version: String,
}

impl PartialEq for Found {
    fn eq(&self, other: &Found) -> bool {
        (self.library.id, &self.program, &self.version) == (other.library.id, &other.program, &other.version)
    }
}

/// The TLS libraries that one of these processes has mapped, and another that is part of its program: either may serve.
/// Programs on a shared OpenSSL say which they were built with. Workers may have mapped what their parent has not.
///
/// # Errors
/// None has, and one has ended, or this user may not look into it.
pub fn of_processes(pids: &[u32]) -> Result<Vec<Found>> {
    let mut refused = None;
    let mut found = Vec::new();
    for &pid in pids {
        match mapped_libraries(pid) {
            Ok(mapped) => found = LIBRARIES.iter().filter_map(|library| shared(pid, library, &mapped)).collect(),
            Err(error) => refused = Some(error),
        }
        if !found.is_empty() {
            break;
        }
    }
    // A program is read as a whole, and once.
    let programs = pids.iter().filter_map(|pid| Some((fs::read_link(format!("/proc/{pid}/exe")).ok()?, *pid)));
    let programs: BTreeMap<PathBuf, u32> = programs.collect();
    let inside = programs.iter().find_map(|(path, pid)| inside(path, *pid));
    found.extend(inside.filter(|inside| found.iter().all(|of: &Found| of.library.id != inside.library.id)));
    match refused {
        Some(error) if found.is_empty() => Err(error),
        _ => Ok(found),
    }
}

/// The library that is part of the program that a process runs.
fn inside(path: &Path, pid: u32) -> Option<Found> {
    let version = inside_file(Path::new(&format!("/proc/{pid}/exe")))?;
    let library = LIBRARIES.iter().find(|library| version.starts_with(library.name))?;
    // The kernel says so of a program that was replaced since.
    let program = path.file_name()?.to_string_lossy().trim_end_matches(" (deleted)").to_owned();
    Some(Found { library, program: Some(program), version })
}

fn shared(pid: u32, library: &'static Library, mapped: &[MappedLibrary]) -> Option<Found> {
    let find = |beginnings: &[&str]| {
        let is_it = |mapped: &&MappedLibrary| {
            mapped.path.file_name().is_some_and(|name| is_any(beginnings, &name.to_string_lossy()))
        };
        mapped.iter().find(is_it)
    };
    let file = find(library.files)?;
    // Where the process sees it, which may be in a container.
    let of = find(library.beneath_files).unwrap_or(file);
    let at = PathBuf::from(format!("/proc/{pid}/root{}", of.path.display()));
    let version = inside_file(&at).filter(|text| text.starts_with(library.name)).unwrap_or(library.name.to_owned());
    Some(Found { library, program: None, version })
}

/// Whether a name is one of those in a table.
pub fn is_any(table: &[&str], name: &str) -> bool {
    table.iter().any(|of| match of.strip_prefix('*') {
        Some(part) => name.contains(part),
        None => name.starts_with(of),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_told_by_their_beginnings_or_parts() {
        assert!(
            is_any(&["EVP_DigestSign"], "EVP_DigestSignInit_ex") && !is_any(&["EVP_DigestSign"], "xEVP_DigestSign")
        );
        assert!(is_any(&["*4ring3rsa"], "_ZN4ring3rsa7keypair") && !is_any(&[], "x"));
    }

    #[test]
    fn ids_are_no_texts_that_people_read() {
        for library in LIBRARIES {
            assert!(library.id.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_'), "{}", library.id);
            assert!(!library.rules.is_empty() && !library.functions.is_empty(), "{}", library.id);
        }
    }

    #[test]
    fn a_process_without_tls_has_none() {
        let mut stranger = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        let found = of_processes(&[stranger.id()]).unwrap();
        stranger.kill().unwrap();
        stranger.wait().unwrap();
        assert!(found.is_empty(), "{found:?}");
        assert!(of_processes(&[u32::MAX]).is_err() && of_processes(&[]).unwrap().is_empty());
    }
}
