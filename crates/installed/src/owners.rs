//! Who may write an installed configuration, which root runs a server with.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, absolute};

use anyhow::{Result, bail};
use rustix::process::geteuid;

/// Fails for root where another user may write a file, or lead its path elsewhere: what stands in it becomes root's.
pub(super) fn require_own(path: &Path) -> Result<()> {
    if !geteuid().is_root() {
        return Ok(());
    }
    let path = absolute(path)?;
    for part in path.ancestors().chain(path.canonicalize()?.ancestors()) {
        let metadata = fs::metadata(part)?;
        // In a directory with the sticky bit others cannot rename what is not theirs.
        let is_sticky = metadata.is_dir() && metadata.mode() & 0o1000 != 0;
        let others = if metadata.gid() == 0 { 0o002 } else { 0o022 };
        let owner = match metadata.uid() {
            0 if is_sticky || metadata.mode() & others == 0 => continue,
            0 => "others may write".to_owned(),
            owner => format!("the user {owner} owns"),
        };
        bail!(
            "{}: {owner} {part}, and what stands in it would be run as root; if you trust it, make it root's alone \
             (`chown root {part}; chmod go-w {part}`), or run tlsdyno as that user",
            path.display(),
            part = part.display()
        );
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt, chown};

    use super::*;

    #[test]
    fn what_others_may_write_is_not_roots() {
        let place = tempfile::tempdir().unwrap();
        let file = place.path().join("file");
        fs::write(&file, b"x").unwrap();
        require_own(&file).unwrap();
        if !geteuid().is_root() {
            return;
        }
        let refused = || require_own(&file).unwrap_err().to_string();
        for (mode, group) in [(0o666, 0), (0o620, 4_000_000)] {
            chown(&file, Some(0), Some(group)).unwrap();
            fs::set_permissions(&file, fs::Permissions::from_mode(mode)).unwrap();
            assert!(refused().contains("others may write"), "{}", refused());
        }
        fs::set_permissions(&file, fs::Permissions::from_mode(0o640)).unwrap();
        require_own(&file).unwrap();
        chown(place.path(), Some(4_000_000), None).unwrap();
        assert!(refused().contains("the user 4000000 owns") && refused().contains("chown root"), "{}", refused());
        chown(place.path(), Some(0), None).unwrap();
    }
}
