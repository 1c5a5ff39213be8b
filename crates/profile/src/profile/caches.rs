//! A model of processors with other clocks and caches: what a hit costs there, from what it executes and what misses
//! simulated caches. Instructions, near misses (the first level's) and branches predicted wrongly take cycles, so that
//! their time goes with the clock; far misses (the last level's) take the memory's time, whatever the clock is. What
//! the cycles are is fitted on this machine by stages whose calls are timed too.

use anyhow::Context;
use serde::{Deserialize, Serialize};
use tlsdyno_base::bootstrap::Estimate;
use tlsdyno_base::distribution::{CONFIDENCE, student_t_two_sided};
use tlsdyno_base::least_squares;

/// What some code executes, per hit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Work {
    /// Instructions in user space.
    pub instructions_count: f64,
    /// Instructions and data that miss the caches of the first level.
    pub near_misses_count: f64,
    /// Those of them that miss the last level.
    pub far_misses_count: f64,
    /// Branches that are predicted wrongly.
    pub mispredicted_count: f64,
}

impl Work {
    /// The work of two pieces of code together.
    pub fn plus(self, more: Work) -> Work {
        Work {
            instructions_count: self.instructions_count + more.instructions_count,
            near_misses_count: self.near_misses_count + more.near_misses_count,
            far_misses_count: self.far_misses_count + more.far_misses_count,
            mispredicted_count: self.mispredicted_count + more.mispredicted_count,
        }
    }

    /// What takes cycles.
    fn cyclic(self) -> [f64; TERMS] {
        [self.instructions_count, self.near_misses_count, self.mispredicted_count]
    }
}

/// What takes cycles: instructions, near misses, mispredictions.
const TERMS: usize = 3;

/// A processor: its caches as valgrind takes them, and what memory takes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Processor {
    /// Its name in tables.
    pub name: &'static str,
    /// Options of callgrind; none: the caches of this machine, as valgrind finds them.
    pub options: &'static [&'static str],
    /// How many times this machine's clock it has.
    pub speed: Speed,
    /// What a far miss takes, nanoseconds: no measurement, but what such memory took.
    pub memory_ns: f64,
}

/// A clock.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Speed {
    /// So many times this machine's.
    Times(f64),
    /// So many MHz.
    Mhz(f64),
}

/// What all processors simulate.
pub const SIMULATED: [&str; 2] = ["--cache-sim=yes", "--branch-sim=yes"];

/// The processors of the table. The Pentium III of 500 MHz (Katmai) has 512 KiB of second-level cache, that of 933 MHz
/// (Coppermine) 256 KiB (Intel, Pentium III Processor Datasheets, 1999 and 2001). Coarfa et al. name no caches.
pub const PROCESSORS: [Processor; 4] = [
    Processor {
        name: "the paper's: Pentium III, 500 MHz",
        options: &["--I1=16384,4,32", "--D1=16384,4,32", "--LL=524288,4,32"],
        speed: Speed::Mhz(500.0),
        memory_ns: 150.0,
    },
    Processor {
        name: "the paper's: Pentium III, 933 MHz",
        options: &["--I1=16384,4,32", "--D1=16384,4,32", "--LL=262144,8,32"],
        speed: Speed::Mhz(933.0),
        memory_ns: 150.0,
    },
    Processor { name: THIS, options: &[], speed: Speed::Times(1.0), memory_ns: 100.0 },
    Processor { name: "four times as fast, the same memory", options: &[], speed: Speed::Times(4.0), memory_ns: 100.0 },
];

/// The processor that the model is fitted on.
pub const THIS: &str = "this machine";

/// What a hit executes with the caches of one processor.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CountedCaches {
    /// The processor's name.
    pub processor: String,
    /// With TLS.
    pub tls: Work,
    /// Without.
    pub plain: Work,
    /// Clock rate of this machine, MHz.
    pub this_mhz: f64,
}

/// A stage that was both simulated and timed on this machine.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct StageTime {
    /// Its name, with the kind of handshake.
    pub name: String,
    /// What it executes.
    pub work: Work,
    /// Time in its calls per hit, nanoseconds.
    pub timed_ns: f64,
    /// What the model says, fitted on all other stages.
    pub predicted_ns: Option<f64>,
}

