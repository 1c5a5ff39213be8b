//! A native library made ready for the servers of one run: its file, its area, and what servers must be started with.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

use crate::area::{Area, Handed};
use crate::layout::{Layout, head};
use crate::write_file;

pub(super) struct Library {
    /// Its file is `tlsdyno-NAME.so`, and /proc shows its area as `tlsdyno-NAME`.
    pub(super) name: &'static str,
    pub(super) image: &'static [u8],
    pub(super) layout: &'static Layout,
}

/// A library in a directory of the run, with its area. Dropping it leaves the files, which belong to the directory's
/// owner; the library ends its work within a second.
#[derive(Debug)]
pub struct Unpacked {
    library: PathBuf,
    environment: Vec<(OsString, OsString)>,
    pub(super) area: Area,
}

impl Library {
    /// Writes the library into `dir`, which must exist and be closed to others
    /// (`servers::run_directory::make_private`), and makes the area, which begins in `mode`. What the server's
    /// environment needs is left to [`Unpacked::name_in_openssl_cnf`] or [`Unpacked::add_to_environment`].
    pub(super) fn unpack(&self, dir: &Path, mode: u32) -> Result<Unpacked> {
        let context = || format!("directory for the {}: {}", self.name, dir.display());
        let library = fs::canonicalize(dir).with_context(context)?.join(format!("tlsdyno-{}.so", self.name));
        if !library.exists() {
            write_file(&library, self.image, 0o750)?;
        }
        let area = Area::create(&format!("tlsdyno-{}", self.name), self.layout, mode)?;
        Ok(Unpacked { library, environment: Vec::new(), area })
    }
}

impl Unpacked {
    /// Writes an `openssl.cnf` beside the library that loads it in place of `default`, under the provider's `name`, and
    /// lets servers read that.
    pub(super) fn name_in_openssl_cnf(&mut self, file: &str, name: &str, what: &str) -> Result<()> {
        let openssl_cnf = self.library.with_file_name(file);
        let text = self.openssl_cnf(name, what)?;
        write_file(&openssl_cnf, text.as_bytes(), 0o640)?;
        self.add_to_environment("OPENSSL_CONF", openssl_cnf);
        Ok(())
    }

    /// `default` is deliberately not activated, so that a library that does not load leaves a server without ciphers,
    /// and never one with the plain provider that is taken for ours.
    fn openssl_cnf(&self, name: &str, what: &str) -> Result<String> {
        Ok(format!(
            "# Made by tlsdyno for one run: {what}.\n\
             openssl_conf = init\n\
             [init]\n\
             providers = providers\n\
             [providers]\n\
             {name} = {name}\n\
             [{name}]\n\
             module = {library}\n\
             activate = 1\n\
             descriptor = {descriptor}\n\
             acknowledge = {run_id}\n",
            library = configuration_value(&self.library)?,
            descriptor = self.area.descriptor(),
            run_id = self.area.run_id(),
        ))
    }

    pub(super) fn add_to_environment(&mut self, name: &str, value: impl Into<OsString>) {
        self.environment.push((name.into(), value.into()));
    }

    /// What the server must be started with. It must be started while this value lives.
    pub fn handed(&self) -> Handed {
        Handed { environment: self.environment.clone(), descriptors: vec![self.area.descriptor()] }
    }

    /// Lets every process that this one starts from now on have the area, and answers the variables that it needs
    /// besides. For servers that are started by other means than `servers::start`.
    pub fn let_children_inherit(&self) -> Result<Vec<(OsString, OsString)>> {
        self.area.let_children_inherit()?;
        Ok(self.environment.clone())
    }

    /// A path by which this process can open the area again.
    pub fn area_path(&self) -> String {
        self.area.path()
    }

    /// How often the servers read a mode with bits that they may not obey, and ignored those: 0, unless something else
    /// than a `set_mode` writes it.
    pub fn modes_ignored(&self) -> Result<u32> {
        self.area.read_u32(head::MODES_IGNORED_AT)
    }

    /// The shared library, as it must appear in `/proc/PID/maps` of every worker.
    pub fn library_path(&self) -> &Path {
        &self.library
    }
}

/// A path as value in an `openssl.cnf`, config(5): quotes, backslashes, `$`, `#` and blanks at the ends have meanings
/// there.
pub(super) fn configuration_value(path: &Path) -> Result<&str> {
    let plain = |c: char| c.is_ascii_alphanumeric() || "/._-+,:@%=~ ".contains(c);
    match path.to_str() {
        Some(text) if text.chars().all(plain) && !text.ends_with(' ') => Ok(text),
        _ => bail!(
            "an openssl.cnf cannot name {}; choose a directory for temporary files (TMPDIR) whose path is of letters, \
             digits and /._-",
            path.display()
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refuses_paths_that_a_configuration_cannot_hold() {
        for path in ["/a$b", "/a#b", "/a\nb", "/a\"b", "/a\\b"] {
            assert!(configuration_value(Path::new(path)).is_err(), "{path:?}");
        }
    }
}
