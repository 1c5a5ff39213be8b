//! The answer in one sentence or two.

use super::text::{capitalised, difference_with_interval, loaded_label, ratio_gain, share_with_interval, stage_label};
use super::{findings, methods, traffic};
use crate::stats::shares::{MISSING, PLAIN_HTTP};
use crate::stats::statement::Difference;
use crate::stats::{Direction, Loaded, Metric, Share, Summary, Verdict};
use crate::units::{format_interval, format_percent};

/// Findings the record's question from its CPU shares, without claiming what the intervals do not support.
pub fn answer(summary: &Summary) -> String {
    if let Some(answer) = traffic::answer(summary) {
        return answer;
    }
    let shares: Vec<&Share> = summary.shares.by(Metric::Cpu).collect();
    if let (true, Some(instrument)) = (shares.is_empty(), instrument(summary)) {
        return format!(
            "The idle {} {} {} of this server's CPU per hit.",
            loaded_label(summary.loaded),
            if summary.loaded == Loaded::Both { "cost" } else { "costs" },
            difference_with_interval(instrument)
        );
    }
    // Shares that nobody named are by-products of an experiment that asks for something else.
    let asks_for_shares = shares.iter().any(|share| share.stage == MISSING);
    let asked = || from_comparisons(summary).or_else(|| from_remedies(summary));
    if let Some(answer) = (!asks_for_shares).then(asked).flatten() {
        return answer;
    }
    if let (true, Some(answer)) = (shares.is_empty(), methods::counted_answer(summary)) {
        return answer;
    }
    if shares.is_empty() {
        return "There is no answer: no round was measured in which the server as is and another configuration could \
                be compared."
            .to_owned();
    }
    let mut stages: Vec<&Share> = shares.iter().copied().filter(|share| share.is_step()).collect();
    stages.sort_by(|a, b| b.percent.total_cmp(&a.percent));
    let resolved: Vec<&Share> =
        stages.into_iter().filter(|share| share.verdict == Verdict::Resolved && share.percent > 0.0).collect();
    let plain = shares.iter().find(|share| share.stage == PLAIN_HTTP);
    format!("{}{}", costliest(&resolved), plain.map_or_else(String::new, |plain| without_tls(plain)))
}

fn instrument(summary: &Summary) -> Option<&Difference> {
    summary.shares.instrument.iter().find(|difference| difference.metric == Metric::Cpu)
}

/// The most comparisons that an answer tells.
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

/// The remedy that gains most.
fn from_remedies(summary: &Summary) -> Option<String> {
    let best = summary.findings.remedies.iter().find(|remedy| !remedy.bound)?;
    let ratio = best.ratio.filter(|ratio| ratio.direction == Direction::Bigger);
    Some(match ratio {
        Some(ratio) => format!("{} gains most: {} hits/s.", capitalised(&best.name), ratio_gain(&ratio)),
        None => "No remedy was measured to gain anything; measure longer (--time), and see the warnings.".to_owned(),
    })
}

fn costliest(resolved: &[&Share]) -> String {
    match resolved {
        [] => "The cost of no single stage could be told from noise; measure longer (--time) or on a quieter machine."
            .to_owned(),
        [first, second, ..] if second.high >= first.low => format!(
            "{} ({}) and {} ({}) cost most of this server's CPU per hit; which of them costs more is undecided.",
            capitalised(&stage_label(&first.stage)),
            share_with_interval(first),
            stage_label(&second.stage),
            share_with_interval(second),
        ),
        [first, ..] => format!(
            "{} costs most: {} of this server's CPU per hit.",
            capitalised(&stage_label(&first.stage)),
            share_with_interval(first)
        ),
    }
}

fn without_tls(plain: &Share) -> String {
    let times = if plain.percent > 0.0 {
        format!(": TLS makes a hit {:.1} times as expensive", 100.0 / plain.percent)
    } else {
        String::new()
    };
    format!(
        " Without TLS the same hits would need {} {} of that CPU{times}.",
        format_percent(plain.percent),
        format_interval(plain.low, plain.high)
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stats::{Findings, Shares};

    /// A summary with these CPU shares: stage, per cent, half the width of the interval.
    fn of(shares: &[(&str, f64, f64)]) -> String {
        let share = |&(stage, percent, half): &(&str, f64, f64)| Share {
            stage: stage.to_owned(),
            metric: Metric::Cpu,
            percent,
            low: percent - half,
            high: percent + half,
            verdict: if percent > half { Verdict::Resolved } else { Verdict::Undecided },
            bound: false,
            without: Vec::new(),
            left: stage == "plain_http" || stage == "other_tls",
        };
        let shares = Shares { shares: shares.iter().map(share).collect(), ..Shares::default() };
        answer(&Summary {
            shares,
            by_methods: vec![],
            counted: None,
            traffic: None,
            findings: Findings::default(),
            published: None,
            configurations: vec![],
            phases: vec![],
            rounds: 9,
            sweeps: 0,
            precision: None,
            warnings: vec![],
            detection: crate::stats::calibration::Detection { limit_percent: None, sentence: String::new() },
            pace: None,
            loaded: Loaded::default(),
        })
    }

    #[test]
    fn the_answer_claims_what_the_intervals_support() {
        assert_eq!(
            of(&[("kdf", 5.0, 1.0), ("authentication", 40.0, 2.0), ("plain_http", 20.0, 1.0)]),
            "Authentication costs most: 40.0 % [38.0, 42.0] of this server's CPU per hit. Without TLS the same hits \
             would need 20.0 % [19.0, 21.0] of that CPU: TLS makes a hit 5.0 times as expensive."
        );
        assert_eq!(
            of(&[("kdf", 38.0, 3.0), ("authentication", 40.0, 2.0)]),
            "Authentication (40.0 % [38.0, 42.0]) and KDF (38.0 % [35.0, 41.0]) cost most of this server's CPU per \
             hit; which of them costs more is undecided."
        );
        assert!(of(&[("kdf", 2.0, 3.0), ("other_tls", 40.0, 2.0)]).starts_with("The cost of no single stage"));
        assert!(of(&[]).starts_with("There is no answer"));
    }
}
