//! Refuses what cannot be measured with the load on other machines.

use anyhow::{Result, ensure};
use tlsdyno_tls::Effort;

use crate::model::{Experiment, Method, ServerName};
use crate::servers::listening;

impl Experiment {
    /// Whether workers can make the load, and the server can be where they reach it. Who reaches a server without parts
    /// of its cryptography is known by its address: this machine, and the workers that have joined.
    pub(super) fn check_workers(&self) -> Result<()> {
        let Some(workers) = &self.workers else {
            ensure!(
                self.server.address.is_none() || self.server.kind == ServerName::Command,
                "`address` is for a server command, or for workers that make the load elsewhere (--on, --workers)"
            );
            return Ok(());
        };
        ensure!(workers.are_given(), "`workers` needs `on` or `workers`: who makes the load?");
        ensure!(
            self.load.connections as usize >= workers.count(),
            "{} connections cannot be divided among {} workers; raise --connections",
            self.load.connections,
            workers.count()
        );
        ensure!(self.foreign_traffic.is_none(), "foreign traffic is made by others, not by workers; leave them out");
        ensure!(
            !self.methods.contains(&Method::Counting),
            "method `counting` needs no load that this machine cannot make; leave the workers out"
        );
        ensure!(
            self.workload.window().is_none(),
            "a trace that is replayed in its order cannot be divided among workers; leave them out, or the window \
             (--window 0)"
        );
        let ip = self.server.ip()?;
        if listening::is_loopback(ip) {
            let elsewhere = !workers.on.is_empty() || workers.engine.is_some();
            ensure!(
                !elsewhere,
                "workers elsewhere do not reach the servers, which listen on loopback; name the address of this \
                 machine by which they do (--address 192.0.2.1)"
            );
            return Ok(());
        }
        ensure!(
            self.server.plain_ip()?.is_none_or(|plain| plain == ip),
            "workers reach the server at {ip}, but not its plain HTTP; name the same address in --plain-address"
        );
        ensure!(
            listening::is_of_this_host(ip) && !ip.is_unspecified(),
            "{ip} is no address of this machine; name the one by which workers reach it (--address)"
        );
        ensure!(
            self.server.allow_insecure_listen,
            "other hosts can reach {ip}, where parts of the server's cryptography will be switched off. Connections \
             from others than this machine and the workers are refused, but whoever sits between can read and forge \
             everything: give --allow-insecure-listen if this network is isolated"
        );
        let configured = self.configurations.iter().map(|model| model.tls.applied(&self.tls));
        let small = configured.chain([self.tls.clone()]).any(|tls| tls.certificate.is_small_rsa());
        ensure!(
            !small && self.load.effort != Effort::Floor,
            "keys below 2048 bits and the effort `floor` are for loopback; leave them out, or the workers"
        );
        Ok(())
    }
}
