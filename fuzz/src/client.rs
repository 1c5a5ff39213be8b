//! The client: what it makes of whatever a server sends.

use std::sync::{Arc, OnceLock};

use tlsdyno_tls::{Client, Config, Effort, Entropy, Error, Group, Receiver, Session, Settings, Stage, StageSet, Suite};
use tlsdyno_wire::limits;

use super::script::records;
use super::seeds::{tls12_conversation, tls13_conversation};

/// A client that receives `data`, whole and in pieces: both must end alike, an error must leave its alert, and nothing
/// may grow beyond its bound.
///
/// Random bytes never get past encryption. Here they do: every no-op stage is off but authentication, so that keys,
/// Finished and tags are constants, and the input is a list of [`put_record`](super::script::put_record) records, plain
/// or "protected", instead of raw bytes.
pub fn client_receive(data: &[u8]) {
    let Some((choice, script)) = data.split_first() else {
        return;
    };
    let choice = Choice::of(*choice);
    let bytes = if choice.raw { script.to_vec() } else { records(script) };
    ends_alike(choice.config(), choice.session(), &bytes, 1 + usize::from(choice.piece));
}

pub(super) fn ends_alike(config: &Arc<Config>, session: Option<Session>, bytes: &[u8], piece: usize) {
    let whole = run(config, session.clone(), bytes, usize::MAX);
    let pieces = run(config, session, bytes, piece);
    assert_eq!(whole.result, pieces.result, "however the input is cut");
    assert!(whole.plaintext == pieces.plaintext && whole.out == pieces.out);
    assert_eq!(whole.sessions, pieces.sessions);
    assert_eq!(whole.connected, pieces.connected);
    assert!(whole.plaintext.len() <= bytes.len());
    assert!(whole.out.len() <= 4096 + 2 * bytes.len(), "answers are bounded by what was received");
    if whole.result.as_ref().is_err_and(|error| error.alert().is_some()) {
        assert!(whole.out.len() > whole.out_before_error, "the server is told why");
    }
}

/// How one input is run, from its first byte.
struct Choice {
    raw: bool,
    /// Offer a session of the script's own version.
    resume: bool,
    tls12: bool,
    piece: u8,
}

impl Choice {
    fn of(byte: u8) -> Choice {
        Choice { raw: byte & 1 != 0, resume: byte & 2 != 0, tls12: byte & 4 != 0, piece: byte >> 3 }
    }

    fn config(&self) -> &'static Arc<Config> {
        static CONFIGS: [OnceLock<Arc<Config>>; 2] = [const { OnceLock::new() }; 2];
        CONFIGS[usize::from(self.tls12)].get_or_init(|| {
            // The first is offered alone, so that its hash is known at once; the others wait for the server's choice.
            let suites = match self.tls12 {
                false => vec![Suite::Tls13Aes128Gcm],
                true => {
                    vec![Suite::EcdheRsaAes128Gcm, Suite::EcdheRsaAes256Gcm, Suite::RsaAes128Sha, Suite::Tls13Aes256Gcm]
                }
            };
            let stages_off = StageSet::PROVIDER.without(Stage::Authentication);
            let alpn = vec!["http/1.1".to_owned()];
            let groups = Group::ALL.to_vec();
            let (effort, compressed_certificate) = (Effort::Floor, true);
            let settings =
                Settings { suites, groups, stages_off, alpn, effort, compressed_certificate, ..Settings::default() };
            Arc::new(Config::new(settings).expect("valid settings"))
        })
    }

    fn session(&self) -> Option<Session> {
        static SESSIONS: [OnceLock<Option<Session>>; 2] = [const { OnceLock::new() }; 2];
        let script = if self.tls12 { tls12_conversation() } else { tls13_conversation() };
        let first = || run(self.config(), None, &records(&script[1..]), usize::MAX).session;
        self.resume.then(|| SESSIONS[usize::from(self.tls12)].get_or_init(first).clone()).flatten()
    }
}

/// What came of one run.
pub(super) struct Run {
    result: Result<(), Error>,
    plaintext: Vec<u8>,
    out: Vec<u8>,
    out_before_error: usize,
    sessions: usize,
    pub(super) session: Option<Session>,
    pub(super) connected: bool,
}

#[derive(Default)]
struct Received {
    plaintext: Vec<u8>,
    sessions: Vec<Session>,
}

impl Receiver for Received {
    fn plaintext(&mut self, bytes: &[u8]) {
        self.plaintext.extend_from_slice(bytes);
    }

    fn session(&mut self, session: Session) {
        assert!(session.size_bytes() <= limits::TICKET + 1024);
        self.sessions.push(session);
    }
}

struct Constant;

impl Entropy for Constant {
    fn fill(&mut self, bytes: &mut [u8]) {
        bytes.fill(0x42);
    }
}

pub(super) fn run(config: &Arc<Config>, session: Option<Session>, bytes: &[u8], piece: usize) -> Run {
    let mut out = Vec::new();
    let mut received = Received::default();
    let mut client = Client::new(config, session, &mut Constant, 0, &mut out);
    let mut bytes = bytes.to_vec();
    let mut result = Ok(());
    let mut out_before_error = 0;
    let mut connected = false;
    let negotiates = !config.settings().stages_off.contains(Stage::Setup);
    for piece in bytes.chunks_mut(piece) {
        out_before_error = out.len();
        result = client.receive(piece, 1000, &mut Constant, &mut out, &mut received);
        connected |= client.is_connected();
        assert_eq!(client.handshake().is_some(), client.is_connected() && negotiates);
        if result.is_err() {
            let again = client.receive(&mut [22, 3, 3, 0, 0], 1000, &mut Constant, &mut out, &mut received);
            assert_eq!(again, Err(Error::Failed));
            break;
        }
    }
    connected &= result.is_ok();
    let Received { plaintext, mut sessions } = received;
    Run { result, plaintext, out, out_before_error, sessions: sessions.len(), session: sessions.pop(), connected }
}

/// Whether `data` ends with a complete handshake: for the test that the seeds are not vacuous.
pub fn connects(data: &[u8]) -> bool {
    let choice = Choice::of(data[0]);
    run(choice.config(), choice.session(), &records(&data[1..]), usize::MAX).connected
}
