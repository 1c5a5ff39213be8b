//! What is found out of a server before anything is measured: which steps it takes, and why it takes none.

use std::net::SocketAddr;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use anyhow::{Context, Error, Result, anyhow, ensure};
use tlsdyno_base::exchange::{self, Failure, Reach};
use tlsdyno_base::fault::{Fault, OrFault};
use tlsdyno_base::interrupt;
use tlsdyno_base::url::Url;
use tlsdyno_record::model::CertificateKind;
use tlsdyno_runner::run::observer::Observer;
use tlsdyno_servers::cpu::WAITED;
use tlsdyno_servers::forwarder;
use tlsdyno_tls::{Error as TlsError, Group, Handshake, Lack, Signer, Suite, Version};
use tlsdyno_traffic::network::certificate::Certificate;

use crate::Measured;
use crate::file::{Cost, Measure};
use crate::maker::{BadStatus, Made, Maker};
use crate::server::{PATIENCE, Server};
use crate::steps::{Step, StepId};

/// Number of connections of each step that are tried before measuring.
const TRIES: u32 = 3;
/// A connection on which the server lets the client wait so long for each of its requests is not measured: it does not
/// end by itself.
pub(crate) const SLOW: Duration = Duration::from_millis(500);
/// Length of a slice: long against what a server needs to get going again, short against what a machine stays the same
/// for.
const SLICE: Duration = Duration::from_millis(8);
/// Length of a slice of a server that is busy for longer than milliseconds after its work: long against that work.
const LONG_SLICE: Duration = Duration::from_millis(200);
/// Length of a slice of a server whose account is in ticks: long against some of them.
const TICKS_SLICE: Duration = Duration::from_millis(400);
/// The alert of a server that speaks none of the protocols that were offered (RFC 7301 section 3.2).
const NO_APPLICATION_PROTOCOL: u8 = 120;

/// A server that can be measured.
pub(crate) struct Target {
    pub server: Server,
    pub maker: Maker,
    /// Number of consecutive slices whose connections waited.
    pub slow_slices: u32,
    /// What the record keeps of the server.
    pub measured: Measured,
}

impl Target {
    /// Finds out what a server takes.
    ///
    /// # Errors
    /// It takes nothing that could be measured, another program works on its connections, or Ctrl-C.
    pub fn of(
        cost: &Cost,
        url: &Url,
        mut server: Server,
        stop: &AtomicBool,
        observer: &mut dyn Observer,
    ) -> Result<Target> {
        let address = server.address;
        let (mut maker, found) = found_out(cost, url, address, server.is_started(), stop, observer)?;
        if let Some(pids) = server.pids_here().filter(|_| cost.at_most_per_s.is_none()) {
            observer.step("finding out who works on the connections");
            let handshake = found.version().map(|version| StepId::whole(version, true));
            let number = handshake.and_then(|handshake| found.number_of(&handshake)).unwrap_or(0);
            let connection = || maker.make(number, &found.steps[number].id).map(drop);
            forwarder::refuse(address, &pids, || server.read_ns(), connection)?;
        }
        let rests = server.comes_to_rest()?;
        let (accounting, command) = server.about()?;
        let is_in_ticks = accounting == WAITED && cost.measure == Measure::Time;
        if is_in_ticks {
            observer.tell(&format!(
                "the server at {address} begins a process for a connection, and has no control group of its own: what \
                 these use is told in ticks of 10 ms. Turns are {} ms long; measure for minutes, or run it as a \
                 service, or start it with --server-command as root",
                TICKS_SLICE.as_millis()
            ));
        }
        if !rests && cost.measure == Measure::Time {
            observer.tell(&format!(
                "the server at {address} does not come to rest within milliseconds, as with a garbage collector: \
                 turns are {} ms long; measure for minutes",
                LONG_SLICE.as_millis()
            ));
        }
        let slice = match (is_in_ticks, rests) {
            (true, _) => TICKS_SLICE,
            (false, true) => SLICE,
            (false, false) => LONG_SLICE,
        };
        let (name, about) = server.names();
        let measured = Measured {
            name,
            about,
            command,
            accounting,
            busy_percent: 100.0 * server.busy,
            slice_us: slice.as_micros() as u64,
            ..found
        };
        Ok(Target { server, maker, slow_slices: 0, measured })
    }
}

