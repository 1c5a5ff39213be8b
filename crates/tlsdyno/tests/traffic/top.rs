//! `tlsdyno top` on servers under load: shares add up, signatures go where sessions are resumed, workers are followed,
//! and what cannot be told is refused.

mod confined;
mod counters;

use std::io::{BufRead, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::Value;
use tlsdyno::model::{CertificateKind, ServerName};
use tlsdyno::servers::{Instance, ServerTls, certificates};
use tlsdyno_tls::Version;

use crate::load::screen::Session;
use crate::machines::TLSDYNO;
use crate::machines::far::{Network, inside};
use crate::place::{self, Place};
use crate::stacks::go_server::{self, GoServer};

pub fn started(place: &Place, server: ServerName) -> Instance {
    let certificate = certificates::create(CertificateKind::Rsa2048, place.path()).unwrap();
    let mut spec = place.spec(server);
    spec.tls = Some(ServerTls { versions: vec![Version::Tls13], ..ServerTls::new(certificate) });
    place.start(&spec).unwrap()
}

/// What is seen of the server that listens there while it is loaded. `begun` happens once it is watched.
pub fn watched_while(place: &Place, at: SocketAddr, seconds: &str, begun: impl FnOnce()) -> Value {
    watched(place, &["--listen", &at.to_string()], seconds, |_| begun())
}

/// The same of any servers; `begun` is told the process that watches.
pub fn watched(place: &Place, which: &[&str], seconds: &str, begun: impl FnOnce(u32)) -> Value {
    let once = format!("{seconds}s");
    let mut top = place.tlsdyno(&[&["top"], which, &["--once", &once, "--json"]].concat());
    let mut top = top.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut told = BufReader::new(top.stderr.take().unwrap());
    let mut line = String::new();
    told.read_line(&mut line).unwrap();
    assert!(line.starts_with("tlsdyno: watches "), "{line}");
    begun(top.id());
    let output = top.wait_with_output().unwrap();
    told.read_to_string(&mut line).unwrap();
    assert!(output.status.success(), "{line}");
    serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {line}"))
}

pub fn load(place: &Place, at: SocketAddr, seconds: &str, reuse: &str) -> Value {
    let url = format!("https://{at}/hello.txt");
    let arguments = ["load", &url, "--effort", "floor", "--json", "--connections", "4", "--reuse", reuse];
    let output = place.tlsdyno(&[&arguments[..], &["--duration", &format!("{seconds}s")]].concat()).output().unwrap();
    let loaded: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(loaded["errors"], serde_json::json!({}), "{loaded}");
    loaded
}

/// The same of a server under load.
fn loaded(place: &Place, at: SocketAddr, seconds: &str, reuse: &str) -> Value {
    let mut loaded = Value::Null;
    let mut seen = watched_while(place, at, seconds, || loaded = load(place, at, seconds, reuse));
    assert!(loaded["hits"].as_u64() > Some(0), "{loaded}");
    seen["servers"][0].take()
}

fn has_interval(server: &Value) -> bool {
    server["cpu"]["tls"]["low"].is_f64()
}

/// The object has no field, and no part, that its page does not tell of.
fn check_form(seen: &Value) {
    fn names(value: &Value, all: &mut Vec<String>) {
        match value {
            Value::Object(fields) => fields.iter().for_each(|(name, value)| {
                all.push(name.clone());
                names(value, all);
            }),
            Value::Array(items) => items.iter().for_each(|item| names(item, all)),
            _ => {}
        }
    }
    let document = include_str!("../../../../docs/FORMAT.md");
    let section = document.split("`tlsdyno top --json`").nth(1).and_then(|rest| rest.split("\n## ").next()).unwrap();
    let mut all = Vec::new();
    names(seen, &mut all);
    let parts = seen["servers"][0]["cpu"]["parts"].as_array().unwrap();
    all.extend(parts.iter().map(|part| part["part"].as_str().unwrap().to_owned()));
    let is_told = |name: &String| section.contains(&format!("`{name}`")) || section.contains(&format!("`{name}[]`"));
    // Code points of groups and suites are names, too.
    all.retain(|name| {
        name.parse::<u16>().is_err() && !is_told(name) && section.matches(&format!(".{name}`")).count() == 0
    });
    assert_eq!(all, Vec::<String>::new());
}

/// Parts add up, and each lies within its interval.
fn check(server: &Value) {
    let cpu = &server["cpu"];
    let parts = cpu["parts"].as_array().unwrap();
    let sum = |of: &dyn Fn(&Value) -> f64| parts.iter().map(of).sum::<f64>();
    let (tls, samples) = (&cpu["tls"], cpu["samples_count"].as_u64().unwrap());
    assert_eq!(sum(&|part| part["samples_count"].as_f64().unwrap()), tls["samples_count"].as_f64().unwrap(), "{cpu}");
    assert!((sum(&|part| part["percent"].as_f64().unwrap()) - tls["percent"].as_f64().unwrap()).abs() < 1e-6, "{cpu}");
    assert!(tls["percent"].as_f64().is_some_and(|percent| percent > 0.0 && percent <= 100.0), "{cpu}");
    assert!(tls["samples_count"].as_u64().unwrap() <= samples && cpu["cpu_ns"].as_u64() > Some(0), "{cpu}");
    for share in parts.iter().chain([tls]) {
        let [low, value, high] = ["low", "percent", "high"].map(|end| share[end].as_f64().unwrap());
        assert!(0.0 <= low && low <= value && value <= high && high <= 100.0, "{share}");
    }
}

fn part<'v>(server: &'v Value, name: &str) -> &'v Value {
    let parts = server["cpu"]["parts"].as_array().unwrap();
    parts.iter().find(|part| part["part"] == name).unwrap_or_else(|| panic!("{name}: {server}"))
}

