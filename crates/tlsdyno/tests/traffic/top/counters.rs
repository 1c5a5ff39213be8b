//! What HAProxy counts itself, beside the packets, and without any privilege.

use std::fs;
use std::net::{SocketAddr, TcpListener};
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use serde_json::Value;
use tlsdyno::model::CertificateKind;
use tlsdyno::servers::certificates;

use super::watched;
use crate::place::{self, Place};

const NOBODY: u32 = 65_534;

/// HAProxy with one front end that has TLS, one that has none, and a socket that tells of both to everybody.
struct Haproxy(Child);

impl Haproxy {
    fn start(place: &Place, at: SocketAddr) -> Haproxy {
        let files = certificates::create(CertificateKind::P256, place.path()).unwrap();
        let both = [&files.chain, &files.key].map(|file| fs::read_to_string(file).unwrap()).concat();
        fs::write(place.path().join("both.pem"), both).unwrap();
        let here = place.path().display();
        let answer = "http-request return status 200 content-type text/plain string hello";
        let configuration = format!(
            "global\n  stats socket {here}/stats mode 666\n\
             defaults\n  mode http\n  timeout connect 60s\n  timeout client 60s\n  timeout server 60s\n\
             frontend tls\n  bind {at} ssl crt {here}/both.pem\n  {answer}\n\
             frontend plain\n  bind {here}/plain\n  {answer}\n"
        );
        fs::write(place.path().join("haproxy.cfg"), configuration).unwrap();
        let mut command = Command::new("haproxy");
        command.arg("-db").arg("-f").arg(place.path().join("haproxy.cfg")).stderr(Stdio::null()).stdout(Stdio::null());
        let haproxy = Haproxy(command.spawn().expect("this test needs haproxy"));
        place::eventually("haproxy listens", || std::net::TcpStream::connect(at).is_ok());
        haproxy
    }
}

impl Drop for Haproxy {
    fn drop(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

fn free() -> SocketAddr {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap()
}

fn counters(place: &Place) -> String {
    format!("unix:{}", place.path().join("stats").display())
}

fn made(place: &Place, at: SocketAddr, reuse: &str) -> Value {
    let url = format!("https://{at}/");
    let load = ["load", &url, "--json", "--effort", "floor", "-c", "2", "--reuse", reuse];
    let few = ["--requests-per-connection", "2", "--requests", "80"];
    serde_json::from_slice(&place.run(&[&load[..], &few].concat()).stdout).unwrap()
}

#[test]
fn what_haproxy_counts_is_what_the_client_made_and_what_passed() {
    let (place, at) = (Place::new(), free());
    let _haproxy = Haproxy::start(&place, at);
    let both = |seconds: &str| {
        let mut load = Value::Null;
        let flags = ["--listen", &at.to_string(), "--counters", &counters(&place), "--names"];
        let seen = watched(&place, &flags, seconds, |_| load = made(&place, at, "50%"));
        [seen, load]
    };
    let count = |value: &Value| value.as_u64().unwrap_or_else(|| panic!("no number: {value}"));
    let agrees = |[seen, load]: &[Value; 2]| {
        let (own, made) = (&seen["counters"], &load["handshakes"]);
        [("full_handshakes", "full"), ("resumed_handshakes", "resumed_accepted")]
            .iter()
            .all(|(own_name, name)| count(&own[own_name]) == count(&made[name]) && count(&made[name]) > 0)
    };
    let [seen, load] = place::given_time(2, both, agrees);
    assert!(agrees(&[seen.clone(), load]), "{seen}");
    assert_eq!(seen["counters"]["hits_count"], 80, "{seen}");
    assert_eq!(seen["counters_doubt"], Value::Null, "{seen}");
    if rustix::process::geteuid().is_root() {
        let handshakes = &seen["servers"][0]["handshakes"];
        let names = handshakes["names"].as_array().unwrap_or_else(|| panic!("{seen}"));
        // An address is no name.
        assert_eq!((names.len(), &names[0]["name"]), (1, &"".into()), "{names:?}");
        assert_eq!(names[0]["hellos"], handshakes["offers"]["hellos"]);
    }
    super::check_form(&seen);
}

/// The user nobody sees neither the server's processes nor packets.
#[test]
fn without_root_counters_alone_are_told_and_one_sentence() {
    if !rustix::process::geteuid().is_root() {
        return;
    }
    let (place, at) = (Place::new(), free());
    let _haproxy = Haproxy::start(&place, at);
    let program = Path::new(env!("CARGO_BIN_EXE_tlsdyno")).with_file_name("tlsdyno-top");
    let own = place.path().join("tlsdyno-top");
    assert!(Command::new("cp").arg(program).arg(&own).status().unwrap().success());
    let top = |flags: &[&str]| {
        let mut command = Command::new(&own);
        command.args(["--listen", &at.to_string(), "--once", "1s"]).args(flags).uid(NOBODY).gid(NOBODY);
        let output = command.stdin(Stdio::null()).output().unwrap();
        let [said, told] = [&output.stdout, &output.stderr].map(|text| String::from_utf8_lossy(text).into_owned());
        (output.status.code(), said, told)
    };
    let (code, said, told) = top(&["--counters", &counters(&place)]);
    assert_eq!(code, Some(0), "{told}");
    let lines: Vec<&str> = said.lines().collect();
    assert_eq!(lines.len(), 3, "{said}");
    assert!(lines[0].starts_with("by its counters: 0 hits"), "{said}");
    assert!(lines[1].starts_with("not watched: no process that you may look into listens there"), "{said}");
    let (code, said, _) = top(&["--counters", &counters(&place), "--json"]);
    let seen: Value = serde_json::from_str(&said).unwrap();
    assert_eq!((code, &seen["counters"]["hits_count"]), (Some(0), &0.into()), "{seen}");
    let (code, _, told) = top(&["--counters", "unix:/nowhere"]);
    assert_eq!(code, Some(4), "{told}");
    assert!(told.contains("/nowhere does not tell counters"), "{told}");
}
