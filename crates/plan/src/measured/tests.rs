//! Made-up records of `tlsdyno cost` with known costs, as plans see them.

use tlsdyno_base::random::SplitMix64;
use tlsdyno_cost::file::{Cost, CostExperiment};
use tlsdyno_cost::steps::Step;
use tlsdyno_record::model::CertificateKind;
use tlsdyno_record::store::{BackendUse, ClusterBlock, Configuration, KindPart};
use tlsdyno_tls::{Group, Signer};

use super::*;
use crate::costs::Costs;
use crate::model::{Machines, Site};
use crate::what_if;

const ROUNDS: u32 = 12;
/// What a signature costs, microseconds.
const RSA_US: f64 = 420.0;
const ECDSA_US: f64 = 40.0;
/// 2.5 µs for a kilobyte.
const KILOBYTE_US: f64 = 2.5;

/// A server that shows these certificates, the first one to who takes both; `is_old`: its record does not hold that.
fn server(keys: &[CertificateKind], pages: &[&str], is_old: bool) -> Measured {
    let pages: Vec<String> = pages.iter().map(|page| (*page).to_owned()).collect();
    let mut steps = Step::all(Version::Tls13, &pages, false);
    steps.retain(|step| step.id.signer.is_none_or(|signer| keys.iter().any(|key| key.signer() == Some(signer))));
    Measured {
        address: "127.0.0.1:8443".to_owned(),
        negotiated: "1.3 TLS_AES_128_GCM_SHA256 X25519".to_owned(),
        group: Some(Group::X25519),
        accounting: "processes".to_owned(),
        whole: StepId::whole(Version::Tls13, false).to_string(),
        keys: if is_old { Vec::new() } else { keys.to_vec() },
        steps,
        ..Measured::default()
    }
}

fn kilobytes(step: &StepId) -> f64 {
    if step.page.is_empty() { 0.04 } else { 100.0 }
}

fn cost_us(step: &StepId, usual: CertificateKind) -> f64 {
    let is_rsa = step.signer.map_or(usual.is_rsa(), |signer| signer == Signer::Rsa);
    let signature = if is_rsa { RSA_US } else { ECDSA_US };
    let hybrid = if step.group == Some(Group::X25519MlKem768) { 60.0 } else { 0.0 };
    let requests = f64::from(1 + step.more_requests) * (20.0 + KILOBYTE_US * kilobytes(step));
    let handshake = hybrid + if step.resumes.is_none() { 130.0 + signature } else { 130.0 };
    match step.reach {
        Reach::Tcp | Reach::Opened => 20.0,
        Reach::Refused => 50.0,
        Reach::Flight => handshake,
        Reach::Finished => handshake + 30.0,
        Reach::Answered => handshake + 30.0 + requests,
    }
}

/// A record of them, each with the certificate of its usual handshake.
fn record(servers: Vec<(Measured, CertificateKind)>, rounds: u32) -> Record {
    let mut record = Record::begun_now("What does it cost?", 1);
    let mut random = SplitMix64::new(7);
    let steps: Vec<(Step, CertificateKind)> =
        servers.iter().flat_map(|(of, usual)| of.steps.iter().map(|step| (step.clone(), *usual))).collect();
    for (step, _) in &steps {
        record.configurations.push(Configuration::setting(&step.name, true, Vec::new()));
    }
    for round in 0..rounds {
        for (configuration, (step, usual)) in steps.iter().enumerate() {
            let cpu_ns = 40.0 * 1e3 * cost_us(&step.id, *usual) * (1.0 + 0.005 * random.normal());
            let has_body = f64::from(u8::from(step.id.reach == Reach::Answered));
            record.blocks.push(Block {
                round,
                configuration,
                hits: 40,
                connections: 40,
                elapsed_ns: 1_000_000,
                server_cpu_ns: cpu_ns as u64,
                // As records of old have them: those of the last answer.
                body_bytes: (40.0 * 1e3 * kilobytes(&step.id) * has_body) as u64,
                valid: true,
                ..Block::default()
            });
        }
    }
    let cost = Cost { url: "https://127.0.0.1:8443/".to_owned(), ..Cost::default() };
    let experiment = CostExperiment { cost, ..CostExperiment::default() };
    let servers = servers.into_iter().map(|(of, _)| of).collect();
    Record {
        id: "3fd1c07a92e4".to_owned(),
        finished: true,
        kind_part: KindPart::from(CostRecord { experiment, servers }),
        ..record
    }
}

