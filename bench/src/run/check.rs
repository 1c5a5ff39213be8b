//! Everything that can be known to be wrong before anything is started, each with its remedy.

mod configuration;
mod own_server;
mod questions;
#[cfg(test)]
mod tests;
pub mod workers;

use crate::run::check::own_server::CheckOwnServer;
use crate::run::check::questions::CheckQuestions;
use crate::run::check::workers::CheckWorkers;
use crate::run::own_command::OwnCommand;
use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};
use tlsdyno_tls::suite::KeyExchange;
use tlsdyno_tls::{Stage, StageSet, Version};

use crate::listening;
use crate::model::workload::WorkloadSpec;
use crate::model::{ConfigurationModel, Experiment, Method, ServerName, Tls};
use crate::run::schedule::{ROUNDS_MIN, TURNS_MAX};
use crate::servers::{CommandSpec, Wanted, driver_of, having};
use configuration::{check_combination, check_doubled, check_hardware, setting};

/// What an experiment with one server is made of, checked.
pub trait CheckExperiment: Sized {
    /// Reads an experiment file that extends no other and lies in `directory`: relative paths are relative to the file.
    fn from_toml(text: &str, directory: &Path) -> Result<Experiment>;

    /// Fills in what follows from what a file says. A path of a log or a recording is relative to `directory`.
    ///
    /// # Errors
    /// It asks for what cannot be.
    fn complete(&mut self, directory: &Path) -> Result<()>;

    /// Checks everything that can be known before anything is started.
    fn check(&self) -> Result<()>;

    /// Sessions as the experiment's server with so many workers can have them.
    ///
    /// # Errors
    /// What it has instead, or which server has what is wanted.
    fn check_sessions(&self, tls: &Tls, workers: u32) -> Result<()>;
}

impl CheckExperiment for Experiment {
    fn from_toml(text: &str, directory: &Path) -> Result<Experiment> {
        let mut experiment: Experiment = toml::from_str(text)?;
        experiment.complete(directory)?;
        Ok(experiment)
    }

    fn complete(&mut self, directory: &Path) -> Result<()> {
        if let WorkloadSpec::Trace { path, .. } | WorkloadSpec::Har { path, .. } = &mut self.workload {
            *path = directory.join(&*path);
        }
        for library in &mut self.server.libraries {
            *library = directory.join(&*library);
        }
        // Shares and comparisons may name the configurations of an ablation.
        self.fill();
        self.check()
    }

    fn check(&self) -> Result<()> {
        check_tls(&self.tls, self.server.kind)?;
        self.check_sessions(&self.tls, 1)?;
        self.load.reuse()?;
        ensure!(self.load.connections > 0, "at least one connection is needed (--connections)");
        ensure!(self.load.per_user > 0, "at least one connection per user is needed (--per-user)");
        ensure!(
            self.measure.time_s >= 1.0 && self.measure.time_s.is_finite(),
            "measuring for {} s is too short; give at least 1 s (--time)",
            self.measure.time_s
        );
        ensure!(
            (1..=TURNS_MAX).contains(&self.measure.turns),
            "`measure.turns`: {}; expected 1 to {TURNS_MAX} blocks of each configuration in a round",
            self.measure.turns
        );
        let slice_us = self.measure.slice_us.unwrap_or(0);
        ensure!(
            slice_us == 0 || (1_000..=1_000_000).contains(&slice_us),
            "a slice of {slice_us} µs: expected 1 ms to 1 s, or 0 for none (--slice, `measure.slice_us`)"
        );
        ensure!(
            self.measure.until_percent.is_none_or(|percent| percent > 0.0 && percent < 100.0),
            "`measure.until_percent`: expected percentage points above 0 and below 100"
        );
        let rounds = self.measure.rounds;
        ensure!(
            rounds.is_none_or(|rounds| rounds >= ROUNDS_MIN),
            "`measure.rounds`: at least {ROUNDS_MIN} are needed for an interval that means something"
        );
        ensure!(
            !self.measure.fresh_servers || !self.configurations.iter().any(switches_shim),
            "`measure.fresh_servers` does not go with stages of the shim: what the client knows of a server would end \
             with it (the shim with nothing off, `idle_shim`, may be there)"
        );
        ensure!(
            !self.measure.fresh_servers || self.server.kind != ServerName::Command,
            "`measure.fresh_servers` needs servers that tlsdyno configures, not a command of your own"
        );
        ensure!(
            self.machines.is_empty() || !self.measure.fresh_servers,
            "`machines` are quotas of servers that stay up: leave `measure.fresh_servers` out"
        );
        self.check_server()?;
        self.check_own_settings()?;
        self.check_workers()?;
        self.check_configurations()?;
        self.check_answers()
    }

