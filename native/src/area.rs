//! Memory that tlsdyno shares with the processes of a server under test: the run's acknowledgement, and the place of
//! counters and settings.
//!
//! An area is a memory file (memfd_create(2)), sealed at its size and handed to the server as an open descriptor. No
//! other user can open it, nothing can truncate it under the server, and a copy is refused. It works while this process
//! writes its heartbeat. `native/owner.h` is the other side.

use std::ffi::OsString;
use std::fs::File;
use std::io::Read;
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::fs::FileExt;
use std::sync::{Arc, Condvar, Mutex, PoisonError, Weak};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use rustix::fs::{MemfdFlags, Mode, SealFlags};
use rustix::time::ClockId;
use serde::{Deserialize, Serialize};
use tlsdyno_base::process_tree;
use tlsdyno_tls::{Stage, StageSet};

use crate::layout::{Layout, head};

/// How often the heartbeat is written. The libraries refuse once that it is a second old.
const HEARTBEAT: Duration = Duration::from_millis(100);

/// Lowest descriptor number of an area: servers do not expect it below, where they put their own files.
const FIRST_DESCRIPTOR: RawFd = 100;

/// What a server process must be started with, so that it loads the libraries and finds their areas.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Handed {
    pub environment: Vec<(OsString, OsString)>,
    /// Descriptors of this process that it must have under the same numbers.
    pub descriptors: Vec<RawFd>,
}

impl Handed {
    pub fn and(mut self, other: Handed) -> Handed {
        self.environment.extend(other.environment);
        self.descriptors.extend(other.descriptors);
        self
    }
}

/// The mode in which of `stages` those in `off` are off.
pub(super) fn mode_bits(stages: &[Stage], off: StageSet) -> u32 {
    stages.iter().enumerate().map(|(bit, stage)| u32::from(off.contains(*stage)) << bit).sum()
}

/// One area; it ends with this value for this process, and with their last process for servers.
#[derive(Debug)]
pub(super) struct Area {
    file: Arc<File>,
    pub(super) layout: &'static Layout,
    run_id: String,
}

impl Area {
    /// Makes an area that begins in a mode ([`mode_bits`]): the head, then zeros. Begins its heartbeat.
    pub(super) fn create(name: &str, layout: &'static Layout, mode: u32) -> Result<Area> {
        let context = || format!("cannot make the memory that the server shares ({name})");
        let made = rustix::fs::memfd_create(name, MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING);
        let memory = made.with_context(context)?;
        rustix::fs::fchmod(&memory, Mode::RUSR | Mode::WUSR).with_context(context)?;
        rustix::fs::ftruncate(&memory, layout.size as u64).with_context(context)?;
        let seals = SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL;
        rustix::fs::fcntl_add_seals(&memory, seals).with_context(context)?;
        let memory = rustix::io::fcntl_dupfd_cloexec(&memory, FIRST_DESCRIPTOR)
            .with_context(|| format!("{}: the limit of open files (`ulimit -n`) is too low", context()))?;
        let area = Area { file: Arc::new(File::from(memory)), layout, run_id: random_run_id()? };
        area.write_head(mode)?;
        keep_alive(&area.file)?;
        Ok(area)
    }

    fn write_head(&self, mode: u32) -> Result<()> {
        let own = process_tree::own().context("no start time of this process in /proc/self/stat")?;
        self.write(0, &self.layout.magic)?;
        self.write_u32(head::ABI_VERSION_AT, self.layout.abi_version)?;
        self.write_u32(head::SLOT_COUNT_AT, self.layout.slots as u32)?;
        self.write_u64(head::OWNER_PID_AT, u64::from(std::process::id()))?;
        self.write_u64(head::OWNER_START_TICKS_AT, own.started_ticks)?;
        self.write(head::RUN_ID_AT, self.run_id.as_bytes())?;
        self.write_u64(head::HEARTBEAT_NS_AT, heartbeat())?;
        self.write_u32(head::OWNER_USER_AT, rustix::process::geteuid().as_raw())?;
        self.write_u32(head::MODE_AT, mode)
    }

    /// What servers must name to use it.
    pub(super) fn run_id(&self) -> &str {
        &self.run_id
    }

    /// Its descriptor, which has the same number in servers.
    pub(super) fn descriptor(&self) -> RawFd {
        self.file.as_raw_fd()
    }

    /// A path by which this process can open it again.
    pub(super) fn path(&self) -> String {
        format!("/proc/self/fd/{}", self.descriptor())
    }

    /// Fills `into` from the byte `at` on.
    pub(super) fn read(&self, at: usize, into: &mut [u8]) -> Result<()> {
        self.file.read_exact_at(into, at as u64).context("memory shared with the server")
    }

    /// The number at the byte `at`.
    pub(super) fn read_u32(&self, at: usize) -> Result<u32> {
        let mut bytes = [0; 4];
        self.read(at, &mut bytes)?;
        Ok(u32::from_ne_bytes(bytes))
    }

    /// The number of 8 bytes at the byte `at`.
    pub(super) fn read_u64(&self, at: usize) -> Result<u64> {
        let mut bytes = [0; 8];
        self.read(at, &mut bytes)?;
        Ok(u64::from_ne_bytes(bytes))
    }

    /// The numbers of a slot, summed over all slots that threads have claimed.
    pub(super) fn totals(&self) -> Result<Vec<u64>> {
        let Layout { slots, slots_at, slot_numbers, .. } = *self.layout;
        let claimed = slots.min(self.read_u32(head::SLOTS_CLAIMED_AT)? as usize);
        let mut bytes = vec![0; claimed * slot_numbers * 8];
        self.read(slots_at, &mut bytes)?;
        let mut totals = vec![0; slot_numbers];
        for (index, number) in bytes.chunks_exact(8).enumerate() {
            totals[index % slot_numbers] += u64::from_ne_bytes(number.try_into().expect("8 bytes"));
        }
        Ok(totals)
    }

