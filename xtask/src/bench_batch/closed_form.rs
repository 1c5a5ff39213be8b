//! What a visitor waits for in the mean: that the batch begins, that the one before it ends, and that its own is done.

use std::time::Duration;

/// What the closed form says of requests that come at random and are decrypted in batches.
#[derive(Debug)]
pub struct Expected {
    pub size: f64,
    /// Time until a batch begins, seconds.
    pub gathering_s: f64,
    /// Time from a request to its answer, seconds.
    pub latency_s: f64,
    /// The part of the time in which the thread decrypts.
    pub busy: f64,
}

impl Expected {
    /// Requests come at random (Poisson) `per_s` times a second, one certificate after the other, to one thread;
    /// `of_size` has the seconds of a batch of one, of two and so on.
    ///
    /// The first of a batch waits for the last, or for `wait`. With A the requests that come in that time and Q(j) the
    /// chance of A ≥ j, a batch has 1 + Σ Q(j), takes Σ Q(j) / rate to gather, and all of it wait Σ j Q(j) / rate, for
    /// j below `batch`. The queue is Allen and Cunneen's, which is exact without batches (M/D/1). It does not know that
    /// batches grow while the thread is busy.
    pub fn of(per_s: f64, batch: usize, wait: Duration, of_size: &[f64]) -> Expected {
        let arrivals = per_s * wait.as_secs_f64();
        let (mut chance, mut at_least) = ((-arrivals).exp(), vec![1.0]);
        for j in 1..=batch {
            at_least.push(f64::max(at_least[j - 1] - chance, 0.0));
            chance *= arrivals / j as f64;
        }
        let sum = |of: &dyn Fn(usize) -> f64| (1..batch).map(of).sum::<f64>();
        let size = 1.0 + sum(&|j| at_least[j]);
        let gathering_s = sum(&|j| j as f64 * at_least[j]).abs() / per_s / size;
        let [takes, squared] = [sum(&|j| at_least[j]), 2.0 * sum(&|j| j as f64 * at_least[j + 1])];
        let variance_of_gaps = 1.0 + squared - takes * takes;
        // The chance of a batch of just so many.
        let just = |n: usize| if n == batch { at_least[n - 1] } else { at_least[n - 1] - at_least[n] };
        let mean = |of: &dyn Fn(usize) -> f64| (1..=batch).map(|n| just(n) * of(n)).sum::<f64>();
        let service = mean(&|n| of_size[n - 1]);
        let variance_of_services = mean(&|n| of_size[n - 1].powi(2)) - service * service;
        let busy = per_s / size * service;
        let spread = variance_of_gaps / (size * size) + variance_of_services / (service * service);
        let queue = if busy < 1.0 { busy / (1.0 - busy) * service * spread / 2.0 } else { f64::INFINITY };
        let own = mean(&|n| n as f64 * of_size[n - 1]) / size;
        Expected { size, gathering_s, latency_s: gathering_s + queue + own, busy }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use tlsdyno::random::SplitMix64;
    use tlsdyno_cryptoserver::gathering::Gathering;

    use super::*;

    const WAIT: Duration = Duration::from_millis(2);

    /// Means of the wait for a batch, its size, and the latency with one thread, in virtual time.
    fn simulated(per_s: f64, batch: usize, wait: Duration, of_size: &[f64]) -> [f64; 3] {
        let (mut gathering, mut random) = (Gathering::new(batch, batch, wait), SplitMix64::new(7));
        let (mut now, mut batches, requests) = (Instant::now(), 0, 200_000);
        let (mut waited, mut lasted, mut free) = (Duration::ZERO, Duration::ZERO, now);
        let mut begin = |gathering: &mut Gathering<Instant>, at: Instant| {
            let one = gathering.take();
            free = free.max(at) + Duration::from_secs_f64(of_size[one.len() - 1]);
            for (_, since) in one {
                waited += at - since;
                lasted += free - since;
            }
            batches += 1;
        };
        for request in 0..requests {
            now += Duration::from_secs_f64(-random.uniform().ln() / per_s);
            while let Some(due) = gathering.due().filter(|due| *due <= now) {
                begin(&mut gathering, due);
            }
            gathering.add(request % batch, now, now);
            if gathering.due().is_some_and(|due| due <= now) {
                begin(&mut gathering, now);
            }
        }
        let each = |sum: Duration| sum.as_secs_f64() / requests as f64;
        [each(waited), requests as f64 / f64::from(batches), each(lasted)]
    }

    #[test]
    fn means_are_those_of_a_simulation_with_the_services_own_decisions() {
        let of_size: Vec<f64> = (0..8).map(|n| 2e-4 + 3e-5 * f64::from(n)).collect();
        for per_s in [50.0, 500.0, 2000.0, 10_000.0] {
            for batch in [1, 2, 4, 8] {
                let expected = Expected::of(per_s, batch, WAIT, &of_size[..batch]);
                let [waited, size, lasted] = simulated(per_s, batch, WAIT, &of_size);
                let is_near = |expected: f64, found: f64, by: f64| (expected - found).abs() <= by * found;
                let case = format!("{per_s} {batch}: {expected:?}, {waited} {size} {lasted}");
                assert!(is_near(expected.gathering_s, waited, 0.02) && is_near(expected.size, size, 0.02), "{case}");
                // The queue's formula is an approximation where batches begin regularly.
                let bound = if batch == 1 || expected.busy < 0.5 { 0.03 } else { 0.1 };
                assert!(expected.busy > 0.8 || is_near(expected.latency_s, lasted, bound), "{case}");
            }
        }
    }

    #[test]
    fn without_a_wait_nobody_waits_for_a_batch() {
        let expected = Expected::of(1000.0, 8, Duration::ZERO, &[1e-4; 8]);
        assert_eq!((expected.size, expected.gathering_s), (1.0, 0.0));
        // M/D/1: half of 0.1 / 0.9 services.
        assert!((expected.latency_s - 1e-4 * (1.0 + 0.1 / 0.9 / 2.0)).abs() < 1e-9);
    }
}
