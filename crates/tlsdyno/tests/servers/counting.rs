//! Instructions counted under valgrind: each configuration has its count, two runs agree, and what was added to a stage
//! is found there.

use std::fs;

use tlsdyno::kinds::ablation::summary::counts::Counts;
use tlsdyno::store::{Record, Role, Store};
use tlsdyno_tls::{Stage, StageSet};

use crate::place::Place;

mod long {
    use super::*;

    /// Counts a full handshake with and without its signature, which executes so many instructions in addition.
    fn counted(added: u32) -> Record {
        let place = Place::new();
        let experiment = format!(
            r#"
question = "What does a signature take?"
method = "counting"
[server]
kind = "nginx"
[tls]
certificate = "p-256"
[workload]
kind = "url"
path = "/1k.bin"
bytes = 1024
users = 200
requests_per_user = 1
[load]
reuse_percent = 0.0
requests_per_connection = 1
[[configuration]]
name = "as is"
[[configuration]]
name = "nothing off"
wrapped = ["authentication", "kdf"]
{}
[[configuration]]
name = "no authentication"
noop = ["authentication"]
"#,
            if added > 0 { format!("burn_instructions = {added}") } else { String::new() }
        );
        fs::write(place.path().join("counted.toml"), experiment).unwrap();
        let output = place.run(&["run", "counted.toml", "--no-report"]);
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        Store::open_for_reading_at(&place.path().join("store.sqlite")).unwrap().load("last").unwrap()
    }

    /// Instructions per hit of the untouched server, and of the stage.
    fn of(record: &Record) -> (f64, f64) {
        let counts = Counts::of(record).expect("counts");
        assert!(counts.spread_percent.unwrap() < 0.2, "{counts:?}");
        let index =
            |is: &dyn Fn(&tlsdyno::store::Configuration) -> bool| record.configurations.iter().position(is).unwrap();
        let per_hit = |index| counts.per_hit(index).unwrap();
        let host = index(&|of| of.name == "nothing off");
        let off = index(&|of| of.noop == StageSet::NONE.with(Stage::Authentication));
        (per_hit(index(&|of| of.role == Role::AsIs)), per_hit(host) - per_hit(off))
    }

    /// What 32 handshakes repeat to is a few hundredths of a per cent of a hit (OpenSSL 3.5), which is far less than a
    /// tenth of the stage.
    #[test]
    #[ignore = "three minutes of valgrind: make test-long"]
    fn two_runs_agree_and_instructions_that_a_stage_has_more_are_found_in_it() {
        let (as_is, stage) = of(&counted(0));
        let added = (stage / 10.0) as u32;
        let (as_is_again, stage_with_more) = of(&counted(added));
        assert!((as_is / as_is_again - 1.0).abs() < 0.002, "{as_is} and {as_is_again} instructions");
        let found = stage_with_more - stage;
        assert!((found / f64::from(added) - 1.0).abs() < 0.3, "{added} added to {stage}, {found} found");
    }

    #[test]
    #[ignore = "a minute of valgrind: make test-long"]
    fn resumed_connections_are_counted_with_the_universal_session_of_the_counted_server() {
        let place = Place::new();
        let experiment = r#"
question = "What does the session cache take?"
method = ["removing", "counting"]
[server]
kind = "nginx"
[workload]
kind = "url"
path = "/1k.bin"
bytes = 1024
users = 200
requests_per_user = 1
[load]
reuse_percent = 100.0
requests_per_connection = 1
[measure]
time_s = 3.0
[[configuration]]
name = "as is"
[[configuration]]
name = "no session cache"
noop = ["session_cache"]
"#;
        fs::write(place.path().join("resumed.toml"), experiment).unwrap();
        let output = place.run(&["run", "resumed.toml", "--no-report"]);
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let shown = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(shown.contains("valgrind's callgrind") && shown.contains("OPENSSL_ia32cap="), "{shown}");
        let record = Store::open_for_reading_at(&place.path().join("store.sqlite")).unwrap().load("last").unwrap();
        let counted: Vec<_> = record.blocks.iter().filter(|block| block.instructions.is_some()).collect();
        // The time is too short for a second round on a slow machine.
        let each = |index| counted.iter().any(|block| block.configuration == index);
        assert!(each(0) && each(1), "{counted:?}");
        assert!(
            counted.iter().all(|block| block.valid && block.resumed_offered == block.resumed_intended),
            "{counted:?}"
        );
        assert_eq!(Counts::of(&record).expect("counts").per_hit(1).map(|count| count > 0.0), Some(true));
    }
}
