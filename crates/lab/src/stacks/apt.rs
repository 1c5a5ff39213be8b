//! Sources from Debian's archive by apt, with lists of its own: nothing of the system is changed, and no root is
//! needed.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

use super::mirror::Mirror;
use super::run;

/// Downloads upstream's archive of a source package, without Debian's changes, into `place`, and answers its path.
/// `version`: upstream's, or empty: the newest that the mirror still has.
pub fn source(package: &str, version: &str, release: &str, place: &Path) -> Result<PathBuf> {
    fs::create_dir_all(place.join("lists/partial"))?;
    fs::create_dir_all(place.join("cache/archives/partial"))?;
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
        command.args(&settings).args(["-o", "APT::Sandbox::User="]).args(words).current_dir(place);
        command
    };
    run(&mut apt("apt-get", &["update"]))?;
    let listed = apt("apt-cache", &["showsrc", "--only-source", package]).output().context("run apt-cache")?;
    let listed = String::from_utf8_lossy(&listed.stdout).into_owned();
    let mut versions = listed.lines().filter_map(|line| line.strip_prefix("Version: "));
    let upstream = |version: &str| version.rsplit_once('-').map_or(version, |(upstream, _)| upstream).to_owned();
    let has = |full: &&str| {
        let named = format!("{package}={full}");
        (version.is_empty() || upstream(full) == version)
            && run(&mut apt("apt-get", &["source", "--tar-only", "--download-only", &named])).is_ok()
    };
    let found =
        versions.find(has).with_context(|| format!("{release}'s mirror has no source of {package} {version}"))?;
    Ok(place.join(format!("{package}_{}.orig.tar.gz", upstream(found))))
}
