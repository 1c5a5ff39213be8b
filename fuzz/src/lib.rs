//! What the fuzz targets run, as plain functions that panic on a fault: `fuzz_targets/` hands them libFuzzer's inputs, and
//! `tls/tests/fuzz_briefly.rs` random and mutated ones.

use std::sync::{Arc, OnceLock};

use tlsdyno_tls::crypto::exchange::rsa_encrypt_premaster;
use tlsdyno_tls::crypto::kdf::hkdf_expand_label;
use tlsdyno_tls::crypto::protect::{Opener, Side};
use tlsdyno_tls::crypto::verify::{public_key, verify_signature};
use tlsdyno_tls::{Client, Config, Effort, Entropy, Error, Receiver, Session, Settings, Stage, StageSet, Suite};
use tlsdyno_wire::codec::{put_u16, put_vector8, put_vector16};
use tlsdyno_wire::handshake::{
    self, Body, Certificate12, Certificate13, CertificateRequest12, CertificateRequest13, CertificateVerify,
    EncryptedExtensions, Joiner, KeyUpdate, NewSessionTicket12, NewSessionTicket13, ServerKeyExchange,
};
use tlsdyno_wire::hello::{self, ClientHello, Extensions, ServerHello, put_extension};
use tlsdyno_wire::http::{Fault, Reference, Response};
use tlsdyno_wire::session_keys::{ClientReader, ServerReader};
use tlsdyno_wire::{limits, record};

/// Records and a ClientHello in them, as a dispatcher reads them.
pub fn hello_parse(data: &[u8]) {
    let mut bytes = data.to_vec();
    let (mut deframer, mut joiner) = (record::Deframer::default(), Joiner::default());
    let mut rest = &mut bytes[..];
    while !rest.is_empty() {
        let Ok((found, after)) = deframer.next(rest, limits::RECORD_PLAINTEXT) else {
            return;
        };
        rest = after;
        let Some((_, mut body)) = found else { return };
        let mut content: &[u8] = body.bytes();
        while let Ok(Some(message)) = joiner.next(&mut content) {
            look_at_hello(message.body());
        }
    }
}

fn look_at_hello(body: &[u8]) {
    let Ok(hello) = ClientHello::decode(body) else {
        return;
    };
    let _ = hello.server_name();
    let _ = hello.offers_version(hello::TLS13);
    let _ = hello.session_ticket();
    if let Ok(Some(psks)) = hello.pre_shared_keys() {
        assert_eq!(psks.identities().count(), psks.binders().count());
    }
    let mut again = Vec::new();
    hello.encode(&mut again);
    assert_eq!(ClientHello::decode(&again), Ok(hello));
}

/// Bytes of both sides as a dispatcher sees them: however they are cut, the answer is the same.
pub fn session_keys(data: &[u8]) {
    let Some((&cut, bytes)) = data.split_first() else {
        return;
    };
    for second in [false, true] {
        let reader = || if second { ClientReader::second(16 * 1024) } else { ClientReader::new(16 * 1024) };
        let at_once = reader().read(bytes);
        let mut in_pieces = reader();
        let answers = bytes.chunks(usize::from(cut) + 1).map(|piece| in_pieces.read(piece));
        let answer = answers.into_iter().find(|answer| *answer != Ok(None)).unwrap_or(Ok(None));
        assert_eq!(answer, at_once);
    }
    let says = |piece: usize| {
        let (mut reader, mut said) = (ServerReader::default(), Vec::new());
        bytes.chunks(piece).for_each(|piece| reader.read(piece, |says| said.push(says)));
        said
    };
    assert_eq!(says(usize::from(cut) + 1), says(bytes.len().max(1)));
}

/// A response, its first byte saying to what and in which pieces: however it is cut, it comes to the same, and a redirect leads to what can
/// stand on a request line.
pub fn http_response(data: &[u8]) {
    let Some((&choice, bytes)) = data.split_first() else {
        return;
    };
    let receive = |piece: usize| {
        let mut response = Response::new(choice & 1 != 0).keeping_location(true);
        let mut consumed = 0;
        for piece in bytes.chunks(piece.max(1)) {
            consumed += response.receive(piece)?;
        }
        assert!(response.body_bytes() <= consumed as u64 && consumed <= bytes.len());
        let end = response.end_of_input();
        Ok::<_, Fault>((response.head(), response.location().map(<[u8]>::to_vec), response.body_bytes(), consumed, end))
    };
    let whole = receive(bytes.len());
    assert_eq!(whole, receive(1 + usize::from(choice >> 1)));
    if let Ok((_, Some(location), ..)) = whole
        && let Some(reference) = Reference::parse(&location)
    {
        let target = reference.target(b"/a/b?c");
        assert!(target.starts_with(b"/") && target.iter().all(u8::is_ascii_graphic));
    }
}

