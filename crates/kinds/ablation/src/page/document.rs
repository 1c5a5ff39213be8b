//! An experiment with one server as a document: the shares of the cost of a hit, what else it asked, and what each
//! configuration did.

use tlsdyno_base::histogram::Percentiles;
use tlsdyno_base::units::{
    NONE, format_count, format_interval, format_micros, format_percent, format_quantity, format_tenths,
};
use tlsdyno_record::model::{Experiment, Question, ShareModel};
use tlsdyno_record::store::{Record, Role};
use tlsdyno_report::rows::Rows;
use tlsdyno_runner::report::charts::PHASES;
use tlsdyno_runner::report::document::{Content, Document, Medium, Method, Rounds, Section, Table, Tone};
use tlsdyno_runner::report::text::difference_with_interval;
use tlsdyno_runner::report::{cells, circumstances, scoreboard};
use tlsdyno_stats::moment::Moment;
use tlsdyno_stats::pace::Pace;
use tlsdyno_stats::remainders::MISSING;
use tlsdyno_stats::statement::Difference;
use tlsdyno_stats::{ConfigurationSummary, Metric, Verdict};

use super::answer::answer;
use super::{accelerators, between_runs, findings, libraries, machines, methods, remedies, traffic};
use crate::page::text::{
    loaded_label, share_interval, share_label, share_number, share_with_interval, short_share_label,
};
use crate::page::{charts, published};
use crate::summary::scoreboard::claims;
use crate::summary::{Loaded, OfQuestion, Precision, Share, Shares, Summary};

pub fn document(record: &Record, summary: &Summary) -> Document {
    let rounds = Rounds { rounds: summary.rounds, sweeps: summary.sweeps, has_rates: summary.has_rates() };
    let parts = summary.configurations.iter().map(|of| (&of.name, &of.warnings));
    let warnings = circumstances::warnings(circumstances::texts(&summary.warnings, parts));
    let experiment = record.kind_part.of::<Experiment>();
    let asks = experiment.map_or(Question::Costs, Experiment::asks);
    let whole = |sections, method| circumstances::document(record, summary.rounds, answer(summary), sections, method);
    let (first, on_machines) = match (asks, &summary.of_question) {
        (Question::ForeignTraffic(foreign), Some(OfQuestion::Traffic(traffic))) => {
            return whole(vec![traffic::section(foreign, traffic), warnings], Method::Doubling(rounds));
        }
        (_, Some(OfQuestion::Libraries(libraries))) => (Some(libraries::section(libraries)), Vec::new()),
        (_, Some(OfQuestion::Machines(of))) => (None, machines::sections(of, summary)),
        _ => (None, Vec::new()),
    };
    let remedies = remedies::section(record, summary);
    let best = remedies.as_ref().and_then(|section| match section.parts.get(1) {
        Some(Content::Items(items)) => items.first().filter(|item| !item.muted),
        _ => None,
    });
    let see_also = best.map(|item| ("remedies", format!("What to do about it: {}", item.head)));
    let findings = [findings::comparisons(summary), accelerators::section(summary), findings::setup_and_data(summary)];
    let noted = shares(record, summary).notes(methods::doubling_note(record, summary));
    let mut sections: Vec<Section> = first.into_iter().chain([noted]).collect();
    sections.extend(between_runs::section(record, summary));
    sections.push(warnings.clone().on(Medium::Page));
    sections.extend(methods::section(summary).into_iter().chain(methods::counts(summary)));
    if asks == Question::Counts {
        sections.push(warnings.on(Medium::Terminal));
        return whole(sections, Method::Counting);
    }
    sections.extend(on_machines);
    sections.push(scoreboard::section("What became of the paper's claims", &claims(summary)));
    sections.extend(findings.into_iter().flatten().chain(published::sections(summary)));
    sections.extend(summary.has_rates().then(|| throughput(summary)));
    sections.push(configurations(summary));
    sections.extend(latency(summary));
    sections.push(warnings.on(Medium::Terminal));
    // What the question is comes first.
    let asks_for_remedies = experiment.is_some_and(|of| of.comparisons.is_empty() && of.paper.is_none());
    match remedies {
        Some(section) if asks_for_remedies => sections.insert(0, section),
        other => sections.extend(other),
    }
    let see_also = see_also.filter(|_| !asks_for_remedies);
    let replaces = summary.configurations.iter().any(|of| !of.noop.is_empty());
    let method = if replaces { Method::Stages(rounds) } else { Method::Doubling(rounds) };
    Document { see_also, ..whole(sections, method) }
}

