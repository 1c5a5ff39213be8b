//! One experiment: a question, a server, a workload and the configurations that are compared.

use std::path::PathBuf;

use anyhow::Result;
use serde::{Deserialize, Serialize};
use tlsdyno_tls::suite::KeyExchange;
use tlsdyno_tls::{Stage, StageSet, Suite};

use super::method::{self, Method};
use super::workload::WorkloadSpec;
use super::{
    ComparisonModel, ConfigurationModel, ForeignTraffic, Load, Machine, Measure, Network, Paper, RemedyModel, Server,
    ShareClaimModel, ShareModel, Tls, WorkersModel, library, machine, without_secrets,
};

/// One experiment: a question, a server, a workload and the configurations that are compared.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Experiment {
    /// What the experiment is to answer, one sentence.
    pub question: String,
    /// How costs of stages are found out.
    #[serde(
        default = "method::usual",
        rename = "method",
        deserialize_with = "method::one_or_several",
        skip_serializing_if = "method::are_usual"
    )]
    pub methods: Vec<Method>,
    /// The server under test.
    #[serde(default)]
    pub server: Server,
    /// TLS as the server is configured and as the client offers it.
    #[serde(default)]
    pub tls: Tls,
    /// What is requested.
    #[serde(default = "default_workload")]
    pub workload: WorkloadSpec,
    /// How the workload is requested.
    #[serde(default)]
    pub load: Load,
    /// The load is somebody else's; then nothing of `load` and `workload` is used but the path that is asked for.
    pub foreign_traffic: Option<ForeignTraffic>,
    /// How long and where it is measured.
    #[serde(default)]
    pub measure: Measure,
    /// Who makes the load, if that is not this machine.
    pub workers: Option<WorkersModel>,
    /// What is between the load and the servers of this machine.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub network: Option<Network>,
    /// What is compared. Empty: the untouched server, each stage off, all stages off (or each twice, all twice, as the
    /// methods say), plain HTTP.
    #[serde(default, rename = "configuration")]
    pub configurations: Vec<ConfigurationModel>,
    /// Machines on which each configuration is measured besides, under quotas of CPU time: hits per second only, for a
    /// quota leaves the CPU time of a hit as it is.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub machines: Vec<Machine>,
    /// Named shares of the cost of a hit, in the order of the report. Empty: what each configuration with one stage
    /// off saves.
    #[serde(default, rename = "share", skip_serializing_if = "Vec::is_empty")]
    pub shares: Vec<ShareModel>,
    /// Ranges that a paper gives of these shares.
    #[serde(default, rename = "claim", skip_serializing_if = "Vec::is_empty")]
    pub share_claims: Vec<ShareClaimModel>,
    /// Questions that two configurations answer.
    #[serde(default, rename = "comparison", skip_serializing_if = "Vec::is_empty")]
    pub comparisons: Vec<ComparisonModel>,
    /// Remedies that are ranked by what they gain over the untouched server.
    #[serde(default, rename = "remedy", skip_serializing_if = "Vec::is_empty")]
    pub remedies: Vec<RemedyModel>,
    /// What a paper published about the same configurations.
    pub paper: Option<Paper>,
    /// What was read of an installed server, where `tlsdyno advise` asks, in its own form.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub advice: Option<serde_json::Value>,
}

fn default_workload() -> WorkloadSpec {
    WorkloadSpec::Ecommerce { users: 20_000, seed: 1 }
}

impl Default for Experiment {
    fn default() -> Experiment {
        Experiment {
            question: "What does each TLS component cost this server?".to_owned(),
            methods: method::usual(),
            server: Server::default(),
            tls: Tls::default(),
            workload: default_workload(),
            load: Load::default(),
            foreign_traffic: None,
            measure: Measure::default(),
            workers: None,
            network: None,
            configurations: Vec::new(),
            machines: Vec::new(),
            shares: Vec::new(),
            share_claims: Vec::new(),
            comparisons: Vec::new(),
            remedies: Vec::new(),
            paper: None,
            advice: None,
        }
    }
}