/// Nanoseconds on this machine of each thing that takes cycles.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Fitted {
    /// Of an instruction.
    pub instruction_ns: f64,
    /// Of a near miss.
    pub near_miss_ns: f64,
    /// Of a branch predicted wrongly.
    pub mispredicted_ns: f64,
}

impl Fitted {
    /// By least squares of relative errors, none below nothing. `None`: too few stages.
    pub fn of(stages: &[&StageTime], memory_ns: f64) -> Option<Fitted> {
        let usable: Vec<&&StageTime> = stages.iter().filter(|stage| stage.timed_ns > 0.0).collect();
        // Every choice of terms; the best of those whose solution has nothing below 0 is the constrained one.
        let choices = (1_usize..1 << TERMS).filter(|choice| choice.count_ones() as usize <= usable.len());
        let solved = choices.filter_map(|choice| {
            let terms: Vec<usize> = (0..TERMS).filter(|term| choice & 1 << term != 0).collect();
            let row = |stage: &&&StageTime| {
                let ratios = terms.iter().map(|term| stage.work.cyclic()[*term] / stage.timed_ns).collect();
                (ratios, 1.0 - stage.work.far_misses_count * memory_ns / stage.timed_ns)
            };
            let rows: Vec<(Vec<f64>, f64)> = usable.iter().map(row).collect();
            let solution = least_squares::of_rows(&rows)?;
            if solution.iter().any(|value| *value < 0.0) {
                return None;
            }
            let mut all = [0.0; TERMS];
            terms.iter().zip(&solution).for_each(|(term, value)| all[*term] = *value);
            let error: f64 = rows.iter().map(|(row, wanted)| (dot(row, &solution) - wanted).powi(2)).sum();
            Some((all, error))
        });
        let (best, _): ([f64; TERMS], f64) = solved.min_by(|a, b| a.1.total_cmp(&b.1))?;
        let [instruction_ns, near_miss_ns, mispredicted_ns] = best;
        Some(Fitted { instruction_ns, near_miss_ns, mispredicted_ns })
    }

    /// What some work takes on a processor with so many times this machine's clock, nanoseconds.
    pub fn ns(self, work: Work, speed: f64, memory_ns: f64) -> f64 {
        let each = [self.instruction_ns, self.near_miss_ns, self.mispredicted_ns];
        dot(&each, &work.cyclic()) / speed + work.far_misses_count * memory_ns
    }
}

fn dot(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

/// Times on one processor, nanoseconds a hit.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct OnProcessor {
    /// Its name.
    pub processor: String,
    /// What a hit executes there with TLS.
    pub tls: Work,
    /// Without.
    pub plain: Work,
    /// In user space with TLS.
    pub tls_user_ns: f64,
    /// Without.
    pub plain_user_ns: f64,
    /// How many times a hit without TLS one with it costs, in user space and the kernel.
    pub tls_ratio: Estimate,
    /// The same in user space alone.
    pub user_ratio: Estimate,
}

/// What the model says.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct CacheModel {
    /// Fitted on all stages.
    pub fitted: Fitted,
    /// Each stage, predicted by the others.
    pub stages: Vec<StageTime>,
    /// The table.
    pub processors: Vec<OnProcessor>,
    /// Kernel time of a hit, with TLS and without, measured on this machine, nanoseconds.
    pub kernel_ns: [f64; 2],
    /// By how many times the factor of a CPU four times as fast is that of this machine.
    pub trend_ratio: Estimate,
}

