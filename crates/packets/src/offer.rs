//! What hellos say that is counted.

use tlsdyno_wire::codec::Reader;
use tlsdyno_wire::hello::{self, ClientHello, ServerHello, TLS13};

/// Most groups of a hello that are counted.
const MOST_GROUPS: usize = 32;

/// Code point of ecdsa_secp256r1_sha256 (RFC 9846 section 4.2.3).
const ECDSA_P256: u16 = 0x0403;
/// Longest name of a server (RFC 1035 section 2.3.4), bytes.
const LONGEST_NAME: usize = 255;

/// What a client offers.
#[derive(Debug)]
pub struct Offer {
    /// Code points, without those that say nothing (GREASE, RFC 8701).
    pub groups: Vec<u16>,
    pub has_tls13: bool,
    /// A pre-shared key, or a session of TLS 1.2.
    pub has_session: bool,
    pub has_early_data: bool,
    /// ALPN offers HTTP/2, HTTP/1.1, or anything at all.
    pub has_http2: bool,
    pub has_http1: bool,
    pub has_alpn: bool,
    /// It takes a certificate with a P-256 key.
    pub has_ecdsa: bool,
    /// Name of the server in small letters, if it is kept; empty where the hello has none.
    pub name: Option<String>,
}

impl Offer {
    pub fn of(hello: &ClientHello<'_>, keeps_name: bool) -> Offer {
        let get = |kind| hello.extensions.get(kind);
        let codes = |kind| {
            let list = get(kind).and_then(|body| body.get(2..)).unwrap_or_default();
            list.chunks_exact(2).map(|code| u16::from_be_bytes([code[0], code[1]]))
        };
        let mut groups: Vec<u16> =
            codes(hello::SUPPORTED_GROUPS).filter(|code| code & 0x0f0f != 0x0a0a).take(MOST_GROUPS).collect();
        groups.sort_unstable();
        groups.dedup();
        let has_tls13 = hello.offers_version(TLS13).unwrap_or(false);
        let has_ticket = get(hello::SESSION_TICKET).is_some_and(|ticket| !ticket.is_empty());
        // Who offers TLS 1.3 sends an id in any case (RFC 9846 section 4.1.2), so that it may not be a session's.
        let has_id = !hello.session_id.is_empty() && !has_tls13;
        let (mut has_http2, mut has_http1) = (false, false);
        let mut names = Reader::new("ALPN", get(hello::ALPN).and_then(|body| body.get(2..)).unwrap_or_default());
        while let Ok(name) = names.vector8() {
            has_http2 |= name == b"h2";
            has_http1 |= name == b"http/1.1";
        }
        Offer {
            groups,
            has_tls13,
            has_session: get(hello::PRE_SHARED_KEY).is_some() || has_ticket || has_id,
            has_early_data: get(hello::EARLY_DATA).is_some(),
            has_http2,
            has_http1,
            has_alpn: get(hello::ALPN).is_some(),
            has_ecdsa: codes(hello::SIGNATURE_ALGORITHMS).any(|code| code == ECDSA_P256),
            name: keeps_name.then(|| {
                let name = hello.server_name().ok().flatten().unwrap_or_default();
                String::from_utf8_lossy(&name[..name.len().min(LONGEST_NAME)]).to_ascii_lowercase()
            }),
        }
    }
}

/// What a server chose.
#[derive(Debug)]
pub struct Answer {
    /// Code point of the version.
    pub version: u16,
    /// Code point of the suite.
    pub suite: u16,
    /// Code point of the group, which only a ServerHello of TLS 1.3 tells.
    pub group: Option<u16>,
    /// It chose a pre-shared key. The session id says nothing in TLS 1.3, where it is always sent back.
    pub accepts_psk: bool,
}

impl Answer {
    pub fn of(hello: &ServerHello<'_>) -> Answer {
        Answer {
            version: hello.chosen_version().unwrap_or(hello.version),
            suite: hello.suite,
            group: hello.key_share().ok().flatten().map(|(group, _)| group),
            accepts_psk: hello.extensions.get(hello::PRE_SHARED_KEY).is_some(),
        }
    }

    /// What the beginning of a ServerHello of `length` bytes tells. Its end is not captured where a large key share has
    /// it take two segments. In TLS 1.3 it has supported_versions, key_share and perhaps pre_shared_key: lengths tell
    /// whether that is there (RFC 9846 section 4.1.3).
    pub fn of_beginning(body: &[u8], length: usize) -> Option<Answer> {
        let mut reader = Reader::new("ServerHello", body);
        reader.u16().ok()?;
        let random = reader.array::<32>().ok()?;
        reader.vector8().ok()?;
        let suite = reader.u16().ok()?;
        reader.u8().ok()?;
        let extensions = usize::from(reader.u16().ok()?);
        let is_whole = body.len() - reader.remaining() + extensions == length;
        loop {
            let (kind, size) = (reader.u16().ok()?, usize::from(reader.u16().ok()?));
            if kind == hello::KEY_SHARE {
                let group = reader.u16().ok()?;
                // Each of the other two has a header and two bytes.
                let others = extensions.checked_sub(4 + size)?;
                let is_plain = is_whole && *random != hello::RETRY_RANDOM && (others == 6 || others == 12);
                let answer = Answer { version: TLS13, suite, group: Some(group), accepts_psk: others == 12 };
                return is_plain.then_some(answer);
            }
            reader.take(size).ok()?;
        }
    }

    /// Length of a record of TLS 1.3 that protects so many bytes: their type and a tag come with them (RFC 9846
    /// section 5.2). The tag of TLS_AES_128_CCM_8_SHA256 is short.
    fn record_bytes(&self, bytes: usize) -> usize {
        bytes + 1 + if self.suite == 0x1305 { 8 } else { 16 }
    }

    /// Length of the record with the client's Finished: a header and a hash, which is SHA-384 only in
    /// TLS_AES_256_GCM_SHA384.
    pub fn finished_bytes(&self) -> usize {
        self.record_bytes(4 + if self.suite == 0x1302 { 48 } else { 32 })
    }

    /// Length of the record with an alert: its level and what it says.
    pub fn alert_bytes(&self) -> usize {
        self.record_bytes(2)
    }
}
