//! Where an answer ends that is no HTTP, and whether it is the one that was hoped for.

use std::borrow::Cow;
use std::fmt;
use std::ops::Range;

use super::limits::{ANSWER, ANSWER_QUOTED};

/// What a server is to answer. The variants without a value are those of the openings and of what they lead to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// It ends with these bytes, wherever they come first.
    Until(Cow<'static, [u8]>),
    /// It has so many bytes, whichever they are.
    Bytes(u64),
    /// These bytes and no others.
    Exactly(&'static [u8]),
    /// One line that begins so: `+OK` of POP3 (RFC 1939 section 3), `* OK` of IMAP (RFC 9051 section 7.1.1).
    Line(&'static str),
    /// Lines of SMTP (RFC 5321 section 4.2) and FTP (RFC 959 section 4.2) up to one with a code and no hyphen. Codes of
    /// consent begin with 2.
    Reply,
    /// Lines of IMAP up to the one with the tag `a` (RFC 9051 section 2.2.2).
    Tagged,
    /// One byte of PostgreSQL: `S` (protocol 3.0, "SSL Session Encryption").
    Consent,
    /// The first packet of MySQL (protocol 10), with CLIENT_SSL among its capabilities.
    Greeting,
    /// The response to an extended request of LDAP (RFC 4511 section 4.12).
    Extended,
    /// Features of an XMPP stream, STARTTLS among them (RFC 6120 section 5.4.1).
    Features,
    /// `<proceed/>` of XMPP (RFC 6120 section 5.4.2.3).
    Proceed,
}

/// Why an answer is not the one that was hoped for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AnswerFault {
    /// The server says no; its words.
    No(String),
    /// The server tells of an error of its own; its words.
    Unable(String),
    /// It says what this protocol has not; its first words.
    Foreign(String),
    /// Longer than [`ANSWER`].
    TooLong,
    /// It goes on behind its end; the words there.
    GoesOn(String),
    /// It is not complete, and the server says nothing more; the words until then.
    Ended(String),
}

/// Reads one answer, in whatever pieces it comes. Of an answer whose length its asker determines only the end is held.
#[derive(Clone, Debug)]
pub struct AnswerReader {
    answer: Answer,
    held: Vec<u8>,
    received: u64,
    is_complete: bool,
}

impl AnswerReader {
    /// For an answer of which nothing has come.
    pub fn new(answer: Answer) -> AnswerReader {
        AnswerReader { answer, held: Vec::new(), received: 0, is_complete: false }
    }

    /// For another one of this kind.
    #[must_use]
    pub fn anew(&self) -> AnswerReader {
        AnswerReader::new(self.answer.clone())
    }

    /// The answer is here, and was the hoped-for one.
    pub fn is_complete(&self) -> bool {
        self.is_complete
    }

    /// Bytes so far.
    pub fn received(&self) -> u64 {
        self.received
    }

    /// What of the answer is held, for people.
    pub fn words(&self) -> String {
        quoted(&self.held)
    }

    /// Takes bytes of the server, and answers how many of them are of this answer. However they are cut, it comes to
    /// the same.
    ///
    /// # Errors
    /// The answer is not the one that was hoped for.
    pub fn receive(&mut self, bytes: &[u8]) -> Result<usize, AnswerFault> {
        if self.is_complete {
            return Ok(0);
        }
        let before = self.held.len();
        let end = match &self.answer {
            Answer::Bytes(wanted) => {
                self.held.extend_from_slice(&bytes[..bytes.len().min(ANSWER_QUOTED - before)]);
                usize::try_from(wanted - self.received).ok().filter(|missing| *missing <= bytes.len())
            }
            answer => {
                self.held.extend_from_slice(bytes);
                let is_bounded = !matches!(answer, Answer::Until(_));
                let most = if is_bounded { self.held.len().min(ANSWER) } else { self.held.len() };
                let end = answer.end(&self.held[..most])?;
                if end.is_none() && most < self.held.len() {
                    return Err(AnswerFault::TooLong);
                }
                // What was held before had no end.
                end.map(|end| end - before)
            }
        };
        if let (None, Answer::Until(last)) = (end, &self.answer) {
            let kept = (last.len() - 1).max(ANSWER_QUOTED);
            self.held.drain(..self.held.len().saturating_sub(kept));
        }
        self.is_complete = end.is_some();
        let taken = end.unwrap_or(bytes.len());
        self.received += taken as u64;
        Ok(taken)
    }

    /// The same where nothing may come behind the answer.
    ///
    /// # Errors
    /// Also if something does.
    pub fn receive_all(&mut self, bytes: &[u8]) -> Result<(), AnswerFault> {
        match bytes.split_at(self.receive(bytes)?) {
            (_, []) => Ok(()),
            (_, rest) => Err(AnswerFault::GoesOn(quoted(rest))),
        }
    }

    /// The server sends no more.
    ///
    /// # Errors
    /// The answer is not complete.
    pub fn end_of_input(&self) -> Result<(), AnswerFault> {
        if self.is_complete { Ok(()) } else { Err(AnswerFault::Ended(self.words())) }
    }
}

/// Where this part of the input has its first end of line, with the line itself.
fn line(bytes: &[u8]) -> Option<(&[u8], usize)> {
    let end = bytes.iter().position(|byte| *byte == b'\n')?;
    Some((bytes[..end].trim_ascii_end(), end + 1))
}

fn find(bytes: &[u8], wanted: &[u8]) -> Option<usize> {
    bytes.windows(wanted.len().max(1)).position(|window| window == wanted)
}

/// The beginning of what a peer said, in printable characters.
pub(crate) fn quoted(bytes: &[u8]) -> String {
    let dots = if bytes.len() > ANSWER_QUOTED { "…" } else { "" };
    let bytes = bytes[..bytes.len().min(ANSWER_QUOTED)].trim_ascii_end();
    format!("{}{dots}", bytes.escape_ascii())
}

impl Answer {
    /// Where the answer ends, if that is here, of what has come of it.
    fn end(&self, bytes: &[u8]) -> Result<Option<usize>, AnswerFault> {
        let foreign = || AnswerFault::Foreign(quoted(bytes));
        match self {
            Answer::Until(last) => Ok(find(bytes, last).map(|at| at + last.len())),
            Answer::Bytes(count) => Ok(usize::try_from(*count).ok().filter(|count| *count <= bytes.len())),
            Answer::Exactly(wanted) => {
                let common = wanted.len().min(bytes.len());
                let is_so = bytes[..common] == wanted[..common];
                is_so.then(|| (common == wanted.len()).then_some(common)).ok_or_else(|| AnswerFault::No(quoted(bytes)))
            }
            Answer::Line(wanted) => lines(bytes, |line| Some(Some(line.starts_with(wanted.as_bytes())))),
            Answer::Reply => lines(bytes, |line| match line {
                [b'1'..=b'5', b'0'..=b'9', b'0'..=b'9', rest @ ..] if rest.first() != Some(&b'-') => {
                    Some(Some(line[0] == b'2'))
                }
                // FTP's text between the first and the last line has no code.
                _ => bytes.first().is_some_and(u8::is_ascii_digit).then_some(None),
            }),
            Answer::Tagged => lines(bytes, |line| match line {
                [b'*', b' ', ..] => Some(None),
                [b'a', b' ', rest @ ..] => Some(Some(rest.to_ascii_uppercase().starts_with(b"OK"))),
                _ => None,
            }),
            Answer::Consent => match bytes.first() {
                None => Ok(None),
                Some(b'S') => Ok(Some(1)),
                Some(b'N') => Err(AnswerFault::No(quoted(bytes))),
                Some(b'E') => Err(AnswerFault::Unable(quoted(bytes))),
                Some(_) => Err(foreign()),
            },
            Answer::Greeting => greeting(bytes),
            Answer::Extended => extended(bytes),
            Answer::Features | Answer::Proceed if !is_xml(bytes) => Err(foreign()),
            Answer::Features => {
                let ends = [&b"</stream:features>"[..], b"<stream:features/>", b"</stream:stream>"];
                let found = ends.into_iter().filter_map(|end| Some(find(bytes, end)? + end.len())).min();
                let Some(end) = found else { return Ok(None) };
                let offers = bytes[..end].ends_with(ends[0]) && find(&bytes[..end], b"<starttls").is_some();
                offers.then_some(Some(end)).ok_or_else(|| AnswerFault::No(quoted(bytes)))
            }
            Answer::Proceed => match find(bytes, b">") {
                None => Ok(None),
                Some(end) if bytes.trim_ascii_start().starts_with(b"<proceed") => Ok(Some(end + 1)),
                Some(_) => Err(AnswerFault::No(quoted(bytes))),
            },
        }
    }
}

fn is_xml(bytes: &[u8]) -> bool {
    bytes.trim_ascii_start().first().is_none_or(|byte| *byte == b'<')
}

/// The end of the first line that decides. `decides`: of a line whether it consents; `Some(None)`: it decides nothing;
/// `None`: the protocol has no such line.
fn lines(bytes: &[u8], decides: impl Fn(&[u8]) -> Option<Option<bool>>) -> Result<Option<usize>, AnswerFault> {
    let mut end = 0;
    while let Some((line, length)) = line(&bytes[end..]) {
        end += length;
        match decides(line) {
            Some(None) => {}
            Some(Some(true)) => return Ok(Some(end)),
            Some(Some(false)) => return Err(AnswerFault::No(quoted(line))),
            None => return Err(AnswerFault::Foreign(quoted(line))),
        }
    }
    Ok(None)
}

/// Handshake packet of MySQL's protocol 10: length and number, version, the server's name, number of the connection,
/// 8 bytes and a filler, the lower half of its capabilities.
fn greeting(bytes: &[u8]) -> Result<Option<usize>, AnswerFault> {
    const CLIENT_SSL: u8 = 0x08;
    let [length @ .., number, version] = *match bytes.first_chunk::<5>() {
        Some(header) => header,
        None => return Ok(None),
    };
    let end = 4 + u32::from_le_bytes([length[0], length[1], length[2], 0]) as usize;
    if number != 0 || version != 10 && version != 0xff || end > ANSWER {
        return Err(AnswerFault::Foreign(quoted(bytes)));
    }
    let Some(packet) = bytes.get(5..end) else { return Ok(None) };
    let name = packet.iter().position(|byte| *byte == 0).unwrap_or(packet.len());
    match packet.get(name + 1 + 4 + 8 + 1 + 1) {
        Some(upper_byte) if version == 10 && upper_byte & CLIENT_SSL != 0 => Ok(Some(end)),
        Some(_) if version == 10 => Err(AnswerFault::No(quoted(&packet[..name]))),
        _ if version == 10 => Err(AnswerFault::Foreign(quoted(bytes))),
        // The number of an error stands before the text.
        _ => Err(AnswerFault::Unable(quoted(packet.get(2..).unwrap_or_default()))),
    }
}

/// A message of LDAP: SEQUENCE { 1, [APPLICATION 24] { ENUMERATED code, .. } } in BER.
fn extended(bytes: &[u8]) -> Result<Option<usize>, AnswerFault> {
    let foreign = |()| AnswerFault::Foreign(quoted(bytes));
    if bytes.first().is_some_and(|tag| *tag != 0x30) {
        return Err(foreign(()));
    }
    let Some((_, outer)) = element(bytes).map_err(foreign)? else { return Ok(None) };
    let message = &bytes[outer.clone()];
    // The message is whole, so that what does not fit into it is none of LDAP.
    let inner = |bytes: &[u8]| element(bytes).and_then(|found| found.ok_or(())).map_err(foreign);
    let (id, of_id) = inner(message)?;
    let rest = &message[of_id.end..];
    let (kind, of_response) = inner(rest)?;
    let response = &rest[of_response];
    let (code, of_code) = inner(response)?;
    match (id, kind, code, &response[of_code]) {
        (0x02, 0x78, 0x0a, [0]) => Ok(Some(outer.end)),
        (0x02, 0x78, 0x0a, _) => Err(AnswerFault::No(quoted(response))),
        _ => Err(foreign(())),
    }
}

/// Tag of an element in BER, and where its value is; `None`: not all of it is here.
///
/// # Errors
/// Its length is none that LDAP has here.
fn element(bytes: &[u8]) -> Result<Option<(u8, Range<usize>)>, ()> {
    let [tag, first, rest @ ..] = bytes else { return Ok(None) };
    let more = if *first < 0x80 { 0 } else { usize::from(first & 0x7f) };
    if *first == 0x80 || more > 4 {
        return Err(());
    }
    let Some(digits) = rest.get(..more) else { return Ok(None) };
    let long = digits.iter().fold(0, |sum, byte| sum << 8 | usize::from(*byte));
    let length = if more == 0 { usize::from(*first) } else { long };
    if length > ANSWER {
        return Err(());
    }
    let value = 2 + more..2 + more + length;
    Ok((value.end <= bytes.len()).then_some((*tag, value)))
}

impl fmt::Display for AnswerFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            AnswerFault::No(words) | AnswerFault::Unable(words) | AnswerFault::Foreign(words) => {
                write!(f, "it answered `{words}`")
            }
            AnswerFault::TooLong => write!(f, "its answer has more than {ANSWER} bytes"),
            AnswerFault::GoesOn(words) => write!(f, "behind its answer came `{words}`"),
            AnswerFault::Ended(words) if words.is_empty() => f.write_str("nothing came"),
            AnswerFault::Ended(words) => write!(f, "nothing came after `{words}`"),
        }
    }
}

