//! The functions of the fuzz targets, for a moment, on the inputs that are kept, seeds, mutated seeds and random bytes;
//! `cargo fuzz` runs them for long.

#[path = "../../../fuzz/src/corpus.rs"]
mod corpus;
#[path = "../../../fuzz/src/lib.rs"]
mod targets;

use corpus::run_kept;

/// xorshift64*: the same inputs in every run.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    fn below(&mut self, limit: usize) -> usize {
        (self.next() % limit as u64) as usize
    }

    fn bytes(&mut self, most: usize) -> Vec<u8> {
        (0..self.below(most)).map(|_| self.next() as u8).collect()
    }

    /// `seed` with a few bytes changed, inserted, removed or repeated.
    fn mutate(&mut self, seed: &[u8]) -> Vec<u8> {
        let mut bytes = seed.to_vec();
        for _ in 0..=self.below(3) {
            let place = self.below(bytes.len());
            match self.below(5) {
                0 => bytes[place] = self.next() as u8,
                1 => bytes[place] ^= 1 << self.below(8),
                2 => bytes.insert(place, self.next() as u8),
                3 => drop(bytes.remove(place)),
                _ => {
                    let end = place + self.below((bytes.len() - place).min(60));
                    let copy = bytes[place..end].to_vec();
                    bytes.splice(place..place, copy);
                }
            }
            if bytes.is_empty() {
                break;
            }
        }
        bytes
    }
}

#[test]
fn every_conversation_connects() {
    for (index, seed) in targets::conversations().iter().enumerate() {
        assert!(targets::connects(seed), "seed {index} reaches the end of its handshake");
    }
}

#[test]
fn every_case_of_the_shim_connects() {
    for seed in targets::stages_seeds() {
        assert!(targets::stages_connect(&seed), "case {} reaches the end of its handshake", seed[0]);
    }
}

#[test]
fn kept_inputs() {
    run_kept("answer_receive", targets::answer_receive);
    run_kept("certificate", targets::certificate);
    run_kept("client_receive", targets::client_receive);
    run_kept("client_stages", targets::client_stages);
    run_kept("handshake_messages", targets::handshake_messages);
    run_kept("hello_parse", targets::hello_parse);
    run_kept("hpack_decode", targets::hpack_decode);
    run_kept("http2_receive", targets::http2_receive);
    run_kept("http_response", targets::http_response);
    run_kept("opening_receive", targets::opening_receive);
    run_kept("real_crypto", targets::real_crypto);
    run_kept("session_keys", targets::session_keys);
}

#[test]
fn client_stages() {
    let mut random = Random(8);
    for seed in targets::stages_seeds() {
        targets::client_stages(&seed);
        for _ in 0..2000 {
            targets::client_stages(&random.mutate(&seed));
        }
    }
}

#[test]
fn client_receive() {
    let mut random = Random(1);
    for seed in targets::conversations() {
        targets::client_receive(&seed);
        for _ in 0..3000 {
            targets::client_receive(&random.mutate(&seed));
        }
    }
    for _ in 0..3000 {
        targets::client_receive(&random.bytes(300));
    }
}

#[test]
fn http_response() {
    let mut random = Random(7);
    for seed in targets::http_seeds() {
        targets::http_response(&seed);
        for _ in 0..20_000 {
            targets::http_response(&random.mutate(&seed));
        }
    }
}

#[test]
fn http2() {
    let mut random = Random(9);
    for (seeds, run) in
        [(targets::http2_seeds(), targets::http2_receive as fn(&[u8])), (targets::hpack_seeds(), targets::hpack_decode)]
    {
        for seed in seeds {
            run(&seed);
            for _ in 0..10_000 {
                run(&random.mutate(&seed));
            }
        }
    }
}

#[test]
fn openings_and_answers() {
    let mut random = Random(10);
    for (seeds, run) in [
        (targets::opening_seeds(), targets::opening_receive as fn(&[u8])),
        (targets::answer_seeds(), targets::answer_receive),
    ] {
        for seed in seeds {
            run(&seed);
            for _ in 0..10_000 {
                run(&random.mutate(&seed));
            }
        }
    }
}

#[test]
fn hello_parse() {
    let mut random = Random(2);
    for seed in targets::conversations() {
        for _ in 0..1000 {
            targets::hello_parse(&random.mutate(&seed));
        }
    }
    for _ in 0..10_000 {
        let mut bytes = vec![22, 3, 1, 0, 200, 1, 0, 0, 196, 3, 3];
        bytes.extend(random.bytes(300));
        targets::hello_parse(&bytes);
    }
}

#[test]
fn session_keys() {
    let mut random = Random(6);
    for seed in targets::conversations() {
        for _ in 0..1000 {
            targets::session_keys(&random.mutate(&seed));
        }
    }
    for start in [[40, 22, 3, 1, 0, 200, 1, 0, 0, 196, 3, 3], [9, 22, 3, 3, 0, 90, 2, 0, 0, 86, 3, 3]] {
        for _ in 0..10_000 {
            let mut bytes = start.to_vec();
            bytes.extend(random.bytes(300));
            targets::session_keys(&bytes);
        }
    }
}

#[test]
fn handshake_messages() {
    let mut random = Random(3);
    for _ in 0..50_000 {
        let mut bytes = random.bytes(80);
        // Small numbers, so that lengths often fit.
        bytes.iter_mut().for_each(|byte| *byte %= 12);
        targets::handshake_messages(&bytes);
    }
}

#[test]
fn certificate() {
    let mut random = Random(4);
    for algorithm in [&rcgen::PKCS_RSA_SHA256, &rcgen::PKCS_ECDSA_P256_SHA256, &rcgen::PKCS_ECDSA_P384_SHA384] {
        let key = rcgen::KeyPair::generate_for(algorithm).unwrap();
        let params = rcgen::CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
        let seed = params.self_signed(&key).unwrap().der().to_vec();
        assert!(tlsdyno_tls::crypto::verify::public_key(&seed).is_ok());
        targets::certificate(&seed);
        for _ in 0..1000 {
            targets::certificate(&random.mutate(&seed));
        }
        for length in 0..seed.len() {
            targets::certificate(&seed[..length]);
        }
    }
}

#[test]
fn real_crypto() {
    let mut random = Random(5);
    for choice in 0..=255 {
        for length in 0..300 {
            let mut bytes = vec![choice];
            bytes.extend((0..length).map(|_| random.next() as u8));
            targets::real_crypto(&bytes);
        }
    }
}
