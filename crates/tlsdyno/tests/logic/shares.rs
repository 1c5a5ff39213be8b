//! The statistics on whole records with known truth.

use crate::synthetic;

use synthetic::{ALL_OFF, PLAIN_HTTP, STAGES, Synthetic};
use tlsdyno::kinds::ablation::page::answer::answer;
use tlsdyno::kinds::ablation::summary::{Share, Summary};
use tlsdyno::report::Style;
use tlsdyno::stats::{Metric, Verdict};
use tlsdyno::store::warning::{self, Warning};
use tlsdyno::store::{Record, Role, Slice};
use tlsdyno_lab::KINDS;
use tlsdyno_tls::{Stage, StageSet};

fn share<'a>(summary: &'a Summary, stage: &str, metric: Metric) -> &'a Share {
    summary.shares.by(metric).find(|share| share.stage == stage).expect("the share is there")
}

#[test]
fn the_truth_is_found_and_the_sum_is_100() {
    let summary = Summary::of(&Synthetic::default().record());
    for (stage, truth) in STAGES.into_iter().chain([("plain_http", PLAIN_HTTP)]) {
        let found = share(&summary, stage, Metric::Cpu);
        // Three times the half width: a false alarm in a fixed seed would only mean a changed generator.
        let tolerance = 1.5 * (found.high - found.low);
        assert!((found.percent - truth).abs() < tolerance.min(3.0), "{found:?} {truth}");
        assert!(found.low <= found.percent && found.percent <= found.high, "{found:?}");
    }
    for metric in Metric::ALL {
        let sum: f64 = summary.shares.by(metric).map(|share| share.percent).sum();
        assert!((sum - 100.0).abs() < 1e-9, "{sum}");
    }
    assert_eq!(share(&summary, "authentication", Metric::Cpu).verdict, Verdict::Resolved);
    assert_eq!(share(&summary, "randomness", Metric::Cpu).verdict, Verdict::Undecided);
    let interaction = &summary.shares.interaction[0];
    let truth = STAGES.iter().map(|(_, percent)| percent).sum::<f64>() - ALL_OFF;
    assert!(interaction.low <= truth && truth <= interaction.high, "{interaction:?} {truth}");
}

/// The same costs told by slices: what is left is measured with all stages off, and overlap is a share of its own.
#[test]
fn what_is_left_is_measured_where_there_are_slices() {
    let mut record = Synthetic::default().record();
    let mut sliced = record.blocks.clone();
    for block in &mut sliced {
        let slice = Slice {
            sweep_number: block.round,
            started_us: block.started_ns / 1_000,
            elapsed_us: (block.elapsed_ns / 1_000) as u32,
            server_cpu_ns: block.server_cpu_ns,
            hits: block.hits as u32,
            handshakes_full: block.handshakes_full as u32,
        };
        block.slices = vec![slice];
    }
    record.blocks.extend(sliced);
    let summary = Summary::of(&record);
    let left = 100.0 - ALL_OFF - PLAIN_HTTP;
    let together = ALL_OFF - STAGES.iter().map(|(_, percent)| percent).sum::<f64>();
    for (name, truth) in [("other_tls", left), ("together", together)] {
        let found = share(&summary, name, Metric::Cpu);
        assert!(found.low <= truth && truth <= found.high && !found.is_step(), "{found:?} {truth}");
    }
    let sum: f64 = summary.shares.by(Metric::Cpu).map(|share| share.percent).sum();
    assert!((sum - 100.0).abs() < 1e-9, "{sum}");
    let width = |name: &str| share(&summary, name, Metric::Cpu).high - share(&summary, name, Metric::Cpu).low;
    assert!(width("other_tls") < width("together"), "it does not have the errors of all stages");
    assert_eq!(summary.shares.widest_points().map(|widest| widest < width("together") / 2.0), Some(true));
    assert!(KINDS.terminal_text(&record, Style::PLAIN).unwrap().contains("saved only together"));
}

#[test]
fn order_of_blocks_and_scale_of_time_do_not_matter() {
    let record = Synthetic { rounds: 6, ..Synthetic::default() }.record();
    let expected = Summary::of(&record).shares;
    let mut shuffled = record.clone();
    shuffled.blocks.reverse();
    assert_eq!(Summary::of(&shuffled).shares, expected);
    let mut slower = record;
    for block in &mut slower.blocks {
        block.server_cpu_ns *= 8;
        block.elapsed_ns *= 8;
    }
    for (slow, fast) in Summary::of(&slower).shares.shares.iter().zip(&expected.shares) {
        assert!(
            (slow.percent - fast.percent).abs() < 1e-9 && (slow.high - fast.high).abs() < 1e-9,
            "{slow:?} {fast:?}"
        );
    }
}

