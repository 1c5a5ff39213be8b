//! What `tlsdyno top --prometheus` serves: counters since the beginning, so that whoever scrapes chooses the time that
//! a share or a rate is of. A server is told by its name and ports, without its process, whose number changes.

use std::collections::HashSet;
use std::net::SocketAddr;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::{Context, Result};
use itertools::Itertools as _;
use tlsdyno_base::bootstrap::Estimate;
use tlsdyno_base::metrics::{KIND, Metrics};
use tlsdyno_base::output::print;
use tlsdyno_base::pages::{Answer, listen, serve};
use tlsdyno_packets::Counts;

use crate::kinds::{Kinds, group};
use crate::part::Part;
use crate::screen::ports;
use crate::server::{PERIOD_NS, Seen, Server};
use crate::shares;

/// Upper ends of the histogram's buckets, seconds.
#[rustfmt::skip]
const BUCKETS: [f64; 15] =
    [0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0];

/// The page of metrics.
pub struct Page(Arc<Mutex<String>>);

impl Page {
    /// Serves it until `stop` is set, and says where.
    ///
    /// # Errors
    /// The address is not free, or others reach it and nobody said that they may.
    pub fn serve(at: SocketAddr, beyond_loopback: bool, stop: Arc<AtomicBool>) -> Result<Page> {
        let listener = listen(at, beyond_loopback, "what TLS costs your servers")?;
        let own = listener.local_addr().context("failed to ask for the own address")?;
        let text = Arc::new(Mutex::new(String::new()));
        let served = Arc::clone(&text);
        std::thread::spawn(move || {
            let body = || served.lock().unwrap_or_else(PoisonError::into_inner).clone();
            serve(&listener, &stop, &|query| match query.path {
                "/metrics" => Answer { status: 200, kind: KIND, body: body() },
                _ => Answer::plain(404, "there is /metrics"),
            })
        });
        print(format!("serving http://{own}/metrics\n"))?;
        Ok(Page(text))
    }

    /// Serves this from now on.
    pub fn set(&self, text: String) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = text;
    }
}

/// What is known of a server.
pub struct Totals {
    server: String,
    pid: u32,
    libraries: String,
    cpus_count: usize,
    /// Of the last minute.
    tls: Estimate,
    samples: shares::Counts,
    cpu_ns: u64,
    /// `None`: its handshakes are not seen.
    handshakes: Option<Counts>,
}

impl Totals {
    /// Of a server that is watched.
    pub fn of(server: &Server, seen: &Seen, kinds: &Kinds) -> Totals {
        let (samples, cpu_ns) = server.since_begin();
        Totals {
            server: server.name.clone() + &ports(&server.addresses),
            pid: server.root,
            libraries: server.libraries.iter().map(|found| found.version.as_str()).join(" and "),
            cpus_count: seen.cpus_count,
            tls: seen.shares.tls(),
            samples,
            cpu_ns,
            handshakes: kinds.since_begin(server),
        }
    }
}

/// What is known beside the servers that are watched.
pub struct Rest {
    /// Servers that cannot be watched.
    pub unwatched_count: usize,
    pub dropped_packets: u64,
    /// CPU time of this program.
    pub own_cpu_ns: u64,
}

/// The text of the page.
pub fn text(mut servers: Vec<Totals>, rest: &Rest) -> String {
    // Those of one name and port, as in containers, are told by their processes, too.
    let mut names = HashSet::new();
    for of in servers.iter_mut().filter(|of| !names.insert(of.server.clone())) {
        of.server += &format!(" (pid {})", of.pid);
    }
    let mut families = Families { metrics: Metrics::default(), servers: &servers };
    families.of_cpu();
    families.of_handshakes();
    let mut metrics = families.metrics;
    for (name, kind, help, value) in [
        ("tlsdyno_top_unwatched_servers", "gauge", "TLS servers that cannot be watched.", rest.unwatched_count as f64),
        (
            "tlsdyno_top_dropped_packets_total",
            "counter",
            "Packets of handshakes that found no room, so that counts are too low.",
            rest.dropped_packets as f64,
        ),
        ("process_cpu_seconds_total", "counter", "CPU time of tlsdyno top itself.", seconds(rest.own_cpu_ns)),
    ] {
        metrics.head(name, kind, help);
        metrics.sample::<&str>(name, &[], value);
    }
    metrics.text()
}

fn seconds(ns: u64) -> f64 {
    ns as f64 / 1e9
}

/// Metrics that each server has.
struct Families<'t> {
    metrics: Metrics,
    servers: &'t [Totals],
}

