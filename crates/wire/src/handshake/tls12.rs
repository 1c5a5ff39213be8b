//! Messages that TLS 1.2 alone has, or has in a form of its own.

use super::{Body, CERTIFICATE, CERTIFICATE_REQUEST, NEW_SESSION_TICKET, SERVER_KEY_EXCHANGE};
use crate::codec::{DecodeError, Reader, put_u16, put_vector8, put_vector16, put_vector24};

/// Certificate of TLS 1.2 (RFC 5246 section 7.4.2).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Certificate12<'a> {
    /// DER certificates, end entity first.
    pub chain: Vec<&'a [u8]>,
}

impl<'a> Body<'a> for Certificate12<'a> {
    const KIND: u8 = CERTIFICATE;

    fn decode(body: &'a [u8]) -> Result<Self, DecodeError> {
        let mut reader = Reader::new("Certificate", body);
        let mut list = Reader::new("Certificate", reader.vector24()?);
        reader.finish()?;
        let mut chain = Vec::new();
        while !list.is_empty() {
            chain.push(list.vector24()?);
        }
        Ok(Certificate12 { chain })
    }

    fn encode(&self, out: &mut Vec<u8>) {
        put_vector24(out, |out| {
            for der in &self.chain {
                put_vector24(out, |out| out.extend_from_slice(der));
            }
        });
    }
}

/// CertificateRequest of TLS 1.2 (RFC 5246 section 7.4.4).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CertificateRequest12<'a> {
    /// Certificate types, one byte each.
    pub types: &'a [u8],
    /// Signature schemes, two bytes each.
    pub schemes: &'a [u8],
    /// Distinguished names of acceptable authorities, as on the wire.
    pub authorities: &'a [u8],
}

impl<'a> Body<'a> for CertificateRequest12<'a> {
    const KIND: u8 = CERTIFICATE_REQUEST;

    fn decode(body: &'a [u8]) -> Result<Self, DecodeError> {
        let mut reader = Reader::new("CertificateRequest", body);
        let types = reader.vector8()?;
        let schemes = reader.vector16()?;
        let authorities = reader.vector16()?;
        reader.finish()?;
        if schemes.len() % 2 != 0 {
            return Err(reader.forbidden("signature_algorithms length"));
        }
        Ok(CertificateRequest12 { types, schemes, authorities })
    }

    fn encode(&self, out: &mut Vec<u8>) {
        put_vector8(out, |out| out.extend_from_slice(self.types));
        put_vector16(out, |out| out.extend_from_slice(self.schemes));
        put_vector16(out, |out| out.extend_from_slice(self.authorities));
    }
}

/// ServerKeyExchange of the ECDHE suites (RFC 8422 section 5.4), named curves only.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerKeyExchange<'a> {
    /// The parameters as signed: curve type, group, public key.
    pub parameters: &'a [u8],
    /// Code point of the group.
    pub group: u16,
    /// The server's public key, in the encoding of the group.
    pub public: &'a [u8],
    /// Code point of the SignatureScheme.
    pub scheme: u16,
    /// Signature over both randoms and the parameters.
    pub signature: &'a [u8],
}

const NAMED_CURVE: u8 = 3;

impl<'a> Body<'a> for ServerKeyExchange<'a> {
    const KIND: u8 = SERVER_KEY_EXCHANGE;

    fn decode(body: &'a [u8]) -> Result<Self, DecodeError> {
        let mut reader = Reader::new("ServerKeyExchange", body);
        if reader.u8()? != NAMED_CURVE {
            return Err(reader.forbidden("curve type"));
        }
        let group = reader.u16()?;
        let public = reader.vector8()?;
        let parameters = &body[..body.len() - reader.remaining()];
        let scheme = reader.u16()?;
        let signature = reader.vector16()?;
        reader.finish()?;
        Ok(ServerKeyExchange { parameters, group, public, scheme, signature })
    }

    fn encode(&self, out: &mut Vec<u8>) {
        out.push(NAMED_CURVE);
        put_u16(out, self.group);
        put_vector8(out, |out| out.extend_from_slice(self.public));
        put_u16(out, self.scheme);
        put_vector16(out, |out| out.extend_from_slice(self.signature));
    }
}

/// NewSessionTicket of TLS 1.2 (RFC 5077 section 3.3).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewSessionTicket12<'a> {
    /// Lifetime hint in seconds; 0: unspecified.
    pub lifetime_s: u32,
    /// The ticket; empty: the server has none to give after all.
    pub ticket: &'a [u8],
}

impl<'a> Body<'a> for NewSessionTicket12<'a> {
    const KIND: u8 = NEW_SESSION_TICKET;

    fn decode(body: &'a [u8]) -> Result<Self, DecodeError> {
        let mut reader = Reader::new("NewSessionTicket", body);
        let lifetime_s = reader.u32()?;
        let ticket = reader.vector16()?;
        reader.finish()?;
        Ok(NewSessionTicket12 { lifetime_s, ticket })
    }

    fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.lifetime_s.to_be_bytes());
        put_vector16(out, |out| out.extend_from_slice(self.ticket));
    }
}
