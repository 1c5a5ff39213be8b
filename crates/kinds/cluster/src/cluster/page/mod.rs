//! A cluster experiment as a document: its policies, cell by cell.

mod charts;
mod checks;
mod front_ends;
mod locality;

use std::collections::BTreeSet;

use tlsdyno_base::histogram::Percentiles;
use tlsdyno_base::units::{NONE, format_count, format_micros, format_percent, format_quantity, format_tenths};
use tlsdyno_record::model::{Policy, PublishedNumber, Quantity};
use tlsdyno_record::store::Record;
use tlsdyno_report::rows::Rows;
use tlsdyno_runner::report::circumstances::{self, server_text};
use tlsdyno_runner::report::document::{Document, Medium, Method, Section, Tone};
use tlsdyno_runner::report::text::{ratio_columns, ratio_times};
use tlsdyno_runner::report::{cells, published};
use tlsdyno_stats::scoreboard::Unit;
use tlsdyno_stats::{Direction, Ratio, papers};

use crate::cluster::cell::PLAIN_HTTP;
use crate::cluster::file::ClusterExperiment;
use crate::cluster::load_checks::DUE_PHASE;
use crate::cluster::summary::{Against, CellSummary, ClusterSummary};

pub fn document(record: &Record, summary: &ClusterSummary) -> Document {
    let parts: Vec<(String, Vec<String>)> = summary.cells.iter().map(own_warnings).collect();
    let mut warnings = circumstances::texts(&summary.warnings, parts.iter().map(|(name, texts)| (name, texts)));
    warnings.extend(unserved(summary));
    let open_loop = summary.cells.iter().any(|cell| cell.cell.rate_per_s.is_some());
    let charts = Section::default().on(Medium::Page).charts(charts::all(summary));
    let table = if summary.has_one_server() { points(summary) } else { table(summary) };
    let mut sections: Vec<Section> = setting(record).into_iter().chain([charts, table]).collect();
    sections.extend(front_ends::section(summary));
    sections.extend(locality::section(summary));
    sections.extend(time_outs(record, summary));
    sections.extend(checks::section(summary));
    sections.push(circumstances::warnings(warnings));
    sections.extend(paper(summary));
    circumstances::document(record, summary.rounds, answer(summary), sections, Method::Cluster { open_loop })
}

/// The warnings of a cell but for what it did not serve, which is told of all together.
fn own_warnings(cell: &CellSummary) -> (String, Vec<String>) {
    let unserved = cell.unserved_warning().map(|warning| warning.to_string());
    let own = cell.measured.warnings.iter().filter(|text| Some(*text) != unserved.as_ref());
    (cell.measured.name.clone(), own.cloned().collect())
}

/// What was not served in time, of all cells in one sentence: a sweep of rates is to end where that begins.
fn unserved(summary: &ClusterSummary) -> Option<String> {
    let behind: Vec<&CellSummary> = summary.cells.iter().filter(|cell| cell.fell_behind()).collect();
    match behind[..] {
        [] => None,
        [one] => one.unserved_warning().map(|warning| format!("{}: {warning}", one.measured.name)),
        _ => Some(format!(
            "in {} of {} cells requests that were due found no client free in time, and are in no latency (≥ stands \
             before it): the cluster does not keep up there, or these are too few clients for its latency. Where none \
             should, give lower --rates or more --clients",
            behind.len(),
            summary.cells.len()
        )),
    }
}

fn setting(record: &Record) -> Option<Section> {
    let manifest = &record.manifest;
    let cluster = manifest.hardware.get("cluster")?;
    let protocol = match record.kind_part.of::<ClusterExperiment>().is_some_and(|experiment| experiment.cluster.plain) {
        true => "plain HTTP".to_owned(),
        false => format!("TLS {}", manifest.negotiated),
    };
    let said = format!("{}, {protocol}: {cluster}.", server_text(manifest));
    Some(Section::default().text(said))
}

