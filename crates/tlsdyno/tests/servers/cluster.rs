//! `tlsdyno cluster` from end to end on real servers and dispatchers.

use crate::place;

use std::io::{BufRead, BufReader};
use std::process::Stdio;

use place::Place;
use serde_json::Value;

impl Place {
    /// The printed JSON of a run that succeeds.
    fn json(&self, arguments: &[&str]) -> Value {
        place::measured(&self.run(arguments))
    }
}

/// The cell of a policy whose other coordinates are as given.
fn cell<'a>(result: &'a Value, policy: &str, coordinates: &[(&str, Value)]) -> &'a Value {
    let cells = result["cells"].as_array().unwrap();
    let fits =
        |cell: &&Value| cell["policy"] == policy && coordinates.iter().all(|(name, value)| cell[*name] == *value);
    cells.iter().find(fits).unwrap_or_else(|| panic!("no cell of {policy} with {coordinates:?}"))
}

fn number(cell: &Value, name: &str) -> f64 {
    cell[name]["value"].as_f64().unwrap_or_else(|| panic!("{name} of {cell}"))
}

/// Every block is whole: what clients opened is what backends got, by the dispatcher's count, and everybody used CPU
/// time.
fn check_blocks(result: &Value) {
    check_blocks_of(result, true);
}

fn check_blocks_of(result: &Value, has_dispatcher: bool) {
    let blocks = result["blocks"].as_array().unwrap();
    assert!(!blocks.is_empty());
    for block in blocks {
        assert_eq!(block["valid"], true, "{block}");
        let parts = &block["cluster"];
        let backends = parts["backends"].as_array().unwrap();
        let sum = |name: &str| backends.iter().map(|backend| backend[name].as_u64().unwrap()).sum::<u64>();
        assert_eq!(sum("connections"), block["connections"].as_u64().unwrap());
        assert_eq!(sum("cpu_ns"), block["server_cpu_ns"].as_u64().unwrap());
        assert_eq!(parts["dispatcher_cpu_ns"].as_u64().unwrap() > 0, has_dispatcher, "{block}");
    }
}

/// The dispatchers of Apostolopoulos et al. 2000: learning keeps nearly all sessions, and the source address sends
/// everybody behind one proxy to one server, as they say. That blind dispatching keeps about one session in three is
/// ours: they give no number.
#[test]
fn policies_differ_as_the_paper_says_and_the_proxy_objection_shows() {
    let place = Place::new();
    let flags = "cluster --json --time 3 --seed 3 --clients 12 --reuse 80 --behind-one-address 0,100 --cert p-256 \
                 --policies round-robin,source-address,session";
    let result = place.json(&flags.split(' ').filter(|flag| !flag.is_empty()).collect::<Vec<_>>());
    check_blocks(&result);
    let answer = result["answer"].as_str().unwrap();
    assert!(answer.contains("80 % reuse, 0 % behind one address: ") && answer.contains("with round-robin"), "{answer}");
    for behind in [0.0, 100.0] {
        let traffic = [("behind_one_address_percent", Value::from(behind))];
        let of = |policy| cell(&result, policy, &traffic);
        for policy in ["round-robin", "source-address", "session"] {
            let offered = number(of(policy), "offered_percent");
            assert!((70.0..=81.0).contains(&offered), "{policy} {behind}: {offered} % offered");
        }
        let accepted = |policy| number(of(policy), "accepted_percent_of_offered");
        assert!(accepted("session") >= 99.0, "{behind}: {}", accepted("session"));
        assert!((15.0..=60.0).contains(&accepted("round-robin")), "{behind}: {}", accepted("round-robin"));
        assert!(accepted("source-address") >= 99.0, "{behind}: {}", accepted("source-address"));
        let busiest = |policy| number(of(policy), "busiest_percent");
        assert!(busiest("round-robin") < 35.0, "{behind}: {}", busiest("round-robin"));
        assert!(busiest("session") < 60.0, "{behind}: {}", busiest("session"));
        assert_eq!(busiest("source-address") > 99.9, behind == 100.0, "{behind}: {}", busiest("source-address"));
        let full = |policy| {
            of(policy)["handshakes_full"].as_u64().unwrap() as f64 / of(policy)["connections"].as_f64().unwrap()
        };
        assert!(full("session") < 0.32 && full("round-robin") > 0.45, "{} {}", full("session"), full("round-robin"));
        assert!(of("session")["against"]["by_cpu"]["times"].as_f64().unwrap() > 0.0);
        assert!(of("round-robin")["against"].is_null(), "the baseline is beside itself");
    }
    let report = std::fs::read_to_string(place.path().join("report.html")).unwrap();
    for part in ["cluster-balance", "session, 80 % reuse, 100 % behind one address", "</html>"] {
        assert!(report.contains(part), "{part}");
    }
    let csv = place.run(&["report", "last", "--csv"]);
    let csv = String::from_utf8(csv.stdout).unwrap();
    let columns: Vec<usize> = csv.lines().map(|line| line.replace(", ", ";").split(',').count()).collect();
    assert!(csv.lines().next().unwrap().ends_with("backend_3_cpu_ns,backend_3_connections"), "{csv}");
    assert!(columns.len() > 5 && columns.iter().all(|count| *count == columns[0]), "{columns:?}");
    let shown = String::from_utf8(place.run(&["report", "last", "-o", "again.html"]).stdout).unwrap();
    assert!(shown.contains("80 % reuse, 100 % behind one address") && shown.contains("source-address"), "{shown}");
}

