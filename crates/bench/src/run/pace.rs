//! The pace of the server's CPUs while a block runs. On a machine that is shared, work takes up to twice the CPU time
//! while somebody else uses the other half of a core, and no counter of the guest tells. A thread on each of the
//! server's CPUs wakes up now and then and times a fixed piece of work; the statistics take from a block's cost what
//! its pace explains (docs/METHODOLOGY.md, "The machine's pace").

use std::hint::black_box;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{JoinHandle, Thread};
use std::time::{Duration, Instant};

use super::cpus;
use super::lines::{FIRST_LEVEL_BYTES, Lines};

/// Time between two samples: short against a block, and long enough that sampling takes a few per cent of the CPU at
/// most.
const BETWEEN: Duration = Duration::from_millis(2);
/// Wanted time of the piece of arithmetic.
const PIECE: Duration = Duration::from_micros(5);
/// Pieces of a sample. The shortest counts: an interrupt in the midst of one is not the pace.
const PIECES: u32 = 3;
/// Memory that the far loads of a sample are spread over: more than a first-level cache holds, less than a second-level
/// one.
const FAR_BYTES: usize = 512 << 10;
/// Far loads of a sample, always from the same lines: these stay in the second-level cache unless somebody drives them
/// out.
const FAR_LOADS: u32 = 256;
/// A unit of work is so many steps of arithmetic, one far load, and so many near ones (of what was read just before the
/// arithmetic): in these parts they go with the cost of TLS connections (docs/METHODOLOGY.md).
const STEPS: u64 = 128;
const NEAR_LOADS: u64 = 8;
const PICOSECONDS: u64 = 1000;
/// Units of work per so many picoseconds are summed up, in integers.
const SPEED_PS: u64 = 1_000_000_000_000;

/// Threads that sample the pace until this is dropped.
#[derive(Debug)]
pub struct Pace {
    probes: Vec<Probe>,
    stop: Arc<AtomicBool>,
}

#[derive(Debug)]
struct Probe {
    cpu: usize,
    sums: Arc<Sums>,
    thread: Option<JoinHandle<()>>,
}

/// Since the start of the thread. Speeds are added up, not times: a server does more of its work while it is fast.
#[derive(Debug, Default)]
struct Sums {
    /// Units of work per [`SPEED_PS`].
    speeds: AtomicU64,
    samples: AtomicU64,
}

/// What was sampled up to some moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reading(Vec<(u64, u64)>);

impl Pace {
    /// Starts sampling on these CPUs. One that cannot be had is left out: what is measured is then told as it is.
    pub fn start(cpus: &[usize]) -> Pace {
        let stop = Arc::new(AtomicBool::new(false));
        let probes = cpus.iter().map(|cpu| Probe::start(*cpu, &stop)).collect();
        Pace { probes, stop }
    }

    /// What was sampled so far on the CPUs of a server.
    pub fn read(&self, cpus: &[usize]) -> Reading {
        let of =
            |probe: &Probe| (probe.sums.speeds.load(Ordering::Relaxed), probe.sums.samples.load(Ordering::Relaxed));
        Reading(self.probes.iter().filter(|probe| cpus.contains(&probe.cpu)).map(of).collect())
    }
}

impl Reading {
    /// Time of a unit of the fixed work at the mean speed between an earlier reading of the same CPUs and this one,
    /// picoseconds; 0 where nothing was sampled.
    pub fn since(&self, earlier: &Reading) -> u64 {
        let (speeds, samples) = self.0.iter().zip(&earlier.0).fold((0, 0), |(sum, samples), (now, then)| {
            (sum + now.0.saturating_sub(then.0), samples + now.1.saturating_sub(then.1))
        });
        (samples * SPEED_PS).checked_div(speeds).unwrap_or(0)
    }
}

impl Drop for Pace {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        for probe in &mut self.probes {
            if let Some(thread) = probe.thread.take() {
                Thread::unpark(thread.thread());
                let _ = thread.join();
            }
        }
    }
}

impl Probe {
    fn start(cpu: usize, stop: &Arc<AtomicBool>) -> Probe {
        let sums = Arc::new(Sums::default());
        let (mine, stop) = (Arc::clone(&sums), Arc::clone(stop));
        let thread = std::thread::Builder::new().name(format!("pace of CPU {cpu}")).spawn(move || {
            if cpus::stay_on(cpu).is_ok() {
                sample(&mine, &stop);
            }
        });
        Probe { cpu, sums, thread: thread.ok() }
    }
}

fn sample(sums: &Sums, stop: &AtomicBool) {
    let (far, near) = (Lines::of_bytes(FAR_BYTES), Lines::of_bytes(FIRST_LEVEL_BYTES));
    let steps = steps_of_piece();
    while !stop.load(Ordering::Relaxed) {
        std::thread::park_timeout(BETWEEN);
        near.time_of(near.count());
        let arithmetic = (0..PIECES).map(|_| time_of(steps)).min().unwrap_or_default();
        let cooled = near.time_of(near.count());
        let unit_ps = per_ps(arithmetic, steps, STEPS)
            + per_ps(cooled, near.count(), NEAR_LOADS)
            + per_ps(far.time_of(FAR_LOADS), FAR_LOADS, 1);
        sums.speeds.fetch_add(SPEED_PS / unit_ps.max(1), Ordering::Relaxed);
        sums.samples.fetch_add(1, Ordering::Relaxed);
    }
}

/// What `wanted` of them take where `count` took that time, picoseconds.
fn per_ps(time: Duration, count: u32, wanted: u64) -> u64 {
    time.as_nanos() as u64 * PICOSECONDS * wanted / u64::from(count)
}

/// As many steps as take about [`PIECE`] here: builds without optimisation are slow.
fn steps_of_piece() -> u32 {
    let mut steps = 64;
    while time_of(steps) < PIECE {
        steps *= 2;
    }
    steps
}

/// Additions and exclusive ors that hardly wait for each other fill every slot that the core has for instructions, so
/// that they feel whatever runs on its other half; each value depends on two, so that no compiler foresees the end.
fn time_of(steps: u32) -> Duration {
    let began = Instant::now();
    let mut values: [u64; 6] = black_box([1, 2, 3, 4, 5, 6]);
    for _ in 0..steps {
        let [a, b, c, d, e, f] = values;
        values = [a.wrapping_add(b), b ^ c, c.wrapping_sub(d), d.wrapping_add(e), e ^ f, f.wrapping_add(a ^ 1)];
    }
    black_box(values);
    began.elapsed()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reading_is_the_mean_of_its_own_cpus_and_time() {
        // 3 samples of 20,000 units of work in a second, 2 of 40,000: 28,000 on average.
        let earlier = Reading(vec![(1_000, 10), (5_000, 10)]);
        let later = Reading(vec![(61_000, 13), (85_000, 12)]);
        assert_eq!(later.since(&earlier), SPEED_PS / 28_000);
        assert_eq!(later.since(&later), 0);
    }

    #[test]
    fn probes_sample_where_they_may_run() {
        let cpu = super::super::cpus::allowed()[0];
        let pace = Pace::start(&[cpu]);
        let none = Reading(vec![(0, 0)]);
        let began = Instant::now();
        while pace.read(&[cpu]).since(&none) == 0 {
            assert!(began.elapsed() < Duration::from_secs(20), "nothing was sampled");
            std::thread::yield_now();
        }
        assert_eq!(pace.read(&[]), Reading::default());
    }
}
