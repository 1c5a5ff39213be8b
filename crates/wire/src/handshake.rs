//! Handshake messages: framing, reassembly over records, and codecs of everything but the hellos (see
//! [`crate::hello`]).

mod tls12;

use std::borrow::Cow;

use crate::codec::{DecodeError, Problem, Reader, put_u16, put_vector8, put_vector16, put_vector24};
use crate::hello::{self, Extensions};
use crate::limits;
pub use tls12::{Certificate12, CertificateRequest12, NewSessionTicket12, ServerKeyExchange};

/// Message type of HelloRequest (TLS 1.2).
pub const HELLO_REQUEST: u8 = 0;
/// Message type of ClientHello.
pub const CLIENT_HELLO: u8 = 1;
/// Message type of ServerHello and HelloRetryRequest.
pub const SERVER_HELLO: u8 = 2;
/// Message type of NewSessionTicket.
pub const NEW_SESSION_TICKET: u8 = 4;
/// Message type of EndOfEarlyData (TLS 1.3).
pub const END_OF_EARLY_DATA: u8 = 5;
/// Message type of EncryptedExtensions.
pub const ENCRYPTED_EXTENSIONS: u8 = 8;
/// Message type of Certificate.
pub const CERTIFICATE: u8 = 11;
/// Message type of ServerKeyExchange (TLS 1.2).
pub const SERVER_KEY_EXCHANGE: u8 = 12;
/// Message type of CertificateRequest.
pub const CERTIFICATE_REQUEST: u8 = 13;
/// Message type of ServerHelloDone (TLS 1.2).
pub const SERVER_HELLO_DONE: u8 = 14;
/// Message type of CertificateVerify.
pub const CERTIFICATE_VERIFY: u8 = 15;
/// Message type of ClientKeyExchange (TLS 1.2).
pub const CLIENT_KEY_EXCHANGE: u8 = 16;
/// Message type of Finished.
pub const FINISHED: u8 = 20;
/// Message type of CompressedCertificate (RFC 8879).
pub const COMPRESSED_CERTIFICATE: u8 = 25;
/// Message type of KeyUpdate (TLS 1.3).
pub const KEY_UPDATE: u8 = 24;
/// The synthetic message that replaces ClientHello1 in the transcript (RFC 9846 section 4.4.1).
pub const MESSAGE_HASH: u8 = 254;

/// Bytes of a message header.
pub const HEADER: usize = 4;

/// The specification's name of a message type, for errors.
pub const fn name(kind: u8) -> &'static str {
    match kind {
        HELLO_REQUEST => "HelloRequest",
        CLIENT_HELLO => "ClientHello",
        SERVER_HELLO => "ServerHello",
        NEW_SESSION_TICKET => "NewSessionTicket",
        END_OF_EARLY_DATA => "EndOfEarlyData",
        ENCRYPTED_EXTENSIONS => "EncryptedExtensions",
        CERTIFICATE => "Certificate",
        SERVER_KEY_EXCHANGE => "ServerKeyExchange",
        COMPRESSED_CERTIFICATE => "CompressedCertificate",
        CERTIFICATE_REQUEST => "CertificateRequest",
        SERVER_HELLO_DONE => "ServerHelloDone",
        CERTIFICATE_VERIFY => "CertificateVerify",
        CLIENT_KEY_EXCHANGE => "ClientKeyExchange",
        FINISHED => "Finished",
        KEY_UPDATE => "KeyUpdate",
        MESSAGE_HASH => "message_hash",
        _ => "an unknown handshake message",
    }
}

/// One whole handshake message, header included.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message<'a>(Cow<'a, [u8]>);

impl Message<'_> {
    /// Message type.
    pub fn kind(&self) -> u8 {
        self.0[0]
    }

    /// The bytes after the header.
    pub fn body(&self) -> &[u8] {
        &self.0[HEADER..]
    }

    /// Header and body: what the transcript hashes.
    pub fn whole(&self) -> &[u8] {
        &self.0
    }
}

/// Joins the contents of handshake records into messages. Holds bytes only while a message is incomplete, at most
/// [`limits::handshake_body`] and a header.
#[derive(Debug, Default)]
pub struct Joiner {
    partial: Vec<u8>,
}

impl Joiner {
    /// Whether a message has begun and not ended: no key change may come now (RFC 9846 section 5.1).
    pub fn is_partial(&self) -> bool {
        !self.partial.is_empty()
    }

