//! How long work waits for a machine: M/G/c, by the formula of Lee and Longton (1959), `W = C(c, ρ) E[S] / (c (1 − ρ))
//! · (1 + cv²) / 2`, which for one CPU is that of Pollaczek and Khinchine. The tail of the wait is taken for
//! exponential.
//!
//! A machine is taken for one that does what comes first to its end, as a server with one event loop for each CPU does.
//! The test beside the simulation (`simulate`) says how far off that is.

/// Work that waits for the CPUs of one machine.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Queue {
    pub cpus: u32,
    pub rate_per_s: f64,
    /// Mean of what a piece takes, seconds.
    pub mean_s: f64,
    /// Mean of the square of what a piece takes, square seconds.
    pub square_s2: f64,
}

impl Queue {
    /// Of pieces that come so often a second and take so many seconds each. A machine of less than a whole CPU, or of
    /// more than whole ones, has CPUs of another speed: `speed`.
    pub fn of(pieces: &[(f64, f64)], cpus: u32, speed: f64) -> Queue {
        let rate_per_s: f64 = pieces.iter().map(|(rate, _)| rate).sum();
        let moment = |power| pieces.iter().map(|(rate, s)| rate * (s / speed).powi(power)).sum::<f64>() / rate_per_s;
        Queue { cpus, rate_per_s, mean_s: moment(1), square_s2: moment(2) }
    }

    /// Part of the CPUs' time that is used; 1 and more: they do not keep up.
    pub fn used(&self) -> f64 {
        self.rate_per_s * self.mean_s / f64::from(self.cpus)
    }

    /// Part of the pieces that wait (Erlang's C).
    fn waits(&self) -> f64 {
        let used = self.used();
        // By Erlang's B, from one CPU to the next.
        let offered = used * f64::from(self.cpus);
        let lost = (1..=self.cpus).fold(1.0, |lost, cpus| offered * lost / (f64::from(cpus) + offered * lost));
        lost / (1.0 - used * (1.0 - lost))
    }

    /// Mean wait of those that wait, seconds.
    fn wait_of_waiting_s(&self) -> f64 {
        let shape = (self.square_s2 / self.mean_s.powi(2)) / 2.0;
        self.mean_s / (f64::from(self.cpus) * (1.0 - self.used())) * shape
    }

    /// Mean wait, seconds; without an end where the CPUs do not keep up.
    pub fn wait_s(&self) -> f64 {
        if self.used() >= 1.0 { f64::INFINITY } else { self.waits() * self.wait_of_waiting_s() }
    }

    /// The wait that this part of the pieces (0 to 1) does not exceed, seconds.
    pub fn wait_quantile_s(&self, part: f64) -> f64 {
        if self.used() >= 1.0 {
            return f64::INFINITY;
        }
        let beyond = (1.0 - part) / self.waits();
        if beyond >= 1.0 { 0.0 } else { -beyond.ln() * self.wait_of_waiting_s() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_cpu_has_the_closed_forms() {
        // M/D/1 at 0.8: ρ / (2 (1 − ρ)) of a piece. M/M/1: twice that; its wait is exponential for those that wait.
        let fixed = Queue::of(&[(800.0, 1e-3)], 1, 1.0);
        assert!((fixed.used() - 0.8).abs() < 1e-12 && (fixed.wait_s() - 2e-3).abs() < 1e-12);
        let random = Queue { square_s2: 2e-6, ..fixed };
        assert!((random.wait_s() - 4e-3).abs() < 1e-12);
        assert!((random.wait_quantile_s(0.99) - (80.0_f64).ln() * 5e-3).abs() < 1e-9);
        assert_eq!(random.wait_quantile_s(0.1), 0.0, "one in five does not wait");
        assert_eq!(Queue::of(&[(1000.0, 1e-3)], 1, 1.0).wait_s(), f64::INFINITY);
    }

    #[test]
    fn more_cpus_wait_less_at_the_same_use_and_half_a_cpu_takes_twice_as_long() {
        // Erlang's C of two CPUs at 0.8 is 2 ρ² / (1 + ρ).
        let two = Queue::of(&[(1600.0, 1e-3)], 2, 1.0);
        assert!((two.waits() - 2.0 * 0.64 / 1.8).abs() < 1e-12);
        assert!(two.wait_s() < Queue::of(&[(800.0, 1e-3)], 1, 1.0).wait_s());
        let half = Queue::of(&[(400.0, 1e-3)], 1, 0.5);
        assert!((half.used() - 0.8).abs() < 1e-12 && (half.mean_s - 2e-3).abs() < 1e-12);
    }
}
