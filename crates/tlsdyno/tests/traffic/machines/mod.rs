//! A load by several worker processes: its sum is what was asked for and what the server saw, whatever befalls them.

mod engines;
mod experiments;
pub mod far;
mod loss;
mod repeats;
mod several_servers;

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

use serde_json::Value;
use tlsdyno::model::{CertificateKind, ServerName};
use tlsdyno::servers::{self, Instance, RunDirectory, ServerSpec, ServerTls};

use super::load::screen::Site;
use crate::place::eventually;

pub const TLSDYNO: &str = env!("CARGO_BIN_EXE_tlsdyno");

/// A load in a process of its own, ended when the test is.
struct Load(Child);

impl Drop for Load {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn load(arguments: &[&str]) -> Command {
    let mut command = Command::new(TLSDYNO);
    command.arg("load").args(arguments).stdin(Stdio::null());
    command
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn json(output: &Output) -> Value {
    serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{}", text(&output.stderr)))
}

/// What starts workers here.
pub fn launch(more: &str) -> String {
    format!("exec {TLSDYNO} worker --join {{address}} --token-file {{token_file}} {more}")
}

/// The same field of each loop.
fn of_each(result: &Value, field: impl Fn(&Value) -> Option<u64>) -> Vec<u64> {
    result["workers"].as_array().unwrap().iter().map(|part| field(part).unwrap()).collect()
}

/// nginx that logs its sessions, with one object.
fn nginx() -> (RunDirectory, Instance) {
    // First: a directory of a run has a guard.
    servers::launch::set_own_executable(TLSDYNO.as_ref());
    let directory = RunDirectory::create().unwrap();
    let docroot: PathBuf = directory.path().join("docroot");
    servers::run_directory::make_passable(&docroot).unwrap();
    std::fs::write(docroot.join("x"), "x").unwrap();
    let certificate = servers::certificates::create(CertificateKind::P256, directory.path()).unwrap();
    let spec = ServerSpec {
        tls: Some(ServerTls::new(certificate)),
        log_sessions: true,
        ..ServerSpec::new(ServerName::Nginx, docroot)
    };
    let nginx = servers::start(&spec, directory.path()).unwrap();
    (directory, nginx)
}

/// Processes whose command line has this word.
fn processes_with(word: &str) -> Vec<u32> {
    let numbers =
        std::fs::read_dir("/proc").unwrap().filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
    let has_word = |pid: &u32| {
        let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        text(&line).split('\0').any(|argument| argument == word)
    };
    numbers.filter(has_word).collect()
}

#[test]
fn hits_reuse_and_errors_are_those_of_the_servers_own_log() {
    let (_directory, nginx) = nginx();
    let url = format!("https://{}/x", nginx.address());
    let missing = format!("https://{}/missing", nginx.address());
    // A quarter of the requests fail.
    let asked = ["-k", "--reuse", "80%", "--connections", "16", "--also", &missing, "--weights", "3,1", "--json"];
    let workers = ["--workers", "3", "--launch", &launch(""), "--total-connections", "2001"];
    let output = load(&[&[url.as_str()], &asked[..], &workers[..]].concat()).output().unwrap();
    assert_eq!(output.status.code(), Some(7), "{}", text(&output.stderr));
    let result = json(&output);
    let (hits, errors) = (result["hits"].as_u64().unwrap(), result["errors"]["status"].as_u64().unwrap());
    assert_eq!((hits + errors, &result["connections"]), (2001, &2001.into()));
    eventually("writing the log", || nginx.session_counts().is_ok_and(|counts| counts.requests >= 2001));
    let logged = nginx.session_counts().unwrap();
    assert_eq!((logged.requests, logged.connections), (2001, 2001));
    assert_eq!(result["handshakes"]["resumed_accepted"], logged.resumed);
    assert_eq!(result["statuses"], serde_json::json!({"200": hits, "404": errors}));

    // Each of them has its exact share of everything, and its row.
    assert_eq!(of_each(&result, |part| part["connections"].as_u64()), [667, 667, 667]);
    let resumed = of_each(&result, |part| part["handshakes"]["resumed_accepted"].as_u64());
    assert!(resumed.iter().all(|resumed| (531..=534).contains(resumed)), "80 % of 667: {resumed:?}");
    assert_eq!(resumed.iter().sum::<u64>(), logged.resumed);
    assert!(of_each(&result, |part| part["client_cpu_ns"].as_u64()).iter().all(|cpu_ns| *cpu_ns > 0));
    let latencies = tlsdyno::histogram::decode(result["histograms"]["whole_response"].as_str().unwrap()).unwrap();
    assert_eq!(latencies.len(), hits, "nothing is lost in the merged histogram");
    let names: Vec<&str> =
        result["workers"].as_array().unwrap().iter().map(|part| part["name"].as_str().unwrap()).collect();
    assert!((1..).zip(&names).all(|(number, name)| name.starts_with(&format!("worker {number} ("))), "{names:?}");
    nginx.stop().unwrap();
}

/// A plain server and its URL.
fn site() -> (Site, String) {
    let site = Site::serve();
    let url = site.url.clone();
    (site, url)
}

#[test]
fn an_open_loop_has_the_same_arrivals_however_it_is_divided() {
    let (_site, url) = site();
    let due = |workers: &[&str]| {
        let flags = ["-k", "--rate", "300/s", "--arrivals", "poisson", "--seed", "3", "--duration", "1s", "--json"];
        let result = json(&load(&[&[url.as_str()], workers, &flags[..]].concat()).output().unwrap());
        let errors: u64 = result["errors"].as_object().unwrap().values().filter_map(Value::as_u64).sum();
        result["hits"].as_u64().unwrap() + result["unserved"].as_u64().unwrap() + errors
    };
    let here = due(&[]);
    assert!((240..360).contains(&here), "{here}");
    assert_eq!(due(&["--workers", "3", "--launch", &launch("")]), here);
    // Two workers with two loops each, started by one command.
    let both = format!("{} & {}", launch("--threads 2").replace("exec ", ""), launch("--threads 2"));
    assert_eq!(due(&["--workers", "2", "--launch", &format!("n={{workers}}; {both}")]), here);
}

#[test]
fn a_worker_loads_what_its_own_list_permits() {
    // An address of this machine beyond loopback would be loaded, had the worker been told so.
    let refused = ["--i-may-load-this", "192.0.2.7", "--duration", "1s"];
    let workers = ["http://192.0.2.7:1/", "--workers", "1", "--launch", &launch("")];
    let output = load(&[&workers[..], &refused[..]].concat()).output().unwrap();
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(6), "{said}");
    assert!(said.contains("worker 1") && said.contains("--may-load 192.0.2.7"), "{said}");
}

/// Runs, and checks exit code and the words of the message.
fn refuse(arguments: &[&str], code: i32, words: &[&str]) {
    let output = load(arguments).output().unwrap();
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(code), "{arguments:?}: {said}");
    for word in words {
        assert!(said.contains(word), "{arguments:?}: `{word}` is missing in: {said}");
    }
}

