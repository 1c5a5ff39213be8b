//! The arithmetic that connects throughputs with percentages, as the papers use it. Throughputs in any common unit,
//! shares and gains as fractions. `tests/logic/reference_pairs.rs` holds it against the published numbers.

/// Relative cost of what is switched off between configurations `on` and `off`, as a fraction of the time per hit of
/// the server as is:
/// `T_as_is · (1/T_on − 1/T_off)` (Amdahl; Coarfa et al. 2006 section 3.10, 2002 figure 3).
pub fn relative_cost(as_is: f64, on: f64, off: f64) -> f64 {
    as_is * (1.0 / on - 1.0 / off)
}

/// Share of the time per hit that a change from throughput `before` to `after` saved: `1 − before/after` (Coarfa et al.
/// 2006 sections 3.1, 3.6 and 3.10); the same as [`relative_cost`] of the server as is.
pub fn share_saved(before: f64, after: f64) -> f64 {
    relative_cost(before, before, after)
}

/// Gain of throughput when what takes the share `share` (0 to 1) of the time per hit is done `times` as fast: `1/(1 − f
/// + f/s) − 1` (Amdahl, as Coarfa et al. 2006 section 3 uses it for ideal hardware, `times` infinite).
pub fn gain_at_finite_speed(share: f64, times: f64) -> f64 {
    1.0 / (1.0 - share + share / times) - 1.0
}

/// Throughput of a configuration relative to plain HTTP (Coarfa et al. 2006 figure 10).
pub fn relative_throughput(throughput: f64, plain: f64) -> f64 {
    throughput / plain
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_finite_speed_lies_between_nothing_and_a_no_op() {
        let share = share_saved(151.0, 406.0);
        assert!(gain_at_finite_speed(share, 1.0).abs() < 1e-12);
        assert!((gain_at_finite_speed(share, f64::INFINITY) - (406.0 / 151.0 - 1.0)).abs() < 1e-12);
        // Half of the time done four times as fast: 0.5 + 0.125 of it is left.
        assert!((gain_at_finite_speed(0.5, 4.0) - 0.6).abs() < 1e-12);
    }
}
