//! Runs the matrix of reuse exactness and prints it in Markdown: `reuse_matrix TLSDYNO CONNECTIONS [SERVER]`, where
//! TLSDYNO is the program that loads. `cargo run --release -p xtask -- reuse-matrix` calls it and writes docs/LOAD.md.

use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context, Result, ensure};
use tlsdyno::servers::launch::set_own_executable;

#[path = "../tests/traffic/reuse_matrix.rs"]
mod reuse_matrix;
#[path = "../tests/traffic/stacks/mod.rs"]
mod stacks;

use reuse_matrix::{Server, Sessions, measure};

const SERVERS: [Server; 5] = [Server::Nginx, Server::Apache, Server::Haproxy, Server::Go, Server::Rustls];
const PERCENTS: [u32; 8] = [0, 10, 33, 50, 80, 96, 98, 100];
/// Percentage points.
const TOLERANCE: f64 = 0.2;

fn main() -> Result<ExitCode> {
    let mut arguments = std::env::args().skip(1);
    let program = arguments.next().context("usage: reuse_matrix TLSDYNO CONNECTIONS [SERVER]")?;
    let connections = arguments.next().context("how many connections?")?.parse().context("how many connections?")?;
    let name = arguments.next();
    let is_wanted = |server: &Server| name.as_ref().is_none_or(|name| server.to_string().eq_ignore_ascii_case(name));
    let servers: Vec<Server> = SERVERS.into_iter().filter(is_wanted).collect();
    ensure!(!servers.is_empty(), "no such server; take one of nginx, apache, haproxy, go, rustls");
    let program = Path::new(&program);
    set_own_executable(program);
    let heads: Vec<String> = PERCENTS.iter().map(|percent| format!("{percent} %")).collect();
    println!("| server | session | {} | largest deviation |", heads.join(" | "));
    println!("|---|---|{}", "---|".repeat(PERCENTS.len() + 1));
    let (mut missed, mut missed_offers, mut disagreeing) = (0, 0, 0);
    for server in servers {
        for sessions in Sessions::ALL {
            if let Some(why) = sessions.impossible(server) {
                println!("| {server} | {sessions} | {why} |{}", " |".repeat(PERCENTS.len()));
                continue;
            }
            eprintln!("{server}, {sessions}");
            let cells = measure(program, server, sessions, &PERCENTS, connections)?;
            let achieved: Vec<String> = cells.iter().map(|cell| format!("{:.3}", cell.achieved_percent())).collect();
            let largest = cells.iter().map(reuse_matrix::Cell::deviation).fold(0.0, f64::max);
            println!("| {server} | {sessions} | {} | {largest:.3} |", achieved.join(" | "));
            missed += cells.iter().filter(|cell| cell.deviation() > TOLERANCE).count();
            missed_offers += cells.iter().filter(|cell| cell.deviation_offered() > TOLERANCE).count();
            disagreeing += cells.iter().filter(|cell| cell.accepted != cell.resumed).count();
        }
    }
    println!(
        "\nBeyond {TOLERANCE} percentage points: {missed}, by what was offered: {missed_offers}. Where client and \
         server disagree: {disagreeing}."
    );
    // What a server refused is a finding; an offer too many or too few, or a wrong count, is a fault.
    Ok(if missed_offers + disagreeing == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
