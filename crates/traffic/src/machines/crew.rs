//! The coordinator's end: carries out what `coordinator` decides, over sockets, for a load that workers make.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, anyhow, ensure};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustls::{ServerConfig, ServerConnection};
use tlsdyno_base::fault::{Fault, OrFault};
use tlsdyno_base::listening::is_loopback;
use tlsdyno_engine::load::{LoadError, Outcome, Plan, Share, Watched};
use tlsdyno_record::model::OnLoss;
use tlsdyno_record::model::job::Held;
use tlsdyno_record::model::packed::{Data, PackedPlan};
use tlsdyno_record::model::worker::{FromWorker, LoadPlan, Look, SILENCE_NS_MAX, Seen, ToWorker, VERSION};
use tlsdyno_sys::monotonic_ns;

use super::carried::{self, Packer};
use super::coordinator::{Action, Coordinator};
use super::link::Link;
use super::token::Token;
use crate::load::threads::Crew;

/// Peers that have not said who they are, at most, beside as many as there are workers. Where more come, the one that
/// has been silent longest makes place.
const STRANGERS_MAX: usize = 64;

/// How long they may take for it, in nanoseconds: two round trips.
const STRANGER_NS_MAX: u64 = 5_000_000_000;

/// Accepted in one turn, so that those who are here get theirs.
const ACCEPTS_PER_TURN: usize = 256;

/// Number of round trips that are timed to learn how far workers are.
const ROUNDS: usize = 10;

const PIECE_BYTES: usize = 192 * 1024;

/// How often it is looked whether somebody wants to stop or to see how it goes.
const LOOKED_NS: u64 = 100_000_000;

/// Interval between checks whether a plan is packed, nanoseconds.
const PACKING_NS: u64 = 5_000_000;

/// How long the last words may take to leave, in nanoseconds.
const LAST_WORDS_NS_MAX: u64 = 1_000_000_000;

#[derive(Debug)]
pub struct Workers {
    inner: RefCell<Inner>,
    pub address: SocketAddr,
    pub token: Token,
    count: usize,
}

#[derive(Debug)]
struct Inner {
    listener: TcpListener,
    tls: Arc<ServerConfig>,
    token: Token,
    coordinator: Coordinator,
    count: usize,
    peers: Vec<Peer>,
    packer: Packer,
    /// The addresses that workers say they connect from, by worker.
    sources: BTreeMap<usize, IpAddr>,
    /// The answer of the worker that was asked to look.
    answer: Option<Result<Seen, String>>,
    /// By worker, while it makes its part.
    watched: BTreeMap<usize, Watched>,
    /// Workers that were refused, and why, as far as that was told: they may ask again.
    refused: BTreeSet<String>,
    /// Nobody joins any more: the servers have been told who may connect.
    is_closed: bool,
}

#[derive(Debug)]
struct Peer {
    link: Link,
    since_ns: u64,
    said_ns: u64,
    /// Its number, once it is known.
    member: Option<usize>,
    /// Data that are on their way to it, with what has left.
    sending: VecDeque<(String, usize)>,
    /// Its last message was sent.
    is_leaving: bool,
}

impl Peer {
    /// Whether it has said the secret, and was let in.
    fn is_worker(&self) -> bool {
        self.member.is_some() && !self.is_leaving
    }
}

impl Workers {
    pub fn listen(address: SocketAddr, count: usize, on_loss: OnLoss, packer: Packer) -> Result<Workers> {
        let listener = TcpListener::bind(address).with_context(|| {
            format!("failed to listen at {address} for workers; name an address of this machine with --listen")
        })?;
        listener.set_nonblocking(true)?;
        let (token, tls) = Token::new()?;
        let inner = Inner {
            tls,
            token: token.clone(),
            coordinator: Coordinator::new(on_loss),
            count,
            peers: Vec::new(),
            packer,
            sources: BTreeMap::new(),
            answer: None,
            watched: BTreeMap::new(),
            refused: BTreeSet::new(),
            is_closed: false,
            listener,
        };
        let address = inner.listener.local_addr()?;
        Ok(Workers { inner: RefCell::new(inner), address, token, count })
    }

    /// Whether so many workers can make this load. What is packed for it is answered.
    pub fn check(plan: &Plan, count: usize) -> Result<Packer> {
        plan.check().map_err(LoadError::Plan)?;
        plan.part(Share { index: 0, count: count as u32 }).map_err(LoadError::Plan)?;
        carried::check(plan)?;
        let mut packer = Packer::default();
        packer.pack(plan)?;
        Ok(packer)
    }

