//! What the screen shows of a run: the last snapshot, what happened since the one before, and throughput over the last
//! minute.

use std::collections::VecDeque;
use std::ops::Range;
use std::time::Duration;

use tlsdyno_base::terminal::pane;
use tlsdyno_base::units::format_count;
use tlsdyno_engine::load::{ErrorKind, Pacing, Phase, Plan, Recent, Resumption, Snapshot, Until};

use super::{RENEWED, heading};

/// How much of the past the curve of throughput shows.
const PAST: Duration = Duration::from_secs(60);

/// Columns of the curve, in samples, while nobody knows how long the run will last and it has not lasted longer.
const PAST_MIN: usize = 20;

/// The client is the bottleneck from this share of a core on: as in the warning after a run.
pub const BUSY: f64 = 0.95;

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Goal {
    Time(Duration),
    Connections(u64),
    Requests(u64),
}

/// What happened in a second, by the last two snapshots.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Pace {
    pub hits: f64,
    /// Body bytes.
    pub bytes: f64,
    pub connections: f64,
    pub full: f64,
    pub resumed: f64,
    /// Seconds of CPU time of the loading thread; of several their mean.
    pub busy: f64,
}

/// Latencies of a phase, and how many a second there were lately.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Latency {
    pub recent: Recent,
    /// How many a second since the last snapshot; if there were none, the latencies are older.
    pub per_second: f64,
}

#[derive(Debug)]
pub struct View {
    pub url: String,
    pub asked: String,
    pub goal: Goal,
    pub tls: bool,
    pub reuse_percent: Option<f64>,
    /// Rate asked for, requests a second.
    pub rate: Option<f64>,
    pub phases: Vec<Phase>,
    pub elapsed: Duration,
    pub now: Option<Snapshot>,
    pub pace: Pace,
    /// The same of each of several loops or workers; `None`: it told nothing twice.
    pub each: Vec<Option<Pace>>,
    each_before: Vec<Option<Snapshot>>,
    latencies: [Latency; Phase::ALL.len()],
    /// Powers of ten, in nanoseconds, that every latency shown so far lies between.
    scale: Option<Range<i32>>,
    /// Hits a second, one for each pair of snapshots.
    past: VecDeque<f64>,
}

impl View {
    pub fn new(url: &str, plan: &Plan) -> View {
        let (tls, resumption) = (plan.target.tls.is_some(), plan.resumption);
        let is_shown = |phase: &Phase| match phase {
            Phase::FullHandshake => tls,
            Phase::ResumedHandshake => tls && resumption != Resumption::Never,
            Phase::ScheduledResponse => !matches!(plan.pacing, Pacing::Closed | Pacing::Pauses(_)),
            Phase::TcpConnect | Phase::FirstByte | Phase::WholeResponse => true,
        };
        View {
            url: url.to_owned(),
            asked: heading::asked(plan),
            goal: Goal::new(plan),
            tls,
            reuse_percent: resumption.percent(),
            rate: if let Pacing::Open(rate) = plan.pacing { Some(rate.per_second) } else { None },
            phases: Phase::ALL.into_iter().filter(is_shown).collect(),
            elapsed: Duration::ZERO,
            now: None,
            pace: Pace::default(),
            each: Vec::new(),
            each_before: Vec::new(),
            latencies: [Latency::default(); Phase::ALL.len()],
            scale: None,
            past: VecDeque::with_capacity(samples(PAST)),
        }
    }

    pub fn take(&mut self, snapshot: Snapshot) {
        let before = self.now.replace(snapshot);
        let seconds = before.map_or(0.0, |before| seconds_between(&before, &snapshot));
        for (latency, recent) in self.latencies.iter_mut().zip(snapshot.recent) {
            latency.per_second = if seconds > 0.0 { recent.count as f64 / seconds } else { 0.0 };
            if recent.count > 0 {
                latency.recent = recent;
                widen(&mut self.scale, recent);
            }
        }
        if let Some(before) = before.filter(|_| seconds > 0.0) {
            self.pace = Pace::between(&before, &snapshot, seconds);
            self.past.push_back(self.pace.hits);
            if self.past.len() > samples(PAST) {
                self.past.pop_front();
            }
        }
    }

    /// What each of several loops or workers told last.
    pub fn take_each(&mut self, each: Vec<Option<Snapshot>>) {
        let pace = |(before, now): (&Option<Snapshot>, &Option<Snapshot>)| {
            let (before, now) = before.zip(*now)?;
            let seconds = seconds_between(&before, &now);
            (seconds > 0.0).then(|| Pace::between(&before, &now, seconds))
        };
        self.each = self.each_before.iter().zip(&each).map(pace).collect();
        self.each_before = each;
    }

    pub fn latency(&self, phase: Phase) -> Latency {
        self.latencies[phase as usize]
    }

    /// Powers of ten, in nanoseconds, that every latency lies between.
    pub fn scale(&self) -> Range<i32> {
        self.scale.clone().unwrap_or(4..6)
    }

