//! A log that a server goes on writing, read piece by piece.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::path::PathBuf;

use anyhow::{Context, Result};

/// The log and how far it is read: it grows with every connection, and is read after each block.
#[derive(Debug)]
pub struct GrowingLog {
    path: PathBuf,
    read_bytes: u64,
}

impl GrowingLog {
    pub fn new(path: PathBuf) -> GrowingLog {
        GrowingLog { path, read_bytes: 0 }
    }

    /// The lines since the last call. One that is being written comes when it is whole.
    pub fn new_lines(&mut self) -> Result<String> {
        let read = || -> Result<Vec<u8>> {
            let mut log = File::open(&self.path)?;
            log.seek(SeekFrom::Start(self.read_bytes))?;
            let mut bytes = Vec::new();
            log.read_to_end(&mut bytes)?;
            Ok(bytes)
        };
        let mut bytes = read().with_context(|| format!("read {}", self.path.display()))?;
        bytes.truncate(bytes.iter().rposition(|byte| *byte == b'\n').map_or(0, |end| end + 1));
        self.read_bytes += bytes.len() as u64;
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    #[test]
    fn a_line_comes_once_and_whole() {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        let mut log = GrowingLog::new(file.path().to_owned());
        let read = ["one\ntw", "o\n", "", "three\n"].map(|text| {
            file.write_all(text.as_bytes()).unwrap();
            log.new_lines().unwrap()
        });
        assert_eq!(read, ["one\n", "two\n", "", "three\n"]);
        let missing = GrowingLog::new("/nowhere/log".into()).new_lines().unwrap_err();
        assert!(missing.to_string().contains("/nowhere/log"));
    }
}
