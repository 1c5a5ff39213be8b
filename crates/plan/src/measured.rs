//! What records say of CPU time and of the work that was done for it: a row for each block.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Result, bail, ensure};
use serde::{Deserialize, Serialize};
use tlsdyno_base::bootstrap::estimate_sum;
use tlsdyno_base::exchange::Reach;
use tlsdyno_base::units::format_of;
use tlsdyno_cluster::array::ArrayRecord;
use tlsdyno_cost::choice::{Choice, Told, reversed};
use tlsdyno_cost::file::Measure;
use tlsdyno_cost::steps::{Resumed, StepId};
use tlsdyno_cost::{CostRecord, Measured};
use tlsdyno_record::model::{ConfigurationModel, Experiment};
use tlsdyno_record::store::{Block, Machine, Record, Role};
use tlsdyno_stats::rounds::Rounds;
use tlsdyno_stats::statement::FEW_ROUNDS;
use tlsdyno_tls::{Stage, Version};

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
    pub const ALL: [Place; 5] = [Place::Server, Place::Plain, Place::Proxy, Place::Behind, Place::Dispatcher];

    pub fn told(self) -> &'static str {
        match self {
            Place::Server => "server",
            Place::Plain => "server without TLS",
            Place::Proxy => "proxy that ends TLS",
            Place::Behind => "server behind proxies",
            Place::Dispatcher => "dispatcher",
        }
    }

    pub fn measured_by(self, term: Term) -> &'static str {
        match self {
            Place::Server if term == Term::Request => "tlsdyno cost https://…",
            Place::Server | Place::Plain if term == Term::Kilobyte => "tlsdyno cost https://… --page /a-large-one",
            Place::Server => "tlsdyno cost https://…, or tlsdyno cluster --reuse 0,50,100",
            Place::Plain => "tlsdyno cost https://… --plain-url http://…, or tlsdyno ablate",
            Place::Proxy | Place::Behind => "tlsdyno array --proxies 1,2 --reuse 0,50,90",
            Place::Dispatcher => "tlsdyno cluster --policies round-robin,session",
        }
    }
}

/// What is done for users: counts of whatever costs CPU time. By [`Term`].
pub type Work = [f64; 4];

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Term {
    /// A connection with a full handshake; where there is no TLS, or it only passes, a connection.
    Full,
    /// A connection with a resumed handshake.
    Resumed,
    /// A request with its response.
    Request,
    /// 1000 bytes of bodies.
    Kilobyte,
}

