//! Named shares, comparisons, remedies, setup against data, and a paper's numbers beside ours: on made-up records with
//! known truth.

use crate::questions;

use serde_json::Value;
use tlsdyno::kinds::ablation::page::published::what_changed;
use tlsdyno::kinds::ablation::summary::scoreboard::claims;
use tlsdyno::kinds::ablation::summary::{Share, Summary};
use tlsdyno::model::{ComparisonModel, Experiment, Processors, Quantity, ShareClaimModel};
use tlsdyno::report::Style;
use tlsdyno::stats::remainders::MISSING;
use tlsdyno::stats::scoreboard::Fate;
use tlsdyno::stats::{Direction, Metric, Verdict};
use tlsdyno::store::Record;
use tlsdyno_lab::KINDS;

/// The record of the smallest experiment that asks everything.
fn record() -> Record {
    questions::record(12, 0.01)
}

/// The same record with `a` and `b` of the first comparison exchanged.
fn turned(record: &Record) -> Record {
    let mut record = record.clone();
    record.kind_part.change(|experiment: &mut Experiment| {
        let first = &mut experiment.comparisons[0];
        std::mem::swap(&mut first.a, &mut first.b);
    });
    record
}

fn share<'a>(summary: &'a Summary, name: &str, metric: Metric) -> &'a Share {
    summary.shares.by(metric).find(|share| share.stage == name).unwrap_or_else(|| panic!("no share {name}"))
}

#[test]
fn named_shares_are_the_steps_that_the_experiment_names() {
    let summary = Summary::of(&record());
    for metric in Metric::ALL {
        let names: Vec<&str> = summary.shares.by(metric).map(|share| share.stage.as_str()).collect();
        assert_eq!(names, ["RSA", "session cache", "what is left", MISSING]);
        for (name, truth) in [("RSA", 50.0), ("session cache", 5.0), ("what is left", 30.0), (MISSING, 15.0)] {
            let got = share(&summary, name, metric);
            assert!((got.percent - truth).abs() < 2.0, "{name} by {metric:?}: {got:?}");
            assert!(got.low < got.percent && got.percent < got.high, "{name} by {metric:?}: {got:?}");
        }
        let sum: f64 = summary.shares.by(metric).map(|share| share.percent).sum();
        assert!((sum - 100.0).abs() < 1e-9);
    }
    assert!(share(&summary, "what is left", Metric::Cpu).left && !share(&summary, "RSA", Metric::Cpu).left);
}

#[test]
fn a_share_whose_configuration_failed_is_missing_to_100_percent() {
    let mut record = record();
    let failed = record.configurations.iter().position(|of| of.name == "no RSA").expect("there");
    record.configurations[failed].valid = false;
    let summary = Summary::of(&record);
    let missing = share(&summary, MISSING, Metric::Cpu);
    assert_eq!(missing.without, ["RSA", "session cache"]);
    assert!((missing.percent - 70.0).abs() < 2.0, "the session cache is a step from \"no RSA\": {missing:?}");
    let text = KINDS.terminal_text(&record, Style::PLAIN).unwrap();
    assert!(
        text.contains("missing to 100 % (with RSA, session cache)")
            && text.contains("no share of its own for RSA, session cache"),
        "{text}"
    );
}

#[test]
fn comparisons_say_which_serves_more_or_that_it_is_undecided() {
    let summary = Summary::of(&record());
    let [rsa, same, gone] = &summary.findings.comparisons[..] else { panic!("three comparisons") };
    let ratio = rsa.ratio.expect("measured");
    assert_eq!(ratio.direction, Direction::Bigger);
    assert!(ratio.low < ratio.times && ratio.times < ratio.high && (ratio.times - 2.0).abs() < 0.05, "{ratio:?}");
    assert_eq!(same.ratio.expect("measured").direction, Direction::Undecided);
    assert_eq!(gone.ratio, None, "a configuration without a block is not compared");
    let exchanged = turned(&record());
    let turned = Summary::of(&exchanged).findings.comparisons[0].ratio.expect("measured");
    assert_eq!(turned.direction, Direction::Smaller);
    assert!((turned.times * ratio.times - 1.0).abs() < 1e-9, "a/b and b/a say the same");
}