    /// Waits until all have joined. `is_well` is asked now and then, and its error ends the wait.
    pub fn gather(&self, within: Duration, mut is_well: impl FnMut() -> Result<()>) -> Result<()> {
        let mut inner = self.inner.borrow_mut();
        let until_ns = monotonic_ns() + within.as_nanos() as u64;
        while inner.coordinator.present().count() < self.count {
            is_well()?;
            let joined = inner.coordinator.present().count();
            ensure!(
                monotonic_ns() < until_ns,
                "{joined} of {} workers have joined within {} s; is {} reachable from where they run, and does what \
                 starts them have room for all? Wait longer with --join-within",
                self.count,
                within.as_secs(),
                self.address
            );
            inner.turn(LOOKED_NS, None)?;
        }
        inner.coordinator.is_complete();
        Ok(())
    }

    pub fn loops(&self) -> u32 {
        self.inner.borrow().coordinator.loops()
    }

    /// Asks the workers from where they connect to `to`. Answers how long a word to the furthest of them and its answer
    /// take, in nanoseconds, at the soonest of some times. Nobody joins any more.
    pub fn way_to(&self, to: SocketAddr) -> Result<u64> {
        let mut inner = self.inner.borrow_mut();
        inner.is_closed = true;
        let mut trip_ns = u64::MAX;
        for _ in 0..ROUNDS {
            let began_ns = monotonic_ns();
            inner.sources.clear();
            let mut workers = inner.peers.iter_mut().filter(|peer| peer.is_worker());
            workers.try_for_each(|peer| peer.link.say(&ToWorker::Route { to }))?;
            while inner.sources.len() < self.count {
                let is_late = monotonic_ns() - began_ns > SILENCE_NS_MAX;
                ensure!(!is_late, "a worker does not say from which address it connects to {to}");
                inner.turn(LOOKED_NS, None)?;
            }
            trip_ns = trip_ns.min(monotonic_ns() - began_ns);
        }
        Ok(trip_ns)
    }

    /// The addresses from which the workers that were not lost connect to `to`, of which they were asked: where their
    /// connections to this process come from, if it is at the same address, and else what they say, which is something
    /// else behind an address translation.
    pub fn sources(&self, to: SocketAddr) -> BTreeSet<IpAddr> {
        let inner = self.inner.borrow();
        let source = |peer: &Peer| match self.address.ip() == to.ip() {
            true => peer.link.peer().ok(),
            false => inner.sources.get(&peer.member?).copied(),
        };
        let workers = inner.peers.iter().filter(|peer| peer.is_worker());
        workers.filter_map(source).filter(|ip| !is_loopback(*ip)).collect()
    }

    /// Asks the only worker what it sees of the processes that it was started for.
    pub fn observe(&self, look: Look) -> Result<Seen> {
        let mut inner = self.inner.borrow_mut();
        inner.answer = None;
        for peer in inner.peers.iter_mut().filter(|peer| peer.is_worker()) {
            peer.link.say(&ToWorker::Look(look))?;
        }
        loop {
            inner.turn(LOOKED_NS, None)?;
            if let Some(answer) = inner.answer.take() {
                return answer.map_err(|why| anyhow!("the worker beside the server: {why}"));
            }
            if let Some(why) = inner.coordinator.lost_between() {
                return Err(Fault::Unreachable.wrap(anyhow!(why)));
            }
        }
    }

    /// Runs the plan as [`Crew::run`]; `held`: with the sessions of earlier runs. `look` is called every tenth of a
    /// second at least, with the moment at which the run begins as soon as that is known, in nanoseconds of the
    /// monotonic clock; it answers whether the run is to end.
    pub fn carry_out(
        &self,
        plan: &Plan,
        stop: &AtomicBool,
        watched: Vec<Watched>,
        held: Option<Held>,
        look: &mut dyn FnMut(Option<u64>) -> bool,
    ) -> Result<Outcome> {
        let mut inner = self.inner.borrow_mut();
        let packed = inner.pack(plan).or_fault(Fault::Usage)?;
        let (is_watched, latencies) = (!watched.is_empty(), watched.iter().any(Watched::wants_latencies));
        let load = LoadPlan { packed, before_count: 0, loops: 0, held, watched: is_watched, latencies };
        inner.watched = inner.coordinator.present().zip(watched).collect();
        inner.coordinator.start(&load, monotonic_ns());
        while !inner.coordinator.is_over() {
            if look(inner.coordinator.begins_ns()) || stop.load(Ordering::Relaxed) {
                inner.coordinator.stop();
            }
            inner.turn(LOOKED_NS, None)?;
            inner.ask_for_display();
        }
        inner.watched = BTreeMap::new();
        inner.coordinator.finish()
    }

    /// Attends to the workers, which would leave a silent coordinator, until there is something to read here, or
    /// `stop` is set.
    pub fn attend(&self, input: BorrowedFd<'_>, stop: &AtomicBool) -> Result<()> {
        let mut inner = self.inner.borrow_mut();
        while !stop.load(Ordering::Relaxed) && !inner.turn(LOOKED_NS, Some(input))? {}
        Ok(())
    }

