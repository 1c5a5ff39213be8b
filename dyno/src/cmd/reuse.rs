//! `tlsdyno reuse`: how sensitive a server is to its traffic's percentage of session reuse.

use std::io::Write;
use std::sync::atomic::Ordering;

use anyhow::{Context, Result, ensure};
use serde::Serialize;

use crate::cmd::load::{keep, summary_of};
use crate::exit::Exit;
use crate::fault::{Fault, OrFault};
use crate::histogram::Percentiles;
use crate::load::asked::Asked;
use crate::load::options::{self, Options};
use crate::load::permission;
use crate::load::screen::{self, Display};
use crate::load::sweep::{self, Point};
use crate::load::url::Url;
use crate::report::terminal::streamed_line;
use crate::run::url::Runs;
use crate::units::{NONE, format_duration, format_percent, format_rate};
use crate::{interrupt, open_files};

/// Sweep the share of resumed connections: throughput at saturation for each
///
/// For each percentage the connections are doubled from --connections until twice as many bring less than 5 % more
/// hits/s: that is saturation. Each step takes --duration; one request for each connection unless
/// --requests-per-connection says otherwise. With --plain also the half serving point: the smallest percent reuse at
/// which half of the plain-text hits/s are reached. Reuse is that of connections; that of Mraz et al. 2002 is by hits
/// on kept connections, so that their point is another one.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  tlsdyno reuse https://localhost:8443/1k.bin --insecure --duration 3s
  tlsdyno reuse https://localhost:8443/ --levels 0,50,90,98 --plain http://localhost:8080/ --json")]
pub struct Args {
    /// What to request, for example https://localhost:8443/1k.bin
    url: String,

    /// Percentages of connections that resume, ascending
    #[arg(long, value_name = "PERCENT", value_delimiter = ',', default_value = "0,10,33,50,80,96,98,100")]
    levels: Vec<f64>,

    /// The same objects in plain HTTP: gives the half serving point
    #[arg(long, value_name = "URL")]
    plain: Option<String>,

    /// Most connections to saturate the server with
    #[arg(long, default_value_t = 1024, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=65_535))]
    connections_max: u32,

    #[command(flatten)]
    options: Options,

    #[command(flatten)]
    progress: screen::Flag,

    /// Print one JSON object instead of the table
    #[arg(long)]
    json: bool,
}

/// What is printed with --json.
#[derive(Debug, Serialize)]
struct Sweep {
    format: u32,
    url: String,
    rule: &'static str,
    points: Vec<Point>,
    plain: Option<Point>,
    half_serving_point_percent: Option<f64>,
}

/// Runs the sweep and prints it.
pub fn run(args: &Args) -> Result<Exit> {
    let stop = interrupt::flag(Exit::Interrupted as i32)?;
    let options = &args.options;
    let permitted = |url: &Url, address| permission::check(&url.host, address, &options.i_may_load_this);
    check(args).or_fault(Fault::Usage)?;
    let url = Url::parse(&args.url).or_fault(Fault::Usage)?;
    ensure_tls(&url).or_fault(Fault::Usage)?;
    let address = options::address(options, &url).or_fault(Fault::Unreachable)?;
    permitted(&url, address).or_fault(Fault::Usage)?;
    let mut plain = None;
    if let Some(text) = &args.plain {
        let url = Url::parse(text).or_fault(Fault::Usage)?;
        let address = url.resolve().or_fault(Fault::Unreachable)?;
        permitted(&url, address).or_fault(Fault::Usage)?;
        plain = Some((text, url, address));
    }
    open_files::make_room_for(args.connections_max.max(options.connections)).or_fault(Fault::Environment)?;
    if !args.json {
        println!("{}\n{}\n", args.url, sweep::REUSE_RULE);
        println!("{}", streamed_line(WIDTHS, ["reuse", "achieved", "hits", "connections", "p50", "p99"]));
    }
    let display = Display::of_steps(args.progress, &args.url);
    let load = |plan: &_| display.run(plan, &stop);
    let mut runs = Runs::begin(format!("How sensitive is {} to its share of reuse?", args.url), &args.url);
    let mut points = Vec::new();
    for level in &args.levels {
        let share = Some(level / 100.0);
        let (point, outcome) = sweep::saturated_at(options, &url, address, share, args.connections_max, load)?;
        let asked = Asked { reuse_percent: Some(*level), ..options::asked(options, &url) };
        runs.add(format!("{level} %"), &outcome, summary_of(&args.url, &url, options, &asked, &outcome, address))?;
        if !args.json {
            println!("{}", line(&format!("{level} %"), &point));
        }
        points.push(point);
        if stop.load(Ordering::Relaxed) {
            break;
        }
    }
    let plain = match plain {
        // Of plain HTTP that nobody waited for there is no half.
        Some(_) if stop.load(Ordering::Relaxed) => None,
        Some((text, url, address)) => {
            let display = Display::of_steps(args.progress, text);
            let load = |plan: &_| display.run(plan, &stop);
            let (point, outcome) = sweep::saturated_at(options, &url, address, None, args.connections_max, load)?;
            let asked = Asked { reuse_percent: None, ..options::asked(options, &url) };
            runs.add("plain HTTP".to_owned(), &outcome, summary_of(text, &url, options, &asked, &outcome, address))?;
            Some(point)
        }
        None => None,
    };
    let stopped = stop.load(Ordering::Relaxed);
    let result = finish(args, points, plain, stopped);
    keep(runs, !stopped, args.json);
    result
}

