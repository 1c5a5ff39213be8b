//! Parts of a report that the terminal and the HTML page show alike: comparisons, connection setup against data
//! exchange, a paper's numbers beside ours, remedies.

use super::text::{difference_with_interval, ratio_times};
use super::{accelerators, published, remedies};
use crate::stats::findings::{ComparisonFinding, SetupAndData};
use crate::stats::{Metric, Ratio, Summary, Verdict};
use crate::store::Record;
use crate::units::{format_interval, format_percent};

/// A part of a report: an introduction, then a table or a list, then notes. Any of them may be empty.
#[derive(Clone, Debug, Default)]
pub struct Section {
    /// Identifies it in the page.
    pub id: &'static str,
    /// Its heading.
    pub title: &'static str,
    /// What it shows.
    pub intro: String,
    /// Columns of the table; the first names the row.
    pub columns: Vec<Column>,
    /// Rows of the table.
    pub rows: Vec<Row>,
    /// A list.
    pub items: Vec<Item>,
    /// What neither says.
    pub notes: Vec<String>,
}

/// A column of a table.
#[derive(Clone, Copy, Debug)]
pub struct Column {
    /// Its heading.
    pub name: &'static str,
    /// Numbers are set flush right.
    pub number: bool,
    /// Too wide for a terminal.
    pub page_only: bool,
}

impl Column {
    /// A column of words.
    pub(super) const fn words(name: &'static str) -> Column {
        Column { name, number: false, page_only: false }
    }

    /// A column of numbers.
    pub(super) const fn number(name: &'static str) -> Column {
        Column { name, number: true, page_only: false }
    }
}

/// A row of a table.
#[derive(Clone, Debug, Default)]
pub struct Row {
    /// One text for each column.
    pub cells: Vec<String>,
    /// Nothing was decided here.
    pub muted: bool,
}

/// An entry of a list.
#[derive(Clone, Debug, Default)]
pub struct Item {
    /// Its headline.
    pub head: String,
    /// Sentences below it.
    pub text: Vec<String>,
    /// Lines of a configuration.
    pub code: Vec<String>,
    /// Nothing was decided here.
    pub muted: bool,
}

/// The sections between shares and throughput, in the order of a report.
pub fn answers(summary: &Summary) -> Vec<Section> {
    let all = [comparisons(summary), accelerators::section(summary), setup_and_data(summary)];
    all.into_iter().flatten().chain(published::sections(summary)).collect()
}

/// The list of remedies, for the end of a report.
pub fn remedies(record: &Record, summary: &Summary) -> Option<Section> {
    remedies::section(record, summary)
}

fn comparisons(summary: &Summary) -> Option<Section> {
    let comparisons = &summary.findings.comparisons;
    (!comparisons.is_empty()).then(|| Section {
        id: "comparisons",
        title: "Comparisons",
        intro: "Hits per second at saturation, with 95 % intervals; in brackets the same from CPU per hit.".to_owned(),
        items: comparisons.iter().map(comparison).collect(),
        notes: signs(comparisons.iter().filter_map(|answer| answer.ratio)).into_iter().collect(),
        ..Section::default()
    })
}

/// What the signs before ratios say, where there are any.
pub(super) fn signs(mut ratios: impl Iterator<Item = Ratio>) -> Option<String> {
    ratios.any(|ratio| ratio.at_least || ratio.at_most).then(|| {
        "≥ and ≤: bounds, as something else than the server limited one of the two; ?: limited both, so that hits per \
         second say nothing."
            .to_owned()
    })
}

fn comparison(answer: &ComparisonFinding) -> Item {
    let said = match answer.ratio.zip(answer.by_cpu) {
        None => "not measured: see what is said of these configurations".to_owned(),
        Some((ratio, cpu)) => match answer.decided_by {
            Some(Metric::Cpu) => {
                let hits = ratio_times(&ratio);
                format!("{} (hits/s, limited by something else: {hits})", by_cpu(answer, &cpu))
            }
            Some(Metric::Throughput) => format!("{} (CPU: {})", by_hits(answer, &ratio), ratio_times(&cpu)),
            None => format!("undecided: {} (CPU: {})", by_hits(answer, &ratio), ratio_times(&cpu)),
        },
    };
    let paper = answer.paper.iter().map(|text| format!("Paper: {text}."));
    Item {
        head: answer.question.clone(),
        text: [said + "."].into_iter().chain(paper).collect(),
        code: Vec::new(),
        muted: answer.decided_by.is_none(),
    }
}

/// What was decided, in short.
pub(super) fn decided(answer: &ComparisonFinding) -> Option<String> {
    Some(match answer.decided_by? {
        Metric::Throughput => by_hits(answer, &answer.ratio?),
        Metric::Cpu => by_cpu(answer, &answer.by_cpu?),
    })
}

fn by_hits(answer: &ComparisonFinding, ratio: &Ratio) -> String {
    format!("\"{}\" serves {} the hits/s of \"{}\"", answer.b, ratio_times(ratio), answer.a)
}

fn by_cpu(answer: &ComparisonFinding, ratio: &Ratio) -> String {
    format!("by CPU per hit \"{}\" serves {} what \"{}\" serves", answer.b, ratio_times(ratio), answer.a)
}

fn setup_and_data(summary: &Summary) -> Option<Section> {
    let parts = &summary.findings.setup_and_data;
    let cpu = parts.iter().find(|part| part.metric == Metric::Cpu)?;
    let time = parts.iter().find(|part| part.metric == Metric::Throughput)?;
    let paper = summary.published.as_ref().and_then(|published| published.setup_and_data.as_ref());
    let row = |name: &str, of: fn(&SetupAndData) -> &crate::stats::shares::Difference, published: Option<&Vec<f64>>| {
        let (cpu, time) = (of(cpu), of(time));
        let mut cells = vec![
            name.to_owned(),
            format_percent(cpu.percent),
            format_interval(cpu.low, cpu.high),
            format_percent(time.percent),
            format_interval(time.low, time.high),
        ];
        cells.extend(published.map(|numbers| published::slashed(numbers)));
        Row { cells, muted: cpu.verdict == Verdict::Undecided }
    };
    let mut columns = vec![
        Column::words("of the cost of a hit"),
        Column::number("CPU"),
        Column::number("95 %"),
        Column::number("time"),
        Column::number("95 %"),
    ];
    columns.extend(paper.map(|_| Column::number("paper, %")));
    let rows = vec![
        row("TLS in all (as is – plain HTTP)", |part| &part.whole, paper.map(|of| &of.whole)),
        row("connection setup", |part| &part.setup, paper.map(|of| &of.setup)),
        row("data exchange", |part| &part.data, paper.map(|of| &of.data)),
        row("discrepancy", |part| &part.discrepancy, paper.map(|of| &of.discrepancy)),
    ];
    Some(Section {
        id: "setup-and-data",
        title: "Connection setup and data exchange",
        intro: "Minimal set-up has no handshake; plain data has no records (Coarfa et al. 2006, section 3.10)."
            .to_owned(),
        columns,
        rows,
        notes: vec![discrepancy_note(cpu)],
        ..Section::default()
    })
}

fn discrepancy_note(cpu: &SetupAndData) -> String {
    let value = difference_with_interval(&cpu.discrepancy);
    match (cpu.discrepancy.verdict, cpu.discrepancy.percent > 0.0) {
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
