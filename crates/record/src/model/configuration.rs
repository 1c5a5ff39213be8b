//! The configurations that are compared: which stages are off, and what else differs.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use tlsdyno_tls::{Stage, StageSet, named};

use super::ServerName;
use super::tls::TlsChange;

/// Processors of the server, real or emulated by a quota of CPU time.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Processors {
    /// How many processors. The server gets as many workers.
    pub count: u32,
    /// Speed of each processor as part of a real one, 0 to 1: a quota of CPU time (control groups).
    pub speed: f64,
}

fn one() -> u32 {
    1
}

impl Default for Processors {
    fn default() -> Processors {
        Processors { count: 1, speed: 1.0 }
    }
}

/// An emulated cryptographic accelerator: private-key operations cost the CPU nothing, but take time in one of its
/// engines.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Accelerator {
    /// Operations it does at the same time.
    #[serde(default = "one")]
    pub engines: u32,
    /// Microseconds of one operation in one engine, or of a batch of them.
    pub operation_us: Option<f64>,
    /// An engine does several operations at once; `None`: one. The time of a batch does not depend on its size.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub batch: Option<Batch>,
    /// Instead: the rate of the whole accelerator as a multiple of the rate of one CPU of the server under test,
    /// measured before. The AXL300 of Coarfa et al. 2006 did 330 RSA-1024 operations a second.
    pub cpu_rates: Option<f64>,
    /// Instead: a card of the papers with its own fixed rate.
    pub card: Option<Card>,
    /// The server goes on while an operation runs, where it can (HAProxy); otherwise its worker waits.
    #[serde(default)]
    pub asynchronous: bool,
}

/// Operations that an accelerator does at once, as batched RSA does (Coarfa et al. 2006, section 5.1).
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Batch {
    /// How many operations at most.
    pub operations_count: u32,
    /// Microseconds that the first of them waits for others, also in a full batch; 0: they gather only while the engine
    /// works.
    #[serde(default)]
    pub gather_us: f64,
}

named! {
    /// A card of the papers, the same on all machines of an experiment.
    pub enum Card: "card" {
        /// The AXL300 of Coarfa et al. 2006 (section 2.1), which does 330 RSA-1024 operations a second.
        Axl300 = "axl300",
    }
}

impl Card {
    /// Private-key operations that it does a second, all engines together.
    pub const fn operations_per_s(self) -> f64 {
        match self {
            Card::Axl300 => 330.0,
        }
    }

    /// Those of a processor of the paper, and its clock rate, MHz: the processor here does them faster, and the card as
    /// many times as fast. 14.2 ms each at 500 MHz: (1/149 - 1/194) s a hit for 0.11 operations (NDSS 2002, Figure 2).
    pub const fn beside(self) -> (f64, u32) {
        match self {
            Card::Axl300 => (70.4, 500),
        }
    }

    /// How many times as much CPU time an operation takes without the card: what is left is its driver and the bus.
    /// The AXL300: 147, 305 and 350 hits per second without it, with it, and without operations (NDSS 2002, Figure 1,
    /// at 500 MHz) are a share of 1 - 147/350 that becomes this many times as fast, by Amdahl's law.
    pub const fn effective_speed(self) -> f64 {
        match self {
            Card::Axl300 => 9.4,
        }
    }
}

/// One configuration that is compared with the others.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ConfigurationModel {
    /// Name in tables and records.
    pub name: String,
    /// Stages that are replaced by no-ops.
    #[serde(default)]
    pub noop: StageSet,
    /// Plain HTTP instead of TLS.
    #[serde(default)]
    pub plain_http: bool,
    /// Load the provider although no stage is off: what the instrument itself costs.
    #[serde(default)]
    pub idle_provider: bool,
    /// Preload the shim although no stage is off: what the instrument itself costs.
    #[serde(default)]
    pub idle_shim: bool,
    /// Stages whose operations pass through provider and shim, whether they are off or not: its server can switch them
    /// while it runs, so that other configurations are modes of it. With no stage off it tells what that costs.
    #[serde(default, skip_serializing_if = "crate::model::is_default")]
    pub wrapped: StageSet,
    /// Stages that the server computes twice, keeping one result. With none the doubler is loaded and idle: what the
    /// others are compared with, and whose server they can share as modes.
    pub doubled: Option<StageSet>,
    /// Records are copied as doubling them needs it, and nothing is computed twice: what doubling costs besides.
    #[serde(default, skip_serializing_if = "crate::model::is_default")]
    pub copies: bool,
    /// Another build of the server: its command line instead of the experiment's (server kind `command` only).
    pub server_command: Option<String>,
    /// What the paper calls it, where that is another name.
    pub label: Option<String>,
    /// TLS settings that differ from the experiment's.
    #[serde(default, skip_serializing_if = "crate::model::is_default")]
    pub tls: TlsChange,
    /// Processors of the server, where they differ from one whole real one.
    pub processors: Option<Processors>,
    /// Workers of the server; `None`: as many as processors, and more where each waits for an accelerator.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workers: Option<u32>,
    /// The configuration that this one is on one of the experiment's machines: made of `machines`.
    pub base: Option<String>,
    /// The server under test, where it is another than the experiment's.
    pub server: Option<ServerName>,
    /// The installation of OpenSSL (prefix) that the server uses, where it is another than the experiment's.
    pub library: Option<PathBuf>,
    /// An emulated accelerator for private-key operations.
    pub accelerator: Option<Accelerator>,
    /// CPU time burnt in addition by each private-key operation, microseconds: a known cost, to calibrate the
    /// instrument with.
    pub burn_us: Option<f64>,
    /// Instructions executed in addition by each private-key operation that is computed: a known cost, to calibrate
    /// counts with.
    pub burn_instructions: Option<u32>,
    /// CPU time that each page costs the built-in server besides, microseconds: pages that are made for each request.
    pub page_cost_us: Option<f64>,
    /// The configuration that this one repeats: the same setting in a server of its own, to see what the instrument
    /// makes of no difference.
    pub repeat_of: Option<String>,
}

