//! `tlsdyno load` as people run it: what it prints, how it exits, and what it says when something is wrong.

mod certificates;
mod curves;
mod dynamic;
mod groups;
mod guards;
mod http2;
mod network;
mod pacing;
mod places;
mod redirects;
mod results;
mod s_server;
pub mod screen;
mod threads;
mod trickle;

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::ops::Range;
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Output, Stdio};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};
use std::thread;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use tlsdyno::machines::carried::Packer;
use tlsdyno::model::job::{self, Held, Run};
use tlsdyno::model::{CertificateKind, ClientModel, ServerName};
use tlsdyno::servers::{self, Instance, ServerSpec, ServerTls};
use tlsdyno_engine::load::{Connections, Expect, LoadTarget, Object, Plan, Request, Resumption, Until, User, Workload};
use tlsdyno_tls::{Config, Effort, Settings, Version};

fn tlsdyno() -> Command {
    Command::new(env!("CARGO_BIN_EXE_tlsdyno"))
}

fn load(arguments: &[&str]) -> Output {
    tlsdyno().arg("load").args(arguments).stdin(Stdio::null()).output().unwrap()
}

fn stderr(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}

fn json(output: &Output) -> Value {
    serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{}", stderr(output)))
}

/// A plain server that answers every request with `answer` and tells the heads it saw.
fn server(answer: &'static str) -> (SocketAddr, Receiver<String>) {
    serve(TcpListener::bind("127.0.0.1:0").unwrap(), Arc::new(move |_| answer.to_owned()))
}

fn serve(listener: TcpListener, answer: Arc<dyn Fn(&str) -> String + Send + Sync>) -> (SocketAddr, Receiver<String>) {
    let address = listener.local_addr().unwrap();
    let (heads, seen) = channel();
    thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            let (heads, answer) = (heads.clone(), Arc::clone(&answer));
            thread::spawn(move || converse(stream, &*answer, |head| drop(heads.send(head))));
        }
    });
    (address, seen)
}

fn converse(mut stream: TcpStream, answer: &dyn Fn(&str) -> String, see: impl Fn(String)) {
    let mut reader = BufReader::new(stream.try_clone().unwrap());
    loop {
        let mut head = String::new();
        while !head.ends_with("\r\n\r\n") {
            if reader.read_line(&mut head).unwrap_or(0) == 0 {
                return;
            }
        }
        let close = head.contains("Connection: close");
        let text = answer(&head);
        see(head);
        if stream.write_all(text.as_bytes()).is_err() || close {
            return;
        }
    }
}

const ONE_BYTE: &str = "HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\nx";

