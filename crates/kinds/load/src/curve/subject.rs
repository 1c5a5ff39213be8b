//! What a curve over percent reuse needs beside the load on a URL: the flags of each of its points, as many connections
//! as saturate the server, and whether the reuse came out that was asked for.

use std::net::SocketAddr;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use anyhow::{Result, ensure};
use tlsdyno_base::interrupt;
use tlsdyno_engine::load::{Handshakes, Outcome, Plan};
use tlsdyno_engine::time::Time;
use tlsdyno_record::model::workload::ReplaySpec;
use tlsdyno_record::store::Warning;
use tlsdyno_record::store::warning::{REUSE_MISSED_MAX, code};
use tlsdyno_stats::reuse::ReuseAxis;
use tlsdyno_traffic::load::options::{self, Options};
use tlsdyno_traffic::load::url::Url;
use tlsdyno_traffic::load::values::Reuse;
use tlsdyno_traffic::load::warning::{hits_per_handshake_missed, missed_reuse, too_few_hits};
use tlsdyno_traffic::load::{diagnosis, sweep};
use tlsdyno_workloads::scan_log;

use crate::LoggedReuse;
use crate::curve::file::{Curve, CurvePlace, hits_per_handshake};

/// Minimum and maximum length of a step of the search for saturation.
const STEP: [Duration; 2] = [Duration::from_millis(300), Duration::from_secs(2)];
/// Length of a step, as a part of a point's time.
const STEP_PART: f64 = 0.1;
/// Maximum difference between requested and achieved reuse, percentage points.
const REUSE_TOLERANCE: f64 = 0.5;

#[derive(Clone, Debug)]
pub struct Point {
    pub(crate) name: String,
    pub(crate) options: Options,
    pub(crate) url: Url,
    /// Bytes, where sizes are swept.
    pub(crate) object_bytes: Option<u64>,
}

impl Point {
    /// A point without swept sizes.
    pub fn new(name: String, options: Options, url: Url) -> Point {
        Point { name, options, url, object_bytes: None }
    }
}

/// Refuses flags that have no effect on a curve; the error names them.
pub fn check(curve: &Curve, options: &Options) -> Result<()> {
    curve.check()?;
    let by_hits = curve.by.contains(&ReuseAxis::Hits);
    let given = [
        ("--reuse", options.reuse.is_some()),
        ("--profile", options.profile.is_some()),
        ("--hits-per-handshake", options.hits_per_handshake.is_some()),
        ("--session-limit", options.session_limit.is_some()),
        ("--session-lifetime", options.session_lifetime.is_some()),
        ("--close", options.close),
        ("--keep-alive", options.keep_alive),
        ("--users", options.users.is_some()),
        ("--total-connections", options.total_connections.is_some()),
        ("-n", options.requests.is_some()),
        ("--rate", options.rate.is_some()),
        ("--pause", options.pause.is_some()),
        ("--window search", options.workload.searches_window()),
        ("--timing", options.workload.timing.is_some()),
        ("--early-data with --by hits", by_hits && options.early_data),
    ];
    let foreign: Vec<&str> = given.iter().filter(|(_, given)| *given).map(|(flag, _)| *flag).collect();
    ensure!(
        foreign.is_empty(),
        "a curve over reuse sets sessions, connections and pace itself, in a closed loop; leave out {} (`tlsdyno load` \
         takes them)",
        foreign.join(", ")
    );
    ensure!(
        options.connections <= curve.connections_max_count,
        "--connections {} is where the search for saturation begins; --connections-max {} is less",
        options.connections,
        curve.connections_max_count
    );
    Ok(())
}

