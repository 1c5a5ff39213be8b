//! A calibration on a made-up record: costs that were put in are found, and reports carry the limit.

use serde_json::Value;
use tlsdyno::kinds::ablation::summary::calibration::{Names, evaluate};
use tlsdyno::random::SplitMix64;
use tlsdyno::stats::rounds::Rounds;
use tlsdyno::store::{Block, Calibration, Configuration, Record, Role};
use tlsdyno_lab::KINDS;

use crate::synthetic::Synthetic;

/// Microseconds of server CPU per hit beyond those of the untouched server, which takes 400.
const COSTS_US: [(&str, Role, f64); 5] = [
    ("as is", Role::AsIs, 0.0),
    ("nothing off", Role::Loaded, 3.0),
    ("again", Role::Setting, 0.0),
    ("burn 20 µs", Role::Setting, 23.0),
    ("burn 200 µs", Role::Setting, 203.0),
];
const HITS: u64 = 1_000;

fn names() -> Names {
    Names {
        again: "again".to_owned(),
        burning: vec![(20.0, "burn 20 µs".to_owned()), (200.0, "burn 200 µs".to_owned())],
    }
}

/// So many rounds on a machine whose pace drifts by a tenth from round to round.
fn record(rounds: u32) -> Record {
    let mut random = SplitMix64::new(5);
    let mut blocks = Vec::new();
    for round in 0..rounds {
        let drift = (0.1 * random.normal()).exp();
        for (configuration, (_, _, added_us)) in COSTS_US.iter().enumerate() {
            let ns = (400.0 + added_us) * 1e3 * drift * (1.0 + 0.01 * random.normal());
            let server_cpu_ns = (ns * HITS as f64) as u64;
            let block = Block { round, configuration, server_cpu_ns, elapsed_ns: server_cpu_ns, ..Block::default() };
            blocks.push(Block { hits: HITS, connections: HITS, handshakes_full: HITS, valid: true, ..block });
        }
    }
    let configuration = |(name, role, _)| Configuration { role, ..Configuration::setting(name, true, Vec::new()) };
    let configurations = COSTS_US.map(|of: (&str, Role, f64)| configuration(of)).into();
    Record { configurations, blocks, ..Synthetic::default().record() }
}

#[test]
fn what_was_injected_is_recovered() {
    let calibration = evaluate(&Rounds::of(&record(24)), &names()).expect("a calibration");
    assert_eq!(calibration.recovered.iter().map(|of| of.injected_us).collect::<Vec<_>>(), [0.0, 20.0, 200.0]);
    for of in &calibration.recovered {
        assert!(of.bias_us().abs() < 6.0 && of.low_us < of.measured_us && of.measured_us < of.high_us, "{of:?}");
    }
    assert!((calibration.hit_us - 400.0).abs() < 30.0 && calibration.spread_us > 0.0, "{calibration:?}");
    let limits = [10.0, 60.0].map(|seconds| calibration.limit_us(seconds));
    assert!(limits[1] > 0.0 && limits[1] < limits[0], "{limits:?}");
    assert!(evaluate(&Rounds::of(&record(2)), &names()).is_none(), "too few rounds");
}

#[test]
fn reports_carry_the_limit_of_the_last_calibration() {
    let json = |calibration: Option<Calibration>| -> Value {
        let mut record = record(24);
        record.manifest.calibration = calibration;
        serde_json::from_str(&KINDS.json_text(&record).unwrap()).unwrap()
    };
    assert!(json(None)["detection_limit_percent"].is_null(), "never calibrated");
    let calibration = evaluate(&Rounds::of(&record(24)), &names());
    let limit = calibration.as_ref().unwrap().limit_percent(9.6);
    let told = json(calibration)["detection_limit_percent"].as_f64().unwrap();
    // Each configuration was measured for 24 rounds of 0.4 s and more.
    assert!(told > 0.5 * limit && told < 1.5 * limit, "{told} {limit}");
}