/// Sessions kept by the dispatcher's time-outs beside the closed form. `None` unless clients pause between connections.
fn time_outs(record: &Record, summary: &ClusterSummary) -> Option<Section> {
    let experiment = record.kind_part.of::<ClusterExperiment>()?;
    let pause_s = experiment.traffic.pause_ms? as f64 / 1e3;
    let server_s = f64::from(experiment.tls.session_timeout_s?);
    // Servers and dispatcher count whole seconds, so that a second is half over on average when they begin.
    let counted = |seconds: f64| seconds - 0.5;
    let closed_form = |cell: &CellSummary, dispatcher_s: u32| {
        let [known_s, routed_s] = [server_s, f64::from(dispatcher_s)].map(counted);
        let backends = f64::from(experiment.cluster.backends);
        papers::kept_by_time_outs(known_s, routed_s, pause_s, backends, cell.mean_block_ns / 1e9)
    };
    let percent = |part: Option<f64>| part.map_or(NONE.to_owned(), |part| format_percent(100.0 * part));
    let of_known = |(seconds, cell): &(u32, &CellSummary)| {
        let known = closed_form(cell, *seconds)?.known;
        Some(cell.accepted_percent_of_offered.scaled(1.0 / known))
    };
    let timed = |cell: &CellSummary| cell.cell.dispatcher_timeout_s.filter(|_| cell.measured.blocks > 0);
    let cells: Vec<(u32, &CellSummary)> = summary.cells.iter().filter_map(|cell| Some((timed(cell)?, cell))).collect();
    let rows = Rows::new(&cells)
        .words("dispatcher remembers for", |(seconds, _)| format!("{seconds} s"))
        .number("accepted", |(_, cell)| format_percent(cell.accepted_percent_of_offered.value))
        .interval(format_tenths, |(_, cell)| Some(cell.accepted_percent_of_offered))
        .number("closed form", |(seconds, cell)| percent(closed_form(cell, *seconds).map(|of| of.accepted)))
        .number("of those still had", |of| percent(of_known(of).map(|of| of.value / 100.0)))
        .interval(format_tenths, of_known)
        .number("offered", |(_, cell)| format_count(cell.measured.resumed_offered));
    let note = format!(
        "Servers keep a session for {server_s} s from its full handshake; clients come back after exponential pauses \
         of {pause_s} s on average. closed form: offers are a Poisson process, accepted while server and dispatcher \
         know the session, by chance while only the server does; both count whole seconds, and a block begins with a \
         new session of each client. of those still had: accepted, of the offered sessions that a server still had, \
         whose part is from the same form."
    );
    let section = Section::titled("time-outs", "Time-outs of dispatcher and servers");
    (!cells.is_empty()).then(|| section.rows(rows).notes([note]))
}

fn paper(summary: &ClusterSummary) -> Option<Section> {
    let paper = summary.paper.as_ref()?;
    let point = |(reuse, _, latency): (&str, &str, PublishedNumber)| {
        let rate = paper.first(Quantity::HitsPerS, reuse)?.mean();
        let plain = paper
            .first(Quantity::HitsPerS, PLAIN_HTTP)
            .map(|plain| format!(", {} of plain HTTP", format_percent(100.0 * rate / plain.mean())));
        let of_plain = plain.unwrap_or_default();
        let ms = Unit::Milliseconds.told(latency);
        Some(format!("Published, {reuse}: {ms} at {} requests/s{of_plain}.", format_quantity(rate)))
    };
    let points = paper.all(Quantity::LatencyMs).filter_map(point);
    Some(points.fold(published::section(paper, &summary.claims), Section::text))
}

/// The table of one server without a dispatcher: the points of its lines, then what they are checked with.
fn points(summary: &ClusterSummary) -> Section {
    let rows = Rows::new(&summary.cells)
        .words("", |cell| cell.traffic.clone())
        .number("hits/s", |cell| cells::hits(&cell.measured))
        .interval(format_quantity, |cell| Some(cell.measured.hits_per_second))
        .number("accepted", |cell| format_percent(cell.accepted_percent_of_offered.value))
        .number("µs/hit", |cell| format_micros(cell.measured.server_cpu_ns_per_hit.value))
        .on(Medium::Page, |rows| rows.interval(format_micros, |cell| Some(cell.measured.server_cpu_ns_per_hit)))
        .number("mean", |cell| latency(cell, |found| found.mean))
        .number("p50", |cell| latency(cell, |found| found.p50))
        .number("p99", |cell| latency(cell, |found| found.p99))
        .on(Medium::Page, |rows| rows.number("blocks", |cell| cells::blocks(&cell.measured)))
        .toned(Tone::Muted, |cell| !cell.is_point())
        .toned(Tone::Bad, |cell| !cell.measured.valid);
    let meaning = format!(
        "accepted: of the sessions offered again. µs/hit: CPU of the server. Latency counts from the time at which a \
         request was due. 95 %: confidence interval, from {} rounds.",
        summary.rounds
    );
    Section::default().rows(rows).notes([meaning].into_iter().chain(bounds(summary)))
}

