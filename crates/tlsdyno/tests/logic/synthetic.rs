//! A made-up record with known truth, built through the public API: what the tests of store, statistics and reports
//! work on.

use std::collections::BTreeMap;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hdrhistogram::Histogram;
use hdrhistogram::serialization::{Serializer, V2Serializer};
use tlsdyno::model::Experiment;
use tlsdyno::random::SplitMix64;
use tlsdyno::store::{Block, Configuration, FORMAT, Manifest, Preflight, Record, Role};
use tlsdyno_tls::Stage;

/// Server CPU per hit as is, nanoseconds.
pub const AS_IS_NS: f64 = 412_000.0;
/// True cost of each stage, per cent of [`AS_IS_NS`].
pub const STAGES: [(&str, f64); 7] = [
    ("authentication", 41.0),
    ("key_agreement", 13.5),
    ("cipher", 1.6),
    ("mac", 1.1),
    ("digest", 2.2),
    ("kdf", 5.0),
    ("randomness", 0.15),
];
/// True cost of plain HTTP, per cent.
pub const PLAIN_HTTP: f64 = 15.0;
/// True cost of switching all off, per cent: less than the sum of the stages, as their costs overlap.
pub const ALL_OFF: f64 = 62.0;

/// What to make.
#[derive(Clone, Debug)]
pub struct Synthetic {
    /// Rounds.
    pub rounds: u32,
    /// Standard deviation of a block's noise, relative.
    pub noise: f64,
    /// With a plain-HTTP configuration.
    pub plain: bool,
    /// Seed of the noise.
    pub seed: u64,
}

impl Default for Synthetic {
    fn default() -> Synthetic {
        Synthetic { rounds: 16, noise: 0.015, plain: true, seed: 1 }
    }
}

impl Synthetic {
    /// Makes the record.
    pub fn record(&self) -> Record {
        let mut random = SplitMix64::new(self.seed);
        let configurations = self.configurations();
        let mut blocks = Vec::new();
        let mut started_ns = 0;
        for round in 0..self.rounds {
            let drift = (0.1 * random.normal()).exp();
            for (index, (_, cost)) in configurations.iter().enumerate() {
                let disturbed = if random.below(25) == 0 { 1.4 } else { 1.0 };
                let cost = cost * drift * disturbed * (1.0 + self.noise * random.normal());
                let block = self.block(round, index, &configurations[index].0, cost, started_ns, &mut random);
                started_ns += block.elapsed_ns + 20_000_000;
                blocks.push(block);
            }
        }
        Record {
            format: FORMAT,
            id: String::new(),
            created_unix_s: 1_795_190_400,
            finished: true,
            question: "What does each TLS component cost nginx with TLS 1.3 and an RSA-2048 certificate?".to_owned(),
            manifest: manifest(),
            configurations: configurations.into_iter().map(|(configuration, _)| configuration).collect(),
            blocks,
            warnings: Vec::new(),
            kind_part: Experiment::default().into(),
        }
    }

    /// The configurations with their true CPU per hit.
    fn configurations(&self) -> Vec<(Configuration, f64)> {
        let off = |percent: f64| AS_IS_NS * (1.0 - percent / 100.0);
        let every: Vec<&str> = STAGES.iter().map(|(stage, _)| *stage).collect();
        let mut all = vec![(configuration("as is", &[], Role::AsIs), AS_IS_NS)];
        all.extend(STAGES.iter().map(|&(stage, percent)| {
            (
                configuration(
                    &format!("no {}", stage.replace('_', " ")),
                    &[stage],
                    Role::StageOff(stage.parse().unwrap()),
                ),
                off(percent),
            )
        }));
        all.push((configuration("all off", &every, Role::AllOff), off(ALL_OFF)));
        if self.plain {
            all.push((configuration("plain HTTP", &[], Role::PlainHttp), AS_IS_NS * PLAIN_HTTP / 100.0));
        }
        all
    }

