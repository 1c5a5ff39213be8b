//! ClientHello and ServerHello: views that borrow from the bytes, and a prepared ClientHello for senders of many.

use crate::codec::{DecodeError, Problem, Reader, put_u16, put_vector8, put_vector16};
use crate::handshake::{self, Body};
use crate::{limits, record};

/// Code point of TLS 1.2.
pub const TLS12: u16 = 0x0303;
/// Code point of TLS 1.3.
pub const TLS13: u16 = 0x0304;

/// Extension server_name (RFC 6066 section 3).
pub const SERVER_NAME: u16 = 0;
/// Extension supported_groups (RFC 9846 section 4.2.7).
pub const SUPPORTED_GROUPS: u16 = 10;
/// Extension ec_point_formats (RFC 8422 section 5.1.2).
pub const EC_POINT_FORMATS: u16 = 11;
/// Extension signature_algorithms (RFC 9846 section 4.2.3).
pub const SIGNATURE_ALGORITHMS: u16 = 13;
/// Extension application_layer_protocol_negotiation (RFC 7301).
pub const ALPN: u16 = 16;
/// Extension encrypt_then_mac (RFC 7366).
pub const ENCRYPT_THEN_MAC: u16 = 22;
/// Extension extended_master_secret (RFC 7627).
pub const EXTENDED_MASTER_SECRET: u16 = 23;
/// Extension session_ticket (RFC 5077).
pub const SESSION_TICKET: u16 = 35;
/// Extension `compress_certificate` (RFC 8879).
pub const COMPRESS_CERTIFICATE: u16 = 27;
/// Extension pre_shared_key (RFC 9846 section 4.2.11).
pub const PRE_SHARED_KEY: u16 = 41;
/// Extension early_data (RFC 9846 section 4.2.10).
pub const EARLY_DATA: u16 = 42;
/// Extension supported_versions (RFC 9846 section 4.2.1).
pub const SUPPORTED_VERSIONS: u16 = 43;
/// Extension cookie (RFC 9846 section 4.2.2).
pub const COOKIE: u16 = 44;
/// Extension psk_key_exchange_modes (RFC 9846 section 4.2.9).
pub const PSK_KEY_EXCHANGE_MODES: u16 = 45;
/// Extension signature_algorithms_cert (RFC 9846 section 4.2.3).
pub const SIGNATURE_ALGORITHMS_CERT: u16 = 50;
/// Extension key_share (RFC 9846 section 4.2.8).
pub const KEY_SHARE: u16 = 51;
/// Extension renegotiation_info (RFC 5746).
pub const RENEGOTIATION_INFO: u16 = 0xff01;

/// The random of a ServerHello that is a HelloRetryRequest (RFC 9846 section 4.1.3).
pub const RETRY_RANDOM: [u8; 32] = [
    0xcf, 0x21, 0xad, 0x74, 0xe5, 0x9a, 0x61, 0x11, 0xbe, 0x1d, 0x8c, 0x02, 0x1e, 0x65, 0xb8, 0x91, 0xc2, 0xa2, 0x11,
    0x16, 0x7a, 0xbb, 0x8c, 0x5e, 0x07, 0x9e, 0x09, 0xe2, 0xc8, 0xa8, 0x33, 0x9c,
];

/// The end of the random of a TLS 1.3 server that chose TLS 1.2 (RFC 9846 section 4.1.3).
pub const DOWNGRADE_TLS12: [u8; 8] = *b"DOWNGRD\x01";
/// The same for TLS 1.1 and below.
pub const DOWNGRADE_TLS11: [u8; 8] = *b"DOWNGRD\x00";

/// A checked extension block: whole extensions, no type twice, at most [`limits::EXTENSIONS`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Extensions<'a> {
    bytes: &'a [u8],
}