/// What a sign before a number means, where one stands.
fn bounds(summary: &ClusterSummary) -> impl Iterator<Item = String> {
    let any = |is: fn(&CellSummary) -> bool| summary.cells.iter().any(is);
    let behind = any(CellSummary::fell_behind)
        .then(|| "≥ before a latency: not all were served that were due, and these are in no latency.".to_owned());
    let bound = any(|cell| cell.measured.client_bound).then(|| {
        let dispatcher = if summary.has_one_server() { "" } else { " or of the dispatcher" };
        format!("≥ before hits/s: the CPU of the load{dispatcher} was full.")
    });
    behind.into_iter().chain(bound)
}

fn table(summary: &ClusterSummary) -> Section {
    let is_undecided = |cell: &CellSummary| {
        let against = cell.against.as_ref().map(|against| against.hits_per_second.direction);
        against == Some(Direction::Undecided)
    };
    let ratio = |cell: &CellSummary, of: fn(&Against) -> &Ratio| {
        cell.against.as_ref().map(|against| ratio_columns(of(against))).unwrap_or_default()
    };
    let of_dispatcher =
        |cell: &CellSummary| Some(cell.dispatcher_cpu_ns_per_connection).filter(|_| cell.cell.policy != Policy::Direct);
    let rows = Rows::new(by_traffic(summary))
        .words("", |cell| format!("  {}", cell.cell.way_name()))
        .toned(Tone::Bad, |cell| !cell.measured.valid)
        .on(Medium::Page, |rows| rows.number("offered", |cell| format_count(cell.measured.resumed_offered)))
        .number("accepted", |cell| format_percent(cell.accepted_percent_of_offered.value))
        .on(Medium::Page, |rows| rows.interval(format_tenths, |cell| Some(cell.accepted_percent_of_offered)))
        .number("hits/s", |cell| cells::hits(&cell.measured))
        .on(Medium::Page, |rows| rows.interval(format_quantity, |cell| Some(cell.measured.hits_per_second)))
        .pair("times", |cell| ratio(cell, |against| &against.hits_per_second))
        .last_toned(2, Tone::Muted, is_undecided)
        .estimate("µs/hit", format_micros, |cell| Some(cell.measured.server_cpu_ns_per_hit))
        .on(Medium::Page, |rows| rows.pair("CPU times", |cell| ratio(cell, |against| &against.by_cpu)))
        .number("µs/conn", |cell| of_dispatcher(cell).map_or(NONE.to_owned(), |of| format_micros(of.value)))
        .on(Medium::Page, |rows| rows.interval(format_micros, of_dispatcher))
        .number("p50", |cell| latency(cell, |found| found.p50))
        .number("p99", |cell| latency(cell, |found| found.p99))
        .number("busiest", |cell| format_percent(cell.busiest_percent.value))
        .on(Medium::Page, |rows| rows.number("blocks", |cell| cells::blocks(&cell.measured)))
        .headed(|cell| Some(cell.traffic.clone()));
    let baselines: BTreeSet<&str> =
        summary.cells.iter().filter_map(|cell| Some(&*cell.against.as_ref()?.baseline)).collect();
    let baseline = baselines.into_iter().collect::<Vec<_>>().join(", or of ");
    let backends = summary.cells.iter().map(|cell| cell.backends.len()).max().unwrap_or(1).max(1);
    let meaning = format!(
        "accepted: of the sessions offered again. times: hits/s by those of {baseline} in the same round. µs/hit: CPU \
         of all backends{}; µs/conn: CPU of the dispatcher. busiest: connections that the busiest backend got ({} is \
         even). 95 %: confidence interval, from {} rounds.",
        if summary.has_front_ends() { " and front ends" } else { "" },
        format_percent(100.0 / backends as f64),
        summary.rounds
    );
    Section::default().rows(rows).notes([meaning].into_iter().chain(bounds(summary)))
}

