//! Reads the lines of a log file, plain or gzip, without holding more than a piece of it.

use std::io::{self, BufRead, BufReader, ErrorKind, Read as _};
use std::path::Path;

use anyhow::{Context, Result, bail, ensure};
use flate2::bufread::MultiGzDecoder;
use tlsdyno_base::input;

const BUFFER_BYTES: usize = 256 << 10;
/// Longest line; longer ones are passed over without being kept.
pub(super) const MAX_LINE_BYTES: usize = 64 << 10;

pub(super) struct Line<'buffer> {
    /// The line without its line feed, or the first [`MAX_LINE_BYTES`] of a longer one.
    pub text: &'buffer [u8],
    /// The line is not longer than the limit.
    pub is_whole: bool,
}

#[derive(Debug, PartialEq)]
pub(super) struct Read {
    /// Bytes of the file that were read; `None` for what is no regular file and cannot be read twice.
    pub file_bytes: Option<u64>,
    /// What ended the reading early, if anything did: a compressed log may be cut off or damaged, and what was read
    /// until then still counts.
    pub damage: Option<String>,
}

/// Hands each line of the log at `path` to `take`: of its first `first_bytes`, if given, else of all that it has now.
pub(super) fn for_each_line(
    path: &Path,
    first_bytes: Option<u64>,
    mut take: impl FnMut(Line<'_>) -> Result<()>,
) -> Result<Read> {
    let (mut input, file_bytes) = open(path, first_bytes)?;
    let mut carried: Vec<u8> = Vec::new();
    let mut damage = None;
    while damage.is_none() {
        let buffer = match input.fill_buf() {
            Ok([]) => break,
            Ok(buffer) => buffer,
            Err(error) if error.kind() == ErrorKind::Interrupted => continue,
            Err(error) if is_damage(&error) => {
                damage =
                    Some(format!("the gzip data is cut off or damaged ({error}); only what comes before was read"));
                continue;
            }
            Err(error) => {
                return Err(error).with_context(|| format!("failed to read the log {}", path.display()));
            }
        };
        let used = buffer.len();
        lines_of(buffer, &mut carried, &mut take)?;
        input.consume(used);
    }
    if !carried.is_empty() {
        take(line(&carried))?;
    }
    Ok(Read { file_bytes, damage })
}

/// Opens the log, up to the bytes it has now or those asked for, and finds out how it is stored by its first bytes.
fn open(path: &Path, first_bytes: Option<u64>) -> Result<(Box<dyn BufRead>, Option<u64>)> {
    let file = input::open(path).with_context(|| format!("failed to open the log {}", path.display()))?;
    let metadata = file.metadata().with_context(|| format!("failed to read the log {}", path.display()))?;
    let present = metadata.is_file().then_some(metadata.len());
    ensure!(
        first_bytes <= present,
        "the log {} has become shorter since it was first read; if it is being rotated, use a copy of it",
        path.display()
    );
    let file_bytes = first_bytes.or(present);
    let mut input = BufReader::with_capacity(BUFFER_BYTES, file.take(file_bytes.unwrap_or(u64::MAX)));
    let start = input.fill_buf().with_context(|| format!("failed to read the log {}", path.display()))?;
    if start.starts_with(&[0x1f, 0x8b]) {
        let unpacked = BufReader::with_capacity(BUFFER_BYTES, MultiGzDecoder::new(input));
        return Ok((Box::new(unpacked), file_bytes));
    }
    let others: [(&[u8], &str, &str); 4] = [
        (b"BZh", "bzip2", "bunzip2"),
        (b"\xfd7zXZ\0", "xz", "unxz"),
        (b"\x28\xb5\x2f\xfd", "zstd", "unzstd"),
        (b"PK\x03\x04", "zip", "unzip"),
    ];
    if let Some((_, kind, remedy)) = others.iter().find(|(magic, ..)| start.starts_with(magic)) {
        bail!(
            "the log {} is compressed with {kind}, which is not read here; decompress it first ({remedy})",
            path.display()
        );
    }
    Ok((Box::new(input), file_bytes))
}

/// Errors by which the decompressor says that its input is bad, as opposed to errors of the file system.
fn is_damage(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::UnexpectedEof | ErrorKind::InvalidData | ErrorKind::InvalidInput)
}

/// Hands on the lines of one buffer; `carried` holds the beginning of a line that the buffer before ended in.
fn lines_of(mut buffer: &[u8], carried: &mut Vec<u8>, take: &mut impl FnMut(Line<'_>) -> Result<()>) -> Result<()> {
    while let Some(end) = memchr::memchr(b'\n', buffer) {
        if carried.is_empty() {
            take(line(&buffer[..end]))?;
        } else {
            carry(carried, &buffer[..end]);
            take(line(carried))?;
            carried.clear();
        }
        buffer = &buffer[end + 1..];
    }
    carry(carried, buffer);
    Ok(())
}

/// Keeps the beginning of a line, one byte more than the longest allowed at most.
fn carry(carried: &mut Vec<u8>, part: &[u8]) {
    let room = (MAX_LINE_BYTES + 1).saturating_sub(carried.len());
    carried.extend_from_slice(&part[..part.len().min(room)]);
}

fn line(bytes: &[u8]) -> Line<'_> {
    Line { text: &bytes[..bytes.len().min(MAX_LINE_BYTES)], is_whole: bytes.len() <= MAX_LINE_BYTES }
}

