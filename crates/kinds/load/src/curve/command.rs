//! `tlsdyno reuse`: how sensitive a server is to its traffic's percentage of session reuse.

use anyhow::Result;
use tlsdyno_base::exit::Exit;
use tlsdyno_engine::time::Time;
use tlsdyno_record::model::{Measure, WorkersModel};
use tlsdyno_runner::kinds::perform::ResultArgs;
use tlsdyno_traffic::load::options::Options;

use crate::curve::file::Curve;
use crate::file::LoadExperiment;
use crate::subject::{self, WARM_UP};

/// Default duration of each percentage.
const DURATION: Time = Time::seconds(10);

/// Throughput at saturation over percent reuse, and the half serving point
///
/// For each percentage the connections are doubled from --connections until twice as many bring less than 5 % more
/// hits/s: that is saturation. Then every percentage has one block in each round, in random order, and --duration in
/// all; what that comes to is told beforehand. With --plain also the half serving point, with an interval: the smallest
/// percent reuse at which half of the plain-text hits/s are reached (Mraz et al. 2002, by hits).
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  tlsdyno reuse https://localhost:8443/1k.bin --insecure --by hits --plain http://localhost:8080/1k.bin
  tlsdyno reuse https://localhost:8443/ --by hits,connections --levels 0,50,90,98 --plain http://localhost:8080/ --json
  tlsdyno reuse https://localhost:8443/ --by hits --plain http://localhost:8080/ --trace access.log

Percent reuse by hits is 1 − full handshakes / requests, on kept connections that close when their session is up: that
of Mraz et al. By connections it is the resumed share of handshakes, with a connection for each request unless
--requests-per-connection says otherwise; the two have half serving points of their own.

--trace LOG is not replayed here but laid over the curve by hits: the reuse that the log would give for each session
lifetime, and how far that is from the half serving point.")]
pub struct Args {
    /// What to request, for example https://localhost:8443/1k.bin
    url: String,

    #[command(flatten)]
    curve: Curve,

    #[command(flatten)]
    options: Options,

    #[command(flatten)]
    results: ResultArgs,

    #[command(flatten, next_help_heading = "Several machines")]
    workers: WorkersModel,
}

/// Measures the curve, and shows it.
pub fn run(args: &Args) -> Result<Exit> {
    let mut options = args.options.clone();
    let duration = options.duration.take().unwrap_or(DURATION);
    let (log, exclude, client_field) = options.workload.take_log();
    let curve = Curve { log, exclude, client_field, ..args.curve.clone() };
    let points = curve.places().len();
    let time_s = (duration.0 + WARM_UP).as_secs_f64() * points as f64;
    tell!(
        "{points} points of {} s (--duration), with warm-ups {time_s:.0} s in all, after the search for saturation",
        duration.0.as_secs_f64()
    );
    let experiment = LoadExperiment {
        question: format!("How sensitive is {} to its share of reuse?", args.url),
        url: args.url.clone(),
        curve: Some(curve),
        measure: Measure { time_s, ..Measure::default() },
        workers: args.workers.given(),
        ..LoadExperiment::default()
    };
    subject::perform(&experiment, &options, &args.results).map(|(exit, _)| exit)
}
