//! Packets of IP as a capture gives them, and what of TCP and UDP is in them. A packet may be cut at its end.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use tlsdyno_wire::codec::{DecodeError, Reader};

/// IANA's numbers of protocols.
pub(crate) const TCP: u8 = 6;
pub(crate) const UDP: u8 = 17;
/// Headers that may stand between IPv6 and TCP (RFC 8200 section 4).
pub(crate) const HOP_BY_HOP: u8 = 0;
pub(crate) const ROUTING: u8 = 43;
pub(crate) const FRAGMENT: u8 = 44;
pub(crate) const DESTINATION: u8 = 60;
/// More of them than this are refused, because each costs time.
const MOST_EXTENSIONS: usize = 8;

/// Flags of TCP (RFC 9293 section 3.1).
pub(crate) const FIN: u8 = 1;
pub(crate) const SYN: u8 = 2;
pub(crate) const RST: u8 = 4;
const ACK: u8 = 16;

/// A packet of IP, without what its link puts before it.
#[derive(Clone, Copy, Debug)]
pub struct Packet<'a> {
    /// When it passed, nanoseconds on any one clock.
    pub time_ns: u64,
    /// As many of its bytes as were captured, from the header of IP on.
    pub bytes: &'a [u8],
    /// Bytes that it had, from the header of IP on.
    pub length: usize,
}

/// What a packet carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Carried<'a> {
    Segment(Segment<'a>),
    /// UDP, to this address.
    Datagram(SocketAddr),
}

/// A segment of TCP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Segment<'a> {
    pub source: SocketAddr,
    pub destination: SocketAddr,
    pub sequence: u32,
    /// The next byte that the sender waits for.
    pub acknowledged: Option<u32>,
    pub syn: bool,
    pub fin: bool,
    pub reset: bool,
    /// As much of the payload as was captured.
    pub payload: &'a [u8],
    /// Bytes that the payload had.
    pub payload_length: u32,
}

impl<'a> Packet<'a> {
    /// `None`: neither TCP nor UDP, a later fragment, or no packet at all.
    pub(crate) fn carried(&self) -> Option<Carried<'a>> {
        match self.bytes.first()? >> 4 {
            4 => self.version_4().ok()?,
            6 => self.version_6().ok()?,
            _ => None,
        }
    }

    fn version_4(&self) -> Result<Option<Carried<'a>>, DecodeError> {
        let mut header = Reader::new("IPv4", self.bytes);
        let header_length = usize::from(header.u8()? & 0xf) * 4;
        header.u8()?;
        let length = usize::from(header.u16()?);
        header.u16()?;
        let fragment = header.u16()? & 0x1fff;
        header.u8()?;
        let protocol = header.u8()?;
        header.u16()?;
        let (source, destination) = (Ipv4Addr::from(*header.array::<4>()?), Ipv4Addr::from(*header.array::<4>()?));
        let Some(options) = header_length.checked_sub(20).filter(|_| fragment == 0) else {
            return Ok(None);
        };
        header.take(options)?;
        let body = self.body(header, length, header_length);
        carried(protocol, body, source.into(), destination.into())
    }

    fn version_6(&self) -> Result<Option<Carried<'a>>, DecodeError> {
        let mut header = Reader::new("IPv6", self.bytes);
        header.u32()?;
        // A jumbogram says zero here (RFC 2675).
        let length = usize::from(header.u16()?);
        let mut next = header.u8()?;
        header.u8()?;
        let (source, destination) = (Ipv6Addr::from(*header.array::<16>()?), Ipv6Addr::from(*header.array::<16>()?));
        let mut before = 40;
        for _ in 0..MOST_EXTENSIONS {
            if ![HOP_BY_HOP, ROUTING, FRAGMENT, DESTINATION].contains(&next) {
                let length = if length == 0 { 0 } else { length + 40 };
                let body = self.body(header, length, before);
                return carried(next, body, source.into(), destination.into());
            }
            let (kind, units) = (std::mem::replace(&mut next, header.u8()?), usize::from(header.u8()?));
            if kind == FRAGMENT && header.u16()? >> 3 != 0 {
                return Ok(None);
            }
            let size = if kind == FRAGMENT { 8 } else { 8 * (units + 1) };
            header.take(size - if kind == FRAGMENT { 4 } else { 2 })?;
            before += size;
        }
        Ok(None)
    }

    /// What comes after the headers, and its length. What a link adds to short packets is left out. `told`: the length
    /// that IP says; zero for what is longer than it can say.
    fn body(&self, mut rest: Reader<'a>, told: usize, before: usize) -> (&'a [u8], usize) {
        let whole = if told == 0 { self.length } else { told.min(self.length) };
        let length = whole.saturating_sub(before);
        let bytes = rest.rest();
        (&bytes[..bytes.len().min(length)], length)
    }
}

fn carried(
    protocol: u8,
    (bytes, length): (&[u8], usize),
    source: IpAddr,
    destination: IpAddr,
) -> Result<Option<Carried<'_>>, DecodeError> {
    let mut header = Reader::new("TCP", bytes);
    if ![TCP, UDP].contains(&protocol) {
        return Ok(None);
    }
    let source = SocketAddr::new(source, header.u16()?);
    let destination = SocketAddr::new(destination, header.u16()?);
    if protocol == UDP {
        return Ok(Some(Carried::Datagram(destination)));
    }
    let (sequence, acknowledged) = (header.u32()?, header.u32()?);
    let header_length = usize::from(header.u8()? >> 4) * 4;
    let flags = header.u8()?;
    // A header may be cut; then nothing of the payload is there.
    let payload = bytes.get(header_length..).unwrap_or_default();
    let payload_length = length.checked_sub(header_length).and_then(|length| u32::try_from(length).ok());
    let (Some(payload_length), true) = (payload_length, header_length >= 20) else {
        return Ok(None);
    };
    Ok(Some(Carried::Segment(Segment {
        source,
        destination,
        sequence,
        acknowledged: (flags & ACK != 0).then_some(acknowledged),
        syn: flags & SYN != 0,
        fin: flags & FIN != 0,
        reset: flags & RST != 0,
        payload,
        payload_length,
    })))
}
