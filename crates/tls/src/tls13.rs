//! TLS 1.3 after the ServerHello (RFC 9846): the rest of the handshake, and what follows it.

use aws_lc_rs::constant_time::verify_slices_are_equal;
use tlsdyno_wire::codec::{Problem, Reader};
use tlsdyno_wire::handshake::{
    self, Body, Certificate13, CertificateRequest13, CertificateVerify, EncryptedExtensions, KeyUpdate, Message,
    NewSessionTicket13,
};
use tlsdyno_wire::hello::{self, Extensions, ServerHello};
use tlsdyno_wire::{limits, record};

use crate::authenticate;
use crate::client::{Context, EarlyData, State, unexpected};
use crate::compressed;
use crate::config::{Config, Lack};
use crate::crypto::hash::{Digest, Transcript};
use crate::crypto::kdf::{Prk, finished_mac, hkdf_expand_label, hkdf_extract};
use crate::crypto::protect::{Opener, Sealer};
use crate::crypto::verify::scheme_allowed_in_13;
use crate::error::{Alert, Error};
use crate::offer::{Offer, early_secret, unsolicited};
use crate::records::Records;
use crate::session::{Session, SessionKind, Ticket13};
use crate::suite::{Hash, Suite, Version};

pub(crate) struct Handshaking {
    suite: Suite,
    transcript: Transcript,
    expect: Expect,
    /// The handshake secret, from which the application's secrets follow.
    secret: Prk,
    client_secret: Digest,
    server_secret: Digest,
    /// The keys of the client's handshake messages, while early data are still sent under others.
    sealer: Option<Sealer>,
    /// The server may take the early data: it resumed the session whose suite and key protect them (RFC 9846 section
    /// 4.2.10).
    early_data_fit: bool,
    /// The server's own certificate, where a signature is to be checked by it.
    certificate: Vec<u8>,
    /// The server's CertificateRequest, if there was one: the scheme that the client's certificate can answer it with.
    requested: Option<Option<u16>>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Expect {
    EncryptedExtensions,
    CertificateOrRequest,
    Certificate,
    CertificateVerify,
    Finished,
}

impl Handshaking {
    /// Goes on from a ServerHello that chose TLS 1.3 and `suite`; `transcript` ends with it.
    pub fn start(
        offer: Offer,
        hello: &ServerHello<'_>,
        suite: Suite,
        transcript: Transcript,
        context: &mut Context<'_>,
    ) -> Result<State, Error> {
        if hello.session_id != offer.session_id.as_slice() {
            return Err(Error::illegal("the server did not echo the session id"));
        }
        let psk_offered = offer.session.as_ref().is_some_and(|session| session.psk().is_some());
        let known = |kind| match kind {
            hello::SUPPORTED_VERSIONS | hello::KEY_SHARE => true,
            hello::PRE_SHARED_KEY => psk_offered,
            _ => false,
        };
        if hello.extensions.iter().any(|(kind, _)| !known(kind)) {
            return Err(unsolicited("ServerHello"));
        }
        let hash = suite.hash();
        let psk = accepted_psk(&offer, hello, hash)?;
        let shared = agree(&offer, hello, psk.is_some(), context)?;
        context.require_record_end()?;

        let off = context.config.settings().stages_off;
        let derived = match psk {
            Some(psk) => {
                let early = early_secret(hash, context.config, psk);
                derived_secret(context.config, hash, &Prk::new(hash, off, early.as_slice()))
            }
            None => *context.config.derived_early(hash),
        };
        let secret = match &shared {
            Some(shared) => hkdf_extract(hash, off, derived.as_slice(), shared.as_slice()),
            None => hkdf_extract(hash, off, derived.as_slice(), Digest::zero(hash).as_slice()),
        };
        let at_hello = transcript.current();
        let secret = Prk::new(hash, off, secret.as_slice());
        let client_secret = secret.derive_secret(b"c hs traffic", &at_hello);
        let server_secret = secret.derive_secret(b"s hs traffic", &at_hello);
        let mut sealer = Some(Sealer::tls13(suite, off, client_secret.as_slice()));
        if context.summary.early_data != EarlyData::Offered {
            context.records.sealer = sealer.take();
        }
        context.records.opener = Some(Opener::tls13(suite, off, server_secret.as_slice()));
        let same_suite = offer.session.as_ref().is_some_and(|session| session.suite() == suite);
        context.summary.resumed = psk.map(|_| SessionKind::Tls13Psk);
        Ok(State::Tls13(Box::new(Handshaking {
            suite,
            transcript,
            expect: Expect::EncryptedExtensions,
            secret,
            client_secret,
            server_secret,
            sealer,
            early_data_fit: psk.is_some() && same_suite,
            certificate: Vec::new(),
            requested: None,
        })))
    }

