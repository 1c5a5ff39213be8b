//! Keys of session tickets from files: one set for all servers of a run, in the form that each product wants.
//!
//! Servers of one product that have the same file take each other's tickets; servers of different products do not, although the bytes are the same.

use std::fs;
use std::io::{ErrorKind, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result};

use super::worker_user::{WorkerUser, create_for_workers};
use crate::model::TicketKeys;

/// Name, HMAC key and AES-256 key.
const KEY_BYTES: usize = 80;
/// Name, HMAC key and AES-128 key, as Apache wants them.
const SHORT_KEY_BYTES: usize = 48;
/// As many as HAProxy wants at least.
const KEYS: usize = 3;
/// In the directory of the run.
const KEYS_FILE: &str = "ticket-keys";
/// How long lighttpd may use its key, in seconds: no experiment lasts longer.
const LIFETIME_S: u32 = 10 * 365 * 86_400;

/// The keys for a server, the one that encrypts first; the others only decrypt. `None`: the server draws its own.
pub struct Keys {
    keys: Vec<[u8; KEY_BYTES]>,
}

impl Keys {
    /// The keys of the run in this directory, made if there are none yet. A rotating server encrypts with a newer key than one with shared
    /// keys, whose tickets it still takes.
    pub fn of_run(run: &Path, wanted: TicketKeys) -> Result<Option<Keys>> {
        if wanted == TicketKeys::Own {
            return Ok(None);
        }
        let bytes = of_run(&run.join(KEYS_FILE))?;
        let (all, _) = bytes.as_chunks::<KEY_BYTES>();
        let keys = match wanted {
            TicketKeys::Rotating => vec![all[1], all[0]],
            _ => vec![all[0]],
        };
        Ok(Some(Keys { keys }))
    }

    /// A file of 80 bytes for each key (nginx).
    pub fn write_each(&self, directory: &Path) -> Result<Vec<PathBuf>> {
        let write = |(number, key): (usize, &[u8; KEY_BYTES])| {
            let path = directory.join(format!("ticket-key-{number}"));
            create_for_workers(&path, None, key)?;
            Ok(path)
        };
        self.keys.iter().enumerate().map(write).collect()
    }

    /// One file of 48 bytes with the first key (Apache).
    pub fn write_short(&self, directory: &Path) -> Result<PathBuf> {
        let path = directory.join(KEYS_FILE);
        create_for_workers(&path, None, &self.keys[0][..SHORT_KEY_BYTES])?;
        Ok(path)
    }

    /// One file with three keys in base64, of which the last but one encrypts (HAProxy).
    pub fn write_lines(&self, directory: &Path) -> Result<PathBuf> {
        let first = &self.keys[0];
        let older = self.keys.get(1).unwrap_or(first);
        let lines: Vec<String> = [older, first, first].map(|key| openssl::base64::encode_block(key)).to_vec();
        let path = directory.join(KEYS_FILE);
        create_for_workers(&path, None, (lines.join("\n") + "\n").as_bytes())?;
        Ok(path)
    }

    /// One file with the first key behind version 0, begin and end of its use as native 32-bit integers (lighttpd, which reads it again
    /// as its worker user).
    pub fn write_stek(&self, directory: &Path, user: Option<&WorkerUser>) -> Result<PathBuf> {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
        let now = u32::try_from(now).unwrap_or(u32::MAX - LIFETIME_S);
        // Already in use at the time of writing, whichever way clocks are rounded.
        let mut bytes: Vec<u8> =
            [0, now - 60, now + LIFETIME_S].iter().flat_map(|word: &u32| word.to_ne_bytes()).collect();
        bytes.extend_from_slice(&self.keys[0]);
        let path = directory.join(KEYS_FILE);
        create_for_workers(&path, user, &bytes)?;
        Ok(path)
    }
}

/// Reads the file, or makes it; several servers may start at once, so that whoever is first decides.
fn of_run(path: &Path) -> Result<Vec<u8>> {
    let mut bytes = vec![0; KEYS * KEY_BYTES];
    openssl::rand::rand_bytes(&mut bytes).context("draw ticket keys")?;
    let own = path.with_extension(format!("{:?}", std::thread::current().id()));
    let written = fs::OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o600)
        .open(&own)
        .and_then(|mut file| file.write_all(&bytes))
        .and_then(|()| fs::hard_link(&own, path));
    let _ = fs::remove_file(&own);
    match written {
        Err(error) if error.kind() != ErrorKind::AlreadyExists => {
            Err(error).with_context(|| format!("write {}", path.display()))
        }
        _ => fs::read(path).with_context(|| format!("read {}", path.display())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_has_one_set_of_keys_and_rotation_keeps_the_shared_one() {
        let run = tempfile::tempdir().unwrap();
        assert!(Keys::of_run(run.path(), TicketKeys::Own).unwrap().is_none());
        let shared = Keys::of_run(run.path(), TicketKeys::Shared).unwrap().unwrap();
        let rotating = Keys::of_run(run.path(), TicketKeys::Rotating).unwrap().unwrap();
        assert_eq!(shared.keys[0], rotating.keys[1]);
        assert_ne!(shared.keys[0], rotating.keys[0]);
        let other = tempfile::tempdir().unwrap();
        assert_ne!(shared.keys, Keys::of_run(other.path(), TicketKeys::Shared).unwrap().unwrap().keys);
    }

    #[test]
    fn each_product_has_its_form() {
        let run = tempfile::tempdir().unwrap();
        let keys = Keys::of_run(run.path(), TicketKeys::Rotating).unwrap().unwrap();
        let own = tempfile::tempdir().unwrap();
        let each = keys.write_each(own.path()).unwrap();
        assert_eq!(each.iter().map(|path| fs::read(path).unwrap().len()).collect::<Vec<_>>(), [80, 80]);
        assert_eq!(fs::read(keys.write_short(own.path()).unwrap()).unwrap().len(), 48);
        let lines = fs::read_to_string(keys.write_lines(own.path()).unwrap()).unwrap();
        let lines: Vec<_> = lines.lines().map(|line| openssl::base64::decode_block(line).unwrap()).collect();
        assert_eq!(lines, [keys.keys[1], keys.keys[0], keys.keys[0]]);
        let stek = fs::read(keys.write_stek(own.path(), None).unwrap()).unwrap();
        assert_eq!((stek.len(), &stek[..4], &stek[12..]), (92, &[0; 4][..], &keys.keys[0][..]));
    }
}