    fn check_sessions(&self, tls: &Tls, workers: u32) -> Result<()> {
        check_sessions(self.known_server(self.server.kind), tls, workers)
    }
}

/// What an experiment with one server is made of, checked in parts.
trait CheckExperimentParts {
    /// The server whose abilities count: a copy of an installed configuration is an nginx.
    fn known_server(&self, server: ServerName) -> ServerName;

    fn check_server(&self) -> Result<()>;

    /// A server with no-ops must not be reachable, and one that tlsdyno does not start cannot have any. In a network
    /// namespace of its own, whose addresses are not ours, it may listen where --allow-insecure-listen says that this
    /// is known.
    fn check_reach(&self, text: &str, ip: IpAddr) -> Result<()>;

    /// Either every port is chosen by us and told to the command, or every port is fixed and servers take turns on it:
    /// a mixture would be waited for at the wrong place, or collide with itself.
    fn check_ports(&self, address: &str) -> Result<()>;

    fn check_ports_of(&self, command: &CommandSpec, address: &str) -> Result<()>;

    fn check_configurations(&self) -> Result<()>;

    /// Under somebody else's traffic nothing can be done but double.
    fn check_foreign_traffic(&self) -> Result<()>;

    /// One library, or two that are compared by removing stages.
    fn check_libraries(&self) -> Result<()>;

    /// A repetition is a deliberate one: exactly the setting that it names.
    fn check_repeat(&self, configuration: &ConfigurationModel) -> Result<()>;
}

impl CheckExperimentParts for Experiment {
    fn known_server(&self, server: ServerName) -> ServerName {
        match server {
            ServerName::Command if self.server.config.is_some() => ServerName::Nginx,
            other => other,
        }
    }

    fn check_server(&self) -> Result<()> {
        if self.server.kind != ServerName::Command {
            let builds = self.configurations.iter().any(|model| model.server_command.is_some());
            let given = self.server.command.is_some() || builds;
            ensure!(!given, "a server command goes with server kind `command`");
            return Ok(());
        }
        ensure!(self.server.command.is_some(), "server kind `command` needs the command line (--server-command)");
        let address = self.server.address.as_deref();
        let address = address.context("the server command needs its address (--address 127.0.0.1:{port})")?;
        if let Some(path) = self.command_specs().iter().find_map(CommandSpec::missing_file) {
            bail!("the server command names {}, and there is no such file", path.display());
        }
        let serves_ours = self.command_specs().iter().all(|command| command.mentions("{docroot}"));
        ensure!(
            serves_ours || self.workload.is_servers_own(),
            "the server command must serve the workload's objects: put {{docroot}} where its document root goes, \
             or ask for its own objects (--path, --paths)"
        );
        self.check_ports(address)?;
        for text in [Some(address), self.server.plain_address.as_deref()].into_iter().flatten() {
            let example = text.replace("{port}", "1").replace("{plain_port}", "2");
            let example: SocketAddr = example.parse().with_context(|| {
                format!(
                    "`{text}` is not an address; expected IP:PORT, for example 127.0.0.1:8443 or 127.0.0.1:{{port}}"
                )
            })?;
            self.check_reach(text, example.ip())?;
        }
        Ok(())
    }

