//! `tlsdyno load --job FILE`: blocks on command, for the runner of experiments (contract: `model::job`).

use std::collections::BTreeMap;
use std::io::{BufRead, Write};
use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use anyhow::{Context, Result, anyhow, ensure};
use tlsdyno_engine::load::{
    Arrivals, Connections, HeldSessions, Outcome, Pacing, Pause, Plan, Rate, Resumption, Route, SessionLimits, Share,
    Spread, Target, Timeouts, Until, Workload, run_together_holding,
};
use tlsdyno_engine::sys::monotonic_ns;
use tlsdyno_tls::{ClientCertificate, Stage};

use crate::load::options::of_site;
use crate::load::values::Header;
use crate::load::{record, tls};
use crate::trace;
use tlsdyno_base::{certificate_files, open_files};
use tlsdyno_record::model::ClientModel;
use tlsdyno_record::model::job::{Command, Job, OutcomeRecord, Reply, TargetSpec, TlsSpec};

/// A job whose workload is made and whose targets are compiled.
#[derive(Debug)]
pub struct Prepared {
    workload: Arc<Workload>,
    window: Option<u32>,
    connections: Connections,
    targets: Vec<Loaded>,
    /// What runs have left to later ones, by target, the address of its server, and number.
    stores: BTreeMap<(usize, SocketAddr, u32), HeldSessions>,
    /// The same where others have it.
    numbers: Numbers,
}

/// A target with how it is loaded.
#[derive(Debug)]
struct Loaded {
    target: Target,
    resumption: Resumption,
    route: Route,
    /// Of an open loop.
    rate_per_s: Option<f64>,
    /// Mean of the exponential pauses between a client's connections, nanoseconds.
    pause_ns: Option<u64>,
    /// Clients keep their sessions from block to block.
    keeps_sessions: bool,
    /// Time before the counted part of a block, nanoseconds.
    lead_in_ns: u64,
    /// Most connections open at once, if it has its own number of them.
    connections: Option<u32>,
    session_limits: SessionLimits,
}

impl Loaded {
    fn pacing(&self, seed: u64) -> Pacing {
        let poisson = |per_second| Rate { per_second, arrivals: Arrivals::Poisson, seed };
        let pause = |mean_ns| Pacing::Pauses(Pause { mean_ns, spread: Spread::Exponential, seed });
        let closed = self.pause_ns.map_or(Pacing::Closed, pause);
        self.rate_per_s.map_or(closed, |per_second| Pacing::Open(poisson(per_second)))
    }
}

/// Most bytes of a job file.
const JOB_BYTES_MAX: u64 = 1 << 30;

/// Reads a job file.
///
/// # Errors
/// It cannot be read.
pub fn read(path: &Path) -> Result<Job> {
    let text = tlsdyno_base::input::read(path, JOB_BYTES_MAX)?;
    serde_json::from_slice(&text).with_context(|| format!("the job file {} is malformed", path.display()))
}

/// Others who make the load in place of this process.
pub trait Others {
    /// Addresses that their connections come from.
    fn sources(&self) -> Vec<IpAddr>;

    /// How long a word to the furthest of them and its answer take, nanoseconds.
    fn trip_ns(&self) -> u64;

    /// How many loops they have.
    fn loops(&self) -> u32;

    /// Runs the plan; `held`: with the sessions of earlier runs. `begun` is told when it begins, as soon as that is
    /// known, in nanoseconds of this machine's monotonic clock.
    ///
    /// # Errors
    /// It could not begin, or too few are left to go on.
    fn run(
        &self,
        plan: &Plan,
        stop: &AtomicBool,
        held: Option<Held>,
        begun: &mut dyn FnMut(u64),
    ) -> Result<OutcomeRecord>;
}

/// Sessions that others hold from run to run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Held {
    /// The number of their store.
    pub number: u64,
    /// Stores that nobody needs any more.
    pub dropped: Vec<u64>,
    /// The run is a slice, one of thousands.
    pub is_slice: bool,
}