#[test]
fn several_blocks_of_one_configuration_count_as_one_longer_block() {
    let record = Synthetic { rounds: 6, ..Synthetic::default() }.record();
    let mut halved = record.clone();
    for block in &record.blocks {
        let mut half = block.clone();
        (half.hits, half.elapsed_ns, half.server_cpu_ns) =
            (block.hits / 2, block.elapsed_ns / 2, block.server_cpu_ns / 2);
        let mut rest = half.clone();
        (rest.elapsed_ns, rest.server_cpu_ns) =
            (block.elapsed_ns - half.elapsed_ns, block.server_cpu_ns - half.server_cpu_ns);
        halved.blocks.retain(|other| (other.round, other.configuration) != (block.round, block.configuration));
        halved.blocks.extend([half, rest]);
    }
    assert_eq!(halved.blocks.len(), 2 * record.blocks.len());
    assert_eq!(Summary::of(&halved).shares, Summary::of(&record).shares);
}

#[test]
fn without_plain_http_no_share_is_claimed_for_it() {
    let summary = Summary::of(&Synthetic { plain: false, rounds: 6, ..Synthetic::default() }.record());
    assert!(summary.shares.shares.iter().all(|share| share.stage != "plain_http" && share.stage != "other_tls"));
    assert_eq!(summary.shares.by(Metric::Cpu).last().map(|share| share.stage.as_str()), Some("rest"));
    assert!(summary.warnings.contains(&warning::no_plain_http()));
}

#[test]
fn bounds_are_flagged_for_throughput_only() {
    let summary = Summary::of(&Synthetic { rounds: 6, ..Synthetic::default() }.record());
    assert!(share(&summary, "plain_http", Metric::Throughput).bound);
    assert!(share(&summary, "other_tls", Metric::Throughput).bound);
    assert!(!share(&summary, "authentication", Metric::Throughput).bound);
    assert!(summary.shares.by(Metric::Cpu).all(|share| !share.bound));
    let bound = "something else than the server was the limit in \"plain HTTP\" (";
    assert!(summary.warnings.iter().any(|warning| warning.what.starts_with(bound)), "{:?}", summary.warnings);
}

#[test]
fn an_invalid_block_costs_its_own_pair_only() {
    let mut record = Synthetic::default().record();
    let off = index(&record, &Role::StageOff(Stage::Cipher));
    for block in record.blocks.iter_mut().filter(|block| block.configuration == off && block.round < 2) {
        block.valid = false;
        // Would ruin the share if it were used.
        block.server_cpu_ns *= 50;
    }
    let (before, after) = (Summary::of(&Synthetic::default().record()), Summary::of(&record));
    assert!((share(&after, "cipher", Metric::Cpu).percent - STAGES[2].1).abs() < 3.0);
    assert_eq!(share(&after, "kdf", Metric::Cpu).percent, share(&before, "kdf", Metric::Cpu).percent);
    let dropped = "2 of 16 rounds were left out because the block of \"no cipher\"";
    assert!(after.warnings.iter().any(|warning| warning.what.starts_with(dropped)), "{:?}", after.warnings);
    let sum: f64 = after.shares.by(Metric::Cpu).map(|share| share.percent).sum();
    assert!((sum - 100.0).abs() < 1e-9, "{sum}");
}

#[test]
fn a_configuration_that_failed_its_preflight_is_not_used() {
    let mut record = Synthetic { rounds: 6, ..Synthetic::default() }.record();
    let off = index(&record, &Role::StageOff(Stage::Kdf));
    record.configurations[off].valid = false;
    record.configurations[off].warnings.push(Warning::new("preflight_failed", "the unmatched client got through"));
    let summary = Summary::of(&record);
    assert!(summary.shares.shares.iter().all(|share| share.stage != "kdf"));
    assert!(summary.configurations[off].warnings[0].contains("unmatched client"));
    assert!(!summary.configurations[off].valid);
}

