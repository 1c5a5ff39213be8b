//! What the client does on a connection: which hello it sends, and how far it goes.

use serde::{Deserialize, Serialize};
use tlsdyno_base::exchange::Reach;
use tlsdyno_tls::{Effort, Group, Lack, Settings, Signer, Suite, Version};

/// The server's flight with a certificate that it has compressed.
pub const COMPRESSED: &str = "TLS 1.3, server's flight, compressed certificate";
/// Requests on a kept connection after its first one.
pub const MORE_REQUESTS: u32 = 16;

/// A connection as the client makes it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Step {
    /// What it is called.
    pub name: String,
    /// The version that is offered; `None`: no TLS.
    pub version: Option<Version>,
    /// What the hello lacks.
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
    /// What is resumed; `None`: a full handshake.
    pub resumes: Option<Resumed>,
    /// How far it goes.
    pub reach: Reach,
    /// The path that is requested; empty: that of the URL.
    pub page: String,
    /// Requests on the same connection after the first.
    pub more_requests: u32,
    /// It tells what another choice would cost: measured in every third turn.
    pub is_choice: bool,
}

/// How a session is resumed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Resumed {
    /// With a ticket, as far as the server has tickets.
    Ticket,
    /// By the number that the server knows it by (TLS 1.2 without tickets).
    Id,
    /// With a ticket, and the request goes with the hello (RFC 9846 section 2.3).
    EarlyData,
}

impl Step {
    fn new(name: impl Into<String>, version: Version, reach: Reach) -> Step {
        Step {
            name: name.into(),
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
            is_choice: false,
        }
    }

    fn choice(self) -> Step {
        Step { is_choice: true, ..self }
    }

    /// The whole of a connection: what all other steps are compared with in time.
    pub fn whole(version: Version, is_handshake_only: bool) -> Step {
        match is_handshake_only {
            true => Step::new(format!("TLS {version}, handshake"), version, Reach::Finished),
            false => requests(version, "").into_iter().next().expect("one request comes first"),
        }
    }

    /// All of them, in the order of a connection's life: of this version, of TLS 1.2, of further pages, of plain HTTP.
    pub fn all(version: Version, pages: &[String], has_plain: bool) -> Vec<Step> {
        let mut all = vec![Step::new("TCP", version, Reach::Tcp)];
        all.extend(if version == Version::Tls13 { of_today() } else { Vec::new() });
        all.extend(of_old());
        all.extend(pages.iter().flat_map(|page| of_page(version, page)));
        if has_plain {
            let pages = [""].into_iter().chain(pages.iter().map(String::as_str));
            all.extend(pages.flat_map(|page| requests(version, page)).map(Step::without_tls));
        }
        all
    }

    fn without_tls(self) -> Step {
        let name = self.name.split_once(", ").map_or("", |(_, name)| name);
        Step { name: format!("plain HTTP, {name}"), version: None, ..self }
    }

    /// What the client offers for it. `name`: the host of the URL; `usual`: the suites that it offers of a version in
    /// place of AES-128-GCM, where there are any of it.
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
            groups: self.group.map_or_else(|| Group::CURVES.to_vec(), |group| vec![group]),
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
}

/// One request of a page, and several on the same connection.
fn requests(version: Version, page: &str) -> [Step; 2] {
    let of = if page.is_empty() { String::new() } else { format!(", {page}") };
    let new = |name: String| Step {
        page: page.to_owned(),
        ..Step::new(format!("TLS {version}, {name}{of}"), version, Reach::Answered)
    };
    let more = new(format!("{MORE_REQUESTS} more requests"));
    [new("request".to_owned()), Step { more_requests: MORE_REQUESTS, ..more }]
}

fn of_today() -> Vec<Step> {
    let new = |name: &str, reach| Step::new(format!("TLS 1.3, {name}"), Version::Tls13, reach);
    let resumed = |name: &str, reach| Step { resumes: Some(Resumed::Ticket), ..new(name, reach) };
    let refused = |name: &str, lack| Step { lack: Some(lack), ..new(name, Reach::Refused) };
    let with =
        |group: Group| Step { group: Some(group), ..new(&format!("server's flight, {group}"), Reach::Flight) }.choice();
    let by = |suite: Suite| Step { suite: Some(suite), ..new(&format!("request, {suite}"), Reach::Answered) }.choice();
    let signed = |signer: Signer| {
        Step { signer: Some(signer), ..new(&format!("server's flight, {signer} certificate"), Reach::Flight) }.choice()
    };
    let compressed = Step { compressed: true, ..Step::new(COMPRESSED, Version::Tls13, Reach::Flight) }.choice();
    let by_key = "resumed without a key agreement, handshake";
    let by_key = Step { lack: Some(Lack::Agreement), ..resumed(by_key, Reach::Finished) }.choice();
    let early = Step { resumes: Some(Resumed::EarlyData), ..new("resumed, early data", Reach::Answered) };
    let unsigned = refused("hello without a usable signature", Lack::Signatures);
    let unsigned_p384 =
        Step { group: Some(Group::P384), ..refused("hello without a usable signature, P-384", Lack::Signatures) };
    let secretless = Step { group: Some(Group::X25519), ..refused("hello whose share gives no secret", Lack::Secret) };
    let [request, more_requests] = requests(Version::Tls13, "");
    vec![
        refused("hello without a usable suite", Lack::Suites),
        refused("hello without a usable group", Lack::Groups).choice(),
        unsigned,
        unsigned_p384.choice(),
        secretless,
        new("server's flight", Reach::Flight),
        Step { lack: Some(Lack::Shares), ..new("server's flight after a retry", Reach::Flight) }.choice(),
        new("handshake", Reach::Finished),
        request,
        more_requests,
        resumed("resumed, server's flight", Reach::Flight),
        resumed("resumed, handshake", Reach::Finished),
        resumed("resumed, request", Reach::Answered),
        by_key,
        early.choice(),
        with(Group::P256),
        with(Group::P384),
        with(Group::X25519MlKem768),
        by(Suite::Tls13Aes256Gcm),
        by(Suite::Tls13ChaCha20),
        signed(Signer::Rsa),
        signed(Signer::Ecdsa),
        compressed,
    ]
}

fn of_old() -> Vec<Step> {
    let new = |name: &str, reach| Step::new(format!("TLS 1.2, {name}"), Version::Tls12, reach);
    let resumed = |name: &str, how| Step { resumes: Some(how), ..new(name, Reach::Finished) };
    let [request, more_requests] = requests(Version::Tls12, "");
    vec![
        Step { lack: Some(Lack::Suites), ..new("hello without a usable suite", Reach::Refused) },
        new("server's flight", Reach::Flight),
        new("handshake", Reach::Finished),
        request,
        more_requests,
        resumed("resumed, handshake", Resumed::Ticket),
        resumed("resumed by ID, handshake", Resumed::Id).choice(),
    ]
}

/// A further page, and with TLS 1.3 what it costs by another cipher.
fn of_page(version: Version, page: &str) -> Vec<Step> {
    let [one, more] = requests(version, page).map(Step::choice);
    let by = |suite: Suite| Step { name: format!("{}, {suite}", more.name), suite: Some(suite), ..more.clone() };
    let ciphers = [Suite::Tls13Aes256Gcm, Suite::Tls13ChaCha20].into_iter().filter(|_| version == Version::Tls13);
    let mut steps: Vec<Step> = ciphers.map(by).collect();
    steps.extend([one, more]);
    steps
}