impl ConfigurationModel {
    /// The untouched server.
    pub fn as_is() -> ConfigurationModel {
        ConfigurationModel { name: "as is".to_owned(), ..ConfigurationModel::default() }
    }

    /// Exactly these stages replaced.
    pub fn without(name: &str, stages: impl IntoIterator<Item = Stage>) -> ConfigurationModel {
        let noop = stages.into_iter().collect();
        ConfigurationModel { name: name.to_owned(), noop, ..ConfigurationModel::as_is() }
    }

    /// Exactly these stages computed twice.
    pub fn doubling(name: &str, stages: StageSet) -> ConfigurationModel {
        ConfigurationModel { name: name.to_owned(), doubled: Some(stages), ..ConfigurationModel::as_is() }
    }

    /// The same server without TLS.
    pub fn plain_http() -> ConfigurationModel {
        ConfigurationModel { name: "plain HTTP".to_owned(), plain_http: true, ..ConfigurationModel::as_is() }
    }

    /// What an accelerator's gain is judged by: of `configurations` the one that differs from this one only by having
    /// none, and the one that has `authentication` replaced instead. `None` where one of them is not there, or this
    /// one has no accelerator.
    pub fn beside_accelerator<'a>(&self, configurations: &'a [ConfigurationModel]) -> Option<(&'a Self, &'a Self)> {
        self.accelerator.as_ref()?;
        let alike = ConfigurationModel { accelerator: None, ..self.unnamed() };
        let with = |off: StageSet| configurations.iter().find(|other| other.noop == off && other.unnamed() == alike);
        Some((with(self.noop)?, with(self.noop.with(Stage::Authentication))?))
    }

    /// This configuration without its names and stages. An accelerator and a replaced stage load the provider in any
    /// case.
    fn unnamed(&self) -> ConfigurationModel {
        let loads = self.accelerator.is_some() || !self.noop.is_empty();
        ConfigurationModel {
            name: String::new(),
            label: None,
            base: None,
            noop: StageSet::NONE,
            idle_provider: self.idle_provider && !loads,
            ..self.clone()
        }
    }

    /// The replaced stages as a client sees them: an accelerator answers as the stage `authentication` does when it is
    /// off.
    pub fn stages_on_the_wire(&self) -> StageSet {
        if self.accelerator.is_some() { self.noop.with(Stage::Authentication) } else { self.noop }
    }

    /// CPU time burnt in addition by each private-key operation, nanoseconds.
    pub fn burn_ns(&self) -> u64 {
        (self.burn_us.unwrap_or(0.0) * 1e3).round() as u64
    }

    /// Whether the provider is loaded into the server.
    pub fn needs_provider(&self) -> bool {
        let idle = self.idle_provider || !self.wrapped.provider().is_empty();
        idle || self.accelerator.is_some()
            || self.burn_us.is_some()
            || self.burn_instructions.is_some()
            || !self.noop.provider().is_empty()
    }

    /// Whether the shim is preloaded into the server: wherever a stage is off, for it is what refuses connections from
    /// elsewhere.
    pub fn needs_shim(&self) -> bool {
        self.idle_shim || !self.wrapped.is_empty() || !self.stages_on_the_wire().is_empty()
    }

    /// Whether the doubler is loaded into the server.
    pub fn needs_doubler(&self) -> bool {
        self.doubled.is_some() || self.copies
    }

    /// Whether its server can have other configurations as its modes.
    pub fn hosts_modes(&self) -> bool {
        !self.wrapped.is_empty() || self.doubled == Some(StageSet::NONE) && !self.copies
    }

    /// Its server, where the experiment's is this one.
    pub fn server(&self, experiments: ServerName) -> ServerName {
        self.server.unwrap_or(experiments)
    }

    /// Whether it is the server exactly as the experiment's other tables describe it.
    pub fn is_untouched(&self) -> bool {
        let untouched = ConfigurationModel::as_is();
        ConfigurationModel { name: untouched.name.clone(), label: None, ..self.clone() } == untouched
    }

    /// This configuration on the library of the experiment.
    pub fn without_library(&self) -> ConfigurationModel {
        ConfigurationModel { library: None, ..self.clone() }
    }
}