#[test]
fn the_json_object_has_what_is_documented() {
    let (address, _) = server(ONE_BYTE);
    let url = format!("http://{address}/");
    let output = load(&[&url, "--total-connections", "20", "--close", "--connections", "4", "--json"]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let json = json(&output);
    assert_eq!(json["hits"], 20);
    assert_eq!(json["connections"], 20);
    assert_eq!(json["body_bytes"], 20);
    assert_eq!(json["errors"], json!({}));
    assert_eq!(json["statuses"], json!({"200": 20}));
    let resumed = ["resumed_intended", "resumed_offered", "resumed_accepted"];
    let kinds = [&resumed[..], &["full", "early_offered", "early_accepted", "retried_count"]].concat();
    let handshakes: Value = kinds.iter().map(|kind| ((*kind).to_owned(), json!(0))).collect();
    assert_eq!(json["handshakes"], handshakes);
    for number in ["hits_per_second", "client_cpu_ns_per_hit", "client_busy_fraction", "elapsed_ns"] {
        assert!(json[number].as_f64().unwrap() > 0.0, "{number}: {}", json[number]);
    }
    for phase in ["tcp_connect", "first_byte", "whole_response"] {
        let latency = &json["latency_ns"][phase];
        assert_eq!(latency["count"], 20);
        let ordered: Vec<u64> =
            ["p50", "p90", "p99", "p999", "max"].map(|name| latency[name].as_u64().unwrap()).to_vec();
        assert!(ordered.is_sorted() && ordered[0] > 0 && latency["mean"].as_f64().unwrap() > 0.0);
    }
    assert!(json["negotiated"].as_object().unwrap().is_empty() && json["warnings"].as_array().unwrap().is_empty());
}

#[test]
fn the_table_has_units() {
    let (address, _) = server(ONE_BYTE);
    let output = load(&[&format!("http://{address}/"), "--duration", "100ms", "--connections", "2"]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let text = String::from_utf8(output.stdout).unwrap();
    for part in ["plain HTTP", "hits", " /s", "body", "client CPU", "/hit", "% of a core", "errors", "none", "p99.9"] {
        assert!(text.contains(part), "{part} is missing:\n{text}");
    }
    assert_eq!(stderr_without_progress(&output.stderr), "", "nothing else on standard error");
}

fn stderr_without_progress(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).trim().to_owned()
}

#[test]
fn the_request_is_what_was_asked_for() {
    let (address, seen) = server(ONE_BYTE);
    let url = format!("http://{address}/a?b=c#d");
    let more = ["-X", "put", "-H", "Accept: text/html", "-H", "host: other", "--total-connections", "1", "--close"];
    let output = load(&[&[url.as_str()], &more[..]].concat());
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let head = seen.recv().unwrap();
    let expected =
        "PUT /a?b=c HTTP/1.1\r\nHost: other\r\nAccept: text/html\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";
    assert_eq!(head, expected);
}

#[test]
fn connections_carry_as_many_requests_as_asked_for() {
    let (address, _) = server(ONE_BYTE);
    let url = format!("http://{address}/");
    let output =
        load(&[&url, "--total-connections", "9", "--requests-per-connection", "1", "--connections", "3", "--json"]);
    assert_eq!((&json(&output)["hits"], output.status.code()), (&9.into(), Some(0)));
    let output = load(&[&url, "--duration", "200ms", "--connections", "3", "--json"]);
    assert_eq!(json(&output)["connections"], 3);
    let output = load(&[&url, "--duration", "200ms", "--connections", "3", "--requests-per-connection", "5", "--json"]);
    let measured = json(&output);
    let (hits, connections) = (measured["hits"].as_u64().unwrap(), measured["connections"].as_u64().unwrap());
    assert!(connections >= hits / 5 && connections <= hits / 5 + 6, "{hits} hits on {connections} connections");
}

#[test]
fn an_ipv6_literal_is_an_address() {
    let Ok(listener) = TcpListener::bind("[::1]:0") else {
        eprintln!("this machine has no IPv6 loopback");
        return;
    };
    let (address, seen) = serve(listener, Arc::new(|_| ONE_BYTE.to_owned()));
    let output = load(&[&format!("http://{address}/"), "--total-connections", "1", "--close"]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    assert!(seen.recv().unwrap().contains(&format!("Host: {address}\r\n")));
}

/// Runs, and checks exit code and the words of the message.
fn refuse(arguments: &[&str], code: i32, words: &[&str]) {
    let output = load(arguments);
    let text = stderr(&output);
    assert_eq!(output.status.code(), Some(code), "{arguments:?}: {text}");
    for word in words {
        assert!(text.contains(word), "{arguments:?}: `{word}` is missing in: {text}");
    }
}

#[test]
fn wrong_arguments_are_refused_with_the_remedy() {
    refuse(&[], 2, &["<URL>"]);
    refuse(&["localhost:80"], 2, &["https://HOST"]);
    refuse(&["http://127.0.0.1/", "--no-such-flag"], 2, &["--no-such-flag"]);
    refuse(&["http://127.0.0.1/", "--connections", "0"], 2, &["1..=1000000"]);
    refuse(&["http://127.0.0.1/", "--duration", "soon"], 2, &["500ms"]);
    refuse(&["http://127.0.0.1/", "--duration", "0"], 2, &["longer than nothing"]);
    refuse(&["http://127.0.0.1/", "--reuse", "50%"], 2, &["plain http"]);
    refuse(&["https://127.0.0.1/", "--reuse", "150%"], 2, &["0% to 100%"]);
    refuse(&["https://127.0.0.1/", "--effort", "lazy"], 2, &["honest, lean, floor"]);
    refuse(&["https://192.0.2.1/", "--effort", "floor"], 2, &["192.0.2.1:443", "lean"]);
    refuse(&["https://127.0.0.1/", "-k", "--suite", "RC4-MD5"], 2, &["RC4-MD5", "AES128-SHA"]);
    refuse(&["https://127.0.0.1/", "-k", "--tls", "1.2", "--suite", "TLS_AES_128_GCM_SHA256"], 2, &["not offered"]);
    refuse(&["https://127.0.0.1/", "--ca-file", "/no/such/file"], 2, &["/no/such/file"]);
    refuse(&["--job", "/no/such/job"], 3, &["/no/such/job"]);
    let log = tempfile::NamedTempFile::new().unwrap();
    let line = b"192.0.2.7 - - [10/Oct/2000:13:55:36 -0700] \"GET /a HTTP/1.1\" 200 5 \"-\" \"-\"\n";
    log.as_file().write_all(line).unwrap();
    let replay = ["http://127.0.0.1/", "--trace", log.path().to_str().unwrap(), "--rate", "5/s"];
    refuse(&[&replay[..], &["--window", "10000"]].concat(), 2, &["--window", "--rate", "leave out one"]);
}

#[test]
fn targets_that_cannot_be_reached_are_named() {
    let nobody = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    refuse(&[&format!("http://{nobody}/")], 4, &["not one request succeeded", "refuses connections", "running"]);
    refuse(&["http://no-such-host.invalid/"], 4, &["no-such-host.invalid"]);
    let (address, _) = server("HTTP/1.1 301 Moved\r\nContent-Length: 0\r\n\r\n");
    let output = load(&[&format!("http://{address}/"), "--total-connections", "5", "--close"]);
    assert_eq!(output.status.code(), Some(4));
    assert!(String::from_utf8_lossy(&output.stdout).contains("--expect-status 301"));
    let (address, _) = server("SSH-2.0-OpenSSH_9.2\r\n");
    refuse(&[&format!("http://{address}/"), "--total-connections", "5"], 4, &["HTTP/1"]);
    refuse(&[&format!("https://{address}/"), "-k", "--total-connections", "5"], 4, &["not one request succeeded"]);
}

#[test]
fn failed_requests_are_counted_and_end_with_a_code_of_their_own() {
    let count = std::sync::atomic::AtomicU64::new(0);
    let answer = move |_: &str| {
        let failing = count.fetch_add(1, std::sync::atomic::Ordering::Relaxed).is_multiple_of(2);
        if failing { "HTTP/1.1 503 Busy\r\nContent-Length: 0\r\n\r\n".to_owned() } else { ONE_BYTE.to_owned() }
    };
    let (address, _) = serve(TcpListener::bind("127.0.0.1:0").unwrap(), Arc::new(answer));
    let output = load(&[&format!("http://{address}/"), "--total-connections", "10", "--close", "--json"]);
    assert_eq!(output.status.code(), Some(7));
    let json = json(&output);
    assert_eq!((&json["hits"], &json["errors"]), (&5.into(), &json!({"status": 5})));
    assert!(json["warnings"][0].as_str().unwrap().contains("503 instead of 200"));
}

/// The built-in server with a certificate of its own, and the file of its root.
fn built_in(directory: &Path) -> (Instance, String) {
    servers::launch::set_own_executable(Path::new(env!("CARGO_BIN_EXE_tlsdyno")));
    let docroot = directory.join("docroot");
    std::fs::create_dir(&docroot).unwrap();
    std::fs::write(docroot.join("x"), "x").unwrap();
    let certificate = servers::certificates::create(CertificateKind::P256, directory).unwrap();
    let ca = certificate.ca.display().to_string();
    let mut spec = ServerSpec::new(ServerName::Builtin, docroot);
    spec.tls = Some(ServerTls::new(certificate));
    (servers::start(&spec, directory).unwrap(), ca)
}

#[test]
fn honest_effort_wants_a_server_it_can_trust() {
    let directory = tempfile::tempdir().unwrap();
    let (server, ca) = built_in(directory.path());
    let url = format!("https://{}/x", server.address());
    let few = ["--total-connections", "3", "--close"];
    let run = |more: &[&str]| load(&[&[url.as_str()], &few[..], more].concat());

    assert_eq!(run(&["--ca-file", &ca]).status.code(), Some(0));
    assert_eq!(run(&["--insecure"]).status.code(), Some(0));
    let stranger = tempfile::tempdir().unwrap();
    let stranger = servers::certificates::create(CertificateKind::P256, stranger.path()).unwrap();
    let output = run(&["--ca-file", &stranger.ca.display().to_string()]);
    assert_eq!(output.status.code(), Some(4));
    let text = stderr(&output);
    assert!(text.contains("--ca-file") && text.contains("--insecure"), "{text}");
    server.stop().unwrap();
}

#[test]
fn too_few_descriptors_are_found_before_anything_is_measured() {
    let command = "ulimit -n 60; exec \"$0\" load http://127.0.0.1:1/ --connections 1000";
    let output = Command::new("bash").args(["-c", command, env!("CARGO_BIN_EXE_tlsdyno")]).output().unwrap();
    assert_eq!(output.status.code(), Some(6), "{}", stderr(&output));
    assert!(stderr(&output).contains("prlimit") && stderr(&output).contains("--connections 28"), "{}", stderr(&output));
}

/// A child that is killed if the test fails before it ends.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn ctrl_c_prints_what_was_measured() {
    let (address, seen) = server(ONE_BYTE);
    let mut command = tlsdyno();
    command.args(["load", &format!("http://{address}/"), "--duration", "10m", "--connections", "2", "--json"]);
    let mut child = Running(command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap());
    for _ in 0..100 {
        seen.recv().unwrap();
    }
    kill_process(Pid::from_child(&child.0), Signal::INT).unwrap();
    let mut text = String::new();
    child.0.stdout.take().unwrap().read_to_string(&mut text).unwrap();
    assert_eq!(child.0.wait().unwrap().code(), Some(130));
    let json: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(json["stopped"], true);
    assert!(json["hits"].as_u64().unwrap() > 50);
}

/// Users who ask for one byte at `path` so many times, one request after the other.
fn of_one_byte(path: &str, users: u32, requests: u32) -> Workload {
    let expect = Expect { status: Some(200), body_bytes: Some(1) };
    let object = Object { method: "GET".into(), path: path.into(), headers: String::new(), body_bytes: 0, expect };
    let request = Request { object: 0, page_end: true, close_after: false, forget_session: false };
    Workload {
        objects: vec![object],
        requests: vec![request; (users * requests) as usize],
        users: (0..users).map(|user| User { requests: user * requests..(user + 1) * requests }).collect(),
        ..Workload::default()
    }
}

fn connections(total: u32, requests_each: Option<u32>) -> Connections {
    let timeout_ns = 20_000_000_000;
    Connections { total, per_user: 1, first_alone: true, requests_each, timeout_ns, batch_ns: 0 }
}

/// The load process of an experiment, answering commands.
struct Job {
    child: Running,
    commands: Option<ChildStdin>,
    replies: BufReader<ChildStdout>,
}

impl Job {
    /// Of a target for each of these settings, which so many users ask for one byte.
    fn start(
        (address, path): (SocketAddr, &str),
        targets: &[(Option<Settings>, Resumption)],
        (users, requests): (u32, u32),
        connections: Connections,
        directory: &Path,
    ) -> Job {
        let mut packer = Packer::default();
        let workload = Arc::new(of_one_byte(path, users, requests));
        let plans = targets.iter().map(|(tls, resumption)| {
            let tls = tls.clone().map(|settings| Arc::new(Config::new(settings).unwrap()));
            let target = LoadTarget { address, host: "localhost".into(), tls, prior_knowledge: false };
            let plan = Plan::new(target, Arc::clone(&workload), connections);
            packer.pack(&Plan { resumption: *resumption, ..plan }).unwrap()
        });
        let plans: Vec<_> = plans.collect();
        let data = packer.data.iter().map(|(hash, bytes)| (hash.clone(), STANDARD.encode(bytes))).collect();
        let job = job::Job { plans, data, client: ClientModel::default(), workers: None, network: None };
        let path = directory.join("job.json");
        std::fs::write(&path, serde_json::to_string(&job).unwrap()).unwrap();
        let mut command = tlsdyno();
        command.arg("load").arg("--job").arg(&path).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = Running(command.spawn().unwrap());
        let commands = child.0.stdin.take();
        let replies = BufReader::new(child.0.stdout.take().unwrap());
        Job { child, commands, replies }
    }

    fn reply(&mut self) -> Value {
        let mut line = String::new();
        self.replies.read_line(&mut line).unwrap();
        serde_json::from_str(&line).unwrap()
    }

    fn run(&mut self, address: SocketAddr, plan_number: usize, users: Range<u32>, held: Option<Held>) -> Value {
        let run = Run { plan_number, address, users, until: Until::Laps(1), seed: 0, held };
        let command = serde_json::to_string(&run).unwrap();
        writeln!(self.commands.as_mut().unwrap(), "{command}").unwrap();
        self.reply()
    }

    /// The most memory that it had resident so far, bytes.
    fn resident_max(&self) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.0.id())).unwrap();
        let line = status.lines().find(|line| line.starts_with("VmHWM")).unwrap();
        line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() * 1024
    }

    fn end(mut self) {
        self.commands = None;
        assert_eq!(self.child.0.wait().unwrap().code(), Some(0));
    }
}

