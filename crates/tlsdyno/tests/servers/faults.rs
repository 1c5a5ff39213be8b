//! Bad input and bad luck: each gives a clear error, the documented exit code, and loses nothing that was measured.

use crate::place;
use crate::place::eventually;

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use place::Place;
use rusqlite::{Connection, OpenFlags};
use rustix::io::Errno;
use rustix::process::{Pid, Signal, kill_process};
use tlsdyno::exchange::TIME_LIMIT;
use tlsdyno::listening::listening_addresses;
use tlsdyno::model::{ConfigurationModel, Experiment, ServerName};
use tlsdyno::process_tree;
use tlsdyno::run::cpus;
use tlsdyno::run::request::TIME_LIMIT_COUNTED;
use tlsdyno::run::testbed::Testbed;
use tlsdyno::store::{Record, Store};
use tlsdyno_tls::Stage;

impl Place {
    fn file(&self, name: &str, contents: &[u8]) -> PathBuf {
        let path = self.path().join(name);
        std::fs::File::create(&path).unwrap().write_all(contents).unwrap();
        path
    }

    /// Starts an experiment and returns when its first blocks are on disk.
    fn measure(&self, arguments: &[&str]) -> Running {
        let mut command = self.tlsdyno(arguments);
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut stderr = BufReader::new(child.stderr.take().unwrap());
        let mut said = String::new();
        while !said.lines().any(|line| line.starts_with("measuring")) {
            assert_ne!(stderr.read_line(&mut said).unwrap(), 0, "it never measured: {said}");
        }
        let said = std::thread::spawn(move || {
            let _ = stderr.read_to_string(&mut said);
            said
        });
        // The reference of slices is one more, and the untouched server may have two.
        eventually("a block of each configuration is in the store", || {
            let blocks = self.blocks();
            assert!(blocks >= 6 || child.try_wait().unwrap().is_none(), "it ended with {blocks} blocks");
            blocks >= 6
        });
        Running { child, said }
    }

    fn record(&self) -> Option<Record> {
        Store::open_for_reading_at(&self.path().join("store.sqlite")).and_then(|store| store.load("last")).ok()
    }

    /// Asked for every 2 ms: the whole record would take all the time of a processor.
    fn blocks(&self) -> usize {
        // A run that was just started may not have made the store.
        let store = Connection::open_with_flags(self.path().join("store.sqlite"), OpenFlags::SQLITE_OPEN_READ_ONLY);
        store.and_then(|store| store.query_row("SELECT COUNT(*) FROM blocks", [], |row| row.get(0))).unwrap_or(0)
    }

    /// Waits until so many configurations are left out of a run and others are measured after that, which ends it.
    fn end_after_losses(&self, running: Running, count: usize) -> (serde_json::Value, String) {
        let are_lost = |record: Record| record.configurations.iter().filter(|of| !of.valid).count() == count;
        eventually("they are left out", || self.record().is_some_and(are_lost));
        let blocks = self.blocks();
        eventually("the others are measured", || self.blocks() > blocks + 2);
        running.signal(Signal::INT);
        let (code, result, said) = running.end();
        assert_eq!(code, Some(130), "{said}");
        (result, said)
    }

    /// Process ids of the servers, in the order of their start.
    fn servers(&self) -> Vec<i32> {
        let mut servers: Vec<(u32, i32)> = Vec::new();
        for process in std::fs::read_dir("/proc").unwrap().flatten() {
            let line = std::fs::read(process.path().join("cmdline")).unwrap_or_default();
            let line = String::from_utf8_lossy(&line).into_owned();
            let Some(after) = line.split("/server-").nth(1).filter(|_| line.contains(text(self.path()))) else {
                continue;
            };
            if line.contains("supervise") {
                let number = after.split('-').next().unwrap().parse().unwrap();
                let children = process.path().join("task").join(process.file_name()).join("children");
                // A supervisor that has just started, or is about to end, has none.
                let children = std::fs::read_to_string(children).unwrap_or_default();
                let child = children.split(' ').next().and_then(|child| child.parse::<u32>().ok());
                // The first process of a PID namespace is a supervisor in its own turn, and each is one until it has
                // become the server; while it does, it has no command line.
                let is_server = |child: &u32| {
                    let line = process_tree::command_line(*child);
                    !line.trim().is_empty() && !line.contains("supervise")
                };
                servers.extend(child.filter(is_server).map(|child| (number, i32::try_from(child).unwrap())));
            }
        }
        servers.sort_unstable();
        servers.into_iter().map(|(_, pid)| pid).collect()
    }

