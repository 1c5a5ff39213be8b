//! The answer in one sentence or two.

use std::cmp::Ordering;

use tlsdyno_base::units::{format_interval, format_percent};
use tlsdyno_runner::report::text::{capitalised, difference_with_interval, ratio_gain, stage_label};
use tlsdyno_stats::compared::CPU_START_TO_START_PERCENT;
use tlsdyno_stats::remainders::{MISSING, PLAIN_HTTP};
use tlsdyno_stats::{Direction, Metric, Verdict};
use tlsdyno_tls::Stage;

use super::remedies::{doubtful, gain_in_words};
use super::{findings, libraries, methods, traffic};
use crate::page::compared;
use crate::page::text::{loaded_label, share_with_interval};
use crate::summary::findings::{RemedyFinding, Unmeasured};
use crate::summary::{Loaded, OfQuestion, Share, Summary};

/// Answer from a record that has the needed results; `None`: it has not.
type Answer = fn(&Summary) -> Option<String>;

/// Claims nothing that the intervals do not support. A result of this question alone comes first, then the first of the
/// common ones.
pub fn answer(summary: &Summary) -> String {
    let of_question = match &summary.of_question {
        Some(OfQuestion::Traffic(traffic)) => Some(traffic::sentence(traffic)),
        Some(OfQuestion::Libraries(libraries)) => Some(libraries::sentence(libraries)),
        Some(OfQuestion::Machines(_)) | None => {
            compared::builds(summary, CPU_START_TO_START_PERCENT).map(|builds| builds.sentence)
        }
    };
    let shares: Vec<&Share> = summary.shares.by(Metric::Cpu).collect();
    // Shares that nobody named are by-products of an experiment that asks for something else.
    let asks_for_shares = shares.iter().any(|share| share.stage == MISSING);
    let has_none = shares.is_empty();
    let others: [(bool, Answer); 4] = [
        (has_none, instrument),
        (!asks_for_shares, from_comparisons),
        (!asks_for_shares, from_remedies),
        (has_none, methods::counted_answer),
    ];
    let other = || others.into_iter().filter(|(is_asked, _)| *is_asked).find_map(|(_, answer)| answer(summary));
    of_question.or_else(other).unwrap_or_else(|| from_shares(summary, &shares))
}

/// The costliest stages, and what TLS as a whole costs.
fn from_shares(summary: &Summary, shares: &[&Share]) -> String {
    let unmeasured = unmeasured(summary);
    if shares.is_empty() {
        return "There is no answer: no round was measured in which the server as is and another configuration could \
                be compared."
            .to_owned()
            + &unmeasured;
    }
    let mut stages: Vec<&Share> = shares.iter().copied().filter(|share| share.is_step()).collect();
    stages.sort_by(|a, b| b.percent.total_cmp(&a.percent));
    let plain = shares.iter().find(|share| share.stage == PLAIN_HTTP);
    let plain = plain.map_or_else(String::new, |plain| without_tls(plain));
    format!("{}{unmeasured}{plain}", costliest(&stages, unmeasured.is_empty()))
}

/// A sentence for each stage that was to be measured and was not: it may well cost the most.
fn unmeasured(summary: &Summary) -> String {
    let said = |of: &Unmeasured| {
        let elsewhere = match of.stage {
            Stage::Authentication => {
                "; where an engine, a card or another process holds the private key, its no-op replaces nothing"
            }
            _ => "",
        };
        format!(
            " {} was not measured, because the server without it failed this check: {}{elsewhere}. It may cost more \
             than anything that was.",
            capitalised(&of.stage.label()),
            of.why
        )
    };
    summary.findings.unmeasured.iter().map(said).collect()
}

fn instrument(summary: &Summary) -> Option<String> {
    let cost = summary.shares.instrument.iter().find(|difference| difference.metric == Metric::Cpu)?;
    Some(format!(
        "The idle {} {} {} of this server's CPU per hit.",
        loaded_label(summary.loaded),
        if summary.loaded == Loaded::Both { "cost" } else { "costs" },
        difference_with_interval(cost)
    ))
}

/// Maximum number of comparisons in an answer.
const COMPARISONS_TOLD: usize = 3;

/// The first comparisons that were decided.
fn from_comparisons(summary: &Summary) -> Option<String> {
    let comparisons = &summary.findings.comparisons;
    let told: Vec<String> = comparisons.iter().filter_map(findings::decided).take(COMPARISONS_TOLD).collect();
    match (comparisons.is_empty(), told.is_empty()) {
        (true, _) => None,
        (false, true) => Some(
            "All comparisons are undecided; measure longer (--time) or on a quieter machine, and see the warnings."
                .to_owned(),
        ),
        (false, false) => Some(capitalised(&told.join("; ")) + "."),
    }
}

