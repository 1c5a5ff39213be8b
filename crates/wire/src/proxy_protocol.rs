//! The header by which a proxy tells a server who the client is: the PROXY protocol of HAProxy
//! (`doc/proxy-protocol.txt`), versions 1 and 2.

use std::net::{IpAddr, SocketAddr};

/// What version 2 begins with (section 2.2).
pub const SIGNATURE_V2: [u8; 12] = *b"\r\n\r\n\0\r\nQUIT\n";

/// Appends the line of version 1 (section 2.1). Addresses of different families are told as IPv6.
pub fn put_v1(out: &mut Vec<u8>, client: SocketAddr, server: SocketAddr) {
    let (family, from, to) = match same_family(client.ip(), server.ip()) {
        (from @ IpAddr::V4(_), to) => ("TCP4", from, to),
        (from, to) => ("TCP6", from, to),
    };
    let line = format!("PROXY {family} {from} {to} {} {}\r\n", client.port(), server.port());
    out.extend_from_slice(line.as_bytes());
}

/// Appends the header of version 2 (section 2.2): PROXY over a stream.
pub fn put_v2(out: &mut Vec<u8>, client: SocketAddr, server: SocketAddr) {
    out.extend_from_slice(&SIGNATURE_V2);
    out.push(0x21);
    match same_family(client.ip(), server.ip()) {
        (IpAddr::V4(from), IpAddr::V4(to)) => {
            out.extend_from_slice(&[0x11, 0, 12]);
            out.extend_from_slice(&from.octets());
            out.extend_from_slice(&to.octets());
        }
        (from, to) => {
            out.extend_from_slice(&[0x21, 0, 36]);
            out.extend_from_slice(&octets(from));
            out.extend_from_slice(&octets(to));
        }
    }
    out.extend_from_slice(&client.port().to_be_bytes());
    out.extend_from_slice(&server.port().to_be_bytes());
}

/// Appends what a proxy says that speaks for itself, as in a health check: version 1 UNKNOWN.
pub fn put_v1_own(out: &mut Vec<u8>) {
    out.extend_from_slice(b"PROXY UNKNOWN\r\n");
}

/// Appends what a proxy says that speaks for itself, as in a health check: version 2 LOCAL.
pub fn put_v2_own(out: &mut Vec<u8>) {
    out.extend_from_slice(&SIGNATURE_V2);
    out.extend_from_slice(&[0x20, 0, 0, 0]);
}

/// Longest header that [`header_length`] takes for one, bytes: version 1 has at most 107, and version 2 may carry more
/// than addresses.
pub const LONGEST: usize = 4096;

/// Length of the header that a stream begins with, bytes; zero where it has none. `None`: more of the stream is needed,
/// at most [`LONGEST`] bytes.
pub fn header_length(begin: &[u8]) -> Option<usize> {
    let begins_with = |mark: &[u8]| begin.iter().zip(mark).all(|(byte, expected)| byte == expected);
    if begins_with(&SIGNATURE_V2) {
        let length = 16 + usize::from(u16::from_be_bytes(*begin.get(14..)?.first_chunk()?));
        return Some(if length <= LONGEST { length } else { 0 });
    }
    if begins_with(b"PROXY ") {
        let line = &begin[..begin.len().min(107)];
        let end = line.windows(2).position(|pair| pair == b"\r\n");
        return end.map(|end| end + 2).or((line.len() == 107).then_some(0));
    }
    Some(0)
}

fn same_family(client: IpAddr, server: IpAddr) -> (IpAddr, IpAddr) {
    let (client, server) = (client.to_canonical(), server.to_canonical());
    if client.is_ipv4() == server.is_ipv4() {
        return (client, server);
    }
    (IpAddr::from(octets(client)), IpAddr::from(octets(server)))
}

fn octets(address: IpAddr) -> [u8; 16] {
    match address {
        IpAddr::V4(address) => address.to_ipv6_mapped().octets(),
        IpAddr::V6(address) => address.octets(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(put: fn(&mut Vec<u8>, SocketAddr, SocketAddr), client: &str, server: &str) -> Vec<u8> {
        let mut out = Vec::new();
        put(&mut out, client.parse().unwrap(), server.parse().unwrap());
        out
    }

    #[test]
    fn version_1_is_a_line() {
        let line = written(put_v1, "192.0.2.7:51000", "198.51.100.1:443");
        assert_eq!(line, b"PROXY TCP4 192.0.2.7 198.51.100.1 51000 443\r\n");
        let line = written(put_v1, "[2001:db8::7]:51000", "[2001:db8::1]:443");
        assert_eq!(line, b"PROXY TCP6 2001:db8::7 2001:db8::1 51000 443\r\n");
        let line = written(put_v1, "[::ffff:192.0.2.7]:1", "198.51.100.1:443");
        assert_eq!(line, b"PROXY TCP4 192.0.2.7 198.51.100.1 1 443\r\n");
    }

    #[test]
    fn a_header_is_as_long_as_what_was_put_however_it_is_cut() {
        let (client, server) = ("192.0.2.7:51000", "198.51.100.1:443");
        let mut own = [Vec::new(), Vec::new()];
        put_v1_own(&mut own[0]);
        put_v2_own(&mut own[1]);
        for header in [written(put_v1, client, server), written(put_v2, client, server)].iter().chain(&own) {
            let stream = [header, &b"\x16\x03\x01"[..]].concat();
            for cut in 0..=stream.len() {
                let expected = (cut >= header.len()).then_some(header.len());
                let found = header_length(&stream[..cut]);
                // The length of version 2 stands before its end.
                assert!(found == expected || (found == Some(header.len()) && header[0] == b'\r' && cut >= 16));
            }
        }
        for none in [&b"\x16\x03\x01"[..], b"GET / HTTP/1.1\r\n", b"PROXZ", &[b"PROXY ", &[b'a'; 200][..]].concat()] {
            assert_eq!(header_length(none), Some(0));
        }
    }

    #[test]
    fn version_2_is_binary() {
        let header = written(put_v2, "192.0.2.7:258", "198.51.100.1:443");
        assert_eq!(header[..12], SIGNATURE_V2);
        assert_eq!(header[12..], [0x21, 0x11, 0, 12, 192, 0, 2, 7, 198, 51, 100, 1, 1, 2, 1, 187]);
        let mixed = written(put_v2, "[2001:db8::7]:258", "198.51.100.1:443");
        assert_eq!((mixed.len(), &mixed[12..16]), (16 + 36, &[0x21, 0x21, 0, 36][..]));
    }
}
