//! Somebody on the way who knows all keys (from the server's key log), and so can change what a server sends inside its
//! encryption.

use std::sync::{Arc, Mutex};

use tlsdyno_tls::crypto::hash::Digest;
use tlsdyno_tls::crypto::kdf::{hkdf_expand_label, prf12};
use tlsdyno_tls::crypto::protect::{Opener, Sealer, Side};
use tlsdyno_tls::{StageSet, Suite};

use crate::harness::is_tls13;

const ON: StageSet = StageSet::NONE;

/// Content types.
pub const CHANGE_CIPHER_SPEC: u8 = 20;
pub const ALERT: u8 = 21;
pub const HANDSHAKE: u8 = 22;
pub const DATA: u8 = 23;

/// Under which keys a record is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Epoch {
    Clear,
    /// TLS 1.3 only.
    Handshake,
    Application,
}

/// The content of one record, in clear.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Piece {
    pub epoch: Epoch,
    pub content_type: u8,
    pub content: Vec<u8>,
}

impl Piece {
    /// The type of the handshake message with which the piece begins.
    pub fn message(&self) -> Option<u8> {
        self.content.first().copied().filter(|_| self.content_type == HANDSHAKE)
    }

    pub fn with(&self, content: Vec<u8>) -> Piece {
        Piece { content, ..self.clone() }
    }
}

struct Keys {
    opener: Opener,
    sealer: Sealer,
    /// TLS 1.3 only.
    secret: Vec<u8>,
}

/// Takes the server's records apart, lets each be replaced by others, and puts them together again.
pub struct Meddler {
    suite: Suite,
    encrypt_then_mac: bool,
    log: Arc<Mutex<Vec<String>>>,
    epoch: Epoch,
    keys: Option<Keys>,
    server_random: Vec<u8>,
}

impl Meddler {
    pub fn new(suite: Suite, encrypt_then_mac: bool, log: &Arc<Mutex<Vec<String>>>) -> Meddler {
        log.lock().unwrap().clear();
        Meddler {
            suite,
            encrypt_then_mac,
            log: Arc::clone(log),
            epoch: Epoch::Clear,
            keys: None,
            server_random: Vec::new(),
        }
    }

    /// `bytes` are whole records of the server; what comes out is what the client gets.
    pub fn pass(&mut self, bytes: &[u8], edit: &mut dyn FnMut(&Piece) -> Vec<Piece>) -> Vec<u8> {
        let mut rest = bytes;
        let mut out = Vec::new();
        while let Some((header, after)) = rest.split_first_chunk::<5>() {
            let (body, after) = after.split_at(usize::from(u16::from_be_bytes([header[3], header[4]])));
            rest = after;
            let piece = self.open(*header, body.to_vec());
            self.watch_before(&piece);
            for piece in edit(&piece) {
                self.seal(&piece, &mut out);
            }
            self.watch_after(&piece);
        }
        out
    }

    fn open(&mut self, header: [u8; 5], mut body: Vec<u8>) -> Piece {
        let clear = Piece { epoch: Epoch::Clear, content_type: header[0], content: body.clone() };
        match &mut self.keys {
            Some(keys) if !(is_tls13(self.suite) && header[0] == CHANGE_CIPHER_SPEC) => {
                let (content_type, place) = keys.opener.open(header, &mut body).expect("the server's own record");
                Piece { epoch: self.epoch, content_type, content: body[place].to_vec() }
            }
            _ => clear,
        }
    }

    /// Appends one record; in clear also such contents as no sealer would make.
    pub fn seal(&mut self, piece: &Piece, out: &mut Vec<u8>) {
        match &mut self.keys {
            Some(keys) if piece.epoch != Epoch::Clear => keys.sealer.seal(piece.content_type, &piece.content, out),
            _ => {
                let [high, low] = (piece.content.len() as u16).to_be_bytes();
                out.extend_from_slice(&[piece.content_type, 3, 3, high, low]);
                out.extend_from_slice(&piece.content);
            }
        }
    }

    fn watch_before(&mut self, piece: &Piece) {
        if piece.epoch == Epoch::Clear && piece.message() == Some(2) {
            self.server_random = piece.content[6..38].to_vec();
        }
    }

    /// Changes keys where the server does.
    fn watch_after(&mut self, piece: &Piece) {
        match (is_tls13(self.suite), self.epoch) {
            (true, Epoch::Clear) if piece.message() == Some(2) => {
                self.change13(Epoch::Handshake, "SERVER_HANDSHAKE_TRAFFIC_SECRET")
            }
            (true, Epoch::Handshake) if piece.message() == Some(20) => {
                self.change13(Epoch::Application, "SERVER_TRAFFIC_SECRET_0")
            }
            (false, Epoch::Clear) if piece.content_type == CHANGE_CIPHER_SPEC => self.change12(),
            _ => (),
        }
    }

    /// Client random and secret of the log's last line with this label.
    fn logged(&self, label: &str) -> Option<(Vec<u8>, Vec<u8>)> {
        let log = self.log.lock().unwrap();
        let line = log.iter().rev().find(|line| line.split(' ').next() == Some(label))?;
        let mut fields = line.split(' ').skip(1).map(unhex);
        Some((fields.next()?, fields.next()?))
    }

    fn change13(&mut self, epoch: Epoch, label: &str) {
        // A HelloRetryRequest has the type of a ServerHello, but no secrets come with it.
        if let Some((_, secret)) = self.logged(label) {
            self.keys = Some(Keys {
                opener: Opener::tls13(self.suite, ON, &secret),
                sealer: Sealer::tls13(self.suite, ON, &secret),
                secret,
            });
            self.epoch = epoch;
        }
    }

    /// What a server does after its KeyUpdate (RFC 9846 section 7.2): later records go out under new keys. The server
    /// knows nothing of it, so that its own are still read under the old ones.
    pub fn update_keys(&mut self) {
        let keys = self.keys.as_mut().expect("there are keys");
        let mut next = Digest::zero(self.suite.hash());
        hkdf_expand_label(self.suite.hash(), ON, &keys.secret, b"traffic upd", b"", next.as_mut_slice());
        keys.sealer = Sealer::tls13(self.suite, ON, next.as_slice());
    }

    fn change12(&mut self) {
        let (client_random, master) = self.logged("CLIENT_RANDOM").expect("the server logs its master secret");
        let mut block = vec![0; self.suite.protection().key_block_bytes()];
        let seeds: [&[u8]; 2] = [&self.server_random, &client_random];
        prf12(self.suite.hash(), ON, &master, b"key expansion", &seeds, &mut block);
        self.keys = Some(Keys {
            opener: Opener::tls12(self.suite, ON, &block, Side::Server, self.encrypt_then_mac),
            sealer: Sealer::tls12(self.suite, ON, &block, Side::Server, self.encrypt_then_mac),
            secret: master,
        });
        self.epoch = Epoch::Application;
    }
}

fn unhex(digits: &str) -> Vec<u8> {
    let nibble = |digit: u8| (digit as char).to_digit(16).expect("the log is hexadecimal") as u8;
    digits.as_bytes().chunks(2).map(|pair| nibble(pair[0]) << 4 | nibble(pair[1])).collect()
}
