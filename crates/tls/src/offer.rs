//! From the ClientHello to the ServerHello: what is offered, and which version's handshake goes on. HelloRetryRequest
//! is answered here.

use std::sync::Arc;

use tlsdyno_wire::codec::{put_u16, put_vector16};
use tlsdyno_wire::handshake::{self, Body, Message};
use tlsdyno_wire::hello::{self, ServerHello};
use tlsdyno_wire::limits;

use crate::client::{Context, EarlyData, Entropy, State, unexpected};
use crate::config::{Config, Lack};
use crate::crypto::exchange::KeyShare;
use crate::crypto::hash::{Digest, Transcript, digest};
use crate::crypto::kdf::{binder_mac, derive_secret, hkdf_extract};
use crate::crypto::protect::Sealer;
use crate::error::{Alert, Error};
use crate::session::{Session, SessionKind};
use crate::suite::{Hash, Suite, Version};
use crate::{tls12, tls13};

/// Everything that the ServerHello is checked against.
pub(crate) struct Offer {
    pub random: [u8; 32],
    pub session_id: SessionId,
    /// TLS 1.3 only.
    share: Option<KeyShare>,
    /// That of a curve alone, beside a hybrid's.
    second_share: Option<KeyShare>,
    /// The session offered; not one that this configuration cannot resume.
    pub session: Option<Session>,
    /// The first hello says that early data follow it.
    early_data: bool,
    transcript: Opening,
    /// The suite of the HelloRetryRequest, once one came.
    retry: Option<Suite>,
}

#[derive(Clone, Copy)]
pub(crate) struct SessionId {
    bytes: [u8; 32],
    length: u8,
}

impl SessionId {
    pub const EMPTY: SessionId = SessionId { bytes: [0; 32], length: 0 };

    pub fn copy_of(id: &[u8]) -> SessionId {
        let mut copy = SessionId { bytes: [0; 32], length: id.len() as u8 };
        copy.bytes[..id.len()].copy_from_slice(id);
        copy
    }

    pub fn as_slice(&self) -> &[u8] {
        &self.bytes[..usize::from(self.length)]
    }
}

/// The transcript before the suite, and with it the hash, is known.
// Its one place is in an offer, which is in a box itself.
#[expect(clippy::large_enum_variant)]
enum Opening {
    /// Every suite offered has the same hash, or the server chose one in a HelloRetryRequest.
    Hashed(Transcript),
    Held(Vec<u8>),
}

impl Offer {
    pub fn new(
        config: &Arc<Config>,
        session: Option<Session>,
        entropy: &mut dyn Entropy,
        now_ms: u64,
        out: &mut Vec<u8>,
    ) -> Offer {
        let settings = config.settings();
        let mut random = [0; 32];
        entropy.fill(&mut random);
        let session = session.filter(|session| can_resume(config, session, now_ms));
        let generate = |group| KeyShare::generate(group, settings.effort, settings.stages_off);
        let lacks_share = matches!(settings.lack, Some(Lack::Shares | Lack::Groups | Lack::Agreement));
        let has_share = config.offers(Version::Tls13) && !lacks_share;
        let share = has_share.then(|| generate(settings.groups[0]));
        let second_share = share
            .as_ref()
            .zip(config.second_share())
            .map(|(first, group)| if group == first.group().curve() { first.of_curve() } else { generate(group) });
        let takes_early = |session: &Session| session.psk().is_some() && session.max_early_data() > 0;
        let early_data = settings.early_data && session.as_ref().is_some_and(takes_early);
        let mut offer = Offer {
            random,
            session_id: offered_id(session.as_ref(), entropy),
            share,
            second_share,
            session,
            early_data,
            transcript: Opening::Held(Vec::new()),
            retry: None,
        };
        let message = offer.write(config, now_ms, None, out);
        offer.transcript = match config.only_hash() {
            Some(hash) => {
                let mut transcript = Transcript::new(hash, settings.stages_off).keeping(config.keeps_messages());
                transcript.update(&out[message..]);
                Opening::Hashed(transcript)
            }
            None => Opening::Held(out[message..].to_vec()),
        };
        offer
    }

    /// The shares sent, none without TLS 1.3.
    pub fn shares(&self) -> impl Iterator<Item = &KeyShare> {
        self.share.iter().chain(&self.second_share)
    }

    pub fn offered(&self) -> Option<SessionKind> {
        self.session.as_ref().map(Session::kind)
    }

