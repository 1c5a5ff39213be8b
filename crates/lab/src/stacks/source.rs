//! Archives of sources: from a registry by its own client, else from upstream, and never without their checksum.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use tlsdyno_base::fault::{Fault, OrFault};
use tlsdyno_servers::glob;

use super::{apt, home, run};

/// An archive with the source of a server or a library.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Source {
    /// Name of the crate that has it.
    #[serde(rename = "crate")]
    of_crate: Option<String>,
    /// Name of Debian's source package that has it.
    debian: Option<String>,
    /// Debian's release with that package.
    #[serde(default)]
    release: String,
    /// Of the crate, or upstream's.
    version: String,
    pub sha256: String,
    /// Where upstream has it, which may be another archive of the same.
    upstream: String,
    /// Directory of the archive in which steps run.
    #[serde(default)]
    pub folder: String,
}

impl Source {
    fn archive(&self) -> String {
        match (&self.of_crate, &self.debian) {
            (Some(name), _) => format!("{name}-{}.crate", self.version),
            (None, Some(name)) => format!("{name}_{}.orig.tar.gz", self.version),
            (None, None) => self.upstream.rsplit('/').next().unwrap_or_default().to_owned(),
        }
    }

    /// Path of the archive, whose checksum is right. One that is there already is taken.
    pub fn fetched(&self) -> Result<PathBuf> {
        let kept = home()?.join("sources");
        let path = kept.join(self.archive());
        if !path.exists() {
            let scratch = kept.join(format!("fetching-{}", self.archive()));
            fs::create_dir_all(&scratch).with_context(|| format!("make {}", scratch.display()))?;
            let found = self.by_registry(&scratch).or_else(|error| self.by_upstream(&scratch, error));
            let found = found.or_fault(Fault::Environment)?;
            self.check(&found)?;
            // At once, so that no half of a file is ever taken for the whole.
            let copy = scratch.join("copy");
            fs::copy(&found, &copy).and_then(|_| fs::rename(&copy, &path)).context("keep the source")?;
            let _ = fs::remove_dir_all(&scratch);
        }
        self.check(&path)?;
        Ok(path)
    }

    fn by_registry(&self, scratch: &Path) -> Result<PathBuf> {
        match (&self.of_crate, &self.debian) {
            (Some(name), _) => self.by_cargo(name, scratch),
            (None, Some(name)) => apt::source(name, &self.version, &self.release, scratch),
            (None, None) => Err(anyhow::anyhow!("no registry has it")),
        }
    }

    /// Lets cargo download a crate for a project of nothing else.
    fn by_cargo(&self, name: &str, scratch: &Path) -> Result<PathBuf> {
        let version = self.version.split('+').next().unwrap_or_default();
        let project = format!(
            "[package]\nname = \"sources\"\nversion = \"0.0.0\"\nedition = \"2021\"\n[lib]\npath = \"empty.rs\"\n\
             [workspace]\n[dependencies]\n{name} = \"={version}\"\n"
        );
        fs::write(scratch.join("Cargo.toml"), project)?;
        fs::write(scratch.join("empty.rs"), "")?;
        run(Command::new("cargo").args(["fetch", "--quiet"]).current_dir(scratch))?;
        let set = |name| env::var_os(name).map(PathBuf::from);
        let cargo = set("CARGO_HOME").or_else(|| set("HOME").map(|home| home.join(".cargo"))).unwrap_or_default();
        let archives = glob::files(&cargo.join("registry/cache/*").join(self.archive()));
        archives.into_iter().next().with_context(|| format!("cargo keeps no {}", self.archive()))
    }

    /// `error`: why no registry has it.
    fn by_upstream(&self, scratch: &Path, error: anyhow::Error) -> Result<PathBuf> {
        let path = scratch.join("upstream");
        let mut curl = Command::new("curl");
        let fetched = run(curl.args(["-fsSL", "--retry", "2", "-o"]).arg(&path).arg(&self.upstream));
        let missing = || {
            format!(
                "{} cannot be fetched ({error:#}). Put the archive with sha256 {} into {} yourself; upstream's is {}",
                self.archive(),
                self.sha256,
                scratch.parent().unwrap_or(scratch).display(),
                self.upstream
            )
        };
        fetched.map(|()| path).with_context(missing)
    }

    fn check(&self, path: &Path) -> Result<()> {
        let mut sum = Sha256::new();
        let bytes = fs::read(path).with_context(|| format!("read {}", path.display())).or_fault(Fault::Environment)?;
        sum.update(&bytes);
        let found = hex(&sum.finalize());
        ensure_fault!(
            Environment,
            found == self.sha256,
            "{} has sha256 {found}, and the recipe says {}: nothing is built of it. Remove it, to have it fetched \
             anew; if it stays another one, the recipe is of another archive",
            path.display(),
            self.sha256
        );
        Ok(())
    }

    /// Puts what is in the archive into a directory.
    pub fn unpack(&self, tree: &Path) -> Result<()> {
        let archive = self.fetched()?;
        run(Command::new("tar").arg("xf").arg(archive).args(["--strip-components=1", "-C"]).arg(tree))
    }
}

pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
