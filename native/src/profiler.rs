//! The OpenSSL provider that times the calls into the default provider: unpacked for one run, its mode and its counts.
//!
//! The library is compiled from `native/profiler` by the build script and embedded here. It holds nothing that could
//! change a result, so that a server with it is as secure as one without. Like the doubler it goes on as the plain
//! default provider when its owner ends, or is not there.

use std::collections::BTreeMap;
use std::fs;
use std::ops::{AddAssign, Sub};
use std::path::Path;

use anyhow::Result;
use serde::{Deserialize, Serialize};
use tlsdyno_tls::Stage;

use crate::area::Head;
use crate::counts::Counts;
use crate::layout::profiler as layout;
use crate::unpacked::{Library, Unpacked};

/// The profiler, an ELF shared library.
static LIBRARY: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/tlsdyno-profiler.so"));

/// What calls are timed with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Clock {
    /// CPU time of the calling thread: exact whatever else runs, and dear to read.
    Thread,
    /// The processor's own counter, which runs at one rate: what interrupts a call is in its time.
    Counter,
}

impl Clock {
    /// The best clock of this machine.
    pub fn best() -> Clock {
        let processor = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        let source = "/sys/devices/system/clocksource/clocksource0/current_clocksource";
        let source = fs::read_to_string(source).unwrap_or_default();
        Clock::of_machine(&processor, source.trim())
    }

    /// From /proc/cpuinfo and the kernel's own clock. AArch64's counter is invariant by its architecture.
    fn of_machine(processor: &str, source: &str) -> Clock {
        let flags = processor.lines().find(|line| line.starts_with("flags")).unwrap_or_default();
        let has = |flag| flags.split_ascii_whitespace().any(|one| one == flag);
        let invariant = has("constant_tsc") && has("nonstop_tsc");
        // A kernel that trusts the counter of a virtual machine uses it itself, or the hypervisor's scale of it.
        let trusted = ["tsc", "kvm-clock", "hyperv_clocksource_tsc_page"].contains(&source);
        if invariant && trusted || source == "arch_sys_counter" { Clock::Counter } else { Clock::Thread }
    }

    const fn number(self) -> u32 {
        match self {
            Clock::Thread => 0,
            Clock::Counter => 1,
        }
    }

    /// What it is, for reports.
    pub fn name(self) -> &'static str {
        match self {
            Clock::Thread => "CPU clock of the thread",
            Clock::Counter => "invariant counter of the processor",
        }
    }
}

/// The profiler made ready for the servers of one run. Dropping it leaves the servers at their work; its files belong
/// to the caller's directory.
#[derive(Debug)]
pub struct Profiling {
    pub(super) unpacked: Unpacked,
}

impl Profiling {
    /// Writes library and `openssl.cnf` into `dir`, which must exist and be closed to others, and makes the area.
    /// Nothing is timed until [`Profiling::set_timed`] says so.
    ///
    /// # Errors
    /// A file cannot be written; `dir` has a path that an `openssl.cnf` cannot hold.
    pub fn prepare(dir: &Path, clock: Clock) -> Result<Profiling> {
        let head = Head { magic: layout::MAGIC, abi_version: layout::ABI_VERSION, slots: layout::SLOTS, mode: 0 };
        let library =
            Library { name: "profiler", image: LIBRARY, area_name: "tlsdyno-profiling", head, area_size: layout::SIZE };
        let mut unpacked = library.unpack(dir)?;
        unpacked.area.write(layout::CLOCK_AT, &clock.number().to_ne_bytes())?;
        let what = "OpenSSL's default provider, calls into it timed while tlsdyno lives";
        unpacked.name_in_openssl_cnf("openssl-profiler.cnf", "tlsdyno-profiler", what, "")?;
        Ok(Profiling { unpacked })
    }

