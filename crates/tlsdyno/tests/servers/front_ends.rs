//! `tlsdyno cluster --front-ends` from end to end: front ends that end TLS before real servers, of which one is chosen
//! for each request.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::place::{self, Place};

/// The blocks of each way, by the name of its policy and how many front ends it has, and their rounds.
type Blocks<'a> = BTreeMap<(String, u64), Vec<&'a Value>>;

fn measured(place: &Place, flags: &str) -> Value {
    let common = "cluster --json --workload specweb96 --cert p-256 --clients 6 --backends 2 --seed 3 --time 6";
    place::measured(&place.run(&format!("{common} {flags}").split_whitespace().collect::<Vec<_>>()))
}

fn blocks(result: &Value) -> Blocks<'_> {
    let mut blocks = Blocks::new();
    for block in result["blocks"].as_array().unwrap() {
        let cell = &result["cells"][block["configuration"].as_u64().unwrap() as usize];
        let policy = cell["policy"].as_str().unwrap().to_owned();
        let ends = cell["front"]["ends"].as_u64().unwrap_or(0);
        blocks.entry((policy, ends)).or_default().push(block);
    }
    blocks
}

fn sum(block: &Value, machines: &str, number: &str) -> u64 {
    let machines = block["cluster"][machines].as_array().unwrap();
    machines.iter().map(|machine| machine.pointer(number).and_then(Value::as_u64).unwrap()).sum()
}

/// Everybody's counts agree: the dispatcher before the front ends spreads connections over both, and a server was
/// chosen for each request, by the count of the dispatcher behind them and by the servers' own logs.
fn check_counts(block: &Value) {
    assert_eq!(block["valid"], true, "{block}");
    let (hits, connections) = (block["hits"].as_u64().unwrap(), block["connections"].as_u64().unwrap());
    assert_eq!(sum(block, "front_ends", "/connections"), connections, "{block}");
    for front_end in block["cluster"]["front_ends"].as_array().unwrap() {
        assert!(front_end["connections"].as_u64().unwrap() * 3 > connections, "both work: {block}");
    }
    assert_eq!(sum(block, "backends", "/connections"), hits, "{block}");
    assert_eq!(sum(block, "backends", "/locality/requests"), hits, "{block}");
    let cpu_ns = sum(block, "front_ends", "/cpu_ns") + sum(block, "backends", "/cpu_ns");
    assert_eq!(cpu_ns, block["server_cpu_ns"].as_u64().unwrap(), "{block}");
}

/// By content each object is asked for at one server only, whichever front end a request came by. All blocks of a round
/// have the same requests, so that the servers' sums of different objects must be the same, and fewer than where
/// servers take turns.
fn check_content(blocks: &Blocks) {
    let objects = |policy: &str| -> BTreeMap<u64, u64> {
        let of = &blocks[&(policy.to_owned(), 2)];
        of.iter().map(|block| (block["round"].as_u64().unwrap(), sum(block, "backends", "/locality/objects"))).collect()
    };
    let (hashed, lard, blind) = (objects("uri-hash"), objects("lard"), objects("round-robin"));
    let mut compared = 0;
    for (round, different) in hashed {
        assert_eq!(lard.get(&round), Some(&different), "of round {round}, which is the second of each object's place");
        assert!(blind[&round] as f64 > 1.3 * different as f64, "{blind:?} {different}");
        compared += 1;
    }
    assert!(compared > 0);
}

fn number(cell: &Value, name: &str) -> f64 {
    cell[name]["value"].as_f64().unwrap_or_else(|| panic!("{name} of {cell}"))
}

#[test]
fn haproxy_ends_tls_before_servers_that_are_chosen_by_content() {
    let place = Place::new();
    let flags = "--front-ends 0,2 --policies round-robin,session,uri-hash,lard --reuse 80 --plain-limit";
    let result = measured(&place, flags);
    let blocks = blocks(&result);
    let ways: Vec<(&str, u64)> = blocks.keys().map(|(policy, ends)| (&**policy, *ends)).collect();
    let expected = [("lard", 0), ("lard", 2), ("round-robin", 0), ("round-robin", 2), ("session", 0), ("uri-hash", 2)];
    assert_eq!(ways, expected);
    blocks.iter().filter(|((_, ends), _)| *ends > 0).flat_map(|(_, of)| of).for_each(|block| check_counts(block));
    check_content(&blocks);
    let cells = result["cells"].as_array().unwrap();
    for cell in cells.iter().filter(|cell| cell["plain"] != true) {
        // Each front end has ticket keys of its own, as each server has.
        let (kept, is_kept) = (number(cell, "accepted_percent_of_offered"), cell["policy"] == "session");
        assert!(if is_kept { kept >= 99.0 } else { kept < 80.0 }, "{cell}");
        let behind = !cell["front"].is_null();
        assert_eq!(cell["front_end_cpu_ns_per_hit"]["value"].as_f64().is_some_and(|ns| ns > 0.0), behind, "{cell}");
    }
    let answer = result["answer"].as_str().unwrap();
    assert!(answer.contains("at the front ends") && answer.contains("without front ends"), "{answer}");
    let config = result["manifest"]["server_config"].as_object().unwrap();
    let of = |way: &str| config[&format!("front end 1 of {way} behind 2 front ends, own")].as_str().unwrap();
    assert!(of("uri-hash").contains("balance uri") && of("uri-hash").contains("http-reuse always"));
    assert!(of("lard").contains("http-server-close") && !of("lard").contains("balance"));
    let report = std::fs::read_to_string(place.path().join("report.html")).unwrap();
    assert!(report.contains("Where TLS ends") && report.contains("lard behind 2 front ends"), "{}", report.len());
}