impl<'a> Extensions<'a> {
    /// Checks a block (without its own length) that belongs to the message `what`.
    pub fn decode(what: &'static str, bytes: &'a [u8]) -> Result<Extensions<'a>, DecodeError> {
        let mut reader = Reader::new(what, bytes);
        let mut types = [0_u16; limits::EXTENSIONS];
        let mut count = 0;
        while !reader.is_empty() {
            let kind = reader.u16()?;
            reader.vector16()?;
            if types[..count].contains(&kind) {
                return Err(reader.forbidden("extension that comes twice"));
            }
            *types.get_mut(count).ok_or_else(|| reader.forbidden("number of extensions"))? = kind;
            count += 1;
        }
        Ok(Extensions { bytes })
    }

    /// The block as on the wire, without its length.
    pub fn bytes(&self) -> &'a [u8] {
        self.bytes
    }

    /// Types and bodies in the order on the wire.
    pub fn iter(&self) -> impl Iterator<Item = (u16, &'a [u8])> + use<'a> {
        let mut reader = Reader::new("extensions", self.bytes);
        std::iter::from_fn(move || Some((reader.u16().ok()?, reader.vector16().ok()?)))
    }

    /// The body of the extension of this type.
    pub fn get(&self, kind: u16) -> Option<&'a [u8]> {
        self.iter().find(|(found, _)| *found == kind).map(|(_, body)| body)
    }
}

/// Extensions at the end of a TLS 1.2 hello: the whole block may be missing (RFC 5246 section 7.4.1.4).
fn optional_extensions<'a>(what: &'static str, reader: &mut Reader<'a>) -> Result<Extensions<'a>, DecodeError> {
    if reader.is_empty() {
        return Ok(Extensions::default());
    }
    let extensions = Extensions::decode(what, reader.vector16()?)?;
    reader.finish()?;
    Ok(extensions)
}

/// A session id: at most 32 bytes.
fn session_id<'a>(reader: &mut Reader<'a>) -> Result<&'a [u8], DecodeError> {
    match reader.vector8()? {
        id if id.len() > 32 => Err(reader.forbidden("session id length")),
        id => Ok(id),
    }
}

/// Code points of two bytes each.
fn code_points(bytes: &[u8]) -> impl Iterator<Item = u16> + '_ {
    bytes.chunks_exact(2).map(|pair| u16::from_be_bytes([pair[0], pair[1]]))
}

/// A ClientHello (RFC 9846 section 4.1.2, RFC 5246 section 7.4.1.2).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientHello<'a> {
    /// The field legacy_version.
    pub version: u16,
    /// The client's random bytes.
    pub random: &'a [u8; 32],
    /// TLS 1.2 session id, or the compatibility session id of TLS 1.3.
    pub session_id: &'a [u8],
    /// Cipher suites, two bytes each.
    pub suites: &'a [u8],
    /// Compression methods, one byte each.
    pub compression: &'a [u8],
    /// The extensions in the order on the wire.
    pub extensions: Extensions<'a>,
}

impl<'a> Body<'a> for ClientHello<'a> {
    const KIND: u8 = handshake::CLIENT_HELLO;

    fn decode(body: &'a [u8]) -> Result<Self, DecodeError> {
        let mut reader = Reader::new("ClientHello", body);
        let version = reader.u16()?;
        let random = reader.array()?;
        let session_id = session_id(&mut reader)?;
        let suites = reader.vector16()?;
        if suites.is_empty() || suites.len() % 2 != 0 {
            return Err(reader.forbidden("cipher_suites length"));
        }
        let compression = reader.vector8()?;
        if compression.is_empty() {
            return Err(reader.forbidden("empty compression_methods"));
        }
        let extensions = optional_extensions("ClientHello", &mut reader)?;
        Ok(ClientHello { version, random, session_id, suites, compression, extensions })
    }

    fn encode(&self, out: &mut Vec<u8>) {
        put_u16(out, self.version);
        out.extend_from_slice(self.random);
        put_vector8(out, |out| out.extend_from_slice(self.session_id));
        put_vector16(out, |out| out.extend_from_slice(self.suites));
        put_vector8(out, |out| out.extend_from_slice(self.compression));
        put_vector16(out, |out| out.extend_from_slice(self.extensions.bytes()));
    }
}

