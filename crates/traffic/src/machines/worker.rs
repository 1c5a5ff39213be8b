//! The other end: a worker, which dials one coordinator, makes its part of each load, and ends with it.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream, ToSocketAddrs, UdpSocket};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, TryRecvError, channel};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, anyhow, ensure};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use tlsdyno_base::fault::{Fault, OrFault, fault_of};
use tlsdyno_base::listening::is_loopback;
use tlsdyno_base::open_files;
use tlsdyno_engine::load::{Outcome, Plan, RecordedLatencies, Snapshot, Watcher, watch};
use tlsdyno_record::model::job::{Makers, Reply};
use tlsdyno_record::model::packed::Data;
use tlsdyno_record::model::worker::{
    FromWorker, LoadPlan, Look, SILENCE_NS_MAX, Seen, ToWorker, VERSION, WORD_EVERY_NS,
};
use tlsdyno_sys::monotonic_ns;
use tlsdyno_tls::Effort;

use super::carried::{DATA_BYTES_MAX, Unpacker};
use super::coordinator::ASLEEP_NS;
use super::link::Link;
use super::token::{Token, hash_of};
use crate::load::threads::{Crew, Loops, Stores};

/// Pause after the first vain attempt to join the coordinator; each further one is twice as long.
const RETRY: Duration = Duration::from_millis(200);

/// Longest pause between two attempts.
const RETRY_MAX: Duration = Duration::from_secs(2);

const WAIT_NS_MAX: u64 = 500_000_000;

/// The same while a display waits for a snapshot: the loop answers in its next turn.
const WAIT_NS_ASKED: u64 = 5_000_000;

/// Answers questions about the processes whose CPU time a worker may read.
pub type CpuObserver = RefCell<Box<dyn FnMut(Look) -> Result<Seen>>>;

pub struct Setting {
    /// Where the coordinator is, HOST:PORT.
    pub join: String,
    pub token: Token,
    /// How long to try.
    pub within: Duration,
    /// Hosts that it may load besides this machine.
    pub may_load: Vec<String>,
    pub loops: Loops,
    /// The processes that it may look into.
    pub observer: Option<CpuObserver>,
}

/// Joins the coordinator and does what it says until it has nothing more to do, or `stop` is set. It is tried again
/// before the coordinator listens, a tunnel to it stands, or it has a place for this worker.
pub fn work(setting: &Setting, stop: &Arc<AtomicBool>) -> Result<()> {
    let until_ns = monotonic_ns() + setting.within.as_nanos() as u64;
    let mut pause = RETRY;
    loop {
        let failed = match attempt(&setting.join) {
            Err(error) => Fault::Unreachable.wrap(error.context(format!(
                "no coordinator at {}; it listens on loopback unless `load --listen` names an address that this \
                 machine reaches",
                setting.join
            ))),
            Ok(socket) => {
                let mut worker = Worker::new(setting, socket)?;
                let served = worker.serve(stop);
                if let Some(part) = &worker.part {
                    part.stop.store(true, Ordering::Relaxed);
                }
                match served {
                    Err(error) if !worker.is_member && !is_final(&error) => error,
                    end => return end,
                }
            }
        };
        let next_ns = monotonic_ns() + pause.as_nanos() as u64;
        if next_ns >= until_ns || stop.load(Ordering::Relaxed) {
            return Err(failed);
        }
        thread::sleep(pause);
        pause = (pause * 2).min(RETRY_MAX);
    }
}

/// Whether it will be the same the next time: another coordinator, a refusal for good, Ctrl-C.
fn is_final(error: &anyhow::Error) -> bool {
    let is_other = error.chain().any(|cause| cause.is::<rustls::Error>());
    is_other || matches!(fault_of(error), Some(Fault::Usage | Fault::Interrupted))
}

fn attempt(join: &str) -> Result<TcpStream> {
    let addresses: Vec<SocketAddr> =
        join.to_socket_addrs().with_context(|| format!("`{join}` is no HOST:PORT that can be found"))?.collect();
    let mut last = anyhow!("`{join}` has no address");
    for address in addresses {
        match TcpStream::connect_timeout(&address, Duration::from_secs(2)) {
            Ok(socket) => return Ok(socket),
            Err(error) => last = error.into(),
        }
    }
    Err(last)
}

struct Worker<'a> {
    setting: &'a Setting,
    link: Link,
    /// Readable when a loop has an event.
    wake: Arc<OwnedFd>,
    data: Data,
    arriving: Vec<u8>,
    part: Option<Part>,
    /// A thread makes one load after the other: a new one would first have to be warmed up.
    jobs: Sender<LoadJob>,
    heard_ns: u64,
    said_ns: u64,
    is_member: bool,
}

