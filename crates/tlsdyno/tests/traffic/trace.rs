//! Workloads from the outside: the command line, and the real log replayed against a real server.

use std::collections::HashSet;
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use tlsdyno::model::ServerName;
use tlsdyno::model::workload::{ReplaySpec, WorkloadSpec};
use tlsdyno::servers::{self, ServerSpec};
use tlsdyno::workloads::{self, ServedWorkload};
use tlsdyno_engine::load::Object;

fn semicomplete() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/semicomplete-access.log.gz")
}

fn tlsdyno(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_tlsdyno")).args(arguments).output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Largest response asked for here, bytes: leaves out a few percent of the objects and nearly all of the 535 MB.
const LARGEST_BYTES: u64 = 100_000;

/// The site of the real log without its large files.
fn light_site() -> ServedWorkload {
    let spec = WorkloadSpec::Trace { path: semicomplete(), exclude: Vec::new(), replay: ReplaySpec::default() };
    let mut site = workloads::make(&spec).unwrap();
    site.files.retain(|file| file.bytes <= LARGEST_BYTES);
    site
}

/// Asks for one object over a connection that stays open; status and length of the body.
fn ask(stream: &mut BufReader<TcpStream>, object: &Object) -> (u16, u64) {
    let length = match object.method.as_str() {
        "POST" => format!("Content-Length: {}\r\n", object.body_bytes),
        _ => String::new(),
    };
    let request =
        format!("{} {} HTTP/1.1\r\nHost: localhost\r\n{}{length}\r\n", object.method, object.path, object.headers);
    stream.get_mut().write_all(request.as_bytes()).unwrap();
    let mut status_line = String::new();
    stream.read_line(&mut status_line).unwrap();
    let status: u16 = status_line[9..12].parse().unwrap();
    let mut length = 0;
    loop {
        let mut line = String::new();
        stream.read_line(&mut line).unwrap();
        if line == "\r\n" {
            break;
        }
        if let Some(value) = line.to_ascii_lowercase().strip_prefix("content-length:") {
            length = value.trim().parse().unwrap();
        }
    }
    let body = if object.method == "HEAD" || status == 304 { 0 } else { length };
    std::io::copy(&mut stream.by_ref().take(body), &mut std::io::sink()).unwrap();
    (status, body)
}

/// A named pipe that nobody writes to, and a device that never ends, wherever a file is named: by a flag, by the user's
/// file, by what that file extends.
#[test]
fn what_is_no_file_is_refused_at_once() {
    let place = tempfile::tempdir().unwrap();
    let at = |name: &str| place.path().join(name).display().to_string();
    let (pipe, zero) = (at("pipe.toml"), at("zero.toml"));
    assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    std::os::unix::fs::symlink("/dev/zero", &zero).unwrap();
    let url = "https://127.0.0.1:1/";
    let files = [&pipe, &zero].map(|odd| {
        let (mine, har) = (format!("{odd}.mine.toml"), format!("{odd}.har"));
        fs::write(&mine, format!("question = \"q\"\nextends = \"{odd}\"\n")).unwrap();
        std::os::unix::fs::symlink(odd, &har).unwrap();
        (odd, mine, har)
    });
    std::thread::scope(|scope| {
        for (odd, mine, har) in &files {
            let commands: [(Vec<&str>, i32); 9] = [
                (vec!["run", odd], 3),
                (vec!["trace", "show", odd], 3),
                (vec!["trace", "show", har], 3),
                (vec!["load", url, "--trace", odd], 3),
                (vec!["load", url, "--ca-file", odd], 2),
                (vec!["load", url, "--method", "POST", "--body-file", odd], 2),
                (vec!["ablate", "--server-command", "x {port}", "--paths", odd], 3),
                (vec!["dispatch", "--config", odd], 3),
                (vec!["compare", odd, odd], 3),
            ];
            for (arguments, code) in commands {
                scope.spawn(move || {
                    let output = within_30_s(&arguments);
                    let said = text(&output.stderr);
                    assert_eq!(output.status.code(), Some(code), "{arguments:?}: {said}");
                    assert!(
                        ["a device", "nobody writes", "no regular file"].iter().any(|word| said.contains(word)),
                        "{said}"
                    );
                });
            }
            scope.spawn(move || {
                let said = text(&within_30_s(&["run", mine]).stderr);
                assert!(said.contains("line 2") && said.contains("no regular file"), "{said}");
            });
        }
    });
}

/// What the program ends with; it must not wait.
fn within_30_s(arguments: &[&str]) -> Output {
    let limited = ["30", env!("CARGO_BIN_EXE_tlsdyno")];
    // Killed: whoever waits in the kernel does not see a milder signal.
    Command::new("timeout").args(["-s", "KILL"]).args(limited).args(arguments).output().unwrap()
}

/// A pipe with a writer is a log too, and what a foreign text says reaches the terminal short and harmless.
#[test]
fn a_log_from_a_pipe_is_read_and_foreign_texts_are_harmless() {
    let place = tempfile::tempdir().unwrap();
    let line = |number: usize| {
        let (client, time) = (number % 5, format!("[04/Oct/2022:04:37:{number:02} +0000]"));
        format!("web-1  | 198.51.100.{client}:4{number:03} - - {time} \"GET / HTTP/1.1\" 200 5\n")
    };
    let log: String = (0..50).map(line).collect();
    let path = place.path().join("access.log");
    fs::write(&path, log).unwrap();
    let shell = format!("cat {} | {} trace show /dev/stdin", path.display(), env!("CARGO_BIN_EXE_tlsdyno"));
    let said = text(&Command::new("sh").args(["-c", &shell]).output().unwrap().stdout);
    assert!(said.contains("90.0 % of the hits reuse one") && said.contains("\"web-1  | \""), "{said}");
    assert!(said.contains("10.0 hits for each full handshake"), "{said}");

    let odd = place.path().join("odd.toml");
    fs::write(&odd, format!("question = \"\u{202e}\"\nx{} = 1\n", "y".repeat(200_000))).unwrap();
    let error = text(&tlsdyno(&["run", odd.to_str().unwrap()]).stderr);
    assert!(error.contains("line 2: unknown field `xyyy") && error.len() < 5_000, "{} bytes", error.len());
    let name = place.path().join("\u{202e}gol.access");
    fs::write(&name, "1 - - [04/Oct/2022:04:37:00 +0000] \"GET / HTTP/1.1\" 200 5\n").unwrap();
    let refused = tlsdyno(&["trace", "show", name.to_str().unwrap()]);
    let error = text(&refused.stderr);
    assert_eq!(refused.status.code(), Some(3), "{error}");
    assert!(error.contains("\\u{202e}gol.access") && error.contains("line 1: 1 - - ["), "{error}");
}

/// `tlsdyno … 2>&1 | head -1`: whoever has stopped reading makes no panic (exit code 101) of any answer.
#[test]
fn a_reader_that_has_gone_is_no_panic() {
    let ended = |arguments: &[&str]| {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let mut command = Command::new(env!("CARGO_BIN_EXE_tlsdyno"));
        command.args(arguments).stdout(writer.try_clone().unwrap()).stderr(writer);
        command.status().unwrap().code()
    };
    assert_eq!(ended(&["trace", "show", "/nowhere/access.log"]), Some(3), "the error still has its code");
    assert_eq!(ended(&["run", "--list"]), Some(0));
}

/// Whatever stands in a real log (queries, folders, conditional and partial requests, errors), a real server answers it
/// as the workload expects.
#[test]
fn nginx_answers_every_object_of_the_real_log_as_expected() {
    ask_for_every_object(ServerName::Nginx);
}

#[test]
fn the_built_in_server_answers_every_object_of_the_real_log_as_expected() {
    ask_for_every_object(ServerName::Builtin);
}

fn ask_for_every_object(kind: ServerName) {
    servers::launch::set_own_executable(Path::new(env!("CARGO_BIN_EXE_tlsdyno")));
    let place = tempfile::tempdir().unwrap();
    // The server's workers run as another user.
    fs::set_permissions(place.path(), fs::Permissions::from_mode(0o711)).unwrap();
    let site = light_site();
    let docroot = place.path().join("docroot");
    workloads::write_docroot(&site, &docroot).unwrap();
    let paths: HashSet<&str> = site.files.iter().map(|file| file.path.as_str()).collect();
    let server = servers::start(&ServerSpec::new(kind, docroot), place.path()).unwrap();
    let mut stream = BufReader::new(TcpStream::connect(server.address()).unwrap());
    let mut asked = 0;
    for object in &site.workload.objects {
        let path = object.path.split('?').next().unwrap();
        if object.expect.status != Some(404) && !paths.contains(path) {
            continue;
        }
        let (status, body) = ask(&mut stream, object);
        assert_eq!(Some(status), object.expect.status, "{object:?}");
        assert!(object.expect.body_bytes.is_none_or(|expected| expected == body), "{body} bytes for {object:?}");
        asked += 1;
    }
    assert!(asked > 1_500, "only {asked} objects were asked for");
    server.stop().unwrap();
}

#[test]
fn show_prints_text_for_people_and_json_for_programs() {
    let log = semicomplete();
    let shown = tlsdyno(&["trace", "show", log.to_str().unwrap()]);
    assert!(shown.status.success());
    let shown = text(&shown.stdout);
    for line in ["hits          10,000", "users         1,753", "malformed     0 lines", "404 213"] {
        assert!(shown.contains(line), "{line:?} is not in\n{shown}");
    }
    let json = tlsdyno(&["trace", "show", "--json", "department", "--scale", "0.1"]);
    let json: serde_json::Value = serde_json::from_slice(&json.stdout).unwrap();
    assert_eq!(json["hits"], 10_000);
    assert_eq!(json["users"], 1_100);
    assert!(json["log"].is_null());
    let replayed = tlsdyno(&["trace", "show", "--replay", log.to_str().unwrap()]);
    for line in ["pages         10,000", "replayed as", "objects       1,721"] {
        assert!(text(&replayed.stdout).contains(line), "{line:?} is not in\n{}", text(&replayed.stdout));
    }
}

#[test]
fn show_tells_the_reuse_of_a_log_in_a_table_and_a_page_that_works_offline() {
    let place = tempfile::tempdir().unwrap();
    let page = place.path().join("reuse.html");
    let log = semicomplete();
    let shown = tlsdyno(&["trace", "show", log.to_str().unwrap(), "--html", page.to_str().unwrap()]);
    assert!(shown.status.success(), "{}", text(&shown.stderr));
    let shown = text(&shown.stdout);
    assert!(shown.contains("percent reuse (1 - full handshakes / hits), if a session"), "{shown}");
    let json = tlsdyno(&["trace", "show", log.to_str().unwrap(), "--json"]);
    let json: serde_json::Value = serde_json::from_slice(&json.stdout).unwrap();
    let row = json["reuse"]["rows"].as_array().unwrap().iter().find(|row| row["lifetime_s"] == 300).unwrap();
    let percent = format!("{:.1} %", row["percent_by_limit"][4].as_f64().unwrap());
    assert!(shown.contains(&percent), "{percent} is not in\n{shown}");
    let html = fs::read_to_string(&page).unwrap();
    assert!(html.contains("vega-lite/v6.json") && html.contains("default-src 'none'") && html.contains("vegaEmbed"));
    assert!(!html.contains("src=\"http") && !html.contains("<link rel=\"stylesheet"));
    let misused = tlsdyno(&["trace", "show", "cdnow", "--html", page.to_str().unwrap()]);
    assert_eq!(misused.status.code(), Some(2), "{}", text(&misused.stderr));
}

#[test]
fn import_writes_files_of_the_right_sizes_and_spares_what_is_there() {
    let place = tempfile::tempdir().unwrap();
    let output = place.path().join("site");
    let output = output.to_str().unwrap();
    let imported = tlsdyno(&["trace", "import", "ecommerce", "--users", "10", "-o", output]);
    assert!(imported.status.success(), "{}", text(&imported.stderr));
    let page = place.path().join("site/docroot/new/register.html");
    assert_eq!(fs::metadata(page).unwrap().len(), 12_288);
    let summary = fs::read(place.path().join("site/summary.json")).unwrap();
    let summary: serde_json::Value = serde_json::from_slice(&summary).unwrap();
    assert_eq!(summary["corpus_bytes"], 279 * 1024);
    let again = tlsdyno(&["trace", "import", "ecommerce", "-o", output]);
    assert_eq!(again.status.code(), Some(2));
    assert!(text(&again.stderr).contains("is not empty"));
}

#[test]
fn a_log_that_synth_wrote_can_be_shown() {
    let place = tempfile::tempdir().unwrap();
    let log = place.path().join("access.log");
    let log = log.to_str().unwrap();
    assert!(tlsdyno(&["trace", "synth", "ecommerce", "--users", "30", "-o", log]).status.success());
    let json = tlsdyno(&["trace", "show", "--json", "--pages", log]);
    let json: serde_json::Value = serde_json::from_slice(&json.stdout).unwrap();
    assert_eq!((&json["hits"], &json["users"], &json["pages"]), (&360.into(), &30.into(), &90.into()));
}

#[test]
fn what_is_wrong_with_the_input_is_named_and_has_its_exit_code() {
    let place = tempfile::tempdir().unwrap();
    let garbage = place.path().join("garbage");
    fs::write(&garbage, [b"\x00\xff\x1b[31m\n".as_slice(), &[0x80; 5_000]].concat()).unwrap();
    let empty = place.path().join("empty");
    fs::write(&empty, "").unwrap();
    let cases: [(&[&str], i32, &str); 7] = [
        (&["/does/not/exist"], 3, "failed to open the log /does/not/exist"),
        (&[place.path().to_str().unwrap()], 3, "is a directory"),
        (&[empty.to_str().unwrap()], 3, "is empty"),
        (&[garbage.to_str().unwrap()], 3, "no usable line"),
        (&["ecommerce", "--pages"], 2, "--pages means nothing for ecommerce"),
        (&["department", "--scale", "0"], 2, "is not a factor from 0.0001"),
        (&[garbage.to_str().unwrap(), "--exclude", "10.0.0.0/40"], 2, "longer than its address"),
    ];
    for (arguments, code, message) in cases {
        let output = tlsdyno(&[&["trace", "show"], arguments].concat());
        let error = text(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{arguments:?}: {error}");
        assert!(error.contains(message), "{arguments:?}: {error}");
        assert!(!error.contains('\x1b') && output.stdout.is_empty());
    }
}

/// What a browser would save of two pages of one site, with an object of another.
const RECORDING: &str = r#"{"log": {"version": "1.2", "entries": [
    {"pageref": "1", "startedDateTime": "2026-11-20T12:00:00.000Z", "time": 20,
     "request": {"method": "GET", "url": "https://shop.example/"}, "response": {"status": 200, "bodySize": 5000}},
    {"pageref": "1", "startedDateTime": "2026-11-20T12:00:00.020Z", "time": 20,
     "request": {"method": "GET", "url": "https://shop.example/a.png"}, "response": {"status": 200, "bodySize": 300}},
    {"pageref": "1", "startedDateTime": "2026-11-20T12:00:00.021Z", "time": 20,
     "request": {"method": "GET", "url": "https://shop.example/b.png?v=2"}, "response": {"status": 304, "bodySize": 0}},
    {"pageref": "1", "startedDateTime": "2026-11-20T12:00:00.021Z", "time": 20,
     "request": {"method": "GET", "url": "https://cdn.example/c.js"}, "response": {"status": 200, "bodySize": 9}},
    {"pageref": "2", "startedDateTime": "2026-11-20T12:00:09.000Z", "time": 20,
     "request": {"method": "GET", "url": "https://shop.example/gone"}, "response": {"status": 404, "bodySize": 9}}
]}}"#;

