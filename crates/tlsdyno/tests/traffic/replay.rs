//! A log replayed against nginx: what its own access log says about order and window.

use crate::place::eventually;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::fs;
use std::io::Read;
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{SystemTime, UNIX_EPOCH};

use flate2::read::GzDecoder;

/// Larger responses are cut to this in the log that is replayed: order does not depend on sizes, the time of the test
/// does.
const LARGEST_BYTES: u64 = 20_000;

fn tlsdyno(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_tlsdyno")).args(arguments).output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// The real log in the repository (tests/data/README.md), with its large responses cut.
fn real_log() -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/semicomplete-access.log.gz");
    let mut log = String::new();
    GzDecoder::new(fs::File::open(path).unwrap()).read_to_string(&mut log).unwrap();
    let cut = |line: &str| {
        let parts: Vec<&str> = line.splitn(3, '"').collect();
        let mut words: Vec<String> = parts[2].split(' ').map(str::to_owned).collect();
        if words[2].parse::<u64>().is_ok_and(|bytes| bytes > LARGEST_BYTES) {
            words[2] = LARGEST_BYTES.to_string();
        }
        format!("{}\"{}\"{}\n", parts[0], parts[1], words.join(" "))
    };
    log.lines().map(cut).collect()
}

/// nginx that logs, as each response ends, which place of the trace the request had.
struct Nginx {
    child: Child,
    address: String,
    log: PathBuf,
}

impl Nginx {
    fn start(place: &Path, docroot: &Path) -> Nginx {
        let port = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap().local_addr().unwrap().port();
        let log = place.join("places.log");
        let configuration = format!(
            "user root; daemon off; worker_processes 1; pid {place}/pid; error_log {place}/errors;
            events {{ worker_connections 1024; }}
            http {{ log_format place '$http_trace_index $msec'; access_log {log} place; client_body_temp_path \
             {place}/b; proxy_temp_path {place}/p;
            fastcgi_temp_path {place}/f; uwsgi_temp_path {place}/u; scgi_temp_path {place}/s; keepalive_requests \
             1000000; if_modified_since exact;
            server {{ listen 127.0.0.1:{port}; root {docroot}; error_page 405 =200 $uri; }} }}",
            place = place.display(),
            log = log.display(),
            docroot = docroot.display(),
        );
        fs::write(place.join("nginx.conf"), configuration).unwrap();
        let child = Command::new("nginx")
            .args(["-p", place.to_str().unwrap(), "-c", "nginx.conf", "-e", "errors"])
            .stdin(Stdio::null())
            .spawn()
            .unwrap();
        let address = format!("127.0.0.1:{port}");
        eventually("nginx listens", || TcpStream::connect(&address).is_ok());
        Nginx { child, address, log }
    }

    /// The places in the order in which the requests ended; the log begins anew.
    fn take_places(&self) -> Vec<usize> {
        let log = fs::read_to_string(&self.log).unwrap();
        fs::OpenOptions::new().write(true).truncate(true).open(&self.log).unwrap();
        log.lines().map(|line| line.split(' ').next().unwrap().parse().unwrap()).collect()
    }

    /// When the request with each place ended, seconds.
    fn times(&self) -> BTreeMap<usize, f64> {
        let log = fs::read_to_string(&self.log).unwrap();
        let entry = |line: &str| line.split_once(' ').map(|(place, at)| (place.parse().unwrap(), at.parse().unwrap()));
        log.lines().filter_map(entry).collect()
    }
}

impl Drop for Nginx {
    fn drop(&mut self) {
        // The master ends its workers.
        let pid = rustix::process::Pid::from_child(&self.child);
        rustix::process::kill_process(pid, rustix::process::Signal::TERM).ok();
        self.child.wait().ok();
    }
}

/// One worker logs a response before it reads the request that waited for it: so in the log, too, every user's requests
/// are in order, and when one ends, everything before the window in which it was presented has. Answers the largest
/// distance between one that ended and the oldest that had not.
fn assert_order(places: &[usize], clients: &[&str], window: usize) -> usize {
    assert_eq!(places.len(), clients.len(), "every request was made once");
    let mut served = vec![false; clients.len()];
    let (mut oldest, mut largest) = (0, 0);
    let mut latest: HashMap<&str, usize> = HashMap::new();
    for place in places {
        assert!(*place < oldest + window, "{place} ended while {oldest} had not, with a window of {window}");
        largest = largest.max(place.saturating_sub(oldest));
        let before = latest.insert(clients[*place], *place);
        assert!(before.is_none_or(|before| before < *place), "{} asked for {place} after {before:?}", clients[*place]);
        assert!(!std::mem::replace(&mut served[*place], true), "{place} was served twice");
        while served.get(oldest) == Some(&true) {
            oldest += 1;
        }
    }
    assert_eq!(oldest, clients.len());
    largest
}