    pub fn expected(&self) -> &'static str {
        match self.expect {
            Expect::EncryptedExtensions => "EncryptedExtensions",
            Expect::CertificateOrRequest => "Certificate or CertificateRequest",
            Expect::Certificate => "Certificate",
            Expect::CertificateVerify => "CertificateVerify",
            Expect::Finished => "Finished",
        }
    }

    pub fn handle(mut self: Box<Self>, message: &Message<'_>, context: &mut Context<'_>) -> Result<State, Error> {
        self.expect = match (self.expect, message.kind()) {
            (Expect::EncryptedExtensions, handshake::ENCRYPTED_EXTENSIONS) => {
                self.encrypted_extensions(message.body(), context)?;
                match context.summary.resumed {
                    Some(_) => Expect::Finished,
                    None => Expect::CertificateOrRequest,
                }
            }
            (Expect::CertificateOrRequest, handshake::CERTIFICATE_REQUEST) => {
                self.certificate_request(message.body(), context)?;
                Expect::Certificate
            }
            (Expect::CertificateOrRequest | Expect::Certificate, handshake::CERTIFICATE) => {
                self.take_certificate(message.body(), context)?;
                Expect::CertificateVerify
            }
            (Expect::CertificateOrRequest | Expect::Certificate, handshake::COMPRESSED_CERTIFICATE)
                if context.config.settings().compressed_certificate =>
            {
                self.take_certificate(&compressed::inflated(message.body())?, context)?;
                context.summary.certificate_compressed = true;
                Expect::CertificateVerify
            }
            (Expect::CertificateVerify, handshake::CERTIFICATE_VERIFY) => {
                self.certificate_verify(message.body(), context.config)?;
                Expect::Finished
            }
            (Expect::Finished, handshake::FINISHED) => return self.finish(message, context),
            _ => return Err(unexpected(message, self.expected())),
        };
        self.transcript.update(message.whole());
        Ok(State::Tls13(self))
    }

    fn encrypted_extensions(&mut self, body: &[u8], context: &mut Context<'_>) -> Result<(), Error> {
        let offered = context.summary.early_data == EarlyData::Offered;
        let accepted = encrypted_extensions(body, context)?;
        match (offered, accepted) {
            (false, false) => {}
            (false, true) => return Err(unsolicited("EncryptedExtensions")),
            (true, true) if !self.early_data_fit => {
                return Err(Error::illegal("the server took early data without the session that protects them"));
            }
            (true, true) => context.summary.early_data = EarlyData::Accepted,
            (true, false) => {
                context.summary.early_data = EarlyData::Rejected;
                context.records.sealer = self.sealer.take();
            }
        }
        Ok(())
    }

    fn certificate_request(&mut self, body: &[u8], context: &mut Context<'_>) -> Result<(), Error> {
        let request = CertificateRequest13::decode(body)?;
        if !request.context.is_empty() {
            return Err(Error::illegal("a CertificateRequest of the handshake has a context"));
        }
        let Some(algorithms) = request.extensions.get(hello::SIGNATURE_ALGORITHMS) else {
            let what = "CertificateRequest lacks signature_algorithms";
            return Err(Error::PeerMisbehaved { what, alert: Alert::MISSING_EXTENSION });
        };
        let mut reader = Reader::new("signature_algorithms", algorithms);
        let schemes = reader.vector16()?;
        reader.finish()?;
        context.summary.certificate_requested = true;
        let own = context.config.settings().client_certificate.as_ref();
        self.requested = Some(own.and_then(|own| own.scheme(Version::Tls13, schemes)));
        Ok(())
    }