    /// How many bytes of early data may follow the hello, if any.
    pub fn early_data(&self) -> Option<usize> {
        self.session.as_ref().filter(|_| self.early_data).map(|session| session.max_early_data() as usize)
    }

    /// The keys of early data (RFC 9846 section 7.1). They are bound to the hello, which is complete.
    pub fn early_sealer(&self, config: &Config) -> Option<Sealer> {
        let session = self.session.as_ref()?;
        let (suite, off) = (session.suite(), config.settings().stages_off);
        let at_hello = match &self.transcript {
            Opening::Hashed(transcript) => transcript.current(),
            Opening::Held(hello) => digest(suite.hash(), off, hello),
        };
        let early = early_secret(suite.hash(), config, session.psk()?);
        let secret = derive_secret(suite.hash(), off, early.as_slice(), b"c e traffic", &at_hello);
        Some(Sealer::tls13(suite, off, secret.as_slice()))
    }

    /// Appends the ClientHello; returns where its handshake message starts. `retry`: the transcript so far and the
    /// server's cookie.
    fn write(
        &self,
        config: &Config,
        now_ms: u64,
        retry: Option<(&Transcript, Option<&[u8]>)>,
        out: &mut Vec<u8>,
    ) -> usize {
        let record_version = if retry.is_some() { 0x0303 } else { 0x0301 };
        let mut writer = config.template().write(out, record_version, &self.random, self.session_id.as_slice());
        if config.offers(Version::Tls13) {
            writer.extension(hello::KEY_SHARE, |out| {
                put_vector16(out, |out| {
                    for share in self.shares() {
                        put_u16(out, share.group().code());
                        put_vector16(out, |out| match config.settings().lack {
                            Some(Lack::Secret) => out.resize(out.len() + share.group().client_share_bytes(), 0),
                            _ => share.put(out),
                        });
                    }
                });
            });
        }
        if config.offers(Version::Tls12) && config.settings().tickets {
            let ticket = self.session.as_ref().filter(|session| session.kind() == SessionKind::Tls12Ticket);
            writer.extension(hello::SESSION_TICKET, |out| out.extend_from_slice(ticket.map_or(&[], Session::identity)));
        }
        if let Some((_, Some(cookie))) = retry {
            writer.extension(hello::COOKIE, |out| put_vector16(out, |out| out.extend_from_slice(cookie)));
        }
        let Some((session, psk)) = self.session.as_ref().and_then(|session| Some((session, session.psk()?))) else {
            return writer.finish();
        };
        let hash = session.suite().hash();
        if self.early_data && retry.is_none() {
            writer.extension(hello::EARLY_DATA, |_| ());
        }
        writer.pre_shared_key(session.identity(), session.obfuscated_age(now_ms), hash.digest_bytes() as u8);
        let message = writer.finish();
        put_binder(config, hash, psk, retry.map(|(transcript, _)| transcript), message, out);
        message
    }

    pub fn handle(mut self: Box<Self>, message: &Message<'_>, context: &mut Context<'_>) -> Result<State, Error> {
        if message.kind() != handshake::SERVER_HELLO {
            return Err(unexpected(message, "ServerHello"));
        }
        let hello = ServerHello::decode(message.body())?;
        if hello.compression != 0 {
            return Err(Error::illegal("the server chose a compression method that was not offered"));
        }
        if hello.is_retry() {
            return self.answer_retry(&hello, message, context);
        }
        let version = self.chosen_version(&hello, context.config)?;
        let suite = context.config.suite(hello.suite).filter(|suite| suite.version() == version);
        let suite = suite.ok_or_else(|| Error::illegal("the server chose a suite that was not offered"))?;
        if self.retry.is_some_and(|chosen| chosen != suite) {
            return Err(Error::illegal("ServerHello and HelloRetryRequest name different suites"));
        }
        context.summary.version = version;
        context.summary.suite = suite;
        let mut transcript = self.take_transcript(suite.hash(), context.config);
        transcript.update(message.whole());
        match version {
            Version::Tls13 => tls13::Handshaking::start(*self, &hello, suite, transcript, context),
            Version::Tls12 => tls12::Handshaking::start(*self, &hello, suite, transcript, context),
        }
    }

