//! An OpenSSL that a server uses instead of the system's, and the proof that it does.

use std::ffi::OsString;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};
use memchr::memmem;
use tlsdyno_base::fault::{Fault, OrFault};
use tlsdyno_base::process_tree;

use super::mapped::{is_openssl, mapped_libraries};
use super::run_directory;

const FILES: [&str; 2] = ["libssl.so.3", "libcrypto.so.3"];
const VARIABLE: &str = "LD_LIBRARY_PATH";
const MARK: &str = "OpenSSL ";

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Library {
    /// The two files, behind all symbolic links: as the kernel names them when they are mapped.
    files: [PathBuf; 2],
}

impl Library {
    /// The installation in a prefix: in `lib` or `lib64`, or where Debian has them in a root of its own.
    pub fn at(prefix: &Path) -> Result<Library> {
        let multiarch = format!("{}-linux-gnu", std::env::consts::ARCH);
        let below = ["lib64", "lib", &format!("lib/{multiarch}"), &format!("usr/lib/{multiarch}")].map(PathBuf::from);
        let files = |below: &PathBuf| {
            let [ssl, crypto] = FILES.map(|file| prefix.join(below).join(file).canonicalize().ok());
            Some([ssl?, crypto?])
        };
        below
            .iter()
            .find_map(files)
            .map(|files| Library { files })
            .with_context(|| no_library(prefix))
            .or_fault(Fault::Input)
    }

    pub fn version(&self) -> String {
        version_of(&self.files[1])
    }

    pub fn files(&self) -> &[PathBuf; 2] {
        &self.files
    }

    /// What lets the dynamic linker find these two, and nothing else that stands beside them (a root has a C library),
    /// by links in a directory of its own inside `directory`.
    pub(super) fn variable(&self, directory: &Path) -> Result<(OsString, OsString)> {
        let links = directory.join("library");
        run_directory::make_passable(&links)?;
        for (file, name) in self.files.iter().zip(FILES) {
            symlink(file, links.join(name)).with_context(|| format!("link {}", file.display()))?;
        }
        let others = std::env::var_os(VARIABLE).filter(|others| !others.is_empty());
        let mut path = links.into_os_string();
        if let Some(others) = others {
            path.push(":");
            path.push(others);
        }
        Ok((VARIABLE.into(), path))
    }

    /// Fails unless every one of `pids` has these two mapped, and no other libssl or libcrypto.
    pub(super) fn require_mapped(&self, pids: &[u32]) -> Result<()> {
        for &pid in pids {
            let mapped = mapped_libraries(pid)?.into_iter().map(|library| library.path);
            let mapped: Vec<PathBuf> = mapped.filter(|path| is_openssl(path)).collect();
            self.require_these(&mapped).with_context(|| process_tree::command_line(pid)).or_fault(Fault::Input)?;
        }
        Ok(())
    }

    fn require_these(&self, mapped: &[PathBuf]) -> Result<()> {
        ensure!(
            !mapped.is_empty(),
            "the server has mapped no libssl or libcrypto: it is linked statically, or to another TLS library than \
             OpenSSL, and cannot be given a library"
        );
        if let Some(other) = mapped.iter().find(|path| !self.files.contains(path)) {
            bail!(
                "the server has mapped {}, not {}: it names its library itself (`readelf -d`: RPATH), or it has file \
                 capabilities, with which {VARIABLE} is ignored",
                other.display(),
                self.files[usize::from(!other.to_string_lossy().contains("libssl"))].display()
            );
        }
        Ok(())
    }
}

/// Why a prefix is none, as far as it can be seen.
fn no_library(prefix: &Path) -> String {
    let prefix_text = prefix.display();
    let has = |ending: &str| ["lib64", "lib"].iter().any(|below| prefix.join(below).join(ending).exists());
    let why = match () {
        () if !prefix.is_dir() => "is no directory".to_owned(),
        () if has("libssl.a") && !has("libssl.so") => {
            "has only static libraries: build OpenSSL with shared ones (not `no-shared`)".to_owned()
        }
        () => format!("has neither lib nor lib64 with {} and {}", FILES[0], FILES[1]),
    };
    format!("{prefix_text} is no installation of OpenSSL 3: it {why} (docs/LIBRARIES.md says how to make one)")
}

/// The version text inside a libcrypto: what `openssl version` says may be another library.
pub fn version_of(libcrypto: &Path) -> String {
    let bytes = fs::read(libcrypto).unwrap_or_default();
    let mut versions =
        texts_of_openssl(&bytes).filter(|text| text[MARK.len()..].starts_with(|c: char| c.is_ascii_digit()));
    versions.next().unwrap_or_else(|| "OpenSSL".to_owned())
}

/// What begins as every OpenSSL says of itself, up to the end of the text.
pub(super) fn texts_of_openssl(bytes: &[u8]) -> impl Iterator<Item = String> {
    const TEXT_BYTES_MAX: usize = 64;
    memmem::find_iter(bytes, MARK).map(move |at| {
        let text = bytes[at..].split(|byte| *byte == 0).next().unwrap_or_default();
        String::from_utf8_lossy(&text[..text.len().min(TEXT_BYTES_MAX)]).into_owned()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_installation_is_known_by_its_files_and_a_stranger_is_named() {
        let place = tempfile::tempdir().unwrap();
        let refused = |prefix: &Path| Library::at(prefix).unwrap_err().to_string();
        assert!(refused(&place.path().join("nowhere")).contains("is no directory"));
        fs::create_dir(place.path().join("lib")).unwrap();
        assert!(refused(place.path()).contains("neither lib nor lib64"));
        fs::write(place.path().join("lib/libssl.a"), "").unwrap();
        assert!(refused(place.path()).contains("only static"));
        fs::write(place.path().join("lib/libssl.so.3"), "").unwrap();
        fs::write(place.path().join("lib/libcrypto.so.3"), "\0OpenSSL is\0OpenSSL 3.5.7 9 Jun 2026\0").unwrap();
        let library = Library::at(place.path()).unwrap();
        assert_eq!(library.version(), "OpenSSL 3.5.7 9 Jun 2026");
        library.require_these(library.files()).unwrap();
        let error = |mapped: &[PathBuf]| library.require_these(mapped).unwrap_err().to_string();
        assert!(error(&[]).contains("statically"));
        let other = PathBuf::from("/usr/lib/libcrypto.so.3");
        let said = error(&[library.files()[0].clone(), other]);
        assert!(said.contains("mapped /usr/lib/libcrypto.so.3, not") && said.contains("lib/libcrypto.so.3:"), "{said}");
    }
}
