//! Throughput of primitives by block size (Apostolopoulos et al. 2000, Figure 7): the server is started to see which
//! libcrypto it maps, and ended; then that library is called by a process of its own on the server's CPU, with `openssl
//! speed` in turn.

mod peer;

use std::path::PathBuf;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use tlsdyno_base::fault::{Fault, OrFault};
use tlsdyno_base::interrupt;
use tlsdyno_native::primitives::{Calls, Meter, Opened};
use tlsdyno_record::model::job::Timed;
use tlsdyno_record::model::workload::WorkloadSpec;
use tlsdyno_record::model::{CertificateKind, ConfigurationModel, Experiment};
use tlsdyno_record::store::{Block, Configuration, Journal, KindPart, Record, Warning};
use tlsdyno_runner::kinds::AnyExperiment;
use tlsdyno_runner::run::check::CheckExperiment;
use tlsdyno_runner::run::cpus::{self, Cpus};
use tlsdyno_runner::run::credentials::Credentials;
use tlsdyno_runner::run::manifest;
use tlsdyno_runner::run::observer::Observer;
use tlsdyno_runner::run::runner::{self, Finished, Plan, Subject};
use tlsdyno_runner::run::schedule::{Piece, ROUNDS_MIN, Schedule, Work};
use tlsdyno_runner::run::testbed::Testbed;
use tlsdyno_servers::mapped;

use self::peer::OpensslSpeed;
use crate::primitives::PrimitivesRecord;
use crate::primitives::file::{AlgorithmKind, MeasuredBy as By, PrimitiveCell, PrimitivesExperiment};

/// CPU time of a warm-up and of the look whether the library has a primitive.
const LOOK: Duration = Duration::from_millis(2);
const BLOCK: [Duration; 2] = [Duration::from_millis(5), Duration::from_millis(400)];
/// What a block takes besides: the command, keys, the handshake before records.
const BLOCK_OVERHEAD: Duration = Duration::from_millis(3);

/// Runs it. An error means that measuring did not begin.
pub fn run(experiment: &PrimitivesExperiment, stop: &AtomicBool, observer: &mut dyn Observer) -> Result<Finished> {
    experiment.check().or_fault(Fault::Usage)?;
    let cpus = cpus::choose(&cpus::allowed(), experiment.measure.server_cpu, experiment.measure.load_cpu)?;
    runner::run(&experiment.question, &experiment.measure, stop, observer, |record, observer| {
        Library::start(experiment, cpus, record, stop, observer)
    })
}

struct Library {
    cells: Vec<PrimitiveCell>,
    meter: Meter,
    speed: Option<OpensslSpeed>,
    // Last: the program's file is in its directory.
    _testbed: Testbed,
}

impl Library {
    fn start(
        experiment: &PrimitivesExperiment,
        cpus: Cpus,
        record: &mut Record,
        stop: &AtomicBool,
        observer: &mut dyn Observer,
    ) -> Result<Library> {
        let server = of_server(experiment);
        server.check().or_fault(Fault::Usage)?;
        let mut testbed = Testbed::prepare(&server, cpus, &mut |text| observer.step(text))?;
        observer.step("starting the server, to see which OpenSSL it uses");
        let [libcrypto, libssl] = interrupt::before_measuring(stop, libraries(&mut testbed))?;
        manifest::describe(&mut record.manifest, &mut testbed);
        record.manifest.workload = "calls into libcrypto, no traffic".to_owned();
        record.manifest.effort = String::new();
        record.manifest.certificate = String::new();
        testbed.stop(0);
        let directory = testbed.make_directory("primitives")?;
        // Suites of records have RSA in their names.
        let files = Credentials::create(CertificateKind::Rsa2048, &directory)?.files;
        let opened = Opened { libcrypto: &libcrypto, libssl: &libssl, certificate: &files.chain, key: &files.key };
        let mut meter = Meter::start(&directory, opened, cpus.server).or_fault(Fault::Server)?;
        let speed = match experiment.primitives.check.then(|| OpensslSpeed::of(&libcrypto, &meter.version, cpus.server))
        {
            Some(Ok(speed)) => Some(speed),
            Some(Err(error)) => {
                let what = format!("`openssl speed` was not run beside: {error:#}");
                let remedy = "--no-check says that it is not wanted";
                record.warnings.push(Warning::new("not_checked", what).with_remedy(remedy));
                None
            }
            None => None,
        };
        let cells: Vec<PrimitiveCell> = experiment.cells();
        let wanted = |cell: &PrimitiveCell| cell.by != By::OpensslSpeed || speed.is_some();
        let cells = available(cells.into_iter().filter(wanted).collect(), &mut meter, record)?;
        for cell in &cells {
            record.configurations.push(configuration(cell));
        }
        let text = |path: &PathBuf| path.display().to_string();
        record.kind_part = KindPart::from(PrimitivesRecord {
            experiment: experiment.clone(),
            cells: cells.clone(),
            libcrypto: text(&libcrypto),
            libcrypto_version: meter.version.clone(),
        });
        if let Ok(toml) = experiment.to_toml() {
            record.manifest.server_config.insert("experiment.toml".to_owned(), toml);
        }
        Ok(Library { cells, meter, speed, _testbed: testbed })
    }
}

/// The untouched server, which nobody loads.
fn of_server(experiment: &PrimitivesExperiment) -> Experiment {
    Experiment {
        question: experiment.question.clone(),
        server: experiment.server.clone(),
        workload: WorkloadSpec::Url { path: "/object".to_owned(), bytes: Some(1), users: 1, requests_per_user: 1 },
        measure: experiment.measure.clone(),
        configurations: vec![ConfigurationModel::as_is()],
        ..Experiment::default()
    }
}

