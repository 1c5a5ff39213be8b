//! The method `counting`: the same servers and modes under valgrind's callgrind, doing the same work one connection
//! after the other. What differs is instructions in user space, which repeat where times do not.

use std::collections::BTreeMap;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use anyhow::{Context, Result};
use tlsdyno_base::fault::{Fault, OrFault};
use tlsdyno_base::interrupt;
use tlsdyno_record::model::{Experiment, Load};
use tlsdyno_record::store::{Block, Journal, KindPart, Record, Warning};
use tlsdyno_runner::run::cpus::Cpus;
use tlsdyno_runner::run::load_process::{LoadProcess, Sessions};
use tlsdyno_runner::run::manifest;
use tlsdyno_runner::run::mode_check::ModeCheck;
use tlsdyno_runner::run::observer::Observer;
use tlsdyno_runner::run::preflight::start_and_check;
use tlsdyno_runner::run::runner::{Plan, Subject};
use tlsdyno_runner::run::schedule::{Schedule, Work, pieces, requests_of_users};
use tlsdyno_runner::run::testbed::Testbed;
use tlsdyno_runner::run::verify::{death, is_dead, reuse_warning, verify_requests};
use tlsdyno_servers::Instance;
use tlsdyno_servers::callgrind::{ByFunction, Callgrind, Calls};

/// Requests of a block. A warm-up is one block: the first handshakes of each process fetch and allocate what later ones
/// reuse.
const BLOCK_REQUESTS: u64 = 32;
/// Number of rounds. Their spread shows how well the counts repeat, which more rounds would not improve.
const ROUNDS: u32 = 2;
/// Timeout of a request, milliseconds.
const TIMEOUT_MS: u64 = 60_000;

/// Configurations under callgrind.
pub struct Counting {
    load: LoadProcess,
    testbed: Testbed,
    /// By configuration, for those with a server of their own.
    callgrind: BTreeMap<usize, Callgrind>,
    check: ModeCheck,
    work: Work,
    /// Calls that renew blinding values, over all blocks and configurations.
    renewals: Calls,
}

impl Counting {
    /// Fails with the remedy where nothing can be counted.
    pub fn require() -> Result<()> {
        Callgrind::require()
    }

    /// Starts all servers under callgrind. Configurations in the record are counted as they are; if it has none, they
    /// are checked and added.
    pub fn start(
        experiment: &Experiment,
        cpus: Cpus,
        record: &mut Record,
        stop: &AtomicBool,
        observer: &mut dyn Observer,
    ) -> Result<Counting> {
        let one_by_one = Load { connections: 1, per_user: 1, timeout_ms: TIMEOUT_MS, ..experiment.load.clone() };
        let under = Experiment { load: one_by_one, ..experiment.clone() };
        let mut testbed = Testbed::prepare(&under, cpus, &mut |text| observer.step(text))?;
        // Under valgrind all of it takes long.
        testbed.prepared_until = None;
        let mut callgrind = BTreeMap::new();
        for (index, server) in testbed.servers.iter_mut().enumerate().filter(|(_, server)| server.host.is_none()) {
            let own = Callgrind::new()?;
            server.run_under(own.command(&[]), own.folder.path());
            callgrind.insert(index, own);
        }
        if record.configurations.is_empty() {
            record.kind_part = KindPart::from(experiment.without_secrets());
            start_and_check(&mut testbed, record, stop, observer)?;
            manifest::describe(&mut record.manifest, &mut testbed);
        } else {
            for index in (0..testbed.servers.len()).filter(|index| record.configurations[*index].valid) {
                interrupt::check(stop)?;
                observer.step(&format!("starting under callgrind: {}", testbed.servers[index].model.name));
                testbed.activate(index)?;
                // The sessions of the timed servers mean nothing to these.
                testbed.make_universal(index)?;
            }
        }
        let load = testbed.start_load(|index| record.configurations[index].valid)?;
        let pieces = pieces(&requests_of_users(&testbed.site.workload), BLOCK_REQUESTS, 1);
        let piece = pieces.into_iter().next().context("the workload has no requests")?;
        let (check, renewals) = (ModeCheck::default(), Calls::default());
        Ok(Counting { load, testbed, callgrind, check, work: piece.into(), renewals })
    }

    /// Work by function since the last call, once the server of this configuration has come to rest.
    fn dump(&mut self, index: usize) -> Result<ByFunction> {
        let host = self.testbed.host(index);
        let name = self.testbed.servers[host].model.name.clone();
        let callgrind = self.callgrind.get(&host).with_context(|| format!("\"{name}\" is not under callgrind"))?;
        let instance = self.testbed.instance(index);
        let instance: &Instance = instance.with_context(|| format!("the server of \"{name}\" does not run"))?;
        let executed = callgrind
            .dump(instance)
            .with_context(|| format!("count the instructions of \"{name}\""))
            .or_fault(Fault::Server)?;
        self.renewals.add(executed.renewals());
        Ok(executed)
    }
}

impl Subject for Counting {
    fn warm_up(&self, _index: usize, _factor: u32) -> Work {
        self.work.clone()
    }

    fn plan(&mut self, seconds_per_request: &[f64], _left: Duration) -> Plan {
        let requests_per_block = self.work.piece.requests;
        let round = Duration::from_secs_f64(seconds_per_request.iter().sum::<f64>() * requests_per_block as f64);
        let schedule = Schedule { requests_per_block, rounds_expected: ROUNDS, ..Schedule::of_rounds(round, round) };
        Plan { rounds_most: Some(ROUNDS), ..Plan::of(schedule, vec![self.work.clone()]) }
    }

    fn ready(&mut self, index: usize, _turn: Option<u32>) -> Result<()> {
        self.testbed.activate(index).map(drop)
    }

    fn block(&mut self, index: usize, work: &Work, _journal: &mut Journal) -> Result<Block> {
        // What was executed until here belongs to nobody.
        self.dump(index)?;
        let host = self.testbed.host(index);
        let before = self.testbed.servers[host].instruments.counted()?;
        let outcome = self.load.run(index, self.testbed.address(index), work, Sessions::New)?;
        let name = &self.testbed.servers[index].model.name;
        if is_dead(&outcome) {
            return Err(death(&name.clone(), &outcome, &self.log_tail(index)));
        }
        let executed = self.dump(index)?;
        let instructions = executed.with_renewals_evened(self.renewals);
        let after = self.testbed.servers[host].instruments.counted()?;
        let mode = self.check.fault((index, &self.testbed.servers[index]), &outcome, &before, &after);
        let asked = verify_requests(&outcome, work.piece.requests);
        let mut warnings = asked.warnings;
        warnings.extend(mode.map(|what| Warning::new("counters", what).with_remedy("This block is left out")));
        // A connection that had no session to offer was counted with a full handshake.
        if self.testbed.can_resume(index) && outcome.handshakes.resumed_offered < outcome.handshakes.resumed_intended {
            warnings.push(reuse_warning(&outcome));
        }
        let valid = warnings.is_empty();
        Ok(Block { instructions: Some(instructions), valid, warnings, ..Block::from(&outcome) })
    }

    fn leave_out(&mut self, index: usize) -> bool {
        self.testbed.stop(index);
        true
    }

    fn log_tail(&mut self, index: usize) -> String {
        self.testbed.log_tail(index)
    }
}