#[test]
fn a_bound_decides_only_what_it_can() {
    let mut record = record();
    // The client limited "no RSA": it may serve even more.
    let index = record.configurations.iter().position(|of| of.name == "no RSA").expect("there");
    let limit = |record: &mut Record, index: usize| {
        record
            .blocks
            .iter_mut()
            .filter(|block| block.configuration == index)
            .for_each(|block| block.client_bound = true);
    };
    limit(&mut record, index);
    let ratio = Summary::of(&record).findings.comparisons[0].ratio.expect("measured");
    assert!(ratio.at_least && !ratio.at_most && ratio.direction == Direction::Bigger, "{ratio:?}");
    // The client limited "as is" too: then hits per second say nothing, and CPU per hit decides.
    limit(&mut record, 0);
    let summary = Summary::of(&record);
    let answer = &summary.findings.comparisons[0];
    let ratio = answer.ratio.expect("measured");
    assert!(ratio.at_most && ratio.direction == Direction::Undecided, "{ratio:?}");
    assert_eq!(answer.decided_by, Some(Metric::Cpu));
    let text = KINDS.terminal_text(&record, Style::PLAIN).unwrap();
    assert!(text.contains("by CPU per hit \"no RSA\" serves"), "{text}");
    // Not where one has more processors than the other.
    record.kind_part.change(|experiment: &mut Experiment| {
        let model = experiment.configurations.iter_mut().find(|model| model.name == "no RSA").expect("there");
        model.processors = Some(Processors { count: 2, ..Processors::default() });
    });
    assert_eq!(Summary::of(&record).findings.comparisons[0].decided_by, None);
}

#[test]
fn few_rounds_decide_nothing() {
    let summary = Summary::of(&questions::record(4, 0.001));
    assert!(
        summary.findings.comparisons.iter().filter_map(|of| of.ratio).all(|of| of.direction == Direction::Undecided)
    );
}

#[test]
fn remedies_are_ranked_by_what_they_gain_and_nothing_unmeasured_is_recommended() {
    let record = record();
    let summary = Summary::of(&record);
    let names: Vec<&str> = summary.findings.remedies.iter().map(|of| of.name.as_str()).collect();
    assert_eq!(names, ["a perfect accelerator", "the same again", "more memory", "a tenth server", "a session cache"]);
    let text = KINDS.terminal_text(&record, Style::PLAIN).unwrap();
    let place = |what: &str| text.find(what).unwrap_or_else(|| panic!("{what} is not in\n{text}"));
    assert!(place("1. A perfect accelerator (a bound: it cannot be had itself): +") < place("2. The same again"));
    assert!(place("2. The same again") < place("hits/s – undecided"));
    assert!(place("3. More memory: -") < place("a loss"));
    assert!(place("In place already") < place("A session cache: +2"));
    assert!(!text.contains("ssl_session_cache"), "neither for a loss nor for what is there is anything to do\n{text}");
    assert!(text.contains("Not measured here, so not recommended: a tenth server."), "{text}");
    assert!(place("What to do about it") > place("hits/s"));
}

#[test]
fn what_amdahl_predicts_of_an_accelerator_stands_beside_what_was_measured() {
    let record = questions::accelerators(12, 0.005);
    let summary = Summary::of(&record);
    let [one, two] = &summary.findings.accelerators[..] else { panic!("{:#?}", summary.findings.accelerators) };
    assert_eq!((&*one.over, &*one.ideal, one.speed), ("as is", "no RSA", 4.0));
    assert_eq!((&*two.over, &*two.ideal, two.speed), ("two CPUs", "two CPUs, no RSA", 2.0));
    let near = |got: f64, truth: f64| assert!((got / truth - 1.0).abs() < 0.01, "{got} is not {truth}");
    assert_eq!(one.by.iter().map(|by| by.share.metric).collect::<Vec<_>>(), Metric::ALL);
    for by in &one.by {
        near(by.share.percent, 50.0);
        near(by.predicted.times, 1.0 / 0.625);
        near(by.unlimited.times, 2.0);
        near(by.measured_by_predicted.times, 0.625 / 0.55);
        assert!(by.predicted.low < 1.6 && 1.6 < by.predicted.high, "{by:?}");
        assert_eq!(by.measured_by_predicted.direction, Direction::Bigger);
    }
    near(one.measured.times, 1.0 / 0.55);
    let left = one.left_percent;
    assert!((left.value - 10.0).abs() < 2.0 && left.low < 10.0 && left.high > 10.0, "5 of 50: {left:?}");
    near(two.by[1].predicted.times, 1.0 / 0.75);
    assert!(two.by.iter().all(|by| by.measured_by_predicted.direction == Direction::Undecided), "{two:#?}");

    let text = KINDS.terminal_text(&record, Style::PLAIN).unwrap().replace("\n    ", " ").replace("\n  ", " ");
    assert!(text.contains("\"accelerator\", 4 times as fast as the server's CPU"), "{text}");
    assert!(text.contains("the measured gain is larger (1.1"), "{text}");
    assert!(text.contains("larger or smaller is undecided"), "{text}");
    assert!(KINDS.html(&record).expect("a page").contains("id=\"accelerators\""));
    let printed: Value = serde_json::from_str(&KINDS.json_text(&record).unwrap()).expect("JSON");
    assert_eq!(printed["accelerators"][0]["by"][1]["share"]["metric"], "throughput");
}