impl Families<'_> {
    /// A metric with one sample of each server.
    fn add(&mut self, name: &str, kind: &str, help: &str, value: impl Fn(&Totals) -> Option<f64>) {
        self.add_each(name, kind, "", help, |of| value(of).map(|value| (String::new(), value)).into_iter().collect());
    }

    /// A metric with a sample for each of several values of a label.
    fn add_each<V>(&mut self, name: &str, kind: &str, label: &str, help: &str, values: V)
    where
        V: Fn(&Totals) -> Vec<(String, f64)>,
    {
        let name = format!("tlsdyno_top_{name}");
        self.metrics.head(&name, kind, help);
        for of in self.servers {
            for (text, value) in values(of) {
                let labels = [("server", of.server.as_str()), (label, text.as_str())];
                self.metrics.sample(&name, &labels[..if label.is_empty() { 1 } else { 2 }], value);
            }
        }
    }

    fn of_cpu(&mut self) {
        let help = "CPU time by part, from samples: parts of TLS, what is outside of TLS, and what is unknown.";
        self.add_each("cpu_seconds_total", "counter", "part", help, |of| {
            let parts = Part::ALL.into_iter().map(|part| (part.name(), of.samples.of(part)));
            let others = [("outside_tls", of.samples.server()), ("unknown", of.samples.unknown())];
            parts.chain(others).map(|(part, count)| (part.to_owned(), seconds(count * PERIOD_NS))).collect()
        });
        let help = "CPU time of its processes, from the kernel's clocks.";
        self.add("process_cpu_seconds_total", "counter", help, |of| Some(seconds(of.cpu_ns)));
        self.add("lost_samples_total", "counter", "Samples that found no room and are in no part.", |of| {
            Some(of.samples.lost() as f64)
        });
        self.add("cpus", "gauge", "CPUs that it may run on.", |of| Some(of.cpus_count as f64));
        let help = "Share of TLS in its CPU time in the last minute.";
        self.add("tls_cpu_ratio", "gauge", help, |of| of.tls.is_known().then_some(of.tls.value / 100.0));
        let help = "Lower end of the 95 % interval of that share.";
        self.add("tls_cpu_low_ratio", "gauge", help, |of| of.tls.has_interval().then_some(of.tls.low / 100.0));
        let help = "Upper end of the 95 % interval of that share.";
        self.add("tls_cpu_high_ratio", "gauge", help, |of| of.tls.has_interval().then_some(of.tls.high / 100.0));
        self.add_each("server_info", "gauge", "libraries", "The TLS libraries of a server; always 1.", |of| {
            vec![(of.libraries.clone(), 1.0)]
        });
    }

    fn of_handshakes(&mut self) {
        let help = "Whether its handshakes are seen.";
        self.add("handshakes_seen", "gauge", help, |of| Some(f64::from(u8::from(of.handshakes.is_some()))));
        let mut each = |name: &str, label: &str, help: &str, of: fn(&Counts) -> Vec<(String, u64)>| {
            self.add_each(name, "counter", label, help, |totals| {
                let counts = totals.handshakes.iter().flat_map(of);
                counts.map(|(text, count)| (text, count as f64)).collect()
            });
        };
        let help = "Handshakes that are over: full, resumed, or why they were broken off.";
        each("handshakes_total", "kind", help, |counts| {
            let of = &counts.connections;
            named([
                ("full", of.full_handshakes),
                ("resumed", of.resumed_handshakes),
                ("refused_by_client", of.refused_by_clients),
                ("left_by_client", of.left_by_clients),
                ("closed_by_server", of.closed_by_servers),
                ("without_answer", of.without_answers),
                ("unfinished", of.unfinished_handshakes),
            ])
        });
        each("handshake_versions_total", "version", "Complete handshakes by version of TLS.", |counts| {
            let of = &counts.agreed;
            named([("1.3", of.tls13_handshakes), ("1.2", of.tls12_handshakes), ("older", of.older_handshakes)])
        });
        each("handshake_groups_total", "group", "Complete handshakes of TLS 1.3 by group.", |counts| {
            counts.chosen_groups.iter().map(|(code, count)| (group(*code), *count)).collect()
        });
        let help = "Complete handshakes in which the client offered a session, by what became of it.";
        each("resumptions_total", "outcome", help, |counts| {
            let of = &counts.agreed;
            let refused = of.resumption_refused_count;
            named([("accepted", of.resumption_offered_count - refused), ("refused", refused)])
        });
        each("connections_total", "", "Connections that clients began to open.", |counts| {
            named([("", counts.opened_connections)])
        });
        let help = "Bytes of TCP, of connections that have ended.";
        each("traffic_bytes_total", "direction", help, |counts| {
            named([("from_client", counts.traffic.client_bytes), ("from_server", counts.traffic.server_bytes)])
        });
        self.of_waiting();
    }

    /// What clients waited, as a histogram.
    fn of_waiting(&mut self) {
        let name = "tlsdyno_top_hello_to_answer_seconds";
        self.metrics.head(name, "histogram", "From the complete ClientHello to the ServerHello.");
        for of in self.servers {
            let Some(counts) = &of.handshakes else { continue };
            let (waited, server) = (&counts.hello_to_answer_ns, ("server", of.server.as_str()));
            let within = BUCKETS.map(|le| (le.to_string(), waited.count_between(0, (le * 1e9) as u64)));
            for (le, count) in within.into_iter().chain([("+Inf".to_owned(), waited.len())]) {
                self.metrics.sample(&format!("{name}_bucket"), &[server, ("le", le.as_str())], count);
            }
            self.metrics.sample(&format!("{name}_sum"), &[server], waited.mean() * waited.len() as f64 / 1e9);
            self.metrics.sample(&format!("{name}_count"), &[server], waited.len());
        }
    }
}

