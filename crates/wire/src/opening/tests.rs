//! Real answers lead to TLS however they are cut; hostile ones are refused in words.

use super::*;

/// What servers of Debian 12 answered, turn by turn; of LMTP, XMPP, FTP and AMQP what specifications have.
fn answers(opening: Opening) -> Vec<Vec<u8>> {
    let text = |answers: &[&str]| answers.iter().map(|answer| answer.as_bytes().to_vec()).collect();
    match opening {
        Opening::Postgres => text(&["S"]),
        Opening::Mysql => vec![greeting(b"5.5.5-10.11.19-MariaDB", 0xfe)],
        Opening::Smtp | Opening::Lmtp => text(&[
            "220 mail ESMTP Postfix (Debian/GNU)\r\n",
            "250-mail\r\n250-PIPELINING\r\n250-STARTTLS\r\n250 CHUNKING\r\n",
            "220 2.0.0 Ready to start TLS\r\n",
        ]),
        Opening::Imap => {
            text(&["* OK [CAPABILITY IMAP4rev1 STARTTLS] Dovecot ready.\r\n", "a OK Begin TLS negotiation now.\r\n"])
        }
        Opening::Pop3 => text(&["+OK Dovecot ready.\r\n", "+OK Begin TLS negotiation now.\r\n"]),
        Opening::Ldap => vec![b"\x30\x0c\x02\x01\x01\x78\x07\x0a\x01\x00\x04\x00\x04\x00".to_vec()],
        Opening::Xmpp => text(&[
            "<?xml version='1.0'?><stream:stream id='1' version='1.0'><stream:features><starttls \
             xmlns='urn:ietf:params:xml:ns:xmpp-tls'><required/></starttls></stream:features>",
            "<proceed xmlns='urn:ietf:params:xml:ns:xmpp-tls'/>",
        ]),
        Opening::Ftp => text(&["220-Welcome\r\n to this\r\n220 server\r\n", "234 AUTH TLS successful\r\n"]),
        Opening::Amqp => vec![AMQP_TLS.to_vec()],
    }
}

/// A packet of MySQL with this upper byte of the lower capabilities.
fn greeting(name: &[u8], capabilities: u8) -> Vec<u8> {
    let packet =
        [&b"\x0a"[..], name, b"\0\x07\0\0\0saltsalt\0\xff", &[capabilities], b"\x2d\x02\0\xff\x81\x15"].concat();
    [&[packet.len() as u8, 0, 0, 0][..], &packet].concat()
}

/// What the client says in all, and whether TLS begins.
fn said(opening: Opening, bytes: &[u8], piece: usize) -> Result<(Vec<u8>, bool), OpeningFault> {
    let mut out = Vec::new();
    let mut dialogue = Dialogue::begin(opening, "localhost", &mut out);
    let mut begins = false;
    for piece in bytes.chunks(piece) {
        begins = dialogue.receive(piece, &mut out)?;
    }
    Ok((out, begins))
}

#[test]
fn tls_begins_with_what_real_servers_answer_however_it_is_cut() {
    for opening in Opening::ALL {
        let answers = answers(opening);
        let whole = answers.concat();
        for piece in 1..=whole.len() {
            let (out, begins) = said(opening, &whole, piece).unwrap();
            assert!(begins && out.len() > 5, "{opening:?} {piece}");
        }
        // One byte less, and it waits; one more, and somebody has put it there.
        assert_eq!(said(opening, &whole[..whole.len() - 1], 1).map(|(_, begins)| begins), Ok(false), "{opening:?}");
        let behind = said(opening, &[&whole[..], b"x"].concat(), whole.len()).unwrap_err().to_string();
        assert!(behind.contains("behind its answer came `x`"), "{opening:?}: {behind}");
    }
}

#[test]
fn requests_are_those_of_the_specifications() {
    let out = |opening| said(opening, &answers(opening).concat(), 7).unwrap().0;
    assert_eq!(out(Opening::Postgres), [0, 0, 0, 8, 4, 210, 22, 47]);
    let mysql = out(Opening::Mysql);
    assert_eq!((mysql.len(), &mysql[..4], mysql[5] & 0x08), (36, &[32, 0, 0, 1][..], 8));
    assert_eq!(out(Opening::Smtp), b"EHLO localhost\r\nSTARTTLS\r\n");
    assert_eq!(out(Opening::Lmtp), b"LHLO localhost\r\nSTARTTLS\r\n");
    assert_eq!(out(Opening::Imap), b"a STARTTLS\r\n");
    assert_eq!(out(Opening::Ldap).len(), 31);
    assert!(out(Opening::Xmpp).ends_with(b"<starttls xmlns='urn:ietf:params:xml:ns:xmpp-tls'/>"));
}