    fn take_certificate(&mut self, body: &[u8], context: &mut Context<'_>) -> Result<(), Error> {
        let message = Certificate13::decode(body)?;
        if !message.context.is_empty() {
            return Err(Error::illegal("the server's Certificate has a context"));
        }
        if message.chain.iter().any(|(_, extensions)| !extensions.bytes().is_empty()) {
            // Neither status_request nor signed_certificate_timestamp was offered.
            let what = "a certificate has an extension that was not offered";
            return Err(Error::PeerMisbehaved { what, alert: Alert::UNSUPPORTED_EXTENSION });
        }
        let chain: Vec<&[u8]> = message.chain.iter().map(|(der, _)| *der).collect();
        self.certificate = authenticate::chain(context, &chain)?;
        Ok(())
    }

    fn certificate_verify(&mut self, body: &[u8], config: &Config) -> Result<(), Error> {
        let verify = CertificateVerify::decode(body)?;
        let digest = self.transcript.current();
        let signed = match config.checks_signatures() {
            true => signed_content(b"TLS 1.3, server CertificateVerify\0", &digest),
            false => Vec::new(),
        };
        let signature = authenticate::Signature { scheme: verify.scheme, bytes: verify.signature, message: &signed };
        authenticate::signature(config, &self.certificate, &signature, scheme_allowed_in_13)
    }

    /// Checks the server's Finished, answers with ours, and changes to the application's keys.
    fn finish(mut self: Box<Self>, message: &Message<'_>, context: &mut Context<'_>) -> Result<State, Error> {
        let (hash, off) = (self.suite.hash(), context.config.settings().stages_off);
        let expected = finished_mac(hash, off, self.server_secret.as_slice(), &self.transcript.current());
        verify_slices_are_equal(message.body(), expected.as_slice()).map_err(|_| Error::BadFinished)?;
        context.require_record_end()?;
        self.transcript.update(message.whole());

        let derived = derived_secret(context.config, hash, &self.secret);
        let main = hkdf_extract(hash, off, derived.as_slice(), Digest::zero(hash).as_slice());
        let main = Prk::new(hash, off, main.as_slice());
        let at_finished = self.transcript.current();
        let client_secret = main.derive_secret(b"c ap traffic", &at_finished);
        let server_secret = main.derive_secret(b"s ap traffic", &at_finished);
        if !(context.config.is_fast() && context.summary.resumed.is_some()) {
            self.answer(context)?;
        }
        // Tickets also come on later turns: their secret is for those who take any.
        let resumption =
            context.keeps_sessions().then(|| main.derive_secret(b"res master", &self.transcript.current()));
        context.records.sealer = Some(Sealer::tls13(self.suite, off, client_secret.as_slice()));
        context.records.opener = Some(Opener::tls13(self.suite, off, server_secret.as_slice()));
        Ok(State::Open13(Box::new(Open { suite: self.suite, client_secret, server_secret, resumption })))
    }

    /// The client's last flight: a Certificate if one was requested, with its CertificateVerify unless it is empty, and
    /// Finished.
    fn answer(&mut self, context: &mut Context<'_>) -> Result<(), Error> {
        let (hash, off) = (self.suite.hash(), context.config.settings().stages_off);
        if let Some(sealer) = self.sealer.take() {
            // RFC 9846 section 4.5: EndOfEarlyData is the last message under the keys of early data.
            let end = [handshake::END_OF_EARLY_DATA, 0, 0, 0];
            context.records.send(record::HANDSHAKE, &end, context.out);
            self.transcript.update(&end);
            context.records.sealer = Some(sealer);
        }
        if let Some(scheme) = self.requested.take() {
            self.send_certificate(scheme, context)?;
        }
        let verify_data = finished_mac(hash, off, self.client_secret.as_slice(), &self.transcript.current());
        let length = hash.digest_bytes();
        let mut finished = [0; handshake::HEADER + 48];
        finished[0] = handshake::FINISHED;
        finished[3] = length as u8;
        finished[handshake::HEADER..][..length].copy_from_slice(verify_data.as_slice());
        let finished = &finished[..handshake::HEADER + length];
        context.records.send(record::HANDSHAKE, finished, context.out);
        self.transcript.update(finished);
        Ok(())
    }

