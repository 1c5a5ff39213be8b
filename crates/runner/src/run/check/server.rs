//! The server under test: what a command of the user's own must say, where it may listen, and TLS settings that go
//! together.

use std::net::IpAddr;

use anyhow::{Context, Result, bail, ensure};
use tlsdyno_base::listening;
use tlsdyno_record::model::{ConfigurationModel, Experiment, Question, Server, ServerName, Tls};
use tlsdyno_servers::CommandSpec;
use tlsdyno_tls::Version;
use tlsdyno_tls::suite::KeyExchange;

use crate::run::own_command::command_specs;

/// A server command must have its address.
pub(super) fn check(experiment: &Experiment) -> Result<()> {
    let server = &experiment.server;
    if !server.kind.is_users_own() {
        let builds = experiment.configurations.iter().any(|model| model.server_command.is_some());
        ensure!(server.command.is_none() && !builds, "a server command goes with server kind `command`");
        return Ok(());
    }
    ensure!(server.command.is_some(), "server kind `command` needs the command line (--server-command)");
    let address = server.address.as_deref();
    let address = address.context("the server command needs its address (--address 127.0.0.1:{port})")?;
    let commands = command_specs(experiment);
    if let Some(path) = commands.iter().find_map(CommandSpec::missing_file) {
        bail!("the server command names {}, and there is no such file", path.display());
    }
    ensure!(
        experiment.workload.is_servers_own() || commands.iter().all(|command| command.mentions("{docroot}")),
        "the server command must serve the workload's objects: put {{docroot}} where its document root goes, \
         or ask for its own objects (--path, --paths)"
    );
    commands.iter().try_for_each(|command| check_ports(server, command, address))?;
    check_reach(experiment, address, server.ip()?)?;
    match (&server.plain_address, server.plain_ip()?) {
        (Some(text), Some(ip)) => check_reach(experiment, text, ip),
        _ => Ok(()),
    }
}

/// A server with no-ops must not be reachable, and a server that tlsdyno does not start cannot have no-ops. In a
/// network namespace with foreign addresses it may listen where --allow-insecure-listen is given.
fn check_reach(experiment: &Experiment, text: &str, ip: IpAddr) -> Result<()> {
    if experiment.server.allow_insecure_listen || listening::is_loopback(ip) {
        return Ok(());
    }
    ensure!(
        listening::is_of_this_host(ip),
        "`{text}` is no address of this host: a server on another host can be loaded (`tlsdyno load`, \
         `tlsdyno reuse`), not ablated, because tlsdyno must start it; give an address on loopback, for example \
         127.0.0.1:{{port}}, or --allow-insecure-listen if the command starts it in an isolated network namespace"
    );
    if let Question::ForeignTraffic(traffic) = experiment.asks() {
        ensure!(
            traffic.open_listen,
            "other hosts can reach `{text}`. Doubling breaks nothing: TLS stays as secure as it is, and takes more \
             CPU time. Give --open-listen if that is meant"
        );
        return Ok(());
    }
    let tls = |model: &ConfigurationModel| model.tls.applied(&experiment.tls);
    let small = std::iter::once(experiment.tls.clone()).chain(experiment.configurations.iter().map(tls));
    let small = small.map(|tls| tls.certificate()).find(|certificate| certificate.is_small_rsa());
    let alters = |model: &ConfigurationModel| model.needs_provider() || model.needs_shim();
    let danger = match small {
        Some(certificate) => format!("and certificate {certificate} protects nothing any more"),
        // Without configurations it is the usual ones, which switch stages off.
        None if experiment.configurations.is_empty() || experiment.configurations.iter().any(alters) => {
            "where parts of the server's cryptography will be switched off".to_owned()
        }
        None => return Ok(()),
    };
    bail!(
        "other hosts can reach `{text}`, {danger}; let it listen on loopback only, for example 127.0.0.1:{{port}}, or \
         give --allow-insecure-listen if this network is isolated"
    )
}

/// Either tlsdyno chooses every port and tells the command, or every port is fixed and servers take turns on it: with a
/// mixture, tlsdyno would wait at the wrong port, or the server collide with itself.
fn check_ports(server: &Server, command: &CommandSpec, address: &str) -> Result<()> {
    let ports = ["{port}", "{plain_port}"];
    let chosen = |text: &str| ports.iter().any(|port| text.contains(port));
    for text in [Some(address), server.plain_address.as_deref()].into_iter().flatten() {
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

/// Version, suite, group and certificate must fit together.
pub(super) fn check_tls(tls: &Tls, server: ServerName) -> Result<()> {
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
    if server.is_users_own() && tls.certificate.is_none() {
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
