//! The client where stages of the shim are off (docs/NOOP.md): what it reads then is no TLS.

use std::sync::{Arc, OnceLock};

use tlsdyno_tls::{Config, Effort, Script, Scripts, Session, Settings, Stage, StageSet, Suite};
use tlsdyno_wire::record;

use super::client::{ends_alike, run};
use super::script::records;
use super::seeds::tls12_conversation;

/// Cases, by the remainder of an input's first byte: a skeleton, the same resumed, and with data right behind the first
/// flight.
pub const SKELETON: u8 = 0;
pub const SKELETON_RESUMED: u8 = 1;
pub const SKELETON_AT_ONCE: u8 = 2;
/// Fast resumption of a session of TLS 1.2. Here and with plain data behind a real handshake the input is a list of
/// records, as for [`client_receive`](super::client_receive).
pub const FAST: u8 = 3;
/// Plain data behind a real handshake.
pub const PLAIN_13: u8 = 4;
pub const PLAIN_12: u8 = 5;
/// No handshake, keys of zero.
pub const SETUP_13: u8 = 6;
pub const SETUP_12: u8 = 7;
const CASES: usize = 8;

/// Bytes of the server's two flights in a full skeleton.
pub const FULL_FLIGHTS: [u32; 2] = [40, 12];
/// Bytes of its flight in a resumed one.
pub const RESUMED_FLIGHT: u32 = 60;

/// A client that receives `data` whole and in pieces: as [`client_receive`](super::client_receive), with stages of the
/// shim off.
pub fn client_stages(data: &[u8]) {
    let Some((&choice, said)) = data.split_first() else {
        return;
    };
    let (case, piece) = (choice % CASES as u8, 1 + usize::from(choice) / CASES);
    ends_alike(config(case), session(case), &bytes(case, said), piece);
}

/// Whether `data` leads to a connection: for the test that the seeds are not vacuous.
pub fn stages_connect(data: &[u8]) -> bool {
    run(config(data[0]), session(data[0]), &bytes(data[0], &data[1..]), usize::MAX).connected
}

fn bytes(case: u8, said: &[u8]) -> Vec<u8> {
    match case {
        FAST | PLAIN_13 | PLAIN_12 => records(said),
        _ => said.to_vec(),
    }
}

fn config(case: u8) -> &'static Arc<Config> {
    static CONFIGS: [OnceLock<Arc<Config>>; CASES] = [const { OnceLock::new() }; CASES];
    CONFIGS[usize::from(case)].get_or_init(|| {
        let off: &[Stage] = match case {
            SKELETON | SKELETON_RESUMED => &[Stage::Marshalling, Stage::Handshake],
            SKELETON_AT_ONCE => &[Stage::Marshalling, Stage::Handshake, Stage::RoundTrip],
            FAST => &[Stage::Marshalling, Stage::SessionCache, Stage::RoundTrip],
            PLAIN_13 | PLAIN_12 => &[Stage::Marshalling],
            _ => &[Stage::Setup],
        };
        let provider = StageSet::PROVIDER.without(Stage::Authentication);
        let suite = match case {
            FAST | PLAIN_12 | SETUP_12 => Suite::EcdheRsaAes128Gcm,
            _ => Suite::Tls13Aes128Gcm,
        };
        let [second, fourth] = FULL_FLIGHTS;
        let full = Script { flights: vec![64, second, 20, fourth], ready_after: 4 };
        let resumed = Script { flights: vec![64, RESUMED_FLIGHT, 20], ready_after: 3 };
        let settings = Settings {
            suites: vec![suite],
            alpn: vec!["http/1.1".to_owned()],
            stages_off: off.iter().fold(provider, |all, stage| all.with(*stage)),
            effort: Effort::Floor,
            scripts: Some(Scripts { full, resumed: Some(resumed) }),
            ..Settings::default()
        };
        Arc::new(Config::new(settings).expect("valid settings"))
    })
}

/// What a full handshake of the same configuration left, where the case resumes.
fn session(case: u8) -> Option<Session> {
    static SESSIONS: [OnceLock<Option<Session>>; CASES] = [const { OnceLock::new() }; CASES];
    let first = match case {
        SKELETON_RESUMED | SKELETON_AT_ONCE => FULL_FLIGHTS.iter().flat_map(|bytes| flight(*bytes)).collect(),
        FAST => records(&tls12_conversation()[1..]),
        _ => return None,
    };
    SESSIONS[usize::from(case)].get_or_init(|| run(config(case), None, &first, usize::MAX).session).clone()
}

fn flight(bytes: u32) -> Vec<u8> {
    let mut flight = vec![0; bytes as usize];
    flight[0] = record::HANDSHAKE;
    flight
}
