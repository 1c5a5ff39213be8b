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
    fn version_2_is_binary() {
        let header = written(put_v2, "192.0.2.7:258", "198.51.100.1:443");
        assert_eq!(header[..12], SIGNATURE_V2);
        assert_eq!(header[12..], [0x21, 0x11, 0, 12, 192, 0, 2, 7, 198, 51, 100, 1, 1, 2, 1, 187]);
        let mixed = written(put_v2, "[2001:db8::7]:258", "198.51.100.1:443");
        assert_eq!((mixed.len(), &mixed[12..16]), (16 + 36, &[0x21, 0x21, 0, 36][..]));
    }
}
