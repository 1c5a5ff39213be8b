//! Experiments whose load workers make, which are lost or stopped in the middle.

use std::fs::File;
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, Stdio};

use rusqlite::{Connection, OpenFlags};
use rustix::process::Signal;
use serde_json::Value;
use tlsdyno::servers::quota;

use super::loss::{is_gone, kill};
use super::{Load, TLSDYNO, launch, processes_with, text};
use crate::place::eventually;

/// What befalls an experiment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mishap {
    LosesWorkerAndStops,
    LosesWorkerAndGoesOn,
    IsInterrupted,
    IsKilled,
}

/// An experiment, and the seconds that it measures unless it is interrupted.
type Experiment = (&'static str, u32);
const ONE_SERVER: Experiment = ("ablate --server builtin --stages authentication --slice 0", 60);
const ARRAY: Experiment =
    ("array --proxy own --proxies 1 --reuse 50 --clients 4 --cert p-256 --pages-per-handshake 0 --transaction 1ms", 24);
const CLUSTER: Experiment = ("cluster --server builtin --backends 2 --reuse 80 --clients 4 --cert p-256", 60);

/// Exit code, what was printed, and the number of blocks that are kept in the end.
type Left = (i32, Value, u64);

/// Measures with two workers, and has it happen once three blocks are kept (what goes on is interrupted later). A busy
/// machine measures fewer blocks in a short time: then it has longer.
fn befall(experiment: Experiment, mishap: Mishap) -> Left {
    let left = [1, 4, 16].into_iter().find_map(|times| befall_within(experiment, times, mishap));
    left.expect("so long a run has three blocks")
}

/// `None`: the run of so many times its seconds ended before three blocks were kept.
fn befall_within(experiment: Experiment, times: u32, mishap: Mishap) -> Option<Left> {
    let place = tempfile::tempdir().unwrap();
    let store = place.path().join("store.sqlite");
    // By this its workers are found.
    let kind = [ONE_SERVER, ARRAY, CLUSTER].iter().position(|one| *one == experiment).unwrap();
    let mark = format!("--join-within={}{:03}ms", std::process::id(), 10 * kind as u32 + mishap as u32 + 900);
    let on_loss = if mishap == Mishap::LosesWorkerAndGoesOn { "go-on" } else { "stop" };
    let mut command = Command::new(TLSDYNO);
    let time_s = (times * experiment.1).to_string();
    command.args(experiment.0.split_whitespace()).args(["--time", &time_s]);
    command.args(["--workers", "2", "--launch", &launch(&mark), "--on-loss", on_loss, "--json", "--no-report"]);
    command.env("TLSDYNO_STORE", &store).current_dir(place.path());
    // Into files: nobody reads them before it has ended.
    let [out, err] = ["out", "err"].map(|name| place.path().join(name));
    command.stdout(File::create(&out).unwrap()).stderr(File::create(&err).unwrap()).stdin(Stdio::null());
    let mut load = Load(command.spawn().unwrap());
    let kept = || {
        let store = Connection::open_with_flags(&store, OpenFlags::SQLITE_OPEN_READ_ONLY).ok()?;
        store.query_row("SELECT count(*) FROM blocks", [], |row| row.get::<_, u64>(0)).ok()
    };
    let has_measured = |load: &mut Load, blocks: u64| {
        let mut has_ended = false;
        eventually(&format!("{experiment:?}, {mishap:?}: {blocks} blocks"), || {
            has_ended = load.0.try_wait().unwrap().is_some();
            has_ended || kept().is_some_and(|kept| kept >= blocks)
        });
        !has_ended
    };
    if !has_measured(&mut load, 3) {
        return None;
    }
    let workers = processes_with(&mark);
    assert_eq!(workers.len(), 2, "{mishap:?}");
    match mishap {
        Mishap::IsInterrupted => kill(load.0.id(), Signal::INT),
        Mishap::IsKilled => kill(load.0.id(), Signal::KILL),
        Mishap::LosesWorkerAndStops => kill(workers[0], Signal::KILL),
        Mishap::LosesWorkerAndGoesOn => {
            kill(workers[0], Signal::KILL);
            // The one under way at most is marked.
            assert!(has_measured(&mut load, kept().unwrap() + 3), "it goes on with the other worker");
            kill(load.0.id(), Signal::INT);
        }
    }
    let status = load.0.wait().unwrap();
    let [out, err] = [out, err].map(|path| std::fs::read(path).unwrap());
    eventually("ending the workers", || processes_with(&mark).iter().all(|pid| is_gone(*pid)));
    println!("{mishap:?}: {status}, {} blocks\n{}", kept().unwrap(), text(&err));
    let code = status.code().unwrap_or_else(|| -status.signal().unwrap());
    Some((code, serde_json::from_slice(&out).unwrap_or_default(), kept().unwrap()))
}

#[test]
fn what_an_experiment_measured_is_kept_whatever_befalls_its_workers_or_itself() {
    use Mishap::{IsInterrupted, IsKilled, LosesWorkerAndGoesOn, LosesWorkerAndStops};
    let [stops, goes_on, interrupted, killed] =
        [LosesWorkerAndStops, LosesWorkerAndGoesOn, IsInterrupted, IsKilled].map(|mishap| befall(ONE_SERVER, mishap));
    is_kept(&stops);
    is_marked(&goes_on);
    is_kept_when_interrupted(&interrupted);
    assert!(killed.0 == -9 && killed.2 >= 3, "{killed:?}");
}

#[test]
fn so_it_is_with_several_servers() {
    use Mishap::{IsInterrupted, LosesWorkerAndGoesOn, LosesWorkerAndStops};
    is_kept(&befall(CLUSTER, LosesWorkerAndStops));
    is_marked(&befall(CLUSTER, LosesWorkerAndGoesOn));
    // Machines of an array have quotas.
    if quota::require().is_ok() {
        is_kept(&befall(ARRAY, LosesWorkerAndStops));
        // In mid-block, whose rest nobody waits for.
        is_kept_when_interrupted(&befall(ARRAY, IsInterrupted));
    }
}

/// Blocks that all workers made. One that shows more than a quota, since its CPU times were read late, is no fault of
/// theirs.
fn whole_blocks(result: &Value) -> usize {
    let is_whole =
        |block: &&Value| block["valid"] == true || block["warnings"].to_string().contains("under a quota of");
    result["blocks"].as_array().unwrap().iter().filter(is_whole).count()
}

/// The block in which a worker was lost is none; what was measured before is told.
fn is_kept(stops: &Left) {
    assert_eq!((stops.0, &stops.1["finished"]), (4, &false.into()));
    assert!(whole_blocks(&stops.1) >= 3 && stops.2 >= 3, "{stops:?}");
    let said = stops.1["warnings"].to_string();
    assert!(said.contains("was lost"), "{said}");
}

/// Its block is marked, and those after it are as good as those before.
fn is_marked(goes_on: &Left) {
    let all = &goes_on.1["blocks"];
    let is_marked = |block: &Value| block["warnings"].to_string().contains("from then on the load was 1/2 of it");
    let marked = all.as_array().unwrap().iter().position(is_marked);
    let marked = marked.unwrap_or_else(|| panic!("{all}"));
    assert_eq!(all[marked]["valid"], false, "{}", all[marked]);
    assert!(all.as_array().unwrap().len() > marked + 1, "{all}");
}

fn is_kept_when_interrupted(interrupted: &Left) {
    assert_eq!((interrupted.0, &interrupted.1["finished"]), (130, &false.into()));
    assert!(whole_blocks(&interrupted.1) >= 3);
}
