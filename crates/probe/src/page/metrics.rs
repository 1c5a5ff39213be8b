//! The state of all sites in Prometheus' text format. Where the blackbox exporter has a name for something, that name
//! is used, so that its dashboards and alerts work.

use tlsdyno_base::metrics::Metrics;

use crate::round::{Resumption, Round, Visit};
use crate::store::Tally;

#[derive(Clone, Debug)]
pub struct SiteState {
    /// Its name: the site, as seen from a place.
    pub name: String,
    pub totals: Tally,
    /// The last one, if its row is there.
    pub latest: Option<Round>,
}

type Labels = Vec<(&'static str, String)>;

/// What the values of a metric are taken from.
enum Of {
    /// Of the last round one value, if it is known.
    Round(fn(&Round) -> Option<f64>),
    /// Nanoseconds of each of its connections but that with early data.
    Handshakes(fn(&Visit) -> u64),
    /// Nanoseconds of each of its connections.
    Visits(fn(&Visit) -> u64),
    /// Nanoseconds of the phases of its full handshake's connection.
    Phases(fn(&Round, &Visit) -> [(&'static str, u64); 5]),
    /// Texts about the site, as labels of a value that is always 1.
    Facts(fn(&Round) -> Labels),
    Total(fn(&Tally) -> u64),
}

/// All metrics about sites: name, help, values.
#[rustfmt::skip]
const METRICS: [(&str, &str, Of); 22] = [
    ("probe_success", "Whether the last round succeeded",
        Of::Round(|round| Some(f64::from(u8::from(round.fault.is_none()))))),
    ("probe_duration_seconds", "TCP, full handshake and answer of the last round",
        Of::Round(|round| Some(seconds(round.full?.total_ns())))),
    ("probe_dns_lookup_time_seconds", "The name look-up of the last round",
        Of::Round(|round| round.lookup_ns.map(seconds))),
    ("probe_http_duration_seconds", "Phases of the full handshake's connection in the last round",
        Of::Phases(phases)),
    ("probe_http_status_code", "The last status",
        Of::Round(|round| round.status.map(f64::from))),
    ("probe_http_content_length", "Bytes of the last answer's body",
        Of::Round(|round| round.body_bytes.map(|bytes| bytes as f64))),
    ("probe_ssl_earliest_cert_expiry", "End of the certificate, in seconds since 1970",
        Of::Round(|round| Some(round.facts.certificate_until_unix_s as f64).filter(|until| *until > 0.0))),
    ("probe_tls_version_info", "The version of TLS; always 1",
        Of::Facts(|round| vec![("version", format!("TLS {}", round.facts.version))])),
    ("tlsdyno_probe_site_info", "What changes seldom; always 1",
        Of::Facts(facts)),
    ("tlsdyno_probe_tcp_seconds", "TCP alone, in the last round",
        Of::Round(|round| round.tcp_ns.map(seconds))),
    ("tlsdyno_probe_handshake_seconds", "Hello until the handshake is complete, in the last round",
        Of::Handshakes(|visit| visit.handshake_ns)),
    ("tlsdyno_probe_server_hello_seconds", "Hello until the server's first bytes, in the last round",
        Of::Visits(|visit| visit.hello_ns)),
    ("tlsdyno_probe_first_byte_seconds", "Finished until the first byte of the answer, in the last round",
        Of::Visits(|visit| visit.first_byte_ns)),
    ("tlsdyno_probe_answer_seconds", "Finished until the last byte of the answer, in the last round",
        Of::Visits(|visit| visit.whole_ns)),
    ("tlsdyno_probe_saved_ratio", "Share of TCP, handshake and answer that resumption saved in the last round",
        Of::Round(|round| Some(round.saving_percent()? / 100.0))),
    ("tlsdyno_probe_resumption_accepted", "Whether the offered session was taken in the last round",
        Of::Round(|round| accepted(round.resumption))),
    ("tlsdyno_probe_last_round_timestamp_seconds", "When the last round began, in seconds since 1970",
        Of::Round(|round| Some(round.started_unix_us as f64 / 1e6))),
    ("tlsdyno_probe_rounds_total", "Rounds made", Of::Total(|tally| tally.made_count)),
    ("tlsdyno_probe_missed_rounds_total", "Rounds that were not made", Of::Total(|tally| tally.missed_count)),
    ("tlsdyno_probe_faults_total", "Rounds in which something failed", Of::Total(|tally| tally.fault_count)),
    ("tlsdyno_probe_sessions_offered_total", "Sessions offered", Of::Total(|tally| tally.offered_count)),
    ("tlsdyno_probe_sessions_accepted_total", "Sessions that were taken",
        Of::Total(|tally| tally.accepted_count)),
];

fn seconds(ns: u64) -> f64 {
    ns as f64 / 1e9
}

fn accepted(became: Resumption) -> Option<f64> {
    became.is_offered().then(|| f64::from(u8::from(became == Resumption::Accepted)))
}

impl Of {
    /// The values that a site has, each under further labels.
    fn values(&self, site: &SiteState) -> Vec<(Labels, f64)> {
        if let Of::Total(count) = self {
            return vec![(Vec::new(), count(&site.totals) as f64)];
        }
        let Some(round) = &site.latest else { return Vec::new() };
        let visits = [("full", round.full), ("resumed", round.resumed), ("early", round.early)];
        let of_visits = |visits: &[(&str, Option<Visit>)], ns: &fn(&Visit) -> u64| {
            let known = visits.iter().filter_map(|(kind, visit)| Some((kind, visit.as_ref()?)));
            known.map(|(kind, visit)| (vec![("kind", (*kind).to_owned())], seconds(ns(visit)))).collect()
        };
        match self {
            Of::Round(value) => value(round).map(|value| (Vec::new(), value)).into_iter().collect(),
            Of::Handshakes(ns) => of_visits(&visits[..2], ns),
            Of::Visits(ns) => of_visits(&visits, ns),
            Of::Phases(of) => {
                let phases = round.full.map(|full| of(round, &full)).into_iter().flatten();
                phases.map(|(phase, ns)| (vec![("phase", phase.to_owned())], seconds(ns))).collect()
            }
            Of::Facts(_) if round.facts.version.is_empty() => Vec::new(),
            Of::Facts(of) => vec![(of(round), 1.0)],
            Of::Total(_) => Vec::new(),
        }
    }
}

fn phases(round: &Round, full: &Visit) -> [(&'static str, u64); 5] {
    [
        ("resolve", round.lookup_ns.unwrap_or(0)),
        ("connect", full.tcp_ns),
        ("tls", full.handshake_ns),
        ("processing", full.first_byte_ns),
        ("transfer", full.whole_ns.saturating_sub(full.first_byte_ns)),
    ]
}

fn facts(round: &Round) -> Labels {
    let facts = &round.facts;
    [
        ("address", &facts.address),
        ("cipher", &facts.suite),
        ("group", &facts.group),
        ("key", &facts.key),
        ("server", &facts.server),
        ("session", &facts.session),
        ("version", &facts.version),
    ]
    .map(|(name, value)| (name, value.clone()))
    .into()
}

/// The text; `None`: the store cannot be read.
pub fn metrics(sites: Option<&[SiteState]>) -> String {
    let mut metrics = Metrics::default();
    metrics.head("tlsdyno_probe_store_up", "gauge", "Whether the store can be read.");
    metrics.sample::<&str>("tlsdyno_probe_store_up", &[], u8::from(sites.is_some()));
    for (name, help, of) in &METRICS {
        let kind = if matches!(of, Of::Total(_)) { "counter" } else { "gauge" };
        metrics.head(name, kind, &format!("{help}."));
        for site in sites.unwrap_or_default() {
            let (url, vantage) = Round::of_series(&site.name);
            let own = [("site", url.to_owned()), ("vantage", vantage.to_owned())];
            for (labels, value) in of.values(site) {
                metrics.sample(name, &[&own[..], &labels].concat(), value);
            }
        }
    }
    metrics.text()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::round::Facts;

    fn site() -> SiteState {
        let visit = |ms: u64| {
            Some(Visit { tcp_ns: 1_000_000, handshake_ns: ms * 1_000_000, whole_ns: 3_000_000, ..Visit::default() })
        };
        let facts = Facts { version: "1.3".into(), server: "a\"b\\c".into(), ..Facts::default() };
        let latest = Round {
            tcp_ns: Some(1_000_000),
            full: visit(40),
            resumed: visit(10),
            resumption: Resumption::Accepted,
            facts,
            ..Round::default()
        };
        let totals = Tally { made_count: 3, ..Tally::default() };
        SiteState { name: "https://a/ from Bern".into(), totals, latest: Some(latest) }
    }

    #[test]
    fn values_are_seconds_under_names_that_people_expect() {
        let text = metrics(Some(&[site()]));
        for line in [
            "probe_success{site=\"https://a/\",vantage=\"Bern\"} 1",
            "probe_http_duration_seconds{site=\"https://a/\",vantage=\"Bern\",phase=\"tls\"} 0.04",
            "tlsdyno_probe_handshake_seconds{site=\"https://a/\",vantage=\"Bern\",kind=\"resumed\"} 0.01",
            "tlsdyno_probe_rounds_total{site=\"https://a/\",vantage=\"Bern\"} 3",
            "tlsdyno_probe_store_up 1",
        ] {
            assert!(text.lines().any(|this| this == line), "{line:?} is not in\n{text}");
        }
        assert!(text.contains("server=\"a\\\"b\\\\c\""));
        assert!(!metrics(None).contains('{') && metrics(None).contains("tlsdyno_probe_store_up 0"));
    }

    /// Names and values of a line's labels, read by the rules of Prometheus' text format.
    fn labels(line: &str) -> BTreeMap<String, String> {
        let (mut all, mut rest) = (BTreeMap::new(), line.split_once('{').unwrap().1);
        while let Some((name, quoted)) = rest.split_once("=\"") {
            let (mut value, mut characters) = (String::new(), quoted.char_indices());
            let end = loop {
                match characters.next().unwrap() {
                    (end, '"') => break end + 1,
                    (_, '\\') => value.push(match characters.next().unwrap().1 {
                        'n' => '\n',
                        plain => plain,
                    }),
                    (_, plain) => value.push(plain),
                }
            };
            all.insert(name.to_owned(), value);
            rest = quoted[end..].trim_start_matches([',', '}']);
        }
        all
    }

    proptest::proptest! {
        /// What a site says of itself stays in its label: no text makes another line or label.
        #[test]
        fn foreign_texts_stay_in_their_labels(server in "\\PC*|[\"\\\\\n\r{}=,]*", place in "[^\n]+") {
            let mut site = site();
            site.name = format!("https://a/ from {place}");
            site.latest.as_mut().unwrap().facts.server.clone_from(&server);
            let text = metrics(Some(&[site]));
            let plain = metrics(Some(&[super::tests::site()]));
            proptest::prop_assert_eq!(text.split('\n').count(), plain.split('\n').count());
            let line = text.split('\n').find(|line| line.starts_with("tlsdyno_probe_site_info{")).unwrap();
            let labels = labels(line);
            proptest::prop_assert_eq!(&labels["server"], &server);
            proptest::prop_assert_eq!(&labels["vantage"], &place);
            let ends = line.ends_with("} 1");
            proptest::prop_assert!(ends);
        }
    }

    /// A dashboard that asks for what nobody serves stays empty without a word.
    #[test]
    fn the_dashboard_asks_for_what_is_served() {
        let text = include_str!("../../../../packaging/probe/grafana-dashboard.json");
        let dashboard: serde_json::Value = serde_json::from_str(text).unwrap();
        let panels = dashboard["panels"].as_array().unwrap();
        let queries: Vec<&str> = panels
            .iter()
            .flat_map(|panel| panel["targets"].as_array().into_iter().flatten())
            .filter_map(|target| target["expr"].as_str())
            .collect();
        assert!(queries.len() > 8, "{queries:?}");
        for query in queries {
            let words = query.split(|c: char| !(c.is_ascii_alphanumeric() || c == '_'));
            let names: Vec<&str> =
                words.filter(|word| word.starts_with("probe_") || word.starts_with("tlsdyno_")).collect();
            assert!(!names.is_empty(), "{query}");
            for name in names {
                assert!(METRICS.iter().any(|(served, ..)| *served == name), "{name} of {query}");
            }
        }
    }
}
