//! The robot and a PostgreSQL server: killed and started again in mid-run, absent at the start, shared by two robots.

use std::path::PathBuf;
use std::process::Child;

use super::super::place::postgres::{PASSWORD, Postgres};
use super::super::place::{Place, eventually};
use super::super::stacks::go_server::GoServer;
use super::{robot, stderr};

struct Site {
    place: Place,
    server: GoServer,
    log: PathBuf,
    database: Postgres,
    store: String,
}

impl Site {
    fn start() -> Site {
        let place = Place::new();
        let log = place.path().join("requests");
        let server = GoServer::start(b"object", Some(&log));
        let database = Postgres::start();
        let ca_file = database.ca_file.display().to_string();
        let store = format!("{}?sslmode=verify-full&sslrootcert={ca_file}", database.create("probe"));
        Site { place, server, log, database, store }
    }

    fn robot(&self, arguments: &[&str]) -> Child {
        let url = format!("https://{}/", self.server.address);
        let all = [&["probe", &url, "--store", &self.store, "--quiet"], arguments].concat();
        let mut command = self.place.tlsdyno(&all);
        command.env("PGPASSFILE", self.database.pass_file());
        robot(&command).spawn().unwrap()
    }

    /// Requests that the server saw: two for each round.
    fn requests(&self) -> u64 {
        std::fs::read_to_string(&self.log).map_or(0, |text| text.lines().count() as u64)
    }

    fn rows(&self) -> u64 {
        self.database.ask("probe", "SELECT COUNT(*) FROM rounds WHERE missed_count IS NULL").parse().unwrap()
    }
}

#[test]
fn a_database_that_is_killed_and_comes_back_has_all_rounds() {
    let mut site = Site::start();
    let mut robot = site.robot(&["--every", "50ms"]);
    eventually("there are tables", || site.database.sql("probe", "SELECT 1 FROM rounds").status.success());
    eventually("rounds are in the store", || site.rows() > 2);
    let tls = site.database.ask("probe", "SELECT count(*) FROM pg_stat_ssl WHERE ssl AND pid != pg_backend_pid()");
    assert_ne!(tls, "0", "the robot's connection is encrypted");
    // Another robot is refused while the first one lives.
    let second = site.robot(&["--every", "50ms", "--for", "1s"]).wait_with_output().unwrap();
    assert_eq!(second.status.code(), Some(9));
    assert!(stderr(&second).contains("another robot probes"), "{}", stderr(&second));
    for _ in 0..2 {
        site.database.kill();
        let requests = site.requests();
        eventually("rounds go on", || site.requests() > requests + 10);
        site.database.go();
        let rows = site.rows();
        eventually("the store takes rounds again", || site.rows() > rows + 10);
    }
    super::super::place::signal(robot.id(), rustix::process::Signal::INT);
    let mut said = String::new();
    std::io::Read::read_to_string(robot.stderr.as_mut().unwrap(), &mut said).unwrap();
    assert_eq!(robot.wait().unwrap().code(), Some(130), "{said}");
    assert!(said.contains("takes rounds again") && !said.contains(PASSWORD), "{said}");
    assert_eq!(site.requests(), 2 * site.rows(), "{said}");
}

/// Its kernel takes connections and bytes all the same: nothing is ever refused.
#[test]
fn a_frozen_database_keeps_no_robot_from_ending_and_gets_the_rounds_later() {
    let site = Site::start();
    let mut robot = site.robot(&["--every", "50ms"]);
    eventually("there are tables", || site.database.sql("probe", "SELECT 1 FROM rounds").status.success());
    eventually("rounds are in the store", || site.rows() > 2);
    site.database.freeze(true);
    let requests = site.requests();
    eventually("rounds go on", || site.requests() > requests + 10);
    super::super::place::signal(robot.id(), rustix::process::Signal::INT);
    let began = std::time::Instant::now();
    let mut said = String::new();
    std::io::Read::read_to_string(robot.stderr.as_mut().unwrap(), &mut said).unwrap();
    assert_eq!(robot.wait().unwrap().code(), Some(9), "{said}");
    assert!(began.elapsed() < std::time::Duration::from_secs(60), "{:?}", began.elapsed());
    assert!(said.contains("did not answer within") && said.contains("some wait in the spool"), "{said}");
    site.database.freeze(false);
    let robot = site.robot(&["--every", "1h", "--for", "1s"]).wait_with_output().unwrap();
    assert_eq!(robot.status.code(), Some(0), "{}", stderr(&robot));
    assert_eq!(site.requests(), 2 * site.rows());
}

#[test]
fn a_database_that_is_away_at_the_start_gets_the_rounds_later_and_wrong_passwords_are_told_at_once() {
    let mut site = Site::start();
    site.database.kill();
    let away = site.robot(&["--every", "50ms", "--for", "1s"]).wait_with_output().unwrap();
    assert_eq!(away.status.code(), Some(9), "{}", stderr(&away));
    assert!(stderr(&away).contains("the store is away") && stderr(&away).contains("spool"), "{}", stderr(&away));
    let requests = site.requests();
    assert!(requests > 0);
    site.database.go();
    let robot = site.robot(&["--every", "1h", "--for", "1s"]).wait_with_output().unwrap();
    assert_eq!(robot.status.code(), Some(0), "{}", stderr(&robot));
    assert_eq!((site.requests(), site.requests()), (requests + 2, 2 * site.rows()));
    let wrong = site.place.path().join("wrong");
    std::fs::write(&wrong, "a wrong password\n").unwrap();
    let refused = site.robot(&["--every", "1h", "--store-password-file", wrong.to_str().unwrap()]);
    let refused = refused.wait_with_output().unwrap();
    assert_eq!(refused.status.code(), Some(9), "{}", stderr(&refused));
    assert!(stderr(&refused).contains("password authentication failed"), "{}", stderr(&refused));
    assert!(!stderr(&refused).contains("a wrong password"));
    let report = site
        .place
        .tlsdyno(&["probe", "report", "--store", &site.store])
        .env("PGPASSFILE", site.database.pass_file())
        .output()
        .unwrap();
    assert_eq!(report.status.code(), Some(0), "{}", stderr(&report));
    assert!(String::from_utf8_lossy(&report.stdout).contains("A resumed session"));
}