    /// Whether calls are timed from now on, those of connections that exist too. Every process of the servers sees it
    /// at once.
    ///
    /// # Errors
    /// The area cannot be written.
    pub fn set_timed(&self, timed: bool) -> Result<()> {
        let mode = if timed { layout::MODE_TIMED } else { 0 };
        self.area.write(layout::MODE_AT, &mode.to_ne_bytes())
    }

    /// What the servers have counted so far, over all their processes and threads.
    ///
    /// # Errors
    /// The area cannot be read.
    pub fn counts(&self) -> Result<ProfileCounts> {
        let totals = self.totals()?;
        let (ticks_per_s, empty_ticks) =
            (self.number(layout::TICKS_PER_S_AT)?.max(1), self.number(layout::EMPTY_TICKS_AT)?);
        let count = |numbers: &[u64]| {
            let [calls, timed, ticks, bytes] = numbers.try_into().expect("as many as a class has");
            // What reading the clock took is no part of the calls.
            let ticks = u128::from(u64::saturating_sub(ticks, timed * empty_ticks));
            ClassCount {
                calls,
                timed_count: timed,
                ns: (ticks * 1_000_000_000 / u128::from(ticks_per_s)) as u64,
                bytes,
            }
        };
        let numbers: Vec<&[u64]> = totals.chunks_exact(layout::CLASS_NUMBERS).collect();
        Ok(ProfileCounts::new(|class| count(numbers[class])))
    }

    /// Gives the slots away, and forgets what was counted in them: the threads that had them call nothing any more,
    /// those of other servers will.
    ///
    /// # Errors
    /// The area cannot be written.
    pub fn forget_threads(&self) -> Result<()> {
        self.area.write(layout::SLOTS_AT, &vec![0; layout::SIZE - layout::SLOTS_AT])?;
        self.area.write(layout::SLOT_CLAIMS_AT, &[0; 4 * layout::SLOTS])?;
        self.area.write(layout::SLOTS_USED_AT, &0_u32.to_ne_bytes())
    }

    /// Calls that were interrupted, and are in no time.
    ///
    /// # Errors
    /// The area cannot be read.
    pub fn interrupted(&self) -> Result<u64> {
        Ok(self.totals()?[layout::CLASSES_MAX * layout::CLASS_NUMBERS])
    }

    /// The numbers of a slot, summed over all of them.
    fn totals(&self) -> Result<Vec<u64>> {
        self.area.sum_slots(layout::SLOTS_USED_AT, layout::SLOTS, layout::SLOTS_AT, layout::SLOT_NUMBERS)
    }

    /// Whether the kernel tells which calls were interrupted. `None`: no server has loaded the library yet.
    ///
    /// # Errors
    /// The area cannot be read.
    pub fn sees_interruptions(&self) -> Result<Option<bool>> {
        let is_loaded = self.number(layout::TICKS_PER_S_AT)? != 0;
        let sees = self.area.read_u32(layout::SEES_INTERRUPTIONS_AT)? != 0;
        Ok(is_loaded.then_some(sees))
    }

    /// What one reading of the clock takes, nanoseconds; 0: no server has loaded the library yet.
    ///
    /// # Errors
    /// The area cannot be read.
    pub fn clock_ns(&self) -> Result<f64> {
        let ticks_per_s = self.number(layout::TICKS_PER_S_AT)?.max(1);
        Ok(self.number(layout::EMPTY_TICKS_AT)? as f64 * 1e9 / ticks_per_s as f64)
    }

    /// For each trampoline the stage of the functions behind it.
    ///
    /// # Errors
    /// The area cannot be read.
    pub fn trampolines(&self) -> Result<Vec<Option<Stage>>> {
        let mut bytes = vec![0; layout::TRAMPOLINES];
        self.area.read(layout::TRAMPOLINE_CLASSES_AT, &mut bytes)?;
        let stage = |byte: u8| layout::CLASSES.get(usize::from(byte).checked_sub(1)?)?.0;
        Ok(bytes.into_iter().map(stage).collect())
    }

