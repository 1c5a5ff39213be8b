//! Files that nobody but their owner reads, whatever the umask, and paths that nobody else can lead elsewhere.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf, absolute};

use rustix::fs::OFlags;
use rustix::process::geteuid;

/// Makes a directory with its parents, those that are not there yet with mode 0700. Answers it without symbolic links.
///
/// # Errors
/// It cannot be made, or a symbolic link on the way is another user's.
pub fn directory(path: &Path) -> io::Result<PathBuf> {
    let path = absolute(path)?;
    refuse_links(&path)?;
    DirBuilder::new().recursive(true).mode(0o700).create(&path)?;
    path.canonicalize()
}

/// Takes a file or directory of this user from all others; what is neither is let be.
pub fn close(path: &Path) -> io::Result<()> {
    let metadata = fs::symlink_metadata(path)?;
    let is_own = metadata.uid() == geteuid().as_raw() && (metadata.is_file() || metadata.is_dir());
    let closed = fs::Permissions::from_mode(metadata.mode() & 0o700);
    if is_own && metadata.mode() & 0o077 != 0 { fs::set_permissions(path, closed) } else { Ok(()) }
}

/// Opens a file for writing, and makes it if need be; its mode becomes 0600.
///
/// # Errors
/// It cannot be opened; it is a symbolic link.
pub fn file(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    let flags = (OFlags::NOFOLLOW | OFlags::NOCTTY).bits();
    let file = options.write(true).create(true).mode(0o600).custom_flags(flags.cast_signed()).open(path)?;
    let metadata = file.metadata()?;
    if metadata.uid() == geteuid().as_raw() && metadata.is_file() && metadata.mode() & 0o077 != 0 {
        file.set_permissions(fs::Permissions::from_mode(0o600))?;
    }
    Ok(file)
}

/// Writes a file with mode 0600, in the place of what it had.
///
/// # Errors
/// It cannot be written; it is a symbolic link.
pub fn write(path: &Path, contents: &[u8]) -> io::Result<()> {
    let mut file = file(path)?;
    file.set_len(0)?;
    file.write_all(contents)
}

/// Fails where a part of an absolute path is a symbolic link that neither this user nor root made: whoever made it
/// says where it leads.
pub fn refuse_links(path: &Path) -> io::Result<()> {
    let own = [0, geteuid().as_raw()];
    for part in path.ancestors() {
        let Ok(metadata) = fs::symlink_metadata(part) else { continue };
        if metadata.is_symlink() && !own.contains(&metadata.uid()) {
            let what = format!("{} is a symbolic link of the user {}", part.display(), metadata.uid());
            return Err(io::Error::new(ErrorKind::PermissionDenied, what));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{lchown, symlink};

    use super::*;

    fn mode(path: &Path) -> u32 {
        fs::metadata(path).unwrap().mode() & 0o7777
    }

    #[test]
    fn only_the_owner_reads() {
        let place = tempfile::tempdir().unwrap();
        let (deep, file) = (place.path().join("a/b"), place.path().join("a/b/file"));
        assert_eq!(directory(&deep).unwrap(), deep.canonicalize().unwrap());
        write(&file, b"longer").unwrap();
        write(&file, b"short").unwrap();
        assert_eq!((mode(&deep), mode(&file), fs::read(&file).unwrap()), (0o700, 0o600, b"short".to_vec()));
        // One that was there already.
        fs::set_permissions(&file, fs::Permissions::from_mode(0o666)).unwrap();
        write(&file, b"again").unwrap();
        assert_eq!(mode(&file), 0o600);
        fs::set_permissions(&deep, fs::Permissions::from_mode(0o777)).unwrap();
        close(&deep).unwrap();
        assert_eq!(mode(&deep), 0o700);
    }

    #[test]
    fn links_of_others_are_not_followed() {
        let place = tempfile::tempdir().unwrap();
        let [link, other, target] = ["link", "other", "target"].map(|name| place.path().join(name));
        symlink(&target, &link).unwrap();
        assert!(write(&link, b"x").is_err() && !target.exists());
        fs::create_dir(&target).unwrap();
        assert_eq!(directory(&link.join("in")).unwrap(), target.canonicalize().unwrap().join("in"));
        symlink(&target, &other).unwrap();
        if geteuid().is_root() {
            lchown(&other, Some(4_000_000), None).unwrap();
            let refused = directory(&other.join("more")).unwrap_err().to_string();
            assert!(refused.ends_with("is a symbolic link of the user 4000000"), "{refused}");
            assert!(!target.join("more").exists());
        }
    }
}
