//! Writes the files of a site below a document root.

use std::fs::{self, File, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Component, Path, PathBuf};
use std::time::{Duration, SystemTime};

use anyhow::{Context, Result, ensure};
use indicatif::{ProgressBar, ProgressStyle};
use tlsdyno_base::fault::{Fault, OrFault};
use tlsdyno_base::random::SplitMix64;
use tlsdyno_base::units::format_binary_bytes;

use super::{DocrootFile, ServedWorkload};

/// When every file was last modified, seconds since 1970: fixed, so that conditional requests can name it.
pub const MODIFIED_UNIX_S: u64 = 1_000_000_000;
/// [`MODIFIED_UNIX_S`] as HTTP writes it (RFC 9110 section 5.6.7).
pub const MODIFIED: &str = "Sun, 09 Sep 2001 01:46:40 GMT";

/// Length of the random block that contents are cut from: a prime, so that a file's repetition never falls together
/// with pages, records or buffers of the server.
const BLOCK_BYTES: usize = 65_521;
/// From this corpus size on, writing shows its progress, bytes.
const PROGRESS_FROM_BYTES: u64 = 64 << 20;
/// Space that must stay free on the file system, bytes.
const SPARE_BYTES: u64 = 16 << 20;

/// Writes the files of `site` below `root` (made if missing): their sizes, pseudo-random contents (the same for the
/// same path), all last modified at [`MODIFIED_UNIX_S`], readable by every user, since servers drop their privileges.
pub fn write(site: &ServedWorkload, root: &Path) -> Result<()> {
    let corpus_bytes = site.files.iter().fold(0, |sum: u64, file| sum.saturating_add(file.bytes));
    make_directory(root)?;
    check_space(root, corpus_bytes, site.files.len() as u64).or_fault(Fault::Environment)?;
    let progress = progress(corpus_bytes);
    let block = random_block();
    let mut made = std::collections::HashSet::new();
    for file in &site.files {
        let path = place(root, &file.path)?;
        let folder = path.parent().unwrap_or(root);
        if folder != root && !made.contains(folder) {
            make_directories(root, folder)?;
            made.insert(folder.to_owned());
        }
        write_file(&path, file, &block).with_context(|| {
            format!("failed to write {} ({} bytes) of the document root", path.display(), file.bytes)
        })?;
        progress.inc(file.bytes);
    }
    progress.finish_and_clear();
    Ok(())
}

/// Where a file goes. Paths come from foreign logs: what could leave `root` is refused here once more, whoever made the
/// path.
fn place(root: &Path, path: &str) -> Result<PathBuf> {
    let relative = Path::new(path.strip_prefix('/').unwrap_or(path));
    let plain = !relative.as_os_str().is_empty()
        && relative.components().all(|component| matches!(component, Component::Normal(_)));
    ensure!(plain, "the file path {path:?} does not name a file below the document root");
    Ok(root.join(relative))
}

/// Refuses before the first byte what would run out of space or inodes half-way.
fn check_space(root: &Path, bytes: u64, files: u64) -> Result<()> {
    let system =
        rustix::fs::statvfs(root).with_context(|| format!("failed to ask for the free space at {}", root.display()))?;
    let unit = system.f_frsize.max(1);
    // Each file occupies whole units.
    let needed = bytes + files * unit + SPARE_BYTES;
    let free = system.f_bavail * unit;
    ensure!(
        needed <= free,
        "the document root needs {}, but the file system of {} has {} free; free some, set TMPDIR to another \
         file system, or take a smaller workload (--scale, or a part of the log)",
        format_binary_bytes(needed as f64),
        root.display(),
        format_binary_bytes(free as f64)
    );
    // File systems without fixed inodes report none at all.
    ensure!(
        system.f_files == 0 || files + 16 <= system.f_favail,
        "the document root needs {files} files, but the file system of {} has inodes for {} more; set TMPDIR to \
         another file system",
        root.display(),
        system.f_favail
    );
    Ok(())
}

fn make_directories(root: &Path, folder: &Path) -> Result<()> {
    let mut path = root.to_owned();
    for component in folder.strip_prefix(root)?.components() {
        path.push(component);
        make_directory(&path)?;
    }
    Ok(())
}

/// Makes one directory (parents too, for the root itself) that other users can enter, whatever the umask.
fn make_directory(path: &Path) -> Result<()> {
    if path.is_dir() {
        return Ok(());
    }
    fs::create_dir_all(path)
        .and_then(|()| fs::set_permissions(path, Permissions::from_mode(0o755)))
        .with_context(|| format!("failed to make the directory {} for the document root", path.display()))
}

fn write_file(path: &Path, file: &DocrootFile, block: &[u8]) -> io::Result<()> {
    let mut out = File::create(path)?;
    let mut from = (fingerprint(file.path.as_bytes()) % block.len() as u64) as usize;
    let mut left = file.bytes;
    while left > 0 {
        let length = left.min((block.len() - from) as u64) as usize;
        out.write_all(&block[from..from + length])?;
        left -= length as u64;
        from = 0;
    }
    out.set_permissions(Permissions::from_mode(0o644))?;
    out.set_modified(SystemTime::UNIX_EPOCH + Duration::from_secs(MODIFIED_UNIX_S))
}