#[test]
fn signatures_are_seen_of_full_handshakes_and_hardly_of_resumed_ones() {
    let place = Place::new();
    let server = started(&place, ServerName::Nginx);
    let of = |server: &Value, end: &str| part(server, "signature")[end].as_f64().unwrap();
    let at = server.address();
    let both = |seconds: &str| ["0%", "95%"].map(|reuse| loaded(&place, at, seconds, reuse));
    let is_decided = |seen: &[Value; 2]| seen.iter().all(has_interval) && of(&seen[1], "high") < of(&seen[0], "low");
    let [full, resumed] = place::given_time(3, both, is_decided);
    [&full, &resumed].into_iter().for_each(check);
    assert_eq!((&full["name"], &full["libraries"][0]["library"]), (&"nginx".into(), &"openssl".into()), "{full}");
    assert_eq!(full["libraries"][0]["is_static"], false);
    assert!(part(&full, "key_agreement")["samples_count"].as_u64() > Some(0), "{full}");
    // No client offered a session in vain.
    let [twice] = &full["what_ifs"].as_array().unwrap()[..] else { panic!("{full}") };
    assert_eq!(twice["change"], "twice_the_hits", "{full}");
    let least = -part(&full, "signature")["percent"].as_f64().unwrap() / 2.0;
    assert!(twice["percent"].as_f64().unwrap() <= least, "{full}");
    let lost = ["without_tls12_percent", "without_x25519_percent", "without_rsa_percent"];
    assert!(lost.iter().all(|field| full["lost"][field] == 0.0), "{full}");
}

#[test]
fn haproxy_and_a_go_server_are_told_by_files_and_by_functions() {
    let place = Place::new();
    let haproxy = started(&place, ServerName::Haproxy);
    let go = GoServer::start(b"hello", None);
    for (at, library, is_static) in [(haproxy.address(), "openssl", false), (go.address, "go", true)] {
        let seen = place::given_time(3, |seconds| loaded(&place, at, seconds, "0%"), has_interval);
        check(&seen);
        let found = &seen["libraries"][0];
        assert_eq!((&found["library"], &found["is_static"]), (&library.into(), &is_static.into()), "{seen}");
        assert!(part(&seen, "signature")["samples_count"].as_u64() > Some(0), "{seen}");
        assert!(seen["addresses"].as_array().unwrap().contains(&at.to_string().into()), "{seen}");
    }
}

/// Others' servers run beside it, and come and go.
#[test]
fn every_server_of_the_machine_is_told() {
    let place = Place::new();
    let server = started(&place, ServerName::Nginx);
    let output = place.run(&["top", "--once", "1s", "--json"]);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    let seen: Value = serde_json::from_slice(&output.stdout).unwrap();
    let at = server.address().to_string();
    let is_it = |server: &&Value| server["addresses"].as_array().unwrap().contains(&at.as_str().into());
    let found = seen["servers"].as_array().unwrap().iter().find(is_it);
    assert!(found.is_some_and(|found| found["name"] == "nginx") && said.contains("nginx"), "{seen}");
    check_form(&seen);
}

