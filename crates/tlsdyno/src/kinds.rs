//! The kinds of experiment that this program knows. A new one is a folder in a crate, and a line here.

use anyhow::{Context, Result};
pub use tlsdyno_bench::kinds::*;
pub use tlsdyno_cluster::{array, cluster};
pub use tlsdyno_cost as cost;
pub use tlsdyno_lab::probe_weeks;
pub use tlsdyno_profile::{primitives, profile, steps};

use crate::report::{Style, html as page, terminal};
use crate::store::Record;

/// All kinds, in the order of their commands in the help. Files without any other's key are of the first.
pub static KINDS: &[&dyn Kind] = &[
    &ablation::Ablation,
    &cost::Costs,
    &cluster::Clusters,
    &array::Arrays,
    &load::Loads,
    &profile::Profiles,
    &primitives::PrimitivesOfLibraries,
    &steps::StepByStep,
    &probe_weeks::ProbeWeeks,
    // Of its records, which are an ablation's with more in them, it is asked before the first.
    &tlsdyno_advise::Advised,
];

/// The numbers of a record.
///
/// # Errors
/// It is of none of these kinds, or cannot be understood.
pub fn summary(record: &Record) -> Result<Box<dyn AnySummary>> {
    let field = record.kind_part.field();
    // It was stopped before its subject was known: there is nothing but its question.
    let kind = KINDS.iter().rev().find(|kind| kind.is_of(record)).or(KINDS.first().filter(|_| field.is_empty()));
    kind.with_context(|| format!("this tlsdyno knows no `{field}` of records"))?.summary(record)
}

/// The results of a record as one self-contained HTML file.
///
/// # Errors
/// The record cannot be understood.
pub fn html(record: &Record) -> Result<String> {
    Ok(page::page(&summary(record)?.document(record))?)
}

/// The results of a record as text for a terminal.
///
/// # Errors
/// The record cannot be understood.
pub fn terminal_text(record: &Record, style: Style) -> Result<String> {
    Ok(terminal::text(&summary(record)?.document(record), style))
}

/// The results of a record as one JSON object.
///
/// # Errors
/// The record cannot be understood.
pub fn json_text(record: &Record) -> Result<String> {
    Ok(summary(record)?.json(record))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_experiment_that_comes_along_is_understood() {
        let names: Vec<&str> = files::all(KINDS).unwrap().into_iter().map(|(name, _)| name).collect();
        assert!(names.contains(&"modern/coarfa-fig8"), "{names:?}");
    }
}