fn named<const N: usize>(counts: [(&str, u64); N]) -> Vec<(String, u64)> {
    counts.map(|(name, count)| (name.to_owned(), count)).into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::classify::Place;

    fn totals(pid: u32, handshakes: Option<Counts>) -> Totals {
        let mut samples = shares::Counts::default();
        (0..99).for_each(|_| samples.add(Place::Tls(Part::Signature)));
        Totals {
            server: "nginx :443".to_owned(),
            pid,
            libraries: "OpenSSL 3.0.17".to_owned(),
            cpus_count: 4,
            tls: Estimate { value: 90.0, low: 80.0, high: 95.0 },
            samples,
            cpu_ns: 1_500_000_000,
            handshakes,
        }
    }

    fn served(servers: Vec<Totals>) -> String {
        text(servers, &Rest { unwatched_count: 0, dropped_packets: 3, own_cpu_ns: 20_000_000 })
    }

    fn counts() -> Counts {
        let mut counts = Counts::default();
        counts.connections.full_handshakes = 2;
        counts.agreed.resumption_offered_count = 5;
        counts.agreed.resumption_refused_count = 1;
        counts.chosen_groups = [(0x11ec, 2)].into();
        [900_000, 40_000_000].into_iter().for_each(|ns| counts.hello_to_answer_ns.record(ns).unwrap());
        counts
    }

    #[test]
    fn counters_are_in_base_units_and_buckets_add_up() {
        let text = served(vec![totals(1, Some(counts()))]);
        for line in [
            "tlsdyno_top_cpu_seconds_total{server=\"nginx :443\",part=\"signature\"} 0.99999999",
            "tlsdyno_top_process_cpu_seconds_total{server=\"nginx :443\"} 1.5",
            "tlsdyno_top_tls_cpu_low_ratio{server=\"nginx :443\"} 0.8",
            "tlsdyno_top_handshakes_total{server=\"nginx :443\",kind=\"full\"} 2",
            "tlsdyno_top_handshake_groups_total{server=\"nginx :443\",group=\"X25519MLKEM768\"} 2",
            "tlsdyno_top_resumptions_total{server=\"nginx :443\",outcome=\"accepted\"} 4",
            "tlsdyno_top_hello_to_answer_seconds_bucket{server=\"nginx :443\",le=\"0.0005\"} 0",
            "tlsdyno_top_hello_to_answer_seconds_bucket{server=\"nginx :443\",le=\"0.001\"} 1",
            "tlsdyno_top_hello_to_answer_seconds_bucket{server=\"nginx :443\",le=\"+Inf\"} 2",
            "tlsdyno_top_hello_to_answer_seconds_count{server=\"nginx :443\"} 2",
            "tlsdyno_top_dropped_packets_total 3",
            "process_cpu_seconds_total 0.02",
        ] {
            assert!(text.lines().any(|this| this == line), "{line:?} is not in\n{text}");
        }
    }

    #[test]
    fn what_is_not_seen_has_no_samples_and_no_sample_comes_twice() {
        let text = served(vec![totals(1, None), totals(2, None)]);
        assert!(text.contains("handshakes_seen{server=\"nginx :443 (pid 2)\"} 0"), "{text}");
        assert!(!text.contains("handshakes_total{") && !text.contains("_bucket{"), "{text}");
        let samples = text.lines().filter(|line| !line.starts_with('#')).map(|line| line.rsplit_once(' ').unwrap().0);
        assert!(samples.duplicates().next().is_none(), "{text}");
    }

    /// A dashboard or an alert that asks for what nobody serves stays silent.
    #[test]
    fn the_dashboard_and_the_alerts_ask_for_what_is_served() {
        let text = served(vec![totals(1, Some(counts()))]);
        for file in [
            include_str!("../../../packaging/top/tlsdyno-top-dashboard.json"),
            include_str!("../../../packaging/top/tlsdyno-top-alerts.yml"),
        ] {
            let words = file.split(|c: char| !(c.is_ascii_alphanumeric() || c == '_'));
            let names: HashSet<&str> =
                words.filter(|word| word.starts_with("tlsdyno_top_") || word.starts_with("process_")).collect();
            assert!(names.len() >= 6, "{names:?}");
            for name in names {
                assert!(text.lines().any(|line| line.split(['{', ' ']).next() == Some(name)), "{name}");
            }
        }
    }
}