    /// Without a scheme the Certificate is empty: the client has none that the server could verify (RFC 9846 section
    /// 4.4.2).
    fn send_certificate(&mut self, scheme: Option<u16>, context: &mut Context<'_>) -> Result<(), Error> {
        let own = context.config.settings().client_certificate.as_ref();
        let own = own.zip(scheme);
        let none = Extensions::default();
        let chain = own.iter().flat_map(|(own, _)| own.chain_der()).map(|der| (der.as_slice(), none));
        let mut flight = Vec::new();
        handshake::put(&mut flight, &Certificate13 { context: &[], chain: chain.collect() });
        self.transcript.update(&flight);
        if let Some((own, scheme)) = own {
            let signed = signed_content(b"TLS 1.3, client CertificateVerify\0", &self.transcript.current());
            let signature = own.sign(scheme, &signed)?;
            let start = flight.len();
            handshake::put(&mut flight, &CertificateVerify { scheme, signature: &signature });
            self.transcript.update(&flight[start..]);
        }
        context.records.send(record::HANDSHAKE, &flight, context.out);
        Ok(())
    }
}

/// What a CertificateVerify signs (RFC 9846 section 4.4.3).
fn signed_content(label: &[u8], transcript: &Digest) -> Vec<u8> {
    [&[0x20; 64], label, transcript.as_slice()].concat()
}

/// The pre-shared key, if the server took the one that was offered.
fn accepted_psk<'a>(offer: &'a Offer, hello: &ServerHello<'_>, hash: Hash) -> Result<Option<&'a Digest>, Error> {
    let Some(index) = hello.selected_psk()? else {
        return Ok(None);
    };
    let session = offer.session.as_ref().filter(|session| index == 0 && session.suite().hash() == hash);
    match session.and_then(Session::psk) {
        Some(psk) => Ok(Some(psk)),
        None => Err(Error::illegal("the server selected a PSK that was not offered, or with a suite of another hash")),
    }
}

/// The shared secret; `None`: a session is resumed by its key alone, as offered.
fn agree(
    offer: &Offer,
    hello: &ServerHello<'_>,
    is_resumed: bool,
    context: &mut Context<'_>,
) -> Result<Option<crate::crypto::exchange::Secret>, Error> {
    let Some((group, public)) = hello.key_share()? else {
        if is_resumed && context.config.settings().lack == Some(Lack::Agreement) {
            return Ok(None);
        }
        // Only psk_dhe_ke was offered, so there is a share in every ServerHello.
        let what = "ServerHello lacks key_share";
        return Err(Error::PeerMisbehaved { what, alert: Alert::MISSING_EXTENSION });
    };
    let share = offer.shares().find(|share| share.group().code() == group);
    let share = share.ok_or_else(|| Error::illegal("the server's key share is for another group than the client's"))?;
    context.summary.group = Some(share.group());
    Ok(Some(share.agree(public)?))
}

/// Derive-Secret(secret, "derived", ""). The KDF itself hashes the empty context, so that the hash is real even with
/// stage `digest` off.
fn derived_secret(config: &Config, hash: Hash, secret: &Prk) -> Digest {
    secret.derive_secret(b"derived", config.empty_hash(hash))
}

/// Takes the extensions into the summary; whether the server takes early data.
fn encrypted_extensions(body: &[u8], context: &mut Context<'_>) -> Result<bool, Error> {
    let settings = context.config.settings();
    let mut early_data = false;
    for (kind, body) in EncryptedExtensions::decode(body)?.extensions.iter() {
        match kind {
            hello::SERVER_NAME if context.config.sends_server_name() => require_empty(body)?,
            hello::SUPPORTED_GROUPS => (),
            hello::EARLY_DATA => {
                require_empty(body)?;
                early_data = true;
            }
            hello::ALPN if !settings.alpn.is_empty() => {
                context.summary.alpn = Some(chosen_protocol(body, &settings.alpn)?)
            }
            _ => return Err(unsolicited("EncryptedExtensions")),
        }
    }
    Ok(early_data)
}

/// For extensions of a server that only say "yes".
pub(crate) fn require_empty(body: &[u8]) -> Result<(), Error> {
    if body.is_empty() {
        return Ok(());
    }
    let what = "an extension that is empty by definition is not";
    Err(Error::PeerMisbehaved { what, alert: Alert::DECODE_ERROR })
}

