//! The traffic of a site by its access log.

use std::path::Path;

use anyhow::Result;
use serde::Serialize;
use tlsdyno_base::units::{format_count, format_short, format_tenths};
use tlsdyno_record::model::workload::ReplaySpec;
use tlsdyno_workloads::{Lifetime, LogScan, scan_log};

/// What a log tells of a site.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct Traffic {
    pub peak_per_s: f64,
    pub requests_per_connection: f64,
    /// Part of the connections whose user was there within the lifetime of a session.
    pub reuse_fraction: f64,
    /// Mean size of a response, kilobytes.
    pub kilobytes: f64,
    /// Requests in all, and distinct clients.
    pub hits_and_users: [u64; 2],
    pub hits_per_full_handshake: f64,
    /// Connections that resume, by session lifetime.
    pub lifetimes: Vec<Lifetime>,
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
        Traffic {
            peak_per_s: of.peak_minute_hits as f64 / 60.0,
            requests_per_connection: of.hits_per_connection,
            reuse_fraction: (1.0 - of.sessions as f64 / connections).max(0.0),
            kilobytes: of.response_size_bytes.mean / 1e3,
            hits_and_users: [of.hits, of.users],
            hits_per_full_handshake: of.hits_per_full_handshake,
            lifetimes: of.lifetimes.clone(),
        }
    }

    pub fn sentence(&self) -> String {
        let [hits, users] = self.hits_and_users.map(format_count);
        format!(
            "The log has {hits} requests of {users} clients: {} a second in its busiest minute, {} on a connection, {} \
             for each full handshake, {} kB each.",
            format_tenths(self.peak_per_s),
            format_short(self.requests_per_connection),
            format_short(self.hits_per_full_handshake),
            format_short(self.kilobytes)
        )
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
        assert_eq!(traffic.hits_and_users, [60, 10]);
        assert!((traffic.peak_per_s - 0.5).abs() < 1e-9 && (traffic.kilobytes - 2.0).abs() < 1e-9);
        // Three connections of each; the second one finds the session, the third does not.
        assert!((traffic.requests_per_connection - 2.0).abs() < 1e-9, "{traffic:?}");
        assert!((traffic.reuse_fraction - 1.0 / 3.0).abs() < 1e-9, "{traffic:?}");
        let kept = Traffic::of(&path, Some(120)).unwrap();
        assert!((kept.requests_per_connection - 3.0).abs() < 1e-9 && kept.reuse_fraction.abs() < 1e-9, "{kept:?}");
    }
}