/// One handshake message body, its first byte choosing the decoder; what is understood must survive encoding.
pub fn handshake_messages(data: &[u8]) {
    let Some((choice, body)) = data.split_first() else {
        return;
    };
    match choice % 12 {
        0 => survives::<ClientHello>(body),
        1 => survives::<ServerHello>(body),
        2 => survives::<EncryptedExtensions>(body),
        3 => survives::<Certificate12>(body),
        4 => survives::<Certificate13>(body),
        5 => survives::<CertificateRequest12>(body),
        6 => survives::<CertificateRequest13>(body),
        7 => survives::<CertificateVerify>(body),
        8 => survives::<ServerKeyExchange>(body),
        9 => survives::<NewSessionTicket12>(body),
        10 => survives::<NewSessionTicket13>(body),
        _ => survives::<KeyUpdate>(body),
    }
}

fn survives<'a, M: Body<'a>>(body: &'a [u8]) {
    if let Ok(message) = M::decode(body) {
        let mut again = Vec::new();
        message.encode(&mut again);
        // The codecs have one form for each value, except that an empty extension block may be left out.
        assert!(again == body || again[..again.len() - 2] == *body);
    }
}

/// What a server's certificate says, with every stage on and with authentication off.
pub fn certificate(der: &[u8]) {
    let Ok(key) = public_key(der) else { return };
    for off in [StageSet::NONE, StageSet::NONE.with(Stage::Authentication)] {
        if let Ok(encrypted) = rsa_encrypt_premaster(key.spki_der, &[1; 48], off) {
            assert!(encrypted.len() <= 1024, "it fits a ClientKeyExchange");
        }
        for scheme in [0x0401, 0x0403, 0x0503, 0x0804] {
            let _ = verify_signature(der, scheme, b"message", &[0x30; 70], off);
        }
    }
}

/// Real primitives at bytes of the server's choice: a ticket's nonce, and records of every suite.
pub fn real_crypto(data: &[u8]) {
    let Some((choice, rest)) = data.split_first() else { return };
    let suite = Suite::ALL[usize::from(*choice) % Suite::ALL.len()];
    let off = StageSet::NONE;
    let mut psk = [0; 48];
    let psk = &mut psk[..suite.hash().digest_bytes()];
    hkdf_expand_label(suite.hash(), off, &[1; 32], b"resumption", &rest[..rest.len().min(255)], psk);
    assert!(psk.iter().any(|byte| *byte != 0));

    let tls13 = suite.version() == tlsdyno_tls::Version::Tls13;
    let mut opener = if tls13 {
        Opener::tls13(suite, off, psk)
    } else {
        let block = vec![2; suite.protection().key_block_bytes()];
        Opener::tls12(suite, off, &block, Side::Server, *choice >= 128)
    };
    let header = record::Header::new(record::APPLICATION_DATA, rest.len() as u16).bytes;
    assert!(opener.open(header, &mut rest.to_vec()).is_err(), "nobody guesses a tag");
}

/// A client that receives `data`, whole and in pieces: both must end alike, an error must leave its alert, and nothing may grow
/// beyond its bound.
///
/// Random bytes never get past encryption. Here they do: every no-op stage is off but authentication, so that keys, Finished and
/// tags are constants, and the input is a list of [`put_record`] records, plain or "protected", instead of raw bytes.
pub fn client_receive(data: &[u8]) {
    let Some((choice, script)) = data.split_first() else {
        return;
    };
    let choice = Choice::of(*choice);
    let bytes = if choice.raw { script.to_vec() } else { records(script) };
    let whole = run(&choice, &bytes, usize::MAX);
    let pieces = run(&choice, &bytes, 1 + usize::from(choice.piece));
    assert_eq!(whole.result, pieces.result, "however the input is cut");
    assert!(whole.plaintext == pieces.plaintext && whole.out == pieces.out);
    assert_eq!(whole.sessions, pieces.sessions);
    assert_eq!(whole.connected, pieces.connected);
    assert!(whole.plaintext.len() <= bytes.len());
    assert!(whole.out.len() <= 4096 + 2 * bytes.len(), "answers are bounded by what was received");
    if whole.result.as_ref().is_err_and(|error| error.alert().is_some()) {
        assert!(whole.out.len() > whole.out_before_error, "the server is told why");
    }
}

