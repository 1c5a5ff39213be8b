//! The store in a PostgreSQL database.

use std::collections::HashMap;
use std::error::Error;
use std::io;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use openssl::ssl::{SslConnector, SslMethod, SslVerifyMode};
use postgres::config::SslMode;
use postgres::error::SqlState;
use postgres::fallible_iterator::FallibleIterator;
use postgres::types::{ToSql, Type};
use postgres::{Client, Row, Statement};
use postgres_openssl::MakeTlsConnector;

use super::database::{Database, Dialect, Value};
use super::server_url::{ServerUrl, TlsMode};
use crate::fault::Fault;

/// How long the server may take to be connected to, and to acknowledge what it was sent.
const PATIENCE: Duration = Duration::from_secs(10);
/// Statements that are kept prepared.
const STATEMENTS_MAX: usize = 64;

/// A connection to a server.
pub struct Postgres {
    client: Client,
    statements: HashMap<String, Statement>,
}

impl Postgres {
    /// Connects.
    ///
    /// # Errors
    /// [`Fault::Unreachable`]: the server is not there now, and may be later. Otherwise something must be changed.
    pub fn connect(url: &ServerUrl) -> Result<Postgres> {
        let mut config = url.config()?;
        if config.get_connect_timeout().is_none() {
            config.connect_timeout(PATIENCE);
        }
        if config.get_application_name().is_none() {
            config.application_name("tlsdyno probe");
        }
        let mode = url.mode();
        config.tcp_user_timeout(PATIENCE).keepalives_idle(PATIENCE).keepalives_interval(PATIENCE);
        config.ssl_mode(match mode {
            TlsMode::Disable => SslMode::Disable,
            TlsMode::Prefer => SslMode::Prefer,
            _ => SslMode::Require,
        });
        let connector = tls(url, mode).context("failed to prepare TLS for the database")?;
        let connected = config.connect(connector);
        let client = connected.map_err(|error| {
            let may_come_back = is_away(&error);
            let error = anyhow::Error::new(error).context(format!("no connection to {url}"));
            if may_come_back { Fault::Unreachable.of(error) } else { error }
        })?;
        Ok(Postgres { client, statements: HashMap::new() })
    }

    fn statement(&mut self, sql: &str) -> Result<Statement> {
        if let Some(statement) = self.statements.get(sql) {
            return Ok(statement.clone());
        }
        let statement = self.client.prepare(sql)?;
        if self.statements.len() < STATEMENTS_MAX {
            self.statements.insert(sql.to_owned(), statement.clone());
        }
        Ok(statement)
    }
}

fn tls(url: &ServerUrl, mode: TlsMode) -> Result<MakeTlsConnector> {
    let mut builder = SslConnector::builder(SslMethod::tls_client())?;
    if !matches!(mode, TlsMode::VerifyCa | TlsMode::VerifyFull) {
        builder.set_verify(SslVerifyMode::NONE);
    }
    if let Some(path) = &url.root_file {
        builder.set_ca_file(path).with_context(|| format!("failed to read {}", path.display()))?;
    }
    let mut connector = MakeTlsConnector::new(builder.build());
    if mode != TlsMode::VerifyFull {
        connector.set_callback(|connection, _| {
            connection.set_verify_hostname(false);
            Ok(())
        });
    }
    Ok(connector)
}

/// Whether the server cannot be reached or takes nobody now.
fn is_away(error: &postgres::Error) -> bool {
    const NOT_NOW: [SqlState; 4] = [
        SqlState::CANNOT_CONNECT_NOW,
        SqlState::TOO_MANY_CONNECTIONS,
        SqlState::ADMIN_SHUTDOWN,
        SqlState::CRASH_SHUTDOWN,
    ];
    match error.code() {
        Some(code) => NOT_NOW.contains(code),
        None => error.is_closed() || error.source().is_some_and(|cause| cause.is::<io::Error>()),
    }
}

/// A value as the library takes it. What may be NULL is BIGINT in all our tables.
fn parameter(value: &Value) -> &(dyn ToSql + Sync) {
    match value {
        Value::Null => &None::<i64>,
        Value::Integer(number) => number,
        Value::Text(text) => text,
        Value::Bytes(bytes) => bytes,
    }
}

fn value(row: &Row, column: usize) -> Result<Value> {
    let kind = row.columns()[column].type_();
    Ok(match *kind {
        Type::INT8 => row.try_get::<_, Option<i64>>(column)?.into(),
        Type::TEXT => row.try_get::<_, Option<String>>(column)?.map_or(Value::Null, Value::Text),
        Type::BYTEA => row.try_get::<_, Option<Vec<u8>>>(column)?.map_or(Value::Null, Value::Bytes),
        _ => bail!("the store has a column of type {kind}, which we never made"),
    })
}

impl Database for Postgres {
    fn batch(&mut self, sql: &str) -> Result<()> {
        Ok(self.client.batch_execute(sql)?)
    }

    fn execute(&mut self, sql: &str, values: &[Value]) -> Result<u64> {
        let statement = self.statement(sql)?;
        let values: Vec<_> = values.iter().map(parameter).collect();
        Ok(self.client.execute(&statement, &values)?)
    }

    fn query(&mut self, sql: &str, values: &[Value], row: &mut dyn FnMut(&[Value]) -> Result<()>) -> Result<()> {
        let statement = self.statement(sql)?;
        let mut rows = self.client.query_raw(&statement, values.iter().map(parameter))?;
        while let Some(next) = rows.next()? {
            let found = (0..next.len()).map(|column| value(&next, column)).collect::<Result<Vec<_>>>()?;
            row(&found)?;
        }
        Ok(())
    }

    fn version(&mut self) -> Result<i64> {
        let table: Option<String> =
            self.client.query_one("SELECT to_regclass('probe_schema')::text", &[])?.try_get(0)?;
        if table.is_none() {
            return Ok(0);
        }
        Ok(self.client.query_one("SELECT MAX(version) FROM probe_schema", &[])?.try_get(0)?)
    }

    fn claim(&mut self, number: i64) -> Result<bool> {
        Ok(self.client.query_one("SELECT pg_try_advisory_lock($1)", &[&number])?.try_get(0)?)
    }

    fn check(&self) -> Result<()> {
        anyhow::ensure!(!self.client.is_closed(), "the connection to the database was lost");
        Ok(())
    }

    fn dialect(&self) -> Dialect {
        Dialect {
            bytes: "BYTEA",
            by_key: "",
            begin: "BEGIN",
            for_update: "FOR UPDATE",
            begin_reading: "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY",
        }
    }
}