/// In the order of [`Curve::places`]. Fails unless the URL has TLS, and that of plain HTTP has none.
pub fn points(curve: &Curve, options: &Options, url: &Url) -> Result<Vec<Point>> {
    ensure!(url.tls, "a curve over reuse is about TLS sessions; the URL is plain http (--plain takes such a one)");
    let plain = curve.plain.as_deref().map(Url::parse).transpose()?;
    ensure!(plain.as_ref().is_none_or(|plain| !plain.tls), "--plain is the same without TLS: an http URL");
    let point = |place: &CurvePlace| {
        let each = options.requests_per_connection.or((place.by == ReuseAxis::Connections).then_some(1));
        let options = Options { requests_per_connection: each, ..options.clone() };
        let Some(percent) = place.percent else {
            let url = plain.clone().unwrap_or_else(|| url.clone());
            return Ok(Point::new(format!("plain HTTP for {}", place.by), without_tls(options), url));
        };
        let options = match place.by {
            ReuseAxis::Hits => Options { hits_per_handshake: Some(hits_per_handshake(percent)?), ..options },
            ReuseAxis::Connections => Options { reuse: Some(Reuse::Percent(percent)), ..options },
        };
        Ok(Point::new(format!("{percent} % by {}", place.by), options, url.clone()))
    };
    curve.places().iter().map(point).collect()
}

/// The same load without settings of TLS, and without a redirection to another address. Servers that take HTTP/2 over
/// TLS seldom take it without, so that it is HTTP/1.1.
fn without_tls(options: Options) -> Options {
    let options = Options { client_cert: None, client_key: None, early_data: false, http2: false, ..options };
    Options { streams: None, connect_to: None, unix: None, ..options }
}

/// Plan of a point that saturates its server, and whether `connections_max` suffices for that; `load` makes loads.
/// Fails where no request succeeds.
pub fn saturated(
    point: &Point,
    address: SocketAddr,
    connections_max: u32,
    time: Duration,
    stop: &AtomicBool,
    load: impl Fn(&Plan) -> Result<Outcome>,
) -> Result<(Plan, bool)> {
    let step = time.mul_f64(STEP_PART).clamp(STEP[0], STEP[1]);
    let options = Options { duration: Some(Time(step)), ..point.options.clone() };
    let (plan, outcome, saturated) = sweep::saturated_at(&options, &point.url, address, connections_max, load)?;
    interrupt::check(stop)?;
    ensure_fault!(
        Unreachable,
        outcome.hits > 0,
        "not one request of \"{}\" succeeded: {}",
        point.name,
        diagnosis::explain(&outcome, &options::sent(&point.options, &point.url, address))
    );
    Ok((plan, saturated))
}

pub fn logged(curve: &Curve) -> Result<Option<LoggedReuse>> {
    let Some(path) = &curve.log else { return Ok(None) };
    let rules = ReplaySpec { client_field: curve.client_field, ..ReplaySpec::default() };
    let scan = scan_log(path, &curve.exclude, &rules)?;
    scan.read.tell(path);
    Ok(Some(LoggedReuse { path: path.display().to_string(), hits: scan.hits, reuse: scan.reuse }))
}

/// Counts over the blocks of a point.
#[derive(Clone, Copy, Debug, Default)]
pub struct Counted {
    blocks: u64,
    hits: u64,
    handshakes: Handshakes,
}

impl Counted {
    pub fn add(&mut self, outcome: &Outcome) {
        self.blocks += 1;
        self.hits += outcome.hits;
        self.handshakes += outcome.handshakes;
    }

