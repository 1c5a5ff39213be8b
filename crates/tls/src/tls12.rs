//! TLS 1.2 after the ServerHello (RFC 5246): full and abbreviated handshakes, and what follows them.

use aws_lc_rs::constant_time::verify_slices_are_equal;
use tlsdyno_wire::codec::{put_vector8, put_vector16, put_vector24};
use tlsdyno_wire::handshake::{
    self, Body, Certificate12, CertificateRequest12, CertificateVerify, Message, NewSessionTicket12, ServerKeyExchange,
};
use tlsdyno_wire::hello::{self, ServerHello};
use tlsdyno_wire::{limits, record};

use crate::authenticate;
use crate::client::{Context, State, unexpected};
use crate::crypto::exchange::{KeyShare, Secret, rsa_encrypt_premaster};
use crate::crypto::hash::Transcript;
use crate::crypto::kdf::prf12;
use crate::crypto::protect::{KEY_BLOCK_MAX, Opener, Sealer, Side};
use crate::crypto::verify::{KeyKind, public_key};
use crate::error::{Alert, Error};
use crate::offer::{Offer, SessionId, unsolicited};
use crate::records::Records;
use crate::session::{Established12, Session, SessionKind};
use crate::suite::{KeyExchange, Suite, Version};
use crate::tls13::{chosen_protocol, require_empty};

/// Bytes of a Finished (RFC 5246 section 7.4.9).
const VERIFY_DATA: usize = 12;

pub(crate) struct Handshaking {
    suite: Suite,
    transcript: Transcript,
    expect: Expect,
    client_random: [u8; 32],
    server_random: [u8; 32],
    /// The server's: of the new session, or of the resumed one.
    session_id: SessionId,
    resumed: Option<Session>,
    ticket_promised: bool,
    certificate: Vec<u8>,
    /// Our share and the secret shared with the server's.
    exchange: Option<(KeyShare, Secret)>,
    /// The server's CertificateRequest, if there was one: the scheme that the client's certificate can answer it with.
    requested: Option<Option<u16>>,
    master: [u8; 48],
    /// The server's keys, in force after its change_cipher_spec.
    opener: Option<Opener>,
    /// The client's keys of an abbreviated handshake, in force after the server's Finished.
    sealer: Option<Sealer>,
    /// Lifetime hint in seconds and ticket.
    ticket: Option<(u32, Vec<u8>)>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Expect {
    Certificate,
    ServerKeyExchange,
    RequestOrDone,
    Done,
    TicketOrChange,
    Change,
    Finished,
}

impl Handshaking {
    /// Goes on from a ServerHello that chose TLS 1.2 and `suite`; `transcript` ends with it.
    pub fn start(
        offer: Offer,
        hello: &ServerHello<'_>,
        suite: Suite,
        transcript: Transcript,
        context: &mut Context<'_>,
    ) -> Result<State, Error> {
        let ticket_promised = take_extensions(hello, suite, context)?;
        let resumed = resumed_session(&offer, hello, suite, context)?;
        let mut handshaking = Box::new(Handshaking {
            suite,
            transcript,
            expect: Expect::Certificate,
            client_random: offer.random,
            server_random: *hello.random,
            session_id: SessionId::copy_of(hello.session_id),
            resumed,
            ticket_promised,
            certificate: Vec::new(),
            exchange: None,
            requested: None,
            master: [0; 48],
            opener: None,
            sealer: None,
            ticket: None,
        });
        if let Some(master) = handshaking.resumed.as_ref().and_then(Session::master) {
            handshaking.master = *master;
            handshaking.expect = handshaking.before_change();
            context.summary.resumed = handshaking.resumed.as_ref().map(Session::kind);
            handshaking.derive_keys(context, false);
        }
        Ok(State::Tls12(handshaking))
    }

    pub fn expected(&self) -> &'static str {
        match self.expect {
            Expect::Certificate => "Certificate",
            Expect::ServerKeyExchange => "ServerKeyExchange",
            Expect::RequestOrDone => "CertificateRequest or ServerHelloDone",
            Expect::Done => "ServerHelloDone",
            Expect::TicketOrChange => "NewSessionTicket or change_cipher_spec",
            Expect::Change => "change_cipher_spec",
            Expect::Finished => "Finished",
        }
    }

