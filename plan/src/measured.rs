//! What records say of CPU time and of the work that was done for it: a row for each block.

use anyhow::{Result, bail};
use serde::{Deserialize, Serialize};
use tlsdyno_base::bootstrap::{Estimate, estimate_sum};
use tlsdyno_base::exchange::Reach;
use tlsdyno_cluster::array::ArrayRecord;
use tlsdyno_cost::CostRecord;
use tlsdyno_cost::steps::{Resumed, Step};
use tlsdyno_cost::summary::CostSummary;
use tlsdyno_record::store::{Block, Configuration, Record, Role};
use tlsdyno_stats::rounds::Rounds;
use tlsdyno_tls::Version;

/// Where CPU time is spent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Place {
    /// A server that ends TLS itself.
    Server,
    /// A server without TLS.
    Plain,
    /// A proxy that ends TLS.
    Proxy,
    /// The plain server behind proxies.
    Behind,
    /// A dispatcher that passes TLS through.
    Dispatcher,
}

impl Place {
    /// All of them.
    pub const ALL: [Place; 5] = [Place::Server, Place::Plain, Place::Proxy, Place::Behind, Place::Dispatcher];

    /// In words.
    pub fn told(self) -> &'static str {
        match self {
            Place::Server => "server",
            Place::Plain => "server without TLS",
            Place::Proxy => "proxy that ends TLS",
            Place::Behind => "server behind proxies",
            Place::Dispatcher => "dispatcher",
        }
    }

    /// The command that measures what such work costs there.
    pub fn measured_by(self, term: Term) -> &'static str {
        match self {
            Place::Server if term == Term::Request => "tlsdyno cost https://…",
            Place::Server => "tlsdyno cost https://…, or tlsdyno cluster --reuse 0,50,100",
            Place::Plain => "tlsdyno cost https://… --plain-url http://…, or tlsdyno ablate",
            Place::Proxy | Place::Behind => "tlsdyno array --proxies 1,2 --reuse 0,50,90",
            Place::Dispatcher => "tlsdyno cluster --policies round-robin,session",
        }
    }
}

/// What is done for users: counts of whatever costs CPU time. By [`Term`].
pub type Work = [f64; 4];

/// A kind of work.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Term {
    /// A connection with a full handshake; where there is no TLS, or it only passes, a connection.
    Full,
    /// A connection with a resumed one.
    Resumed,
    /// A request with its response.
    Request,
    /// 1000 bytes of bodies.
    Kilobyte,
}

impl Term {
    /// All of them.
    pub const ALL: [Term; 4] = [Term::Full, Term::Resumed, Term::Request, Term::Kilobyte];

    /// In words.
    pub fn told(self, place: Place) -> &'static str {
        match (self, place) {
            (Term::Full, Place::Server | Place::Proxy) => "connection with a full handshake",
            (Term::Full, _) => "connection",
            (Term::Resumed, _) => "connection with a resumed handshake",
            (Term::Request, _) => "request",
            (Term::Kilobyte, _) => "kilobyte",
        }
    }
}

/// CPU time and the work that it was spent on, of one configuration in one round.
#[derive(Clone, Debug, PartialEq)]
pub struct Row {
    /// Where.
    pub place: Place,
    /// Index of the configuration among those of the record.
    pub cell: usize,
    /// The round.
    pub round: u32,
    /// What was done.
    pub work: Work,
    /// CPU time, nanoseconds.
    pub cpu_ns: f64,
    /// Requests a second on a machine of this place; 0: not known.
    pub rate_per_s: f64,
}

/// What one record says.
#[derive(Clone, Debug, PartialEq)]
pub struct Source {
    /// The record.
    pub id: String,
    /// Its id, and what it is of.
    pub name: String,
    /// What it was measured on: server, version, certificate, processor.
    pub subject: [String; 4],
    /// Its rows.
    pub rows: Vec<Row>,
    /// What something else costs more, by its name, nanoseconds for each full handshake.
    pub differences: Vec<(String, Estimate)>,
}

impl Source {
    /// The same with these cells only; `None`: with all.
    #[must_use]
    pub fn of_cells(mut self, cells: Option<&[usize]>) -> Source {
        self.rows.retain(|row| cells.is_none_or(|cells| cells.contains(&row.cell)));
        self
    }

    /// Of a record.
    ///
    /// # Errors
    /// It is of a kind that tells nothing of the cost of connections, or holds no usable block.
    pub fn of(record: &Record) -> Result<Source> {
        let rounds = Rounds::of(record);
        let rows = match record.kind_part.field() {
            "cost" => of_cost(record, &rounds)?,
            "experiment" => of_cells(record, &rounds, &|index| match record.configurations[index].role {
                Role::AsIs => Some(Place::Server),
                Role::PlainHttp => Some(Place::Plain),
                _ => None,
            }),
            "cluster" | "load" => of_cells(record, &rounds, &|index| {
                Some(if record.configurations[index].tls { Place::Server } else { Place::Plain })
            }),
            "array" => {
                let places = record.kind_part.understood::<ArrayRecord>()?.experiment.places();
                of_cells(record, &rounds, &|index| {
                    places.get(index).map(|place| match (place.percent, place.proxies) {
                        (None, _) => Place::Plain,
                        (_, 0) => Place::Server,
                        _ => Place::Proxy,
                    })
                })
            }
            other => bail!(
                "a record of `{other}` does not tell what connections cost; give one of cost, ablate, \
                            cluster or array"
            ),
        };
        if rows.is_empty() {
            bail!("record {} holds no usable block with CPU time of a server", record.id);
        }
        let of = &record.manifest;
        let subject = [&of.server_name, &of.negotiated, &of.certificate, &of.cpu_model].map(String::clone);
        let kind = match record.kind_part.field() {
            "experiment" => "ablate",
            other => other,
        };
        let differences = differences(record, &rounds)?;
        Ok(Source { id: record.id.clone(), name: format!("{kind} {}", record.id), subject, rows, differences })
    }
}

