//! The screen in a real (pseudo-)terminal: it is shown, ended by keys and signals, and leaves the terminal as it was.

use std::io::{BufRead, BufReader, Lines, Read, Write};
use std::os::fd::AsFd;
use std::process::{Child, ChildStderr, Command, Stdio};

use pty_process::Size;
use pty_process::blocking::{Command as TerminalCommand, Pts, Pty};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, Signal, kill_process};
use rustix::termios::{LocalModes, tcgetattr};

/// `tlsdyno serve` with one object.
pub struct Site {
    server: Child,
    /// Of its object.
    pub url: String,
    /// Open for as long as the server may write there.
    _messages: Lines<BufReader<ChildStderr>>,
    _docroot: tempfile::TempDir,
}

impl Site {
    pub fn serve() -> Site {
        let docroot = tempfile::tempdir().unwrap();
        std::fs::write(docroot.path().join("1k.bin"), [0; 1024]).unwrap();
        let mut command = Command::new(env!("CARGO_BIN_EXE_tlsdyno"));
        command.arg("serve").arg("--docroot").arg(docroot.path()).stdin(Stdio::null()).stdout(Stdio::piped());
        let mut server = command.stderr(Stdio::piped()).spawn().unwrap();
        let mut lines = BufReader::new(server.stderr.take().unwrap()).lines();
        let line =
            lines.by_ref().map_while(Result::ok).find(|line| line.contains("https://")).expect("it tells its address");
        let url = line.split_whitespace().find(|word| word.starts_with("https://")).unwrap();
        Site { url: format!("{url}1k.bin"), server, _messages: lines, _docroot: docroot }
    }
}

impl Drop for Site {
    fn drop(&mut self) {
        self.server.kill().unwrap();
        self.server.wait().unwrap();
    }
}

/// A terminal with tlsdyno in it.
pub struct Session {
    pub far: Pty,
    near: Pts,
    /// The terminal's, before anything ran in it.
    settings_before: String,
    pub child: Child,
    emulator: vt100::Parser,
    pub seen: Vec<u8>,
}

impl Session {
    fn load(site: &Site, more: &[&str], environment: &[(&str, &str)]) -> Session {
        Session::of(&[&["load", &site.url, "-k", "--reuse", "50%"], more].concat(), environment)
    }

    pub fn of(arguments: &[&str], environment: &[(&str, &str)]) -> Session {
        let (far, near) = pty_process::blocking::open().unwrap();
        far.resize(Size::new(26, 90)).unwrap();
        let settings_before = settings(&near);
        let mut command = TerminalCommand::new(env!("CARGO_BIN_EXE_tlsdyno"))
            .args(arguments)
            .env_remove("NO_COLOR")
            .env("TERM", "xterm-256color")
            .envs(environment.iter().copied());
        let child = command.spawn_borrowed(&near).unwrap();
        Session { far, near, settings_before, child, emulator: vt100::Parser::new(26, 90, 1000), seen: Vec::new() }
    }

    /// Reads until the terminal shows what is waited for.
    pub fn wait_for(&mut self, what: &str, is_shown: impl Fn(&str) -> bool) -> String {
        loop {
            let shown = self.emulator.screen().contents();
            if is_shown(&shown) {
                return shown;
            }
            let far = self.far.as_fd();
            let long = Timespec { tv_sec: 60, tv_nsec: 0 };
            let came = poll(&mut [PollFd::new(&far, PollFlags::IN)], Some(&long)).unwrap();
            assert!(came > 0, "no {what} in a minute; shown is:\n{shown}");
            let mut bytes = [0; 4096];
            let count = self.far.read(&mut bytes).unwrap();
            self.emulator.process(&bytes[..count]);
            self.seen.extend_from_slice(&bytes[..count]);
        }
    }

    pub fn resize(&mut self, rows: u16, columns: u16) {
        self.emulator.screen_mut().set_size(rows, columns);
        self.far.resize(Size::new(rows, columns)).unwrap();
    }

    /// The terminal is as it was before.
    pub fn is_given_back(&self) -> bool {
        settings(&self.near) == self.settings_before && !self.emulator.screen().hide_cursor()
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }
}

fn settings(terminal: &Pts) -> String {
    format!("{:?}", tcgetattr(terminal.as_fd()).unwrap())
}

fn is_whole_screen(shown: &str) -> bool {
    shown.contains("q ends it")
        && shown.contains("TLS 1.3")
        && shown.contains(" 50.")
        && shown.contains("resumed handshake")
}

fn is_result(shown: &str) -> bool {
    shown.contains("whole response")
}

fn ends_as_asked(site: &Site, end: impl FnOnce(&mut Session)) {
    let mut session = Session::load(site, &["--duration", "5m"], &[]);
    session.wait_for("screen", is_whole_screen);
    let modes = tcgetattr(session.near.as_fd()).unwrap().local_modes;
    assert!(!modes.intersects(LocalModes::ICANON | LocalModes::ECHO) && modes.contains(LocalModes::ISIG));
    end(&mut session);
    let result = session.wait_for("result", is_result);
    assert!(result.contains("hits") && !result.contains("q ends it"), "{result}");
    assert_eq!(session.child.wait().unwrap().code(), Some(130));
    assert!(session.is_given_back());
}

#[test]
fn a_key_or_a_signal_ends_the_run_prints_the_result_and_restores_the_terminal() {
    let site = Site::serve();
    ends_as_asked(&site, |session| session.far.write_all(b"xq").unwrap());
    ends_as_asked(&site, |session| session.far.write_all(b"\x03").unwrap());
    ends_as_asked(&site, |session| session.signal(Signal::TERM));
}

#[test]
fn the_screen_follows_the_size_of_its_terminal() {
    let site = Site::serve();
    let mut session = Session::load(&site, &["--duration", "5m"], &[("NO_COLOR", "1")]);
    session.wait_for("screen", is_whole_screen);
    session.resize(10, 40);
    session.wait_for("narrow screen", |shown| {
        shown.contains("hits/s") && shown.contains("so far") && !shown.contains("╭")
    });
    session.resize(26, 90);
    session.wait_for("wide screen again", is_whole_screen);
    session.far.write_all(b"q").unwrap();
    session.wait_for("result", is_result);
    let text = String::from_utf8_lossy(&session.seen);
    assert!(!text.contains("\x1b[38;"), "NO_COLOR is set");
    session.child.wait().unwrap();
}

#[test]
fn the_result_follows_where_there_is_no_screen() {
    let site = Site::serve();
    for (more, environment) in [(&[][..], &[("TERM", "dumb")][..]), (&["--progress", "none"], &[])] {
        let mut session = Session::load(&site, &[&["--total-connections", "20"], more].concat(), environment);
        session.wait_for("result", is_result);
        session.child.wait().unwrap();
        assert!(!session.seen.contains(&b'\x1b'), "{more:?} {environment:?}");
    }
}
