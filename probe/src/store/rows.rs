//! A round as a row.

use std::collections::BTreeMap;

use anyhow::{Context, Result};

use super::database::{Database, Texts, Value};
use crate::entry::Entry;
use crate::round::{Kept, Resumption, Round, Visit};

/// The columns of a round, all of them BIGINT; `site`, `run`, `facts` and `fault` are numbers of texts. New ones come
/// at the end, with a step of `schema.rs`.
pub const COLUMNS: [&str; 30] = [
    "site",
    "started_unix_us",
    "run",
    "number",
    "missed_count",
    "lookup_ns",
    "tcp_ns",
    "full_tcp_ns",
    "full_hello_ns",
    "full_handshake_ns",
    "full_first_byte_ns",
    "full_whole_ns",
    "resumed_tcp_ns",
    "resumed_hello_ns",
    "resumed_handshake_ns",
    "resumed_first_byte_ns",
    "resumed_whole_ns",
    "early_tcp_ns",
    "early_hello_ns",
    "early_handshake_ns",
    "early_first_byte_ns",
    "early_whole_ns",
    "resumption",
    "early_data",
    "status",
    "body_bytes",
    "facts",
    "fault",
    "kept_age_s",
    "kept",
];

/// The values of a row. Texts that are new get their numbers.
pub fn values(entry: &Entry, texts: &mut Texts, database: &mut dyn Database) -> Result<Vec<Value>> {
    let round = &entry.round;
    let is_made = entry.missed_count.is_none();
    let facts = match is_made {
        true => Some(texts.number(database, "facts", &serde_json::to_string(&round.facts)?)?),
        false => None,
    };
    let fault = match &round.fault {
        Some(fault) => Some(texts.number(database, "fault", &serde_json::to_string(fault)?)?),
        None => None,
    };
    let mut values = vec![
        texts.number(database, "site", &round.series())?.into(),
        round.started_unix_us.into(),
        texts.number(database, "run", &entry.run)?.into(),
        entry.number.into(),
        entry.missed_count.into(),
        round.lookup_ns.into(),
        round.tcp_ns.into(),
    ];
    for visit in [round.full, round.resumed, round.early] {
        values.extend(times(visit).map(Value::from));
    }
    values.extend([
        (is_made).then_some(u64::from(round.resumption.number())).into(),
        (is_made).then_some(u64::from(round.early_data.number())).into(),
        round.status.map(u64::from).into(),
        round.body_bytes.into(),
        facts.into(),
        fault.into(),
        round.kept.map(|kept| u64::from(kept.age_s)).into(),
        round.kept.map(|kept| u64::from(kept.became.number())).into(),
    ]);
    Ok(values)
}

fn times(visit: Option<Visit>) -> [Option<u64>; 5] {
    let of = |time: fn(Visit) -> u64| visit.map(time);
    [
        of(|visit| visit.tcp_ns),
        of(|visit| visit.hello_ns),
        of(|visit| visit.handshake_ns),
        of(|visit| visit.first_byte_ns),
        of(|visit| visit.whole_ns),
    ]
}

/// The round of a row.
pub fn entry(row: &[Value], texts: &BTreeMap<i64, String>) -> Result<Entry> {
    let number = |column: usize| row[column].integer().and_then(|number| u64::try_from(number).ok());
    let text = |column: usize| row[column].integer().and_then(|number| texts.get(&number));
    let visit = |first: usize| {
        Some(Visit {
            tcp_ns: number(first)?,
            hello_ns: number(first + 1)?,
            handshake_ns: number(first + 2)?,
            first_byte_ns: number(first + 3)?,
            whole_ns: number(first + 4)?,
        })
    };
    let became = |column| number(column).and_then(Resumption::numbered);
    let facts = text(26).map(|text| serde_json::from_str(text)).transpose().context("facts are damaged")?;
    let fault = text(27).map(|text| serde_json::from_str(text)).transpose().context("a fault is damaged")?;
    let kept = number(28).zip(became(29)).map(|(age_s, became)| Kept { age_s: age_s as u32, became });
    let (site, vantage) = Round::of_series(text(0).map_or("", String::as_str));
    let round = Round {
        site: site.to_owned(),
        vantage: vantage.to_owned(),
        started_unix_us: row[1].integer().unwrap_or_default(),
        lookup_ns: number(5),
        tcp_ns: number(6),
        full: visit(7),
        resumed: visit(12),
        early: visit(17),
        resumption: became(22).unwrap_or_default(),
        early_data: became(23).unwrap_or_default(),
        status: number(24).and_then(|status| u16::try_from(status).ok()),
        body_bytes: number(25),
        kept,
        fault,
        facts: facts.unwrap_or_default(),
    };
    let run = text(2).cloned().unwrap_or_default();
    // What was made alone is known by its run's name only, and nobody who reads asks for it.
    Ok(Entry { run, number: number(3).unwrap_or_default(), missed_count: number(4), is_alone: false, round })
}
