//! What the client does on a connection: which hello it sends, and how far it goes.

use std::fmt;

use serde::{Deserialize, Serialize};
use tlsdyno_base::exchange::Reach;
use tlsdyno_tls::{Effort, Group, Lack, Settings, Signer, Suite, Version};

/// Number of requests on a kept connection after its first one.
pub const MORE_REQUESTS: u32 = 16;

/// Number of requests at once over HTTP/2.
pub const AT_ONCE: u32 = 10;

/// What a connection is, in all that the client decides: two connections with the same id ask a server for the same.
/// Its name is [`Display`](fmt::Display).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct StepId {
    pub version: Option<Version>,
    /// Left out of the ClientHello.
    pub lack: Option<Lack>,
    /// The only group that is offered; `None`: X25519 first, as browsers have it.
    pub group: Option<Group>,
    /// The only suite that is offered; `None`: AES-128-GCM, or the one that a server takes in its place.
    pub suite: Option<Suite>,
    /// The only kind of certificate that the client takes; `None`: whichever the server prefers.
    pub signer: Option<Signer>,
    /// The client takes a certificate that is compressed by zlib.
    #[serde(default)]
    pub compressed: bool,
    /// `None`: a full handshake.
    pub resumes: Option<Resumed>,
    /// Where the client ends the connection.
    pub reach: Reach,
    pub page: String,
    pub more_requests: u32,
    /// By HTTP/2.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub http2: Option<Requests>,
}

