//! A load run while it lasts: one line that renews itself on a terminal, plain lines now and then elsewhere. On standard error, because the
//! result goes to standard output.

use std::io::IsTerminal;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use tlsdyno_engine::load::Progress;

use crate::load::report::{duration, grouped};

/// How often the line renews itself on a terminal.
const RENEWED: Duration = Duration::from_millis(500);

/// How often a plain line is written elsewhere: a log should not fill with them.
const LOGGED: Duration = Duration::from_secs(10);

/// Shows `progress` until `done`.
pub fn show(progress: &Progress, done: &AtomicBool) {
    let terminal = std::io::stderr().is_terminal();
    let every = if terminal { RENEWED } else { LOGGED };
    let began = Instant::now();
    let mut shown = began;
    while !done.load(Ordering::Relaxed) {
        std::thread::sleep(Duration::from_millis(20));
        if shown.elapsed() < every {
            continue;
        }
        shown = Instant::now();
        let line = line(progress, began.elapsed());
        if terminal { eprint!("\r\x1b[K{line}") } else { eprintln!("{line}") }
    }
    if terminal {
        eprint!("\r\x1b[K");
    }
}

/// Throughput, reuse, latency and errors: of the last slice where there is one, else since the start.
fn line(progress: &Progress, elapsed: Duration) -> String {
    let get = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
    let (hits, slice_ns) = (get(&progress.hits), get(&progress.slice_ns));
    let rate = match slice_ns {
        0 => hits as f64 / elapsed.as_secs_f64(),
        slice_ns => get(&progress.slice_hits) as f64 * 1e9 / slice_ns as f64,
    };
    let mut line = format!("{:6.1} s   {} hits   {} /s", elapsed.as_secs_f64(), grouped(hits), grouped(rate as u64));
    let (full, resumed) = (get(&progress.full), get(&progress.resumed));
    if full + resumed > 0 {
        line += &format!(
            "   {:.1} % of {} handshakes resumed",
            100.0 * resumed as f64 / (full + resumed) as f64,
            grouped(full + resumed)
        );
    }
    if slice_ns > 0 {
        let (p50, p99) = (get(&progress.latency_ns_p50), get(&progress.latency_ns_p99));
        line += &format!("   p50 {}   p99 {}", duration(p50 as f64), duration(p99 as f64));
    }
    line + &format!("   {} errors", grouped(get(&progress.errors)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_tells_what_there_is() {
        let progress = Progress::default();
        progress.hits.store(2000, Ordering::Relaxed);
        assert_eq!(line(&progress, Duration::from_secs(2)), "   2.0 s   2,000 hits   1,000 /s   0 errors");
        for (counter, value) in [
            (&progress.full, 25),
            (&progress.resumed, 75),
            (&progress.slice_hits, 300),
            (&progress.slice_ns, 200_000_000),
            (&progress.latency_ns_p50, 1_500_000),
            (&progress.latency_ns_p99, 2_000_000_000),
            (&progress.errors, 3),
        ] {
            counter.store(value, Ordering::Relaxed);
        }
        assert_eq!(
            line(&progress, Duration::from_secs(2)),
            "   2.0 s   2,000 hits   1,500 /s   75.0 % of 100 handshakes resumed   p50 1.50 ms   p99 2.00 s   3 errors"
        );
    }
}
