//! `tlsdyno probe serve`: metrics and a page, while a robot writes.

use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use super::super::place::{Place, eventually, request, signal};
use super::super::stacks::go_server::GoServer;
use super::{probe, robot, stderr};

/// A served store.
struct Served {
    child: Child,
    address: SocketAddr,
}

impl Served {
    fn start(place: &Place, store: &str) -> Served {
        let all = ["probe", "serve", "--listen", "127.0.0.1:0", "--store", store];
        let mut child = place.tlsdyno(&all).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
        let address = line.split("http://").nth(1).unwrap().split('/').next().unwrap().parse().unwrap();
        Served { child, address }
    }

    fn get(&self, target: &str) -> String {
        request(self.address, &format!("GET {target} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"))
    }

    /// The value of a metric, by its name and a part of its labels.
    fn metric(&self, name: &str, labels: &str) -> Option<f64> {
        let text = self.get("/metrics");
        let line = text.lines().find(|line| line.starts_with(&format!("{name}{{")) && line.contains(labels))?;
        line.rsplit(' ').next()?.parse().ok()
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        signal(self.child.id(), rustix::process::Signal::INT);
        let _ = self.child.wait();
    }
}

#[test]
fn metrics_and_page_follow_the_robot() {
    let place = Place::new();
    let go = GoServer::start(b"object", None);
    let url = format!("https://{}/", go.address);
    let store = place.path().join("probe.sqlite").display().to_string();
    let served = Served::start(&place, &store);
    assert!(served.get("/metrics").contains("tlsdyno_probe_store_up 0"), "there is no store yet");
    assert!(served.get("/").starts_with("HTTP/1.1 503 "));
    let all = ["probe", &url, "--every", "50ms", "--store", &store, "--quiet", "--vantage", "Bern"];
    let mut robot = robot(&place.tlsdyno(&all)).spawn().unwrap();
    eventually("rounds are counted", || served.metric("tlsdyno_probe_rounds_total", "vantage=\"Bern\"") > Some(5.0));
    assert_eq!(served.metric("probe_success", &url), Some(1.0));
    let [full, resumed] = ["full", "resumed"]
        .map(|kind| served.metric("tlsdyno_probe_handshake_seconds", &format!("kind=\"{kind}\"")).unwrap());
    assert!(resumed > 0.0 && full > 0.0, "{full} {resumed}");
    let page = served.get("/?days=1");
    assert!(page.starts_with("HTTP/1.1 200 ") && page.contains("A resumed session saves"), "{}", &page[..600]);
    assert!(page.contains("from Bern") && page.contains("/?days=30"));
    assert!(served.get("/?from=yesterday").starts_with("HTTP/1.1 400 "));
    assert!(served.get("/other").starts_with("HTTP/1.1 404 "));
    let elsewhere = request(served.address, "GET /metrics HTTP/1.1\r\nHost: evil.example\r\n\r\n");
    assert!(elsewhere.starts_with("HTTP/1.1 421 "), "{elsewhere}");
    let posted = request(served.address, "POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\n\r\n");
    assert!(posted.starts_with("HTTP/1.1 405 "), "{posted}");
    signal(robot.id(), rustix::process::Signal::INT);
    assert_eq!(robot.wait().unwrap().code(), Some(130));
}

#[test]
fn clients_that_say_nothing_close_it_to_nobody() {
    let place = Place::new();
    let served = Served::start(&place, place.path().join("probe.sqlite").to_str().unwrap());
    let connect = |said: &[u8]| {
        let mut stream = TcpStream::connect(served.address).unwrap();
        stream.write_all(said).unwrap();
        stream
    };
    let began = Instant::now();
    let _silent: Vec<TcpStream> = (0..100).map(|at| connect(&b"GET /metrics HTTP/1.1\r\nHost: x"[..at % 30])).collect();
    assert!(served.get("/metrics").contains("tlsdyno_probe_store_up"));
    assert!(began.elapsed() < Duration::from_secs(9), "nobody waited for the others' time to be over");
    for _ in 0..40 {
        assert!(served.get("/metrics").contains("tlsdyno_probe_store_up"));
    }
}

#[test]
fn it_is_served_beyond_loopback_only_when_asked_for() {
    let place = Place::new();
    let refused = probe(&place, &["serve", "--listen", "0.0.0.0:0"]);
    assert_eq!(refused.status.code(), Some(2));
    assert!(stderr(&refused).contains("--beyond-loopback"), "{}", stderr(&refused));
}

#[test]
fn examples_are_printed_and_a_robot_takes_its_sites_from_a_file() {
    let place = Place::new();
    for name in ["config", "robot.service", "serve.service", "once.service", "once.timer", "dashboard.json"] {
        let printed = probe(&place, &["example", name]);
        assert!(printed.status.success() && printed.stdout.len() > 100, "{name}");
    }
    let go = GoServer::start(b"object", None);
    let config = place.path().join("sites.toml");
    let text = format!(
        "every = \"100ms\"\nstore = \"kept.sqlite\"\nvantage = \"Bern\"\n[sites]\nno_early_data = true\n\
         [[site]]\nurl = \"https://{0}/a\"\n[[site]]\nurl = \"https://{0}/b\"\nevery = \"400ms\"\n",
        go.address
    );
    std::fs::write(&config, text).unwrap();
    let file = config.to_str().unwrap();
    let robot = probe(&place, &["--config", file, "--for", "3s", "--quiet"]);
    assert_eq!(robot.status.code(), Some(0), "{}", stderr(&robot));
    let report = probe(&place, &["report", "--store", "kept.sqlite", "--json"]);
    let sites: serde_json::Value = serde_json::from_slice(&report.stdout).unwrap();
    let rounds = |index: usize| {
        let count = |name: &str| sites[index][name].as_u64().unwrap();
        count("made_count") + count("missed_count")
    };
    assert!(sites[0]["site"].as_str().unwrap().ends_with("/a from Bern"), "{sites}");
    // Every 100 ms and every 400 ms for 3 s; a busy machine may not come to the last ones in time.
    assert!((1..=30).contains(&rounds(0)) && (1..=8).contains(&rounds(1)), "{} {}", rounds(0), rounds(1));
    let both = probe(&place, &["--config", file, "--once", "--verify"]);
    assert_eq!(both.status.code(), Some(2), "options of sites stand in the file");
    let once = probe(&place, &["--config", file, "--once", "--json"]);
    assert_eq!(once.status.code(), Some(0), "{}", stderr(&once));
}
