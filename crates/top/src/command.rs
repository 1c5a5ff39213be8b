//! `tlsdyno top`.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Result, anyhow};
use tlsdyno_base::choice::positive_percent;
use tlsdyno_base::exit::Exit;
use tlsdyno_base::fault::{Fault, OrFault};
use tlsdyno_base::foreign::{harmless_json, visible};
use tlsdyno_base::{ensure_fault, interrupt, open_files, output};
use tlsdyno_cost::choice::Told;
use tlsdyno_engine::time::Time;
use tlsdyno_packets::Settings;
use tlsdyno_servers::{MappedCode, mapped_code};
use tlsdyno_sys::process_cpu_ns;

use crate::answer::{Answer, OfServer};
use crate::budget::Budget;
use crate::counters::{self, Counters, socket};
use crate::find::{Finder, Group, Listener, Target, name_of};
use crate::kinds::{Kinds, Passed};
use crate::libraries::LIBRARIES;
use crate::metrics::{self, Page, Totals};
use crate::screen::{self, Full, Lines};
use crate::server::{Seen, Server};
use crate::what_if::{self, WhatIfs};

/// Samples are read so often that their rings have room for those of the time between.
const READ_EVERY: Duration = Duration::from_millis(50);
/// Processes that come and go are looked for so often.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// The lines are drawn anew so often, at first a little sooner: they stand there within two seconds of the start.
const DRAW_EVERY: Duration = Duration::from_secs(2);
const FIRST_DRAW: Duration = Duration::from_millis(1_800);
/// Open files that are enough.
const FILES: u64 = 65_536;
/// What is drawn is of so much time.
const WINDOW: Duration = Duration::from_secs(60);

/// What TLS costs the servers that run now, live, with nothing loaded into them
///
/// The kernel notes 99 times in each second of a server's CPU time what it executes. The share of TLS is that of these
/// samples whose stacks lie in the TLS library, and each part is told by the library's own functions. Nothing is
/// written into the server, and no connection is made to it. Samples need root, CAP_PERFMON, or
/// kernel.perf_event_paranoid=1 for servers of the same user.
#[derive(clap::Args, Clone, Debug)]
#[command(after_help = "Examples:
  tlsdyno top
  tlsdyno top --listen :443
  tlsdyno top --pid 4711 --once 60s --json
  tlsdyno top --prometheus 127.0.0.1:9797")]
pub struct Args {
    /// The process that serves, with its children [default: every TLS server of this machine]
    #[arg(long, value_name = "PID", conflicts_with = "listen")]
    pid: Option<u32>,
    /// The processes that listen there, for example :443
    #[arg(long, value_name = "[IP]:PORT")]
    listen: Option<Listener>,
    /// Watch so long, for example 60s, answer and end; without it what is shown is that of the last minute, every two
    /// seconds until Ctrl-C, on a terminal as a screen that q ends
    #[arg(long, value_name = "TIME")]
    once: Option<Time>,
    /// What `tlsdyno cost` measured of this server or one like it tells what another certificate or group would change:
    /// an id as in `tlsdyno list`, `last`, or a file
    #[arg(long, value_name = "RECORD")]
    costs: Option<String>,
    /// Use at most so much of one CPU: if need be, fewer samples are taken and fewer clients followed, which is told
    #[arg(long, value_name = "PERCENT", value_parser = positive_percent)]
    budget: Option<f64>,
    /// Tell which servers the hellos ask for, by name
    #[arg(long, conflicts_with = "prometheus")]
    names: bool,
    /// Read what HAProxy counts itself: hits and handshakes, at the `stats socket` of its configuration; needs no root
    #[arg(long, value_name = "unix:PATH", value_parser = socket, conflicts_with = "prometheus")]
    counters: Option<PathBuf>,
    /// Print a JSON object (docs/FORMAT.md) instead of text, in a line of its own unless it is --once
    #[arg(long)]
    json: bool,
    /// Serve metrics for Prometheus there until Ctrl-C, and show nothing
    #[arg(long, value_name = "ADDRESS:PORT", conflicts_with_all = ["once", "json"])]
    prometheus: Option<SocketAddr>,
    /// Let other machines ask for the metrics too: whoever reaches the address sees which servers run, and their load
    #[arg(long, requires = "prometheus")]
    beyond_loopback: bool,
}

