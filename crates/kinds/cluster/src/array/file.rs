//! The array of proxies as data (Mraz, Witting and Dantzig 2002): what TOML files hold and what the flags of `tlsdyno
//! array` build.

use std::net::{IpAddr, Ipv4Addr};

use itertools::Itertools;
use serde::{Deserialize, Serialize};
use tlsdyno_base::choice::{choice, percent};
use tlsdyno_engine::time::Time;
use tlsdyno_record::model::{Accelerator, Batch, CertificateKind, Measure, Paper, TicketKeys, Tls, WorkersModel};
use tlsdyno_runner::kinds::flags::number;
use tlsdyno_servers::Proxy;
use tlsdyno_stats::reuse::ReuseAxis;
use tlsdyno_tls::{Effort, named};

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

pub const PLAIN_HTTP: &str = "plain HTTP";

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ArrayExperiment {
    /// What the experiment is to answer, one sentence.
    pub question: String,
    pub array: Array,
    /// TLS as the proxies are configured and as the clients offer it.
    #[serde(default = "ArrayExperiment::tls_default")]
    pub tls: Tls,
    #[serde(default)]
    pub measure: Measure,
    /// Who makes the load, if that is not this machine.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workers: Option<WorkersModel>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub paper: Option<Paper>,
}

/// Proxies, server and clients.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, clap::Args)]
#[serde(deny_unknown_fields, default)]
#[command(next_help_heading = "Array")]
pub struct Array {
    /// The proxies
    #[arg(long, default_value_t, value_parser = choice(Proxy::ALL))]
    pub proxy: Proxy,
    /// Numbers of proxies to compare, ascending; 0: the server ends TLS itself
    #[arg(long, value_name = "N", value_delimiter = ',', default_value = "0,1,2,3,4")]
    pub proxies: Vec<u32>,
    /// CPU time that each proxy, and the server, may use, in CPUs; 1: a CPU each
    #[arg(long, value_name = "CPUS", default_value_t = 0.1)]
    #[arg(value_parser = number("a number of CPUs from 0.001 to 1,024", 1e-3..=1024.0))]
    pub machine_cpus: f64,
    /// What a page takes, microseconds, before it is scaled.
    #[arg(skip = 7_000.0)]
    pub transaction_us: f64,
    /// Of what it takes that.
    #[arg(skip)]
    pub transaction_cost: PageCost,
    /// Make pages so short that a full handshake, which is measured first, is so many of them long; 0: leave them
    #[arg(long = "pages-per-handshake", value_name = "PAGES", default_value_t = 35.0)]
    #[arg(value_parser = number("a number of pages from 0 to a million", 0.0..=1e6))]
    pub handshake_pages_ratio: f64,
    /// Size of a page
    #[arg(long = "size", value_name = "BYTES", default_value_t = 7168)]
    pub page_bytes: u64,
    /// Of what percent reuse is a part
    #[arg(long, value_name = "AXIS", default_value_t = ReuseAxis::Hits, value_parser = choice(ReuseAxis::ALL))]
    #[arg(help_heading = "Traffic")]
    pub by: ReuseAxis,
    /// Percentages, ascending
    #[arg(long = "reuse", value_name = "PERCENT", value_delimiter = ',', value_parser = percent)]
    #[arg(default_value = "0,50,75,90,96,98", help_heading = "Traffic")]
    pub levels_percent: Vec<f64>,
    /// Clients at once, each with one connection
    #[arg(short, long = "clients", value_name = "N", default_value_t = 16)]
    #[arg(help_heading = "Traffic")]
    pub clients_count: u32,
    /// How clients are spread over the proxies; several are compared
    #[arg(long, value_name = "HOW", value_delimiter = ',', default_value = "client")]
    #[arg(value_parser = choice(Spread::ALL))]
    pub spread: Vec<Spread>,
    /// How much the client does
    #[arg(long, value_name = "EFFORT", default_value_t = Effort::Lean, value_parser = choice(Effort::ALL))]
    #[arg(help_heading = "Traffic")]
    pub effort: Effort,
    /// Time-out of a connection without progress, milliseconds.
    #[arg(skip = 60_000_u64)]
    pub timeout_ms: u64,
    /// An emulated accelerator in each proxy: so many engines, what a private-key operation takes in one, and whether
    /// the proxy goes on meanwhile (HAProxy): 300us, 2x300us, 2x300us,async. With batch=4/2ms an engine does four in
    /// that time, of which the first waits 2 ms for the others
    #[arg(long, value_name = "[Nx]TIME[,batch=N/TIME][,async]", value_parser = parse_accelerator)]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub accelerator: Option<Accelerator>,
    /// The address of this machine that server, proxies and dispatchers listen on, for workers elsewhere; `None`:
    /// loopback.
    #[arg(skip)]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub address: Option<IpAddr>,
}

