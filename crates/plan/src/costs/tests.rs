use tlsdyno_record::model::CertificateKind;
use tlsdyno_record::store::Machine;

use super::samples::{costs, source};
use super::*;

#[test]
fn known_costs_are_found_with_intervals_that_hold_them() {
    let costs = costs(0.05);
    let server = costs.at(Place::Server).unwrap();
    for (found, known) in server.costs_ns.iter().zip([900e3, 300e3, 40e3]) {
        let found = found.unwrap();
        assert!(found.low < known && known < found.high && found.half_width() < 0.2 * known, "{found:?} {known}");
    }
    assert_eq!(server.costs_ns[Term::Kilobyte as usize], None, "all responses are alike");
    let hop = costs.at(Place::Dispatcher).unwrap();
    assert!((hop.costs_ns[Term::Full as usize].unwrap().value / 50e3 - 1.0).abs() < 0.05);
    assert_eq!(hop.requests_included(), Some(1.0));
}

#[test]
fn what_cells_do_not_tell_apart_is_missing_with_its_command() {
    let one_mix = [[200.0, 800.0, 1000.0, 7e3]];
    let costs = Costs::of(&[source(Place::Server, [900.0, 300.0, 40.0, 0.0], &one_mix, 0.0)], None).unwrap();
    let needed = [Term::Full, Term::Resumed].map(|term| (Place::Server, term));
    let missing = costs.missing(&[needed[0], needed[1], (Place::Proxy, Term::Full)]);
    assert_eq!(missing.len(), 3, "{missing:?}");
    assert!(missing[2].contains("tlsdyno array"), "{missing:?}");
    let full_only = [[1000.0, 0.0, 1000.0, 7e3]];
    let costs = Costs::of(&[source(Place::Server, [900.0, 300.0, 40.0, 0.0], &full_only, 0.0)], None).unwrap();
    assert_eq!(costs.missing(&needed[..1]), [""; 0]);
    let full = costs.at(Place::Server).unwrap().costs_ns[0].unwrap().value;
    assert!((full / 940e3 - 1.0).abs() < 1e-6, "with its request: {full}");
}

#[test]
fn what_the_fit_misses_widens_intervals() {
    // A cost that grows faster than the count: the fit is wrong in each cell.
    let cells: Vec<Work> = [0.0, 0.3, 0.6, 0.9].map(|part| [1e3 * (1.0 - part), 1e3 * part, 1e3, 7e3]).into();
    let mut bent = source(Place::Server, [900.0, 300.0, 40.0, 0.0], &cells, 0.0);
    bent.rows.iter_mut().filter(|row| row.cell % 2 == 0).for_each(|row| row.cpu_ns *= 1.1);
    let costs = Costs::of(&[bent], None).unwrap();
    assert!(costs.at(Place::Server).unwrap().misfit_ratio.unwrap() > 0.03);
    let estimate = costs.estimate(|of| of.cpu_ns(Place::Server, [0.5, 0.5, 1.0, 0.0]));
    assert!(estimate.half_width() > 0.05 * estimate.value, "{estimate:?}");
}

#[test]
fn a_record_has_a_pace_of_its_own() {
    // The second run does the same for a fifth more; one cell of it tells that of all.
    let mix = |resumed: f64| [1e3 * (1.0 - resumed), 1e3 * resumed, 1e3, 7e3];
    let known = [900.0, 300.0, 0.0, 0.0];
    let first = source(Place::Server, known, &[mix(0.0), mix(0.9)], 0.01);
    let slower = known.map(|us| 1.2 * us);
    let second = source(Place::Server, slower, &[mix(0.5)], 0.01);
    let costs = Costs::of(&[first, second], None).unwrap();
    for (record, times) in [(0, 1.0), (1, 1.2)] {
        for resumed in [0.0, 0.3, 1.0] {
            let work = mix(resumed);
            let at = costs.at_pace_of(record).estimate(|of| of.cpu_ns(Place::Server, work));
            let truth = times * dot(known, work) * 1e3;
            assert!((at.value / truth - 1.0).abs() < 0.01, "{record} {resumed}: {at:?} {truth}");
            assert!(at.half_width() < 0.02 * truth, "{at:?}");
        }
    }
    assert!(!costs.knows_runs());
    let paces: Vec<f64> = costs.paces(Place::Server).into_iter().flatten().collect();
    assert!((paces[0].ln_1p() + paces[1].ln_1p()).abs() < 1e-6, "beside their mean: {paces:?}");
}

#[test]
fn what_runs_differ_by_widens_intervals_of_another_run() {
    let mix = |resumed: f64| [1e3 * (1.0 - resumed), 1e3 * resumed, 1e3, 7e3];
    let run = |times: f64| source(Place::Server, [900.0 * times, 300.0 * times, 0.0, 0.0], &[mix(0.0), mix(0.9)], 0.0);
    let full = |costs: &Costs| costs.estimate(|of| of.cpu_ns(Place::Server, mix(0.0)));
    let half_ratio = |costs: &Costs| full(costs).half_width() / full(costs).value;
    let runs = Costs::of(&[0.9, 1.1, 0.95, 1.05].map(run), None).unwrap();
    // A standard deviation of 9.2 % and one of four runs more; t of 3 degrees is 3.18, or 4.3 for so few rounds.
    assert!(runs.knows_runs() && (0.25..0.7).contains(&half_ratio(&runs)), "{:?}", full(&runs));
    let stated = Costs::of(&[run(1.0)], Some(0.05)).unwrap();
    assert!((0.09..0.14).contains(&half_ratio(&stated)), "{:?}", full(&stated));
    assert!(half_ratio(&stated.at_pace_of(0)) < 1e-3);
}