impl Experiment {
    /// The experiment as a file that [`Experiment::from_toml`] reads back.
    pub fn to_toml(&self) -> Result<String> {
        Ok(toml::to_string(self)?)
    }

    /// As a record keeps it, which may be given to others: without what clients prove themselves with.
    #[must_use]
    pub fn without_secrets(&self) -> Experiment {
        let mut configurations = self.configurations.clone();
        configurations.iter_mut().for_each(|of| of.server_command = of.server_command.as_deref().map(without_secrets));
        let mut kept = Experiment { server: self.server.without_secrets(), configurations, ..self.clone() };
        if let WorkloadSpec::Paths { paths, .. } = &mut kept.workload {
            paths.iter_mut().for_each(|path| *path = without_secrets(path));
        }
        kept
    }

    /// The configurations of `ablate`: the untouched server, for each method each of the stages and all of them, and
    /// plain HTTP where it can be had.
    ///
    /// Under somebody else's traffic there is only one server, and so neither of the two.
    pub fn ablation(&self, stages: &[Stage]) -> Vec<ConfigurationModel> {
        if self.foreign_traffic.is_some() {
            return self.doublings(stages);
        }
        let mut configurations = vec![ConfigurationModel::as_is()];
        if self.removes() {
            configurations.extend(self.removals(stages));
        }
        if self.uses(Method::Doubling) {
            configurations.extend(self.doublings(stages));
        }
        if self.has_plain_http() {
            configurations.push(ConfigurationModel::plain_http());
        }
        configurations
    }

    /// Whether stages are replaced. Counting needs configurations that differ: if nothing else is said, those.
    fn removes(&self) -> bool {
        self.uses(Method::Removing) || !self.uses(Method::Doubling)
    }

    fn removals(&self, stages: &[Stage]) -> Vec<ConfigurationModel> {
        // Without it a server refuses every signature, those in certificates of clients too (docs/NOOP.md).
        let refused = self.server.client.certificate.as_ref().map(|_| Stage::Authentication);
        let stages: Vec<Stage> = stages.iter().copied().filter(|stage| Some(*stage) != refused).collect();
        let stages = &stages[..];
        let without = |stage: &Stage| ConfigurationModel::without(&stage.absence(), stage.with_needed().iter());
        let mut configurations: Vec<ConfigurationModel> = stages.iter().map(without).collect();
        // Those of the shim overlap with them and with each other.
        let of_provider: StageSet = stages.iter().copied().filter(|stage| Stage::PROVIDER.contains(stage)).collect();
        // What can only be doubled together is removed together too, so that the methods can be compared.
        if self.uses(Method::Doubling) {
            let together = self.doubled_together(stages).into_iter().filter(|set| set.only().is_none());
            let together = together.filter(|set| *set != of_provider);
            configurations
                .extend(together.map(|set| ConfigurationModel::without(&format!("no {}", set.label()), set.iter())));
        }
        if of_provider.only().is_none() && !of_provider.is_empty() {
            configurations.push(ConfigurationModel::without("all off", of_provider.iter()));
        }
        configurations
    }

    /// The doubler idle, each of the stages computed twice, records copied, and all stages computed twice.
    fn doublings(&self, stages: &[Stage]) -> Vec<ConfigurationModel> {
        let sets = self.doubled_together(stages);
        if sets.is_empty() {
            return Vec::new();
        }
        let mut configurations = vec![ConfigurationModel::doubling("nothing doubled", StageSet::NONE)];
        let twice = |set: &StageSet| ConfigurationModel::doubling(&format!("{} twice", set.label()), *set);
        configurations.extend(sets.iter().map(twice));
        let all = sets.iter().fold(StageSet::NONE, |all, set| all.union(*set));
        if all.contains(Stage::Cipher) {
            let copies = ConfigurationModel { copies: true, ..ConfigurationModel::as_is() };
            configurations.push(ConfigurationModel { name: "records copied".to_owned(), ..copies });
        }
        if sets.len() > 1 {
            configurations.push(ConfigurationModel::doubling("all twice", all));
        }
        configurations
    }

