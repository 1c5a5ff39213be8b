//! The results on a terminal: the answer, the shares with bars, the configurations, the warnings.

use std::io::IsTerminal;

use comfy_table::{Attribute, Cell, CellAlignment, Color, Table, presets};

use super::answer::answer;
use super::sections::{self, Section};
use super::text::{difference_with_interval, share_with_interval, short_share_label};
use crate::stats::pace::Pace;
use crate::stats::shares::{Difference, MISSING};
use crate::stats::{Loaded, Metric, Share, Summary, Verdict};
use crate::store::Record;
use crate::units::{format_count, format_interval, format_percent, format_quantity, format_tenths};

/// Width when the output is not a terminal.
const PLAIN_WIDTH: usize = 100;
/// Columns that the share table needs beside its bars.
const BESIDE_BARS: usize = 82;
/// Of these, columns of the label.
const LABEL: usize = 14;
/// The longest bar.
const LONGEST_BAR: usize = 24;

/// How the output may look.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Style {
    /// Colours and fine bars; without, ASCII bars and no escape sequences.
    pub rich: bool,
    /// Columns of the terminal.
    pub width: usize,
}

impl Style {
    /// For a file, a pipe or a test.
    pub const PLAIN: Style = Style { rich: false, width: PLAIN_WIDTH };

    /// What standard output can show. `NO_COLOR` (no-color.org) and `TERM=dumb` make it plain.
    pub fn of_stdout() -> Style {
        let set = |name| std::env::var_os(name).is_some_and(|value| !value.is_empty());
        let dumb = std::env::var_os("TERM").is_some_and(|term| term == "dumb");
        let terminal = std::io::stdout().is_terminal();
        let width = Table::new().width().filter(|_| terminal).map_or(PLAIN_WIDTH, usize::from);
        Style { rich: terminal && !set("NO_COLOR") && !dumb, width }
    }
}

/// The whole result as text ending in a line feed.
pub fn results(record: &Record, summary: &Summary, style: Style) -> String {
    let mut parts = vec![heading(record, summary, style)];
    if !summary.shares.shares.is_empty() {
        parts.push(shares_table(summary, style));
        let remarks: Vec<String> = remarks(summary).iter().map(|remark| wrapped(remark, style.width, "  ")).collect();
        parts.push(remarks.join("\n"));
    } else {
        parts.extend(comparisons(summary).iter().map(|remark| wrapped(remark, style.width, "  ")));
    }
    parts.extend(sections::answers(summary).iter().map(|section| section_text(section, style)));
    parts.push(configurations_table(summary, style));
    parts.extend(companions(summary).map(|text| wrapped(&text, style.width, "  ")));
    let warnings: Vec<String> = super::warnings(summary).iter().map(|warning| warning_line(warning, style)).collect();
    if !warnings.is_empty() {
        parts.push(warnings.join("\n"));
    }
    parts.extend(sections::remedies(record, summary).iter().map(|section| section_text(section, style)));
    if !record.id.is_empty() {
        parts.push(format!("Record {id}: `tlsdyno report {id}` writes report.html.", id = record.id));
    }
    parts.join("\n\n") + "\n"
}

/// A section: heading, introduction, table or list, notes.
fn section_text(section: &Section, style: Style) -> String {
    let mut lines = vec![painted(section.title, Paint::Bold, style)];
    if !section.intro.is_empty() {
        lines.push(wrapped(&section.intro, style.width, "  "));
    }
    if !section.rows.is_empty() {
        lines.push(section_table(section, style));
    }
    for item in &section.items {
        lines.push(wrapped(&item.head, style.width, "  "));
        lines.extend(item.text.iter().map(|text| wrapped(text, style.width, "     ")));
        lines.extend(item.code.iter().map(|line| format!("       {line}")));
    }
    lines.extend(section.notes.iter().map(|note| wrapped(note, style.width, "  ")));
    lines.join("\n")
}

fn section_table(section: &Section, style: Style) -> String {
    let shown = |index: &usize| !section.columns[*index].page_only;
    let columns: Vec<usize> = (0..section.columns.len()).filter(shown).collect();
    let header: Vec<(&str, bool)> =
        columns.iter().map(|&index| (section.columns[index].name, section.columns[index].number)).collect();
    let mut table = table(style, &header);
    for row in &section.rows {
        table.add_row(columns.iter().map(|&index| {
            let cell = Cell::new(&row.cells[index]);
            let cell = if section.columns[index].number { cell.set_alignment(CellAlignment::Right) } else { cell };
            if row.muted { cell.fg(Color::DarkGrey) } else { cell }
        }));
    }
    table.trim_fmt()
}

fn heading(record: &Record, summary: &Summary, style: Style) -> String {
    let question = painted(wrapped(&record.question, style.width, "").trim(), Paint::Bold, style);
    format!("{question}\n\n{}", wrapped(&answer(summary), style.width, "  "))
}