    /// Warns where the achieved reuse differs from the requested one. Each block begins without sessions, and ends amid
    /// some.
    pub fn missed(&self, name: &str, place: CurvePlace, connections: u32) -> Option<Warning> {
        let percent = place.percent?;
        let counts = &self.handshakes;
        let missed = match place.by {
            ReuseAxis::Connections => {
                let first = 100.0 * self.blocks as f64 / counts.completed().max(1) as f64;
                let most = (REUSE_MISSED_MAX * percent).max(REUSE_TOLERANCE);
                missed_reuse(counts, percent, (REUSE_TOLERANCE + first).min(most))
            }
            ReuseAxis::Hits => {
                let asked = hits_per_handshake(percent).ok()?;
                let least = self.hits / u64::from(asked);
                let most = least + self.blocks * (1 + u64::from(connections));
                let achieved = self.hits as f64 / counts.full.max(1) as f64;
                let is_missed = counts.full > most || counts.full < least;
                let missed = is_missed.then(|| hits_per_handshake_missed(asked, achieved));
                missed.or_else(|| too_few_hits(self.hits, counts.full, asked))
            }
        };
        missed.map(|missed| Warning {
            code: code::MISSED.to_owned(),
            what: format!("\"{name}\": {}", missed.what),
            ..missed
        })
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Debug, Parser)]
    struct Flags {
        #[command(flatten)]
        options: Options,
    }

    fn options(flags: &[&str]) -> Options {
        Flags::try_parse_from([&["x"], flags].concat()).unwrap().options
    }

    fn curve(by: &[ReuseAxis]) -> Curve {
        let plain = Some("http://localhost:8080/".to_owned());
        Curve { by: by.to_vec(), levels_percent: vec![0.0, 90.0], plain, connections_max_count: 64, ..Curve::default() }
    }

    #[test]
    fn points_have_the_flags_of_their_axis_and_plain_http_those_without_tls() {
        let curve = curve(&[ReuseAxis::Hits, ReuseAxis::Connections]);
        let flags = ["--client-cert", "a", "--client-key", "b", "--connect-to", "h:1", "--http2", "--streams", "4"];
        let url = Url::parse("https://localhost/x").unwrap();
        let points = points(&curve, &options(&flags), &url).unwrap();
        let of = |name: &str| points.iter().find(|point| point.name == name).unwrap();
        let hits = of("90 % by hits");
        assert_eq!((hits.options.hits_per_handshake, hits.options.requests_per_connection), (Some(10), None));
        let connections = of("90 % by connections");
        assert_eq!(connections.options.reuse, Some(Reuse::Percent(90.0)));
        assert_eq!(connections.options.requests_per_connection, Some(1));
        let plain = of("plain HTTP for hits");
        assert!(plain.options.client_cert.is_none() && plain.options.connect_to.is_none() && !plain.url.tls);
        assert_eq!([hits, plain].map(|of| (of.options.http2, of.options.streams)), [(true, Some(4)), (false, None)]);
        assert_eq!(plain.options.requests_per_connection, None, "kept connections, as with TLS");
        assert_eq!(of("plain HTTP for connections").options.requests_per_connection, Some(1));
    }

    #[test]
    fn flags_that_mean_nothing_are_refused_by_name() {
        let hits = [ReuseAxis::Hits];
        check(&curve(&hits), &options(&[])).unwrap();
        check(&curve(&[ReuseAxis::Connections]), &options(&["--early-data"])).unwrap();
        for flags in [
            &["--reuse", "5%"][..],
            &["--session-limit", "5"],
            &["--hits-per-handshake", "5"],
            &["--rate", "5"],
            &["--keep-alive"],
            &["--early-data"],
            &["--users", "3"],
            &["--connections", "65"],
        ] {
            let said = check(&curve(&hits), &options(flags)).unwrap_err().to_string();
            assert!(said.contains(flags[0]), "{flags:?}: {said}");
        }
    }

    #[test]
    fn reuse_that_was_missed_is_told() {
        let counted = |hits, full, resumed| Counted {
            blocks: 1,
            hits,
            handshakes: Handshakes {
                full,
                resumed_intended: resumed,
                resumed_offered: resumed,
                resumed_accepted: resumed,
                ..Handshakes::default()
            },
        };
        let by = |by, percent| CurvePlace { by, percent: Some(percent) };
        let hits = by(ReuseAxis::Hits, 90.0);
        assert_eq!(counted(1_000, 104, 0).missed("x", hits, 8), None, "sessions at the end were not used up");
        assert!(counted(1_000, 200, 0).missed("x", hits, 8).unwrap().to_string().contains("5.0 requests"));
        let connections = by(ReuseAxis::Connections, 50.0);
        assert_eq!(counted(1_000, 500, 500).missed("x", connections, 8), None);
        let missed = counted(1_000, 600, 400).missed("x", connections, 8).expect("40 % is not 50 %");
        assert!(missed.code == code::MISSED && missed.what.contains("40.0 %"), "{missed}");
        let short = counted(20, 20, 0).missed("x", hits, 32).expect("none is not 90 %");
        assert!(short.what.contains("20 requests with 20 full handshakes are too few"), "{short}");
        let plain = CurvePlace { by: ReuseAxis::Hits, percent: None };
        assert_eq!(counted(1_000, 0, 0).missed("x", plain, 8), None);
    }
}
