//! The traffic of a site: by its access log, or as `tlsdyno top` saw it.

use std::path::Path;

use anyhow::{Context, Result, bail};
use serde::Deserialize;
use serde_json::Value;
use tlsdyno_base::input;
use tlsdyno_base::units::{format_count, format_short, format_tenths};
use tlsdyno_packets::Counts;
use tlsdyno_record::model::workload::ReplaySpec;
use tlsdyno_workloads::{Lifetime, LogScan, scan_log};

/// What is known of a site.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Traffic {
    pub peak_per_s: f64,
    pub requests_per_connection: f64,
    /// Part of the connections whose user was there within the lifetime of a session.
    pub reuse_fraction: f64,
    /// Mean size of a response, kilobytes; `None`: unknown.
    pub kilobytes: Option<f64>,
    /// Connections that resume, by session lifetime; empty: unknown.
    pub lifetimes: Vec<Lifetime>,
    /// The same in a sentence.
    pub sentence: String,
}

impl Traffic {
    /// Of the log at `path`, whose connections close after so long without a request; `None`: as nginx does.
    ///
    /// # Errors
    /// It cannot be read, or holds no usable line.
    pub fn of(path: &Path, keep_alive_s: Option<u32>) -> Result<Traffic> {
        let usual = ReplaySpec::default();
        let rules = ReplaySpec { keep_alive_s: keep_alive_s.unwrap_or(usual.keep_alive_s), ..usual };
        Ok(Traffic::told(&scan_log(path, &[], &rules)?))
    }

    fn told(of: &LogScan) -> Traffic {
        let connections = of.hits as f64 / of.hits_per_connection;
        let peak_per_s = of.peak_minute_hits as f64 / 60.0;
        let kilobytes = of.response_size_bytes.mean / 1e3;
        Traffic {
            peak_per_s,
            requests_per_connection: of.hits_per_connection,
            reuse_fraction: (1.0 - of.sessions as f64 / connections).max(0.0),
            kilobytes: Some(kilobytes),
            lifetimes: of.lifetimes.clone(),
            sentence: format!(
                "The log has {} requests of {} clients: {} a second in its busiest minute, {} on a connection, {} for \
                 each full handshake, {} kB each.",
                format_count(of.hits),
                format_count(of.users),
                format_tenths(peak_per_s),
                format_short(of.hits_per_connection),
                format_short(of.hits_per_full_handshake),
                format_short(kilobytes)
            ),
        }
    }

    /// Of a server that `tlsdyno top --once 60s --json` watched, with so many requests on each connection: packets do
    /// not tell them, nor how many of the bytes are responses.
    ///
    /// # Errors
    /// The file is not of one server, or no handshake was seen there.
    pub fn watched(path: &Path, requests_per_connection: f64) -> Result<Traffic> {
        const REMEDY: &str =
            "write it by `tlsdyno top --listen :443 --once 60s --json`, as root, while there are visitors";
        let answer: Value = serde_json::from_str(&input::text(path)?).context(REMEDY)?;
        let Some([server]) = answer["servers"].as_array().map(Vec::as_slice) else {
            bail!("{} is not of one server; {REMEDY}", path.display());
        };
        let seen = &server["handshakes"];
        let counts = Counts::deserialize(seen).unwrap_or_default();
        let connections = (counts.complete() + counts.broken_off()) as f64;
        let scale = seen["one_client_in_count"].as_f64().zip(seen["elapsed_ns"].as_f64()).filter(|_| connections > 0.0);
        let Some((one_client_in_count, elapsed_ns)) = scale else {
            bail!("{} tells of no handshake; {REMEDY}", path.display());
        };
        let per_s = connections * one_client_in_count / (elapsed_ns / 1e9);
        let reuse_fraction = counts.agreed.resumption_offered_count as f64 / connections;
        Ok(Traffic {
            peak_per_s: per_s * requests_per_connection,
            requests_per_connection,
            reuse_fraction,
            kilobytes: None,
            lifetimes: Vec::new(),
            sentence: format!(
                "tlsdyno top saw {} connections in {} s: {} a second, {} % of them with a session.",
                format_count(connections as u64),
                format_short(elapsed_ns / 1e9),
                format_tenths(per_s),
                format_tenths(100.0 * reuse_fraction)
            ),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_log_tells_peak_connections_and_visitors_who_come_back() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("access.log");
        // Ten clients: three requests in a second, two more 100 s later, and one after a quarter of an hour.
        let line = |client: u32, second: u32| {
            let (minute, second) = (second / 60, second % 60);
            format!("10.0.0.{client} - - [01/Nov/2026:10:{minute:02}:{second:02} +0000] \"GET /a HTTP/1.1\" 200 2000\n")
        };
        let of = |client: u32| [0, 0, 1, 101, 102, 1000].map(|second| line(client, second)).concat();
        std::fs::write(&path, (0..10).map(of).collect::<String>()).unwrap();
        let traffic = Traffic::of(&path, None).unwrap();
        assert!(traffic.sentence.starts_with("The log has 60 requests of 10 clients"), "{}", traffic.sentence);
        assert!((traffic.peak_per_s - 0.5).abs() < 1e-9 && traffic.kilobytes == Some(2.0));
        // Three connections of each; the second one finds the session, the third does not.
        assert!((traffic.requests_per_connection - 2.0).abs() < 1e-9, "{traffic:?}");
        assert!((traffic.reuse_fraction - 1.0 / 3.0).abs() < 1e-9, "{traffic:?}");
        let kept = Traffic::of(&path, Some(120)).unwrap();
        assert!((kept.requests_per_connection - 3.0).abs() < 1e-9 && kept.reuse_fraction.abs() < 1e-9, "{kept:?}");
    }

    #[test]
    fn what_was_watched_tells_connections_and_nothing_of_requests() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("watched.json");
        let watched = |servers: Value| {
            std::fs::write(&path, serde_json::json!({"format": 1, "servers": servers}).to_string()).unwrap();
            Traffic::watched(&path, 4.0)
        };
        let mut counts = Counts::default();
        (counts.connections.full_handshakes, counts.connections.resumed_handshakes) = (30, 60);
        counts.connections.refused_by_clients = 10;
        counts.agreed.resumption_offered_count = 75;
        counts.chosen_groups = [(29, 90)].into();
        let mut seen = serde_json::to_value(&counts).unwrap();
        (seen["elapsed_ns"], seen["one_client_in_count"]) = (10_000_000_000_u64.into(), 2.into());
        let server = serde_json::json!({"handshakes": seen});
        let traffic = watched(serde_json::json!([server])).unwrap();
        assert_eq!((traffic.peak_per_s, traffic.reuse_fraction, traffic.kilobytes), (80.0, 0.75, None));
        for none in [serde_json::json!([server, server]), serde_json::json!([{"handshakes": null}]), Value::Null] {
            let error = watched(none).unwrap_err().to_string();
            assert!(error.contains("tlsdyno top --listen :443 --once 60s --json"), "{error}");
        }
    }
}