/// Runs it.
///
/// # Errors
/// Nobody serves TLS there, or the kernel lets nobody sample.
pub fn run(args: &Args) -> Result<Exit> {
    let began = Instant::now();
    ensure_fault!(Usage, args.once.is_none_or(|time| time.0 >= LOOK_EVERY), "--once needs a second at least");
    let stop = interrupt::flag(Exit::Interrupted as i32)?;
    // Each thread that is sampled has a descriptor, or one for each CPU.
    open_files::raise_to(open_files::most().min(FILES))?;
    let target = match (args.pid, args.listen) {
        (Some(pid), _) => Target::Process(pid),
        (None, Some(listener)) => Target::Listener(listener),
        (None, None) => Target::All,
    };
    let told = args.costs.as_deref().map(what_if::costs).transpose()?;
    let window = args.once.is_none().then_some(WINDOW);
    let kinds = Kinds::new(window, Settings { keeps_names: args.names, ..Settings::default() });
    let mut watch = Watch::begin(target, kinds, told, args.counters.is_some())?;
    watch.budget = Budget::new(args.budget);
    watch.counters =
        args.counters.clone().map(|at| Counters::of(at, window)).transpose().or_fault(Fault::Unreachable)?;
    if let Some(time) = args.once {
        let titles = watch.servers.iter().map(screen::titled);
        let titles: Vec<String> = titles.chain(watch.alone.is_some().then(|| "counters alone".to_owned())).collect();
        tell!("tlsdyno: watches {} for {} s", titles.join(", "), time.0.as_secs());
    }
    let serve = |at| Page::serve(at, args.beyond_loopback, Arc::clone(&stop));
    let page = args.prometheus.map(serve).transpose()?;
    let opened = watch.servers.first().map(|server| server.root).filter(|_| target != Target::All);
    let full = || Full::open(opened).filter(|_| args.once.is_none() && !args.json);
    let mut output = match page {
        Some(page) => Output::Page(page),
        None => full().map_or_else(Output::lines, Output::Full),
    };
    let end = args.once.map(|time| Instant::now() + time.0);
    let first = if args.prometheus.is_some() { began } else { began + FIRST_DRAW };
    let (mut look, mut draw) = (Instant::now() + LOOK_EVERY, first);
    loop {
        let is_stopped = stop.load(Ordering::Relaxed) || output.quits();
        let is_over = is_stopped || watch.has_ended || end.is_some_and(|end| Instant::now() >= end);
        if is_over || (end.is_none() && Instant::now() >= draw) {
            if is_over && matches!(output, Output::Full(_)) {
                // The terminal is given back, and what was seen last takes the place of the screen.
                output = Output::lines();
            }
            watch.show(&mut output, args, began)?;
            draw = Instant::now() + DRAW_EVERY;
        }
        if watch.has_ended {
            return Err(anyhow!("the process has ended")).or_fault(Fault::Server);
        }
        if is_over {
            // Ctrl-C is how what goes on for ever is ended.
            return Ok(if is_stopped && end.is_some() { Exit::Interrupted } else { Exit::Done });
        }
        let next = Instant::now() + READ_EVERY;
        sleep(end.map_or(next, |end| end.min(next)).saturating_duration_since(Instant::now()));
        watch.read();
        if Instant::now() >= look {
            watch.look()?;
            look = Instant::now() + LOOK_EVERY;
        }
    }
}

/// Where what is seen goes to.
enum Output {
    Page(Page),
    Full(Full),
    Lines(Lines),
}

impl Output {
    fn lines() -> Output {
        Output::Lines(Lines::of_stdout())
    }

    /// A key was pressed that ends it.
    fn quits(&mut self) -> bool {
        if let Output::Full(full) = self { full.look() } else { false }
    }
}

/// The servers that are watched.
struct Watch {
    target: Target,
    finder: Finder,
    servers: Vec<Server>,
    kinds: Kinds,
    /// What a record tells of other certificates and groups.
    told: Option<Told>,
    /// Roots of groups that are not watched, why, where that is worth telling, and what code they had mapped.
    passed_over: BTreeMap<u32, (Option<String>, Vec<MappedCode>)>,
    budget: Budget,
    counters: Option<Counters>,
    /// Nothing but the counters is told, and why.
    alone: Option<String>,
    /// The process that was asked for is gone.
    has_ended: bool,
}

