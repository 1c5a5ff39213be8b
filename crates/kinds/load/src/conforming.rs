//! `tlsdyno load URL --conforming`: the most connections whose clients keep their rate.
//! Circle: load/command chooses this search, which sums its runs up and keeps them as every other load of that command.

use std::io::Write;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::{Context, Result, ensure};
use serde::Serialize;
use tlsdyno_base::bootstrap::Estimate;
use tlsdyno_base::exit::Exit;
use tlsdyno_base::fault::{Fault, OrFault};
use tlsdyno_base::units::{format_count, format_percent, format_quantity};
use tlsdyno_engine::load::{Kept, Outcome};
use tlsdyno_record::store::load_run::Summary;
use tlsdyno_runner::report::terminal::streamed_line;
use tlsdyno_traffic::load::options::{self, Options};
use tlsdyno_traffic::load::screen::Display;
use tlsdyno_traffic::load::sweep::{self, ConnectionRange, MostConforming};
use tlsdyno_traffic::load::threads::Crew;
use tlsdyno_traffic::load::warning::is_client_bound;

use super::command::{Args, Destination, keep, question, summed_up};
use crate::run_files::write_record;
use crate::subject::Runs;

/// Line rate of a client in SPECweb99, bit/s. The default of `--keep` is the part of it that a client must receive, 320
/// kbit/s.
const LINE: u64 = 400_000;

/// Remark that the number is no result of SPECweb99.
const NOT_SPECS: &str = "A number of our own, by rules after those of SPECweb99_SSL; no result of SPEC's";

/// Measurement at one number of connections.
#[derive(Serialize)]
struct Point {
    #[serde(flatten)]
    run: Summary,
    /// By [`sweep::CONFORMING_RULE`].
    conforms: bool,
}

/// Maximum ratio to the number for a run to be near it.
const NEAR: f64 = 1.05;

const WIDTHS: [usize; 6] = [12, 10, 16, 12, 10, 12];

pub(super) fn run(
    args: &Args,
    range: ConnectionRange,
    rounds: u32,
    to: &Destination,
    crew: &dyn Crew,
    stop: &AtomicBool,
) -> Result<Exit> {
    let options = by_rules(&args.options);
    let mut out = std::io::stdout().lock();
    if !args.json {
        writeln!(out, "{}\n", sweep::CONFORMING_RULE)?;
        writeln!(
            out,
            "{}",
            streamed_line(WIDTHS, ["connections", "kept", "mean of each", "hits/s", "failed", "load's CPU"])
        )?;
    }
    let what = format!("How many connections of {} keep their rate?", to.text);
    let mut runs = Runs::begin(question(args, what), to.text);
    let display = Display::of_steps(args.progress, to.text, crew);
    let sent = options::sent(&options, &to.url, to.address);
    let mut points: Vec<Point> = Vec::new();
    let load = |plan: &_| display.run(plan, stop);
    let search = (range, rounds);
    let most =
        sweep::most_conforming(&options, &to.url, to.address, search, load, |connections, outcome, conforms| {
            let asked = options::asked(&options, &to.url);
            let (_, run) = summed_up(to.text, asked, &options, &sent, outcome, false);
            runs.add(format!("{connections} connections, run {}", points.len() + 1), run.clone());
            if !args.json {
                let end = if conforms { "   conforms" } else { "" };
                // Nobody is helped by ending the search because its display went away; the last write tells.
                let _ = writeln!(out, "{}{end}", line(&run.outcome)).and_then(|()| out.flush());
            }
            points.push(Point { run, conforms });
            Ok(())
        })?;
    let is_bound = is_client_bound_near(&most, &points);
    if args.json {
        let object = serde_json::json!({
            "format": 1, "rule": sweep::CONFORMING_RULE, "note": NOT_SPECS, "points": points,
            "most_conforming": estimate(&most), "is_lower_bound": is_bound,
        });
        writeln!(out, "{object:#}").context("failed to print")?;
    } else {
        writeln!(out, "\n{}", told(&most, is_bound))?;
    }
    let record = keep(runs, !stop.load(Ordering::Relaxed), args.json);
    args.output.iter().try_for_each(|path| write_record(path, &record)).or_fault(Fault::Store)?;
    ensure!(
        most == MostConforming::Cut || points.iter().any(|point| point.run.outcome.hits > 0),
        "not one request succeeded; without --conforming the cause is named"
    );
    Ok(match most {
        MostConforming::Cut => Exit::Interrupted,
        MostConforming::Found(_) if is_bound => Exit::Invalid,
        _ => Exit::Done,
    })
}