/// The stores that others hold, by target, the address of its server, and the number that the runner calls them by.
#[derive(Debug, Default)]
struct Numbers {
    known: BTreeMap<(usize, SocketAddr, u32), u64>,
    next: u64,
}

impl Numbers {
    fn hold(&mut self, target: usize, address: SocketAddr, number: u32, is_slice: bool) -> Held {
        // Another server has come into the place of the one whose sessions these are.
        let is_gone = |(of, at, _): &(usize, SocketAddr, u32)| *of == target && *at != address;
        let dropped = self.known.iter().filter(|(key, _)| is_gone(key)).map(|(_, number)| *number).collect();
        self.known.retain(|key, _| !is_gone(key));
        let next = &mut self.next;
        let number = *self.known.entry((target, address, number)).or_insert_with(|| {
            *next += 1;
            *next
        });
        Held { number, dropped, is_slice }
    }
}

impl Prepared {
    /// Prepares a job.
    ///
    /// # Errors
    /// The workload cannot be made, a target's TLS settings are wrong, or there are too few descriptors.
    pub fn new(job: &Job) -> Result<Prepared> {
        let own = job.targets.iter().filter_map(|target| target.load.connections);
        open_files::make_room_for(own.fold(job.connections.total, u32::max))?;
        let site = trace::make(&job.workload).context("failed to make the workload")?;
        let targets = job.targets.iter().map(|target| loaded(target, &job.client)).collect::<Result<_>>()?;
        let window = job.workload.window();
        let workload = of_site(&site, &header_lines(&job.client)?);
        let workload = if job.requests_alone { Arc::new(trace::requests_alone(&workload)) } else { workload };
        Ok(Prepared {
            workload,
            window,
            connections: job.connections,
            targets,
            stores: BTreeMap::new(),
            numbers: Numbers::default(),
        })
    }

    /// What is written before the first command.
    fn ready(&self, others: Option<&dyn Others>) -> Reply {
        let (users, requests) = (self.workload.users.len() as u32, self.workload.requests.len() as u32);
        let of_others = |others: &dyn Others| (others.sources(), others.trip_ns(), others.loops());
        let (sources, trip_ns, loops) = others.map(of_others).unwrap_or_default();
        Reply::Ready { users, requests, sources, trip_ns, loops }
    }

    /// Carries out one command line. `begun` is told when a block with a lead-in begins.
    fn answer(
        &mut self,
        line: &str,
        stop: &AtomicBool,
        others: Option<&dyn Others>,
        begun: &mut dyn FnMut(u64),
    ) -> Reply {
        match self.carry_out(line, stop, others, begun) {
            Ok(reply) => reply,
            Err(error) => Reply::of_error(&error),
        }
    }

    fn carry_out(
        &mut self,
        line: &str,
        stop: &AtomicBool,
        others: Option<&dyn Others>,
        begun: &mut dyn FnMut(u64),
    ) -> Result<Reply> {
        let command: Command =
            serde_json::from_str(line).with_context(|| format!("`{}` is no command", line.trim_end()))?;
        let Command::Run { target, users_from, users_to, laps, address, timed, store } = command;
        let loaded = self.targets.get(target).with_context(|| format!("the job has no target {target}"))?;
        ensure!(users_from < users_to, "the block has no users");
        let total = loaded.connections.unwrap_or(self.connections.total);
        let plan = Plan {
            target: Target { address: address.unwrap_or(loaded.target.address), ..loaded.target.clone() },
            route: loaded.route.clone(),
            body: None,
            workload: Arc::clone(&self.workload),
            users: users_from..users_to,
            connections: Connections { total, ..self.connections },
            timeouts: Timeouts::default(),
            resumption: loaded.resumption,
            session_limits: loaded.session_limits,
            pacing: loaded.pacing(timed.map_or(0, |timed| timed.seed)),
            until: timed.map_or(Until::Laps(laps), |timed| Until::Elapsed(loaded.lead_in_ns + timed.for_ns)),
            window: self.window,
            redirects: None,
            numbered: false,
            slice_ns: None,
            lead_in_ns: loaded.lead_in_ns,
            share: Share::default(),
        };
        let new = || HeldSessions::new(plan.resumption);
        let number = store.or(loaded.keeps_sessions.then_some(0));
        let mut begun = |at_ns| {
            if plan.lead_in_ns > 0 {
                begun(at_ns);
            }
        };
        if let Some(others) = others {
            let hold = |number| self.numbers.hold(target, plan.target.address, number, store.is_some());
            let held = number.map(hold);
            return Ok(Reply::Outcome(Box::new(others.run(&plan, stop, held, &mut begun)?)));
        }
        let begin = || {
            let now_ns = monotonic_ns();
            begun(now_ns);
            Some(now_ns)
        };
        let outcome = match number {
            Some(number) => {
                let address = plan.target.address;
                // Another server has come into the place of the one whose sessions these are.
                self.stores.retain(|&(of, at, _), _| of != target || at == address);
                let held = self.stores.entry((target, address, number)).or_insert_with(new);
                run_together_holding(&plan, stop, None, held, begin)?
            }
            None => run_together_holding(&plan, stop, None, &mut new(), begin)?,
        };
        let outcome = if store.is_some() { Outcome { phases: Default::default(), ..outcome } } else { outcome };
        Ok(Reply::Outcome(Box::new(record::record(&outcome)?)))
    }
}