/// The cells with those of one traffic behind each other, so that policies are compared line by line.
fn by_traffic(summary: &ClusterSummary) -> Vec<&CellSummary> {
    let mut cells: Vec<&CellSummary> = Vec::new();
    for first in &summary.cells {
        if cells.iter().all(|cell| cell.cell != first.cell) {
            let alike = summary.cells.iter().filter(|other| other.cell.has_traffic_of(&first.cell));
            cells.extend(alike);
        }
    }
    cells
}

fn latency_phase(cell: &CellSummary) -> &'static str {
    if cell.cell.rate_per_s.is_some() { DUE_PHASE } else { "whole_response" }
}

/// The answer in a sentence or two: what the policy that keeps most sessions makes of the cluster. The traffic is that
/// of the first cell with the largest load, which saturates most, and the highest reuse below 100 % (at 100 % nobody
/// new comes): chosen before anything is measured, not by what came out.
pub fn answer(summary: &ClusterSummary) -> String {
    if summary.has_one_server() {
        return saturations(summary);
    }
    if let Some(said) = front_ends::answer(summary).or_else(|| by_time_out(summary)) {
        return said;
    }
    let offering =
        |cell: &&CellSummary| cell.is_point() && cell.measured.blocks > 0 && cell.measured.resumed_offered > 0;
    let Some(first) = summary.cells.iter().find(offering).map(|cell| &cell.cell) else {
        if let Some(said) = locality::answer(summary) {
            return said;
        }
        return "No session was offered again, so that nothing can be said of how the policies keep them.".to_owned();
    };
    let load = |cell: &CellSummary| cell.cell.rate_per_s.unwrap_or_else(|| f64::from(cell.cell.clients));
    let alike = || {
        let is_alike = |cell: &&CellSummary| {
            cell.cell.sharing == first.sharing
                && cell.cell.behind_one_address_percent == first.behind_one_address_percent
        };
        summary.cells.iter().filter(offering).filter(is_alike)
    };
    let largest = alike().map(load).fold(0.0, f64::max);
    let below_all = alike().map(|cell| cell.cell.reuse_percent).filter(|percent| *percent < 100.0).fold(0.0, f64::max);
    let reuse = if below_all > 0.0 { below_all } else { 100.0 };
    let kept = |cell: &CellSummary| cell.accepted_percent_of_offered.value;
    let at = alike().filter(|cell| cell.cell.reuse_percent == reuse && load(cell) == largest);
    // Of several that keep as many the first named.
    let best = at.rev().max_by(|a, b| kept(a).round().total_cmp(&kept(b).round()));
    let Some(best) = best else { return "Nothing was measured.".to_owned() };
    let said =
        format!("{}: {} of the sessions offered again were accepted", best.measured.name, format_percent(kept(best)));
    let Some(against) = &best.against else { return said + &without_ratio(summary, best) };
    let baseline = summary.baseline_of(&best.cell).map_or(f64::NAN, kept);
    let verdict = match against.hits_per_second.direction {
        Direction::Undecided => "; whether it serves more is undecided: ",
        Direction::Bigger | Direction::Smaller => ", and it serves ",
    };
    format!(
        "{said} ({} with {}){verdict}{} the hits/s, from {} of its CPU per hit.",
        format_percent(baseline),
        against.baseline,
        ratio_times(&against.hits_per_second),
        format_percent(100.0 / against.by_cpu.times)
    )
}

/// What is kept for each time that the dispatcher remembers sessions, where several are compared.
fn by_time_out(summary: &ClusterSummary) -> Option<String> {
    let each =
        summary.cells.iter().filter(|cell| cell.measured.blocks > 0 && cell.measured.resumed_offered > 0).map(|cell| {
            let accepted = cell.accepted_percent_of_offered;
            let kept = accepted.in_unit(" %", format_tenths);
            Some(format!("{kept} where it remembers them for {} s", cell.cell.dispatcher_timeout_s?))
        });
    let each: Vec<String> = each.collect::<Option<_>>()?;
    let time_outs: BTreeSet<Option<u32>> = summary.cells.iter().map(|cell| cell.cell.dispatcher_timeout_s).collect();
    // What differs in something else too takes the table to tell.
    (each.len() > 1 && time_outs.len() == each.len())
        .then(|| format!("Of the sessions offered again the dispatcher keeps {}.", each.join(", ")))
}