#[test]
fn a_stopped_experiment_is_judged_by_its_whole_rounds() {
    let mut record = Synthetic::default().record();
    record.finished = false;
    record.blocks.truncate(3 * record.configurations.len() + 4);
    let summary = Summary::of(&record);
    assert_eq!(summary.rounds, 3);
    assert!(summary.warnings.iter().any(|warning| warning.what.starts_with("only 3 complete rounds")));
    assert!(summary.shares.shares.iter().all(|share| share.low.is_finite() && share.verdict == Verdict::Undecided));
    record.blocks.truncate(4);
    let nothing = Summary::of(&record);
    assert!(nothing.shares.shares.is_empty() && nothing.rounds == 0);
}

#[test]
fn one_round_claims_no_interval() {
    let summary = Summary::of(&Synthetic { rounds: 1, ..Synthetic::default() }.record());
    for share in &summary.shares.shares {
        assert!(
            share.low == f64::NEG_INFINITY && share.high == f64::INFINITY && share.verdict == Verdict::Undecided,
            "{share:?}"
        );
    }
}

#[test]
fn errors_and_steal_are_said() {
    let mut record = Synthetic { rounds: 6, ..Synthetic::default() }.record();
    record.blocks[3].errors.insert("timeout".to_owned(), 4);
    record.blocks[4].steal_ns = record.blocks.iter().map(|block| block.elapsed_ns).sum();
    let summary = Summary::of(&record);
    let texts: Vec<String> = summary.warnings.iter().map(Warning::to_string).collect();
    assert!(texts.iter().any(|text| text.starts_with("4 of ") && text.contains("lower --connections")), "{texts:?}");
    assert!(texts.iter().any(|text| text.starts_with("the hypervisor took")), "{texts:?}");
}

#[test]
fn configurations_are_summarised() {
    let record = Synthetic { rounds: 6, ..Synthetic::default() }.record();
    let summary = Summary::of(&record);
    let as_is = summary.configuration(&Role::AsIs).expect("as is");
    assert_eq!((as_is.blocks, as_is.hits, as_is.handshakes_full, as_is.handshakes_resumed), (6, 14_400, 1_200, 3_600));
    assert!((as_is.server_cpu_ns_per_hit.value - synthetic::AS_IS_NS).abs() < 0.2 * synthetic::AS_IS_NS);
    let rate = as_is.hits_per_second;
    assert!(rate.low < rate.value && rate.value < rate.high, "{rate:?}");
    assert_eq!(as_is.latency_ns["full_handshake"].count, 1_200);
    let latency = &as_is.latency_ns["first_byte"];
    assert!(latency.p50 < latency.p90 && latency.p90 < latency.p99 && latency.p99 <= latency.max);
    let plain = summary.configuration(&Role::PlainHttp).expect("plain HTTP");
    assert!(plain.client_bound && !plain.latency_ns.contains_key("full_handshake"));
}

#[test]
fn a_stage_that_was_not_measured_is_named_where_its_cost_is() {
    let mut record = Synthetic { rounds: 6, ..Synthetic::default() }.record();
    for stage in ["mac", "digest"] {
        let off = index(&record, &Role::StageOff(stage.parse().unwrap()));
        record.configurations[off].valid = false;
    }
    let summary = Summary::of(&record);
    for metric in Metric::ALL {
        assert_eq!(share(&summary, "other_tls", metric).without, ["mac", "digest"]);
        assert!(share(&summary, "plain_http", metric).without.is_empty());
    }
    let unmeasured = |warning: &&Warning| warning.code == "unmeasured";
    let told = summary.warnings.iter().find(unmeasured).map(Warning::to_string).unwrap_or_default();
    assert!(told.contains("for mac, digest:") && told.contains("\"rest of TLS\" holds"), "{told}");
    let text = KINDS.terminal_text(&record, Style::PLAIN).unwrap();
    assert!(text.contains("rest of TLS (with MAC, digest)"), "{text}");
    assert!(text.lines().all(|line| line.chars().count() <= Style::PLAIN.width), "{text}");
    assert!(KINDS.html(&record).expect("page").contains("rest of TLS (with MAC, digest)"));
    let whole = Summary::of(&Synthetic { rounds: 6, ..Synthetic::default() }.record());
    assert!(whole.shares.shares.iter().all(|share| share.without.is_empty()));
    assert_eq!(whole.warnings.iter().find(unmeasured), None);
}

