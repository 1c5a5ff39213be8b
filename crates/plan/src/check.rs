//! Whether predictions hold: what the costs of some records say of the cells of another, beside what was measured.

use anyhow::{Result, bail};
use serde::Serialize;
use tlsdyno_base::bootstrap::{Estimate, estimate_column};
use tlsdyno_base::units::{format_micros, format_quantity};
use tlsdyno_cluster::array::ArrayRecord;
use tlsdyno_cluster::array::summary::ArraySummary;
use tlsdyno_cluster::cluster::file::{ClusterExperiment, Sharing};
use tlsdyno_record::model::Policy;
use tlsdyno_record::store::Record;
use tlsdyno_report::document::Section;
use tlsdyno_report::rows::Rows;
use tlsdyno_stats::reuse::ReuseAxis;
use tlsdyno_stats::rounds::Rounds;

use crate::costs::Costs;
use crate::model::{Machines, Site};

/// Machines that use this part of their CPU time are full.
const FULL: f64 = 0.9;

struct Cell {
    index: usize,
    name: String,
    machines: Machines,
    site: Site,
    /// Requests a second that something else than the machines that end TLS allows.
    limit_per_s: f64,
}

#[derive(Clone, Debug, Serialize)]
pub(crate) struct Checked {
    name: String,
    /// CPU time of the machines that end TLS for a request, nanoseconds: predicted, measured.
    cpu_ns_per_hit: [Estimate; 2],
    /// Requests a second, likewise; `None`: the machines have no quota, or something else was full.
    hits_per_s: Option<[Estimate; 2]>,
}

impl Checked {
    /// How far the prediction is off, as parts of what was measured: CPU per request, requests a second.
    fn off(&self) -> [Option<f64>; 2] {
        let off = |[predicted, measured]: [Estimate; 2]| predicted.value / measured.value - 1.0;
        [Some(off(self.cpu_ns_per_hit)), self.hits_per_s.map(off)]
    }

    fn is_inside(&self) -> bool {
        let [predicted, measured] = self.cpu_ns_per_hit;
        predicted.low <= measured.value && measured.value <= predicted.high
    }
}

/// The cells of a record beside what these costs say of them, but for those of these numbers.
///
/// # Errors
/// It is of neither a cluster nor an array, or no cell of it can be predicted.
pub(crate) fn check(record: &Record, costs: &Costs, without: &[usize]) -> Result<Vec<Checked>> {
    let cells = match record.kind_part.field() {
        "cluster" => of_cluster(record)?,
        "array" => of_array(record)?,
        other => bail!("predictions are checked by records of cluster and array, not of `{other}`"),
    };
    let rounds = Rounds::of(record);
    let others = cells.iter().filter(|cell| !without.contains(&cell.index));
    let checked: Vec<Checked> = others.filter_map(|cell| cell.checked(&rounds, costs)).collect();
    if checked.is_empty() {
        bail!("no cell of record {} can be predicted from these costs", record.id);
    }
    Ok(checked)
}

impl Cell {
    fn checked(&self, rounds: &Rounds<'_>, costs: &Costs) -> Option<Checked> {
        let (ends, place) = self.machines.ends();
        let needs = self.site.needs(self.machines, costs);
        if !costs.missing(&needs.into_iter().filter(|(at, _)| *at == place).collect::<Vec<_>>()).is_empty() {
            return None;
        }
        let cpu = estimate_column(&rounds.cpu(self.index));
        let rate = rounds.values(self.index, |block| Some(block.hits as f64 / (block.elapsed_ns as f64 / 1e9)));
        let predicted = costs.estimate(|drawn| self.site.cpu_ns_of_ends(costs, drawn, self.machines));
        let measured_per_s = estimate_column(&rate);
        let allowed_ns_per_s = f64::from(ends) * self.site.cpus * 1e9;
        // Only machines that were full tell how much they can do.
        let is_full = allowed_ns_per_s > 0.0 && measured_per_s.value * cpu.value > FULL * allowed_ns_per_s;
        let full = |cpu_ns: f64| (allowed_ns_per_s / cpu_ns).min(self.limit_per_s);
        let per_s = Estimate { value: full(predicted.value), low: full(predicted.high), high: full(predicted.low) };
        cpu.value.is_finite().then(|| Checked {
            name: self.name.clone(),
            cpu_ns_per_hit: [predicted, cpu],
            hits_per_s: is_full.then_some([per_s, measured_per_s]),
        })
    }
}