    fn chosen_version(&self, hello: &ServerHello<'_>, config: &Config) -> Result<Version, Error> {
        let version = match hello.chosen_version()? {
            _ if hello.version != hello::TLS12 => None,
            hello::TLS13 if hello.extensions.get(hello::SUPPORTED_VERSIONS).is_some() => Some(Version::Tls13),
            hello::TLS12 if hello.extensions.get(hello::SUPPORTED_VERSIONS).is_none() => Some(Version::Tls12),
            _ => None,
        };
        let Some(version) = version.filter(|version| config.offers(*version)) else {
            let what = "it chose a TLS version that was not offered";
            return Err(Error::PeerIncompatible { what, alert: Alert::PROTOCOL_VERSION });
        };
        if version == Version::Tls12 && self.retry.is_some() {
            return Err(Error::illegal("TLS 1.2 after a HelloRetryRequest"));
        }
        if version == Version::Tls12 && self.early_data {
            // RFC 9846 section 4.2.10.
            return Err(Error::illegal("the server chose TLS 1.2 although the client sent early data"));
        }
        // RFC 9846 section 4.1.3: the mark of a TLS 1.3 server that was made to choose TLS 1.2.
        let mark = &hello.random[24..];
        if version == Version::Tls12
            && config.offers(Version::Tls13)
            && (mark == hello::DOWNGRADE_TLS12 || mark == hello::DOWNGRADE_TLS11)
        {
            return Err(Error::illegal("the server supports TLS 1.3 but chose TLS 1.2 (downgrade mark)"));
        }
        Ok(version)
    }

    fn take_transcript(&mut self, hash: Hash, config: &Config) -> Transcript {
        match std::mem::replace(&mut self.transcript, Opening::Held(Vec::new())) {
            Opening::Hashed(transcript) => transcript,
            Opening::Held(hello) => {
                let mut transcript =
                    Transcript::new(hash, config.settings().stages_off).keeping(config.keeps_messages());
                transcript.update(&hello);
                transcript
            }
        }
    }

    /// RFC 9846 section 4.1.4.
    fn answer_retry(
        mut self: Box<Self>,
        hello: &ServerHello<'_>,
        message: &Message<'_>,
        context: &mut Context<'_>,
    ) -> Result<State, Error> {
        if self.retry.is_some() {
            return Err(Error::UnexpectedMessage { got: "a second HelloRetryRequest", expected: "ServerHello" });
        }
        let config = Arc::clone(context.config);
        let suite = self.retry_suite(hello, &config)?;
        let cookie = hello.cookie()?;
        if cookie.is_some_and(|cookie| cookie.len() > limits::COOKIE) {
            return Err(Error::illegal("the cookie is longer than this client can send back"));
        }
        let changed = self.retry_share(hello, &config)?;
        if !changed && cookie.is_none() {
            return Err(Error::illegal("a HelloRetryRequest that changes nothing"));
        }
        context.require_record_end()?;
        if context.summary.early_data == EarlyData::Offered {
            // RFC 9846 section 4.2.10: a HelloRetryRequest rejects them, and the second hello goes out unprotected.
            context.summary.early_data = EarlyData::Rejected;
            context.records.sealer = None;
        }
        // RFC 9846 section 4.4.1: the first hello enters the transcript as its hash, in a message_hash message.
        let first = self.take_transcript(suite.hash(), &config).current();
        let mut transcript = Transcript::new(suite.hash(), config.settings().stages_off);
        transcript.update(&[handshake::MESSAGE_HASH, 0, 0, first.as_slice().len() as u8]);
        transcript.update(first.as_slice());
        transcript.update(message.whole());
        // RFC 9846 section 4.2.11: a PSK of another hash than the suite's is left out now.
        self.session =
            self.session.take().filter(|session| session.psk().is_none() || session.suite().hash() == suite.hash());
        let start = self.write(&config, context.now_ms, Some((&transcript, cookie)), context.out);
        transcript.update(&context.out[start..]);
        self.transcript = Opening::Hashed(transcript);
        self.retry = Some(suite);
        context.summary.hello_retry = true;
        context.summary.offered = self.offered();
        Ok(State::Offer(self))
    }

    fn retry_suite(&self, hello: &ServerHello<'_>, config: &Config) -> Result<Suite, Error> {
        if hello.chosen_version()? != hello::TLS13 || !config.offers(Version::Tls13) {
            return Err(Error::illegal("a HelloRetryRequest without TLS 1.3"));
        }
        if hello.session_id != self.session_id.as_slice() {
            return Err(Error::illegal("the server did not echo the session id"));
        }
        let known = [hello::SUPPORTED_VERSIONS, hello::KEY_SHARE, hello::COOKIE];
        if hello.extensions.iter().any(|(kind, _)| !known.contains(&kind)) {
            return Err(unsolicited("HelloRetryRequest"));
        }
        let suite = config.suite(hello.suite).filter(|suite| suite.version() == Version::Tls13);
        suite.ok_or_else(|| Error::illegal("the server chose a suite that was not offered"))
    }