    pub fn handle(mut self: Box<Self>, message: &Message<'_>, context: &mut Context<'_>) -> Result<State, Error> {
        if message.kind() == handshake::HELLO_REQUEST && message.body().is_empty() {
            // RFC 5246 section 7.4.1.1: ignored during a handshake, and no part of the transcript.
            return Ok(State::Tls12(self));
        }
        match (self.expect, message.kind()) {
            (Expect::Certificate, handshake::CERTIFICATE) => self.take_certificate(message.body(), context)?,
            (Expect::ServerKeyExchange, handshake::SERVER_KEY_EXCHANGE) => {
                self.server_key_exchange(message.body(), context)?
            }
            (Expect::RequestOrDone, handshake::CERTIFICATE_REQUEST) => {
                let request = CertificateRequest12::decode(message.body())?;
                context.summary.certificate_requested = true;
                let own = context.config.settings().client_certificate.as_ref();
                self.requested = Some(own.and_then(|own| own.scheme(Version::Tls12, request.schemes)));
                self.expect = Expect::Done;
            }
            (Expect::RequestOrDone | Expect::Done, handshake::SERVER_HELLO_DONE) => {
                if !message.body().is_empty() {
                    let what = "ServerHelloDone is not empty";
                    return Err(Error::PeerMisbehaved { what, alert: Alert::DECODE_ERROR });
                }
                self.transcript.update(message.whole());
                self.answer(context)?;
                return Ok(State::Tls12(self));
            }
            (Expect::TicketOrChange, handshake::NEW_SESSION_TICKET) => {
                let message = NewSessionTicket12::decode(message.body())?;
                self.ticket = Some((message.lifetime_s, message.ticket.to_vec()));
                self.expect = Expect::Change;
            }
            (Expect::Finished, handshake::FINISHED) => return self.finish(message, context),
            _ => return Err(unexpected(message, self.expected())),
        }
        self.transcript.update(message.whole());
        Ok(State::Tls12(self))
    }

    /// The server's keys are in force from now on.
    pub fn change_cipher_spec(&mut self, records: &mut Records) -> Result<(), Error> {
        if !matches!(self.expect, Expect::TicketOrChange | Expect::Change) {
            return Err(Error::UnexpectedMessage { got: "change_cipher_spec", expected: self.expected() });
        }
        records.opener = self.opener.take();
        self.expect = Expect::Finished;
        Ok(())
    }

    fn before_change(&self) -> Expect {
        if self.ticket_promised { Expect::TicketOrChange } else { Expect::Change }
    }

    fn take_certificate(&mut self, body: &[u8], context: &mut Context<'_>) -> Result<(), Error> {
        self.certificate = authenticate::chain(context, &Certificate12::decode(body)?.chain)?;
        self.expect = match self.suite.key_exchange() {
            KeyExchange::Rsa => Expect::RequestOrDone,
            _ => Expect::ServerKeyExchange,
        };
        Ok(())
    }

    fn server_key_exchange(&mut self, body: &[u8], context: &mut Context<'_>) -> Result<(), Error> {
        let config = context.config;
        let exchange = ServerKeyExchange::decode(body)?;
        let group = config.group(exchange.group).filter(|group| !group.is_hybrid());
        let group = group.ok_or_else(|| Error::illegal("the server chose a group that was not offered"))?;
        let mut signed = Vec::new();
        if config.checks_signatures() {
            signed.extend_from_slice(&self.client_random);
            signed.extend_from_slice(&self.server_random);
            signed.extend_from_slice(exchange.parameters);
        }
        let signature =
            authenticate::Signature { scheme: exchange.scheme, bytes: exchange.signature, message: &signed };
        let suite = self.suite;
        authenticate::signature(config, &self.certificate, &signature, |_, kind| key_fits(suite, kind))?;
        let settings = config.settings();
        let share = KeyShare::generate(group, settings.effort, settings.stages_off);
        let secret = share.agree(exchange.public)?;
        context.summary.group = Some(group);
        self.exchange = Some((share, secret));
        self.expect = Expect::RequestOrDone;
        Ok(())
    }

