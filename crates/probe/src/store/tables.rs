//! The tables, and a round as a row of one.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use anyhow::{Context, Result, ensure};
use serde_json::{Value as Json, json};

use super::Store;
use super::database::{Column as _, Database, Texts, Value, count};
use super::hours::HOUR_COLUMNS;
use super::tally::Tally;
use crate::entry::Entry;
use crate::round::Round;

/// The version of the tables. It changes with their columns and with what these mean.
const VERSION: i64 = 4;

/// The version of the tables that are there, if there are any.
fn version(database: &mut dyn Database) -> Result<Option<i64>> {
    match database.number(database.dialect().count_tables, &[])? {
        Some(1..) => database.number("SELECT MAX(version) FROM probe_schema", &[]),
        _ => Ok(None),
    }
}

/// Refuses tables that another version of this program made.
fn check_version(found: i64) -> Result<()> {
    let which = if found > VERSION { "a newer" } else { "an older" };
    ensure!(
        found == VERSION,
        "{which} tlsdyno made the store: its tables have version {found}, and this one knows {VERSION}; use that \
         tlsdyno, or another --store"
    );
    Ok(())
}

/// Refuses a store that a robot has yet to make, or that another version made.
pub fn check_for_reading(database: &mut dyn Database) -> Result<()> {
    let found = version(database)?.context("the store has no rounds yet; `tlsdyno probe URL --every 1m` makes it")?;
    check_version(found)
}

/// Makes the tables if there are none.
pub fn make(store: &mut Store) -> Result<()> {
    if let Some(found) = version(&mut *store.database)? {
        return check_version(found);
    }
    store.transaction(|store| match version(&mut *store.database)? {
        // Another robot was faster.
        Some(found) => check_version(found),
        None => store.database.batch(&tables(&*store.database)).context("failed to make the tables of the store"),
    })
}

/// Times are nanoseconds, moments microseconds or seconds since 1970. `missed_count` is NULL for a round that was made.
/// Rows of `spans` do not lie in the order of their key: SQLite would give each hour's histograms a page of their own.
fn tables(database: &dyn Database) -> String {
    let dialect = database.dialect();
    let (bytes, by_key) = (dialect.bytes, dialect.by_key);
    let rounds: String = KEY.iter().map(|name| format!("{name} BIGINT,\n")).collect();
    let more: String = COLUMNS.iter().map(|column| format!("{} {},\n", column.name(), column.sql_type())).collect();
    let counts: String = Tally::COLUMNS.iter().map(|name| format!("{name} BIGINT NOT NULL,\n")).collect();
    let keys: String = HOUR_COLUMNS.iter().map(|name| format!("{name} BIGINT NOT NULL,\n")).collect();
    format!(
        "CREATE TABLE probe_schema (version BIGINT NOT NULL);
         INSERT INTO probe_schema VALUES ({VERSION});
         CREATE TABLE texts (id BIGINT PRIMARY KEY, kind TEXT NOT NULL, content TEXT NOT NULL, UNIQUE (kind, content));
         CREATE TABLE rounds ({rounds} {more} PRIMARY KEY (site, started_unix_us, run, number)) {by_key};
         CREATE TABLE runs (
             run BIGINT NOT NULL,
             site BIGINT NOT NULL,
             last_number BIGINT NOT NULL,
             {counts}
             PRIMARY KEY (run, site)
         ) {by_key};
         CREATE TABLE spans ({keys} {counts} content {bytes} NOT NULL, PRIMARY KEY ({}));",
        HOUR_COLUMNS.join(", ")
    )
}

/// The key of a round's row, and its number of rounds where they were missed.
const KEY: [&str; 5] = ["site", "started_unix_us", "run", "number", "missed_count"];

/// A column of a round beside [`KEY`].
struct Column {
    /// Where its value is in the JSON of the round.
    path: String,
    kind: Kind,
}

