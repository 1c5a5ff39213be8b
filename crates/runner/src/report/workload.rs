//! Workloads and access logs in numbers, as documents.

use std::fmt::Display;

use serde_json::{Value, json};
use tlsdyno_base::bootstrap::Estimate;
use tlsdyno_base::foreign::quoted;
use tlsdyno_base::units::{
    format_binary_bytes, format_count, format_date, format_of, format_percent, format_seconds, format_tenths,
};
use tlsdyno_record::store::{Reuse, Row};
use tlsdyno_report::rows::Rows;
use tlsdyno_workloads::{Excluded, HarSummary, Lifetime, LogRead, LogScan, LogSummary, Sizes, Summary};

use super::charts::{COLOURS, line_legend, palette, quantity, tooltip, with};
use super::circumstances;
use super::document::{Chart, Content, Document, Medium, Section};

/// Name of the curve of sessions that each request renews.
const RENEWED: &str = "renewed by each hit (TLS 1.3 tickets)";

/// Names with their values; an empty name continues the one before.
type Facts = Vec<(String, String)>;

fn fact(name: &str, value: impl Into<String>) -> (String, String) {
    (name.to_owned(), value.into())
}

pub fn workload(summary: &Summary) -> Document {
    let hits = summary.hits.max(1) as f64;
    let bytes = |bytes: u64, each: &Sizes| format!("{}: {}", format_binary_bytes(bytes as f64), sizes(each));
    let mut facts = vec![
        fact("workload", &summary.workload),
        fact("hits", format_count(summary.hits)),
        fact("users", format_count(summary.users)),
        fact("TLS sessions", sessions(summary.sessions, summary.full_handshakes_per_hit_percent)),
    ];
    if summary.sessions != summary.users {
        let percent = format_percent(100.0 * summary.users as f64 / hits);
        facts.push(fact("", format!("({percent} if only the first request of each user did)")));
    }
    let each_of = |number: u64| format_tenths(summary.hits as f64 / number.max(1) as f64);
    facts.push(fact("", format!("{} hits for each full handshake", each_of(summary.sessions))));
    let each = each_of(summary.pages);
    facts.extend([
        fact("pages", format!("{}, {each} hits each", format_count(summary.pages))),
        fact("connections", format!("closed {} times by the users", format_count(summary.closes))),
        fact("objects", format!("{}, from {} files", format_count(summary.objects), format_count(summary.files))),
    ]);
    let sizes = [
        ("responses", summary.response_bytes, &summary.response_size_bytes),
        ("files", summary.corpus_bytes, &summary.file_size_bytes),
    ];
    facts.extend(sizes.into_iter().filter(|of| of.1 > 0).map(|(name, sum, sizes)| fact(name, bytes(sum, sizes))));
    if let Some(har) = &summary.har {
        let pages = format!("{} pages of {}", format_count(har.pages), quoted(&har.origin));
        facts.push(fact("recording", pages));
        facts.push(fact("left out", format!("{} requests to other sites", format_count(har.other_origins))));
        facts.push(fact("", format!("{} entries that no server answered", format_count(har.not_requested))));
    }
    let mut warnings: Vec<String> = summary.har.iter().flat_map(HarSummary::warnings).collect();
    if let Some(log) = &summary.log {
        facts.extend(replayed_log(log));
        warnings.extend(log.read.warnings());
    }
    Document::from_sections([Section::default().with(Content::Facts(facts)), circumstances::warnings(warnings)])
}

/// Contents of a log that is replayed.
fn replayed_log(log: &LogSummary) -> Facts {
    let mut facts = used(&log.read);
    facts.push(fact("replayed as", listed(&log.replayed_as)));
    facts.extend(left_out(&log.read));
    let notes = [
        (
            log.read.backward_time_stamps,
            "lines are stamped earlier than the line before; the order of the log was kept",
        ),
        (log.renamed_files, "files are requested under another path, since the log's cannot name a file"),
        (log.files_of_varying_size, "files had several sizes; the most usual was taken"),
        (log.files_of_unknown_size, "files are empty, since the log never shows their size"),
    ];
    let told = notes.into_iter().filter(|(number, _)| *number > 0);
    facts.extend(told.map(|(number, text)| fact("note", format!("{} {text}", format_count(number)))));
    facts
}