/// The remedy with the largest known gain. Bounds, remedies with a base of their own, and remedies that are in place do
/// not compete.
fn from_remedies(summary: &Summary) -> Option<String> {
    let mut ranked = summary.findings.remedies.iter().filter(|remedy| remedy.competes());
    let nothing = "No remedy was measured to gain anything; measure longer (--time), and see the warnings.".to_owned();
    if ranked.clone().next().is_some() && ranked.clone().all(|remedy| remedy.gain().is_none()) {
        return Some("Nothing could be compared: no round was complete. Measure longer (--time).".to_owned());
    }
    let gains = |remedy: &&RemedyFinding| remedy.gain().is_some_and(|gain| gain.direction == Direction::Bigger);
    let Some(best) = ranked.clone().find(gains) else {
        return ranked.next().map(|_| nothing);
    };
    let least = best.gain()?.low;
    let rivals: Vec<String> = ranked
        .filter(|remedy| remedy.name != best.name)
        .filter_map(|remedy| remedy.gain().filter(|gain| gain.high >= least).map(|gain| (remedy, gain)))
        .map(|(remedy, gain)| format!("{} {}", remedy.name, ratio_gain(&gain)))
        .collect();
    let gain = gain_in_words(best, &best.gain()?);
    let doubt = if best.is_doubtful() { format!(" Doubt it: {}.", doubtful(best)) } else { String::new() };
    let name = capitalised(&best.name);
    Some(match rivals.is_empty() {
        true => format!("{name} gains most: {gain}.{doubt}"),
        false => format!(
            "{name} gains {gain}; whether it gains most is undecided, for others may gain as much: {}.{doubt}",
            rivals.join("; ")
        ),
    })
}

/// Maximum number of components in a headline.
const NAMED_MAX: usize = 4;

/// Which component costs most, as far as that is known: whoever may cost as much as one that is named is named too, or
/// nothing is ranked. `stages`: all that can be compared, the largest first; `all_measured`: and all that was asked
/// for.
fn costliest(stages: &[&Share], all_measured: bool) -> String {
    let is_known = |share: &Share| share.verdict == Verdict::Resolved && share.percent > 0.0;
    let Some(first) = stages.iter().copied().find(|share| is_known(share)) else { return none_known(stages) };
    // Whoever reaches down to the least that one of them may cost joins them, which may let others in.
    let mut named = vec![first];
    let mut least = first.low;
    while let Some(more) = stages.iter().copied().find(|share| share.high >= least && !named.contains(share)) {
        named.push(more);
        least = if is_known(more) { least.min(more.low) } else { least };
    }
    named.sort_by(|a, b| (is_known(b), b.percent).partial_cmp(&(is_known(a), a.percent)).unwrap_or(Ordering::Equal));
    let (known, open) = named.split_at(named.partition_point(|share| is_known(share)));
    let label = |share: &Share| format!("{} ({})", stage_label(&share.stage), share_with_interval(share));
    match (known, open) {
        ([only], []) => format!(
            "{} costs most{}: {} of this server's CPU per hit.",
            capitalised(&stage_label(&only.stage)),
            if all_measured { "" } else { " of what was measured" },
            share_with_interval(only)
        ),
        (all, []) if all.len() <= NAMED_MAX => format!(
            "{} cost most of this server's CPU per hit; which of them costs most is undecided.",
            capitalised(&listed(all.iter().copied().map(label)))
        ),
        _ if named.len() <= NAMED_MAX => format!(
            "{} {} of this server's CPU per hit; {}: which component costs most is undecided.",
            capitalised(&listed(known.iter().copied().map(label))),
            if known.len() == 1 { "is known to cost its share" } else { "are known to cost their shares" },
            listed(open.iter().copied().map(may_cost))
        ),
        _ => {
            let rivals = named.iter().filter(|share| **share != first);
            let most = rivals.max_by(|a, b| a.high.total_cmp(&b.high)).map(|most| may_cost(most));
            format!(
                "Which component costs most is undecided: {} is the largest that is known, and {} others may cost \
                 as much ({}). Measure longer (--time).",
                label(first),
                named.len() - 1,
                most.unwrap_or_default()
            )
        }
    }
}