#[test]
fn what_cannot_work_is_refused_with_whose_fault_it_is() {
    let url = "http://127.0.0.1:1/";
    refuse(&[url, "--workers", "2"], 2, &["--launch", "--token-file"]);
    refuse(&[url, "--launch", "true"], 2, &["--workers"]);
    refuse(&[url, "--workers", "2", "--launch", "true", "--listen", "0.0.0.0"], 2, &["every address", "name the one"]);
    refuse(&[url, "--workers", "2", "--launch", "true", "--listen", "192.0.2.1"], 6, &["192.0.2.1", "--listen"]);
    refuse(&[url, "--workers", "8", "--connections", "4", "--launch", &launch("")], 2, &["--connections", "--workers"]);
    refuse(&[url, "--workers", "1", "--launch", &launch(""), "--unix", "/x"], 2, &["--unix"]);
    // The command fails: what it wrote is shown.
    refuse(&[url, "--workers", "1", "--launch", "echo no such queue >&2; exit 3"], 6, &["code 3", "no such queue"]);
    // It does nothing.
    let idle = ["--workers", "2", "--launch", "exec sleep 60", "--join-within", "100ms"];
    refuse(&[&[url], &idle[..]].concat(), 4, &["0 of 2 workers", "--join-within"]);
}

#[test]
fn what_only_this_machine_can_load_says_so() {
    for file in ["apostolopoulos-2000-fig6", "goldberg-1998-fig1"] {
        let arguments = ["run", file, "--on", "host1"];
        let output = Command::new(TLSDYNO).args(arguments).stdin(Stdio::null()).output().unwrap();
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {said}");
        assert!(said.contains("from this machine only") && said.contains("arrays, clusters"), "{said}");
    }
}

fn worker(arguments: &[&str]) -> Output {
    Command::new(TLSDYNO).arg("worker").args(arguments).stdin(Stdio::null()).output().unwrap()
}

#[test]
fn a_worker_knows_its_coordinator_and_no_other() {
    let directory = tempfile::tempdir().unwrap();
    let [own, other] = ["own", "other"].map(|name| directory.path().join(name));
    // Two coordinators that wait for ever; their token files tell them apart.
    let begin = |path: &Path| {
        let arguments = ["http://127.0.0.1:1/", "--workers", "1", "--token-file", path.to_str().unwrap()];
        let child = load(&arguments).stderr(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
        let mut load = Load(child);
        let stderr = load.0.stderr.take().unwrap();
        let line = std::io::BufRead::lines(std::io::BufReader::new(stderr)).next().unwrap().unwrap();
        let address = line.split("--join ").nth(1).unwrap().split(' ').next().unwrap().to_owned();
        (load, address)
    };
    let (_first, address) = begin(&own);
    let (_second, _) = begin(&other);
    let said = |join: &str, token: &Path, code: i32| {
        let output = worker(&["--join", join, "--token-file", token.to_str().unwrap(), "--join-within", "100ms"]);
        assert_eq!(output.status.code(), Some(code), "{}", text(&output.stderr));
        text(&output.stderr)
    };
    assert!(said(&address, &other, 4).contains("not the coordinator of this token file"));
    assert!(said("127.0.0.1:1", &own, 4).contains("no coordinator at 127.0.0.1:1"));
    // The certificate of one, and the secret of the other.
    let lines = |path: &Path| std::fs::read_to_string(path).unwrap().lines().map(str::to_owned).collect::<Vec<_>>();
    let forged = [&lines(&own)[..2], &lines(&other)[2..]].concat().join("\n") + "\n";
    let path = directory.path().join("forged");
    std::fs::write(&path, forged).unwrap();
    assert!(said(&address, &path, 3).contains("chmod 600"));
    std::fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
    assert!(said(&address, &path, 4).contains("does not know the secret"));
    // What is no TLS at all.
    let nobody = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let join = nobody.local_addr().unwrap().to_string();
    std::thread::spawn(move || {
        let (mut stream, _) = nobody.accept().unwrap();
        std::io::Write::write_all(&mut stream, b"SSH-2.0-OpenSSH_9.2\r\n").unwrap();
        std::io::Read::read_to_end(&mut stream, &mut Vec::new()).unwrap();
    });
    assert!(said(&join, &own, 4).contains("not the coordinator of this token file"));
}