/// Imported, every workload is answered by a real server as it expects: by `load` from the outside.
#[test]
fn load_takes_every_kind_of_workload() {
    servers::launch::set_own_executable(Path::new(env!("CARGO_BIN_EXE_tlsdyno")));
    let place = tempfile::tempdir().unwrap();
    fs::set_permissions(place.path(), fs::Permissions::from_mode(0o711)).unwrap();
    let har = place.path().join("shop.har");
    fs::write(&har, RECORDING).unwrap();
    let har = har.to_str().unwrap();
    let log = place.path().join("department.log");
    let log = log.to_str().unwrap();
    assert!(tlsdyno(&["trace", "synth", "department", "--scale", "0.01", "-o", log]).status.success());
    // What is imported, the flags of load that request it, and the hits of all its users once.
    let cases: [(&[&str], &[&str], u64); 5] = [
        (&["specweb99", "--directories", "2"], &["--workload", "specweb99", "--directories", "2"], 100),
        (&["specweb96", "--users", "3"], &["--workload", "specweb96", "--users", "3"], 300),
        (&["cdnow", "--users", "4"], &["--workload", "cdnow", "--users", "4"], 100),
        (&[har, "--users", "5"], &["--har", har, "--imported", "--users", "5"], 20),
        (&[log], &["--trace", log, "--imported"], 1_000),
    ];
    for (number, (import, load, hits)) in cases.into_iter().enumerate() {
        let site = place.path().join(number.to_string());
        let imported = tlsdyno(&[&["trace", "import", "-o", site.to_str().unwrap()], import].concat());
        assert!(imported.status.success(), "{}", text(&imported.stderr));
        let server = servers::start(&ServerSpec::new(ServerName::Builtin, site.join("docroot")), &site).unwrap();
        let url = format!("http://{}/", server.address());
        let more: &[&str] = if load.contains(&"--trace") { &[] } else { &["--duration", "100ms"] };
        let output = tlsdyno(&[&["load", &url, "--json", "-c", "8"], load, more].concat());
        assert_eq!(output.status.code(), Some(0), "{load:?}: {}{}", text(&output.stdout), text(&output.stderr));
        let json: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        let made = json["hits"].as_u64().unwrap();
        if more.is_empty() {
            assert_eq!(made, hits, "a log is replayed once");
        } else {
            assert!(made > 0, "{load:?}");
        }
        server.stop().unwrap();
    }
}

