//! The robot: rounds at their times, one robot for a site, nothing lost and nothing twice whatever kills it.

use std::path::PathBuf;
use std::process::{Child, Stdio};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use rusqlite::Connection;

use super::super::place::{Place, eventually, signal};
use super::super::stacks::go_server::GoServer;
use super::{probe, robot, stderr};

struct Site {
    place: Place,
    server: GoServer,
    log: PathBuf,
    store: PathBuf,
}

impl Site {
    fn start() -> Site {
        let place = Place::new();
        let log = place.path().join("requests");
        let server = GoServer::start(b"object", Some(&log));
        let store = place.path().join("probe.sqlite");
        Site { place, server, log, store }
    }

    fn url(&self) -> String {
        format!("https://{}/", self.server.address)
    }

    /// Rounds of one run and number that are there more than once.
    fn twice(&self) -> u64 {
        self.ask("SELECT COUNT(*) FROM (SELECT 1 FROM rounds GROUP BY run, number HAVING COUNT(*) > 1)")
    }

    fn robot(&self, arguments: &[&str]) -> Child {
        let (url, store) = (self.url(), self.store.to_str().unwrap());
        let all = [&["probe", &url, "--store", store, "--quiet"], arguments].concat();
        robot(&self.place.tlsdyno(&all)).spawn().unwrap()
    }

    /// Requests that the server saw: two for each round.
    fn requests(&self) -> u64 {
        std::fs::read_to_string(&self.log).map_or(0, |text| text.lines().count() as u64)
    }

    fn ask(&self, sql: &str) -> u64 {
        // A robot that was just started may not have made it.
        Connection::open(&self.store).and_then(|store| store.query_row(sql, [], |row| row.get(0))).unwrap_or(0)
    }

    fn rows(&self) -> u64 {
        self.ask("SELECT COUNT(*) FROM rounds WHERE missed_count IS NULL")
    }

    /// Rounds made and missed, of a store with one run: each number up to the last is one of the two. What is due when
    /// the robot ends is neither.
    fn made_and_missed(&self) -> [u64; 2] {
        let [made, missed, last] =
            ["made_count", "missed_count", "last_number"].map(|of| self.ask(&format!("SELECT {of} FROM runs")));
        assert_eq!(made + missed, last + 1, "{made} made, {missed} missed");
        [made, missed]
    }
}

/// Ends a robot as a user does, who loses nothing.
fn interrupt(robot: &mut Child) {
    signal(robot.id(), rustix::process::Signal::INT);
    assert_eq!(robot.wait().unwrap().code(), Some(130));
}

#[test]
fn rounds_come_at_their_times_until_the_time_is_over() {
    let site = Site::start();
    let output = site.robot(&["--every", "250ms", "--for", "2s"]).wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let [made, missed] = site.made_and_missed();
    // A busy machine may not come to the last of them in time.
    assert!((1..=8).contains(&(made + missed)) && made == site.rows(), "{made} made, {missed} missed");
    assert_eq!(site.requests(), 2 * made);
    assert_eq!(
        site.ask("SELECT COUNT(*) FROM rounds WHERE missed_count IS NULL AND resumed_whole_ns > 0"),
        site.rows()
    );
    // A round may begin until the next one is due, and where a round begins moves no other.
    let sql = "SELECT COUNT(*) FROM rounds, (SELECT started_unix_us AS began, number AS first FROM rounds LIMIT 1)
               WHERE abs(started_unix_us - began - (number - first) * 250000) >= 250000 AND missed_count IS NULL";
    assert_eq!(site.ask(sql), 0);
    let report = |more: &[&str]| {
        let output = probe(&site.place, &[&["report", "--store", site.store.to_str().unwrap()], more].concat());
        assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
        String::from_utf8(output.stdout).unwrap()
    };
    let text = report(&["--html", "report.html"]);
    for part in ["A resumed session saves", "(W − C)/W", "Medians of sums", "PSK, ", "share sessions, or there is one"]
    {
        assert!(text.contains(part), "{part:?} is not in\n{text}");
    }
    let page = std::fs::read_to_string(site.place.path().join("report.html")).unwrap();
    assert!(page.contains("histogram-0") && page.contains("series-0"));
    let json: serde_json::Value = serde_json::from_str(&report(&["--json"])).unwrap();
    assert_eq!(json[0]["made_count"], site.rows());
    let full = &json[0]["numbers"]["full_ns"];
    assert!(full["low"].as_f64() <= full["value"].as_f64() && full["value"].as_f64() > Some(0.0), "{full}");
    assert_eq!(
        report(&["--csv"]).lines().count() as u64,
        1 + site.ask("SELECT COUNT(DISTINCT started_unix_us / 3600000000) FROM rounds")
    );
    let nothing = probe(&site.place, &["report", "--store", site.store.to_str().unwrap(), "--to", "2020-01-01"]);
    assert_eq!(nothing.status.code(), Some(3), "{}", stderr(&nothing));
}