fn of_cluster(record: &Record) -> Result<Vec<Cell>> {
    let experiment = record.kind_part.understood::<ClusterExperiment>()?;
    let all = experiment.cells();
    let cell = |(index, of): (usize, &tlsdyno_cluster::cluster::cell::Cell)| {
        let (Policy::Own(policy), None) = of.way() else { return None };
        let site = Site {
            rate_per_s: 1.0,
            requests_per_connection: f64::from(experiment.traffic.requests_per_connection),
            reuse_fraction: of.reuse_percent / 100.0,
            kilobytes: None,
            cpus: experiment.cluster.backend_cpus.unwrap_or(0.0),
            policy,
            shares_keys: of.sharing == Sharing::TicketKeys,
        };
        let machines = Machines { servers: experiment.cluster.backends, proxies: 0 };
        let name = record.configurations.get(index)?.name.clone();
        (!of.plain && of.rate_per_s.is_none()).then_some(Cell {
            index,
            name,
            machines,
            site,
            limit_per_s: f64::INFINITY,
        })
    };
    Ok(all.iter().enumerate().filter_map(cell).collect())
}

fn of_array(record: &Record) -> Result<Vec<Cell>> {
    let of = record.kind_part.understood::<ArrayRecord>()?;
    let limit_per_s = ArraySummary::of(record)?.pages_per_second();
    let array = &of.experiment.array;
    let cell = |(index, place): (usize, &tlsdyno_cluster::array::file::ArrayPlace)| {
        let reuse = place.percent? / 100.0;
        let (requests_per_connection, reuse) = match array.by {
            ReuseAxis::Hits => (1.0 / (1.0 - reuse), 0.0),
            ReuseAxis::Connections => (1.0, reuse),
        };
        let site = Site {
            rate_per_s: 1.0,
            requests_per_connection,
            reuse_fraction: reuse,
            kilobytes: None,
            cpus: array.machine_cpus,
            // Each client stays at its proxy.
            policy: tlsdyno_engine::dispatch::Policy::SourceAddress,
            shares_keys: false,
        };
        let machines = Machines { servers: 1, proxies: place.proxies };
        let name = record.configurations.get(index)?.name.clone();
        Some(Cell { index, name, machines, site, limit_per_s })
    };
    Ok(of.experiment.places().iter().enumerate().filter_map(cell).collect())
}

/// Median and worst error, per cent, of CPU per request and of requests a second.
fn errors(all: &[Checked]) -> [Option<[f64; 2]>; 2] {
    [0, 1].map(|which| {
        let mut off: Vec<f64> = all.iter().filter_map(|of| of.off()[which]).map(|off| 100.0 * off.abs()).collect();
        off.sort_by(f64::total_cmp);
        Some([tlsdyno_base::robust::quantile(&off, 0.5)?, *off.last()?])
    })
}

pub(crate) fn sentence(all: &[Checked]) -> String {
    let told = |of: Option<[f64; 2]>, what: &str| {
        of.map_or(String::new(), |[median, worst]| format!("{what} median {median:.1} %, worst {worst:.1} %; "))
    };
    let [cpu, rate] = errors(all);
    let inside = all.iter().filter(|of| of.is_inside()).count();
    format!(
        "Errors of {} predicted cells: {}{}{inside} of {} intervals of CPU per hit hold what was measured.",
        all.len(),
        told(cpu, "CPU per hit"),
        told(rate, "hits/s"),
        all.len()
    )
}

pub(crate) fn section(all: &[Checked]) -> Section {
    let off = |part: Option<f64>| part.map_or(String::new(), |part| format!("{:+.1} %", 100.0 * part));
    let rows = Rows::new(all)
        .words("cell", |of| of.name.clone())
        .estimate("predicted µs/hit", format_micros, |of| Some(of.cpu_ns_per_hit[0]))
        .estimate("measured", format_micros, |of| Some(of.cpu_ns_per_hit[1]))
        .number("off", |of| off(of.off()[0]))
        .words("inside", |of| if of.is_inside() { "yes" } else { "no" }.to_owned())
        .number_if_any("predicted hits/s", |of| of.hits_per_s.map(|of| format_quantity(of[0].value)))
        .number_if_any("measured hits/s", |of| of.hits_per_s.map(|of| format_quantity(of[1].value)))
        .number("off", |of| off(of.off()[1]));
    Section::titled("check", "Predicted and measured").text(sentence(all)).rows(rows)
}
