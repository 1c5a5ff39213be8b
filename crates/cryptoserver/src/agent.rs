//! The agent on a web server's machine: one thread that never waits for a single peer. The provider's connections come
//! over a Unix socket; what they ask for goes over a few connections to the first service that can be reached, all that
//! has come meanwhile in one packet. Where a service is lost its requests go to the next one, which does no harm: the
//! same text signed twice says the same.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, VecDeque};
use std::io::{self, Read as _, Write as _};
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use rustix::buffer::spare_capacity;
use rustix::event::{Timespec, epoll};
use rustls::ClientConfig;

use crate::frame::{Answer, Request, Status, first};
use crate::link::{Link, Service, is_for_later};
use crate::metrics::{Counters, Lines, Pace};

/// A request that nobody has answered by then fails; the provider waits longer.
const DEADLINE: Duration = Duration::from_secs(3);
/// A service that answers nothing for so long is taken for dead.
const SILENCE: Duration = Duration::from_secs(1);
/// After so long without a service requests fail at once: web servers wait for each.
const HOPE: Duration = Duration::from_secs(2);
/// Requests of one connection of the provider, which asks for one at a time.
const PER_LOCAL: u32 = 64;
/// A connection of the provider that takes no answers is closed at so many bytes of them.
const OWED_BYTES_MAX: usize = 64 * 1024;
/// Shortest time between two complaints that no service answers.
const COMPLAINTS: Duration = Duration::from_secs(60);
const TICK: Timespec = Timespec { tv_sec: 0, tv_nsec: 10_000_000 };
const LISTENER: u64 = 0;

const NAMES: [&str; 6] = ["requests", "answered", "failed", "sent_again", "packets", "not_let_in"];
const REQUESTS: usize = 0;
const ANSWERED: usize = 1;
const FAILED: usize = 2;
const SENT_AGAIN: usize = 3;
const PACKETS: usize = 4;
const NOT_LET_IN: usize = 5;

/// A connection of the provider.
struct Local {
    stream: UnixStream,
    input: Vec<u8>,
    output: Vec<u8>,
    in_flight: u32,
}

struct Pending {
    local: u64,
    /// The tag that the provider gave it.
    tag: u32,
    frame: Vec<u8>,
    asked: Instant,
    /// By which link it went, and when.
    sent: Option<(usize, Instant)>,
}

pub struct Agent {
    epoll: rustix::fd::OwnedFd,
    listener: UnixListener,
    links: Vec<Link>,
    /// Links of one service, which stand beside each other; services in the order of preference.
    per_service: usize,
    locals: HashMap<u64, Local>,
    locals_max: usize,
    next_local: u64,
    pending: HashMap<u32, Pending>,
    next_tag: u32,
    queue: VecDeque<u32>,
    /// Since when no service can be reached.
    down_since: Option<Instant>,
    counters: Counters<6>,
    said: Lines,
    /// When it was last said that no service answers.
    complained: Option<Instant>,
}

