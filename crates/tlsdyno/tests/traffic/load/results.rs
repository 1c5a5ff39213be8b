//! Sweeps, files and comparisons.

use std::io::{BufRead, BufReader, Read};
use std::net::TcpListener;
use std::process::{Output, Stdio};
use std::sync::Arc;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use super::{Running, built_in, json, load, refuse, serve, stderr, tlsdyno};
use crate::place::is_positive_or_null;

fn run(arguments: &[&str]) -> Output {
    tlsdyno().args(arguments).stdin(Stdio::null()).output().unwrap()
}

#[test]
fn results_are_kept_in_every_form_and_can_be_compared() {
    let directory = tempfile::tempdir().unwrap();
    let (server, _) = built_in(directory.path());
    let url = format!("https://{}/x", server.address());
    let file = |name: &str| directory.path().join(name).display().to_string();
    refuse(&["http://127.0.0.1/", "--output", "result.txt"], 2, &[".json, .csv, .prom, .hdr or .html"]);

    let files = ["slow.json", "slow.csv", "slow.prom", "slow.hdr", "slow.html"].map(file);
    let mut arguments = vec![url.as_str(), "-k", "--close", "--connections", "4", "--duration", "1500ms"];
    files.iter().for_each(|path| arguments.extend(["--output", path]));
    let output = load(&arguments);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let text = files.each_ref().map(|path| std::fs::read_to_string(path).unwrap());
    let object: Value = serde_json::from_str(&text[0]).unwrap();
    assert_eq!(object["format"], 1);
    let slices = object["slices"].as_array().unwrap();
    assert!(slices.len() >= 5, "{slices:?}");
    let in_slices: u64 = slices.iter().map(|slice| slice["hits"].as_u64().unwrap()).sum();
    assert!(in_slices <= object["hits"].as_u64().unwrap() && in_slices > 0);
    assert_eq!(text[1].lines().count(), slices.len() + 1);
    assert!(text[2].contains(&format!("tlsdyno_load_hits{{url=\"{url}\"}} {}\n", object["hits"])));
    assert!(text[2].contains("phase=\"full_handshake\",quantile=\"0.99\"}"));
    assert!(text[3].contains("# full_handshake") && text[3].contains("Total count"));
    for part in ["vega-lite/v6.json", "id=\"latency\"", " hits/s; whole response ", "default-src 'none'"] {
        assert!(text[4].contains(part), "{part} is not on the page");
    }

    // Kept connections are many times faster than one for each request, but a second on a busy machine may not tell
    // (`stats/compared.rs` holds which words follow from which numbers).
    let fast = file("fast.json");
    let output = load(&[&url, "-k", "--connections", "4", "--duration", "1500ms", "--output", &fast]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let output = run(&["compare", &files[0], &fast, "--json"]);
    assert!(matches!(output.status.code(), Some(0 | 10)), "{}", stderr(&output));
    let comparison = &json(&output)["comparisons"][0];
    assert!(comparison["quantity"] == "hits/s" && comparison["word"].is_string(), "{comparison}");
    let output = run(&["compare", &fast, &files[0]]);
    assert!(matches!(output.status.code(), Some(0 | 10)), "{}", stderr(&output));
    let output = run(&["compare", &fast, &fast, "--strict"]);
    assert_eq!(output.status.code(), Some(11), "{}", stderr(&output));
    assert_eq!(run(&["compare", &fast, "/no/such.json"]).status.code(), Some(3));
    server.stop().unwrap();
}

#[test]
fn urls_are_compared_in_turn_and_limits_are_kept() {
    let directory = tempfile::tempdir().unwrap();
    let (server, _) = built_in(directory.path());
    let url = format!("https://{}/x", server.address());
    let store = directory.path().join("loads.sqlite");
    let run = |arguments: &[&str]| {
        let output = tlsdyno().args(arguments).env("TLSDYNO_STORE", &store).stdin(Stdio::null()).output().unwrap();
        (output.status.code(), String::from_utf8(output.stdout).unwrap(), String::from_utf8(output.stderr).unwrap())
    };
    let (code, text, said) = run(&["load", &url, "-k", "--connections", "4", "-d", "2s", "--against", &url, "--json"]);
    assert!(matches!(code, Some(0 | 10)), "{said}");
    let result: Value = serde_json::from_str(&text).unwrap();
    let compared = result["comparisons"].as_array().unwrap();
    assert!(compared.len() == 4 && compared[0]["quantity"] == "CPU per hit", "{text}");
    assert!(compared[0]["first"].as_f64() > Some(1000.0), "nanoseconds: {text}");
    assert!(result["verdict"].is_string() && result["rounds"].as_u64() >= Some(3), "{text}");
    let changed = |limit: &str| run(&["load", &url, "-k", "-d", "500ms", "--against", &url, "--fail-if", limit]);
    assert!(matches!(changed("cpu/hit > +100000%").0, Some(0 | 10)));
    let (code, _, said) = changed("cpu/hit > -90%");
    assert!(code == Some(12) && said.contains("cpu/hit > -90% fails: it is"), "{said}");
    assert!(changed("p99 > 50ms").2.contains("with its sign"));
    let limited = |limit: &str| run(&["load", &url, "-k", "-d", "300ms", "--fail-if", limit]);
    assert!(limited("cpu/hit > +3%").2.contains("--against"));
    let (code, _, said) = limited("hits/s < 1000000000");
    assert!(code == Some(12) && said.contains("hits/s < 1000000000 fails: it is"), "{said}");
    assert_eq!(limited("errors > 0").0, Some(0));
    assert!(limited("p99 > 50").2.contains("50ms"));
    server.stop().unwrap();
}

/// As ab, oha and h2load count: exactly so many requests, over kept connections, in one loop or several.
#[test]
fn a_number_of_requests_is_made_over_kept_connections() {
    let directory = tempfile::tempdir().unwrap();
    let (server, _) = built_in(directory.path());
    let url = format!("https://{}/x", server.address());
    let made = |more: &[&str]| {
        let output = load(&[&[&url, "-k", "--json"], more].concat());
        assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
        let result = json(&output);
        (result["hits"].as_u64().unwrap(), result["connections"].as_u64().unwrap())
    };
    assert_eq!(made(&["-n", "3000", "-c", "50"]), (3000, 50));
    assert_eq!(made(&["-n", "1001", "-c", "10", "--threads", "2"]), (1001, 10));
    assert_eq!(made(&["-n", "41", "-c", "4", "--close"]), (41, 41));
    assert_eq!(made(&["-n", "40", "-c", "4", "--requests-per-connection", "7"]).0, 40);
    assert_eq!(made(&["-n", "3", "-c", "64"]), (3, 3));
    assert_eq!(made(&["-n", "50", "-c", "4", "--rate", "1000/s"]).0, 50);
    assert!(made(&["-z", "300ms"]).0 > 0, "hey and oha");
    let log = directory.path().join("log");
    std::fs::write(&log, "192.0.2.1 - - [26/Nov/2026:10:00:00 +0000] \"GET /x HTTP/1.1\" 200 1\n").unwrap();
    refuse(&[&url.replace("/x", "/"), "-n", "9", "--trace", log.to_str().unwrap()], 2, &["end a log", "--duration"]);
    server.stop().unwrap();
}

/// What a log says of a request is what is expected of it: its own 404s are hits, and no warning counts them.
#[test]
fn a_logs_own_404_is_no_failure() {
    let answer = |head: &str| {
        let status = ["/gone", "/broken"].iter().position(|path| head.starts_with(&format!("GET {path} ")));
        let status = status.map_or("200 OK", |at| ["404 Not Found", "500 Internal Server Error"][at]);
        format!("HTTP/1.1 {status}\r\nContent-Length: 1\r\n\r\nx")
    };
    let (address, _) = serve(TcpListener::bind("127.0.0.1:0").unwrap(), Arc::new(answer));
    let directory = tempfile::tempdir().unwrap();
    let replay = |requests: &[(&str, u16)]| {
        let line = |(path, status): &(&str, u16)| {
            format!("192.0.2.1 - - [26/Nov/2026:10:00:00 +0000] \"GET {path} HTTP/1.1\" {status} 1\n")
        };
        let log = directory.path().join("log");
        std::fs::write(&log, requests.iter().map(line).collect::<String>()).unwrap();
        load(&[&format!("http://{address}/"), "--trace", log.to_str().unwrap(), "--json"])
    };
    let output = replay(&[("/x", 200), ("/gone", 404), ("/gone", 404)]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let result = json(&output);
    assert_eq!((&result["hits"], &result["statuses"]["404"]), (&3.into(), &2.into()), "{result}");
    assert!(!result["warnings"].to_string().contains("status"), "{result}");
    let output = replay(&[("/x", 200), ("/gone", 404), ("/broken", 200)]);
    assert_eq!(output.status.code(), Some(7), "{}", stderr(&output));
    let warnings = json(&output)["warnings"].to_string();
    assert!(warnings.contains("1 responses had another status") && warnings.contains("1 × 500"), "{warnings}");
}

/// The words of the first column of `tlsdyno list`, newest first.
fn listed(store: &str) -> Vec<String> {
    let output = tlsdyno().arg("list").env("TLSDYNO_STORE", store).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    text.lines().skip(1).filter_map(|line| line.split_whitespace().next().map(str::to_owned)).collect()
}

/// The server that a file starts has an object of each size, and its CPU time is told.
#[test]
fn sizes_of_an_object_are_swept() {
    let place = tempfile::tempdir().unwrap();
    let file = place.path().join("sizes.toml");
    let run = |arguments: &[&str]| {
        let store = place.path().join("loads.sqlite");
        let output = tlsdyno().args(arguments).env("TLSDYNO_STORE", store).stdin(Stdio::null()).output().unwrap();
        let text = |bytes| String::from_utf8(bytes).unwrap();
        (output.status.code().unwrap(), text(output.stdout), text(output.stderr))
    };
    let experiment = "question = \"From which size on?\"\nurl = \"https://localhost/object\"\n[load]\ninsecure = true\n\
                      connections = 2\n[sweep]\nobject_bytes = [1024, 65536]\nclose = [true, false]\n[server]\n\
                      kind = \"builtin\"\n[measure]\ntime_s = 10.0\nseed = 1\n";
    std::fs::write(&file, experiment).unwrap();
    let (code, text, said) = run(&["run", file.to_str().unwrap(), "--no-report", "--json"]);
    assert!([0, 8].contains(&code), "{said}");
    let json: serde_json::Value = serde_json::from_str(&text).unwrap();
    let points = json["points"].as_array().unwrap();
    assert_eq!(points.len(), 4);
    assert!(points.iter().all(|point| point["server_cpu_ns_per_hit"]["value"].as_f64().unwrap() > 0.0), "{text}");
    assert!(json["crossing"].is_object(), "{text}");
    std::fs::write(&file, experiment.replace("[server]\nkind = \"builtin\"\n", "")).unwrap();
    let (code, _, said) = run(&["run", file.to_str().unwrap(), "--no-report"]);
    assert!(code == 2 && said.contains("object of `[server]`"), "{said}");
}

#[test]
fn loads_and_sweeps_are_records_that_can_be_shown_and_compared() {
    let directory = tempfile::tempdir().unwrap();
    let (server, _) = built_in(directory.path());
    let url = format!("https://{}/x", server.address());
    let path = |name: &str| directory.path().join(name).display().to_string();
    let store = path("loads.sqlite");
    let run = |arguments: &[&str]| {
        let output = tlsdyno().args(arguments).env("TLSDYNO_STORE", &store).stdin(Stdio::null()).output().unwrap();
        (output.status.code(), String::from_utf8(output.stdout).unwrap(), String::from_utf8(output.stderr).unwrap())
    };
    let short = ["load", &url, "-k", "--connections", "4", "--duration", "1s", "--progress", "none"];
    let (code, text, said) = run(&short);
    assert!(code == Some(0) && text.contains("--name NAME keeps one"), "{text}{said}");
    assert_eq!(listed(&store), [""; 0], "a run of a second floods no list");
    let named = |name| [&short[..], &["--name", name]].concat();
    let (code, text, said) = run(&[&named("kept")[..], &["-H", "X-Password: secret"]].concat());
    assert!(code == Some(0) && text.contains("shows it again"), "{text}{said}");
    assert_eq!(run(&[&named("closing")[..], &["--close"]].concat()).0, Some(0));
    assert!(run(&["list"]).1.contains("closing: What does"));
    let sweep = path("sweep.toml");
    let experiment = format!(
        "question = \"What does closing cost?\"\nurl = \"{url}\"\n[load]\ninsecure = true\nconnections = 4\n\
         [sweep]\nclose = [false, true]\n[measure]\ntime_s = 11.0\nseed = 1\n"
    );
    std::fs::write(&sweep, experiment).unwrap();
    let (code, text, said) = run(&["run", &sweep, "--no-report", "--json"]);
    // 8: on a busy machine there may be too few rounds for a verdict.
    assert!(matches!(code, Some(0 | 8)), "{text}{said}");
    let result: Value = serde_json::from_str(&text).unwrap();
    let points = result["points"].as_array().unwrap();
    assert_eq!((points.len(), &points[1]["name"]), (2, &"close".into()), "{result}");
    assert!(points.iter().all(|point| is_positive_or_null(&point["hits_per_second"]["value"])), "{result}");
    assert!(result["rounds"].as_u64().unwrap() >= 1 && result["blocks"][0]["phases"].is_null(), "{result}");

    let ids = listed(&store);
    let [swept, close, kept] = &ids[..] else { panic!("{ids:?}") };
    let (code, text, _) = run(&["report", kept, "-o", &path("load.html")]);
    assert!(code == Some(0) && text.contains("Throughput and latency") && text.contains("whole response"), "{text}");
    assert!(std::fs::read_to_string(path("load.html")).unwrap().contains("hits/s"));
    let (_, text, _) = run(&["report", kept, "--json"]);
    assert!(text.contains("X-Password: …") && !text.contains("secret"), "{text}");
    assert!(matches!(run(&["compare", kept, close]).0, Some(0 | 10)));
    assert_eq!(run(&["compare", kept, "nothing"]).0, Some(3));
    assert_eq!(run(&["report", swept, "--csv", "-o", &path("swept.html")]).0, Some(0));
    server.stop().unwrap();
}

#[test]
fn a_rate_sweep_ends_where_the_server_is_saturated() {
    let directory = tempfile::tempdir().unwrap();
    let (server, _) = built_in(directory.path());
    let url = format!("https://{}/x", server.address());
    let flags =
        ["-k", "--close", "--connections", "4", "--duration", "200ms", "--sweep", "20..1000000", "--factor", "30"];
    let output = load(&[&[url.as_str(), "--json"], &flags[..]].concat());
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let sweep = json(&output);
    let points = sweep["points"].as_array().unwrap();
    assert!((1..=4).contains(&points.len()), "20, 600, 18,000 and 540,000 /s: {sweep}");
    let (last, rest) = points.split_last().unwrap();
    assert_eq!(last["saturated"], true);
    assert!(rest.iter().all(|point| point["saturated"] == false));
    assert!(last["unserved"].as_u64().unwrap() > 0);
    server.stop().unwrap();
}

/// The last, or only, rate has nothing behind it that would show by its absence that the sweep was stopped.
#[test]
fn a_sweep_that_is_stopped_at_its_last_step_says_so_by_its_exit_code() {
    let directory = tempfile::tempdir().unwrap();
    let (server, _) = built_in(directory.path());
    let url = format!("https://{}/x", server.address());
    let mut command = tlsdyno();
    command.args(["load", &url, "-k", "--close", "--sweep", "20..20", "--duration", "10m", "--connections", "2"]);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = Running(command.spawn().unwrap());
    let mut printed = BufReader::new(child.0.stdout.take().unwrap());
    let mut text = String::new();
    while !text.ends_with("p99\n") {
        assert_ne!(printed.read_line(&mut text).unwrap(), 0, "the head of the table: {text}");
    }
    kill_process(Pid::from_child(&child.0), Signal::INT).unwrap();
    printed.read_to_string(&mut text).unwrap();
    assert_eq!(child.0.wait().unwrap().code(), Some(130), "{text}");
    assert_eq!(text.lines().filter(|line| line.contains(" /s")).count(), 1, "what was measured: {text}");
    server.stop().unwrap();
}