#[test]
fn a_prediction_from_a_limited_configuration_is_a_bound() {
    let mut record = questions::accelerators(12, 0.005);
    // The client limited "no RSA": the share by time, and with it the prediction, may be larger.
    record.blocks.iter_mut().filter(|block| block.configuration == 1).for_each(|block| block.client_bound = true);
    let predictions = Summary::of(&record).findings.accelerators;
    let [cpu, time] = &predictions[0].by[..] else { panic!("two shares") };
    assert!(time.predicted.at_least && time.measured_by_predicted.at_most, "{time:?}");
    assert_eq!(time.measured_by_predicted.direction, Direction::Undecided);
    assert!(!cpu.predicted.at_least && cpu.measured_by_predicted.direction == Direction::Bigger, "{cpu:?}");
}

#[test]
fn setup_and_data_add_up_with_the_discrepancy() {
    let summary = Summary::of(&questions::setup_and_data(12, 0.005));
    let cpu = summary.findings.setup_and_data.iter().find(|part| part.metric == Metric::Cpu).expect("measured");
    for (got, truth) in [(&cpu.whole, 80.0), (&cpu.setup, 55.0), (&cpu.data, 20.0), (&cpu.discrepancy, 5.0)] {
        assert!((got.percent - truth).abs() < 1.0, "{got:?} is not {truth}");
        assert_eq!(got.verdict, Verdict::Resolved);
    }
    let sum = cpu.setup.percent + cpu.data.percent + cpu.discrepancy.percent;
    assert!((sum - cpu.whole.percent).abs() < 1e-9);
    // The paper's arithmetic over its own throughputs (reference_pairs.csv, s310_CS_setup_500).
    let beside = summary.published.as_ref().and_then(|of| of.setup_and_data.as_ref()).expect("published");
    assert!((beside.setup[0] - 62.808).abs() < 1e-3 && (beside.data[0] - 33.772).abs() < 1e-3, "{beside:?}");
    assert!(
        (beside.discrepancy[0] - (79.028 - 62.808 - 33.772)).abs() < 1e-2 && beside.whole[1].is_nan(),
        "{beside:?}"
    );
    let changed = what_changed(&summary).join("\n");
    assert!(changed.contains("Connection setup costs more than data exchange"), "{changed}");
}

#[test]
fn the_papers_numbers_stand_beside_ours() {
    let record = record();
    let summary = Summary::of(&record);
    let beside = summary.published.as_ref().expect("the experiment names a paper");
    let rsa = beside.shares.iter().find(|row| row.share == "RSA").expect("published");
    assert_eq!((rsa.percent[0].mean(), rsa.computed[0]), (58.0, false), "what the paper prints");
    assert!(rsa.computed[1] && (rsa.percent[1].mean() - 56.5).abs() < 1e-9, "computed from its throughputs: {rsa:?}");
    assert_eq!(rsa.by_cpu, Some(Direction::Smaller));
    let as_is = &beside.configurations[0];
    assert!(
        (as_is.percent_of_reference[0] - 100.0 * 147.0 / 1370.0).abs() < 1e-9 && as_is.percent_of_reference[1].is_nan()
    );
    let changed = what_changed(&summary).join("\n");
    assert!(changed.contains("TLS divides what this server can do by 5.0"), "{changed}");
    assert!(changed.contains("what the paper's could do by 9.3: that is smaller"), "{changed}");
    assert!(changed.contains("smaller: RSA") && changed.contains("bigger: session cache"), "{changed}");
    assert!(
        changed
            .contains("Largest first, here: RSA, session cache; in the paper, over its machines: RSA, session cache"),
        "{changed}"
    );
    let text = KINDS.terminal_text(&record, Style::PLAIN).unwrap();
    assert!(text.contains("58 / 56") || text.contains("58 / 57"), "{text}");
    assert!(text.contains("Not as in the paper: Another server."), "{text}");
    assert!(text.lines().all(|line| line.chars().count() <= Style::PLAIN.width), "{text}");
}

