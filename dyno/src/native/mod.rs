//! The native libraries that run inside the server under test: unpacked for one run, set up, and read.
//!
//! Both are compiled by the build script and embedded here. What they map is their acknowledgement as well: they act only if it names a
//! process that still lives (this one), so that a configuration left behind never works again.

use std::fs::{self, File};
use std::io::{Read, Write};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::Path;

use anyhow::{Context, Result, ensure};

pub mod provider;
pub mod shim;

pub use provider::{Counters, Engines, Hardware, Injection, layout};
pub use shim::{Script, ShimCounters, ShimInjection, ShimSettings, TimeStamp};

/// Replaces the file, never writes into it: a server of an earlier run may still have the old one mapped.
fn write_file(path: &Path, content: &[u8], mode: u32) -> Result<()> {
    let context = || format!("cannot write {}", path.display());
    if path.exists() {
        fs::remove_file(path).with_context(context)?;
    }
    let mut file = File::options().write(true).create_new(true).mode(mode).open(path).with_context(context)?;
    file.set_permissions(fs::Permissions::from_mode(mode)).with_context(context)?;
    file.write_all(content).with_context(context)
}

/// What the record file and the shim's area have in common: they begin with what makes them an acknowledgement.
struct SharedHead {
    magic: [u8; 8],
    abi_version: u32,
    slots: usize,
}

impl SharedHead {
    /// A header of `size` bytes, of a file that this process owns; what follows the run id is zeros.
    fn bytes(&self, run_id: &str, size: usize) -> Result<Vec<u8>> {
        ensure!(run_id.len() < layout::RUN_ID_SIZE, "run id of {} bytes is too long", run_id.len());
        let mut header = vec![0; size];
        let mut put = |at: usize, bytes: &[u8]| header[at..at + bytes.len()].copy_from_slice(bytes);
        put(0, &self.magic);
        put(layout::ABI_VERSION_AT, &self.abi_version.to_ne_bytes());
        put(layout::SLOT_COUNT_AT, &(self.slots as u32).to_ne_bytes());
        put(layout::OWNER_PID_AT, &u64::from(std::process::id()).to_ne_bytes());
        put(layout::OWNER_START_TICKS_AT, &own_start_ticks()?.to_ne_bytes());
        put(layout::RUN_ID_AT, run_id.as_bytes());
        Ok(header)
    }
}

/// Makes a file of `size` bytes that every process of the server maps: the header, then zeros. Everybody may write it.
fn create_shared_file(path: &Path, header: &[u8], size: usize) -> Result<File> {
    let context = || format!("file shared with the server, {}", path.display());
    write_file(path, header, 0o666)?;
    let file = File::options().read(true).write(true).open(path).with_context(context)?;
    file.set_len(size as u64).with_context(context)?;
    Ok(file)
}

fn random_run_id() -> Result<String> {
    let mut bytes = [0; 16];
    File::open("/dev/urandom")
        .and_then(|mut file| file.read_exact(&mut bytes))
        .context("random run id from /dev/urandom")?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}

/// When this process started, in clock ticks after boot: field 22 of `/proc/self/stat`, proc(5).
fn own_start_ticks() -> Result<u64> {
    let stat = fs::read_to_string("/proc/self/stat").context("start time of this process from /proc")?;
    let after_name = stat.rsplit_once(") ").map(|(_, fields)| fields);
    after_name
        .and_then(|fields| fields.split(' ').nth(19))
        .and_then(|ticks| ticks.parse().ok())
        .context("no start time in /proc/self/stat")
}