    fn check_reach(&self, text: &str, ip: IpAddr) -> Result<()> {
        if self.server.allow_insecure_listen || listening::is_loopback(ip) {
            return Ok(());
        }
        ensure!(
            listening::is_of_this_host(ip),
            "`{text}` is no address of this host: a server on another host can be loaded (`tlsdyno load`, \
             `tlsdyno reuse`), not ablated, because tlsdyno must start it; give an address on loopback, for example \
             127.0.0.1:{{port}}, or --allow-insecure-listen if the command starts it in an isolated network namespace"
        );
        if let Some(traffic) = &self.foreign_traffic {
            ensure!(
                traffic.open_listen,
                "other hosts can reach `{text}`. Doubling breaks nothing: TLS stays as secure as it is, and takes more \
                 CPU time. Give --open-listen if that is meant"
            );
            return Ok(());
        }
        let alters = |model: &ConfigurationModel| model.needs_provider() || model.needs_shim();
        let tls = |model: &ConfigurationModel| model.tls.applied(&self.tls);
        let small = std::iter::once(self.tls.clone()).chain(self.configurations.iter().map(tls));
        let small = small.map(|tls| tls.certificate()).find(|certificate| certificate.is_small_rsa());
        if let Some(certificate) = small {
            bail!(
                "other hosts can reach `{text}`, and certificate {certificate} protects nothing any more; let it \
                 listen on loopback only, for example 127.0.0.1:{{port}}, or give --allow-insecure-listen if this \
                 network is isolated"
            );
        }
        // Without configurations it is the usual ones, which switch stages off.
        ensure!(
            !self.configurations.is_empty() && !self.configurations.iter().any(alters),
            "other hosts can reach `{text}`, where parts of the server's cryptography will be switched off; let it \
             listen on loopback only, for example 127.0.0.1:{{port}}, or give --allow-insecure-listen if this network \
             is isolated"
        );
        Ok(())
    }

    fn check_ports(&self, address: &str) -> Result<()> {
        self.command_specs().iter().try_for_each(|command| self.check_ports_of(command, address))
    }

    fn check_ports_of(&self, command: &CommandSpec, address: &str) -> Result<()> {
        let ports = ["{port}", "{plain_port}"];
        let chosen = |text: &str| ports.iter().any(|port| text.contains(port));
        for text in [Some(address), self.server.plain_address.as_deref()].into_iter().flatten() {
            for port in ports.iter().filter(|port| text.contains(*port)) {
                ensure!(
                    command.mentions(port),
                    "the address `{text}` uses {port}, but neither the server command nor a file that it names does: \
                     put {port} where its port goes, or give the fixed port that it listens on"
                );
            }
            ensure!(
                chosen(text) == chosen(address),
                "`{address}` and `{text}` mix a chosen port with a fixed one: write {{port}} in --address and \
                 {{plain_port}} in --plain-address (and both in --server-command), or fixed ports in both"
            );
        }
        ensure!(
            chosen(address) || !ports.iter().any(|port| command.mentions(port)),
            "the server command uses {{port}}, but the address `{address}` is fixed: write {{port}} in --address too, \
             or the fixed port in --server-command"
        );
        Ok(())
    }

