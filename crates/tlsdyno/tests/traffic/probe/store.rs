//! The store, with made-up rounds: one suite, on SQLite and on PostgreSQL.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rusqlite::Connection;
use tlsdyno::random::SplitMix64;
use tlsdyno_probe::entry::Entry;
use tlsdyno_probe::measures::Measure;
use tlsdyno_probe::round::{Facts, Visit};
use tlsdyno_probe::store::{Address, By, Store};
use tlsdyno_probe::summary::SiteSummary;
use tlsdyno_probe::{Fault, FaultKind, Kept, Resumption, Round};

use super::super::place::postgres::Postgres;

const SECOND_US: i64 = 1_000_000;
const MINUTE_US: i64 = 60 * SECOND_US;
const HOUR_US: i64 = 60 * MINUTE_US;
const DAY_US: i64 = 24 * HOUR_US;
/// 2026-11-20 16:00 UTC.
const START_US: i64 = 1_795_190_400 * SECOND_US;
const EVER: (i64, i64) = (i64::MIN, i64::MAX);
/// How long single rounds are kept, in hours.
const RAW_HOURS: u64 = 7 * 24;

/// An empty store of its own for a check, and statements behind its back: any, and one that answers a number.
struct Fresh<'a> {
    address: Address,
    batch: &'a dyn Fn(&str),
    number: &'a dyn Fn(&str) -> u64,
}

impl Fresh<'_> {
    fn open(&self) -> Store {
        Store::open(&self.address).unwrap()
    }
}

type Check = (&'static str, fn(&Fresh<'_>));

/// The suite.
const CHECKS: [Check; 12] = [
    ("rounds", rounds_survive_and_none_is_there_twice),
    ("hours", hours_say_the_same_before_and_after_their_rounds_are_gone),
    ("days", days_say_the_same_as_their_hours_whatever_comes_late),
    ("crowd", robots_that_start_together_make_the_tables_once_and_lose_nothing),
    ("clock", a_clock_set_forward_lets_go_of_no_rounds_for_a_day),
    ("together", two_who_count_while_a_third_adds_lose_nothing),
    ("report", a_report_of_hours_is_that_of_their_rounds),
    ("replay", what_comes_twice_is_known_when_its_rows_are_gone),
    ("totals", totals_are_those_of_all_runs),
    ("alone", rounds_made_alone_have_no_order),
    ("places", places_are_kept_apart),
    ("versions", tables_of_other_versions_are_refused),
];

#[test]
fn sqlite_passes_the_suite() {
    for (name, check) in CHECKS {
        println!("{name}");
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("probe.sqlite");
        let batch = |sql: &str| Connection::open(&path).unwrap().execute_batch(sql).unwrap();
        let number = |sql: &str| Connection::open(&path).unwrap().query_row(sql, [], |row| row.get(0)).unwrap();
        check(&Fresh { address: Address::File(path.clone()), batch: &batch, number: &number });
    }
}

#[test]
fn postgresql_passes_the_suite() {
    let server = Postgres::start();
    let password = server.password_file();
    for (name, check) in CHECKS {
        println!("{name}");
        let address: Address = server.create(name).parse().unwrap();
        let address = address.with_password_file(Some(&password)).unwrap();
        let batch = |sql: &str| drop(server.ask(name, sql));
        let number = |sql: &str| server.ask(name, sql).parse().unwrap();
        check(&Fresh { address, batch: &batch, number: &number });
    }
}

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

fn robots_that_start_together_make_the_tables_once_and_lose_nothing(fresh: &Fresh<'_>) {
    const ROBOTS: u64 = 6;
    let address = &fresh.address;
    std::thread::scope(|scope| {
        for robot in 0..ROBOTS {
            scope.spawn(move || {
                let mut random = SplitMix64::new(robot);
                let mut store = Store::open(address).unwrap();
                for piece in minutes(&format!("https://{robot}/"), START_US, 10, &mut random).chunks(2) {
                    assert_eq!(store.add(piece).unwrap(), 2);
                    store.keep_house(START_US + DAY_US, RAW_HOURS).unwrap();
                }
            });
        }
    });
    assert_eq!((fresh.number)("SELECT COUNT(*) FROM rounds"), 10 * ROBOTS);
    assert_eq!((fresh.number)("SELECT SUM(made_count) FROM spans WHERE length_s = 3600"), 10 * ROBOTS);
}