fn saturations(summary: &ClusterSummary) -> String {
    let mut most: Vec<&CellSummary> = Vec::new();
    for cell in summary.cells.iter().filter(|cell| cell.is_point() && cell.measured.blocks > 0) {
        let is_same = |other: &CellSummary| {
            (other.cell.plain, other.cell.reuse_percent) == (cell.cell.plain, cell.cell.reuse_percent)
        };
        match most.iter_mut().find(|other| is_same(other)) {
            Some(other) if other.measured.hits_per_second.value < cell.measured.hits_per_second.value => *other = cell,
            Some(_) => {}
            None => most.push(cell),
        }
    }
    let said = |cell: &&CellSummary| {
        let rate = cell.measured.hits_per_second.with_interval(format_quantity);
        format!("{} at {}", cells::bounded(cell.measured.client_bound, rate), cell.cell.reuse_name())
    };
    let said: Vec<String> = most.iter().map(said).collect();
    if said.is_empty() { "Nothing was measured.".to_owned() } else { format!("At most {} hits/s.", said.join(", ")) }
}

/// What is said of a policy for which there is no ratio: it is the first itself, or was never measured together with
/// it.
fn without_ratio(summary: &ClusterSummary, best: &CellSummary) -> String {
    match summary.baseline_of(&best.cell).map(|first| &first.cell) {
        Some(first) if *first != best.cell => {
            let first = first.way_name();
            format!("; nothing is known of {first} in the same rounds, so that they cannot be compared.")
        }
        _ => "; no other policy kept more.".to_owned(),
    }
}

/// A percentile of the latency that is shown, `≥` where unserved requests, which would be later than all, are not in
/// it.
fn latency(cell: &CellSummary, percentile: fn(&Percentiles) -> u64) -> String {
    let found = cell.measured.latency_ns.get(latency_phase(cell));
    cells::bounded(cell.fell_behind() && found.is_some(), cells::latency(found, percentile))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster::summary::samples::{block, experiment, record};
    use tlsdyno_runner::report::render::terminal;

    #[test]
    fn the_answer_tells_the_best_from_what_cannot_be_compared() {
        let answered = |blocks| {
            let mut record = record(experiment(None));
            record.blocks = blocks;
            answer(&ClusterSummary::of(&record).unwrap())
        };
        let both = answered(vec![block(0, 0, 300), block(1, 0, 800)]);
        assert!(both.contains("37.5 % with round-robin"), "{both}");
        let first = answered(vec![block(0, 0, 800), block(1, 0, 300)]);
        assert!(first.ends_with("no other policy kept more."), "{first}");
        let never_together = answered(vec![block(0, 0, 300), block(1, 1, 800)]);
        assert!(never_together.contains("nothing is known of round-robin in the same rounds"), "{never_together}");
    }

    #[test]
    fn latencies_without_the_unserved_are_lower_bounds() {
        let mut record = record(experiment(Some(100.0)));
        let mut behind = block(1, 0, 800);
        behind.cluster.as_mut().unwrap().unserved = 500;
        record.blocks = vec![block(0, 0, 300), behind];
        let mut summary = ClusterSummary::of(&record).unwrap();
        for cell in &mut summary.cells {
            let percentiles = Percentiles { p50: 2_000_000, ..Percentiles::default() };
            cell.measured.latency_ns.insert("scheduled_response".to_owned(), percentiles);
        }
        let [served, unserved] = [0_usize, 1].map(|index| latency(&summary.cells[index], |found| found.p50));
        assert_eq!(unserved, format!("≥ {served}"));
        let shown = terminal::text(&document(&record, &summary), terminal::Style::PLAIN);
        let shown = shown.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(shown.contains("500 of 1500 requests that were due"), "{shown}");
        assert!(shown.contains("≥ before a latency") && shown.contains(&unserved), "{shown}");
    }
}
