//! Sums of steps, from which costs follow.

use std::fmt;

use serde::{Serialize, Serializer};
use tlsdyno_base::bootstrap::Column;

use crate::Measured;
use crate::steps::StepId;

#[derive(Clone, Debug, PartialEq)]
pub struct Sum(pub(crate) Vec<(f64, StepId)>);

/// A server, with the cost of each of its steps by row.
pub(crate) type Seen<'a> = (&'a Measured, &'a [Column]);

impl Sum {
    pub fn difference([more, less]: [&StepId; 2]) -> Sum {
        Sum(vec![(1.0, more.clone()), (-1.0, less.clone())])
    }

    /// Weighted columns of the steps; `None`: some were not measured.
    pub(crate) fn columns<'a>(&self, (measured, columns): Seen<'a>) -> Option<Vec<(&'a Column, f64)>> {
        let column = |step: &StepId| columns.get(measured.number_of(step)?);
        self.0.iter().map(|(weight, step)| Some((column(step)?, *weight))).collect()
    }

    pub fn has(&self, step: &StepId) -> bool {
        self.0.iter().any(|(_, of)| of == step)
    }
}

impl fmt::Display for Sum {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let term = |(weight, step): &(f64, StepId)| format!("{} {step}", if *weight > 0.0 { "+" } else { "−" });
        let terms = self.0.iter().map(term).collect::<Vec<_>>().join(" ");
        formatter.write_str(terms.trim_start_matches("+ "))
    }
}

impl Serialize for Sum {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}
