//! What an array of proxies may ask for; what it may not is refused with the remedy.

use anyhow::{Result, ensure};
use tlsdyno_load::curve::file::hits_per_handshake;
use tlsdyno_record::model::Quantity;
use tlsdyno_runner::run::check::check_accelerator;
use tlsdyno_runner::run::check::questions::{check_measure, check_paper};
use tlsdyno_runner::run::check::workers::FarLoad;
use tlsdyno_servers::Proxy;
use tlsdyno_stats::reuse::ReuseAxis;

use crate::array::file::{Array, ArrayExperiment, PLAIN_HTTP, Spread};

/// Most proxies: a machine holds no more under the smallest quota.
const PROXIES_MAX: u32 = 16;
const CLIENTS_MAX: u32 = 4096;
/// Longest page, microseconds.
const TRANSACTION_US_MAX: f64 = 10e6;

impl ArrayExperiment {
    /// Refuses what cannot be measured, with the remedy.
    pub fn check(&self) -> Result<()> {
        let Array { proxies, machine_cpus, transaction_us, handshake_pages_ratio, .. } = &self.array;
        ensure!(!proxies.is_empty(), "--proxies names the numbers of proxies to compare, for example 0,1,2");
        ensure!(proxies.windows(2).all(|pair| pair[0] < pair[1]), "--proxies must ascend");
        ensure!(proxies.iter().all(|count| *count <= PROXIES_MAX), "--proxies must be at most {PROXIES_MAX}");
        ensure!(
            *machine_cpus > 0.0 && *machine_cpus <= 1.0,
            "--machine-cpus is the CPU time of each proxy and of the server, above 0 and at most 1"
        );
        ensure!(
            *transaction_us > 0.0 && *transaction_us <= TRANSACTION_US_MAX,
            "--transaction must be above 0 and at most 10s"
        );
        ensure!(
            *handshake_pages_ratio == 0.0 || (1.0..=1e4).contains(handshake_pages_ratio),
            "--pages-per-handshake must be 0 (pages are not scaled) or between 1 and 10000"
        );
        self.check_accelerator()?;
        self.check_clients()?;
        self.check_workers()?;
        check_measure(&self.measure, "experiments with one server at a time; an array's machines stay")?;
        ensure!(self.tls.is_resumable(), "these proxies hand out no sessions; drop `tickets` or `session_cache` = off");
        ensure!(
            !self.tls.http2,
            "an array's proxies speak HTTP/1.1; leave `tls.http2` out, or see `tlsdyno cluster --http2`"
        );
        self.check_paper()
    }

    /// The paper's numbers may name only what this experiment measures.
    fn check_paper(&self) -> Result<()> {
        let Some(paper) = &self.paper else { return Ok(()) };
        let names = self.line_names();
        let lines: Vec<&str> = names.iter().map(String::as_str).collect();
        let rates: Vec<&str> = lines.iter().copied().chain([PLAIN_HTTP]).collect();
        check_paper(paper, &[(Quantity::HalfServingPercent, &lines), (Quantity::HitsPerS, &rates)])?;
        ensure!(
            paper.numbers.is_empty() || paper.first(Quantity::HitsPerS, PLAIN_HTTP).is_some(),
            "paper.hits_per_s has no number for `{PLAIN_HTTP}`, by which the others are told"
        );
        Ok(())
    }

    fn check_accelerator(&self) -> Result<()> {
        let Array { accelerator, proxy, address, .. } = &self.array;
        let Some(accelerator) = accelerator else { return Ok(()) };
        check_accelerator(accelerator)?;
        ensure!(
            accelerator.card.is_none(),
            "a card of a paper stands beside `machines` of that paper, which an array has not; give `operation_us`"
        );
        ensure!(
            Proxy::FRONT_ENDS.contains(proxy),
            "an accelerator is put into OpenSSL of haproxy or nginx, not into the proxy {proxy}; take one of them"
        );
        ensure!(
            !accelerator.asynchronous || *proxy == Proxy::Haproxy,
            "only haproxy goes on while an accelerator works; leave `async` out, or choose --proxy haproxy"
        );
        ensure!(self.most_proxies() > 0, "--accelerator is for proxies, of which --proxies names none");
        ensure!(
            address.is_none_or(|ip| ip.is_loopback()) && self.workers.is_none(),
            "proxies with an emulated accelerator sign nothing, so that only this machine may reach them; leave \
             --address and workers elsewhere out"
        );
        Ok(())
    }