impl Watch {
    /// `has_counters`: no server is needed.
    fn begin(target: Target, kinds: Kinds, told: Option<Told>, has_counters: bool) -> Result<Watch> {
        let (finder, servers, passed_over) = (Finder::new(target), Vec::new(), BTreeMap::new());
        let (budget, counters, alone, has_ended) = (Budget::new(None), None, None, false);
        let mut watch = Watch { target, finder, servers, kinds, told, passed_over, budget, counters, alone, has_ended };
        let groups = watch.finder.look();
        let mut refused = None;
        for group in &groups {
            if let Err(error) = watch.add(group) {
                watch.pass_over(group, &error);
                refused.get_or_insert(error);
            }
        }
        if watch.servers.is_empty() {
            let why = refused.unwrap_or_else(|| nobody(target, groups.first()));
            if !has_counters {
                return Err(why);
            }
            watch.alone = Some(format!("{why:#}"));
        }
        watch.kinds.follow(&watch.servers);
        Ok(watch)
    }

    /// Watches a server more, if it has TLS.
    fn add(&mut self, group: &Group) -> Result<()> {
        match Server::of(group, self.kinds.window)? {
            Some(server) => self.servers.push(server),
            None => drop(self.passed_over.insert(group.root, (None, code_of(group.root)))),
        }
        Ok(())
    }

    /// One of several servers cannot be watched, or no longer.
    fn pass_over(&mut self, group: &Group, error: &anyhow::Error) {
        self.servers.retain(|server| server.root != group.root);
        self.passed_over.insert(group.root, (Some(format!("{error:#}")), code_of(group.root)));
    }

    fn read(&mut self) {
        self.servers.iter_mut().for_each(Server::read);
    }

    /// Follows processes that come and go, and where they listen.
    fn look(&mut self) -> Result<()> {
        self.budget.note(Instant::now(), [process_cpu_ns(std::process::id()).unwrap_or_default(), self.kinds.cpu_ns()]);
        let [one_sample_in, one_client_in] = self.budget.one_in;
        self.kinds.settings.one_client_in_count = one_client_in;
        self.servers.iter_mut().for_each(|server| server.one_sample_in = one_sample_in);
        self.look_for_processes()?;
        self.kinds.follow(&self.servers);
        Ok(())
    }

    fn look_for_processes(&mut self) -> Result<()> {
        let groups = self.finder.look();
        if self.target != Target::All {
            self.has_ended = groups.is_empty() && matches!(self.target, Target::Process(_));
            return match (self.servers.first_mut(), groups.first()) {
                (Some(server), Some(group)) => server.follow(group),
                _ => Ok(()),
            };
        }
        let is_there = |root: u32| groups.iter().any(|group| group.root == root);
        if self.kinds.window.is_some() {
            self.servers.retain(|server| is_there(server.root));
        }
        // Who has executed another program since, or loaded a library, may have TLS now.
        self.passed_over.retain(|root, (_, code)| is_there(*root) && *code == code_of(*root));
        for group in &groups {
            match self.servers.iter_mut().find(|server| server.root == group.root) {
                _ if self.passed_over.contains_key(&group.root) => (),
                Some(server) => {
                    if let Err(error) = server.follow(group) {
                        self.pass_over(group, &error);
                    }
                }
                None => {
                    if let Err(error) = self.add(group) {
                        self.pass_over(group, &error);
                    }
                }
            }
        }
        Ok(())
    }

    /// CPU time of this program with those that read packets, nanoseconds.
    fn own_cpu_ns(&self) -> u64 {
        process_cpu_ns(std::process::id()).unwrap_or_default() + self.kinds.cpu_ns()
    }

    fn show(&mut self, output: &mut Output, args: &Args, began: Instant) -> Result<()> {
        match output {
            Output::Page(page) => page.set(self.metrics()),
            Output::Full(full) => {
                let seen = self.seen();
                let shown = |(server, seen)| screen::shown(server, seen, &self.passed(server, seen));
                full.view.servers = self.servers.iter().zip(&seen).map(shown).collect();
                full.view.history.note(&self.servers, &self.kinds);
                full.view.more = self.counted().lines().into_iter().chain(self.not_watched()).collect();
                full.view.own = screen::own(self.own_cpu_ns(), began.elapsed());
                full.paint();
            }
            Output::Lines(lines) => output::print(self.answer(args.json, args.once.is_some(), lines, began)?)?,
        }
        Ok(())
    }