/// A load, for the thread that makes one after the other.
type LoadJob = Box<dyn FnOnce(&mut Kept) + Send>;

#[derive(Debug, Default)]
struct Kept {
    unpacker: Unpacker,
    stores: Stores,
    permitted: BTreeSet<IpAddr>,
}

struct Part {
    load: Box<LoadPlan>,
    missing: Vec<String>,
    stop: Arc<AtomicBool>,
    begin: Option<Sender<u64>>,
    events: Option<Receiver<Event>>,
    watcher: Option<Watcher>,
    is_asked: bool,
}

enum Event {
    Ready,
    Ended(Result<Vec<(String, Outcome)>>),
}

impl<'a> Worker<'a> {
    fn new(setting: &'a Setting, socket: TcpStream) -> Result<Worker<'a>> {
        let mut link = Link::new(setting.token.client()?.into(), socket)?;
        link.trust();
        link.say(&FromWorker::Hello {
            version: VERSION.to_owned(),
            secret: setting.token.secret().to_owned(),
            name: rustix::system::uname().nodename().to_string_lossy().into_owned(),
            loops: setting.loops.count() as u32,
        })?;
        let wake = eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC).context("make a descriptor")?;
        let (jobs, waiting) = channel::<LoadJob>();
        thread::spawn(move || {
            let mut kept = Kept::default();
            waiting.iter().for_each(|job| job(&mut kept));
        });
        let now_ns = monotonic_ns();
        Ok(Worker {
            setting,
            link,
            wake: Arc::new(wake),
            data: Data::new(),
            arriving: Vec::new(),
            part: None,
            jobs,
            heard_ns: now_ns,
            said_ns: now_ns,
            is_member: false,
        })
    }

    fn serve(&mut self, stop: &AtomicBool) -> Result<()> {
        let mut awake_ns = monotonic_ns();
        loop {
            let is_stopped = stop.load(Ordering::Relaxed);
            ensure_fault!(Interrupted, !is_stopped, "stopped; the coordinator counts this worker as lost");
            self.link.send().map_err(|error| self.explained(error))?;
            self.wait()?;
            let lines = self.link.receive().map_err(|error| self.explained(error))?;
            if self.link.has_heard() {
                self.heard_ns = monotonic_ns();
                if self.is_member && self.heard_ns.saturating_sub(self.said_ns) >= WORD_EVERY_NS {
                    // A question may stand behind a long line.
                    self.said_ns = self.heard_ns;
                    self.link.say(&FromWorker::Here)?;
                }
            }
            for line in lines {
                let message = serde_json::from_str(&line).context("the coordinator says what none says")?;
                if !self.carry_out(message)? {
                    return Ok(());
                }
            }
            let now_ns = monotonic_ns();
            let slept_ns = now_ns - std::mem::replace(&mut awake_ns, now_ns);
            if slept_ns > ASLEEP_NS {
                // Stopped and let go on: what was said meanwhile is still to be heard.
                self.heard_ns = now_ns;
            }
            if now_ns.saturating_sub(self.heard_ns) >= SILENCE_NS_MAX {
                let error = anyhow!("the coordinator has been silent for 5 s; it ended, or the network between is cut");
                return Err(Fault::Unreachable.wrap(error));
            }
            self.tell()?;
        }
    }

    /// Why the link broke, as far as that can be known.
    fn explained(&self, error: anyhow::Error) -> anyhow::Error {
        let is_other = error.downcast_ref::<rustls::Error>().is_some();
        let error = match (self.is_member, is_other) {
            (true, _) => error.context("the coordinator is gone"),
            (false, true) => error.context(format!(
                "who answers at {} is not the coordinator of this token file: another load's, or something else; give \
                 the token file of the load that listens there",
                self.setting.join
            )),
            (false, false) => error.context(format!(
                "the coordinator at {} ended before it let this worker in, or does not know the secret of this token \
                 file",
                self.setting.join
            )),
        };
        Fault::Unreachable.wrap(error)
    }

