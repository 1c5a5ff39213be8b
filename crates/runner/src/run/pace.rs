//! The pace of the server's CPUs while a block runs. On a machine that is shared, work takes up to twice the CPU time
//! while somebody else uses the other half of a core, and no counter of the guest tells. A thread on each of the
//! server's CPUs wakes up now and then and times a fixed piece of work; the statistics take from a block's cost what
//! its pace explains (docs/METHODOLOGY.md, "The machine's pace").

pub mod reference;

use std::hint::black_box;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{JoinHandle, Thread};
use std::time::{Duration, Instant};

use super::cpus;
use super::lines::{FIRST_LEVEL_BYTES, Lines};

/// Time between two samples: short against a block, and long enough for sampling to take a few per cent of the CPU at
/// most.
const BETWEEN: Duration = Duration::from_millis(2);
/// Wanted duration of the piece of arithmetic.
const PIECE: Duration = Duration::from_micros(5);
/// Pieces of a sample. The shortest counts: an interrupt within one is not the pace.
const PIECES: u32 = 3;
/// Size of the memory of a sample's far loads: larger than a first-level cache, smaller than a second-level one.
const FAR_BYTES: usize = 512 << 10;
/// Far loads of a sample, always from the same lines, which stay in the second-level cache unless others evict them.
const FAR_LOADS: u32 = 256;
/// Steps of arithmetic in a unit of work, beside one far load and as many near ones (of what was read just before the
/// arithmetic). In this mix their time follows the cost of TLS connections (docs/METHODOLOGY.md).
const STEPS: u64 = 128;
const NEAR_LOADS: u64 = 8;
const PICOSECONDS: u64 = 1000;
/// Speeds are integers: units of work per this many picoseconds.
const SPEED_PS: u64 = 1_000_000_000_000;

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

/// Totals since the start of the thread. Speeds are added up, not times: a server does more of its work while it is
/// fast.
#[derive(Debug, Default)]
struct Sums {
    /// Units of work per [`SPEED_PS`].
    speeds: AtomicU64,
    samples: AtomicU64,
}

/// For each CPU the sum of speeds and the number of samples up to a moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reading(Vec<(u64, u64)>);

impl Pace {
    /// Leaves out CPUs on which no thread can run: their results stay uncorrected.
    pub fn start(cpus: &[usize]) -> Pace {
        let stop = Arc::new(AtomicBool::new(false));
        let probes = cpus.iter().map(|cpu| Probe::start(*cpu, &stop)).collect();
        Pace { probes, stop }
    }

    /// `cpus`: of a server.
    pub fn read(&self, cpus: &[usize]) -> Reading {
        let of =
            |probe: &Probe| (probe.sums.speeds.load(Ordering::Relaxed), probe.sums.samples.load(Ordering::Relaxed));
        Reading(self.probes.iter().filter(|probe| cpus.contains(&probe.cpu)).map(of).collect())
    }
}

impl Reading {
    /// Time of a unit of work at the mean speed since an earlier reading of the same CPUs, picoseconds; 0 without
    /// samples.
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

/// Time of `wanted` steps where `count` took `time`, picoseconds.
fn per_ps(time: Duration, count: u32, wanted: u64) -> u64 {
    time.as_nanos() as u64 * PICOSECONDS * wanted / u64::from(count)
}

fn steps_of_piece() -> u32 {
    let mut steps = 64;
    while time_of(steps) < PIECE {
        steps *= 2;
    }
    steps
}

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
