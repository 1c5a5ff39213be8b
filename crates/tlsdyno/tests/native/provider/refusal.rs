//! Without the acknowledgement of a running tlsdyno the provider does not load, says why, and leaves a server that
//! serves nothing.

use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::{Command, Stdio};

use tlsdyno::native::Injection;
use tlsdyno::native::layout::provider as layout;
use tlsdyno_tls::StageSet;

use super::tls::Server;
use crate::build::{self, SANITIZERS};

/// The error queue after the provider was loaded as `configuration` says; empty if it loaded.
fn error_queue(configuration: &Path) -> String {
    let program = build::test_program("cc", "load", &[]);
    let on_demand = configuration.with_extension("on-demand");
    let text = fs::read_to_string(configuration).unwrap();
    fs::write(&on_demand, text.replace("activate = 1\n", "")).unwrap();
    build::run(Command::new(program).arg(on_demand).env_remove("OPENSSL_CONF"))
}

/// Spoils a good injection (its area, its `openssl.cnf`) and demands that the provider then refuses to load for the
/// `reason`, on the error queue and on the standard error of a server, and that this server does not serve.
fn expect_refusal(reason: &str, spoil: impl Fn(&Path, &Path)) {
    let dir = tempfile::tempdir().unwrap();
    let injection = Injection::prepare(dir.path(), StageSet::PROVIDER).unwrap();
    let configuration = dir.path().join("openssl.cnf");
    injection.let_children_inherit().unwrap();
    assert_eq!(error_queue(&configuration), "", "it loads before it is spoiled");
    spoil(Path::new(&injection.area_path()), &configuration);
    let queue = error_queue(&configuration);
    assert!(queue.contains(reason) && queue.contains("tlsdyno"), "{queue}");
    let Err(printed) = Server::start(Some(&injection), "rsa", &[]) else {
        panic!("a server that is refused the provider ({reason}) listens");
    };
    assert!(printed.contains("tlsdyno provider not loaded: ") && printed.contains(reason), "{printed}");
}

fn write_at(record: &Path, at: usize, bytes: &[u8]) {
    fs::File::options().write(true).open(record).unwrap().write_all_at(bytes, at as u64).unwrap();
}

/// Names another descriptor.
fn change_descriptor(configuration: &Path, descriptor: &str) {
    let text = fs::read_to_string(configuration).unwrap();
    let lines = text.lines().map(|line| match line.starts_with("descriptor = ") {
        true => format!("descriptor = {descriptor}\n"),
        false => format!("{line}\n"),
    });
    fs::write(configuration, lines.collect::<String>()).unwrap();
}

fn replace(configuration: &Path, from: &str, to: &str) {
    let text = fs::read_to_string(configuration).unwrap();
    assert!(text.contains(from));
    fs::write(configuration, text.replace(from, to)).unwrap();
}

#[test]
fn refuses_without_acknowledgement() {
    expect_refusal("`acknowledge` is missing", |_, configuration| {
        replace(configuration, "acknowledge = ", "something_else = ")
    });
    expect_refusal("belongs to another run", |_, configuration| {
        replace(configuration, "acknowledge = ", "acknowledge = 0")
    });
}

#[test]
fn refuses_when_the_owner_has_ended() {
    // A process that has been: its number is free, or given to a process that started at another time.
    let mut ended = Command::new("true").spawn().unwrap();
    let pid = u64::from(ended.id());
    ended.wait().unwrap();
    expect_refusal("has ended", |record, _| write_at(record, layout::OWNER_PID_AT, &pid.to_ne_bytes()));
    // The number lives (this process), but it is not the process that made the record.
    expect_refusal("has ended", |record, _| write_at(record, layout::OWNER_START_TICKS_AT, &1u64.to_ne_bytes()));
}

