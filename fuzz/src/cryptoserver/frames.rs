//! What the fuzz target of the cryptoserver's frames runs; in `crates/cryptoserver/src/` the tests do it with the
//! inputs that are kept.

use super::form::{self, Form};
use super::frame::{Answer, Body, Malformed, Request, first};

/// What is encoded again.
trait Again {
    fn again(&self, into: &mut Vec<u8>);
}

impl Again for Request<'_> {
    fn again(&self, into: &mut Vec<u8>) {
        self.encode(into);
    }
}

impl Again for Answer<'_> {
    fn again(&self, into: &mut Vec<u8>) {
        self.encode(into);
    }
}

/// Bytes as requests and as answers: however they are cut it is the same, what is understood survives, and what may be
/// signed has its form to the byte.
pub fn frames(data: &[u8]) {
    let Some((&cut, bytes)) = data.split_first() else { return };
    let piece = usize::from(cut) + 1;
    same::<Request>(bytes, piece);
    same::<Answer>(bytes, piece);
    let mut rest = bytes;
    while let Ok(Some((request, length))) = first::<Request>(rest) {
        signs(request.message, request.detail);
        rest = &rest[length..];
    }
    signs(bytes, 0x0804);
}

/// All frames that follow one another, encoded again, and what comes after them.
fn all<'a, B: Body<'a> + Again>(bytes: &'a [u8]) -> (Vec<u8>, Result<(), Malformed>) {
    let (mut done, mut again) = (0, Vec::new());
    loop {
        match first::<B>(&bytes[done..]) {
            Ok(Some((frame, length))) => {
                frame.again(&mut again);
                done += length;
                assert_eq!(again, bytes[..done]);
            }
            Ok(None) => return (again, Ok(())),
            Err(malformed) => return (again, Err(malformed)),
        }
    }
}

fn same<'a, B: Body<'a> + Again>(bytes: &'a [u8], piece: usize) {
    let whole = all::<B>(bytes);
    // As it comes from a socket: the beginning of what is there grows.
    let ends = (0..bytes.len()).step_by(piece).chain([bytes.len()]);
    for end in ends {
        let (again, result) = all::<B>(&bytes[..end]);
        assert!(whole.0.starts_with(&again));
        assert!(result.is_ok() || (again == whole.0 && whole.1.is_err()));
    }
}

fn signs(message: &[u8], scheme: u16) {
    match form::of(message, scheme) {
        Ok(Form::CertificateVerify) => {
            let text = [&[b' '; 64][..], b"TLS 1.3, server CertificateVerify\0"].concat();
            assert!(message.starts_with(&text) && [32, 48].contains(&(message.len() - text.len())));
        }
        Ok(Form::ServerKeyExchange) => {
            assert_eq!(message[64], 3);
            assert_eq!(usize::from(message[67]), message.len() - 68);
        }
        Err(_) => {}
    }
}

/// Requests and answers to begin with.
pub fn seeds() -> Vec<Vec<u8>> {
    let mut requests = vec![3];
    for (message, detail) in form::examples() {
        let operation = super::frame::Operation::Sign;
        Request { tag: 7, operation, key: [1; 16], detail, message: &message }.encode(&mut requests);
    }
    let mut answers = vec![200];
    for status in [super::frame::Status::Done, super::frame::Status::Refused] {
        Answer { tag: 7, status, bytes: &[5; 256] }.encode(&mut answers);
    }
    vec![requests, answers]
}