    /// Cuts the next whole message off `input`, which then starts after it. `None`: all of `input` was used up.
    pub fn next<'a>(&mut self, input: &mut &'a [u8]) -> Result<Option<Message<'a>>, DecodeError> {
        if !self.is_partial() {
            match message_length(input)? {
                Some(whole) if whole <= input.len() => {
                    let (message, rest) = input.split_at(whole);
                    *input = rest;
                    return Ok(Some(Message(Cow::Borrowed(message))));
                }
                _ => {
                    self.partial.extend_from_slice(input);
                    *input = &[];
                    return Ok(None);
                }
            }
        }
        self.fill_to(HEADER, input);
        let Some(whole) = message_length(&self.partial)? else {
            return Ok(None);
        };
        self.fill_to(whole, input);
        if self.partial.len() < whole {
            return Ok(None);
        }
        Ok(Some(Message(Cow::Owned(std::mem::take(&mut self.partial)))))
    }

    fn fill_to(&mut self, length: usize, input: &mut &[u8]) {
        let missing = length.saturating_sub(self.partial.len()).min(input.len());
        let (taken, rest) = input.split_at(missing);
        self.partial.extend_from_slice(taken);
        *input = rest;
    }
}

/// Header and body length of the message that `bytes` start with, once its header is there.
fn message_length(bytes: &[u8]) -> Result<Option<usize>, DecodeError> {
    let [kind, a, b, c, ..] = *bytes else {
        return Ok(None);
    };
    let length = u32::from_be_bytes([0, a, b, c]) as usize;
    if length > limits::handshake_body(kind) {
        return Err(DecodeError {
            what: name(kind),
            problem: Problem::Value("size: larger than this implementation accepts"),
        });
    }
    Ok(Some(HEADER + length))
}

/// A handshake message's body as a structure that borrows from the bytes.
pub trait Body<'a>: Sized {
    /// Message type.
    const KIND: u8;
    /// Reads the body; every byte must belong to it.
    fn decode(body: &'a [u8]) -> Result<Self, DecodeError>;
    /// Appends the encoded body.
    fn encode(&self, out: &mut Vec<u8>);
}

/// Appends `message` with its header.
pub fn put<'a, M: Body<'a>>(out: &mut Vec<u8>, message: &M) {
    out.push(M::KIND);
    put_vector24(out, |out| message.encode(out));
}

/// EncryptedExtensions of TLS 1.3 (RFC 9846 section 4.3.1).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EncryptedExtensions<'a> {
    /// The server's extensions.
    pub extensions: Extensions<'a>,
}

impl<'a> Body<'a> for EncryptedExtensions<'a> {
    const KIND: u8 = ENCRYPTED_EXTENSIONS;

    fn decode(body: &'a [u8]) -> Result<Self, DecodeError> {
        let mut reader = Reader::new("EncryptedExtensions", body);
        let extensions = Extensions::decode("EncryptedExtensions", reader.vector16()?)?;
        reader.finish()?;
        Ok(EncryptedExtensions { extensions })
    }

    fn encode(&self, out: &mut Vec<u8>) {
        put_vector16(out, |out| out.extend_from_slice(self.extensions.bytes()));
    }
}

/// Certificate of TLS 1.3 (RFC 9846 section 4.4.2).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Certificate13<'a> {
    /// The context of the request that this answers; empty for a server.
    pub context: &'a [u8],
    /// DER certificates, end entity first, each with its extensions.
    pub chain: Vec<(&'a [u8], Extensions<'a>)>,
}

impl<'a> Body<'a> for Certificate13<'a> {
    const KIND: u8 = CERTIFICATE;

    fn decode(body: &'a [u8]) -> Result<Self, DecodeError> {
        let mut reader = Reader::new("Certificate", body);
        let context = reader.vector8()?;
        let mut list = Reader::new("Certificate", reader.vector24()?);
        reader.finish()?;
        let mut chain = Vec::new();
        while !list.is_empty() {
            let der = list.vector24()?;
            chain.push((der, Extensions::decode("Certificate", list.vector16()?)?));
        }
        Ok(Certificate13 { context, chain })
    }

    fn encode(&self, out: &mut Vec<u8>) {
        put_vector8(out, |out| out.extend_from_slice(self.context));
        put_vector24(out, |out| {
            for (der, extensions) in &self.chain {
                put_vector24(out, |out| out.extend_from_slice(der));
                put_vector16(out, |out| out.extend_from_slice(extensions.bytes()));
            }
        });
    }
}

/// CompressedCertificate (RFC 8879 section 4): a Certificate message of TLS 1.3 without its header, compressed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CompressedCertificate<'a> {
    /// The algorithm, as in the extension `compress_certificate`.
    pub algorithm: u16,
    /// Bytes of what comes out.
    pub uncompressed_bytes: usize,
    /// The compressed bytes, at least one.
    pub compressed: &'a [u8],
}

impl<'a> Body<'a> for CompressedCertificate<'a> {
    const KIND: u8 = COMPRESSED_CERTIFICATE;

    fn decode(body: &'a [u8]) -> Result<Self, DecodeError> {
        let mut reader = Reader::new("CompressedCertificate", body);
        let (algorithm, uncompressed_bytes, compressed) = (reader.u16()?, reader.u24()?, reader.vector24()?);
        reader.finish()?;
        match compressed {
            [] => Err(reader.forbidden("length")),
            _ => Ok(CompressedCertificate { algorithm, uncompressed_bytes, compressed }),
        }
    }

    fn encode(&self, out: &mut Vec<u8>) {
        put_u16(out, self.algorithm);
        out.extend_from_slice(&(self.uncompressed_bytes as u32).to_be_bytes()[1..]);
        put_vector24(out, |out| out.extend_from_slice(self.compressed));
    }
}

