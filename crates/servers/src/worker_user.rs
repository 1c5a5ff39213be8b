//! The user that workers of a server run as when tlsdyno is root.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;

use anyhow::{Context, Result, ensure};
use tlsdyno_base::private;

use super::ServerSpec;

/// Whom the workers run as when started by root: nobody, with its group. `None` for other users, whose workers run as
/// themselves.
pub fn worker_user() -> Result<Option<WorkerUser>> {
    if !rustix::process::geteuid().is_root() {
        return Ok(None);
    }
    let passwd = fs::read_to_string("/etc/passwd").context("read /etc/passwd")?;
    let group = fs::read_to_string("/etc/group").context("read /etc/group")?;
    let user = find_nobody(&passwd, &group).context(
        "there is no user `nobody` for the server's workers to run as; create it, or run tlsdyno as a plain user",
    )?;
    Ok(Some(user))
}

#[derive(Debug, PartialEq, Eq)]
pub struct WorkerUser {
    pub uid: u32,
    pub gid: u32,
    pub group: String,
}

impl WorkerUser {
    pub fn called(name: &str) -> Result<WorkerUser> {
        let passwd = fs::read_to_string("/etc/passwd").context("read /etc/passwd")?;
        let numbers = passwd.lines().map(|line| line.split(':').collect::<Vec<_>>()).find(|fields| fields[0] == name);
        let number = |at: usize| numbers.as_ref()?.get(at)?.parse().ok();
        let (uid, gid) = number(2).zip(number(3)).with_context(|| {
            format!("the configuration wants the user {name}, and there is none: create it, or leave it out")
        })?;
        Ok(WorkerUser { uid, gid, group: String::new() })
    }
}

fn find_nobody(passwd: &str, groups: &str) -> Option<WorkerUser> {
    let nobody: Vec<&str> = passwd.lines().find(|line| line.starts_with("nobody:"))?.split(':').collect();
    let gid = nobody.get(3)?;
    let group = groups.lines().find(|line| line.split(':').nth(2) == Some(gid))?.split(':').next()?;
    Some(WorkerUser { uid: nobody.get(2)?.parse().ok()?, gid: gid.parse().ok()?, group: group.to_owned() })
}

/// The same for this server, whose files are in `directory`. `None` also where it runs under another program: a worker
/// that became another user would be out of valgrind's reach.
pub fn worker_user_of(spec: &ServerSpec, directory: &Path) -> Result<Option<WorkerUser>> {
    let user = if spec.under.is_empty() { worker_user()? } else { None };
    if let Some(user) = &user {
        require_readable(&spec.docroot, user)?;
        require_readable(directory, user)?;
    }
    Ok(user)
}

/// Fails early, by name, where the server would only answer 403.
fn require_readable(path: &Path, user: &WorkerUser) -> Result<()> {
    let path = path.canonicalize().with_context(|| format!("{} does not exist", path.display()))?;
    for ancestor in path.ancestors() {
        let metadata = fs::metadata(ancestor).with_context(|| format!("look at {}", ancestor.display()))?;
        let shift = if metadata.uid() == user.uid {
            6
        } else if metadata.gid() == user.gid {
            3
        } else {
            0
        };
        ensure!(
            metadata.permissions().mode() >> shift & 1 == 1,
            "the server's workers run as nobody and may not pass through {}, so they cannot read {}; `chmod o+x` \
             it, choose another place (TMPDIR), or run tlsdyno as a plain user",
            ancestor.display(),
            path.display()
        );
    }
    Ok(())
}

/// Makes an empty file that the workers may read and write and nobody else: a file that they open again after the
/// change of user.
pub fn create_for_workers(path: &Path, user: Option<&WorkerUser>, contents: &[u8]) -> Result<()> {
    let owned = private::write(path, contents).and_then(|()| match user {
        Some(user) => std::os::unix::fs::chown(path, Some(user.uid), Some(user.gid)),
        None => Ok(()),
    });
    owned.with_context(|| format!("write {}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_user_nobody_is_found_with_its_group() {
        let passwd = "root:x:0:0:root:/root:/bin/sh\nnobody:x:65534:65533:nobody:/:/bin/false\n";
        let groups = "root:x:0:\nnogroup:x:65533:\n";
        let expected = WorkerUser { uid: 65_534, gid: 65_533, group: "nogroup".to_owned() };
        assert_eq!(find_nobody(passwd, groups), Some(expected));
        assert_eq!(find_nobody("root:x:0:0::/:/bin/sh\n", groups), None);
    }

    #[test]
    fn users_are_found_by_name() {
        assert_eq!(WorkerUser::called("root").unwrap().uid, 0);
        assert!(WorkerUser::called("no one").unwrap_err().to_string().contains("user no one, and there is none"));
    }

    #[test]
    fn unreadable_places_are_named() {
        let directory = tempfile::tempdir().unwrap();
        let closed = directory.path().join("closed");
        fs::create_dir(&closed).unwrap();
        fs::set_permissions(&closed, fs::Permissions::from_mode(0o700)).unwrap();
        let stranger = WorkerUser { uid: 4_000_000, gid: 4_000_000, group: "strangers".to_owned() };
        let error = require_readable(&closed, &stranger).unwrap_err().to_string();
        assert!(error.contains("may not pass through"), "{error}");
        require_readable(Path::new("/usr"), &stranger).unwrap();
    }
}
