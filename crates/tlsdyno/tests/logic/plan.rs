//! `tlsdyno plan` from a record with known costs.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::Value;
use tlsdyno::random::SplitMix64;
use tlsdyno::store::{BackendUse, Block, ClusterBlock, Configuration, Record};
use tlsdyno_cluster::cluster::file::ClusterExperiment;

/// CPU of a connection and its request with a full handshake, with a resumed one, and in the dispatcher, nanoseconds.
const COSTS_NS: [f64; 3] = [1.0e6, 4.0e5, 5.0e4];
const ROUNDS: u32 = 8;

/// Three servers behind two policies at four levels of reuse.
fn record() -> Record {
    let mut experiment = ClusterExperiment::default();
    experiment.traffic.reuse_percent = vec![0.0, 50.0, 80.0, 100.0];
    let cells = experiment.cells();
    let mut random = SplitMix64::new(3);
    let mut blocks = Vec::new();
    for round in 0..ROUNDS {
        for (configuration, cell) in cells.iter().enumerate() {
            let resumed = (10.0 * cell.reuse_percent) as u64;
            let [full_ns, resumed_ns, hop_ns] = COSTS_NS;
            let cpu_ns = full_ns * (1000 - resumed) as f64 + resumed_ns * resumed as f64;
            let server_cpu_ns = (cpu_ns * (1.0 + 0.01 * random.normal())) as u64;
            let backend = BackendUse { cpu_ns: server_cpu_ns / 3, connections: 333, locality: None };
            blocks.push(Block {
                round,
                configuration,
                elapsed_ns: 1_000_000_000,
                hits: 1000,
                body_bytes: 7_000_000,
                connections: 1000,
                server_cpu_ns,
                handshakes_full: 1000 - resumed,
                resumed_accepted: resumed,
                valid: true,
                cluster: Some(ClusterBlock {
                    dispatcher_cpu_ns: (1000.0 * hop_ns) as u64,
                    backends: vec![backend; 3],
                    ..ClusterBlock::default()
                }),
                ..Block::default()
            });
        }
    }
    Record {
        id: "3fd1c07a92e4".to_owned(),
        finished: true,
        configurations: cells.iter().map(|cell| Configuration::setting(cell.name(&cells), true, Vec::new())).collect(),
        blocks,
        kind_part: experiment.into(),
        ..Record::begun_now("Which policy?", 1)
    }
}

fn file_of(record: &Record, place: &Path) -> PathBuf {
    let file = place.join("record.json");
    std::fs::write(&file, serde_json::to_vec(record).unwrap()).unwrap();
    file
}

fn plan(file: &Path, arguments: &str) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tlsdyno"));
    command.current_dir(file.parent().unwrap()).args(["plan", "--from"]).arg(file).args(arguments.split(' '));
    command.output().unwrap()
}