    /// Tells all workers to go. They have 5 s for it.
    pub fn dismiss(&self) {
        let mut inner = self.inner.borrow_mut();
        for peer in &mut inner.peers {
            // One that cannot be told any more ends by itself.
            let _ = peer.link.say(&ToWorker::Bye);
            peer.is_leaving = true;
        }
        let until_ns = monotonic_ns() + LAST_WORDS_NS_MAX;
        while !inner.peers.is_empty() && monotonic_ns() < until_ns {
            if inner.turn(LOOKED_NS, None).is_err() {
                return;
            }
        }
    }
}

impl Crew for Workers {
    fn count(&self) -> usize {
        self.count
    }

    fn run(&self, plan: &Plan, stop: &AtomicBool, watched: Vec<Watched>) -> Result<Outcome> {
        self.carry_out(plan, stop, watched, None, &mut |_| false)
    }
}

impl Inner {
    /// Packs a plan. A large workload takes seconds, in which workers would take silence for an end.
    fn pack(&mut self, plan: &Plan) -> Result<PackedPlan> {
        carried::check(plan)?;
        if self.packer.has_packed(&plan.workload) {
            return self.packer.pack(plan);
        }
        let mut packer = std::mem::take(&mut self.packer);
        let packed = thread::scope(|scope| {
            let packing = scope.spawn(|| packer.pack(plan));
            while !packing.is_finished() {
                self.turn(PACKING_NS, None)?;
            }
            packing.join().unwrap_or_else(|fault| std::panic::resume_unwind(fault))
        });
        self.packer = packer;
        packed
    }