    /// Errors that occurred, the most frequent first.
    pub fn errors(&self) -> Vec<(&'static str, u64)> {
        let counts = self.now.map_or([0; ErrorKind::ALL.len()], |now| now.errors);
        let kinds = ErrorKind::ALL.iter().map(|kind| kind.name());
        let mut errors: Vec<_> = kinds.zip(counts).filter(|(_, count)| *count > 0).collect();
        errors.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
        errors
    }

    /// Percentage of handshakes that resumed, if there were any.
    pub fn resumed_percent(&self) -> Option<f64> {
        self.now?.handshakes.resumed_percent()
    }

    /// How much of the run is done, 0 to 1, and the same in words.
    pub fn done(&self) -> (f64, String) {
        let (elapsed, now) = (self.elapsed.as_secs_f64(), self.now.as_ref());
        let (count, all, noun) = match self.goal {
            Goal::Time(all) => {
                let done = (elapsed / all.as_secs_f64()).clamp(0.0, 1.0);
                let text = match all.as_secs_f64() {
                    all if elapsed > all => format!("{elapsed:.1} s, waiting for the last responses"),
                    all => format!("{elapsed:.1} s of {all:.1} s, {:.1} s left", all - elapsed),
                };
                return (done, text);
            }
            Goal::Connections(all) => (now.map_or(0, |now| now.connections), all, "connections"),
            Goal::Requests(all) => (now.map_or(0, ended), all, "requests"),
        };
        let done = (count as f64 / all.max(1) as f64).clamp(0.0, 1.0);
        let left = match done > 0.0 && done < 1.0 {
            true => format!(", about {:.0} s left", elapsed * (1.0 - done) / done),
            false => String::new(),
        };
        (done, format!("{} of {} {noun}, {elapsed:.1} s{left}", format_count(count), format_count(all)))
    }

    /// Hits a second in so many columns, oldest first, over the last minute, or over the whole run if that is shorter:
    /// then the columns fill up as time goes on.
    pub fn curve(&self, columns: usize) -> Vec<Option<f64>> {
        let shown = match self.goal {
            Goal::Time(all) => samples(all.min(PAST)).max(1),
            Goal::Connections(_) | Goal::Requests(_) => self.past.len().max(PAST_MIN),
        };
        pane::curve(&self.past, shown, columns)
    }
}

impl Goal {
    fn new(plan: &Plan) -> Goal {
        match plan.until {
            Until::Elapsed(elapsed_ns) => Goal::Time(Duration::from_nanos(elapsed_ns)),
            Until::ConnectionsMade(count) => Goal::Connections(count),
            Until::Requests(count) => Goal::Requests(count),
            Until::Laps(laps) => {
                let users = &plan.workload.users[plan.users.start as usize..plan.users.end as usize];
                Goal::Requests(laps * users.iter().map(|user| user.requests.len() as u64).sum::<u64>())
            }
        }
    }
}

impl Pace {
    fn between(before: &Snapshot, now: &Snapshot, seconds: f64) -> Pace {
        let per_second = |count: fn(&Snapshot) -> u64| count(now).saturating_sub(count(before)) as f64 / seconds;
        Pace {
            hits: per_second(|snapshot| snapshot.hits),
            bytes: per_second(|snapshot| snapshot.body_bytes),
            connections: per_second(|snapshot| snapshot.connections),
            full: per_second(|snapshot| snapshot.handshakes.full),
            resumed: per_second(|snapshot| snapshot.handshakes.resumed_accepted),
            busy: per_second(|snapshot| snapshot.client_cpu_ns) / 1e9 / f64::from(now.loops.max(1)),
        }
    }
}

/// The time between two snapshots; the clock of another machine may seem to have gone back.
fn seconds_between(before: &Snapshot, now: &Snapshot) -> f64 {
    now.at_ns.saturating_sub(before.at_ns) as f64 / 1e9
}

fn ended(snapshot: &Snapshot) -> u64 {
    snapshot.hits + snapshot.errors.iter().sum::<u64>()
}

fn samples(time: Duration) -> usize {
    (time.as_secs_f64() / RENEWED.as_secs_f64()).round() as usize
}

fn widen(scale: &mut Option<Range<i32>>, recent: Recent) {
    let power = |nanoseconds: u64| (nanoseconds.max(1) as f64).log10();
    let (from, to) = (power(recent.p50_ns).floor() as i32, power(recent.p99_ns).ceil() as i32);
    let known = scale.clone().unwrap_or(from..to);
    *scale = Some(known.start.min(from)..known.end.max(to).max(from + 1));
}

#[cfg(test)]
pub(super) mod tests {
    use clap::Parser;

    use super::*;
    use crate::load::options::Options;
    use crate::load::plan;
    use crate::load::url::Url;

    #[derive(Parser)]
    struct Flags {
        #[command(flatten)]
        options: Options,
    }

    /// The plan of `tlsdyno load -k URL`.
    pub fn plan(url: &str) -> Plan {
        let options = Flags::parse_from(["load", "-k"]).options;
        plan::plan(&options, &Url::parse(url).unwrap(), "127.0.0.1:1".parse().unwrap()).unwrap()
    }