impl Term {
    pub const ALL: [Term; 4] = [Term::Full, Term::Resumed, Term::Request, Term::Kilobyte];

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
    pub place: Place,
    /// Index of the configuration among those of the record.
    pub cell: usize,
    pub round: u32,
    pub work: Work,
    pub cpu_ns: f64,
    /// Requests a second on a machine of this place; 0: not known.
    pub rate_per_s: f64,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Source {
    pub id: String,
    /// Its id, and what it is of.
    pub name: String,
    pub server: String,
    pub machine: Option<Machine>,
    pub told: Told,
    pub rows: Vec<Row>,
}

impl Source {
    /// Of a record, with these cells only; `None`: with all.
    ///
    /// # Errors
    /// It is of a kind that tells nothing of the cost of connections, holds no usable block, or too few of a cell.
    pub fn of(record: &Record, cells: Option<&[usize]>) -> Result<Source> {
        let rounds = Rounds::of(record);
        let mut rows = match record.kind_part.field() {
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
        rows.retain(|row| cells.is_none_or(|cells| cells.contains(&row.cell)));
        let (server, machine) = (record.manifest.server_name.clone(), record.manifest.machine.clone());
        let kind = match record.kind_part.field() {
            "experiment" => "ablate",
            other => other,
        };
        let told = match record.kind_part.of::<CostRecord>() {
            Some(of) => of.servers.first().map_or_else(Told::default, |server| Told::of(server, &rounds)),
            None => told_of(record, &rounds),
        };
        refuse_thin(record, &rows)?;
        Ok(Source { id: record.id.clone(), name: format!("{kind} {}", record.id), server, machine, told, rows })
    }
}

/// Cells of few rounds have no interval that could be believed.
fn refuse_thin(record: &Record, rows: &[Row]) -> Result<()> {
    let mut rounds: BTreeMap<usize, BTreeSet<u32>> = BTreeMap::new();
    for row in rows {
        rounds.entry(row.cell).or_default().insert(row.round);
    }
    let Some((cell, rounds)) = rounds.into_iter().min_by_key(|(_, rounds)| rounds.len()) else { return Ok(()) };
    ensure!(
        rounds.len() >= FEW_ROUNDS as usize,
        "`{}` was measured in {}, and an interval takes {FEW_ROUNDS}; on a machine that does little else: {}",
        record.configurations[cell].name,
        format_of(rounds.len() as f64, "round"),
        match record.kind_part.of::<CostRecord>() {
            Some(of) => format!("tlsdyno cost {} --time 120", of.experiment.cost.url),
            None => "the same command with a longer --time".to_owned(),
        }
    );
    Ok(())
}

/// What configurations tell: those in which one choice is another than in the server as it is, or signatures are off.
fn told_of(record: &Record, rounds: &Rounds<'_>) -> Told {
    let mut told = Told { agreed: Choice::in_text(&record.manifest.negotiated), ..Told::default() };
    let key = record.manifest.certificate.split_whitespace().next().and_then(|word| word.parse().ok());
    told.agreed.extend(key.map(Choice::Certificate));
    let configurations = &record.configurations;
    let Some(as_is) = configurations.iter().position(|of| of.role == Role::AsIs) else { return told };
    let [hits, full] = [|of: &Block| of.hits, |of: &Block| of.handshakes_full]
        .map(|field| rounds.of_configuration(as_is).map(field).sum::<u64>() as f64);
    let models = record.kind_part.of::<Experiment>().map_or(&[][..], |of| &of.configurations);
    for (index, of) in configurations.iter().enumerate().filter(|(index, of)| of.valid && *index != as_is) {
        let terms = [(&rounds.cpu(index), 1.0), (&rounds.cpu(as_is), -1.0)];
        let more_ns = estimate_sum(&terms).scaled(hits / full);
        let is_unsigned = of.role == Role::StageOff(Stage::Authentication) && more_ns.value.is_finite();
        told.signature_ns = told.signature_ns.or(is_unsigned.then(|| reversed(more_ns)));
        let to = models.iter().find(|model| model.name == of.name).and_then(only_choice);
        let to = to.filter(|_| more_ns.value.is_finite());
        let from = to.and_then(|to| told.agreed.iter().copied().find(|from| from.is_like(to)));
        told.differences.extend(from.zip(to).map(|(from, to)| (from, to, more_ns)));
    }
    told
}

/// The one choice in which a configuration differs from the experiment's; `None`: it differs in more, or in others.
fn only_choice(model: &ConfigurationModel) -> Option<Choice> {
    let (name, tls) = (model.name.clone(), model.tls.clone());
    let alone = ConfigurationModel { name, tls, ..ConfigurationModel::default() };
    Choice::of_change(&model.tls).filter(|_| alone == *model)
}

/// Rows of whole blocks: of the machines that end TLS, and of whoever stands before and behind them.
fn of_cells(record: &Record, rounds: &Rounds<'_>, place: &dyn Fn(usize) -> Option<Place>) -> Vec<Row> {
    let of_block = |(cell, block): (usize, &Block)| {
        let parts = block.cluster.as_ref();
        let fronts = parts.map_or(&[][..], |of| &of.front_ends[..]);
        // Front ends that end TLS are proxies, and what they ask for stands behind them.
        let place = match place(cell)? {
            Place::Server if !fronts.is_empty() => Place::Proxy,
            place => place,
        };
        let [requests, kilobytes] = [block.hits as f64, block.body_bytes as f64 / 1e3];
        let connections = block.connections.max(block.handshakes_full + block.resumed_accepted) as f64;
        let handshakes = match place {
            Place::Plain => [connections, 0.0],
            _ => [block.handshakes_full as f64, block.resumed_accepted as f64],
        };
        let machines = if fronts.is_empty() { parts.map_or(1, |of| of.backends.len().max(1)) } else { fronts.len() };
        let per_s = requests / (block.elapsed_ns as f64 / 1e9);
        let row = |place, [full, resumed]: [f64; 2], cpu_ns: u64, rate_per_s| {
            let work = [full, resumed, requests, kilobytes];
            (cpu_ns > 0).then_some(Row { place, cell, round: block.round, work, cpu_ns: cpu_ns as f64, rate_per_s })
        };
        let dispatcher_ns = parts.map_or(0, |of| of.dispatcher_cpu_ns);
        let behind_ns = match place {
            Place::Proxy if fronts.is_empty() => block.companion_cpu_ns,
            Place::Proxy => parts.map_or(0, |of| of.backends.iter().map(|machine| machine.cpu_ns).sum()),
            _ => 0,
        };
        let ends_ns = if fronts.is_empty() { block.server_cpu_ns } else { fronts.iter().map(|of| of.cpu_ns).sum() };
        Some([
            row(place, handshakes, ends_ns, per_s / machines as f64),
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
    let is_of_time = of.experiment.cost.measure == Measure::Time;
    ensure!(is_of_time, "record {} tells memory or locks; give one of cost with CPU time", record.id);
    let Some(server) = of.servers.first().filter(|server| server.is_seen()) else { return Ok(Vec::new()) };
    let mut rows = Vec::new();
    for (cell, step) in server.steps.iter().map(|step| &step.id).enumerate() {
        let Some((place, [full, resumed, requests, _])) = work_of(step, server.version()) else { continue };
        // Records of old hold the bytes of the last answer of a connection only.
        let kilobytes = requests * page_kilobytes(server, rounds, &step.page).unwrap_or(0.0);
        let work = [full, resumed, requests, kilobytes];
        let row = |(round, cpu): (usize, Option<f64>)| {
            Some(Row { place, cell, round: round as u32, work, cpu_ns: cpu?, rate_per_s: 0.0 })
        };
        rows.extend(rounds.cpu(cell).into_iter().enumerate().filter_map(row));
    }
    Ok(rows)
}

/// Kilobytes of an answer of this page, by connections with one request; `None`: there are none.
fn page_kilobytes(server: &Measured, rounds: &Rounds<'_>, page: &str) -> Option<f64> {
    let is_of = |step: &StepId| step.page == page && step.reach == Reach::Answered && step.more_requests == 0;
    let cell = server.steps.iter().position(|step| is_of(&step.id))?;
    let [connections, bytes] = [|of: &Block| of.connections, |of: &Block| of.body_bytes]
        .map(|field| rounds.of_configuration(cell).map(field).sum::<u64>() as f64);
    (connections > 0.0).then_some(bytes / connections / 1e3)
}

/// What a connection of this step is made of; `None`: more or less than handshakes and requests of the usual kind.
fn work_of(step: &StepId, version: Option<Version>) -> Option<(Place, Work)> {
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

#[cfg(test)]
mod tests;
