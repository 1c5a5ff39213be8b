//! What an interval tells of a number. Every verdict is made of this.

use tlsdyno_tls::named;

use crate::bootstrap::Estimate;

/// Where a number lies against a range, as far as its interval tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lies {
    /// The whole interval lies above the range.
    Above,
    /// The whole interval lies below it.
    Below,
    /// The whole interval lies within it.
    Within,
    /// The interval reaches across an end of the range, or has no end itself: nothing is known.
    Across,
}

impl Lies {
    /// An interval, whose ends may be infinite or no numbers, against a range.
    pub fn new([low, high]: [f64; 2], [from, to]: [f64; 2]) -> Lies {
        match () {
            () if !(low.is_finite() && high.is_finite()) => Lies::Across,
            () if low > to => Lies::Above,
            () if high < from => Lies::Below,
            () if low >= from && high <= to => Lies::Within,
            () => Lies::Across,
        }
    }
}

named! {
    /// What can be said of a number against the one it is compared with.
    pub enum Direction: "direction" {
        /// The whole interval lies above.
        Bigger = "bigger",
        /// The whole interval lies below.
        Smaller = "smaller",
        /// Neither, or too few rounds to say.
        Undecided = "undecided",
    }
}

impl Estimate {
    /// On which side of 0 it lies.
    pub fn direction(&self) -> Direction {
        Direction::new(self.interval(), 0.0)
    }
}

impl Direction {
    /// An interval against a number: undecided where it holds the number, or has no end.
    pub fn new(interval: [f64; 2], against: f64) -> Direction {
        Direction::against(interval, [against, against])
    }

    /// An interval against a range: undecided where it is not wholly beyond it, or has no end.
    pub fn against(interval: [f64; 2], range: [f64; 2]) -> Direction {
        match Lies::new(interval, range) {
            Lies::Above => Direction::Bigger,
            Lies::Below => Direction::Smaller,
            Lies::Within | Lies::Across => Direction::Undecided,
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn nothing_is_decided_without_a_finite_interval() {
        let (infinite, nan) = (f64::INFINITY, f64::NAN);
        for interval in [[-infinite, infinite], [2.0, infinite], [-infinite, 0.5], [nan, nan], [2.0, nan]] {
            assert_eq!(Lies::new(interval, [0.0, 1.0]), Lies::Across, "{interval:?}");
            assert_eq!(Direction::new(interval, 1.0), Direction::Undecided, "{interval:?}");
        }
        assert_eq!(Lies::new([0.99, 1.03], [1.0, 10.0]), Lies::Across);
        assert_eq!(Lies::new([1.01, 1.03], [1.0, 10.0]), Lies::Within);
    }

    proptest! {
        /// A verdict turns into another only through being undecided, and never says more than its interval.
        #[test]
        fn verdicts_keep_to_it(low in -3.0..3.0f64, from in -3.0..3.0f64, widths in [0.0..3.0f64, 0.0..3.0f64]) {
            let (high, to) = (low + widths[0], from + widths[1]);
            match Lies::new([low, high], [from, to]) {
                Lies::Above => prop_assert!(low > to),
                Lies::Below => prop_assert!(high < from),
                Lies::Within => prop_assert!(from <= low && high <= to),
                Lies::Across => prop_assert!(low < from && high >= from || low <= to && high > to),
            }
            prop_assert_eq!(Lies::new([low, f64::INFINITY], [from, to]), Lies::Across);
        }
    }
}
