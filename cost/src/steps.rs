//! What the client does on a connection: which hello it sends, and how far it goes.

use serde::{Deserialize, Serialize};
use tlsdyno_base::exchange::Reach;
use tlsdyno_tls::{Effort, Group, Lack, Settings, Suite, Version};

/// Requests on a kept connection after its first one.
pub const MORE_REQUESTS: u32 = 16;

/// The step that every other one is compared with in time: a whole connection with a request.
pub const WHOLE: &str = "TLS 1.3, request";

/// A connection as the client makes it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Step {
    /// What it is called.
    pub name: String,
    /// The version that is offered.
    pub version: Version,
    /// What the hello lacks.
    pub lack: Option<Lack>,
    /// The only group that is offered; `None`: X25519 first, as browsers have it.
    pub group: Option<Group>,
    /// The only suite that is offered; `None`: AES-128-GCM.
    pub suite: Option<Suite>,
    /// A session is offered.
    pub resumes: bool,
    /// How far it goes.
    pub reach: Reach,
    /// Requests on the same connection after the first.
    pub more_requests: u32,
}

impl Step {
    fn new(name: &str, version: Version, reach: Reach) -> Step {
        let name = name.to_owned();
        Step { name, version, lack: None, group: None, suite: None, resumes: false, reach, more_requests: 0 }
    }

    /// All of them, in the order of a connection's life.
    pub fn all() -> Vec<Step> {
        let new = Step::new;
        let (old, today) = (Version::Tls12, Version::Tls13);
        let refused = |name, lack| Step { lack: Some(lack), ..new(name, today, Reach::Refused) };
        let resumed = |name, version, reach| Step { resumes: true, ..new(name, version, reach) };
        let with = |group: Group| Step {
            group: Some(group),
            ..new(&format!("TLS 1.3, server's flight, {group}"), today, Reach::Flight)
        };
        let by = |suite: Suite| Step {
            suite: Some(suite),
            ..new(&format!("TLS 1.3, request, {suite}"), today, Reach::Answered)
        };
        vec![
            new("TCP", today, Reach::Tcp),
            refused("hello without a usable suite", Lack::Suites),
            refused("hello without a usable group", Lack::Groups),
            refused("hello without a usable signature", Lack::Signatures),
            new("TLS 1.3, server's flight", today, Reach::Flight),
            Step { lack: Some(Lack::Shares), ..new("TLS 1.3, server's flight after a retry", today, Reach::Flight) },
            new("TLS 1.3, handshake", today, Reach::Finished),
            new(WHOLE, today, Reach::Answered),
            Step { more_requests: MORE_REQUESTS, ..new("TLS 1.3, 16 more requests", today, Reach::Answered) },
            resumed("TLS 1.3, resumed, server's flight", today, Reach::Flight),
            resumed("TLS 1.3, resumed, handshake", today, Reach::Finished),
            resumed("TLS 1.3, resumed, request", today, Reach::Answered),
            with(Group::P256),
            with(Group::P384),
            with(Group::X25519MlKem768),
            by(Suite::Tls13Aes256Gcm),
            by(Suite::Tls13ChaCha20),
            new("TLS 1.2, server's flight", old, Reach::Flight),
            new("TLS 1.2, handshake", old, Reach::Finished),
            new("TLS 1.2, request", old, Reach::Answered),
            resumed("TLS 1.2, resumed, handshake", old, Reach::Finished),
            resumed("TLS 1.2, resumed, request", old, Reach::Answered),
        ]
    }

    /// What the client offers for it. `server_name`: the host of the URL.
    pub fn settings(&self, server_name: &str) -> Settings {
        let usual = match self.version {
            Version::Tls13 => Suite::Tls13Aes128Gcm,
            Version::Tls12 => Suite::EcdheRsaAes128Gcm,
        };
        let of_old = vec![Suite::EcdheEcdsaAes128Gcm, usual];
        let suites = match (self.suite, self.version) {
            (Some(suite), _) => vec![suite],
            (None, Version::Tls13) => vec![usual],
            (None, Version::Tls12) => of_old,
        };
        Settings {
            versions: vec![self.version],
            suites,
            groups: self.group.map_or_else(|| Group::CURVES.to_vec(), |group| vec![group]),
            server_name: Some(server_name.to_owned()),
            effort: Effort::Lean,
            lack: self.lack,
            ..Settings::default()
        }
    }
}
