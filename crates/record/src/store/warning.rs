//! Warnings: what the reader of a result must know.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::model::without_secrets;

/// Codes of warnings that somebody asks for. The others stand where their warnings are built.
pub mod code {
    /// Requests failed.
    pub const ERRORS: &str = "errors";
    /// The server took fewer or more sessions than the plan wanted to resume.
    pub const REUSE: &str = "reuse";
    /// What came is not what was asked for, so that the program ends with 8.
    pub const MISSED: &str = "missed";
    /// Neither the server nor the load was busy all the time.
    pub const UNSATURATED: &str = "unsaturated";
    /// There is no plain-HTTP side to compare with.
    pub const NO_PLAIN_HTTP: &str = "no_plain_http";
    /// The record is not in the store.
    pub const NOT_STORED: &str = "not_stored";
}

/// Something that the reader of a result must know.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Warning {
    /// Which kind of warning it is: a name for programs, which stays.
    pub code: String,
    /// What happened and what it means.
    pub what: String,
    /// What to do.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub remedy: Option<String>,
}

impl Warning {
    /// A warning without a remedy. It may name what a log asks for or what others run: secrets are left out.
    pub fn new(code: &str, what: impl Into<String>) -> Warning {
        Warning { code: code.to_owned(), what: without_secrets(&what.into()), remedy: None }
    }

    /// This warning with what to do.
    #[must_use]
    pub fn with_remedy(self, remedy: impl Into<String>) -> Warning {
        Warning { remedy: Some(remedy.into()), ..self }
    }
}

impl fmt::Display for Warning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.what)?;
        self.remedy.as_ref().map_or(Ok(()), |remedy| write!(f, ". {remedy}"))
    }
}

/// Requests failed; `kind` is that of the error.
pub fn errors(kind: &str, count: u64, requests: u64) -> Warning {
    let remedy = match kind {
        "refused" | "reset" | "closed" => "Read the server's error log; it may have run out of connections or died.",
        "timeout" | "connect_timeout" | "handshake_timeout" | "first_byte_timeout" | "total_timeout" => {
            "The server did not answer in time; lower --connections."
        }
        "cut" => "The server or the network is slow: its answers were not complete when the block had ended.",
        "ports" | "descriptors" | "resources" => {
            "The client ran out of ports or descriptors; raise `ulimit -n` or lower --connections."
        }
        "tls" => "The handshake failed; the server's error log and `tlsdyno load URL` name the alert.",
        "status" | "length" => "The server answered something else than expected; check its document root.",
        _ => "Read the server's error log.",
    };
    Warning::new(code::ERRORS, format!("{count} of {requests} requests failed ({kind})")).with_remedy(remedy)
}

/// Part of the reuse that was asked for by which it may fall short, however short the run is: first handshakes of
/// clients, and sessions at its end, excuse no more.
pub const REUSE_MISSED_MAX: f64 = 0.25;

/// Of connections that should have resumed, so many offered a session, and of so many the server took it.
pub fn reuse(intended: u64, offered: u64, accepted: u64) -> Warning {
    let taken = || {
        let remedy = "Check its session cache and ticket settings (size, lifetime, workers sharing it).";
        (format!("{offered} offered one, and the server took {accepted}"), remedy)
    };
    let (cause, remedy) = cause_of_reuse(intended, offered, accepted).unwrap_or_else(taken);
    let what = format!("of {intended} connections that were to resume a session: {cause}");
    Warning::new(code::REUSE, what).with_remedy(remedy)
}

/// Why fewer connections resumed than were to, and what to do. `None`: no fewer did.
pub fn cause_of_reuse(intended: u64, offered: u64, accepted: u64) -> Option<(String, &'static str)> {
    let missing = intended.saturating_sub(offered);
    if accepted < offered && offered - accepted >= missing {
        // Two servers that share nothing refuse half.
        let remedy = match 3 * (offered - accepted) >= offered {
            true => {
                "Behind one address there may be several servers or workers that do not share cache or ticket keys, or \
                 its cache is too small"
            }
            false => {
                "Its cache may be too small, or it may take a ticket once only; of several servers that share nothing \
                 half or more would be refused"
            }
        };
        Some((format!("the server took {accepted} of {offered} sessions offered"), remedy))
    } else if offered == 0 && intended > 0 {
        let cause = format!("{intended} were to resume, but the server issued no session");
        Some((cause, "Switch its session cache or tickets on (nginx: ssl_session_cache, ssl_session_tickets)"))
    } else if missing > 0 {
        let cause = format!("{intended} were to resume, but the server issued sessions for {offered} only");
        Some((cause, "A ticket of TLS 1.3 may be good once: let the server give more of them, or ask for less --reuse"))
    } else {
        None
    }
}

/// Server and client share CPUs; why.
pub fn shared_cpus(cause: &str) -> Warning {
    let what = format!(
        "server and client share CPUs ({cause}): hits per second are not the server's limit. CPU per hit stays valid."
    );
    Warning::new("shared_cpus", what)
}

/// There is no plain-HTTP side to compare with.
pub fn no_plain_http() -> Warning {
    let what = "without a plain-HTTP side no share is claimed for it: \"rest\" is the rest of TLS and the server \
                itself together";
    Warning::new(code::NO_PLAIN_HTTP, what).with_remedy("Give --plain-address IP:PORT of the same server without TLS.")
}

/// Configurations in a text: all of so many, a few in quotes, or their number.
pub struct Places<'a>(pub &'a [String], pub u32);

impl fmt::Display for Places<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const NAMED_MAX: usize = 3;
        if self.0.len() as u32 == self.1 {
            return f.write_str("every configuration");
        }
        if self.0.len() > NAMED_MAX {
            return write!(f, "{} of {} configurations", self.0.len(), self.1);
        }
        for (index, name) in self.0.iter().enumerate() {
            let separator = if index > 0 { ", " } else { "" };
            write!(f, "{separator}\"{name}\"")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_warning_keeps_no_token_of_what_it_names() {
        let warning = Warning::new("left_out", "left out: /news?token=hunter2 (404), by \"app --password hunter2\"");
        assert_eq!(warning.what, "left out: /news?token=… (404), by \"app --password …\"");
    }
}
