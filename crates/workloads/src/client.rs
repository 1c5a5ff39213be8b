//! Who a word of a log's line names: an address or a host, in one form for each, so that one client is one user however
//! it is written.
//!
//! `198.51.100.7`, `198.51.100.7:40000`, `::ffff:198.51.100.7` and `"198.51.100.7"` are one client; so are
//! `2001:DB8:0::1` and `[2001:db8::1]:443`. The file depends on std alone, so that the fuzzer can build it.

use std::borrow::Cow;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// An address of the internet.
    Address,
    /// An address that is none on the internet (private, of the machine itself, …): on a site's own server nearly
    /// always a proxy's.
    InnerAddress,
    Name,
}

/// A client in its canonical form.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Client<'line> {
    /// Address (RFC 5952) or name in lower case, without port, brackets and zone.
    pub text: Cow<'line, [u8]>,
    pub kind: Kind,
    /// Bytes of the word before it: a file's name that `grep` put there, say.
    pub start: usize,
}

impl Client<'_> {
    pub fn is_address(&self) -> bool {
        self.kind != Kind::Name
    }
}

/// After these, what a program glued to the client ends: `access.log:192.0.2.1`, `client=192.0.2.1`.
const SEPARATORS: &[u8] = b":|=>])}\"'";

/// The longest word at whose end a client is looked for: longer ones would take long.
const GLUED_BYTES_MAX: usize = 512;

/// What some editors put at the beginning of a file.
pub const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";

/// The longest name of a host (RFC 1035 section 2.3.4, written out), and its longest part.
const NAME_BYTES_MAX: usize = 253;
const LABEL_BYTES_MAX: usize = 63;

/// The client that `word` names, if it does. A list (X-Forwarded-For) names the first address in it: proxies append
/// theirs.
#[inline]
pub fn of_word(word: &[u8]) -> Option<Client<'_>> {
    if let Some(client) = plain(word, 0) {
        return Some(client);
    }
    if word.contains(&b',') {
        return of_list(word);
    }
    if word.len() > GLUED_BYTES_MAX {
        return None;
    }
    if let Some(rest) = word.strip_prefix(BYTE_ORDER_MARK) {
        return plain(rest, BYTE_ORDER_MARK.len());
    }
    let glued = |(at, byte): (usize, &u8)| {
        let rest = SEPARATORS.contains(byte).then(|| &word[at + 1..])?;
        let client = plain(rest.strip_suffix(b"\"").unwrap_or(rest), at + 1).filter(Client::is_address)?;
        // The end of a damaged address of the sixth version can be one too.
        let is_apart = !client.text.contains(&b':') || word[..at].iter().any(|byte| !may_be_v6(*byte));
        is_apart.then_some(client)
    };
    word.iter().enumerate().find_map(glued)
}

/// The first address of a list with commas, or of a list of one.
pub fn of_list(list: &[u8]) -> Option<Client<'_>> {
    let mut start = 0;
    for part in list.split(|byte| *byte == b',') {
        let blanks = part.len() - part.trim_ascii_start().len();
        let client = plain(part.trim_ascii(), start + blanks).filter(Client::is_address);
        if client.is_some() {
            return client;
        }
        start += part.len() + 1;
    }
    None
}

/// An address or name, with or without port, and nothing else.
#[inline]
fn plain(text: &[u8], start: usize) -> Option<Client<'_>> {
    if let Some((address, length, is_usual)) = v4(text) {
        (text.len() == length || is_port(&text[length..])).then_some(())?;
        let written = if is_usual { Cow::Borrowed(&text[..length]) } else { owned(&address) };
        return Some(Client { text: written, kind: kind_of(IpAddr::V4(address)), start });
    }
    let address = match text.strip_prefix(b"[") {
        Some(inside) => {
            let end = inside.iter().position(|byte| *byte == b']')?;
            let after = &inside[end + 1..];
            (after.is_empty() || is_port(after)).then(|| v6(&inside[..end])).flatten()?
        }
        // Eight groups and a port behind them without brackets: no address has nine.
        None => match v6(text).or_else(|| v6(without_port(text))) {
            Some(address) => address,
            None => return name(without_port(text), start),
        },
    };
    Some(Client { text: owned(&address), kind: kind_of(address), start })
}

fn owned(address: &impl ToString) -> Cow<'static, [u8]> {
    Cow::Owned(address.to_string().into_bytes())
}

/// A dotted quad at the beginning of a text: the address, how many bytes it takes, and whether it is written as usual,
/// without leading zeros. One pass without a branch for each part, for nearly every line of a log has one.
#[inline]
fn v4(text: &[u8]) -> Option<(Ipv4Addr, usize, bool)> {
    let (mut address, mut part, mut digits, mut dots, mut is_usual) = (0_u32, 0_u32, 0_u32, 0, true);
    let mut at = 0;
    while let Some(byte) = text.get(at) {
        match byte {
            b'0'..=b'9' => {
                is_usual &= digits == 0 || part > 0;
                part = part * 10 + u32::from(byte - b'0');
                digits += 1;
                if digits > 3 || part > 255 {
                    return None;
                }
            }
            b'.' if digits > 0 && dots < 3 => {
                address = address << 8 | part;
                (part, digits, dots) = (0, 0, dots + 1);
            }
            _ => break,
        }
        at += 1;
    }
    (dots == 3 && digits > 0).then(|| (Ipv4Addr::from(address << 8 | part), at, is_usual))
}

