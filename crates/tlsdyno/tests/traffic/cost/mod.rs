//! `tlsdyno cost` on servers whose costs are known, and on those that cannot be measured.

pub mod burning_server;
mod far;
mod memory;
mod speaking;
mod stacks;

use std::io::{BufRead, BufReader};
use std::net::TcpListener;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};

use serde_json::Value;
use tlsdyno::model::CertificateKind;
use tlsdyno::servers::certificates;
use tlsdyno::servers::cgroup::Cgroup;

use self::burning_server::BurningServer;
use crate::place::{self, Place};
use crate::stacks::go_server;

/// What parts are called in JSON.
const FULL: &str = "full handshake";
const RESUMED: &str = "resumed handshake";
const NEXT: &str = "next request on the connection";
const SIGNATURE: &str = "certificate and signature";

/// The server ends with the test.
struct Serving(Child);

impl Drop for Serving {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A program that prints where it listens: a server of ours as a line of JSON, a dispatcher as it is.
fn serving(command: &mut Command) -> (Serving, String) {
    let mut server = Serving(command.stdout(Stdio::piped()).spawn().unwrap());
    let mut line = String::new();
    BufReader::new(server.0.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let address = serde_json::from_str::<Value>(&line).ok().and_then(|line| Some(line["address"].as_str()?.to_owned()));
    (server, address.unwrap_or_else(|| line.trim().to_owned()))
}

fn run(place: &Place, arguments: &[&str]) -> Output {
    place.tlsdyno(&[&["cost", "--no-report"], arguments].concat()).output().unwrap()
}

fn cost(place: &Place, arguments: &[&str]) -> Value {
    cost_for(place, 30, arguments)
}

fn cost_for(place: &Place, time_s: u32, arguments: &[&str]) -> Value {
    complete(time_s, |time_s| run(place, &[arguments, &["--time", time_s, "--json"]].concat()))
}

fn is_complete(sheet: &Value) -> bool {
    let has_interval = |part: &Value| part["cost_ns"]["low"].is_number();
    let is_whole = |server: &Value| {
        server["unmeasured"].is_null() && server["parts"].as_array().is_none_or(|parts| parts.iter().all(has_interval))
    };
    sheet["cost"]["servers"].as_array().unwrap().iter().all(is_whole)
}

fn sheet(output: &Output) -> Value {
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

/// What a run prints that had a turn of each step.
fn complete(time_s: u32, run: impl Fn(&str) -> Output) -> Value {
    place::given_time(time_s, |time_s| sheet(&run(time_s)), is_complete)
}

/// The ends of the interval of a part, in microseconds of CPU time.
fn interval_us(parts: &Value, name: &str) -> [f64; 2] {
    let line = parts.as_array().unwrap().iter().find(|part| part["part"] == name);
    let cost = &line.unwrap_or_else(|| panic!("no `{name}` in {parts:#}"))["cost_ns"];
    ["low", "high"].map(|end| cost[end].as_f64().unwrap() / 1e3)
}

fn refused(place: &Place, arguments: &[&str], code: i32, why: &str) {
    let output = run(place, arguments);
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(code), "{arguments:?}: {said}");
    assert!(said.contains(why), "{arguments:?}: {said}");
}

/// On a quiet machine little is found to a twentieth, and nothing elsewhere.
mod long {
    use super::*;

    #[test]
    #[ignore = "two minutes, wants a quiet machine"]
    fn what_a_server_burns_is_found_to_some_microseconds() {
        let place = Place::new();
        let servers = [[0; 4], [50, 100, 200, 150]].map(BurningServer::start);
        let [usual, burning] = [&servers[0], &servers[1]].map(|server| format!("https://{}/", server.address));
        let sheet = cost_for(&place, 100, &[&usual, "--against", &burning]);
        let differences = &sheet["cost"]["differences"];
        let [usual, burning] = servers.map(BurningServer::ended);
        let [hello, sign, finish, request, next] = std::array::from_fn(|at| burning[at] - usual[at]);
        let parts = [
            ("accepting and closing", 0.0),
            ("reading the hello", hello),
            ("key agreement", 0.0),
            (SIGNATURE, sign),
            ("client's Finished, tickets", finish),
            ("the request", request),
            (NEXT, next),
        ];
        let found = parts.map(|(part, truth)| {
            let [low, high] = interval_us(differences, part);
            println!("{part}: {truth:.1} used, [{low:.1}, {high:.1}] found");
            (part, truth, low, high)
        });
        for (part, truth, low, high) in found {
            assert!(high - low < 60.0, "{part}: the machine is not quiet enough for this test: [{low}, {high}]");
            // What follows a burn is dearer, too. Of a next request the server's clock tells all.
            let more = if part == NEXT { 1.03 } else { 1.1 };
            let is_found = low < more * truth + 4.0 && high > 0.97 * truth - 3.0;
            assert!(is_found, "{part}: [{low}, {high}] for {truth} in {differences:#}");
        }
    }
}

/// What a server that burns CPU time at four points uses more than one that burns none, in microseconds.
const BURNT: [(&str, f64); 7] = [
    ("accepting and closing", 0.0),
    ("reading the hello", 1500.0),
    (SIGNATURE, 2000.0),
    ("client's Finished, tickets", 1500.0),
    ("the request", 2000.0),
    (NEXT, 2000.0),
    (FULL, 5000.0),
];

/// A server that burns CPU time at four points of a connection, beside one that burns none.
#[test]
fn what_a_server_burns_is_found_at_its_point_and_nowhere_else() {
    let place = Place::new();
    let [usual, burning] = [[0; 4], [1500, 2000, 1500, 2000]].map(BurningServer::start);
    let [usual, burning] = [&usual, &burning].map(|server| format!("https://{}/", server.address));
    let arguments = ["--against", &burning, "--json", &usual, "--time"];
    // Other tests run beside this one: each part is judged by its interval, once that of a whole handshake is narrow.
    let is_narrow = |sheet: &Value| {
        let differences = sheet["cost"]["differences"].as_array().unwrap();
        let has = |name| differences.iter().any(|part| part["part"] == name);
        is_complete(sheet) && BURNT.iter().all(|(part, _)| has(*part)) && {
            let [low, high] = interval_us(&sheet["cost"]["differences"], FULL);
            high - low < 2500.0
        }
    };
    let run = |time_s: &str| sheet(&run(&place, &[&arguments[..], &[time_s]].concat()));
    let sheet = place::given_time(30, run, is_narrow);
    let differences = &sheet["cost"]["differences"];
    for (part, truth) in BURNT {
        let [low, high] = interval_us(differences, part);
        // Neighbours make code dearer, but not what is burnt, which is CPU time. So steps that are compared with dearer
        // code near them look dearer. Half of the least is found nowhere else.
        let [least, most] = if truth == 0.0 { [-750.0, 750.0] } else { [0.5 * truth, 4.0 * truth] };
        assert!(low < most && high > least, "{part}: [{low}, {high}] for {truth} in {sheet:#}");
    }
    // It is on rustls, which compresses for clients that ask.
    let certificate = &sheet["cost"]["servers"][0]["certificate"];
    assert!(certificate["refused"].is_null() && certificate["message_bytes"].as_u64() > Some(100), "{certificate}");
    let compressed = "its certificate compressed by zlib";
    let [low, high] = interval_us(&sheet["cost"]["servers"][0]["parts"], compressed);
    assert!(low < 750.0 && high > -750.0, "{sheet:#}");
    let parts = sheet["cost"]["servers"][1]["parts"].as_array().unwrap();
    let life = parts.iter().filter(|part| part["kind"] == "life");
    let sum: f64 = life.map(|part| part["cost_ns"]["value"].as_f64().unwrap() / 1e3).sum();
    let steps = sheet["cost"]["servers"][1]["steps"].as_array().unwrap();
    let whole = steps.iter().find(|step| step["step"] == "TLS 1.3, request").unwrap();
    assert!((sum / (whole["cost_ns"]["value"].as_f64().unwrap() / 1e3) - 1.0).abs() < 0.02, "{sheet:#}");
}

/// It is on another library, and agrees on a key before it looks for a signature.
#[test]
fn a_server_is_started_and_told_as_markdown_in_the_units_of_its_owner() {
    let place = Place::new();
    let files = certificates::create(CertificateKind::P256, place.path()).unwrap();
    let command = format!(
        "env API_TOKEN=hunter2 {} -listen 127.0.0.1:{{port}} -certificate {} -key {} -object {}/hello.txt",
        go_server::program().display(),
        files.chain.display(),
        files.key.display(),
        place.docroot().display()
    );
    let site = ["--rate", "300", "--hits-per-handshake", "4"];
    let server = ["--server-command", &command, "--address", "127.0.0.1:{port}", "--page", "/other"];
    let output = run(&place, &[&server, &site[..], &["--time", "10", "--markdown"]].concat());
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    // The record may be given to others.
    for kept in ["store.sqlite", "store.sqlite-wal"].map(|file| std::fs::read(place.path().join(file))) {
        assert!(!kept.unwrap_or_default().windows(7).any(|bytes| bytes == b"hunter2"));
    }
    assert!(said.starts_with("### What does TLS cost this server"), "{said}");
    let is_told = said.contains("At 300 requests a second on 75 new connections");
    assert!(is_told || said.contains("costs this server an undecided amount"), "{said}");
    let not_offered = "Not offered by this server (the server does not compress its certificate by zlib (RFC 8879))";
    assert!(said.contains("| kept by the client | 32 | ") && said.contains(not_offered), "{said}");
    // A busy machine has no turn of some steps in ten seconds, and joins a part that comes out below nothing with the
    // next.
    let unmeasured = said.lines().find(|line| line.contains("which a longer --time measures")).unwrap_or_default();
    for part in ["the request", "next request on the connection, /other", "P-256 in place of X25519"] {
        let joined = format!(", {part}, together | ");
        let is_there = said.contains(&format!("| {part} | ")) || said.contains(&joined) || unmeasured.contains(part);
        assert!(is_there, "{part}: {said}");
    }
}

/// It takes ChaCha20 alone: the steps of a full handshake are there all the same.
#[test]
fn a_choosy_server_is_measured_with_what_it_takes() {
    let place = Place::new();
    let server = BurningServer::choosy();
    let sheet = sheet(&run(&place, &[&format!("https://{}/", server.address), "--time", "6", "--json"]));
    let of = &sheet["cost"]["servers"][0];
    assert!(of["negotiated"].as_str().unwrap().contains("CHACHA20"), "{of:#}");
    let parts = of["parts"].as_array().unwrap();
    assert!(parts.iter().any(|of| of["part"] == FULL), "{of:#}");
    // It takes each session once, and is resumed with a new one each time.
    let is_told = parts.iter().any(|of| of["part"] == RESUMED) || of["unmeasured"].to_string().contains(RESUMED);
    assert!(is_told, "{of:#}");
    let took = of["refused"].as_array().unwrap().iter().find(|step| step[0] == "TLS 1.3, request, AES-128-GCM");
    assert!(took.is_some_and(|step| step[1].as_str().unwrap().contains("it took TLS_CHACHA20")), "{of:#}");
}

#[test]
fn what_cannot_be_measured_is_refused_in_one_sentence() {
    let place = Place::new();
    let nobody = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let nobody = format!("https://{nobody}/");
    refused(&place, &["http://127.0.0.1:1/"], 2, "is plain HTTP");
    refused(&place, &["https://192.0.2.1/"], 2, "--i-may-load-this");
    let beside = ["https://127.0.0.1:1/", "--workers", "1", "--token-file", "token"];
    refused(&place, &[&beside[..], &["--pid", "1"]].concat(), 2, "its own --cpu-of");
    refused(&place, &[&beside[..], &["--on-loss", "go-on"]].concat(), 2, "leave --on-loss out");
    refused(&place, &["https://127.0.0.1:1/", "--workers", "2", "--token-file", "token"], 2, "one worker");
    refused(&place, &[&nobody], 4, "nobody answers");
    let plain = ["serve", "--listen-plain", "127.0.0.1:0", "--print-address", "--docroot", "docroot"];
    let (_plain, address) = serving(&mut place.tlsdyno(&plain));
    refused(&place, &[&format!("https://{address}/")], 4, "it answers plain HTTP");
}

/// What listens is not what works: a dispatcher passes bytes on.
#[test]
fn a_forwarder_is_refused_and_the_one_that_works_is_named() {
    let place = Place::new();
    let server = BurningServer::start([0, 2000, 0, 0]);
    let backend = ["--backend", &server.address];
    let mut command =
        place.tlsdyno(&[&["dispatch", "--listen", "127.0.0.1:0", "--print-address"], &backend[..]].concat());
    let (_forwarder, address) = serving(&mut command);
    refused(&place, &[&format!("https://{address}/")], 6, "passes them on");
}

/// HTTP/2 stands beside HTTP/1.1 where the server takes it, and is told where it does not.
#[test]
fn a_request_by_http2_is_a_part_where_the_server_takes_it() {
    let place = Place::new();
    let cost_of = |listener: &str| {
        let command = memory::nginx(&place, 2000, listener);
        let sheet = cost_for(&place, 12, &["--server-command", &command, "--address", "127.0.0.1:{port}"]);
        sheet["cost"]["servers"][0].clone()
    };
    let with = cost_of(" http2");
    let [one_by_one, at_once] = ["next request on the connection, HTTP/2", "each of 10 requests at once, HTTP/2"];
    for name in [one_by_one, at_once, "HTTP/2 in place of HTTP/1.1: its beginning and the first request"] {
        interval_us(&with["parts"], name);
    }
    let without = cost_of("");
    let refused = without["refused"].to_string();
    assert!(refused.contains("the server does not choose HTTP/2 (ALPN)"), "{without:#}");
    assert!(!without["parts"].to_string().contains("HTTP/2"), "{without:#}");
}

/// Its connections cost nothing by the clocks of the processes that were there before.
#[test]
fn a_server_that_waits_for_none_of_its_processes_is_read_by_its_control_group_or_refused() {
    let place = Place::new();
    let program = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/traffic/cost/forking_server.py");
    let files = certificates::create(CertificateKind::P256, place.path()).unwrap();
    let [program, chain, key] = [&program, &files.chain, &files.key].map(|path| path.to_str().unwrap());
    let mut command = Command::new("python3");
    let mut server =
        Serving(command.args([program, chain, key, "0", "careless"]).stdout(Stdio::piped()).spawn().unwrap());
    let mut port = String::new();
    BufReader::new(server.0.stdout.take().unwrap()).read_line(&mut port).unwrap();
    let url = format!("https://127.0.0.1:{}/", port.trim());
    refused(&place, &[&url], 6, "does not wait for such processes");
    // Not every machine lets us make control groups.
    let Ok(group) = Cgroup::create() else { return };
    std::fs::write(group.0.path.join("cgroup.procs"), server.0.id().to_string()).unwrap();
    let of_running = cost(&place, &[&url, "--no-request"]);
    drop(server);
    let command = format!("python3 {program} {chain} {key} {{port}}");
    let of_started = cost(&place, &["--server-command", &command, "--address", "127.0.0.1:{port}", "--no-request"]);
    for sheet in [of_running, of_started] {
        assert_eq!(sheet["manifest"]["cpu_accounting"], "cgroup");
        let parts = &sheet["cost"]["servers"][0]["parts"];
        // Beginning a process is most of what a connection costs here.
        let [accepting, full] = ["accepting and closing", FULL].map(|part| interval_us(parts, part)[1]);
        assert!(accepting > 200.0 && full > 50.0, "{parts:#}");
    }
}