/// What a server takes of the connections that are asked for, and who makes them.
pub(crate) fn found_out(
    cost: &Cost,
    url: &Url,
    address: SocketAddr,
    is_started: bool,
    stop: &AtomicBool,
    observer: &mut dyn Observer,
) -> Result<(Maker, Measured)> {
    observer.step(&format!("finding out what {address} takes"));
    let cost = &cost.for_url(url)?;
    let Taken { version, negotiated, group, keys, usual, certificate, steps, refused, .. } =
        Taken::of(cost, url, address, is_started, stop)?;
    if steps.is_empty() {
        let why: Vec<String> = refused.iter().map(|(step, why)| format!("{step}: {why}")).collect();
        return Err(Fault::Unreachable.wrap(anyhow!("{address} takes none of these connections: {}", why.join("; "))));
    }
    // The numbers of steps are those of the ones that are left.
    let mut maker = Maker::new(cost, url, address, steps.iter().map(|step| &step.id), &usual)?;
    for (number, step) in steps.iter().enumerate() {
        tried(&mut maker, number, &step.id).with_context(|| step.name.clone()).or_fault(Fault::Unreachable)?;
    }
    let measured = Measured {
        address: address.to_string(),
        negotiated,
        group,
        keys,
        suite: usual.into_iter().find(|suite| suite.version() == version),
        whole: StepId::whole(version, cost.no_request).to_string(),
        certificate,
        steps,
        refused,
        ..Measured::default()
    };
    Ok((maker, measured))
}

struct Taken {
    version: Version,
    negotiated: String,
    group: Option<Group>,
    keys: Vec<CertificateKind>,
    /// The suites that it takes instead of AES-128-GCM, by version.
    usual: Vec<Suite>,
    certificate: Option<Certificate>,
    steps: Vec<Step>,
    refused: Vec<(String, String)>,
    /// Reason why it does not compress its certificate.
    uncompressed: Option<String>,
}

impl Taken {
    fn of(cost: &Cost, url: &Url, address: SocketAddr, is_started: bool, stop: &AtomicBool) -> Result<Taken> {
        let whole = [Version::Tls13, Version::Tls12].map(|version| StepId::whole(version, cost.no_request));
        let (mut usual, mut refused) = (Vec::new(), Vec::new());
        let mut first = |step: &StepId| {
            let made = tried(&mut Maker::new(cost, url, address, [step], &[])?, 0, step);
            if made.as_ref().err().is_none_or(|error| !error.is::<Failure>()) {
                return made;
            }
            // Some take AES-256 or ChaCha20 alone.
            let of_all = tried(&mut Maker::new(cost, url, address, [step], Suite::ALL)?, 0, step).or(made)?;
            if let Some(suite) = of_all.handshake.as_ref().map(|of| of.suite) {
                refused.push((format!("{step}, AES-128-GCM"), format!("of all suites it took {suite}")));
                usual.push(suite);
            }
            Ok(of_all)
        };
        let [today, old] = [&whole[0], &whole[1]].map(&mut first);
        let (today, chain) = match today {
            Ok(made) => (Ok(made.handshake), made.chain),
            Err(error) => (Err(error), Vec::new()),
        };
        let (version, handshake) = match (&today, old) {
            (Ok(handshake), _) => (Version::Tls13, handshake.clone()),
            (Err(_), Ok(made)) => (Version::Tls12, made.handshake),
            (Err(_), Err(_)) => {
                let error = today.err().unwrap_or_else(|| anyhow!("nothing came"));
                refuse_limits(&whole[0], &error)?;
                return Err(Fault::Unreachable.wrap(explained(error, address, url)));
            }
        };
        let told = |of: Handshake| {
            let group = of.group.map_or(String::new(), |group| format!(" {group}"));
            format!("{} {}{group}", of.version, of.suite)
        };
        let group = handshake.as_ref().and_then(|of| of.group);
        let flight_bytes = handshake.as_ref().map_or(0, |of| u64::from(of.bytes_in));
        let negotiated = handshake.map(told).unwrap_or_default();
        let (certificate, uncompressed, steps) = (None, None, Vec::new());
        let keys = keys(cost, url, address, version, &usual)?;
        let mut taken = Taken { version, negotiated, group, keys, usual, certificate, steps, refused, uncompressed };
        if let Err(error) = today {
            taken.refused.push(("TLS 1.3".to_owned(), error.to_string()));
        }
        let steps = cost.steps(version, is_started);
        taken.try_all(steps, cost, url, address, stop)?;
        // Whether it compresses was not tried else.
        if !chain.is_empty() && !cost.only_life {
            taken.certificate = Some(Certificate::new(&chain, flight_bytes, taken.uncompressed.take()));
        }
        Ok(taken)
    }

