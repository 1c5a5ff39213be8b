//! Handshakes step by step as a document: what each message costs at both ends by key and chain, a paper's numbers
//! beside them, and connections as flows of events.

use serde_json::{Value, json};
use tlsdyno_base::units::{NONE, format_count, format_micros, format_percent, format_quantity, format_tenths};
use tlsdyno_record::store::{Flow, FlowEvent, Record};
use tlsdyno_report::rows::Rows;
use tlsdyno_runner::report::circumstances::{self, server_text};
use tlsdyno_runner::report::document::{Chart, Content, Document, Medium, Method, Section};
use tlsdyno_runner::report::published;

use crate::profile::file::Handshakes;
use crate::steps::StepsRecord;
use crate::steps::file::StepsClient;
use crate::steps::summary::{OUTSIDE, StepSummary, StepsCellSummary, StepsSummary};

/// Height of a bar with its distance to the next, pixels.
const BAR_HEIGHT: usize = 26;
/// Messages below this part of the costliest handshake are joined in the chart.
const PART_LEAST: f64 = 0.01;

pub fn document(record: &Record, summary: &StepsSummary) -> Document {
    let mut sections = vec![setting(record)];
    sections.push(Section::default().on(Medium::Page).charts(bars(summary)));
    sections.push(cells(summary));
    sections.extend(messages(summary));
    sections.extend(flows(summary));
    sections.push(circumstances::warnings_of(&summary.warnings));
    sections.extend(summary.paper.as_ref().map(|paper| published::section(paper, &summary.claims)));
    circumstances::document(record, summary.rounds, answer(summary), sections, Method::Steps)
}

fn setting(record: &Record) -> Section {
    let steps = record.kind_part.of::<StepsRecord>().map_or(String::new(), |of| {
        let tls = &of.experiment.tls;
        let suite = tls.suite.map_or(String::new(), |suite| format!(" (RSA keys: {suite})"));
        let client = match of.experiment.steps.client {
            StepsClient::Own => format!("client at effort {}", of.experiment.steps.effort),
            // That is `openssl` with its version.
            StepsClient::Openssl => record.manifest.effort.clone(),
        };
        format!("TLS {}{suite}, {client}", tls.version)
    });
    Section::default().text(format!("{}, {steps}; one connection after the other.", server_text(&record.manifest)))
}

/// Names the keys whose operation is the costliest step, and the costs of full and resumed handshakes.
pub fn answer(summary: &StepsSummary) -> String {
    let mut said = Vec::new();
    let mut kinds = Vec::new();
    for of in &summary.cells {
        let Some((step, part)) = of.dearest() else { continue };
        if !kinds.contains(&of.cell.handshakes) {
            kinds.push(of.cell.handshakes);
            said.push(format!(
                "A {} handshake with {} costs the server {} and the client {}; dearest at the server: {} ({}).",
                of.cell.handshakes.name(),
                of.cell.key,
                of.server_ns.in_unit(" µs", format_micros),
                of.client_ns.in_unit(" µs", format_micros),
                step.name,
                format_percent(100.0 * part)
            ));
        }
    }
    let several = summary.cells.iter().any(|of| of.cell.key != summary.cells[0].cell.key);
    if several && let Some(cell) = summary.dearest_from() {
        said.push(format!("From {} on the private-key operation is the server's dearest step.", cell.key));
    } else if several {
        said.push("With none of the RSA keys is the private-key operation the server's dearest step.".to_owned());
    }
    if said.is_empty() { "No step was seen.".to_owned() } else { said.join(" ") }
}