impl CacheModel {
    /// From stages of this machine and what hits execute. `None`: too little was counted or timed.
    pub fn of(stages: Vec<StageTime>, counted: &[CountedCaches], kernel_ns: [f64; 2]) -> Option<CacheModel> {
        let this = PROCESSORS.iter().find(|processor| processor.name == THIS)?;
        let all: Vec<&StageTime> = stages.iter().collect();
        let fitted = Fitted::of(&all, this.memory_ns)?;
        // Without one stage each: they predict that stage, and tell how much the table depends on any of them.
        let without: Vec<Option<Fitted>> = (0..all.len())
            .map(|left_out| {
                let others: Vec<&StageTime> =
                    all.iter().enumerate().filter(|(index, _)| *index != left_out).map(|(_, stage)| *stage).collect();
                Fitted::of(&others, this.memory_ns)
            })
            .collect();
        let predicted = stages.iter().zip(&without).map(|(stage, fitted)| StageTime {
            predicted_ns: fitted.map(|fitted| fitted.ns(stage.work, 1.0, this.memory_ns)),
            ..stage.clone()
        });
        let predicted = predicted.collect();
        let fits: Vec<Fitted> = without.into_iter().flatten().collect();
        let on_this = counted.iter().find(|counted| counted.processor == THIS)?;
        let this_mhz = on_this.this_mhz;
        let factor = |fitted: Fitted, processor: &Processor, counted: &CountedCaches, kernel: [f64; 2]| {
            let speed = processor.times(this_mhz);
            let user = [counted.tls, counted.plain].map(|work| fitted.ns(work, speed, processor.memory_ns));
            // The kernel's code is taken to slow down as the server's own does in plain HTTP.
            let slower = user[1] / fitted.ns(on_this.plain, 1.0, this.memory_ns);
            (user[0] + kernel[0] * slower) / (user[1] + kernel[1] * slower)
        };
        let mut processors = Vec::new();
        let mut all_factors = Vec::new();
        for processor in &PROCESSORS {
            let counted = counted.iter().find(|counted| counted.processor == processor.counted_as())?;
            let speed = processor.times(this_mhz);
            let with = |kernel: [f64; 2]| {
                let of = |fitted: Fitted| factor(fitted, processor, counted, kernel);
                (of(fitted), fits.iter().map(|fitted| of(*fitted)).collect::<Vec<f64>>())
            };
            let (whole, user) = (with(kernel_ns), with([0.0; 2]));
            processors.push(OnProcessor {
                processor: processor.name.to_owned(),
                tls: counted.tls,
                plain: counted.plain,
                tls_user_ns: fitted.ns(counted.tls, speed, processor.memory_ns),
                plain_user_ns: fitted.ns(counted.plain, speed, processor.memory_ns),
                tls_ratio: jackknifed(whole.0, &whole.1),
                user_ratio: jackknifed(user.0, &user.1),
            });
            all_factors.push(whole);
        }
        let [.., (today, todays), (faster, fasters)] = &all_factors[..] else { return None };
        let ratios: Vec<f64> = fasters.iter().zip(todays).map(|(faster, today)| faster / today).collect();
        let trend_ratio = jackknifed(faster / today, &ratios);
        Some(CacheModel { fitted, stages: predicted, processors, kernel_ns, trend_ratio })
    }

    /// The largest error of a prediction, per cent of the timed stage; stages below a microsecond are not told.
    pub fn worst_percent(&self) -> Option<f64> {
        let told = self.stages.iter().filter(|stage| stage.timed_ns >= LEAST_NS);
        told.filter_map(|stage| Some((stage.predicted_ns? / stage.timed_ns - 1.0).abs() * 100.0)).reduce(f64::max)
    }
}

/// Clock rate of this machine's first processor, MHz, as the kernel tells it.
///
/// # Errors
/// It tells none.
pub fn this_mhz() -> anyhow::Result<f64> {
    let told = std::fs::read_to_string("/proc/cpuinfo").context("read /proc/cpuinfo")?;
    let line = told.lines().find_map(|line| line.strip_prefix("cpu MHz")?.split_once(':'));
    let (_, mhz) = line.context("/proc/cpuinfo tells no clock rate, without which other processors cannot be told")?;
    Ok(mhz.trim().parse()?)
}

/// Shorter stages are not fitted and not predicted: their time is that of entering and leaving calls.
pub const LEAST_NS: f64 = 1000.0;

impl Processor {
    fn times(&self, this_mhz: f64) -> f64 {
        match self.speed {
            Speed::Times(times) => times,
            Speed::Mhz(mhz) => mhz / this_mhz,
        }
    }

    /// The processor with whose caches it is counted.
    pub fn counted_as(&self) -> &'static str {
        if self.options.is_empty() { THIS } else { self.name }
    }
}

