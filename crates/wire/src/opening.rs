//! What client and server say before TLS begins: SSLRequest and STARTTLS, in one table.

use std::fmt;

use super::answer::{Answer, AnswerFault, AnswerReader, quoted};

/// A protocol whose connections begin without TLS.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Opening {
    /// SSLRequest (PostgreSQL's protocol 3.0, "SSL Session Encryption").
    Postgres,
    /// SSLRequest after the server's greeting (MySQL's protocol 10; MariaDB has the same).
    Mysql,
    /// STARTTLS (RFC 3207).
    Smtp,
    /// The same with LHLO (RFC 2033).
    Lmtp,
    /// STARTTLS (RFC 9051 section 6.2.1).
    Imap,
    /// STLS (RFC 2595 section 4).
    Pop3,
    /// The extended request StartTLS (RFC 4511 section 4.14).
    Ldap,
    /// STARTTLS (RFC 6120 section 5).
    Xmpp,
    /// AUTH TLS (RFC 4217 section 4).
    Ftp,
    /// The header of TLS (AMQP 1.0, part 5, section 5.2.1).
    Amqp,
}

/// TLS does not begin, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OpeningFault {
    opening: Opening,
    /// It was asked for TLS before.
    is_asked: bool,
    why: AnswerFault,
}

/// An opening under way, told of bytes and answering bytes.
#[derive(Clone, Debug)]
pub struct Dialogue {
    opening: Opening,
    host: String,
    step: usize,
    reader: AnswerReader,
    /// TLS begins.
    begins: bool,
}

const SSL_REQUEST: &[u8] = b"\0\0\0\x08\x04\xd2\x16\x2f";
/// Length and number of the packet, CLIENT_SSL, CLIENT_PROTOCOL_41 and CLIENT_SECURE_CONNECTION, the largest packet,
/// utf8mb4, 23 zeros.
const MYSQL_REQUEST: &[u8] = b"\x20\0\0\x01\x00\x8a\0\0\0\0\0\x01\x2d\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0";
const START_TLS: &[u8] = b"\x30\x1d\x02\x01\x01\x77\x18\x80\x161.3.6.1.4.1.1466.20037";
const AMQP_TLS: &[u8] = b"AMQP\x02\x01\x00\x00";

impl Opening {
    /// Every one of them.
    pub const ALL: [Opening; 10] = [
        Opening::Postgres,
        Opening::Mysql,
        Opening::Smtp,
        Opening::Lmtp,
        Opening::Imap,
        Opening::Pop3,
        Opening::Ldap,
        Opening::Xmpp,
        Opening::Ftp,
        Opening::Amqp,
    ];

    /// What the client says next, and what it waits for then; no answer: TLS begins.
    fn step(self, number: usize, host: &str) -> (Vec<u8>, Option<Answer>) {
        let turns: &[(&[u8], Answer)] = match self {
            Opening::Postgres => &[(SSL_REQUEST, Answer::Consent)],
            Opening::Mysql => &[(b"", Answer::Greeting)],
            Opening::Smtp => {
                &[(b"", Answer::Reply), (b"EHLO localhost\r\n", Answer::Reply), (b"STARTTLS\r\n", Answer::Reply)]
            }
            Opening::Lmtp => {
                &[(b"", Answer::Reply), (b"LHLO localhost\r\n", Answer::Reply), (b"STARTTLS\r\n", Answer::Reply)]
            }
            Opening::Imap => &[(b"", Answer::Line("* OK")), (b"a STARTTLS\r\n", Answer::Tagged)],
            Opening::Pop3 => &[(b"", Answer::Line("+OK")), (b"STLS\r\n", Answer::Line("+OK"))],
            Opening::Ldap => &[(START_TLS, Answer::Extended)],
            Opening::Xmpp => {
                &[(b"", Answer::Features), (b"<starttls xmlns='urn:ietf:params:xml:ns:xmpp-tls'/>", Answer::Proceed)]
            }
            Opening::Ftp => &[(b"", Answer::Reply), (b"AUTH TLS\r\n", Answer::Reply)],
            Opening::Amqp => &[(AMQP_TLS, Answer::Exactly(AMQP_TLS))],
        };
        match (turns.get(number), self, number) {
            (Some((_, answer)), Opening::Xmpp, 0) => {
                let stream = format!(
                    "<?xml version='1.0'?><stream:stream to='{host}' version='1.0' xmlns='jabber:client' \
                     xmlns:stream='http://etherx.jabber.org/streams'>"
                );
                (stream.into_bytes(), Some(answer.clone()))
            }
            (Some((say, answer)), ..) => (say.to_vec(), Some(answer.clone())),
            // The server answers no more: the hello may follow at once.
            (None, Opening::Mysql, 1) => (MYSQL_REQUEST.to_vec(), None),
            (None, ..) => (Vec::new(), None),
        }
    }