/// A share by CPU, and by time where hits per second were measured.
type Both<'a> = (&'a Share, Option<&'a Share>);

fn shares(record: &Record, summary: &Summary) -> Section {
    if summary.shares.shares.is_empty() {
        return Section::default().notes(remarks(record, summary));
    }
    let of_time = |cpu: &Share| summary.shares.by(Metric::Throughput).find(|time| time.stage == cpu.stage);
    let both: Vec<Both> = summary.shares.by(Metric::Cpu).map(|cpu| (cpu, of_time(cpu))).collect();
    let by_time = |time: &Share| {
        let bound = if time.bound { "*" } else { "" };
        [share_number(time) + bound, share_interval(time)]
    };
    let mut rows = Rows::new(&both)
        .on(Medium::Terminal, |rows| rows.words("cost of", |(cpu, _)| short_share_label(cpu)))
        .on(Medium::Page, |rows| rows.words("cost of", |(cpu, _)| share_label(cpu)))
        .pair("CPU/hit", |(cpu, _)| [share_number(cpu), share_interval(cpu)])
        .on(Medium::Terminal, |rows| rows.words("", |_| String::new()))
        .words("verdict", |(cpu, _)| charts::verdict(cpu).to_owned());
    if summary.has_rates() {
        rows = rows.pair("time/hit", |(_, time)| time.map(by_time).unwrap_or_default());
    }
    let mut table = rows.toned(Tone::Muted, |(cpu, _)| cpu.verdict == Verdict::Undecided).table();
    let width = |share: &Share| if share.known { share.percent } else { 0.0 };
    let largest = both.iter().map(|(cpu, _)| width(cpu)).fold(1.0, f64::max);
    for ((row, (cpu, _)), (_, colour)) in table.rows.iter_mut().zip(&both).zip(charts::stage_colours(summary)) {
        row[1].colour = Some(colour);
        row[4].bar = Some(width(cpu) / largest);
        row[4].tone = if cpu.is_step() { Tone::Plain } else { Tone::Muted };
    }
    let rounds = format!("{} {}", summary.rounds, if summary.rounds == 1 { "round" } else { "rounds" });
    let from = match summary.sweeps {
        0 => rounds,
        sweeps if summary.has_rates() => {
            format!("{} sweeps of slices (CPU/hit) and {rounds} of blocks (time/hit)", format_count(sweeps.into()))
        }
        sweeps => format!("{rounds} with {} sweeps of slices", format_count(sweeps.into())),
    };
    let time = match summary.has_rates() {
        true => "time/hit: share of the time per hit at saturation (1 / hits per second). ",
        false => "Hits per second were not measured. ",
    };
    let meaning =
        format!("CPU/hit: share of the server's CPU time per hit. {time}95 %: confidence interval, from {from}.");
    let bound =
        summary.shares.shares.iter().any(|share| share.bound).then(|| {
            "* a bound, not an estimate: something else than the server limited the blocks behind it.".to_owned()
        });
    let section = Section::default()
        .charts([charts::cost_strip(summary), charts::cost_intervals(summary)].into_iter().flatten())
        .with(Content::Table(table))
        .notes([meaning].into_iter().chain(bound).chain(remarks(record, summary)));
    Section { two_columns: true, ..section }
}

