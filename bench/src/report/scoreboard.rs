//! What became of the papers' claims, on one page: each with the paper's number and ours.

use tlsdyno_base::units::{NONE, format_date, format_interval, format_percent, format_quantity};
use tlsdyno_record::store::Record;
use tlsdyno_stats::scoreboard::{Claim, Fate, Ours, Unit, claims};
use tlsdyno_stats::{Estimate, Metric, Summary};

use super::document::{Column, Document, Section, row};
use super::text::capitalised;

/// The columns of a scoreboard.
const COLUMNS: [&str; 5] = ["claim", "the paper", "here", "95 %", "verdict"];

/// What became of these claims, under this heading. Nothing without any.
pub fn section(title: &str, claims: &[Claim]) -> Section {
    let rows = claims.iter().map(|claim| row(cells(claim), is_open(claim))).collect();
    let meaning = (!claims.is_empty()).then(|| MEANING.to_owned());
    Section::titled("scoreboard", title).table(columns(), rows).notes(meaning)
}

const MEANING: &str = "Stands: our whole 95 % interval lies in the paper's range, which is that of all its machines. \
                       Bigger, smaller: it lies beyond it. Undecided: it reaches across an end. (CPU): from CPU time, \
                       because a cost is told by it, or because something else than the server limited hits per \
                       second.";

fn columns() -> Vec<Column> {
    COLUMNS.iter().map(|name| Column::words(*name)).collect()
}

fn is_open(claim: &Claim) -> bool {
    matches!(claim.fate, Fate::Undecided | Fate::NotMeasured)
}

fn cells(claim: &Claim) -> [String; 5] {
    let [value, ends] = claim.ours.map_or([NONE.to_owned(), NONE.to_owned()], |ours| number(claim.unit, &ours));
    [capitalised(&claim.about), claim.paper.clone(), value, ends, fate_word(claim.fate).to_owned()]
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

fn fate_word(fate: Fate) -> &'static str {
    match fate {
        Fate::Stands => "stands",
        Fate::Bigger => "bigger",
        Fate::Smaller => "smaller",
        Fate::Undecided => "undecided",
        Fate::NotMeasured => "not measured",
    }
}

/// One record on the page: what it asked, where it comes from, and its claims.
struct Entry {
    title: String,
    paper: String,
    server: String,
    from: String,
    claims: Vec<Claim>,
}

fn entry(record: &Record) -> Option<Entry> {
    let summary = Summary::of(record);
    let claims = claims(&summary);
    let manifest = &record.manifest;
    let from = format!(
        "Record {} of {}, {}, {} ({}); {} rounds.",
        short_id(record),
        format_date(record.created_unix_s as i64),
        manifest.server_version,
        manifest.certificate,
        manifest.workload,
        summary.rounds
    );
    let server = format!("{} ({})", manifest.server_name, short_id(record));
    let paper = summary.published.as_ref().map(|published| published.source.clone() + ".").unwrap_or_default();
    (!claims.is_empty()).then(|| Entry { title: record.question.clone(), paper, server, from, claims })
}

fn short_id(record: &Record) -> &str {
    record.id.get(..8).unwrap_or(&record.id)
}

/// The records that asked the same of different servers, or again: side by side.
struct Group<'a> {
    entries: Vec<&'a Entry>,
}

impl Group<'_> {
    /// In the order in which their first records come.
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
        let servers = self.entries.iter().map(|entry| entry.server.as_str());
        COLUMNS[..2].iter().copied().chain(servers).map(str::to_owned).collect()
    }

    /// A row for each claim that one of them has numbers of, and whether it is open in one of them.
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
            let cells = [capitalised(&first.about), first.paper.clone()].into_iter().chain(said).collect();
            (cells, claims.iter().flatten().any(is_open))
        };
        firsts.iter().map(row).collect()
    }

    fn from(&self) -> Vec<String> {
        self.entries.iter().map(|entry| entry.from.clone()).collect()
    }
}

fn in_one_cell(claim: &Claim) -> String {
    let fate = fate_word(claim.fate);
    claim.ours.map_or(fate.to_owned(), |ours| {
        let [value, ends] = number(claim.unit, &ours);
        format!("{value} {ends}: {fate}")
    })
}

/// All of these records as a page.
pub fn document(records: &[Record]) -> Document {
    let entries: Vec<Entry> = records.iter().filter_map(entry).collect();
    let section = |group: &Group| {
        let columns = group.heads().iter().map(Column::words).collect();
        let rows = group.rows().into_iter().map(|(cells, is_open)| row(cells, is_open)).collect();
        Section::titled("", group.title()).text(group.paper().to_owned()).table(columns, rows).notes(group.from())
    };
    let meaning = Section::default().notes([MEANING.to_owned()]);
    Document {
        title: "What became of the papers' claims?".to_owned(),
        answer: answer(&entries),
        sections: Group::all(&entries).iter().map(section).chain([meaning]).collect(),
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

/// All of these records as Markdown tables.
pub fn markdown(records: &[Record]) -> String {
    let entries: Vec<Entry> = records.iter().filter_map(entry).collect();
    let line = |cells: &[String]| format!("| {} |\n", cells.join(" | ").replace('\n', " "));
    let table = |group: &Group| {
        let rows: String = group.rows().iter().map(|(cells, _)| line(cells)).collect();
        let heads = group.heads();
        let heads = line(&heads) + &line(&vec!["---".to_owned(); heads.len()]);
        format!("**{}** {} {}\n\n{heads}{rows}", group.title(), group.paper(), group.from().join(" "))
    };
    let tables: Vec<String> = Group::all(&entries).iter().map(table).collect();
    format!("{}\n\n{}", answer(&entries), tables.join("\n"))
}
