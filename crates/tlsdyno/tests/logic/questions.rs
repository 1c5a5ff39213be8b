//! Made-up records that ask questions: named shares, comparisons, remedies, a paper.

use std::path::Path;
use tlsdyno::run::check::CheckExperiment;

use tlsdyno::model::Experiment;
use tlsdyno::random::SplitMix64;
use tlsdyno::store::{Block, Configuration, FORMAT, Manifest, Preflight, Record, Role};
use tlsdyno_tls::{Stage, StageSet};

/// Name, stages, role, and true cost in per cent of the server as is.
type Truth<'a> = (&'a str, &'a [&'a str], Role, f64);

const QUESTIONS: &str = r#"
question = "Where does it go?"
[server]
kind = "nginx"
[[configuration]]
name = "as is"
label = "Apache+TLS"
[[configuration]]
name = "no RSA"
noop = ["authentication"]
[[configuration]]
name = "no cache"
tls = { session_cache = "off" }
[[configuration]]
name = "perfect cache"
noop = ["authentication", "session_cache"]
[[configuration]]
name = "skeleton"
noop = ["handshake", "marshalling"]
[[configuration]]
name = "twin"
burn_us = 0.1
[[configuration]]
name = "broken"
burn_us = 0.2
[[configuration]]
name = "plain HTTP"
plain_http = true
[[share]]
name = "RSA"
on = "as is"
off = "no RSA"
[[share]]
name = "session cache"
on = "no RSA"
off = "perfect cache"
[[share]]
name = "what is left"
on = "skeleton"
[[comparison]]
question = "What would free RSA bring?"
a = "as is"
b = "no RSA"
paper = "+78 to +137 %"
[[comparison]]
question = "Is the twin alike?"
a = "as is"
b = "twin"
[[comparison]]
question = "And the broken one?"
a = "as is"
b = "broken"
[[remedy]]
name = "a tenth server"
configuration = "broken"
[[remedy]]
name = "a session cache"
configuration = "as is"
over = "no cache"
[[remedy]]
name = "the same again"
configuration = "twin"
[[remedy]]
name = "more memory"
configuration = "no cache"
[[remedy]]
name = "a perfect accelerator"
configuration = "no RSA"
bound = true
[paper]
source = "Somebody 2002"
machines = ["500 MHz", "933 MHz"]
differences = ["Another server."]
[paper.hits_per_s]
"as is" = [147, 261]
"no RSA" = [nan, 600]
"plain HTTP" = [1370, nan]
[paper.shares_percent]
"RSA" = [58, nan]
"session cache" = [1, 1]
"#;

/// Everything that can be asked. RSA is half of the cost, the cache 5 %, 30 % are left and 15 % missing.
pub fn record(rounds: u32, noise: f64) -> Record {
    let truths: [Truth; 8] = [
        ("as is", &[], Role::AsIs, 100.0),
        ("no RSA", &["authentication"], Role::StageOff(Stage::Authentication), 50.0),
        ("no cache", &[], Role::Setting, 125.0),
        ("perfect cache", &["authentication", "session_cache"], Role::Several(StageSet::NONE), 45.0),
        ("skeleton", &["handshake", "marshalling"], Role::Several(StageSet::NONE), 30.0),
        ("twin", &[], Role::Setting, 100.0),
        ("broken", &[], Role::Setting, f64::NAN),
        ("plain HTTP", &[], Role::PlainHttp, 20.0),
    ];
    made(QUESTIONS, &truths, rounds, noise)
}

