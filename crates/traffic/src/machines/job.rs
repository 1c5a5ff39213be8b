//! The load process of an experiment (contract: `model::job`). It makes the load, or has workers make it: then it is
//! their coordinator, and attends to them while the runner has nothing for it to do.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::fd::AsFd;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::{Context, Result, ensure};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Signal, set_parent_process_death_signal};
use tlsdyno_base::fault::{Fault, OrFault, fault_of};
use tlsdyno_base::{affinity, open_files};
use tlsdyno_engine::load::{LoadTarget, Outcome, Plan, Until};
use tlsdyno_record::model::job::{Job, Makers, Reply, Run};
use tlsdyno_record::model::packed::Data;
use tlsdyno_record::model::{Network, OnLoss, WorkersModel};
use tlsdyno_sys::monotonic_ns;

use super::carried::{Packer, Unpacker};
use super::crew::Workers;
use super::gather::{arguments_of_worker, gather};
use crate::load::client;
use crate::load::threads::{Loops, Stores};
use crate::network::{self, Relay};

const JOB_BYTES_MAX: u64 = 1 << 30;

/// Reads the job, and answers the runner's commands until there are no more.
pub fn serve(path: &Path, stop: &AtomicBool) -> Result<()> {
    let job = read(path).or_fault(Fault::Input)?;
    // The runner killed in mid-block leaves nobody to load for; the end of standard input is only seen between blocks.
    // Workers, and what starts them, are ended in good order all the same.
    let signal = if job.workers.is_some() { Signal::TERM } else { Signal::KILL };
    set_parent_process_death_signal(Some(signal)).context("failed to tie the load process to its runner")?;
    let plans = plans(&job).or_fault(Fault::Input)?;
    let mut output = io::stdout().lock();
    let Some(model) = &job.workers else {
        let relay = match job.network.map(|network| relay_to(&network)).transpose() {
            Ok(relay) => relay,
            Err(error) => return say(&mut output, &Reply::of_error(&error)),
        };
        return serve_here(&plans, relay.as_ref(), stop, io::stdin().lock(), &mut output);
    };
    // The runner is told what fails, with whose fault it is.
    serve_by_workers(&plans, model, stop, &mut output).or_else(|error| say(&mut output, &Reply::of_error(&error)))
}

fn read(path: &Path) -> Result<Job> {
    let text = tlsdyno_base::input::read(path, JOB_BYTES_MAX)?;
    serde_json::from_slice(&text).with_context(|| format!("the job file {} is malformed", path.display()))
}

fn plans(job: &Job) -> Result<Vec<Plan>> {
    let data = job.data.iter().map(|(hash, text)| Ok((hash.clone(), STANDARD.decode(text)?.into())));
    let data: Data = data.collect::<Result<_>>().context("the data of the job are damaged")?;
    let certificate = client::certificate(&job.client)?.map(Arc::new);
    let mut unpacker = Unpacker::default();
    let plans = job.plans.iter().map(|plan| unpacker.unpack(plan, &data, certificate.as_ref()));
    let plans: Vec<Plan> = plans.collect::<Result<_>>()?;
    open_files::make_room_for(plans.iter().map(|plan| plan.connections.total).max().unwrap_or(0))?;
    Ok(plans)
}

fn plan_of(plans: &[Plan], run: &Run) -> Result<Plan> {
    let plan = plans.get(run.plan_number).with_context(|| format!("the job has no plan {}", run.plan_number))?;
    ensure!(!run.users.is_empty(), "the block has no users");
    let until = match run.until {
        Until::Elapsed(for_ns) => Until::Elapsed(plan.lead_in_ns + for_ns),
        until => until,
    };
    let target = LoadTarget { address: run.address, ..plan.target.clone() };
    Ok(Plan { target, users: run.users.clone(), until, pacing: plan.pacing.seeded(run.seed), ..plan.clone() })
}