fn cells(summary: &StepsSummary) -> Section {
    let dearest = |of: &StepsCellSummary| {
        let (step, part) = of.dearest()?;
        Some(format!("{} {}", step.name, format_percent(100.0 * part)))
    };
    let rows = Rows::new(&summary.cells)
        .words("", |of| of.cell.to_string())
        .estimate("server µs", format_micros, |of| Some(of.server_ns))
        .words("dearest", |of| dearest(of).unwrap_or_else(|| NONE.to_owned()))
        .on(Medium::Page, |rows| rows.estimate("rest µs", format_micros, |of| Some(of.server_rest_ns)))
        .estimate("client µs", format_micros, |of| Some(of.client_ns))
        .number("sent B", |of| format_quantity(of.server_bytes[0]))
        .number("received B", |of| format_quantity(of.client_bytes[0]));
    let counts = summary.cells.iter().map(|of| of.connections).sum::<u64>();
    Section::titled("steps", "Handshakes").rows(rows).notes([
        format!(
            "CPU time of a handshake: of the server's process from its first call into libssl to the end, of the \
             client's thread. sent, received: bytes of the handshake at the server; received by the client's count. \
             {} connections.",
            format_count(counts)
        ),
        "rest: what a connection costs the server besides: accepting, the request, closing.".to_owned(),
    ])
}

fn messages(summary: &StepsSummary) -> Vec<Section> {
    let table = |steps: &[StepSummary], whole: f64| {
        Rows::new(steps)
            .words("message", |step| step.name.clone())
            .number("times", |step| format_tenths(step.count))
            .estimate("CPU µs", format_micros, |step| Some(step.cpu_ns))
            .number("of it", |step| format_percent(100.0 * step.cpu_ns.value / whole.max(1.0)))
            .number("elapsed µs", |step| format_micros(step.elapsed_ns))
            .number("bytes", |step| if step.bytes > 0.0 { format_quantity(step.bytes) } else { String::new() })
            .table()
    };
    let alone = summary.cells.len() <= Handshakes::ALL.len();
    let section = |of: &StepsCellSummary| {
        let ends = [("server", &of.server, of.server_ns.value), ("client", &of.client, of.client_ns.value)];
        let mut parts = Vec::new();
        for (end, steps, whole) in ends {
            parts.push(Content::Text(format!("{}, {end}:", of.cell)));
            parts.push(Content::Table(table(steps, whole)));
        }
        if alone {
            return parts.into_iter().fold(Section::titled("", format!("Messages: {}", of.cell)), Section::with);
        }
        Section::default().on(Medium::Page).with(Content::Folded(format!("Messages: {}", of.cell), parts))
    };
    let note = "What the server did since the message before is the cost of a message: making and sending it, or \
                dealing with it. wait and read: the client's next flight. The client's: dealing with the server's \
                message, and making what it answers.";
    let last = Section::default().notes([note.to_owned()]);
    summary.cells.iter().map(section).chain([last]).collect()
}

/// Cost of full and resumed handshakes at both ends, by message.
fn bars(summary: &StepsSummary) -> Option<Chart> {
    let dearest = summary.cells.iter().flat_map(|of| [of.server_ns.value, of.client_ns.value]).fold(0.0, f64::max);
    let shortest = summary.cells.iter().map(|of| of.cell.chain_count).min()?;
    let shown = |of: &&StepsCellSummary| of.cell.chain_count == shortest;
    let mut rows: Vec<Value> = Vec::new();
    let mut told = Vec::new();
    let mut bars = 0;
    for of in summary.cells.iter().filter(shown) {
        for (end, steps, whole) in [("server", &of.server, of.server_ns), ("client", &of.client, of.client_ns)] {
            let bar = format!("{} {}, {end}", of.cell.key, of.cell.handshakes.name());
            let inside = steps.iter().filter(|step| !OUTSIDE.contains(&step.name.as_str()));
            let mut rest = 0.0;
            for (place, step) in inside.enumerate() {
                if step.cpu_ns.value < PART_LEAST * dearest {
                    rest += step.cpu_ns.value;
                } else {
                    rows.push(json!({"bar": bar, "part": step.name, "us": step.cpu_ns.value / 1e3, "place": place}));
                }
            }
            rows.push(json!({"bar": bar, "part": "others", "us": rest / 1e3, "place": steps.len()}));
            told.push(format!("{bar} {} µs", format_micros(whole.value)));
            bars += 1;
        }
    }
    let body = json!({
        "mark": {"type": "bar", "tooltip": true},
        "encoding": {
            "y": {"field": "bar", "type": "nominal", "sort": null, "title": null, "axis": {"labelLimit": 240}},
            "x": {"field": "us", "type": "quantitative", "title": "CPU of a handshake, µs"},
            "color": {"field": "part", "type": "nominal", "sort": null, "title": null,
                "scale": {"scheme": "tableau20"}, "legend": {"orient": "top", "columns": 5}},
            "order": {"field": "place", "type": "quantitative"}
        }
    });
    let caption = "What a handshake costs each end, by message (chains of one length)";
    Some(Chart::new("steps-bars", BAR_HEIGHT * bars, rows, body)?.described(caption, told.join("; ")))
}