fn rounds_survive_and_none_is_there_twice(fresh: &Fresh<'_>) {
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
    let mut set_back = round("https://a/", START_US + 2 * MINUTE_US, &mut random);
    set_back.kept = Some(Kept { age_s: 301, became: Resumption::Rejected });
    entries.push(Entry::made("run", 60, set_back));
    let mut store = fresh.open();
    assert_eq!(store.add(&entries).unwrap(), 5);
    assert_eq!(store.add(&entries[2..]).unwrap(), 0, "they are there");
    drop(store);
    let mut store = Store::open_for_reading(&fresh.address).unwrap();
    let sites = store.sites().unwrap();
    assert_eq!(sites.iter().map(|(_, name)| name.as_str()).collect::<Vec<_>>(), ["https://a/"]);
    let mut expected = entries;
    expected.sort_by_key(|entry| (entry.round.started_unix_us, entry.number));
    assert_eq!(all(&mut store, sites[0].0), expected);
}

fn hours_say_the_same_before_and_after_their_rounds_are_gone(fresh: &Fresh<'_>) {
    let mut store = fresh.open();
    let entries = minutes("https://a/", START_US + 30 * MINUTE_US, 300, &mut SplitMix64::new(2));
    // The two of one hour come late, from another run.
    let (late, early): (Vec<_>, Vec<_>) = entries.iter().cloned().partition(|entry| [100, 101].contains(&entry.number));
    let late: Vec<_> = late.into_iter().map(|entry| Entry { run: "late".to_owned(), ..entry }).collect();
    store.add(&early).unwrap();
    let site = store.sites().unwrap()[0].0;
    // Rounds and medians of each hour, and how many rounds are there.
    let told = |store: &mut Store| {
        let hours = store.hours(site, EVER).unwrap();
        let medians = hours.iter().map(|hour| hour.measures.quantile(Measure::Full, 0.5));
        let counts: Vec<u64> = hours.iter().map(|hour| hour.tally.made_count).collect();
        (counts, medians.collect::<Vec<_>>(), all(store, site).len())
    };
    let end_us = START_US + 7 * HOUR_US;
    let before = told(&mut store);
    assert_eq!((before.0, before.2), (vec![30, 60, 58, 60, 60, 30], 298));
    store.add(&late).unwrap();
    let with_late = told(&mut store);
    assert_eq!((&with_late.0, with_late.2), (&vec![30, 60, 60, 60, 60, 30], 300));
    let medians_of_rounds = |from: usize, until: usize| {
        let mut times: Vec<u64> =
            entries[from..until].iter().map(|entry| entry.round.full.unwrap().handshake_ns).collect();
        times.sort_unstable();
        times[(times.len() - 1) / 2] as f64
    };
    for (hour, (from, until)) in [(0, 30), (30, 90), (90, 150)].into_iter().enumerate() {
        let median = with_late.1[hour].unwrap() as f64;
        assert!((median / medians_of_rounds(from, until) - 1.0).abs() < 0.001, "hour {hour}");
    }
    store.keep_house(end_us, RAW_HOURS).unwrap();
    assert_eq!(told(&mut store), with_late);
    store.keep_house(end_us + 7 * 24 * HOUR_US, RAW_HOURS).unwrap();
    assert_eq!(told(&mut store), (with_late.0, with_late.1, 0), "the rounds are gone");
    // A spool that lay about for weeks.
    let old = minutes("https://a/", START_US + 45 * MINUTE_US + 7, 3, &mut SplitMix64::new(9));
    let old: Vec<_> = old.into_iter().map(|entry| Entry { run: "old".to_owned(), ..entry }).collect();
    store.add(&old).unwrap();
    let (counts, _, rounds) = told(&mut store);
    assert_eq!((counts[0], rounds), (33, 3));
    store.keep_house(end_us + 8 * 24 * HOUR_US, RAW_HOURS).unwrap();
    let (counts, _, rounds) = told(&mut store);
    assert_eq!((counts[0], rounds), (33, 0));
}