/// The libcrypto and the libssl that the server's workers run with.
fn libraries(testbed: &mut Testbed) -> Result<[PathBuf; 2]> {
    testbed.activate(0)?;
    let instance = testbed.instance(0).context("the server was started")?;
    let workers = instance.worker_pids();
    let mut mapped = Vec::new();
    for pid in workers {
        mapped.extend(mapped::mapped_libraries(pid)?);
    }
    let find = |start: &str| {
        let is_it = |name: Option<&std::ffi::OsStr>| name.is_some_and(|name| name.to_string_lossy().starts_with(start));
        let found = mapped.iter().find(|library| is_it(library.path.file_name()));
        let Some(library) = found else {
            bail!(
                "the server maps no {start}.3: it is linked with an OpenSSL of its own, or uses another TLS library; \
                 only the primitives of a shared OpenSSL can be measured"
            )
        };
        ensure!(!library.deleted, "{} was replaced on disk since the server was started", library.path.display());
        Ok(library.path.clone())
    };
    let both = || -> Result<[PathBuf; 2]> { Ok([find("libcrypto.so")?, find("libssl.so")?]) };
    both().or_fault(Fault::Server)
}

/// The cells that the library has; of others a warning says why they are left out.
fn available(cells: Vec<PrimitiveCell>, meter: &mut Meter, record: &mut Record) -> Result<Vec<PrimitiveCell>> {
    let mut missing = Vec::new();
    let mut has = Vec::new();
    for cell in cells {
        if missing.contains(&(cell.algorithm, cell.by)) || missing.contains(&(cell.algorithm, By::Bare)) {
            continue;
        }
        let looked = if cell.by == By::OpensslSpeed { Ok(()) } else { call(meter, &cell, LOOK).map(drop) };
        let Err(error) = looked else {
            has.push(cell);
            continue;
        };
        missing.push((cell.algorithm, cell.by));
        let what = match cell.by {
            By::Record => format!("records of {} are left out: {error:#}", cell.algorithm),
            _ => format!("{} is left out: {error:#}", cell.algorithm),
        };
        let remedy = match cell.algorithm.is_legacy() {
            true => "Install OpenSSL's legacy provider (Debian: openssl-provider-legacy, or with libssl3)",
            false => "--algorithms without it",
        };
        record.warnings.push(Warning::new("primitive_missing", what).with_remedy(remedy));
    }
    ensure_fault!(Input, !has.is_empty(), "the library has none of these primitives; choose other --algorithms");
    Ok(has)
}

fn call(meter: &mut Meter, cell: &PrimitiveCell, cpu_time: Duration) -> Result<Calls> {
    let (kind, name) = cell.algorithm.in_openssl();
    let (kind, name) = match (cell.by, kind) {
        (By::Record, _) => ("record", cell.algorithm.record_suite().context("no suite has it")?.0),
        (_, AlgorithmKind::Cipher) => ("cipher", name),
        (_, AlgorithmKind::Digest) => ("digest", name),
        (_, AlgorithmKind::Hmac) => ("hmac", name),
    };
    meter.measure(kind, name, cell.size_bytes, cpu_time)
}

fn configuration(cell: &PrimitiveCell) -> Configuration {
    Configuration::setting(cell.to_string(), cell.by == By::Record, Vec::new())
}

fn for_time(time: Duration) -> Work {
    let timed = Timed { for_ns: time.as_nanos() as u64, seed: 0 };
    Work { timed: Some(timed), ..Piece { users: 0..0, requests: 0 }.into() }
}

impl Subject for Library {
    fn warm_up(&self, _index: usize, _factor: u32) -> Work {
        for_time(LOOK)
    }

    /// As long blocks as let enough rounds fit into the time.
    fn plan(&mut self, _seconds_per_request: &[f64], left: Duration) -> Plan {
        let peers = self.cells.iter().filter(|cell| cell.by == By::OpensslSpeed).count() as u32;
        let own = (self.cells.len() as u32 - peers).max(1);
        let of_peers = OpensslSpeed::TIME * peers;
        let time = (left / ROUNDS_MIN).saturating_sub(of_peers) / own;
        let time = time.saturating_sub(BLOCK_OVERHEAD).clamp(BLOCK[0], BLOCK[1]);
        let round = (time + BLOCK_OVERHEAD) * own + of_peers;
        Plan::of(Schedule::of_rounds(round, left), vec![for_time(time)])
    }

    fn block(&mut self, index: usize, work: &Work, _journal: &mut Journal) -> Result<Block> {
        let cell = self.cells[index];
        let time = work.timed.map_or(LOOK, |timed| Duration::from_nanos(timed.for_ns));
        let is_warm_up = time == LOOK;
        let calls = match (&self.speed, cell.by) {
            // It starts anew each time, so that nothing of it can be warmed up.
            (_, By::OpensslSpeed) if is_warm_up => Calls { count: 1, cpu_ns: 0, elapsed_ns: 0 },
            (Some(speed), By::OpensslSpeed) => speed.measure(cell.algorithm, cell.size_bytes)?,
            _ => call(&mut self.meter, &cell, time)?,
        };
        Ok(Block {
            elapsed_ns: calls.elapsed_ns,
            hits: calls.count,
            body_bytes: calls.count * cell.size_bytes,
            server_cpu_ns: calls.cpu_ns,
            valid: true,
            ..Block::default()
        })
    }
}
