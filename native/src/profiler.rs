//! The OpenSSL provider that times the calls into the default provider: unpacked for one run, its mode and its counts.
//!
//! The library is compiled from `native/profiler` by the build script and embedded here. It holds nothing that could
//! change a result, so that a server with it is as secure as one without. Like the doubler it goes on as the plain
//! default provider when its owner ends, or is not there.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use anyhow::Result;
use serde::{Deserialize, Serialize};
use tlsdyno_tls::Stage;

use crate::layout::{Layout, Name, profiler as layout};
use crate::unpacked::{Library, Unpacked};

static LIBRARY: Library = Library {
    name: "profiler",
    image: include_bytes!(concat!(env!("OUT_DIR"), "/tlsdyno-profiler.so")),
    layout: &layout::AREA,
};

/// What calls are timed with; the numbers are those of `native/profiler_record.h`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Clock {
    /// CPU time of the calling thread: exact whatever else runs, and dear to read.
    Thread = 0,
    /// The processor's own counter, which runs at one rate: what interrupts a call is in its time.
    Counter = 1,
}

impl Clock {
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
    pub fn prepare(dir: &Path, clock: Clock) -> Result<Profiling> {
        let mut unpacked = LIBRARY.unpack(dir, 0)?;
        unpacked.area.write_u32(layout::CLOCK_AT, clock as u32)?;
        let what = "OpenSSL's default provider, calls into it timed while tlsdyno lives";
        unpacked.name_in_openssl_cnf("openssl-profiler.cnf", "tlsdyno-profiler", what)?;
        Ok(Profiling { unpacked })
    }

    /// Whether calls are timed from now on, those of connections that exist too. Every process of the servers sees it
    /// at once.
    pub fn set_timed(&self, timed: bool) -> Result<()> {
        let mode = if timed { layout::MODE_TIMED } else { 0 };
        self.area.write_u32(layout::MODE_AT, mode)
    }

    /// What the servers have counted so far, over all their processes and threads.
    pub fn counts(&self) -> Result<ProfileCounts> {
        let totals = self.area.totals()?;
        let (ticks_per_s, empty_ticks) = (self.ticks_per_s()?.max(1), self.area.read_u64(layout::EMPTY_TICKS_AT)?);
        let class = |((_, name), numbers): (&Name, &[u64])| {
            let [calls, timed_count, ticks, bytes] = numbers.try_into().expect("as many as a class has");
            // What reading the clock took is no part of the calls.
            let ticks = u128::from(u64::saturating_sub(ticks, timed_count * empty_ticks));
            let ns = (ticks * 1_000_000_000 / u128::from(ticks_per_s)) as u64;
            (calls > 0).then(|| ((*name).to_owned(), ClassCount { calls, timed_count, ns, bytes }))
        };
        let of_classes = totals.chunks_exact(layout::CLASS_NUMBERS);
        Ok(ProfileCounts(layout::CLASSES.iter().zip(of_classes).filter_map(class).collect()))
    }

    /// Gives the slots away, and forgets what was counted in them: the threads that had them call nothing any more,
    /// those of other servers will.
    pub fn forget_threads(&self) -> Result<()> {
        let Layout { size, slots, slots_at, .. } = layout::AREA;
        self.area.write(slots_at, &vec![0; size - slots_at])?;
        self.area.write(layout::SLOT_CLAIMS_AT, &vec![0; 4 * slots])?;
        self.area.write_u32(layout::SLOTS_CLAIMED_AT, 0)
    }

    /// Calls that were interrupted, and are in no time.
    pub fn interrupted(&self) -> Result<u64> {
        Ok(self.area.totals()?[layout::CLASSES_MAX * layout::CLASS_NUMBERS])
    }

    /// Whether the kernel tells which calls were interrupted. `None`: no server has loaded the library yet.
    pub fn sees_interruptions(&self) -> Result<Option<bool>> {
        let is_loaded = self.ticks_per_s()? != 0;
        let sees = self.area.read_u32(layout::SEES_INTERRUPTIONS_AT)? != 0;
        Ok(is_loaded.then_some(sees))
    }

    /// What one reading of the clock takes, nanoseconds; 0: no server has loaded the library yet.
    pub fn clock_ns(&self) -> Result<f64> {
        Ok(self.area.read_u64(layout::EMPTY_TICKS_AT)? as f64 * 1e9 / self.ticks_per_s()?.max(1) as f64)
    }