/// Answers commands until the input ends.
///
/// # Errors
/// Input or output fails: the runner is gone.
pub fn serve(
    job: &mut Prepared,
    others: Option<&dyn Others>,
    input: impl BufRead,
    mut output: impl Write,
    stop: &AtomicBool,
) -> Result<()> {
    say(&mut output, &job.ready(others))?;
    for line in input.lines() {
        let line = line.context("failed to read a command")?;
        if !line.trim().is_empty() {
            // That the runner is gone shows when it is told what came of it.
            let mut begun = |at_ns| say(&mut output, &Reply::Begun { at_ns }).unwrap_or(());
            let reply = job.answer(&line, stop, others, &mut begun);
            say(&mut output, &reply)?;
        }
    }
    Ok(())
}

/// Answers the runner.
///
/// # Errors
/// It is gone.
pub fn say(output: &mut impl Write, reply: &Reply) -> Result<()> {
    let mut line = serde_json::to_vec(reply).context("failed to encode a reply")?;
    line.push(b'\n');
    output.write_all(&line).and_then(|()| output.flush()).context("failed to write a reply")
}

/// The headers that clients bring, as they are sent.
///
/// # Errors
/// One is none.
pub fn header_lines(client: &ClientModel) -> Result<String> {
    let line = |text: &String| text.parse::<Header>().map(|header| header.line()).map_err(|what| anyhow!("{what}"));
    client.headers.iter().map(line).collect()
}

/// The certificate that they bring.
///
/// # Errors
/// A file cannot be read, or the key is not one of the certificate.
pub fn client_certificate(client: &ClientModel) -> Result<Option<ClientCertificate>> {
    client
        .certificate
        .as_ref()
        .zip(client.key.as_ref())
        .map(|(of, key)| certificate_files::client_certificate(of, key))
        .transpose()
}

fn loaded(spec: &TargetSpec, client: &ClientModel) -> Result<Loaded> {
    let compile = |tls_spec: &TlsSpec| {
        let signs = !tls_spec.noop.contains(Stage::Authentication);
        let certificate = if signs { client_certificate(client)? } else { None };
        tls::config(tls_spec, bare_host(&spec.host), &[], certificate)
    };
    let tls = spec.tls.as_ref().map(compile).transpose().with_context(|| format!("target {}", spec.name))?;
    let load = &spec.load;
    Ok(Loaded {
        target: Target { address: spec.address, host: spec.host.clone(), tls },
        resumption: spec.reuse,
        route: Route {
            sources: load.sources.clone(),
            source_of_client: true,
            servers: load.servers.clone(),
            server_of_client: load.server_of_client,
            ..Route::default()
        },
        rate_per_s: load.rate_per_s,
        pause_ns: load.pause_ms.map(|mean_ms| mean_ms * 1_000_000),
        keeps_sessions: load.keeps_sessions,
        lead_in_ns: load.lead_in_ms * 1_000_000,
        connections: load.connections,
        // As users do who came at different times: otherwise each block would begin with a surge, and end in one.
        session_limits: SessionLimits { lifetime_ns: None, requests: load.hits_per_handshake, staggered: true },
    })
}

