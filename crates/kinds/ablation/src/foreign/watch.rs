//! Watches a server that others load: a connection of our own every now and then, whose times and failures must stay
//! in a band.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use tlsdyno_base::exchange::exchange;
use tlsdyno_base::interrupt;
use tlsdyno_base::units::format_duration;
use tlsdyno_tls::Config;

const PAUSE: Duration = Duration::from_millis(200);
/// Number of probes before doubling, which determine the usual latency.
const PROBES_BEFORE: usize = 11;
/// Number of probes whose median is compared with that before doubling.
const WINDOW: usize = 11;
/// Additional latency that is always tolerated: a busy machine causes it now and then.
const SLACK: Duration = Duration::from_millis(10);
/// Number of the last [`WINDOW`] probes that may fail beyond those before doubling.
const FAILURES_MORE: usize = 2;

/// Allowed change of the latency of probes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Band {
    /// Allowed increase of the median time of a probe, as a part of it.
    pub(super) latency_within: f64,
}

/// The last probes, the newest at the end; `None`: failed.
type Probes = Vec<Option<Duration>>;

/// A thread that probes, and the usual latency.
pub(super) struct Watch {
    band: Band,
    before: Probes,
    probes: Arc<Mutex<Probes>>,
    ended: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Watch {
    /// Measures the usual latency, then keeps watching. Fails where every probe fails, or the user stops it.
    pub(super) fn start(
        address: SocketAddr,
        client: Arc<Config>,
        request: Vec<u8>,
        band: Band,
        stop: &AtomicBool,
    ) -> Result<Watch> {
        let probe = move || {
            let began = Instant::now();
            exchange(address, Some(&client), None, &request).ok().map(|_| began.elapsed())
        };
        let mut before = Probes::new();
        while before.len() < PROBES_BEFORE {
            interrupt::check(stop)?;
            before.push(probe());
            thread::sleep(PAUSE / 4);
        }
        ensure!(
            median(&before).is_some(),
            "most of {PROBES_BEFORE} requests of our own failed before anything was doubled"
        );
        let (probes, ended) = (Arc::new(Mutex::new(Probes::new())), Arc::new(AtomicBool::new(false)));
        let (into, until) = (probes.clone(), ended.clone());
        let go_on = move || {
            while !until.load(Ordering::Relaxed) {
                let result = probe();
                let mut probes = into.lock().unwrap_or_else(PoisonError::into_inner);
                probes.push(result);
                let surplus = probes.len().saturating_sub(WINDOW);
                probes.drain(..surplus);
                drop(probes);
                thread::sleep(PAUSE);
            }
        };
        let thread = thread::Builder::new().name("watch".to_owned()).spawn(go_on).context("thread of the watch")?;
        Ok(Watch { band, before, probes, ended, thread: Some(thread) })
    }

    /// Reason why doubling must end; `None`: the latency is as before.
    pub(super) fn left_its_band(&self) -> Option<String> {
        let probes = self.probes.lock().unwrap_or_else(PoisonError::into_inner);
        left(&self.before, &probes, self.band)
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.ended.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn left(before: &Probes, now: &Probes, band: Band) -> Option<String> {
    let failures = |probes: &Probes| probes.iter().filter(|probe| probe.is_none()).count();
    if failures(now) > failures(before) + FAILURES_MORE {
        return Some(format!(
            "{} of the last {} requests of our own failed, of {} before {}",
            failures(now),
            now.len(),
            before.len(),
            failures(before)
        ));
    }
    let (usual, median) = (median(before)?, median(now).filter(|_| now.len() == WINDOW)?);
    let limit = usual.mul_f64(1.0 + band.latency_within) + SLACK;
    let text = |time: Duration| format_duration(time.as_nanos() as f64);
    (median > limit).then(|| {
        format!("a request of our own takes {} instead of {} (limit {})", text(median), text(usual), text(limit))
    })
}

/// Failed probes count as infinite; `None`: most failed.
fn median(probes: &Probes) -> Option<Duration> {
    let mut times: Vec<Duration> = probes.iter().map(|probe| probe.unwrap_or(Duration::MAX)).collect();
    times.sort_unstable();
    times.get(times.len() / 2).copied().filter(|time| *time < Duration::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn probes(ms: &[u64]) -> Probes {
        ms.iter().map(|ms| (*ms > 0).then(|| Duration::from_millis(*ms))).collect()
    }

    #[test]
    fn slow_and_failing_servers_leave_the_band() {
        let band = Band { latency_within: 1.0 };
        let before = probes(&[5; PROBES_BEFORE]);
        assert_eq!(left(&before, &probes(&[19; WINDOW]), band), None, "twice, and the slack");
        assert!(left(&before, &probes(&[21; WINDOW]), band).unwrap().contains("21.0 ms instead of 5.00 ms"));
        assert_eq!(left(&before, &probes(&[21; WINDOW - 1]), band), None, "too few to say");
        assert_eq!(left(&before, &probes(&[5, 0, 0, 5]), band), None);
        assert!(left(&before, &probes(&[5, 0, 0, 0]), band).unwrap().starts_with("3 of the last 4"));
    }
}
