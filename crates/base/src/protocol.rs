//! What is spoken at an address besides HTTP: by the scheme of its URL, what comes before TLS, and what can be asked
//! without a login.

use std::borrow::Cow;

use anyhow::{Context, Result, bail, ensure};
use tlsdyno_wire::answer::Answer;
use tlsdyno_wire::opening::Opening;

use crate::exchange::Turn;

/// A protocol over TLS.
#[derive(Debug, PartialEq, Eq)]
pub struct Protocol {
    /// In lower case.
    pub scheme: &'static str,
    /// Where it is spoken if the URL does not say; `None`: it must.
    pub port: Option<u16>,
    /// `None`: TLS begins with the first byte.
    pub opening: Option<Opening>,
    /// What is said over TLS, and answered; the last of it once more for each further request. Empty: nothing can be
    /// asked without a login.
    turns: &'static [(&'static [u8], Answer)],
}

const NOTHING: &[(&[u8], Answer)] = &[];
const NOOP: (&[u8], Answer) = (b"NOOP\r\n", Answer::Reply);
const IMAP_NOOP: (&[u8], Answer) = (b"a NOOP\r\n", Answer::Tagged);
const CAPA: (&[u8], Answer) = (b"CAPA\r\n", Answer::Until(Cow::Borrowed(b"\r\n.\r\n")));
const PING: (&[u8], Answer) = (b"PING\r\n", Answer::Exactly(b"+PONG\r\n"));
/// MQTT 3.1.1: a clean session of a client without a name, and its acknowledgement (sections 3.1 and 3.2).
const CONNECT: (&[u8], Answer) = (b"\x10\x0c\0\x04MQTT\x04\x02\0\x3c\0\0", Answer::Exactly(b"\x20\x02\0\0"));
const PINGREQ: (&[u8], Answer) = (b"\xc0\0", Answer::Exactly(b"\xd0\0"));

const fn speaks(
    scheme: &'static str,
    port: u16,
    opening: Option<Opening>,
    turns: &'static [(&'static [u8], Answer)],
) -> Protocol {
    Protocol { scheme, port: Some(port), opening, turns }
}

/// What can be measured besides HTTP.
pub static PROTOCOLS: [Protocol; 22] = [
    speaks("postgres", 5432, Some(Opening::Postgres), NOTHING),
    speaks("postgresql", 5432, Some(Opening::Postgres), NOTHING),
    speaks("mysql", 3306, Some(Opening::Mysql), NOTHING),
    speaks("mariadb", 3306, Some(Opening::Mysql), NOTHING),
    speaks("smtp", 25, Some(Opening::Smtp), &[NOOP]),
    speaks("smtps", 465, None, &[(b"", Answer::Reply), NOOP]),
    speaks("lmtp", 24, Some(Opening::Lmtp), &[NOOP]),
    speaks("imap", 143, Some(Opening::Imap), &[IMAP_NOOP]),
    speaks("imaps", 993, None, &[(b"", Answer::Line("* OK")), IMAP_NOOP]),
    speaks("pop3", 110, Some(Opening::Pop3), &[CAPA]),
    speaks("pop3s", 995, None, &[(b"", Answer::Line("+OK")), CAPA]),
    speaks("ldap", 389, Some(Opening::Ldap), NOTHING),
    speaks("ldaps", 636, None, NOTHING),
    speaks("xmpp", 5222, Some(Opening::Xmpp), NOTHING),
    speaks("ftp", 21, Some(Opening::Ftp), &[NOOP]),
    speaks("ftps", 990, None, &[(b"", Answer::Reply), NOOP]),
    speaks("amqp", 5672, Some(Opening::Amqp), NOTHING),
    speaks("amqps", 5671, None, NOTHING),
    speaks("mqtts", 8883, None, &[CONNECT, PINGREQ]),
    speaks("rediss", 6379, None, &[PING]),
    speaks("valkeys", 6379, None, &[PING]),
    Protocol { scheme: "tls", port: None, opening: None, turns: NOTHING },
];