    /// The client's flight of a full handshake: Certificate (if requested; it may be empty), ClientKeyExchange,
    /// CertificateVerify (unless it is), change_cipher_spec, Finished.
    fn answer(&mut self, context: &mut Context<'_>) -> Result<(), Error> {
        let mut flight = Vec::with_capacity(128);
        let own = context.config.settings().client_certificate.as_ref().zip(self.requested.flatten());
        if self.requested.is_some() {
            let chain = own.iter().flat_map(|(own, _)| own.chain_der()).map(Vec::as_slice).collect();
            handshake::put(&mut flight, &Certificate12 { chain });
        }
        let mut premaster_rsa = [0; 48];
        flight.push(handshake::CLIENT_KEY_EXCHANGE);
        let premaster = match &self.exchange {
            Some((share, secret)) => {
                put_vector24(&mut flight, |out| put_vector8(out, |out| share.put(out)));
                secret.as_slice()
            }
            None => {
                // RFC 5246 section 7.4.7.1: the version offered, then 46 random bytes.
                premaster_rsa[..2].copy_from_slice(&hello::TLS12.to_be_bytes());
                context.entropy.fill(&mut premaster_rsa[2..]);
                let spki = public_key(&self.certificate)?.spki_der;
                let settings = context.config.settings();
                let encrypted =
                    rsa_encrypt_premaster(spki, &premaster_rsa, settings.stages_off, settings.small_rsa_keys)?;
                put_vector24(&mut flight, |out| put_vector16(out, |out| out.extend_from_slice(&encrypted)));
                &premaster_rsa[..]
            }
        };
        self.transcript.update(&flight);
        // RFC 7627 section 3: the session hash ends with the ClientKeyExchange.
        self.master = self.master_secret(premaster, context);
        if let Some((own, scheme)) = own {
            let signature = own.sign(scheme, self.transcript.kept())?;
            let start = flight.len();
            handshake::put(&mut flight, &CertificateVerify { scheme, signature: &signature });
            self.transcript.update(&flight[start..]);
        }
        context.records.send(record::HANDSHAKE, &flight, context.out);
        self.derive_keys(context, true);
        self.send_finished(context);
        self.expect = self.before_change();
        Ok(())
    }

    /// RFC 5246 section 8.1; with the extension RFC 7627 section 4.
    fn master_secret(&self, premaster: &[u8], context: &Context<'_>) -> [u8; 48] {
        let (hash, off) = (self.suite.hash(), context.config.settings().stages_off);
        let mut master = [0; 48];
        if context.summary.extended_master_secret {
            let session_hash = self.transcript.current();
            prf12(hash, off, premaster, b"extended master secret", &[session_hash.as_slice()], &mut master);
        } else {
            prf12(hash, off, premaster, b"master secret", &[&self.client_random, &self.server_random], &mut master);
        }
        master
    }

    /// Makes the keys of both directions (RFC 5246 section 6.3). In a full handshake the client's change_cipher_spec is
    /// sent now, else after the server's Finished.
    fn derive_keys(&mut self, context: &mut Context<'_>, full: bool) {
        let (suite, off) = (self.suite, context.config.settings().stages_off);
        let encrypt_then_mac = context.summary.encrypt_then_mac;
        let mut block = [0; KEY_BLOCK_MAX];
        let block = &mut block[..suite.protection().key_block_bytes()];
        prf12(suite.hash(), off, &self.master, b"key expansion", &[&self.server_random, &self.client_random], block);
        self.opener = Some(Opener::tls12(suite, off, block, Side::Server, encrypt_then_mac));
        let sealer = Sealer::tls12(suite, off, block, Side::Client, encrypt_then_mac);
        if full {
            context.records.send_change_cipher_spec(context.out);
            context.records.sealer = Some(sealer);
        } else {
            self.sealer = Some(sealer);
        }
    }

    fn verify_data(&self, label: &[u8], context: &Context<'_>) -> [u8; VERIFY_DATA] {
        let mut verify_data = [0; VERIFY_DATA];
        let off = context.config.settings().stages_off;
        prf12(self.suite.hash(), off, &self.master, label, &[self.transcript.current().as_slice()], &mut verify_data);
        verify_data
    }

    fn send_finished(&mut self, context: &mut Context<'_>) {
        let mut finished = [0; handshake::HEADER + VERIFY_DATA];
        finished[0] = handshake::FINISHED;
        finished[3] = VERIFY_DATA as u8;
        finished[handshake::HEADER..].copy_from_slice(&self.verify_data(b"client finished", context));
        context.records.send(record::HANDSHAKE, &finished, context.out);
        self.transcript.update(&finished);
    }

    /// Checks the server's Finished; an abbreviated handshake is then answered with the client's, but for a fast one.
    fn finish(mut self: Box<Self>, message: &Message<'_>, context: &mut Context<'_>) -> Result<State, Error> {
        let expected = self.verify_data(b"server finished", context);
        verify_slices_are_equal(message.body(), &expected).map_err(|_| Error::BadFinished)?;
        self.transcript.update(message.whole());
        if let Some(sealer) = self.sealer.take()
            && !context.config.is_fast()
        {
            context.records.send_change_cipher_spec(context.out);
            context.records.sealer = Some(sealer);
            self.send_finished(context);
        }
        self.hand_over_session(context);
        Ok(State::Open12 { renegotiation_refused: false })
    }

