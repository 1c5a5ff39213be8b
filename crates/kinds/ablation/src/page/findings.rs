//! Comparisons, and connection setup against data exchange.

use tlsdyno_base::units::{format_interval, format_percent};
use tlsdyno_report::rows::Rows;
use tlsdyno_runner::report::document::{Content, Item, Section, Tone};
use tlsdyno_runner::report::published;
use tlsdyno_runner::report::text::{difference_with_interval, part_interval, part_number, ratio_times};
use tlsdyno_stats::statement::Difference;
use tlsdyno_stats::{Metric, Ratio, Verdict};

use crate::summary::Summary;
use crate::summary::findings::{ComparisonFinding, SetupAndData};

pub(super) fn comparisons(summary: &Summary) -> Option<Section> {
    // Where all that there is are counts, the answer has them.
    let is_told = |finding: &&ComparisonFinding| finding.ratio.is_some() || summary.counted.is_none();
    let comparisons: Vec<_> = summary.findings.comparisons.iter().filter(is_told).collect();
    let intro = match comparisons.iter().any(|finding| finding.of_builds) {
        true => "From CPU time per hit, with 95 % intervals; in brackets from hits per second at saturation.",
        false => "Hits per second at saturation, with 95 % intervals; in brackets the same from CPU per hit.",
    };
    (!comparisons.is_empty()).then(|| {
        Section::titled("comparisons", "Comparisons")
            .text(intro)
            .with(Content::Items(comparisons.iter().copied().map(comparison).collect()))
            .notes(signs(comparisons.iter().filter_map(|finding| finding.ratio)))
    })
}

/// Explains the signs before ratios, if there are any.
pub(super) fn signs(mut ratios: impl Iterator<Item = Ratio>) -> Option<String> {
    ratios.any(|ratio| ratio.at_least || ratio.at_most).then(|| {
        "≥ and ≤: bounds, as something else than the server limited one of the two; ?: limited both, so that hits per \
         second say nothing."
            .to_owned()
    })
}

fn comparison(finding: &ComparisonFinding) -> Item {
    // On machines CPU per hit is not told again.
    let cpu = finding.by_cpu.map(|cpu| format!(" (CPU: {})", ratio_times(&cpu))).unwrap_or_default();
    let said = match (finding.ratio, finding.decided_by, finding.by_cpu) {
        // What builds need tells them apart sooner than what they serve on a busy machine.
        (Some(ratio), _, Some(by_cpu_ratio)) if finding.of_builds => {
            let hits = ratio_times(&ratio);
            format!("{} (hits/s: {hits})", by_cpu(finding, &by_cpu_ratio))
        }
        (None, ..) => "not measured: see what is said of these configurations".to_owned(),
        (Some(ratio), Some(Metric::Cpu), Some(by_cpu_ratio)) => {
            let hits = ratio_times(&ratio);
            format!("{} (hits/s, limited by something else: {hits})", by_cpu(finding, &by_cpu_ratio))
        }
        (Some(ratio), Some(_), _) => format!("{}{cpu}", by_hits(finding, &ratio)),
        (Some(ratio), None, _) if finding.by_construction => {
            format!("by construction of quotas, so no finding: {}{cpu}", by_hits(finding, &ratio))
        }
        (Some(ratio), None, _) => format!("undecided: {}{cpu}", by_hits(finding, &ratio)),
    };
    let paper = finding.paper.iter().map(|text| format!("Paper: {text}."));
    Item {
        head: finding.question.clone(),
        text: [said + "."].into_iter().chain(paper).collect(),
        code: Vec::new(),
        muted: finding.decided_by.is_none(),
    }
}

/// The verdict of a comparison in a few words.
pub(super) fn decided(finding: &ComparisonFinding) -> Option<String> {
    Some(match finding.decided_by? {
        Metric::Throughput => by_hits(finding, &finding.ratio?),
        Metric::Cpu => by_cpu(finding, &finding.by_cpu?),
    })
}

fn by_hits(finding: &ComparisonFinding, ratio: &Ratio) -> String {
    format!("\"{}\" serves {} the hits/s of \"{}\"", finding.b, ratio_times(ratio), finding.a)
}

fn by_cpu(finding: &ComparisonFinding, ratio: &Ratio) -> String {
    format!("by CPU per hit \"{}\" serves {} what \"{}\" serves", finding.b, ratio_times(ratio), finding.a)
}

/// Row of the remainder of the whole without setup and data; it may be below 0.
const DISCREPANCY: &str = "discrepancy";

/// Cost of connection setup and of data exchange. `None`: not measured.
pub(super) fn setup_and_data(summary: &Summary) -> Option<Section> {
    let parts = &summary.findings.setup_and_data;
    let [cpu, time] = [Metric::Cpu, Metric::Throughput].map(|of| parts.iter().find(|part| part.metric == of));
    let (cpu, time) = (cpu?, time?);
    let paper = summary.published.as_ref().and_then(|published| published.setup_and_data.as_ref());
    type Line<'a> = (&'a str, fn(&SetupAndData) -> &Difference, Option<&'a Vec<f64>>);
    let lines: [Line; 4] = [
        ("TLS in all (as is – plain HTTP)", |part| &part.whole, paper.map(|of| &of.whole)),
        ("connection setup", |part| &part.setup, paper.map(|of| &of.setup)),
        ("data exchange", |part| &part.data, paper.map(|of| &of.data)),
        (DISCREPANCY, |part| &part.discrepancy, paper.map(|of| &of.discrepancy)),
    ];
    let told = |name: &str, of: &Difference| match name == DISCREPANCY {
        true => [format_percent(of.percent), format_interval(of.low, of.high)],
        false => [part_number(of.part()), part_interval(of.part(), of.low, of.high)],
    };
    let rows = Rows::new(&lines)
        .words("of the cost of a hit", |(name, ..)| (*name).to_owned())
        .pair("CPU", |(name, of, _)| told(name, of(cpu)))
        .pair("time", |(name, of, _)| told(name, of(time)))
        .number_if_any("paper, %", |(.., published)| published.map(|numbers| published::slashed(numbers)))
        .toned(Tone::Muted, |(_, of, _)| of(cpu).verdict == Verdict::Undecided);
    let intro = "Measured without any handshake, and with data that are not encrypted (the minimal set-up and plain \
                 data of Coarfa et al. 2006, section 3.10).";
    let title = "Connection setup and data exchange";
    Some(Section::titled("setup-and-data", title).text(intro).rows(rows).notes([discrepancy_note(cpu)]))
}

fn discrepancy_note(cpu: &SetupAndData) -> String {
    let value = difference_with_interval(&cpu.discrepancy);
    match (cpu.discrepancy.verdict, cpu.discrepancy.percent > 0.0) {
        (Verdict::Undecided, _) if cpu.discrepancy.is_of_few_rounds() => {
            format!("Whether setup and data add up cannot be told from so few rounds (discrepancy {value} by CPU).")
        }
        (Verdict::Undecided, _) => {
            format!(
                "Setup and data add up to what TLS costs in all, as far as can be told (discrepancy {value} by CPU)."
            )
        }
        (Verdict::Resolved, true) => format!(
            "Discrepancy {value} by CPU: what stays when either is gone and is in neither share – the TLS objects of \
             a connection, calls through the library, and what differs between the stand-ins and the real record \
             layer."
        ),
        (Verdict::Resolved, false) => format!(
            "Discrepancy {value} by CPU: costs counted twice, because they go when either goes – code and data that \
             both need in the caches, and system calls that the stand-in of one saves for both."
        ),
    }
}