    fn name(self) -> &'static str {
        match self {
            Opening::Postgres => "PostgreSQL",
            Opening::Mysql => "MySQL",
            Opening::Smtp => "SMTP",
            Opening::Lmtp => "LMTP",
            Opening::Imap => "IMAP",
            Opening::Pop3 => "POP3",
            Opening::Ldap => "LDAP",
            Opening::Xmpp => "XMPP",
            Opening::Ftp => "FTP",
            Opening::Amqp => "AMQP 1.0",
        }
    }

    /// What the server's owner can do.
    fn remedy(self) -> &'static str {
        match self {
            Opening::Postgres => "switch TLS on: `ssl = on`, with ssl_cert_file and ssl_key_file",
            Opening::Mysql => "give the server ssl_cert and ssl_key",
            Opening::Smtp | Opening::Lmtp => "switch STARTTLS on, in Postfix by smtpd_tls_security_level = may",
            Opening::Imap | Opening::Pop3 => "switch STARTTLS on, in Dovecot by ssl = yes",
            Opening::Ldap => "give the server a certificate, slapd by TLSCertificateFile (olcTLSCertificateFile)",
            Opening::Xmpp | Opening::Ftp => "give the server a certificate",
            Opening::Amqp => "a port for TLS from the first byte is measured as amqps://",
        }
    }
}

impl Dialogue {
    /// Begins, with what the client says first, if anything. `host`: what the client calls the server.
    pub fn begin(opening: Opening, host: &str, out: &mut Vec<u8>) -> Dialogue {
        let (say, answer) = opening.step(0, host);
        out.extend(say);
        let reader = AnswerReader::new(answer.unwrap_or(Answer::Bytes(0)));
        Dialogue { opening, host: host.to_owned(), step: 0, reader, begins: false }
    }

    /// Takes bytes of the server, and appends what the client says next. Answers whether TLS begins now.
    ///
    /// # Errors
    /// It does not begin. Also where more came than the consent, which somebody on the way may have put there
    /// (CVE-2021-23222).
    pub fn receive(&mut self, mut bytes: &[u8], out: &mut Vec<u8>) -> Result<bool, OpeningFault> {
        while !self.begins {
            let taken = self.reader.receive(bytes).map_err(|why| self.fault(why))?;
            bytes = &bytes[taken..];
            if !self.reader.is_complete() {
                return Ok(false);
            }
            self.step += 1;
            let (say, answer) = self.opening.step(self.step, &self.host);
            out.extend(say);
            match answer {
                Some(answer) => self.reader = AnswerReader::new(answer),
                None => self.begins = true,
            }
        }
        match bytes {
            [] => Ok(true),
            _ => Err(self.fault(AnswerFault::GoesOn(quoted(bytes)))),
        }
    }

    /// The server has closed, or says nothing more.
    pub fn ended(&self) -> OpeningFault {
        self.fault(AnswerFault::Ended(self.reader.words()))
    }

    fn fault(&self, why: AnswerFault) -> OpeningFault {
        let is_asked = self.begins || self.opening.step(self.step + 1, &self.host).1.is_none();
        OpeningFault { opening: self.opening, is_asked, why }
    }
}

impl fmt::Display for OpeningFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let protocol = self.opening.name();
        match &self.why {
            AnswerFault::No(_) if self.is_asked => {
                write!(f, "the server takes no TLS: {}; {}", self.why, self.opening.remedy())
            }
            AnswerFault::No(_) | AnswerFault::Unable(_) => {
                write!(f, "TLS did not begin: {}, before it was asked for TLS; look at the server's log", self.why)
            }
            AnswerFault::Ended(_) => write!(
                f,
                "TLS did not begin: {} where {protocol} has an answer; look at the server's log, and whether it speaks \
                 {protocol} at this port",
                self.why
            ),
            AnswerFault::Foreign(_) | AnswerFault::TooLong | AnswerFault::GoesOn(_) => write!(
                f,
                "TLS did not begin, as that is not how {protocol} answers: {}; give the scheme of what speaks there, \
                 and tls:// for TLS from the first byte",
                self.why
            ),
        }
    }
}

impl std::error::Error for OpeningFault {}

#[cfg(test)]
mod tests;
