//! The store in a PostgreSQL database.

use std::collections::HashMap;
use std::error::Error;
use std::io;
use std::pin::pin;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use futures_util::{FutureExt, TryStreamExt};
use openssl::ssl::{SslConnector, SslMethod, SslVerifyMode};
use postgres_openssl::MakeTlsConnector;
use tlsdyno_base::fault::Fault;
use tokio_postgres::config::SslMode;
use tokio_postgres::error::SqlState;
use tokio_postgres::types::{ToSql, Type};
use tokio_postgres::{Client, Row, Statement};

use super::database::{Database, Dialect, Value};
use super::server_url::{ServerUrl, TlsMode};
use super::wire::Wire;

/// How long the server may take to be connected to, if the URL does not say.
const CONNECTING: Duration = Duration::from_secs(10);
/// Statements that are kept prepared.
const STATEMENTS_MAX: usize = 64;

pub struct Postgres {
    // Before what carries it: the server is told of its end.
    client: Client,
    wire: Wire,
    statements: HashMap<String, Statement>,
}

impl Postgres {
    /// Connects. `patience`: how long an answer may take.
    ///
    /// # Errors
    /// [`Fault::Unreachable`]: the server is not there now, and may be later. Otherwise something must be changed.
    pub fn connect(url: &ServerUrl, patience: Duration) -> Result<Postgres> {
        let mut config = url.config()?;
        let within = *config.get_connect_timeout().unwrap_or(&CONNECTING);
        if config.get_application_name().is_none() {
            config.application_name("tlsdyno probe");
        }
        config.ssl_mode(match url.mode {
            TlsMode::Disable => SslMode::Disable,
            TlsMode::Prefer => SslMode::Prefer,
            _ => SslMode::Require,
        });
        let connector = tls(url).context("failed to prepare TLS for the database")?;
        let connected = Wire::connect(&config, connector, within, patience).and_then(|(client, wire)| {
            let mut server = Postgres { client, wire, statements: HashMap::new() };
            // The server gives up what nobody waits for any more, and lets go of the locks of one who is frozen.
            let ms = patience.as_millis();
            server.batch(&format!("SET statement_timeout = {ms}; SET idle_in_transaction_session_timeout = {ms}"))?;
            Ok(server)
        });
        connected.map_err(|error| {
            let may_come_back = is_away(&error);
            let error = error.context(format!("no connection to {url}"));
            if may_come_back { Fault::Unreachable.wrap(error) } else { error }
        })
    }

    fn statement(&mut self, sql: &str) -> Result<Statement> {
        if let Some(statement) = self.statements.get(sql) {
            return Ok(statement.clone());
        }
        let statement = self.wire.wait(self.client.prepare(sql))?;
        if self.statements.len() < STATEMENTS_MAX {
            self.statements.insert(sql.to_owned(), statement.clone());
        }
        Ok(statement)
    }
}

fn tls(url: &ServerUrl) -> Result<MakeTlsConnector> {
    let mut builder = SslConnector::builder(SslMethod::tls_client())?;
    if !matches!(url.mode, TlsMode::VerifyCa | TlsMode::VerifyFull) {
        builder.set_verify(SslVerifyMode::NONE);
    }
    if let Some(path) = &url.root_file {
        builder.set_ca_file(path).with_context(|| format!("failed to read {}", path.display()))?;
    }
    let mut connector = MakeTlsConnector::new(builder.build());
    if url.mode != TlsMode::VerifyFull {
        connector.set_callback(|connection, _| {
            connection.set_verify_hostname(false);
            Ok(())
        });
    }
    Ok(connector)
}

/// Whether the server cannot be reached or takes nobody now.
fn is_away(error: &anyhow::Error) -> bool {
    const NOT_NOW: [SqlState; 4] = [
        SqlState::CANNOT_CONNECT_NOW,
        SqlState::TOO_MANY_CONNECTIONS,
        SqlState::ADMIN_SHUTDOWN,
        SqlState::CRASH_SHUTDOWN,
    ];
    let Some(error) = error.downcast_ref::<tokio_postgres::Error>() else {
        return error.is::<io::Error>();
    };
    match error.code() {
        Some(code) => NOT_NOW.contains(code),
        None => error.is_closed() || error.source().is_some_and(|cause| cause.is::<io::Error>()),
    }
}

fn parameter(value: &Value) -> &(dyn ToSql + Sync) {
    match value {
        Value::Null => &None::<i64>,
        Value::Integer(number) => number,
        Value::Real(number) => number,
        Value::Text(text) => text,
        Value::Blob(bytes) => bytes,
    }
}

fn value(row: &Row, column: usize) -> Result<Value> {
    let kind = row.columns()[column].type_();
    Ok(match *kind {
        Type::INT8 => row.try_get::<_, Option<i64>>(column)?.into(),
        Type::TEXT => row.try_get::<_, Option<String>>(column)?.map_or(Value::Null, Value::Text),
        Type::BYTEA => row.try_get::<_, Option<Vec<u8>>>(column)?.map_or(Value::Null, Value::Blob),
        _ => bail!("the store has a column of type {kind}, which we never made"),
    })
}

impl Database for Postgres {
    fn batch(&mut self, sql: &str) -> Result<()> {
        self.wire.wait(self.client.batch_execute(sql))
    }

