//! What must hold every time: twenty of each kind of end, and the skew of many starts. `make test-machines` runs this.

use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::Signal;

use super::far::Network;
use super::loss::{Crew, is_gone, is_ready, kill};
use super::{Load, TLSDYNO, json, launch, load, of_each, site, text};
use crate::place::eventually;

const TIMES: usize = 20;

#[test]
#[ignore = "twenty times each: make test-machines"]
fn kills_and_freezes_leave_nothing_and_are_marked() {
    let (_site, url) = site();
    let mut longest = [Duration::ZERO; 3];
    for time in 0..TIMES {
        let crew = Crew::begin(&url, "1500ms", &["--on-loss", "go-on"]);
        kill(crew.workers[time % 3], Signal::KILL);
        let began = Instant::now();
        let (result, code, said) = crew.end();
        assert_eq!((code, result["workers"].as_array().unwrap().len()), (8, 2), "{said}");
        longest[0] = longest[0].max(began.elapsed());

        let crew = Crew::begin(&url, "1500ms", &["--on-loss", "stop"]);
        kill(crew.workers[time % 3], Signal::STOP);
        let began = Instant::now();
        let (result, code, said) = crew.end();
        assert_eq!((code, result["workers"].as_array().unwrap().len()), (8, 2), "{said}");
        assert!(result["warnings"].to_string().contains("silent for 5 s"), "{result}");
        longest[1] = longest[1].max(began.elapsed());

        let mut crew = Crew::begin(&url, "10m", &[]);
        crew.load.0.kill().unwrap();
        let began = Instant::now();
        eventually("ending the workers", || crew.workers.iter().all(|pid| is_gone(*pid)));
        longest[2] = longest[2].max(began.elapsed());
    }
    println!(
        "{TIMES} times each, until all had ended at the latest: worker killed {:?}, worker frozen {:?} (5 s of \
         silence, then SIGTERM after 5 s and SIGKILL after 2 s to what is still stopped), coordinator killed {:?}",
        longest[0], longest[1], longest[2]
    );
    assert!(longest[2] < Duration::from_secs(6));
}

#[test]
#[ignore = "twenty cuts of five seconds, and root: make test-machines"]
fn a_cut_network_loses_the_worker_behind_it_and_both_ends_notice() {
    let network = Network::new().expect("root");
    let docroot = tempfile::tempdir().unwrap();
    std::fs::write(docroot.path().join("x"), "x").unwrap();
    let mut server = Command::new("ip");
    server.args(["netns", "exec", &network.near, TLSDYNO, "serve", "--listen-plain", "127.0.0.1:8080", "--docroot"]);
    let _server = Load(server.arg(docroot.path()).stderr(Stdio::null()).spawn().unwrap());
    // By this its workers are found.
    let mark = format!("--join-within={}123ms", std::process::id());
    let inside = |namespace: &str| {
        launch(&format!("--may-load 10.99.0.1 {mark}")).replace("exec ", &format!("exec ip netns exec {namespace} "))
    };
    // One worker here, one behind the cable; each loads its own loopback, which only the near one has a server on.
    let both = format!("if test {{worker}} = 1; then {}; else {}; fi", inside(&network.near), inside(&network.far));
    let mut longest = Duration::ZERO;
    for time in 0..TIMES {
        network.cable("up");
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &network.near, TLSDYNO, "load", "http://127.0.0.1:8080/x", "--json"]);
        command.args(["--workers", "2", "--listen", "10.99.0.1", "--launch", &both, "--on-loss", "go-on"]);
        command.args(["--duration", "7s", "--pause", "const:100ms", "--close"]);
        let child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        eventually("beginning", || super::processes_with(&mark).iter().filter(|pid| is_ready(pid)).count() == 2);
        std::thread::sleep(Duration::from_millis(500));
        network.cable("down");
        let cut = Instant::now();
        let output = child.wait_with_output().unwrap();
        longest = longest.max(cut.elapsed());
        assert_eq!(output.status.code(), Some(8), "{time}: {}", text(&output.stderr));
        let result = json(&output);
        assert_eq!(result["workers"].as_array().unwrap().len(), 1);
        assert!(result["warnings"].to_string().contains("silent for 5 s"), "{result}");
        assert!(super::processes_with(&mark).iter().all(|pid| is_gone(*pid)), "nothing is left on either side");
    }
    println!("{TIMES} cuts: all had ended {longest:?} after the cut at the latest");
}

#[test]
#[ignore = "wants a machine that does nothing else: it looks at milliseconds"]
fn starts_are_together() {
    let (_site, url) = site();
    let mut skews: Vec<u64> = (0..16)
        .map(|_| {
            let flags = ["-k", "--workers", "4", "--launch", &launch(""), "--duration", "200ms", "-c", "4", "--json"];
            let output = load(&[&[url.as_str()], &flags[..]].concat()).output().unwrap();
            let began = of_each(&json(&output), |part| part["began_after_ns"].as_u64());
            *began.iter().max().unwrap()
        })
        .collect();
    skews.sort_unstable();
    println!(
        "4 workers, 16 starts, µs between the first and the last: {:?}",
        skews.iter().map(|ns| ns / 1000).collect::<Vec<_>>()
    );
    assert!(skews[14] <= 2_000_000, "{skews:?}");
}
