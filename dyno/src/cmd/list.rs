//! `tlsdyno list`: the records in the store.

use crate::exit::Exit;
use crate::fault::{Fault, OrFault};
use crate::report::document::{Column, Field, Table};
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

/// Prints the list.
pub fn run(args: &Args) -> anyhow::Result<Exit> {
    let records = match Store::open_for_reading().and_then(|store| store.list()) {
        // That nothing was recorded yet is no failure of listing.
        Err(StoreError::Empty { .. }) => Vec::new(),
        records => records.or_fault(Fault::Input)?,
    };
    super::print(if args.json { super::json_of(&records)? } else { as_table(&records, Style::of_stdout()) })?;
    Ok(Exit::Done)
}

fn as_table(records: &[Listing], style: Style) -> String {
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
        (Column::words("question"), |record| record.question.clone()),
    ];
    table_text(&Table::of(fields, records), style) + "\n"
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
        assert!(as_table(&[], Style::PLAIN).contains("ablate --quick"));
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
        };
        let text = as_table(std::slice::from_ref(&record), Style::PLAIN);
        let line = text.lines().nth(1).expect("a line");
        let words: Vec<&str> = line.split_whitespace().collect();
        assert!(
            as_table(&[Listing { question: "q\u{1b}[31m".to_owned(), ..record }], Style::PLAIN)
                .contains("q\\u{1b}[31m")
        );
        assert_eq!(server("/opt/nginx-new/nginx -p {dir} -c nginx.conf"), "nginx …");
        assert!(line.contains("1.3 AES128-GCM X25519, rsa-2048, ecommerce"), "{line}");
        assert_eq!(words[..7], ["3fd1c07a92e4", "2026-11-20", "16:00", "UTC", "nginx", "41", "stopped"]);
    }
}