#[test]
fn a_range_over_all_machines_is_judged_as_a_range() {
    let of = |shares: &[&str], each: bool, above: &[&str], published_percent: [f64; 2], rounds: u32| {
        let mut record = questions::record(rounds, 0.01);
        let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        let claim = ShareClaimModel {
            question: "range".to_owned(),
            shares: names(shares),
            each,
            above: names(above),
            paper: "as printed".to_owned(),
            published_percent,
        };
        record.kind_part.change(|experiment: &mut Experiment| experiment.share_claims.push(claim.clone()));
        let all = claims(&Summary::of(&record));
        let claim = all.iter().find(|claim| claim.about == "range").cloned().expect("a claim");
        (claim.ours.map_or(f64::NAN, |ours| ours.estimate.value.round()), claim.fate, all.len())
    };
    // Truth: RSA 50, session cache 5, what is left 30.
    let (value, fate, with) = of(&["RSA"], false, &[], [13.0, 58.0], 12);
    assert_eq!((value, fate), (50.0, Fate::Stands));
    assert_eq!(of(&["RSA"], false, &[], [13.0, 40.0], 12).1, Fate::Bigger);
    assert_eq!(of(&["RSA"], false, &[], [54.0, 58.0], 12).1, Fate::Smaller);
    assert_eq!(of(&["RSA"], false, &[], [13.0, 49.5], 12).1, Fate::Undecided, "across an end");
    assert_eq!(of(&["RSA"], false, &[], [13.0, 58.0], 1).1, Fate::Undecided, "no verdict without an interval");
    let sum = of(&["session cache", "what is left"], false, &[], [30.0, 40.0], 12);
    assert_eq!((sum.0, sum.1), (35.0, Fate::Stands));
    let largest = of(&["session cache", "what is left"], true, &[], [0.0, 20.0], 12);
    assert_eq!((largest.0, largest.1), (30.0, Fate::Bigger));
    let ahead = of(&["RSA"], false, &["session cache", "what is left"], [0.0, 100.0], 12);
    assert_eq!((ahead.0, ahead.1), (20.0, Fate::Stands), "before the largest of the others");
    assert_eq!(of(&["session cache"], false, &["RSA"], [0.0, 100.0], 12).1, Fate::Smaller);
    // The share that has a range of its own is no second claim.
    assert_eq!(sum.2, with + 1);
}

#[test]
fn without_plain_http_throughputs_are_parts_of_the_first_that_was_published() {
    let mut record = record();
    record.kind_part.change(|experiment: &mut Experiment| {
        let paper = experiment.paper.as_mut().expect("there");
        paper.numbers.get_mut(&Quantity::HitsPerS).and_then(|rows| rows.remove("plain HTTP")).expect("published");
    });
    let summary = Summary::of(&record);
    let beside = summary.published.as_ref().expect("the experiment names a paper");
    assert_eq!(beside.reference, "as is");
    let row = |name: &str| beside.configurations.iter().find(|row| row.configuration == name).expect("published");
    assert_eq!((row("as is").percent_of_reference[0], row("as is").ratio), (100.0, None));
    let ours = row("no RSA").ratio.expect("measured");
    assert!((ours.times - 2.0).abs() < 0.05 && row("no RSA").by_cpu.is_none(), "{ours:?}");
    let text = KINDS.terminal_text(&record, Style::PLAIN).unwrap();
    assert!(text.contains("Per cent of the hits per second of \"as is\"") && !text.contains("from CPU, %"), "{text}");
}

#[test]
fn the_page_and_the_json_hold_the_same() {
    let record = record();
    let page = KINDS.html(&record).expect("a page");
    for part in [
        "id=\"comparisons\"",
        "id=\"paper-shares\"",
        "id=\"paper-throughput\"",
        "id=\"what-changed\"",
        "id=\"remedies\"",
    ] {
        assert!(page.contains(part), "{part}");
    }
    assert!(page.contains("In place already") && page.contains("missing to 100 %"));
    let printed: Value = serde_json::from_str(&KINDS.json_text(&record).unwrap()).expect("JSON");
    let remedies = printed["remedies"].as_array().expect("a list");
    let cache = remedies.iter().find(|remedy| remedy["name"] == "a session cache").expect("there");
    assert_eq!(cache["configuration_lines"][0], "ssl_session_cache shared:SSL:10m;");
    assert_eq!(printed["comparisons"][0]["ratio"]["direction"], "bigger");
    assert!(printed["comparisons"][2]["ratio"].is_null());
    assert!(printed["paper"]["configurations"][0]["percent_of_reference"][1].is_null(), "JSON has no NaN");
    assert_eq!(printed["what_changed"].as_array().map(Vec::len), Some(3));
    assert_eq!(printed["relative_to_plain_http"][0]["configuration"], "as is");
}

