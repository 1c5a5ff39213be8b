//! What is really loaded into a server process: preflight evidence that does not trust configuration files.

use std::fs;
use std::ops::Range;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};
use itertools::Itertools;
use tlsdyno_base::process_tree;

/// Key of AT_SECURE in the auxiliary vector (getauxval(3), `elf.h`).
const AT_SECURE: u64 = 23;

/// A file mapped executable into a process.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct MappedLibrary {
    pub path: PathBuf,
    /// The file was replaced or removed since (a package upgrade): what runs is not what is installed.
    pub deleted: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MappedCode {
    pub addresses: Range<u64>,
    /// How far behind the beginning of the file it begins.
    pub offset_bytes: u64,
    pub library: MappedLibrary,
}

/// The code of files that a process has mapped, from `/proc/PID/maps`.
pub fn mapped_code(pid: u32) -> Result<Vec<MappedCode>> {
    let path = format!("/proc/{pid}/maps");
    let maps = fs::read_to_string(&path).with_context(|| match process_tree::is_gone(pid) {
        true => format!("process {pid} has ended"),
        false => format!("cannot read {path}; run tlsdyno as the user that the server's workers run as, or as root"),
    })?;
    Ok(maps.lines().filter_map(code_of_line).collect())
}

/// Files mapped into the process that contain code, each once.
pub fn mapped_libraries(pid: u32) -> Result<Vec<MappedLibrary>> {
    Ok(mapped_code(pid)?.into_iter().map(|code| code.library).unique().collect())
}

/// `7f0000001000-7f0000002000 r-xp 00001000 fe:00 1234    /usr/lib/libssl.so.3 (deleted)`
fn code_of_line(line: &str) -> Option<MappedCode> {
    let mut fields = line.splitn(6, ' ');
    let number = |text: &str| u64::from_str_radix(text, 16).ok();
    let (start, end) = fields.next()?.split_once('-')?;
    let executable = fields.next()?.contains('x');
    let offset_bytes = number(fields.next()?)?;
    let path = fields.nth(2)?.trim_start();
    if !executable || !path.starts_with('/') {
        return None;
    }
    let (path, deleted) = match path.strip_suffix(" (deleted)") {
        Some(path) => (path, true),
        None => (path, false),
    };
    let library = MappedLibrary { path: PathBuf::from(path), deleted };
    Some(MappedCode { addresses: number(start)?..number(end)?, offset_bytes, library })
}

/// Fails unless `library` is mapped into every one of `pids`, beside a libssl and libcrypto that are still those on
/// disk. No process at all is no evidence, and fails too.
pub fn require_mapped(pids: &[u32], library: &Path) -> Result<()> {
    ensure!(
        !pids.is_empty(),
        "the server has no process that could have loaded {}: it has ended, see its log",
        library.display()
    );
    for &pid in pids {
        let libraries = mapped_libraries(pid)?;
        let name = process_tree::command_line(pid);
        ensure!(
            libraries.iter().any(|mapped| mapped.path == library),
            "{} is not loaded in the server process {pid} ({name}): the server did not read the OPENSSL_CONF it \
             was given; it may be set-user-id or carry file capabilities, clear its environment, or not use the \
             system's OpenSSL",
            library.display()
        );
        if let Some(stale) = libraries.iter().find(|mapped| mapped.deleted && is_openssl(&mapped.path)) {
            bail!(
                "the server process {pid} ({name}) runs {}, which was replaced on disk since; start it anew",
                stale.path.display()
            );
        }
        refuse_secure_execution(pid)?;
    }
    Ok(())
}

pub fn is_openssl(path: &Path) -> bool {
    let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    name.starts_with("libssl.so") || name.starts_with("libcrypto.so")
}

/// Fails when the kernel marked the process AT_SECURE: OpenSSL then ignores OPENSSL_CONF without a word.
pub fn refuse_secure_execution(pid: u32) -> Result<()> {
    let path = format!("/proc/{pid}/auxv");
    let bytes = fs::read(&path).with_context(|| format!("read {path}"))?;
    ensure!(
        auxiliary_value(&bytes, AT_SECURE).is_none_or(|value| value == 0),
        "the server process {pid} ({}) runs with AT_SECURE (set-user-id or file capabilities), so that \
         OPENSSL_CONF and LD_PRELOAD are ignored; use a copy of the program without capabilities (`getcap`, \
         `setcap -r`)",
        process_tree::command_line(pid)
    );
    Ok(())
}

/// The auxiliary vector is pairs of native words.
fn auxiliary_value(vector: &[u8], key: u64) -> Option<u64> {
    const WORD: usize = size_of::<usize>();
    let word = |bytes: &[u8]| usize::from_ne_bytes(bytes.try_into().unwrap_or_default()) as u64;
    vector.chunks_exact(2 * WORD).find(|pair| word(&pair[..WORD]) == key).map(|pair| word(&pair[WORD..]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn own_libraries_are_seen() {
        let own = std::process::id();
        let libraries = mapped_libraries(own).unwrap();
        let libc = libraries.iter().find(|library| library.path.to_string_lossy().contains("libc.so")).unwrap();
        assert!(!libc.deleted);
        require_mapped(&[own], &libc.path).unwrap();
        let error = require_mapped(&[], &libc.path).unwrap_err().to_string();
        assert!(error.contains("no process"), "{error}");
        let error = require_mapped(&[own], Path::new("/nowhere/provider.so")).unwrap_err().to_string();
        assert!(error.contains("/nowhere/provider.so is not loaded"), "{error}");
        assert!(mapped_libraries(u32::MAX).is_err());
    }

    #[test]
    fn map_lines_parse() {
        let line = "7f00-7f10 r-xp 00001000 fe:00 1234                       /usr/lib/lib with blank.so (deleted)";
        let expected = MappedLibrary { path: PathBuf::from("/usr/lib/lib with blank.so"), deleted: true };
        let found = code_of_line(line).unwrap();
        assert_eq!((found.library, found.addresses, found.offset_bytes), (expected, 0x7f00..0x7f10, 0x1000));
        assert_eq!(code_of_line("7f00-7f10 r--p 00001000 fe:00 1234 /usr/lib/data"), None);
        assert_eq!(code_of_line("7f00-7f10 r-xp 00000000 00:00 0 [vdso]"), None);
        assert_eq!(code_of_line("7f00-7f10 r-xp 00000000 00:00 0 "), None);
    }

    #[test]
    fn auxiliary_vector_is_searched_by_key() {
        let mut vector = Vec::new();
        for word in [6usize, 4096, 23, 1, 0, 0] {
            vector.extend(word.to_ne_bytes());
        }
        assert_eq!(auxiliary_value(&vector, AT_SECURE), Some(1));
        assert_eq!(auxiliary_value(&vector, 99), None);
    }
}
