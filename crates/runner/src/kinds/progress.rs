//! How a run shows what it does on standard error.

use std::io::IsTerminal;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use tlsdyno_base::foreign::visible;
use tlsdyno_record::store::Record;
use tlsdyno_stats::statement::FEW_ROUNDS;

use super::Kind;
use crate::run::observer::Observer;
use crate::run::schedule::Schedule;

/// Progress on standard error: a bar on a terminal, one line per step otherwise.
pub struct Progress {
    /// Makes interim results, in at most the given number of lines.
    found: Box<SoFar>,
    bar: ProgressBar,
    terminal: bool,
    began: Option<Instant>,
    /// Without a terminal: interim results were printed already, or are not wanted.
    has_told: bool,
    /// Interim results as a table; also when it was made, and how long that took.
    so_far: String,
    shown: Option<(Instant, Duration)>,
    /// Time of the last printed line, without a terminal.
    told: Instant,
}

/// Interim results of a record, in at most the given number of lines.
type SoFar = dyn Fn(&Record, usize) -> String;

/// Without a terminal, interim results are printed once after this time.
const FIRST_TOLD: Duration = Duration::from_secs(30);
const RENEWED: Duration = Duration::from_secs(5);
/// Minimum ratio of the time between renewals to the time of one: renewals must take no time of measuring.
const RENEWED_TIMES: u32 = 20;
/// Interval of lines without a terminal.
const TOLD: Duration = Duration::from_secs(10);
const ROWS_SO_FAR: usize = 12;

impl Progress {
    /// For an experiment of this kind.
    pub fn of(kind: &'static dyn Kind) -> Progress {
        let terminal = std::io::stderr().is_terminal();
        let target = if terminal { ProgressDrawTarget::stderr() } else { ProgressDrawTarget::hidden() };
        let bar = ProgressBar::with_draw_target(None, target);
        bar.enable_steady_tick(Duration::from_millis(200));
        bar.set_style(
            ProgressStyle::with_template("{spinner} {msg}").unwrap_or_else(|_| ProgressStyle::default_spinner()),
        );
        Progress {
            found: Box::new(|record, rows| kind.so_far(record, rows)),
            bar,
            terminal,
            began: None,
            has_told: true,
            so_far: String::new(),
            shown: None,
            told: Instant::now(),
        }
    }

    /// Shows interim results: repeatedly on a terminal, else once.
    pub fn show(&mut self, found: Box<SoFar>) {
        (self.found, self.has_told) = (found, false);
    }

    pub fn clear(&self) {
        self.bar.finish_and_clear();
    }

    fn line(&self, text: &str) {
        let text = visible(text);
        if self.terminal {
            self.bar.println(text);
        } else {
            tell!("{text}");
        }
    }
}

/// Plan of the rounds, as far as it is known before they begin.
fn measuring(schedule: &Schedule, configurations: usize, left: Duration) -> String {
    let (rounds, round_s, left_s) = (schedule.rounds_expected, schedule.round.as_secs_f64(), left.as_secs_f64());
    let text = format!("measuring {configurations} configurations in random order for at most {left_s:.0} s");
    let wanted_s = round_s * f64::from(FEW_ROUNDS);
    let blocks = match schedule.requests_per_block {
        0 | 1 => String::new(),
        requests => format!(", {requests} requests a block"),
    };
    match () {
        () if left.is_zero() => format!("measuring {configurations} configurations: warming up took the time"),
        () if wanted_s > left_s * 1.5 => format!(
            "{text}; a round takes about {round_s:.0} s, and fewer than {FEW_ROUNDS} resolve nothing: \
             give --time {:.0}",
            (wanted_s * 2.0 / 10.0).ceil() * 10.0
        ),
        () => format!("{text}, up to {rounds} rounds of {round_s:.1} s{blocks}"),
    }
}

/// Resolution of the bar; measuring time is a fraction, not a count.
const BAR_LENGTH: u64 = 1000;

impl Observer for Progress {
    fn step(&mut self, text: &str) {
        self.bar.set_message(visible(text).into_owned());
        if !self.terminal {
            tell!("{text}");
            self.told = Instant::now();
        }
    }

    fn tell(&mut self, text: &str) {
        self.line(text);
    }

    fn preflight(&mut self, name: &str, passed: usize, failed: &[String]) {
        for check in failed {
            self.line(&format!("preflight of \"{name}\" failed: {check}"));
        }
        if failed.is_empty() && !self.terminal {
            let checks = if passed == 1 { "check" } else { "checks" };
            tell!("preflight of \"{name}\": {passed} {checks} passed");
        }
    }

    fn warn(&mut self, text: &str) {
        self.line(&format!("warning: {text}"));
    }

    fn measuring(&mut self, schedule: &Schedule, configurations: usize, left: Duration) {
        self.line(&measuring(schedule, configurations, left));
        self.began = Some(Instant::now());
        self.bar.set_length(BAR_LENGTH);
        let style = ProgressStyle::with_template("{spinner} [{bar:30}] {prefix}  {msg}");
        self.bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
    }

    fn progress(&mut self, elapsed: Duration, time: Duration, text: &str) {
        let done = elapsed.as_secs_f64() / time.as_secs_f64();
        self.bar.set_position((done.min(1.0) * BAR_LENGTH as f64) as u64);
        let left = time.saturating_sub(elapsed);
        let times = format!("{:.0} s, {:.0} s left", elapsed.as_secs_f64(), left.as_secs_f64());
        if !self.terminal && self.told.elapsed() >= TOLD {
            tell!("{text}: {times}");
            self.told = Instant::now();
        }
        self.bar.set_prefix(times);
        self.bar.set_message(format!("{text}\n{}", self.so_far));
    }

    fn interim(&mut self, record: &Record) {
        let is_due = |(shown, took): (Instant, Duration)| shown.elapsed() >= RENEWED.max(took * RENEWED_TIMES);
        if self.terminal && self.shown.is_none_or(is_due) {
            let began = Instant::now();
            self.so_far = (self.found)(record, ROWS_SO_FAR);
            self.shown = Some((Instant::now(), began.elapsed()));
        }
        let since = self.began.map_or(Duration::ZERO, |began| began.elapsed());
        if !self.terminal && !self.has_told && since >= FIRST_TOLD {
            self.has_told = true;
            (self.found)(record, ROWS_SO_FAR).lines().for_each(|line| tell!("{line}"));
        }
    }

    fn finished(&mut self) {
        self.bar.set_message("evaluating");
    }
}
