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

/// The range of a reference throughput that throughputs and their whole percentages of it leave, each `(throughput,
/// percent)`: what is printed as 26 % lies between 25.5 and 26.5 %. `None` without any, or if they contradict
/// each other.
pub fn implied_reference(printed: &[(f64, f64)]) -> Option<(f64, f64)> {
    let ends = printed
        .iter()
        .map(|(throughput, percent)| [percent + 0.5, percent - 0.5].map(|end| throughput / (end / 100.0)));
    let both = ends.reduce(|[low, high], [other_low, other_high]| [low.max(other_low), high.min(other_high)]);
    both.filter(|[low, high]| low <= high).map(|[low, high]| (low, high))
}

/// Throughput of a server that does `plain` without TLS, at the reuse `reuse` (0 to 1), where a full handshake costs
/// `handshake` times what a request costs (Mraz et al. 2002, section 3): `P / (1 + (1 − r) h)`.
pub fn throughput_at_reuse(plain: f64, handshake: f64, reuse: f64) -> f64 {
    plain / (1.0 + (1.0 - reuse) * handshake)
}

/// The half serving point of that server, as a fraction: `1 − 1/h`. Where a handshake costs no more than a request it
/// is 0, for half is reached without reuse.
pub fn mraz_half(handshake: f64) -> f64 {
    (1.0 - 1.0 / handshake).max(0.0)
}

/// Throughput of `proxies` that end TLS in front of a server that does `plain`: `min(P, N / ((1 − r) H + e))`, where a
/// proxy spends `full_s` on a full handshake and `hit_s` on a request, both in seconds.
pub fn array_throughput(plain: f64, proxies: f64, full_s: f64, hit_s: f64, reuse: f64) -> f64 {
    // Few points may be fitted with pages that cost less than nothing.
    plain.min(proxies / ((1.0 - reuse) * full_s + hit_s).max(0.0))
}

/// Full handshakes a second at the half serving point `reuse` (0 to 1) of a server that does `plain` (Mraz et al. 2002,
/// Figure 8): half the plain throughput times what is not reused.
pub fn handshakes_at_half(plain: f64, reuse: f64) -> f64 {
    plain / 2.0 * (1.0 - reuse)
}

/// What becomes of the offered sessions, where they keep a session for `server_s` and a dispatcher
/// before so many backends remembers where it is for `dispatcher_s`, both from its full handshake, and clients come
/// back after exponential pauses of mean `pause_s` (Apostolopoulos et al. 2000, "Scaling an E-Commerce Site", on
/// time-outs).
///
/// Offers of a session are then a Poisson process. While both know it they are accepted; while only the server does, by
/// chance; the offer that is not ends the session. So offers that are not accepted are a renewal process, of sessions
/// of mean length μ and variance σ²; in a block of `block_s` that begins with a new session of each client there are
/// `T / μ + σ² / 2μ² − 1/2` of them, out of `T` by the mean pause. Without an end (`block_s` infinite) the last two
/// terms do not count. `None`: the block is shorter than two sessions, for which that is not so.
pub fn kept_by_time_outs(server_s: f64, dispatcher_s: f64, pause_s: f64, backends: f64, block_s: f64) -> Option<Kept> {
    let known_s = server_s.min(dispatcher_s);
    let by_chance_s = server_s - known_s;
    // After the time in which both know it, offers are missed at this rate; when the server has forgotten, all are.
    let missed_per_s = (1.0 - 1.0 / backends) / pause_s;
    let still = (-missed_per_s * by_chance_s).exp();
    let (until_s, until_s2) = match missed_per_s > 0.0 {
        true => {
            let passed = missed_per_s * by_chance_s;
            ((1.0 - still) / missed_per_s, 2.0 * (1.0 - still * (1.0 + passed)) / missed_per_s.powi(2))
        }
        false => (by_chance_s, by_chance_s.powi(2)),
    };
    let rest_s = until_s + still * pause_s;
    let rest_s2 = until_s2 + 2.0 * still * (by_chance_s * pause_s + pause_s.powi(2));
    let (mean_s, variance_s2) = (known_s + rest_s, rest_s2 - rest_s.powi(2));
    let edge = |ends_s: f64| {
        let edge = variance_s2 / (2.0 * mean_s.powi(2)) + 0.5 - ends_s / mean_s;
        if block_s.is_finite() { edge * pause_s / block_s } else { 0.0 }
    };
    let lost = pause_s / mean_s + edge(mean_s);
    // Sessions that chance does not end before end with the first offer after the server's time-out.
    let forgotten = still * (pause_s / mean_s + edge(server_s + pause_s));
    (block_s >= 2.0 * mean_s).then_some(Kept { accepted: 1.0 - lost, known: 1.0 - forgotten })
}

