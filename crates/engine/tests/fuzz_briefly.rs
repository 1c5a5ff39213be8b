//! The functions of the dispatcher's and the built-in server's fuzz targets, for a moment, on the inputs that are kept,
//! seeds and mutated seeds; `cargo fuzz` runs them for long.

#[path = "../../../fuzz/src/corpus.rs"]
mod corpus;
#[path = "../../../fuzz/src/serve.rs"]
mod serve;
#[path = "../../../fuzz/src/dispatch/mod.rs"]
mod targets;

use corpus::run_kept;

/// xorshift64*: the same inputs in every run.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: usize) -> usize {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 16) as usize % limit
    }

    /// `seed` with a few bytes changed, removed or repeated.
    fn mutate(&mut self, seed: &[u8]) -> Vec<u8> {
        let mut bytes = seed.to_vec();
        for _ in 0..=self.below(4) {
            let place = self.below(bytes.len());
            match self.below(4) {
                0 => bytes[place] = self.below(256) as u8,
                1 => bytes[place] = self.below(8) as u8,
                2 => bytes.truncate(place + 1),
                _ => {
                    let end = place + self.below((bytes.len() - place).min(200));
                    let copy = bytes[place..end].to_vec();
                    bytes.splice(place..place, copy);
                }
            }
        }
        bytes
    }
}

#[test]
fn dispatch_route() {
    let mut random = Random(1);
    for seed in targets::seeds::route_seeds() {
        targets::route::dispatch_route(&seed);
        (0..1500).for_each(|_| targets::route::dispatch_route(&random.mutate(&seed)));
    }
}

#[test]
fn dispatch_relay() {
    let mut random = Random(2);
    for seed in targets::seeds::relay_seeds() {
        targets::relay::dispatch_relay(&seed);
        (0..150).for_each(|_| targets::relay::dispatch_relay(&random.mutate(&seed)));
    }
}

#[test]
fn http_request() {
    let mut random = Random(3);
    for seed in serve::request_seeds() {
        serve::http_request(&seed);
        (0..3000).for_each(|_| serve::http_request(&random.mutate(&seed)));
    }
}

#[test]
fn kept_inputs() {
    run_kept("dispatch_relay", targets::relay::dispatch_relay);
    run_kept("dispatch_route", targets::route::dispatch_route);
    run_kept("http_request", serve::http_request);
}