impl<'a> ClientHello<'a> {
    /// The first host name of server_name.
    pub fn server_name(&self) -> Result<Option<&'a [u8]>, DecodeError> {
        let Some(body) = self.extensions.get(SERVER_NAME) else {
            return Ok(None);
        };
        let mut reader = Reader::new("server_name", body);
        let mut list = Reader::new("server_name", reader.vector16()?);
        reader.finish()?;
        while !list.is_empty() {
            let kind = list.u8()?;
            let name = list.vector16()?;
            if kind == 0 {
                return Ok(Some(name));
            }
        }
        Ok(None)
    }

    /// Whether a version is offered, in supported_versions or else as legacy_version.
    pub fn offers_version(&self, version: u16) -> Result<bool, DecodeError> {
        let Some(body) = self.extensions.get(SUPPORTED_VERSIONS) else {
            return Ok(version <= self.version && version <= TLS12);
        };
        let mut reader = Reader::new("supported_versions", body);
        let list = reader.vector8()?;
        reader.finish()?;
        Ok(code_points(list).any(|offered| offered == version))
    }

    /// The offered pre-shared keys of TLS 1.3.
    pub fn pre_shared_keys(&self) -> Result<Option<OfferedPsks<'a>>, DecodeError> {
        self.extensions.get(PRE_SHARED_KEY).map(OfferedPsks::decode).transpose()
    }
}

/// The pre_shared_key extension of a ClientHello: as many identities as binders (RFC 9846 section 4.2.11).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OfferedPsks<'a> {
    identities: &'a [u8],
    binders: &'a [u8],
}

impl<'a> OfferedPsks<'a> {
    /// Parses the body of pre_shared_key.
    pub fn decode(body: &'a [u8]) -> Result<OfferedPsks<'a>, DecodeError> {
        let mut reader = Reader::new("pre_shared_key", body);
        let identities = reader.vector16()?;
        let binders = reader.vector16()?;
        reader.finish()?;
        let mut count = 0_usize;
        let mut list = Reader::new("pre_shared_key", identities);
        while !list.is_empty() {
            if list.vector16()?.is_empty() {
                return Err(list.forbidden("empty identity"));
            }
            list.u32()?;
            count += 1;
        }
        let mut list = Reader::new("pre_shared_key", binders);
        while !list.is_empty() {
            list.vector8()?;
            count = count.checked_sub(1).ok_or_else(|| list.forbidden("number of binders"))?;
        }
        if count != 0 || identities.is_empty() {
            return Err(list.forbidden("number of identities"));
        }
        Ok(OfferedPsks { identities, binders })
    }

    /// Identities with their obfuscated ages, in order.
    pub fn identities(&self) -> impl Iterator<Item = (&'a [u8], u32)> + use<'a> {
        let mut reader = Reader::new("pre_shared_key", self.identities);
        std::iter::from_fn(move || Some((reader.vector16().ok()?, reader.u32().ok()?)))
    }

    /// The binders in the order of the identities.
    pub fn binders(&self) -> impl Iterator<Item = &'a [u8]> + use<'a> {
        let mut reader = Reader::new("pre_shared_key", self.binders);
        std::iter::from_fn(move || reader.vector8().ok())
    }
}

/// A ServerHello or HelloRetryRequest (RFC 9846 section 4.1.3, RFC 5246 section 7.4.1.3).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerHello<'a> {
    /// The field legacy_version.
    pub version: u16,
    /// The server's random bytes.
    pub random: &'a [u8; 32],
    /// The session's id (TLS 1.2), or the echo of the client's (TLS 1.3).
    pub session_id: &'a [u8],
    /// Code point of the chosen suite.
    pub suite: u16,
    /// Code point of the compression method.
    pub compression: u8,
    /// The extensions in the order on the wire.
    pub extensions: Extensions<'a>,
}

impl<'a> Body<'a> for ServerHello<'a> {
    const KIND: u8 = handshake::SERVER_HELLO;

