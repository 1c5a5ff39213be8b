//! What a cryptoserver costs a new visitor at light load: with the key at hand, elsewhere, and in batches.

use serde_json::Value;

use super::{STATIC_RSA, Sites, batch_site, hits, visited};

mod long {
    use super::*;

    /// Visitors a second in all, over four certificates.
    const PER_S: u32 = 100;
    /// Each way is measured so often, forwards and backwards.
    const TURNS: usize = 4;
    const TLS12: [&str; 4] = ["--tls", "1.2", "--suite", STATIC_RSA];

    /// From the moment at which a visitor was to come until the answer is there, milliseconds: mean, and 99th
    /// percentile of the worst port.
    fn waits_ms(loads: &[Value]) -> [f64; 2] {
        let of = |load: &Value, what: &str| load["latency_ns"]["scheduled_response"][what].as_f64().unwrap() / 1e6;
        let all: f64 = loads.iter().map(|load| of(load, "mean") * load["hits"].as_f64().unwrap()).sum();
        [all / hits(loads) as f64, loads.iter().map(|load| of(load, "p99")).fold(0.0, f64::max)]
    }

    #[test]
    #[ignore = "a minute, wants a quiet machine"]
    fn a_new_visitor_waits_for_the_key_and_for_the_batch() {
        let [alone, gathers, at_once] =
            [&[][..], &["--batch", "4", "--batch-wait", "2ms"], &["--batch", "4", "--batch-wait", "0ms"]]
                .map(batch_site);
        let ways = [
            ("TLS 1.3, key at hand", &alone, ".", &["--tls", "1.3"][..]),
            ("TLS 1.3, cryptoserver", &alone, "front", &["--tls", "1.3"]),
            ("static RSA, key at hand", &alone, ".", &TLS12),
            ("static RSA, cryptoserver", &alone, "front", &TLS12),
            ("static RSA, batches of 4, 2 ms", &gathers, "front", &TLS12),
            ("static RSA, batches of 4, 0 ms", &at_once, "front", &TLS12),
        ];
        let rate = (PER_S / 4).to_string();
        let load = ["--rate", &rate, "-c", "8", "-d", "2s"];
        let mut seen: Vec<Vec<[f64; 2]>> = vec![Vec::new(); ways.len()];
        for turn in 0..TURNS {
            let order: Vec<usize> = (0..ways.len()).collect();
            let order = if turn % 2 == 0 { order } else { order.into_iter().rev().collect() };
            for at in order {
                let (_, (site, names, ..), keys, tls) = &ways[at];
                let sites = Sites::start(site, names, keys);
                seen[at].push(waits_ms(&visited(site, &sites, &[&load[..], tls].concat())));
            }
        }
        let mean = |at: usize, what: usize| seen[at].iter().map(|of| of[what]).sum::<f64>() / TURNS as f64;
        println!("| {PER_S} new visitors a second | mean ms | each turn | p99 ms |\n|---|---:|---|---:|");
        for (at, (name, ..)) in ways.iter().enumerate() {
            let turns: Vec<String> = seen[at].iter().map(|of| format!("{:.2}", of[0])).collect();
            println!("| {name} | {:.2} | {} | {:.2} |", mean(at, 0), turns.join(", "), mean(at, 1));
        }
        // Few find others to share a batch with, and wait for most of the bound.
        let gathering_ms = mean(4, 0) - mean(3, 0);
        assert!((1.0..3.0).contains(&gathering_ms), "{gathering_ms} ms for a bound of 2");
    }
}