/// Backends that share a CPU have a quota each, if that can be: nobody asked for it. Who asks for one is told that
/// there is none.
#[test]
fn without_control_groups_backends_share_their_cpu_without_a_quota() {
    let place = Place::new();
    // On three CPUs at most the three backends share one.
    let allowed = tlsdyno::run::cpus::allowed();
    let few = allowed.iter().take(3).map(ToString::to_string).collect::<Vec<_>>().join(",");
    let run = |flags: &str| {
        let flags =
            format!("cluster --json --no-report --server builtin --cert p-256 --time 2 --clients 4 --reuse 80 {flags}");
        let tlsdyno = place.tlsdyno_without_control_groups(&flags.split_whitespace().collect::<Vec<_>>());
        let mut command = std::process::Command::new("taskset");
        command.args(["-c", &few]).arg(tlsdyno.get_program()).args(tlsdyno.get_args()).current_dir(place.path());
        command.envs(tlsdyno.get_envs().filter_map(|(name, value)| Some((name, value?))));
        command.output().unwrap()
    };
    let output = run("--policies round-robin");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("warning: the backends share CPUs") && said.contains("--backend-cpus 0"), "{said}");
    let result = place::measured(&output);
    check_blocks(&result);
    assert!(result["warnings"].to_string().contains("--backend-cpus 0"), "{}", result["warnings"]);
    let output = run("--policies round-robin --backend-cpus 0.2");
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(6), "{said}");
    assert!(said.contains("--backend-cpus 0 goes without") && said.contains("systemd-run"), "{said}");
}

/// HAProxy's stick table keeps TLS 1.2 IDs; a cache that all servers share needs no dispatcher that looks.
#[test]
fn haproxy_sticks_and_a_shared_cache_serves_every_backend() {
    let place = Place::new();
    let flags = "cluster --json --no-report --server apache --backends 2 --tls 1.2 --no-tickets --cert p-256 --time 3 \
                 --clients 8 --reuse 80 --sessions own,memcached --policies \
                 haproxy-round-robin,haproxy-stick,haproxy-source";
    let result = place.json(&flags.split(' ').filter(|flag| !flag.is_empty()).collect::<Vec<_>>());
    check_blocks(&result);
    let accepted = |policy, sharing: &str| {
        number(cell(&result, policy, &[("sharing", Value::from(sharing))]), "accepted_percent_of_offered")
    };
    assert!(accepted("haproxy-round-robin", "own") < 80.0, "{}", accepted("haproxy-round-robin", "own"));
    for policy in ["haproxy-stick", "haproxy-source"] {
        assert!(accepted(policy, "own") >= 99.0, "{policy}: {}", accepted(policy, "own"));
    }
    for policy in ["haproxy-round-robin", "haproxy-stick", "haproxy-source"] {
        assert!(accepted(policy, "memcached") >= 99.0, "{policy}: {}", accepted(policy, "memcached"));
    }
    let config = result["manifest"]["server_config"].as_object().unwrap();
    assert!(config["dispatcher haproxy-stick, own sessions"].as_str().unwrap().contains("tcp-response inspect-delay"));
    assert!(config.contains_key("memcached of all backends"), "{:?}", config.keys());
}

/// Apache's sessions in one redis server.
#[test]
fn redis_serves_every_backend() {
    keeps_sessions(&[("--server apache --tls 1.2 --no-tickets --sessions redis --policies round-robin", "redis")]);
}

