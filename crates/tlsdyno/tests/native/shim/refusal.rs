//! Without the acknowledgement of a running tlsdyno the shim ends the process that it is loaded into, at once, and says
//! why.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{IpAddr, TcpStream, UdpSocket};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

use tlsdyno::native::layout::shim as layout;
use tlsdyno::native::{ShimInjection, ShimSettings};
use tlsdyno_tls::{StageSet, Version};

use crate::place::eventually;

/// `true` with the shim preloaded.
fn load(injection: &ShimInjection, edit: impl Fn(&mut Command)) -> Output {
    let mut command = Command::new("true");
    command.envs(injection.let_children_inherit().unwrap());
    edit(&mut command);
    command.output().unwrap()
}

/// Spoils a good injection and demands that the shim then refuses for the `reason`.
fn expect_refusal(reason: &str, spoil: impl Fn(&Path), edit: impl Fn(&mut Command)) {
    let dir = tempfile::tempdir().unwrap();
    let injection = ShimInjection::prepare(dir.path(), &ShimSettings::new(StageSet::NONE, Version::Tls13)).unwrap();
    let good = load(&injection, |_| {});
    assert!(good.status.success() && good.stderr.is_empty(), "it loads before it is spoiled: {good:?}");
    spoil(Path::new(&injection.area_path()));
    let refused = load(&injection, edit);
    let printed = String::from_utf8_lossy(&refused.stderr);
    assert_eq!(refused.status.code(), Some(78), "{printed}");
    assert!(printed.contains("tlsdyno shim: refuses") && printed.contains(reason), "{printed}");
}

fn expect_spoiled(reason: &str, at: usize, bytes: &[u8]) {
    let spoil =
        |area: &Path| fs::File::options().write(true).open(area).unwrap().write_all_at(bytes, at as u64).unwrap();
    expect_refusal(reason, spoil, |_| {});
}

#[test]
fn refuses_without_acknowledgement() {
    let keep = |_: &Path| {};
    expect_refusal("is missing", keep, |command| {
        command.env_remove("TLSDYNO_SHIM");
    });
    expect_refusal("is missing", keep, |command| {
        command.env_remove("TLSDYNO_SHIM_ACKNOWLEDGE");
    });
    expect_refusal("belongs to another run", keep, |command| {
        command.env("TLSDYNO_SHIM_ACKNOWLEDGE", "0");
    });
    for wrong in ["x", "-1", "2", "9999", ""] {
        expect_refusal("is not an area of tlsdyno", keep, |command| {
            command.env("TLSDYNO_SHIM", wrong);
        });
    }
}

/// As in a CGI program of lighttpd, which leaves nothing but LD_PRELOAD in its environment.
#[test]
fn does_nothing_in_a_process_that_none_of_its_variables_reach() {
    let dir = tempfile::tempdir().unwrap();
    let injection = ShimInjection::prepare(dir.path(), &ShimSettings::new(StageSet::NONE, Version::Tls13)).unwrap();
    let left_alone = load(&injection, |command| {
        command.env_remove("TLSDYNO_SHIM").env_remove("TLSDYNO_SHIM_ACKNOWLEDGE");
    });
    assert!(left_alone.status.success() && left_alone.stderr.is_empty(), "{left_alone:?}");
}

#[test]
fn refuses_when_the_owner_has_ended() {
    let mut ended = Command::new("true").spawn().unwrap();
    let pid = u64::from(ended.id());
    ended.wait().unwrap();
    expect_spoiled("has ended", layout::OWNER_PID_AT, &pid.to_ne_bytes());
    // The number lives (this process), but it is not the process that made the area.
    expect_spoiled("has ended", layout::OWNER_START_TICKS_AT, &1u64.to_ne_bytes());
}

#[test]
fn refuses_what_is_no_area_of_this_version() {
    expect_spoiled("is not an area of this library", 0, b"OTHER");
    expect_spoiled("another version", layout::ABI_VERSION_AT, &99u32.to_ne_bytes());
    expect_spoiled("another version", layout::SLOT_COUNT_AT, &1u32.to_ne_bytes());
    expect_spoiled("another run", layout::RUN_ID_AT, &[b'x'; layout::RUN_ID_SIZE]);
    expect_spoiled("another user", layout::OWNER_USER_AT, &4_000_000u32.to_ne_bytes());
}

/// Python's own HTTP server with the shim, reachable from everywhere; ends with this value.
struct Open {
    process: Child,
    port: u16,
}

impl Open {
    fn start(injection: &ShimInjection) -> Open {
        let mut process = Command::new("python3")
            .args(["-u", "-m", "http.server", "0", "--bind", "0.0.0.0"])
            .current_dir(injection.library_path().parent().unwrap())
            .envs(injection.let_children_inherit().unwrap())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(process.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
        let port = line.split(' ').skip_while(|word| *word != "port").nth(1).unwrap_or_else(|| panic!("{line}"));
        Open { port: port.parse().unwrap(), process }
    }

    fn serves(&self, address: IpAddr) -> bool {
        let mut stream = TcpStream::connect((address, self.port)).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        let mut answer = Vec::new();
        // A refused connection may be reset before or after the request has gone.
        let gone = stream.write_all(b"GET / HTTP/1.0\r\n\r\n").and_then(|()| stream.read_to_end(&mut answer));
        gone.is_ok() && answer.starts_with(b"HTTP/1.0 200")
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        // Fails only if it has already ended.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// An address of this machine that others could use. A socket that sends nothing tells it.
fn outward_address() -> Option<IpAddr> {
    let socket = UdpSocket::bind("0.0.0.0:0").unwrap();
    socket.connect("192.0.2.1:9").ok()?;
    let address = socket.local_addr().unwrap().ip();
    (!address.is_loopback()).then_some(address)
}

#[test]
fn refuses_every_connection_once_that_the_heartbeat_stops() {
    let dir = tempfile::tempdir().unwrap();
    // Allowed to be open: neither does that outlive tlsdyno.
    let open = ShimSettings { allow_insecure_listen: true, ..ShimSettings::new(StageSet::NONE, Version::Tls13) };
    let injection = ShimInjection::prepare(dir.path(), &open).unwrap();
    let server = Open::start(&injection);
    let loopback = IpAddr::from([127, 0, 0, 1]);
    assert!(server.serves(loopback));
    drop(injection);
    eventually("it refuses", || !server.serves(loopback));
    assert!(!server.serves(loopback));
}

#[test]
fn refuses_connections_from_elsewhere_unless_allowed() {
    let loopback = IpAddr::from([127, 0, 0, 1]);
    for allow_insecure_listen in [false, true] {
        let dir = tempfile::tempdir().unwrap();
        let settings = ShimSettings { allow_insecure_listen, ..ShimSettings::new(StageSet::NONE, Version::Tls13) };
        let injection = ShimInjection::prepare(dir.path(), &settings).unwrap();
        let server = Open::start(&injection);
        assert!(server.serves(loopback));
        let Some(outward) = outward_address() else {
            eprintln!("this machine has no address but loopback; what comes from elsewhere cannot be tried");
            return;
        };
        assert_eq!(server.serves(outward), allow_insecure_listen);
        let refused = injection.counters().unwrap().get("refused_connections");
        assert_eq!(refused, Some(u64::from(!allow_insecure_listen)));
    }
}
