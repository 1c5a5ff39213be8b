//! A paper's shares and throughputs beside ours, and what changed since in a few sentences.

use tlsdyno_base::units::NONE;
use tlsdyno_record::model::PublishedNumber;
use tlsdyno_record::store::Role;
use tlsdyno_report::rows::Rows;
use tlsdyno_runner::report::document::{Medium, Section, Tone};
use tlsdyno_runner::report::published::{not_as_in, slashed, slashed_ranges};
use tlsdyno_runner::report::text::{capitalised, part_interval, part_number, ratio_percent, stage_label};
use tlsdyno_stats::statement::Lies;
use tlsdyno_stats::{Direction, Metric, Ratio, Verdict};

use super::text::{share_interval, share_number};
use crate::summary::published::{PublishedConfiguration, PublishedShare};
use crate::summary::{Published, Share, Summary};

/// The paper's throughputs and shares beside ours, then what changed since. Empty where the experiment names no paper.
pub fn sections(summary: &Summary) -> Vec<Section> {
    let Some(paper) = &summary.published else {
        return Vec::new();
    };
    [shares(summary, paper), throughput(paper), changes(summary, paper)].into_iter().flatten().collect()
}

fn shares(summary: &Summary, paper: &Published) -> Option<Section> {
    let ours = |metric: Metric, of: &PublishedShare| {
        let share = summary.shares.by(metric).find(|share| share.stage == of.share);
        share.map_or([NONE.to_owned(), "not measured".to_owned()], |share| [share_number(share), share_interval(share)])
    };
    let direction = |of: &PublishedShare| of.by_cpu.unwrap_or(Direction::Undecided);
    let rows = Rows::new(&paper.shares)
        .words("cost of", |of| capitalised(&of.share))
        .pair("CPU", |of| ours(Metric::Cpu, of))
        .pair("time", |of| ours(Metric::Throughput, of))
        .number("paper, %", |of| slashed_ranges(&of.percent))
        .words("ours (CPU) is", |of| direction(of).to_string())
        .toned(Tone::Muted, |of| direction(of) == Direction::Undecided);
    let computed = paper
        .shares
        .iter()
        .any(|row| row.computed.contains(&true))
        .then(|| "Where the paper prints no share, it is computed from the throughputs that it prints.".to_owned());
    let section = Section::titled("paper-shares", "Shares beside the paper's").text(paper.source.clone() + ".");
    (!paper.shares.is_empty()).then(|| section.rows(rows).notes([machines(paper)].into_iter().chain(computed)))
}

fn throughput(paper: &Published) -> Option<Section> {
    let by_cpu = paper.configurations.iter().any(|row| row.by_cpu.is_some());
    let ours = |of: &PublishedConfiguration, ratio: &Option<Ratio>| match ratio {
        Some(ratio) => ratio_percent(ratio),
        None if of.configuration == paper.reference => "100".to_owned(),
        None => NONE.to_owned(),
    };
    let rows = Rows::new(&paper.configurations)
        .words("configuration", |of| of.configuration.clone())
        .on(Medium::Page, |rows| rows.words("in the paper", |of| of.label.clone().unwrap_or_default()))
        .number("hits/s, %", |of| ours(of, &of.ratio))
        .number_if_any("from CPU, %", |of| by_cpu.then(|| ours(of, &of.by_cpu)))
        .number("paper, %", |of| slashed(&of.percent_of_reference))
        .on(Medium::Page, |rows| rows.number("paper, hits/s", |of| slashed(&of.hits_per_s)));
    let from_cpu = if by_cpu { "; from CPU per hit beside it" } else { "" };
    let intro = format!(
        "Per cent of the hits per second of \"{}\" on the same machine, with 95 % intervals{from_cpu}.",
        paper.reference
    );
    let section = Section::titled("paper-throughput", "Throughput beside the paper's").text(intro);
    let section = section.rows(rows).notes([machines(paper)]);
    (!paper.configurations.is_empty()).then_some(section)
}

fn machines(paper: &Published) -> String {
    format!(
        "The paper's machines: {}. A dash stands where nothing was published or it is illegible.",
        paper.machines.join(" / ")
    )
}

fn changes(summary: &Summary, paper: &Published) -> Option<Section> {
    let sentences = what_changed(summary);
    if sentences.is_empty() && paper.differences.is_empty() {
        return None;
    }
    let section = Section::titled("what-changed", "What changed since");
    Some(sentences.into_iter().chain(not_as_in(&paper.differences)).fold(section, Section::text))
}

/// Changes since the paper that the intervals support. Empty without a paper.
pub fn what_changed(summary: &Summary) -> Vec<String> {
    let Some(paper) = &summary.published else {
        return Vec::new();
    };
    [tls_factor(summary, paper), against_shares(paper), order(summary, paper), setup_against_data(summary, paper)]
        .into_iter()
        .flatten()
        .collect()
}

