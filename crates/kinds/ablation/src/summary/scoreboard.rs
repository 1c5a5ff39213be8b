//! The claims of a paper that an ablation can be held against.

use tlsdyno_record::model::PublishedNumber;
use tlsdyno_stats::scoreboard::{Claim, Ours, Unit};
use tlsdyno_stats::statement::Metric;

use super::findings::ComparisonFinding;
use super::published::PublishedShare;
use super::share_ranges::ShareRange;
use super::{Share, Summary};

/// The claims that a record's experiment has numbers of, in its order: comparisons, ranges over all machines of the
/// paper, then what it prints for some of them.
pub fn claims(summary: &Summary) -> Vec<Claim> {
    let comparisons = summary.findings.comparisons.iter().filter_map(comparison);
    let ranges = &summary.findings.share_ranges;
    let has_range = |share: &str| ranges.iter().any(|of| of.above.is_none() && of.shares == [share]);
    let published = summary.published.iter();
    let shares = published.flat_map(|paper| paper.shares.iter().map(move |row| (row, paper.machines.as_slice())));
    let shares = shares.filter(|(row, _)| !has_range(&row.share));
    let shares = shares.map(|(row, machines)| of_share(row, machines, summary));
    comparisons.chain(ranges.iter().map(of_range)).chain(shares).collect()
}

fn of_range(of: &ShareRange) -> Claim {
    let [low, high] = of.published_percent;
    let ours = of.percent.map(|estimate| Ours { estimate, metric: of.metric });
    // A difference has no digits of the paper: its range is as it is written.
    let range = if of.above.is_some() { of.published_percent } else { PublishedNumber { low, high }.rounded() };
    Claim::new(&of.question, of.paper.clone(), (range, Unit::Percent), ours)
}

fn comparison(of: &ComparisonFinding) -> Option<Claim> {
    let range = of.published_times?;
    // Where something else than the server limited hits per second, CPU per hit is what is known.
    let ours = match (of.ratio, of.by_cpu) {
        (Some(ratio), Some(by_cpu)) if ratio.is_bound() => Some((by_cpu, Metric::Cpu)),
        (ratio, _) => ratio.map(|ratio| (ratio, Metric::Throughput)),
    };
    Some(Claim::of_ratio(&of.question, of.paper.as_deref(), range, ours))
}

fn of_share(row: &PublishedShare, machines: &[String], summary: &Summary) -> Claim {
    let of = |metric| summary.shares.by(metric).find(|share| share.stage == row.share);
    let known = |share: &&Share| share.estimate().has_interval() && !share.bound;
    let share = Metric::ALL.into_iter().find_map(|metric| of(metric).filter(known));
    let ours = share.map(|of| Ours { estimate: of.estimate(), metric: of.metric });
    let number = row.number();
    let whole = PublishedNumber { low: number.low.round(), high: number.high.round() };
    let known = row.percent.iter().zip(machines).filter(|(percent, _)| percent.is_known());
    let known: Vec<&str> = known.map(|(_, machine)| machine.as_str()).collect();
    let claim = Claim::published(format!("share of {}", row.share), number, Unit::Percent, ours);
    Claim { paper: format!("{} ({})", Unit::Percent.told(whole), known.join(", ")), ..claim }
}

#[cfg(test)]
mod tests {
    use tlsdyno_stats::scoreboard::Fate;
    use tlsdyno_stats::{Direction, Ratio};

    use super::*;

    fn found(times: f64, low: f64, high: f64, at_least: bool) -> ComparisonFinding {
        let direction = Direction::Undecided;
        let ratio = Ratio { times, low, high, direction, at_most: false, at_least };
        ComparisonFinding {
            question: "?".to_owned(),
            a: "a".to_owned(),
            b: "b".to_owned(),
            ratio: Some(ratio),
            by_cpu: None,
            decided_by: None,
            by_construction: false,
            of_builds: false,
            paper: None,
            published_times: Some([1.46, 2.11]),
        }
    }

    #[test]
    fn a_claim_stands_where_our_interval_lies_in_its_range() {
        let fate = |times, low, high| comparison(&found(times, low, high, false)).unwrap().fate;
        assert_eq!(fate(1.7, 1.5, 1.9), Fate::Stands);
        assert_eq!(fate(1.5, 1.3, 1.7), Fate::Undecided);
        assert_eq!(fate(1.7, f64::NEG_INFINITY, f64::INFINITY), Fate::Undecided);
        // Yes or no: more than once as many.
        let yes = ComparisonFinding { published_times: Some([1.0, 10.0]), ..found(1.01, 0.99, 1.03, false) };
        assert_eq!(comparison(&yes).unwrap().fate, Fate::Undecided);
        let yes = ComparisonFinding { published_times: Some([1.0, 10.0]), ..found(1.02, 1.01, 1.03, false) };
        assert_eq!(comparison(&yes).unwrap().fate, Fate::Stands);
        assert_eq!(fate(2.5, 2.2, 2.8), Fate::Bigger);
        assert_eq!(fate(2.5, 2.0, 3.0), Fate::Undecided);
        assert_eq!(fate(1.2, 1.1, 1.3), Fate::Smaller);
        let bound = comparison(&found(1.2, 1.1, 1.3, true)).unwrap();
        assert_eq!((bound.fate, bound.paper.as_str()), (Fate::Undecided, "1.46 to 2.11 times"));
        let without = ComparisonFinding { ratio: None, ..found(1.0, 1.0, 1.0, false) };
        assert_eq!(comparison(&without).unwrap().fate, Fate::NotMeasured);
        assert!(comparison(&ComparisonFinding { published_times: None, ..without }).is_none());
        // Another range of the same number: a bound stays one.
        assert_eq!(bound.beside([1.0, 1.4], String::new()).fate, Fate::Undecided);
        let whole = comparison(&found(1.2, 1.1, 1.3, false)).unwrap();
        assert_eq!(whole.beside([1.0, 1.4], String::new()).fate, Fate::Stands);
        assert!(!whole.contradicts_itself() && Claim { fate: Fate::Stands, ..whole.clone() }.contradicts_itself());
        let unknown = Claim { ours: None, fate: Fate::Stands, ..whole };
        assert!(unknown.contradicts_itself(), "no verdict without a number");
    }
}
