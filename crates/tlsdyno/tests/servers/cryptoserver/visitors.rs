//! What a cryptoserver costs a new visitor at light load, with the key at hand, elsewhere, and in batches; and what CPU
//! time it moves.

use serde_json::Value;
use tlsdyno::model::{CertificateKind, ServerName};
use tlsdyno::servers::cpu::ProcessClocks;

use super::{Running, STATIC_RSA, Site, Sites, any_port, batch_site, hits, visited};

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

    /// Full handshakes of TLS 1.3 with a request each, in a closed loop.
    const CLOSED: [&str; 11] = ["-k", "--close", "--tls", "1.3", "--reuse", "0", "-c", "4", "-d", "2s", "--json"];

    fn cpu_ns(running: &Running) -> u64 {
        ProcessClocks::new(vec![running.process.id()]).read_ns().unwrap()
    }

    #[test]
    #[ignore = "a minute, wants a quiet machine"]
    fn a_front_end_saves_cpu_time_that_a_cryptoserver_spends() {
        println!("| µs a full handshake, middle [turns] | nginx | agent | cryptoserver |\n|---|---|---|---|");
        for kind in [CertificateKind::Rsa2048, CertificateKind::P256] {
            let site = Site::new(kind);
            let service = site.service(any_port(), &[]);
            let agent = site.agent(&[service.address]);
            let own = site.web_server_with(ServerName::Nginx, false, site.certificate.key.clone());
            let servers = [own, site.web_server(ServerName::Nginx, false)];
            let mut seen: [Vec<[f64; 3]>; 2] = Default::default();
            for turn in 0..2 * TURNS {
                // Own, stub, stub, own.
                let at = (turn + turn / 2) % 2;
                let spent = || [servers[at].cpu_ns().unwrap(), cpu_ns(&agent), cpu_ns(&service)];
                let (before, url) = (spent(), format!("https://{}/hello.txt", servers[at].address()));
                let output = site.place.run(&[&["load", &url], &CLOSED[..]].concat());
                let load: Value = serde_json::from_slice(&output.stdout).unwrap();
                assert!(load["errors"] == serde_json::json!({}) && hits(std::slice::from_ref(&load)) > 100, "{load}");
                let after = spent();
                let each = |part: usize| (after[part] - before[part]) as f64 / 1e3 / load["hits"].as_f64().unwrap();
                seen[at].push([0, 1, 2].map(each));
            }
            for (name, turns) in ["key at hand", "cryptoserver"].iter().zip(&mut seen) {
                let told = |part: usize| {
                    turns.sort_by(|one, other| one[part].total_cmp(&other[part]));
                    let of = |at: usize| turns[at][part];
                    let middle = (of(TURNS / 2 - 1) + of(TURNS / 2)) / 2.0;
                    format!("{middle:.0} [{:.0}, {:.0}]", of(0), of(TURNS - 1))
                };
                println!("| {kind}, {name} | {} |", [0, 1, 2].map(told).join(" | "));
            }
            assert!(seen[1].iter().all(|turn| turn[2] > 10.0), "the cryptoserver signs: {seen:?}");
            assert!(seen[0].iter().all(|turn| turn[2] < 10.0), "and not for who has the key: {seen:?}");
            servers.into_iter().for_each(|server| server.stop().unwrap());
        }
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