fn keeps_sessions(cases: &[(&str, &str)]) {
    let place = Place::new();
    for (setting, sharing) in cases {
        let flags = format!(
            "cluster {setting} --json --no-report --backends 2 --backend-cpus 0 --cert p-256 --time 2 --clients 8 \
             --reuse 80"
        );
        let result = place.json(&flags.split(' ').collect::<Vec<_>>());
        check_blocks(&result);
        let cell = &result["cells"][0];
        assert_eq!(cell["sharing"], *sharing);
        assert!(number(cell, "accepted_percent_of_offered") >= 99.0, "{setting}: {cell}");
        assert!(number(cell, "busiest_percent") < 75.0, "{setting}: {cell}");
    }
}

/// The claim of Pai et al. 1998: each backend is asked for fewer objects, so that caches miss less, and no backend gets
/// everything.
#[test]
fn lard_asks_each_backend_for_fewer_objects() {
    let place = Place::new();
    let flags =
        "cluster --json --plain --workload specweb96 --policies round-robin,lard --clients 12 --time 3 --seed 3";
    let result = place.json(&flags.split(' ').collect::<Vec<_>>());
    check_blocks(&result);
    for block in result["blocks"].as_array().unwrap() {
        let backends = block["cluster"]["backends"].as_array().unwrap();
        let of = |name: &str| backends.iter().map(|backend| backend["locality"][name].as_u64().unwrap()).sum::<u64>();
        assert_eq!(of("requests"), block["hits"].as_u64().unwrap(), "logs and clients agree");
        assert!(of("misses") <= of("requests") && of("objects") <= of("requests"));
    }
    let [blind, lard] = ["round-robin", "lard"].map(|policy| &cell(&result, policy, &[])["locality"]);
    assert!(number(lard, "objects") < 0.6 * number(blind, "objects"), "{lard} {blind}");
    // On a busy machine there are few blocks, and a dozen misses.
    assert!(number(lard, "miss_percent") < 0.8 * number(blind, "miss_percent"), "{lard} {blind}");
    // All objects have a backend, and the caches of all together hold them all once.
    let (objects, cache_bytes) = (36.0, lard["cache_bytes"].as_u64().unwrap());
    assert!(number(lard, "objects") * 3.0 >= objects / 2.0 && cache_bytes > 1_000_000, "{lard}");
    assert!(number(cell(&result, "lard", &[]), "busiest_percent") < 80.0);
    let answer = result["answer"].as_str().unwrap();
    assert!(answer.starts_with("lard: each backend is asked for") && answer.contains("with round-robin"), "{answer}");
    let report = std::fs::read_to_string(place.path().join("report.html")).unwrap();
    assert!(report.contains("<h2>Locality</h2>") && report.contains("own access log"), "locality is on the page");
    let shown = String::from_utf8(place.run(&["report", "last", "-o", "again.html"]).stdout).unwrap();
    // Where lines end depends on how long the server's version is.
    let words = shown.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(words.contains("plain HTTP") && words.contains("objects at each backend"), "{shown}");
}

/// An open loop, shared ticket keys, and nginx's stream module where it is installed.
#[test]
fn an_open_loop_keeps_its_rate_and_a_missing_module_is_named() {
    let place = Place::new();
    let flags = "cluster --json --no-report --backends 2 --cert p-256 --time 3 --clients 16 --rates 60 --reuse 80 \
                 --sessions ticket-keys --policies least-connections,nginx-hash";
    let output = place.run(&flags.split(' ').filter(|flag| !flag.is_empty()).collect::<Vec<_>>());
    let said = String::from_utf8_lossy(&output.stderr);
    if output.status.code() == Some(6) {
        assert!(said.contains("apt-get install libnginx-mod-stream") && said.contains("--policies"), "{said}");
        let without = flags.replace(",nginx-hash", "");
        let result = place.json(&without.split(' ').filter(|flag| !flag.is_empty()).collect::<Vec<_>>());
        return check_open_loop(&result, &["least-connections"]);
    }
    check_open_loop(&place::measured(&output), &["least-connections", "nginx-hash"]);
}