#[test]
fn without_shares_the_answer_comes_from_comparisons() {
    let mut record = record();
    record.kind_part.change(|experiment: &mut Experiment| experiment.shares.clear());
    record.configurations.retain(|of| of.role != tlsdyno::store::Role::PlainHttp);
    record.configurations.iter_mut().for_each(|of| {
        if matches!(of.role, tlsdyno::store::Role::StageOff(_)) {
            of.role = tlsdyno::store::Role::Setting;
        }
    });
    let count = record.configurations.len();
    record.blocks.retain(|block| block.configuration < count);
    let summary = Summary::of(&record);
    let answer = tlsdyno::kinds::ablation::page::answer::answer(&summary);
    assert!(answer.starts_with("\"no RSA\" serves ") && answer.ends_with("the hits/s of \"as is\"."), "{answer}");
}

/// A7 of the trial: a second CPU that gained more than twice stood in a headline.
#[test]
fn more_than_the_added_processors_can_give_is_doubted_and_does_not_compete() {
    let record = with_processors(1.0);
    let finding = Summary::of(&record).findings.remedies.into_iter().find(|of| !of.over_as_is).expect("there");
    assert!(finding.is_doubtful(), "2.5 times with twice the processors: {finding:?}");
    assert!(!finding.competes());
    let text = KINDS.terminal_text(&record, Style::PLAIN).unwrap().replace("\n     ", " ").replace("\n  ", " ");
    assert!(text.contains("doubtful") && text.contains("2.0 times the processors cannot serve more"), "{text}");
    assert!(text.contains("Over another base than the server as is"), "{text}");
    assert!(text.contains("Predicted if all of it scales: +100 %, and no more."), "{text}");
}

/// The quota's ratio stood in headlines and remedies, as if it had been found.
#[test]
fn what_quotas_bring_by_construction_is_neither_headline_nor_remedy() {
    let mut record = with_processors(0.5);
    record.kind_part.change(|experiment: &mut Experiment| {
        experiment.comparisons = vec![ComparisonModel {
            question: "More CPUs?".to_owned(),
            a: "no cache".to_owned(),
            b: "no RSA".to_owned(),
            paper: None,
            published_times: None,
        }];
    });
    let summary = Summary::of(&record);
    let (compared, remedies) = (&summary.findings.comparisons[0], &summary.findings.remedies);
    assert!(compared.by_construction && compared.ratio.is_some() && compared.decided_by.is_none(), "{compared:?}");
    assert!(remedies.iter().any(|of| of.by_construction && of.gain().is_none()), "{remedies:?}");
    let text = KINDS.terminal_text(&record, Style::PLAIN).unwrap();
    assert!(text.contains("A quota brings its own ratio, so not recommended: a perfect accelerator."), "{text}");
    assert!(text.contains("by construction of quotas, so no finding"), "{text}");
}

/// Remedies and a comparison of one and two processors of this speed.
fn with_processors(speed: f64) -> Record {
    let mut record = record();
    record.kind_part.change(|experiment: &mut Experiment| {
        let place = |name: &str| experiment.configurations.iter().position(|model| model.name == name).expect("there");
        let (no_rsa, no_cache) = (place("no RSA"), place("no cache"));
        experiment.shares.clear();
        experiment.comparisons.clear();
        experiment.configurations[no_rsa].processors = Some(Processors { count: 2, speed });
        experiment.configurations[no_cache].processors = Some(Processors { count: 1, speed });
        experiment.remedies.retain(|remedy| ["a perfect accelerator", "the same again"].contains(&&*remedy.name));
        let remedy = experiment.remedies.iter_mut().find(|remedy| remedy.name == "a perfect accelerator");
        let remedy = remedy.expect("there");
        (remedy.over, remedy.bound) = (Some("no cache".to_owned()), false);
    });
    record
}