/// Text where the cost of none of `stages` is known.
fn none_known(stages: &[&Share]) -> String {
    // Intervals that exclude 0 and are not resolved are those of too few rounds.
    let few = stages.iter().copied().filter(|share| share.low > 0.0 && share.is_of_few_rounds());
    if let Some(most) = few.max_by(|a, b| a.low.total_cmp(&b.low)) {
        return format!(
            "Too few rounds were measured to be sure of any component; so far {} is {} of this server's CPU per hit. \
             Measure longer (--time).",
            stage_label(&most.stage),
            share_with_interval(most)
        );
    }
    let told = "The cost of no single component could be told from noise";
    let most = stages.iter().copied().max_by(|a, b| a.high.total_cmp(&b.high)).filter(|most| most.high.is_finite());
    let most = most.map_or_else(String::new, |most| format!(" ({})", may_cost(most)));
    format!("{told}{most}; measure longer (--time) or on a quieter machine.")
}

/// `MAC may cost up to 55.9 %`.
fn may_cost(share: &Share) -> String {
    let label = stage_label(&share.stage);
    match share.high {
        high if (0.0..=100.0).contains(&high) => format!("{label} may cost up to {}", format_percent(high)),
        _ => format!("what {label} costs is not known at all"),
    }
}

/// `a`, `a and b`, `a, b and c`.
fn listed(texts: impl Iterator<Item = String>) -> String {
    let texts: Vec<String> = texts.collect();
    match &texts[..] {
        [] => String::new(),
        [only] => only.clone(),
        [most @ .., last] => format!("{} and {last}", most.join(", ")),
    }
}