/// A search in the least time: whatever a busy machine lets through, every step of it is told.
#[test]
fn the_most_connections_that_keep_their_rate_are_looked_for() {
    servers::launch::set_own_executable(Path::new(env!("CARGO_BIN_EXE_tlsdyno")));
    let place = tempfile::tempdir().unwrap();
    let workload = ["specweb99", "--directories", "1"];
    let imported = tlsdyno(&[&["trace", "import", "-o", place.path().to_str().unwrap()], &workload[..]].concat());
    assert!(imported.status.success(), "{}", text(&imported.stderr));
    let server = servers::start(&ServerSpec::new(ServerName::Builtin, place.path().join("docroot")), place.path());
    let server = server.unwrap();
    let url = format!("http://{}/", server.address());
    // A large file takes a second on such a line, and most a hundredth.
    let rate = ["--receive-rate", "8mbit", "--duration", "500ms"];
    let search = ["--conforming", "3..4", "--rounds", "2", "--json", "--workload"];
    let flags = [&rate[..], &search].concat();
    let output = tlsdyno(&[&["load", &url], &flags[..], &workload].concat());
    assert!([0, 8].contains(&output.status.code().unwrap()), "{}", text(&output.stderr));
    let json: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert!(json["note"].as_str().unwrap().contains("no result of SPEC's"));
    let points = json["points"].as_array().unwrap();
    assert_eq!(points[0]["kept"]["clients_count"], 3);
    assert!(points.iter().all(|point| point["hits"].as_u64().unwrap() > 0 && point["conforms"].is_boolean()));
    if points.iter().all(|point| point["conforms"] == true) {
        assert_eq!((points.len(), &json["most_conforming"]["low"]), (2, &serde_json::json!(4.0)));
    }
    // What a server lacks is not taken for its limit.
    let output = tlsdyno(&[&["load", &url, "--directories", "40"], &flags[..], &workload[..1]].concat());
    let said = text(&output.stderr);
    assert!(!output.status.success() && said.contains("trace import"), "{said}");
    server.stop().unwrap();
}