/// How one input is run, from its first byte.
struct Choice {
    raw: bool,
    /// Offer a session of the script's own version.
    resume: bool,
    tls12: bool,
    piece: u8,
}

impl Choice {
    fn of(byte: u8) -> Choice {
        Choice { raw: byte & 1 != 0, resume: byte & 2 != 0, tls12: byte & 4 != 0, piece: byte >> 3 }
    }

    fn config(&self) -> &'static Arc<Config> {
        static CONFIGS: [OnceLock<Arc<Config>>; 2] = [const { OnceLock::new() }; 2];
        CONFIGS[usize::from(self.tls12)].get_or_init(|| {
            // The first is offered alone, so that its hash is known at once; the others wait for the server's choice.
            let suites = match self.tls12 {
                false => vec![Suite::Tls13Aes128Gcm],
                true => {
                    vec![Suite::EcdheRsaAes128Gcm, Suite::EcdheRsaAes256Gcm, Suite::RsaAes128Sha, Suite::Tls13Aes256Gcm]
                }
            };
            let stages_off = StageSet::PROVIDER.without(Stage::Authentication);
            let alpn = vec!["http/1.1".to_owned()];
            let settings = Settings { suites, stages_off, alpn, effort: Effort::Floor, ..Settings::default() };
            Arc::new(Config::new(settings).expect("valid settings"))
        })
    }

    fn session(&self) -> Option<Session> {
        static SESSIONS: [OnceLock<Option<Session>>; 2] = [const { OnceLock::new() }; 2];
        let script = if self.tls12 { tls12_conversation() } else { tls13_conversation() };
        let first = || run(&Choice { resume: false, ..*self }, &records(&script[1..]), usize::MAX).session;
        self.resume.then(|| SESSIONS[usize::from(self.tls12)].get_or_init(first).clone()).flatten()
    }
}

/// What came of one run.
struct Run {
    result: Result<(), Error>,
    plaintext: Vec<u8>,
    out: Vec<u8>,
    out_before_error: usize,
    sessions: usize,
    session: Option<Session>,
    connected: bool,
}

#[derive(Default)]
struct Received {
    plaintext: Vec<u8>,
    sessions: Vec<Session>,
}

impl Receiver for Received {
    fn plaintext(&mut self, bytes: &[u8]) {
        self.plaintext.extend_from_slice(bytes);
    }

    fn session(&mut self, session: Session) {
        assert!(session.size_bytes() <= limits::TICKET + 1024);
        self.sessions.push(session);
    }
}

struct Constant;

impl Entropy for Constant {
    fn fill(&mut self, bytes: &mut [u8]) {
        bytes.fill(0x42);
    }
}

fn run(choice: &Choice, bytes: &[u8], piece: usize) -> Run {
    let mut out = Vec::new();
    let mut received = Received::default();
    let mut client = Client::new(choice.config(), choice.session(), &mut Constant, 0, &mut out);
    let mut bytes = bytes.to_vec();
    let mut result = Ok(());
    let mut out_before_error = 0;
    let mut connected = false;
    for piece in bytes.chunks_mut(piece) {
        out_before_error = out.len();
        result = client.receive(piece, 1000, &mut Constant, &mut out, &mut received);
        connected |= client.is_connected();
        assert_eq!(client.handshake().is_some(), client.is_connected());
        if result.is_err() {
            let again = client.receive(&mut [22, 3, 3, 0, 0], 1000, &mut Constant, &mut out, &mut received);
            assert_eq!(again, Err(Error::Failed));
            break;
        }
    }
    connected &= result.is_ok();
    let Received { plaintext, mut sessions } = received;
    Run { result, plaintext, out, out_before_error, sessions: sessions.len(), session: sessions.pop(), connected }
}

/// Whether `data` ends with a complete handshake: for the test that the seeds are not vacuous.
pub fn connects(data: &[u8]) -> bool {
    let choice = Choice::of(data[0]);
    run(&choice, &records(&data[1..]), usize::MAX).connected
}

/// Flag of a record that is protected as the no-op stages do it in TLS 1.3.
const PROTECTED_13: u8 = 0x80;
/// The same for AES-GCM in TLS 1.2.
const PROTECTED_12: u8 = 0x40;

/// Appends one record to a script: content type with flags, length, content.
fn put_record(script: &mut Vec<u8>, kind: u8, content: &[u8]) {
    script.push(kind);
    put_vector16(script, |out| out.extend_from_slice(content));
}