/// Whatever the costs, the cells and their noise are: no full handshake of a plan is below a resumed one, and each
/// of its costs has an interval above nothing.
#[test]
fn no_plan_comes_from_cells_that_cannot_tell() {
    let mut random = SplitMix64::new(52);
    let (mut planned, mut refused) = (0, 0);
    for _ in 0..30 {
        let mut up_to = |most: f64| most * random.uniform();
        let known = [up_to(1000.0), up_to(600.0), up_to(60.0), up_to(4.0)];
        let noise = up_to(0.3);
        let mut cell = || {
            let (resumed, requests, size) = (up_to(1.0).round(), 1.0 + 16.0 * up_to(1.0).round(), up_to(40.0));
            [1e3 * (1.0 - resumed), 1e3 * resumed, 1e3 * requests, 1e3 * requests * size.min(7.0)]
        };
        let cells: Vec<Work> = (0..5).map(|_| cell()).collect();
        let costs = Costs::of(&[source(Place::Server, known, &cells, noise)], None).unwrap();
        let of = costs.at(Place::Server).unwrap();
        match costs.refused() {
            Some(_) => refused += 1,
            None => {
                planned += 1;
                let [full, resumed] = [0, 1].map(|term| of.costs_ns[term].map(|_| of.point[term]));
                assert!(full.zip(resumed).is_none_or(|(full, resumed)| full >= resumed), "{of:?}");
                assert!(of.costs_ns.iter().flatten().all(|cost| 0.0 < cost.low && cost.low < cost.high), "{of:?}");
                let [least, most] = of.range.kilobytes;
                assert!(of.costs_ns[3].is_none() || most - least > KILOBYTES_APART, "{of:?}");
            }
        }
    }
    assert!(planned > 5 && refused > 5, "{planned} {refused}");
}

#[test]
fn one_size_of_pages_tells_no_kilobyte_and_contradictions_are_refused() {
    let size = |kilobytes: f64| {
        let cells = [[1.0, 0.0, 1.0], [0.0, 1.0, 1.0], [1.0, 0.0, 17.0]];
        cells.map(|[full, resumed, requests]| [full, resumed, requests, requests * kilobytes])
    };
    let known = [500.0, 200.0, 20.0, 2.5];
    let of = |cells: &[Work]| Costs::of(&[source(Place::Server, known, cells, 0.01)], None).unwrap();
    let site = crate::model::tests::site();
    let with = |kilobytes: f64| crate::model::Site { kilobytes: Some(kilobytes), ..site.clone() };
    let lacks = |costs: &Costs, kilobytes: f64| {
        let one = crate::model::Machines { servers: 1, proxies: 0 };
        costs.missing(&with(kilobytes).needs(one, costs)).join("; ")
    };
    let one = of(&size(0.04));
    assert_eq!(one.at(Place::Server).unwrap().costs_ns[Term::Kilobyte as usize], None);
    assert!(lacks(&one, 0.5).is_empty() && lacks(&one, 30.0).contains("tlsdyno cost https://… --page"));
    let two = of(&[size(0.04), size(100.0)].concat());
    let kilobyte = two.at(Place::Server).unwrap().costs_ns[Term::Kilobyte as usize].unwrap();
    assert!(kilobyte.low < 2500.0 && 2500.0 < kilobyte.high && lacks(&two, 30.0).is_empty(), "{kilobyte:?}");
    // A resumed handshake that costs nothing.
    let thin = Costs::of(&[source(Place::Server, [250.0, 0.0, 250.0, 0.0], &size(0.04), 0.01)], None).unwrap();
    let said = thin.refused().unwrap();
    assert!(said.contains("resumed handshake") && said.contains("tlsdyno cost"), "{said}");
    let upside_down = Costs::of(&[source(Place::Server, [200.0, 450.0, 20.0, 0.0], &size(0.04), 0.01)], None);
    assert!(upside_down.unwrap().refused().unwrap().contains("a contradiction"));
}

#[test]
fn records_of_different_servers_are_doubted() {
    let cells = [[1000.0, 0.0, 1000.0, 7e3]];
    let one = source(Place::Server, [900.0, 300.0, 40.0, 0.0], &cells, 0.0);
    let mut other = one.clone();
    other.told.agreed[0] = Choice::Certificate(CertificateKind::P256);
    assert_eq!(Costs::of(&[one.clone(), one.clone()], None).unwrap().doubts, [""; 0]);
    assert!(Costs::of(&[one.clone(), other], None).unwrap().doubts[0].contains("certificate"));
    let machine = Some(Machine::of_cpuinfo("flags: avx512ifma"));
    let other = Source { id: "77ab".to_owned(), machine, ..one.clone() };
    assert!(
        Costs::of(&[one.clone(), other], None).unwrap().doubts[0]
            .starts_with("3fd1 and 77ab: the machines differ (only the second has avx512ifma)")
    );
    let old = Source { id: "77ab".to_owned(), machine: None, ..one.clone() };
    assert!(Costs::of(&[one, old], None).unwrap().doubts[0].contains("a record does not say"));
}