/// How the further requests on a connection of HTTP/2 follow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Requests {
    OneByOne,
    AtOnce,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Step {
    /// As it was called when it was measured, for readers of the record.
    pub name: String,
    #[serde(flatten)]
    pub id: StepId,
    /// Determines the cost of another choice: measured in every third turn.
    pub is_choice: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Resumed {
    /// With a ticket, as far as the server has tickets.
    Ticket,
    /// By session ID (TLS 1.2 without tickets).
    Id,
    /// With a ticket, and the request goes with the hello (RFC 9846 section 2.3).
    EarlyData,
}

impl StepId {
    /// Full handshake with the usual offer.
    pub fn new(version: Version, reach: Reach) -> StepId {
        StepId {
            version: Some(version),
            lack: None,
            group: None,
            suite: None,
            signer: None,
            compressed: false,
            resumes: None,
            reach,
            page: String::new(),
            more_requests: 0,
            http2: None,
        }
    }

    pub(crate) fn refused(version: Version, lack: Lack) -> StepId {
        let group = (lack == Lack::Secret).then_some(Group::X25519);
        StepId { lack: Some(lack), group, ..StepId::new(version, Reach::Refused) }
    }

    /// `how`: with a ticket or by session ID.
    pub(crate) fn resumed(version: Version, how: Resumed, reach: Reach) -> StepId {
        StepId { resumes: Some(how), ..StepId::new(version, reach) }
    }

    /// A whole connection: all other steps are compared with it in time.
    pub fn whole(version: Version, is_handshake_only: bool) -> StepId {
        StepId::new(version, if is_handshake_only { Reach::Finished } else { Reach::Answered })
    }

    fn by(self, suite: Suite) -> StepId {
        StepId { suite: Some(suite), ..self }
    }

    /// One request of this page, and several on one connection.
    fn requests(version: Version, page: &str) -> [StepId; 2] {
        let one = StepId { page: page.to_owned(), ..StepId::new(version, Reach::Answered) };
        [one.clone(), StepId { more_requests: MORE_REQUESTS, ..one }]
    }

    /// Requests of HTTP/2 on a connection of their own: one, then several more one by one, and at once.
    pub(crate) fn over_http2() -> [StepId; 3] {
        let of = |more_requests, how| StepId {
            more_requests,
            http2: Some(how),
            ..StepId::new(Version::Tls13, Reach::Answered)
        };
        [of(0, Requests::OneByOne), of(MORE_REQUESTS, Requests::OneByOne), of(AT_ONCE, Requests::AtOnce)]
    }

    pub(crate) fn step(self) -> Step {
        Step { name: self.to_string(), id: self, is_choice: false }
    }

    fn choice(self) -> Step {
        Step { is_choice: true, ..self.step() }
    }

    /// The client's offer. `name`: the host of the URL; `usual`: by version, the suites offered instead of AES-128-GCM.
    pub fn settings(&self, name: &str, usual: &[Suite]) -> Settings {
        let version = self.version.unwrap_or(Version::Tls13);
        let of_version: Vec<Suite> = usual.iter().copied().filter(|suite| suite.version() == version).collect();
        let suites = match (self.suite, version) {
            (Some(suite), _) => vec![suite],
            (None, _) if !of_version.is_empty() => of_version,
            (None, Version::Tls13) => vec![Suite::Tls13Aes128Gcm],
            (None, Version::Tls12) => vec![Suite::EcdheEcdsaAes128Gcm, Suite::EcdheRsaAes128Gcm],
        };
        Settings {
            versions: vec![version],
            suites,
            groups: self.group.into_iter().collect(),
            server_name: Some(name.to_owned()),
            effort: Effort::Lean,
            lack: self.lack,
            signer: self.signer,
            compressed_certificate: self.compressed,
            tickets: self.resumes != Some(Resumed::Id),
            early_data: self.resumes == Some(Resumed::EarlyData),
            ..Settings::default()
        }
    }

    fn name(&self) -> String {
        match self.reach {
            Reach::Tcp => return "TCP".to_owned(),
            Reach::Opened => return "opening".to_owned(),
            _ => {}
        }
        let over = self.version.map_or("plain HTTP".to_owned(), |version| format!("TLS {version}"));
        let resumed = match (self.resumes, self.lack) {
            (None, _) => "",
            (_, Some(Lack::Agreement)) => "resumed without a key agreement, ",
            (Some(Resumed::Id), _) => "resumed by ID, ",
            (Some(Resumed::Ticket | Resumed::EarlyData), _) => "resumed, ",
        };
        let what = match (self.reach, self.lack) {
            (Reach::Refused, Some(Lack::Suites)) => "hello without a usable suite",
            (Reach::Refused, Some(Lack::Groups)) => "hello without a usable group",
            (Reach::Refused, Some(Lack::Signatures)) => "hello without a usable signature",
            (Reach::Refused, _) => "hello whose share gives no secret",
            (Reach::Flight, Some(Lack::Shares)) => "server's flight after a retry",
            (Reach::Tcp | Reach::Opened | Reach::Flight, _) => "server's flight",
            (Reach::Finished, _) => "handshake",
            (Reach::Answered, _) if self.resumes == Some(Resumed::EarlyData) => "early data",
            (Reach::Answered, _) if self.more_requests == 1 => "next request",
            (Reach::Answered, _) if self.more_requests > 1 => &format!("{} more requests", self.more_requests),
            (Reach::Answered, _) => "request",
        };
        let choices = [
            Some(self.page.clone()).filter(|page| !page.is_empty()),
            self.suite.map(|suite| suite.to_string()),
            self.group.filter(|_| self.lack != Some(Lack::Secret)).map(|group| group.to_string()),
            self.signer.map(|signer| format!("{signer} certificate")),
            self.compressed.then(|| "compressed certificate".to_owned()),
            self.http2.map(|how| if how == Requests::AtOnce { "HTTP/2, at once" } else { "HTTP/2" }.to_owned()),
        ];
        let choices: String = choices.into_iter().flatten().map(|choice| format!(", {choice}")).collect();
        format!("{over}, {resumed}{what}{choices}")
    }
}

impl fmt::Display for StepId {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&crate::label(self.name()))
    }
}

impl Step {
    /// Tells of the life of a connection of this version, not of another choice.
    pub fn is_of_life(&self, version: Version) -> bool {
        let is_needed = !self.is_choice || self.id.reach == Reach::Refused;
        is_needed && self.id.version.is_none_or(|of| of == version)
    }

