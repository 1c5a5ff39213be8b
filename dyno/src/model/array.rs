//! The array of proxies as data (Mraz, Witting and Dantzig 2002): what TOML files hold and what the flags of `tlsdyno
//! array` build.

use anyhow::{Result, ensure};
use serde::{Deserialize, Serialize};
use tlsdyno_tls::{Effort, named};

use super::curve::{ReuseAxis, hits_per_handshake};
use super::sentences::sentences;
use super::{CertificateKind, Measure, TicketKeys, Tls};

named! {
    /// A proxy that ends TLS in front of the transaction server.
    #[derive(Default)]
    pub enum Proxy: "proxy" {
        /// tlsdyno's own (`tlsdyno serve --origin`), which keeps connections to the server
        Own = "own",
        /// the installed HAProxy, which keeps connections to the server (`http-reuse always`)
        #[default]
        Haproxy = "haproxy",
        /// the installed nginx, which keeps connections to the server (`keepalive`)
        Nginx = "nginx",
        /// the installed stunnel, which connects to the server anew for each client's connection
        Stunnel = "stunnel",
    }
}

named! {
    /// How clients are spread over the proxies.
    #[derive(Default)]
    pub enum Spread: "spread of clients" {
        /// each client stays with one proxy
        #[default]
        Client = "client",
        /// each connection goes to the next proxy, whose ticket keys are its own
        RoundRobin = "round-robin",
        /// the same, and all proxies have the same ticket keys
        SharedKeys = "shared-keys",
        /// tlsdyno dispatch passes connections on by TLS session; each proxy has ticket keys of its own
        Dispatcher = "dispatcher",
    }
}

impl Spread {
    /// Where the proxies' ticket keys come from.
    pub const fn ticket_keys(self) -> TicketKeys {
        match self {
            Spread::SharedKeys => TicketKeys::Shared,
            Spread::Client | Spread::RoundRobin | Spread::Dispatcher => TicketKeys::Own,
        }
    }
}

named! {
    /// What a page takes of the transaction server, one page after the other.
    #[derive(Default)]
    pub enum PageCost: "cost of a page" {
        /// time beside it, as on a machine behind it
        #[default]
        Wait = "wait",
        /// its CPU time
        Cpu = "cpu",
    }
}

/// One array experiment.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ArrayExperiment {
    /// What the experiment is to answer, one sentence.
    pub question: String,
    /// Proxies, server and clients.
    pub array: Array,
    /// TLS as the proxies are configured and as the clients offer it.
    #[serde(default = "ArrayExperiment::tls_default")]
    pub tls: Tls,
    /// How long and where it is measured.
    #[serde(default)]
    pub measure: Measure,
    /// What a paper published of the same.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub paper: Option<PublishedArray>,
}

/// Proxies, server and clients.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Array {
    /// The proxies.
    pub proxy: Proxy,
    /// How many of them, ascending; 0: the server ends TLS itself.
    pub proxies: Vec<u32>,
    /// CPU time that each machine may use, a proxy or the server, in CPUs.
    pub machine_cpus: f64,
    /// What a page takes, microseconds, before it is scaled.
    pub transaction_us: f64,
    /// Of what it takes that.
    pub transaction_cost: PageCost,
    /// Pages are made this many times shorter than a full handshake of a proxy takes under its quota, which is measured
    /// first; 0: they stay as they are.
    pub handshake_pages_ratio: f64,
    /// Size of a page.
    pub page_bytes: u64,
    /// Of what percent reuse is a part.
    pub by: ReuseAxis,
    /// Percentages, ascending.
    pub levels_percent: Vec<f64>,
    /// Clients at once, each with one connection.
    pub clients_count: u32,
    /// How clients are spread over the proxies; several are compared.
    pub spread: Vec<Spread>,
    /// How much the client does.
    pub effort: Effort,
    /// Time-out of a connection without progress, milliseconds.
    pub timeout_ms: u64,
}

impl Default for Array {
    /// Mraz et al. 2002, Figure 8; its points imply 30 to 40 pages for each handshake.
    fn default() -> Array {
        Array {
            proxy: Proxy::Haproxy,
            proxies: (0..=4).collect(),
            machine_cpus: 0.1,
            transaction_us: 7_000.0,
            transaction_cost: PageCost::Wait,
            handshake_pages_ratio: 35.0,
            page_bytes: 7168,
            by: ReuseAxis::Hits,
            levels_percent: vec![0.0, 50.0, 75.0, 90.0, 96.0, 98.0],
            clients_count: 16,
            spread: vec![Spread::Client],
            effort: Effort::Lean,
            timeout_ms: 60_000,
        }
    }
}

/// What one configuration of an array measures.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ArrayPlace {
    /// How its clients are spread; of no meaning without proxies.
    pub spread: Spread,
    /// Proxies; 0: the server alone.
    pub proxies: u32,
    /// Percent reuse that is asked for; `None`: plain HTTP, without proxies.
    pub percent: Option<f64>,
}