/// A warning, broken into lines.
pub(super) fn warning_line(warning: &str, style: Style) -> String {
    let text = wrapped(&format!("warning: {warning}"), style.width, "  ");
    text.trim_start().replacen("warning:", &painted("warning:", Paint::Warning, style), 1)
}

fn shares_table(summary: &Summary, style: Style) -> String {
    let largest = summary.shares.by(Metric::Cpu).map(|share| share.percent).fold(1.0, f64::max);
    let labels = || summary.shares.by(Metric::Cpu).map(short_share_label);
    let longer = labels().map(|label| label.chars().count()).max().unwrap_or(0).saturating_sub(LABEL);
    let bar_width = style.width.saturating_sub(BESIDE_BARS + longer).min(LONGEST_BAR);
    let header = [
        ("cost of", false),
        ("CPU/hit", true),
        ("95 %", true),
        ("", false),
        ("verdict", false),
        ("time/hit", true),
        ("95 %", true),
    ];
    let mut table = table(style, &header);
    let times: Vec<&Share> = summary.shares.by(Metric::Throughput).collect();
    for (cpu, time) in summary.shares.by(Metric::Cpu).zip(times) {
        let undecided = cpu.verdict == Verdict::Undecided;
        let colour = |cell: Cell| {
            if undecided { cell.fg(Color::DarkGrey) } else { cell }
        };
        table.add_row(vec![
            colour(Cell::new(short_share_label(cpu))),
            colour(right(format_percent(cpu.percent))),
            colour(right(format_interval(cpu.low, cpu.high))),
            Cell::new(bar(cpu.percent / largest, bar_width, style)).fg(if cpu.is_step() {
                Color::Cyan
            } else {
                Color::Grey
            }),
            colour(Cell::new(if undecided { "undecided" } else { "resolved" })),
            right(format!("{}{}", format_percent(time.percent), if time.bound { "*" } else { "" })),
            right(format_interval(time.low, time.high)),
        ]);
    }
    table.trim_fmt()
}

/// What the table cannot say.
fn remarks(summary: &Summary) -> Vec<String> {
    let mut remarks = vec![
        "CPU/hit: share of the server's CPU time per hit. time/hit: share of the time per hit at saturation (1 \
            / hits per second). 95 %: confidence interval, from {} {}."
            .replacen("{}", &summary.rounds.to_string(), 1)
            .replacen("{}", if summary.rounds == 1 { "round" } else { "rounds" }, 1),
    ];
    if summary.shares.shares.iter().any(|share| share.bound) {
        remarks.push(
            "* a bound, not an estimate: something else than the server limited the blocks behind it.".to_owned(),
        );
    }
    remarks.extend(comparisons(summary));
    remarks
}

/// What the configurations beside the single stages say, in sentences.
pub(super) fn comparisons(summary: &Summary) -> Vec<String> {
    let by_cpu =
        |differences: &[Difference]| differences.iter().find(|difference| difference.metric == Metric::Cpu).cloned();
    let mut remarks = Vec::new();
    if let Some(overlap) = by_cpu(&summary.shares.interaction) {
        let value = difference_with_interval(&overlap);
        remarks.push(match overlap.verdict {
            Verdict::Undecided => {
                format!(
                    "Whether the stages overlap is undecided: the sum of their shares and what all off saves differ \
                     by {value}."
                )
            }
            Verdict::Resolved if overlap.percent > 0.0 => {
                format!(
                    "The stages overlap: switched off together they save {value} less than the sum of their shares."
                )
            }
            Verdict::Resolved => format!(
                "Switched off together the stages save {} {} more than the sum of their shares.",
                format_percent(-overlap.percent),
                format_interval(-overlap.high, -overlap.low)
            ),
        });
    }
    if let Some(instrument) = by_cpu(&summary.shares.instrument) {
        let by_time = summary.shares.instrument.iter().find(|difference| difference.metric == Metric::Throughput);
        let by_time = by_time.map(|time| format!(", {} of the time per hit", difference_with_interval(time)));
        remarks.push(format!(
            "The instrument itself ({} loaded, nothing off) costs {} of the server's CPU per hit{}.",
            match summary.loaded {
                Loaded::Provider => "provider",
                Loaded::Shim => "shim",
                Loaded::Both => "provider and shim",
            },
            difference_with_interval(&instrument),
            by_time.unwrap_or_default()
        ));
    }
    remarks.extend(missing(summary));
    remarks.extend(summary.pace.as_ref().map(Pace::sentence));
    remarks.push(summary.detection.sentence.clone());
    remarks
}

/// The sum of named shares, and what is missing to 100 %.
fn missing(summary: &Summary) -> Option<String> {
    let rest = summary.shares.by(Metric::Cpu).find(|share| share.stage == MISSING)?;
    let sum = format_percent(100.0 - rest.percent);
    let value = share_with_interval(rest);
    Some(match (rest.verdict, rest.percent > 0.0) {
        (Verdict::Undecided, _) => {
            format!(
                "The named shares add up to {sum} by CPU; whether anything is missing to 100 % is undecided ({value})."
            )
        }
        (Verdict::Resolved, true) => format!(
            "The named shares add up to {sum} by CPU; {value} is missing: costs between the steps that no pair of \
             configurations shows."
        ),
        (Verdict::Resolved, false) => format!(
            "The named shares add up to {sum} by CPU, which is too much ({value} is missing): the steps overlap, so \
             that together they promise more than they give."
        ),
    })
}

