//! Workers that die, freeze or stay behind, and coordinators that do.

use std::io::Read;
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use super::{Load, TLSDYNO, json, launch, load, processes_with, site, text};
use crate::place::eventually;

/// A load by three workers, and these.
pub struct Crew {
    pub load: Load,
    /// Their process ids.
    pub workers: Vec<u32>,
}

pub fn kill(pid: u32, signal: Signal) {
    kill_process(Pid::from_raw(pid as i32).unwrap(), signal).unwrap();
}

pub fn is_gone(pid: u32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.is_empty() || stat.rsplit(')').next().is_some_and(|rest| rest.trim_start().starts_with('Z'))
}

/// Whether the loop of a worker has what it needs to wait for events: its load begins a moment later.
pub fn is_ready(pid: &u32) -> bool {
    let open = std::fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().flatten();
    let mut links = open.filter_map(|entry| std::fs::read_link(entry.path()).ok());
    links.any(|link| link.to_string_lossy().contains("eventpoll"))
}

impl Crew {
    pub fn begin(url: &str, duration: &str, more: &[&str]) -> Crew {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        // By this its workers are found.
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let mark = format!("--join-within={}{number:03}ms", std::process::id());
        let arguments = ["-k", "--workers", "3", "--launch", &launch(&mark), "--duration", duration, "--json"];
        let mut command = load(&[&[url], &arguments[..], more].concat());
        let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let load = Load(child);
        let is_worker =
            |pid: &u32| std::fs::read_link(format!("/proc/{pid}/exe")).is_ok_and(|exe| exe.to_str() == Some(TLSDYNO));
        let mut workers = Vec::new();
        eventually("starting workers", || {
            workers = processes_with(&mark).into_iter().filter(is_worker).collect();
            workers.len() == 3 && workers.iter().all(is_ready)
        });
        // And the start lies 50 ms ahead then.
        std::thread::sleep(Duration::from_millis(500));
        Crew { load, workers }
    }

    /// What it printed, and its exit code.
    pub fn end(mut self) -> (Value, i32, String) {
        let (mut out, mut err) = (Vec::new(), Vec::new());
        self.load.0.stdout.take().unwrap().read_to_end(&mut out).unwrap();
        self.load.0.stderr.take().unwrap().read_to_end(&mut err).unwrap();
        let status = self.load.0.wait().unwrap();
        let code = status.code().unwrap_or_else(|| -status.signal().unwrap());
        eventually("ending the workers", || self.workers.iter().all(|pid| is_gone(*pid)));
        (serde_json::from_slice(&out).unwrap_or_default(), code, text(&err))
    }
}

#[test]
fn a_killed_worker_marks_the_run_and_the_rest_goes_on_or_stops() {
    let (_site, url) = site();
    let crew = Crew::begin(&url, "4s", &["--on-loss", "go-on"]);
    kill(crew.workers[1], Signal::KILL);
    let (result, code, said) = crew.end();
    assert_eq!(code, 8, "{said}");
    assert!(result["elapsed_ns"].as_u64() >= Some(3_900_000_000), "the others went on: {result}");
    assert_eq!(result["workers"].as_array().unwrap().len(), 2);
    let warnings = result["warnings"].to_string();
    assert!(warnings.contains("was lost after") && warnings.contains("2/3"), "{warnings}");
    assert_eq!(result["stopped"], false);

    let crew = Crew::begin(&url, "10m", &[]);
    kill(crew.workers[1], Signal::KILL);
    let (result, code, said) = crew.end();
    assert_eq!(code, 8, "{said}");
    assert!(result["warnings"].to_string().contains("the others were stopped"), "{result}");
}

#[test]
fn a_frozen_worker_is_lost_after_five_seconds_and_ended_in_the_end() {
    let (_site, url) = site();
    let crew = Crew::begin(&url, "8s", &["--on-loss", "go-on"]);
    kill(crew.workers[2], Signal::STOP);
    let (result, code, said) = crew.end();
    assert_eq!(code, 8, "{said}");
    assert!(result["warnings"].to_string().contains("silent for 5 s"), "{result}");
}

