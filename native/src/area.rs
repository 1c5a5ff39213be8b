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

use anyhow::{Context, Result, bail, ensure};
use rustix::fs::{MemfdFlags, Mode, SealFlags};
use rustix::time::ClockId;
use serde::{Deserialize, Serialize};
use tlsdyno_tls::{Stage, StageSet};

use crate::layout::head as layout;
use tlsdyno_base::process_tree;

/// How often the heartbeat is written. The libraries refuse once that it is a second old.
const HEARTBEAT: Duration = Duration::from_millis(100);

/// Lowest descriptor number of an area: servers do not expect it below, where they put their own files.
const FIRST_DESCRIPTOR: RawFd = 100;

/// What a server process must be started with, so that it loads the libraries and finds their areas.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Handed {
    /// Variables of its environment.
    pub environment: Vec<(OsString, OsString)>,
    /// Descriptors of this process that it must have under the same numbers.
    pub descriptors: Vec<RawFd>,
}

impl Handed {
    /// What must be handed for both.
    pub fn and(mut self, other: Handed) -> Handed {
        self.environment.extend(other.environment);
        self.descriptors.extend(other.descriptors);
        self
    }
}

/// What the head of an area says besides its owner.
pub(super) struct Head {
    pub(super) magic: [u8; 8],
    pub(super) abi_version: u32,
    pub(super) slots: usize,
    /// The mode to begin with, [`mode_bits`].
    pub(super) mode: u32,
}

/// The mode in which of `stages` those in `off` are off.
pub(super) fn mode_bits(stages: &[Stage], off: StageSet) -> u32 {
    stages.iter().enumerate().map(|(bit, stage)| u32::from(off.contains(*stage)) << bit).sum()
}

/// One area; it ends with this value for this process, and with their last process for servers.
#[derive(Debug)]
pub(super) struct Area {
    file: Arc<File>,
    run_id: String,
}

impl Area {
    /// Makes an area of `size` bytes: the head, then zeros, and begins its heartbeat.
    pub(super) fn create(name: &str, head: &Head, size: usize) -> Result<Area> {
        let context = || format!("cannot make the memory that the server shares ({name})");
        let made = rustix::fs::memfd_create(name, MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING);
        let memory = made.with_context(context)?;
        rustix::fs::fchmod(&memory, Mode::RUSR | Mode::WUSR).with_context(context)?;
        rustix::fs::ftruncate(&memory, size as u64).with_context(context)?;
        let seals = SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL;
        rustix::fs::fcntl_add_seals(&memory, seals).with_context(context)?;
        let memory = rustix::io::fcntl_dupfd_cloexec(&memory, FIRST_DESCRIPTOR)
            .with_context(|| format!("{}: the limit of open files (`ulimit -n`) is too low", context()))?;
        let area = Area { file: Arc::new(File::from(memory)), run_id: random_run_id()? };
        area.write(0, &head.bytes(&area.run_id)?)?;
        keep_alive(&area.file)?;
        Ok(area)
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

    /// What the slots count together, `counters` numbers each, that threads have claimed (`claimed_at`) of the `slots`
    /// which begin at the byte `at`.
    pub(super) fn sum_slots(&self, claimed_at: usize, slots: usize, at: usize, counters: usize) -> Result<Vec<u64>> {
        let claimed = slots.min(self.read_u32(claimed_at)? as usize);
        let mut bytes = vec![0; claimed * counters * 8];
        self.read(at, &mut bytes)?;
        let mut totals = vec![0; counters];
        for (index, number) in bytes.chunks_exact(8).enumerate() {
            totals[index % counters] += u64::from_ne_bytes(number.try_into().expect("8 bytes"));
        }
        Ok(totals)
    }

    /// Writes from the byte `at` on.
    pub(super) fn write(&self, at: usize, bytes: &[u8]) -> Result<()> {
        self.file.write_all_at(bytes, at as u64).context("memory shared with the server")
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
        self.write(layout::MODE_AT, &mode_bits(stages, off).to_ne_bytes())
    }

    /// Lets every process that this one starts from now on have the descriptor.
    pub(super) fn let_children_inherit(&self) -> Result<()> {
        rustix::io::fcntl_setfd(&*self.file, rustix::io::FdFlags::empty()).context("memory shared with the server")
    }
}

impl Head {
    fn bytes(&self, run_id: &str) -> Result<Vec<u8>> {
        ensure!(run_id.len() < layout::RUN_ID_SIZE, "run id of {} bytes is too long", run_id.len());
        let mut head = vec![0; layout::MODE_AT + 4];
        let mut put = |at: usize, bytes: &[u8]| head[at..at + bytes.len()].copy_from_slice(bytes);
        put(0, &self.magic);
        put(layout::ABI_VERSION_AT, &self.abi_version.to_ne_bytes());
        put(layout::SLOT_COUNT_AT, &(self.slots as u32).to_ne_bytes());
        put(layout::OWNER_PID_AT, &u64::from(std::process::id()).to_ne_bytes());
        let own = process_tree::own().context("no start time of this process in /proc/self/stat")?;
        put(layout::OWNER_START_TICKS_AT, &own.started_ticks.to_ne_bytes());
        put(layout::RUN_ID_AT, run_id.as_bytes());
        put(layout::HEARTBEAT_NS_AT, &heartbeat().to_ne_bytes());
        put(layout::OWNER_USER_AT, &rustix::process::geteuid().as_raw().to_ne_bytes());
        put(layout::MODE_AT, &self.mode.to_ne_bytes());
        Ok(head)
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
                    let _ = area.write_all_at(&heartbeat().to_ne_bytes(), layout::HEARTBEAT_NS_AT as u64);
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

    fn area() -> Area {
        Area::create("test", &Head { magic: *b"TEST\0\0\0\0", abi_version: 1, slots: 2, mode: 1 }, 4096).unwrap()
    }

    fn heartbeat_of(area: &Area) -> u64 {
        let mut bytes = [0; 8];
        area.read(layout::HEARTBEAT_NS_AT, &mut bytes).unwrap();
        u64::from_ne_bytes(bytes)
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
