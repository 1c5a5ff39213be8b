//! How much a client may ask for in a second: a bucket for each client, filled at the rate. It holds a second's.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use crate::identity::Client;

/// The buckets of all clients. Clients have certificates of a few authorities' making, so there are few.
#[derive(Debug)]
pub struct Rates {
    per_second: f64,
    buckets: HashMap<Client, (f64, Instant)>,
}

impl Rates {
    pub fn new(per_second: u32) -> Rates {
        Rates { per_second: f64::from(per_second), buckets: HashMap::new() }
    }

    /// Whether one more may be done for the client now.
    pub fn take(&mut self, client: &Client, now: Instant) -> bool {
        let (left, since) = self.buckets.entry(*client).or_insert((self.per_second, now));
        let passed: Duration = now.saturating_duration_since(*since);
        *left = (*left + passed.as_secs_f64() * self.per_second).min(self.per_second);
        *since = now;
        let may = *left >= 1.0;
        *left -= f64::from(u8::from(may));
        may
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_gets_its_rate_and_takes_nothing_from_another() {
        let (mut rates, start) = (Rates::new(10), Instant::now());
        let granted = |rates: &mut Rates, client, at| (0..50).filter(|_| rates.take(&client, at)).count();
        assert_eq!(granted(&mut rates, [1; 32], start), 10);
        assert_eq!(granted(&mut rates, [2; 32], start), 10);
        assert_eq!(granted(&mut rates, [1; 32], start + Duration::from_millis(550)), 5);
        assert_eq!(granted(&mut rates, [1; 32], start + Duration::from_secs(100)), 10);
    }
}
