//! `tlsdyno list`: the records in the store.

use std::io::IsTerminal;

use crate::exit::Exit;
use crate::fault::{Fault, OrFault};
use crate::foreign::{clipped, visible};
use crate::report::document::{Cell, Column, Field, Table};
use crate::report::terminal::{Style, table_text};
use crate::store::{Listing, Store, StoreError};
use crate::units::format_date;

/// List the records, newest first
///
/// Records are kept in one SQLite file in the XDG data directory; TLSDYNO_STORE names another.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Print one JSON array instead of a table
    #[arg(long)]
    json: bool,
}

pub fn run(args: &Args) -> anyhow::Result<Exit> {
    let records = match Store::open_for_reading().and_then(|store| store.list()) {
        // That nothing was recorded yet is no failure of listing.
        Err(StoreError::Empty { .. }) => Vec::new(),
        records => records.or_fault(Fault::Input)?,
    };
    let text = match (args.json, std::io::stdout().is_terminal()) {
        (true, _) => crate::output::json_of(&records)?,
        (false, true) => as_table(&records, Style::of_stdout(), true),
        (false, false) => as_table(&records, Style::of_stdout(), false),
    };
    crate::output::answer(text)
}

/// A line per record: whole, or `fitted` into the width of the style.
fn as_table(records: &[Listing], style: Style, fitted: bool) -> String {
    if records.is_empty() {
        return "No records yet. `tlsdyno ablate --quick` makes one.\n".to_owned();
    }
    let fields: [Field<Listing>; _] = [
        (Column::words("record"), |record| record.id.clone()),
        (Column::words("began"), |record| format_date(record.created_unix_s as i64)),
        (Column::words("server"), |record| server(&record.server)),
        (Column::number("blocks"), |record| record.blocks.to_string()),
        (Column::words("state"), |record| if record.finished { "complete" } else { "stopped" }.to_owned()),
        (Column::words("TLS, certificate, workload"), measured),
        (Column::words("machine"), |record| record.machine.clone()),
        (Column::words("question"), |record| record.question.clone()),
    ];
    let mut table = Table::from_fields(fields, records);
    if fitted {
        fit(&mut table, style.width);
    }
    table_text(&table, style) + "\n"
}

const BEGAN: usize = 1;
const SERVER: usize = 2;
const BLOCKS: usize = 3;
const STATE: usize = 4;
const MEASURED: usize = 5;
const MACHINE: usize = 6;
/// Columns that a terminal must have to show what was measured, and how far it came.
const WIDE: usize = 140;
/// As above, for the machine.
const WIDEST: usize = 200;
const MIDDLE: usize = 100;
/// Most of a server's name, and least of a question, that a terminal shows.
const SERVER_MAX: usize = 20;
const QUESTION_MIN: usize = 12;

/// One line for each record on a terminal of this width: without the less important columns, and with the server and
/// the question, which is the last, cut.
fn fit(table: &mut Table, width: usize) {
    let cut = |cell: &mut Cell, most: usize| cell.text = clipped(visible(&cell.text).chars(), most);
    table.rows.iter_mut().for_each(|row| cut(&mut row[SERVER], SERVER_MAX - 1));
    if width < MIDDLE {
        table.columns[BEGAN].name = "began, UTC".to_owned();
        let cells = table.rows.iter_mut().map(|row| &mut row[BEGAN].text);
        cells.for_each(|text| *text = text.trim_end_matches(" UTC").to_owned());
    }
    for (column, least) in [(MACHINE, WIDEST), (MEASURED, WIDE), (STATE, MIDDLE), (BLOCKS, MIDDLE)] {
        if width < least {
            table.columns.remove(column);
            table.rows.iter_mut().for_each(|row| drop(row.remove(column)));
        }
    }
    let widest = |column: usize| {
        let cells = table.rows.iter().map(|row| row[column].text.chars().count());
        cells.max().unwrap_or(0).max(table.columns[column].name.chars().count())
    };
    let last = table.columns.len() - 1;
    // Each column has a space on both sides, and what is cut an ellipsis.
    let others: usize = (0..last).map(|column| widest(column) + 2).sum();
    let room = width.saturating_sub(others + 3).max(QUESTION_MIN);
    table.rows.iter_mut().for_each(|row| cut(&mut row[last], room));
}

/// An own command by its program alone.
fn server(text: &str) -> String {
    match text.split_once(' ') {
        Some((program, _)) => format!("{} …", program.rsplit('/').next().unwrap_or(program)),
        None => text.to_owned(),
    }
}

/// What was measured, in short: the whole texts are in JSON and in the report.
fn measured(record: &Listing) -> String {
    let first = |text: &str, end: char| text.split(end).next().unwrap_or_default().trim().to_owned();
    let parts = [first(&record.negotiated, ';'), first(&record.certificate, ','), first(&record.workload, ':')];
    parts.into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_per_record() {
        assert!(as_table(&[], Style::PLAIN, false).contains("ablate --quick"));
        let record = Listing {
            id: "3fd1c07a92e4".to_owned(),
            created_unix_s: 1_795_190_400,
            question: "What does each TLS component cost?".to_owned(),
            server: "nginx".to_owned(),
            finished: false,
            blocks: 41,
            version: "nginx/1.22.1".to_owned(),
            negotiated: "1.3 AES128-GCM X25519".to_owned(),
            certificate: "rsa-2048".to_owned(),
            workload: "ecommerce: 240,000 hits".to_owned(),
            machine: "AMD EPYC 26/2/1 avx512ifma".to_owned(),
        };
        let text = as_table(std::slice::from_ref(&record), Style::PLAIN, false);
        let line = text.lines().nth(1).expect("a line");
        let words: Vec<&str> = line.split_whitespace().collect();
        assert!(
            as_table(&[Listing { question: "q\u{1b}[31m".to_owned(), ..record.clone() }], Style::PLAIN, false)
                .contains("q\\u{1b}[31m")
        );
        assert_eq!(server("/opt/nginx-new/nginx -p {dir} -c nginx.conf"), "nginx …");
        assert!(line.contains("1.3 AES128-GCM X25519, rsa-2048, ecommerce"), "{line}");
        assert!(line.contains("  AMD EPYC 26/2/1 avx512ifma  "), "{line}");
        let long = Listing {
            question: "What does each TLS component cost this server, and what else? ".repeat(3),
            server: "https://a-long-name.of-a-server.example/with/a/path".to_owned(),
            ..record
        };
        for width in [80, 100, 120, 140, 200] {
            let text = as_table(std::slice::from_ref(&long), Style { rich: false, width }, true);
            assert_eq!(text.lines().count(), 2, "{width}: {text}");
            assert!(text.lines().all(|line| line.chars().count() <= width) && text.contains("What does"), "{text}");
            assert_eq!(text.contains("avx512ifma"), width >= WIDEST, "{text}");
            assert_eq!([text.contains("rsa-2048"), text.contains("41")], [width >= WIDE, width >= MIDDLE], "{text}");
        }
        assert!(!as_table(&[long], Style::PLAIN, false).contains('…'), "a file has all of it");
        assert_eq!(words[..7], ["3fd1c07a92e4", "2026-11-20", "16:00", "UTC", "nginx", "41", "stopped"]);
    }
}