/// The bytes on the wire of a script; a length that points beyond the end takes what is left.
fn records(mut script: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    while let [kind, high, low, rest @ ..] = script {
        let length = usize::from(u16::from_be_bytes([*high, *low]) % 0x4800).min(rest.len());
        let (content, rest) = rest.split_at(length);
        script = rest;
        let inner = kind & 0x3f;
        let header = |kind, length: usize| record::Header::new(kind, length as u16).bytes;
        if kind & PROTECTED_13 != 0 {
            out.extend_from_slice(&header(record::APPLICATION_DATA, length + 17));
            out.extend_from_slice(content);
            out.push(inner);
            out.extend_from_slice(&[0; 16]);
        } else if kind & PROTECTED_12 != 0 {
            out.extend_from_slice(&header(inner, length + 24));
            out.extend_from_slice(&[0; 8]);
            out.extend_from_slice(content);
            out.extend_from_slice(&[0; 16]);
        } else {
            out.extend_from_slice(&header(inner, length));
            out.extend_from_slice(content);
        }
    }
    out
}

fn message<'a>(message: &impl Body<'a>) -> Vec<u8> {
    let mut out = Vec::new();
    handshake::put(&mut out, message);
    out
}

fn server_hello(suite: u16, session_id: &[u8], random: &[u8; 32], extensions: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
    let mut block = Vec::new();
    extensions(&mut block);
    let extensions = Extensions::decode("seed", &block).expect("a well-formed block");
    let version = hello::TLS12;
    message(&ServerHello { version, random, session_id, suite, compression: 0, extensions })
}

fn put_tls13_share(out: &mut Vec<u8>) {
    put_extension(out, hello::SUPPORTED_VERSIONS, |out| put_u16(out, hello::TLS13));
    put_extension(out, hello::KEY_SHARE, |out| {
        put_u16(out, 29);
        put_vector16(out, |out| out.extend_from_slice(&[9; 32]));
    });
}

fn finished(length: u8) -> Vec<u8> {
    let mut out = vec![handshake::FINISHED, 0, 0, length];
    out.resize(4 + usize::from(length), 0x3c);
    out
}

/// What follows the server's Finished in TLS 1.3: ticket, KeyUpdate, data, close_notify.
fn put_tls13_after_handshake(script: &mut Vec<u8>) {
    let protected = |kind| kind | PROTECTED_13;
    let extensions = Extensions::default();
    let ticket = NewSessionTicket13 { lifetime_s: 7200, age_add: 1, nonce: &[0; 8], ticket: &[7; 100], extensions };
    put_record(script, protected(record::HANDSHAKE), &message(&ticket));
    put_record(script, protected(record::HANDSHAKE), &message(&KeyUpdate { requested: true }));
    put_record(script, protected(record::APPLICATION_DATA), b"HTTP/1.1 200 OK\r\n\r\n");
    put_record(script, protected(record::ALERT), &[1, 0]);
}

/// Seeds for [`http_response`].
pub fn http_seeds() -> Vec<Vec<u8>> {
    let texts: [&[u8]; 4] = [
        b"\x06HTTP/1.1 200 OK\r\nContent-Length: 5\r\nConnection: close\r\n\r\nhello",
        b"\x02HTTP/1.1 302 Found\r\nLocation: ../a/./b?c#d\r\nTransfer-Encoding: chunked\r\n\r\n5;x=y\r\nhello\r\n0\r\nT: x\r\n\r\n",
        b"\x09HTTP/1.1 100 Continue\r\n\r\nHTTP/1.0 301 x\nLOCATION:http://me@[::1]:8080/a/../b\n\nuntil the end",
        b"\x04HTTP/1.1 308 x\r\nLocation: //h\r\nLocation: //h\r\nContent-Length: 0\r\n\r\nHTTP",
    ];
    texts.map(<[u8]>::to_vec).to_vec()
}

/// Seeds for [`client_receive`]: whole conversations of both versions, full and resumed.
pub fn conversations() -> Vec<Vec<u8>> {
    vec![tls13_conversation(), tls13_resumed(), tls13_retry(), tls12_conversation(), tls12_resumed()]
}

fn tls13_conversation() -> Vec<u8> {
    let mut script = vec![0];
    put_record(&mut script, record::HANDSHAKE, &server_hello(0x1301, &[], &[1; 32], put_tls13_share));
    put_tls13_authenticated(&mut script, 32);
    script
}

