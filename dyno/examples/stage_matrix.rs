//! Makes the stage × server matrix and prints it in Markdown: `stage_matrix TLSDYNO [SERVER ...]`, where TLSDYNO is the program whose
//! supervisor and built-in server are used. `cargo run -p xtask -- stage-matrix` calls it and writes docs/STAGES.md.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;

use anyhow::{Context, Result};
use tlsdyno::experiment::matrix::{CONNECTIONS, Cell, check, configurations, tls_variants};
use tlsdyno::experiment::model::ServerName;
use tlsdyno::servers::launch::set_own_executable;

const SERVERS: [ServerName; 6] = [
    ServerName::Builtin,
    ServerName::Nginx,
    ServerName::ApacheEvent,
    ServerName::ApachePrefork,
    ServerName::Haproxy,
    ServerName::Lighttpd,
];

fn main() -> Result<()> {
    let mut arguments = std::env::args().skip(1);
    let program = arguments.next().context("usage: stage_matrix TLSDYNO [SERVER ...]")?;
    set_own_executable(Path::new(&program));
    let names: Vec<String> = arguments.collect();
    let wanted = |server: &ServerName| names.is_empty() || names.iter().any(|name| name == server.name());
    let servers: Vec<ServerName> = SERVERS.into_iter().filter(wanted).collect();
    // In order of appearance; known once a server has run, and said before the tables.
    let mut versions: Vec<String> = Vec::new();
    let mut notes: Vec<String> = Vec::new();
    let mut text = String::new();
    for (variant, tls) in tls_variants() {
        writeln!(text, "\n## {variant}, {}, {}\n", tls.suite.as_deref().unwrap_or_default(), tls.certificate)?;
        let names: Vec<&str> = servers.iter().map(|server| server.name()).collect();
        writeln!(text, "| configuration | {} |", names.join(" | "))?;
        writeln!(text, "|---|{}", "---|".repeat(servers.len()))?;
        let mut rows: BTreeMap<usize, (String, Vec<String>)> = BTreeMap::new();
        for server in &servers {
            let mut say = |name: &str| eprintln!("{variant}, {}: {name}", server.name());
            let column = check(*server, &tls, configurations(&tls), &mut say)?;
            for (index, cell) in column.cells.iter().enumerate() {
                let row = rows.entry(index).or_insert_with(|| (cell.configuration.clone(), Vec::new()));
                row.1.push(mark(cell, &format!("{}, {variant}", server.name()), &mut notes));
            }
            if !versions.contains(&column.version) {
                versions.push(column.version);
            }
        }
        for (configuration, marks) in rows.values() {
            writeln!(text, "| {configuration} | {} |", marks.join(" | "))?;
        }
    }
    print_page(&versions, &text, &notes);
    Ok(())
}

fn print_page(versions: &[String], tables: &str, notes: &[String]) {
    println!("# Stages on real servers\n");
    println!(
        "Made by `cargo run -p xtask -- stage-matrix`. A check mark: the configuration passed its preflight (docs/NOOP.md), {CONNECTIONS} \
         connections at once with every body compared byte for byte, and the same again after the server had reloaded its \
         configuration (the built-in one: after a restart). A dash: the server has no such thing. Otherwise the number of the note that says \
         what failed.\n"
    );
    println!("Run with: {}.", versions.join("; "));
    print!("{tables}");
    if !notes.is_empty() {
        println!("\n## Notes\n");
    }
    for (number, note) in (1..).zip(notes) {
        println!("{number}. {note}");
    }
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