    fn check_configurations(&self) -> Result<()> {
        let uses = |method| self.configurations.is_empty() || !self.methods.contains(&method);
        let doubles = |model: &ConfigurationModel| model.doubled.is_some_and(|stages| !stages.is_empty());
        let counts = self.methods.contains(&Method::Counting);
        ensure!(
            !counts || self.server.kind != ServerName::Builtin,
            "method `counting`: the built-in server does not run under valgrind, which hides the kernel's clock (vDSO) \
             from it; choose another with --server, for example nginx"
        );
        ensure!(
            !(counts && self.server.kind == ServerName::Command && self.command_spec().has_fixed_port()),
            "method `counting` runs several servers side by side: write {{port}} in --server-command and --address"
        );
        ensure!(!self.methods.is_empty(), "no method is named (--method, `method`); known are {}", known_methods());
        ensure!(
            uses(Method::Doubling) || self.configurations.iter().any(doubles),
            "method `doubling`: none of these stages can be computed twice by itself; possible are {}, and {} together \
             (alone only where a CBC suite has encrypt-then-MAC)",
            Stage::PROVIDER.into_iter().filter(|stage| stage.together().only().is_some()).collect::<StageSet>(),
            StageSet::RECORDS
        );
        let untouched = |model: &&ConfigurationModel| model.is_untouched();
        self.check_foreign_traffic()?;
        self.check_libraries()?;
        let is_foreign = self.foreign_traffic.is_some();
        ensure!(
            is_foreign || self.configurations.is_empty() || self.configurations.iter().filter(untouched).count() == 1,
            "an experiment needs exactly one configuration without any change (name = \"as is\") to compare the \
             others with"
        );
        for (index, configuration) in self.configurations.iter().enumerate() {
            check_combination(configuration.noop)
                .and_then(|()| check_hardware(configuration))
                .and_then(|()| check_tls(&configuration.tls.applied(&self.tls), self.server.kind))
                .and_then(|()| {
                    let workers = configuration.processors.map_or(1, |processors| processors.count);
                    let server = self.known_server(configuration.server(self.server.kind));
                    check_sessions(server, &configuration.tls.applied(&self.tls), workers)
                })
                .with_context(|| format!("configuration `{}`", configuration.name))?;
            let name = &configuration.name;
            check_shim(configuration.noop, &configuration.tls.applied(&self.tls))
                .with_context(|| format!("configuration `{}`", configuration.name))?;
            let alters = configuration.needs_provider() || configuration.needs_shim();
            ensure!(
                !(configuration.plain_http && (alters || configuration.needs_doubler())),
                "configuration `{name}`: plain HTTP has no TLS stages to switch off or to compute twice"
            );
            ensure!(
                !(alters && configuration.needs_doubler()),
                "configuration `{name}`: provider and doubler both wrap OpenSSL's default provider; a configuration \
                 either replaces stages or doubles some (`doubled`, `copies`)"
            );
            check_doubled(configuration).with_context(|| format!("configuration `{name}`"))?;
            ensure!(
                self.configurations[..index].iter().all(|other| other.name != *name),
                "two configurations are named `{name}`"
            );
            ensure!(
                configuration.accelerator.as_ref().is_none_or(|accelerator| !accelerator.asynchronous)
                    || driver_of(configuration.server(self.server.kind))
                        .capabilities()
                        .is_none_or(|able| able.asynchronous),
                "configuration `{name}`: only {able} goes on while an accelerator works; leave `asynchronous` out, or \
                 choose --server {able}",
                able = having(|able| able.asynchronous)
            );
            ensure!(
                configuration.server != Some(ServerName::Command) && configuration.server != Some(self.server.kind),
                "configuration `{name}`: `server` names another server that tlsdyno configures than the experiment's"
            );
            ensure!(
                configuration.server.is_none() || self.server.kind != ServerName::Command,
                "configuration `{name}`: beside a server command there is no other server"
            );
            ensure!(
                configuration.page_cost_us.is_none() || configuration.server(self.server.kind) == ServerName::Builtin,
                "configuration `{name}`: only the built-in server makes pages of a stated cost (`page_cost_us`); \
                 choose --server builtin"
            );
            let card = configuration.accelerator.as_ref().and_then(|accelerator| accelerator.card);
            ensure!(
                card.is_none() || !self.machines.is_empty(),
                "configuration `{name}`: a card of a paper stands beside `machines` of that paper; name some, or give \
                 `cpu_rates`"
            );
            ensure!(
                configuration.base.as_ref().is_none_or(|base| self.configurations.iter().any(|of| of.name == *base)),
                "configuration `{name}` is on a machine what another one is that is not there; leave `base` out"
            );
            self.check_repeat(configuration)?;
            for other in &self.configurations[..index] {
                let same = setting(other) == setting(configuration);
                ensure!(!same, "configurations `{}` and `{name}` are the same setting; leave one out", other.name);
            }
        }
        Ok(())
    }

    fn check_foreign_traffic(&self) -> Result<()> {
        let Some(traffic) = &self.foreign_traffic else { return Ok(()) };
        ensure!(
            self.methods == [Method::Doubling] && self.server.kind == ServerName::Command,
            "foreign traffic goes with --method doubling and a --server-command: clients that are not ours know no \
             no-ops, and load no server of ours"
        );
        ensure!(
            self.configurations.iter().all(ConfigurationModel::needs_doubler),
            "under foreign traffic there is one server, and all configurations are its modes: stages computed twice"
        );
        ensure!(
            traffic.at_most_percent > 0.0 && traffic.at_most_percent <= 100.0,
            "--at-most {}%: expected more than 0 and no more than 100 % of added CPU time",
            traffic.at_most_percent
        );
        ensure!(
            traffic.latency_within_percent > 0.0 && traffic.latency_within_percent.is_finite(),
            "--latency-within {}%: expected more than 0",
            traffic.latency_within_percent
        );
        Ok(())
    }

