//! How the workload is requested, and how long and where it is measured.

use anyhow::{Result, ensure};
use serde::{Deserialize, Serialize};
use tlsdyno_base::choice::{choice, defaults_of, percent};
use tlsdyno_engine::load::Resumption;
use tlsdyno_tls::Effort;

/// How the workload is requested.
#[derive(clap::Args, Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Load {
    /// Most connections open at once
    #[arg(short, long, value_name = "N", default_value_t = 64)]
    pub connections: u32,
    /// Most connections of one user at once, as browsers have under HTTP/1.1; under HTTP/2 it is one
    #[arg(long, value_name = "N", default_value_t = 4)]
    pub per_user: u32,
    // `None`: none of these.
    /// Send what browsers send: User-Agent, Accept, Accept-Language, and a cookie of so many bytes (0: none)
    #[arg(long, value_name = "COOKIE_BYTES", value_parser = clap::value_parser!(u32).range(..=8192))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub browser_headers: Option<u32>,
    // `None`: as browsers, 100.
    /// Requests at once on a connection of HTTP/2, if the server allows so many [default: 100]
    #[arg(long, value_name = "N")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub streams: Option<u32>,
    /// Open all connections of a page at once instead of waiting for the first handshake (costs more full handshakes)
    #[arg(long)]
    pub all_at_once: bool,
    // `None`: as the workload's pages and users say.
    /// Close each connection after this many requests
    #[arg(long, value_name = "N")]
    pub requests_per_connection: Option<u32>,
    // `None`: as the workload's users do.
    /// Share of connections that resume a session, for example 0% (one hit per full handshake); implies one request
    /// per connection
    #[arg(long = "reuse", id = "reuse", value_name = "P%", value_parser = percent)]
    pub reuse_percent: Option<f64>,
    /// How much the client does
    #[arg(long, value_name = "EFFORT", default_value_t = Effort::Lean, value_parser = choice(Effort::ALL))]
    pub effort: Effort,
    /// Time-out of a connection without progress, milliseconds.
    #[arg(skip = 10_000_u64)]
    pub timeout_ms: u64,
}

impl Default for Load {
    fn default() -> Load {
        defaults_of()
    }
}

impl Load {
    /// When connections resume.
    pub fn reuse(&self) -> Result<Resumption> {
        Ok(match self.reuse_percent {
            None => Resumption::Always,
            Some(0.0) => Resumption::Never,
            Some(percent) => {
                ensure!((0.0..=100.0).contains(&percent), "reuse must lie between 0 and 100 %, not {percent}");
                Resumption::Share(percent / 100.0)
            }
        })
    }

    /// Most connections of one user at once: a browser has one of HTTP/2.
    pub fn width(&self, http2: bool) -> u32 {
        if http2 { 1 } else { self.per_user }
    }

    /// Whether no request has to do with another: each has a connection of its own, and the share of reuse is that of
    /// all connections, whoever makes them.
    pub fn requests_are_alone(&self) -> bool {
        self.requests_per_connection == Some(1) && self.reuse_percent.is_some()
    }
}

/// How long and where it is measured.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Measure {
    /// Bound on the measuring time (warm-up and blocks), seconds.
    pub time_s: f64,
    /// Seed of the order of blocks; `None`: drawn, and kept in the record.
    pub seed: Option<u64>,
    /// Rounds wanted in that time; `None`: chosen, so that blocks are long. Many short blocks give surer intervals,
    /// fewer long ones less overhead.
    pub rounds: Option<u32>,
    /// Blocks of each configuration in a round, which take turns in random order and count as one longer block. On a
    /// machine whose pace changes within a second, several short blocks compare configurations better than a long
    /// one; and with `fresh_servers` they share one server.
    pub turns: u32,
    /// Another server of the configuration for each block, of up to 16 that are started at a time; none is measured
    /// twice. Two starts of one server differ a little (addresses in memory, for example) as long as they live,
    /// and only so does that become part of the intervals.
    pub fresh_servers: bool,
    /// Length of a slice, microseconds: where configurations are modes of one server, CPU time is compared between
    /// slices of equal work of about this length, and only hits per second between blocks. `None`: what the machine's
    /// last calibration found better, else [`Measure::SLICE_US`]; 0: there are no slices.
    pub slice_us: Option<u64>,
    /// Blocks tell hits per second at saturation beside what slices tell. Without them all of the time is for CPU time
    /// per hit; where nothing is measured in slices, there are blocks in any case.
    pub blocks: bool,
    /// Measuring ends before its time when the interval of every share of CPU time is no wider than this to either
    /// side, in percentage points. Looked at after each round (docs/METHODOLOGY.md, "Stopping by precision").
    pub until_percent: Option<f64>,
    /// CPU of the server; `None`: chosen.
    pub server_cpu: Option<usize>,
    /// CPU of the load; `None`: chosen.
    pub load_cpu: Option<usize>,
}

impl Measure {
    /// Length of a slice by default, microseconds: long enough that the server is not woken up for a few connections
    /// only, and short enough that the machine has not changed when the next one comes.
    pub const SLICE_US: u64 = 5_000;
}

impl Default for Measure {
    fn default() -> Measure {
        Measure {
            time_s: 180.0,
            seed: None,
            rounds: None,
            turns: 1,
            fresh_servers: false,
            slice_us: None,
            blocks: true,
            until_percent: None,
            server_cpu: None,
            load_cpu: None,
        }
    }
}
