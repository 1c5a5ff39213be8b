//! What is said over a connection that is not HTTP, and what comes before TLS on it.

use std::io::ErrorKind;
use std::sync::Arc;

use tlsdyno_tls::{Config, Session};
use tlsdyno_wire::answer::{Answer, AnswerReader};
use tlsdyno_wire::http::Response;
use tlsdyno_wire::opening::{Dialogue, Opening};

use super::reply::Reply;
use super::{Exchange, Failure};

/// Something said, and what it is answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Turn {
    /// Empty: the server speaks first.
    pub say: Vec<u8>,
    /// `None`: HTTP/1.1.
    pub answer: Option<Answer>,
}

impl Turn {
    /// A whole request of HTTP/1.1.
    pub fn http(request: Vec<u8>) -> Turn {
        Turn { say: request, answer: None }
    }

    fn reply(&self) -> Reply {
        let http = || Reply::Http1(Box::new(Response::new(false)));
        self.answer.clone().map_or_else(http, |answer| Reply::Other(AnswerReader::new(answer)))
    }
}

impl<'a> Exchange<'a> {
    /// Says what comes before the hello, and waits until TLS may begin. `host`: what the client calls the server.
    pub fn opened(mut self, opening: Option<Opening>, host: &str) -> Result<Exchange<'a>, Failure> {
        let Some(opening) = opening else { return Ok(self) };
        let mut dialogue = Dialogue::begin(opening, host, &mut self.out);
        let mut begins = false;
        while !begins {
            self.send()?;
            let read = match self.next_bytes() {
                Ok((read, _)) => read,
                Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => 0,
                Err(error) => return Err(self.late(error)),
            };
            if read == 0 {
                return Err(dialogue.ended().into());
            }
            begins = dialogue.receive(&self.buffer[..read], &mut self.out)?;
        }
        self.send()?;
        Ok(self)
    }

    /// Makes the hello, and takes these turns, each once the one before is answered. The last is under way then.
    pub fn taking_turns(
        mut self,
        tls: Option<&Arc<Config>>,
        session: Option<Session>,
        turns: &'a [Turn],
    ) -> Result<Exchange<'a>, Failure> {
        let Some((first, others)) = turns.split_first() else { return self.asking(tls, session, b"", b"") };
        self.received.reply = first.reply();
        self = self.asking(tls, session, &first.say, b"")?;
        for turn in others {
            self.answered()?;
            (self.request, self.received.reply, self.times.requested_ns) = (&turn.say, turn.reply(), None);
        }
        Ok(self)
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::TcpListener;
    use std::time::Duration;

    use super::*;
    use crate::exchange::TIME_LIMIT;

    /// What a client tells of a server that says this, after so many bytes from the client.
    fn told(opening: Opening, answers: &'static [(usize, &[u8])], limit: Duration) -> Result<(), String> {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let server = std::thread::spawn(move || {
            let mut stream = listener.accept().unwrap().0;
            for (bytes, answer) in answers {
                stream.read_exact(&mut vec![0; *bytes]).unwrap();
                stream.write_all(answer).unwrap();
            }
            // Until the client goes.
            let _ = stream.read(&mut [0]);
        });
        let opened = Exchange::connect(address, limit).unwrap().opened(Some(opening), "localhost");
        let told = opened.map(drop).map_err(|failure| failure.to_string());
        server.join().unwrap();
        told
    }

    #[test]
    fn an_opening_is_said_and_a_refusal_told() {
        let patient = |opening, answers| told(opening, answers, TIME_LIMIT);
        assert_eq!(patient(Opening::Postgres, &[(8, b"S")]), Ok(()));
        let lines: &[(usize, &[u8])] = &[(0, b"220 a\r\n"), (16, b"250-b\r\n250 c\r\n"), (10, b"220 d\r\n")];
        assert_eq!(patient(Opening::Smtp, lines), Ok(()));
        let refused = patient(Opening::Postgres, &[(8, b"N")]).unwrap_err();
        assert!(refused.starts_with("the server takes no TLS: it answered `N`; switch TLS on"), "{refused}");
        let silent = told(Opening::Pop3, &[], Duration::from_millis(20)).unwrap_err();
        assert!(silent.starts_with("TLS did not begin: nothing came where POP3 has an answer"), "{silent}");
    }

    /// Also without TLS, as all of it is the same to them.
    #[test]
    fn turns_are_taken_one_after_the_other() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let server = std::thread::spawn(move || {
            let mut stream = listener.accept().unwrap().0;
            stream.write_all(b"* OK hello\r\n").unwrap();
            for number in 0..3 {
                let mut request = [0; 8];
                stream.read_exact(&mut request).unwrap();
                assert_eq!(&request, b"a NOOP\r\n");
                stream.write_all(if number < 2 { b"a OK\r\n" } else { b"a OK\r\n*" }).unwrap();
            }
            let _ = stream.read(&mut [0]);
        });
        let turns = [
            Turn { say: Vec::new(), answer: Some(Answer::Line("* OK")) },
            Turn { say: b"a NOOP\r\n".to_vec(), answer: Some(Answer::Tagged) },
        ];
        let mut exchange = Exchange::connect(address, TIME_LIMIT).unwrap().taking_turns(None, None, &turns).unwrap();
        exchange.answered().unwrap();
        exchange.again().unwrap();
        let behind = exchange.again().unwrap_err().to_string();
        assert_eq!(behind, "the answer is not the expected one: behind its answer came `*`");
        drop(exchange);
        server.join().unwrap();
    }
}