    /// Why servers are not watched, a line each.
    fn not_watched(&self) -> impl Iterator<Item = String> {
        let alone = self.alone.as_ref().filter(|_| self.servers.is_empty());
        let told = self.passed_over.values().filter_map(|(why, _)| why.as_ref()).filter(move |_| alone.is_none());
        told.chain(alone).map(|why| format!("not watched: {}", visible(why)))
    }

    /// What a server counted, compared with the packets if it is the only one that is watched.
    fn counted(&mut self) -> counters::Told {
        let only = self.servers.first().filter(|_| self.servers.len() == 1);
        let only = only.and_then(|server| self.kinds.of(server).ok()?.complete_of_all());
        self.counters.as_mut().map(|counters| counters.told(only)).unwrap_or_default()
    }

    /// What was seen of each server.
    fn seen(&mut self) -> Vec<Seen> {
        self.kinds.take();
        self.servers.iter_mut().map(Server::seen).collect()
    }

    /// The same since the beginning, as metrics.
    fn metrics(&mut self) -> String {
        let seen = self.seen();
        let totals = self.servers.iter().zip(&seen).map(|(server, seen)| Totals::of(server, seen, &self.kinds));
        let own = [self.not_watched().count() as u64, self.kinds.dropped_packets(), self.own_cpu_ns()];
        metrics::text(totals.collect(), own)
    }

    /// The handshakes that a server had, and what they say of changes. `Err`: why they are not seen.
    fn passed(&self, server: &Server, seen: &Seen) -> Result<(Passed, WhatIfs), String> {
        let passed = self.kinds.of(server)?;
        let what_ifs = WhatIfs::of(seen, &passed, self.told.as_ref());
        Ok((passed, what_ifs))
    }

    /// What was seen, as text or JSON. `is_last`: nothing comes behind it.
    fn answer(&mut self, json: bool, is_last: bool, screen: &Lines, began: Instant) -> Result<String> {
        let seen = self.seen();
        let counters = self.counted();
        let seen = self.servers.iter().zip(&seen);
        let (own_ns, elapsed) = (self.own_cpu_ns(), began.elapsed());
        if json {
            let servers = seen.map(|(server, seen)| OfServer::of(server, seen, self.passed(server, seen))).collect();
            let answer = Answer::of(servers, counters, own_ns, elapsed.as_nanos() as u64);
            let line = || Ok(harmless_json(&serde_json::to_string(&answer)?).into_owned() + "\n");
            return if is_last { output::json_of(&answer) } else { line() };
        }
        let mut lines: Vec<String> = match self.target {
            Target::All => seen.map(|(server, seen)| screen.line(server, seen)).collect(),
            _ => seen.flat_map(|(server, seen)| screen.opened(server, seen, &self.passed(server, seen))).collect(),
        };
        lines.extend(counters.lines());
        lines.extend(self.not_watched());
        lines.push(screen::own(own_ns, elapsed));
        Ok(lines.join("\n") + "\n")
    }
}

fn code_of(pid: u32) -> Vec<MappedCode> {
    mapped_code(pid).unwrap_or_default()
}

/// Why there is nothing to watch. `group`: the processes that were found, without a TLS library.
fn nobody(target: Target, group: Option<&Group>) -> anyhow::Error {
    let known = LIBRARIES.map(|library| library.name).join(", ");
    match (target, group) {
        (Target::All, _) => Fault::Unreachable.wrap(anyhow!(
            "no process on this machine that you may look into listens with a TLS library that is known ({known}); \
             start the server, run this as root, or name its process with --pid"
        )),
        (_, Some(group)) => Fault::Environment.wrap(anyhow!(
            "{} (process {}) has no TLS library that is known: {known}",
            name_of(group.root),
            group.root
        )),
        (Target::Process(pid), None) => Fault::Unreachable.wrap(anyhow!("there is no process {pid}")),
        (Target::Listener(_), None) => Fault::Unreachable.wrap(anyhow!(
            "no process that you may look into listens there; run this as the server's user or as root, or name its \
             process with --pid"
        )),
    }
}