const BOTH: [CertificateKind; 2] = [CertificateKind::P256, CertificateKind::Rsa2048];

fn site() -> Site {
    Site { reuse_fraction: 0.0, ..crate::model::tests::site() }
}

/// CPU time of a hit on a new connection with a change, microseconds; or why that is not told.
fn with(costs: &Costs, change: &str) -> Result<f64, String> {
    let changes = what_if::find(&[change.to_owned()]).unwrap();
    let (site, costs) = changes[0].made(&site(), costs, None)?;
    Ok(site.predict(&costs, Machines { servers: 1, proxies: 0 }, None).cpu_ns_per_hit.value / 1e3)
}

fn costs_of(sources: &[Source]) -> Costs {
    let costs = Costs::of(sources, None).unwrap();
    assert_eq!(costs.refused(), None);
    costs
}

fn near(found: f64, known: f64) {
    assert!((found / known - 1.0).abs() < 0.03, "{found} {known}");
}

#[test]
fn a_server_that_shows_ecdsa_already_gains_nothing_by_it() {
    let all = record(vec![(server(&BOTH, &[], false), BOTH[0])], ROUNDS);
    let costs = costs_of(&[Source::of(&all, None).unwrap()]);
    let as_is = with(&costs, "shared ticket keys").unwrap();
    near(as_is, 130.0 + ECDSA_US + 30.0 + 20.0);
    assert_eq!(with(&costs, "p-256"), Ok(as_is));
    near(with(&costs, "rsa-2048").unwrap(), as_is + RSA_US - ECDSA_US);
    near(with(&costs, "hybrid group").unwrap(), as_is + 60.0);
    near(with(&costs, "accelerator 4x").unwrap(), as_is - 0.75 * ECDSA_US);
    // A record of old does not say which of the two it is: it is not taken away twice.
    let old = record(vec![(server(&BOTH, &[], true), BOTH[0])], ROUNDS);
    let costs = costs_of(&[Source::of(&old, None).unwrap()]);
    near(with(&costs, "hybrid group").unwrap(), as_is + 60.0);
    assert!(with(&costs, "p-256").unwrap_err().contains("do not tell what their cells have"));
}

/// RSA now, ECDSA then: by a record of another server that has both.
#[test]
fn a_server_with_rsa_learns_what_ecdsa_would_save() {
    let rsa = CertificateKind::Rsa2048;
    let alone = record(vec![(server(&[rsa], &[], false), rsa)], ROUNDS);
    let own = Source::of(&alone, None).unwrap();
    let missing = with(&costs_of(std::slice::from_ref(&own)), "p-256").unwrap_err();
    assert!(missing.contains("p-256 costs in place of certificate rsa-2048") && missing.contains("@0"), "{missing}");
    let both = record(vec![(server(&BOTH, &[], false), BOTH[0])], ROUNDS);
    let differences = Source::of(&both, Some(&[])).unwrap();
    let costs = costs_of(&[own, differences]);
    let as_is = with(&costs, "shared ticket keys").unwrap();
    near(as_is, 130.0 + RSA_US + 30.0 + 20.0);
    near(with(&costs, "p-256").unwrap(), as_is - RSA_US + ECDSA_US);
    // What another size costs nobody knows.
    let small = record(vec![(server(&[CertificateKind::Rsa4096], &[], false), rsa)], ROUNDS);
    let small = Source::of(&small, None).unwrap();
    let costs = costs_of(&[small, Source::of(&both, Some(&[])).unwrap()]);
    assert!(with(&costs, "p-256").unwrap_err().contains("in place of certificate rsa-4096"));
}

#[test]
fn two_pages_tell_a_kilobyte_and_one_does_not() {
    let of = |pages: &[&str]| {
        let all = record(vec![(server(&BOTH, pages, false), BOTH[0])], ROUNDS);
        costs_of(&[Source::of(&all, None).unwrap()])
    };
    let kilobyte = |costs: &Costs| costs.at(Place::Server).unwrap().costs_ns[Term::Kilobyte as usize];
    assert_eq!(kilobyte(&of(&[])), None);
    near(kilobyte(&of(&["/large"])).unwrap().value, 1e3 * KILOBYTE_US);
}