/// Factor by which TLS divides throughput, from CPU time: plain HTTP is seldom limited by the server.
fn tls_factor(summary: &Summary, paper: &Published) -> Option<String> {
    let as_is = summary.configuration(&Role::AsIs)?;
    let ours = summary.findings.relative.iter().find(|relative| relative.configuration == as_is.name)?;
    let theirs = paper.tls_factors(&as_is.name, &summary.configuration(&Role::PlainHttp)?.name);
    let (low, high) = theirs.iter().fold((f64::INFINITY, 0.0f64), |(low, high), &x| (low.min(x), high.max(x)));
    let factor = |share: f64| 1.0 / share;
    let cpu = ours.by_cpu;
    let (from, to) = (factor(cpu.high), factor(cpu.low));
    if theirs.is_empty() || !to.is_finite() {
        return None;
    }
    let word = match Lies::new([from, to], [low, high]) {
        Lies::Above => "that is bigger",
        Lies::Below => "that is smaller",
        Lies::Within => "that lies between them",
        Lies::Across => "whether the two differ is undecided",
    };
    let range = if theirs.len() > 1 { format!("{low:.1} to {high:.1}") } else { format!("{low:.1}") };
    Some(format!(
        "TLS divides what this server can do by {:.1} [{from:.1}, {to:.1}] (from CPU per hit), what the paper's could \
         do by {range}: {word}.",
        factor(cpu.times)
    ))
}

fn against_shares(paper: &Published) -> Option<String> {
    let named = |wanted: Direction| -> Vec<String> {
        let rows = paper.shares.iter().filter(|row| row.by_cpu == Some(wanted));
        rows.map(|row| stage_label(&row.share)).collect()
    };
    let lists =
        [(Direction::Bigger, "bigger"), (Direction::Smaller, "smaller"), (Direction::Undecided, "undecided or alike")];
    let texts = lists.into_iter().filter_map(|(direction, word)| {
        let names = named(direction);
        (!names.is_empty()).then(|| format!("{word}: {}", names.join(", ")))
    });
    let texts: Vec<String> = texts.collect();
    (!texts.is_empty()).then(|| {
        format!("Shares of the cost of a hit (CPU) against all of the paper's machines – {}.", texts.join("; "))
    })
}

/// Order of the components here and in the paper, largest first.
fn order(summary: &Summary, paper: &Published) -> Option<String> {
    let published = |name: &str| paper.shares.iter().find(|row| row.share == name);
    let steps = || summary.shares.by(Metric::Cpu).filter(|share| share.is_step() && published(&share.stage).is_some());
    let mut ours: Vec<&Share> = steps().filter(|share| share.verdict == Verdict::Resolved).collect();
    ours.sort_by(|a, b| b.percent.total_cmp(&a.percent));
    let undecided: Vec<String> =
        steps().filter(|share| share.verdict == Verdict::Undecided).map(|share| stage_label(&share.stage)).collect();
    let mean = |row: &PublishedShare| {
        let known = row.percent.iter().filter(|number| number.is_known());
        let numbers: Vec<f64> = known.map(PublishedNumber::mean).collect();
        numbers.iter().sum::<f64>() / numbers.len().max(1) as f64
    };
    let mut theirs: Vec<(String, f64)> =
        steps().filter_map(|share| published(&share.stage)).map(|row| (stage_label(&row.share), mean(row))).collect();
    theirs.sort_by(|a, b| b.1.total_cmp(&a.1));
    if theirs.len() < 2 || ours.is_empty() {
        return None;
    }
    let ours: Vec<String> = ours.iter().map(|share| stage_label(&share.stage)).collect();
    let theirs: Vec<String> = theirs.into_iter().map(|(name, _)| name).collect();
    let rest = if undecided.is_empty() { String::new() } else { format!(" (undecided: {})", undecided.join(", ")) };
    Some(format!(
        "Largest first, here: {}{rest}; in the paper, over its machines: {}.",
        ours.join(", "),
        theirs.join(", ")
    ))
}

fn setup_against_data(summary: &Summary, paper: &Published) -> Option<String> {
    let ours = summary.findings.setup_and_data.iter().find(|part| part.metric == Metric::Cpu)?;
    let theirs = paper.setup_and_data.as_ref()?;
    let (setup, data) = (&ours.setup, &ours.data);
    let word = match Lies::new([setup.low, setup.high], [data.low, data.high]) {
        Lies::Above => "Connection setup costs more than data exchange",
        Lies::Below => "Data exchange costs more than connection setup",
        Lies::Within | Lies::Across => "Which costs more, connection setup or data exchange, is undecided",
    };
    Some(format!(
        "{word}: {} {} against {} {} of the cost of a hit (CPU); in the paper {} against {} %.",
        part_number(setup.part()),
        part_interval(setup.part(), setup.low, setup.high),
        part_number(data.part()),
        part_interval(data.part(), data.low, data.high),
        slashed(&theirs.setup),
        slashed(&theirs.data)
    ))
}
