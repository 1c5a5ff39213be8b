//! What one server costs more than another, part by part, and whether it is dearer.

use serde::Serialize;
use tlsdyno_base::bootstrap::{Column, Estimate};
use tlsdyno_base::verdict::Direction;
use tlsdyno_stats::compared::CPU_START_TO_START_PERCENT;
use tlsdyno_stats::rows::{Rows, Terms};

use crate::LABELS;
use crate::part_id::{PartId, PartKind};
use crate::parts::Part;
use crate::sum::Seen;

/// Difference between the costs of a part of the first server and of another.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PartDifference {
    #[serde(rename = "part")]
    pub id: PartId,
    /// Label of the second server.
    pub server: &'static str,
    pub kind: PartKind,
    /// Cost to the first server, in the rounds that have it of both, nanoseconds.
    pub first_ns: Estimate,
    /// Cost to the second server, in the same rounds, nanoseconds.
    pub second_ns: Estimate,
    /// The second less the first, nanoseconds. The intervals of all differences hold together.
    pub cost_ns: Estimate,
    /// Whether the second is dearer, beyond the tolerance between two starts of one server.
    pub direction: Direction,
}

/// Of each server with the first, in rounds that have the part of both.
pub(crate) fn differences(servers: &[Seen], parts: &[Vec<Part>], rows: &Rows) -> Vec<PartDifference> {
    let line = |number: usize, part: &Part| {
        let other = parts[0].iter().find(|other| other.id == part.id)?;
        let columns = [other.columns(servers[0])?, part.columns(servers[number])?];
        Some(((part.id.clone(), &LABELS[number..=number]), columns))
    };
    let of_server = |number: usize| parts[number].iter().filter_map(move |part| line(number, part));
    type Name = (PartId, &'static str);
    let (names, lines): (Vec<Name>, Vec<[Terms; 2]>) = (1..servers.len()).flat_map(of_server).unzip();
    let more = |(((id, server), terms), [first_ns, second_ns, cost_ns]): ((Name, &[Terms; 2]), [Estimate; 3])| {
        let dearest = |(column, weight): &(&Column, f64)| weight.abs() * rows.estimate(column).value;
        let equal_to_ns = terms.iter().flatten().map(dearest).fold(0.0, f64::max) * CPU_START_TO_START_PERCENT / 100.0;
        let direction = Direction::against(cost_ns.interval(), [-equal_to_ns, equal_to_ns]);
        PartDifference { kind: id.kind(), id, server, first_ns, second_ns, cost_ns, direction }
    };
    let compared = names.into_iter().zip(&lines).zip(rows.compared(&lines)).map(more);
    compared.filter(|of| of.cost_ns.value.is_finite()).collect()
}

#[cfg(test)]
mod tests {
    use tlsdyno_base::random::SplitMix64;
    use tlsdyno_tls::Version;

    use super::*;
    use crate::Measured;
    use crate::part_id::Stretch;
    use crate::parts::decomposed;
    use crate::parts::tests::{columns, measured, rows};
    use crate::steps::StepId;

    fn differences_of(measured: &Measured, columns: [&[Column]; 2]) -> Vec<PartDifference> {
        let servers = columns.map(|columns| (measured, columns));
        let parts = decomposed(&servers, &rows());
        differences(&servers, &parts, &rows())
    }

    #[test]
    fn the_same_server_twice_differs_in_nothing() {
        let measured = measured(Version::Tls13);
        let one = columns(&measured, |step| step.to_string().len() as f64);
        let differences = differences_of(&measured, [&one, &one]);
        assert!(differences.len() > 20 && differences.iter().all(|part| part.cost_ns.value == 0.0));
    }

    /// Of 200 sheets of equal servers about ten may have a line that says dearer or cheaper.
    #[test]
    fn the_verdicts_of_a_sheet_hold_together() {
        let measured = measured(Version::Tls13);
        let mut random = SplitMix64::new(5);
        let mut noisy = || -> Vec<Column> {
            let mut cell = |step: &StepId| Some(step.to_string().len() as f64 * (1.0 + 0.1 * random.normal()));
            measured.steps.iter().map(|step| (0..8).map(|_| cell(&step.id)).collect()).collect()
        };
        let mut wrong = 0;
        for _ in 0..200 {
            let differences = differences_of(&measured, [&noisy(), &noisy()]);
            wrong += usize::from(differences.iter().any(|of| of.direction != Direction::Undecided));
        }
        assert!(wrong <= 10, "{wrong} of 200");
        let dearer: Vec<Column> =
            noisy().into_iter().map(|column| column.iter().map(|cost| Some((*cost)? + 40.0)).collect()).collect();
        let differences = differences_of(&measured, [&noisy(), &dearer]);
        let tcp = differences.iter().find(|of| of.id == PartId::stretch(Stretch::Accepting)).unwrap();
        assert_eq!(tcp.direction, Direction::Bigger, "{tcp:?}");
    }

    /// Rounds that lack a step of one server are in none of the three numbers of a line.
    #[test]
    fn a_difference_is_that_of_the_numbers_beside_it() {
        let measured = measured(Version::Tls13);
        let one = columns(&measured, |step| step.to_string().len() as f64);
        let with = |cut: std::ops::Range<usize>, dearer: f64| -> Vec<Column> {
            let cell = |(row, cost): (usize, &Option<f64>)| {
                (!cut.contains(&row)).then_some((*cost)? * (1.0 + dearer * row as f64))
            };
            one.iter().map(|column| column.iter().enumerate().map(cell).collect()).collect()
        };
        let differences = differences_of(&measured, [&with(0..3, 0.5), &with(5..6, 0.1)]);
        assert!(differences.len() > 20);
        for of in &differences {
            let less = of.second_ns.value - of.first_ns.value;
            assert!((less - of.cost_ns.value).abs() < 1e-6, "{of:?}");
        }
        let tcp = differences.iter().find(|of| of.id == PartId::stretch(Stretch::Accepting)).unwrap();
        // Rows 3, 4, 6 and 7 have both, none of which is trimmed.
        assert!((tcp.first_ns.value - 3.0 * (1.0 + 0.5 * 5.0)).abs() < 1e-6, "{tcp:?}");
    }
}