/// Every stage, in a process that has loaded the provider long before.
#[test]
fn refuses_once_that_the_heartbeat_stops() {
    for (compiler, flags) in [("cc", &[][..]), ("clang", SANITIZERS)] {
        let program = build::test_program(compiler, "heartbeat", flags);
        let dir = tempfile::tempdir().unwrap();
        let injection = Injection::prepare(dir.path(), StageSet::PROVIDER).unwrap();
        let mut process = Command::new(program)
            .envs(injection.let_children_inherit().unwrap())
            .env("LSAN_OPTIONS", build::leak_check())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(process.stdout.take().unwrap()).read_line(&mut line).unwrap();
        drop(injection);
        let mut said = String::new();
        process.stderr.take().unwrap().read_to_string(&mut said).unwrap();
        assert!(process.wait().unwrap().success() && line == "ready\n", "{line}{said}");
    }
}

#[test]
fn refuses_the_area_of_another_user() {
    // Whoever runs the test: neither root, which may start servers as other users, nor this user.
    let stranger: u32 = 4_000_000;
    expect_refusal("belongs to another user", |record, _| {
        write_at(record, layout::OWNER_USER_AT, &stranger.to_ne_bytes());
    });
}

#[test]
fn refuses_a_copy_of_the_area() {
    let dir = tempfile::tempdir().unwrap();
    let injection = Injection::prepare(dir.path(), StageSet::PROVIDER).unwrap();
    let mut copy = fs::read(injection.area_path()).unwrap();
    // As an attacker would: an owner that lives for good, a heartbeat that never gets old.
    copy[layout::OWNER_PID_AT..][..8].copy_from_slice(&1u64.to_ne_bytes());
    copy[layout::HEARTBEAT_NS_AT..][..8].copy_from_slice(&u64::MAX.to_ne_bytes());
    let path = dir.path().join("copy");
    fs::write(&path, copy).unwrap();
    let file = fs::File::options().read(true).write(true).open(&path).unwrap();
    let inherited = rustix::io::fcntl_dupfd_cloexec(&file, 300).unwrap();
    rustix::io::fcntl_setfd(&inherited, rustix::io::FdFlags::empty()).unwrap();
    let configuration = dir.path().join("openssl.cnf");
    injection.let_children_inherit().unwrap();
    change_descriptor(&configuration, &inherited.as_raw_fd().to_string());
    let queue = error_queue(&configuration);
    assert!(queue.contains("is not an area of tlsdyno"), "{queue}");
}

#[test]
fn refuses_an_owner_that_only_waits_to_be_reaped() {
    let mut zombie = Command::new("true").spawn().unwrap();
    let stat = format!("/proc/{}/stat", zombie.id());
    let fields = loop {
        let text = fs::read_to_string(&stat).unwrap();
        let fields = text.rsplit_once(") ").unwrap().1.to_owned();
        if fields.starts_with('Z') {
            break fields;
        }
        std::thread::yield_now();
    };
    let start: u64 = fields.split(' ').nth(19).unwrap().parse().unwrap();
    expect_refusal("has ended", |record, _| {
        let pid = u64::from(zombie.id());
        write_at(record, layout::OWNER_PID_AT, &pid.to_ne_bytes());
        write_at(record, layout::OWNER_START_TICKS_AT, &start.to_ne_bytes());
    });
    zombie.wait().unwrap();
}

#[test]
fn refuses_what_is_no_record_of_this_version() {
    expect_refusal("is not an area of this library", |record, _| write_at(record, 0, b"OTHER"));
    expect_refusal("another version", |record, _| write_at(record, layout::ABI_VERSION_AT, &99u32.to_ne_bytes()));
    expect_refusal("belongs to another run", |record, _| {
        write_at(record, layout::RUN_ID_AT, &[b'x'; layout::RUN_ID_SIZE])
    });
}

#[test]
fn refuses_a_wrong_configuration() {
    for wrong in ["x", "-1", "1x", "99999999999999999999", "2", "9999"] {
        expect_refusal("is not an area of tlsdyno", |_, configuration| change_descriptor(configuration, wrong));
    }
}
