//! Every bound on what a peer can make us hold, in one place. A peer that exceeds one is refused.

/// Largest plaintext of a record (RFC 9846 section 5.1, RFC 5246 section 6.2.1).
pub const RECORD_PLAINTEXT: usize = 1 << 14;

/// Largest protected record body of TLS 1.3 (RFC 9846 section 5.2).
pub const RECORD_TLS13: usize = RECORD_PLAINTEXT + 256;

/// Largest protected record body of TLS 1.2 (RFC 5246 section 6.2.3).
pub const RECORD_TLS12: usize = RECORD_PLAINTEXT + 2048;

/// Most extensions in one block. Real hellos carry about 20.
pub const EXTENSIONS: usize = 100;

/// Largest ClientHello body; hellos with post-quantum key shares have about 1,800 bytes.
pub const CLIENT_HELLO: usize = 1 << 16;

/// Largest Certificate body, compressed or not: 100 KiB as OpenSSL's `max_cert_list`.
pub const CERTIFICATE: usize = 100 * 1024;

/// Largest body of a handshake message of this type that is held for reassembly.
///
/// Certificate chains may be long; a TLS 1.3 ticket message has at most two 64
/// KiB vectors and a nonce. Everything else is small in practice, 20,000 bytes as in OpenSSL.
pub const fn handshake_body(kind: u8) -> usize {
    match kind {
        super::handshake::CLIENT_HELLO => CLIENT_HELLO,
        super::handshake::CERTIFICATE | super::handshake::COMPRESSED_CERTIFICATE => CERTIFICATE,
        super::handshake::NEW_SESSION_TICKET => 131_338,
        _ => 20_000,
    }
}

/// Longest ticket that is kept; the hello that offers it must fit one record. Longer ones are not offered.
pub const TICKET: usize = 8 * 1024;

/// Longest HelloRetryRequest cookie that is answered; the second hello must fit one record.
pub const COOKIE: usize = 3 * 1024;

/// Most bytes of the ALPN names offered; they share the one record with ticket and cookie.
pub const ALPN: usize = 2 * 1024;

/// Longest answer of a server before TLS: those to EHLO and the features of XMPP have some hundred bytes.
pub const ANSWER: usize = 8 * 1024;

/// So much of an answer that is not the hoped-for one is told.
pub const ANSWER_QUOTED: usize = 120;