    /// In the order of a connection's life, with what some protocols have before TLS: of this version, of TLS 1.2, of
    /// further pages, of plain HTTP.
    pub fn all(version: Version, pages: &[String], has_plain: bool) -> Vec<Step> {
        let mut all = [Reach::Tcp, Reach::Opened].map(|reach| StepId::new(version, reach).step()).to_vec();
        all.extend(if version == Version::Tls13 { of_today() } else { Vec::new() });
        all.extend(of_old());
        all.extend(pages.iter().flat_map(|page| of_page(version, page)));
        if has_plain {
            let pages = [""].into_iter().chain(pages.iter().map(String::as_str));
            let requests = pages.flat_map(|page| StepId::requests(version, page));
            all.extend(requests.map(|with_tls| StepId { version: None, ..with_tls }.step()));
        }
        all
    }

    /// A whole connection, one that resumes a session, and the next request on one.
    pub fn counted(version: Version, is_handshake_only: bool) -> Vec<Step> {
        let whole = StepId::whole(version, is_handshake_only);
        let resumed = StepId { resumes: Some(Resumed::Ticket), ..whole.clone() };
        let next = (!is_handshake_only).then(|| StepId { more_requests: 1, ..whole.clone() });
        [Some(whole), Some(resumed), next].into_iter().flatten().map(StepId::step).collect()
    }
}

fn of_today() -> Vec<Step> {
    let version = Version::Tls13;
    let new = |reach| StepId::new(version, reach);
    let flight = || new(Reach::Flight);
    let refused = |lack| StepId::refused(version, lack);
    let resumed = |reach| StepId::resumed(version, Resumed::Ticket, reach);
    let with = |group: Group| StepId { group: Some(group), ..flight() }.choice();
    let signed = |signer: Signer| StepId { signer: Some(signer), ..flight() }.choice();
    let [request, more_requests] = StepId::requests(version, "");
    [
        refused(Lack::Suites).step(),
        refused(Lack::Groups).choice(),
        refused(Lack::Signatures).step(),
        StepId { group: Some(Group::P384), ..refused(Lack::Signatures) }.choice(),
        refused(Lack::Secret).step(),
        flight().step(),
        StepId { lack: Some(Lack::Shares), ..flight() }.choice(),
        new(Reach::Finished).step(),
        request.clone().step(),
        more_requests.step(),
        resumed(Reach::Flight).step(),
        resumed(Reach::Finished).step(),
        resumed(Reach::Answered).step(),
        StepId { lack: Some(Lack::Agreement), ..resumed(Reach::Finished) }.choice(),
        StepId::resumed(version, Resumed::EarlyData, Reach::Answered).choice(),
        with(Group::P256),
        with(Group::P384),
        with(Group::X25519MlKem768),
        request.clone().by(Suite::Tls13Aes256Gcm).choice(),
        request.by(Suite::Tls13ChaCha20).choice(),
        signed(Signer::Rsa),
        signed(Signer::Ecdsa),
        StepId { compressed: true, ..flight() }.choice(),
    ]
    .into_iter()
    .chain(StepId::over_http2().map(StepId::choice))
    .collect()
}

fn of_old() -> Vec<Step> {
    let version = Version::Tls12;
    let resumed = |how| StepId::resumed(version, how, Reach::Finished);
    let [request, more_requests] = StepId::requests(version, "");
    vec![
        StepId::refused(version, Lack::Suites).step(),
        StepId::new(version, Reach::Flight).step(),
        StepId::new(version, Reach::Finished).step(),
        request.step(),
        more_requests.step(),
        resumed(Resumed::Ticket).step(),
        resumed(Resumed::Id).choice(),
    ]
}

/// A further page, and with TLS 1.3 the same by another cipher.
fn of_page(version: Version, page: &str) -> Vec<Step> {
    let [one, more] = StepId::requests(version, page);
    let ciphers = [Suite::Tls13Aes256Gcm, Suite::Tls13ChaCha20].into_iter().filter(|_| version == Version::Tls13);
    let mut steps: Vec<StepId> = ciphers.map(|suite| more.clone().by(suite)).collect();
    steps.extend([one, more]);
    steps.into_iter().map(StepId::choice).collect()
}
