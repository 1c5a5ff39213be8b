//! Files that a user, or another file, names: read whole, up to a size, and without waiting for what is none. A named
//! pipe that nobody writes to would be waited for without end, and a device be read until the memory is full.

use std::fs::{File, OpenOptions};
use std::io::{self, Read as _};
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::Path;

use anyhow::{Context, Result, bail, ensure};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::OFlags;
use rustix::io::Errno;
use rustix::pipe::SpliceFlags;

/// Most bytes of a configuration, a list of paths, a key or a certificate.
pub const TEXT_BYTES_MAX: u64 = 16 << 20;

/// Opens a file to be read, or a pipe that has a writer.
///
/// # Errors
/// It cannot be opened, or is a directory, device or socket, or a pipe that nobody writes to.
pub fn open(path: &Path) -> Result<File> {
    let failed = || format!("failed to read {}", path.display());
    // Opening a pipe would otherwise wait for a writer. Reading regular files is the same with and without.
    let no_wait = OFlags::NONBLOCK.union(OFlags::NOCTTY).bits();
    let file = OpenOptions::new().read(true).custom_flags(no_wait as i32).open(path).with_context(failed)?;
    let kind = file.metadata().with_context(failed)?.file_type();
    let what = match () {
        () if kind.is_file() => return Ok(file),
        () if kind.is_fifo() => {
            ensure!(has_writer(&file).with_context(failed)?, "{} is a pipe that nobody writes to", path.display());
            // From here on a reader waits for what the writer has yet to write.
            rustix::fs::fcntl_setfl(&file, OFlags::empty()).map_err(io::Error::from).with_context(failed)?;
            return Ok(file);
        }
        () if kind.is_dir() => "a directory",
        () if kind.is_socket() => "a socket",
        () => "a device",
    };
    bail!("{} is {what}, not a file; name a regular file", path.display())
}

/// So long a pipe may be without a writer: a shell may start both ends at the same time.
const WRITER_WAIT: Timespec = Timespec { tv_sec: 2, tv_nsec: 0 };

/// Whether somebody has written to a pipe, or holds it open to write.
fn has_writer(pipe: &File) -> io::Result<bool> {
    let (_copy_end, copy) = rustix::pipe::pipe()?;
    // A copy of its first byte: of a pipe without a writer there is none, of one that is silent there is none yet.
    let look = || match rustix::pipe::tee(pipe, &copy, 1, SpliceFlags::NONBLOCK) {
        Ok(bytes) => Ok(bytes > 0),
        Err(Errno::AGAIN) => Ok(true),
        Err(error) => Err(io::Error::from(error)),
    };
    Ok(look()? || {
        let _woken = poll(&mut [PollFd::new(pipe, PollFlags::IN)], Some(&WRITER_WAIT));
        look()?
    })
}

/// The whole of a file, or of a pipe up to where its writer ends it.
pub fn read(path: &Path, bytes_max: u64) -> Result<Vec<u8>> {
    bytes_of(open(path)?, path, bytes_max)
}

/// The same of a text.
pub fn text(path: &Path) -> Result<String> {
    utf8(read(path, TEXT_BYTES_MAX)?, path)
}

/// The same where another file names it: of a regular file only.
pub fn text_of_regular(path: &Path) -> Result<String> {
    ensure_regular(path)?;
    text(path)
}

/// Refuses what is no regular file.
pub fn ensure_regular(path: &Path) -> Result<()> {
    let metadata = std::fs::metadata(path).with_context(|| format!("failed to read {}", path.display()))?;
    ensure!(metadata.is_file(), "{} is no regular file; name one", path.display());
    Ok(())
}

fn bytes_of(file: File, path: &Path, bytes_max: u64) -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    file.take(bytes_max + 1).read_to_end(&mut bytes).with_context(|| format!("failed to read {}", path.display()))?;
    let mib = bytes_max >> 20;
    ensure!(
        bytes.len() as u64 <= bytes_max,
        "{} is larger than {mib} MiB, the most that is read of it",
        path.display()
    );
    Ok(bytes)
}

fn utf8(bytes: Vec<u8>, path: &Path) -> Result<String> {
    String::from_utf8(bytes).with_context(|| format!("failed to read {}: it is no text in UTF-8", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write as _;

    fn pipe(place: &tempfile::TempDir) -> std::path::PathBuf {
        let path = place.path().join("pipe");
        rustix::fs::mkfifoat(rustix::fs::CWD, &path, rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR).unwrap();
        path
    }

    #[test]
    fn devices_directories_and_pipes_without_a_writer_end_at_once() {
        let place = tempfile::tempdir().unwrap();
        for (path, what) in [(Path::new("/dev/zero"), "a device"), (place.path(), "a directory")] {
            let error = format!("{:#}", text(path).unwrap_err());
            assert!(error.contains(what), "{error}");
        }
        let path = pipe(&place);
        assert!(text(&path).unwrap_err().to_string().contains("nobody writes to"));
        assert!(text_of_regular(&path).unwrap_err().to_string().contains("no regular file"));
    }

    #[test]
    fn a_pipe_is_read_to_its_end() {
        let place = tempfile::tempdir().unwrap();
        let path = pipe(&place);
        // Opened for both, so that neither end waits for the other.
        let mut writer = OpenOptions::new().read(true).write(true).open(&path).unwrap();
        let reader = open(&path).unwrap();
        let written = std::thread::spawn(move || {
            writer.write_all(b"/a\n").unwrap();
            writer.write_all(&vec![b'x'; 100_000]).unwrap();
        });
        assert_eq!(bytes_of(reader, &path, TEXT_BYTES_MAX).unwrap().len(), 100_003);
        written.join().unwrap();
    }

    #[test]
    fn what_is_too_large_is_refused() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("large");
        std::fs::write(&path, vec![b'x'; (1 << 20) + 1]).unwrap();
        assert!(read(&path, 1 << 20).unwrap_err().to_string().contains("larger than 1 MiB"));
        std::fs::write(&path, vec![b'x'; 1 << 20]).unwrap();
        assert_eq!(read(&path, 1 << 20).unwrap().len(), 1 << 20);
    }
}