/// The shares of CPU time known so far, the largest first.
pub fn so_far(shares: &Shares, rows: usize) -> Option<Table> {
    // The first round has no interval, but a value.
    let mut known: Vec<&Share> = shares.by(Metric::Cpu).filter(|share| share.estimate().is_known()).collect();
    known.sort_by(|a, b| b.percent.total_cmp(&a.percent));
    known.truncate(rows);
    let rows = Rows::new(known.iter().copied())
        .words("so far", short_share_label)
        .pair("CPU/hit", |share| [share_number(share), share_interval(share)])
        .words("verdict", |share| charts::verdict(share).to_owned());
    (!known.is_empty()).then(|| rows.table())
}

/// Sentences from the configurations beside the single stages.
fn remarks(record: &Record, summary: &Summary) -> Vec<String> {
    let sentences = [interaction(summary), instrument(summary), missing(record, summary)].into_iter().flatten();
    let pace = summary.pace.as_ref().map(Pace::sentence);
    let moment = summary.moment.as_ref().map(Moment::sentence);
    let other_runs = between_runs::remark(record, summary);
    sentences
        .chain(precision(summary))
        .chain(times(record))
        .chain(other_runs)
        .chain(pace)
        .chain(moment)
        .chain([summary.detection.sentence.clone()])
        .collect()
}

fn by(differences: &[Difference], metric: Metric) -> Option<&Difference> {
    differences.iter().find(|difference| difference.metric == metric)
}

fn interaction(summary: &Summary) -> Option<String> {
    let overlap = by(&summary.shares.interaction, Metric::Cpu)?;
    let value = difference_with_interval(overlap);
    let open = if overlap.is_of_few_rounds() { "cannot be told from so few rounds" } else { "is undecided" };
    if summary.configuration(&Role::AllOff).is_none() {
        // Computed twice: what is shared by two stages would be added once only.
        return Some(match overlap.verdict {
            Verdict::Undecided => format!(
                "Whether the stages' costs add up {open}: the sum of their shares and what all of them computed twice \
                 add differ by {value}."
            ),
            Verdict::Resolved => format!(
                "The stages' costs do not add up: the sum of their shares and what all of them computed twice add \
                 differ by {value}."
            ),
        });
    }
    Some(match overlap.verdict {
        Verdict::Undecided => format!(
            "Whether the stages overlap {open}: the sum of their shares and what all off saves differ by {value}."
        ),
        Verdict::Resolved if overlap.percent > 0.0 => {
            format!("The stages overlap: switched off together they save {value} less than the sum of their shares.")
        }
        Verdict::Resolved => format!(
            "Switched off together the stages save {} {} more than the sum of their shares.",
            format_percent(-overlap.percent),
            format_interval(-overlap.high, -overlap.low)
        ),
    })
}

/// Says that measuring ended because the shares were known well enough.
fn precision(summary: &Summary) -> Option<String> {
    let Precision { wanted_percent, reached_percent, used_s } = summary.precision?;
    let (reached, time) = (format_percent(reached_percent), format!("after {used_s:.0} s"));
    Some(if reached_percent <= wanted_percent {
        format!("Every stage's share of CPU is known to ± {reached} of the cost of a hit, {time}.")
    } else {
        format!(
            "Wanted was every stage's share of CPU to ± {}; the widest reached ± {reached} {time}. Measure longer \
             (--time).",
            format_percent(wanted_percent)
        )
    })
}

/// Duration, where measuring was bounded and the duration is known.
fn times(record: &Record) -> Option<String> {
    let most_s = record.kind_part.of::<Experiment>().filter(|of| of.asks() != Question::Counts)?.measure.time_s;
    let [preparing_s, measuring_s] =
        [record.manifest.preparing_ns, record.manifest.measuring_ns].map(|ns| ns as f64 / 1e9);
    (measuring_s > 0.0).then(|| {
        format!(
            "Measured for {measuring_s:.0} s of at most {most_s:.0} s; starting and checking the servers took \
             {preparing_s:.0} s before."
        )
    })
}

