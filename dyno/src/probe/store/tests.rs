//! The store, with made-up rounds.

use std::path::Path;

use super::*;
use crate::probe::fault::{Fault, FaultKind};
use crate::probe::measures::Measure;
use crate::probe::round::{Facts, Resumption, Round, Visit};
use crate::probe::summary::SiteSummary;
use crate::random::SplitMix64;

const SECOND_US: i64 = 1_000_000;
const MINUTE_US: i64 = 60 * SECOND_US;
const HOUR_US: i64 = 60 * MINUTE_US;
/// 2026-11-20 16:00 UTC.
const START_US: i64 = 1_795_190_400 * SECOND_US;
const EVER: (i64, i64) = (i64::MIN, i64::MAX);

/// A round like those of a site some 20 ms away, with the spread that networks have.
fn round(site: &str, started_unix_us: i64, random: &mut SplitMix64) -> Round {
    let mut time = |ms: f64| (ms * 1e6 * (0.3 * random.normal()).exp()) as u64;
    let mut visit = |handshake_ms| Visit {
        tcp_ns: time(20.0),
        hello_ns: time(20.5),
        handshake_ns: time(handshake_ms),
        first_byte_ns: time(22.0),
        whole_ns: time(24.0),
    };
    let (full, resumed) = (Some(visit(45.0)), Some(visit(22.0)));
    let facts = Facts { address: "192.0.2.1:443".to_owned(), version: "1.3".to_owned(), ..Facts::default() };
    Round {
        site: site.to_owned(),
        started_unix_us,
        lookup_ns: Some(time(1.0)),
        tcp_ns: Some(time(20.0)),
        full,
        resumed,
        resumption: Resumption::Accepted,
        early_data: Resumption::NotGiven,
        status: Some(200),
        body_bytes: Some(4711),
        facts,
        ..Round::default()
    }
}

/// Rounds of a site, one a minute, from `from_us` on.
fn minutes(site: &str, from_us: i64, count: u64, random: &mut SplitMix64) -> Vec<Entry> {
    let made = |number| Entry::made("run", number, round(site, from_us + number as i64 * MINUTE_US, random));
    (0..count).map(made).collect()
}

fn all(store: &mut Store, site: i64) -> Vec<Entry> {
    let mut entries = Vec::new();
    store
        .rounds(site, EVER, &mut |entry| {
            entries.push(entry);
            Ok(())
        })
        .unwrap();
    entries
}

fn size_bytes(path: &Path) -> u64 {
    std::fs::metadata(path).unwrap().len()
}

#[test]
fn rounds_survive_and_none_is_there_twice() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("probe.sqlite");
    let mut random = SplitMix64::new(1);
    let mut entries = minutes("https://a/", START_US, 3, &mut random);
    let fault = Fault { step: "tcp".to_owned(), kind: FaultKind::Refused, text: "no".to_owned() };
    entries[1].round = Round {
        site: "https://a/".to_owned(),
        started_unix_us: START_US + MINUTE_US,
        fault: Some(fault),
        ..Round::default()
    };
    entries.push(Entry::missed("run", 3, 57, "https://a/", START_US + HOUR_US));
    // The clock was set back: another round of the same moment is another round.
    entries.push(Entry::made("run", 60, round("https://a/", START_US + 2 * MINUTE_US, &mut random)));
    let mut store = Store::open(&path).unwrap();
    assert_eq!(store.add(&entries).unwrap(), 5);
    assert_eq!(store.add(&entries[2..]).unwrap(), 0, "they are there");
    drop(store);
    let mut store = Store::open_for_reading(&path).unwrap();
    let sites = store.sites().unwrap();
    assert_eq!(sites.iter().map(|(_, name)| name.as_str()).collect::<Vec<_>>(), ["https://a/"]);
    let mut expected = entries;
    expected.sort_by_key(|entry| (entry.round.started_unix_us, entry.number));
    assert_eq!(all(&mut store, sites[0].0), expected);
}

