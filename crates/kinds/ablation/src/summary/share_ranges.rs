//! What a paper claims of shares over all its machines and workloads, beside ours: of their sum, of the largest of
//! them, or of what they have before others.

use serde::Serialize;
use tlsdyno_record::model::ShareClaimModel;
use tlsdyno_record::store::Role;
use tlsdyno_stats::bootstrap::{Column, Estimate, estimate_sum};
use tlsdyno_stats::rounds::Rounds;
use tlsdyno_stats::statement::Metric;

use super::shares::column_of;

/// Our number for a range of shares that a paper claims.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ShareRange {
    pub question: String,
    pub shares: Vec<String>,
    /// The share that is subtracted, where the number is a difference.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub above: Option<String>,
    /// Per cent of the cost of a hit; `None`: one of the shares was not measured.
    pub percent: Option<Estimate>,
    pub metric: Metric,
    pub paper: String,
    pub published_percent: [f64; 2],
}

/// The claims of a record's experiment in its order, by CPU where that was measured, else by time.
pub(super) fn of(rounds: &Rounds) -> Vec<ShareRange> {
    let claims = rounds.experiment().map_or(&[][..], |experiment| &experiment.share_claims);
    claims.iter().map(|claim| range(claim, rounds)).collect()
}

fn range(claim: &ShareClaimModel, rounds: &Rounds) -> ShareRange {
    let by = |metric| Some((told(claim, rounds, metric)?, metric));
    let (told, metric) = Metric::ALL.into_iter().find_map(by).unzip();
    let (shares, above, percent) = match told {
        Some(Told { shares, above, part }) => (shares, above, Some(part.scaled(100.0))),
        None => (claim.shares.clone(), None, None),
    };
    ShareRange {
        question: claim.question.clone(),
        shares,
        above,
        percent,
        metric: metric.unwrap_or(Metric::Cpu),
        paper: claim.paper.clone(),
        published_percent: claim.published_percent,
    }
}

struct Told {
    shares: Vec<String>,
    above: Option<String>,
    part: Estimate,
}

fn told(claim: &ShareClaimModel, rounds: &Rounds, metric: Metric) -> Option<Told> {
    let as_is = rounds.find(&Role::AsIs)?;
    let experiment = rounds.experiment()?;
    let column = |name: &String| -> Option<Column> {
        let model = experiment.shares.iter().find(|share| share.name == *name)?;
        column_of(model, rounds, as_is, metric).map(|(column, _)| column)
    };
    let columns: Vec<Column> = claim.shares.iter().map(column).collect::<Option<_>>()?;
    let sums: Vec<(Vec<String>, Vec<&Column>)> = match claim.each {
        true => claim.shares.iter().zip(&columns).map(|(name, column)| (vec![name.clone()], vec![column])).collect(),
        false => vec![(claim.shares.clone(), columns.iter().collect())],
    };
    let part = |columns: &[&Column], less: Option<&Column>| {
        let terms = columns.iter().map(|&column| (column, 1.0)).chain(less.map(|column| (column, -1.0)));
        estimate_sum(&terms.collect::<Vec<_>>())
    };
    let largest = sums.into_iter().map(|(shares, columns)| (shares, part(&columns, None), columns));
    let (shares, alone, columns) = largest.max_by(|(_, a, _), (_, b, _)| a.value.total_cmp(&b.value))?;
    let others: Vec<Column> = claim.above.iter().map(column).collect::<Option<_>>()?;
    let left = claim.above.iter().zip(&others).map(|(name, less)| (name.clone(), part(&columns, Some(less))));
    match left.min_by(|(_, a), (_, b)| a.value.total_cmp(&b.value)) {
        Some((above, part)) => Some(Told { shares, above: Some(above), part }),
        None => Some(Told { shares, above: None, part: alone }),
    }
}