    fn check_libraries(&self) -> Result<()> {
        let libraries = &self.server.libraries;
        let named: BTreeSet<&PathBuf> = self.configurations.iter().filter_map(|model| model.library.as_ref()).collect();
        ensure!(
            libraries.len() <= 2 && named.len() <= 1,
            "{} libraries: two are compared at a time (--library A --library B)",
            libraries.len().max(named.len() + 1)
        );
        ensure!(
            named.iter().all(|library| libraries.first() != Some(library)),
            "both libraries are {}: one is compared with another (two servers on one library: `repeat_of`)",
            libraries.first().map_or_else(String::new, |library| library.display().to_string())
        );
        let is_systems = libraries.is_empty() && named.is_empty();
        ensure!(
            is_systems || self.foreign_traffic.is_none(),
            "under foreign traffic there is one server, and it has the library that its command finds; leave the other \
             out"
        );
        ensure!(
            named.is_empty() || self.methods == [Method::Removing] && self.machines.is_empty(),
            "two libraries are compared by removing stages (--method removing), on this machine: leave other methods \
             and `machines` out"
        );
        Ok(())
    }

    fn check_repeat(&self, configuration: &ConfigurationModel) -> Result<()> {
        let Some(repeated) = &configuration.repeat_of else { return Ok(()) };
        let name = &configuration.name;
        let original = self.configurations.iter().find(|other| other.name == *repeated && other.name != *name);
        let original =
            original.with_context(|| format!("configuration `{name}` repeats `{repeated}`, which is not there"))?;
        let plain = |model: &ConfigurationModel| setting(&ConfigurationModel { repeat_of: None, ..model.clone() });
        ensure!(
            plain(original) == plain(configuration),
            "configuration `{name}` says that it repeats `{repeated}`, but it is another setting"
        );
        Ok(())
    }
}

fn known_methods() -> String {
    Method::ALL.map(Method::name).join(", ")
}

/// Whether it replaces what lies above the primitives: then the client knows things of one server that no other shares.
fn switches_shim(model: &ConfigurationModel) -> bool {
    !model.noop.shim().is_empty()
}

/// What the stages of the shim need of the TLS settings.
fn check_shim(off: StageSet, tls: &Tls) -> Result<()> {
    ensure!(
        !off.contains(Stage::Setup) || tls.suite.is_some(),
        "without any set-up (`setup` off) no suite is negotiated: name one (--suite, or suite in [tls])"
    );
    ensure!(
        !tls.early_data || !off.contains(Stage::Marshalling) && !off.contains(Stage::Setup),
        "early data need a real handshake and protected data: leave `marshalling` and `setup` on, or early_data out"
    );
    Ok(())
}

fn check_sessions(server: ServerName, tls: &Tls, workers: u32) -> Result<()> {
    let wanted = Wanted {
        session_cache: tls.session_cache(),
        session_timeout_s: tls.session_timeout_s,
        tickets: tls.tickets,
        ticket_keys: tls.ticket_keys(),
        early_data: tls.early_data,
        tls13: tls.version == Version::Tls13,
    };
    wanted.refuse_unable(server, workers)
}

/// Versions, suites, groups and certificates that go together.
fn check_tls(tls: &Tls, server: ServerName) -> Result<()> {
    let certificate = tls.certificate();
    ensure!(
        tls.version == Version::Tls13 || !certificate.is_post_quantum(),
        "certificate {certificate} belongs to TLS 1.3; choose --tls 1.3 or another --cert"
    );
    ensure!(
        tls.version == Version::Tls12 || !certificate.is_small_rsa(),
        "certificate {certificate} is of the time before TLS 1.3; choose --tls 1.2 or another --cert"
    );
    let Some(suite) = tls.suite else {
        return Ok(());
    };
    ensure!(
        suite.version() == tls.version,
        "suite {suite} belongs to TLS {of}, but the experiment asks for TLS {}; choose --tls {of} or another --suite",
        tls.version,
        of = suite.version()
    );
    // What a server of the user's own has is not known where nothing is asked of it.
    if server == ServerName::Command && tls.certificate.is_none() {
        return Ok(());
    }
    let rsa_certificate = certificate.is_rsa();
    match suite.key_exchange() {
        KeyExchange::EcdheEcdsa if rsa_certificate => {
            bail!("suite {suite} needs an ECDSA certificate; choose --cert p-256, p-384 or ed25519")
        }
        KeyExchange::EcdheRsa | KeyExchange::Rsa if !rsa_certificate => {
            bail!("suite {suite} needs an RSA certificate; choose --cert rsa-2048, rsa-3072 or rsa-4096")
        }
        _ => Ok(()),
    }
}
