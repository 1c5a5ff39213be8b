//! Several loops of one load: their sum is what was asked for and what the server saw.

use std::process::Stdio;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use tlsdyno::model::{CertificateKind, ServerName};
use tlsdyno::servers::{self, RunDirectory, ServerSpec, ServerTls};

use super::{ONE_BYTE, Running, json, load, refuse, server, stderr, tlsdyno};

/// The same field of each loop.
fn of_each(result: &Value, field: impl Fn(&Value) -> Option<u64>) -> Vec<u64> {
    result["workers"].as_array().unwrap().iter().map(|part| field(part).unwrap()).collect()
}

#[test]
fn hits_reuse_and_errors_are_those_of_the_servers_own_log() {
    servers::launch::set_own_executable(env!("CARGO_BIN_EXE_tlsdyno").as_ref());
    let directory = RunDirectory::create().unwrap();
    let docroot = directory.path().join("docroot");
    servers::run_directory::make_passable(&docroot).unwrap();
    std::fs::write(docroot.join("x"), "x").unwrap();
    let certificate = servers::certificates::create(CertificateKind::P256, directory.path()).unwrap();
    let tls = Some(ServerTls::new(certificate));
    let allowed = tlsdyno::run::cpus::allowed();
    let cpus = vec![allowed[0]];
    let spec = ServerSpec { tls, cpus, log_sessions: true, ..ServerSpec::new(ServerName::Nginx, docroot) };
    let nginx = servers::start(&spec, directory.path()).unwrap();
    let url = format!("https://{}/x", nginx.address());
    let missing = format!("https://{}/missing", nginx.address());

    // A quarter of the requests fail.
    let flags = ["-k", "--reuse", "80%", "--connections", "16", "--also", &missing, "--weights", "3,1", "--json"];
    let run = [&[url.as_str(), "--threads", "4", "--total-connections", "2002"], &flags[..]].concat();
    let output = load(&run);
    assert_eq!(output.status.code(), Some(7), "{}", stderr(&output));
    let result = json(&output);
    let (hits, errors) = (result["hits"].as_u64().unwrap(), result["errors"]["status"].as_u64().unwrap());
    assert_eq!((hits + errors, &result["connections"]), (2002, &2002.into()));
    let began = Instant::now();
    let logged = loop {
        // Its last line may be half written.
        match nginx.session_counts() {
            Ok(counts) if counts.requests >= 2002 => break counts,
            other if began.elapsed() > Duration::from_secs(20) => break other.unwrap(),
            _ => std::thread::yield_now(),
        }
    };
    assert_eq!((logged.requests, logged.connections), (2002, 2002));
    assert_eq!(result["handshakes"]["resumed_accepted"], logged.resumed);
    assert_eq!(result["statuses"], serde_json::json!({"200": hits, "404": errors}));

    // Each of them has its exact share of everything.
    assert_eq!(of_each(&result, |part| part["connections"].as_u64()), [501, 501, 500, 500]);
    let resumed = of_each(&result, |part| part["handshakes"]["resumed_accepted"].as_u64());
    assert!(resumed.iter().all(|resumed| (398..=401).contains(resumed)), "80 % of 500: {resumed:?}");
    assert_eq!(resumed.iter().sum::<u64>(), logged.resumed);
    assert_eq!(of_each(&result, |part| part["hits"].as_u64()).iter().sum::<u64>(), hits);
    assert_eq!(of_each(&result, |part| part["errors"].as_u64()).iter().sum::<u64>(), errors);
    assert!(of_each(&result, |part| part["client_cpu_ns"].as_u64()).iter().all(|cpu_ns| *cpu_ns > 0));
    let latencies = tlsdyno::histogram::decode(result["histograms"]["whole_response"].as_str().unwrap()).unwrap();
    assert_eq!(latencies.len(), hits, "nothing is lost in the merged histogram");

    // The server was told to stay on its CPU, and so the load keeps off it, if there is another one.
    let output = load(&[&url, "-k", "--threads", "auto", "--duration", "100ms", "--json"]);
    let loops = json(&output)["workers"].as_array().unwrap().clone();
    let names: Vec<&str> = loops.iter().map(|part| part["name"].as_str().unwrap()).collect();
    let of_load = if allowed.len() > 1 { &allowed[1..] } else { &allowed[..] };
    let expected: Vec<String> = (1..).zip(of_load).map(|(number, cpu)| format!("loop {number} on CPU {cpu}")).collect();
    assert_eq!(names, expected, "{}", stderr(&output));
    nginx.stop().unwrap();
}

#[test]
fn an_open_loop_has_the_same_arrivals_however_many_loops_there_are() {
    let (address, _) = server(ONE_BYTE);
    let url = format!("http://{address}/");
    let due = |threads: &str| {
        let flags = ["--rate", "300/s", "--arrivals", "poisson", "--seed", "3", "--duration", "1s", "--json"];
        let output = load(&[&[url.as_str(), "--threads", threads], &flags[..]].concat());
        let result = json(&output);
        let errors: u64 = result["errors"].as_object().unwrap().values().filter_map(Value::as_u64).sum();
        result["hits"].as_u64().unwrap() + result["unserved"].as_u64().unwrap() + errors
    };
    let [one, three] = ["1", "3"].map(due);
    assert_eq!(one, three);
    assert!((240..360).contains(&one), "{one}");
}

#[test]
fn loops_are_told_apart_refused_where_there_are_too_many_and_stopped_together() {
    let (address, seen) = server(ONE_BYTE);
    let url = format!("http://{address}/");
    refuse(&[&url, "--threads", "8", "--connections", "4"], 2, &["--connections", "--threads"]);
    refuse(&[&url, "--threads", "none"], 2, &["auto"]);
    refuse(&[&url, "--threads", "2", "--cpu", "0"], 2, &["--cpu"]);
    let output = load(&[&url, "--threads", "2", "--duration", "300ms", "--connections", "3"]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let text = String::from_utf8(output.stdout).unwrap();
    for part in ["loop 1 on CPU", "loop 2 on CPU", "began after", "busy", "by the busiest loop"] {
        assert!(text.contains(part), "{part} is missing:\n{text}");
    }
    let output = load(&[&url, "--threads", "auto", "--duration", "100ms", "--json"]);
    assert!(!json(&output)["workers"].as_array().unwrap().is_empty(), "{}", stderr(&output));

    while seen.try_recv().is_ok() {}
    let mut command = tlsdyno();
    command.args(["load", &url, "--threads", "3", "--duration", "10m", "--connections", "6", "--json"]);
    let mut child = Running(command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap());
    for _ in 0..100 {
        seen.recv().unwrap();
    }
    kill_process(Pid::from_child(&child.0), Signal::INT).unwrap();
    let result: Value = serde_json::from_reader(child.0.stdout.take().unwrap()).unwrap();
    assert_eq!(child.0.wait().unwrap().code(), Some(130));
    assert_eq!((&result["stopped"], result["workers"].as_array().unwrap().len()), (&true.into(), 3));
}