/// Cost of provider and shim with all stages real.
fn instrument(summary: &Summary) -> Option<String> {
    let by_cpu = by(&summary.shares.instrument, Metric::Cpu)?;
    let by_time = by(&summary.shares.instrument, Metric::Throughput);
    let by_time = by_time.map(|time| format!(", {} of the time per hit", difference_with_interval(time)));
    Some(format!(
        "The instrument itself ({} loaded, nothing {}) costs {} of the server's CPU per hit{}.",
        loaded_label(summary.loaded),
        if summary.loaded == Loaded::Doubler { "doubled" } else { "off" },
        difference_with_interval(by_cpu),
        by_time.unwrap_or_default()
    ))
}

/// Sum of the named shares, and what they leave of 100 %.
fn missing(record: &Record, summary: &Summary) -> Option<String> {
    let rest: &Share = summary.shares.by(Metric::Cpu).find(|share| share.stage == MISSING)?;
    let sum = format!("The named shares add up to {} by CPU", format_percent(100.0 - rest.percent));
    let value = share_with_interval(rest);
    Some(match (rest.verdict, rest.percent > 0.0) {
        (Verdict::Undecided, _) => {
            format!("{sum}; whether anything is missing to 100 % is undecided ({value}).")
        }
        (Verdict::Resolved, true) => {
            let named = record.kind_part.of::<Experiment>().map_or(&[][..], |experiment| &experiment.shares);
            let cause = summary.configuration(&Role::AsIs).and_then(|as_is| only_together(named, &as_is.name));
            let unseen = || "costs between the steps that no pair of configurations shows".to_owned();
            format!("{sum}; {value} is missing: {}.", cause.unwrap_or_else(unseen))
        }
        (Verdict::Resolved, false) => format!(
            "{sum}, which is too much ({value} is missing): the steps overlap, so that together they promise more \
             than they give."
        ),
    })
}

/// Where some steps are taken singly from the server as is, and the others in a chain: the remainder to 100 % is the
/// saving of the first in the chain beyond the sum of the single ones.
fn only_together(named: &[ShareModel], as_is: &str) -> Option<String> {
    let (alone, mut chain): (Vec<&ShareModel>, Vec<&ShareModel>) =
        named.iter().partition(|share| share.on == as_is && share.off.is_some());
    let follows = |one: &&ShareModel| chain.iter().any(|other| other.off.as_ref() == Some(&one.on));
    let mut at = chain.iter().find(|one| !follows(one))?.on.clone();
    let first = at.clone();
    while let Some(next) = chain.iter().position(|share| share.on == at) {
        // What is left ends the chain.
        let Some(off) = chain.remove(next).off.clone() else { break };
        at = off;
    }
    let names: Vec<&str> = alone.iter().map(|share| share.name.as_str()).collect();
    let told = chain.is_empty() && names.len() > 1 && first != as_is;
    told.then(|| format!("\"{first}\" saves so much more than {} do one by one", names.join(", ")))
}

fn throughput(summary: &Summary) -> Section {
    let text = "Hits per second of each configuration at saturation. A configuration with a stage off shows what the \
                server would do if that stage were free.";
    Section::titled("", "Throughput").on(Medium::Page).text(text).charts(charts::throughput(summary))
}

fn configurations(summary: &Summary) -> Section {
    // Those on machines that can be used have a table of their own.
    let shown = summary.configurations.iter().filter(|of| of.base.is_none() || !of.valid);
    let rate = |of: &ConfigurationSummary| summary.has_rates().then_some(of.hits_per_second);
    let rows = Rows::new(shown)
        .words("configuration", |of| of.name.clone())
        .number_if_any("hits/s", |of| rate(of).map(|_| cells::hits(of)))
        .on(Medium::Page, |rows| rows.interval(format_quantity, rate))
        .number("server µs/hit", |of| format_micros(of.server_cpu_ns_per_hit.value))
        .interval(format_micros, |of| Some(of.server_cpu_ns_per_hit))
        .number("client µs/hit", |of| format_micros(of.client_cpu_ns_per_hit))
        .number("full", |of| format_count(of.handshakes_full))
        .number("resumed", |of| format_count(of.handshakes_resumed))
        .on(Medium::Page, |rows| {
            rows.number("hits/handshake", |of| of.hits_per_handshake.map_or(NONE.to_owned(), format_tenths))
        })
        .number("blocks", cells::blocks)
        .last_toned(1, Tone::Bad, |of| !of.valid);
    Section::default().rows(rows).notes(companions(summary))
}

