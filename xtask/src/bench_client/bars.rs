//! What the rows must keep to, and the table.

use std::fmt::Write as _;

use super::Row;
use super::client::{Client, Effort};
use crate::statistics::{extremes, median, ratios};

/// At most `share` of the other clients' best.
struct Bar {
    operation: &'static str,
    own: Effort,
    share: f64,
    against: &'static [Client],
}

/// Clients that most people have.
const COMMON: &[Client] = &[Client::Wrk, Client::H2load];
const OHA: &[Client] = &[Client::Oha];
const FLOOR: &[Client] = &[Client::OwnBareTcp];

const fn bar(operation: &'static str, own: Effort, share: f64, against: &'static [Client]) -> Bar {
    Bar { operation, own, share, against }
}

const BARS: [Bar; 16] = [
    bar("ecdsa", Effort::Honest, 0.28, COMMON),
    bar("ecdsa", Effort::Floor, 0.09, COMMON),
    bar("ecdsa", Effort::Honest, 0.75, OHA),
    bar("ecdsa", Effort::Floor, 0.25, OHA),
    bar("ecdsa", Effort::Floor, 2.0, FLOOR),
    bar("rsa", Effort::Honest, 0.25, COMMON),
    bar("rsa", Effort::Floor, 0.12, COMMON),
    bar("rsa", Effort::Honest, 0.75, OHA),
    bar("rsa", Effort::Floor, 0.25, OHA),
    bar("ticket12", Effort::Honest, 0.35, COMMON),
    bar("psk13", Effort::Honest, 0.30, COMMON),
    bar("kept-1k", Effort::Honest, 0.60, COMMON),
    bar("kept-1m", Effort::Honest, 0.80, COMMON),
    bar("http2-1k", Effort::Honest, 0.5, &[Client::H2load]),
    bar("http2-1k-10", Effort::Honest, 0.5, &[Client::H2load]),
    bar("hybrid", Effort::Honest, 0.30, &[Client::H2load]),
];

/// The Markdown table. Missing clients have a row that says how to get them.
pub fn table(rows: &[Row]) -> String {
    let mut out = String::from(
        "| operation | client | client µs | of wrk | client busy | server µs | resumed | operations |\n\
         |---|---|---:|---:|---:|---:|---:|---:|\n",
    );
    for row in rows {
        let (operation, client) = (row.operation.title, row.client.name());
        if row.client_us.is_empty() {
            let why = match &row.failure {
                None => format!("not installed: {}", row.client.source()),
                Some(_) => "failed: see below".to_owned(),
            };
            writeln!(out, "| {operation} | {client} | {why} | | | | | |").expect("writing to a string succeeds");
            continue;
        }
        let of_wrk = measured(rows, row.operation.name, Client::Wrk)
            .map_or_else(|| "-".to_owned(), |wrk| format!("{:.2}", median(&row.client_us) / median(&wrk.client_us)));
        let resumed = match row.logged.requests {
            0 => "-".to_owned(),
            requests => format!("{:.1} %", 100.0 * row.logged.resumed as f64 / requests as f64),
        };
        let [own_us, busy, server_us] = [&row.client_us, &row.client_busy, &row.server_us].map(|values| median(values));
        writeln!(
            out,
            "| {operation} | {client} | {own_us:.1} | {of_wrk} | {:.0} % | {server_us:.1} | {resumed} | {} |",
            100.0 * busy,
            row.operations
        )
        .expect("writing to a string succeeds");
    }
    out
}

fn measured<'rows>(rows: &'rows [Row], operation: &str, client: Client) -> Option<&'rows Row> {
    rows.iter().find(|row| row.operation.name == operation && row.client == client && !row.client_us.is_empty())
}

/// At most `share` of what another operation takes our own client.
const BESIDE: [(&str, &str, f64); 3] =
    [("http2-1k", "kept-1k", 1.5), ("http2-1k-10", "kept-1k", 1.5), ("http2-1m", "kept-1m", 1.1)];

/// Prints a line for each bar whose operation was measured; answers how many are missed (where ours failed, that too),
/// and of how many.
pub fn verdicts(rows: &[Row]) -> (usize, usize) {
    let (mut missed, mut all) = (0, 0);
    println!();
    for bar in BARS {
        let Some(title) = rows.iter().find(|row| row.operation.name == bar.operation).map(|row| row.operation.title)
        else {
            continue;
        };
        all += 1;
        let row = |client| measured(rows, bar.operation, client);
        let best = bar.against.iter().filter_map(|client| row(*client));
        let best = best.min_by(|one, other| median(&one.client_us).total_cmp(&median(&other.client_us)));
        let own = Client::Own(bar.own);
        let names: Vec<_> = bar.against.iter().map(|client| client.name()).collect();
        let (Some(row), Some(best)) = (row(own), best) else {
            println!("not judged: {title}: {} against {}", own.name(), names.join(" and "));
            missed += usize::from(row(own).is_none());
            continue;
        };
        // Rounds that both were in: neighbours in time.
        let ratios = ratios(&row.client_us, &best.client_us);
        let ratio = median(&ratios);
        let verdict = if ratio <= bar.share { "met" } else { "MISSED" };
        missed += usize::from(ratio > bar.share);
        let (least, most) = extremes(&ratios);
        println!(
            "{verdict}: {title}: {} is {ratio:.3} of {} (rounds {least:.3} to {most:.3}), at most {}",
            own.name(),
            best.client.name(),
            bar.share
        );
    }
    for (operation, beside, share) in BESIDE {
        let row = |name| measured(rows, name, Client::Own(Effort::Honest));
        let (Some(row), Some(other)) = (row(operation), row(beside)) else { continue };
        let ratio = median(&row.client_us) / median(&other.client_us);
        all += 1;
        missed += usize::from(ratio > share);
        let verdict = if ratio <= share { "met" } else { "MISSED" };
        println!("{verdict}: {}: {ratio:.3} of {}, at most {share}", row.operation.title, other.operation.title);
    }
    (missed, all)
}
