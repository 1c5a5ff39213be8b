//! `tlsdyno top` while servers change, and while it is stopped or killed itself: what is told stays true, and servers
//! notice nothing.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::net::SocketAddr;
use std::process::{Child, ChildStdin, Command, Stdio};

use rustix::process::Signal;
use serde_json::Value;
use tlsdyno::model::{CertificateKind, ServerName};
use tlsdyno::servers::certificates;

use crate::place::{Place, eventually, given_time, is_gone, kill, signal};
use crate::top::{load, started, watched, watched_while};

/// An HTTPS server that loads its TLS library when it is told to, and executes itself anew at SIGUSR1.
const LATE: &str = r#"
import os, signal, socket, sys
chain, key, *fd = sys.argv[1:]
listener = socket.socket(fileno=int(fd[0])) if fd else socket.create_server(("127.0.0.1", 0), backlog=64)
listener.set_inheritable(True)
def again(*_):
    os.execv(sys.executable, [sys.executable, *sys.argv[:3], str(listener.fileno())])
signal.signal(signal.SIGUSR1, again)
signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGUSR1])
print(listener.getsockname()[1] if not fd else "again", flush=True)
sys.stdin.readline()
import ssl
context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
context.load_cert_chain(chain, key)
print("ready", flush=True)
answer = b"HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nobject"
while True:
    try:
        with context.wrap_socket(listener.accept()[0], server_side=True) as stream:
            stream.recv(4096) and stream.sendall(answer)
    except OSError:
        pass
"#;

struct Late {
    child: Child,
    input: ChildStdin,
    lines: Box<dyn Iterator<Item = String>>,
    address: SocketAddr,
}

impl Late {
    fn start(place: &Place) -> Late {
        let script = place.path().join("late.py");
        fs::write(&script, LATE).unwrap();
        let files = certificates::create(CertificateKind::Rsa2048, place.path()).unwrap();
        let mut child = Command::new("/usr/bin/python3");
        child.arg(script).args([&files.chain, &files.key]).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = child.spawn().unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map_while(Result::ok);
        let port: u16 = lines.next().unwrap().parse().unwrap();
        let input = child.stdin.take().unwrap();
        Late { child, input, lines: Box::new(lines), address: ([127, 0, 0, 1], port).into() }
    }

    fn load_library(&mut self) {
        self.input.write_all(b"\n").unwrap();
        assert_eq!(self.lines.next().as_deref(), Some("ready"));
    }

    fn execute_itself(&mut self) {
        signal(self.child.id(), Signal::USR1);
        assert_eq!(self.lines.next().as_deref(), Some("again"));
        self.load_library();
    }
}