#[test]
fn a_thin_record_is_refused_with_the_command_that_measures_it_again() {
    let thin = record(vec![(server(&BOTH, &[], false), BOTH[0])], FEW_ROUNDS - 1);
    let said = Source::of(&thin, None).unwrap_err().to_string();
    assert!(said.contains("4 rounds") && said.contains("tlsdyno cost https://127.0.0.1:8443/ --time"), "{said}");
    let mut cut = record(vec![(server(&BOTH, &[], false), BOTH[0])], ROUNDS);
    let resumed = cut.configurations.iter().position(|of| of.name == "TLS 1.3, resumed, handshake").unwrap();
    cut.blocks.retain(|block| block.configuration != resumed || block.round == 0);
    let said = Source::of(&cut, None).unwrap_err().to_string();
    assert!(said.contains("`TLS 1.3, resumed, handshake` was measured in 1 round"), "{said}");
    assert!(Source::of(&cut, Some(&[])).is_ok(), "its differences serve");
}

/// Its texts may change: a plan finds what it needs by what steps and servers are.
#[test]
fn another_label_for_everything_changes_no_plan() {
    let mut written = serde_json::to_value(record(vec![(server(&BOTH, &["/large"], false), BOTH[0])], ROUNDS)).unwrap();
    let read = |written: &serde_json::Value| {
        let record: Record = serde_json::from_value(written.clone()).unwrap();
        Source::of(&record, None).unwrap()
    };
    let before = read(&written);
    for step in written["cost"]["servers"][0]["steps"].as_array_mut().unwrap() {
        step["name"] = "another name".into();
    }
    for configuration in written["configurations"].as_array_mut().unwrap() {
        configuration["name"] = "another name".into();
    }
    for (field, text) in [("whole", "another name"), ("negotiated", "what people read")] {
        written["cost"]["servers"][0][field] = text.into();
    }
    written["question"] = "What else?".into();
    let after = read(&written);
    assert_eq!(after, before);
    assert_eq!(before.told.agreed.len(), 3);
    for change in ["p-256", "rsa-2048", "hybrid group", "accelerator 4x"] {
        let [before, after] = [&before, &after].map(|of| with(&costs_of(std::slice::from_ref(of)), change));
        assert!(before.is_ok() && before == after, "{change}: {before:?} {after:?}");
    }
}

/// Two front ends that end TLS, before two servers: their handshakes are those of proxies, and the rest stands behind.
#[test]
fn front_ends_are_proxies_before_their_servers() {
    let mut record = Record::begun_now("What does lard make of a cluster?", 1);
    record.configurations.push(Configuration::setting("lard behind 2 front ends", true, Vec::new()));
    let machine = |cpu_ns| BackendUse { cpu_ns, ..BackendUse::default() };
    let parts = ClusterBlock {
        dispatcher_cpu_ns: 7_000,
        front_ends: vec![machine(60_000), machine(40_000)],
        backends: vec![machine(20_000), machine(10_000)],
        ..ClusterBlock::default()
    };
    record.blocks.push(Block {
        hits: 100,
        connections: 100,
        handshakes_full: 20,
        resumed_accepted: 80,
        elapsed_ns: 1_000_000_000,
        server_cpu_ns: 130_000,
        valid: true,
        cluster: Some(parts),
        ..Block::default()
    });
    let rows = of_cells(&record, &Rounds::of(&record), &|_| Some(Place::Server));
    let told: Vec<(Place, [f64; 2], f64, f64)> =
        rows.iter().map(|row| (row.place, [row.work[0], row.work[1]], row.cpu_ns, row.rate_per_s)).collect();
    let none = [0.0, 0.0];
    assert_eq!(told[0], (Place::Proxy, [20.0, 80.0], 100_000.0, 50.0));
    assert_eq!(told[1], (Place::Behind, none, 30_000.0, 100.0));
    assert_eq!((told[2].0, told[2].2), (Place::Dispatcher, 7_000.0));
}