fn without_tls(plain: &Share) -> String {
    if !plain.known || !plain.estimate().has_interval() {
        return " What the same hits would need without TLS could not be told.".to_owned();
    }
    let times = |percent: f64| format!("{:.1}", 100.0 / percent);
    let times = match plain.low > 0.0 {
        true => format!(
            "TLS makes a hit {} [{}, {}] times as expensive",
            times(plain.percent),
            times(plain.high),
            times(plain.low)
        ),
        false => "how many times as expensive TLS makes a hit is undecided".to_owned(),
    };
    format!(
        " Without TLS the same hits would need {} {} of that CPU: {times}.",
        format_percent(plain.percent),
        format_interval(plain.low, plain.high)
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::summary::{Findings, Shares};
    use tlsdyno_base::random::SplitMix64;

    /// A summary with these CPU shares: stage, per cent, half the width of the interval.
    fn summary(shares: &[(&str, f64, f64)]) -> Summary {
        let share = |&(stage, percent, half): &(&str, f64, f64)| Share {
            stage: stage.to_owned(),
            metric: Metric::Cpu,
            percent,
            known: (0.0..=100.0).contains(&percent),
            low: percent - half,
            high: percent + half,
            verdict: if percent > half { Verdict::Resolved } else { Verdict::Undecided },
            bound: false,
            without: Vec::new(),
            left: stage == "plain_http" || stage == "other_tls",
        };
        let shares = Shares { shares: shares.iter().map(share).collect(), ..Shares::default() };
        Summary { shares, rounds: 9, ..Summary::default() }
    }

    fn of(shares: &[(&str, f64, f64)]) -> String {
        answer(&summary(shares))
    }

    #[test]
    fn the_answer_claims_what_the_intervals_support() {
        assert_eq!(
            of(&[("kdf", 5.0, 1.0), ("authentication", 40.0, 2.0), ("plain_http", 20.0, 1.0)]),
            "Authentication costs most: 40.0 % [38.0, 42.0] of this server's CPU per hit. Without TLS the same hits \
             would need 20.0 % [19.0, 21.0] of that CPU: TLS makes a hit 5.0 [4.8, 5.3] times as expensive."
        );
        assert_eq!(
            of(&[("kdf", 38.0, 3.0), ("authentication", 40.0, 2.0)]),
            "Authentication (40.0 % [38.0, 42.0]) and KDF (38.0 % [35.0, 41.0]) cost most of this server's CPU per \
             hit; which of them costs most is undecided."
        );
        let none = of(&[("kdf", 2.0, 3.0), ("other_tls", 40.0, 2.0)]);
        assert!(none.starts_with("The cost of no single component") && none.contains("KDF may cost up to 5.0 %"));
        assert!(of(&[]).starts_with("There is no answer"));
    }

    #[test]
    fn too_few_rounds_are_not_called_noise() {
        let mut stopped = summary(&[("kdf", 5.0, 1.0), ("key_agreement", 17.5, 0.2)]);
        stopped.shares.shares.iter_mut().for_each(|share| share.verdict = Verdict::Undecided);
        let said = answer(&stopped);
        assert!(said.starts_with("Too few rounds") && said.contains("key agreement is 17.5 % [17.3, 17.7]"), "{said}");
    }

    #[test]
    fn what_was_not_measured_is_said_beside_what_was() {
        let why = "full: matching client passes (TLS failed)".to_owned();
        let unmeasured = vec![Unmeasured { stage: Stage::Authentication, why }];
        let findings = Findings { unmeasured, ..Findings::default() };
        let said = answer(&Summary { findings: findings.clone(), ..summary(&[("kdf", 9.0, 1.0)]) });
        let wanted = "KDF costs most of what was measured: 9.0 % [8.0, 10.0] of this server's CPU per hit. \
                      Authentication was not measured, because the server without it failed this check: full: \
                      matching client passes (TLS failed)";
        assert!(said.starts_with(wanted) && said.ends_with("It may cost more than anything that was."), "{said}");
        let none = answer(&Summary { findings: findings.clone(), ..summary(&[("kdf", 0.1, 1.0)]) });
        assert!(none.contains("told from noise") && none.contains("Authentication was not measured"), "{none}");
        let nothing = answer(&Summary { findings, ..summary(&[]) });
        assert!(nothing.starts_with("There is no answer") && nothing.contains("Authentication was"), "{nothing}");
    }

    #[test]
    fn no_headline_tells_what_cannot_be() {
        let said = of(&[("cipher", -133.7, 1.0), ("kdf", -0.3, 0.6)]);
        assert!(said.contains("told from noise") && said.contains("KDF may cost up to 0.3 %"), "{said}");
        let said = of(&[("kdf", 9.0, 1.0), ("plain_http", 545.3, 10.0)]);
        assert!(said.ends_with("What the same hits would need without TLS could not be told."), "{said}");
        let said = of(&[("kdf", 9.0, 1.0), ("plain_http", 5.1, f64::INFINITY)]);
        assert!(said.ends_with("What the same hits would need without TLS could not be told."), "{said}");
        let said = of(&[("kdf", 9.0, 1.0), ("plain_http", 5.1, 6.0)]);
        assert!(said.ends_with("how many times as expensive TLS makes a hit is undecided."), "{said}");
    }

    /// A1 of the trial: MAC 24.5 % [-7.7, 55.9] stood below a headline that named cipher.
    #[test]
    fn what_is_undecided_is_not_left_out() {
        let said = of(&[("authentication", 19.9, 1.0), ("cipher", 9.6, 1.0), ("mac", 24.5, 31.4)]);
        assert_eq!(
            said,
            "Authentication (19.9 % [18.9, 20.9]) is known to cost its share of this server's CPU per hit; MAC may \
             cost up to 55.9 %: which component costs most is undecided."
        );
        let many: Vec<(&str, f64, f64)> =
            ["cipher", "digest", "kdf", "mac"].into_iter().map(|stage| (stage, 14.0, 20.0)).collect();
        let said = of(&[&[("authentication", 19.9, 1.0)], &many[..]].concat());
        assert!(said.contains("4 others may cost as much (") && said.contains("undecided"), "{said}");
    }

    /// Over made-up records: every stage that may cost as much as a ranked one is in the headline.
    #[test]
    fn no_headline_ranks_below_something_undecided() {
        let stages = Stage::PROVIDER.map(Stage::name);
        let (mut random, mut ranked) = (SplitMix64::new(23), 0);
        for _ in 0..20_000 {
            let mut drawn = |most: f64| random.uniform() * most;
            let widest = drawn(40.0);
            let shares: Vec<(&str, f64, f64)> =
                stages.iter().map(|stage| (*stage, drawn(45.0) - 5.0, drawn(widest))).collect();
            let (summary, said) = (summary(&shares), of(&shares));
            let all: Vec<&Share> = summary.shares.shares.iter().collect();
            let is_named = |share: &&&Share| {
                let label = stage_label(&share.stage);
                said.to_lowercase().contains(&format!("{} (", label.to_lowercase()))
                    || said.starts_with(&format!("{} costs most", capitalised(&label)))
            };
            let is_told = |share: &&&Share| is_named(share) || said.contains(&may_cost(share));
            if said.contains("costs most:") || said.contains(" cost most of ") || said.contains("known to cost") {
                ranked += 1;
                let (named, others): (Vec<&&Share>, Vec<&&Share>) = all.iter().partition(|share| is_named(share));
                let least = named.iter().map(|share| share.low).fold(f64::INFINITY, f64::min);
                let left_out = others.iter().find(|share| share.high >= least && !is_told(share));
                assert!(!named.is_empty() && left_out.is_none(), "{left_out:?} is not in: {said}");
            } else {
                assert!(said.contains("undecided") || said.contains("told from noise"), "{said}");
            }
        }
        assert!(ranked > 2_000, "the test saw {ranked} headlines with a rank");
    }
}