/// What passes as packets is what the client did.
#[test]
fn kinds_of_handshakes_are_those_that_the_client_made() {
    let place = Place::new();
    let server = started(&place, ServerName::Nginx);
    let at = server.address();
    let url = format!("https://{at}/hello.txt");
    let both = |seconds: &str| {
        let mut made = Value::Null;
        let mut seen = watched_while(&place, at, seconds, || {
            let arguments = ["load", &url, "--json", "--effort", "floor", "--connections", "2", "--reuse", "50%"];
            let few = ["--requests-per-connection", "1", "--requests", "60"];
            made = serde_json::from_slice(&place.run(&[&arguments[..], &few].concat()).stdout).unwrap();
        });
        [seen["servers"][0]["handshakes"].take(), made["handshakes"].take()]
    };
    let kinds = |[seen, made]: &[Value; 2]| {
        let of = |value: &Value| value.as_u64().unwrap_or_else(|| panic!("{seen} {made}"));
        let [seen, made] = [(seen, ["full_handshakes", "resumed_handshakes"]), (made, ["full", "resumed_accepted"])]
            .map(|(all, names)| names.map(|name| of(all.get("connections").unwrap_or(all).get(name).unwrap())));
        [seen, made]
    };
    // It takes a privilege, without which the answer says so.
    if !rustix::process::geteuid().is_root() {
        return;
    }
    // A busy machine makes them after the end of a short watch.
    let of = place::given_time(2, both, |of| kinds(of)[0] == kinds(of)[1]);
    assert!(kinds(&of)[0].iter().all(|count| *count > 0), "{of:?}");
    assert_eq!(of[0]["agreed"]["tls13_handshakes"], kinds(&of)[1].iter().sum::<u64>());
    assert_eq!(of[0]["chosen_groups"].as_object().unwrap().len(), 1, "{}", of[0]);
}