#[test]
fn workload_flags_that_contradict_each_other_are_refused() {
    let cases: [(&[&str], &str); 7] = [
        (&["http://127.0.0.1:1/", "--workload", "cdnow", "--directories", "3"], "another workload than specweb99"),
        (&["http://127.0.0.1:1/", "--receive-rate", "4kbit", "--keep", "5kbit"], "cannot be above it"),
        (&["http://127.0.0.1:1/x", "--workload", "cdnow"], "without a path"),
        (&["http://127.0.0.1:1/", "--workload", "cdnow", "--imported"], "--imported goes with --trace or --har"),
        (&["http://127.0.0.1:1/", "--workload", "cdnow", "--har", "x"], "cannot be used with"),
        (&["http://127.0.0.1:1/", "--workload", "cdnow", "--body", "1"], "cannot be used with"),
        (&["http://127.0.0.1:1/", "--pages"], "--pages means nothing for a load without --trace"),
    ];
    for (arguments, message) in cases {
        let output = tlsdyno(&[&["load"], arguments].concat());
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
        assert!(text(&output.stderr).contains(message), "{arguments:?}: {}", text(&output.stderr));
    }
    let missing = tlsdyno(&["load", "http://127.0.0.1:1/", "--har", "/does/not/exist"]);
    assert_eq!(missing.status.code(), Some(3), "{}", text(&missing.stderr));
}
