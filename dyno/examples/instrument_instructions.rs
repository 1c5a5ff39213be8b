//! Counts what the idle instrument adds to a server's instructions and prints it in Markdown: `instrument_instructions TLSDYNO KEEP [SERVER
//! ...]`, where TLSDYNO is the program whose supervisor is used, and callgrind's files are kept in the directory KEEP (`-`: nowhere).
//! `cargo run -p xtask -- instrument-instructions` calls it. The built-in server is not among them: it asks the kernel's vDSO for the time,
//! which valgrind hides.

use std::path::Path;

use anyhow::{Context, Result, ensure};
use tlsdyno::experiment::instructions::{Count, configurations, count};
use tlsdyno::experiment::model::ServerName;
use tlsdyno::servers::launch::set_own_executable;

const SERVERS: [ServerName; 5] =
    [ServerName::Nginx, ServerName::Lighttpd, ServerName::Haproxy, ServerName::ApacheEvent, ServerName::ApachePrefork];

fn main() -> Result<()> {
    let mut arguments = std::env::args().skip(1);
    let usage = "usage: instrument_instructions TLSDYNO KEEP [SERVER ...]";
    let program = arguments.next().context(usage)?;
    let keep = arguments.next().context(usage)?;
    let keep = (keep != "-").then(|| Path::new(&keep));
    set_own_executable(Path::new(&program));
    let names: Vec<String> = arguments.collect();
    for name in &names {
        let known = SERVERS.map(|server| server.name());
        ensure!(
            known.contains(&name.as_str()),
            "no instructions are counted of {name}; of these they are: {}",
            known.join(", ")
        );
    }
    let columns: Vec<String> = configurations().into_iter().map(|one| one.name).collect();
    println!("| server | {} |", columns.join(" | "));
    println!("|---|{}", "---:|".repeat(columns.len()));
    for server in SERVERS.into_iter().filter(|one| names.is_empty() || names.iter().any(|name| name == one.name())) {
        let mut say = |name: &str| eprintln!("{}: {name}", server.name());
        let counts = count(server, keep, &mut say)?;
        let cells: Vec<String> = counts.iter().map(|one| cell(one, &counts[0])).collect();
        println!("| {} | {} |", server.name(), cells.join(" | "));
    }
    Ok(())
}

/// Of the untouched server the count, of the others what they add, each with how well it repeats.
fn cell(count: &Count, as_is: &Count) -> String {
    if count == as_is {
        return format!("{:.0} ± {:.0}", count.mean(), count.spread());
    }
    let percent = |instructions: f64| 100.0 * instructions / as_is.mean();
    let (more, spread) = (count.mean() - as_is.mean(), count.spread() + as_is.spread());
    format!("{more:+.0} ({:+.2} ± {:.2} %)", percent(more), percent(spread))
}