/// The protocol with this scheme, in lower case.
pub fn of_scheme(scheme: &str) -> Result<&'static Protocol> {
    if let Some(found) = PROTOCOLS.iter().find(|protocol| protocol.scheme == scheme) {
        return Ok(found);
    }
    let known: Vec<&str> = PROTOCOLS.iter().map(|protocol| protocol.scheme).collect();
    bail!("the scheme `{scheme}` is not supported; use https, tls for any protocol, or {}", known.join(", "))
}

impl Protocol {
    /// What is said once TLS is there; empty: nothing.
    pub fn turns(&self) -> Vec<Turn> {
        self.turns.iter().map(|(say, answer)| Turn { say: say.to_vec(), answer: Some(answer.clone()) }).collect()
    }

    /// The same with a request of the reader's in place of what is asked; what the server says first stays.
    pub fn turns_with(&self, request: Turn) -> Vec<Turn> {
        let greeting = self.turns().into_iter().filter(|turn| turn.say.is_empty());
        greeting.chain([request]).collect()
    }
}

/// Longest text of bytes that a person gives.
const GIVEN_MAX: usize = 64 * 1024;

/// Bytes as people write them: `\r`, `\n`, `\t`, `\0`, `\\` and `\xHH`; all else as it is.
pub fn unescaped(text: &str) -> Result<Vec<u8>> {
    ensure!(text.len() <= GIVEN_MAX, "more than {GIVEN_MAX} bytes");
    let (mut bytes, mut rest) = (Vec::new(), text);
    while let Some((before, after)) = rest.split_once('\\') {
        bytes.extend_from_slice(before.as_bytes());
        let letter = after.chars().next().context("it ends with a single backslash; write \\\\ for one")?;
        let mut taken = letter.len_utf8();
        bytes.push(match letter {
            'r' => b'\r',
            'n' => b'\n',
            't' => b'\t',
            '0' => 0,
            '\\' => b'\\',
            'x' => {
                let digits = after.get(1..3).filter(|digits| digits.bytes().all(|byte| byte.is_ascii_hexdigit()));
                taken = 3;
                u8::from_str_radix(digits.context("\\x needs two digits, as in \\x0d")?, 16)?
            }
            other => bail!("\\{other} is not known; there are \\r \\n \\t \\0 \\\\ \\xHH"),
        });
        rest = &after[taken..];
    }
    bytes.extend_from_slice(rest.as_bytes());
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::url::Url;

    #[test]
    fn bytes_are_written_as_people_do() {
        assert_eq!(unescaped(r"PING\r\n\x00\xfF\\ \t\0ä").unwrap(), b"PING\r\n\0\xff\\ \t\0\xc3\xa4");
        for (text, why) in [(r"a\", "single"), (r"\q", "not known"), (r"\x1", "two digits"), (r"\xg1", "two digits")] {
            let error = unescaped(text).unwrap_err().to_string();
            assert!(error.contains(why), "{text}: {error}");
        }
        assert!(unescaped(&"x".repeat(GIVEN_MAX + 1)).is_err());
    }

    #[test]
    fn schemes_have_ports_and_say_what_there_is() {
        let port = |text: &str| Url::parse_any(text).unwrap().port;
        assert_eq!([port("postgres://a/"), port("SMTPS://[::1]:1"), port("https://a")], [5432, 1, 443]);
        let error = |text: &str| format!("{:#}", Url::parse_any(text).unwrap_err());
        assert!(error("gopher://a").contains("tls for any protocol"));
        assert!(error("tls://a/").contains("no port"));
        // A password in the URL would be a login, which nobody sends.
        assert!(!error("postgres://me:secret@a/").contains("secret"));
    }

    #[test]
    fn a_request_of_the_readers_comes_after_the_greeting() {
        let own = || Turn { say: b"X".to_vec(), answer: Some(Answer::Bytes(1)) };
        let said = |scheme| -> Vec<Vec<u8>> {
            of_scheme(scheme).unwrap().turns_with(own()).into_iter().map(|turn| turn.say).collect()
        };
        assert_eq!(said("imaps"), [b"".to_vec(), b"X".to_vec()]);
        assert_eq!([said("imap"), said("mqtts"), said("tls")], [(); 3].map(|()| vec![b"X".to_vec()]));
    }
}