fn random_block() -> Vec<u8> {
    let mut random = SplitMix64::new(1);
    let mut block: Vec<u8> =
        std::iter::repeat_with(|| random.next_u64().to_le_bytes()).take(BLOCK_BYTES / 8 + 1).flatten().collect();
    block.truncate(BLOCK_BYTES);
    block
}

/// FNV-1a, 64 bits: a fixed hash of bytes, the same in every process and version, for contents and names of files.
pub(super) fn fingerprint(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3))
}

fn progress(corpus_bytes: u64) -> ProgressBar {
    if corpus_bytes < PROGRESS_FROM_BYTES {
        return ProgressBar::hidden();
    }
    let style =
        ProgressStyle::with_template("writing the document root {wide_bar} {bytes} of {total_bytes}, {eta} left")
            .expect("the template is a constant");
    ProgressBar::new(corpus_bytes).with_style(style)
}

#[cfg(test)]
mod tests {
    use super::*;
    use tlsdyno_record::model::workload::WorkloadSpec;

    fn small_site(files: Vec<DocrootFile>) -> ServedWorkload {
        let mut site = super::super::make(&WorkloadSpec::Ecommerce { users: 1, seed: 1 }).unwrap();
        site.files = files;
        site
    }

    fn file(path: &str, bytes: u64) -> DocrootFile {
        DocrootFile { path: path.to_owned(), bytes }
    }

    #[test]
    fn files_have_their_sizes_their_date_and_are_readable_by_others() {
        let directory = tempfile::tempdir().unwrap();
        let root = directory.path().join("root");
        let site = small_site(vec![file("/a/b/c.html", 200_000), file("/empty", 0), file("/a/d", 1)]);
        write(&site, &root).unwrap();
        for file in &site.files {
            let metadata = fs::metadata(root.join(&file.path[1..])).unwrap();
            assert_eq!(metadata.len(), file.bytes);
            assert_eq!(metadata.permissions().mode() & 0o777, 0o644);
            assert_eq!(metadata.modified().unwrap(), SystemTime::UNIX_EPOCH + Duration::from_secs(MODIFIED_UNIX_S));
        }
        assert_eq!(fs::metadata(root.join("a/b")).unwrap().permissions().mode() & 0o777, 0o755);
    }

    #[test]
    fn contents_depend_on_the_path_alone_and_look_random() {
        let directory = tempfile::tempdir().unwrap();
        let (one, two) = (directory.path().join("1"), directory.path().join("2"));
        let site = small_site(vec![file("/x", 100_000), file("/y", 100_000)]);
        write(&site, &one).unwrap();
        write(&site, &two).unwrap();
        let (x, y) = (fs::read(one.join("x")).unwrap(), fs::read(one.join("y")).unwrap());
        assert_eq!(x, fs::read(two.join("x")).unwrap());
        assert_ne!(x, y);
        let mut counts = [0_u32; 256];
        x.iter().for_each(|byte| counts[*byte as usize] += 1);
        assert!(counts.iter().all(|count| (250..550).contains(count)), "{counts:?}");
    }

    #[test]
    fn writing_again_over_an_older_corpus_is_fine() {
        let directory = tempfile::tempdir().unwrap();
        write(&small_site(vec![file("/x", 10)]), directory.path()).unwrap();
        write(&small_site(vec![file("/x", 5)]), directory.path()).unwrap();
        assert_eq!(fs::metadata(directory.path().join("x")).unwrap().len(), 5);
    }

    #[test]
    fn no_path_leaves_the_root() {
        let directory = tempfile::tempdir().unwrap();
        for path in ["/../x", "/a/../../x", "//etc/x", "/", ""] {
            let error = write(&small_site(vec![file(path, 1)]), directory.path()).unwrap_err();
            assert!(error.to_string().contains("below the document root"), "{path}: {error}");
        }
    }

    #[test]
    fn too_little_space_is_an_error_before_anything_is_written() {
        let directory = tempfile::tempdir().unwrap();
        let error = write(&small_site(vec![file("/x", 1 << 60)]), directory.path()).unwrap_err().to_string();
        assert!(error.contains("iB free") && error.contains("TMPDIR"), "{error}");
        assert!(!directory.path().join("x").exists());
    }

    #[test]
    fn the_date_is_the_same_in_both_notations() {
        let date = time::OffsetDateTime::from_unix_timestamp(MODIFIED_UNIX_S as i64).unwrap();
        let format = time::macros::format_description!(
            "[weekday repr:short], [day] [month repr:short] [year] [hour]:[minute]:[second] GMT"
        );
        assert_eq!(date.format(&format).unwrap(), MODIFIED);
    }
}