/// Whether days are put together or not, and before and after rounds come late: a report by the day adds up its hours.
fn days_say_the_same_as_their_hours_whatever_comes_late(fresh: &Fresh<'_>) {
    let mut store = fresh.open();
    let mut random = SplitMix64::new(11);
    let mut entries = minutes("https://a/", START_US, 4 * 24 * 60, &mut random);
    // Another key for an hour of the second day, and for good from the third on.
    for (number, entry) in entries.iter_mut().enumerate() {
        let is_other = (30 * 60..31 * 60).contains(&number) || number >= 60 * 60;
        entry.round.facts.key = if is_other { "P-256" } else { "RSA 2048" }.to_owned();
    }
    store.add(&entries).unwrap();
    let sites = store.sites().unwrap();
    let site = sites[0].0;
    let stored = || (fresh.number)("SELECT COUNT(*) FROM spans WHERE length_s = 86400");
    let check = |store: &mut Store| {
        // All, and from the middle of a day to the middle of another.
        for range in [EVER, (START_US + 2 * HOUR_US, START_US + 50 * HOUR_US)] {
            let [hours, days] =
                [By::Hour, By::Day].map(|by| SiteSummary::read(store, &sites, range, by).unwrap().remove(0));
            assert_eq!((hours.tally, &hours.changes), (days.tally, &days.changes));
            assert_eq!(hours.changes.len(), if range == EVER { 3 } else { 2 }, "{:?}", hours.changes);
            for measure in Measure::ALL {
                assert_eq!(hours.measures.counts(measure), days.measures.counts(measure), "{measure}");
            }
            let of_hours: std::collections::BTreeSet<i64> =
                hours.hours.iter().map(|hour| hour.hour_unix_s.div_euclid(86_400) * 86_400).collect();
            assert!(days.hours.iter().map(|day| day.hour_unix_s).eq(of_hours), "a day for each day");
        }
    };
    check(&mut store);
    assert_eq!(stored(), 0);
    // 16:00 of the first day to 16:00 of the fifth: four are over.
    let end_us = START_US + 4 * DAY_US + HOUR_US;
    store.keep_house(end_us, RAW_HOURS).unwrap();
    assert_eq!(stored(), 4);
    check(&mut store);
    let late = |run: &str, hour: i64, random: &mut SplitMix64| {
        let mut late = minutes("https://a/", START_US + hour * HOUR_US + 7, 5, random);
        late.iter_mut().for_each(|entry| {
            entry.run = run.to_owned();
            entry.round.facts.key = if hour < 60 { "RSA 2048" } else { "P-256" }.to_owned();
        });
        late
    };
    store.add(&late("late", 20, &mut random)).unwrap();
    assert_eq!(stored(), 3, "it must be put together anew");
    check(&mut store);
    store.keep_house(end_us, RAW_HOURS).unwrap();
    assert_eq!(stored(), 4);
    check(&mut store);
    // The same when the rounds themselves are gone.
    store.keep_house(end_us + 30 * DAY_US, RAW_HOURS).unwrap();
    assert_eq!((stored(), all(&mut store, site).len()), (5, 0));
    check(&mut store);
    store.add(&late("later", 70, &mut random)).unwrap();
    assert_eq!(stored(), 4);
    check(&mut store);
    store.keep_house(end_us + 31 * DAY_US, RAW_HOURS).unwrap();
    assert_eq!((stored(), all(&mut store, site).len()), (5, 0));
    check(&mut store);
    assert_eq!(store.by(&[site], EVER).unwrap(), By::Hour, "four days are told by the hour");
    store.add(&late("long ago", -50 * 24, &mut random)).unwrap();
    store.keep_house(end_us + 31 * DAY_US, RAW_HOURS).unwrap();
    assert_eq!(store.by(&[site], EVER).unwrap(), By::Day);
}