fn check_open_loop(result: &Value, policies: &[&str]) {
    check_blocks(result);
    for policy in policies {
        let cell = cell(result, policy, &[]);
        // A busy machine may fall behind; it never runs ahead of the schedule, whose arrivals scatter by chance.
        let rate = number(cell, "hits_per_second");
        assert!(rate > 0.0 && rate < 90.0, "{policy}: {rate}");
        assert!(number(cell, "accepted_percent_of_offered") >= 99.0, "shared keys: {cell}");
        assert!(cell["latency_ns"]["scheduled_response"]["p50"].as_u64().unwrap() > 0);
    }
}

/// An open loop beside a closed one, and beside one client alone.
#[test]
fn an_open_loop_is_checked_at_both_ends() {
    let place = Place::new();
    let flags = "cluster --json --no-report --backends 1 --policies direct --reuse 50 --cert p-256 --clients 4 \
                 --rates 40,4000 --checks --time 8 --seed 4";
    let result = place.json(&flags.split_whitespace().collect::<Vec<_>>());
    check_blocks_of(&result, false);
    let roles: Vec<&Value> = result["cells"].as_array().unwrap().iter().map(|cell| &cell["role"]).collect();
    assert_eq!(roles, [&Value::Null, &Value::Null, &"capacity".into(), &"alone".into()]);
    let checks = result["checks"].as_array().unwrap();
    assert_eq!((checks.len(), &checks[0]["line"]), (1, &"direct, 50 % reuse".into()));
    // How near they come is what the report tells.
    let is_told = |name: &str| checks[0][name]["times"].as_f64() > Some(0.0);
    assert!(is_told("saturation") && is_told("light_latency"), "{checks:?}");
    let refused = place.run(&["cluster", "--checks"]);
    assert_eq!(refused.status.code(), Some(2), "{}", String::from_utf8_lossy(&refused.stderr));
}

/// One server without a dispatcher, of as many processes as asked for, and plain HTTP beside it.
#[test]
fn one_server_has_a_plain_limit_beside_its_reuse() {
    let place = Place::new();
    let flags = "cluster --json --backends 1 --backend-cpus 0.3 --processes 3 --policies direct --plain-limit \
                 --tls 1.2 --suite AES128-SHA --no-tickets --session-cache builtin-shared --reuse 0,80 --clients 2 \
                 --rates 80,160 --workload specweb96 --time 8 --seed 2";
    let result = place.json(&flags.split_whitespace().collect::<Vec<_>>());
    check_blocks_of(&result, false);
    for rate in [80.0, 160.0] {
        let at = |reuse: f64, plain: bool| {
            let cells = result["cells"].as_array().unwrap();
            let fits = |cell: &&Value| {
                let is_plain = cell["plain"].as_bool().unwrap_or(false);
                cell["reuse_percent"] == reuse && cell["rate_per_s"] == rate && is_plain == plain
            };
            cells.iter().find(fits).unwrap_or_else(|| panic!("no cell {reuse} {plain}"))
        };
        let (full, reused, plain) = (at(0.0, false), at(80.0, false), at(0.0, true));
        assert!(number(reused, "accepted_percent_of_offered") > 99.0, "{reused}");
        let cost = |cell| number(cell, "server_cpu_ns_per_hit");
        assert!([full, reused, plain].into_iter().all(|cell| cost(cell) > 0.0), "{result}");
        assert_eq!(plain["handshakes_full"], 0, "{plain}");
    }
    assert!(result["answer"].as_str().unwrap().contains("at plain HTTP"), "{}", result["answer"]);
    let report = std::fs::read_to_string(place.path().join("report.html")).unwrap();
    assert!(report.contains("cluster-latency-direct") && report.contains("% of plain HTTP"));
}

/// Sessions live for two seconds: the parts of those offered that are accepted by way of a dispatcher that forgets them
/// after one second, and after two, per cent.
fn accepted_by_timeout() -> [f64; 2] {
    let place = Place::new();
    let flags = "cluster --json --server nginx --backends 3 --tls 1.2 --suite AES128-SHA --no-tickets --reuse 100 \
                 --session-timeout 2 --policies session --dispatcher-timeouts 1,2 --pause 1s --clients 60 --time 13 \
                 --workload specweb96";
    let result = place.json(&flags.split_whitespace().collect::<Vec<_>>());
    let accepted = |timeout: u32| {
        let timeout = [("dispatcher_timeout_s", Value::from(timeout))];
        number(cell(&result, "session", &timeout), "accepted_percent_of_offered")
    };
    let report = std::fs::read_to_string(place.path().join("report.html")).unwrap();
    assert!(report.contains("closed form"));
    [accepted(1), accepted(2)]
}