    /// Waits for what comes, and does what is due. Answers whether there is something to read at `input`, too.
    fn turn(&mut self, wait_ns: u64, input: Option<BorrowedFd<'_>>) -> Result<bool> {
        self.carry_out();
        let wait_ns = wait_ns.min(self.coordinator.due_in_ns(monotonic_ns()));
        let timeout = Timespec { tv_sec: 0, tv_nsec: wait_ns.min(999_999_999) as _ };
        let mut waited = vec![PollFd::new(&self.listener, PollFlags::IN)];
        waited
            .extend(self.peers.iter().map(|peer| PollFd::from_borrowed_fd(peer.link.socket(), peer.link.waits_for())));
        waited.extend(input.map(|input| PollFd::from_borrowed_fd(input, PollFlags::IN)));
        match poll(&mut waited, Some(&timeout)) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error).context("wait for workers"),
        }
        let ready: Vec<bool> = waited.iter().map(|one| !one.revents().is_empty()).collect();
        for at in (0..self.peers.len()).rev() {
            if ready[at + 1]
                && let Err(error) = self.receive(at)
            {
                self.forget(at, &format!("{error:#}"));
            }
        }
        if ready[0] {
            self.accept();
        }
        let now_ns = monotonic_ns();
        self.peers.retain(|peer| peer.member.is_some() || now_ns.saturating_sub(peer.since_ns) < STRANGER_NS_MAX);
        self.coordinator.tell_time(now_ns);
        self.carry_out();
        Ok(input.is_some() && ready.last() == Some(&true))
    }

    fn accept(&mut self) {
        for _ in 0..ACCEPTS_PER_TURN {
            let Ok((socket, _)) = self.listener.accept() else { return };
            let Ok(link) = self.link(socket) else { continue };
            let strangers = || self.peers.iter().enumerate().filter(|(_, peer)| peer.member.is_none());
            // All workers of an engine may dial at the same moment.
            if strangers().count() >= STRANGERS_MAX + self.count
                && let Some((longest, _)) = strangers().min_by_key(|(_, peer)| peer.said_ns)
            {
                self.peers.swap_remove(longest);
            }
            let since_ns = monotonic_ns();
            let (member, sending, is_leaving) = (None, VecDeque::new(), false);
            self.peers.push(Peer { link, since_ns, said_ns: since_ns, member, sending, is_leaving });
        }
    }

    fn link(&self, socket: TcpStream) -> Result<Link> {
        Link::new(ServerConnection::new(Arc::clone(&self.tls))?.into(), socket)
    }

    fn receive(&mut self, at: usize) -> Result<()> {
        let lines = self.peers[at].link.receive()?;
        let peer = &mut self.peers[at];
        // A hello is only half of what makes a worker known.
        peer.said_ns = monotonic_ns();
        if let Some(member) = peer.member.filter(|_| peer.link.has_heard()) {
            self.coordinator.note_life(member, peer.said_ns);
        }
        for line in lines {
            let message: FromWorker = serde_json::from_str(&line).context("it says what no worker says")?;
            match (self.peers[at].member, message) {
                (None, FromWorker::Hello { version, secret, name, loops }) => {
                    self.greet(at, &version, &secret, &name, loops)?;
                }
                (None, _) => anyhow::bail!("it did not say who it is"),
                (Some(member), FromWorker::Progress { snapshot, latencies }) => {
                    if let Some(watched) = self.watched.get(&member) {
                        let at_ns = self.coordinator.ours(member, snapshot.at_ns);
                        watched.pass_on(tlsdyno_engine::load::Snapshot { at_ns, ..*snapshot }, &latencies);
                    }
                }
                (Some(_), FromWorker::Seen(answer)) => self.answer = Some(answer),
                (Some(member), FromWorker::ConnectsFrom { ip }) => drop(self.sources.insert(member, ip)),
                (Some(member), message) => self.coordinator.hear(member, message, monotonic_ns())?,
            }
        }
        Ok(())
    }

    /// Lets a worker in that knows the secret, if there is room for it and it is of this version.
    fn greet(&mut self, at: usize, version: &str, secret: &str, name: &str, loops: u32) -> Result<()> {
        ensure!(self.token.is_secret(secret), "it does not know the secret");
        let refused = if version != VERSION {
            Some((format!("it is tlsdyno {version}, and the coordinator {VERSION}; give it the same program"), false))
        } else if self.is_closed {
            Some(("the load has begun, and servers take connections from the first workers only".to_owned(), false))
        } else if self.coordinator.present().count() >= self.count {
            // It may be one of them, started again, whose end nobody has noticed yet.
            Some((format!("the load has its {} workers already", self.count), true))
        } else {
            None
        };
        let peer = &mut self.peers[at];
        if let Some((reason, may_ask_again)) = refused {
            let name = tlsdyno_base::foreign::visible(name).to_string();
            if self.refused.insert(format!("{name}: {reason}")) {
                tell!("warning: a worker ({name}) was refused: {reason}");
            }
            peer.is_leaving = true;
            return peer.link.say(&ToWorker::Refused { reason, may_ask_again });
        }
        peer.link.trust();
        let name = tlsdyno_base::foreign::visible(name).to_string();
        peer.member = Some(self.coordinator.join(&name, loops, monotonic_ns()));
        Ok(())
    }

    fn forget(&mut self, at: usize, why: &str) {
        let peer = self.peers.swap_remove(at);
        let Some(member) = peer.member else { return };
        self.watched.remove(&member);
        if !peer.is_leaving {
            self.coordinator.lose(member, why, monotonic_ns());
        }
    }

    /// Says and sends what is to be said and sent, as far as sockets take it.
    fn carry_out(&mut self) {
        for action in self.coordinator.actions() {
            let (Action::Say(member, _) | Action::Send(member, _) | Action::Leave(member)) = action;
            let Some(at) = self.peers.iter().position(|peer| peer.member == Some(member)) else { continue };
            match action {
                // What cannot be encoded never was; a link that breaks is found when it is read.
                Action::Say(_, message) => drop(self.peers[at].link.say(&message)),
                Action::Send(_, hash) => self.peers[at].sending.push_back((hash, 0)),
                Action::Leave(_) => self.forget(at, ""),
            }
        }
        for at in (0..self.peers.len()).rev() {
            let sent = send_pieces(&mut self.peers[at], &self.packer.data);
            let peer = &self.peers[at];
            if let Err(error) = sent {
                self.forget(at, &format!("{error:#}"));
            } else if peer.is_leaving && peer.link.is_sent() {
                self.forget(at, "");
            }
        }
    }

    fn ask_for_display(&mut self) {
        // One that has ended is nobody to wait for.
        self.watched.retain(|member, _| !self.coordinator.has_run(*member));
        for (member, watched) in &self.watched {
            if self.coordinator.is_running(*member) && watched.is_asked() {
                self.coordinator.ask(*member);
            }
        }
    }
}

/// Sends what waits, and the next piece of data once all before has left: no more than a piece of it is in memory.
fn send_pieces(peer: &mut Peer, data: &Data) -> Result<()> {
    peer.link.send()?;
    while peer.link.is_sent()
        && let Some((hash, from)) = peer.sending.front_mut()
    {
        let bytes = data.get(hash).context("it wants data that the load has not")?;
        let to = bytes.len().min(*from + PIECE_BYTES);
        let piece = ToWorker::Data {
            hash: hash.clone(),
            bytes: STANDARD.encode(&bytes[*from..to]),
            is_last: to == bytes.len(),
        };
        *from = to;
        if to == bytes.len() {
            peer.sending.pop_front();
        }
        peer.link.say(&piece)?;
        peer.link.send()?;
    }
    Ok(())
}
