//! The answer in one sentence or two.

use super::text::{capitalised, interval, percent, share_with_interval, stage_label};
use crate::stats::shares::PLAIN_HTTP;
use crate::stats::{Metric, Share, Summary, Verdict};

/// Answers the record's question from its CPU shares, without claiming what the intervals do not support.
pub fn answer(summary: &Summary) -> String {
    let shares: Vec<&Share> = summary.shares.by(Metric::Cpu).collect();
    if shares.is_empty() {
        return "There is no answer: no round was measured in which the server as is and another configuration could be compared.".to_owned();
    }
    let mut stages: Vec<&Share> = shares.iter().copied().filter(|share| share.is_stage()).collect();
    stages.sort_by(|a, b| b.percent.total_cmp(&a.percent));
    let resolved: Vec<&Share> =
        stages.into_iter().filter(|share| share.verdict == Verdict::Resolved && share.percent > 0.0).collect();
    let plain = shares.iter().find(|share| share.stage == PLAIN_HTTP);
    format!("{}{}", costliest(&resolved), plain.map_or_else(String::new, |plain| without_tls(plain)))
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
        format!(": TLS makes a hit {:.1} times as dear", 100.0 / plain.percent)
    } else {
        String::new()
    };
    format!(
        " Without TLS the same hits would need {} {} of that CPU{times}.",
        percent(plain.percent),
        interval(plain.low, plain.high)
    )
}
