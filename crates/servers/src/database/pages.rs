//! Pages that are rows: one `SELECT` by primary key for each request.

use std::net::IpAddr;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use tlsdyno_engine::serve::{Docroot, Pages};
use tokio::runtime::{Builder, Runtime};
use tokio_postgres::config::Host;
use tokio_postgres::error::SqlState;
use tokio_postgres::{Client, Config, NoTls, Statement};

const STARTED_WITHIN: Duration = Duration::from_secs(20);
const LOOK_AGAIN: Duration = Duration::from_millis(20);
/// Any number: those who fill the table wait for each other.
const LOCK: i64 = 0x746c_7364_796e_6f01;

const TABLE: &str = "CREATE TABLE IF NOT EXISTS tlsdyno_pages (path bytea PRIMARY KEY, body bytea NOT NULL)";
const PUT: &str = "INSERT INTO tlsdyno_pages VALUES ($1, $2) ON CONFLICT (path) DO UPDATE SET body = excluded.body \
                   WHERE tlsdyno_pages.body IS DISTINCT FROM excluded.body";
const GET: &str = "SELECT body FROM tlsdyno_pages WHERE path = $1";

pub struct DatabasePages {
    runtime: Runtime,
    client: Client,
    get: Statement,
}

impl std::fmt::Debug for DatabasePages {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("DatabasePages").finish_non_exhaustive()
    }
}

impl DatabasePages {
    /// Connects by settings as libpq has them (`host=/run/postgresql dbname=site`) to a filled table.
    pub fn connect(settings: &str) -> Result<DatabasePages> {
        let (runtime, client) = connected(settings)?;
        let get = runtime.block_on(client.prepare(GET)).context("prepare the query of a page")?;
        Ok(DatabasePages { runtime, client, get })
    }
}

impl Pages for DatabasePages {
    fn body(&mut self, path: &[u8]) -> Option<Vec<u8>> {
        let row = self.runtime.block_on(self.client.query_opt(&self.get, &[&path])).ok()??;
        row.try_get(0).ok()
    }
}

/// Makes the table `tlsdyno_pages` where there is none, and puts the objects of the docroot into it.
pub fn fill(settings: &str, docroot: &Docroot) -> Result<()> {
    let (runtime, mut client) = connected(settings)?;
    let filled = runtime.block_on(async {
        let all = client.transaction().await?;
        all.execute("SELECT pg_advisory_xact_lock($1)", &[&LOCK]).await?;
        all.batch_execute(TABLE).await?;
        let put = all.prepare(PUT).await?;
        for (path, body) in docroot.bodies() {
            all.execute(&put, &[&path, &body.context("read the docroot")?]).await?;
        }
        all.commit().await?;
        anyhow::Ok(())
    });
    filled.context("fill the database's table `tlsdyno_pages`")
}

fn connected(settings: &str) -> Result<(Runtime, Client)> {
    let config: Config = settings.parse().context(
        "--database takes libpq's settings, for example 'host=/run/postgresql user=site dbname=site' (a directory: \
         its Unix socket)",
    )?;
    let is_here = |host: &Host| match host {
        Host::Unix(_) => true,
        Host::Tcp(name) => ["localhost", "127.0.0.1", "::1"].contains(&name.as_str()),
    };
    // An address counts before the name beside it.
    let are_here = config.get_hosts().iter().all(is_here) && config.get_hostaddrs().iter().all(IpAddr::is_loopback);
    ensure!(
        !config.get_hosts().is_empty() && are_here,
        "--database connects without TLS, so that the database must be on this machine: give the directory of its \
         socket as `host`"
    );
    let runtime = Builder::new_current_thread().enable_all().build().context("prepare a connection")?;
    let limit = Instant::now() + STARTED_WITHIN;
    loop {
        match runtime.block_on(config.connect(NoTls)) {
            Ok((client, connection)) => {
                // It carries what the client asks and hears, whenever the runtime runs.
                runtime.spawn(connection);
                return Ok((runtime, client));
            }
            Err(error) if error.code() == Some(&SqlState::CANNOT_CONNECT_NOW) && Instant::now() < limit => {
                std::thread::sleep(LOOK_AGAIN);
            }
            Err(error) => bail!("cannot connect to the database: {}", with_causes(&error)),
        }
    }
}

/// The error with its causes: its own words leave out why.
fn with_causes(error: &tokio_postgres::Error) -> String {
    let causes = std::iter::successors(Some(error as &dyn std::error::Error), |error| error.source());
    causes.map(ToString::to_string).collect::<Vec<_>>().join(": ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_database_of_this_machine_is_asked() {
        let said = |settings: &str| format!("{:#}", connected(settings).unwrap_err());
        assert!(said("host=db.example user=x").contains("without TLS"));
        assert!(said("host=/tmp,db.example user=x").contains("without TLS"));
        assert!(said("user=x").contains("without TLS"));
        assert!(said("host=localhost hostaddr=192.0.2.1 user=x").contains("without TLS"));
        assert!(said("what is this").contains("libpq's settings"));
        assert!(said("host=/nowhere-at-all user=x").contains("cannot connect"));
    }
}