    fn run_directories(&self) -> Vec<String> {
        let entries = std::fs::read_dir(self.path()).unwrap().flatten();
        let names = entries.map(|entry| entry.file_name().to_string_lossy().into_owned());
        names.filter(|name| name.starts_with("tlsdyno-run-")).collect()
    }
}

/// An experiment in the midst of measuring.
struct Running {
    child: Child,
    said: JoinHandle<String>,
}

impl Running {
    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }

    /// The exit code, the result on standard output, and what was said.
    fn end(self) -> (Option<i32>, serde_json::Value, String) {
        let output = self.child.wait_with_output().unwrap();
        let said = self.said.join().unwrap();
        let result = serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {said}"));
        (output.status.code(), result, said)
    }
}

/// The exit code and what was said on standard error.
fn ended(output: &Output) -> (i32, String) {
    (output.status.code().unwrap_or(-1), String::from_utf8_lossy(&output.stderr).into_owned())
}

fn expect(output: &Output, code: i32, words: &[&str]) {
    let (got, said) = ended(output);
    assert_eq!(got, code, "{said}");
    for word in words {
        assert!(said.contains(word), "`{word}` is missing in: {said}");
    }
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

#[test]
fn logs_that_cannot_be_used() {
    let place = Place::new();
    expect(&place.run(&["ablate", "--trace", "missing.log"]), 3, &["missing.log", "No such file"]);
    let empty = place.file("empty.log", b"");
    expect(&place.run(&["ablate", "--trace", text(&empty)]), 3, &["empty.log"]);
    let garbage: Vec<u8> = (0..100_000u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 13) as u8).collect();
    let garbage = place.file("garbage.log", &garbage);
    expect(&place.run(&["ablate", "--trace", text(&garbage)]), 3, &["garbage.log", "line"]);
}