/// A Host header's value without its port and brackets.
pub fn bare_host(host: &str) -> &str {
    if let Some((literal, _)) = host.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        return literal;
    }
    match host.rsplit_once(':') {
        Some((name, port)) if !name.contains(':') && port.bytes().all(|byte| byte.is_ascii_digit()) => name,
        _ => host,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_lose_port_and_brackets() {
        for (host, bare) in [
            ("a.b", "a.b"),
            ("a.b:8443", "a.b"),
            ("[::1]:8443", "::1"),
            ("[::1]", "::1"),
            ("::1", "::1"),
            ("127.0.0.1:1", "127.0.0.1"),
        ] {
            assert_eq!(bare_host(host), bare);
        }
    }

    fn job(text: &str) -> Result<Prepared> {
        Prepared::new(&serde_json::from_str(text)?)
    }

    const JOB: &str = r#"{
        "workload": {"kind": "url", "path": "/1", "bytes": 1, "users": 3, "requests_per_user": 2},
        "targets": [
            {"name": "as is", "address": "127.0.0.1:1", "host": "localhost", "tls": null, "reuse": {"share": 0.5}}
        ],
        "connections": {
            "total": 2, "per_user": 1, "first_alone": true, "requests_each": null, "timeout_ns": 1000000000,
            "batch_ns": 0
        }
    }"#;

    #[test]
    fn commands_are_answered_line_by_line_and_mistakes_do_not_end_it() {
        let mut job = job(JOB).unwrap();
        let commands = concat!(
            r#"{"run": {"target": 0, "users_from": 0, "users_to": 2}}"#,
            "\n\nnonsense\n",
            r#"{"run": {"target": 1, "users_from": 0, "users_to": 2}}"#,
            "\n",
            r#"{"run": {"target": 0, "users_from": 2, "users_to": 4}}"#,
            "\n",
            r#"{"run": {"target": 0, "users_from": 0, "users_to": 2, "laps": 3}}"#,
            "\n",
        );
        let mut output = Vec::new();
        serve(&mut job, None, commands.as_bytes(), &mut output, &AtomicBool::new(false)).unwrap();
        let replies: Vec<Reply> =
            String::from_utf8(output).unwrap().lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        assert!(matches!(replies[0], Reply::Ready { users: 3, requests: 6, .. }));
        let Reply::Outcome(outcome) = &replies[1] else { panic!("{:?}", replies[1]) };
        assert_eq!(outcome.errors["refused"], 4);
        let Reply::Outcome(outcome) = &replies[5] else { panic!("{:?}", replies[5]) };
        assert_eq!(outcome.errors["refused"], 12);
        for (reply, word) in replies[2..5].iter().zip(["nonsense", "no target 1", "users"]) {
            assert!(matches!(reply, Reply::Error { message, .. } if message.contains(word)), "{reply:?}");
        }
        assert_eq!(replies.len(), 6);
    }

    #[test]
    fn a_job_with_a_mistake_says_which() {
        let refuse = |from: &str, to: &str, word: &str| {
            let error = format!("{:#}", job(&JOB.replace(from, to)).unwrap_err());
            assert!(error.contains(word), "{error}");
        };
        refuse("\"share\"", "\"portion\"", "portion");
        refuse("\"total\": 2", "\"total\": 2, \"more\": 1", "more");
        let tls = r#"{"versions": [], "suites": ["RC4"], "groups": [], "effort": "lean", "noop": [],
            "encrypt_then_mac": true, "tickets": true, "ca_file": null}"#;
        refuse("\"tls\": null", &format!("\"tls\": {tls}"), "unknown cipher suite `RC4`");
        refuse(
            "\"tls\": null",
            &format!("\"tls\": {}", tls.replace("\"RC4\"", "").replace("lean", "keen")),
            "effort `keen`",
        );
    }
}
