//! The private directory of one tlsdyno process: certificates, generated docroots, server directories. It never
//! outlives its owner.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use tlsdyno_base::process_tree;

use super::supervised::DirectoryGuard;
use super::worker_user::worker_user;

/// Prefix of the names of run directories; the owner's process id, its start time and a random part follow.
const PREFIX: &str = "tlsdyno-run-";

/// A directory removed when this is dropped, and also when tlsdyno is killed.
///
/// It is made in the directory for temporary files (TMPDIR, else `/tmp`), not under XDG_RUNTIME_DIR: that is closed to
/// the user that a server started by root changes to, is often mounted small, and a docroot can be large.
#[derive(Debug)]
pub struct RunDirectory {
    path: PathBuf,
    /// Dropped before the files would be missed: the guard removes them.
    _guard: DirectoryGuard,
}

impl RunDirectory {
    /// Makes the directory, and removes those of owners that are gone. Only this user, and as root the workers' user
    /// too, may pass through.
    pub fn create() -> Result<RunDirectory> {
        let directory = RunDirectory::create_closed()?;
        make_private(&directory.path)?;
        Ok(directory)
    }

    /// The same for a user's own command: as root, whoever its workers run as may pass through.
    pub fn create_for_command() -> Result<RunDirectory> {
        let directory = RunDirectory::create_closed()?;
        if rustix::process::geteuid().is_root() {
            make_passable(&directory.path)?;
        }
        Ok(directory)
    }

    fn create_closed() -> Result<RunDirectory> {
        let parent = std::env::temp_dir();
        remove_stale(&parent);
        let own = process_tree::stat(std::process::id()).context("read /proc/self/stat (is /proc mounted?)")?;
        let prefix = format!("{PREFIX}{}-{}-", own.pid, own.started_ticks);
        let directory = tempfile::Builder::new().prefix(&prefix).tempdir_in(&parent).with_context(|| {
            format!("make a directory in {} (set TMPDIR to choose another place)", parent.display())
        })?;
        let guard = DirectoryGuard::start(directory.path())?;
        Ok(RunDirectory { path: directory.keep(), _guard: guard })
    }

    pub fn path(&self) -> &Path {
        &self.path
    }
}

/// Makes a directory (its parents too) through which other users may pass, whatever the umask: mode 0711.
pub fn make_passable(path: &Path) -> Result<()> {
    fs::create_dir_all(path)
        .and_then(|()| fs::set_permissions(path, fs::Permissions::from_mode(0o711)))
        .with_context(|| format!("make directory {}", path.display()))
}

/// Makes a directory (its parents too) that only this user may enter, whatever the umask. As root, the group of the
/// servers' workers may pass through, and files in it get that group: lighttpd executes itself anew as the user of its
/// workers.
pub fn make_private(path: &Path) -> Result<()> {
    let workers = worker_user()?;
    fs::create_dir_all(path)
        .and_then(|()| match workers {
            Some(user) => std::os::unix::fs::chown(path, None, Some(user.gid))
                .and_then(|()| fs::set_permissions(path, fs::Permissions::from_mode(0o2710))),
            None => fs::set_permissions(path, fs::Permissions::from_mode(0o700)),
        })
        .with_context(|| format!("make directory {}", path.display()))
}

/// Removes run directories of this user whose owner is gone (tlsdyno and its guard were both killed).
fn remove_stale(parent: &Path) {
    let Ok(entries) = fs::read_dir(parent) else {
        return;
    };
    let own_user = rustix::process::geteuid().as_raw();
    for entry in entries.flatten() {
        let is_ours = entry.metadata().is_ok_and(|metadata| metadata.is_dir() && metadata.uid() == own_user);
        let name = entry.file_name();
        let owner = name.to_str().and_then(parse_owner);
        if let Some((pid, started)) = owner.filter(|_| is_ours) {
            let alive = process_tree::stat(pid).is_some_and(|process| process.started_ticks == started);
            if !alive {
                let _ = fs::remove_dir_all(entry.path());
            }
        }
    }
}

fn parse_owner(name: &str) -> Option<(u32, u64)> {
    let mut parts = name.strip_prefix(PREFIX)?.split('-');
    Some((parts.next()?.parse().ok()?, parts.next()?.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn directories_of_dead_owners_are_removed() {
        let parent = tempfile::tempdir().unwrap();
        let mut dead = std::process::Command::new("true").spawn().unwrap();
        let stale = parent.path().join(format!("{PREFIX}{}-1-abc", dead.id()));
        dead.wait().unwrap();
        let foreign = parent.path().join("tlsdyno-run-notes");
        let own = process_tree::stat(std::process::id()).unwrap();
        let alive = parent.path().join(format!("{PREFIX}{}-{}-x", own.pid, own.started_ticks));
        for path in [&stale, &foreign, &alive] {
            fs::create_dir(path).unwrap();
        }
        remove_stale(parent.path());
        assert!(!stale.exists() && foreign.exists() && alive.exists());
    }
}
