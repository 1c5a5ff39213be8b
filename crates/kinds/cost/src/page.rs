//! The sheet: what a connection of each step costs the server, and what the steps differ in.

use serde_json::json;
use tlsdyno_base::bootstrap::Estimate;
use tlsdyno_base::units::{UNDECIDED, format_bytes, format_count, format_micros, format_of, format_quantity};
use tlsdyno_base::verdict::Direction;
use tlsdyno_record::store::Record;
use tlsdyno_report::charts::{COLOURS, names, palette, quantity, tooltip, with};
use tlsdyno_report::rows::Rows;
use tlsdyno_runner::report::circumstances;
use tlsdyno_runner::report::document::{Chart, Content, Document, Medium, Method, Section, Tone};
use tlsdyno_tls::{Lack, Version};

use crate::part_id::{PartId, PartKind, Stretch};
use crate::parts::PartCost;
use crate::side_by_side::PartDifference;
use crate::steps::StepId;
use crate::summary::{CostSummary, ServerCost, StepCost};

/// A whole handshake, full and resumed.
const FULL: PartId = PartId::Full(None);
const RESUMED: PartId = PartId::Resumed(None);
const BAR_HEIGHT: usize = 56;

pub fn document(record: &Record, summary: &CostSummary) -> Document {
    let mut sections: Vec<Section> =
        life_chart(summary).map(|chart| Section::default().charts([chart])).into_iter().collect();
    match summary.servers.as_slice() {
        [_, others @ ..] if !others.is_empty() => {
            sections.extend((others.len() > 1).then(|| overview(summary)));
            sections.extend(others.iter().map(|server| side_by_side(summary, server)));
        }
        servers => sections.extend(servers.iter().map(|server| parts(summary, server))),
    }
    sections.extend(summary.servers.iter().map(|server| steps(summary, server)));
    sections.extend(summary.servers.iter().filter_map(|server| certificate(summary, server)));
    match summary.servers.as_slice() {
        [first, second] if first.identity.refused == second.identity.refused => {
            sections.push(refused(first, "What neither server takes"))
        }
        servers => {
            sections.extend(servers.iter().map(|server| {
                refused(server, &format!("What this server does not take{}", of_server(summary, server)))
            }))
        }
    }
    sections.push(circumstances::warnings_of(&summary.warnings));
    circumstances::document(record, summary.rounds, answer(summary), sections, Method::Cost)
}

/// Cost of a full and a resumed handshake, in one or two sentences.
pub fn answer(summary: &CostSummary) -> String {
    let mut said: Vec<String> = Vec::new();
    match summary.servers.as_slice() {
        [first, second] => {
            let of = |server: &ServerCost| format!("{} ({})", which(server), server.identity.negotiated);
            said.push(format!("{} beside {}.", of(first), of(second)));
            for part in [FULL, RESUMED, PartId::stretch(Stretch::Signature)] {
                let difference = summary.differences.iter().find(|of| of.id == part);
                said.extend(difference.map(|of| compared(of, first, second)));
            }
        }
        [first, _, ..] => said.extend(beside_others(summary, first)),
        servers => said.extend(servers.iter().map(alone)),
    }
    if let Some(server) = summary.servers.first() {
        said.extend(at_rate(summary, server));
    }
    if said.is_empty() { "No handshake was measured.".to_owned() } else { said.join(" ") }
}

fn told(of: &Estimate) -> String {
    of.in_unit(" µs", format_micros)
}

fn which(server: &ServerCost) -> String {
    match server.identity.name.as_str() {
        "" => format!("{} at {}", server.identity.label, server.identity.address),
        name => format!("{}, {name}", server.identity.label),
    }
}

fn alone(server: &ServerCost) -> String {
    let (Some(full), Some(version)) = (server.part(&FULL), server.version) else {
        return "No handshake was measured.".to_owned();
    };
    let full = known(full);
    let mut said = match server.is_cpu() {
        true => format!("A full TLS {version} handshake costs this server {full} of CPU time"),
        false => format!(
            "The server's CPU time was not read: these are times that a client waits, the network's among them. For a \
             full TLS {version} handshake it waits {full}"
        ),
    };
    if let Some(resumed) = server.part(&RESUMED) {
        said.push_str(&format!(", a resumed one {}", known(resumed)));
    }
    said.push('.');
    if let Some(signature) = server.part(&PartId::stretch(Stretch::Signature)) {
        said.push_str(&format!(" The certificate and signature are {} of that.", known(signature)));
    }
    said
}

