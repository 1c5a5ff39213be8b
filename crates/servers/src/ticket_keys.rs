//! Keys of session tickets from files: one set for all servers of a run. Each driver writes them in the form that its
//! product wants.
//!
//! Servers of one product that have the same file take each other's tickets; servers of different products do not,
//! although the bytes are the same.

use std::fs;
use std::io::{ErrorKind, Write};
use std::path::Path;

use anyhow::{Context, Result};
use tempfile::NamedTempFile;
use tlsdyno_record::model::TicketKeys;

/// Name, HMAC key and AES-256 key.
pub type Key = [u8; KEY_BYTES];

const KEY_BYTES: usize = 80;
/// In a run: a shared one, and one for servers whose keys rotate.
const KEYS: usize = 3;
/// In the directory of the run, and of servers that take a single file.
pub const KEYS_FILE: &str = "ticket-keys";

/// The keys for a server of the run in this directory, made if there are none yet: the first encrypts, the others only
/// decrypt. The list is empty where the server draws its own. A rotating server encrypts with a newer key than one with
/// shared keys, whose tickets it still takes.
pub fn of_run(run: &Path, wanted: TicketKeys) -> Result<Vec<Key>> {
    if wanted == TicketKeys::Own {
        return Ok(Vec::new());
    }
    let bytes = read_or_make(&run.join(KEYS_FILE))?;
    let (all, _) = bytes.as_chunks::<KEY_BYTES>();
    Ok(match wanted {
        TicketKeys::Rotating => vec![all[1], all[0]],
        _ => vec![all[0]],
    })
}

/// Reads the file, or makes it; several servers may start at once, so that whoever is first decides.
fn read_or_make(path: &Path) -> Result<Vec<u8>> {
    let mut bytes = vec![0; KEYS * KEY_BYTES];
    openssl::rand::rand_bytes(&mut bytes).context("draw ticket keys")?;
    // Only this user can read it.
    let written = NamedTempFile::new_in(path.parent().unwrap_or(path)).and_then(|mut file| {
        file.write_all(&bytes)?;
        file.persist_noclobber(path).map(drop).map_err(|refused| refused.error)
    });
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
        assert!(of_run(run.path(), TicketKeys::Own).unwrap().is_empty());
        let shared = of_run(run.path(), TicketKeys::Shared).unwrap();
        let rotating = of_run(run.path(), TicketKeys::Rotating).unwrap();
        assert_eq!(shared[0], rotating[1]);
        assert_ne!(shared[0], rotating[0]);
        let other = tempfile::tempdir().unwrap();
        assert_ne!(shared, of_run(other.path(), TicketKeys::Shared).unwrap());
    }
}