    /// For each trampoline the name of the stage of the functions behind it.
    pub fn trampolines(&self) -> Result<Vec<Option<&'static str>>> {
        let mut bytes = vec![0; layout::TRAMPOLINES];
        self.area.read(layout::TRAMPOLINE_CLASSES_AT, &mut bytes)?;
        let stage = |byte: u8| Some(layout::CLASSES.get(usize::from(byte).checked_sub(1)?)?.0?.name());
        Ok(bytes.into_iter().map(stage).collect())
    }

    fn ticks_per_s(&self) -> Result<u64> {
        self.area.read_u64(layout::TICKS_PER_S_AT)
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ClassCount {
    pub calls: u64,
    /// Calls of them that were timed.
    pub timed_count: u64,
    /// Nanoseconds of those, without reading the clock.
    pub ns: u64,
    /// Bytes that all of them worked on, where the function has a length.
    pub bytes: u64,
}

impl ClassCount {
    /// What `of` makes of each number and the other's.
    fn each_with(self, other: ClassCount, combine: fn(u64, u64) -> u64) -> ClassCount {
        ClassCount {
            calls: combine(self.calls, other.calls),
            timed_count: combine(self.timed_count, other.timed_count),
            ns: combine(self.ns, other.ns),
            bytes: combine(self.bytes, other.bytes),
        }
    }

    /// Nanoseconds of all calls, where some stand for the others.
    pub fn all_ns(&self) -> f64 {
        self.ns as f64 * self.calls as f64 / self.timed_count.max(1) as f64
    }
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct ProfileCounts(BTreeMap<String, ClassCount>);

impl ProfileCounts {
    pub fn iter(&self) -> impl Iterator<Item = (Stage, &'static str, ClassCount)> {
        layout::CLASSES.iter().filter_map(|&(stage, name)| Some((stage?, name, *self.0.get(name)?)))
    }

    #[must_use]
    pub fn since(&self, earlier: &ProfileCounts) -> ProfileCounts {
        let class = |(name, count): (&String, &ClassCount)| {
            let before = earlier.0.get(name).copied().unwrap_or_default();
            let class = count.each_with(before, u64::saturating_sub);
            (class.calls > 0).then(|| (name.clone(), class))
        };
        ProfileCounts(self.0.iter().filter_map(class).collect())
    }

    pub fn add(&mut self, more: &ProfileCounts) {
        for (name, more) in &more.0 {
            let class = self.0.entry(name.clone()).or_default();
            *class = class.each_with(*more, |one, other| one + other);
        }
    }

    /// Nanoseconds of a stage.
    pub fn ns_of(&self, stage: Stage) -> f64 {
        self.iter().filter(|(counted, ..)| *counted == stage).map(|(.., count)| count.all_ns()).sum()
    }

    /// Calls of all classes, and how many of them were timed.
    pub fn calls(&self) -> (u64, u64) {
        self.iter().fold((0, 0), |(calls, timed), (.., count)| (calls + count.calls, timed + count.timed_count))
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
        assert_eq!(fs::read(profiling.library_path()).unwrap(), LIBRARY.image);
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
        let put = |at: usize, value: u64| profiling.area.write_u64(at, value).unwrap();
        put(layout::TICKS_PER_S_AT, 2_000_000_000);
        put(layout::EMPTY_TICKS_AT, 40);
        profiling.area.write_u32(layout::SLOTS_CLAIMED_AT, 2).unwrap();
        let before = profiling.counts().unwrap();
        for slot in 0..2 {
            let at = layout::AREA.slots_at + slot * layout::AREA.slot_numbers * 8;
            put(at + layout::CLASSES_MAX * layout::CLASS_NUMBERS * 8, 3);
            for (number, value) in [32, 2, 2_080, 640].into_iter().enumerate() {
                put(at + number * 8, value);
            }
        }
        let counts = profiling.counts().unwrap().since(&before);
        let (stage, name, sign) = counts.iter().next().unwrap();
        assert_eq!((stage, name), (Stage::Authentication, "sign"));
        // 4160 ticks of 0.5 ns, less 4 readings of 40 ticks: 2000 ns for 4 of 64 calls.
        assert_eq!(sign, ClassCount { calls: 64, timed_count: 4, ns: 2_000, bytes: 1_280 });
        assert_eq!(counts.ns_of(Stage::Authentication), 32_000.0);
        assert_eq!((counts.ns_of(Stage::Kdf), counts.calls()), (0.0, (64, 4)));
        assert_eq!(profiling.interrupted().unwrap(), 6);
        let text = serde_json::to_string(&counts).unwrap();
        assert_eq!(text, r#"{"sign":{"calls":64,"timed_count":4,"ns":2000,"bytes":1280}}"#);
        assert_eq!(serde_json::from_str::<ProfileCounts>(&text).unwrap(), counts);
    }

    #[test]
    fn trampolines_name_their_stages() {
        let (_dir, profiling) = profiling();
        profiling.area.write(layout::TRAMPOLINE_CLASSES_AT, &[1, 22, 0, 200]).unwrap();
        let stages = [Some("authentication"), Some("randomness"), None, None];
        assert_eq!(profiling.trampolines().unwrap()[..4], stages);
    }
}
