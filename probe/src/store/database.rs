//! What the store asks of a database: SQL that every one understands (BIGINT, TEXT, bytes; parameters `$1`, `$2`, …).

use std::collections::BTreeMap;

use anyhow::Result;

/// A value of a parameter or a column.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// NULL.
    Null,
    /// BIGINT.
    Integer(i64),
    /// TEXT.
    Text(String),
    /// BLOB, BYTEA.
    Bytes(Vec<u8>),
}

/// A database.
pub trait Database: Send {
    /// Statements without parameters or answer.
    ///
    /// # Errors
    /// The database says why.
    fn batch(&mut self, sql: &str) -> Result<()>;

    /// One statement; answers how many rows it changed.
    ///
    /// # Errors
    /// The database says why.
    fn execute(&mut self, sql: &str, values: &[Value]) -> Result<u64>;

    /// One query, each of its rows handed to `row`.
    ///
    /// # Errors
    /// The database says why, or `row` does.
    fn query(&mut self, sql: &str, values: &[Value], row: &mut dyn FnMut(&[Value]) -> Result<()>) -> Result<()>;

    /// The version of our tables; 0: there are none.
    ///
    /// # Errors
    /// The database says why.
    fn version(&mut self) -> Result<i64>;

    /// Takes a lock of that number until the connection ends; `false`: another connection has it. A database in a file
    /// needs none: robots on one file lock files beside it.
    ///
    /// # Errors
    /// The database says why.
    fn claim(&mut self, number: i64) -> Result<bool>;

    /// Whether what is written still arrives where others read it.
    ///
    /// # Errors
    /// It does not; says why.
    fn check(&self) -> Result<()>;

    /// How this database differs from others.
    fn dialect(&self) -> Dialect;
}

/// How this database differs from others.
#[derive(Clone, Copy, Debug)]
pub struct Dialect {
    /// The type of bytes.
    pub bytes: &'static str,
    /// Behind a table whose rows are kept in the order of their key.
    pub by_key: &'static str,
    /// Begins a transaction that will write.
    pub begin: &'static str,
    /// Behind a query: until the transaction ends, nobody else gets these rows in this way. Empty: there is only one
    /// transaction that writes.
    pub for_update: &'static str,
    /// Begins a transaction that only reads, and all of it as of one moment.
    pub begin_reading: &'static str,
}

impl Value {
    /// The number.
    pub fn integer(&self) -> Option<i64> {
        if let Value::Integer(number) = self { Some(*number) } else { None }
    }

    /// The text; empty if it is none.
    pub fn text(&self) -> &str {
        if let Value::Text(text) = self { text } else { "" }
    }

    /// The bytes; none if it is something else.
    pub fn bytes(&self) -> &[u8] {
        if let Value::Bytes(bytes) = self { bytes } else { &[] }
    }
}

impl From<i64> for Value {
    fn from(number: i64) -> Value {
        Value::Integer(number)
    }
}

impl From<u64> for Value {
    /// Times and counts stay far below 2^63.
    fn from(number: u64) -> Value {
        Value::Integer(i64::try_from(number).unwrap_or(i64::MAX))
    }
}

impl From<&str> for Value {
    fn from(text: &str) -> Value {
        Value::Text(text.to_owned())
    }
}

impl<T: Into<Value>> From<Option<T>> for Value {
    fn from(value: Option<T>) -> Value {
        value.map_or(Value::Null, Into::into)
    }
}

/// `($1, $2), ($3, $4)`: places of so many rows. With `cast` all are numbers, where nothing else tells the database so.
pub fn places(rows: usize, columns: usize, cast: bool) -> String {
    let place = |number: usize| match cast {
        true => format!("CAST(${number} AS BIGINT)"),
        false => format!("${number}"),
    };
    let row = |row: usize| {
        let all: Vec<String> = (1..=columns).map(|column| place(row * columns + column)).collect();
        format!("({})", all.join(", "))
    };
    (0..rows).map(row).collect::<Vec<_>>().join(", ")
}

/// Texts that are kept once and named by a number: sites, runs, facts, faults.
#[derive(Debug, Default)]
pub struct Texts(BTreeMap<(&'static str, String), i64>);

impl Texts {
    /// The number of a text of that kind, which it gets now if it has none.
    ///
    /// # Errors
    /// The database says why.
    pub fn number(&mut self, database: &mut dyn Database, kind: &'static str, text: &str) -> Result<i64> {
        if let Some(number) = self.0.get(&(kind, text.to_owned())) {
            return Ok(*number);
        }
        // `WHERE true` tells SQLite where the query ends. Another robot may take the number first: it is tried anew.
        let insert = "INSERT INTO texts (id, kind, content)
                      SELECT COALESCE(MAX(id), 0) + 1, $1, $2 FROM texts WHERE true ON CONFLICT DO NOTHING";
        for _ in 0..100 {
            let mut number = None;
            let find = "SELECT id FROM texts WHERE kind = $1 AND content = $2";
            database.query(find, &[kind.into(), text.into()], &mut |row| {
                number = row[0].integer();
                Ok(())
            })?;
            if let Some(number) = number {
                self.0.insert((kind, text.to_owned()), number);
                return Ok(number);
            }
            database.execute(insert, &[kind.into(), text.into()])?;
        }
        anyhow::bail!("the store gives no number to a text; do other programs write to its tables?")
    }

    /// Forgets everything.
    pub fn forget(&mut self) {
        self.0.clear();
    }
}