#[test]
fn a_job_answers_blocks_on_command() {
    let (address, _) = server(ONE_BYTE);
    let directory = tempfile::tempdir().unwrap();
    let targets = [(None, Resumption::Always)];
    let mut job = Job::start((address, "/"), &targets, (6, 5), connections(4, None), directory.path());
    assert!(job.reply()["ready"].is_object());
    for (users, hits) in [(0..6, 30), (1..3, 10)] {
        let reply = job.run(address, 0, users, None);
        let outcome = &reply["outcome"]["outcome"];
        assert_eq!(outcome["hits"], hits, "{reply}");
        let histogram = outcome["histograms"]["whole_response"].as_str().unwrap();
        assert_eq!(tlsdyno::histogram::decode(histogram).unwrap().len(), hits);
    }
    assert!(job.run(address, 7, 0..1, None)["error"]["message"].as_str().unwrap().contains("no plan 7"));
    job.end();
}

/// Two targets stand for two modes of one server. Sessions of one are never offered in the other, nor under another
/// number: first connections there are full handshakes again.
#[test]
fn slices_keep_their_sessions_to_themselves() {
    let directory = tempfile::tempdir().unwrap();
    let (server, _) = built_in(directory.path());
    for (version, tickets) in [(Version::Tls13, true), (Version::Tls12, true), (Version::Tls12, false)] {
        let settings = Settings { versions: vec![version], effort: Effort::Lean, tickets, ..Settings::default() };
        let targets = [(Some(settings.clone()), Resumption::Share(0.9)), (Some(settings), Resumption::Share(0.9))];
        let site = (server.address(), "/x");
        let mut job = Job::start(site, &targets, (40, 1), connections(2, Some(1)), directory.path());
        job.reply();
        let mut full = |target: usize, store: u64| {
            let held = Held { number: 10 * target as u64 + store, dropped_numbers: Vec::new(), is_slice: true };
            let outcome = job.run(site.0, target, 0..8, Some(held))["outcome"]["outcome"].clone();
            assert_eq!(outcome["hits"], 8, "{outcome}");
            assert_eq!(outcome["handshakes"]["resumed_offered"], outcome["handshakes"]["resumed_accepted"]);
            assert_eq!(outcome["histograms"], json!({}));
            outcome["handshakes"]["full"].as_u64().unwrap()
        };
        let turns = [(0, 0), (0, 0), (1, 0), (0, 1), (0, 0), (1, 0), (0, 0), (0, 0), (0, 0)];
        let seen = turns.map(|(target, store)| full(target, store));
        // A full handshake begins each store; then one connection in ten is full, counted over all runs of a store.
        assert_eq!(seen[0], 1);
        assert_eq!((seen[2], seen[3]), (1, 1), "{version:?}: no session of another store was there to offer");
        let of_first: u64 = turns.iter().zip(seen).filter(|(turn, _)| **turn == (0, 0)).map(|(_, full)| full).sum();
        assert_eq!(of_first, 5, "{version:?}: 48 connections of one store, a tenth of them full");
        job.end();
    }
    server.stop().unwrap();
}

