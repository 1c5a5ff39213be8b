//! The control socket: which files it takes the place of, and who is answered when many ask.

use std::io::{Read, Write};
use std::os::unix::fs::{FileTypeExt, symlink};
use std::os::unix::net::{UnixDatagram, UnixListener, UnixStream};
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use rustix::process::Signal;
use tlsdyno_dispatch::control::CLIENTS_MAX;

use super::support::{Dispatcher, PATIENCE, control_path, tlsdyno};
use crate::place::eventually;

fn dispatch(control: &Path) -> Command {
    let mut command = tlsdyno();
    command.args(["dispatch", "--listen", "127.0.0.1:0", "--backend", "127.0.0.1:9", "--check", "none"]);
    command.arg("--print-address").arg("--control").arg(control);
    command
}

#[test]
fn only_a_socket_that_nobody_listens_on_is_replaced() {
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name);
    std::fs::write(path("file"), "precious").unwrap();
    std::fs::create_dir(path("directory")).unwrap();
    symlink(path("file"), path("link")).unwrap();
    symlink(path("nowhere"), path("dangling")).unwrap();
    rustix::fs::mkfifoat(rustix::fs::CWD, path("pipe"), rustix::fs::Mode::RUSR).unwrap();
    let _listener = UnixListener::bind(path("live")).unwrap();
    let _datagrams = UnixDatagram::bind(path("datagrams")).unwrap();
    drop(UnixListener::bind(path("stale")).unwrap());
    let no_socket = ["is no socket and stays as it is", "choose another path"];
    let kept = [
        ("file", no_socket),
        ("directory", no_socket),
        ("link", no_socket),
        ("dangling", no_socket),
        ("pipe", no_socket),
        ("live", ["another dispatcher uses it", "choose another path"]),
        ("datagrams", ["cannot be told whether anybody listens", "choose another path"]),
    ];
    for (name, said) in kept {
        let before = std::fs::symlink_metadata(path(name)).unwrap().file_type();
        let output = dispatch(&path(name)).output().unwrap();
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(6), "{name}: {text}");
        assert!(said.iter().all(|said| text.contains(said)), "{name}: {text}");
        assert!(text.contains(path(name).to_str().unwrap()), "{name}: {text}");
        assert_eq!(std::fs::symlink_metadata(path(name)).unwrap().file_type(), before, "{name}");
    }
    assert_eq!(std::fs::read_to_string(path("file")).unwrap(), "precious");

    let dispatcher = Dispatcher::start(dispatch(&path("stale")));
    assert_eq!(dispatcher.status(path("stale").to_str().unwrap())["phase"], "running");
    dispatcher.signal(Signal::TERM);
    assert_eq!(dispatcher.wait().0, Some(0));
    assert!(!path("stale").exists(), "its own socket is removed in the end");
}

#[test]
fn what_took_the_place_of_its_socket_stays_in_the_end() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("control");
    let dispatcher = Dispatcher::start(dispatch(&path));
    assert!(std::fs::symlink_metadata(&path).unwrap().file_type().is_socket());
    std::fs::remove_file(&path).unwrap();
    std::fs::write(&path, "precious").unwrap();
    dispatcher.signal(Signal::TERM);
    let (code, said) = dispatcher.wait();
    assert_eq!(code, Some(0), "it ends though its socket cannot be found any more: {said}");
    assert_eq!(std::fs::read_to_string(&path).unwrap(), "precious");
}

#[test]
fn silent_clients_keep_nobody_from_the_status() {
    let path = control_path();
    let dispatcher = Dispatcher::start(dispatch(Path::new(&*path)));
    dispatcher.status(&path);
    let before = dispatcher.descriptors();
    let connect = |said: &[u8]| {
        let mut client = UnixStream::connect(&*path).unwrap();
        client.set_read_timeout(Some(PATIENCE)).unwrap();
        client.write_all(said).unwrap();
        client
    };
    // Silent, in the middle of asking, and such as never listen to what they asked for.
    let kinds = [&b""[..], b"GET /sta", b"GET /status HTTP/1.0\r\n"];
    let mut silent: Vec<UnixStream> = (0..300).map(|index| connect(kinds[index % 3])).collect();
    let began = Instant::now();
    for _ in 0..10 {
        assert_eq!(dispatcher.status(&path)["phase"], "running");
        silent.push(connect(b"GET"));
    }
    assert!(began.elapsed() < Duration::from_secs(60), "ten answers took {:?}", began.elapsed());
    assert!(dispatcher.descriptors() <= before + CLIENTS_MAX, "{} descriptors", dispatcher.descriptors());
    for client in &mut silent {
        let mut answer = Vec::new();
        // Dropped: it sees an end, or a reset where it had said something that nobody read.
        let _ = client.read_to_end(&mut answer);
        assert!(answer.is_empty(), "nobody asked a whole question");
    }
    eventually("the last of them are dropped", || dispatcher.descriptors() <= before);

    // One byte at a time is no way to stay.
    let mut slow = connect(b"GET /status?");
    let began = Instant::now();
    while slow.write_all(b"x").is_ok() {
        assert!(began.elapsed() < PATIENCE, "it may ask for ever");
        std::thread::sleep(Duration::from_millis(20));
    }
}