    fn hand_over_session(&self, context: &mut Context<'_>) {
        if !context.keeps_sessions() {
            return;
        }
        let established = Established12 {
            suite: self.suite,
            master: self.master,
            extended_master_secret: context.summary.extended_master_secret,
            origin: context.config.origin(),
        };
        let session = match &self.ticket {
            // RFC 5077 section 3.3: an empty ticket means that there is none after all.
            Some((hint_s, ticket)) if !ticket.is_empty() && ticket.len() <= limits::TICKET => {
                Session::tls12_ticket(&established, ticket, *hint_s, context.now_ms)
            }
            _ if self.resumed.is_none() && !self.session_id.as_slice().is_empty() => {
                Session::tls12_id(&established, self.session_id.as_slice(), context.now_ms)
            }
            _ => return,
        };
        context.receiver.session(session);
    }
}

/// Takes what the server's extensions say into the summary. Whether a NewSessionTicket will come.
fn take_extensions(hello: &ServerHello<'_>, suite: Suite, context: &mut Context<'_>) -> Result<bool, Error> {
    let config = context.config;
    let settings = config.settings();
    let mut ticket_promised = false;
    for (kind, body) in hello.extensions.iter() {
        match kind {
            hello::SERVER_NAME if config.sends_server_name() => require_empty(body)?,
            hello::EC_POINT_FORMATS | hello::SUPPORTED_GROUPS => (),
            // RFC 5746 section 3.4: in a first handshake it holds nothing.
            hello::RENEGOTIATION_INFO if body == [0] => (),
            hello::RENEGOTIATION_INFO => {
                let what = "renegotiation_info of a first handshake is not empty";
                return Err(Error::PeerMisbehaved { what, alert: Alert::HANDSHAKE_FAILURE });
            }
            hello::EXTENDED_MASTER_SECRET if settings.extended_master_secret => {
                require_empty(body)?;
                context.summary.extended_master_secret = true
            }
            // Says nothing about AEAD suites (RFC 7366 section 3).
            hello::ENCRYPT_THEN_MAC if settings.encrypt_then_mac => {
                require_empty(body)?;
                context.summary.encrypt_then_mac = suite.protection().is_cbc();
            }
            hello::SESSION_TICKET if settings.tickets => {
                require_empty(body)?;
                ticket_promised = true;
            }
            hello::ALPN if !settings.alpn.is_empty() => {
                context.summary.alpn = Some(chosen_protocol(body, &settings.alpn)?)
            }
            _ => return Err(unsolicited("ServerHello")),
        }
    }
    Ok(ticket_promised)
}

/// The session that was offered, if the server echoed its id.
fn resumed_session(
    offer: &Offer,
    hello: &ServerHello<'_>,
    suite: Suite,
    context: &Context<'_>,
) -> Result<Option<Session>, Error> {
    let echoed = !hello.session_id.is_empty() && hello.session_id == offer.session_id.as_slice();
    let Some(session) = offer.session.as_ref().filter(|session| echoed && session.kind() != SessionKind::Tls13Psk)
    else {
        return Ok(None);
    };
    if session.suite() != suite {
        return Err(Error::illegal("the server resumed a session with another suite"));
    }
    if session.extended_master_secret() != context.summary.extended_master_secret {
        // RFC 7627 section 5.3.
        let what = "the server resumed a session without or with another kind of extended master secret";
        return Err(Error::PeerMisbehaved { what, alert: Alert::HANDSHAKE_FAILURE });
    }
    Ok(Some(session.clone()))
}

/// Whether a certificate's key can sign for the suite. Ed25519 counts as ECDSA there (RFC 8422 section 5.10).
fn key_fits(suite: Suite, kind: KeyKind) -> bool {
    match suite.key_exchange() {
        KeyExchange::EcdheRsa => matches!(kind, KeyKind::Rsa { .. }),
        KeyExchange::EcdheEcdsa => matches!(kind, KeyKind::P256 | KeyKind::P384 | KeyKind::P521 | KeyKind::Ed25519),
        KeyExchange::Rsa | KeyExchange::Tls13 => false,
    }
}

/// A message on a complete TLS 1.2 connection. Renegotiation is refused, once with an alert (RFC 5246 section 7.2.2).
pub(crate) fn handle_when_open(
    message: &Message<'_>,
    renegotiation_refused: bool,
    context: &mut Context<'_>,
) -> Result<State, Error> {
    if message.kind() != handshake::HELLO_REQUEST || !message.body().is_empty() {
        return Err(unexpected(message, "application data"));
    }
    if !renegotiation_refused {
        context.records.send_alert(Alert::NO_RENEGOTIATION, context.out);
    }
    Ok(State::Open12 { renegotiation_refused: true })
}