    fn check_clients(&self) -> Result<()> {
        let Array { levels_percent, clients_count, spread, by, proxy, proxies, .. } = &self.array;
        ensure!((1..=CLIENTS_MAX).contains(clients_count), "--clients must be between 1 and {CLIENTS_MAX}");
        ensure!(!levels_percent.is_empty(), "--reuse names the percentages to measure");
        ensure!(
            levels_percent.windows(2).all(|pair| pair[0] < pair[1]),
            "--reuse must ascend: its percentages are points of a line"
        );
        ensure!(levels_percent.iter().all(|percent| (0.0..=100.0).contains(percent)), "--reuse takes percentages");
        if *by == ReuseAxis::Hits {
            levels_percent.iter().try_for_each(|level| hits_per_handshake(*level).map(drop))?;
        }
        ensure!(!spread.is_empty(), "--spread says how clients are spread over the proxies");
        let is_twice = |(index, one): (usize, &Spread)| spread[..index].contains(one);
        ensure!(!spread.iter().enumerate().any(is_twice), "--spread names one of them twice");
        ensure!(
            !matches!(proxy, Proxy::Stunnel | Proxy::Own) || !spread.contains(&Spread::SharedKeys),
            "ticket keys of the proxy {proxy} are not shared here; take haproxy or nginx, or another --spread"
        );
        let smallest = proxies.iter().copied().filter(|count| *count > 0).max().unwrap_or(0);
        ensure!(
            *clients_count >= smallest,
            "{clients_count} clients leave some of {smallest} proxies without any; give --clients {smallest} or more"
        );
        Ok(())
    }

    fn check_workers(&self) -> Result<()> {
        FarLoad {
            workers: self.workers.as_ref(),
            address: self.array.address,
            clients: (self.array.clients_count, "--clients"),
            window: None,
            has_small_keys: self.tls.certificate().is_small_rsa(),
            effort: self.array.effort,
        }
        .check()
        .map(drop)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tlsdyno_record::model::WorkersModel;

    #[test]
    fn what_makes_no_sense_is_refused_by_its_flag() {
        let refused = |change: &dyn Fn(&mut ArrayExperiment), word: &str| {
            let mut experiment = ArrayExperiment::default();
            change(&mut experiment);
            let said = experiment.check().unwrap_err().to_string();
            assert!(said.contains(word), "{said}");
        };
        refused(&|e| e.array.proxies = vec![], "--proxies");
        refused(&|e| e.array.proxies = vec![2, 1], "ascend");
        refused(&|e| e.array.machine_cpus = 1.5, "--machine-cpus");
        refused(&|e| e.array.levels_percent = vec![33.0], "1.49 requests");
        refused(&|e| e.array.clients_count = 3, "--clients 4");
        refused(&|e| e.array.spread = vec![Spread::Client, Spread::Client], "twice");
        refused(&|e| e.array.handshake_pages_ratio = 0.5, "--pages-per-handshake");
        let stunnel = |e: &mut ArrayExperiment| {
            e.array.proxy = Proxy::Stunnel;
            e.array.spread = vec![Spread::SharedKeys];
        };
        refused(&stunnel, "stunnel");
        refused(&|e| (e.array.proxy, e.array.spread) = (Proxy::Own, vec![Spread::SharedKeys]), "proxy own");
    }

    #[test]
    fn workers_need_clients_and_an_address_of_this_machine() {
        let said = |change: &dyn Fn(&mut ArrayExperiment)| {
            let workers = Some(WorkersModel { workers: Some(2), ..WorkersModel::default() });
            let mut experiment = ArrayExperiment { workers, ..ArrayExperiment::default() };
            change(&mut experiment);
            experiment.check().map_err(|error| error.to_string()).err().unwrap_or_default()
        };
        assert_eq!(said(&|_| ()), "");
        assert!(said(&|e| e.workers = Some(WorkersModel::default())).contains("who makes the load"));
        let crowd = Some(WorkersModel { workers: Some(17), ..WorkersModel::default() });
        assert!(said(&|e| e.workers.clone_from(&crowd)).contains("16 clients cannot be divided among 17 workers"));
        let on = WorkersModel { on: vec!["host".to_owned()], ..WorkersModel::default() };
        assert!(said(&|e| e.workers = Some(on.clone())).contains("--address"));
        // RFC 5737: an address of nobody.
        for (address, word) in [("192.0.2.7", "no address of this machine"), ("0.0.0.0", "no address of this machine")]
        {
            let error = said(&|e| e.array.address = address.parse().ok());
            assert!(error.contains(word), "{address}: {error}");
        }
        let alone = |e: &mut ArrayExperiment| (e.array.address, e.workers) = ("127.0.0.1".parse().ok(), None);
        assert!(said(&alone).contains("`address` is for"));
        assert_eq!(said(&|e| e.array.address = "127.0.0.2".parse().ok()), "", "loopback, too");
    }
}
