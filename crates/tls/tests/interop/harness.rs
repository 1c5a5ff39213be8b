//! One client and one server talking in memory.

use std::sync::{Arc, LazyLock};

use rcgen::{BasicConstraints, CertificateParams, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair};
use tlsdyno_tls::{
    Client, Config, Effort, Entropy, Error, Group, Handshake, Receiver, Session, Settings, Suite, Version,
};

pub const NAME: &str = "server.example";
const NOW_UNIX_S: u64 = 1_800_000_000;

/// The key of a server's certificate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyKind {
    Rsa2048,
    P256,
    P384,
}

/// A server's key and the chain below the authority that clients trust.
pub struct Identity {
    pub key_pkcs8: Vec<u8>,
    pub certificate_der: Vec<u8>,
}

struct Identities {
    authority_der: Vec<u8>,
    servers: [Identity; 3],
}

static IDENTITIES: LazyLock<Identities> = LazyLock::new(|| {
    let mut params = CertificateParams::new(Vec::new()).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.distinguished_name.push(rcgen::DnType::CommonName, "authority of the tests");
    let key = KeyPair::generate_for(&rcgen::PKCS_ECDSA_P256_SHA256).unwrap();
    let authority_der = params.self_signed(&key).unwrap().der().to_vec();
    let issuer = Issuer::new(params, key);
    let server = |algorithm| {
        let mut params = CertificateParams::new(vec![NAME.to_owned()]).unwrap();
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        let key = KeyPair::generate_for(algorithm).unwrap();
        let certificate = params.signed_by(&key, &issuer).unwrap();
        Identity { key_pkcs8: key.serialize_der(), certificate_der: certificate.der().to_vec() }
    };
    Identities {
        authority_der,
        servers: [
            server(&rcgen::PKCS_RSA_SHA256),
            server(&rcgen::PKCS_ECDSA_P256_SHA256),
            server(&rcgen::PKCS_ECDSA_P384_SHA384),
        ],
    }
});

pub fn identity(kind: KeyKind) -> &'static Identity {
    &IDENTITIES.servers[kind as usize]
}

/// Honest settings that trust the test's authority; everything else is offered.
pub fn settings() -> Settings {
    Settings {
        server_name: Some(NAME.to_owned()),
        trust_anchors: vec![IDENTITIES.authority_der.clone()],
        now_unix_s: NOW_UNIX_S,
        ..Settings::default()
    }
}

pub fn config(settings: Settings) -> Arc<Config> {
    Arc::new(Config::new(settings).unwrap())
}

/// A client of one suite, group and effort.
pub fn narrow(suite: Suite, group: Group, effort: Effort) -> Settings {
    Settings { versions: vec![suite.version()], suites: vec![suite], groups: vec![group], effort, ..settings() }
}

/// The server's end, as the conversation sees it.
pub trait Server {
    /// Takes what the client sent and does what it can.
    fn receive(&mut self, bytes: &[u8]);
    /// What it wants to send.
    fn take_output(&mut self) -> Vec<u8>;
    /// Sends close_notify.
    fn close(&mut self);
    /// What it thinks of the connection.
    fn view(&self) -> View;
}

/// A server's view of its connection.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct View {
    pub connected: bool,
    pub resumed: bool,
    /// The fatal alert that the client sent.
    pub alert: Option<u8>,
    /// Any other reason why it gave up.
    pub failure: Option<String>,
    pub peer_closed: bool,
}

/// What the servers do with data: each request is four bytes, the big-endian length of the answer.
pub fn answer(requests: &mut Vec<u8>) -> Vec<u8> {
    let mut answers = Vec::new();
    while let Some((length, _)) = requests.split_first_chunk::<4>() {
        answers.extend(pattern(u32::from_be_bytes(*length) as usize));
        requests.drain(..4);
    }
    answers
}

pub fn pattern(length: usize) -> Vec<u8> {
    (0..length).map(|index| (index * 7 % 251) as u8).collect()
}

/// Bytes that differ, and are the same in every run.
struct Counter(u64);

impl Entropy for Counter {
    fn fill(&mut self, bytes: &mut [u8]) {
        for byte in bytes {
            self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            *byte = (self.0 >> 56) as u8;
        }
    }
}

/// What the client handed out.
#[derive(Default)]
pub struct Taken {
    pub data: Vec<u8>,
    pub sessions: Vec<Session>,
}

