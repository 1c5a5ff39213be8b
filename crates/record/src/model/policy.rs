//! By which rule a dispatcher chooses a backend.

use std::fmt;
use std::str::FromStr;

use tlsdyno_engine::dispatch;
use tlsdyno_tls::names::{Named, UnknownName};

/// Who passes connections on, and by which rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Policy {
    /// The dispatcher of tlsdyno with one of its policies.
    Own(dispatch::Policy),
    /// HAProxy in TCP mode, round robin.
    HaproxyRoundRobin,
    /// HAProxy in TCP mode, by a hash of the client's address.
    HaproxySource,
    /// HAProxy in TCP mode, by the TLS session ID.
    HaproxyStick,
    /// The stream module of nginx, by a hash of the client's address.
    NginxHash,
    /// The front ends that end TLS themselves, by a hash of the path.
    UriHash,
    /// Nobody: clients connect to the one server.
    Direct,
}

impl Policy {
    /// Every policy, ours first.
    pub fn all() -> impl Iterator<Item = Policy> {
        let others = [
            Policy::HaproxyRoundRobin,
            Policy::HaproxySource,
            Policy::HaproxyStick,
            Policy::NginxHash,
            Policy::UriHash,
            Policy::Direct,
        ];
        dispatch::Policy::ALL.into_iter().map(Policy::Own).chain(others)
    }

    /// The name on command lines, in files and tables.
    pub const fn name(self) -> &'static str {
        match self {
            Policy::Own(policy) => policy.name(),
            Policy::HaproxyRoundRobin => "haproxy-round-robin",
            Policy::HaproxySource => "haproxy-source",
            Policy::HaproxyStick => "haproxy-stick",
            Policy::NginxHash => "nginx-hash",
            Policy::UriHash => "uri-hash",
            Policy::Direct => "direct",
        }
    }

    /// Whether it decides by the client's address, at least where it knows no better.
    pub const fn needs_addresses(self) -> bool {
        use dispatch::Policy::{SessionAddress, SourceAddress};
        matches!(self, Policy::Own(SourceAddress | SessionAddress) | Policy::HaproxySource | Policy::NginxHash)
    }

    /// Whether it decides by what is requested, which it can only read without TLS.
    pub const fn reads_requests(self) -> bool {
        matches!(self, Policy::Own(dispatch::Policy::Lard) | Policy::UriHash)
    }

    /// Whether it can choose a server for each request that front ends pass on.
    pub const fn goes_behind_front_ends(self) -> bool {
        use dispatch::Policy::{Lard, LeastConnections, RoundRobin};
        matches!(self, Policy::Own(RoundRobin | LeastConnections | Lard) | Policy::UriHash)
    }

    /// Whether it decides by what TLS hellos say.
    pub const fn needs_tls(self) -> bool {
        match self {
            Policy::Own(policy) => policy.needs_tls(),
            other => matches!(other, Policy::HaproxyStick),
        }
    }
}

impl Named for Policy {
    fn name(self) -> &'static str {
        self.name()
    }

    fn about(self) -> String {
        match self {
            Policy::Own(policy) => format!("tlsdyno dispatch: {}", policy.about()),
            Policy::HaproxyRoundRobin => "HAProxy, TCP mode, round robin".to_owned(),
            Policy::HaproxySource => {
                "HAProxy, TCP mode, `balance source`: by a hash of the client's address".to_owned()
            }
            Policy::HaproxyStick => {
                "HAProxy, TCP mode, stick table on the TLS session ID with inspection of responses".to_owned()
            }
            Policy::NginxHash => "nginx stream module, `hash $remote_addr consistent`".to_owned(),
            Policy::UriHash => "front ends: a consistent hash of the path (HAProxy `balance uri`, nginx `hash $uri \
                                consistent`)"
                .to_owned(),
            Policy::Direct => "no dispatcher: clients connect to the one server (--backends 1)".to_owned(),
        }
    }
}

impl fmt::Display for Policy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Policy {
    type Err = UnknownName;

    fn from_str(name: &str) -> Result<Policy, UnknownName> {
        Policy::all().find(|policy| policy.name().eq_ignore_ascii_case(name)).ok_or_else(|| UnknownName {
            what: "policy",
            name: name.to_owned(),
            known: Policy::all().map(Policy::name).collect::<Vec<_>>().join(", "),
        })
    }
}

tlsdyno_tls::serde_by_name!(Policy);