/// Thousands of users, each with TLS sessions of its own, in one block; what they need must not add up: `bytes_most`
/// for all that are more than a thousand.
fn many_users_need_no_more_memory_than_a_thousand(users: u32, bytes_most: u64) {
    let directory = tempfile::tempdir().unwrap();
    let (server, _) = built_in(directory.path());
    let settings = Settings { versions: vec![Version::Tls13], effort: Effort::Floor, ..Settings::default() };
    let targets = [(Some(settings), Resumption::Always)];
    let site = (server.address(), "/x");
    let mut job = Job::start(site, &targets, (users, 2), connections(64, None), directory.path());
    job.reply();
    let run = |job: &mut Job, users: u32| job.run(site.0, 0, 0..users, None)["outcome"]["outcome"].clone();
    // The second block still allocates what all later ones use again, however many users they have.
    for users in [500, 1000] {
        assert_eq!(run(&mut job, users)["hits"], 2 * users);
    }
    let before = job.resident_max();
    let outcome = run(&mut job, users);
    assert_eq!(outcome["hits"], 2 * users);
    assert_eq!(outcome["handshakes"]["full"], users);
    let grown = job.resident_max().saturating_sub(before);
    assert!(grown < bytes_most, "grown by {grown} bytes");
    job.end();
    server.stop().unwrap();
}

/// The sessions of 3,000 alone would be three times that; the kernel counts pages of each thread in batches.
#[test]
fn four_thousand_users_need_no_more_memory_than_a_thousand() {
    many_users_need_no_more_memory_than_a_thousand(4_000, 900_000);
}

mod long {
    /// Less than 100 bytes for each user more: the sessions alone would be nine times that.
    #[test]
    #[ignore = "twenty thousand handshakes: make test-long"]
    fn ten_thousand_users_need_no_more_memory_than_a_thousand() {
        super::many_users_need_no_more_memory_than_a_thousand(10_000, 900_000);
    }
}
