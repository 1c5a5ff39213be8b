//! The server's own word on resumption, to check the client's count against.

use std::collections::BTreeMap;
use std::path::PathBuf;

use anyhow::{Context, Result, bail};

/// A log with a line for each request: `MARK RESUMED PROTOCOL CIPHER NUMBER`, in the words of the server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SessionLog {
    pub path: PathBuf,
    /// What its lines begin with, where others stand among them.
    pub mark: &'static str,
    /// What the server says of a resumed session: nginx `r`, Apache `Resumed`, HAProxy `1`.
    pub resumed: &'static str,
    /// What it says of the first request of a connection.
    pub first: &'static str,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SessionCounts {
    pub requests: u64,
    /// Connections that made at least one request.
    pub connections: u64,
    /// Those of them whose TLS session was resumed.
    pub resumed: u64,
    /// Connections by `protocol cipher`, for example `TLSv1.3 TLS_AES_128_GCM_SHA256`; `- -` is plain HTTP.
    pub negotiated: BTreeMap<String, u64>,
}

impl SessionLog {
    pub fn read(&self) -> Result<SessionCounts> {
        let text = std::fs::read_to_string(&self.path).with_context(|| format!("read {}", self.path.display()))?;
        let mut counts = SessionCounts::default();
        for line in text.lines().filter_map(|line| line.strip_prefix(self.mark)) {
            self.add(line, &mut counts).with_context(|| format!("{}: `{line}`", self.path.display()))?;
        }
        Ok(counts)
    }

    fn add(&self, line: &str, counts: &mut SessionCounts) -> Result<()> {
        let fields: Vec<&str> = line.split_ascii_whitespace().collect();
        let &[reused, protocol, cipher, number] = fields.as_slice() else { bail!("not four fields") };
        number.parse::<u64>().context("no request number")?;
        counts.requests += 1;
        // The first request stands for its connection.
        if number == self.first {
            counts.connections += 1;
            counts.resumed += u64::from(reused == self.resumed);
            *counts.negotiated.entry(format!("{protocol} {cipher}")).or_default() += 1;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn log(mark: &'static str, resumed: &'static str, first: &'static str) -> SessionLog {
        SessionLog { path: PathBuf::new(), mark, resumed, first }
    }

    #[test]
    fn first_requests_stand_for_connections() {
        let nginx = log("", "r", "1");
        let mut counts = SessionCounts::default();
        for line in [". TLSv1.3 A 1", ". TLSv1.3 A 2", "r TLSv1.3 A 1", "- - - 1"] {
            nginx.add(line, &mut counts).unwrap();
        }
        assert_eq!((counts.requests, counts.connections, counts.resumed), (4, 3, 1));
        assert_eq!(counts.negotiated["TLSv1.3 A"], 2);
        assert!(nginx.add("r TLSv1.3 A", &mut counts).is_err() && nginx.add("r TLSv1.3 A x", &mut counts).is_err());
    }

    #[test]
    fn each_server_has_its_words_and_other_lines_are_left_out() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("log");
        std::fs::write(&path, "Proxy stopped\nsession 1 TLSv1.2 B 1\nsession 1 TLSv1.2 B 0\n").unwrap();
        let counts = SessionLog { path, ..log("session ", "1", "1") }.read().unwrap();
        assert_eq!((counts.requests, counts.connections, counts.resumed), (2, 1, 1));
        let mut counts = SessionCounts::default();
        log("", "Resumed", "0").add("Initial TLSv1.3 A 0", &mut counts).unwrap();
        assert_eq!((counts.connections, counts.resumed), (1, 0));
    }
}