/// Connections as flows of events: one chart of all, and a table of the first one of each cell.
fn flows(summary: &StepsSummary) -> Vec<Section> {
    let mut sections = Vec::new();
    for (number, of) in summary.cells.iter().enumerate().filter(|(_, of)| !of.flows.is_empty()) {
        let title = format!("Events: {}", of.cell);
        let chart = Section::titled("", title).on(Medium::Page).charts(timeline(number, of));
        sections.push(chart);
        let first = &of.flows[0];
        let mut events: Vec<(&str, &FlowEvent)> = first.client.iter().map(|event| ("client", event)).collect();
        events.extend(first.server.iter().map(|event| ("server", event)));
        events.sort_by_key(|(_, event)| (event.from_ns, event.to_ns));
        let rows = Rows::new(&events)
            .words("end", |(end, _)| (*end).to_owned())
            .words("event", |(_, event)| event.name.clone())
            .number("from µs", |(_, event)| format_micros(event.from_ns as f64))
            .number("to µs", |(_, event)| format_micros(event.to_ns as f64))
            .number("took", |(_, event)| format_micros((event.to_ns - event.from_ns) as f64))
            .number("CPU", |(_, event)| format_micros(event.cpu_ns as f64))
            .number("bytes", |(_, event)| if event.bytes > 0 { format_count(event.bytes) } else { String::new() });
        sections.push(Section::titled("", format!("First connection: {}", of.cell)).rows(rows));
    }
    sections
}

fn timeline(number: usize, of: &StepsCellSummary) -> Option<Chart> {
    let mut rows: Vec<Value> = Vec::new();
    for (connection, Flow { client, server }) in (1..).zip(&of.flows) {
        for (end, events) in [("client", client), ("server", server)] {
            rows.extend(events.iter().map(|event| {
                json!({
                    "line": format!("{connection} {end}"), "event": event.name, "from": event.from_ns as f64 / 1e3,
                    "to": event.to_ns as f64 / 1e3, "cpu": event.cpu_ns as f64 / 1e3, "bytes": event.bytes,
                    "waits": event.name.starts_with("wait"),
                })
            }));
        }
    }
    let body = json!({
        "mark": {"type": "bar", "stroke": "white", "strokeWidth": 0.5},
        "encoding": {
            "y": {"field": "line", "type": "nominal", "sort": null, "title": null},
            "x": {"field": "from", "type": "quantitative", "title": "µs after the client's first event"},
            "x2": {"field": "to"},
            "color": {"field": "event", "type": "nominal", "sort": null, "title": null,
                "scale": {"scheme": "tableau20"}, "legend": {"orient": "top", "columns": 5}},
            "opacity": {"condition": {"test": "datum.waits", "value": 0.2}, "value": 1},
            "tooltip": [
                {"field": "event", "title": "event"}, {"field": "from", "title": "from, µs"},
                {"field": "to", "title": "to, µs"}, {"field": "cpu", "title": "CPU, µs"},
                {"field": "bytes", "title": "bytes"}
            ]
        }
    });
    let last =
        of.flows.iter().flat_map(|flow| flow.client.iter().chain(&flow.server)).map(|event| event.to_ns).max()?;
    let told = format!("{} connections, the longest of {} µs", of.flows.len(), format_micros(last as f64));
    let chart = Chart::new(format!("steps-flows-{number}"), 2 * BAR_HEIGHT * of.flows.len(), rows, body)?;
    Some(chart.described("Connections as flows of events, both ends on one clock; waiting is pale", told))
}