/// Accelerators of four times the CPU's rate where private-key operations are half of the cost: one that costs 55 %
/// instead of Amdahl's 62.5 %, one beside two processors (Amdahl with twice the rate: 75 %) that costs as much as that,
/// and one that nothing says the share of.
pub fn accelerators(rounds: u32, noise: f64) -> Record {
    let text = r#"
question = "What does an accelerator bring?"
[[configuration]]
name = "as is"
[[configuration]]
name = "no RSA"
noop = ["authentication"]
[[configuration]]
name = "accelerator"
accelerator = { cpu_rates = 4.0 }
[[configuration]]
name = "two CPUs"
processors = { count = 2 }
[[configuration]]
name = "two CPUs, no RSA"
noop = ["authentication"]
processors = { count = 2 }
[[configuration]]
name = "two CPUs, accelerator"
accelerator = { cpu_rates = 4.0 }
processors = { count = 2 }
[[configuration]]
name = "tickets off, accelerator"
tls = { tickets = false }
accelerator = { cpu_rates = 4.0 }
"#;
    let off = Role::StageOff(Stage::Authentication);
    let truths: [Truth; 7] = [
        ("as is", &[], Role::AsIs, 100.0),
        ("no RSA", &["authentication"], off, 50.0),
        ("accelerator", &[], Role::Setting, 55.0),
        ("two CPUs", &[], Role::Setting, 50.0),
        ("two CPUs, no RSA", &["authentication"], Role::Setting, 25.0),
        ("two CPUs, accelerator", &[], Role::Setting, 37.5),
        ("tickets off, accelerator", &[], Role::Setting, 55.0),
    ];
    made(text, &truths, rounds, noise)
}

/// Figure 10's configurations: setup 55 %, data 20 %, plain HTTP 20 %, and 5 % in neither.
pub fn setup_and_data(rounds: u32, noise: f64) -> Record {
    let text = r#"
question = "Setup or data?"
[tls]
suite = "TLS_AES_128_GCM_SHA256"
[[configuration]]
name = "as is"
[[configuration]]
name = "full setup, plain data"
noop = ["marshalling"]
[[configuration]]
name = "minimal setup, encrypted data"
noop = ["setup"]
[[configuration]]
name = "plain HTTP"
plain_http = true
[paper]
source = "Somebody 2006"
machines = ["500 MHz", "933 MHz"]
[paper.hits_per_s]
"as is" = [151, 268]
"full setup, plain data" = [228, 367]
"minimal setup, encrypted data" = [406, 629]
"plain HTTP" = [720, nan]
"#;
    let off = |stage: &str| Role::StageOff(stage.parse().unwrap());
    let truths: [Truth; 4] = [
        ("as is", &[], Role::AsIs, 100.0),
        ("full setup, plain data", &["marshalling"], off("marshalling"), 80.0),
        ("minimal setup, encrypted data", &["setup"], off("setup"), 45.0),
        ("plain HTTP", &[], Role::PlainHttp, 20.0),
    ];
    made(text, &truths, rounds, noise)
}

fn made(text: &str, truths: &[Truth], rounds: u32, noise: f64) -> Record {
    const AS_IS_NS: f64 = 400_000.0;
    const HITS: u64 = 1_000;
    let experiment = Experiment::from_toml(text, Path::new("/")).expect("a sound experiment");
    let mut random = SplitMix64::new(5);
    let mut blocks = Vec::new();
    for round in 0..rounds {
        let drift = (0.1 * random.normal()).exp();
        for (index, (_, _, _, percent)) in truths.iter().enumerate().filter(|(_, truth)| truth.3.is_finite()) {
            let cost = AS_IS_NS * percent / 100.0 * drift * (1.0 + noise * random.normal());
            let elapsed = cost * 1.02 * (1.0 + noise * random.normal());
            blocks.push(Block {
                round,
                configuration: index,
                elapsed_ns: (elapsed * HITS as f64) as u64,
                hits: HITS,
                server_cpu_ns: (cost * HITS as f64) as u64,
                client_cpu_ns: 10_000 * HITS,
                valid: true,
                ..Block::default()
            });
        }
    }
    let configurations = truths.iter().map(|(name, noop, role, percent)| Configuration {
        name: (*name).to_owned(),
        noop: noop.iter().map(|stage| stage.parse::<Stage>().unwrap()).collect(),
        tls: *role != Role::PlainHttp,
        host_number: None,
        role: role.clone(),
        preflight: Preflight::default(),
        valid: percent.is_finite(),
        warnings: Vec::new(),
    });
    Record {
        format: FORMAT,
        id: String::new(),
        created_unix_s: 1_795_190_400,
        finished: true,
        question: experiment.question.clone(),
        manifest: Manifest { cpus: 2, ..Manifest::default() },
        configurations: configurations.collect(),
        blocks,
        warnings: Vec::new(),
        kind_part: experiment.into(),
    }
}