impl Drop for Late {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn samples(server: &Value) -> u64 {
    server["cpu"]["samples_count"].as_u64().unwrap()
}

/// Signatures are named, and few samples are in no file: what has been mapped since is known.
fn is_understood(server: &Value) -> bool {
    let cpu = &server["cpu"];
    let unknown = cpu["unknown_count"].as_u64().unwrap();
    let is_signature = |part: &&Value| part["part"] == "signature";
    let signatures = cpu["parts"].as_array().unwrap().iter().find(is_signature).unwrap();
    samples(server) > 20 && 20 * unknown < samples(server) && signatures["percent"].as_f64() > Some(20.0)
}

#[test]
fn a_library_that_is_loaded_later_is_found() {
    let place = Place::new();
    // Without any server there is nothing to watch.
    let _other = started(&place, ServerName::Nginx);
    let told = |seconds: &str| {
        let mut late = Late::start(&place);
        let mut seen = watched(&place, &[], seconds, |_| {
            late.load_library();
            load(&place, late.address, seconds, "0%");
        });
        let servers = seen["servers"].as_array_mut().unwrap();
        let is_it = |server: &&mut Value| server["pid"] == late.child.id();
        servers.iter_mut().find(is_it).map_or(Value::Null, Value::take)
    };
    given_time(4, told, |server| !server.is_null() && is_understood(server));
}

#[test]
fn a_process_that_executes_another_program_is_understood() {
    let place = Place::new();
    let told = |seconds: &str| {
        let mut late = Late::start(&place);
        late.load_library();
        let at = late.address;
        let mut seen = watched_while(&place, at, seconds, || {
            late.execute_itself();
            load(&place, at, seconds, "0%");
        });
        seen["servers"][0].take()
    };
    given_time(3, told, is_understood);
}

/// nginx has its next program execute beside it, which takes over its sockets, and ends.
#[test]
fn a_binary_upgrade_is_followed() {
    let place = Place::new();
    let files = certificates::create(CertificateKind::Rsa2048, place.path()).unwrap();
    let own = place.path().display();
    let temporary = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"];
    let temporary: String = temporary.map(|name| format!("{name}_temp_path {own}/{name};\n")).concat();
    let user = if rustix::process::geteuid().is_root() { "user root;" } else { "" };
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let configuration = format!(
        "{user} pid {own}/pid; error_log {own}/error.log; events {{}} http {{ access_log off; {temporary}\n\
         server {{ listen {port} ssl; ssl_certificate {}; ssl_certificate_key {}; root {}; }} }}",
        files.chain.display(),
        files.key.display(),
        place.docroot().display()
    );
    let file = place.path().join("upgraded.conf");
    fs::write(&file, configuration).unwrap();
    let pid_of = |name: &str| fs::read_to_string(place.path().join(name)).ok()?.trim().parse::<u32>().ok();
    let program = if fs::exists("/usr/sbin/nginx").unwrap() { "/usr/sbin/nginx" } else { "nginx" };
    assert!(Command::new(program).arg("-c").arg(&file).status().unwrap().success());
    eventually("nginx", || pid_of("pid").is_some());
    let told = |seconds: &str| {
        let old = pid_of("pid").unwrap();
        let mut seen = watched_while(&place, port, seconds, || {
            signal(old, Signal::USR2);
            eventually("the next nginx", || {
                pid_of("pid.oldbin") == Some(old) && pid_of("pid").is_some_and(|pid| pid != old)
            });
            signal(old, Signal::QUIT);
            eventually("the end of the old nginx", || is_gone(old));
            load(&place, port, seconds, "0%");
        });
        seen["servers"][0].take()
    };
    let server = given_time(4, told, is_understood);
    let new = pid_of("pid").unwrap();
    kill_group(new);
    assert_eq!(server["pid"], new);
}

/// Ends an nginx that belongs to nobody.
fn kill_group(master: u32) {
    signal(master, Signal::TERM);
    eventually("the end of nginx", || is_gone(master));
}

/// While it is stopped, its rings are full: what found no room is told with the first sample that finds some again.
#[test]
fn samples_that_are_lost_are_told() {
    let place = Place::new();
    let server = started(&place, ServerName::Nginx);
    let at = server.address();
    let told = |seconds: &str| {
        let third = (seconds.parse::<u32>().unwrap() / 3).to_string();
        let mut seen = watched(&place, &["--listen", &at.to_string()], seconds, |top| {
            signal(top, Signal::STOP);
            load(&place, at, &third, "0%");
            signal(top, Signal::CONT);
            load(&place, at, seconds, "0%");
        });
        seen["servers"][0].take()
    };
    let is_told = |server: &Value| server["cpu"]["lost_count"].as_u64() > Some(0);
    let server = given_time(6, told, is_told);
    assert!(server["cpu"]["tls"]["percent"].as_f64() > Some(50.0), "{server}");
}

mod long {
    use tlsdyno_base::random::SplitMix64;

    use super::*;

    /// Sockets that see packets.
    fn packet_sockets() -> usize {
        fs::read_to_string("/proc/net/packet").unwrap().lines().count()
    }

    /// At moments that chance chooses; another seed with TLSDYNO_SEED.
    #[test]
    #[ignore = "a million requests, two minutes; make test-long"]
    fn thirty_kills_fail_no_request_and_leave_nothing() {
        let place = Place::new();
        let server = started(&place, ServerName::Nginx);
        let at = server.address();
        let seed = std::env::var("TLSDYNO_SEED").ok().map_or(56, |seed| seed.parse().unwrap());
        println!("seed {seed}");
        let mut random = SplitMix64::new(seed);
        let url = format!("https://{at}/hello.txt");
        let asked = ["load", &url, "--effort", "floor", "--json", "--connections", "8", "--requests", "1000000"];
        let kept = ["--requests-per-connection", "20", "--reuse", "90%"];
        let before = (packet_sockets(), server.pids());
        let loading = place.tlsdyno(&[&asked[..], &kept].concat()).stdout(Stdio::piped()).spawn().unwrap();
        for _ in 0..30 {
            let mut top = place.tlsdyno(&["top", "--listen", &at.to_string(), "--once", "600s"]);
            let mut top = top.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
            std::thread::sleep(std::time::Duration::from_millis(random.below(3_000) as u64));
            kill(top.id());
            top.wait().unwrap();
        }
        let loaded: Value = serde_json::from_slice(&loading.wait_with_output().unwrap().stdout).unwrap();
        assert_eq!((&loaded["hits"], &loaded["errors"]), (&1_000_000.into(), &serde_json::json!({})));
        assert_eq!((packet_sockets(), server.pids()), before);
    }
}