/// Pauses are longer on a busy machine, so that which one loses more is left to `make test-long`.
#[test]
fn dispatchers_with_timeouts_are_told_side_by_side() {
    assert!(accepted_by_timeout().iter().all(|percent| (0.0..=100.0).contains(percent)));
}

#[test]
fn ctrl_c_ends_everything_and_keeps_what_was_measured() {
    let place = Place::new();
    let flags = "cluster --server builtin --backends 2 --cert p-256 --time 60 --clients 4 --reuse 0,80 --no-report";
    let mut command = place.tlsdyno(&flags.split(' ').collect::<Vec<_>>());
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut stderr = BufReader::new(child.stderr.take().unwrap());
    let mut said = String::new();
    while !said.lines().any(|line| line.starts_with("measuring")) {
        assert_ne!(stderr.read_line(&mut said).unwrap(), 0, "{said}");
    }
    let pid = rustix::process::Pid::from_child(&child);
    rustix::process::kill_process(pid, rustix::process::Signal::INT).unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(130), "{said}");
    let shown = String::from_utf8(output.stdout).unwrap();
    assert!(shown.contains("stopped early (Ctrl-C)"), "{shown}");
    assert_eq!(place.processes(), Vec::<String>::new());
    let list = String::from_utf8(place.run(&["list", "--json"]).stdout).unwrap();
    let list: Value = serde_json::from_str(&list).unwrap();
    assert_eq!((list[0]["finished"].as_bool(), list[0]["server"].as_str()), (Some(false), Some("builtin")));
}

#[test]
fn files_and_flags_are_one_experiment_and_mistakes_are_named() {
    let place = Place::new();
    let printed = |arguments: &[&str]| String::from_utf8(place.run(arguments).stdout).unwrap();
    let by_run = printed(&["run", "apostolopoulos-2000-fig9", "--print-experiment"]);
    let by_cluster = printed(&["cluster", "--config", "apostolopoulos-2000-fig9", "--print-experiment"]);
    assert!(by_run == by_cluster && by_run.contains("sixfold"), "{by_run}\n{by_cluster}");
    let flags = ["cluster", "--backends", "2", "--policies", "session,haproxy-stick", "--print-experiment"];
    let file = place.path().join("own.toml");
    std::fs::write(&file, printed(&flags)).unwrap();
    let again = printed(&["cluster", "--config", file.to_str().unwrap(), "--print-experiment"]);
    assert_eq!(again, std::fs::read_to_string(&file).unwrap());
    let refused = |arguments: &[&str], code: i32, words: &str| {
        let output = place.run(arguments);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.code() == Some(code) && said.contains(words), "{arguments:?}: {said}");
    };
    refused(&["cluster", "--policies", "session,session"], 2, "session twice");
    refused(&["cluster", "--sessions", "memcached"], 2, "nginx has no session cache `memcached`");
    refused(&["cluster", "--rates", "1"], 2, "25 at least");
    refused(&["cluster", "--reuse", "120"], 2, "between 0% and 100%");
    refused(&["cluster", "--policies", "round-robin,lard"], 2, "add --front-ends 1");
    refused(&["cluster", "--plain", "--policies", "session"], 2, "reads TLS hellos");
    refused(&["cluster", "--plain"], 2, "--workload specweb96");
    refused(&["cluster", "--policies", "direct"], 2, "--backends 1");
    refused(&["cluster", "--policies", "session", "--plain-limit"], 2, "plain HTTP can pass");
    refused(&["cluster", "--dispatcher-timeouts", "2"], 2, "--policies session alone");
    refused(&["cluster", "--config", "coarfa-2006-fig7"], 3, "tlsdyno run coarfa-2006-fig7");
    refused(&["cluster", "--config", "nothing", "--backends", "2"], 2, "cannot be used with");
}

mod long {
    use super::*;

    #[test]
    #[ignore = "paces on a quiet machine: make test-long"]
    fn a_dispatcher_that_forgets_too_soon_loses_sessions() {
        let [one, two] = accepted_by_timeout();
        assert!(two > one + 5.0, "{one} % {two} %");
    }

    /// HAProxy, each with a plain server of its own behind it, and lighttpd.
    #[test]
    #[ignore = "more servers: make test-long"]
    fn other_servers_are_backends_too() {
        let of = |server| format!("--server {server} --policies session");
        keeps_sessions(&[(&of("haproxy"), "own"), (&of("lighttpd"), "own")]);
    }
}
