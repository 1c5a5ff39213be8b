//! A server that a load experiment starts for itself, where no URL of anybody's is meant.

use std::collections::BTreeMap;

use anyhow::{Context, Result, ensure};
use tlsdyno_base::fault::{Fault, OrFault};
use tlsdyno_engine::serve::Transaction;
use tlsdyno_record::model::ServerName;
use tlsdyno_record::model::workload::WorkloadSpec;
use tlsdyno_runner::run::credentials::Credentials;
use tlsdyno_runner::run::testbed::make_site;
use tlsdyno_servers::{Instance, RunDirectory, ServerSpec};
use tlsdyno_traffic::load::url::Url;

use crate::file::StartedServer;

/// The server with its files. Dropping it ends the server.
pub struct Started {
    pub(super) instance: Instance,
    // Last: the server must be stopped before its directory goes.
    _directory: RunDirectory,
}

/// Refuses impossible settings of `[server]`; the error names the key.
pub fn check(server: &StartedServer, url: &Url) -> Result<()> {
    ensure!(!server.kind.is_users_own(), "`[server]` starts one that is installed; a command has a URL");
    ensure!(url.tls, "`[server]` is one with TLS: the URL is an https one, of which the path counts");
    ensure!(server.object_bytes > 0, "`server.object_bytes` must be above 0");
    ensure!(
        server.transaction_us.is_none() || server.kind == ServerName::Builtin,
        "`server.transaction_us` is for kind = \"builtin\": pages of the others cost what they cost"
    );
    Ok(())
}

impl Started {
    /// Starts the server with an object at each of these paths.
    pub fn start(
        server: &StartedServer,
        objects: &BTreeMap<String, u64>,
        connections: u32,
        say: &mut dyn FnMut(&str),
    ) -> Result<Started> {
        let directory = RunDirectory::create()?;
        for (path, bytes) in objects {
            let (path, bytes) = (path.clone(), Some(*bytes));
            make_site(&WorkloadSpec::Url { path, bytes, users: 1, requests_per_user: 1 }, directory.path(), say)?;
        }
        say("starting the server");
        let credentials = Credentials::create(server.tls.certificate(), directory.path())?;
        let wait_ns = |us: f64| Transaction { wait_ns: (us * 1e3) as u64, ..Transaction::default() };
        let spec = ServerSpec {
            tls: Some(credentials.server_tls(&server.tls)),
            http2: server.tls.http2,
            connections,
            transaction: server.transaction_us.map(wait_ns),
            ..ServerSpec::new(server.kind, directory.path().join("docroot"))
        };
        let started = tlsdyno_servers::start(&spec, directory.path());
        let instance = started.context("failed to start the server").or_fault(Fault::Server)?;
        Ok(Started { instance, _directory: directory })
    }
}
