//! The sheet of memory: what a connection takes where it stays.

use serde_json::json;
use tlsdyno_base::exchange::Reach;
use tlsdyno_base::units::{UNDECIDED, format_count};
use tlsdyno_record::store::Record;
use tlsdyno_report::charts::{COLOURS, line_legend, line_mark, palette, quantity, tooltip, with};
use tlsdyno_report::rows::Rows;
use tlsdyno_runner::report::circumstances;
use tlsdyno_runner::report::document::{Chart, Content, Document, Medium, Method, Section, Tone};

use super::summary::{MemorySummary, ServerMemory, StateMemory, series_of};
use super::words;
use crate::{CostRecord, Identity};

const CHART_HEIGHT: usize = 260;

pub fn document(record: &Record, summary: &MemorySummary) -> Document {
    let refused = summary.servers.iter().filter(|server| !server.identity.refused.is_empty()).map(|server| {
        let title = format!("What {} does not take", server.identity.label);
        Section::titled("refused", title).with(Content::Facts(server.identity.refused.clone()))
    });
    let mut sections = vec![Section::default().charts(chart(record, summary)), states(summary)];
    sections.extend(refused);
    sections.push(circumstances::warnings_of(&summary.warnings));
    circumstances::document(record, summary.rounds, answer(summary), sections, Method::Memory)
}

/// What an idle connection takes, and one in the middle of its handshake, which is the peak of a storm.
pub fn answer(summary: &MemorySummary) -> String {
    let told = |state: Reach| {
        let of = |server: &ServerMemory| {
            let told = in_words(server.state(state)?);
            Some(if summary.servers.len() == 1 { told } else { format!("{} {told}", server.identity.called()) })
        };
        let servers: Vec<String> = summary.servers.iter().filter_map(of).collect();
        (!servers.is_empty()).then(|| format!("{}: {}", words(state), servers.join(", ")))
    };
    let order = [Reach::Finished, Reach::Answered, Reach::Flight, Reach::Tcp];
    let all: Vec<String> = order.into_iter().filter_map(told).collect();
    if all.is_empty() {
        return "No memory was measured.".to_owned();
    }
    format!("Memory of the server's processes for each connection. {}.", upper_first(&all.join("; ")))
}

fn upper_first(text: &str) -> String {
    let mut letters = text.chars();
    letters.next().map_or(String::new(), |first| first.to_uppercase().chain(letters).collect())
}

fn in_words(state: &StateMemory) -> String {
    if state.is_known() { state.bytes.in_unit(" KiB", kib) } else { format!("an {UNDECIDED} amount") }
}

fn kib(bytes: f64) -> String {
    format!("{:.2}", bytes / 1024.0)
}

fn states(summary: &MemorySummary) -> Section {
    let several = summary.servers.len() > 1;
    let all = summary.servers.iter().flat_map(|server| &server.states);
    let rows = Rows::new(all)
        .words("connection", |of: &StateMemory| words(of.state).to_owned())
        .estimate("KiB", kib, |of| Some(of.bytes))
        .estimate("more than A", kib, |of| of.more_bytes)
        .estimate("kernel, KiB", kib, |of| of.kernel_bytes)
        .on(Medium::Page, |rows| {
            rows.words("each series", |of| {
                of.series_bytes.iter().map(|bytes| kib(*bytes)).collect::<Vec<_>>().join(", ")
            })
        })
        .number("up to", |of| format_count(u64::from(of.connections)))
        .toned(Tone::Muted, |of| !of.is_known())
        .headed(|of| several.then(|| of.server.clone()));
    let name = |server: &ServerMemory| {
        let keys: Vec<String> = server.keys.iter().map(ToString::to_string).collect();
        let Identity { negotiated, command, .. } = server.identity.clone();
        let parts = [server.identity.called().to_owned(), negotiated, keys.join(", "), command];
        let parts: Vec<String> = parts.into_iter().filter(|part| !part.is_empty()).collect();
        format!("{}: {}", server.identity.label, parts.join(" · "))
    };
    let undecided = summary.servers.iter().flat_map(|server| &server.states).any(|state| !state.is_known());
    let undecided = undecided.then(|| {
        format!("A row whose interval reaches below 0 is {UNDECIDED}: measure with more --connections or --series.")
    });
    let kept = "A server that runs keeps most of this until it is started anew.".to_owned();
    let notes = summary.servers.iter().map(name).chain(undecided).chain([kept]);
    Section::titled("memory", "What a connection takes of memory").rows(rows).notes(notes)
}

/// Memory over the number of connections, a line for each series.
fn chart(record: &Record, summary: &MemorySummary) -> Option<Chart> {
    let mut rows = Vec::new();
    let mut names: Vec<String> = Vec::new();
    let servers = &record.kind_part.of::<CostRecord>()?.servers;
    let steps =
        servers.iter().zip(&summary.servers).flat_map(|(of, server)| of.steps.iter().map(move |step| (server, step)));
    for (configuration, (server, step)) in steps.enumerate() {
        let name = match servers.len() {
            1 => words(step.id.reach).to_owned(),
            _ => format!("{}: {}", server.identity.called(), words(step.id.reach)),
        };
        for block in series_of(record, configuration) {
            let line = format!("{configuration}.{}", block.round);
            let first = block.memory[0].pss_bytes as f64;
            rows.extend(block.memory.iter().map(|point| {
                let mib = (point.pss_bytes as f64 - first) / f64::from(1 << 20);
                json!({"name": name, "line": line, "connections": point.connections, "mib": mib})
            }));
        }
        names.push(name);
    }
    let colour = with(palette("name", &names, &COLOURS), line_legend(None, 2));
    let body = json!({
        "mark": line_mark(),
        "encoding": {
            "x": quantity("connections", "open connections"),
            "y": quantity("mib", "MiB more than without connections"),
            "color": colour, "detail": {"field": "line"},
            "tooltip": tooltip([("name", "connections"), ("connections", "open"), ("mib", "MiB")]),
        },
    });
    let caption =
        "Memory of the server's processes while more and more connections are open, each series from its start.";
    Some(Chart::new("cost-memory", CHART_HEIGHT, rows, body)?.described(caption.to_owned(), answer(summary)))
}