/// Answers each command by what `make` makes of its plan, until the input ends. `make` tells when the block begins.
fn answer(
    plans: &[Plan],
    input: impl BufRead,
    output: &mut impl Write,
    mut make: impl FnMut(&Plan, Run, &mut dyn FnMut(u64)) -> Result<Reply>,
) -> Result<()> {
    for line in input.lines() {
        let line = line.context("failed to read a command")?;
        let mut reply = || {
            let run: Run = serde_json::from_str(&line).with_context(|| format!("`{line}` is no command"))?;
            let plan = plan_of(plans, &run)?;
            let mut begun = |at_ns| {
                if plan.lead_in_ns > 0 {
                    // A runner that is gone is noticed when it is told what came of it.
                    say(output, &Reply::Begun { at_ns }).unwrap_or(());
                }
            };
            make(&plan, run, &mut begun)
        };
        let reply = reply().unwrap_or_else(|error| Reply::of_error(&error));
        say(output, &reply)?;
    }
    Ok(())
}

fn say(output: &mut impl Write, reply: &Reply) -> Result<()> {
    let mut line = serde_json::to_vec(reply).context("failed to encode a reply")?;
    line.push(b'\n');
    output.write_all(&line).and_then(|()| output.flush()).context("failed to write a reply")
}

/// A network between this thread, which moves to where its clients are, and the servers.
fn relay_to(network: &Network) -> Result<Relay> {
    // The runner has put this process on the load's CPU.
    let cpu = affinity::allowed().first().copied().unwrap_or(0);
    let relay = network::open(network, cpu)?;
    relay.client.enter().context("enter the clients' network namespace")?;
    Ok(relay)
}

/// Makes the load itself, through the network of this relay if there is one.
fn serve_here(
    plans: &[Plan],
    relay: Option<&Relay>,
    stop: &AtomicBool,
    input: impl BufRead,
    output: &mut impl Write,
) -> Result<()> {
    say(output, &Reply::Ready(Makers::default()))?;
    let mut stores = Stores::default();
    answer(plans, input, output, |plan, run, begun| {
        let begin = || {
            let now_ns = monotonic_ns();
            begun(now_ns);
            Some(now_ns)
        };
        let before = relay.map(Relay::counts);
        let mut outcomes = stores.run(&Loops::one(), plan, stop, Vec::new(), run.held.as_ref(), begin)?;
        let (_, outcome) = outcomes.pop().context("the loop told nothing")?;
        let relayed = relay.zip(before).map(|(relay, before)| relay.since(before));
        let outcome = Box::new(Outcome { relayed, ..outcome });
        Ok(Reply::Outcome { name: String::new(), outcome, sources: Vec::new() })
    })
}

fn serve_by_workers(plans: &[Plan], model: &WorkersModel, stop: &AtomicBool, output: &mut impl Write) -> Result<()> {
    let target = plans.first().context("the job has no plan")?.target.address;
    // What the user has this tool start is the user's to load.
    let may_load = [target.ip().to_string()];
    let gathered = gather(model, Packer::default(), target, &arguments_of_worker(&may_load, None), stop)?;
    let workers = &gathered.workers;
    let trip_ns = workers.way_to(target)?;
    let sources = || workers.sources(target).into_iter().collect::<Vec<_>>();
    say(output, &Reply::Ready(Makers { sources: sources(), trip_ns, loops: workers.loops() }))?;
    let input = BufReader::new(Attended { workers, stop });
    answer(plans, input, output, |plan, run, begun| {
        let outcome = run_by(workers, plan, &run, model.on_loss, stop, begun)?;
        let sources = if outcome.losses.is_empty() { Vec::new() } else { sources() };
        Ok(Reply::Outcome { name: String::new(), outcome: Box::new(outcome), sources })
    })
}