fn parse_accelerator(text: &str) -> Result<Accelerator, String> {
    let (rest, asynchronous) = text.strip_suffix(",async").map_or((text, false), |rest| (rest, true));
    let (rest, batch) = rest.split_once(",batch=").map_or((rest, None), |(rest, batch)| (rest, Some(batch)));
    let (engines, time) = rest.split_once('x').unwrap_or(("1", rest));
    let engines = engines.parse().map_err(|_| format!("`{engines}` engines: write 2x300us for two of 300 µs each"))?;
    let us = |time: &str| Ok::<_, String>(time.parse::<Time>()?.ns() as f64 / 1e3);
    let batch = batch.map(|text| {
        let parts = text.split_once('/').and_then(|(count, gather)| Some((count.parse().ok()?, gather)));
        let parts = parts.ok_or(format!("`batch={text}`: write batch=4/2ms for four that wait 2 ms"))?;
        Ok::<_, String>(Batch { operations_count: parts.0, gather_us: us(parts.1)? })
    });
    let (operation_us, batch) = (Some(us(time)?), batch.transpose()?);
    Ok(Accelerator { engines, operation_us, batch, cpu_rates: None, card: None, asynchronous })
}

impl Array {
    pub fn ip(&self) -> IpAddr {
        self.address.unwrap_or(IpAddr::V4(Ipv4Addr::LOCALHOST))
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

impl ArrayExperiment {
    /// A handshake that costs many times as much as passing a page on, as in the paper: with RSA-4096 some hundred.
    pub fn tls_default() -> Tls {
        Tls { certificate: Some(CertificateKind::Rsa4096), ..Tls::default() }
    }

    pub fn line_names(&self) -> Vec<String> {
        let with_tls = self.places().into_iter().filter(|place| place.percent.is_some());
        with_tls.map(|place| self.line_name(place.proxies, place.spread)).unique().collect()
    }

    pub fn most_proxies(&self) -> u32 {
        self.array.proxies.iter().copied().max().unwrap_or(0)
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

    pub fn name(&self, place: &ArrayPlace) -> String {
        match place.percent {
            None => PLAIN_HTTP.to_owned(),
            Some(percent) => format!("{}, {percent} %", self.line_name(place.proxies, place.spread)),
        }
    }

    pub fn line_name(&self, proxies: u32, spread: Spread) -> String {
        let count = match proxies {
            0 => return "no proxy".to_owned(),
            1 => "1 proxy".to_owned(),
            more => format!("{more} proxies"),
        };
        if self.array.spread.len() > 1 { format!("{count}, {spread}") } else { count }
    }
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ArrayRecord {
    pub experiment: ArrayExperiment,
    pub scale: PageScale,
}

/// What a page costs beside a full handshake.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PageScale {
    /// What a page takes of the transaction server, nanoseconds.
    pub transaction_ns: u64,
    /// CPU time of a machine that ends TLS for a connection with a full handshake and one page, by which pages were
    /// scaled, nanoseconds; 0: they were not.
    pub full_handshake_cpu_ns: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    impl Default for ArrayExperiment {
        fn default() -> ArrayExperiment {
            ArrayExperiment {
                question: "At what reuse does each number of proxies serve half of what plain HTTP does?".to_owned(),
                array: Array::default(),
                tls: ArrayExperiment::tls_default(),
                measure: Measure::default(),
                workers: None,
                paper: None,
            }
        }
    }

    #[test]
    fn places_are_plain_http_and_every_level_of_every_line() {
        let mut experiment = ArrayExperiment::default();
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
        let read: ArrayExperiment = toml::from_str(&toml::to_string(&experiment).unwrap()).unwrap();
        assert_eq!(read, experiment);
    }
}