    fn number(&self, at: usize) -> Result<u64> {
        let mut bytes = [0; 8];
        self.area.read(at, &mut bytes)?;
        Ok(u64::from_ne_bytes(bytes))
    }
}

/// What was done in one class of functions. On disk an array of its fields in this order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "[u64; 4]", into = "[u64; 4]")]
pub struct ClassCount {
    /// Calls.
    pub calls: u64,
    /// Calls of them that were timed.
    pub timed_count: u64,
    /// Nanoseconds of those, without reading the clock.
    pub ns: u64,
    /// Bytes that all of them worked on, where the function has a length.
    pub bytes: u64,
}

impl ClassCount {
    /// Nanoseconds of all calls, where some stand for the others.
    pub fn all_ns(&self) -> f64 {
        self.ns as f64 * self.calls as f64 / self.timed_count.max(1) as f64
    }
}

impl From<ClassCount> for [u64; 4] {
    fn from(ClassCount { calls, timed_count: timed, ns, bytes }: ClassCount) -> [u64; 4] {
        [calls, timed, ns, bytes]
    }
}

impl From<[u64; 4]> for ClassCount {
    fn from([calls, timed, ns, bytes]: [u64; 4]) -> ClassCount {
        ClassCount { calls, timed_count: timed, ns, bytes }
    }
}

/// What was done in each class of functions. Subtract two snapshots to get what happened between them. On disk an
/// object with the classes that have calls.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "BTreeMap<String, ClassCount>", into = "BTreeMap<String, ClassCount>")]
pub struct ProfileCounts(Counts<[u64; layout::CLASS_NUMBERS], { layout::CLASSES.len() }>);

impl ProfileCounts {
    fn new(mut count: impl FnMut(usize) -> ClassCount) -> ProfileCounts {
        ProfileCounts(Counts::new(&layout::CLASSES, |class| count(class).into()))
    }

    /// Every class with its stage and name.
    pub fn iter(&self) -> impl Iterator<Item = (Stage, &'static str, ClassCount)> {
        self.0.of_stages().map(|(stage, name, numbers)| (stage, name, numbers.into()))
    }

    /// Nanoseconds of a stage.
    pub fn ns_of(&self, stage: Stage) -> f64 {
        self.iter().filter(|(of, ..)| *of == stage).map(|(.., count)| count.all_ns()).sum()
    }

    /// Calls of all classes, and how many of them were timed.
    pub fn calls(&self) -> (u64, u64) {
        self.iter().fold((0, 0), |(calls, timed), (.., count)| (calls + count.calls, timed + count.timed_count))
    }
}

impl Default for ProfileCounts {
    fn default() -> ProfileCounts {
        ProfileCounts::new(|_| ClassCount::default())
    }
}

impl Sub<&ProfileCounts> for ProfileCounts {
    type Output = ProfileCounts;

    fn sub(self, earlier: &ProfileCounts) -> ProfileCounts {
        ProfileCounts(self.0 - earlier.0)
    }
}

impl AddAssign<&ProfileCounts> for ProfileCounts {
    fn add_assign(&mut self, more: &ProfileCounts) {
        self.0 += more.0;
    }
}

impl From<ProfileCounts> for BTreeMap<String, ClassCount> {
    fn from(counts: ProfileCounts) -> BTreeMap<String, ClassCount> {
        let called = counts.iter().filter(|(.., count)| count.calls > 0);
        called.map(|(_, name, count)| (name.to_owned(), count)).collect()
    }
}

