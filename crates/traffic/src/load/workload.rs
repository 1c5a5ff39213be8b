//! Flags of `tlsdyno load` for something else than one URL.

use std::path::PathBuf;

use anyhow::{Result, ensure};
use tlsdyno_base::fault::{Fault, OrFault};
use tlsdyno_record::model::workload::{ClientField, HarSpec, NamesSpec, WorkloadSpec};

use tlsdyno_workloads::flags::{self, ReplayArgs, Specweb99Args, WorkloadChoice};

/// Places of a log that requests may get ahead of each other unless --window says otherwise: the value of Coarfa et al.
/// 2006, section 2.2.2.
const WINDOW: u32 = 10_000;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WindowFlag {
    None,
    Places(u32),
    /// The smallest without stalls is looked for.
    Search,
}

impl std::str::FromStr for WindowFlag {
    type Err = String;

    fn from_str(text: &str) -> Result<WindowFlag, String> {
        match (text, text.parse()) {
            ("none", _) => Ok(WindowFlag::None),
            ("search", _) => Ok(WindowFlag::Search),
            (_, Ok(places)) if places > 0 => Ok(WindowFlag::Places(places)),
            _ => Err(format!("`{text}` is no window; write a number of requests from 1, none, or search")),
        }
    }
}

/// What is requested, if it is not just the URL.
#[derive(Clone, Debug, clap::Args)]
pub struct WorkloadFlags {
    /// Users of a synthetic workload; the server must have its files (tlsdyno trace import NAME -o DIR)
    #[arg(long, value_enum, value_name = "NAME", group = "what")]
    workload: Option<WorkloadChoice>,
    /// Replay an access log in common or combined format, plain or gzip, once (or for --duration)
    #[arg(long, value_name = "LOG", group = "what")]
    trace: Option<PathBuf>,
    /// Users visit the pages that a browser recorded (HTTP Archive)
    #[arg(long, value_name = "FILE", group = "what")]
    har: Option<PathBuf>,
    /// Log, recording: the server has the files that `tlsdyno trace import` wrote, not the site's own objects
    #[arg(long)]
    imported: bool,
    /// Recording: the site in it whose requests are made [default: that of its first request]
    #[arg(long, value_name = "https://HOST")]
    har_site: Option<String>,
    /// Department: 1 is the size in the paper, 100,000 hits over 530 MB
    #[arg(long, value_name = "FACTOR", default_value_t = 0.1)]
    #[arg(value_parser = parse_scale)]
    scale: f64,
    #[command(flatten)]
    specweb99: Specweb99Args,
    /// Seed of a synthetic workload.
    #[arg(skip = 1u64)]
    pub seed: u64,
    #[command(flatten)]
    replay: ReplayArgs,
    /// Log: how far requests may get ahead of each other in its order; `none`: as far as their users come; `search`:
    /// replays it again and again until the smallest window is found that lets no connection stall [default:
    /// 10000; at --rate none]
    #[arg(long, value_name = "N|none|search")]
    pub window: Option<WindowFlag>,
    /// Log: each request at the time that it has there, instead of as fast as the server allows: `original`, or a
    /// multiple of that speed as x10 or x0.5; an open loop, whose latency counts from that time
    /// (scheduled_response)
    #[arg(long, value_name = "original|xN", value_parser = parse_timing)]
    pub timing: Option<f64>,
    /// Log: each request carries its place in it, from 0, in the header Trace-Index
    #[arg(long)]
    number_requests: bool,
}

fn parse_scale(text: &str) -> Result<f64, String> {
    let scale = text.parse().ok().filter(|scale| (1e-4..=1e3).contains(scale));
    scale.ok_or_else(|| format!("`{text}` is not a factor from 0.0001 to 1,000"))
}

fn parse_timing(text: &str) -> Result<f64, String> {
    let speed =
        if text == "original" { Some(1.0) } else { text.strip_prefix('x').and_then(|number| number.parse().ok()) };
    speed.filter(|speed| (1e-3..=1e6).contains(speed)).ok_or_else(|| {
        format!("`{text}` is no timing; write original, or a multiple of its speed, x0.001 to x1000000, like x10")
    })
}

impl WorkloadFlags {
    /// The workload, if the load is not just the URL. `users` is what --users says, `connections` what --connections
    /// does.
    pub fn spec(&self, users: Option<u32>, connections: u32) -> Result<Option<WorkloadSpec>> {
        if self.workload.is_none() {
            self.specweb99.ensure_absent("a load without --workload specweb99").or_fault(Fault::Usage)?;
        }
        let mut replay = self.replay.clone();
        let send_methods = if self.har.is_some() { std::mem::take(&mut replay.send_methods) } else { Vec::new() };
        if self.trace.is_none() {
            replay.ensure_absent("a load without --trace LOG").or_fault(Fault::Usage)?;
        }
        let recorded = self.trace.is_some() || self.har.is_some();
        let unused = [
            ("--window", self.window.is_some() && self.trace.is_none(), "--trace"),
            ("--timing", self.timing.is_some() && self.trace.is_none(), "--trace"),
            ("--number-requests", self.number_requests && self.trace.is_none(), "--trace"),
            ("--imported", self.imported && !recorded, "--trace or --har"),
            ("--har-site", self.har_site.is_some() && self.har.is_none(), "--har"),
            (
                "--users",
                users.is_some() && self.trace.is_some(),
                "a workload that is not a log, whose clients are its users",
            ),
        ];
        for (flag, wrong, needs) in unused {
            ensure!(!wrong, "{flag} goes with {needs}; leave it out");
        }
        let names = if self.imported { NamesSpec::Files } else { NamesSpec::AsRecorded };
        if let Some(path) = &self.trace {
            return Ok(Some(self.replay.workload(flags::input(path, "access log")?, names)));
        }
        if let Some(path) = &self.har {
            let defaults = HarSpec::default();
            let users = users.unwrap_or(defaults.users);
            let har = HarSpec { users, origin: self.har_site.clone(), names, send_methods };
            return Ok(Some(WorkloadSpec::Har { path: flags::input(path, "HAR file")?, har }));
        }
        let made = |choice: WorkloadChoice| {
            self.specweb99.applied(choice.spec(users, self.scale, self.seed), connections).or_fault(Fault::Usage)
        };
        self.workload.map(made).transpose()
    }

    /// Takes the log out, with what is left out of it and which field is the client, where it is not to be replayed.
    pub fn take_log(&mut self) -> (Option<PathBuf>, Vec<String>, Option<ClientField>) {
        let Some(path) = self.trace.take() else { return (None, Vec::new(), None) };
        (Some(path), std::mem::take(&mut self.replay.exclude), self.replay.client_field.take())
    }

    pub fn is_given(&self) -> bool {
        self.workload.is_some() || self.trace.is_some() || self.har.is_some()
    }

    /// How far requests may get ahead of each other, and whether they carry their places: both only of a log.
    pub fn window(&self) -> (Option<u32>, bool) {
        let places = match self.window.unwrap_or(WindowFlag::Places(WINDOW)) {
            WindowFlag::Places(places) => Some(places),
            // So wide a window bounds nothing, but its use is reported.
            WindowFlag::None | WindowFlag::Search => Some(u32::MAX),
        };
        (places.filter(|_| self.is_trace()), self.number_requests && self.is_trace())
    }

    /// Whether the smallest window without stalls is to be found.
    pub fn searches_window(&self) -> bool {
        self.is_trace() && self.window == Some(WindowFlag::Search)
    }

    /// Whether the load is a log, which is replayed once unless a time was given.
    pub fn is_trace(&self) -> bool {
        self.trace.is_some()
    }
}