/// What configurations cost more than the server as it is, or what a record of costs says of choices and parts.
fn differences(record: &Record, rounds: &Rounds<'_>) -> Result<Vec<(String, Estimate)>> {
    if record.kind_part.field() == "cost" {
        let summary = CostSummary::of(record)?;
        let parts = summary.servers.into_iter().take(1).flat_map(|server| server.parts);
        return Ok(parts.map(|of| (of.part, of.cost_ns)).collect());
    }
    let configurations = &record.configurations;
    let Some(as_is) = configurations.iter().position(|of| of.role == Role::AsIs) else { return Ok(Vec::new()) };
    let [hits, full] = [|of: &Block| of.hits, |of: &Block| of.handshakes_full]
        .map(|field| rounds.of_configuration(as_is).map(field).sum::<u64>() as f64);
    let more = |(index, of): (usize, &Configuration)| {
        let less = rounds.cpu(as_is);
        let more = estimate_sum(&[(&rounds.cpu(index), 1.0), (&less, -1.0)]).scaled(hits / full);
        (of.valid && index != as_is && more.value.is_finite()).then(|| (of.name.clone(), more))
    };
    Ok(configurations.iter().enumerate().filter_map(more).collect())
}

/// Rows of whole blocks: of the machines that end TLS, and of whoever stands before and behind them.
fn of_cells(record: &Record, rounds: &Rounds<'_>, place: &dyn Fn(usize) -> Option<Place>) -> Vec<Row> {
    let of_block = |(cell, block): (usize, &Block)| {
        // Where front ends end TLS, no machine does all that is counted.
        let place = place(cell).filter(|_| block.cluster.as_ref().is_none_or(|of| of.front_ends.is_empty()))?;
        let [requests, kilobytes] = [block.hits as f64, block.body_bytes as f64 / 1e3];
        let connections = block.connections.max(block.handshakes_full + block.resumed_accepted) as f64;
        let handshakes = match place {
            Place::Plain => [connections, 0.0],
            _ => [block.handshakes_full as f64, block.resumed_accepted as f64],
        };
        let machines = block.cluster.as_ref().map_or(1, |of| of.backends.len().max(1)) as f64;
        let per_s = requests / (block.elapsed_ns as f64 / 1e9);
        let row = |place, [full, resumed]: [f64; 2], cpu_ns: u64, rate_per_s| {
            let work = [full, resumed, requests, kilobytes];
            (cpu_ns > 0).then_some(Row { place, cell, round: block.round, work, cpu_ns: cpu_ns as f64, rate_per_s })
        };
        let dispatcher_ns = block.cluster.as_ref().map_or(0, |of| of.dispatcher_cpu_ns);
        let behind_ns = if place == Place::Proxy { block.companion_cpu_ns } else { 0 };
        Some([
            row(place, handshakes, block.server_cpu_ns, per_s / machines),
            row(Place::Behind, [0.0, 0.0], behind_ns, per_s),
            row(Place::Dispatcher, [connections, 0.0], dispatcher_ns, per_s),
        ])
    };
    let blocks =
        (0..record.configurations.len()).flat_map(|cell| rounds.of_configuration(cell).map(move |block| (cell, block)));
    blocks.filter_map(of_block).flatten().flatten().collect()
}

/// Rows of the steps of a connection, each of one connection: of the first server.
fn of_cost(record: &Record, rounds: &Rounds<'_>) -> Result<Vec<Row>> {
    let of = record.kind_part.understood::<CostRecord>()?;
    let Some(server) = of.servers.first().filter(|server| server.is_seen()) else { return Ok(Vec::new()) };
    let version = Version::ALL.into_iter().find(|version| server.whole.starts_with(&format!("TLS {version}")));
    let mut rows = Vec::new();
    for (cell, step) in server.steps.iter().enumerate() {
        let Some((place, work)) = work_of(step, version) else { continue };
        let blocks = || rounds.of_configuration(cell);
        let [connections, bytes] = [|of: &Block| of.connections, |of: &Block| of.body_bytes]
            .map(|field| blocks().map(field).sum::<u64>() as f64);
        let work = [work[0], work[1], work[2], bytes / connections.max(1.0) / 1e3];
        let row = |(round, cpu): (usize, Option<f64>)| {
            Some(Row { place, cell, round: round as u32, work, cpu_ns: cpu?, rate_per_s: 0.0 })
        };
        rows.extend(rounds.cpu(cell).into_iter().enumerate().filter_map(row));
    }
    Ok(rows)
}

/// What a connection of this step is made of; `None`: more or less than handshakes and requests of the usual kind.
fn work_of(step: &Step, version: Option<Version>) -> Option<(Place, Work)> {
    let is_usual = step.lack.is_none() && step.group.is_none() && step.suite.is_none() && step.signer.is_none();
    let requests = match step.reach {
        Reach::Finished => 0.0,
        Reach::Answered => f64::from(1 + step.more_requests),
        _ => return None,
    };
    let place = match step.version {
        None => Place::Plain,
        of_step if of_step == version => Place::Server,
        Some(_) => return None,
    };
    let handshake = match step.resumes {
        None => [1.0, 0.0],
        Some(Resumed::Ticket) => [0.0, 1.0],
        Some(_) => return None,
    };
    is_usual.then_some((place, [handshake[0], handshake[1], requests, 0.0]))
}