#[cfg(test)]
mod tests {
    use super::*;
    use flate2::Compression;
    use flate2::write::GzEncoder;
    use std::io::Write;
    use std::path::PathBuf;

    fn write(directory: &tempfile::TempDir, name: &str, bytes: &[u8]) -> PathBuf {
        let path = directory.path().join(name);
        std::fs::write(&path, bytes).unwrap();
        path
    }

    fn read(path: &Path) -> Result<(Vec<String>, Option<String>)> {
        read_first(path, None).map(|(lines, read)| (lines, read.damage))
    }

    fn read_first(path: &Path, first_bytes: Option<u64>) -> Result<(Vec<String>, Read)> {
        let mut lines = Vec::new();
        let read = for_each_line(path, first_bytes, |line| {
            lines.push(match line.is_whole {
                true => String::from_utf8_lossy(line.text).into_owned(),
                false => format!("too long, {} kept", line.text.len()),
            });
            Ok(())
        })?;
        Ok((lines, read))
    }

    fn gzip(bytes: &[u8]) -> Vec<u8> {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
        encoder.write_all(bytes).unwrap();
        encoder.finish().unwrap()
    }

    #[test]
    fn lines_of_any_length_over_buffer_ends() {
        let directory = tempfile::tempdir().unwrap();
        let expected: Vec<String> = (0..9_000).map(|number| "x".repeat(number % 301)).collect();
        let path = write(&directory, "log", expected.join("\n").as_bytes());
        // 9,000 lines of 150 bytes on average: several buffers. The last line has no line feed.
        let (lines, damage) = read(&path).unwrap();
        assert_eq!((lines.len(), damage), (9_000, None));
        assert_eq!(lines, expected);
    }

    #[test]
    fn a_line_without_end_takes_no_more_memory_than_the_longest() {
        let directory = tempfile::tempdir().unwrap();
        let mut log = b"first\n".to_vec();
        log.extend(vec![b'y'; 3 * BUFFER_BYTES]);
        log.extend(b"\nlast\n");
        let (lines, _) = read(&write(&directory, "log", &log)).unwrap();
        assert_eq!(lines, ["first".to_owned(), format!("too long, {MAX_LINE_BYTES} kept"), "last".to_owned()]);
        let exact = write(&directory, "exact", &vec![b'z'; MAX_LINE_BYTES]);
        assert_eq!(read(&exact).unwrap().0, ["z".repeat(MAX_LINE_BYTES)]);
    }

    #[test]
    fn gzip_is_recognised_by_its_bytes_and_members_follow_each_other() {
        let directory = tempfile::tempdir().unwrap();
        let mut bytes = gzip(b"one\ntwo\n");
        bytes.extend(gzip(b"three\n"));
        let (lines, damage) = read(&write(&directory, "no-suffix", &bytes)).unwrap();
        assert_eq!(lines, ["one", "two", "three"]);
        assert_eq!(damage, None);
    }

    #[test]
    fn a_cut_off_gzip_log_gives_what_it_still_holds() {
        let directory = tempfile::tempdir().unwrap();
        let text: String = (0..50_000).map(|number| format!("line {}\n", number * 7919)).collect();
        let mut bytes = gzip(text.as_bytes());
        bytes.truncate(bytes.len() / 2);
        let (lines, damage) = read(&write(&directory, "cut.gz", &bytes)).unwrap();
        assert!(lines.len() > 1_000, "{} lines", lines.len());
        assert!(damage.unwrap().contains("cut off"));
    }

    #[test]
    fn a_log_that_grows_can_be_read_again_up_to_where_it_was() {
        let directory = tempfile::tempdir().unwrap();
        let path = write(&directory, "log", b"one\ntwo\nthr");
        let (lines, first) = read_first(&path, None).unwrap();
        assert_eq!((lines.len(), first.file_bytes), (3, Some(11)));
        write(&directory, "log", b"one\ntwo\nthree\nfour\n");
        let (again, second) = read_first(&path, first.file_bytes).unwrap();
        assert_eq!((again, second), (lines, first));
        write(&directory, "log", b"rotated\n");
        let error = read_first(&path, Some(11)).unwrap_err().to_string();
        assert!(error.contains("become shorter"), "{error}");
    }

    #[test]
    fn what_cannot_be_read_is_named_with_the_remedy() {
        let directory = tempfile::tempdir().unwrap();
        let missing = read(&directory.path().join("missing")).unwrap_err();
        assert!(format!("{missing:#}").contains("No such file"), "{missing:#}");
        assert!(format!("{:#}", read(directory.path()).unwrap_err()).contains("is a directory"));
        assert!(format!("{:#}", read(Path::new("/dev/zero")).unwrap_err()).contains("is a device"));
        let zstd = read(&write(&directory, "log.zst", b"\x28\xb5\x2f\xfd....")).unwrap_err().to_string();
        assert!(zstd.contains("unzstd"), "{zstd}");
    }
}
