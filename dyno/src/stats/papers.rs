//! The arithmetic that connects throughputs with percentages, as the papers use it. Throughputs in any common unit,
//! shares and gains as fractions. `tests/logic/reference_pairs.rs` holds it against the published numbers.

/// Relative cost of what is switched off between configurations `on` and `off`, as a fraction of the time per hit of
/// the server as is:
/// `T_as_is · (1/T_on − 1/T_off)` (Amdahl; Coarfa et al. 2006 section 3.10, 2002 figure 3).
pub fn relative_cost(as_is: f64, on: f64, off: f64) -> f64 {
    as_is * (1.0 / on - 1.0 / off)
}

/// Share of the time per hit that a change from throughput `before` to `after` saved: `1 − before/after` (Coarfa et al.
/// 2006 sections 3.1,
/// 3.6 and 3.10); the same as [`relative_cost`] of the server as is.
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

/// Improvement of throughput from `before` to `after`: `after/before − 1` (Coarfa et al. 2006 sections 3.2 to 3.4 and
/// 3.10).
pub fn gain(before: f64, after: f64) -> f64 {
    after / before - 1.0
}

/// How many times `fast` is `slow` (Coarfa et al. 2006 section 3.13; session-cache factor of the 2002 figures).
pub fn factor(fast: f64, slow: f64) -> f64 {
    fast / slow
}

/// Share of the time per hit that must be removed for a gain of `gain`: `1 − 1/(1 + gain)` (Coarfa et al. 2006 section
/// 3.13).
pub fn share_from_gain(gain: f64) -> f64 {
    1.0 - 1.0 / (1.0 + gain)
}

/// Fraction of hits without a full handshake when `objects` are fetched per full handshake: `1 − 1/objects` (Mraz et
/// al. 2002 equation 1).
pub fn reuse_from_objects(objects: f64) -> f64 {
    1.0 - 1.0 / objects
}

/// Transactions per second at this `reuse` (0 to 1), where `resumed` is the rate when every hit reuses a session and a
/// full handshake costs `handshake` times as much as a hit more: `P / (1 + (1 − r) h)` (Mraz et al. 2002 section 3).
pub fn transactions_per_second(resumed: f64, handshake: f64, reuse: f64) -> f64 {
    resumed / (1.0 + (1.0 - reuse) * handshake)
}

/// [`transactions_per_second`] with `objects` fetched per full handshake: `P n / (n + h)`.
pub fn transactions_per_second_with_objects(resumed: f64, handshake: f64, objects: f64) -> f64 {
    resumed * objects / (objects + handshake)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_two_forms_of_the_reuse_curve_are_one_curve() {
        for objects in [1.0, 8.0, 10.0, 18.0, 100.0] {
            let by_reuse = transactions_per_second(500.0, 50.0, reuse_from_objects(objects));
            let by_objects = transactions_per_second_with_objects(500.0, 50.0, objects);
            assert!((by_reuse - by_objects).abs() < 1e-9);
        }
    }

    #[test]
    fn a_finite_speed_lies_between_nothing_and_a_no_op() {
        let share = share_saved(151.0, 406.0);
        assert!(gain_at_finite_speed(share, 1.0).abs() < 1e-12);
        assert!((gain_at_finite_speed(share, f64::INFINITY) - gain(151.0, 406.0)).abs() < 1e-12);
        // Half of the time done four times as fast: 0.5 + 0.125 of it is left.
        assert!((gain_at_finite_speed(0.5, 4.0) - 0.6).abs() < 1e-12);
    }

    #[test]
    fn a_share_and_its_gain_say_the_same() {
        assert!((share_saved(151.0, 406.0) - share_from_gain(gain(151.0, 406.0))).abs() < 1e-12);
    }
}