fn check(args: &Args) -> Result<()> {
    ensure!(args.levels.iter().all(|level| (0.0..=100.0).contains(level)), "--levels are percentages, 0 to 100");
    ensure!(args.levels.is_sorted(), "--levels must ascend");
    let own = args.options.reuse.is_none() && args.options.profile.is_none() && args.options.rate.is_none();
    ensure!(
        own,
        "the sweep sets the reuse itself, in a closed loop: --reuse, --profile and --rate are for `tlsdyno load`"
    );
    Ok(())
}

fn ensure_tls(url: &Url) -> Result<()> {
    ensure!(url.tls, "reuse is about TLS sessions; the URL is plain http (--plain takes such a one)");
    Ok(())
}

fn finish(args: &Args, points: Vec<Point>, plain: Option<Point>, stopped: bool) -> Result<Exit> {
    let achieved: Vec<(f64, f64)> =
        points.iter().filter_map(|point| Some((point.reuse_percent_achieved?, point.hits_per_second))).collect();
    let half = plain.as_ref().and_then(|plain| sweep::half_serving_point(&achieved, plain.hits_per_second));
    let missed = points
        .iter()
        .zip(&args.levels)
        .any(|(point, level)| point.reuse_percent_achieved.is_none_or(|achieved| (achieved - level).abs() > 0.5));
    let none = points.iter().all(|point| point.hits_per_second == 0.0);
    if args.json {
        let url = args.url.clone();
        let sweep = Sweep { format: 1, url, rule: sweep::REUSE_RULE, points, plain, half_serving_point_percent: half };
        let mut text = serde_json::to_vec_pretty(&sweep).context("failed to encode the result")?;
        text.push(b'\n');
        std::io::stdout().write_all(&text).context("failed to print")?;
    } else if let Some(plain) = &plain {
        println!("{}", line("plain HTTP", plain));
        match half {
            Some(percent) => println!("\nhalf serving point: {} reuse", format_percent(percent)),
            None if plain.hits_per_second == 0.0 => {
                println!("\nhalf serving point: none, nothing was served in plain HTTP")
            }
            None => println!("\nhalf serving point: none, half of the plain-text throughput is not reached"),
        }
    }
    ensure!(stopped || !none, "not one request succeeded; `tlsdyno load {}` tells why", args.url);
    Ok(match (stopped, missed) {
        (true, _) => Exit::Interrupted,
        (false, true) => {
            eprintln!(
                "warning: at least one percentage was missed by more than 0.5 points; `tlsdyno load --reuse` tells why"
            );
            Exit::Invalid
        }
        (false, false) => Exit::Done,
    })
}

/// Widths of the columns.
const WIDTHS: [usize; 6] = [12, 12, 14, 14, 12, 12];

/// A line of the table: units on every number.
fn line(name: &str, point: &Point) -> String {
    let achieved = point.reuse_percent_achieved.map_or(NONE.to_owned(), format_percent);
    let hits = format_rate(point.hits_per_second);
    let connections = format!("{}{}", if point.saturated { "" } else { "≥ " }, point.connections);
    let latency = |of: fn(&Percentiles) -> u64| {
        point.latency_ns.as_ref().map_or(NONE.to_owned(), |latency| format_duration(of(latency) as f64))
    };
    let (p50, p99) = (latency(|latency| latency.p50), latency(|latency| latency.p99));
    let client = if point.client_busy_fraction >= 0.95 { "   client-bound" } else { "" };
    streamed_line(WIDTHS, [name, &achieved, &hits, &connections, &p50, &p99]) + client
}