/// A value with the interval of 95 % that leaving out one stage at a time gives (the jackknife, Efron and Tibshirani
/// 1993, chapter 11).
fn jackknifed(value: f64, without: &[f64]) -> Estimate {
    let count = without.len() as f64;
    if count < 2.0 {
        return Estimate::without_interval(value);
    }
    let mean = without.iter().sum::<f64>() / count;
    let squares: f64 = without.iter().map(|other| (other - mean).powi(2)).sum();
    let half = student_t_two_sided(CONFIDENCE, count - 1.0) * (squares * (count - 1.0) / count).sqrt();
    Estimate { value, low: value - half, high: value + half }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn work(instructions_count: f64, near_misses_count: f64, mispredicted_count: f64) -> Work {
        Work { instructions_count, near_misses_count, mispredicted_count, far_misses_count: 0.0 }
    }

    fn stage(name: &str, work: Work, timed_ns: f64) -> StageTime {
        StageTime { name: name.to_owned(), work, timed_ns, predicted_ns: None }
    }

    /// Stages that obey the model exactly are predicted exactly, and the clock divides all but far misses.
    #[test]
    fn what_obeys_the_model_is_found() {
        let truth = Fitted { instruction_ns: 0.2, near_miss_ns: 4.0, mispredicted_ns: 7.0 };
        let works = [work(1e6, 100.0, 50.0), work(2e4, 300.0, 10.0), work(5e4, 50.0, 300.0), work(9e4, 700.0, 20.0)];
        let stages: Vec<StageTime> = works.iter().map(|work| stage("x", *work, truth.ns(*work, 1.0, 100.0))).collect();
        let tls = work(2e6, 4e3, 1e3);
        let plain = work(1e5, 1e3, 200.0);
        let of = |name: &str, far: f64| CountedCaches {
            processor: name.to_owned(),
            tls: Work { far_misses_count: far, ..tls },
            plain: Work { far_misses_count: far, ..plain },
            this_mhz: 2000.0,
        };
        let counted: Vec<CountedCaches> = PROCESSORS[..3].iter().map(|processor| of(processor.name, 10.0)).collect();
        let model = CacheModel::of(stages, &counted, [50e3, 20e3]).unwrap();
        // The ridge of the solver leaves a millionth.
        assert!((model.fitted.near_miss_ns - 4.0).abs() < 1e-6 && model.worst_percent().unwrap() < 1e-4, "{model:?}");
        let [slow, _, this, fast] = &model.processors[..] else { panic!() };
        let cycles = truth.ns(tls, 1.0, 0.0);
        assert!((this.tls_user_ns - cycles - 1000.0).abs() < 1.0);
        assert!((fast.tls_user_ns - cycles / 4.0 - 1000.0).abs() < 1.0);
        assert!((slow.tls_user_ns - cycles * 4.0 - 1500.0).abs() < 1.0);
        // Memory is a larger part of the faster one's plain hit: TLS costs it fewer times as much.
        let trend = model.trend_ratio;
        assert!(trend.value < 1.0 && trend.half_width() < 1e-4, "{trend:?}");
    }

    #[test]
    fn nothing_is_fitted_below_nothing_or_from_nothing() {
        let stages = [stage("a", work(1000.0, 100.0, 0.0), 100.0), stage("b", work(1000.0, 0.0, 0.0), 400.0)];
        let fitted = Fitted::of(&stages.iter().collect::<Vec<_>>(), 100.0).unwrap();
        assert!(fitted.near_miss_ns == 0.0 && fitted.instruction_ns > 0.0, "{fitted:?}");
        assert_eq!(Fitted::of(&[], 100.0), None);
    }

    /// Of two values t is that of one degree of freedom; golden: 12.706 · sqrt((1 + 1) · 1/2).
    #[test]
    fn the_jackknife_is_that_of_the_book() {
        let Estimate { value, low, high } = jackknifed(5.0, &[4.0, 6.0]);
        assert!(value == 5.0 && (high - 5.0 - 12.7062).abs() < 1e-4 && (5.0 - low - 12.7062).abs() < 1e-4);
        assert!(jackknifed(1.0, &[1.0]).high.is_infinite());
    }
}
