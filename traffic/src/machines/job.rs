//! The load process of an experiment (`load::job`), whose load workers make where the job says so: then it is their
//! coordinator, and attends to them while the runner has nothing for it to do.

use std::io::{self, BufReader, Read};
use std::net::{IpAddr, SocketAddr};
use std::os::fd::AsFd;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::{Context, Result, ensure};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Signal, set_parent_process_death_signal};
use tlsdyno_engine::load::{Part, Plan};

use super::carried::Packer;
use super::crew::Workers;
use super::gather::gather;
use crate::load::job::{self, Held, Others, Prepared};
use crate::load::record;
use crate::load::threads::Crew;
use tlsdyno_base::fault::{Fault, OrFault, fault_of};
use tlsdyno_record::model::job::{Job, OutcomeRecord, Reply};
use tlsdyno_record::model::{OnLoss, WorkersModel};

/// Reads the job, and answers the runner's commands until there are no more.
///
/// # Errors
/// The job cannot be done, its workers do not come, or the runner is gone.
pub fn serve(path: &Path, stop: &AtomicBool) -> Result<()> {
    let job = job::read(path).or_fault(Fault::Input)?;
    // The runner killed in mid-block leaves nobody to load for; the end of standard input is only seen between blocks.
    // Workers, and what starts them, are ended in good order all the same.
    let signal = if job.workers.is_some() { Signal::TERM } else { Signal::KILL };
    set_parent_process_death_signal(Some(signal)).context("failed to tie the load process to its runner")?;
    let mut prepared = Prepared::new(&job).or_fault(Fault::Input)?;
    let (input, output) = (io::stdin(), io::stdout());
    let Some(model) = &job.workers else {
        return job::serve(&mut prepared, None, input.lock(), output.lock(), stop);
    };
    match serve_by_workers(&job, model, &mut prepared, stop) {
        Ok(()) => Ok(()),
        // The runner tells it, with whose fault it is.
        Err(error) => job::say(&mut output.lock(), &Reply::of_error(&error)),
    }
}

fn serve_by_workers(job: &Job, model: &WorkersModel, prepared: &mut Prepared, stop: &AtomicBool) -> Result<()> {
    let target = job.targets.first().context("the job has no target")?.address;
    // What the user has this tool start is the user's to load.
    let may_load = [target.ip().to_string()];
    let gathered = gather(model, Packer::default(), target, &may_load, None, stop)?;
    let workers = &gathered.workers;
    let trip_ns = workers.way_to(target)?;
    let far = Far { workers, target, trip_ns, on_loss: model.on_loss };
    let input = Attended { workers, stop };
    job::serve(prepared, Some(&far), BufReader::new(input), io::stdout().lock(), stop)
}

/// Workers that make the load.
struct Far<'a> {
    workers: &'a Workers,
    /// Where the servers listen.
    target: SocketAddr,
    trip_ns: u64,
    on_loss: OnLoss,
}

impl Others for Far<'_> {
    fn sources(&self) -> Vec<IpAddr> {
        self.workers.sources(self.target).into_iter().collect()
    }

    fn trip_ns(&self) -> u64 {
        self.trip_ns
    }

    fn loops(&self) -> u32 {
        self.workers.loops()
    }

    fn run(
        &self,
        plan: &Plan,
        stop: &AtomicBool,
        held: Option<Held>,
        begun: &mut dyn FnMut(u64),
    ) -> Result<OutcomeRecord> {
        let mut is_told = false;
        let mut look = |begins_ns: Option<u64>| {
            if let Some(at_ns) = begins_ns.filter(|_| !std::mem::replace(&mut is_told, true)) {
                begun(at_ns);
            }
            has_hung_up()
        };
        let outcome = loop {
            let loops = self.workers.loops();
            let run = self.workers.run_holding(plan, stop, held.clone(), &mut look);
            // One was lost while all got ready: the others do it.
            let goes_on = self.on_loss == OnLoss::GoOn && (1..loops).contains(&self.workers.loops());
            match run {
                Err(error) if goes_on && fault_of(&error) == Some(Fault::Unreachable) => {}
                run => break run?,
            }
        };
        let losses: Vec<String> = self.workers.losses().iter().map(ToString::to_string).collect();
        ensure!(losses.is_empty() || self.on_loss == OnLoss::GoOn, "{}", losses.join("; "));
        let busy = |part: &Part| part.client_cpu_ns as f64 / part.elapsed_ns.max(1) as f64;
        let busy_fraction = outcome.parts.iter().map(busy).collect();
        let sources = if losses.is_empty() { Vec::new() } else { self.sources() };
        Ok(OutcomeRecord { busy_fraction, losses, sources, ..record::record(&outcome)? })
    }
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