#[test]
fn hours_say_the_same_before_and_after_they_are_counted_and_when_rounds_are_gone() {
    let directory = tempfile::tempdir().unwrap();
    let mut store = Store::open(&directory.path().join("probe.sqlite")).unwrap();
    let entries = minutes("https://a/", START_US + 30 * MINUTE_US, 300, &mut SplitMix64::new(2));
    // The two of one hour come late.
    let (late, early): (Vec<_>, Vec<_>) = entries.iter().cloned().partition(|entry| [100, 101].contains(&entry.number));
    store.add(&early).unwrap();
    let site = store.sites().unwrap()[0].0;
    // Rounds and medians of each hour, and how many rounds are there.
    let told = |store: &mut Store| {
        let hours = store.hours(site, EVER).unwrap();
        let medians = hours.iter().map(|hour| hour.measures.quantile(Measure::Full, 0.5));
        let counts: Vec<u64> = hours.iter().map(|hour| hour.made_count).collect();
        (counts, medians.collect::<Vec<_>>(), all(store, site).len())
    };
    let end_us = START_US + 7 * HOUR_US;
    assert_eq!(store.keep_house(START_US + 4 * HOUR_US + 5, RAW_HOURS).unwrap(), 4);
    let before = told(&mut store);
    assert_eq!((before.0, before.2), (vec![30, 60, 58, 60, 60, 30], 298));
    store.add(&late).unwrap();
    let with_late = told(&mut store);
    assert_eq!((&with_late.0, with_late.2), (&vec![30, 60, 60, 60, 60, 30], 300));
    store.keep_house(end_us, RAW_HOURS).unwrap();
    assert_eq!(told(&mut store), with_late);
    assert_eq!(store.keep_house(end_us, RAW_HOURS).unwrap(), 0, "nothing is left to count");
    store.keep_house(end_us + 7 * 24 * HOUR_US, RAW_HOURS).unwrap();
    assert_eq!(told(&mut store), (with_late.0, with_late.1, 0), "the rounds are gone");
    // A spool that lay about for weeks.
    store.add(&minutes("https://a/", START_US + 45 * MINUTE_US + 7, 3, &mut SplitMix64::new(9))).unwrap();
    let (counts, _, rounds) = told(&mut store);
    assert_eq!((counts[0], rounds), (33, 3));
    store.keep_house(end_us + 8 * 24 * HOUR_US, RAW_HOURS).unwrap();
    let (counts, _, rounds) = told(&mut store);
    assert_eq!((counts[0], rounds), (33, 0));
}

/// A year of ten sites with a round a minute stays below 200 MB: a week of rounds, and an hour's row, measured and
/// multiplied.
#[test]
fn a_year_of_ten_sites_is_small() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("probe.sqlite");
    let mut store = Store::open(&path).unwrap();
    let empty = size_bytes(&path);
    let mut random = SplitMix64::new(3);
    let rounds = 2 * 24 * 60;
    store.add(&minutes("https://a/", START_US, rounds, &mut random)).unwrap();
    store.database.batch("PRAGMA wal_checkpoint(TRUNCATE)").unwrap();
    let with_rounds = size_bytes(&path);
    let hours = store.keep_house(START_US + 48 * HOUR_US, RAW_HOURS).unwrap();
    store.database.batch("PRAGMA wal_checkpoint(TRUNCATE)").unwrap();
    let with_hours = size_bytes(&path);
    let bytes_per_round = (with_rounds - empty) as f64 / rounds as f64;
    let bytes_per_hour = (with_hours - with_rounds) as f64 / hours as f64;
    println!("{bytes_per_round:.0} bytes a round, {bytes_per_hour:.0} bytes an hour");
    let year = 10.0 * (bytes_per_round * 7.0 * 1440.0 + bytes_per_hour * 24.0 * 365.0);
    assert!(year < 200e6, "a year takes {year} bytes");
    let month_of_rounds = 10.0 * 30.0 * 24.0 * (60.0 * bytes_per_round + bytes_per_hour);
    assert!(month_of_rounds < 120e6, "a month with all rounds takes {month_of_rounds} bytes");
}

/// A report says the same of a day before its rounds are counted and after they are gone.
#[test]
fn a_report_of_hours_is_that_of_their_rounds() {
    let directory = tempfile::tempdir().unwrap();
    let mut store = Store::open(&directory.path().join("probe.sqlite")).unwrap();
    store.add(&minutes("https://a/", START_US, 24 * 60, &mut SplitMix64::new(4))).unwrap();
    let site = store.sites().unwrap()[0].0;
    let numbers = |store: &mut Store| {
        let summary = SiteSummary::read(store, site, "https://a/", EVER).unwrap();
        assert_eq!((summary.made_count, summary.accepted_count), (1440, 1440));
        summary.numbers
    };
    let of_rounds = numbers(&mut store);
    store.keep_house(START_US + 10 * 24 * HOUR_US, RAW_HOURS).unwrap();
    assert!(all(&mut store, site).is_empty());
    assert_eq!(numbers(&mut store), of_rounds);
}

#[test]
fn what_is_no_store_of_probes_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("other.sqlite");
    rusqlite::Connection::open(&path).unwrap().execute_batch("CREATE TABLE mine (x)").unwrap();
    let error = |result: Result<Store>| format!("{:#}", result.err().unwrap());
    assert!(error(Store::open(&path)).contains("--store"));
    assert!(error(Store::open_for_reading(&path)).contains("--store"));
    assert!(error(Store::open_for_reading(&directory.path().join("none"))).contains("--every"));
    let newer = directory.path().join("newer.sqlite");
    Store::open(&newer).unwrap().database.batch("UPDATE probe_schema SET version = 99").unwrap();
    assert!(error(Store::open(&newer)).contains("version 99"));
}