fn run_by(
    workers: &Workers,
    plan: &Plan,
    run: &Run,
    on_loss: OnLoss,
    stop: &AtomicBool,
    begun: &mut dyn FnMut(u64),
) -> Result<Outcome> {
    let mut is_told = false;
    let mut look = |begins_ns: Option<u64>| {
        if let Some(at_ns) = begins_ns.filter(|_| !std::mem::replace(&mut is_told, true)) {
            begun(at_ns);
        }
        has_hung_up()
    };
    let outcome = loop {
        let loops = workers.loops();
        let outcome = workers.carry_out(plan, stop, Vec::new(), run.held.clone(), &mut look);
        // One was lost while all got ready: the others do it.
        let goes_on = on_loss == OnLoss::GoOn && (1..loops).contains(&workers.loops());
        match outcome {
            Err(error) if goes_on && fault_of(&error) == Some(Fault::Unreachable) => {}
            outcome => break outcome?,
        }
    };
    ensure!(outcome.losses.is_empty() || on_loss == OnLoss::GoOn, "{}", outcome.losses.join("; "));
    Ok(outcome)
}

/// Whether the runner has closed its end of standard input: it wants no block any more, not even the one under way.
fn has_hung_up() -> bool {
    let input = io::stdin();
    let mut waited = [PollFd::new(&input, PollFlags::empty())];
    let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
    poll(&mut waited, Some(&at_once)).is_ok() && waited[0].revents().contains(PollFlags::HUP)
}

/// Standard input, whose reader attends to the workers until there is something. It ends with `stop`.
struct Attended<'a> {
    workers: &'a Workers,
    stop: &'a AtomicBool,
}

impl Read for Attended<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let input = io::stdin();
        self.workers.attend(input.as_fd(), self.stop).map_err(io::Error::other)?;
        if self.stop.load(Ordering::Relaxed) {
            return Ok(0);
        }
        rustix::io::read(&input, buffer).map_err(io::Error::from)
    }
}

#[cfg(test)]
mod tests {
    use tlsdyno_engine::load::{Connections, ErrorKind, Expect, Object, Request, User, Workload};

    use super::*;

    #[test]
    fn commands_are_answered_line_by_line_and_mistakes_do_not_end_it() {
        let object = Object {
            method: "GET".to_owned(),
            path: "/1".to_owned(),
            headers: String::new(),
            body_bytes: 0,
            expect: Expect::default(),
        };
        let request = Request { object: 0, page_end: true, close_after: false, forget_session: false };
        let users = (0..3).map(|user| User { requests: 2 * user..2 * user + 2 }).collect();
        let workload = Workload { objects: vec![object], requests: vec![request; 6], users, ..Workload::default() };
        let connections = Connections {
            total: 2,
            per_user: 1,
            first_alone: true,
            requests_each: None,
            timeout_ns: 1_000_000_000,
            batch_ns: 0,
        };
        let address = "127.0.0.1:1".parse().unwrap();
        let target = LoadTarget { address, host: "localhost".to_owned(), tls: None, prior_knowledge: false };
        let plans = [Plan::new(target, Arc::new(workload), connections)];
        let command = |plan_number: usize, users: std::ops::Range<u32>, laps: u64| {
            serde_json::to_string(&Run { plan_number, address, users, until: Until::Laps(laps), seed: 0, held: None })
                .unwrap()
        };
        let commands =
            [command(0, 0..2, 1), "nonsense".to_owned(), command(1, 0..2, 1), command(0, 2..4, 1), command(0, 0..2, 3)];
        let mut output = Vec::new();
        serve_here(&plans, None, &AtomicBool::new(false), commands.join("\n").as_bytes(), &mut output).unwrap();
        let replies: Vec<Reply> =
            String::from_utf8(output).unwrap().lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        assert!(matches!(&replies[0], Reply::Ready(makers) if *makers == Makers::default()));
        for (reply, refused) in [(&replies[1], 4), (&replies[5], 12)] {
            let Reply::Outcome { outcome, .. } = reply else { panic!("{reply:?}") };
            assert_eq!(outcome.errors[&ErrorKind::Refused], refused);
        }
        for (reply, word) in replies[2..5].iter().zip(["nonsense", "no plan 1", "users"]) {
            assert!(matches!(reply, Reply::Error { message, .. } if message.contains(word)), "{reply:?}");
        }
        assert_eq!(replies.len(), 6);
    }
}
