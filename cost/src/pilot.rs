//! Making the connections of the steps, and finding out which of them a server takes.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use tlsdyno_base::exchange::{Exchange, Reach};
use tlsdyno_tls::{Config, Handshake, Session, Version};

use crate::file::CostExperiment;
use crate::steps::Step;

/// How long each part of a connection may take.
const LIMIT: Duration = Duration::from_secs(2);
/// How long a ticket of TLS 1.3 is waited for behind the first answer.
const TICKET_PATIENCE: Duration = Duration::from_millis(300);
/// Connections of each step that are tried before anything is measured.
const TRIES: u32 = 3;
/// A connection on which the server lets the client wait so long is not measured: it does not end by itself.
const SLOW: Duration = Duration::from_millis(500);

/// Makes connections to one server.
pub(crate) struct Maker {
    address: SocketAddr,
    /// A GET after which the server closes, and one after which it keeps the connection.
    requests: [Vec<u8>; 2],
    /// By the number of the step.
    configs: Vec<Arc<Config>>,
    sessions: BTreeMap<&'static str, Session>,
}

/// What came of a connection.
pub(crate) struct Made {
    /// What was negotiated, where it came so far.
    pub handshake: Option<Handshake>,
    /// Body bytes received.
    pub body_bytes: u64,
}

impl Maker {
    pub fn new(experiment: &CostExperiment, steps: &[Step]) -> Result<Maker> {
        let url = experiment.url()?;
        let host = url.host_header();
        let request = |connection: &str| {
            format!("GET {} HTTP/1.1\r\nHost: {host}\r\nUser-Agent: tlsdyno\r\n{connection}\r\n", url.path).into_bytes()
        };
        let configs = steps.iter().map(|step| Ok(Arc::new(Config::new(step.settings(&url.host))?)));
        Ok(Maker {
            address: experiment.address()?,
            requests: [request("Connection: close\r\n"), request("")],
            configs: configs.collect::<Result<_>>()?,
            sessions: BTreeMap::new(),
        })
    }

    /// One connection of the step with this number.
    ///
    /// # Errors
    /// It does not go as far as it should, or resumes no session although it should.
    pub fn make(&mut self, number: usize, step: &Step) -> Result<Made> {
        let connected = Exchange::connect(self.address, LIMIT)?;
        if step.reach == Reach::Tcp {
            connected.ending_at(Reach::Tcp, None, None)?;
            return Ok(Made { handshake: None, body_bytes: 0 });
        }
        let config = Arc::clone(&self.configs[number]);
        let session = match step.resumes {
            true => Some(self.session(step.version)?),
            false => None,
        };
        let made = if step.reach == Reach::Answered {
            let request = self.requests[usize::from(step.more_requests > 0)].clone();
            let mut exchange = connected.asking(Some(&config), session, &request, b"")?;
            exchange.answered()?;
            for _ in 0..step.more_requests {
                exchange.again()?;
            }
            let answer = exchange.end()?;
            ensure!(answer.status < 400, "the answer has status {}", answer.status);
            Made { handshake: answer.handshake, body_bytes: answer.body_bytes }
        } else {
            let handshake = connected.ending_at(step.reach, Some(&config), session)?;
            ensure!(step.reach != Reach::Refused || handshake.is_none(), "the server goes on with such a hello");
            Made { handshake, body_bytes: 0 }
        };
        let is_resumed = made.handshake.as_ref().is_some_and(|handshake| handshake.resumed.is_some());
        ensure!(!step.resumes || is_resumed, "the server does not resume the session, or takes it once only");
        Ok(made)
    }

    /// A session of this version, that of the first connection that asks for one.
    fn session(&mut self, version: Version) -> Result<Session> {
        if let Some(session) = self.sessions.get(version.name()) {
            return Ok(session.clone());
        }
        let config = self.configs.iter().find(|config| {
            let settings = config.settings();
            settings.versions == [version] && settings.lack.is_none()
        });
        let config = Arc::clone(config.context("no step has this version")?);
        let mut exchange =
            Exchange::connect(self.address, LIMIT)?.asking(Some(&config), None, &self.requests[1], b"")?;
        exchange.answered()?;
        exchange.wait_for_ticket(TICKET_PATIENCE);
        let session = exchange.end()?.sessions.pop().context("the server gives no session to resume")?;
        self.sessions.insert(version.name(), session.clone());
        Ok(session)
    }

    /// Whether the server takes this step; what was negotiated.
    ///
    /// # Errors
    /// Why not.
    pub fn tried(&mut self, number: usize, step: &Step) -> Result<Option<Handshake>> {
        let began = Instant::now();
        let mut handshake = None;
        for _ in 0..TRIES {
            handshake = self.make(number, step)?.handshake;
        }
        if began.elapsed() > SLOW * TRIES {
            bail!("the server lets such a connection wait for {} ms", began.elapsed().as_millis() / u128::from(TRIES));
        }
        Ok(handshake)
    }
}
