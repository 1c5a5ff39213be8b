//! The native libraries that run inside the server under test: unpacked for one run, set up, and read.
//!
//! Both are compiled by the build script and embedded here. What they map is their acknowledgement as well: they act only if it names a
//! process that still lives (this one), so that a configuration left behind never works again.

use std::fs::{self, File};
use std::io::{Read, Write};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::Path;

use anyhow::{Context, Result};

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