    /// What of these stages can be computed twice, in sets that cannot be taken apart (docs/DOUBLING.md): encryption
    /// and authentication of records are one computation but for CBC with a MAC of its own.
    pub fn doubled_together(&self, stages: &[Stage]) -> Vec<StageSet> {
        let is_separate = self.has_separate_mac();
        let mut sets = Vec::new();
        for stage in stages.iter().copied().filter(|stage| Stage::PROVIDER.contains(stage)) {
            let set = if is_separate { StageSet::NONE.with(stage) } else { stage.together() };
            let is_whole = set.iter().all(|of_set| stages.contains(&of_set));
            if is_whole && !sets.contains(&set) {
                sets.push(set);
            }
        }
        sets
    }

    /// Whether records certainly have a MAC beside their encryption: CBC with encrypt-then-MAC.
    fn has_separate_mac(&self) -> bool {
        self.tls.encrypt_then_mac && self.tls.suite.is_some_and(|suite| suite.protection().is_cbc())
    }

    /// Fills in the configurations where the experiment names none, those on machines, and what TLS settings leave to
    /// a server that tlsdyno configures.
    pub fn fill(&mut self) {
        if !self.server.kind.is_users_own() {
            self.tls = self.tls.filled();
        }
        if self.configurations.is_empty() {
            let of_shim = if self.removes() { self.stages_of_shim() } else { Vec::new() };
            let stages: Vec<Stage> = Stage::PROVIDER.into_iter().chain(of_shim).collect();
            if stages.contains(&Stage::Setup) {
                self.pin_suite();
            }
            self.configurations = self.ablation(&stages);
        }
        // A slice through a long way would begin and end as much as it lasts.
        if self.network.is_some_and(|network| network.delay_ms > Network::SLICED_MS_MAX) {
            self.measure.slice_us.get_or_insert(0);
        }
        self.configurations = library::with_second(&self.configurations, self.server.libraries.get(1));
        self.configurations = machine::multiplied(&self.configurations, &self.machines);
    }

    /// Takes other libraries instead of those that it names.
    pub fn use_libraries(&mut self, libraries: Vec<PathBuf>) {
        if let Some(second) = libraries.get(1) {
            let named = self.configurations.iter_mut().filter_map(|model| model.library.as_mut());
            named.for_each(|library| library.clone_from(second));
        }
        self.server.libraries = libraries;
        self.fill();
    }

    /// The stages of the shim that make sense beside those of the provider without further thought.
    fn stages_of_shim(&self) -> Vec<Stage> {
        let resumes = self.tls.is_resumable() && self.load.reuse_percent != Some(0.0);
        let protected = !self.tls.early_data;
        // What suite an own command would choose is not known: it may refuse any that is named here.
        let pinned = self.tls.suite.is_some() || !self.server.kind.is_users_own();
        [(Stage::SessionCache, resumes), (Stage::Marshalling, protected), (Stage::Setup, protected && pinned)]
            .into_iter()
            .filter(|(_, sensible)| *sensible)
            .map(|(stage, _)| stage)
            .collect()
    }

    /// Names a suite where none is named: the first that the client would offer and the certificate can serve.
    pub fn pin_suite(&mut self) {
        let rsa = self.tls.certificate().is_rsa();
        let fits = |suite: &Suite| match suite.key_exchange() {
            KeyExchange::Tls13 => true,
            KeyExchange::EcdheRsa | KeyExchange::Rsa => rsa,
            KeyExchange::EcdheEcdsa => !rsa,
        };
        if self.tls.suite.is_none() {
            self.tls.suite = self.tls.suites().into_iter().find(fits);
        }
    }

    /// Whether a server with no-op stages may listen wherever it wants: nobody is known by address then. With workers
    /// it listens on the address that is named, for them.
    pub fn may_listen_anywhere(&self) -> bool {
        self.server.allow_insecure_listen && self.workers.is_none()
    }

    /// Whether the server can serve the same objects without TLS.
    pub fn has_plain_http(&self) -> bool {
        !self.server.kind.is_users_own() || self.server.plain_address.is_some()
    }
}
