//! What HAProxy counts itself, read at its `stats socket`. Nothing is asked elsewhere.

use std::collections::VecDeque;
use std::io::{Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use serde::Serialize;
use tlsdyno_base::units::{format_of, format_percent, format_rate};

/// How long an answer may take, and how many bytes it may have.
const PATIENCE: Duration = Duration::from_secs(2);
const ANSWER_BYTES: u64 = 4 << 20;
/// Packets and counters are not read in the same moment, and packets come late: by so much they differ at most.
const LATE_NS: f64 = 3e8;
/// Numbers of times that differ by a larger part are not compared, nor are smaller differences of numbers told.
const PART: f64 = 0.05;

/// Where counters are told, as a flag names it.
pub fn socket(text: &str) -> Result<PathBuf, String> {
    let path = text.strip_prefix("unix:").filter(|path| !path.is_empty());
    path.map(PathBuf::from).ok_or_else(|| "unix:PATH, the `stats socket` of HAProxy's configuration".to_owned())
}

/// Full and resumed handshakes, and hits, since the server's start.
type Numbers = [u64; 3];

/// What was counted in a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
struct Tally {
    elapsed_ns: u64,
    full_handshakes: u64,
    resumed_handshakes: u64,
    hits_count: u64,
}

/// What the counters tell.
#[derive(Debug, Default, Serialize)]
pub struct Told {
    counters: Option<Tally>,
    /// Why they tell nothing, or something else than packets.
    counters_doubt: Option<String>,
}

impl Told {
    /// Handshakes and hits, and doubts.
    pub fn lines(&self) -> Vec<String> {
        self.counters.as_ref().map(Tally::line).into_iter().chain(self.counters_doubt.clone()).collect()
    }
}

/// The counters of a server, read again and again.
pub struct Counters {
    socket: PathBuf,
    window: Option<Duration>,
    read: VecDeque<(Instant, Numbers)>,
}

impl Counters {
    /// Reads them for the first time. `window`: what is older is forgotten.
    ///
    /// # Errors
    /// Nobody answers there, or something else.
    pub fn of(socket: PathBuf, window: Option<Duration>) -> Result<Counters> {
        let first = read(&socket)?;
        Ok(Counters { socket, window, read: [(Instant::now(), first)].into() })
    }

    /// What was counted since the first reading, or within the window, compared with so many complete handshakes that
    /// passed as packets in so many nanoseconds.
    pub fn told(&mut self, passed: Option<(u64, u64)>) -> Told {
        match read(&self.socket) {
            Ok(now) => {
                let counted = self.counted(now);
                let doubt = passed.and_then(|(passed, elapsed_ns)| counted.doubt(passed, elapsed_ns));
                Told { counters: Some(counted), counters_doubt: doubt }
            }
            Err(error) => Told { counters: None, counters_doubt: Some(format!("{error:#}")) },
        }
    }

    fn counted(&mut self, now: Numbers) -> Tally {
        let has_restarted = |(_, last): &(_, Numbers)| last.iter().zip(&now).any(|(last, now)| last > now);
        if self.read.back().is_some_and(has_restarted) {
            self.read.clear();
        }
        self.read.push_back((Instant::now(), now));
        while self.read.len() > 2 && self.window.is_some_and(|window| self.read[1].0.elapsed() > window) {
            self.read.pop_front();
        }
        let (began, first) = self.read[0];
        let [full_handshakes, resumed_handshakes, hits_count] = [0, 1, 2].map(|of| now[of] - first[of]);
        Tally { elapsed_ns: began.elapsed().as_nanos() as u64, full_handshakes, resumed_handshakes, hits_count }
    }
}

impl Tally {
    fn line(&self) -> String {
        let all = self.full_handshakes + self.resumed_handshakes;
        let told = |count: u64, noun| {
            let per_s = count as f64 * 1e9 / (self.elapsed_ns as f64).max(1.0);
            format!("{}, {}", format_of(count as f64, noun), format_rate(per_s))
        };
        let part = |count: u64| format_percent(100.0 * count as f64 / all as f64);
        let (full, resumed) = (part(self.full_handshakes), part(self.resumed_handshakes));
        let (hits, all) = (told(self.hits_count, "hit"), told(all, "handshake"));
        format!("by its counters: {hits}; {all}: full {full} · resumed {resumed}")
    }

    /// What is to be said where packets tell something else.
    fn doubt(&self, passed: u64, elapsed_ns: u64) -> Option<String> {
        let (own_ns, their_ns) = (self.elapsed_ns as f64, elapsed_ns as f64);
        let (own, passed) = ((self.full_handshakes + self.resumed_handshakes) as f64, passed as f64);
        let larger = own.max(passed);
        let most = larger * (LATE_NS / their_ns + PART) + 3.0 * larger.sqrt();
        ((own_ns - their_ns).abs() <= PART * their_ns + LATE_NS && (own - passed).abs() > most).then(|| {
            format!(
                "its counters have {} and packets {passed}, which the time of reading does not explain: they are of \
                 other listeners too, or of another server",
                format_of(own, "handshake")
            )
        })
    }
}

fn read(socket: &Path) -> Result<Numbers> {
    let ask = || {
        let mut stream = UnixStream::connect(socket)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.write_all(b"show stat\n")?;
        let mut text = Vec::new();
        stream.take(ANSWER_BYTES).read_to_end(&mut text)?;
        of_stat(&String::from_utf8_lossy(&text)).context("the answer has no ssl_sess; it takes HAProxy 2.3 or later")
    };
    ask().with_context(|| format!("{} does not tell counters", socket.display()))
}

/// Of front ends that have had handshakes, from HAProxy's `show stat`, whose first line names the columns.
fn of_stat(text: &str) -> Option<Numbers> {
    let mut lines = text.lines();
    let names: Vec<&str> = lines.next()?.strip_prefix("# ")?.split(',').collect();
    let place = |name: &str| names.iter().position(|other| *other == name);
    let (kind, columns) = (place("svname")?, [place("ssl_sess")?, place("ssl_reused_sess")?, place("req_tot")?]);
    let of_line = |line: &str| {
        let fields: Vec<&str> = line.split(',').collect();
        let numbers = columns.map(|at| fields.get(at).and_then(|field| field.parse().ok()).unwrap_or(0_u64));
        (fields.get(kind) == Some(&"FRONTEND") && numbers[0] > 0).then_some(numbers)
    };
    let add = |sum: Numbers, of: Numbers| [0, 1, 2].map(|at| sum[at].saturating_add(of[at]));
    Some(lines.filter_map(of_line).fold([0; 3], add))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const STAT: &str = "# pxname,svname,stot,req_tot,ssl_sess,ssl_reused_sess,\n\
                        tls,FRONTEND,105,202,53,50,\ntls,BACKEND,105,202,7,7,\nplain,FRONTEND,9,9,0,0,\n\n";

    fn tally(elapsed_ns: u64, full_handshakes: u64, resumed_handshakes: u64, hits_count: u64) -> Tally {
        Tally { elapsed_ns, full_handshakes, resumed_handshakes, hits_count }
    }

    #[test]
    fn columns_are_found_by_their_names() {
        assert_eq!(of_stat(STAT), Some([53, 50, 202]));
        assert_eq!(of_stat("# pxname,svname,stot\nplain,FRONTEND,1\n"), None);
        assert_eq!(of_stat("Unknown command\n"), None);
        assert_eq!(socket("unix:/run/a.sock"), Ok("/run/a.sock".into()));
        assert!(["", "unix:", "/run/a.sock"].iter().all(|none| socket(none).is_err()));
    }

    #[test]
    fn a_server_that_started_anew_begins_anew() {
        let read = [(Instant::now(), [100; 3])].into();
        let mut counters = Counters { socket: PathBuf::new(), window: None, read };
        let mut counted = |full| counters.counted([full, 100, 100]).full_handshakes;
        assert_eq!([110, 130, 5, 7].map(&mut counted), [10, 30, 0, 2]);
    }

    #[test]
    fn counters_are_told_and_doubted() {
        let counted = tally(10_000_000_000, 4_500, 5_500, 66_000);
        let line = "by its counters: 66,000 hits, 6,600 /s; 10,000 handshakes, 1,000 /s: full 45.0 % · resumed 55.0 %";
        assert_eq!(counted.line(), line);
        assert!(tally(1, 0, 0, 0).line().ends_with("0 handshakes, 0.00 /s: full – · resumed –"));
        assert_eq!(counted.doubt(9_500, 10_100_000_000), None);
        assert_eq!(counted.doubt(8_000, 20_000_000_000), None, "of another time nothing can be said");
        let doubt = counted.doubt(8_000, 10_000_000_000).unwrap();
        assert!(doubt.starts_with("its counters have 10,000 handshakes and packets 8000, which"), "{doubt}");
    }

    proptest! {
        #[test]
        fn whatever_is_answered_is_read(mut text in "([ -~\n]|FRONTEND,|[0-9]{1,30},){0,60}") {
            let _ = of_stat(&text);
            text.insert_str(0, "# svname,ssl_sess,ssl_reused_sess,req_tot\n");
            prop_assert!(of_stat(&text).is_some());
        }
    }
}
