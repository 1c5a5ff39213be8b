//! The service: a thread for each agent's connection, which does what is asked there. A connection's requests are done
//! one after the other, so an agent that is to use several CPUs has several connections. Only decryptions in batches
//! are done by other threads, which leave the answers in the connection's outbox.

use std::io::{self, Read as _, Write as _};
use std::net::{IpAddr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::fd::OwnedFd;
use rustls::ServerConnection;
use rustls_pki_types::CertificateDer;
use socket2::{SockRef, TcpKeepalive};
use tlsdyno_base::fault::{Fault, OrFault};

use crate::frame::{Answer, Operation, Request, Status, first};
use crate::identity::{Client, PROTOCOL, ServiceSide, client_of};
use crate::keys::Keys;
use crate::metrics::{Counters, Lines, Pace};
use crate::premaster::Secret;
use crate::rate::Rates;
use crate::strangers::Strangers;

/// A client has so long to say who it is; agents wait no longer.
const HANDSHAKE: Duration = Duration::from_secs(2);
/// A client has so long to take the answers that it asked for.
const PATIENCE: Duration = Duration::from_secs(5);
/// The system finds out by itself that the other machine is gone.
const KEEPALIVE: Duration = Duration::from_secs(30);
/// A client may have this part of the connections.
const PART_OF_A_CLIENT: usize = 4;
/// A connection without requests is closed; its agent makes another one when it needs it.
const IDLE: Duration = Duration::from_secs(600);
/// A connection that is owed so many answers by batches is read no further.
const OWED_MAX: usize = 256;
/// Answers that are ready go no later than this, whatever else came with their requests.
const ANSWER_DELAY: Duration = Duration::from_micros(500);
/// How often the service looks whether it shall end.
const LOOK: Timespec = Timespec { tv_sec: 0, tv_nsec: 100_000_000 };
/// How often it looks whether the certificates of agents still hold.
const CERTIFICATES: Duration = Duration::from_secs(1);

const NAMES: [&str; 7] = ["signatures", "decryptions", "refused", "no_key", "over_rate", "failed", "not_let_in"];
const SIGNATURES: usize = 0;
const DECRYPTIONS: usize = 1;
const NOT_LET_IN: usize = 6;

#[derive(Clone, Copy, Debug)]
pub struct Limits {
    pub connections: u32,
    /// Operations in a second for each client, by its public key.
    pub rate: u32,
    /// Seconds between two lines of metrics; 0: none.
    pub metrics_every: u32,
}

pub struct Service {
    listener: TcpListener,
    shared: Arc<Shared>,
    limits: Limits,
}

struct Shared {
    side: Mutex<Arc<ServiceSide>>,
    keys: Keys,
    rates: Mutex<Rates>,
    counters: Counters<7>,
    strangers: Arc<Strangers>,
    /// Connections of clients that are known.
    open: Mutex<Vec<Open>>,
    /// Most of all clients together; one may have a part of them.
    connections_max: u32,
}

impl Service {
    pub fn new(listen: SocketAddr, side: ServiceSide, keys: Keys, limits: Limits) -> Result<Service> {
        let bound = TcpListener::bind(listen).with_context(|| format!("failed to listen on {listen}"));
        let listener = bound.or_fault(Fault::Environment)?;
        listener.set_nonblocking(true)?;
        let shared = Shared {
            side: Mutex::new(Arc::new(side)),
            keys,
            rates: Mutex::new(Rates::new(limits.rate)),
            counters: Counters::new(NAMES),
            strangers: Strangers::new(limits.connections),
            open: Mutex::default(),
            connections_max: limits.connections,
        };
        Ok(Service { listener, shared: Arc::new(shared), limits })
    }

    pub fn address(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    /// Serves until `stop`. What is under way then is lost; agents ask again elsewhere. Each time that `hangup` is
    /// set, it takes what `read_again` finds in place of its certificates.
    pub fn run(
        &self,
        stop: &AtomicBool,
        hangup: &AtomicBool,
        read_again: impl Fn() -> Result<ServiceSide>,
    ) -> Result<()> {
        let (mut pace, lines) = (Pace::new(self.limits.metrics_every), Lines::of_stdout());
        let (said, mut next_look) = (Lines::to(io::stderr()), Instant::now());
        while !stop.load(Ordering::Relaxed) {
            let mut waiting = [PollFd::new(&self.listener, PollFlags::IN)];
            match poll(&mut waiting, Some(&LOOK)) {
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error).context("wait for connections"),
            }
            let is_told = hangup.swap(false, Ordering::Relaxed);
            match is_told.then(&read_again).transpose() {
                Ok(side) => side.into_iter().for_each(|side| *self.shared.side() = Arc::new(side)),
                Err(error) => said.print(format!("goes on with the certificates that it has: {error:#}\n")),
            }
            if is_told || Instant::now() >= next_look {
                self.shared.end_those_that_hold_no_more(&said);
                next_look = Instant::now() + CERTIFICATES;
            }
            // One in each turn: whoever connects without end keeps it from nothing else.
            if let Ok((stream, from)) = self.listener.accept() {
                self.let_in(stream, from.ip());
            }
            if pace.is_due(Instant::now()) {
                lines.print(self.line());
            }
        }
        lines.end(self.line());
        Ok(())
    }

    fn line(&self) -> String {
        let connections = self.shared.open().len() as u64;
        self.shared.counters.line(&[("connections", connections), ("batches", self.shared.keys.batch_count())])
    }

    fn let_in(&self, stream: TcpStream, from: IpAddr) {
        let (shared, stream) = (Arc::clone(&self.shared), Arc::new(stream));
        let stranger = shared.strangers.enter(Arc::clone(&stream), from);
        let serve = move || match Conversation::begin(&shared, stream) {
            Ok(mut one) => {
                stranger.has_shown_itself();
                drop(one.go_on());
            }
            Err(_) => shared.counters.add(NOT_LET_IN, 1),
        };
        let _ = thread::Builder::new().name("connection".to_owned()).spawn(serve);
    }
}

/// A connection whose client is known.
struct Open {
    client: Client,
    certificates: Vec<CertificateDer<'static>>,
    stream: Arc<TcpStream>,
}

impl Shared {
    fn open(&self) -> MutexGuard<'_, Vec<Open>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn side(&self) -> MutexGuard<'_, Arc<ServiceSide>> {
        self.side.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A place for one more connection of this client, which gives it back.
    fn place(&self, client: Client, certificates: &[CertificateDer<'_>], stream: &Arc<TcpStream>) -> Option<Place<'_>> {
        let mut open = self.open();
        let (own, most) = (open.iter().filter(|one| one.client == client).count(), self.connections_max as usize);
        if open.len() >= most || own >= most.div_ceil(PART_OF_A_CLIENT) {
            return None;
        }
        let certificates = certificates.iter().map(|one| one.clone().into_owned()).collect();
        open.push(Open { client, certificates, stream: Arc::clone(stream) });
        Some(Place { shared: self, client, stream: Arc::clone(stream) })
    }

    /// Ends the connections of clients whose certificates have run out, are revoked or trusted no more.
    fn end_those_that_hold_no_more(&self, said: &Lines) {
        let side = Arc::clone(&self.side());
        for one in self.open().iter() {
            if let Err(why) = side.check(&one.certificates) {
                let from = one.stream.peer_addr().map_or_else(|_| "an agent".to_owned(), |from| from.to_string());
                let _ = one.stream.shutdown(Shutdown::Both);
                said.print(format!("ends the connection of {from}: {why}\n"));
            }
        }
    }
}

struct Place<'a> {
    shared: &'a Shared,
    client: Client,
    stream: Arc<TcpStream>,
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        self.shared.open().retain(|one| !Arc::ptr_eq(&one.stream, &self.stream));
    }
}

/// Answers that batches have brought for a connection.
struct Outbox {
    answers: Mutex<Vec<Vec<u8>>>,
    /// Readable where there are some.
    wake: OwnedFd,
}

impl Outbox {
    fn put(&self, answer: Vec<u8>) {
        self.answers.lock().unwrap_or_else(PoisonError::into_inner).push(answer);
        // It fails only where the connection has not looked for 2^64 answers.
        let _ = rustix::io::write(&self.wake, &1u64.to_ne_bytes());
    }

    fn take(&self) -> io::Result<Vec<Vec<u8>>> {
        rustix::io::read(&self.wake, &mut [0; 8])?;
        Ok(std::mem::take(&mut *self.answers.lock().unwrap_or_else(PoisonError::into_inner)))
    }
}

struct Conversation<'a> {
    shared: &'a Arc<Shared>,
    tls: ServerConnection,
    place: Place<'a>,
    outbox: Arc<Outbox>,
    /// Answers that are to come to the outbox.
    owed: usize,
}

impl<'a> Conversation<'a> {
    fn begin(shared: &'a Arc<Shared>, stream: Arc<TcpStream>) -> io::Result<Conversation<'a>> {
        // What accepts does not wait; what it accepts does.
        stream.set_nonblocking(false)?;
        stream.set_nodelay(true)?;
        let keepalive = TcpKeepalive::new().with_time(KEEPALIVE).with_interval(KEEPALIVE).with_retries(3);
        SockRef::from(&*stream).set_tcp_keepalive(&keepalive)?;
        stream.set_write_timeout(Some(PATIENCE))?;
        let mut tls = ServerConnection::new(Arc::clone(&shared.side().tls)).map_err(io::Error::other)?;
        let began = Instant::now();
        while tls.is_handshaking() {
            let left = HANDSHAKE.checked_sub(began.elapsed()).filter(|left| !left.is_zero());
            stream.set_read_timeout(Some(left.ok_or(io::ErrorKind::TimedOut)?))?;
            if tls.read_tls(&mut &*stream)? == 0 {
                return Err(io::ErrorKind::TimedOut.into());
            }
            let understood = tls.process_new_packets();
            // With an alert where it was not understood.
            while tls.wants_write() {
                tls.write_tls(&mut &*stream)?;
            }
            understood.map_err(io::Error::other)?;
        }
        let certificates = tls.peer_certificates().filter(|_| tls.alpn_protocol() == Some(PROTOCOL));
        let certificates = certificates.ok_or(io::ErrorKind::PermissionDenied)?;
        let client = certificates.first().map(client_of).ok_or(io::ErrorKind::PermissionDenied)?;
        let place = shared.place(client.map_err(io::Error::other)?, certificates, &stream);
        let place = place.ok_or(io::ErrorKind::PermissionDenied)?;
        stream.set_read_timeout(Some(IDLE))?;
        let outbox = Arc::new(Outbox { answers: Mutex::default(), wake: eventfd(0, EventfdFlags::CLOEXEC)? });
        Ok(Conversation { shared, tls, place, outbox, owed: 0 })
    }

    /// Serves the connection until the client ends it or breaks a rule.
    fn go_on(&mut self) -> io::Result<()> {
        let mut input = Vec::new();
        loop {
            // What came with the end of the handshake is there already.
            let state = self.tls.process_new_packets().map_err(io::Error::other)?;
            let has = state.plaintext_bytes_to_read();
            let before = input.len();
            input.resize(before + has, 0);
            self.tls.reader().read_exact(&mut input[before..])?;
            let done = self.answer_all(&input)?;
            input.drain(..done);
            self.send()?;
            if state.peer_has_closed() {
                return Ok(());
            }
            self.pay()?;
            if self.tls.read_tls(&mut &*self.place.stream)? == 0 {
                return Ok(());
            }
        }
    }

    /// Sends what batches bring, until the client sends more or is owed nothing.
    fn pay(&mut self) -> io::Result<()> {
        while self.owed > 0 {
            let reads = if self.owed < OWED_MAX { PollFlags::IN } else { PollFlags::empty() };
            let mut waiting = [PollFd::new(&*self.place.stream, reads), PollFd::new(&self.outbox.wake, PollFlags::IN)];
            match poll(&mut waiting, None) {
                Err(rustix::io::Errno::INTR) => continue,
                other => other?,
            };
            let [more, brought] = waiting.map(|one| !one.revents().is_empty());
            if brought {
                let answers = self.outbox.take()?;
                self.owed -= answers.len();
                self.tls.writer().write_all(&answers.concat())?;
                self.send()?;
            }
            if more {
                break;
            }
        }
        Ok(())
    }

    /// Answers every whole request in `input`, and tells how many bytes these have.
    fn answer_all(&mut self, input: &[u8]) -> io::Result<usize> {
        let (mut done, mut sent, mut answers) = (0, Instant::now(), Vec::new());
        while let Some((request, bytes)) = first::<Request>(&input[done..]).map_err(io::Error::other)? {
            done += bytes;
            answers.extend(self.answer(&request).into_iter().flatten());
            if sent.elapsed() > ANSWER_DELAY {
                self.tls.writer().write_all(&std::mem::take(&mut answers))?;
                self.send()?;
                sent = Instant::now();
            }
        }
        self.tls.writer().write_all(&answers)?;
        Ok(done)
    }

    fn send(&mut self) -> io::Result<()> {
        while self.tls.wants_write() {
            self.tls.write_tls(&mut &*self.place.stream)?;
        }
        Ok(())
    }

    /// The frame of the answer; `None`: a batch will put it into the outbox.
    fn answer(&mut self, request: &Request) -> Option<Vec<u8>> {
        let may = self.shared.rates.lock().is_ok_and(|mut rates| rates.take(&self.place.client, Instant::now()));
        if !may {
            let too_many = (Status::TooMany, "more operations in a second than --rate allows this client");
            return Some(self.shared.answer(request.tag, request.operation, &Err(too_many)));
        }
        let Some((batches, member)) = self.shared.keys.batches_of(request) else {
            let result = self.shared.keys.perform(request);
            return Some(self.shared.answer(request.tag, request.operation, &result));
        };
        let (shared, outbox, tag) = (Arc::clone(self.shared), Arc::clone(&self.outbox), request.tag);
        let done = move |secret: Result<Secret, _>| {
            let result = secret.map(Vec::from).map_err(|why| (Status::Refused, why));
            outbox.put(shared.answer(tag, Operation::Decrypt, &result));
        };
        self.owed += 1;
        batches.add(member, request.detail, request.message, Box::new(done));
        None
    }
}

impl Shared {
    fn answer(&self, tag: u32, operation: Operation, result: &Result<Vec<u8>, (Status, &str)>) -> Vec<u8> {
        let (status, bytes) = match result {
            Ok(bytes) => (Status::Done, &bytes[..]),
            Err((status, why)) => (*status, why.as_bytes()),
        };
        let counter = match (status, operation) {
            (Status::Done, Operation::Sign) => SIGNATURES,
            (Status::Done, Operation::Decrypt) => DECRYPTIONS,
            (Status::Refused, _) => 2,
            (Status::NoKey, _) => 3,
            (Status::TooMany, _) => 4,
            (Status::Failed | Status::NoService, _) => 5,
        };
        self.counters.add(counter, 1);
        let mut frame = Vec::new();
        Answer { tag, status, bytes }.encode(&mut frame);
        frame
    }
}