/// The record of an experiment that only asks what the instrument costs.
fn provider_overhead() -> Record {
    let mut record = Synthetic { rounds: 8, ..Synthetic::default() }.record();
    let loaded = index(&record, &Role::StageOff(Stage::Randomness));
    record.blocks.retain(|block| [0, loaded].contains(&block.configuration));
    record.blocks.iter_mut().for_each(|block| block.configuration = block.configuration.min(1));
    record.configurations = vec![record.configurations[0].clone(), record.configurations[loaded].clone()];
    record.configurations[1].role = Role::Loaded;
    record.configurations[1].noop = StageSet::NONE;
    record
}

#[test]
fn without_stages_the_answer_is_the_cost_of_the_instrument() {
    let mut record = provider_overhead();
    record.warnings.push(warning::no_plain_http());
    let summary = Summary::of(&record);
    assert!(summary.shares.shares.is_empty(), "nothing is divided");
    assert_eq!(summary.shares.instrument.len(), 2);
    assert!(!summary.warnings.contains(&warning::no_plain_http()));
    let answer = answer(&summary);
    assert!(answer.starts_with("The idle provider costs ") && answer.contains(" % ["), "{answer}");
    assert!(answer.ends_with("] of this server's CPU per hit."), "{answer}");
    let text = KINDS.terminal_text(&record, Style::PLAIN).unwrap();
    assert!(text.contains("The idle provider costs") && text.contains("of the time per hit"), "{text}");
    assert!(KINDS.html(&record).expect("page").contains("The idle provider costs"));
    let json: serde_json::Value = serde_json::from_str(&KINDS.json_text(&record).unwrap()).expect("JSON");
    assert_eq!(json["answer"], answer);
}

#[test]
fn several_stages_off_together_are_in_no_share() {
    let mut record = Synthetic { rounds: 6, ..Synthetic::default() }.record();
    let expected = Summary::of(&record).shares.shares;
    let all = index(&record, &Role::AllOff);
    record.configurations[all].role = Role::Several([Stage::Cipher, Stage::Mac].into_iter().collect());
    let summary = Summary::of(&record);
    assert_eq!(summary.shares.shares, expected);
    assert!(summary.shares.interaction.is_empty());
    assert!(KINDS.terminal_text(&record, Style::PLAIN).unwrap().contains("all off"), "it is in the table");
}

#[test]
fn a_configuration_that_failed_does_not_cut_the_last_round_short() {
    let mut record = Synthetic { rounds: 6, ..Synthetic::default() }.record();
    let off = index(&record, &Role::StageOff(Stage::Kdf));
    record.configurations[off].valid = false;
    record.blocks.retain(|block| block.configuration != off);
    record.finished = false;
    assert_eq!(Summary::of(&record).rounds, 6);
    record.blocks.pop();
    assert_eq!(Summary::of(&record).rounds, 5);
}

#[test]
fn warnings_are_said_once_with_their_sums() {
    let mut record = Synthetic { rounds: 6, ..Synthetic::default() }.record();
    record.configurations[2].warnings.push(warning::reuse(60, 60, 1));
    for block in record.blocks.iter_mut().filter(|block| block.configuration == 2) {
        let accepted = u64::from(block.round);
        block.valid = false;
        (block.resumed_intended, block.resumed_offered, block.resumed_accepted) = (600, 600, accepted);
        block.errors = [("reset".to_owned(), 1 + accepted), ("timeout".to_owned(), 1)].into();
        block.hits = 2_400 - block.errors.values().sum::<u64>();
        block.warnings.push(warning::reuse(600, 600, accepted));
        let told = block.errors.iter().map(|(kind, count)| warning::errors(kind, *count, 2_400));
        block.warnings.extend(told.collect::<Vec<_>>());
        let what = format!("TLS failed: decode_error ({} times)", block.round);
        block.warnings.push(Warning::new("tls_faults", what).with_remedy("Read the log"));
    }
    let summary = Summary::of(&record);
    let [reuse, reset, timeout, fault] = &summary.configurations[2].warnings[..] else {
        panic!("{:?}", summary.configurations[2].warnings)
    };
    assert!(reuse.contains("of 3600 connections") && reuse.contains("took 15"), "{reuse}");
    assert!(reset.starts_with("21 of 14400 requests") && timeout.starts_with("6 of 14400"), "{reset} {timeout}");
    assert_eq!(fault, "TLS failed: decode_error (0 times) (and 5 more like it). Read the log");
    assert!(!summary.configurations[2].valid, "not one of its blocks can be used");
    assert!(summary.configurations[3].valid);
}

fn index(record: &Record, role: &Role) -> usize {
    record
        .configurations
        .iter()
        .position(|configuration| configuration.role == *role)
        .expect("the configuration is there")
}