    fn try_all(
        &mut self,
        mut all: Vec<Step>,
        cost: &Cost,
        url: &Url,
        address: SocketAddr,
        stop: &AtomicBool,
    ) -> Result<()> {
        all.retain(|step| !cost.no_request || step.id.reach != Reach::Answered);
        let opens = url.protocol.is_some_and(|protocol| protocol.opening.is_some());
        all.retain(|step| opens || step.id.reach != Reach::Opened);
        all.retain(|step| !cost.only_life || step.is_of_life(self.version));
        let has_http = url.protocol.is_none() && cost.alpn.is_empty();
        all.retain(|step| has_http || step.id.http2.is_none());
        // The share without a secret is of X25519, and tells nothing of another group.
        all.retain(|step| step.id.lack != Some(Lack::Secret) || cost.group.is_none_or(|group| group == Group::X25519));
        all.retain(|step| step.id.suite.is_none_or(|suite| !self.usual.contains(&suite)));
        let mut maker = Maker::new(cost, url, address, all.iter().map(|step| &step.id), &self.usual)?;
        // One line tells of a version that the server does not speak.
        let old = StepId::whole(Version::Tls12, true);
        let old_at = all.iter().position(|step| step.id == old);
        let without_old = old_at.and_then(|at| tried(&mut maker, at, &all[at].id).err());
        if let Some(error) = &without_old {
            self.refused.push(("TLS 1.2".to_owned(), error.to_string()));
        }
        for (number, step) in all.iter().enumerate() {
            interrupt::before_measuring(stop, interrupt::check(stop))?;
            if step.id.version == Some(Version::Tls12) && without_old.is_some() && self.version != Version::Tls12 {
                continue;
            }
            match tried(&mut maker, number, &step.id) {
                Ok(_) => self.steps.push(step.clone()),
                Err(error) => {
                    refuse_limits(&step.id, &error)?;
                    self.uncompressed = step.id.compressed.then(|| error.to_string()).or(self.uncompressed.take());
                    self.refused.push((step.name.clone(), error.to_string()));
                }
            }
        }
        Ok(())
    }
}

/// The keys of the certificates that a server shows: to a usual client, to one that takes RSA alone, to one that takes
/// ECDSA alone.
fn keys(
    cost: &Cost,
    url: &Url,
    address: SocketAddr,
    version: Version,
    usual: &[Suite],
) -> Result<Vec<CertificateKind>> {
    let steps = [None, Some(Signer::Rsa), Some(Signer::Ecdsa)]
        .map(|signer| StepId { signer, ..StepId::whole(version, cost.no_request) });
    let mut maker = Maker::new(cost, url, address, &steps, usual)?;
    let mut key =
        |number: usize| CertificateKind::of_certificate(maker.make(number, &steps[number]).ok()?.chain.first()?);
    let Some(usual) = key(0) else { return Ok(Vec::new()) };
    let others = (1..steps.len()).filter_map(key).filter(|other| *other != usual);
    Ok([usual].into_iter().chain(others).collect())
}

