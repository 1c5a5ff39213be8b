//! Experiments whose load workers make, which are lost or stopped in the middle.

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

/// What is measured for so long that it will be interrupted.
const ONE_SERVER: &str = "ablate --server builtin --stages authentication --slice 0 --time 60";
const ARRAY: &str = "array --proxy own --proxies 1 --reuse 50 --clients 4 --cert p-256 --pages-per-handshake 0 \
                     --transaction 1ms --time 24";
const CLUSTER: &str = "cluster --server builtin --backends 2 --reuse 80 --clients 4 --cert p-256 --time 60";

/// Measures with two workers, and has it happen once three blocks are kept (what goes on is interrupted later). Answers
/// the exit code, what was printed, and the blocks that are kept in the end.
fn befall(experiment: &str, mishap: Mishap) -> (i32, Value, u64) {
    let place = tempfile::tempdir().unwrap();
    let store = place.path().join("store.sqlite");
    // By this its workers are found.
    let kind = [ONE_SERVER, ARRAY, CLUSTER].iter().position(|one| *one == experiment).unwrap();
    let mark = format!("--join-within={}{:03}ms", std::process::id(), 10 * kind as u32 + mishap as u32 + 900);
    let on_loss = if mishap == Mishap::LosesWorkerAndGoesOn { "go-on" } else { "stop" };
    let mut command = Command::new(TLSDYNO);
    command.args(experiment.split_whitespace());
    command.args(["--workers", "2", "--launch", &launch(&mark), "--on-loss", on_loss, "--json", "--no-report"]);
    command.env("TLSDYNO_STORE", &store).current_dir(place.path());
    let command = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut load = Load(command.spawn().unwrap());
    let kept = || {
        let store = Connection::open_with_flags(&store, OpenFlags::SQLITE_OPEN_READ_ONLY).ok()?;
        store.query_row("SELECT count(*) FROM blocks", [], |row| row.get::<_, u64>(0)).ok()
    };
    let measure = |blocks| {
        eventually(&format!("{mishap:?}: {blocks} blocks"), || kept().is_some_and(|kept| kept >= blocks));
    };
    measure(3);
    let workers = processes_with(&mark);
    assert_eq!(workers.len(), 2, "{mishap:?}");
    match mishap {
        Mishap::IsInterrupted => kill(load.0.id(), Signal::INT),
        Mishap::IsKilled => kill(load.0.id(), Signal::KILL),
        Mishap::LosesWorkerAndStops => kill(workers[0], Signal::KILL),
        Mishap::LosesWorkerAndGoesOn => {
            kill(workers[0], Signal::KILL);
            // The one under way at most is marked.
            measure(kept().unwrap() + 3);
            kill(load.0.id(), Signal::INT);
        }
    }
    let (mut out, mut err) = (Vec::new(), Vec::new());
    std::io::Read::read_to_end(&mut load.0.stdout.take().unwrap(), &mut out).unwrap();
    std::io::Read::read_to_end(&mut load.0.stderr.take().unwrap(), &mut err).unwrap();
    let status = load.0.wait().unwrap();
    eventually("ending the workers", || processes_with(&mark).iter().all(|pid| is_gone(*pid)));
    println!("{mishap:?}: {status}, {} blocks\n{}", kept().unwrap(), text(&err));
    let code = status.code().unwrap_or_else(|| -status.signal().unwrap());
    (code, serde_json::from_slice(&out).unwrap_or_default(), kept().unwrap())
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
fn is_kept(stops: &(i32, Value, u64)) {
    assert_eq!((stops.0, &stops.1["finished"]), (4, &false.into()));
    assert!(whole_blocks(&stops.1) >= 3 && stops.2 >= 3, "{stops:?}");
    let said = stops.1["warnings"].to_string();
    assert!(said.contains("was lost"), "{said}");
}

/// Its block is marked, and those after it are as good as those before.
fn is_marked(goes_on: &(i32, Value, u64)) {
    let all = &goes_on.1["blocks"];
    let is_marked = |block: &Value| block["warnings"].to_string().contains("from then on the load was 1/2 of it");
    let marked = all.as_array().unwrap().iter().position(is_marked);
    let marked = marked.unwrap_or_else(|| panic!("{all}"));
    assert_eq!(all[marked]["valid"], false, "{}", all[marked]);
    assert!(all.as_array().unwrap().len() > marked + 1, "{all}");
}

fn is_kept_when_interrupted(interrupted: &(i32, Value, u64)) {
    assert_eq!((interrupted.0, &interrupted.1["finished"]), (130, &false.into()));
    assert!(whole_blocks(&interrupted.1) >= 3);
}