impl Receiver for Taken {
    fn plaintext(&mut self, bytes: &[u8]) {
        self.data.extend_from_slice(bytes);
    }

    fn session(&mut self, session: Session) {
        self.sessions.push(session);
    }
}

/// The client's end.
pub struct Caller {
    pub client: Client,
    pub taken: Taken,
    /// Sent and not yet delivered.
    pub output: Vec<u8>,
    entropy: Counter,
    pub now_ms: u64,
}

impl Caller {
    pub fn new(config: &Arc<Config>, session: Option<Session>) -> Caller {
        Caller::at(config, session, 1_000)
    }

    /// A caller that begins at this time.
    pub fn at(config: &Arc<Config>, session: Option<Session>, now_ms: u64) -> Caller {
        let mut entropy = Counter(config as *const _ as u64);
        let mut output = Vec::new();
        let client = Client::new(config, session, &mut entropy, now_ms, &mut output);
        Caller { client, taken: Taken::default(), output, entropy, now_ms }
    }

    pub fn receive(&mut self, bytes: &mut [u8]) -> Result<(), Error> {
        let Caller { client, taken, output, entropy, now_ms } = self;
        client.receive(bytes, *now_ms, entropy, output, taken)
    }

    pub fn request(&mut self, answer_bytes: usize) {
        let request = (answer_bytes as u32).to_be_bytes();
        self.client.send(&request, &mut self.output).unwrap();
    }

    pub fn handshake(&self) -> &Handshake {
        self.client.handshake().expect("the handshake is complete")
    }
}

/// What happens to the server's bytes on their way. Gets what the server sent since the last time, and gives what
/// arrives, in pieces.
pub type Way<'a> = dyn FnMut(Vec<u8>) -> Vec<Vec<u8>> + 'a;

/// Lets both ends talk until neither has more to say, or the client refuses.
pub fn talk(caller: &mut Caller, server: &mut dyn Server) -> Result<(), Error> {
    talk_along(caller, server, &mut |bytes| vec![bytes])
}

pub fn talk_along(caller: &mut Caller, server: &mut dyn Server, way: &mut Way<'_>) -> Result<(), Error> {
    loop {
        server.receive(&std::mem::take(&mut caller.output));
        let sent = server.take_output();
        if sent.is_empty() && caller.output.is_empty() {
            return Ok(());
        }
        for mut piece in way(sent) {
            if let Err(error) = caller.receive(&mut piece) {
                // The alert still reaches the server.
                server.receive(&std::mem::take(&mut caller.output));
                return Err(error);
            }
        }
    }
}

/// A whole connection: handshake, two requests, orderly close by the client. Checks what must hold for any of them.
pub fn connect(config: &Arc<Config>, session: Option<Session>, server: &mut dyn Server) -> Caller {
    let mut caller = Caller::new(config, session);
    talk(&mut caller, server).unwrap_or_else(|error| panic!("{error}; server: {:?}", server.view()));
    let view = server.view();
    assert!(caller.client.is_connected() && view.connected, "{view:?}");
    assert_eq!(caller.handshake().resumed.is_some(), view.resumed);
    for length in [0, 1, 100, 40_000] {
        caller.taken.data.clear();
        caller.request(length);
        talk(&mut caller, server).unwrap();
        assert!(caller.taken.data == pattern(length), "an answer of {length} bytes");
    }
    caller.client.close(&mut caller.output);
    server.receive(&std::mem::take(&mut caller.output));
    assert!(server.view().peer_closed, "{:?}", server.view());
    caller
}

/// The keys a server for this suite can have.
pub fn keys_for(suite: Suite) -> &'static [KeyKind] {
    use tlsdyno_tls::suite::KeyExchange;
    match suite.key_exchange() {
        KeyExchange::Tls13 => &[KeyKind::Rsa2048, KeyKind::P256, KeyKind::P384],
        KeyExchange::EcdheEcdsa => &[KeyKind::P256, KeyKind::P384],
        KeyExchange::EcdheRsa | KeyExchange::Rsa => &[KeyKind::Rsa2048],
    }
}

/// The groups that this suite's version has.
pub fn groups_for(suite: Suite) -> &'static [Group] {
    if is_tls13(suite) { &Group::ALL } else { &Group::CURVES }
}

pub const EFFORTS: [Effort; 3] = [Effort::Honest, Effort::Lean, Effort::Floor];

pub fn is_tls13(suite: Suite) -> bool {
    suite.version() == Version::Tls13
}