/// The second flight with certificate, and what follows it.
fn put_tls13_authenticated(script: &mut Vec<u8>, hash_bytes: u8) {
    put_record(script, record::CHANGE_CIPHER_SPEC, &[1]);
    let mut alpn = Vec::new();
    put_extension(&mut alpn, hello::ALPN, |out| {
        put_vector16(out, |out| put_vector8(out, |out| out.extend_from_slice(b"http/1.1")));
    });
    let extensions = Extensions::decode("seed", &alpn).expect("a well-formed block");
    let mut flight = message(&EncryptedExtensions { extensions });
    let mut algorithms = Vec::new();
    put_extension(&mut algorithms, hello::SIGNATURE_ALGORITHMS, |out| out.extend_from_slice(&[0, 2, 4, 3]));
    let extensions = Extensions::decode("seed", &algorithms).expect("a well-formed block");
    flight.extend(message(&CertificateRequest13 { context: &[], extensions }));
    let chain = vec![(&[0x30; 200][..], Extensions::default())];
    flight.extend(message(&Certificate13 { context: &[], chain }));
    flight.extend(message(&CertificateVerify { scheme: 0x0403, signature: &[1; 70] }));
    flight.extend(finished(hash_bytes));
    put_record(script, record::HANDSHAKE | PROTECTED_13, &flight);
    put_tls13_after_handshake(script);
}

fn tls13_resumed() -> Vec<u8> {
    let mut script = vec![2];
    let hello = server_hello(0x1301, &[], &[1; 32], |out| {
        put_tls13_share(out);
        put_extension(out, hello::PRE_SHARED_KEY, |out| put_u16(out, 0));
    });
    put_record(&mut script, record::HANDSHAKE, &hello);
    let mut flight = message(&EncryptedExtensions { extensions: Extensions::default() });
    flight.extend(finished(32));
    put_record(&mut script, record::HANDSHAKE | PROTECTED_13, &flight);
    put_tls13_after_handshake(&mut script);
    script
}

/// HelloRetryRequest with cookie, at a client that offers both versions.
fn tls13_retry() -> Vec<u8> {
    let mut script = vec![4];
    let retry = server_hello(0x1302, &[], &hello::RETRY_RANDOM, |out| {
        put_extension(out, hello::SUPPORTED_VERSIONS, |out| put_u16(out, hello::TLS13));
        put_extension(out, hello::COOKIE, |out| put_vector16(out, |out| out.extend_from_slice(b"cookie")));
    });
    put_record(&mut script, record::HANDSHAKE, &retry);
    put_record(&mut script, record::HANDSHAKE, &server_hello(0x1302, &[], &[1; 32], put_tls13_share));
    put_tls13_authenticated(&mut script, 48);
    script
}

fn tls12_extensions(out: &mut Vec<u8>) {
    put_extension(out, hello::RENEGOTIATION_INFO, |out| out.push(0));
    put_extension(out, hello::EXTENDED_MASTER_SECRET, |_| ());
    put_extension(out, hello::SESSION_TICKET, |_| ());
}

fn put_tls12_end(script: &mut Vec<u8>) {
    let ticket = NewSessionTicket12 { lifetime_s: 300, ticket: &[7; 100] };
    put_record(script, record::HANDSHAKE, &message(&ticket));
    put_record(script, record::CHANGE_CIPHER_SPEC, &[1]);
    put_record(script, record::HANDSHAKE | PROTECTED_12, &finished(12));
    put_record(script, record::HANDSHAKE | PROTECTED_12, &[0; 4]); // HelloRequest
    put_record(script, record::APPLICATION_DATA | PROTECTED_12, b"HTTP/1.1 200 OK\r\n\r\n");
    put_record(script, record::ALERT | PROTECTED_12, &[1, 0]);
}

fn tls12_conversation() -> Vec<u8> {
    let mut script = vec![4];
    let mut flight = server_hello(0xc02f, &[], &[1; 32], tls12_extensions);
    flight.extend(message(&Certificate12 { chain: vec![&[0x30; 200]] }));
    let (parameters, public, signature) = (&[][..], &[9; 32][..], &[1; 256][..]);
    flight.extend(message(&ServerKeyExchange { parameters, group: 29, public, scheme: 0x0401, signature }));
    flight.extend(message(&CertificateRequest12 { types: &[1], schemes: &[4, 1], authorities: &[] }));
    flight.extend([handshake::SERVER_HELLO_DONE, 0, 0, 0]);
    put_record(&mut script, record::HANDSHAKE, &flight);
    put_tls12_end(&mut script);
    script
}

fn tls12_resumed() -> Vec<u8> {
    let mut script = vec![6];
    // The made-up session id of a client that offers a ticket is constant here.
    put_record(&mut script, record::HANDSHAKE, &server_hello(0xc02f, &[0x42; 32], &[1; 32], tls12_extensions));
    put_tls12_end(&mut script);
    script
}
