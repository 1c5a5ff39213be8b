//! The server's own word on resumption, to check the client's count against.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Context, Result, bail};

/// What an access log of `$ssl_session_reused $ssl_protocol $ssl_cipher $connection_requests` says in sum.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SessionCounts {
    /// Requests logged.
    pub requests: u64,
    /// Connections that made at least one request.
    pub connections: u64,
    /// Those of them whose TLS session was resumed.
    pub resumed: u64,
    /// Connections by `protocol cipher`, for example `TLSv1.3 TLS_AES_128_GCM_SHA256`; `- -` is plain HTTP.
    pub negotiated: BTreeMap<String, u64>,
}

impl SessionCounts {
    /// Reads a whole log.
    pub fn read(path: &Path) -> Result<SessionCounts> {
        let text = std::fs::read_to_string(path).with_context(|| format!("read {}", path.display()))?;
        let mut counts = SessionCounts::default();
        for line in text.lines() {
            counts.add(line).with_context(|| format!("{}: `{line}`", path.display()))?;
        }
        Ok(counts)
    }

    fn add(&mut self, line: &str) -> Result<()> {
        let fields: Vec<&str> = line.split(' ').collect();
        let &[reused, protocol, cipher, number] = fields.as_slice() else { bail!("not four fields") };
        self.requests += 1;
        // The first request stands for its connection.
        if number.parse::<u64>().context("no request number")? == 1 {
            self.connections += 1;
            self.resumed += u64::from(reused == "r");
            *self.negotiated.entry(format!("{protocol} {cipher}")).or_default() += 1;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn first_requests_stand_for_connections() {
        let mut counts = SessionCounts::default();
        for line in [". TLSv1.3 A 1", ". TLSv1.3 A 2", "r TLSv1.3 A 1", "- - - 1"] {
            counts.add(line).unwrap();
        }
        assert_eq!((counts.requests, counts.connections, counts.resumed), (4, 3, 1));
        assert_eq!(counts.negotiated["TLSv1.3 A"], 2);
        assert!(counts.add("r TLSv1.3 A").is_err() && counts.add("r TLSv1.3 A x").is_err());
    }
}