    /// Makes a share for the group that the server asks for. Whether it asks at all.
    fn retry_share(&mut self, hello: &ServerHello<'_>, config: &Config) -> Result<bool, Error> {
        let Some(code) = hello.retry_group()? else {
            return Ok(false);
        };
        let group = config.group(code).filter(|group| self.shares().all(|share| share.group() != *group));
        let group = group.ok_or_else(|| {
            Error::illegal("HelloRetryRequest for a group that was not offered, or whose share it has")
        })?;
        let settings = config.settings();
        self.share = Some(KeyShare::generate(group, settings.effort, settings.stages_off));
        self.second_share = None;
        Ok(true)
    }
}

/// The error of an extension that answers nothing in the ClientHello (RFC 9846 section 4.2).
pub(crate) fn unsolicited(message: &'static str) -> Error {
    let what = match message {
        "ServerHello" => "ServerHello has an extension that was not offered or does not belong there",
        "EncryptedExtensions" => "EncryptedExtensions has an extension that was not offered or does not belong there",
        _ => "HelloRetryRequest has an extension that does not belong there",
    };
    Error::PeerMisbehaved { what, alert: Alert::UNSUPPORTED_EXTENSION }
}

/// Whether the session still lives, belongs to this server, the configuration still offers what it was made with, and
/// the hello would fit one record.
fn can_resume(config: &Config, session: &Session, now_ms: u64) -> bool {
    let settings = config.settings();
    let suite_offered = match session.kind() {
        // RFC 9846 section 4.2.11: any suite of the same hash will do.
        SessionKind::Tls13Psk => {
            let same = |suite: &Suite| suite.version() == Version::Tls13 && suite.hash() == session.suite().hash();
            settings.suites.iter().any(same)
        }
        SessionKind::Tls12Id => settings.suites.contains(&session.suite()),
        SessionKind::Tls12Ticket => settings.tickets && settings.suites.contains(&session.suite()),
    };
    // RFC 7627 section 5.3: a session with an extended master secret is only offered together with the extension.
    let secret_kind_offered = settings.extended_master_secret || !session.extended_master_secret();
    let lives_and_suits = session.is_usable(now_ms) && session.suits(&config.origin());
    lives_and_suits && suite_offered && secret_kind_offered && session.identity().len() <= limits::TICKET
}

/// The session id that goes with a session: its own, or one made up so that the acceptance of a ticket shows (RFC 5077
/// section 3.4).
fn offered_id(session: Option<&Session>, entropy: &mut dyn Entropy) -> SessionId {
    match session {
        Some(session) if session.kind() == SessionKind::Tls12Id => SessionId::copy_of(session.identity()),
        Some(session) if session.kind() == SessionKind::Tls12Ticket => {
            let mut id = [0; 32];
            entropy.fill(&mut id);
            SessionId::copy_of(&id)
        }
        _ => SessionId::EMPTY,
    }
}

/// Computes the binder over the hello up to the binders, and puts it at the hello's end (RFC 9846 section 4.2.11.2).
fn put_binder(config: &Config, hash: Hash, psk: &Digest, before: Option<&Transcript>, message: usize, out: &mut [u8]) {
    let off = config.settings().stages_off;
    let length = hash.digest_bytes();
    let binder_at = out.len() - length;
    let truncated = binder_at - 3; // the lengths of the list and of the binder are cut off too
    let mut transcript = before.cloned().unwrap_or_else(|| Transcript::new(hash, off));
    transcript.update(&out[message..truncated]);
    let early = early_secret(hash, config, psk);
    // Unlike for "derived", libssl itself hashes the empty context here: it belongs to stage `digest`.
    let empty = digest(hash, off, b"");
    let binder_key = derive_secret(hash, off, early.as_slice(), b"res binder", &empty);
    let binder = binder_mac(hash, off, binder_key.as_slice(), &transcript.current());
    out[binder_at..].copy_from_slice(binder.as_slice());
}

/// The early secret with a PSK (RFC 9846 section 7.1).
pub(crate) fn early_secret(hash: Hash, config: &Config, psk: &Digest) -> Digest {
    hkdf_extract(hash, config.settings().stages_off, Digest::zero(hash).as_slice(), psk.as_slice())
}

// What varies most, and 3 KiB for everything else (name, suites, groups, two shares), fits one record.
const _: () = assert!(limits::TICKET + limits::COOKIE + limits::ALPN + 3 * 1024 <= limits::RECORD_PLAINTEXT);
