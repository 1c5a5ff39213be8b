//! The store on real files: what is kept, found again, refused, and what survives a killed writer.

use crate::synthetic;

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};

use synthetic::Synthetic;
use tlsdyno::kinds::ablation::summary::between_runs::essence;
use tlsdyno::model::{Experiment, Server, ServerName};
use tlsdyno::store::{KindPart, Machine, Record, Reference, Store, StoreError, read_json, write_json};
use tlsdyno_cluster::cluster::file::ClusterExperiment;

fn small() -> Record {
    let mut record = Synthetic { rounds: 2, ..Synthetic::default() }.record();
    let environment = Some([("OPENSSL_ia32cap".to_owned(), ":~0x200000".to_owned())].into());
    record.manifest.machine = Some(Machine { environment, ..Machine::of_cpuinfo("model name: EPYC\nflags: vaes fpu") });
    record.blocks[0].reference = Some(Reference([1, 2, 3, 4, 5, 6]));
    record
}

#[test]
fn a_record_comes_back_as_it_was() {
    let directory = tempfile::tempdir().expect("directory");
    let path = directory.path().join("deep/down/records.sqlite");
    let mut record = small();
    let blocks = std::mem::take(&mut record.blocks);
    record.finished = false;
    let mut store = Store::open_at(&path).expect("store");
    record.id = store.begin(&record).expect("begin");
    for block in blocks {
        store.add_block(&record.id, record.blocks.len(), &block).expect("block");
        record.blocks.push(block);
        assert_eq!(store.list().expect("list")[0].blocks, record.blocks.len() as u64);
    }
    assert_eq!(store.load(&record.id).expect("load"), record);
    record.finished = true;
    store.update(&mut record).expect("update");
    let reader = Store::open_for_reading_at(&path).expect("a second reader");
    assert_eq!(reader.load("last").expect("load"), record);
    let listing = &reader.list().expect("list")[0];
    assert_eq!(listing.machine, "EPYC vaes OPENSSL_ia32cap=:~0x200000");
    assert!(listing.finished && listing.server == "nginx" && listing.question == record.question);
}

/// The words of a question may be others.
#[test]
fn what_was_asked_is_read_of_finished_records_the_newest_first() {
    let directory = tempfile::tempdir().expect("directory");
    let mut store = Store::open_at(&directory.path().join("records.sqlite")).expect("store");
    let mut begin = |second: u64, finished: bool, kind_part: KindPart| {
        let record = Record { created_unix_s: second, finished, kind_part, blocks: Vec::new(), ..small() };
        store.begin(&record).expect("begin")
    };
    let asked = |question: &str| Experiment { question: question.to_owned(), ..Experiment::default() };
    let first = begin(1, true, asked("What does TLS cost?").into());
    begin(2, false, asked("What does TLS cost?").into());
    begin(3, true, ClusterExperiment::default().into());
    let last = begin(4, true, asked("What is the cost of TLS?").into());
    let found: Vec<(String, Experiment)> = store.finished().expect("finished");
    assert_eq!(found.iter().map(|(id, _)| id).collect::<Vec<_>>(), [&last, &first]);
    assert_eq!(essence(&found[0].1), essence(&found[1].1));
    let other = Experiment { server: Server { kind: ServerName::Haproxy, ..Server::default() }, ..asked("?") };
    assert_ne!(essence(&other), essence(&found[1].1));
}

#[test]
fn records_are_found_by_the_beginning_of_their_id() {
    let directory = tempfile::tempdir().expect("directory");
    let mut store = Store::open_at(&directory.path().join("records.sqlite")).expect("store");
    // 17 ids cannot all begin with different hexadecimal digits.
    let ids: Vec<String> = (0..17)
        .map(|second| {
            let record = Record { created_unix_s: second, blocks: Vec::new(), ..small() };
            store.begin(&record).expect("begin")
        })
        .collect();
    for id in &ids {
        assert_eq!(store.load(&id[..11]).expect("a unique beginning").id, *id);
    }
    assert_eq!(store.load("last").expect("newest").id, ids[16]);
    let refused: Vec<StoreError> = (0..16).filter_map(|digit| store.load(&format!("{digit:x}")).err()).collect();
    assert!(
        refused.iter().any(|error| matches!(error, StoreError::Ambiguous { ids, .. } if ids.len() > 1)),
        "{refused:?}"
    );
    let unknown = store.load("nonsense").expect_err("unknown");
    assert!(unknown.to_string().contains("`tlsdyno list` shows"), "{unknown}");
}

#[test]
fn what_is_no_store_is_refused_and_left_alone() {
    let directory = tempfile::tempdir().expect("directory");
    let text = directory.path().join("notes.txt");
    std::fs::write(
        &text,
        "no database, just a text that is long enough to have a header of one hundred bytes. ".repeat(9),
    )
    .expect("file");
    let before = std::fs::read(&text).expect("read");
    assert!(matches!(Store::open_at(&text), Err(StoreError::NotAStore { .. })));
    assert_eq!(std::fs::read(&text).expect("read"), before);

    let foreign = directory.path().join("foreign.sqlite");
    rusqlite::Connection::open(&foreign).expect("database").execute_batch("CREATE TABLE theirs (x)").expect("table");
    assert!(matches!(Store::open_at(&foreign), Err(StoreError::NotAStore { .. })));

    assert!(matches!(Store::open_for_reading_at(&directory.path().join("absent")), Err(StoreError::Empty { .. })));
    assert!(!directory.path().join("absent").exists());
    assert!(Store::open_at(Path::new("/dev/full")).is_err());
}

