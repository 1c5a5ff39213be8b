//! A column of the stage × server matrix: every stage on one real server, checked as before a measurement, then with
//! many connections at once whose bodies are compared byte for byte, and again after the server has reloaded its
//! configuration. `crates/tlsdyno/tests/servers/shim_client.rs` holds a part of it with the tests.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;

use anyhow::{Context, Result};
use tlsdyno::exchange::exchange;
use tlsdyno::model::workload::WorkloadSpec;
use tlsdyno::model::{CertificateKind, ConfigurationModel, Experiment, Server, ServerName, Tls, TlsChange};
use tlsdyno::run::check::{CheckExperiment, check_sessions};
use tlsdyno::run::cpus;
use tlsdyno::run::preflight::checks_of;
use tlsdyno::run::preflight::{Check, compile};
use tlsdyno::run::testbed::Testbed;
use tlsdyno::servers::certificates::has_post_quantum;
use tlsdyno_tls::{Config, Group, Session, Settings, Stage, Suite, Version};

pub const CONNECTIONS: usize = 64;
/// Bytes of the object: several records, the last of them not full.
const OBJECT_BYTES: u64 = 40_001;

/// A configuration of a server, and what was checked of it.
#[derive(Clone, Debug)]
pub struct Cell {
    pub configuration: String,
    /// Every check; the cell is good when all of them passed.
    pub checks: Vec<Check>,
    /// Why this server cannot have it; then nothing was checked.
    pub unable: Option<String>,
}

impl Cell {
    pub fn failures(&self) -> impl Iterator<Item = &Check> {
        self.checks.iter().filter(|check| !check.passed)
    }
}

#[derive(Clone, Debug)]
pub struct Column {
    /// Name and version of the server and its OpenSSL; empty if it never ran.
    pub version: String,
    /// In the order of the configurations.
    pub cells: Vec<Cell>,
}

/// The configurations: the idle shim, each stage alone with those that it needs, and what the papers put together.
/// `tls` names a suite.
pub fn configurations(tls: &Tls) -> Vec<ConfigurationModel> {
    let without = |name: &str, stages: &[Stage]| ConfigurationModel::without(name, stages.iter().copied());
    let mut all = Experiment::default().ablation(&Stage::ALL);
    all.retain(|model| !model.plain_http);
    all.push(ConfigurationModel { name: "idle shim".to_owned(), idle_shim: true, ..ConfigurationModel::as_is() });
    let idle = "idle shim and provider".to_owned();
    all.push(ConfigurationModel { name: idle, idle_shim: true, idle_provider: true, ..ConfigurationModel::as_is() });
    all.push(without("skeleton, no round trip", &[Stage::Marshalling, Stage::Handshake, Stage::RoundTrip]));
    all.push(without("plain data, perfect cache", &[Stage::Marshalling, Stage::SessionCache]));
    let everything = || Stage::PROVIDER.into_iter().chain([Stage::SessionCache, Stage::Marshalling]);
    all.push(ConfigurationModel::without("all off, plain data, perfect cache", everything()));
    let fast = everything().chain([Stage::RoundTrip]);
    all.push(ConfigurationModel::without("all off, plain data, perfect cache, no round trip", fast));
    if !tls.suites()[0].protection().is_cbc() {
        all.push(without("no setup, no cipher, no mac", &[Stage::Setup, Stage::Cipher, Stage::Mac]));
    }
    if tls.version == Version::Tls13 {
        let early = TlsChange { early_data: Some(true), ..TlsChange::default() };
        let as_is = ConfigurationModel::as_is();
        all.push(ConfigurationModel { name: "early data".to_owned(), tls: early.clone(), ..as_is.clone() });
        let name = "early data, idle shim and provider".to_owned();
        all.push(ConfigurationModel { name, tls: early, idle_shim: true, idle_provider: true, ..as_is });
    }
    all
}

/// Checks these configurations of one server. `say` is told of each as it begins.
///
/// # Errors
/// What every configuration needs is missing. A configuration that fails is a cell with failed checks.
pub fn check(
    server: ServerName,
    tls: &Tls,
    configurations: Vec<ConfigurationModel>,
    say: &mut dyn FnMut(&str),
) -> Result<Column> {
    let names: Vec<String> = configurations.iter().map(|model| model.name.clone()).collect();
    let server = Server { kind: server, ..Server::default() };
    let asked = Experiment { server, tls: tls.clone(), ..Experiment::default() };
    let refusal =
        |model: &ConfigurationModel| check_sessions(&asked, asked.server.kind, &model.tls.applied(tls), 1).err();
    let mut unable: BTreeMap<String, String> = configurations
        .iter()
        .filter_map(|model| Some((model.name.clone(), format!("{:#}", refusal(model)?))))
        .collect();
    let configurations = configurations.into_iter().filter(|model| !unable.contains_key(&model.name)).collect();
    let experiment = Experiment {
        workload: WorkloadSpec::Url {
            path: "/object".to_owned(),
            bytes: Some(OBJECT_BYTES),
            users: 1,
            requests_per_user: 1,
        },
        configurations,
        ..asked
    };
    experiment.check()?;
    let cpus = cpus::choose(&cpus::allowed(), None, None)?;
    let mut testbed = Testbed::prepare(&experiment, cpus, &mut |_| ())?;
    let mut column = Column { version: String::new(), cells: Vec::new() };
    for index in 0..testbed.servers.len() {
        let configuration = testbed.servers[index].model.name.clone();
        say(&configuration);
        let checks = match checks_of_server(&mut testbed, index) {
            Ok(checks) => checks,
            Err(error) => vec![Check::new("the server starts and answers", false, format!("{error:#}"))],
        };
        if let Some(instance) = testbed.instance(index) {
            column.version = instance.description().version;
        }
        testbed.stop(index);
        column.cells.push(Cell { configuration, checks, unable: None });
    }
    for (place, configuration) in names.into_iter().enumerate() {
        if let Some(why) = unable.remove(&configuration) {
            column.cells.insert(place, Cell { configuration, checks: Vec::new(), unable: Some(why) });
        }
    }
    Ok(column)
}