    pub fn nothing() -> Snapshot {
        Snapshot {
            at_ns: 0,
            loops: 1,
            hits: 0,
            body_bytes: 0,
            connections: 0,
            handshakes: Default::default(),
            errors: [0; ErrorKind::ALL.len()],
            client_cpu_ns: 0,
            window: None,
            slice: None,
            negotiated: None,
            recent: [Recent::default(); Phase::ALL.len()],
        }
    }

    fn at(seconds: f64, hits: u64) -> Snapshot {
        Snapshot { at_ns: (seconds * 1e9) as u64, hits, connections: hits / 10, ..nothing() }
    }

    #[test]
    fn pace_is_between_two_snapshots_and_the_curve_fills_as_time_goes_on() {
        let mut view = View::new("http://localhost/", &plan("http://localhost/"));
        assert_eq!((view.goal, view.phases.len()), (Goal::Time(Duration::from_secs(10)), 3));
        view.take(at(100.0, 1000));
        assert_eq!(view.pace, Pace::default(), "one alone has no pace");
        view.take(Snapshot { client_cpu_ns: 250_000_000, ..at(100.5, 1500) });
        let expected = Pace { hits: 1000.0, connections: 100.0, busy: 0.5, ..Pace::default() };
        assert_eq!(view.pace, expected);
        view.take(Snapshot { client_cpu_ns: 250_000_000, ..at(101.0, 1600) });
        assert_eq!(view.curve(10), [vec![Some(600.0)], vec![None; 9]].concat(), "10 s in 10 columns");
        let double: Vec<_> = view.curve(40).into_iter().take(5).collect();
        assert_eq!(double, [Some(1000.0), Some(1000.0), Some(200.0), Some(200.0), None]);
    }

    #[test]
    fn each_of_several_has_its_own_pace() {
        let mut view = View::new("http://localhost/", &plan("http://localhost/"));
        view.take_each(vec![Some(at(1.0, 100)), None]);
        assert!(view.each.is_empty());
        view.take_each(vec![Some(at(1.5, 200)), Some(at(1.5, 7))]);
        assert_eq!(view.each.iter().map(|pace| pace.map(|pace| pace.hits)).collect::<Vec<_>>(), [Some(200.0), None]);
    }

    #[test]
    fn the_curve_is_that_of_the_last_minute() {
        let mut plan = plan("http://localhost/");
        plan.until = Until::Elapsed(3_600_000_000_000);
        let mut view = View::new("http://localhost/", &plan);
        // 50 hits in each half second, and ten times as many in the last minute.
        let hits = |half: u64| if half <= 80 { half * 50 } else { 80 * 50 + (half - 80) * 500 };
        (0..=200).for_each(|half| view.take(at(half as f64 / 2.0, hits(half))));
        assert_eq!(view.curve(30), vec![Some(1000.0); 30]);
    }

    #[test]
    fn what_ends_a_run_is_what_it_is_measured_by() {
        let mut plan = plan("http://localhost/");
        let view = |plan: &Plan, seconds: f64, hits: u64| {
            let mut view = View::new("http://localhost/", plan);
            view.elapsed = Duration::from_secs_f64(seconds);
            view.take(at(seconds, hits));
            view.done()
        };
        assert_eq!(view(&plan, 4.0, 1), (0.4, "4.0 s of 10.0 s, 6.0 s left".to_owned()));
        assert_eq!(view(&plan, 12.0, 1), (1.0, "12.0 s, waiting for the last responses".to_owned()));
        plan.until = Until::ConnectionsMade(2000);
        assert_eq!(view(&plan, 4.0, 5000), (0.25, "500 of 2,000 connections, 4.0 s, about 12 s left".to_owned()));
        plan.until = Until::Laps(1);
        plan.users = 1..3;
        let each = plan.workload.users[1].requests.len() as u64;
        assert_eq!(View::new("", &plan).goal, Goal::Requests(2 * each));
    }

    #[test]
    fn latencies_stay_until_there_are_newer_ones_and_the_scale_holds_them_all() {
        let mut view = View::new("https://localhost/", &plan("https://localhost/"));
        assert_eq!(view.phases.len(), 4, "nothing resumes");
        let mut with = |seconds, count, p50_ns, p99_ns| {
            let mut snapshot = at(seconds, 0);
            snapshot.recent[Phase::FullHandshake as usize] = Recent { count, p50_ns, p99_ns };
            view.take(snapshot);
            (view.latency(Phase::FullHandshake), view.scale())
        };
        with(0.0, 5, 200_000, 900_000);
        let (latency, scale) = with(0.5, 10, 300_000, 2_000_000);
        assert_eq!((latency.recent.p50_ns, latency.per_second, scale), (300_000, 20.0, 5..7));
        let (latency, scale) = with(1.0, 0, 0, 0);
        assert_eq!((latency.recent.p50_ns, latency.per_second, scale), (300_000, 0.0, 5..7));
    }
}