/// A year of ten sites with a round a minute stays below 200 MB: a week of rounds, and the rows of hours and days,
/// measured and multiplied.
#[test]
fn a_year_of_ten_sites_is_small() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("probe.sqlite");
    let mut store = Store::open(&Address::File(path.clone())).unwrap();
    let size = || {
        let file = Connection::open(&path).unwrap();
        file.execute_batch("VACUUM").unwrap();
        file.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(())).unwrap();
        size_bytes(&path)
    };
    let empty = size();
    let mut random = SplitMix64::new(3);
    let rounds = 2 * 24 * 60;
    store.add(&minutes("https://a/", START_US, rounds, &mut random)).unwrap();
    store.keep_house(START_US + 56 * HOUR_US, RAW_HOURS).unwrap();
    let with_rounds = size();
    store.keep_house(START_US + 56 * HOUR_US, 0).unwrap();
    let with_hours = size();
    let bytes_per_round = (with_rounds - with_hours) as f64 / rounds as f64;
    let bytes_per_hour = (with_hours - empty) as f64 / 48.0;
    println!("{bytes_per_round:.0} bytes a round, {bytes_per_hour:.0} bytes an hour with its part of a day");
    let year = 10.0 * (bytes_per_round * 7.0 * 1440.0 + bytes_per_hour * 24.0 * 365.0);
    assert!(year < 200e6, "a year takes {year} bytes");
    let month_of_rounds = 10.0 * 30.0 * 24.0 * (60.0 * bytes_per_round + bytes_per_hour);
    assert!(month_of_rounds < 120e6, "a month with all rounds takes {month_of_rounds} bytes");
}

/// What is added while others count is in the hours and days in the end.
fn two_who_count_while_a_third_adds_lose_nothing(fresh: &Fresh<'_>) {
    const ROUNDS: u64 = 300;
    let mut store = fresh.open();
    // Rounds of three days in a mixed order: nearly all of them come late.
    let mut random = SplitMix64::new(29);
    let mut entry = |number: u64| {
        let started_us = START_US + random.below(3 * 24 * 60) as i64 * MINUTE_US + number as i64;
        Entry::made("run", number, round("https://a/", started_us, &mut random))
    };
    let entries: Vec<Entry> = (0..ROUNDS).map(&mut entry).collect();
    let now_us = START_US + 4 * DAY_US;
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for _ in 0..2 {
            let (mut store, is_over) = (fresh.open(), &is_over);
            scope.spawn(move || {
                while !is_over.load(Ordering::Relaxed) {
                    store.keep_house(now_us, RAW_HOURS).unwrap();
                }
            });
        }
        let added: Vec<_> = entries.chunks(2).map(|two| store.add(two)).collect();
        is_over.store(true, Ordering::Relaxed);
        added.into_iter().for_each(|added| assert_eq!(added.unwrap(), 2));
    });
    store.keep_house(now_us, RAW_HOURS).unwrap();
    for by in [By::Hour, By::Day] {
        let sql = format!("SELECT SUM(made_count) FROM spans WHERE length_s = {}", by.length_s());
        assert_eq!((fresh.number)(&sql), ROUNDS, "{by}");
    }
}

/// A robot by a clock that is a year ahead from one moment on, as far as the store can tell.
fn a_clock_set_forward_lets_go_of_no_rounds_for_a_day(fresh: &Fresh<'_>) {
    const YEAR_US: i64 = 365 * DAY_US;
    const KEPT_HOURS: u64 = 30;
    const USUAL_HOURS: i64 = 60;
    let mut store = fresh.open();
    let mut random = SplitMix64::new(31);
    let mut number = 0;
    let mut hour_passes = |store: &mut Store, now_us: i64| {
        store.add(&[Entry::made("run", number, round("https://a/", now_us, &mut random))]).unwrap();
        number += 1;
        store.keep_house_warily(now_us + HOUR_US, KEPT_HOURS).unwrap();
    };
    let rounds = || (fresh.number)("SELECT COUNT(*) FROM rounds");
    (0..USUAL_HOURS).for_each(|hour| hour_passes(&mut store, START_US + hour * HOUR_US));
    let usual = rounds();
    assert!((KEPT_HOURS..=KEPT_HOURS + 2).contains(&usual), "a clock that goes on as it did is believed: {usual}");
    // Wrong for most of a day: nothing of what was there goes.
    let wrong_us = |hour: i64| START_US + YEAR_US + (USUAL_HOURS + hour) * HOUR_US;
    (0..20).for_each(|hour| hour_passes(&mut store, wrong_us(hour)));
    let wrong = rounds();
    assert!(wrong >= KEPT_HOURS, "{wrong}");
    // It was right: after a day the rounds of a year ago go.
    (20..28).for_each(|hour| hour_passes(&mut store, wrong_us(hour)));
    assert_eq!(rounds(), 28);
}