    fn decode(body: &'a [u8]) -> Result<Self, DecodeError> {
        let mut reader = Reader::new("ServerHello", body);
        let version = reader.u16()?;
        let random = reader.array()?;
        let session_id = session_id(&mut reader)?;
        let suite = reader.u16()?;
        let compression = reader.u8()?;
        let extensions = optional_extensions("ServerHello", &mut reader)?;
        Ok(ServerHello { version, random, session_id, suite, compression, extensions })
    }

    fn encode(&self, out: &mut Vec<u8>) {
        put_u16(out, self.version);
        out.extend_from_slice(self.random);
        put_vector8(out, |out| out.extend_from_slice(self.session_id));
        put_u16(out, self.suite);
        out.push(self.compression);
        put_vector16(out, |out| out.extend_from_slice(self.extensions.bytes()));
    }
}

impl<'a> ServerHello<'a> {
    /// Whether the message is a HelloRetryRequest, by its random.
    pub fn is_retry(&self) -> bool {
        *self.random == RETRY_RANDOM
    }

    /// The version chosen: supported_versions, or else legacy_version.
    pub fn chosen_version(&self) -> Result<u16, DecodeError> {
        self.u16_extension("supported_versions", SUPPORTED_VERSIONS).map(|version| version.unwrap_or(self.version))
    }

    /// The server's key share: group and public key.
    pub fn key_share(&self) -> Result<Option<(u16, &'a [u8])>, DecodeError> {
        let Some(body) = self.extensions.get(KEY_SHARE) else {
            return Ok(None);
        };
        let mut reader = Reader::new("key_share", body);
        let share = (reader.u16()?, reader.vector16()?);
        reader.finish()?;
        Ok(Some(share))
    }

    /// The group that a HelloRetryRequest asks for.
    pub fn retry_group(&self) -> Result<Option<u16>, DecodeError> {
        self.u16_extension("key_share", KEY_SHARE)
    }

    /// The index of the accepted pre-shared key.
    pub fn selected_psk(&self) -> Result<Option<u16>, DecodeError> {
        self.u16_extension("pre_shared_key", PRE_SHARED_KEY)
    }

    /// The cookie of a HelloRetryRequest, to be sent back.
    pub fn cookie(&self) -> Result<Option<&'a [u8]>, DecodeError> {
        let Some(body) = self.extensions.get(COOKIE) else {
            return Ok(None);
        };
        let mut reader = Reader::new("cookie", body);
        let cookie = reader.vector16()?;
        reader.finish()?;
        match cookie {
            [] => Err(DecodeError { what: "cookie", problem: Problem::Value("empty value") }),
            _ => Ok(Some(cookie)),
        }
    }

    fn u16_extension(&self, what: &'static str, kind: u16) -> Result<Option<u16>, DecodeError> {
        let Some(body) = self.extensions.get(kind) else {
            return Ok(None);
        };
        let mut reader = Reader::new(what, body);
        let value = reader.u16()?;
        reader.finish()?;
        Ok(Some(value))
    }
}

/// The one protocol that a server chose by ALPN (RFC 7301 section 3.1).
pub fn decode_alpn(body: &[u8]) -> Result<&[u8], DecodeError> {
    let mut reader = Reader::new("ALPN", body);
    let mut list = Reader::new("ALPN", reader.vector16()?);
    reader.finish()?;
    let protocol = list.vector8()?;
    list.finish()?;
    match protocol {
        [] => Err(list.forbidden("empty protocol name")),
        _ => Ok(protocol),
    }
}

/// A ClientHello prepared once and sent many times: only the random, the session id and a few extensions differ.
#[derive(Clone, Debug)]
pub struct Template {
    /// Suites, compression methods, the length of the extensions (to be patched), the extensions that never differ.
    tail: Vec<u8>,
    /// Where in `tail` the extensions' length is.
    extensions_at: usize,
}

