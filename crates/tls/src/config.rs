//! Settings of the lean client, and their compiled form.

mod check;
mod hello;

use std::sync::{Arc, OnceLock};

use check::check;
use hello::{sni, template};
use tlsdyno_wire::hello::Template;

use crate::crypto::CryptoError;
use crate::crypto::hash::{Digest, digest};
use crate::crypto::kdf::{derive_secret, hkdf_extract};
use crate::crypto::sign::ClientCertificate;
use crate::crypto::verify::{Trust, Verifier};
use crate::named;
use crate::noop::{Stage, StageSet};
use crate::script::{Script, Scripts};
use crate::session::{Origin, Session};
use crate::suite::{Effort, Group, Hash, Suite, Version};

/// What the client offers and verifies. Plain data; [`Config::new`] checks and compiles it.
#[derive(Clone, Debug)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize), serde(deny_unknown_fields))]
pub struct Settings {
    /// Versions offered. Empty: those of the suites, or both.
    pub versions: Vec<Version>,
    /// Suites offered, best first. Empty: every suite of the versions.
    pub suites: Vec<Suite>,
    /// Groups offered, best first; the key share is for the first. Beside a hybrid's share goes one for the first curve
    /// of the list, as browsers have it, so that a server without the hybrid needs no HelloRetryRequest. Empty:
    /// [`Group::CURVES`], and with TLS 1.2 alone P-521.
    pub groups: Vec<Group>,
    /// Server name (SNI; also the name verified at honest effort). An IP address is verified but not sent (RFC 6066
    /// section 3). `None`: no SNI.
    pub server_name: Option<String>,
    /// ALPN protocols offered, for example `http/1.1`. Empty: no ALPN extension.
    pub alpn: Vec<String>,
    /// What the hello lacks, so that a server refuses it at that point, or asks for a second one; `None`: nothing.
    #[cfg_attr(feature = "serde", serde(default))]
    pub lack: Option<Lack>,
    /// The only kind of certificate that the client takes; `None`: every one.
    #[cfg_attr(feature = "serde", serde(default))]
    pub signer: Option<Signer>,
    /// TLS 1.3: take a certificate that the server compresses by zlib (RFC 8879).
    #[cfg_attr(feature = "serde", serde(default))]
    pub compressed_certificate: bool,
    /// How much of a real client's work is done.
    pub effort: Effort,
    /// The stages replaced by no-ops.
    pub stages_off: StageSet,
    /// Offer encrypt-then-MAC (RFC 7366).
    pub encrypt_then_mac: bool,
    /// Offer the extended master secret (RFC 7627).
    pub extended_master_secret: bool,
    /// Offer and keep TLS 1.2 tickets (RFC 5077).
    pub tickets: bool,
    /// DER certificates trusted as roots at honest effort.
    pub trust_anchors: Vec<Vec<u8>>,
    /// Take RSA keys below 2048 bits, as the papers have them: for servers of experiments, never beyond loopback or an
    /// isolated network.
    pub small_rsa_keys: bool,
    /// What a server gets that asks for a certificate; `None`: an empty one, and it decides. It has a private key, and
    /// so is left out wherever settings are written.
    #[cfg_attr(feature = "serde", serde(skip))]
    pub client_certificate: Option<Arc<ClientCertificate>>,
    /// The time at which certificates must be valid, in seconds since 1970 (the client has no clock).
    pub now_unix_s: u64,
    /// TLS 1.3: send data with the hello when a session allows it (early data, RFC 9846 section 2.3).
    pub early_data: bool,
    /// The universal session of a perfect cache: after each full handshake the receiver gets it instead of what the
    /// server sent. `None` with that stage off: sessions are kept as they come, and the first one becomes the
    /// universal session.
    pub universal: Option<Session>,
    /// The flights of skeleton handshakes.
    pub scripts: Option<Scripts>,
    /// Records sent under one TLS 1.3 key before it is updated (RFC 9846 section 5.5: at most 2^24.5 with AES-GCM).
    pub records_per_key_count: u64,
}

