//! One line: renewed on a terminal, written now and then elsewhere.

use std::io::{IsTerminal, Write};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use tlsdyno_base::units::{format_count, format_duration};
use tlsdyno_engine::load::{Snapshot, Watcher};

use super::{LOOKED, RENEWED};

/// How often a plain line is written elsewhere: a log should not fill with them.
const LOGGED: Duration = Duration::from_secs(10);

pub fn show(watcher: &mut Watcher, done: &AtomicBool, stop: &AtomicBool) {
    // What erases and renews means nothing to a terminal that calls itself dumb.
    let renews = std::io::stderr().is_terminal() && std::env::var_os("TERM").is_none_or(|term| term != "dumb");
    let every = if renews { RENEWED } else { LOGGED };
    let began = Instant::now();
    let (mut asked, mut is_asked) = (began, false);
    while !done.load(Ordering::Relaxed) && !stop.load(Ordering::Relaxed) {
        // Woken up at the end of the run.
        std::thread::park_timeout(if is_asked { LOOKED } else { every.saturating_sub(asked.elapsed()) });
        if asked.elapsed() >= every {
            (asked, is_asked) = (Instant::now(), true);
            watcher.ask();
        }
        if let Some(snapshot) = watcher.snapshot() {
            is_asked = false;
            let line = line(&snapshot, began.elapsed());
            if renews { renew(&line) } else { tell!("{line}") }
        }
    }
    if renews {
        renew("");
    }
}

fn renew(line: &str) {
    let _ = write!(std::io::stderr(), "\r\x1b[K{line}");
}

/// Throughput, reuse, latency and errors: of the last slice where there is one, else since the start.
fn line(snapshot: &Snapshot, elapsed: Duration) -> String {
    let rate = match snapshot.slice {
        None => snapshot.hits as f64 / elapsed.as_secs_f64(),
        Some(slice) => slice.hits as f64 * 1e9 / slice.elapsed_ns as f64,
    };
    let hits = format_count(snapshot.hits);
    let mut line = format!("{:6.1} s   {hits} hits   {} /s", elapsed.as_secs_f64(), format_count(rate as u64));
    if let Some(percent) = snapshot.handshakes.resumed_percent() {
        line += &format!("   {percent:.1} % of {} handshakes resumed", format_count(snapshot.handshakes.completed()));
    }
    // Of several loops there are none: percentiles cannot be added.
    if let Some(slice) = snapshot.slice.filter(|slice| slice.latency_ns_p99 > 0) {
        let (p50, p99) = (slice.latency_ns_p50, slice.latency_ns_p99);
        line += &format!("   p50 {}   p99 {}", format_duration(p50 as f64), format_duration(p99 as f64));
    }
    line + &format!("   {} errors", format_count(snapshot.errors.iter().sum()))
}

#[cfg(test)]
#[cfg(feature = "screen")]
mod tests {
    use tlsdyno_engine::load::{Handshakes, Slice};

    use super::*;
    use crate::load::screen::view::tests::nothing;

    #[test]
    fn the_line_tells_what_there_is() {
        let mut snapshot = Snapshot { hits: 2000, ..nothing() };
        assert_eq!(line(&snapshot, Duration::from_secs(2)), "   2.0 s   2,000 hits   1,000 /s   0 errors");
        snapshot.handshakes = Handshakes { full: 25, resumed_accepted: 75, ..Handshakes::default() };
        snapshot.slice = Some(Slice {
            hits: 300,
            elapsed_ns: 200_000_000,
            latency_ns_p50: 1_500_000,
            latency_ns_p99: 2_000_000_000,
            ..Slice::default()
        });
        snapshot.errors[0] = 3;
        assert_eq!(
            line(&snapshot, Duration::from_secs(2)),
            "   2.0 s   2,000 hits   1,500 /s   75.0 % of 100 handshakes resumed   p50 1.50 ms   p99 2.00 s   3 errors"
        );
    }
}