#[test]
fn a_store_or_a_record_of_another_version_is_refused_with_the_remedy_and_left_alone() {
    let directory = tempfile::tempdir().expect("directory");
    for version in [1, 7, 99] {
        let path = directory.path().join(format!("{version}.sqlite"));
        Store::open_at(&path).expect("store").begin(&small()).expect("begin");
        let other = rusqlite::Connection::open(&path).expect("database");
        other.pragma_update(None, "user_version", version).expect("version");
        drop(other);
        let before = std::fs::read(&path).expect("read");
        for refused in [Store::open_at(&path), Store::open_for_reading_at(&path)] {
            let error = refused.expect_err("another version");
            assert!(matches!(error, StoreError::OtherVersion { found, .. } if found == version), "{error}");
            assert!(error.to_string().contains("move the file away"), "{error}");
        }
        assert_eq!(std::fs::read(&path).expect("read"), before);
    }
    let path = directory.path().join("record.json");
    write_json(&Record { format: 2, ..small() }, &path).expect("write");
    let error = read_json(&path).expect_err("another format").to_string();
    assert!(error.contains("format 2, not 1") && error.contains("measure again"), "{error}");
}

#[test]
fn a_file_of_one_record_comes_back_as_it_was() {
    let directory = tempfile::tempdir().expect("directory");
    let path = directory.path().join("record.json");
    let record = small();
    write_json(&record, &path).expect("write");
    assert_eq!(read_json(&path).expect("read"), record);
    std::fs::write(&path, "{\"format\": 1}").expect("file");
    assert!(matches!(read_json(&path), Err(StoreError::Unreadable { .. })));
    assert!(write_json(&record, Path::new("/dev/full/record.json")).is_err());
}

/// Runs as a child process of the next test: adds blocks and says so until it is killed.
#[test]
#[ignore = "it is the child process of a_killed_writer_loses_nothing"]
fn endless_writer() {
    let Some(path) = std::env::var_os("TLSDYNO_TEST_STORE") else {
        return;
    };
    let mut store = Store::open_at(Path::new(&path)).expect("store");
    let record = small();
    let id = store.begin(&Record { blocks: Vec::new(), finished: false, ..record.clone() }).expect("begin");
    for (count, block) in record.blocks.iter().cycle().enumerate() {
        store.add_block(&id, count, block).expect("block");
        println!("written {}", count + 1);
    }
}

#[test]
fn a_killed_writer_loses_nothing() {
    let directory = tempfile::tempdir().expect("directory");
    let path = directory.path().join("records.sqlite");
    let mut writer = Command::new(std::env::current_exe().expect("this test"))
        .args(["--exact", "store::endless_writer", "--ignored", "--nocapture"])
        .env("TLSDYNO_TEST_STORE", &path)
        .stdout(Stdio::piped())
        .spawn()
        .expect("child");
    let lines = BufReader::new(writer.stdout.take().expect("pipe")).lines().map_while(Result::ok);
    let written = lines.filter(|line| line.contains("written ")).take(7).count();
    writer.kill().expect("kill");
    writer.wait().expect("wait");
    assert_eq!(written, 7);
    let record = Store::open_at(&path).expect("the next run opens it").load("last").expect("load");
    assert!(record.blocks.len() >= 7 && !record.finished, "{}", record.blocks.len());
    let cycle = small().blocks;
    assert!(record.blocks.iter().zip(cycle.iter().cycle()).all(|(kept, made)| kept == made));
}

/// One run: a record with `BLOCKS_OF_RUN` blocks, read again while others go on.
fn one_run(path: &Path) -> Result<(), StoreError> {
    let record = small();
    let mut store = Store::open_at(path)?;
    let id = store.begin(&Record { blocks: Vec::new(), finished: false, ..record.clone() })?;
    for (sequence, block) in record.blocks.iter().cycle().take(BLOCKS_OF_RUN).enumerate() {
        store.add_block(&id, sequence, block)?;
    }
    store.update(&mut Record { id: id.clone(), finished: true, ..record })?;
    let kept = Store::open_for_reading_at(path)?.load(&id)?;
    assert!(kept.finished && kept.blocks.len() == BLOCKS_OF_RUN, "{} blocks", kept.blocks.len());
    Ok(())
}

const BLOCKS_OF_RUN: usize = 12;

/// Runs as a child process of the next test.
#[test]
#[ignore = "it is a child process of runs_at_the_same_time_all_keep_their_records"]
fn one_of_many_runs() {
    if let Some(path) = std::env::var_os("TLSDYNO_TEST_STORE") {
        one_run(Path::new(&path)).expect("the store takes it");
    }
}

/// In threads and in processes, on a store that is not there yet.
#[test]
fn runs_at_the_same_time_all_keep_their_records() {
    const PROCESSES: usize = 4;
    const THREADS: usize = 8;
    let directory = tempfile::tempdir().expect("directory");
    let path = directory.path().join("records.sqlite");
    let start = || {
        Command::new(std::env::current_exe().expect("this test"))
            .args(["--exact", "store::one_of_many_runs", "--ignored", "--nocapture"])
            .env("TLSDYNO_TEST_STORE", &path)
            .stdout(Stdio::null())
            .spawn()
            .expect("child")
    };
    let mut processes: Vec<_> = (0..PROCESSES).map(|_| start()).collect();
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..THREADS).map(|_| scope.spawn(|| one_run(&path))).collect();
        for thread in threads {
            thread.join().expect("no panic").expect("the store takes it");
        }
    });
    for process in &mut processes {
        assert!(process.wait().expect("wait").success());
    }
    let all = Store::open_for_reading_at(&path).expect("store").list().expect("list");
    assert_eq!(all.len(), PROCESSES + THREADS);
    assert!(all.iter().all(|one| one.finished && one.blocks == BLOCKS_OF_RUN as u64), "{all:?}");
}
