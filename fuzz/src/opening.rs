//! What a server says before TLS, and answers that are no HTTP.

use tlsdyno_wire::answer::{Answer, AnswerReader};
use tlsdyno_wire::limits::ANSWER;
use tlsdyno_wire::opening::{Dialogue, Opening};

/// What a server says to an opening, the first byte saying to which, the second in which pieces it comes: however it is
/// cut, it comes to the same, and a fault is told in printable words.
pub fn opening_receive(data: &[u8]) {
    let [choice, cut, bytes @ ..] = data else { return };
    let opening = Opening::ALL[usize::from(*choice) % Opening::ALL.len()];
    let receive = |piece: usize| {
        let mut out = Vec::new();
        let mut dialogue = Dialogue::begin(opening, "localhost", &mut out);
        let mut begins = false;
        for piece in bytes.chunks(piece) {
            begins = match dialogue.receive(piece, &mut out) {
                Ok(begins) => begins,
                Err(fault) => {
                    let words = fault.to_string();
                    assert!(words.len() < 1000 && words.bytes().all(|byte| byte >= b' '));
                    return (out, None);
                }
            };
        }
        assert!(bytes.len() <= 4 * ANSWER || begins, "nothing is held without end");
        (out, Some(begins))
    };
    assert_eq!(receive(1 + usize::from(*cut)), receive(bytes.len().max(1)));
}

/// An answer whose end a person gives: the first byte says how it ends, the second in which pieces it comes.
pub fn answer_receive(data: &[u8]) {
    let [choice, cut, bytes @ ..] = data else { return };
    let last = bytes.split_at(bytes.len().min(1 + usize::from(choice % 4))).0;
    let answer = match choice {
        0..128 if last.is_empty() => return,
        0..128 => Answer::Until(last.to_vec().into()),
        _ => Answer::Bytes(u64::from(*choice) * 7),
    };
    let bytes = &bytes[last.len()..];
    let receive = |piece: usize| {
        let mut reader = AnswerReader::new(answer.clone());
        let taken = bytes.chunks(piece).map(|piece| reader.receive(piece).expect("any bytes will do")).sum::<usize>();
        assert_eq!((taken as u64, reader.end_of_input().is_ok()), (reader.received(), reader.is_complete()));
        (taken, reader.is_complete())
    };
    let (taken, is_complete) = receive(bytes.len().max(1));
    assert_eq!(receive(1 + usize::from(*cut)), (taken, is_complete));
    let is_end = |at: usize| match &answer {
        Answer::Until(last) => bytes[..at].ends_with(last),
        _ => at == usize::from(*choice) * 7,
    };
    assert_eq!((0..=bytes.len()).find(|at| is_end(*at)), is_complete.then_some(taken));
}

/// Seeds for [`opening_receive`].
pub fn opening_seeds() -> Vec<Vec<u8>> {
    let seeds: [(Opening, &[u8]); 9] = [
        (Opening::Postgres, b"S"),
        (Opening::Mysql, b"\x1e\0\0\0\x0a8.0\0\x07\0\0\0saltsalt\0\xff\xfe\x2d\x02\0\xff\x81\x15\0\0\0\0"),
        (Opening::Smtp, b"220 mail ESMTP\r\n250-mail\r\n250 STARTTLS\r\n220 Ready\r\n"),
        (Opening::Imap, b"* OK ready\r\n* CAPABILITY X\r\na OK Begin\r\n"),
        (Opening::Pop3, b"+OK ready\r\n+OK Begin\r\n"),
        (Opening::Ldap, b"\x30\x0c\x02\x01\x01\x78\x07\x0a\x01\x00\x04\x00\x04\x00"),
        (Opening::Xmpp, b"<stream:stream><stream:features><starttls/></stream:features><proceed/>"),
        (Opening::Ftp, b"220-Welcome\r\n to\r\n220 x\r\n234 yes\r\n"),
        (Opening::Amqp, b"AMQP\x02\x01\0\0"),
    ];
    let number = |opening| Opening::ALL.iter().position(|of| *of == opening).unwrap_or_default() as u8;
    seeds.map(|(opening, bytes)| [&[number(opening), 2][..], bytes].concat()).to_vec()
}

/// Seeds for [`answer_receive`].
pub fn answer_seeds() -> Vec<Vec<u8>> {
    vec![b"\x01\x02\r\n+PONG\r\n+PONG\r\n".to_vec(), b"\x02\0aabaaaab".to_vec(), [&[128, 9][..], &[7; 900]].concat()]
}