#[test]
fn flags_that_cannot_be_understood() {
    let place = Place::new();
    expect(&place.run(&["ablate", "--server", "thttpd"]), 2, &["thttpd", "nginx"]);
    expect(&place.run(&["ablate", "--reuse", "150%"]), 2, &["150%"]);
    expect(&place.run(&["ablate", "--frobnicate"]), 2, &["--frobnicate"]);
    expect(&place.run(&["ablate", "--suite", "RC4-MD5"]), 2, &["RC4-MD5", "AES128-SHA"]);
    expect(&place.run(&["ablate", "--stages", "rsa"]), 2, &["rsa", "authentication"]);
    expect(
        &place.run(&["ablate", "--cert", "p-256", "--tls", "1.2", "--suite", "AES128-SHA"]),
        2,
        &["--cert rsa-2048"],
    );
    let surprising = place.file("surprise.toml", b"question = \"q\"\nsurprise = 1\n");
    expect(&place.run(&["run", text(&surprising)]), 3, &["surprise.toml", "surprise"]);
    let escape = place.file("escape.toml", b"# a title\nquestion = \"\\u001b]0;t\\u0007?\"\n");
    expect(&place.run(&["run", text(&escape)]), 3, &["escape.toml", "line 2: `question`", "\\u{1b}]0;t"]);
    // TOML itself refuses the byte, and quotes the line.
    let raw = place.file("raw.toml", b"question = \"\x1b[31m?\"\n");
    let output = place.run(&["run", text(&raw)]);
    expect(&output, 3, &["raw.toml", "line 1"]);
    assert!(!output.stderr.contains(&0x1b), "{:?}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn an_address_that_others_can_reach() {
    let place = Place::new();
    for (address, words) in [("0.0.0.0:{port}", "--allow-insecure-listen"), ("203.0.113.7:{port}", "not ablated")] {
        let arguments = ["ablate", "--server-command", "sh -c 'sleep 60; :' {docroot} {port}", "--address", address];
        expect(&place.run(&arguments), 2, &[address, words]);
    }
}

#[test]
fn a_server_that_does_not_start() {
    let place = Place::new();
    let command = "sh -c 'echo configuration has a fault >&2; exit 3' {docroot} {port}";
    let output = place.run(&["ablate", "--server-command", command, "--address", "127.0.0.1:{port}", "--time", "2"]);
    expect(&output, 5, &["configuration has a fault", "as is"]);
}

#[test]
fn a_port_that_is_taken() {
    let place = Place::new();
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let output = place.run(&["ablate", "--server-command", "sleep 60 {docroot}", "--address", &address, "--time", "2"]);
    expect(&output, 5, &[&address, "in use"]);
}

/// Few configurations, and more time than any test leaves it once that blocks are there, on a busy machine too.
const LONG: [&str; 7] = ["ablate", "--json", "--no-report", "--stages", "authentication", "--time", "60"];

#[test]
fn a_server_that_dies_in_mid_run_loses_nothing_measured() {
    let place = Place::new();
    let tlsdyno = env!("CARGO_BIN_EXE_tlsdyno");
    let serve = "serve --docroot {docroot} --certificate {certificate} --key {key} --listen 127.0.0.1:{port}";
    let command = format!("{tlsdyno} {serve}");
    let server = ["--server-command", &command, "--address", "127.0.0.1:{port}"];
    let running = place.measure(&[&LONG[..], &server[..]].concat());
    // The untouched server's: without it there is nothing to compare with.
    kill_process(Pid::from_raw(place.servers()[0]).unwrap(), Signal::KILL).unwrap();
    let (code, result, said) = running.end();
    assert_eq!(code, Some(5), "{said}");
    assert!(result["configurations"][0]["hits"].as_u64().unwrap() > 0, "{result}");
    assert!(result["warnings"].to_string().contains("has died"), "{result}");
    let listed = place.run(&["list"]);
    assert!(listed.status.success() && !listed.stdout.is_empty(), "the record is in the store");
}

/// One configuration's server dies, or hangs: it is left out, and the others are measured on.
#[test]
fn an_altered_server_that_fails_in_mid_run_costs_only_its_own_row() {
    place::at_once([Signal::KILL, Signal::STOP], |signal| {
        let place = Place::new();
        // Without slices each has a server of its own.
        let experiment = "question = \"q\"\nload = { timeout_ms = 5000 }\n\
             measure = { time_s = 300, rounds = 300, slice_us = 0 }\n\
             configuration = [{ name = \"as is\" }, { name = \"no authentication\", noop = [\"authentication\"] }, \
             { name = \"no kdf\", noop = [\"kdf\"] }, { name = \"all off\", noop = [\"authentication\", \"kdf\"] }, \
             { name = \"plain HTTP\", plain_http = true }]\n";
        let file = place.file("experiment.toml", experiment.as_bytes());
        let running = place.measure(&["run", text(&file), "--json", "--no-report"]);
        // The servers are started in order: as is, no authentication, no kdf, all off, plain HTTP.
        let servers = place.servers();
        assert_eq!(servers.len(), 5, "{servers:?}");
        kill_process(Pid::from_raw(servers[2]).unwrap(), signal).unwrap();
        let (result, said) = place.end_after_losses(running, 1);
        let rows = result["configurations"].as_array().unwrap();
        let valid: Vec<_> = rows.iter().map(|row| (row["name"].as_str().unwrap(), row["valid"] == true)).collect();
        let expected =
            [("as is", true), ("no authentication", true), ("no kdf", false), ("all off", true), ("plain HTTP", true)];
        assert_eq!(valid, expected, "{said}");
        assert!(result.to_string().contains("\"no kdf\\\" was left out"), "{result}");
        assert!(result["shares"].is_array(), "{result}");
    });
}

/// With slices the stage sets share a server: when it fails they are left out, and the untouched server and plain HTTP
/// are measured on.
#[test]
fn a_server_of_several_modes_that_fails_takes_only_these_with_it() {
    place::at_once([Signal::KILL, Signal::STOP], |signal| {
        let place = Place::new();
        let experiment = "question = \"q\"\nload = { timeout_ms = 5000 }\nmeasure = { time_s = 120 }\n\
             configuration = [{ name = \"as is\" }, { name = \"no kdf\", noop = [\"kdf\"] }, \
             { name = \"plain HTTP\", plain_http = true }]\n";
        let file = place.file("experiment.toml", experiment.as_bytes());
        let running = place.measure(&["run", text(&file), "--json", "--no-report"]);
        // In the order of their start: as is, the one of the modes, plain HTTP; then those of later rounds, one of each
        // configuration at a time, the one of the modes last.
        let servers = place.servers();
        let (first, later) = servers.split_at(3);
        assert!(!later.is_empty() && later.len().is_multiple_of(3), "{servers:?}");
        let of_modes = later.chunks(3).map(|of_each| &of_each[2]);
        for pid in of_modes.chain([&first[1]]) {
            kill_process(Pid::from_raw(*pid).unwrap(), signal).unwrap();
        }
        let (result, said) = place.end_after_losses(running, 2);
        let rows = result["configurations"].as_array().unwrap();
        let valid: Vec<_> = rows.iter().map(|row| (row["name"].as_str().unwrap(), row["valid"] == true)).collect();
        let expected = [("as is", true), ("no kdf", false), ("plain HTTP", true), ("nothing off", false)];
        assert_eq!(valid, expected, "{said}");
        for name in ["no kdf", "nothing off"] {
            assert!(result.to_string().contains(&format!("\"{name}\\\" was left out")), "{signal:?}: {result}");
        }
    });
}

/// Whether a client of the port waits for an answer: the kernel holds bytes of it that nobody has read.
fn is_asked(port: u16) -> bool {
    let sockets = std::fs::read_to_string("/proc/net/tcp").unwrap();
    sockets.lines().skip(1).any(|line| {
        let fields: Vec<&str> = line.split_ascii_whitespace().collect();
        let [_, local, _, "01", queues, ..] = fields[..] else { return false };
        local.ends_with(&format!(":{port:04X}")) && !queues.ends_with(":00000000")
    })
}

/// A worker dies while a client of the preflight waits for it. tlsdyno stands still until that worker does, so that
/// there is no race.
fn crash_in_preflight(server: &str) -> (Option<i32>, serde_json::Value) {
    let place = Place::new();
    let experiment = "question = \"q\"\nmeasure = { time_s = 2 }\nconfiguration = [{ name = \"as is\" }, \
                      { name = \"no kdf\", noop = [\"kdf\"] }]\n";
    let file = place.file("experiment.toml", experiment.as_bytes());
    let arguments = ["run", text(&file), "--server", server, "--json", "--no-report"];
    let child = place.tlsdyno(&arguments).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut first = 0;
    eventually("the second server starts", || {
        first = place.servers().get(1).map_or(0, |&pid| u32::try_from(pid).unwrap());
        first != 0
    });
    place::signal(child.id(), Signal::STOP);
    let (mut worker, mut port) = (first, 0);
    eventually("it listens, and has its worker", || {
        let serves = if server == "builtin" { " serve " } else { "worker process" };
        let below = process_tree::descendants(first).into_iter().map(|process| process.pid);
        let found = [first].into_iter().chain(below).find(|&pid| process_tree::command_line(pid).contains(serves));
        worker = found.unwrap_or_default();
        port = listening_addresses(&[first, worker]).first().map_or(0, SocketAddr::port);
        found.is_some() && port != 0
    });
    place::signal(worker, Signal::STOP);
    place::signal(child.id(), Signal::CONT);
    eventually("a client asks", || is_asked(port));
    // Still stopped, so that the client is not answered before. The runtime of the built-in server takes the first one
    // for its own.
    place::signal(worker, Signal::SEGV);
    place::signal(worker, Signal::CONT);
    eventually("it dies", || {
        // Asked before the signal is sent: it may die of the last one meanwhile.
        let pid = Pid::from_raw(i32::try_from(worker).unwrap()).unwrap();
        place::is_gone(worker) || kill_process(pid, Signal::SEGV) == Err(Errno::SRCH)
    });
    let output = child.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    (output.status.code(), serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {said}")))
}

#[test]
fn a_worker_that_crashes_in_the_preflight_is_named() {
    // A client whose connection nobody has accepted yet is answered by nginx's next worker, so that none fails.
    for (server, check) in [("builtin", "matching client passes"), ("nginx", "no process of the server dies")] {
        let (code, result) = crash_in_preflight(server);
        // The server of all modes starts behind the untouched one.
        let mut rows = result["configurations"].as_array().unwrap().iter();
        let row = rows.find(|row| row["name"] == "nothing off").unwrap();
        let warnings = row["warnings"].to_string();
        assert!(code == Some(8) && row["valid"] == false, "{server}: {code:?}, {warnings}");
        for words in [check, "killed by signal 11, SIGSEGV", "A crash is a fault of the server"] {
            assert!(warnings.contains(words), "{server}: {warnings}");
        }
        assert!(!warnings.contains("doctor"), "{server}: {warnings}");
    }
}

#[test]
fn ctrl_c_ends_cleanly_with_the_result_so_far() {
    let place = Place::new();
    let running = place.measure(&LONG);
    assert!(!place.processes().is_empty() && !place.run_directories().is_empty());
    running.signal(Signal::INT);
    let (code, result, said) = running.end();
    assert_eq!(code, Some(130), "{said}");
    assert!(result["configurations"][0]["hits"].as_u64().unwrap() > 0, "{result}");
    assert!(result["warnings"].to_string().contains("stopped early (Ctrl-C)"), "{result}");
    assert_eq!(place.processes(), Vec::<String>::new());
    assert_eq!(place.run_directories(), Vec::<String>::new());
}

impl Place {
    /// Sends SIGINT to an experiment as soon as one of its servers is a program that never gets ready, and sees to it
    /// that nothing is left.
    fn interrupt_start(&self, child: Child) -> Output {
        let hangs = || self.processes().iter().any(|line| line.contains(NEVER_READY));
        eventually("a server starts", hangs);
        kill_process(Pid::from_child(&child), Signal::INT).unwrap();
        let told = Instant::now();
        let output = child.wait_with_output().unwrap();
        // The program would go on for 100 s.
        assert!(told.elapsed() < Duration::from_secs(60), "it took {:?}", told.elapsed());
        assert_eq!(self.processes(), Vec::<String>::new());
        assert_eq!(self.run_directories(), Vec::<String>::new());
        output
    }

    /// Starts `command` with its output kept.
    fn spawn(&self, mut command: Command) -> Child {
        command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
    }
}

/// A shell that serves nothing, with a name to be found by.
const NEVER_READY: &str = "never-ready";

#[test]
fn ctrl_c_while_a_server_starts_ends_at_once() {
    let place = Place::new();
    let command = format!("sh -c 'sleep 100; :' {NEVER_READY} {{docroot}} {{port}}");
    let arguments = ["ablate", "--no-report", "--quick", "--server-command", &command, "--address", "127.0.0.1:{port}"];
    let output = place.interrupt_start(place.spawn(place.tlsdyno(&arguments)));
    expect(&output, 130, &["stopped before anything was measured", "Ctrl-C"]);
    // Servers of our own drivers: here an nginx that hangs.
    let programs = place.path().join("programs");
    std::fs::create_dir(&programs).unwrap();
    let script = format!(
        "#!/bin/sh\ncase \"$1\" in -[vVth]) exec /usr/sbin/nginx \"$@\";; esac\nsh -c 'sleep 100; :' {NEVER_READY} \
         \"$@\"\n"
    );
    let nginx = place.file("programs/nginx", script.as_bytes());
    std::fs::set_permissions(&nginx, std::fs::Permissions::from_mode(0o755)).unwrap();
    let path = format!("{}:{}", text(&programs), std::env::var("PATH").unwrap());
    for experiment in ["ablate", "cluster"] {
        let mut command = place.tlsdyno(&[experiment, "--no-report", "--quick", "--server", "nginx"]);
        command.env("PATH", &path);
        let output = place.interrupt_start(place.spawn(command));
        expect(&output, 130, &["stopped", "Ctrl-C"]);
    }
}

/// Servers with a fixed port take turns: they are started again and again while others are measured.
#[test]
fn ctrl_c_while_a_server_is_started_again_keeps_what_was_measured() {
    let place = Place::new();
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let tlsdyno = env!("CARGO_BIN_EXE_tlsdyno");
    let serve =
        format!("serve --docroot {{docroot}} --certificate {{certificate}} --key {{key}} --listen 127.0.0.1:{port}");
    let hang = place.path().join("hang");
    let hangs = format!("if [ -e {0} ]; then sh -c \"sleep 100; :\" {NEVER_READY} {0}; fi", text(&hang));
    let command = format!("sh -c '{hangs}; exec {tlsdyno} {serve}'");
    let address = format!("127.0.0.1:{port}");
    // Each block begins with a start, which takes seconds on a busy machine.
    let longer = ["--time", "100", "--server-command", &command, "--address", &address];
    let running = place.measure(&[&LONG[..5], &longer].concat());
    std::fs::write(&hang, "").unwrap();
    let Running { child, said } = running;
    let output = place.interrupt_start(child);
    let said = said.join().unwrap();
    assert_eq!(output.status.code(), Some(130), "{said}");
    let result: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert!(result["configurations"][0]["hits_per_second"]["value"].as_f64().unwrap() > 0.0, "{result}");
    assert!(result["warnings"].to_string().contains("stopped early (Ctrl-C)"), "{result}");
}

#[test]
fn a_killed_experiment_leaves_nothing_behind() {
    let place = Place::new();
    // Without slices each configuration has one server, and not others for later rounds.
    let mut running = place.measure(&[&LONG[..5], &["--time", "100", "--slice", "0"]].concat());
    assert!(!place.processes().is_empty() && !place.run_directories().is_empty());
    running.signal(Signal::KILL);
    running.child.wait().unwrap();
    eventually("all processes have ended", || place.processes().is_empty());
    eventually("the run directory is gone", || place.run_directories().is_empty());
    assert!(place.blocks() >= 4, "what was measured is in the store");
}

#[test]
fn a_full_disk_for_the_record_is_said_and_the_result_printed() {
    let place = Place::new();
    let arguments = ["ablate", "--json", "--no-report", "--stages", "authentication", "--time", "2"];
    let output = place.tlsdyno(&arguments).env("TLSDYNO_STORE", "/dev/full").output().unwrap();
    let (code, said) = ended(&output);
    // 8 comes first: on a busy machine two seconds may be too few for a round.
    assert!([8, 9].contains(&code) && said.contains("/dev/full"), "{code}: {said}");
    let result: serde_json::Value = serde_json::from_slice(&output.stdout).expect(&said);
    assert!(result["shares"].is_array(), "{result}");
    assert!(result["warnings"].to_string().contains("TLSDYNO_STORE"), "{result}");
}

#[test]
fn a_report_that_cannot_be_written_is_known_before_measuring() {
    let place = Place::new();
    let output = place.run(&["ablate", "--report", "missing-directory/report.html", "--time", "60"]);
    let (code, said) = ended(&output);
    assert_ne!(code, 0);
    assert!(said.contains("missing-directory/report.html") && said.contains("--report"), "{said}");
}

fn builtin(configurations: Vec<ConfigurationModel>) -> Testbed {
    let mut experiment = Experiment { configurations, ..Experiment::default() };
    experiment.server.kind = ServerName::Builtin;
    let cpus = cpus::choose(&cpus::allowed(), None, None).unwrap();
    Testbed::prepare(&experiment, cpus, &mut |_| ()).unwrap()
}

/// Its client cannot be made without the recording that its start brings: the others are loaded without it.
#[test]
fn a_skeleton_that_was_not_started_is_left_out_of_the_load() {
    let skeleton = ConfigurationModel::without("skeleton", [Stage::Marshalling, Stage::Handshake]);
    let testbed = builtin(vec![ConfigurationModel::as_is(), skeleton]);
    let said = format!("{:#}", testbed.plans(|_| true).unwrap_err());
    assert!(said.contains("target skeleton") && !said.contains("Client::script"), "{said}");
    assert_eq!(testbed.plans(|index| index == 0).unwrap().len(), 2);
}

/// Under load valgrind takes more than the five seconds that a server has for its answer.
#[test]
fn a_server_under_valgrind_has_time_for_its_checks() {
    let mut testbed = builtin(vec![ConfigurationModel::as_is()]);
    let server = &mut testbed.servers[0];
    assert_eq!(server.time_limit(), TIME_LIMIT);
    server.run_under(vec!["valgrind".into()], Path::new("counts"));
    assert_eq!(server.time_limit(), TIME_LIMIT_COUNTED);
}