/// CertificateRequest of TLS 1.3 (RFC 9846 section 4.3.2).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CertificateRequest13<'a> {
    /// To be echoed in the answer; empty during the handshake.
    pub context: &'a [u8],
    /// The server's extensions.
    pub extensions: Extensions<'a>,
}

impl<'a> Body<'a> for CertificateRequest13<'a> {
    const KIND: u8 = CERTIFICATE_REQUEST;

    fn decode(body: &'a [u8]) -> Result<Self, DecodeError> {
        let mut reader = Reader::new("CertificateRequest", body);
        let context = reader.vector8()?;
        let extensions = Extensions::decode("CertificateRequest", reader.vector16()?)?;
        reader.finish()?;
        Ok(CertificateRequest13 { context, extensions })
    }

    fn encode(&self, out: &mut Vec<u8>) {
        put_vector8(out, |out| out.extend_from_slice(self.context));
        put_vector16(out, |out| out.extend_from_slice(self.extensions.bytes()));
    }
}

/// CertificateVerify (RFC 9846 section 4.4.3).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CertificateVerify<'a> {
    /// Code point of the SignatureScheme.
    pub scheme: u16,
    /// The signature over the transcript.
    pub signature: &'a [u8],
}

impl<'a> Body<'a> for CertificateVerify<'a> {
    const KIND: u8 = CERTIFICATE_VERIFY;

    fn decode(body: &'a [u8]) -> Result<Self, DecodeError> {
        let mut reader = Reader::new("CertificateVerify", body);
        let scheme = reader.u16()?;
        let signature = reader.vector16()?;
        reader.finish()?;
        Ok(CertificateVerify { scheme, signature })
    }

    fn encode(&self, out: &mut Vec<u8>) {
        put_u16(out, self.scheme);
        put_vector16(out, |out| out.extend_from_slice(self.signature));
    }
}

/// NewSessionTicket of TLS 1.3 (RFC 9846 section 4.6.1).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewSessionTicket13<'a> {
    /// Lifetime in seconds.
    pub lifetime_s: u32,
    /// Added to the age, so that it cannot be observed.
    pub age_add: u32,
    /// Distinguishes the keys of several tickets.
    pub nonce: &'a [u8],
    /// The ticket, never empty.
    pub ticket: &'a [u8],
    /// Extensions of the ticket.
    pub extensions: Extensions<'a>,
}

impl NewSessionTicket13<'_> {
    /// Bytes of early data that the server takes with this ticket (RFC 9846 section 4.6.1).
    pub fn max_early_data(&self) -> Result<Option<u32>, DecodeError> {
        let Some(body) = self.extensions.get(hello::EARLY_DATA) else {
            return Ok(None);
        };
        let mut reader = Reader::new("early_data", body);
        let bytes = reader.u32()?;
        reader.finish()?;
        Ok(Some(bytes))
    }
}

impl<'a> Body<'a> for NewSessionTicket13<'a> {
    const KIND: u8 = NEW_SESSION_TICKET;

    fn decode(body: &'a [u8]) -> Result<Self, DecodeError> {
        let mut reader = Reader::new("NewSessionTicket", body);
        let lifetime_s = reader.u32()?;
        let age_add = reader.u32()?;
        let nonce = reader.vector8()?;
        let ticket = reader.vector16()?;
        let extensions = Extensions::decode("NewSessionTicket", reader.vector16()?)?;
        reader.finish()?;
        if ticket.is_empty() {
            return Err(reader.forbidden("empty ticket"));
        }
        Ok(NewSessionTicket13 { lifetime_s, age_add, nonce, ticket, extensions })
    }

    fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.lifetime_s.to_be_bytes());
        out.extend_from_slice(&self.age_add.to_be_bytes());
        put_vector8(out, |out| out.extend_from_slice(self.nonce));
        put_vector16(out, |out| out.extend_from_slice(self.ticket));
        put_vector16(out, |out| out.extend_from_slice(self.extensions.bytes()));
    }
}

/// KeyUpdate (RFC 9846 section 4.6.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeyUpdate {
    /// The receiver must update its own keys too.
    pub requested: bool,
}

impl Body<'_> for KeyUpdate {
    const KIND: u8 = KEY_UPDATE;

    fn decode(body: &[u8]) -> Result<Self, DecodeError> {
        let mut reader = Reader::new("KeyUpdate", body);
        let requested = match reader.u8()? {
            0 => false,
            1 => true,
            _ => return Err(reader.forbidden("request_update")),
        };
        reader.finish()?;
        Ok(KeyUpdate { requested })
    }

    fn encode(&self, out: &mut Vec<u8>) {
        out.push(u8::from(self.requested));
    }
}