fn checks_of_server(testbed: &mut Testbed, index: usize) -> Result<Vec<Check>> {
    let (request, _) = testbed.preflight_request();
    testbed.activate(index)?;
    testbed.make_universal(index)?;
    let mut checks = checks_of(testbed, index)?;
    // The clients that had to fail left their traces in the log; from here on nobody may.
    let instance = testbed.instance(index).context("the server does not run")?;
    instance.error_log_alarms();
    let body = std::fs::read(testbed.docroot().join("object")).context("failed to read the object")?;
    checks.push(many(testbed, index, &request, &body, "at once"));
    checks.push(reload(testbed, index)?);
    checks.push(many(testbed, index, &request, &body, "after that"));
    let instance = testbed.instance(index).context("the server does not run")?;
    let alarms = instance.error_log_alarms();
    checks.push(Check::new("the error log has no alarms of matching clients", alarms.is_empty(), alarms.join("; ")));
    Ok(checks)
}

/// Lets the server reload its configuration; the built-in one has none and is started anew.
fn reload(testbed: &mut Testbed, index: usize) -> Result<Check> {
    let (name, reloaded) = if testbed.is_built_in(index) {
        testbed.stop(index);
        ("the server is started anew", testbed.activate(index).map(|_| ()))
    } else {
        let instance = testbed.instance(index).context("the server does not run")?;
        ("the server reloads its configuration", instance.reload())
    };
    let seen = reloaded.as_ref().map_or_else(|error| format!("{error:#}"), |()| "done".to_owned());
    Ok(Check::new(name, reloaded.is_ok(), seen))
}

/// Many users at once: each makes a full handshake and then, where there are sessions, a resumed one.
fn many(testbed: &Testbed, index: usize, request: &[u8], body: &[u8], when: &str) -> Check {
    let server = &testbed.servers[index];
    let name = format!("{CONNECTIONS} connections {when}: every body is right, byte for byte");
    let Some(settings) = &server.settings else {
        return Check::new(name, false, "there is no TLS");
    };
    let user = User { address: testbed.address(index), settings, request, body };
    let outcomes: Vec<Result<bool>> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..CONNECTIONS).map(|_| scope.spawn(|| user.visit())).collect();
        let joined = threads.into_iter().map(|thread| thread.join());
        joined.map(|outcome| outcome.unwrap_or_else(|_| Err(anyhow::anyhow!("a client panicked")))).collect()
    });
    let failed: Vec<String> =
        outcomes.iter().filter_map(|outcome| outcome.as_ref().err()).map(|error| format!("{error:#}")).collect();
    let resumed = outcomes.iter().filter(|outcome| matches!(outcome, Ok(true))).count();
    // Whoever offers the universal session, or plays a skeleton, is never refused.
    let must_resume = [Stage::SessionCache, Stage::Handshake].iter().any(|stage| settings.stages_off.contains(*stage));
    let all_resumed = resumed == CONNECTIONS || !must_resume;
    let first = failed.first().map_or(String::new(), |first| format!("; {} failed, first: {first}", failed.len()));
    Check::new(name, failed.is_empty() && all_resumed, format!("{resumed} resumed{first}"))
}

/// A client with its own sessions.
struct User<'a> {
    address: SocketAddr,
    settings: &'a Settings,
    request: &'a [u8],
    body: &'a [u8],
}

impl User<'_> {
    /// Whether the second connection resumed.
    fn visit(&self) -> Result<bool> {
        let config = compile(self.settings)?;
        let (_, session) = self.fetch(&config, None)?;
        let Some(session) = session else {
            return Ok(false);
        };
        Ok(self.fetch(&config, Some(session))?.0)
    }

    fn fetch(&self, config: &Arc<Config>, session: Option<Session>) -> Result<(bool, Option<Session>)> {
        let answer = exchange(self.address, Some(config), session, self.request)?;
        anyhow::ensure!(answer.status == 200, "status {}", answer.status);
        let same = answer.body() == self.body;
        anyhow::ensure!(same, "another body, of {} bytes instead of {}", answer.body().len(), self.body.len());
        Ok((answer.is_resumed(), answer.sessions.last().cloned()))
    }
}

/// The TLS settings of the matrix: what each kind of resumption is tried with, and what the system's OpenSSL has of
/// post-quantum TLS.
pub fn tls_variants() -> Vec<(&'static str, Tls)> {
    let tls = |certificate, suite: Suite, tickets| Tls {
        version: suite.version(),
        suite: Some(suite),
        tickets,
        certificate: Some(certificate),
        ..Tls::default()
    };
    let mut variants = vec![
        ("TLS 1.3", tls(CertificateKind::P256, Suite::Tls13Aes128Gcm, true)),
        ("TLS 1.2 ticket", tls(CertificateKind::Rsa2048, Suite::EcdheRsaAes128Gcm, true)),
        ("TLS 1.2 id", tls(CertificateKind::Rsa2048, Suite::RsaAes128Sha, false)),
    ];
    if has_post_quantum() {
        let certificate = CertificateKind::MlDsa65;
        let tls = Tls { group: Group::X25519MlKem768, ..tls(certificate, Suite::Tls13Aes128Gcm, true) };
        variants.push(("TLS 1.3, X25519MLKEM768", tls));
    }
    variants
}