    fn wait(&self) -> Result<()> {
        let is_asked = self.part.as_ref().is_some_and(|part| part.is_asked);
        let timeout = Timespec { tv_sec: 0, tv_nsec: (if is_asked { WAIT_NS_ASKED } else { WAIT_NS_MAX }) as _ };
        let link = PollFd::from_borrowed_fd(self.link.socket(), self.link.waits_for());
        match poll(&mut [link, PollFd::new(&*self.wake, PollFlags::IN)], Some(&timeout)) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error).context("wait for the coordinator"),
        }
        // Read or not: it was there to wake up.
        let _ = rustix::io::read(&*self.wake, &mut [0; 8]);
        Ok(())
    }

    /// Does what the coordinator says. Answers whether it goes on.
    fn carry_out(&mut self, message: ToWorker) -> Result<bool> {
        match message {
            ToWorker::Welcome { .. } => self.is_member = true,
            ToWorker::Refused { reason, may_ask_again } => {
                let fault = if may_ask_again { Fault::Unreachable } else { Fault::Usage };
                return Err(anyhow!("the coordinator refuses this worker: {reason}")).or_fault(fault);
            }
            ToWorker::Ping { number } => {
                self.said_ns = monotonic_ns();
                self.link.say(&FromWorker::Pong { number, at_ns: self.said_ns })?;
                self.link.send()?;
            }
            ToWorker::Route { to } => {
                let ip = address_towards(to).with_context(|| format!("there is no way from here to {to}"))?;
                self.link.say(&FromWorker::ConnectsFrom { ip })?;
            }
            ToWorker::Look(look) => {
                let observer = self.setting.observer.as_ref().context("this worker was started without --cpu-of");
                let answer =
                    observer.and_then(|observer| (observer.borrow_mut())(look)).map_err(|error| format!("{error:#}"));
                self.link.say(&FromWorker::Seen(answer))?;
            }
            ToWorker::Load(load) => self.prepare(load)?,
            ToWorker::Data { hash, bytes, is_last } => self.take(hash, &bytes, is_last)?,
            ToWorker::Begin { at_ns } => {
                if let Some(begin) = self.part.as_mut().and_then(|part| part.begin.take()) {
                    // Loops that ended by themselves have told.
                    let _ = begin.send(at_ns);
                }
            }
            ToWorker::Ask => {
                if let Some(part) = &mut self.part
                    && let Some(watcher) = &part.watcher
                {
                    watcher.ask();
                    part.is_asked = true;
                }
            }
            ToWorker::Stop => {
                if let Some(part) = &mut self.part {
                    part.stop.store(true, Ordering::Relaxed);
                    part.begin = None;
                    if part.events.is_none() {
                        self.part = None;
                        self.refuse("stopped before it began")?;
                    }
                }
            }
            ToWorker::Bye => return Ok(false),
        }
        Ok(true)
    }

    fn refuse(&mut self, message: &str) -> Result<()> {
        self.link.say(&FromWorker::Reply(Reply::Error { message: message.to_owned(), fault: None }))
    }

    fn prepare(&mut self, load: Box<LoadPlan>) -> Result<()> {
        self.arriving.clear();
        let missing: Vec<String> = load.packed.named().filter(|hash| !self.data.contains_key(*hash)).cloned().collect();
        if !missing.is_empty() {
            self.link.say(&FromWorker::Wants { hashes: missing.clone() })?;
        }
        let stop = Arc::new(AtomicBool::new(false));
        self.part = Some(Part { load, missing, stop, begin: None, events: None, watcher: None, is_asked: false });
        self.begin_when_complete();
        Ok(())
    }

    fn take(&mut self, hash: String, bytes: &str, is_last: bool) -> Result<()> {
        let bytes = STANDARD.decode(bytes).context("data of the coordinator are damaged")?;
        let held = |data: &Data| data.values().map(|data| data.len()).sum::<usize>();
        if held(&self.data) + self.arriving.len() + bytes.len() > DATA_BYTES_MAX {
            // What earlier loads had.
            let load = self.part.as_ref().map(|part| &part.load.packed);
            self.data.retain(|hash, _| load.is_some_and(|load| load.named().any(|named| named == hash)));
        }
        ensure!(
            held(&self.data) + self.arriving.len() + bytes.len() <= DATA_BYTES_MAX,
            "more data come than a worker takes"
        );
        self.arriving.extend_from_slice(&bytes);
        if is_last {
            let data = std::mem::take(&mut self.arriving);
            ensure!(hash_of(&data) == hash, "data of the coordinator are damaged");
            if let Some(part) = &mut self.part {
                part.missing.retain(|missing| *missing != hash);
                self.data.insert(hash, data.into());
            }
            self.begin_when_complete();
        }
        Ok(())
    }

    fn begin_when_complete(&mut self) {
        let Some(part) = self.part.as_mut().filter(|part| part.missing.is_empty() && part.events.is_none()) else {
            return;
        };
        let (watcher, watched) = match part.load.watched {
            true => {
                let (watcher, watched) = watch(part.load.latencies, self.setting.loops.count());
                (Some(watcher), watched)
            }
            false => (None, Vec::new()),
        };
        let (begin, begun) = channel();
        let (tell, events) = channel();
        (part.watcher, part.begin, part.events) = (watcher, Some(begin), Some(events));
        let (load, data, stop) = (part.load.clone(), self.data.clone(), Arc::clone(&part.stop));
        let (loops, wake) = (self.setting.loops.clone(), Arc::clone(&self.wake));
        let allowed = self.setting.may_load.clone();
        let job = Box::new(move |kept: &mut Kept| {
            let ready = || {
                say(&tell, &wake, Event::Ready);
                begun.recv().ok()
            };
            let run = || -> Result<_> {
                // Names are looked up here: the coordinator is answered all the same while that takes its time.
                let Kept { unpacker, stores, permitted } = kept;
                may_load(&load, &allowed, permitted)?;
                let plan = unpacker.unpack(&load.packed, &data, None)?;
                drop(data);
                // `total` is that of all loops of all workers.
                let of_each = plan.connections.total.div_ceil(load.loops.max(1));
                open_files::make_room_for(of_each.saturating_mul(loops.count() as u32))?;
                let loops = loops.among(load.before_count, load.loops)?;
                Ok(stores.run(&loops, &plan, &stop, watched, load.held.as_ref(), ready)?)
            };
            say(&tell, &wake, Event::Ended(run()));
        });
        // One that has panicked is gone, with what tells of it.
        let _ = self.jobs.send(job);
    }

    fn tell(&mut self) -> Result<()> {
        let Some(part) = &mut self.part else { return Ok(()) };
        if part.is_asked
            && let Some((snapshot, latencies)) = part.watcher.as_mut().and_then(Watcher::recorded)
        {
            part.is_asked = false;
            self.link.say(&progress(snapshot, latencies))?;
        }
        loop {
            match self.part.as_ref().and_then(|part| part.events.as_ref()).map(Receiver::try_recv) {
                Some(Ok(Event::Ready)) => self.link.say(&FromWorker::Reply(Reply::Ready(Makers::default())))?,
                Some(Ok(Event::Ended(result))) => {
                    self.part = None;
                    match result {
                        Ok(outcomes) => {
                            for (name, outcome) in outcomes {
                                let (outcome, sources) = (Box::new(outcome), Vec::new());
                                self.link.say(&FromWorker::Reply(Reply::Outcome { name, outcome, sources }))?;
                            }
                        }
                        Err(error) => self.refuse(&format!("{error:#}"))?,
                    }
                }
                Some(Err(TryRecvError::Disconnected)) => {
                    self.part = None;
                    self.refuse("its loops failed; its own output says why")?;
                }
                None | Some(Err(TryRecvError::Empty)) => return Ok(()),
            }
        }
    }
}

