use std::path::PathBuf;

use super::*;
use crate::{make, scan_log};

fn semicomplete() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../tlsdyno/tests/data/semicomplete-access.log.gz")
}

fn scanned(path: &Path, exclude: &[&str], rules: &ReplaySpec) -> Result<LogScan> {
    let exclude: Vec<String> = exclude.iter().map(|text| (*text).to_owned()).collect();
    scan_log(path, &exclude, rules)
}

fn of_lines(lines: &[String], exclude: &[&str]) -> Result<LogScan> {
    let directory = tempfile::tempdir()?;
    let path = directory.path().join("access.log");
    std::fs::write(&path, lines.concat())?;
    scanned(&path, exclude, &ReplaySpec::default())
}

/// A line by this client at so many seconds past ten.
fn line(client: &str, at_s: u32) -> String {
    let (hours, minutes, seconds) = (10 + at_s / 3600, at_s / 60 % 60, at_s % 60);
    format!("{client} - - [17/May/2015:{hours}:{minutes:02}:{seconds:02} +0000] \"GET / HTTP/1.1\" 200 5\n")
}

/// The scan and the replay count the same things, by different code.
#[test]
fn it_agrees_with_the_replay_on_the_real_log() {
    for lifetime in [SessionsSpec::LifetimeS(300), SessionsSpec::LifetimeS(7_200), SessionsSpec::PerAddress] {
        for exclude in [&[][..], &["crawlers", "66.249.0.0/16"]] {
            let rules = ReplaySpec { sessions: lifetime, ..ReplaySpec::default() };
            let scan = scanned(&semicomplete(), exclude, &rules).unwrap();
            let spec = tlsdyno_record::model::workload::WorkloadSpec::Trace {
                path: semicomplete(),
                exclude: exclude.iter().map(|text| (*text).to_owned()).collect(),
                replay: rules,
            };
            let replay = make(&spec).unwrap().summary;
            let log = replay.log.unwrap();
            assert_eq!((scan.read.lines, scan.hits, scan.users), (log.read.lines, replay.hits, replay.users));
            assert_eq!(scan.sessions, replay.sessions, "{lifetime:?}");
            assert_eq!((&scan.read.methods, &scan.read.statuses), (&log.read.methods, &log.read.statuses));
            assert_eq!(
                (scan.read.logged_bytes, scan.read.backward_time_stamps),
                (log.read.logged_bytes, log.read.backward_time_stamps)
            );
            assert_eq!(
                (&scan.read.busiest_clients, &scan.read.excluded),
                (&log.read.busiest_clients, &log.read.excluded)
            );
            assert_eq!(scan.read.time_range_s, log.read.time_range_s);
            assert!(scan.users_exact);
        }
    }
}

/// Independently of this code: `awk '{ if (!($1 in t)) f++ } { t[$1]=1 } END { print f, NR }'` counts 1,753 first
/// requests.
#[test]
fn reuse_grows_with_lifetime_and_limit() {
    let scan = scanned(&semicomplete(), &[], &ReplaySpec::default()).unwrap();
    let first_hits_percent = 100.0 - 100.0 * 1_753.0 / 10_000.0;
    let rows = &scan.reuse.rows;
    for row in rows {
        assert!(row.percent_by_limit.is_sorted() && row.percent_renewed <= first_hits_percent, "{row:?}");
        assert!(row.percent_renewed >= row.percent_by_limit[4]);
    }
    assert!(rows.windows(2).all(|pair| pair[0].percent_by_limit[4] <= pair[1].percent_by_limit[4]));
    let at_300_s = rows.iter().find(|row| row.lifetime_s == 300).unwrap();
    let renewed = 100.0 - 100.0 * scan.sessions as f64 / 10_000.0;
    assert!((at_300_s.percent_renewed - renewed).abs() < 1e-9);
}

/// Whatever the length of the log, only those are in memory who were there within the longest lifetime.
#[test]
fn users_who_are_gone_leave_memory() {
    let mut lines = Vec::new();
    // Ten new users each second for five hours; a session lasts an hour at most. One comes back all the time.
    for at_s in 0..18_000 {
        lines.extend((0..10).map(|user| line(&format!("10.{}.{}.{user}", at_s / 250, at_s % 250), at_s)));
        lines.push(line("192.0.2.1", at_s));
    }
    let scan = of_lines(&lines, &[]).unwrap();
    assert_eq!((scan.hits, scan.read.lines), (198_000, 198_000));
    assert!((scan.users as f64 / 180_001.0 - 1.0).abs() < 0.03 && !scan.users_exact, "{} users", scan.users);
    let active = 10 * 7_201;
    assert!(scan.users_held_at_most <= 2 * active, "{} of 180,001 users were in memory", scan.users_held_at_most);
    assert_eq!(
        (scan.read.busiest_clients[0].client.as_str(), scan.read.busiest_clients[0].hits),
        ("192.0.2.1", 18_000)
    );
    assert_eq!(scan.sessions, 180_001);
}

#[test]
fn what_is_wrong_is_said_as_for_a_replay() {
    let error = of_lines(&["nonsense\n".to_owned()], &[]).unwrap_err().to_string();
    assert!(error.contains("no usable line") && error.contains("no time in square brackets"), "{error}");
    let error = of_lines(&[line("192.0.2.1", 0)], &["192.0.2.0/24"]).unwrap_err().to_string();
    assert!(error.contains("excluded by 192.0.2.0/24"), "{error}");
    let scan = of_lines(&[line("192.0.2.1", 0), "nonsense\n".to_owned()], &["crawlers"]).unwrap();
    let warnings = scan.read.warnings().join("\n");
    assert!(warnings.contains("1 of the 2 lines") && warnings.contains("does not name user agents"), "{warnings}");
}