/// What a log says about session reuse.
pub fn log(scan: &LogScan) -> Document {
    let estimated = if scan.users_exact { "" } else { " (estimated to 0.8 %)" };
    let lifetime = match scan.session_lifetime_s {
        Some(seconds) => format!("a session ends after {} without a request", format_seconds(seconds)),
        None => "only the first request of each user needs one".to_owned(),
    };
    let kept = format!("if connections close after {} without a request", format_seconds(scan.keep_alive_s));
    let responses = format!(
        "{} as logged: {}",
        format_binary_bytes(scan.read.logged_bytes as f64),
        sizes(&scan.response_size_bytes)
    );
    let mut facts = vec![
        fact("workload", &scan.workload),
        fact("hits", format_count(scan.hits)),
        fact("users", format_count(scan.users) + estimated),
        fact("TLS sessions", sessions(scan.sessions, scan.full_handshakes_per_hit_percent)),
        fact("", format!("({lifetime})")),
        fact("", format!("{} hits for each full handshake", format_tenths(scan.hits_per_full_handshake))),
        fact("", format!("{} hits for each of either kind, {kept}", format_tenths(scan.hits_per_connection))),
        fact("responses", responses),
    ];
    facts.extend(used(&scan.read).into_iter().chain(left_out(&scan.read)));
    if scan.read.backward_time_stamps > 0 {
        let earlier = format_of(scan.read.backward_time_stamps as f64, "line");
        facts.push(fact("note", format!("{earlier} stamped earlier than the line before")));
    }
    let answer = answer(&scan.reuse);
    let sections = vec![
        circumstances::warnings(scan.read.warnings()).on(Medium::Page),
        Section::default().on(Medium::Page).charts(chart(&scan.reuse, &answer)),
        Section::default().with(Content::Facts(facts)),
        circumstances::warnings(scan.read.warnings()).on(Medium::Terminal),
        reuse_table(&scan.reuse),
        lifetimes(&scan.lifetimes, None, &[]),
    ];
    let title = format!("What does session reuse look like in {}?", scan.workload);
    Document { title, answer, sections, ..Document::default() }
}

fn used(read: &LogRead) -> Facts {
    let range = |(first, last)| format!(", {} to {}", format_date(first), format_date(last));
    let lines = format!("{} lines{}", format_count(read.lines), read.time_range_s.map_or_else(String::new, range));
    let facts = [fact("log", lines), fact("methods", listed(&read.methods)), fact("statuses", listed(&read.statuses))];
    facts.into_iter().chain(read.notes().iter().map(|note| fact("note", note))).collect()
}

fn left_out(read: &LogRead) -> Facts {
    let malformed: u64 = read.malformed.iter().map(|malformed| malformed.lines).sum();
    let mut facts = vec![fact("malformed", format!("{} lines", format_count(malformed)))];
    let line = |excluded: &Excluded| format!("{} lines by {}", format_count(excluded.lines), excluded.by);
    facts.extend(read.excluded.iter().map(|excluded| fact("excluded", line(excluded))));
    facts.push(fact("busiest", listed(read.busiest_clients.iter().map(|busy| (&busy.client, &busy.hits)))));
    facts
}

fn sessions(sessions: u64, full_percent: f64) -> String {
    format!("{}: {} of the hits need a full handshake", format_count(sessions), format_percent(full_percent))
}

/// `name number` of each, separated by commas.
fn listed<'items, Name: Display + 'items>(items: impl IntoIterator<Item = (&'items Name, &'items u64)>) -> String {
    let texts = items.into_iter().map(|(name, number)| format!("{name} {}", format_count(*number)));
    texts.collect::<Vec<_>>().join(", ")
}

fn sizes(sizes: &Sizes) -> String {
    let [p50, p90, p99, max] =
        [sizes.p50, sizes.p90, sizes.p99, sizes.max].map(|bytes| format_binary_bytes(bytes as f64));
    let mean = format_binary_bytes(sizes.mean);
    format!("mean {mean}, half up to {p50}, 90 % up to {p90}, 99 % up to {p99}, largest {max}")
}

/// Reuse at the default lifetime of servers, in a sentence.
fn answer(reuse: &Reuse) -> String {
    let at_300_s = reuse.rows.iter().find(|row| row.lifetime_s == 300);
    let percent = at_300_s.and_then(|row| row.percent_by_limit.last()).copied().unwrap_or_default();
    let percent = format_percent(percent);
    format!("With sessions of 300 s, the default of nginx and Apache, {percent} of the hits reuse one.")
}

fn limits(reuse: &Reuse, any: &str) -> Vec<String> {
    reuse.limits.iter().map(|limit| limit.map_or(any.to_owned(), |limit| format!("{limit} hits"))).collect()
}

/// Percentages of a lifetime, in the order of the columns.
fn percents(row: &Row) -> impl Iterator<Item = f64> {
    row.percent_by_limit.iter().copied().chain([row.percent_renewed])
}

fn reuse_table(reuse: &Reuse) -> Section {
    let rows = Rows::new(&reuse.rows).words("lasts", |row| format_seconds(row.lifetime_s));
    let rows = rows.words("carries", |_| String::new());
    let limits = limits(reuse, "any hits").into_iter().enumerate();
    let rows =
        limits.fold(rows, |rows, (at, limit)| rows.number(limit, |row| format_percent(row.percent_by_limit[at])));
    let rows = rows.number("is renewed by each hit", |row| format_percent(row.percent_renewed));
    Section::titled("", "percent reuse (1 - full handshakes / hits), if a session").rows(rows)
}