/// For a headline: impossible numbers become bounds.
fn known(part: &PartCost) -> String {
    match (is_known(&part), part.cost_ns.has_interval()) {
        (true, _) => told(&part.cost_ns),
        (false, true) => format!("an {UNDECIDED} amount ({} µs)", part.cost_ns.ends(format_micros)),
        (false, false) => format!("an {UNDECIDED} amount"),
    }
}

fn is_known(part: &&PartCost) -> bool {
    part.cost_ns.direction() == Direction::Bigger
}

fn compared(difference: &PartDifference, first: &ServerCost, second: &ServerCost) -> String {
    let part = &difference.id;
    let more = difference.cost_ns;
    let less = Estimate { value: -more.value, low: -more.high, high: -more.low };
    match difference.direction {
        Direction::Bigger => {
            format!("{}'s {part} costs {} more than {}'s.", second.identity.label, told(&more), first.identity.label)
        }
        Direction::Smaller => {
            format!("{}'s {part} costs {} less than {}'s.", second.identity.label, told(&less), first.identity.label)
        }
        Direction::Undecided => {
            let told = if more.has_interval() {
                format!(": {} µs more in {}", more.ends(format_micros), second.identity.label)
            } else {
                String::new()
            };
            format!("Their {part} could not be told apart{told}.")
        }
    }
}

/// The other servers by whether a full handshake costs them more or less than the first.
fn beside_others(summary: &CostSummary, first: &ServerCost) -> Option<String> {
    let full = known(first.part(&FULL)?);
    let in_direction = |(direction, words): (Direction, &str)| {
        let line = |of: &&PartDifference| of.id == FULL && of.direction == direction;
        let name = |label: &'static str| {
            let of = summary.servers.iter().find(|of| of.identity.label == label && !of.identity.name.is_empty());
            of.map_or(label, |of| of.identity.name.as_str())
        };
        let server = |of: &PartDifference| format!("{} {}", name(of.server), told(&of.cost_ns));
        let servers: Vec<String> = summary.differences.iter().filter(line).map(server).collect();
        (!servers.is_empty()).then(|| format!("{words}: {}", servers.join(", ")))
    };
    let all = [(Direction::Smaller, "less"), (Direction::Bigger, "more"), (Direction::Undecided, "not told apart")];
    let others: Vec<String> = all.into_iter().filter_map(in_direction).collect();
    let own = format!("A full handshake costs {} ({}) {full}", which(first), first.identity.negotiated);
    Some(format!("{own}; beside that {}.", others.join("; ")))
}

fn at_rate(summary: &CostSummary, server: &ServerCost) -> Option<String> {
    let (requests, connections) = (summary.rate_per_s?, summary.connections_per_s?);
    let server = Some(server).filter(|server| server.is_cpu())?;
    let cpus =
        |of: Estimate, rate: f64| format!("{} CPUs", of.scaled(rate / 1e9).with_interval(|cpus| format!("{cpus:.2}")));
    let full = cpus(server.part(&FULL).filter(is_known)?.cost_ns, connections);
    let kept = requests - connections;
    let next = server.part(&PartId::Next(None, String::new())).filter(is_known).filter(|_| kept > 0.0);
    let next = next.map(|next| format!(", and the further requests on them {}", cpus(next.cost_ns, kept)));
    Some(format!(
        "At {} a second on {}, full handshakes take {full}{}.",
        format_of(requests, "request"),
        format_of(connections, "new connection"),
        next.unwrap_or_default()
    ))
}

/// Time of each stretch of a connection, a bar for each server.
fn life_chart(summary: &CostSummary) -> Option<Chart> {
    let mut rows = Vec::new();
    let mut parts: Vec<String> = Vec::new();
    let mut words = Vec::new();
    for server in &summary.servers {
        let (label, mut start) = (server.identity.label, 0.0);
        let named = format!("{label} {}", server.identity.called());
        for part in server.parts.iter().filter(|part| part.kind == PartKind::Life) {
            // A part below zero has no width; its number is in the table.
            let end = start + part.cost_ns.value.max(0.0) / 1e3;
            let cost = told(&part.cost_ns);
            words.push(format!("{label}: {} {cost}", part.id));
            rows.push(json!({"server": named, "part": part.id, "start": start, "end": end, "cost": cost}));
            let name = part.id.to_string();
            if !parts.contains(&name) {
                parts.push(name);
            }
            start = end;
        }
    }
    let of = summary.servers.first()?.cost;
    let legend = json!({"title": null, "orient": "bottom", "columns": 3, "labelLimit": 0});
    let colour = with(palette("part", &parts, &COLOURS), json!({"legend": legend}));
    let body = json!({
        "mark": {"type": "bar", "height": 34, "cornerRadius": 2},
        "encoding": {
            "y": names("server", 180), "x": quantity("start", &format!("µs of {of}")), "x2": {"field": "end"},
            "color": colour, "tooltip": tooltip([("part", "part"), ("cost", "costs"), ("server", "server")]),
        },
    });
    let height = BAR_HEIGHT * summary.servers.len();
    let caption = format!("The life of one connection with a full handshake and a request: {of} of each part.");
    Some(Chart::new("cost-life", height, rows, body)?.described(caption, words.join("; ")))
}