/// What a paper published of an array.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PublishedArray {
    /// Authors, conference, figure.
    pub source: String,
    /// What is not as in the paper.
    #[serde(default, deserialize_with = "sentences")]
    pub differences: Vec<String>,
    /// Pages a second without TLS.
    pub plain_per_s: f64,
    /// Half serving points.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub half: Vec<PublishedHalf>,
    /// Other points of its figure.
    #[serde(default, rename = "point", skip_serializing_if = "Vec::is_empty")]
    pub points: Vec<PublishedPoint>,
}

/// A published half serving point.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PublishedHalf {
    /// Proxies.
    pub proxies: u32,
    /// Percent reuse.
    pub reuse_percent: f64,
}

/// A published throughput.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PublishedPoint {
    /// Proxies.
    pub proxies: u32,
    /// Percent reuse.
    pub reuse_percent: f64,
    /// Pages a second.
    pub per_s: f64,
}

/// Most proxies: a machine holds no more under the smallest quota.
const PROXIES_MAX: u32 = 16;
/// Most clients at once.
const CLIENTS_MAX: u32 = 4096;
/// Longest page, microseconds.
const TRANSACTION_US_MAX: f64 = 10e6;

impl Default for ArrayExperiment {
    fn default() -> ArrayExperiment {
        ArrayExperiment {
            question: "At what reuse does each number of proxies serve half of what plain HTTP does?".to_owned(),
            array: Array::default(),
            tls: ArrayExperiment::tls_default(),
            measure: Measure::default(),
            paper: None,
        }
    }
}

impl ArrayExperiment {
    /// A handshake that costs many times as much as passing a page on, as in the paper: with RSA-4096 some hundred.
    pub fn tls_default() -> Tls {
        Tls { certificate: CertificateKind::Rsa4096, ..Tls::default() }
    }

    /// The experiment as a file.
    ///
    /// # Errors
    /// A value that TOML cannot hold.
    pub fn to_toml(&self) -> Result<String> {
        Ok(toml::to_string(self)?)
    }

    /// Refuses what cannot be measured, with the remedy.
    ///
    /// # Errors
    /// What contradicts itself.
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
        self.check_clients()?;
        ensure!(self.measure.time_s >= 1.0, "--time must be at least 1 second");
        ensure!(
            !self.measure.fresh_servers && self.measure.turns == 1,
            "`fresh_servers` and `turns` are for experiments with one server at a time; an array's machines stay"
        );
        ensure!(self.tls.is_resumable(), "these proxies hand out no sessions; drop `tickets` or `session_cache` = off");
        let published = self.paper.iter().flat_map(|paper| &paper.half).map(|half| half.proxies);
        for count in published {
            ensure!(proxies.contains(&count), "the paper's half serving point of {count} proxies is not measured");
        }
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

    /// What the configurations measure, in their order: plain HTTP, the server alone, then the proxies.
    pub fn places(&self) -> Vec<ArrayPlace> {
        let array = &self.array;
        let first = array.spread.first().copied().unwrap_or_default();
        let mut places = vec![ArrayPlace { spread: first, proxies: 0, percent: None }];
        for &proxies in &array.proxies {
            // Without proxies there is nothing to spread over.
            let spreads = if proxies == 0 { &array.spread[..1] } else { &array.spread[..] };
            for &spread in spreads {
                let at = |percent: &f64| ArrayPlace { spread, proxies, percent: Some(*percent) };
                places.extend(array.levels_percent.iter().map(at));
            }
        }
        places
    }

    /// The name of one of them.
    pub fn name(&self, place: &ArrayPlace) -> String {
        match place.percent {
            None => "plain HTTP".to_owned(),
            Some(percent) => format!("{}, {percent} %", self.line_name(place.proxies, place.spread)),
        }
    }

    /// The name of a line of the figure.
    pub fn line_name(&self, proxies: u32, spread: Spread) -> String {
        let count = match proxies {
            0 => return "no proxy".to_owned(),
            1 => "1 proxy".to_owned(),
            more => format!("{more} proxies"),
        };
        if self.array.spread.len() > 1 { format!("{count}, {spread}") } else { count }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_plain_http_and_every_level_of_every_line() {
        let mut experiment = ArrayExperiment::default();
        experiment.check().unwrap();
        let places = experiment.places();
        assert_eq!(places.len(), 1 + 5 * 6);
        assert_eq!(experiment.name(&places[0]), "plain HTTP");
        assert_eq!(experiment.name(&places[1]), "no proxy, 0 %");
        assert_eq!(experiment.name(&places[30]), "4 proxies, 98 %");
        experiment.array.spread = vec![Spread::SharedKeys, Spread::Dispatcher];
        experiment.array.proxies = vec![0, 3];
        let places = experiment.places();
        assert_eq!(places.len(), 1 + 6 + 2 * 6, "nothing is spread without proxies");
        assert_eq!(experiment.name(&places[18]), "3 proxies, dispatcher, 98 %");
        let read: ArrayExperiment = toml::from_str(&experiment.to_toml().unwrap()).unwrap();
        assert_eq!(read, experiment);
    }

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
}
