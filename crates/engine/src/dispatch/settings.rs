//! What a dispatcher is told to do.

use std::net::SocketAddr;

use tlsdyno_tls::named;

use super::limits::BACKENDS_MAX;
use crate::time::Time;

named! {
    /// How a backend is chosen for a connection.
    pub enum Policy: "policy" {
        /// One after the other
        RoundRobin = "round-robin",
        /// The backend with the fewest open connections
        LeastConnections = "least-connections",
        /// By the client's address, always the same backend
        SourceAddress = "source-address",
        /// The backend that holds the offered TLS session; others by load
        Session = "session",
        /// As session; where nobody is known to hold it, the backend that this address used last
        SessionAddress = "session+address",
        /// For plain HTTP: the backend that the first request's object was sent to before, unless that is overloaded
        /// (LARD)
        Lard = "lard",
    }
}

impl Policy {
    /// Whether it decides by what TLS hellos say.
    pub const fn needs_tls(self) -> bool {
        matches!(self, Policy::Session | Policy::SessionAddress)
    }

    /// Whether a backend can only be chosen once the client has spoken.
    pub fn waits_for_client(self) -> bool {
        self.needs_tls() || self == Policy::Lard
    }
}

named! {
    /// Whether and how backends are told who the client is (the PROXY protocol of HAProxy).
    #[derive(Default)]
    pub enum ProxyHeader: "form of the PROXY protocol" {
        /// Not at all
        #[default]
        None = "none",
        /// A line of text
        V1 = "v1",
        /// Binary
        V2 = "v2",
    }
}

/// A server to which connections are forwarded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Backend {
    /// What status and errors call it.
    pub name: String,
    /// Where it listens. It is its identity: a reload keeps the backend whose address stays.
    pub address: SocketAddr,
}

/// Bounds that a user may set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(deny_unknown_fields, default))]
pub struct Limits {
    /// Most open connections of the whole process; more wait in the kernel's queue.
    pub connections: u32,
    /// Most open connections of one client address; 0: no limit. More are refused.
    pub connections_per_address: u32,
    /// Most bytes of a ClientHello, or of a first request line, that are held; a longer one is forwarded without being
    /// understood.
    pub hello_bytes: usize,
    /// How long a client may take for it.
    pub hello_time: Time,
    /// How long connecting to a backend may take, before the next one is tried.
    pub connect_time: Time,
    /// How long neither side may send anything.
    pub idle_time: Time,
    /// How long the other side may be silent after one has ended its direction.
    pub half_closed_time: Time,
    /// Most pipes for splicing at the same time in the whole process; beyond, bytes are copied.
    pub pipes: u32,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            connections: 8192,
            connections_per_address: 0,
            hello_bytes: 16 * 1024,
            hello_time: Time::seconds(10),
            connect_time: Time::seconds(3),
            idle_time: Time::seconds(300),
            half_closed_time: Time::seconds(60),
            pipes: 256,
        }
    }
}

named! {
    /// What a health check does.
    pub enum CheckKind: "check" {
        /// Nothing; backends that could not be reached are tried again
        None = "none",
        /// Connect
        Tcp = "tcp",
        /// Connect and wait for the answer to a TLS hello
        Hello = "hello",
    }
}

/// How and when backends are checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(deny_unknown_fields, default))]
pub struct Check {
    /// What a check does.
    pub kind: CheckKind,
    /// From one check to the next.
    pub interval: Time,
    /// A check that takes longer has failed.
    pub timeout: Time,
    /// Successes in a row after which a backend is up again.
    pub rise: u32,
    /// Failures in a row, of checks or of connections, after which it is down.
    pub fall: u32,
}

impl Default for Check {
    fn default() -> Check {
        Check { kind: CheckKind::Tcp, interval: Time::seconds(2), timeout: Time::seconds(1), rise: 2, fall: 3 }
    }
}

/// All that may change while the dispatcher runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// The backends, at least one, at most [`super::limits::BACKENDS_MAX`].
    pub backends: Vec<Backend>,
    /// The rule by which a backend is chosen.
    pub policy: Policy,
    /// What they are told about the client.
    pub proxy_header: ProxyHeader,
    /// Bounds on connections and times.
    pub limits: Limits,
    /// Seconds for which it is remembered which backend holds a session, or an object that nobody asks for.
    pub session_timeout_s: u32,
    /// How backends are checked for being up.
    pub check: Check,
}

/// Why settings cannot be taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SettingsError {
    /// There is nowhere to send connections.
    #[error("there is no backend; give at least one: `--backend IP:PORT`, in a file `[[backend]]` with its `address`")]
    NoBackend,
    /// More than [`BACKENDS_MAX`].
    #[error("there are more than {BACKENDS_MAX} backends")]
    TooMany,
    /// Two of them have the same address.
    #[error("backend {0} is named twice")]
    Twice(SocketAddr),
    /// Removed backends still have connections, and their places are needed.
    #[error(
        "backends that were removed still have connections and leave no place for new ones; wait until they are done"
    )]
    StillDraining,
}

impl Settings {
    /// Checks what every dispatcher needs.
    pub fn check(&self) -> Result<(), SettingsError> {
        if self.backends.is_empty() {
            return Err(SettingsError::NoBackend);
        }
        if self.backends.len() > BACKENDS_MAX {
            return Err(SettingsError::TooMany);
        }
        for (index, backend) in self.backends.iter().enumerate() {
            if self.backends[..index].iter().any(|earlier| earlier.address == backend.address) {
                return Err(SettingsError::Twice(backend.address));
            }
        }
        Ok(())
    }
}