/// Gain of each session lifetime, and the time for which a theft opens recorded traffic. `keys_change_s`: time for
/// which a ticket key makes tickets, seconds; `None`: as long as a session. `saved`: names of costs with the saved part
/// of the CPU time by lifetime.
pub fn lifetimes(of: &[Lifetime], keys_change_s: Option<u32>, saved: &[(String, Vec<Estimate>)]) -> Section {
    let numbered: Vec<(usize, &Lifetime)> = of.iter().enumerate().collect();
    let opened = |lifetime_s: u32| match lifetime_s.saturating_add(keys_change_s.unwrap_or(lifetime_s)) {
        seconds if seconds > 2 * 3600 => format!("{} h", format_tenths(f64::from(seconds) / 3600.0)),
        seconds => format_seconds(seconds),
    };
    let mut rows = Rows::new(&numbered)
        .words("lasts", |(_, of)| format_seconds(of.lifetime_s))
        .number("resumed, TLS 1.2", |(_, of)| format_percent(of.resumed_percent))
        .number("TLS 1.3", |(_, of)| format_percent(of.renewed_percent));
    for (name, parts) in saved {
        let part = |(at, _): &(usize, &Lifetime)| Some(parts[*at].scaled(100.0));
        rows = rows.estimate(format!("% of CPU saved{name}"), format_tenths, part);
    }
    let rows = rows
        .number("stolen cache opens", |(_, of)| format_seconds(of.lifetime_s))
        .number("stolen ticket key opens", |(_, of)| opened(of.lifetime_s));
    let notes = [
        "resumed: connections of this log, counted from the full handshake (TLS 1.2) or from the last connection, \
         which brings a new ticket (TLS 1.3).",
        "stolen … opens: for so long after a connection of TLS 1.2, its recording can be read by whoever takes the \
         server's session cache, or its ticket key. A key makes tickets until it changes (here once a lifetime, or as \
         --rotate-keys of plan says) and reads them for a lifetime more (RFC 5077 sections 5.5 and 5.6). A server that \
         keeps one key is open for as long as it runs.",
        "In TLS 1.3 that holds for early data alone, and for all data of connections resumed without a key agreement \
         (psk_ke; RFC 8446 sections 2.2, 2.3). Tickets that are used once and deleted leave nothing to steal (8.1).",
    ];
    Section::titled("lifetimes", "connections that resume, if a session").rows(rows).notes(notes.map(str::to_owned))
}

fn chart(reuse: &Reuse, answer: &str) -> Option<Chart> {
    let mut names = limits(reuse, "any number of hits");
    names.push(RENEWED.to_owned());
    let point = |row: &Row, name: &String, percent: f64| {
        json!({"lifetime_s": row.lifetime_s, "lasts": format_seconds(row.lifetime_s), "limit": name,
               "percent": percent, "label": format_percent(percent)})
    };
    let points = |row| names.iter().zip(percents(row)).map(move |(name, percent)| point(row, name, percent));
    let rows: Vec<Value> = reuse.rows.iter().flat_map(points).collect();
    let ticks: Vec<u32> = reuse.rows.iter().map(|row| row.lifetime_s).collect();
    let x = json!({"scale": {"type": "log"}, "axis": {"values": ticks, "format": "d"}});
    let test = json!({"field": "limit", "equal": RENEWED});
    let body = json!({
        "mark": {"type": "line", "point": true},
        "encoding": {
            "x": with(quantity("lifetime_s", "a session lasts (seconds)"), x),
            "y": with(quantity("percent", "percent reuse (of hits)"), json!({"scale": {"zero": false}})),
            "color": with(palette("limit", &names, &COLOURS), line_legend(Some("and carries"), 3)),
            "strokeDash": {"condition": {"test": test, "value": [4, 3]}, "value": [1, 0]},
            "tooltip": tooltip([("lasts", "lasts"), ("limit", "carries"), ("label", "percent reuse")]),
        }
    });
    let caption = "Percent reuse is 1 − full handshakes / hits. A session ends when it is older than the time or has \
                   carried that many hits; where each hit renews it, only a pause of that length ends it.";
    Some(Chart::new("reuse", 320, rows, body)?.described(caption, answer))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::render::terminal::{Style, text};
    use tlsdyno_record::model::workload::WorkloadSpec;

    #[test]
    fn ecommerce_reads_like_the_paper() {
        let site = tlsdyno_workloads::make(&WorkloadSpec::Ecommerce { users: 100, seed: 1 }).unwrap();
        let text = text(&workload(&site.summary), Style::PLAIN);
        for line in [
            "hits          1,200",
            "8.3 % of the hits need a full handshake",
            "pages         300, 4.0 hits each",
            "279 KiB: mean 6.97 KiB",
        ] {
            assert!(text.contains(line), "{line:?} is not in\n{text}");
        }
    }
}