named! {
    /// What a hello lacks. In its place stands a value that is reserved for what nobody knows (GREASE, RFC 8701), so
    /// that the hello is well-formed.
    pub enum Lack: "what a hello lacks" {
        /// A cipher suite that a server could choose: it answers with an alert.
        Suites = "suites",
        /// A signature algorithm that a server could use: it answers with an alert, before it signs.
        Signatures = "signatures",
        /// A group that a server could use, and a share: it answers with an alert.
        Groups = "groups",
        /// A key share, while groups are there: a server of TLS 1.3 answers with a HelloRetryRequest.
        Shares = "shares",
        /// A key share of X25519 that gives a secret: it is zero, so that a server finds zero after its multiplication
        /// and answers with an alert (RFC 7748 section 6.1).
        Secret = "secret",
        /// A key agreement: sessions are resumed by their key alone (`psk_ke`, RFC 9846 section 4.2.9).
        Agreement = "agreement",
    }
}

named! {
    /// A kind of certificate, by the algorithm of its key.
    pub enum Signer: "kind of certificate" {
        /// RSA: PSS, and PKCS #1 of TLS 1.2.
        Rsa = "RSA",
        /// ECDSA with P-256 or P-384.
        Ecdsa = "ECDSA",
    }
}

impl Default for Settings {
    /// Everything offered, honest effort; trust anchors, name and time are for the caller to fill in.
    fn default() -> Settings {
        Settings {
            versions: Vec::new(),
            suites: Vec::new(),
            groups: Vec::new(),
            server_name: None,
            alpn: Vec::new(),
            lack: None,
            signer: None,
            compressed_certificate: false,
            effort: Effort::Honest,
            stages_off: StageSet::NONE,
            encrypt_then_mac: true,
            extended_master_secret: true,
            tickets: true,
            trust_anchors: Vec::new(),
            small_rsa_keys: false,
            client_certificate: None,
            now_unix_s: 0,
            early_data: false,
            universal: None,
            scripts: None,
            records_per_key_count: 1 << 24,
        }
    }
}