/// Unit of the server's numbers.
fn unit(server: &ServerCost) -> &'static str {
    if server.is_cpu() { "CPU µs" } else { "wait µs" }
}

fn heading(kind: PartKind) -> String {
    match kind {
        PartKind::Life => "the life of a connection",
        PartKind::Beside => "beside that",
        PartKind::Choice => "another choice would cost more by",
    }
    .to_owned()
}

fn parts(summary: &CostSummary, server: &ServerCost) -> Section {
    let mut rows = Rows::new(&server.parts).words("part", |part| part.id.to_string()).estimate(
        unit(server),
        format_micros,
        |part| Some(part.cost_ns),
    );
    if let (Some(rate), Some(connections), true) = (summary.rate_per_s, summary.connections_per_s, server.is_cpu()) {
        let cpus = |part: &PartCost| {
            let times = if part.id.is_of_request() { rate - connections } else { connections };
            format!("{:.3}", part.cost_ns.value * times / 1e9)
        };
        rows = rows.number(format!("CPUs at {}/s", format_quantity(rate)), cpus);
    }
    let undecided = |part: &PartCost| part.cost_ns.direction() == Direction::Undecided;
    let rows = rows.on(Medium::Page, |rows| rows.words("the difference of", |part| part.of.to_string()));
    let rows = rows.toned(Tone::Muted, undecided).headed(|part| Some(heading(part.kind)));
    Section::titled("parts", "What its parts cost").rows(rows).notes(notes(server))
}

fn notes(server: &ServerCost) -> Vec<String> {
    let together = PartId::stretch(Stretch::AgreementAndSchedule);
    let joined = server.parts.iter().map(|part| &part.id).filter(|id| id.is_joined()).map(|part| {
        let more = if *part == together { "; the encryption of the server's messages is in it" } else { "" };
        format!("\"{part}\" cannot be taken apart from outside{more}.")
    });
    let agreement = PartId::stretch(Stretch::KeyAgreement);
    let zero = StepId::refused(Version::Tls13, Lack::Secret);
    let by_zero = server
        .part(&agreement)
        .is_some_and(|part| part.of.has(&zero))
        .then(|| format!("\"{agreement}\" holds what the server's library does around its two multiplications, too."));
    let unmeasured = (!server.unmeasured.is_empty()).then(|| {
        format!(
            "The time was too short for these lines, which a longer --time measures: {}.",
            server.unmeasured.iter().map(PartId::to_string).collect::<Vec<_>>().join("; ")
        )
    });
    joined.chain(by_zero).chain(unmeasured).collect()
}

/// One row a server.
fn overview(summary: &CostSummary) -> Section {
    let main = [
        ("TCP", PartId::stretch(Stretch::Accepting)),
        ("full", FULL),
        ("signature", PartId::stretch(Stretch::Signature)),
        ("resumed", RESUMED),
        ("next request", PartId::Next(None, String::new())),
    ];
    let server = |server: &ServerCost| format!("{} {}", server.identity.label, server.identity.called());
    let mut rows = Rows::new(&summary.servers).words("server", server);
    for (name, part) in main {
        rows = rows.estimate(name, format_micros, move |server| Some(server.part(&part)?.cost_ns));
    }
    let name = |server: &ServerCost| {
        let what = if server.identity.about.is_empty() { &server.identity.command } else { &server.identity.about };
        format!("{}: {what} · {}", server.identity.label, server.identity.negotiated)
    };
    // Of another version or suite each part does another work.
    let is_like = |server: &ServerCost| server.identity.negotiated == summary.servers[0].identity.negotiated;
    let unlike = "Not all negotiated the same, so that rows do not compare libraries alone.".to_owned();
    let unlike = (!summary.servers.iter().all(is_like)).then_some(unlike);
    let title = format!("What handshakes cost each server, {}", unit(&summary.servers[0]));
    Section::titled("servers", title).rows(rows).notes(summary.servers.iter().map(name).chain(unlike))
}