/// Prints a row for each window.
fn replay(name: &str, log: &str, windows: &[usize]) {
    let place = tempfile::tempdir().unwrap();
    let path = place.path().join("access.log");
    fs::write(&path, log).unwrap();
    let path = path.to_str().unwrap();
    let clients: Vec<&str> = log.lines().map(|line| line.split(' ').next().unwrap()).collect();
    let site = place.path().join("site");
    let imported = tlsdyno(&["trace", "import", path, "-o", site.to_str().unwrap()]);
    assert!(imported.status.success(), "{}", text(&imported.stderr));
    let nginx = Nginx::start(place.path(), &site.join("docroot"));
    let url = format!("http://{}/", nginx.address);
    nginx.take_places();
    for window in windows {
        let window_text = window.to_string();
        let arguments =
            ["load", &url, "--trace", path, "--imported", "--number-requests", "--window", &window_text, "--json"];
        let output = tlsdyno(&arguments);
        assert_eq!(output.status.code(), Some(0), "{}{}", text(&output.stdout), text(&output.stderr));
        let json: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!(json["hits"], clients.len());
        assert_eq!(json["window"]["limit"], *window);
        assert!(json["window"]["largest_distance"].as_u64().unwrap() < *window as u64);
        let largest = assert_order(&nginx.take_places(), &clients, *window);
        let users = clients.iter().collect::<HashSet<_>>().len();
        let seconds = json["elapsed_ns"].as_f64().unwrap() / 1e9;
        let stalls = &json["window"]["stalls"];
        println!("| {name} | {} | {users} | {window} | {largest} | {stalls} | {seconds:.1} |", clients.len());
    }
}

#[test]
fn the_servers_log_shows_each_users_order_and_the_window() {
    replay("real", &real_log(), &[100, 1_000, 10_000]);
}

#[test]
fn the_smallest_window_without_stalls_is_found() {
    let log: String = real_log().lines().take(2_000).map(|line| format!("{line}\n")).collect();
    let place = tempfile::tempdir().unwrap();
    let path = place.path().join("access.log");
    fs::write(&path, log).unwrap();
    let site = place.path().join("site");
    let path = path.to_str().unwrap();
    assert!(tlsdyno(&["trace", "import", path, "-o", site.to_str().unwrap()]).status.success());
    let nginx = Nginx::start(place.path(), &site.join("docroot"));
    let url = format!("http://{}/", nginx.address);
    let output = tlsdyno(&["load", &url, "--trace", path, "--imported", "--window", "search", "-c", "8", "--json"]);
    assert_eq!(output.status.code(), Some(0), "{}{}", text(&output.stdout), text(&output.stderr));
    let json: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((&json["hits"], &json["window"]["stalls"]), (&2_000.into(), &0.into()));
    let stalled = tlsdyno(&["load", &url, "--trace", path, "--imported", "--window", "1", "-c", "8", "--json"]);
    let json: serde_json::Value = serde_json::from_slice(&stalled.stdout).unwrap();
    assert!(json["window"]["stalls"].as_u64().unwrap() > 0, "{json}");
}

/// The server's own clock says when each request came: never before its time, and on most of them soon after.
#[test]
fn the_times_of_the_log_are_kept_at_ten_times_its_speed() {
    let at_s: Vec<usize> = (0..60).map(|place| place * 20 / 60).collect();
    let line = |(place, at_s): (usize, &usize)| {
        let (user, second) = (place * 7 % 5, 10 + at_s);
        format!("192.0.2.{user} - - [17/May/2015:10:05:{second} +0000] \"GET /{user} HTTP/1.1\" 200 5 \"-\" \"-\"\n")
    };
    let log: String = at_s.iter().enumerate().map(line).collect();
    let place = tempfile::tempdir().unwrap();
    let path = place.path().join("access.log");
    fs::write(&path, log).unwrap();
    let site = place.path().join("site");
    let path = path.to_str().unwrap();
    assert!(tlsdyno(&["trace", "import", path, "-o", site.to_str().unwrap()]).status.success());
    let nginx = Nginx::start(place.path(), &site.join("docroot"));
    let url = format!("http://{}/", nginx.address);
    let flags = ["--imported", "--number-requests", "--timing", "x10", "-c", "3", "--json"];
    let began = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs_f64();
    let output = tlsdyno(&[&["load", &url, "--trace", path], &flags[..]].concat());
    assert_eq!(output.status.code(), Some(0), "{}{}", text(&output.stdout), text(&output.stderr));
    let json: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((&json["hits"], &json["latency_ns"]["scheduled_response"]["count"]), (&60.into(), &60.into()));
    let times = nginx.times();
    assert_eq!(times.len(), 60);
    // Three requests in a second of the log, of which there are twenty.
    let mut begun: Vec<f64> = (0..60).map(|place| times[&place] - place as f64 / 30.0).collect();
    begun.sort_by(f64::total_cmp);
    assert!(begun[0] > began - 0.01, "none comes before its time: {began}, {begun:?}");
    assert!(begun[30] - begun[0] < 0.3, "most come when they should: {begun:?}");
    for (flag, value) in [("--rate", "5/s"), ("--window", "5")] {
        let refused = tlsdyno(&["load", &url, "--trace", path, "--timing", "original", flag, value]);
        assert_eq!(refused.status.code(), Some(2));
        assert!(text(&refused.stderr).contains("leave them out"), "{}", text(&refused.stderr));
    }
    let refused = tlsdyno(&["load", &url, "--trace", path, "--timing", "fast"]);
    assert!(text(&refused.stderr).contains("like x10"), "{}", text(&refused.stderr));
}

/// A million requests: `cargo test --release -p tlsdyno --test traffic replay:: -- --include-ignored --nocapture`, half
/// a minute.
#[test]
#[ignore = "long: a million requests; run by hand"]
fn a_million_requests_keep_order_and_window() {
    let synthetic = tempfile::NamedTempFile::new().unwrap();
    let path = synthetic.path().to_str().unwrap();
    assert!(tlsdyno(&["trace", "synth", "specweb96", "--users", "10000", "-o", path]).status.success());
    replay("synthetic", &fs::read_to_string(path).unwrap(), &[100, 1_000, 10_000]);
}
