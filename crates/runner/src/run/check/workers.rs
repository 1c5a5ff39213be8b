//! Refuses what cannot be measured with the load on other machines.

use std::net::{IpAddr, Ipv4Addr};

use anyhow::{Result, ensure};
use tlsdyno_base::listening;
use tlsdyno_record::model::{Experiment, WorkersModel};
use tlsdyno_tls::Effort;

/// A load that workers may make, and the servers under it, as far as all experiments have these in common.
pub struct FarLoad<'a> {
    /// `None`: this machine makes the load.
    pub workers: Option<&'a WorkersModel>,
    /// Address of this machine on which servers listen for workers; `None`: loopback.
    pub address: Option<IpAddr>,
    /// Minimum number of concurrent connections, and the flag that sets it.
    pub clients: (u32, &'a str),
    /// Window over a trace that is replayed in its order.
    pub window: Option<u32>,
    /// A server has an RSA key below 2048 bits.
    pub has_small_keys: bool,
    pub effort: Effort,
}

impl FarLoad<'_> {
    /// Checks that workers can make the load, and can reach the servers. Returns the address where other machines reach
    /// servers, if they do.
    pub fn check(&self) -> Result<Option<IpAddr>> {
        let Some(workers) = self.workers else {
            ensure!(
                self.address.is_none(),
                "`address` is for a server command, or for workers that make the load elsewhere (--on, --workers)"
            );
            return Ok(None);
        };
        ensure!(workers.are_given(), "`workers` needs `on` or `workers`: who makes the load?");
        let (clients, flag) = self.clients;
        ensure!(
            clients as usize >= workers.count(),
            "{clients} {} cannot be divided among {} workers; raise {flag}",
            flag.trim_start_matches('-'),
            workers.count()
        );
        ensure!(
            self.window.is_none(),
            "a trace that is replayed in its order cannot be divided among workers; leave them out, or the window \
             (--window 0)"
        );
        let ip = self.address.unwrap_or(IpAddr::V4(Ipv4Addr::LOCALHOST));
        if listening::is_loopback(ip) {
            ensure!(
                !workers.are_elsewhere(),
                "workers elsewhere do not reach the servers, which listen on loopback; name the address of this \
                 machine by which they do (--address 192.0.2.1)"
            );
            return Ok(None);
        }
        ensure!(
            listening::is_of_this_host(ip) && !ip.is_unspecified(),
            "{ip} is no address of this machine; name the one by which workers reach it (--address)"
        );
        ensure!(
            !self.has_small_keys && self.effort != Effort::Floor,
            "keys below 2048 bits and the effort `floor` are for loopback; leave them out, or the workers"
        );
        Ok(Some(ip))
    }
}

/// Checks that workers can make the load, and can reach the server. A server without parts of its cryptography admits
/// by address: this machine, and the workers that have joined.
pub(super) fn check(experiment: &Experiment) -> Result<()> {
    let is_command = experiment.server.kind.is_users_own();
    let has_address = experiment.server.address.is_some() && !(is_command && experiment.workers.is_none());
    let configured = experiment.configurations.iter().map(|model| model.tls.applied(&experiment.tls));
    let far = FarLoad {
        workers: experiment.workers.as_ref(),
        address: if has_address { Some(experiment.server.ip()?) } else { None },
        clients: (experiment.load.connections, "--connections"),
        window: experiment.workload.window(),
        has_small_keys: configured.chain([experiment.tls.clone()]).any(|tls| tls.certificate().is_small_rsa()),
        effort: experiment.load.effort,
    };
    let beyond = far.check()?;
    if experiment.workers.is_none() {
        return Ok(());
    }
    let Some(ip) = beyond else { return Ok(()) };
    ensure!(
        experiment.server.plain_ip()?.is_none_or(|plain| plain == ip),
        "workers reach the server at {ip}, but not its plain HTTP; name the same address in --plain-address"
    );
    ensure!(
        experiment.server.allow_insecure_listen,
        "other hosts can reach {ip}, where parts of the server's cryptography will be switched off. Connections \
         from others than this machine and the workers are refused, but whoever sits between can read and forge \
         everything: give --allow-insecure-listen if this network is isolated"
    );
    Ok(())
}
