//! Installations of OpenSSL with shared libraries, for `tlsdyno ablate --library`: by one recipe with the same flags,
//! from the sources that Debian keeps of its releases.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

use super::{install, step};
use crate::distributions::mirror::Mirror;

/// Debian's release with each series.
const RELEASES: [(&str, &str); 2] = [("3.0", "bookworm"), ("3.5", "trixie")];
/// Builds what is not built yet, and says where it is.
pub fn make(series: &[String], work: &Path) -> Result<()> {
    for name in series {
        let known = RELEASES.map(|(series, _)| series).join(", ");
        let release = RELEASES.iter().find(|(of, _)| of == name).map(|(_, release)| *release);
        let release = release.with_context(|| format!("no prefix is made of OpenSSL {name}; known are {known}"))?;
        let place = work.join(format!("{name}-shared"));
        let prefix = install(&place, &format!("{name} of Debian's {release}"), |tree| {
            let mut unpack = Command::new("tar");
            unpack.arg("xzf").arg(source(release, &place)?).args(["--strip-components=1", "-C"]).arg(tree);
            step(&mut unpack, "tar", tree)?;
            let mut configure = Command::new("./Configure");
            configure.arg("no-tests");
            Ok(configure)
        })?;
        ensure!(prefix.join("lib/libssl.so.3").exists(), "no shared libraries in {}", prefix.display());
        println!("{}", prefix.display());
    }
    Ok(())
}

/// Fetches the source that the release has: OpenSSL's own, without Debian's changes. A mirror may not have the newest.
fn source(release: &str, place: &Path) -> Result<PathBuf> {
    fs::create_dir_all(place.join("lists/partial"))?;
    let mirror = Mirror::of_this_machine()?;
    fs::write(place.join("sources.list"), mirror.sources(release).replace("deb ", "deb-src "))?;
    let settings = [
        ("Dir::Etc::SourceList", place.join("sources.list")),
        ("Dir::Etc::SourceParts", "-".into()),
        ("Dir::State::Lists", place.join("lists")),
        ("Dir::Cache", place.join("cache")),
    ];
    let settings: Vec<String> =
        settings.iter().flat_map(|(name, path)| ["-o".to_owned(), format!("{name}={}", path.display())]).collect();
    let apt = |program: &str, words: &[&str]| {
        let mut command = Command::new(program);
        command.args(&settings).args(words).current_dir(place);
        command
    };
    step(&mut apt("apt-get", &["update"]), "apt", place)?;
    let listed = apt("apt-cache", &["showsrc", "--only-source", "openssl"]).output().context("cannot run apt-cache")?;
    let listed = String::from_utf8_lossy(&listed.stdout).into_owned();
    let versions = listed.lines().filter_map(|line| line.strip_prefix("Version: "));
    let has = |version: &str| {
        let package = format!("openssl={version}");
        step(&mut apt("apt-get", &["source", "--tar-only", "--download-only", &package]), "apt", place).is_ok()
    };
    let version = versions.map(str::to_owned).find(|version| has(version));
    let version = version.with_context(|| format!("the mirror has no source; see {}.log", place.display()))?;
    let upstream = version.split('-').next().unwrap_or_default();
    Ok(place.join(format!("openssl_{upstream}.orig.tar.gz")))
}