/// Kills robots, each so long after it began to make rounds; the last one takes what they left.
fn kill_again_and_again(every: &str, pauses: &[Duration]) {
    let site = Site::start();
    for pause in pauses {
        let before = site.requests();
        let mut robot = site.robot(&["--every", every]);
        eventually("the robot makes rounds", || site.requests() > before + 6);
        std::thread::sleep(*pause);
        robot.kill().unwrap();
        robot.wait().unwrap();
    }
    let output = site.robot(&["--every", every, "--for", "1s"]).wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let (rows, requests, kills) = (site.rows(), site.requests(), pauses.len() as u64);
    println!("{kills} kills: {requests} requests, {rows} rounds in the store, {} of them twice", site.twice());
    // A kill in mid-round leaves up to two requests of which nobody told.
    assert!(2 * rows <= requests && requests <= 2 * (rows + kills), "{rows} rows, {requests} requests");
    assert_eq!(site.twice(), 0);
    assert_eq!(site.ask("SELECT COUNT(*) FROM texts WHERE kind = 'run'"), kills + 1);
}

#[test]
fn a_robot_killed_again_and_again_loses_nothing_and_keeps_nothing_twice() {
    kill_again_and_again("20ms", &[0, 37, 74, 111, 148, 185, 222, 259].map(Duration::from_millis));
}

#[test]
#[ignore = "takes five minutes"]
fn a_robot_killed_for_five_minutes_loses_nothing_and_keeps_nothing_twice() {
    let pauses: Vec<Duration> = (0..100).map(|kill| Duration::from_millis(2000 + 37 * (kill % 50))).collect();
    kill_again_and_again("100ms", &pauses);
}

/// Milliseconds of CPU that a round may cost.
const ROUND_CPU_MS: f64 = 2.0;

#[test]
#[ignore = "takes a minute, and weighs CPU"]
fn a_thousand_sites_a_minute_cost_little() {
    let site = Site::start();
    let each = |number: u32| format!("[[site]]\nurl = \"{}{number}\"\n", site.url());
    let config = site.place.path().join("sites.toml");
    std::fs::write(&config, (0..1000).map(each).collect::<String>()).unwrap();
    let all = ["probe", "--config", config.to_str().unwrap(), "--every", "1m", "--for", "60s", "--quiet"];
    let store = ["--store", site.store.to_str().unwrap()];
    let mut robot = site.place.tlsdyno(&[&all[..], &store].concat()).stdout(Stdio::null()).spawn().unwrap();
    // What it took is told until it is waited for.
    let ended = loop {
        let process = tlsdyno::process_tree::stat(robot.id()).unwrap();
        if process.state == 'Z' {
            break process;
        }
        std::thread::sleep(Duration::from_millis(50));
    };
    assert!(robot.wait().unwrap().success());
    assert_eq!((site.rows(), site.ask("SELECT COUNT(*) FROM rounds")), (1000, 1000), "none is missed");
    assert_eq!(site.requests(), 2 * 1000);
    let cpu_ms = 10.0 * ended.ticks as f64 / 1000.0;
    println!("{cpu_ms:.2} ms of CPU a round, start and end of the robot among them");
    assert!(cpu_ms <= ROUND_CPU_MS, "{cpu_ms} ms of CPU a round");
}

