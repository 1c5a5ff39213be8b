//! What became of the papers' claims, on one page: each with the paper's number and ours.

mod entry;
mod splice;
mod statements;

use tlsdyno_base::units::{NONE, format_interval, format_percent, format_quantity, format_tenths};
use tlsdyno_stats::scoreboard::{Claim, Fate, Ours, Unit};
use tlsdyno_stats::{Estimate, Metric};

pub use entry::{Entry, read};
pub use splice::splice;

use super::document::{Column, Document, Section, row};
use super::text::capitalised;

const COLUMNS: [&str; 5] = ["claim", "the paper", "here", "95 %", "verdict"];

/// Empty without claims.
pub fn section(title: &str, claims: &[Claim]) -> Section {
    let rows = claims.iter().map(|claim| row(cells(claim), claim.fate.is_open())).collect();
    let meaning = (!claims.is_empty()).then(|| MEANING.to_owned());
    Section::titled("scoreboard", title).table(columns(), rows).notes(meaning)
}

const MEANING: &str = "Stands: our whole 95 % interval lies in the range that the paper gives; shares may be half a \
                       point beyond what it prints. Bigger, smaller: it lies beyond it. Undecided: it reaches across \
                       an end, or has no end itself. (CPU): from CPU time, because a cost is told by it, or because \
                       something else than the server limited hits per second.";

fn columns() -> Vec<Column> {
    COLUMNS.iter().map(|name| Column::words(*name)).collect()
}

fn cells(claim: &Claim) -> [String; 5] {
    let [value, ends] = claim.ours.map_or([NONE.to_owned(), NONE.to_owned()], |ours| number(claim.unit, &ours));
    [capitalised(&claim.about), claim.paper.clone(), value, ends, claim.fate.word().to_owned()]
}

fn number(unit: Unit, ours: &Ours) -> [String; 2] {
    let by = if ours.metric == Metric::Cpu { " (CPU)" } else { "" };
    let Estimate { value, low, high } = ours.estimate;
    let format: fn(f64) -> String = match unit {
        Unit::Percent => return [format!("{}{by}", format_percent(value)), format_interval(low, high)],
        Unit::Times => |number: f64| format!("{number:.2}"),
        Unit::Milliseconds => |number: f64| format!("{number:.3}"),
        Unit::Bytes | Unit::MbitPerS => format_quantity,
    };
    [format!("{} {}{by}", format(value), unit.word()), ours.estimate.ends(format)]
}

/// Records with the same question on different servers, or repeated: shown side by side.
struct Group<'a> {
    entries: Vec<&'a Entry>,
}

impl Group<'_> {
    fn all(entries: &[Entry]) -> Vec<Group<'_>> {
        let mut groups: Vec<Group> = Vec::new();
        for entry in entries {
            let same = |group: &&mut Group| group.title() == entry.title && group.paper() == entry.paper;
            match groups.iter_mut().find(same) {
                Some(group) => group.entries.push(entry),
                None => groups.push(Group { entries: vec![entry] }),
            }
        }
        groups
    }

    fn title(&self) -> &str {
        &self.entries[0].title
    }

    fn paper(&self) -> &str {
        &self.entries[0].paper
    }

    fn heads(&self) -> Vec<String> {
        let servers = self.entries.iter().map(|entry| entry.head());
        COLUMNS[..2].iter().map(|&name| name.to_owned()).chain(servers).collect()
    }

    /// A row for each claim with numbers in one of the records, and whether it is open in one of them.
    fn rows(&self) -> Vec<(Vec<String>, bool)> {
        let mut firsts: Vec<&Claim> = Vec::new();
        for claim in self.entries.iter().flat_map(|entry| &entry.claims) {
            if firsts.iter().all(|first| first.about != claim.about) {
                firsts.push(claim);
            }
        }
        let row = |first: &&Claim| {
            let of = |entry: &&Entry| entry.claims.iter().find(|claim| claim.about == first.about).cloned();
            let claims: Vec<Option<Claim>> = self.entries.iter().map(of).collect();
            let said = claims.iter().map(|claim| claim.as_ref().map_or(NONE.to_owned(), in_one_cell));
            let cells = [capitalised(&first.about), printed(first)].into_iter().chain(said).collect();
            (cells, claims.iter().flatten().any(|claim| claim.fate.is_open()))
        };
        firsts.iter().map(row).collect()
    }

    fn from(&self) -> Vec<String> {
        self.entries.iter().map(|entry| entry.from.clone()).collect()
    }
}

/// What the paper prints, and the range that its rounding leaves where that is wider.
fn printed(claim: &Claim) -> String {
    let [low, high] = claim.range_of_unit;
    let is_wider = claim.unit == Unit::Percent && low.fract() != 0.0 && high.fract() != 0.0;
    let ends = || [low, high].map(format_tenths).join(" to ");
    if is_wider { format!("{}; judged as {} %", claim.paper, ends()) } else { claim.paper.clone() }
}

/// Our number with its interval.
fn told(claim: &Claim) -> Option<String> {
    claim.ours.map(|ours| number(claim.unit, &ours).join(" "))
}

fn in_one_cell(claim: &Claim) -> String {
    let fate = claim.fate.word();
    told(claim).map_or(fate.to_owned(), |ours| format!("{ours}: {fate}"))
}

pub fn document(entries: &[Entry]) -> Document {
    let section = |group: &Group| {
        let columns = group.heads().iter().map(Column::words).collect();
        let rows = group.rows().into_iter().map(|(cells, is_open)| row(cells, is_open)).collect();
        Section::titled("", group.title()).text(group.paper().to_owned()).table(columns, rows).notes(group.from())
    };
    let meaning = Section::default().notes([MEANING.to_owned()]);
    Document {
        title: "What became of the papers' claims?".to_owned(),
        answer: answer(entries),
        sections: Group::all(entries).iter().map(section).chain([meaning]).collect(),
        ..Document::default()
    }
}

fn answer(entries: &[Entry]) -> String {
    let all = || entries.iter().flat_map(|entry| &entry.claims);
    let count = |fate: Fate| all().filter(|claim| claim.fate == fate).count();
    let open = count(Fate::Undecided) + count(Fate::NotMeasured);
    format!(
        "Of {} claims {} stand, {} come out bigger, {} smaller; {open} are undecided or were not measured.",
        all().count(),
        count(Fate::Stands),
        count(Fate::Bigger),
        count(Fate::Smaller)
    )
}

pub fn markdown(entries: &[Entry]) -> String {
    format!("{}\n\n{}", answer(entries), tables(entries))
}

/// A line of a Markdown table.
fn line(cells: &[String]) -> String {
    format!("| {} |\n", cells.join(" | ").replace('\n', " "))
}

/// A Markdown table for each group.
fn tables(entries: &[Entry]) -> String {
    let table = |group: &Group| {
        let rows: String = group.rows().iter().map(|(cells, _)| line(cells)).collect();
        let heads = group.heads();
        let heads = line(&heads) + &line(&vec!["---".to_owned(); heads.len()]);
        format!("**{}** {} {}\n\n{heads}{rows}", group.title(), group.paper(), group.from().join(" "))
    };
    Group::all(entries).iter().map(table).collect::<Vec<_>>().join("\n")
}