    fn block(
        &self,
        round: u32,
        index: usize,
        of: &Configuration,
        cpu_ns: f64,
        started_ns: u64,
        random: &mut SplitMix64,
    ) -> Block {
        let hits = 2_400;
        // The client keeps up with everything but plain HTTP.
        let client_ns = if of.tls { 61_000.0 } else { 24_000.0 };
        let time_ns = (cpu_ns * 1.05).max(client_ns * 1.02 * (1.0 + 0.3 * f64::from(u8::from(!of.tls))));
        let full = if of.tls { 200 } else { 0 };
        let resumed = if of.tls { 600 } else { 0 };
        let mut phases = BTreeMap::new();
        let mut add = |phase: &str, count: u64, median_us: f64| {
            let mut histogram = Histogram::<u64>::new(3).expect("three digits");
            for _ in 0..count {
                let value = median_us * 1_000.0 * (0.35 * random.normal()).exp();
                histogram.record(value as u64).expect("auto-resizing");
            }
            phases.insert(phase.to_owned(), encode(&histogram));
        };
        add("tcp_connect", 200, 70.0);
        if of.tls {
            add("full_handshake", full, 300.0 + cpu_ns / 150.0);
            add("resumed_handshake", resumed / 3, 900.0);
        }
        add("first_byte", 300, 450.0);
        add("whole_response", 300, 520.0);
        Block {
            round,
            configuration: index,
            position_in_round: index as u32,
            started_ns,
            elapsed_ns: (time_ns * hits as f64) as u64,
            hits,
            body_bytes: hits * 7_168,
            server_cpu_ns: (cpu_ns * hits as f64) as u64,
            client_cpu_ns: (client_ns * hits as f64) as u64,
            connections: 800,
            handshakes_full: full,
            resumed_intended: resumed,
            resumed_offered: resumed,
            resumed_accepted: resumed,
            client_bound: !of.tls,
            valid: true,
            phases,
            ..Block::default()
        }
    }
}

fn configuration(name: &str, noop: &[&str], role: Role) -> Configuration {
    Configuration {
        name: name.to_owned(),
        noop: noop.iter().map(|stage| stage.parse::<Stage>().unwrap()).collect(),
        tls: role != Role::PlainHttp,
        host_number: None,
        role,
        preflight: Preflight {
            passed: vec!["the matching client completes a handshake".to_owned()],
            failed: Vec::new(),
        },
        valid: true,
        warnings: Vec::new(),
    }
}

fn manifest() -> Manifest {
    let config = "worker_processes 1;\nevents { worker_connections 4096; }\nhttp {\n    server { listen \
                  127.0.0.1:41873 ssl; }\n}\n";
    Manifest {
        tool_version: "0.1.0".to_owned(),
        command_line: ["tlsdyno", "ablate", "--server", "nginx", "--cert", "rsa-2048"].map(str::to_owned).to_vec(),
        kernel: "Linux 6.1.0-31-amd64".to_owned(),
        cpu_model: "AMD EPYC 7B13".to_owned(),
        governor: Some("performance".to_owned()),
        cpus: 2,
        server_cpus: vec![0],
        client_cpus: vec![1],
        cpu_accounting: "processes".to_owned(),
        openssl_version: "OpenSSL 3.0.17 1 Jul 2025".to_owned(),
        server_name: "nginx".to_owned(),
        server_version: "nginx/1.22.1".to_owned(),
        server_config: [("nginx.conf".to_owned(), config.to_owned())].into(),
        negotiated: "TLSv1.3 TLS_AES_128_GCM_SHA256 X25519".to_owned(),
        certificate: "rsa-2048".to_owned(),
        effort: "lean".to_owned(),
        workload: "ecommerce: 200 users, 2,400 requests, 12 per full handshake, mean object 7 KB".to_owned(),
        seeds: [("workload".to_owned(), 7), ("order of blocks".to_owned(), 11)].into(),
        ..Manifest::default()
    }
}

fn encode(histogram: &Histogram<u64>) -> String {
    let mut bytes = Vec::new();
    V2Serializer::new().serialize(histogram, &mut bytes).expect("memory");
    STANDARD.encode(bytes)
}
