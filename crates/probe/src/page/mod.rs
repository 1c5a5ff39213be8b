//! What a probe found: single rounds, and what weeks of them come to.

mod charts;
mod metrics;
mod sites;

use tlsdyno_base::units::{NONE, format_count, format_date, format_duration, format_percent};
use tlsdyno_report::document::{Document, Section};
use tlsdyno_report::rows::Rows;

use crate::robot::Done;
use crate::round::{Resumption, Round, Visit};
pub use metrics::{SiteState, metrics};
pub use sites::{csv, document, page};

/// Single rounds, one line each.
pub fn rounds(rounds: &[Round]) -> Document {
    let table = Rows::new(rounds)
        .words("site", |round| round.site.clone())
        .number("look-up", |round| time(round.lookup_ns))
        .number("TCP", |round| time(round.tcp_ns))
        .number("full handshake", |round| time(handshake(round.full)))
        .number("resumed", resumed)
        .number("saved", |round| round.saving_percent().map_or(NONE.to_owned(), format_percent))
        .number("answer", |round| time(round.full.map(|visit| visit.whole_ns)))
        .words("TLS, certificate", tls);
    let faults = rounds.iter().filter_map(|round| {
        let fault = round.fault.as_ref()?;
        Some(format!("{}: {} failed ({}): {}", round.site, fault.step, fault.kind, fault.text))
    });
    Document::from_sections([Section::default().rows(table).notes(faults)])
}

/// A round in a line, as the robot prints it.
pub fn line(round: &Round) -> String {
    let when = format_date(round.started_unix_us.div_euclid(1_000_000));
    let site = round.series();
    match &round.fault {
        Some(fault) => format!("{when}  {site}  {} failed ({}): {}", fault.step, fault.kind, fault.text),
        None => format!(
            "{when}  {site}  TCP {}, full {}, resumed {}, answer {}",
            time(round.tcp_ns),
            time(handshake(round.full)),
            resumed(round),
            time(round.full.map(|visit| visit.whole_ns))
        ),
    }
}

/// What a robot did until it ended, in a line.
pub fn done(done: &Done) -> String {
    let missed = match done.missed_count {
        0 => String::new(),
        missed => format!(", {} missed", format_count(missed)),
    };
    format!("{} rounds made{missed}\n", format_count(done.made_count))
}

fn handshake(visit: Option<Visit>) -> Option<u64> {
    visit.map(|visit| visit.handshake_ns)
}

fn time(ns: Option<u64>) -> String {
    ns.map_or(NONE.to_owned(), |ns| format_duration(ns as f64))
}

fn resumed(round: &Round) -> String {
    match round.resumption {
        Resumption::Accepted => time(handshake(round.resumed)),
        Resumption::Rejected => "rejected".to_owned(),
        Resumption::NotGiven => "no session".to_owned(),
        Resumption::Untried => NONE.to_owned(),
    }
}

fn tls(round: &Round) -> String {
    let facts = &round.facts;
    if facts.version.is_empty() {
        return NONE.to_owned();
    }
    let days = round.certificate_days_left().map_or(String::new(), |days| format!(", {days} days left"));
    let fault = match facts.certificate_fault.as_str() {
        "" => String::new(),
        fault => format!(" ({fault})"),
    };
    format!("TLS {} {}{days}{fault}", facts.version, facts.key)
}