/// The load had no CPU left where connections near the number did not conform: more might have kept their rate.
fn is_client_bound_near(most: &MostConforming, points: &[Point]) -> bool {
    let MostConforming::Found(most) = most else { return false };
    let is_near = |kept: Kept| (kept.clients_count as f64) < most.value * NEAR;
    points.iter().any(|Point { run: Summary { outcome, .. }, conforms }| {
        !conforms && outcome.kept.is_some_and(is_near) && is_client_bound(outcome)
    })
}

/// Adds the rules' rates where none are given. Of another rate the same part must be kept.
fn by_rules(options: &Options) -> Options {
    Options { receive_rate: options.receive_rate.or(Some(LINE)), ..options.clone() }
}

fn line(outcome: &Outcome) -> String {
    let kept = outcome.kept.unwrap_or_default();
    let failed: u64 = outcome.errors.values().sum();
    let failed = 100.0 * failed as f64 / (outcome.hits + failed).max(1) as f64;
    streamed_line(
        WIDTHS,
        [
            &format_count(kept.clients_count),
            &format_percent(kept.share() * 100.0),
            &format!("{} kbit/s", format_quantity(kept.mean_bits_per_second() / 1e3)),
            &format_quantity(outcome.hits_per_second()),
            &format_percent(failed),
            &format!("{:.0} %", outcome.busy_fraction() * 100.0),
        ],
    )
}

/// `null` where there is no interval.
fn estimate(most: &MostConforming) -> Option<Estimate> {
    match most {
        MostConforming::Found(found) => Some(*found),
        MostConforming::All(most) => Some(Estimate { low: f64::from(*most), ..Estimate::without_interval(f64::NAN) }),
        MostConforming::None => Some(Estimate { value: 0.0, low: 0.0, high: 1.0 }),
        MostConforming::Cut => None,
    }
}

fn whole(number: f64) -> String {
    format_count(number.round().max(0.0) as u64)
}

fn told(most: &MostConforming, is_bound: bool) -> String {
    let answer = match most {
        MostConforming::Found(found) if is_bound => format!(
            "{} connections or more conform: the load's own CPU was full where they did not, so that this is a lower \
             bound. Give the load more CPUs (--threads, --on)",
            whole(found.value)
        ),
        MostConforming::Found(found) => format!("{} connections conform", found.with_interval(whole)),
        MostConforming::All(most) => {
            format!("All of {} connections conform; try more (--conforming)", format_count(u64::from(*most)))
        }
        MostConforming::None => "Not even one connection conforms".to_owned(),
        MostConforming::Cut => "The search was cut short".to_owned(),
    };
    format!("{answer}. {NOT_SPECS}.")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_answer_has_its_interval_or_says_why_not() {
        let found = |low, high| MostConforming::Found(Estimate { value: 1_480.0, low, high });
        assert!(
            told(&found(1_440.0, 1_520.0), false).starts_with("1,480 [1,440, 1,520] connections conform. A number")
        );
        assert!(told(&found(1_440.0, 1_520.0), true).contains("lower bound"));
        assert!(told(&MostConforming::All(300), false).contains("All of 300"));
        assert!(told(&MostConforming::Cut, false).contains("no result of SPEC's"));
        assert_eq!(estimate(&MostConforming::Cut), None);
    }
}