/// What is scraped counts what the client did, and rises.
#[test]
fn metrics_are_served_until_it_is_told_to_end() {
    let place = Place::new();
    let server = started(&place, ServerName::Nginx);
    let at = server.address().to_string();
    let mut top = place.tlsdyno(&["top", "--listen", &at, "--prometheus", "127.0.0.1:0"]);
    let mut top = top.stdout(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(top.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let url = line.trim().strip_prefix("serving http://").unwrap().to_owned();
    let address = url.strip_suffix("/metrics").unwrap();
    let scraped = |name: &str| -> Option<f64> {
        let mut stream = TcpStream::connect(address).unwrap();
        stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n").unwrap();
        let mut page = String::new();
        stream.read_to_string(&mut page).unwrap();
        assert!(page.starts_with("HTTP/1.1 200 "), "{page}");
        page.lines().find_map(|line| line.strip_prefix(name)?.rsplit(' ').next()?.parse().ok())
    };
    let is_root = rustix::process::geteuid().is_root();
    let name = if is_root { "tlsdyno_top_handshakes_total{" } else { "tlsdyno_top_process_cpu_seconds_total{" };
    let mut before = 0.0;
    for _ in 0..2 {
        load(&place, server.address(), "1", "0%");
        let mut now = None;
        place::eventually("it rises", || {
            now = scraped(name);
            now > Some(before)
        });
        before = now.unwrap_or_default();
    }
    assert_eq!(scraped("tlsdyno_top_handshakes_seen{"), Some(f64::from(u8::from(is_root))));
    rustix::process::kill_process(rustix::process::Pid::from_child(&top), rustix::process::Signal::INT).unwrap();
    assert_eq!(top.wait().unwrap().code(), Some(0));
    let refused = place.run(&["top", "--prometheus", "0.0.0.0:0"]);
    assert_eq!(refused.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&refused.stderr).contains("--beyond-loopback"));
}

#[test]
fn a_terminal_shows_a_screen_that_keys_and_sizes_change() {
    let place = Place::new();
    let server = started(&place, ServerName::Nginx);
    let mut session = Session::of(&["top", "--listen", &server.address().to_string()], &[("NO_COLOR", "1")]);
    let is_opened = |shown: &str| shown.contains("Esc back") && shown.contains(" TLS %, last hour ");
    let is_list = |shown: &str| shown.contains("Enter opens") && shown.contains("▸1  nginx :");
    session.wait_for("opened server", is_opened);
    session.far.write_all(b"\x1b").unwrap();
    session.wait_for("list", is_list);
    session.far.write_all(b"\n").unwrap();
    session.wait_for("the server again", is_opened);
    session.resize(12, 50);
    session.wait_for("small screen", |shown| shown.contains("Esc back") && !shown.contains("last hour"));
    session.far.write_all(b"\x1b1q").unwrap();
    let last = session.wait_for("answer", |shown| shown.contains("own use") && !shown.contains("q ends"));
    assert!(last.contains("nginx :"), "{last}");
    assert_eq!(session.child.wait().unwrap().code(), Some(0));
    assert!(session.is_given_back());
    assert!(!String::from_utf8_lossy(&session.seen).contains("\x1b[38;"), "NO_COLOR is set");
}

/// As of a server in a container.
#[test]
fn handshakes_in_another_network_are_counted_there() {
    let Some(network) = Network::new() else { return };
    let place = Place::new();
    let listen = ["serve", "--listen", "10.99.0.2:0", "--allow-insecure-listen", "--print-address"];
    let mut server = inside(&network.far, TLSDYNO, &[&listen[..], &["--docroot", "docroot"]].concat());
    let mut server = server.current_dir(place.path()).stdout(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(server.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let address = serde_json::from_str::<Value>(&line).unwrap()["address"].as_str().unwrap().to_owned();
    let url = format!("https://{address}/hello.txt");
    let counted = |seconds: &str| {
        let seen = watched_while(&place, address.parse().unwrap(), seconds, || {
            let load = ["load", &url, "-k", "--i-may-load-this", "10.99.0.2", "--requests", "20"];
            let alone = ["--requests-per-connection", "1", "-c", "2"];
            let output = inside(&network.near, TLSDYNO, &[&load[..], &alone].concat()).output().unwrap();
            assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        });
        seen["servers"][0]["handshakes"].clone()
    };
    let is_all = |seen: &Value| seen["agreed"]["tls13_handshakes"] == 20;
    place::given_time(2, counted, is_all);
    server.kill().unwrap();
    server.wait().unwrap();
}

/// A process that was not there when the watch began does all the work.
#[test]
fn workers_that_a_reload_brings_are_followed() {
    let place = Place::new();
    let mut server = started(&place, ServerName::Nginx);
    let at = server.address();
    let run = |seconds: &str| {
        watched_while(&place, at, seconds, || {
            server.reload().unwrap();
            load(&place, at, seconds, "0%");
        })
    };
    let run = std::cell::RefCell::new(run);
    let is_seen = |seen: &Value| seen["servers"][0]["cpu"]["tls"]["samples_count"].as_u64() > Some(20);
    place::given_time(3, |seconds| run.borrow_mut()(seconds), is_seen);
}

#[test]
fn what_cannot_be_watched_is_refused_in_a_sentence() {
    let place = Place::new();
    let refused = |arguments: &[&str], code: i32| {
        let output = place.run(&[&["top", "--once", "1s"], arguments].concat());
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(code), "{said}");
        assert_eq!(said.trim_end().lines().count(), 1, "{said}");
        said
    };
    let free = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    assert!(refused(&["--listen", &free.to_string()], 4).contains("no process"));
    assert!(refused(&["--pid", "4000000000"], 4).contains("there is no process 4000000000"));
    let mut stranger = Command::new("sleep").arg("600").spawn().unwrap();
    let said = refused(&["--pid", &stranger.id().to_string()], 6);
    stranger.kill().unwrap();
    stranger.wait().unwrap();
    assert!(said.contains("has no TLS library that is known: OpenSSL"), "{said}");
    assert!(String::from_utf8_lossy(&place.run(&["top", "--once", "10ms"]).stderr).contains("a second at least"));
}

/// A program of Go's has a table of its functions for itself, too, which stripping leaves there.
#[test]
fn a_stripped_program_is_told_by_its_own_table_or_refused() {
    let place = Place::new();
    let [stripped, nameless] = ["stripped", "nameless"].map(|name| place.path().join(name));
    let run = |program: &mut Command| assert!(program.status().unwrap().success());
    run(Command::new("strip").arg("-o").args([stripped.as_path(), go_server::program()]));
    run(Command::new("objcopy").args(["--rename-section", ".gopclntab=.other"]).args([&stripped, &nameless]));
    let files = certificates::create(CertificateKind::P256, place.path()).unwrap();
    let start = |program: &Path| {
        let mut server = Command::new(program);
        server.stderr(Stdio::null());
        server.arg("-certificate").arg(&files.chain).arg("-key").arg(&files.key);
        server.arg("-object").arg(place.docroot().join("hello.txt"));
        let mut server = server.stdout(Stdio::piped()).spawn().unwrap();
        let mut address = String::new();
        BufReader::new(server.stdout.take().unwrap()).read_line(&mut address).unwrap();
        (server, address.trim().parse::<SocketAddr>().unwrap())
    };
    let (mut server, at) = start(&stripped);
    let is_told = |seen: &Value| has_interval(seen) && part(seen, "signature")["samples_count"].as_u64() > Some(0);
    let seen = place::given_time(3, |seconds| loaded(&place, at, seconds, "0%"), is_told);
    server.kill().unwrap();
    server.wait().unwrap();
    check(&seen);
    let (mut server, at) = start(&nameless);
    let output = place.run(&["top", "--once", "1s", "--listen", &at.to_string()]);
    server.kill().unwrap();
    server.wait().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(6), "{said}");
    assert!(said.contains("no symbol table") && said.contains("Go's crypto/tls"), "{said}");
}