/// What no server of this protocol says where the client waits: noise, other protocols, too much, lengths that lie.
fn hostile() -> Vec<Vec<u8>> {
    let texts: [&[u8]; 27] = [
        b"\0",
        b"\xff\xff\xff\xff\xff\xff",
        b"HTTP/1.1 400 Bad Request\r\n\r\n",
        b"SSH-2.0-OpenSSH_9.2\r\n",
        b"\x15\x03\x01\x00\x02\x02\x28",
        b"\x16\x03\x03\x00\x7a\x02\x00\x00",
        b"N",
        b"E\0\0\0\x10SFATAL\0Mtoo many\0\0",
        b"554 5.7.1 no\r\n",
        b"421 too busy\r\n",
        b"500 what?\r\n",
        b"999 what?\r\n",
        b"* BYE overloaded\r\n",
        b"* PREAUTH hello\r\n",
        b"a NO not now\r\n",
        b"a BAD what\r\n",
        b"-ERR no\r\n",
        b"+\r\n",
        b"\x30\x84\xff\xff\xff\xff",
        b"\x30\x80\x02\x01",
        b"\x30\x0c\x02\x01\x01\x78\x07\x0a\x01\x02\x04\x00\x04\x00",
        b"\x30\x03\x02\x7f\x01",
        b"\x15\0\0\0\xff\x10\x04Too many connections",
        b"<stream:stream><stream:error/></stream:stream>",
        b"<stream:stream><stream:features><starttls/></stream:stream></stream:features>",
        b"<failure xmlns='urn:ietf:params:xml:ns:xmpp-tls'/>",
        b"AMQP\0\0\x09\x01",
    ];
    let letters = b"\0 -*+<0SaAx\x30".map(|letter| vec![letter; limits_and_one()]);
    let greetings = [greeting(b"8.0", 0xf7), greeting(b"8.0", 0xff)[..4].to_vec()].map(|of| [of, vec![0; 9]].concat());
    texts.map(<[u8]>::to_vec).into_iter().chain(letters).chain(greetings).collect()
}

fn limits_and_one() -> usize {
    crate::limits::ANSWER + 1
}

#[test]
fn hostile_answers_are_refused_in_words_at_each_turn() {
    let hostile = hostile();
    assert!(hostile.len() >= 40, "{}", hostile.len());
    for opening in Opening::ALL {
        let answers = answers(opening);
        for turn in 0..answers.len() {
            for bytes in &hostile {
                let bytes = [&answers[..turn].concat()[..], bytes].concat();
                let told = |piece| {
                    let mut out = Vec::new();
                    let mut dialogue = Dialogue::begin(opening, "h", &mut out);
                    // A server that says too little is ended by its silence.
                    let faults = bytes.chunks(piece).find_map(|piece| dialogue.receive(piece, &mut out).err());
                    faults.unwrap_or_else(|| dialogue.ended()).to_string()
                };
                let words = told(bytes.len());
                assert!(words.contains("server") || words.contains("give the scheme"), "{words}");
                assert!(words.len() < 800 && words.bytes().all(|byte| byte >= b' '), "{words}");
                let in_pieces = said(opening, &bytes, 1 + bytes.len() / 16);
                assert_eq!(in_pieces.is_err(), said(opening, &bytes, bytes.len()).is_err(), "{words}");
                assert_ne!(in_pieces.map(|(_, begins)| begins), Ok(true), "{opening:?} {words}");
            }
        }
    }
}

#[test]
fn a_server_without_tls_is_told_so_with_the_remedy() {
    let refused = |opening, last: &[u8]| {
        let mut answers = answers(opening);
        *answers.last_mut().unwrap() = last.to_vec();
        said(opening, &answers.concat(), 4).unwrap_err().to_string()
    };
    for (opening, last, words) in [
        (Opening::Postgres, &b"N"[..], "takes no TLS: it answered `N`; switch TLS on: `ssl = on`"),
        (Opening::Mysql, &greeting(b"10.11", 0xf6), "takes no TLS: it answered `10.11`; give the server ssl_cert"),
        (Opening::Smtp, b"502 5.5.1 no command\r\n", "`502 5.5.1 no command`; switch STARTTLS on"),
        (Opening::Imap, b"a BAD TLS support isn't enabled.\r\n", "in Dovecot by ssl = yes"),
        (Opening::Pop3, b"-ERR TLS support isn't enabled.\r\n", "in Dovecot by ssl = yes"),
        (Opening::Ldap, b"\x30\x0c\x02\x01\x01\x78\x07\x0a\x01\x02\x04\x00\x04\x00", "TLSCertificateFile"),
    ] {
        let told = refused(opening, last);
        assert!(told.contains(words), "{told}");
    }
    // Not yet asked for TLS: no remedy of TLS's.
    let busy = said(Opening::Smtp, b"421 too many\r\n", 3).unwrap_err().to_string();
    assert!(busy.contains("421 too many") && !busy.contains("STARTTLS"), "{busy}");
}