/// A report says the same of a day before its rounds are counted and after they are gone.
fn a_report_of_hours_is_that_of_their_rounds(fresh: &Fresh<'_>) {
    let mut store = fresh.open();
    store.add(&minutes("https://a/", START_US, 24 * 60, &mut SplitMix64::new(4))).unwrap();
    let sites = store.sites().unwrap();
    let numbers = |store: &mut Store| {
        let summary = SiteSummary::read(store, &sites, EVER, By::Hour).unwrap().remove(0);
        assert_eq!((summary.tally.made_count, summary.tally.accepted_count), (1440, 1440));
        summary.numbers
    };
    let of_rounds = numbers(&mut store);
    store.keep_house(START_US + 10 * 24 * HOUR_US, RAW_HOURS).unwrap();
    assert!(all(&mut store, sites[0].0).is_empty());
    assert_eq!(numbers(&mut store), of_rounds);
}

fn what_comes_twice_is_known_when_its_rows_are_gone(fresh: &Fresh<'_>) {
    let entries = minutes("https://a/", START_US, 90, &mut SplitMix64::new(5));
    let mut store = fresh.open();
    assert_eq!(store.add(&entries[..60]).unwrap(), 60);
    store.keep_house(START_US + 10 * 24 * HOUR_US, RAW_HOURS).unwrap();
    let site = store.sites().unwrap()[0].0;
    assert!(all(&mut store, site).is_empty(), "they are old");
    // A robot that was killed before it could empty its spool, and one that took weeks to come back.
    assert_eq!(store.add(&entries).unwrap(), 30);
    store.keep_house(START_US + 11 * 24 * HOUR_US, RAW_HOURS).unwrap();
    let made: u64 = store.hours(site, EVER).unwrap().iter().map(|hour| hour.tally.made_count).sum();
    assert_eq!(made, 90);
    assert_eq!(store.add(&entries).unwrap(), 0);
}

fn totals_are_those_of_all_runs(fresh: &Fresh<'_>) {
    let mut random = SplitMix64::new(6);
    let mut store = fresh.open();
    let mut entries = minutes("https://a/", START_US, 3, &mut random);
    entries[1].round.resumption = Resumption::Rejected;
    entries[2].round.fault = Some(Fault { step: "kept".to_owned(), kind: FaultKind::Reset, text: "no".to_owned() });
    entries.push(Entry::missed("run", 3, 57, "https://a/", START_US + HOUR_US));
    store.add(&entries).unwrap();
    let other = Entry { run: "other".to_owned(), ..entries[0].clone() };
    store.add(&[other, minutes("https://b/", START_US, 1, &mut random).remove(0)]).unwrap();
    let totals = store.totals().unwrap();
    let of = |name: &str, store: &mut Store| {
        let sites = store.sites().unwrap();
        let totals = totals[&sites.iter().find(|(_, this)| this == name).unwrap().0];
        (totals.made_count, totals.missed_count, totals.fault_count, totals.offered_count, totals.accepted_count)
    };
    assert_eq!(of("https://a/", &mut store), (4, 57, 1, 4, 3));
    assert_eq!(of("https://b/", &mut store), (1, 0, 0, 1, 1));
    let site = store.sites().unwrap()[0].0;
    let latest = store.latest(site).unwrap().unwrap();
    assert_eq!(latest.round, entries[2].round, "what was missed is no round");
}