impl Agent {
    /// Takes a socket that listens, the services in the order in which they are preferred, connections to each, and how
    /// many the provider may have.
    pub fn new(listener: UnixListener, services: &[Service], each: usize, locals_max: usize) -> Result<Agent> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC).context("wait for sockets")?;
        listener.set_nonblocking(true)?;
        epoll::add(&epoll, &listener, epoll::EventData::new_u64(LISTENER), epoll::EventFlags::IN)?;
        let links: Vec<Link> = services.iter().flat_map(|one| (0..each).map(|_| Link::new(one.clone()))).collect();
        let next_local = links.len() as u64 + 1;
        Ok(Agent {
            epoll,
            listener,
            links,
            per_service: each,
            locals: HashMap::new(),
            locals_max,
            next_local,
            pending: HashMap::new(),
            next_tag: 0,
            queue: VecDeque::new(),
            down_since: Some(Instant::now()),
            counters: Counters::new(NAMES),
            said: Lines::to(io::stderr()),
            complained: None,
        })
    }

    /// Serves until `stop`, with a line of metrics in each so many seconds. Each time that `hangup` is set, connections
    /// from then on have what `read_again` finds in place of its certificates.
    pub fn run(
        &mut self,
        stop: &AtomicBool,
        metrics_every: u32,
        hangup: &AtomicBool,
        read_again: impl Fn() -> Result<Arc<ClientConfig>>,
    ) -> Result<()> {
        let mut events = Vec::with_capacity(256);
        let (mut pace, mut next_look, lines) = (Pace::new(metrics_every), Instant::now(), Lines::of_stdout());
        while !stop.load(Ordering::Relaxed) {
            events.clear();
            match epoll::wait(&self.epoll, spare_capacity(&mut events), Some(&TICK)) {
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error).context("wait for sockets"),
            }
            for event in &events {
                let which = event.data;
                match which.u64() {
                    LISTENER => self.accept(),
                    link if link <= self.links.len() as u64 => self.pump(link as usize - 1),
                    local => self.read_local(local),
                }
            }
            if hangup.swap(false, Ordering::Relaxed) {
                match read_again() {
                    Ok(tls) => self.links.iter_mut().for_each(|link| link.service.tls = Arc::clone(&tls)),
                    Err(error) => self.said.print(format!("goes on with the certificates that it has: {error:#}\n")),
                }
            }
            let now = Instant::now();
            if now >= next_look {
                self.look(now);
                next_look = now + Duration::from_nanos(TICK.tv_nsec as u64);
            }
            self.dispatch(now);
            if pace.is_due(now) {
                lines.print(self.line());
            }
        }
        lines.end(self.line());
        Ok(())
    }

    fn line(&self) -> String {
        let up = self.links.iter().filter(|link| link.is_up()).count() as u64;
        self.counters.line(&[("connections", self.locals.len() as u64), ("links_up", up)])
    }

    fn accept(&mut self) {
        while let Ok((stream, _)) = self.listener.accept() {
            let id = self.next_local;
            let flags = epoll::EventFlags::IN | epoll::EventFlags::OUT | epoll::EventFlags::ET;
            let is_let_in = self.locals.len() < self.locals_max
                && stream.set_nonblocking(true).is_ok()
                && epoll::add(&self.epoll, &stream, epoll::EventData::new_u64(id), flags).is_ok();
            if !is_let_in {
                self.counters.add(NOT_LET_IN, 1);
                continue;
            }
            self.next_local += 1;
            self.locals.insert(id, Local { stream, input: Vec::new(), output: Vec::new(), in_flight: 0 });
        }
    }

    /// Everything that a connection of the provider has sent, and what it could not take before.
    fn read_local(&mut self, id: u64) {
        let Some(local) = self.locals.get_mut(&id) else { return };
        let is_open = local.read();
        let mut done = 0;
        let mut is_right = local.write() && local.output.len() <= OWED_BYTES_MAX;
        while is_right {
            match first::<Request>(&local.input[done..]) {
                Ok(Some((request, bytes))) => {
                    done += bytes;
                    let (tag, mut frame) = (self.next_tag, Vec::with_capacity(bytes));
                    self.next_tag = self.next_tag.wrapping_add(1);
                    Request { tag, ..request }.encode(&mut frame);
                    let asked = Instant::now();
                    self.pending.insert(tag, Pending { local: id, tag: request.tag, frame, asked, sent: None });
                    self.queue.push_back(tag);
                    self.counters.add(REQUESTS, 1);
                    local.in_flight += 1;
                    is_right = local.in_flight <= PER_LOCAL;
                }
                Ok(None) => break,
                Err(_) => is_right = false,
            }
        }
        local.input.drain(..done);
        if !is_open || !is_right {
            // What it asked for is answered to nobody.
            self.locals.remove(&id);
        }
    }

    /// Requests that wait go to the link with the fewest, of the first service that can be reached; then everything
    /// that was put there is sent.
    fn dispatch(&mut self, now: Instant) {
        let best = |links: &[Link], each: usize| {
            let up = |at: &usize| links[*at].is_up();
            let service = (0..links.len()).find(up)? / each;
            (service * each..(service + 1) * each).filter(up).min_by_key(|at| links[*at].in_flight)
        };
        let mut dirty = vec![false; self.links.len()];
        while let Some(tag) = self.queue.pop_front() {
            let Some(pending) = self.pending.get_mut(&tag) else { continue };
            let Some(at) = best(&self.links, self.per_service) else {
                self.queue.push_front(tag);
                break;
            };
            self.links[at].put(&pending.frame);
            pending.sent = Some((at, now));
            dirty[at] = true;
        }
        for (at, _) in dirty.iter().enumerate().filter(|(_, dirty)| **dirty) {
            self.counters.add(PACKETS, 1);
            self.pump(at);
        }
    }

    fn pump(&mut self, at: usize) {
        let Agent { links, pending, locals, counters, .. } = self;
        let result = links[at].pump(|answer| {
            // Only where it went by this link.
            let Entry::Occupied(found) = pending.entry(answer.tag) else { return };
            if found.get().sent.is_none_or(|(link, _)| link != at) {
                return;
            }
            let asked = found.remove();
            counters.add(ANSWERED, 1);
            let is_gone = locals.get_mut(&asked.local).is_some_and(|local| !local.answer(asked.tag, answer));
            if is_gone {
                locals.remove(&asked.local);
            }
        });
        if let Err(error) = result {
            self.lose(at, Instant::now(), &error);
        }
    }

    /// Ends a link; what it owes goes to another.
    fn lose(&mut self, at: usize, now: Instant, why: &dyn std::fmt::Display) {
        if self.links[at].is_up() {
            self.said.print(format!("lost a cryptoserver: {why}\n"));
        }
        self.links[at].close(now, why);
        for (tag, pending) in &mut self.pending {
            if pending.sent.is_some_and(|(link, _)| link == at) {
                pending.sent = None;
                self.queue.push_front(*tag);
                self.counters.add(SENT_AGAIN, 1);
            }
        }
    }

    /// What time brings: new connections, silent services, requests that have waited too long.
    fn look(&mut self, now: Instant) {
        let silent = self.silent(now);
        let answers = |(at, link): (usize, &Link)| link.is_up() && !silent[at];
        let another_answers = self.links.iter().enumerate().any(answers);
        for (at, is_silent) in silent.into_iter().enumerate() {
            if is_silent || self.links[at].is_late(now) {
                self.lose(at, now, &"it does not answer");
                if is_silent && another_answers {
                    self.links[at].rest(now);
                }
            }
            self.begin(at, now);
        }
        let is_up = self.links.iter().any(Link::is_up);
        self.down_since = if is_up { None } else { self.down_since.or(Some(now)) };
        self.give_up(now);
    }

    /// Links of services that owe an answer for too long. At light load only one link of a service is asked at a time,
    /// and a machine that stands still answers on none of them.
    fn silent(&self, now: Instant) -> Vec<bool> {
        let mut silent = vec![false; self.links.len()];
        for (at, sent) in self.pending.values().filter_map(|pending| pending.sent) {
            // A service with much to do answers late, but it does answer.
            silent[at] |= now - sent.max(self.links[at].heard) > SILENCE;
        }
        for (links, silent) in self.links.chunks(self.per_service).zip(silent.chunks_mut(self.per_service)) {
            if silent.contains(&true) {
                for (link, silent) in links.iter().zip(silent) {
                    *silent |= link.is_up() && now - link.heard > SILENCE;
                }
            }
        }
        silent
    }

    /// Connects where that is due. Where the system has no descriptors it is tried again.
    fn begin(&mut self, at: usize, now: Instant) {
        let flags = epoll::EventFlags::IN | epoll::EventFlags::OUT | epoll::EventFlags::ET;
        let data = epoll::EventData::new_u64(at as u64 + 1);
        let begun = match self.links[at].begin_if_due(now) {
            Ok(None) => return,
            Ok(Some(stream)) => epoll::add(&self.epoll, stream, data, flags).map_err(io::Error::from),
            Err(error) => Err(error),
        };
        match begun {
            Ok(()) => self.pump(at),
            Err(error) => self.links[at].close(now, &error),
        }
    }

    fn give_up(&mut self, now: Instant) {
        let is_hopeless = self.down_since.is_some_and(|since| now - since > HOPE);
        let is_over = |pending: &Pending| is_hopeless || now - pending.asked > DEADLINE;
        let over: Vec<u32> = self.pending.iter().filter(|(_, pending)| is_over(pending)).map(|(tag, _)| *tag).collect();
        if over.is_empty() {
            return;
        }
        let faults: Vec<&str> = self.links.iter().step_by(self.per_service).map(|link| link.fault.as_str()).collect();
        let why = format!("no cryptoserver answers ({}); start one: tlsdyno cryptoserver", faults.join("; "));
        if self.complained.is_none_or(|before| now - before >= COMPLAINTS) {
            self.complained = Some(now);
            self.said.print(format!("{why}\n"));
        }
        for tag in over {
            let Some(pending) = self.pending.remove(&tag) else { continue };
            self.counters.add(FAILED, 1);
            let answer = Answer { tag, status: Status::NoService, bytes: why.as_bytes() };
            if let Some(local) = self.locals.get_mut(&pending.local)
                && !local.answer(pending.tag, &answer)
            {
                self.locals.remove(&pending.local);
            }
        }
        let pending = &self.pending;
        self.queue.retain(|tag| pending.contains_key(tag));
    }
}

impl Local {
    /// Reads what is there; `false` where the provider has ended it, or sends more than it may.
    fn read(&mut self) -> bool {
        let mut buffer = [0; 4096];
        loop {
            match self.stream.read(&mut buffer) {
                Ok(0) => return false,
                Ok(bytes) => self.input.extend_from_slice(&buffer[..bytes]),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return is_for_later(&error),
            }
            if self.input.len() > PER_LOCAL as usize * 1024 {
                return false;
            }
        }
    }

    fn write(&mut self) -> bool {
        while !self.output.is_empty() {
            match self.stream.write(&self.output) {
                Ok(bytes) => drop(self.output.drain(..bytes)),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return is_for_later(&error),
            }
        }
        true
    }

    /// Hands an answer on; `false` where the connection has gone.
    fn answer(&mut self, tag: u32, answer: &Answer) -> bool {
        self.in_flight = self.in_flight.saturating_sub(1);
        Answer { tag, ..*answer }.encode(&mut self.output);
        self.write()
    }
}
