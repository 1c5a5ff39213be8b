//! One configuration with its server, and what is switched off in it.

use std::ffi::OsString;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result};
use tlsdyno_base::exchange::TIME_LIMIT;
use tlsdyno_base::fault::{Fault, OrFault};
use tlsdyno_native::{Doubled, Profiling, ShimInjection};
use tlsdyno_record::model::{ConfigurationModel, Tls};
use tlsdyno_servers::{Instance, ServerSpec};
use tlsdyno_tls::{Session, Settings, Stage};

use super::server_pool::ServerPool;
use crate::run::cpus::Placement;
use crate::run::instruments::{Instruments, doubled_by};
use crate::run::preflight::negotiated::Asked;
use crate::run::request::TIME_LIMIT_COUNTED;

/// One configuration with its server.
pub struct ServerUnderTest {
    pub model: ConfigurationModel,
    /// The configuration in whose server it is a mode; `None`: it has its own server. A mode has no provider, shim or
    /// instance itself.
    pub host: Option<usize>,
    /// The configuration of which it is a variant on a machine, in the same server.
    pub base: Option<usize>,
    pub placement: Placement,
    /// Servers beside its server run on the load's CPU.
    pub companion_shares_load: bool,
    /// Emulated hardware in words, if any.
    pub hardware: Option<String>,
    /// Libraries that replace or double stages in the server.
    pub instruments: Instruments,
    /// The profiler in the server.
    pub profiling: Option<Profiling>,
    /// A session of another server, which a perfect cache must refuse.
    pub foreign_session: Option<Session>,
    /// The server is a TLS client too: its libraries' counters include connections to others.
    pub is_tls_client: bool,
    /// Settings of its handshakes.
    pub(super) tls: Tls,
    /// Required results of its handshakes.
    pub asked: Asked,
    pub settings: Option<Settings>,
    pub(super) spec: ServerSpec,
    pub instance: Option<Instance>,
    /// Further servers like the running one.
    pub(in crate::run) pool: ServerPool<Instance>,
    pub(super) address: SocketAddr,
}

impl ServerUnderTest {
    /// Clients speak HTTP/2 to it.
    pub fn has_http2(&self) -> bool {
        self.tls.http2
    }

    /// Stages that this configuration computes twice.
    pub fn doubled(&self) -> Doubled {
        doubled_by(&self.model)
    }

    /// Libraries that must be mapped in every worker, each with its name in messages.
    pub fn libraries(&self) -> Vec<(&'static str, PathBuf)> {
        let profiler = self.profiling.iter().map(|profiling| ("profiler", profiling.library_path().to_owned()));
        self.instruments.libraries().into_iter().chain(profiler).collect()
    }

    /// A library in its server sees handshakes.
    pub fn is_instrumented(&self) -> bool {
        !self.libraries().is_empty()
    }

    /// Timeout of an answer: longer under valgrind, the only program under which servers run.
    pub fn time_limit(&self) -> Duration {
        if self.spec.under.is_empty() { TIME_LIMIT } else { TIME_LIMIT_COUNTED }
    }

    /// Its client knows the sizes of flights.
    pub(super) fn has_scripts(&self) -> bool {
        self.settings.as_ref().is_some_and(|settings| settings.scripts.is_some())
    }

    /// A real handshake must be recorded before it is measured.
    pub(super) fn needs_recording(&self) -> bool {
        let stages = self.model.noop;
        [Stage::SessionCache, Stage::Handshake, Stage::RoundTrip].into_iter().any(|stage| stages.contains(stage))
            && self.settings.is_some()
            && !self.has_scripts()
    }

    pub(super) fn start(&self, directory: &Path) -> Result<Instance> {
        let remedy = self.needs_post_quantum().map_or(String::new(), |what| {
            format!(" ({what} needs a server on OpenSSL 3.5 or later; group X25519 and certificate p-256 do not)")
        });
        tlsdyno_servers::start(&self.spec, directory)
            .with_context(|| format!("failed to start the server of configuration \"{}\"{remedy}", self.model.name))
            .or_fault(Fault::Server)
    }

    /// The group or the certificate that older servers lack.
    fn needs_post_quantum(&self) -> Option<String> {
        let settings = self.settings.as_ref()?;
        let group = settings.groups.first().filter(|group| group.is_hybrid()).map(|group| format!("group {group}"));
        let certificate = self.tls.certificate();
        group.or_else(|| certificate.is_post_quantum().then(|| format!("certificate {certificate}")))
    }

    /// Profiles its server from its next start on.
    pub fn profile_with(&mut self, profiling: Profiling) {
        self.spec.handed = std::mem::take(&mut self.spec.handed).and(profiling.handed());
        self.profiling = Some(profiling);
    }

    /// Makes its server write down the steps of its handshakes, from its next start on.
    pub fn stamp_with(&mut self, shim: ShimInjection) {
        self.spec.handed = std::mem::take(&mut self.spec.handed).and(shim.handed());
        self.instruments.shim = Some(shim);
    }

    /// Runs its server under another program with these arguments, from its next start on. It writes to this directory.
    pub fn run_under(&mut self, program: Vec<OsString>, writes: &Path) {
        self.spec.under = program;
        self.spec.writable.push(writes.to_owned());
    }

    /// Address on which `instance` serves this configuration.
    pub(super) fn address_of(&self, instance: &Instance) -> SocketAddr {
        let plain = self.model.plain_http.then(|| instance.plain_address()).flatten();
        plain.unwrap_or_else(|| instance.address())
    }
}