/// Settings that cannot work.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConfigError {
    /// A suite of a version that is not offered.
    #[error("suite {suite} belongs to TLS {version}, which is not offered; offer that version or leave the suite out")]
    SuiteWithoutVersion {
        /// The suite of a version that is not offered.
        suite: Suite,
        /// The version to which the suite belongs.
        version: Version,
    },
    /// A group of TLS 1.3 where that is not offered.
    #[error("group {0} belongs to TLS 1.3, which is not offered; offer that version or leave the group out")]
    GroupWithoutVersion(Group),
    /// A version without a suite.
    #[error("TLS {0} is offered without any of its suites; add one or leave the version out")]
    VersionWithoutSuite(Version),
    /// A version, suite or group that comes twice.
    #[error("{0} is listed twice")]
    Duplicate(String),
    /// A server name that is neither a DNS name nor an IP address.
    #[error("`{0}` is neither a DNS name nor an IP address")]
    BadServerName(String),
    /// An ALPN protocol name that is empty or too long, or too many of them.
    #[error("ALPN names have 1 to 255 bytes, 2048 together: `{0}`")]
    BadAlpn(String),
    /// Honest effort without anything to verify against.
    #[error("honest effort verifies certificates: it needs {0} (or choose the effort lean)")]
    NothingToVerify(&'static str),
    /// A skeleton handshake without its script.
    #[error("stage `{0}` is off, which needs the flights of a real handshake, and none was recorded")]
    NoScript(Stage),
    /// A script that cannot be played.
    #[error("the script of a {kind} handshake cannot be played: {fault}")]
    BadScript {
        /// `full` or `resumed`.
        kind: &'static str,
        /// The rule that the script breaks.
        fault: &'static str,
    },
    /// Stages of the shim that contradict each other.
    #[error("{0}")]
    Contradiction(&'static str),
    /// A minimal set-up negotiates nothing, and this many suites are offered.
    #[error("without any set-up no suite is negotiated: offer exactly one, not {0}")]
    SuiteNotPinned(usize),
    /// Trust anchors that cannot be read.
    #[error("the trusted certificates cannot be used: {0}")]
    BadTrustAnchors(CryptoError),
}

/// Compiled, immutable settings, shared by all connections of a configuration.
#[derive(Debug)]
pub struct Config {
    settings: Settings,
    template: Template,
    /// That of the settings, shared with the sessions.
    server_name: Option<Arc<str>>,
    /// The hash of every suite, where they all have the same: the transcript can then start with the first byte.
    only_hash: Option<Hash>,
    /// TLS 1.3 without PSK: Derive-Secret(early secret, "derived", "") for SHA-256 and SHA-384.
    derived_early: [Digest; 2],
    /// The real hash of nothing for SHA-256 and SHA-384; hashing inside the KDF is no part of stage `digest`
    /// (docs/NOOP.md).
    empty_hash: [Digest; 2],
    trust: Trust,
    /// The first chain that verified. Verifying is a function of chain, name, roots and time, all but the chain fixed
    /// here, so that the same bytes need not be verified again.
    verified: OnceLock<Vec<Vec<u8>>>,
    /// The key of the first signature that verified: servers have few, mostly one.
    verifier: OnceLock<Verifier>,
}

impl Config {
    /// Fills in what was left empty, checks that everything fits together, and prepares what all connections share.
    pub fn new(settings: Settings) -> Result<Config, ConfigError> {
        let mut settings = complete(settings);
        check(&settings)?;
        settings.universal = settings.universal.map(|session| session.without_end());
        let first_hash = settings.suites[0].hash();
        let only_hash = settings.suites.iter().all(|suite| suite.hash() == first_hash).then_some(first_hash);
        let off = settings.stages_off;
        let empty_hash = [Hash::Sha256, Hash::Sha384].map(|hash| digest(hash, StageSet::NONE, b""));
        let derived_early = [Hash::Sha256, Hash::Sha384].map(|hash| {
            let zero = Digest::zero(hash);
            let early = hkdf_extract(hash, off, zero.as_slice(), zero.as_slice());
            derive_secret(hash, off, early.as_slice(), b"derived", &empty_hash[hash as usize])
        });
        let trust = Trust::new(&settings.trust_anchors).map_err(ConfigError::BadTrustAnchors)?;
        Ok(Config {
            template: template(&settings),
            server_name: settings.server_name.as_deref().map(Arc::from),
            settings,
            only_hash,
            derived_early,
            empty_hash,
            trust,
            verified: OnceLock::new(),
            verifier: OnceLock::new(),
        })
    }

    /// The settings this was made from, with everything filled in that was left empty.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// Where the sessions come from that this configuration makes.
    pub(crate) fn origin(&self) -> Origin {
        Origin { server_name: self.server_name.clone(), verified: self.checks_signatures() }
    }

    /// Whether signatures are really verified: at honest effort, unless the stage is off.
    pub(crate) fn checks_signatures(&self) -> bool {
        self.settings.effort == Effort::Honest && !self.settings.stages_off.contains(Stage::Authentication)
    }

    /// Whether the hello carries a server name: an address is none.
    pub(crate) fn sends_server_name(&self) -> bool {
        sni(&self.settings).is_some()
    }

    /// The flights of a resumed skeleton.
    pub(crate) fn resumed_script(&self) -> Option<&Script> {
        self.settings.scripts.as_ref().and_then(|scripts| scripts.resumed.as_ref())
    }

    /// Whether a transcript keeps the messages: a client certificate's TLS 1.2 signature is over them.
    pub(crate) fn keeps_messages(&self) -> bool {
        self.settings.client_certificate.is_some() && self.offers(Version::Tls12)
    }

    /// Whether data travel in plain after the handshake.
    pub(crate) fn is_plain(&self) -> bool {
        self.settings.stages_off.contains(Stage::Marshalling)
    }

    /// Whether a resumed handshake goes without the client's second flight, and the request with its first.
    pub(crate) fn is_fast(&self) -> bool {
        let off = self.settings.stages_off;
        off.contains(Stage::RoundTrip) && !off.contains(Stage::Handshake)
    }

    pub(crate) fn template(&self) -> &Template {
        &self.template
    }

    pub(crate) fn only_hash(&self) -> Option<Hash> {
        self.only_hash
    }

    pub(crate) fn derived_early(&self, hash: Hash) -> &Digest {
        &self.derived_early[hash as usize]
    }

    pub(crate) fn empty_hash(&self, hash: Hash) -> &Digest {
        &self.empty_hash[hash as usize]
    }

    /// Verifies a certificate chain, end entity first, for `name`.
    pub(crate) fn verify_chain(&self, chain_der: &[&[u8]], name: &str) -> Result<(), CryptoError> {
        if self.verified.get().is_some_and(|verified| verified == chain_der) {
            return Ok(());
        }
        self.trust.verify(chain_der, name, self.settings.now_unix_s)?;
        self.verified.get_or_init(|| chain_der.iter().map(|der| der.to_vec()).collect());
        Ok(())
    }

    /// The key of this certificate, if it is the one that is kept ready.
    pub(crate) fn verifier(&self, certificate: &[u8], scheme: u16) -> Option<&Verifier> {
        self.verifier.get().filter(|verifier| verifier.is_of(certificate, scheme))
    }

    /// Keeps a key whose signature verified, if it is the first.
    pub(crate) fn keep_verifier(&self, verifier: Verifier) {
        self.verifier.get_or_init(|| verifier);
    }

    pub(crate) fn offers(&self, version: Version) -> bool {
        self.settings.versions.contains(&version)
    }

    /// The offered suite with this code point.
    pub(crate) fn suite(&self, code: u16) -> Option<Suite> {
        self.settings.suites.iter().copied().find(|suite| suite.code() == code)
    }

    /// The curve that gets a share too, beside the one for the first group.
    pub(crate) fn second_share(&self) -> Option<Group> {
        let groups = &self.settings.groups;
        groups[0].is_hybrid().then(|| groups.iter().copied().find(|group| !group.is_hybrid())).flatten()
    }

    /// The offered group with this code point.
    pub(crate) fn group(&self, code: u16) -> Option<Group> {
        self.settings.groups.iter().copied().find(|group| group.code() == code)
    }
}

fn complete(mut settings: Settings) -> Settings {
    if settings.versions.is_empty() {
        settings.versions = [Version::Tls13, Version::Tls12]
            .into_iter()
            .filter(|version| {
                settings.suites.is_empty() || settings.suites.iter().any(|suite| suite.version() == *version)
            })
            .collect();
    }
    if settings.suites.is_empty() {
        settings.suites =
            Suite::ALL.iter().copied().filter(|suite| settings.versions.contains(&suite.version())).collect();
    }
    if settings.groups.is_empty() {
        settings.groups = Group::CURVES.to_vec();
        // The curves of ECDSA certificates are told by it, too (RFC 8422 section 5.1).
        settings.groups.extend((settings.versions == [Version::Tls12]).then_some(Group::P521));
    }
    settings
}

#[cfg(test)]
mod tests {
    use tlsdyno_wire::handshake::Body;
    use tlsdyno_wire::hello::ClientHello;

    use super::*;

    fn lean() -> Settings {
        Settings { effort: Effort::Lean, ..Settings::default() }
    }

    #[test]
    fn what_is_left_empty_is_filled_in() {
        let everything = Config::new(lean()).unwrap();
        assert_eq!(everything.settings().versions, [Version::Tls13, Version::Tls12]);
        assert_eq!(everything.settings().suites, Suite::ALL);
        assert_eq!(everything.settings().groups, Group::CURVES);
        assert_eq!(everything.only_hash(), None);

        let by_suite = Config::new(Settings { suites: vec![Suite::RsaAes128Sha], ..lean() }).unwrap();
        assert_eq!(by_suite.settings().versions, [Version::Tls12]);
        assert_eq!(by_suite.only_hash(), Some(Hash::Sha256));

        let by_version = Config::new(Settings { versions: vec![Version::Tls13], ..lean() }).unwrap();
        assert!(by_version.settings().suites.iter().all(|suite| suite.version() == Version::Tls13));
        assert_eq!(by_version.settings().suites.len(), 3);
    }

    #[test]
    fn settings_that_cannot_work_are_refused_with_the_remedy() {
        let refused = |settings| Config::new(settings).unwrap_err().to_string();
        let (tls12, tls13) = (vec![Version::Tls12], vec![Version::Tls13]);
        assert_eq!(
            refused(Settings { versions: tls13, suites: vec![Suite::RsaAes128Sha], ..lean() }),
            "suite AES128-SHA belongs to TLS 1.2, which is not offered; offer that version or leave the suite out"
        );
        let both = [tls12, vec![Version::Tls13]].concat();
        assert_eq!(
            refused(Settings { versions: both, suites: vec![Suite::RsaAes128Sha], ..lean() }),
            "TLS 1.3 is offered without any of its suites; add one or leave the version out"
        );
        assert_eq!(refused(Settings { groups: vec![Group::P256; 2], ..lean() }), "P-256 is listed twice");
        assert_eq!(
            refused(Settings { versions: vec![Version::Tls12], groups: Group::ALL.to_vec(), ..lean() }),
            "group X25519MLKEM768 belongs to TLS 1.3, which is not offered; offer that version or leave the group out"
        );
        assert!(refused(Settings { server_name: Some("a b".to_owned()), ..lean() }).starts_with("`a b` is neither"));
        assert!(refused(Settings { alpn: vec![String::new()], ..lean() }).starts_with("ALPN names have 1 to 255"));
        assert!(refused(Settings { alpn: vec!["x".repeat(255); 9], ..lean() }).starts_with("ALPN names have 1 to 255"));
        assert!(refused(Settings::default()).contains("it needs trusted certificates"));
    }

    #[test]
    fn addresses_are_not_sent_as_names() {
        for (name, sent) in [("localhost", true), ("127.0.0.1", false), ("::1", false)] {
            let config = Config::new(Settings { server_name: Some(name.to_owned()), ..lean() }).unwrap();
            let mut out = Vec::new();
            let start = config.template().write(&mut out, 0x0301, &[0; 32], &[]).finish();
            let hello = ClientHello::decode(&out[start + 4..]).unwrap();
            assert_eq!(hello.server_name().unwrap(), sent.then_some(name.as_bytes()));
        }
    }

    #[test]
    fn a_hello_lacks_one_thing_and_is_well_formed() {
        let extension = |lack, kind| {
            let config = Config::new(Settings { lack, ..lean() }).unwrap();
            let mut out = Vec::new();
            let start = config.template().write(&mut out, 0x0301, &[0; 32], &[]).finish();
            ClientHello::decode(&out[start + 4..]).unwrap().extensions.get(kind).unwrap().to_vec()
        };
        let [groups, schemes] = [tlsdyno_wire::hello::SUPPORTED_GROUPS, tlsdyno_wire::hello::SIGNATURE_ALGORITHMS];
        let nothing = [0, 2, 0x0a, 0x0a];
        for lack in Lack::ALL.iter().copied().map(Some).chain([None]) {
            assert_eq!(extension(lack, groups) == nothing, lack == Some(Lack::Groups), "{lack:?}");
            assert_eq!(extension(lack, schemes) == nothing, lack == Some(Lack::Signatures), "{lack:?}");
        }
    }

    #[test]
    fn only_the_chain_that_verified_is_taken_unseen() {
        let certificate = |name: &str| {
            let key = rcgen::KeyPair::generate_for(&rcgen::PKCS_ECDSA_P256_SHA256).unwrap();
            let params = rcgen::CertificateParams::new(vec![name.to_owned()]).unwrap();
            params.self_signed(&key).unwrap().der().to_vec()
        };
        let (trusted, stranger) = (certificate("localhost"), certificate("localhost"));
        let settings = Settings {
            server_name: Some("localhost".to_owned()),
            trust_anchors: vec![trusted.clone()],
            now_unix_s: 1_800_000_000,
            ..Settings::default()
        };
        let config = Config::new(settings).unwrap();
        for _ in 0..2 {
            assert!(config.verify_chain(&[&stranger], "localhost").is_err());
            assert_eq!(config.verify_chain(&[&trusted], "localhost"), Ok(()));
            assert!(config.verify_chain(&[], "localhost").is_err());
        }
    }
}