impl std::error::Error for AnswerFault {}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(answer: Answer, bytes: &[u8]) -> Result<(usize, bool), AnswerFault> {
        let mut reader = AnswerReader::new(answer);
        Ok((reader.receive(bytes)?, reader.is_complete()))
    }

    #[test]
    fn an_answer_ends_where_a_person_says() {
        let until = |last: &'static [u8]| Answer::Until(last.into());
        assert_eq!(read(until(b"\r\n"), b"+PONG\r\n+"), Ok((7, true)));
        assert_eq!(read(until(b"aab"), b"aaaab"), Ok((5, true)));
        assert_eq!(read(until(b"x"), &[b'y'; 100_000]), Ok((100_000, false)));
        assert_eq!(read(Answer::Bytes(3), b"abcd"), Ok((3, true)));
        assert_eq!(read(Answer::Exactly(b"+PONG\r\n"), b"-NOAUTH x"), Err(AnswerFault::No("-NOAUTH x".to_owned())));
        let mut reader = AnswerReader::new(Answer::Bytes(100_000));
        (0..99).for_each(|_| reader.receive_all(&[b'z'; 1000]).unwrap());
        assert_eq!(reader.end_of_input(), Err(AnswerFault::Ended("z".repeat(ANSWER_QUOTED))));
        assert_eq!(reader.receive_all(&[b'!'; 1001]), Err(AnswerFault::GoesOn("!".to_owned())));
    }

    #[test]
    fn what_is_told_of_a_peer_is_short_and_printable() {
        let told = quoted(&[0xff; 1000]);
        assert!(told.ends_with("…") && told.len() < 500, "{told}");
        assert_eq!(quoted(b"a`\x1b[31m\r\n"), "a`\\x1b[31m");
    }
}