/// The result of the last connection. Where the server takes a session once, each connection has its own from then on.
fn tried(maker: &mut Maker, number: usize, step: &StepId) -> Result<Made> {
    // A server that lets connections wait does so each time, a busy machine once.
    let (mut shortest, mut made) = (Duration::MAX, None);
    for _ in 0..TRIES {
        let began = Instant::now();
        made = Some(maker.make(number, step).or_else(|error| {
            let is_new = maker.resume_once_each(step, true);
            let once = if is_new { maker.make(number, step) } else { Err(error) };
            once.inspect_err(|_| _ = is_new && maker.resume_once_each(step, false))
        })?);
        shortest = shortest.min(began.elapsed());
    }
    ensure!(
        shortest < maker.slower * SLOW * (1 + step.more_requests),
        "the server lets such a connection wait for {} ms",
        shortest.as_millis()
    );
    made.context("a step is tried")
}

/// Fails at once where the server limits the rate of connections.
fn refuse_limits(step: &StepId, error: &Error) -> Result<()> {
    let Some(BadStatus(status @ (429 | 503))) = error.downcast_ref() else { return Ok(()) };
    let error = anyhow!(
        "{step}: the server answers with status {status}: it limits the requests of a client. Raise the limit for this \
         address, or stay below it with --at-most"
    );
    Err(Fault::Unreachable.wrap(error))
}

/// Adds the likely reason why a server takes no connection, and the remedy.
fn explained(error: Error, address: SocketAddr, url: &Url) -> Error {
    let hint = match error.downcast_ref::<Failure>() {
        Some(Failure::Opening(_)) => return error,
        Some(Failure::Answer(_) | Failure::Closed) if url.protocol.is_some() => Some(
            "measure its handshakes with --no-request, or give bytes that it answers: --request, and --answer-until or \
             --answer-bytes",
        ),
        Some(Failure::Tls(TlsError::CertificateWanted(_))) => {
            Some("it asks its clients for a certificate: give one with --client-cert and --client-key")
        }
        Some(Failure::Tls(TlsError::AlertReceived(alert))) if alert.0 == NO_APPLICATION_PROTOCOL => {
            Some("it takes none of the protocols offered: name one that it takes with --alpn")
        }
        Some(Failure::Http(_) | Failure::Closed) => Some(
            "it does not answer HTTP/1.1, as one that speaks HTTP/2 only: measure its handshakes with --no-request",
        ),
        Some(Failure::Timeout(_)) => Some("it lets the connection wait, as a server does that limits or bans"),
        Some(_) if url.protocol.is_none() && answers_plain_http(address) => {
            Some("it answers plain HTTP there: give the port of HTTPS")
        }
        None if error.is::<BadStatus>() => Some("name a page that it has, as part of the URL"),
        _ => None,
    };
    let error = error.context("the server completes no connection over TLS 1.3 or 1.2");
    match hint {
        Some(hint) => anyhow!("{error:#}; {hint}"),
        None => error,
    }
}

fn answers_plain_http(address: SocketAddr) -> bool {
    let request = exchange::get("/", "", &address.to_string());
    let answer = exchange::exchange_within(PATIENCE, address, None, None, &request);
    answer.is_ok_and(|answer| answer.status != 400)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_is_known_by_its_status_and_not_by_words() {
        let step = StepId::whole(Version::Tls13, false);
        let refused = |status| refuse_limits(&step, &Error::new(BadStatus(status)).context("a request"));
        assert!(refused(404).is_ok() && refuse_limits(&step, &anyhow!("the answer has status 429")).is_ok());
        for status in [429, 503] {
            let told = refused(status).unwrap_err().to_string();
            assert!(told.contains(&format!("status {status}")) && told.contains("--at-most"), "{told}");
        }
    }
}