#[test]
fn workers_end_with_their_coordinator_and_ctrl_c_keeps_what_was_measured() {
    let (_site, url) = site();
    let mut crew = Crew::begin(&url, "10m", &[]);
    crew.load.0.kill().unwrap();
    eventually("ending the workers", || crew.workers.iter().all(|pid| is_gone(*pid)));

    let crew = Crew::begin(&url, "10m", &[]);
    kill(crew.load.0.id(), Signal::INT);
    let (result, code, said) = crew.end();
    assert_eq!((code, &result["stopped"]), (130, &true.into()), "{said}");
    assert_eq!(result["workers"].as_array().unwrap().len(), 3);
}

/// A way to `to` that breaks so many connections before it lets one through.
fn bad_way(to: SocketAddr, mut broken: u32) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for near in listener.incoming().map_while(Result::ok) {
            if broken > 0 {
                broken -= 1;
                continue;
            }
            let far = TcpStream::connect(to).unwrap();
            for (mut from, mut into) in [(near.try_clone().unwrap(), far.try_clone().unwrap()), (far, near)] {
                std::thread::spawn(move || {
                    // Until one of them ends.
                    let _ = std::io::copy(&mut from, &mut into);
                    let _ = into.shutdown(Shutdown::Both);
                });
            }
        }
    });
    address
}

#[test]
fn neither_silent_strangers_nor_a_broken_attempt_keep_a_worker_from_joining() {
    let (_site, url) = site();
    let place = tempfile::tempdir().unwrap();
    let told = place.path().join("told");
    let tell = format!("echo {{address}} {{token_file}} > {0}.part; mv {0}.part {0}; exec sleep 60", told.display());
    let flags = ["-k", "--workers", "1", "--launch", &tell, "--duration", "200ms", "--json"];
    let mut command = load(&[&[url.as_str()], &flags[..]].concat());
    let mut load = Load(command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap());
    eventually("listening", || told.exists());
    let told = std::fs::read_to_string(told).unwrap();
    let (address, token) = told.trim().split_once(' ').unwrap();
    let address: SocketAddr = address.parse().unwrap();
    let _strangers: Vec<TcpStream> = (0..300).map(|_| TcpStream::connect(address).unwrap()).collect();
    let way = bad_way(address, 2).to_string();
    let arguments = ["worker", "--join", &way, "--token-file", token, "--join-within", "20s"];
    let worker = Command::new(TLSDYNO).args(arguments).stdin(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    let mut out = Vec::new();
    load.0.stdout.take().unwrap().read_to_end(&mut out).unwrap();
    let worker = worker.wait_with_output().unwrap();
    assert_eq!(worker.status.code(), Some(0), "{}", text(&worker.stderr));
    assert_eq!(load.0.wait().unwrap().code(), Some(0));
    let result: Value = serde_json::from_slice(&out).unwrap();
    assert!(result["hits"].as_u64() > Some(0), "{result}");
}

#[test]
fn nothing_is_left_of_a_load_that_never_began() {
    let (_site, url) = site();
    let mark = "--join-within=9876543s";
    // One of two comes; the other's command fails.
    let once = format!("test {{worker}} = 1 || exit 9; {}", launch(mark));
    let output = load(&[&url, "-k", "--workers", "2", "--launch", &once, "--json"]).output().unwrap();
    assert_eq!(output.status.code(), Some(6), "{}", text(&output.stderr));
    assert!(text(&output.stderr).contains("code 9"));
    assert!(processes_with(mark).iter().all(|pid| is_gone(*pid)));
    let flags = ["-k", "--workers", "1", "--launch", &launch(mark), "--duration", "100ms", "--json"];
    let output = load(&[&[url.as_str()], &flags[..]].concat()).output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    assert!(json(&output)["hits"].as_u64().unwrap() > 0);
    assert!(processes_with(mark).iter().all(|pid| is_gone(*pid)));
}