/// A round that was printed is in the spool, and so will be in the store.
#[test]
fn every_round_that_was_told_is_kept() {
    let site = Site::start();
    let told = site.place.path().join("told");
    let (url, store) = (site.url(), site.store.to_str().unwrap().to_owned());
    let lines = || std::fs::read_to_string(&told).unwrap_or_default().lines().count() as u64;
    for _ in 0..4 {
        let before = lines();
        let all = ["probe", &url, "--store", &store, "--every", "5ms", "--json"];
        let out = std::fs::OpenOptions::new().append(true).create(true).open(&told).unwrap();
        let mut robot = site.place.tlsdyno(&all).stdout(out).stderr(Stdio::null()).spawn().unwrap();
        eventually("rounds are told", || lines() > before + 20);
        robot.kill().unwrap();
        robot.wait().unwrap();
    }
    let last = site.robot(&["--every", "1h", "--for", "1s"]).wait_with_output().unwrap();
    assert_eq!(last.status.code(), Some(0), "{}", stderr(&last));
    let (rows, told) = (site.rows() - 1, lines());
    assert!(told <= rows && rows <= told + 4, "{told} rounds told, {rows} rows");
    assert_eq!(site.twice(), 0);
}

/// What a process says, as it says it.
fn told_by(stderr: std::process::ChildStderr) -> (std::thread::JoinHandle<()>, Arc<Mutex<String>>) {
    let said = Arc::new(Mutex::new(String::new()));
    let kept = Arc::clone(&said);
    let listen = move || {
        for line in std::io::BufRead::lines(std::io::BufReader::new(stderr)).map_while(Result::ok) {
            *kept.lock().unwrap() += &(line + "\n");
        }
    };
    (std::thread::spawn(listen), said)
}

/// On a file system of four megabytes, where the store and the spool are.
#[test]
fn a_full_disk_costs_no_round() {
    if !rustix::process::geteuid().is_root() {
        return println!("only root has file systems of its own: not tried");
    }
    let site = Site::start();
    let small = site.place.path().join("small");
    std::fs::create_dir(&small).unwrap();
    let (url, store) = (site.url(), small.join("probe.sqlite").display().to_string());
    let script = "mount -t tmpfs -o size=4m none \"$1\"; shift; \"$@\" > /dev/null & echo $!; wait $!; echo $?; cat";
    let robot = site.place.tlsdyno(&["probe", &url, "--store", &store, "--every", "100ms", "--quiet"]);
    let mut command = std::process::Command::new("unshare");
    command.args(["--mount", "sh", "-c", script, "sh"]).arg(&small).arg(robot.get_program()).args(robot.get_args());
    command.current_dir(site.place.path()).env("TLSDYNO_STORE", site.place.path().join("store.sqlite"));
    let mut holder = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let id = holder.id();
    let inside = |command: &std::process::Command| {
        let mut inside = std::process::Command::new("nsenter");
        inside.args(["-t", &id.to_string(), "-m"]).arg(command.get_program()).args(command.get_args());
        inside.output().unwrap()
    };
    // Asked inside the mount namespace: SQLite does not follow /proc into it.
    let made = || {
        let report = inside(&site.place.tlsdyno(&["probe", "report", "--store", &store, "--json"]));
        let sites: serde_json::Value = serde_json::from_slice(&report.stdout).unwrap_or_default();
        sites[0]["made_count"].as_u64().unwrap_or(0)
    };
    eventually("rounds are in the store", || made() > 2);
    let ballast = PathBuf::from(format!("/proc/{id}/root{}", small.join("ballast").display()));
    // What the spool leaves when the store has taken it is room too, until the store takes no more.
    let file = std::fs::OpenOptions::new().append(true).create(true).open(&ballast).unwrap();
    let (listener, said) = told_by(holder.stderr.take().unwrap());
    eventually("the store takes none", || {
        while std::io::Write::write(&mut &file, &[1; 4096]).is_ok_and(|bytes| bytes > 0) {}
        said.lock().unwrap().contains("wait in the spool")
    });
    let requests = site.requests();
    eventually("rounds go on", || site.requests() > requests + 20);
    let spooled = site.requests() / 2;
    drop(file);
    std::fs::remove_file(&ballast).unwrap();
    eventually("the store takes rounds again", || made() > spooled);
    let mut out = std::io::BufReader::new(holder.stdout.take().unwrap());
    let mut line = || {
        let mut line = String::new();
        std::io::BufRead::read_line(&mut out, &mut line).unwrap();
        line.trim().parse::<u32>().unwrap()
    };
    signal(line(), rustix::process::Signal::INT);
    let code = line();
    let mut copy = std::process::Command::new("cp");
    assert!(inside(copy.arg(&store).arg(&site.store)).status.success());
    drop(holder.stdin.take());
    holder.wait().unwrap();
    listener.join().unwrap();
    let said = said.lock().unwrap();
    assert_eq!(code, 130, "{said}");
    assert!(said.contains("takes rounds again"), "{said}");
    let [made, missed] = site.made_and_missed();
    assert_eq!((site.requests(), site.rows()), (2 * made, made), "{missed} missed");
}

