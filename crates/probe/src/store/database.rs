//! What the store asks of a database: SQL that every one understands (BIGINT, TEXT, bytes; parameters `$1`, `$2`, …).

use std::collections::BTreeMap;

use anyhow::{Context, Result};
pub use rusqlite::types::Value;

pub trait Database: Send {
    /// Statements without parameters or answer.
    fn batch(&mut self, sql: &str) -> Result<()>;

    /// One statement, each row of its answer handed to `row`.
    fn query(&mut self, sql: &str, values: &[Value], row: &mut dyn FnMut(&[Value]) -> Result<()>) -> Result<()>;

    /// Whether what is written still arrives where others read it.
    fn check(&self) -> Result<()>;

    fn dialect(&self) -> Dialect;
}

/// How this database differs from others.
#[derive(Clone, Copy, Debug)]
pub struct Dialect {
    /// The type of bytes.
    pub bytes: &'static str,
    /// Behind a table whose rows are kept in the order of their key.
    pub by_key: &'static str,
    /// Asks how many tables have the name `probe_schema`.
    pub count_tables: &'static str,
    /// Begins a transaction that will write. There is one at a time, so that what is counted lacks nothing that is
    /// added at that moment.
    pub begin: &'static str,
    /// Begins a transaction that only reads, and all of it as of one moment.
    pub begin_reading: &'static str,
    /// Takes a lock of that number until the connection ends, and answers 0 if another connection has it. Empty: robots
    /// lock files.
    pub claim: &'static str,
}

impl dyn Database + '_ {
    /// All rows of an answer.
    pub fn all(&mut self, sql: &str, values: &[Value]) -> Result<Vec<Vec<Value>>> {
        let mut all = Vec::new();
        self.query(sql, values, &mut |row| {
            all.push(row.to_vec());
            Ok(())
        })?;
        Ok(all)
    }

    /// The number in the first column of the first row, if there is one.
    pub fn number(&mut self, sql: &str, values: &[Value]) -> Result<Option<i64>> {
        Ok(self.all(sql, values)?.first().and_then(|row| row[0].integer()))
    }

    /// Inserts rows, and answers what the statement returns of them. `behind` is what follows the values.
    pub fn insert(&mut self, table: &str, columns: &str, rows: &[Vec<Value>], behind: &str) -> Result<Vec<Vec<Value>>> {
        /// A statement takes a bounded number of parameters.
        const ROWS_OF_STATEMENT: usize = 200;
        let mut returned = Vec::new();
        for rows in rows.chunks(ROWS_OF_STATEMENT) {
            let width = rows[0].len();
            let all = (0..rows.len()).map(|row| places(row * width + 1, width)).collect::<Vec<_>>().join(", ");
            let sql = format!("INSERT INTO {table} ({columns}) VALUES {all} {behind}");
            returned.extend(self.all(&sql, &rows.concat())?);
        }
        Ok(returned)
    }
}

/// `($3, $4)`: places for so many parameters, from that number on.
pub fn places(first: usize, count: usize) -> String {
    let all: Vec<String> = (first..first + count).map(|number| format!("${number}")).collect();
    format!("({})", all.join(", "))
}

/// A value of a column, of which it is known what it is.
pub trait Column {
    fn integer(&self) -> Option<i64>;

    /// The text; empty if it is none.
    fn text(&self) -> &str;

    /// The bytes; none if it is something else.
    fn bytes(&self) -> &[u8];

    /// The number, if it is a count or a time.
    fn unsigned(&self) -> Option<u64> {
        self.integer().and_then(|number| u64::try_from(number).ok())
    }
}

impl Column for Value {
    fn integer(&self) -> Option<i64> {
        if let Value::Integer(number) = self { Some(*number) } else { None }
    }

    fn text(&self) -> &str {
        if let Value::Text(text) = self { text } else { "" }
    }

    fn bytes(&self) -> &[u8] {
        if let Value::Blob(bytes) = self { bytes } else { &[] }
    }
}

/// A count or a time, which stays far below 2^63.
pub fn count(number: u64) -> Value {
    i64::try_from(number).unwrap_or(i64::MAX).into()
}

/// Texts that are kept once and named by a number: sites, runs, facts, faults.
#[derive(Debug, Default)]
pub struct Texts {
    /// Numbers of texts, by their kind, as far as they were asked for.
    numbers: BTreeMap<(&'static str, String), i64>,
    /// Texts by their numbers, as far as they were read.
    texts: BTreeMap<i64, String>,
}

impl Texts {
    /// The number of a text of that kind, which it gets now if it has none. Asked within a transaction that writes.
    pub fn number(&mut self, database: &mut dyn Database, kind: &'static str, text: &str) -> Result<i64> {
        if let Some(number) = self.numbers.get(&(kind, text.to_owned())) {
            return Ok(*number);
        }
        let values = [kind, text].map(|text| Value::from(text.to_owned()));
        let known = database.number("SELECT id FROM texts WHERE kind = $1 AND content = $2", &values)?;
        let number = match known {
            Some(number) => number,
            None => {
                let insert = "INSERT INTO texts (id, kind, content)
                              SELECT COALESCE(MAX(id), 0) + 1, $1, $2 FROM texts RETURNING id";
                database.number(insert, &values)?.context("the store gives no number to a text")?
            }
        };
        self.numbers.insert((kind, text.to_owned()), number);
        Ok(number)
    }

    /// All texts by their numbers. Only new ones are read: numbers grow, and none is given before the one below it is
    /// there for all.
    pub fn read(&mut self, database: &mut dyn Database) -> Result<&BTreeMap<i64, String>> {
        let last = self.texts.last_key_value().map_or(0, |(number, _)| *number);
        for row in database.all("SELECT id, content FROM texts WHERE id > $1", &[last.into()])? {
            self.texts.extend(row[0].integer().map(|id| (id, row[1].text().to_owned())));
        }
        Ok(&self.texts)
    }
}
