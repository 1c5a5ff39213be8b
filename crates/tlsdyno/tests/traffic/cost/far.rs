//! A server on another machine, which is a network namespace here.

use std::process::{Command, Stdio};

use super::{FULL, Serving, complete, interval_us, serving};
use crate::machines::far::{Network, inside};
use crate::machines::{TLSDYNO, launch};
use crate::place::Place;

/// A worker beside it tells its CPU time; without one it is known what a client waits.
#[test]
fn is_read_by_a_worker_beside_it_or_told_by_what_a_client_waits() {
    let Some(network) = Network::new() else { return };
    let place = Place::new();
    let server =
        ["serve", "--listen", "10.99.0.2:0", "--allow-insecure-listen", "--print-address", "--docroot", "docroot"];
    let mut server = inside(&network.far, TLSDYNO, &server);
    let (server, address) = serving(server.current_dir(place.path()));
    let url = format!("https://{address}/hello.txt");
    let run = |time_s: &str, more: &[&str]| {
        let arguments = [&["cost", &url, "--i-may-load-this", "10.99.0.2", "--time", time_s, "--json"], more].concat();
        let mut command = inside(&network.near, TLSDYNO, &arguments);
        command.env("TLSDYNO_STORE", place.path().join("store.sqlite")).current_dir(place.path());
        command.arg("--no-report").stderr(Stdio::piped()).output().unwrap()
    };
    let worker = |time_s: &str, more: &str| {
        let launch = launch(more).replace("exec ", &format!("exec ip netns exec {} ", network.far));
        run(time_s, &["--workers", "1", "--listen", "10.99.0.1", "--launch", &launch])
    };
    let of_worker = complete(6, |time_s| worker(time_s, &format!("--cpu-of {address}")));
    let of_client = complete(6, |time_s| run(time_s, &[]));
    for (sheet, told, accounting) in [(of_worker, "server CPU", "processes"), (of_client, "client's wait", "none")] {
        assert_eq!(sheet["cost"]["servers"][0]["cost"], told);
        assert_eq!(sheet["manifest"]["cpu_accounting"], accounting);
        let [low, high] = interval_us(&sheet["cost"]["servers"][0]["parts"], FULL);
        assert!(low < 50_000.0 && high > 50.0, "{sheet:#}");
        assert!(sheet["answer"].as_str().unwrap().contains("was not read") != (told == "server CPU"), "{sheet:#}");
    }
    let output = run("6", &["--rate", "300"]);
    assert_eq!(output.status.code(), Some(2), "{output:?}");
    let refused = |more: &str, code: i32, why: &str| {
        let output = worker("6", more);
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{said}");
        assert!(said.contains(why), "{said}");
    };
    refused("", 6, "without --cpu-of");
    let busy = Serving(Command::new("sh").args(["-c", "while :; do :; done"]).spawn().unwrap());
    refused(&format!("--cpu-of {}", busy.0.id()), 6, "of a CPU without a connection of ours");
    drop(server);
}
