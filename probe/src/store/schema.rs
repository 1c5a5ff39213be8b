//! The tables, in steps: a new store does all of them, an older one those that it lacks.

use anyhow::{Context, Result, ensure};

use super::Store;
use super::database::{Database, Dialect};
use super::rows::COLUMNS;

/// Each takes the tables from one version to the next.
const STEPS: [fn(Dialect) -> String; 3] = [first, second, third];
/// Columns of the first version.
const FIRST_COLUMNS: usize = 28;

/// Refuses tables that are newer than this program; answers their version.
pub fn check_version(database: &mut dyn Database) -> Result<usize> {
    let found = usize::try_from(database.version()?).unwrap_or(usize::MAX);
    ensure!(
        found <= STEPS.len(),
        "the store has tables of version {found}, and this tlsdyno knows {}; use a newer tlsdyno",
        STEPS.len()
    );
    Ok(found)
}

/// Refuses tables that a robot has yet to make or to bring up to date.
pub fn check_for_reading(database: &mut dyn Database) -> Result<()> {
    let found = check_version(database)?;
    ensure!(found > 0, "the store has no rounds yet; `tlsdyno probe URL --every 1m` makes it");
    ensure!(
        found == STEPS.len(),
        "the store has tables of version {found}; a robot of this tlsdyno brings them to {}",
        STEPS.len()
    );
    Ok(())
}

/// Makes the tables, or brings them up to date.
pub fn make(store: &mut Store) -> Result<()> {
    if check_version(&mut *store.database)? == STEPS.len() {
        return Ok(());
    }
    let made = store.transaction(|store| {
        let database = &mut *store.database;
        let dialect = database.dialect();
        let found = check_version(database)?;
        for step in &STEPS[found..] {
            database.batch(&step(dialect))?;
        }
        database.batch(&format!("UPDATE probe_schema SET version = {}", STEPS.len()))
    });
    // Another robot may have been faster.
    match made {
        Err(_) if check_version(&mut *store.database).is_ok_and(|found| found == STEPS.len()) => Ok(()),
        made => made.context("failed to make the tables of the store"),
    }
}

/// Times are nanoseconds, moments microseconds or seconds since 1970. `missed_count` is NULL for a round that was made.
/// Only rows of rounds lie in the order of their key: SQLite would give each hour's histograms a page of their own.
fn first(dialect: Dialect) -> String {
    let rounds: String = COLUMNS[..FIRST_COLUMNS].iter().map(|column| format!("{column} BIGINT,\n")).collect();
    let Dialect { bytes, by_key, .. } = dialect;
    format!(
        "CREATE TABLE probe_schema (version BIGINT NOT NULL);
         INSERT INTO probe_schema VALUES (1);
         CREATE TABLE texts (id BIGINT PRIMARY KEY, kind TEXT NOT NULL, content TEXT NOT NULL, UNIQUE (kind, content));
         CREATE TABLE rounds ({rounds} PRIMARY KEY (site, started_unix_us, run, number)) {by_key};
         CREATE TABLE hours (
             site BIGINT NOT NULL,
             hour_unix_s BIGINT NOT NULL,
             made_count BIGINT NOT NULL,
             missed_count BIGINT NOT NULL,
             offered_count BIGINT NOT NULL,
             accepted_count BIGINT NOT NULL,
             raw_is_gone BIGINT NOT NULL,
             faults TEXT NOT NULL,
             facts BIGINT,
             histograms {bytes} NOT NULL,
             PRIMARY KEY (site, hour_unix_s)
         );"
    )
}

/// What became of kept sessions; and what each run has brought, so that a spool that comes twice is known for good, and
/// nobody has to count rounds.
fn second(dialect: Dialect) -> String {
    let made = "CASE WHEN missed_count IS NULL THEN 1 ELSE 0 END";
    format!(
        "ALTER TABLE rounds ADD COLUMN kept_age_s BIGINT;
         ALTER TABLE rounds ADD COLUMN kept BIGINT;
         ALTER TABLE hours ADD COLUMN kept TEXT NOT NULL DEFAULT '{{}}';
         CREATE TABLE runs (
             site BIGINT NOT NULL,
             run BIGINT NOT NULL,
             last_number BIGINT NOT NULL,
             made_count BIGINT NOT NULL,
             missed_count BIGINT NOT NULL,
             fault_count BIGINT NOT NULL,
             offered_count BIGINT NOT NULL,
             accepted_count BIGINT NOT NULL,
             PRIMARY KEY (site, run)
         ) {};
         INSERT INTO runs SELECT site, run, MAX(number + COALESCE(missed_count, 1) - 1), SUM({made}),
             SUM(COALESCE(missed_count, 0)), SUM(CASE WHEN fault IS NULL THEN 0 ELSE 1 END),
             SUM(CASE WHEN resumption IN (2, 3) THEN 1 ELSE 0 END), SUM(CASE WHEN resumption = 3 THEN 1 ELSE 0 END)
             FROM rounds GROUP BY site, run;",
        dialect.by_key
    )
}

/// Days, which the next housekeeping puts together. `facts` is JSON: beginnings and numbers of texts.
fn third(dialect: Dialect) -> String {
    format!(
        "CREATE TABLE days (
             site BIGINT NOT NULL,
             day_unix_s BIGINT NOT NULL,
             made_count BIGINT NOT NULL,
             missed_count BIGINT NOT NULL,
             offered_count BIGINT NOT NULL,
             accepted_count BIGINT NOT NULL,
             faults TEXT NOT NULL,
             facts TEXT NOT NULL,
             histograms {} NOT NULL,
             kept TEXT NOT NULL,
             PRIMARY KEY (site, day_unix_s)
         );",
        dialect.bytes
    )
}