/// A server beside the first.
fn side_by_side(summary: &CostSummary, server: &ServerCost) -> Section {
    let (first, label) = (&summary.servers[0], server.identity.label);
    let verdict = |part: &PartDifference| match part.direction {
        Direction::Bigger => format!("dearer in {label}"),
        Direction::Smaller => format!("cheaper in {label}"),
        Direction::Undecided => "not told apart".to_owned(),
    };
    let differences = || summary.differences.iter().filter(|of| of.server == label);
    let rows = Rows::new(differences())
        .words("part", |part| part.id.to_string())
        .estimate(format!("{}, {}", first.identity.label, unit(first)), format_micros, |of| Some(of.first_ns))
        .estimate(format!("{label}, {}", unit(server)), format_micros, |of| Some(of.second_ns))
        .estimate(format!("{label} − {}", first.identity.label), format_micros, |of| Some(of.cost_ns))
        .words("", verdict)
        .toned(Tone::Muted, |of| of.direction == Direction::Undecided)
        .headed(|part| Some(heading(part.kind)));
    let name = |server: &ServerCost| {
        format!("{}: {} · {}", server.identity.label, server.identity.called(), server.identity.negotiated)
    };
    // What comes before TLS is the control of what is told of TLS.
    let accepting = PartId::stretch(Stretch::Accepting);
    let is_apart = |of: &PartDifference| of.id == accepting && of.direction != Direction::Undecided;
    let control = differences().any(is_apart).then(|| {
        format!("\"{accepting}\" differs, which no certificate or TLS library decides: more than TLS differs here.")
    });
    let title = match summary.servers.len() {
        2 => "Side by side".to_owned(),
        _ if server.identity.name.is_empty() => format!("{label} beside {}", first.identity.label),
        _ => format!("{} beside {}", server.identity.name, first.identity.called()),
    };
    Section::titled("parts", title).rows(rows).notes([first, server].map(name).into_iter().chain(control))
}

fn of_server(summary: &CostSummary, server: &ServerCost) -> String {
    if summary.servers.len() == 1 { String::new() } else { format!(", {}", server.identity.label) }
}

fn steps(summary: &CostSummary, server: &ServerCost) -> Section {
    let has_bodies = |of: &StepCost| (of.body_bytes > 0.0).then(|| format_bytes(of.body_bytes));
    let rows = Rows::new(&server.steps)
        .words("connection", |of: &StepCost| of.step.clone())
        .estimate(unit(server), format_micros, |of| Some(of.cost_ns))
        .number_if_any("bodies", has_bodies)
        .number("connections", |of| format_count(of.connections));
    let title = format!("What connections cost{}", of_server(summary, server));
    Section::titled("steps", title).on(Medium::Page).rows(rows)
}

/// Size of the server's flight with its certificate uncompressed, compressed, and cached by the client.
fn certificate(summary: &CostSummary, server: &ServerCost) -> Option<Section> {
    let certificate = server.certificate.as_ref()?;
    let forms = certificate.forms();
    let rows = Rows::new(&forms)
        .words("certificate", |of| of.name.to_owned())
        .number("bytes", |of| format_count(of.message_bytes))
        .number("server's flight", |of| format_count(of.flight_bytes))
        .number("segments", |of| of.segments().to_string())
        .number("round trips", |of| of.round_trips().to_string());
    let by_server = match &certificate.refused {
        None => "This server compresses it for clients that ask.".to_owned(),
        Some(why) => format!("Not offered by this server ({why}): computed from the certificates that it sends."),
    };
    let inflating = told(&certificate.inflating_ns());
    let notes = [
        format!("{by_server} Inflating takes a client {inflating} of CPU time here."),
        "Round trips: windows of ten segments of 1,460 bytes and twice as many each time, without losses (RFC 6928, \
         RFC 5681). Kept: its hash goes in its place (RFC 7924), for which we know no library."
            .to_owned(),
    ];
    let title = format!("What its certificate takes on the way{}", of_server(summary, server));
    Some(Section::titled("certificate", title).rows(rows).notes(notes))
}

fn refused(server: &ServerCost, title: &str) -> Section {
    if server.identity.refused.is_empty() {
        return Section::default();
    }
    // One line for each reason.
    let mut facts: Vec<(String, String)> = Vec::new();
    for (step, why) in &server.identity.refused {
        match facts.iter_mut().find(|(_, other)| other == why) {
            Some((steps, _)) => steps.push_str(&format!("; {step}")),
            None => facts.push((step.clone(), why.clone())),
        }
    }
    Section::titled("refused", title).with(Content::Facts(facts))
}