fn rounds_made_alone_have_no_order(fresh: &Fresh<'_>) {
    let mut random = SplitMix64::new(7);
    let mut store = fresh.open();
    for (number, minute) in [(77, 0), (5, 1), (u64::MAX >> 1, 2)] {
        let entry = Entry::alone("once", number, round("https://a/", START_US + minute * MINUTE_US, &mut random));
        assert_eq!([0, 1].map(|_| store.add(std::slice::from_ref(&entry)).unwrap()), [1, 0]);
    }
    let site = store.sites().unwrap()[0].0;
    assert_eq!(all(&mut store, site).len(), 3);
}

fn places_are_kept_apart(fresh: &Fresh<'_>) {
    let mut random = SplitMix64::new(8);
    let mut store = fresh.open();
    for (index, vantage) in ["", "Bern", "New York"].into_iter().enumerate() {
        let round = Round { vantage: vantage.to_owned(), ..round("https://a/", START_US, &mut random) };
        store.add(&[Entry::made(&format!("run {index}"), 0, round)]).unwrap();
    }
    let sites = store.sites().unwrap();
    let names: Vec<&str> = sites.iter().map(|(_, name)| name.as_str()).collect();
    assert_eq!(names, ["https://a/", "https://a/ from Bern", "https://a/ from New York"]);
    let of_place = all(&mut store, sites[2].0);
    assert_eq!((of_place[0].round.site.as_str(), of_place[0].round.vantage.as_str()), ("https://a/", "New York"));
    // A second robot may not have the same site from the same place. In a file, locks beside it see to that.
    let mut other = fresh.open();
    assert!(store.claim("https://a/ from Bern").unwrap());
    let is_server = matches!(fresh.address, Address::Server(_));
    assert_eq!(other.claim("https://a/ from Bern").unwrap(), !is_server);
    assert!(other.claim("https://a/").unwrap());
}

fn tables_of_other_versions_are_refused(fresh: &Fresh<'_>) {
    let error = |result: anyhow::Result<Store>| format!("{:#}", result.err().unwrap());
    fresh.open();
    for (version, whose) in [(3, "an older tlsdyno"), (99, "a newer tlsdyno")] {
        (fresh.batch)(&format!("UPDATE probe_schema SET version = {version}"));
        for result in [Store::open(&fresh.address), Store::open_for_reading(&fresh.address)] {
            let error = error(result);
            assert!(error.contains(&format!("version {version}")) && error.contains(whose), "{error}");
        }
    }
}

#[test]
fn what_is_no_store_of_probes_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("other.sqlite");
    Connection::open(&path).unwrap().execute_batch("CREATE TABLE mine (x)").unwrap();
    let error = |result: anyhow::Result<Store>| format!("{:#}", result.err().unwrap());
    let other = Address::File(path);
    assert!(error(Store::open(&other)).contains("--store"));
    assert!(error(Store::open_for_reading(&other)).contains("--store"));
    let none = Address::File(directory.path().join("none"));
    assert!(error(Store::open_for_reading(&none)).contains("--every"));
}

/// The journal is changed by one at a time, and SQLite does not wait for that by itself.
#[test]
fn a_new_file_that_another_writes_is_opened_when_the_other_is_done() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("probe.sqlite");
    let other = Connection::open(&path).unwrap();
    other.execute_batch("BEGIN IMMEDIATE").unwrap();
    let (tell, told) = std::sync::mpsc::channel();
    std::thread::scope(|scope| {
        scope.spawn(|| tell.send(Store::open(&Address::File(path.clone())).map(drop)));
        assert!(told.recv_timeout(Duration::from_millis(200)).is_err(), "the other still writes");
        other.execute_batch("COMMIT").unwrap();
        told.recv().unwrap().unwrap();
    });
}

#[test]
fn a_file_that_was_removed_takes_no_more_rounds() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("probe.sqlite");
    let entries = minutes("https://a/", START_US, 2, &mut SplitMix64::new(10));
    let mut store = Store::open(&Address::File(path.clone())).unwrap();
    store.add(&entries[..1]).unwrap();
    std::fs::remove_file(&path).unwrap();
    let error = store.add(&entries[1..]).unwrap_err().to_string();
    assert!(error.contains("removed or replaced"), "{error}");
}