/// Cost of servers beside the server under test.
fn companions(summary: &Summary) -> Option<String> {
    let used = summary.configurations.iter().filter(|of| of.companion_cpu_ns_per_hit > 0.0);
    let cost = |of: &ConfigurationSummary| format!("{} {} µs/hit", of.name, format_micros(of.companion_cpu_ns_per_hit));
    let costs: Vec<String> = used.map(cost).collect();
    (!costs.is_empty()).then(|| {
        format!(
            "CPU time of the servers beside it (backend, memcached, redis), which is no part of server µs/hit: {}.",
            costs.join(", ")
        )
    })
}

/// `None` where no latencies were measured: slices have none.
fn latency(summary: &Summary) -> Option<Section> {
    let all: Vec<(&str, String, &Percentiles)> = summary.off_machines().flat_map(latencies).collect();
    if all.is_empty() {
        return None;
    }
    let text = "At saturation, so these hold waiting for a busy server; they compare configurations, they do not say \
                what a visitor of a quiet site feels.";
    let table = Rows::new(&all)
        .words("configuration", |(name, ..)| (*name).to_owned())
        .words("phase", |(_, phase, _)| phase.clone())
        .number("count", |(.., found)| format_count(found.count))
        .number("median", |(.., found)| cells::latency(Some(found), |of| of.p50))
        .number("90 %", |(.., found)| cells::latency(Some(found), |of| of.p90))
        .number("99 %", |(.., found)| cells::latency(Some(found), |of| of.p99))
        .number("99.9 %", |(.., found)| cells::latency(Some(found), |of| of.p999))
        .number("largest", |(.., found)| cells::latency(Some(found), |of| of.max))
        .table();
    let section = Section::titled("", "Latency by phase").on(Medium::Page).text(text).charts(charts::latency(summary));
    Some(section.with(Content::Folded("Table of latencies".to_owned(), vec![Content::Table(table)])))
}

/// Phases of a configuration in the order of a connection's life.
fn latencies(of: &ConfigurationSummary) -> Vec<(&str, String, &Percentiles)> {
    let order = |phase: &str| PHASES.iter().position(|(name, ..)| *name == phase).unwrap_or(PHASES.len());
    let mut phases: Vec<_> = of.latency_ns.iter().collect();
    phases.sort_by_key(|(phase, _)| order(phase));
    phases.into_iter().map(|(phase, found)| (of.name.as_str(), phase.replace('_', " "), found)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_missing_is_what_steps_save_only_together() {
        let share = |name: &str, on: &str, off: Option<&str>| ShareModel {
            name: name.to_owned(),
            on: on.to_owned(),
            off: off.map(str::to_owned),
        };
        let steps = [
            share("RSA", "as is", Some("no RSA")),
            share("cipher", "as is", Some("no cipher")),
            share("cache", "no crypto", Some("no cache")),
            share("other", "no cache", Some("skeleton")),
            share("non-TLS", "skeleton", None),
        ];
        let told = only_together(&steps, "as is");
        assert_eq!(told.as_deref(), Some("\"no crypto\" saves so much more than RSA, cipher do one by one"));
        // A gap in the chain has no name.
        assert_eq!(only_together(&[&steps[..3], &steps[4..]].concat(), "as is"), None);
        assert_eq!(only_together(&steps[1..], "as is"), None);
    }
}
