//! By which rule a dispatcher chooses a backend.

use serde::{Deserialize, Serialize};

/// Who passes connections on, and by which rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum Policy {
    /// tlsdyno dispatch: one backend after the other
    RoundRobin,
    /// tlsdyno dispatch: the backend with the fewest open connections
    LeastConnections,
    /// tlsdyno dispatch: by the client's address
    SourceAddress,
    /// tlsdyno dispatch: the backend that holds the offered TLS session
    Session,
    /// tlsdyno dispatch: as session; where nobody is known to hold it, the backend that this address used last
    #[serde(rename = "session+address")]
    #[value(name = "session+address")]
    SessionAddress,
    /// tlsdyno dispatch, plain HTTP: the backend that the requested object was sent to before, unless overloaded (LARD)
    Lard,
    /// HAProxy, TCP mode, round robin
    HaproxyRoundRobin,
    /// HAProxy, TCP mode, `balance source`: by a hash of the client's address
    HaproxySource,
    /// HAProxy, TCP mode, stick table on the TLS session ID with inspection of responses
    HaproxyStick,
    /// nginx stream module, `hash $remote_addr consistent`
    NginxHash,
}

impl Policy {
    /// The name on command lines, in files and tables.
    pub const fn name(self) -> &'static str {
        match self {
            Policy::RoundRobin => "round-robin",
            Policy::LeastConnections => "least-connections",
            Policy::SourceAddress => "source-address",
            Policy::Session => "session",
            Policy::SessionAddress => "session+address",
            Policy::Lard => "lard",
            Policy::HaproxyRoundRobin => "haproxy-round-robin",
            Policy::HaproxySource => "haproxy-source",
            Policy::HaproxyStick => "haproxy-stick",
            Policy::NginxHash => "nginx-hash",
        }
    }

    /// Whether it decides by what TLS hellos say.
    pub const fn needs_tls(self) -> bool {
        matches!(self, Policy::Session | Policy::SessionAddress | Policy::HaproxyStick)
    }
}

#[cfg(test)]
mod tests {
    use clap::ValueEnum;

    use super::*;

    #[test]
    fn names_are_the_same_everywhere() {
        for policy in Policy::value_variants() {
            let flag = policy.to_possible_value().unwrap();
            assert_eq!(flag.get_name(), policy.name());
            assert_eq!(serde_json::to_value(policy).unwrap(), policy.name());
        }
    }
}