fn say(events: &Sender<Event>, wake: &OwnedFd, event: Event) {
    // Nobody listens any more when the worker ends.
    let _ = events.send(event);
    let _ = rustix::io::write(wake, &1u64.to_ne_bytes());
}

fn progress(snapshot: Snapshot, latencies: RecordedLatencies) -> FromWorker {
    FromWorker::Progress { snapshot: Box::new(snapshot), latencies: Box::new(latencies) }
}

/// The address of this machine from which it would connect there. Nothing is sent for that.
fn address_towards(to: SocketAddr) -> std::io::Result<IpAddr> {
    let any = if to.is_ipv4() { IpAddr::V4(Ipv4Addr::UNSPECIFIED) } else { IpAddr::V6(Ipv6Addr::UNSPECIFIED) };
    let socket = UdpSocket::bind((any, 0))?;
    socket.connect(to)?;
    Ok(socket.local_addr()?.ip())
}

/// Whether the worker's own list lets it make this load: every address is this machine or one of a host on the list,
/// found from here; those found before are `permitted`. What the coordinator calls the host counts for nothing.
fn may_load(load: &LoadPlan, allowed: &[String], permitted: &mut BTreeSet<IpAddr>) -> Result<()> {
    let Plan { route, target, .. } = &load.packed.plan;
    ensure!(route.unix_path.is_none(), "a worker connects over TCP, not to Unix sockets");
    let addresses: Vec<SocketAddr> = route.servers.iter().copied().chain([target.address]).collect();
    let beyond: Vec<SocketAddr> = addresses.into_iter().filter(|address| !is_loopback(address.ip())).collect();
    let is_lawless = load.packed.tls.as_ref().is_some_and(|tls| tls.effort == Effort::Floor || tls.small_rsa_keys);
    ensure!(beyond.is_empty() || !is_lawless, "effort floor and small RSA keys are for a worker's own machine only");
    if beyond.iter().all(|address| permitted.contains(&address.ip())) {
        return Ok(());
    }
    let known: Vec<_> = allowed
        .iter()
        .flat_map(|host| (host.as_str(), 0).to_socket_addrs().into_iter().flatten())
        .map(|found| found.ip())
        .collect();
    for address in beyond {
        ensure!(
            known.contains(&address.ip()),
            "this worker may not load {} ({}): a load test of a server whose owner has not agreed is an attack; if it \
             may, start the worker with --may-load {}",
            target.host,
            address.ip(),
            address.ip()
        );
        permitted.insert(address.ip());
    }
    Ok(())
}
