//! The native libraries that run inside the server under test, and the programs beside it, which measure its OpenSSL's
//! primitives and ask it as a stock client: unpacked for one run, set up, and read. And batched RSA, which runs here.
//!
//! All are compiled by the build script and embedded here. The libraries act only on an area that this process hands to
//! the server and keeps alive ([`area`]), so that a configuration that is left behind, or copied, never works.

// But for calls of the C code that is linked in.
#![deny(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::print_stderr, clippy::print_stdout))]

use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::Path;

use anyhow::{Context, Result};

pub mod area;
mod asked;
pub mod batch_rsa;
mod counts;
pub mod doubler;
pub mod layout;
pub mod primitives;
pub mod profiler;
pub mod provider;
pub mod remote_keys;
pub mod shim;
pub mod stock_client;
mod unpacked;

pub use area::Handed;
pub use counts::Counts;
pub use doubler::{Doubled, Doubling, DoublingCounters};
pub use profiler::{ClassCount, Clock, ProfileCounts, Profiling};
pub use provider::{Counters, Engines, Hardware, Injection};
pub use shim::{ShimCounters, ShimInjection, ShimSettings, Step, TimeStamp};
pub use unpacked::Unpacked;

/// What is common to all libraries can be asked of each.
macro_rules! is_unpacked {
    ($($library:ty),*) => {
        $(impl std::ops::Deref for $library {
            type Target = Unpacked;

            fn deref(&self) -> &Unpacked {
                &self.unpacked
            }
        })*
    };
}
is_unpacked!(Doubling, Injection, Profiling, ShimInjection);

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
