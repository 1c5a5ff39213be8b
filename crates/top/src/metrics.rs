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

/// What each server has: name, label, help.
#[rustfmt::skip]
const METRICS: [(&str, &str, &str); 15] = [
    ("cpu_seconds_total", "part", "CPU time by part of TLS, outside of it, or unknown; from samples."),
    ("process_cpu_seconds_total", "", "CPU time of its processes, from the kernel's clocks."),
    ("lost_samples_total", "", "Samples that found no room and are in no part."),
    ("cpus", "", "CPUs that it may run on."),
    ("tls_cpu_ratio", "", "Share of TLS in its CPU time in the last minute."),
    ("tls_cpu_low_ratio", "", "Lower end of the 95 % interval of that share."),
    ("tls_cpu_high_ratio", "", "Upper end of the 95 % interval of that share."),
    ("server_info", "libraries", "Its TLS libraries; always 1."),
    ("handshakes_seen", "", "Whether its handshakes are seen."),
    ("handshakes_total", "kind", "Handshakes that are over: full, resumed, or why they were broken off."),
    ("handshake_versions_total", "version", "Complete handshakes by version of TLS."),
    ("handshake_groups_total", "group", "Complete handshakes of TLS 1.3 by group."),
    ("resumptions_total", "outcome", "Complete handshakes in which the client offered a session."),
    ("connections_total", "", "Connections that clients began to open."),
    ("traffic_bytes_total", "direction", "Bytes of TCP, of connections that have ended."),
];

/// Values by their label.
type Values = Vec<(String, f64)>;

impl Totals {
    /// In the order of [`METRICS`].
    fn values(&self) -> [Values; METRICS.len()] {
        let one = |value: f64| vec![(String::new(), value)];
        let ratio = |percent: f64| if percent.is_finite() { one(percent / 100.0) } else { Values::new() };
        let end = |end: f64| ratio(if self.tls.has_interval() { end } else { f64::NAN });
        let parts = Part::ALL.into_iter().map(|part| (part.name(), self.samples.of(part)));
        let others = [("outside_tls", self.samples.server()), ("unknown", self.samples.unknown())];
        let parts = parts.chain(others).map(|(part, count)| (part.to_owned(), seconds(count * PERIOD_NS)));
        let [kinds, versions, groups, resumptions, connections, bytes] =
            self.handshakes.as_ref().map_or_else(Default::default, counted);
        [
            parts.collect(),
            one(seconds(self.cpu_ns)),
            one(self.samples.lost() as f64),
            one(self.cpus_count as f64),
            ratio(self.tls.value),
            end(self.tls.low),
            end(self.tls.high),
            vec![(self.libraries.clone(), 1.0)],
            one(u8::from(self.handshakes.is_some()).into()),
            kinds,
            versions,
            groups,
            resumptions,
            connections,
            bytes,
        ]
    }
}

fn counted(counts: &Counts) -> [Values; 6] {
    let named =
        |counts: &[(&str, u64)]| counts.iter().map(|(name, count)| ((*name).to_owned(), *count as f64)).collect();
    let (of, agreed, traffic) = (&counts.connections, &counts.agreed, &counts.traffic);
    let refused = agreed.resumption_refused_count;
    [
        named(&[
            ("full", of.full_handshakes),
            ("resumed", of.resumed_handshakes),
            ("refused_by_client", of.refused_by_clients),
            ("left_by_client", of.left_by_clients),
            ("closed_by_server", of.closed_by_servers),
            ("without_answer", of.without_answers),
            ("unfinished", of.unfinished_handshakes),
        ]),
        named(&[
            ("1.3", agreed.tls13_handshakes),
            ("1.2", agreed.tls12_handshakes),
            ("older", agreed.older_handshakes),
        ]),
        counts.chosen_groups.iter().map(|(code, count)| (group(*code), *count as f64)).collect(),
        named(&[("accepted", agreed.resumption_offered_count - refused), ("refused", refused)]),
        named(&[("", counts.opened_connections)]),
        named(&[("from_client", traffic.client_bytes), ("from_server", traffic.server_bytes)]),
    ]
}

/// The text of the page. `rest`: servers that cannot be watched, packets that found no room, and the CPU time of this
/// program in nanoseconds.
pub fn text(mut servers: Vec<Totals>, rest: [u64; 3]) -> String {
    // Those of one name and port, as in containers, are told by their processes, too.
    let mut names = HashSet::new();
    for of in servers.iter_mut().filter(|of| !names.insert(of.server.clone())) {
        of.server += &format!(" (pid {})", of.pid);
    }
    let mut metrics = Metrics::default();
    let all = servers.iter().map(Totals::values).collect_vec();
    for (at, (name, label, help)) in METRICS.into_iter().enumerate() {
        let name = format!("tlsdyno_top_{name}");
        metrics.head(&name, if name.ends_with("_total") { "counter" } else { "gauge" }, help);
        for (of, values) in servers.iter().zip(&all) {
            for (text, value) in &values[at] {
                let labels = [("server", of.server.as_str()), (label, text.as_str())];
                metrics.sample(&name, &labels[..if label.is_empty() { 1 } else { 2 }], value);
            }
        }
    }
    waiting(&servers, &mut metrics);
    let [unwatched, dropped, own_cpu_ns] = rest;
    for (name, kind, help, value) in [
        ("tlsdyno_top_unwatched_servers", "gauge", "TLS servers that cannot be watched.", unwatched as f64),
        ("tlsdyno_top_dropped_packets_total", "counter", "Packets that are missing in the counts.", dropped as f64),
        ("process_cpu_seconds_total", "counter", "CPU time of tlsdyno top itself.", seconds(own_cpu_ns)),
    ] {
        metrics.head(name, kind, help);
        metrics.sample::<&str>(name, &[], value);
    }
    metrics.text()
}

/// What clients waited, as a histogram.
fn waiting(servers: &[Totals], metrics: &mut Metrics) {
    let name = "tlsdyno_top_hello_to_answer_seconds";
    metrics.head(name, "histogram", "From the complete ClientHello to the ServerHello.");
    for of in servers {
        let Some(counts) = &of.handshakes else { continue };
        let (waited, server) = (&counts.hello_to_answer_ns, ("server", of.server.as_str()));
        let within = BUCKETS.map(|le| (le.to_string(), waited.count_between(0, (le * 1e9) as u64)));
        for (le, count) in within.into_iter().chain([("+Inf".to_owned(), waited.len())]) {
            metrics.sample(&format!("{name}_bucket"), &[server, ("le", le.as_str())], count);
        }
        metrics.sample(&format!("{name}_sum"), &[server], waited.mean() * waited.len() as f64 / 1e9);
        metrics.sample(&format!("{name}_count"), &[server], waited.len());
    }
}

fn seconds(ns: u64) -> f64 {
    ns as f64 / 1e9
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
        text(servers, [0, 3, 20_000_000])
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