    pub(super) fn write(&self, at: usize, bytes: &[u8]) -> Result<()> {
        self.file.write_all_at(bytes, at as u64).context("memory shared with the server")
    }

    pub(super) fn write_u32(&self, at: usize, number: u32) -> Result<()> {
        self.write(at, &number.to_ne_bytes())
    }

    pub(super) fn write_u64(&self, at: usize, number: u64) -> Result<()> {
        self.write(at, &number.to_ne_bytes())
    }

    /// Lets contexts and connections of the servers that are made from now on have those of `stages` off that are in
    /// `off`, and no others. Those that exist keep the mode in which they were made, so whoever wants them out of the
    /// way drains them first.
    ///
    /// The libraries read the mode without a lock, and take from it only what they were loaded for (`may_be_off`).
    pub(super) fn set_mode(&self, stages: &[Stage], may_be_off: StageSet, off: StageSet) -> Result<()> {
        if let Some(stage) = off.iter().find(|stage| !may_be_off.contains(*stage)) {
            bail!("a mode cannot switch `{stage}` off: this server was started for {may_be_off} only");
        }
        self.write_u32(head::MODE_AT, mode_bits(stages, off))
    }

    /// Lets every process that this one starts from now on have the descriptor.
    pub(super) fn let_children_inherit(&self) -> Result<()> {
        rustix::io::fcntl_setfd(&*self.file, rustix::io::FdFlags::empty()).context("memory shared with the server")
    }
}

/// The areas of this process whose heartbeat is kept up.
static ALIVE: Mutex<Vec<Weak<File>>> = Mutex::new(Vec::new());
static SOMETHING_ALIVE: Condvar = Condvar::new();

/// Keeps the heartbeat of an area up until it is dropped, or this process ends.
fn keep_alive(area: &Arc<File>) -> Result<()> {
    static STARTED: Mutex<bool> = Mutex::new(false);
    ALIVE.lock().unwrap_or_else(PoisonError::into_inner).push(Arc::downgrade(area));
    let mut started = STARTED.lock().unwrap_or_else(PoisonError::into_inner);
    if !*started {
        std::thread::Builder::new().name("heartbeat".to_owned()).spawn(beat).context("thread of the heartbeat")?;
        *started = true;
    }
    SOMETHING_ALIVE.notify_one();
    Ok(())
}

fn beat() {
    loop {
        {
            let mut areas = ALIVE.lock().unwrap_or_else(PoisonError::into_inner);
            while areas.is_empty() {
                areas = SOMETHING_ALIVE.wait(areas).unwrap_or_else(PoisonError::into_inner);
            }
            // Writing to memory does not fail; if it did, the servers would refuse, which is the safe side.
            areas.retain(|area| {
                area.upgrade().is_some_and(|area| {
                    let _ = area.write_all_at(&heartbeat().to_ne_bytes(), head::HEARTBEAT_NS_AT as u64);
                    true
                })
            });
        }
        std::thread::sleep(HEARTBEAT);
    }
}

/// Now, by the clock that the libraries read.
fn heartbeat() -> u64 {
    let now = rustix::time::clock_gettime(ClockId::MonotonicCoarse);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

fn random_run_id() -> Result<String> {
    let mut bytes = [0; 16];
    File::open("/dev/urandom")
        .and_then(|mut file| file.read_exact(&mut bytes))
        .context("random run id from /dev/urandom")?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    static LAYOUT: Layout =
        Layout { magic: *b"TEST\0\0\0\0", abi_version: 1, size: 4096, slots: 2, slots_at: 512, slot_numbers: 4 };

    fn area() -> Area {
        Area::create("test", &LAYOUT, 1).unwrap()
    }

    fn heartbeat_of(area: &Area) -> u64 {
        area.read_u64(head::HEARTBEAT_NS_AT).unwrap()
    }

    #[test]
    fn an_area_cannot_change_its_size() {
        let area = area();
        for size in [0, 4095, 5000] {
            assert_eq!(area.file.set_len(size).unwrap_err().raw_os_error(), Some(libc::EPERM), "{size}");
        }
        assert_eq!(area.file.metadata().unwrap().len(), 4096);
    }

    #[test]
    fn only_its_user_may_open_an_area() {
        use std::os::unix::fs::PermissionsExt;
        assert_eq!(area().file.metadata().unwrap().permissions().mode() & 0o777, 0o600);
    }

    #[test]
    fn descriptors_are_high_and_closed_on_execution() {
        let (one, two) = (area(), area());
        assert!(one.descriptor() >= FIRST_DESCRIPTOR && two.descriptor() >= FIRST_DESCRIPTOR);
        assert_ne!(one.descriptor(), two.descriptor());
        assert_ne!(one.run_id(), two.run_id());
        let is_closed = || rustix::io::fcntl_getfd(&*one.file).unwrap().contains(rustix::io::FdFlags::CLOEXEC);
        assert!(is_closed());
        one.let_children_inherit().unwrap();
        assert!(!is_closed());
    }

    #[test]
    fn the_heartbeat_goes_on() {
        let area = area();
        let first = heartbeat_of(&area);
        let limit = std::time::Instant::now() + Duration::from_secs(20);
        while heartbeat_of(&area) == first {
            assert!(std::time::Instant::now() < limit, "no heartbeat");
            std::thread::sleep(Duration::from_millis(5));
        }
        assert!(heartbeat_of(&area) > first && heartbeat_of(&area) <= heartbeat());
    }
}