/// What servers beside the server under test cost, where there are any.
fn companions(summary: &Summary) -> Option<String> {
    let costs: Vec<String> = summary
        .configurations
        .iter()
        .filter(|configuration| configuration.companion_cpu_ns_per_hit > 0.0)
        .map(|configuration| {
            format!("{} {} µs/hit", configuration.name, format_tenths(configuration.companion_cpu_ns_per_hit / 1e3))
        })
        .collect();
    (!costs.is_empty()).then(|| {
        format!(
            "CPU time of the servers beside it (backend, memcached, redis), which is no part of server µs/hit: {}.",
            costs.join(", ")
        )
    })
}

fn configurations_table(summary: &Summary, style: Style) -> String {
    let header = [
        ("configuration", false),
        ("hits/s", true),
        ("server µs/hit", true),
        ("95 %", true),
        ("client µs/hit", true),
        ("full", true),
        ("resumed", true),
        ("blocks", true),
    ];
    let mut table = table(style, &header);
    for configuration in &summary.configurations {
        let bound = if configuration.client_bound { "≥ " } else { "" };
        let blocks = right(configuration.blocks.to_string());
        // One that is not valid has no usable block.
        let blocks = if configuration.valid { blocks } else { right("INVALID".to_owned()).fg(Color::Red) };
        table.add_row(vec![
            Cell::new(&configuration.name),
            right(format!("{bound}{}", format_quantity(configuration.hits_per_second))),
            right(format_tenths(configuration.server_cpu_ns_per_hit / 1e3)),
            right(format_interval(
                configuration.server_cpu_ns_per_hit_low / 1e3,
                configuration.server_cpu_ns_per_hit_high / 1e3,
            )),
            right(format_tenths(configuration.client_cpu_ns_per_hit / 1e3)),
            right(format_count(configuration.handshakes_full)),
            right(format_count(configuration.handshakes_resumed)),
            blocks,
        ]);
    }
    table.trim_fmt()
}

/// A table without rules, in the style's colours. The header names each column and says whether it is set flush right.
pub fn table(style: Style, header: &[(&str, bool)]) -> Table {
    let mut table = Table::new();
    table.load_style(presets::NOTHING);
    if style.rich {
        table.enforce_styling();
    } else {
        table.force_no_tty();
    }
    table.set_header(header.iter().map(|&(text, flush_right)| {
        let alignment = if flush_right { CellAlignment::Right } else { CellAlignment::Left };
        Cell::new(text).add_attribute(Attribute::Underlined).set_alignment(alignment)
    }));
    table
}

fn right(text: String) -> Cell {
    Cell::new(text).set_alignment(CellAlignment::Right)
}

/// A bar of `share` (0 to 1) of `width` columns, in eighths of a column where the style allows.
fn bar(share: f64, width: usize, style: Style) -> String {
    let eighths = (share.clamp(0.0, 1.0) * width as f64 * 8.0).round() as usize;
    if !style.rich {
        return "#".repeat((eighths + 4) / 8);
    }
    const PARTS: [&str; 8] = ["", "▏", "▎", "▍", "▌", "▋", "▊", "▉"];
    format!("{}{}", "█".repeat(eighths / 8), PARTS[eighths % 8])
}

/// What stands out.
#[derive(Clone, Copy)]
pub(super) enum Paint {
    Bold,
    Warning,
}

/// A text that stands out where the style allows.
pub(super) fn painted(text: &str, paint: Paint, style: Style) -> String {
    let code = match paint {
        Paint::Bold => "1",
        Paint::Warning => "33",
    };
    if style.rich { format!("\x1b[{code}m{text}\x1b[0m") } else { text.to_owned() }
}

/// Breaks lines at spaces; every line begins with `indent`.
pub(super) fn wrapped(text: &str, width: usize, indent: &str) -> String {
    let mut lines = vec![indent.to_owned()];
    for word in text.split_whitespace() {
        let line = lines.last_mut().expect("one line at least");
        if line.len() > indent.len() && line.chars().count() + 1 + word.chars().count() > width {
            lines.push(format!("{indent}{word}"));
        } else {
            if line.len() > indent.len() {
                line.push(' ');
            }
            line.push_str(word);
        }
    }
    lines.join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bars_are_as_long_as_their_share() {
        let rich = Style { rich: true, width: 100 };
        assert_eq!(bar(0.5, 4, rich), "██");
        assert_eq!(bar(0.53125, 4, rich), "██▏");
        assert_eq!(bar(-0.2, 4, rich), "");
        assert_eq!(bar(2.0, 4, Style::PLAIN), "####");
    }

    #[test]
    fn lines_break_at_spaces() {
        assert_eq!(wrapped("one two three", 9, "  "), "  one two\n  three");
    }
}