fn said(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

#[test]
fn sizes_follow_from_known_costs_in_every_form() {
    let place = tempfile::tempdir().unwrap();
    let file = file_of(&record(), place.path());
    // 0.3 full and 0.7 resumed: 580 µs a hit, 1.16 CPUs at 2000 a second.
    let asked = "--rate 2000 --reuse 70% --servers 1,2,4 --price 0.04";
    let output = plan(&file, asked);
    // Lines are broken where the terminal ends.
    let text = said(&output).split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(output.status.success() && text.contains("2 servers of 1 CPU carry 2,000 hits/s with 42 %"), "{text}");
    assert!(text.contains("too few: 1 server") && text.contains("cluster 3fd1c07a92e4"), "{text}");
    assert!(text.contains("is extrapolation"), "a thousand hits/s were measured: {text}");
    let page = std::fs::read_to_string(place.path().join("report.html")).unwrap();
    assert!(page.contains("machines-by-reuse") && page.contains("p99-by-load"));

    let markdown = said(&plan(&file, &format!("{asked} --markdown --no-report")));
    assert!(markdown.contains("| 2 servers | 58 | \\[5"), "{markdown}");
    let output = plan(&file, &format!("{asked} --no-report --what-if p-512"));
    assert_eq!(output.status.code(), Some(2), "no change has that name: {}", said(&output));
    let output = plan(&file, &format!("{asked} --json --no-report --what-if p-256 --storm restart"));
    let json: Value = serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{}", said(&output)));
    let used = &json["machines"][1]["used"];
    assert!(used["low"].as_f64().unwrap() < 0.58 && 0.58 < used["high"].as_f64().unwrap(), "{used}");
    assert!((json["machines"][1]["price_per_h"].as_f64().unwrap() - 0.08).abs() < 1e-9);
    assert!(json["what_if"][0]["missing"].as_str().unwrap().contains("tlsdyno cost"), "{json}");
    let [before, most] = [0, 1].map(|at| json["storms"][0]["told"]["full_per_s"][at].as_f64().unwrap());
    assert!((before / 600.0 - 1.0).abs() < 0.1 && most > 1900.0, "{before} {most}");
}

/// Of a connection 600 of 1000 µs are saved where it resumes, in the order of a real log.
#[test]
fn lifetimes_of_sessions_stand_beside_what_they_save_and_leave_open() {
    let place = tempfile::tempdir().unwrap();
    let file = file_of(&record(), place.path());
    let log = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/semicomplete-access.log.gz");
    let asked = format!("--trace {} --requests-per-connection 1 --bytes 7000 --no-report", log.display());
    let output = plan(&file, &format!("{asked} --json"));
    let json: Value = serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{}", said(&output)));
    let rows = json["lifetimes"].as_array().unwrap();
    for row in rows {
        let saved = &row["saved"][0]["cpu_saved"];
        let [value, low, high] = ["value", "low", "high"].map(|part| saved[part].as_f64().unwrap());
        let truth = 0.006 * row["lifetime"]["resumed_percent"].as_f64().unwrap();
        assert!((value - truth).abs() < 0.01 && low <= value && value <= high, "{row}");
    }
    let percents: Vec<f64> = rows.iter().map(|row| row["lifetime"]["renewed_percent"].as_f64().unwrap()).collect();
    assert!(percents.is_sorted() && percents[0] < percents[7], "{percents:?}");
    let opened = |more: &str| {
        let text = said(&plan(&file, &format!("{asked} --markdown{more}")));
        let row = text.lines().find(|line| line.starts_with("| 300 s ")).unwrap_or_else(|| panic!("{text}"));
        row.trim_end_matches([' ', '|']).rsplit('|').next().unwrap().trim().to_owned()
    };
    assert_eq!([opened(""), opened(" --rotate-keys 1h")], ["10 min", "65 min"]);
}

#[test]
fn the_number_of_servers_is_found_with_its_price() {
    let place = tempfile::tempdir().unwrap();
    let file = file_of(&record(), place.path());
    // 580 µs a hit: 116 CPUs, less where rounds and residuals leave it open.
    let output = plan(&file, "--rate 200000 --reuse 70 --price 0.04 --json --no-report");
    let json: Value = serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{}", said(&output)));
    let all = json["machines"].as_array().unwrap();
    let servers = |of: &Value| of["machines"]["servers"].as_u64().unwrap();
    let carries = |of: &&Value| of["used"]["high"].as_f64().unwrap() < 1.0;
    let fewest = all.iter().find(carries).unwrap();
    assert!((116..=122).contains(&servers(fewest)), "{fewest}");
    let below = all.iter().find(|of| servers(of) + 1 == servers(fewest)).unwrap_or(&all[0]);
    assert!(servers(below) < servers(fewest) && !carries(&below), "{below}");
    let month = (0.04 * 730.0 * servers(fewest) as f64).to_string();
    let text = said(&plan(&file, "--rate 200000 --reuse 70 --price 0.04 --no-report"));
    assert!(text.contains("price/month") && text.contains(&month[..4]) && text.contains("new visitor ms"), "{text}");
    // A log's pages are larger than the one that was measured.
    let larger = plan(&file, "--rate 100 --bytes 100000 --no-report");
    assert!(larger.status.code() == Some(3) && said(&larger).contains("--page"), "{}", said(&larger));
}

#[test]
fn what_no_record_tells_is_named_with_its_command() {
    let place = tempfile::tempdir().unwrap();
    let file = file_of(&record(), place.path());
    let output = plan(&file, "--rate 100 --proxies 2 --no-report");
    assert_eq!(output.status.code(), Some(3), "{}", said(&output));
    assert!(said(&output).contains("tlsdyno array"), "{}", said(&output));
    // Each connection had one request: what the next ones cost is not in the record.
    let output = plan(&file, "--rate 100 --requests-per-connection 5 --no-report");
    assert!(output.status.code() == Some(3) && said(&output).contains("tlsdyno cost"), "{}", said(&output));
    let out_of_range = ["--rate nan", "--rate 1e308", "--rate 10 --price inf", "--rate 10 --bytes nan"];
    let too_much = ["--rate 1e9 --servers 1000000 --storm restart", "--rate 10 --storm restart --users 1000000000"];
    let none = ["--rate 0", "--rate 10 --servers 0", "--rate 10 --reuse 170", "--reuse 10"];
    for wrong in none.into_iter().chain(out_of_range).chain(too_much) {
        assert_eq!(plan(&file, &format!("{wrong} --no-report")).status.code(), Some(2), "{wrong}");
    }
    let output = plan(&place.path().join("gone.json"), "--rate 10 --no-report");
    assert_eq!(output.status.code(), Some(3), "{}", said(&output));
}