/// Index of the protocol that the server chose by ALPN.
pub(crate) fn chosen_protocol(body: &[u8], offered: &[String]) -> Result<u8, Error> {
    let chosen = hello::decode_alpn(body)?;
    let index = offered.iter().position(|name| name.as_bytes() == chosen);
    let index = index.and_then(|index| u8::try_from(index).ok());
    index.ok_or_else(|| Error::illegal("the server chose an ALPN protocol that was not offered"))
}

/// A complete handshake: what tickets and key updates need.
pub(crate) struct Open {
    suite: Suite,
    client_secret: Digest,
    server_secret: Digest,
    /// What the keys of tickets are derived from; `None`: nobody wants their sessions.
    resumption: Option<Digest>,
}

impl Open {
    pub fn handle(mut self: Box<Self>, message: &Message<'_>, context: &mut Context<'_>) -> Result<State, Error> {
        match message.kind() {
            handshake::NEW_SESSION_TICKET => self.take_ticket(message.body(), context)?,
            handshake::KEY_UPDATE => self.key_update(message.body(), context)?,
            _ => return Err(unexpected(message, "application data")),
        }
        Ok(State::Open13(self))
    }

    fn take_ticket(&mut self, body: &[u8], context: &mut Context<'_>) -> Result<(), Error> {
        let ticket = NewSessionTicket13::decode(body)?;
        // RFC 9846 section 4.6.1: a lifetime of 0 means "discard at once".
        if ticket.lifetime_s == 0 || ticket.ticket.len() > limits::TICKET {
            return Ok(());
        }
        let max_early_data = ticket.max_early_data()?.unwrap_or(0);
        let Some(resumption) = &self.resumption else {
            return Ok(());
        };
        let (hash, off) = (self.suite.hash(), context.config.settings().stages_off);
        let mut psk = Digest::zero(hash);
        hkdf_expand_label(hash, off, resumption.as_slice(), b"resumption", ticket.nonce, psk.as_mut_slice());
        let ticket = Ticket13 {
            identity: ticket.ticket,
            lifetime_s: ticket.lifetime_s,
            age_add: ticket.age_add,
            max_early_data,
        };
        let session = Session::tls13(self.suite, psk, &ticket, context.config.origin(), context.now_ms);
        context.receiver.session(session);
        Ok(())
    }

    /// RFC 9846 section 4.6.3.
    fn key_update(&mut self, body: &[u8], context: &mut Context<'_>) -> Result<(), Error> {
        // An unknown request is an illegal_parameter, unlike other values out of range.
        let update = KeyUpdate::decode(body).map_err(|error| match error.problem {
            Problem::Value(_) => Error::illegal("a KeyUpdate with an unknown request"),
            _ => error.into(),
        })?;
        context.require_record_end()?;
        let off = context.config.settings().stages_off;
        self.server_secret = next_secret(self.suite.hash(), context.config, &self.server_secret);
        context.records.opener = Some(Opener::tls13(self.suite, off, self.server_secret.as_slice()));
        if update.requested {
            self.update_own_key(context.config, context.records, context.out);
        }
        Ok(())
    }

    /// Announces and makes the next key of what the client sends.
    fn update_own_key(&mut self, config: &Config, records: &mut Records, out: &mut Vec<u8>) {
        let mut announcement = Vec::with_capacity(handshake::HEADER + 1);
        handshake::put(&mut announcement, &KeyUpdate { requested: false });
        records.send(record::HANDSHAKE, &announcement, out);
        self.client_secret = next_secret(self.suite.hash(), config, &self.client_secret);
        let off = config.settings().stages_off;
        records.sealer = Some(Sealer::tls13(self.suite, off, self.client_secret.as_slice()));
    }

    /// Changes the key before it has protected more records than it may (RFC 9846 section 5.5).
    pub fn renew_used_up_key(&mut self, config: &Config, records: &mut Records, out: &mut Vec<u8>) {
        let used = records.sealer.as_ref().map_or(0, Sealer::records);
        if used >= config.settings().records_per_key_count {
            self.update_own_key(config, records, out);
        }
    }
}

/// RFC 9846 section 7.2.
fn next_secret(hash: Hash, config: &Config, secret: &Digest) -> Digest {
    let mut next = Digest::zero(hash);
    hkdf_expand_label(hash, config.settings().stages_off, secret.as_slice(), b"traffic upd", b"", next.as_mut_slice());
    next
}
