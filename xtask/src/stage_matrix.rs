//! The stage × server matrix: makes it on every server and writes docs/STAGES.md.

mod column;

use std::collections::BTreeMap;
use std::fmt::Write as _;

use anyhow::{Context, Result};
use column::{CONNECTIONS, Cell, check, configurations, tls_variants};
use tlsdyno::model::ServerName;
use tlsdyno::servers::launch::set_own_executable;

use crate::tlsdyno::{build, workspace};

/// What the matrix has.
#[derive(clap::Args)]
pub struct Arguments {
    /// All, if none is named
    #[arg(value_name = "SERVER")]
    servers: Vec<String>,
    /// Print the page; docs/STAGES.md stays as it is
    #[arg(long)]
    print: bool,
}

/// Builds tlsdyno, whose supervisor and built-in server are used, makes the matrix and writes the table.
///
/// # Errors
/// It cannot be built or run; a server is not installed.
pub fn run(arguments: &Arguments) -> Result<()> {
    set_own_executable(&build()?);
    let names = &arguments.servers;
    let wanted = |server: &ServerName| names.is_empty() || names.iter().any(|name| name == server.name());
    let servers: Vec<ServerName> = ServerName::configured().filter(wanted).collect();
    let page = page(&servers).context("the matrix could not be made")?;
    if arguments.print {
        print!("{page}");
        return Ok(());
    }
    let path = workspace().join("docs/STAGES.md");
    std::fs::write(&path, page).with_context(|| format!("write {}", path.display()))?;
    eprintln!("wrote {}", path.display());
    Ok(())
}

/// What is said besides the tables, once every server has run.
#[derive(Default)]
struct Remarks {
    /// In order of appearance.
    versions: Vec<String>,
    notes: Vec<String>,
}

fn page(servers: &[ServerName]) -> Result<String> {
    let mut remarks = Remarks::default();
    let mut tables = String::new();
    for (variant, tls) in tls_variants() {
        let mut rows: BTreeMap<usize, (String, Vec<String>)> = BTreeMap::new();
        for server in servers {
            let mut say = |name: &str| eprintln!("{variant}, {}: {name}", server.name());
            let column = check(*server, &tls, configurations(&tls), &mut say)?;
            for (index, cell) in column.cells.iter().enumerate() {
                let row = rows.entry(index).or_insert_with(|| (cell.configuration.clone(), Vec::new()));
                row.1.push(mark(cell, &format!("{}, {variant}", server.name()), &mut remarks.notes));
            }
            if !remarks.versions.contains(&column.version) {
                remarks.versions.push(column.version);
            }
        }
        writeln!(tables, "\n## {variant}, {}, {}\n", tls.suites()[0], tls.certificate())?;
        let names: Vec<&str> = servers.iter().map(|server| server.name()).collect();
        writeln!(tables, "| configuration | {} |", names.join(" | "))?;
        writeln!(tables, "|---|{}", "---|".repeat(servers.len()))?;
        for (configuration, marks) in rows.values() {
            writeln!(tables, "| {configuration} | {} |", marks.join(" | "))?;
        }
    }
    whole_page(&tables, &remarks)
}

fn whole_page(tables: &str, remarks: &Remarks) -> Result<String> {
    let mut page = "# Stages on real servers\n\n".to_owned();
    writeln!(
        page,
        "Made by `cargo run -p xtask -- stage-matrix`. A check mark: the configuration passed its preflight \
         (docs/NOOP.md), {CONNECTIONS} connections at once with every body compared byte for byte, and the same again \
         after the server had reloaded its configuration (the built-in one: after a restart). A dash: the server has \
         no such thing. Otherwise the number of the note that says what failed.\n"
    )?;
    writeln!(page, "Run with: {}.", remarks.versions.join("; "))?;
    page.push_str(tables);
    if !remarks.notes.is_empty() {
        page.push_str("\n## Notes\n\n");
    }
    for (number, note) in (1..).zip(&remarks.notes) {
        writeln!(page, "{number}. {note}")?;
    }
    Ok(page)
}

/// A check mark, a dash, or the number of a note.
fn mark(cell: &Cell, place: &str, notes: &mut Vec<String>) -> String {
    if cell.unable.is_some() {
        return "–".to_owned();
    }
    let failures: Vec<String> = cell.failures().map(|check| format!("{} ({})", check.name, check.seen)).collect();
    if failures.is_empty() {
        return "\u{2713}".to_owned();
    }
    let text = failures.join("; ").replace(['\n', '|'], " ");
    notes.push(format!("{place}, {}: {text}", cell.configuration));
    format!("note {}", notes.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_failed_is_a_note_and_what_a_server_cannot_a_dash() {
        let cell = |failed: &str, unable: Option<&str>| Cell {
            configuration: "no cipher".to_owned(),
            checks: vec![tlsdyno::run::preflight::Check::new("it answers", failed.is_empty(), failed)],
            unable: unable.map(str::to_owned),
        };
        let mut remarks = Remarks { versions: vec!["nginx 1.22".to_owned()], notes: Vec::new() };
        let cells = [cell("", None), cell("", Some("it has none")), cell("a | b", None)];
        let marks = cells.map(|cell| mark(&cell, "nginx, TLS 1.3", &mut remarks.notes));
        assert_eq!(marks, ["\u{2713}", "–", "note 1"]);
        let page = whole_page("\n| tables |\n", &remarks).unwrap();
        assert!(page.contains("Run with: nginx 1.22.\n\n| tables |\n\n## Notes\n"), "{page}");
        assert!(page.ends_with("1. nginx, TLS 1.3, no cipher: it answers (a   b)\n"), "{page}");
    }
}
