//! A model of processors with other clocks and caches: what a hit costs there, from what it executes and what misses
//! simulated caches. Instructions, near misses (the first level's) and branches predicted wrongly take cycles, so that
//! their time goes with the clock; far misses (the last level's) take the memory's time, whatever the clock is. What
//! the cycles are is fitted on this machine by stages whose calls are timed too.

use anyhow::Context;
use serde::{Deserialize, Serialize};
use tlsdyno_base::bootstrap::Estimate;
use tlsdyno_base::distribution::{CONFIDENCE, student_t_two_sided};
use tlsdyno_base::least_squares;

/// Instructions and events of some code, per hit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Work {
    pub instructions_count: f64,
    /// Accesses to instructions and data that miss the caches of the first level.
    pub near_misses_count: f64,
    /// Near misses that also miss the last level.
    pub far_misses_count: f64,
    /// Branches that are predicted wrongly.
    pub mispredicted_count: f64,
}

impl Work {
    pub fn plus(self, more: Work) -> Work {
        Work {
            instructions_count: self.instructions_count + more.instructions_count,
            near_misses_count: self.near_misses_count + more.near_misses_count,
            far_misses_count: self.far_misses_count + more.far_misses_count,
            mispredicted_count: self.mispredicted_count + more.mispredicted_count,
        }
    }

    fn cyclic(self) -> [f64; TERMS] {
        [self.instructions_count, self.near_misses_count, self.mispredicted_count]
    }
}

/// Number of terms of the model: instructions, near misses, mispredictions.
const TERMS: usize = 3;

/// Caches as valgrind simulates them, and the latency of memory.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Processor {
    pub name: &'static str,
    /// Cache options of callgrind; empty: those of this machine, as valgrind finds them.
    pub options: &'static [&'static str],
    pub speed: Speed,
    /// Time of a far miss, nanoseconds: not measured, typical of such memory.
    pub memory_ns: f64,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Speed {
    Times(f64),
    Mhz(f64),
}

/// Options of callgrind for all processors.
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

/// Work of a hit with the caches of one processor.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CountedCaches {
    pub processor: String,
    /// Of a hit with TLS.
    pub tls: Work,
    /// Of a hit without TLS.
    pub plain: Work,
    /// Clock rate of this machine, MHz.
    pub this_mhz: f64,
}

/// A stage that was both simulated and timed on this machine.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct StageTime {
    pub name: String,
    pub work: Work,
    /// Time in its calls per hit, nanoseconds.
    pub timed_ns: f64,
    /// Prediction of the model fitted on all other stages.
    pub predicted_ns: Option<f64>,
}

/// Coefficients of the model: nanoseconds on this machine.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Fitted {
    pub instruction_ns: f64,
    pub near_miss_ns: f64,
    pub mispredicted_ns: f64,
}

impl Fitted {
    /// Least squares of relative errors, with no coefficient below 0. `None`: too few stages.
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

    /// Time on a processor with `speed` times this machine's clock, nanoseconds.
    pub fn ns(self, work: Work, speed: f64, memory_ns: f64) -> f64 {
        let each = [self.instruction_ns, self.near_miss_ns, self.mispredicted_ns];
        dot(&each, &work.cyclic()) / speed + work.far_misses_count * memory_ns
    }
}

fn dot(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct OnProcessor {
    pub processor: String,
    /// Of a hit with TLS, on this processor.
    pub tls: Work,
    /// Of a hit without TLS.
    pub plain: Work,
    pub tls_user_ns: f64,
    pub plain_user_ns: f64,
    /// Cost of a hit with TLS by that of one without, in user space and the kernel.
    pub tls_ratio: Estimate,
    /// `tls_ratio` of user space alone.
    pub user_ratio: Estimate,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct CacheModel {
    pub fitted: Fitted,
    /// Each one predicted by a fit on the others.
    pub stages: Vec<StageTime>,
    pub processors: Vec<OnProcessor>,
    /// Kernel time of a hit, with TLS and without, measured on this machine, nanoseconds.
    pub kernel_ns: [f64; 2],
    /// `tls_ratio` of a processor four times as fast, by that of this machine.
    pub trend_ratio: Estimate,
}

impl CacheModel {
    /// From stages of this machine and the work of hits. `None`: too little was counted or timed.
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

    /// Largest error of a prediction, per cent of the timed stage, without stages below a microsecond.
    pub fn worst_percent(&self) -> Option<f64> {
        let told = self.stages.iter().filter(|stage| stage.timed_ns >= LEAST_NS);
        told.filter_map(|stage| Some((stage.predicted_ns? / stage.timed_ns - 1.0).abs() * 100.0)).reduce(f64::max)
    }
}

/// Clock rate of this machine's first processor, MHz, if the kernel tells it.
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

    /// Name of the processor whose caches its work was counted with.
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