/// An address of the sixth version, or of the fourth within it (`::ffff:192.0.2.1`), without its zone (`%eth0`).
fn v6(text: &[u8]) -> Option<IpAddr> {
    if text.len() > 64 || !text.contains(&b':') {
        return None;
    }
    let text = std::str::from_utf8(text).ok()?;
    let address = text.split_once('%').map_or(text, |(address, _zone)| address);
    address.parse::<Ipv6Addr>().ok().map(|address| IpAddr::V6(address).to_canonical())
}

fn may_be_v6(byte: u8) -> bool {
    byte.is_ascii_hexdigit() || matches!(byte, b':' | b'.' | b'[' | b']')
}

/// The text without `:` and a port at its end.
fn without_port(text: &[u8]) -> &[u8] {
    match text.iter().rposition(|byte| *byte == b':') {
        Some(colon) if is_port(&text[colon..]) => &text[..colon],
        _ => text,
    }
}

fn is_port(text: &[u8]) -> bool {
    (2..=6).contains(&text.len()) && text[0] == b':' && text[1..].iter().all(u8::is_ascii_digit)
}

/// The name of a host, in lower case and without the dot at its end.
fn name(text: &[u8], start: usize) -> Option<Client<'_>> {
    let text = text.strip_suffix(b".").unwrap_or(text);
    let is_part = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
    let is_label =
        |label: &[u8]| (1..=LABEL_BYTES_MAX).contains(&label.len()) && label[0] != b'-' && label.iter().all(is_part);
    let is_name = text.len() <= NAME_BYTES_MAX
        && text.iter().any(u8::is_ascii_alphabetic)
        && text.split(|byte| *byte == b'.').all(is_label);
    is_name.then(|| match text.iter().any(u8::is_ascii_uppercase) {
        true => Client { text: Cow::Owned(text.to_ascii_lowercase()), kind: Kind::Name, start },
        false => Client { text: Cow::Borrowed(text), kind: Kind::Name, start },
    })
}

/// Of the internet, or not: no packet comes from there.
fn kind_of(address: IpAddr) -> Kind {
    let is_inner = match address {
        IpAddr::V4(address) => {
            let [first, second, ..] = address.octets();
            let is_carriers = first == 100 && (64..128).contains(&second);
            address.is_private() || address.is_loopback() || address.is_link_local() || is_carriers || first == 0
        }
        IpAddr::V6(address) => {
            address.is_loopback()
                || address.is_unspecified()
                || address.is_unique_local()
                || address.is_unicast_link_local()
        }
    };
    if is_inner { Kind::InnerAddress } else { Kind::Address }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(word: &str) -> Option<(String, Kind)> {
        of_word(word.as_bytes()).map(|client| (String::from_utf8_lossy(&client.text).into_owned(), client.kind))
    }

    #[test]
    fn one_client_has_one_form() {
        let cases = [
            ("198.51.100.7", "198.51.100.7"),
            ("198.51.100.7:40000", "198.51.100.7"),
            ("198.051.100.007", "198.51.100.7"),
            ("\"198.51.100.7\"", "198.51.100.7"),
            ("::ffff:198.51.100.7", "198.51.100.7"),
            ("[::FFFF:c633:6407]:80", "198.51.100.7"),
            ("access.log:198.51.100.7", "198.51.100.7"),
            ("access.log:2001:db8::1", "2001:db8::1"),
            ("12:198.51.100.7", "198.51.100.7"),
            ("\u{feff}198.51.100.7", "198.51.100.7"),
            ("access.log:12:198.51.100.7:40000", "198.51.100.7"),
            ("198.51.100.7, 10.0.0.1", "198.51.100.7"),
            ("unknown,198.51.100.7:99,10.0.0.1", "198.51.100.7"),
            ("2001:DB8:0:0::1", "2001:db8::1"),
            ("[2001:db8::1]:5555", "2001:db8::1"),
            ("[2001:db8::1]", "2001:db8::1"),
            ("fe80::1%eth0", "fe80::1"),
            ("2001:db8:1:2:3:4:5:6:443", "2001:db8:1:2:3:4:5:6"),
            ("Host.Example.NET.", "host.example.net"),
            ("host.example.net:51234", "host.example.net"),
            ("localhost", "localhost"),
            ("slip-4_7.example.com", "slip-4_7.example.com"),
        ];
        for (word, client) in cases {
            assert_eq!(shown(word).map(|(text, _)| text).as_deref(), Some(client), "{word}");
        }
    }

    #[test]
    fn other_words_name_nobody() {
        let words = [
            "",
            "-",
            "|",
            "12",
            "12:30:01",
            "nginx[123]:",
            "<165>1",
            "2022-10-04T04:37:00.000000000Z",
            "unix:",
            "a..b",
            "-a",
            "1.2.3",
            "1.2.3.4.5",
            "256.1.1.1",
            "1.2.3.4:port",
            "[2001:db8::1",
            "[pod/web-0/nginx]",
            "c\u{e4}f\u{e9}",
            ",",
            "a, b",
            "{\"log\":\"",
        ];
        for word in words {
            assert_eq!(shown(word), None, "{word}");
        }
        assert_eq!(shown(&"a".repeat(64)), None);
        assert_eq!(of_word(b"\xff\xfe"), None);
    }

    #[test]
    fn addresses_within_a_site_are_told_from_those_of_the_internet() {
        let inner = ["10.0.0.7", "172.31.0.1", "192.168.1.1", "127.0.0.1", "100.64.0.1", "::1", "fd00::1", "fe80::1"];
        for word in inner {
            assert_eq!(shown(word).map(|(_, kind)| kind), Some(Kind::InnerAddress), "{word}");
        }
        for word in ["198.51.100.1", "8.8.8.8", "172.32.0.1", "2001:db8::1"] {
            assert_eq!(shown(word).map(|(_, kind)| kind), Some(Kind::Address), "{word}");
        }
    }
}