#[test]
fn measuring_does_not_wait_for_a_store_that_is_locked() {
    let site = Site::start();
    let mut robot = site.robot(&["--every", "50ms"]);
    eventually("rounds are in the store", || site.rows() > 2);
    let other = Connection::open(&site.store).unwrap();
    other.busy_timeout(Duration::from_secs(5)).unwrap();
    other.execute_batch("BEGIN IMMEDIATE").unwrap();
    let (rows, requests) = (site.rows(), site.requests());
    eventually("rounds go on", || site.requests() > requests + 20);
    assert_eq!(site.rows(), rows, "the store takes nothing meanwhile");
    other.execute_batch("COMMIT").unwrap();
    interrupt(&mut robot);
    assert_eq!(site.requests(), 2 * site.rows());
}

/// A laptop that is closed for a while, as far as the robot can tell: the rounds of that time are one row, and those
/// that follow are in their places.
#[test]
fn a_robot_that_was_stopped_tells_the_rounds_that_it_missed() {
    let site = Site::start();
    let mut robot = site.robot(&["--every", "20ms"]);
    eventually("rounds are in the store", || site.rows() > 2);
    signal(robot.id(), rustix::process::Signal::STOP);
    let stopped = std::time::Instant::now();
    eventually("time goes by", || stopped.elapsed() > Duration::from_secs(1));
    signal(robot.id(), rustix::process::Signal::CONT);
    let asleep = "SELECT COUNT(*) FROM rounds WHERE missed_count BETWEEN 48 AND 1500";
    eventually("it tells", || site.ask(asleep) > 0);
    let rows = site.rows();
    eventually("rounds go on", || site.rows() > rows + 2);
    interrupt(&mut robot);
    let [made, missed] = site.made_and_missed();
    assert!(missed >= 48 && made == site.rows(), "{made} made, {missed} missed");
}

#[test]
fn a_site_has_one_robot_for_a_store_and_strangers_are_left_in_peace() {
    let site = Site::start();
    let mut robot = site.robot(&["--every", "100ms"]);
    eventually("rounds are in the store", || site.rows() > 0);
    let (url, store) = (site.url(), site.store.to_str().unwrap());
    let second = probe(&site.place, &[&url, "--every", "1s", "--for", "1s", "--store", store]);
    assert!(!second.status.success() && stderr(&second).contains("another robot probes"), "{}", stderr(&second));
    let link = site.place.path().join("link.sqlite");
    std::os::unix::fs::symlink("probe.sqlite", &link).unwrap();
    let linked = probe(&site.place, &[&url, "--every", "1s", "--for", "1s", "--store", link.to_str().unwrap()]);
    assert!(!linked.status.success() && stderr(&linked).contains("another robot probes"), "{}", stderr(&linked));
    // One round beside it is nobody's harm, and the store takes it.
    let once = probe(&site.place, &[&url, "--once", "--store", store]);
    assert_eq!(once.status.code(), Some(0), "{}", stderr(&once));
    interrupt(&mut robot);
    assert_eq!(site.requests(), 2 * site.rows(), "Ctrl-C loses nothing");
    let foreign = ["https://192.0.2.1/", "--i-may-probe", "192.0.2.1", "--every", "9s", "--store", store];
    let refused = probe(&site.place, &foreign);
    assert_eq!(refused.status.code(), Some(2));
    assert!(stderr(&refused).contains("at least 10s"), "{}", stderr(&refused));
}