/// Parts of the offered sessions, 0 to 1.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Kept {
    pub accepted: f64,
    /// A server still has them, wherever their connection is led.
    pub known: f64,
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Coarfa et al. 2006 figure 10 at 933 MHz, whose plain throughput is not printed.
    #[test]
    fn percentages_leave_a_range_of_what_they_are_of() {
        let rounded =
            |printed: &[(f64, f64)]| implied_reference(printed).map(|(low, high)| (low.round(), high.round()));
        assert_eq!(rounded(&[(268.0, 26.0), (367.0, 36.0), (629.0, 62.0)]), Some((1011.0, 1023.0)));
        assert_eq!(rounded(&[(271.0, 12.0), (283.0, 13.0), (1086.0, 49.0)]), Some((2194.0, 2239.0)));
        // At 500 MHz it is printed: 720 and 1447 lie within.
        let (low, high) = implied_reference(&[(151.0, 21.0), (228.0, 32.0), (406.0, 56.0)]).unwrap();
        assert!(low < 720.0 && 720.0 < high);
        assert_eq!(implied_reference(&[]), None);
        assert_eq!(implied_reference(&[(100.0, 10.0), (100.0, 50.0)]), None);
    }

    #[test]
    fn half_serving_points_are_those_of_mraz() {
        // The hypothetical server of section 3: 500 a second, a handshake costs 50 requests.
        assert!((mraz_half(50.0) - 0.98).abs() < 1e-12);
        assert!((throughput_at_reuse(500.0, 50.0, mraz_half(50.0)) - 250.0).abs() < 1e-9);
        assert_eq!(mraz_half(0.5), 0.0);
        // Figure 8: 136 plain transactions a second; half of them at 95, 90, 80 and 77 % for one to four proxies.
        let full: Vec<f64> = [0.95, 0.90, 0.80, 0.77].iter().map(|half| handshakes_at_half(136.0, *half)).collect();
        for (full, known) in full.iter().zip([3.4, 6.8, 13.6, 15.64]) {
            assert!((full - known).abs() < 1e-9, "{full}");
        }
        // With a proxy of 3.4 full handshakes a second the line from one to four would end at 80 %, not 77.
        let (full_s, hit_s) = (1.0 / 3.4, 0.0);
        assert!((array_throughput(136.0, 4.0, full_s, hit_s, 0.80) - 68.0).abs() < 1e-9);
        assert_eq!(array_throughput(136.0, 4.0, full_s, hit_s, 0.99), 136.0);
        assert_eq!(array_throughput(136.0, 4.0, full_s, -1e-3, 1.0), 136.0, "no negative rate");
    }

    #[test]
    fn the_shorter_time_out_decides_and_chance_helps() {
        let in_block = |server_s, dispatcher_s, backends, block_s| {
            kept_by_time_outs(server_s, dispatcher_s, 2.0, backends, block_s).unwrap().accepted
        };
        let kept = |server_s, dispatcher_s, backends| in_block(server_s, dispatcher_s, backends, f64::INFINITY);
        let known = |dispatcher_s| kept_by_time_outs(4.0, dispatcher_s, 2.0, 3.0, f64::INFINITY).unwrap().known;
        assert_eq!(known(4.0), kept(4.0, 4.0, 3.0), "the dispatcher loses none that the server still has");
        assert!((kept(4.0, 4.0, 3.0) - 2.0 / 3.0).abs() < 1e-12);
        assert_eq!(kept(4.0, 8.0, 3.0), kept(4.0, 4.0, 3.0), "what the server has forgotten cannot be routed");
        let shorter = kept(4.0, 2.0, 3.0);
        assert!(shorter > kept(2.0, 2.0, 3.0) && shorter < kept(4.0, 4.0, 3.0), "{shorter}");
        assert!((kept(4.0, 2.0, 1.0) - kept(4.0, 4.0, 1.0)).abs() < 1e-12, "one backend is always the right one");
        // Against simulations: pauses drawn, ages followed, in blocks of 30 s and in one without an end.
        let mut random = tlsdyno_base::random::SplitMix64::new(5);
        for (block_s, told) in [(30.0, in_block(4.0, 2.0, 3.0, 30.0)), (f64::INFINITY, shorter)] {
            let (mut age, mut time, mut accepted, mut offers, mut still) = (0.0, 0.0, 0_u32, 0_u32, 0_u32);
            while offers < 200_000 {
                let pause = -2.0 * (1.0 - random.uniform()).ln();
                (age, time) = (age + pause, time + pause);
                if time > block_s {
                    (age, time) = (0.0, 0.0);
                    continue;
                }
                let is_kept = age < 4.0 && (age < 2.0 || random.uniform() < 1.0 / 3.0);
                (accepted, offers) = (accepted + u32::from(is_kept), offers + 1);
                still += u32::from(age < 4.0);
                age = if is_kept { age } else { 0.0 };
            }
            assert!((f64::from(accepted) / f64::from(offers) - told).abs() < 0.005, "{block_s}: {accepted} {told}");
            let told = kept_by_time_outs(4.0, 2.0, 2.0, 3.0, block_s).unwrap().known;
            assert!((f64::from(still) / f64::from(offers) - told).abs() < 0.01, "{block_s}: {still} {told}");
        }
        assert_eq!(kept_by_time_outs(4.0, 4.0, 2.0, 3.0, 11.0), None, "sessions of 6 s");
        assert!(in_block(4.0, 2.0, 3.0, 30.0) > shorter + 0.01, "a block ends within sessions that were kept");
    }

    #[test]
    fn a_finite_speed_lies_between_nothing_and_a_no_op() {
        let share = share_saved(151.0, 406.0);
        assert!(gain_at_finite_speed(share, 1.0).abs() < 1e-12);
        assert!((gain_at_finite_speed(share, f64::INFINITY) - (406.0 / 151.0 - 1.0)).abs() < 1e-12);
        // Half of the time done four times as fast: 0.5 + 0.125 of it is left.
        assert!((gain_at_finite_speed(0.5, 4.0) - 0.6).abs() < 1e-12);
    }
}