    fn query(&mut self, sql: &str, values: &[Value], row: &mut dyn FnMut(&[Value]) -> Result<()>) -> Result<()> {
        let statement = self.statement(sql)?;
        let mut rows = pin!(self.wire.wait(self.client.query_raw(&statement, values.iter().map(parameter)))?);
        loop {
            // Most rows are there already.
            let next = match rows.try_next().now_or_never() {
                Some(next) => next?,
                None => self.wire.wait(rows.try_next())?,
            };
            let Some(next) = next else { return Ok(()) };
            let found = (0..next.len()).map(|column| value(&next, column)).collect::<Result<Vec<_>>>()?;
            row(&found)?;
        }
    }

    fn check(&self) -> Result<()> {
        anyhow::ensure!(!self.client.is_closed(), "the connection to the database was lost");
        Ok(())
    }

    fn dialect(&self) -> Dialect {
        Dialect {
            bytes: "BYTEA",
            by_key: "",
            // A session that has waited for the lock remembers what there was not: `to_regclass` would answer from it.
            count_tables: "SELECT COUNT(*) FROM pg_class WHERE relname = 'probe_schema' AND pg_table_is_visible(oid)",
            // The number is that of the SQLite file's application.
            begin: "BEGIN; SELECT pg_advisory_xact_lock(1953264496)",
            begin_reading: "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY",
            claim: "SELECT CAST(CAST(pg_try_advisory_lock($1) AS INT) AS BIGINT)",
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::{TcpListener, TcpStream};
    use std::thread;
    use std::time::Instant;

    use super::*;
    use tlsdyno_base::fault::fault_of;

    /// A server that does this with each connection, and its URL.
    fn server(serve: impl Fn(TcpStream) -> io::Result<()> + Send + 'static) -> ServerUrl {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        thread::spawn(move || {
            // Whoever has heard enough hangs up.
            listener.incoming().map_while(Result::ok).for_each(|stream| drop(serve(stream)));
        });
        format!("postgres://me@127.0.0.1:{port}/x?connect_timeout=1&sslmode=disable").parse().unwrap()
    }

    fn connect(url: &ServerUrl) -> (anyhow::Error, Duration) {
        let began = Instant::now();
        let error = Postgres::connect(url, Duration::from_millis(300)).err().expect("no server");
        (error, began.elapsed())
    }

    fn message(kind: u8, body: &[u8]) -> Vec<u8> {
        [&[kind][..], &(body.len() as u32 + 4).to_be_bytes(), body].concat()
    }

    fn notice() -> Vec<u8> {
        message(b'N', format!("SNOTICE\0VNOTICE\0C00000\0M{}\0\0", "x".repeat(4000)).as_bytes())
    }

    fn say_for_ever(mut stream: TcpStream, what: &[u8]) -> io::Result<()> {
        loop {
            stream.write_all(what)?;
        }
    }

    #[test]
    fn a_silent_server_is_away() {
        let url = server(|mut stream| stream.read_to_end(&mut Vec::new()).map(drop));
        let (error, took) = connect(&url);
        assert_eq!(fault_of(&error), Some(Fault::Unreachable));
        assert!(format!("{error:#}").contains("did not answer within 1.0 s"), "{error:#}");
        assert!(took < Duration::from_secs(5), "{took:?}");
    }

    #[test]
    fn a_server_that_goes_silent_once_it_is_ready_is_given_up() {
        let url = server(|mut stream| {
            stream.read_exact(&mut [0; 8])?;
            stream.write_all(&[message(b'R', &[0; 4]), message(b'Z', b"I")].concat())?;
            stream.read_to_end(&mut Vec::new()).map(drop)
        });
        let (error, took) = connect(&url);
        assert!(format!("{error:#}").contains("did not answer within 0.3 s"), "{error:#}");
        assert!(took < Duration::from_secs(3), "{took:?}");
    }

    /// Before it is ready the library keeps each notice; afterwards it takes them for ever.
    #[test]
    fn a_server_that_only_sends_notices_is_not_listened_to_for_long() {
        for ready in [message(b'R', &[0; 4]), [message(b'R', &[0; 4]), message(b'Z', b"I")].concat()] {
            let url = server(move |mut stream| {
                stream.read_exact(&mut [0; 8])?;
                stream.write_all(&ready)?;
                say_for_ever(stream, &notice())
            });
            let (error, took) = connect(&url);
            assert_eq!(fault_of(&error), Some(Fault::Unreachable), "{error:#}");
            assert!(took < Duration::from_secs(5), "{took:?}");
        }
    }

    /// The budget says how much is held, whatever the time.
    #[test]
    fn what_is_held_of_a_greeting_has_a_bound() {
        let said = std::sync::Arc::new(std::sync::atomic::AtomicUsize::new(0));
        let counted = std::sync::Arc::clone(&said);
        let url = server(move |mut stream| {
            stream.read_exact(&mut [0; 8])?;
            stream.write_all(&message(b'R', &[0; 4]))?;
            let notice = notice();
            loop {
                stream.write_all(&notice)?;
                counted.fetch_add(notice.len(), std::sync::atomic::Ordering::Relaxed);
            }
        });
        let (error, _) = connect(&url);
        assert!(format!("{error:#}").contains("says much"), "{error:#}");
        // What the sockets between hold is on top.
        assert!(said.load(std::sync::atomic::Ordering::Relaxed) < 32 << 20);
    }
}