#[test]
fn nginx_does_so_too_and_shared_ticket_keys_keep_sessions() {
    let flags = "--front-ends 2 --front-end nginx --sessions ticket-keys --policies round-robin,uri-hash,lard --reuse \
                 80 --no-report";
    let result = measured(&Place::new(), flags);
    let blocks = blocks(&result);
    blocks.values().flatten().for_each(|block| check_counts(block));
    check_content(&blocks);
    for cell in result["cells"].as_array().unwrap() {
        assert!(number(cell, "accepted_percent_of_offered") >= 99.0, "{cell}");
    }
}

/// A dispatcher by session before front ends keeps what they do not share.
#[test]
fn front_ends_by_session_keep_sessions() {
    let flags = "--front-ends 2 --spread session --policies lard --reuse 80 --no-report --server builtin";
    let result = measured(&Place::new(), flags);
    let cell = &result["cells"][0];
    assert!(number(cell, "accepted_percent_of_offered") >= 99.0, "{cell}");
    assert!(cell.get("locality").is_none(), "the built-in server logs no objects: {cell}");
}

mod database {
    use std::fs;
    use std::io::{BufRead, BufReader, Read, Write};
    use std::net::{SocketAddr, TcpStream};
    use std::process::Stdio;

    use tlsdyno::servers::RunDirectory;
    use tlsdyno::servers::database::{settings_of, start_database};

    use super::*;

    /// Status and body of what a server answers to one request.
    fn get(address: SocketAddr, path: &str, header: &str) -> (u16, Vec<u8>) {
        let mut stream = TcpStream::connect(address).unwrap();
        write!(stream, "GET {path} HTTP/1.1\r\nHost: here\r\nConnection: close\r\n{header}\r\n").unwrap();
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).unwrap();
        let body = answer.windows(4).position(|end| end == b"\r\n\r\n").unwrap() + 4;
        let status = String::from_utf8_lossy(&answer[9..12]).parse().unwrap();
        (status, answer[body..].to_vec())
    }

    /// The body of a page is what the database holds for its path at the time of the request, and what it does not hold
    /// is refused.
    #[test]
    fn a_page_is_a_row_of_the_database() {
        let place = Place::new();
        let run = RunDirectory::create().unwrap();
        let database = start_database(None, run.path()).unwrap();
        let settings = settings_of(&database);
        let page: Vec<u8> = (0..100_000_u32).map(|number| (number % 251) as u8).collect();
        fs::write(place.path().join("docroot/page"), &page).unwrap();
        let mut command = place.tlsdyno(&["serve", "--docroot", "docroot", "--listen-plain", "127.0.0.1:0"]);
        command.args(["--print-address", "--database", &settings]).stdout(Stdio::piped());
        let mut server = command.spawn().unwrap();
        let mut line = String::new();
        BufReader::new(server.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let told: Value = serde_json::from_str(&line).unwrap();
        let address: SocketAddr = told["address"].as_str().unwrap().parse().unwrap();
        assert_eq!(get(address, "/page", ""), (200, page.clone()));
        assert_eq!(get(address, "/page", "Range: bytes=250-260\r\n"), (206, page[250..=260].to_vec()));
        assert_eq!(get(address, "/hello.txt", "").1, b"hello, world\n");
        let ask = |statement: &str| {
            let done = std::process::Command::new("psql").args([&settings, "-c", statement]).output().unwrap();
            assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
        };
        ask("UPDATE tlsdyno_pages SET body = 'HELLO, WORLD!' WHERE path = '/hello.txt'");
        assert_eq!(get(address, "/hello.txt", ""), (200, b"HELLO, WORLD!".to_vec()));
        ask("UPDATE tlsdyno_pages SET body = 'longer than at the start' WHERE path = '/hello.txt'");
        assert_eq!(get(address, "/hello.txt", "").0, 502);
        ask("DELETE FROM tlsdyno_pages");
        assert_eq!((get(address, "/page", "").0, get(address, "/none", "").0), (502, 404));
        server.kill().unwrap();
        server.wait().unwrap();
    }

    /// Pages of a database behind servers that are chosen by content behind front ends: each is asked for, and its CPU
    /// time is that of nobody else.
    #[test]
    fn pages_behind_front_ends_ask_postgresql() {
        let flags = "--front-ends 0,2 --policies session,lard --reuse 80 --no-report --server builtin --database";
        let result = measured(&Place::new(), flags);
        for block in result["blocks"].as_array().unwrap() {
            assert_eq!(block["valid"], true, "{block}");
            // A SELECT costs no less than 10 µs.
            let (behind_ns, hits) = (block["companion_cpu_ns"].as_u64().unwrap(), block["hits"].as_u64().unwrap());
            assert!(behind_ns > 10_000 * hits, "{block}");
        }
        let config = result["manifest"]["server_config"].as_object().unwrap();
        assert!(config["database of all backends"].as_str().unwrap().contains("PostgreSQL"), "{config:?}");
        let refused = Place::new().run(&["cluster", "--database"]);
        let said = String::from_utf8_lossy(&refused.stderr).into_owned();
        assert!(refused.status.code() == Some(2) && said.contains("--server builtin"), "{said}");
    }
}