#[derive(Clone, Copy, PartialEq)]
enum Kind {
    /// A number, or NULL.
    Number,
    /// A name; empty: there is none.
    Name,
    /// The number of a text of that kind, or NULL: some JSON that is the same in many rounds.
    Text(&'static str),
}

static COLUMNS: LazyLock<Vec<Column>> = LazyLock::new(|| {
    let visit =
        |visit: &str| ["tcp", "hello", "handshake", "first_byte", "whole"].map(|phase| format!("/{visit}/{phase}_ns"));
    let visits = ["full", "resumed", "early"].into_iter().flat_map(visit);
    let numbers = ["/lookup_ns", "/tcp_ns", "/status", "/body_bytes", "/kept/age_s"].map(str::to_owned);
    let names = ["/resumption", "/early_data", "/kept/became"].map(str::to_owned);
    let of = |kind: Kind| move |path: String| Column { path, kind };
    let mut columns: Vec<Column> = numbers.into_iter().chain(visits).map(of(Kind::Number)).collect();
    columns.extend(names.map(of(Kind::Name)));
    columns.extend(["facts", "fault"].map(|text| Column { path: format!("/{text}"), kind: Kind::Text(text) }));
    columns
});

impl Column {
    fn name(&self) -> String {
        self.path[1..].replace('/', "_")
    }

    fn sql_type(&self) -> &'static str {
        if self.kind == Kind::Name { "TEXT NOT NULL" } else { "BIGINT" }
    }
}

/// The names of all columns of a round, in the order of [`values`].
pub fn columns() -> String {
    KEY.map(str::to_owned).into_iter().chain(COLUMNS.iter().map(Column::name)).collect::<Vec<_>>().join(", ")
}

/// The values of a row. Texts that are new get their numbers.
pub fn values(entry: &Entry, texts: &mut Texts, database: &mut dyn Database) -> Result<Vec<Value>> {
    let mut values = vec![
        texts.number(database, "site", &entry.round.series())?.into(),
        entry.round.started_unix_us.into(),
        texts.number(database, "run", &entry.run)?.into(),
        count(entry.number),
        entry.missed_count.map(count).into(),
    ];
    let round = serde_json::to_value(&entry.round)?;
    for column in COLUMNS.iter() {
        let found = round.pointer(&column.path).filter(|found| !found.is_null());
        values.push(match column.kind {
            Kind::Number => found.and_then(Json::as_u64).map(count).into(),
            Kind::Name => found.and_then(Json::as_str).unwrap_or_default().to_owned().into(),
            Kind::Text(kind) => found.map(|found| texts.number(database, kind, &found.to_string())).transpose()?.into(),
        });
    }
    Ok(values)
}

pub fn entry(row: &[Value], texts: &BTreeMap<i64, String>) -> Result<Entry> {
    let text = |value: &Value| value.integer().and_then(|number| texts.get(&number)).map_or("", String::as_str);
    let (site, vantage) = Round::of_series(text(&row[0]));
    let mut round = json!({"site": site, "vantage": vantage, "started_unix_us": row[1].integer()});
    for (column, value) in COLUMNS.iter().zip(&row[KEY.len()..]) {
        let value = match column.kind {
            Kind::Number => value.integer().map(Json::from),
            Kind::Name => Some(value.text()).filter(|name| !name.is_empty()).map(Json::from),
            Kind::Text(_) => Some(text(value)).filter(|text| !text.is_empty()).map(serde_json::from_str).transpose()?,
        };
        if let Some(value) = value {
            // Objects on the way are made as they are named.
            let place = column.path[1..].split('/').fold(&mut round, |object, field| &mut object[field]);
            *place = value;
        }
    }
    let round = serde_json::from_value(round).context("a round of the store is damaged")?;
    let (run, number) = (text(&row[2]).to_owned(), row[3].unsigned().unwrap_or_default());
    // What was made alone is known by its run's name only, and nobody who reads asks for it.
    Ok(Entry { run, number, missed_count: row[4].unsigned(), is_alone: false, round })
}