impl From<BTreeMap<String, ClassCount>> for ProfileCounts {
    fn from(named: BTreeMap<String, ClassCount>) -> ProfileCounts {
        ProfileCounts::new(|class| named.get(layout::CLASSES[class].1).copied().unwrap_or_default())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn profiling() -> (tempfile::TempDir, Profiling) {
        let dir = tempfile::tempdir().unwrap();
        let profiling = Profiling::prepare(dir.path(), Clock::Counter).unwrap();
        (dir, profiling)
    }

    #[test]
    fn only_a_counter_of_one_rate_that_the_kernel_trusts_is_a_clock() {
        let flags = "model name\t: X\nflags\t\t: fpu tsc constant_tsc nonstop_tsc rdtscp\n";
        assert_eq!(Clock::of_machine(flags, "tsc"), Clock::Counter);
        assert_eq!(Clock::of_machine(flags, "kvm-clock"), Clock::Counter);
        assert_eq!(Clock::of_machine(flags, "hpet"), Clock::Thread);
        assert_eq!(Clock::of_machine("flags\t: tsc constant_tsc\n", "tsc"), Clock::Thread);
        assert_eq!(Clock::of_machine("", "arch_sys_counter"), Clock::Counter);
    }

    #[test]
    fn the_configuration_names_the_profiler_and_nothing_is_timed_at_first() {
        let (dir, profiling) = profiling();
        let text = fs::read_to_string(dir.path().join("openssl-profiler.cnf")).unwrap();
        assert!(text.contains("/tlsdyno-profiler.so\n") && text.contains("\nacknowledge = "), "{text}");
        assert_eq!(fs::read(profiling.library_path()).unwrap(), LIBRARY);
        let mode = || profiling.area.read_u32(layout::MODE_AT).unwrap();
        assert_eq!((mode(), profiling.area.read_u32(layout::CLOCK_AT).unwrap()), (0, 1));
        profiling.set_timed(true).unwrap();
        assert_eq!(mode(), layout::MODE_TIMED);
        profiling.set_timed(false).unwrap();
        assert_eq!(mode(), 0);
    }

    #[test]
    fn counts_are_summed_scaled_and_subtracted() {
        let (_dir, profiling) = profiling();
        let put = |at: usize, value: u64| profiling.area.write(at, &value.to_ne_bytes()).unwrap();
        put(layout::TICKS_PER_S_AT, 2_000_000_000);
        put(layout::EMPTY_TICKS_AT, 40);
        profiling.area.write(layout::SLOTS_USED_AT, &2u32.to_ne_bytes()).unwrap();
        let before = profiling.counts().unwrap();
        for slot in 0..2 {
            let at = layout::SLOTS_AT + slot * layout::SLOT_NUMBERS * 8;
            put(at + layout::CLASSES_MAX * layout::CLASS_NUMBERS * 8, 3);
            for (number, value) in [32, 2, 2_080, 640].into_iter().enumerate() {
                put(at + number * 8, value);
            }
        }
        let counts = profiling.counts().unwrap() - &before;
        let (stage, name, sign) = counts.iter().next().unwrap();
        assert_eq!((stage, name), (Stage::Authentication, "sign"));
        // 4160 ticks of 0.5 ns, less 4 readings of 40 ticks: 2000 ns for 4 of 64 calls.
        assert_eq!(sign, ClassCount { calls: 64, timed_count: 4, ns: 2_000, bytes: 1_280 });
        assert_eq!(counts.ns_of(Stage::Authentication), 32_000.0);
        assert_eq!((counts.ns_of(Stage::Kdf), counts.calls()), (0.0, (64, 4)));
        assert_eq!(profiling.interrupted().unwrap(), 6);
        let text = serde_json::to_string(&counts).unwrap();
        assert_eq!(text, r#"{"sign":[64,4,2000,1280]}"#);
        assert_eq!(serde_json::from_str::<ProfileCounts>(&text).unwrap(), counts);
    }

    #[test]
    fn trampolines_name_their_stages() {
        let (_dir, profiling) = profiling();
        profiling.area.write(layout::TRAMPOLINE_CLASSES_AT, &[1, 22, 0, 200]).unwrap();
        let stages = [Some(Stage::Authentication), Some(Stage::Randomness), None, None];
        assert_eq!(profiling.trampolines().unwrap()[..4], stages);
    }
}