impl Template {
    /// Prepares a hello that offers `suites`; `extensions` appends the extensions that are the same in every hello.
    pub fn new(suites: &[u16], extensions: impl FnOnce(&mut Vec<u8>)) -> Template {
        let mut tail = Vec::new();
        put_vector16(&mut tail, |out| suites.iter().for_each(|suite| put_u16(out, *suite)));
        put_vector8(&mut tail, |out| out.push(0)); // compression: null only
        let extensions_at = tail.len();
        tail.extend_from_slice(&[0; 2]);
        extensions(&mut tail);
        Template { tail, extensions_at }
    }

    /// Appends a record with the hello to `out`. `record_version`: 3.1 for the first hello, 3.3 for the second (RFC
    /// 9846 section 5.1).
    pub fn write<'a>(
        &self,
        out: &'a mut Vec<u8>,
        record_version: u16,
        random: &[u8; 32],
        session_id: &[u8],
    ) -> HelloWriter<'a> {
        let start = out.len();
        let id_length = u8::try_from(session_id.len()).expect("a session id has at most 32 bytes");
        out.reserve(512);
        out.push(record::HANDSHAKE);
        put_u16(out, record_version);
        out.extend_from_slice(&[0, 0, handshake::CLIENT_HELLO, 0, 0, 0]);
        put_u16(out, TLS12);
        out.extend_from_slice(random);
        out.push(id_length);
        out.extend_from_slice(session_id);
        let extensions_at = out.len() + self.extensions_at;
        out.extend_from_slice(&self.tail);
        HelloWriter { out, start, extensions_at }
    }
}

/// A ClientHello in the making: the extensions that differ are appended, then [`HelloWriter::finish`] sets the lengths.
#[derive(Debug)]
pub struct HelloWriter<'a> {
    out: &'a mut Vec<u8>,
    start: usize,
    extensions_at: usize,
}

impl HelloWriter<'_> {
    /// Appends an extension whose body `content` writes.
    pub fn extension(&mut self, kind: u16, content: impl FnOnce(&mut Vec<u8>)) {
        put_extension(self.out, kind, content);
    }

    /// Appends pre_shared_key with one identity and a binder of zeros (RFC 9846 section 4.2.11). It must be the last
    /// extension.
    pub fn pre_shared_key(&mut self, identity: &[u8], obfuscated_age: u32, binder_length: u8) {
        self.extension(PRE_SHARED_KEY, |out| {
            put_vector16(out, |out| {
                put_vector16(out, |out| out.extend_from_slice(identity));
                out.extend_from_slice(&obfuscated_age.to_be_bytes());
            });
            put_u16(out, u16::from(binder_length) + 1);
            out.push(binder_length);
            out.resize(out.len() + usize::from(binder_length), 0);
        });
    }

    /// Sets the lengths; returns where in the output the handshake message starts.
    ///
    /// # Panics
    /// If the hello does not fit one record: the caller bounds tickets and cookies ([`limits::TICKET`],
    /// [`limits::COOKIE`]).
    pub fn finish(self) -> usize {
        let end = self.out.len();
        let message = self.start + record::HEADER;
        let length = |from: usize| u16::try_from(end - from).expect("a hello fits one record").to_be_bytes();
        let (whole, body) = (length(message), length(message + handshake::HEADER));
        let extensions = length(self.extensions_at + 2);
        self.out[self.start + 3..message].copy_from_slice(&whole);
        self.out[message + 2..message + 4].copy_from_slice(&body);
        self.out[self.extensions_at..self.extensions_at + 2].copy_from_slice(&extensions);
        message
    }
}

/// Appends an extension whose body `content` writes.
pub fn put_extension(out: &mut Vec<u8>, kind: u16, content: impl FnOnce(&mut Vec<u8>)) {
    put_u16(out, kind);
    put_vector16(out, content);
}
