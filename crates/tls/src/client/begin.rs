//! The first flight: a hello, or what stands in its place where stages are off.

use std::sync::Arc;

use super::{Entropy, State};
use crate::config::Config;
use crate::noop::Stage;
use crate::offer::Offer;
use crate::records::Records;
use crate::session::{Session, SessionKind};
use crate::skeleton::Skeleton;

/// Data that go with the hello: early data of TLS 1.3, or the request of a fast resumption.
pub(super) struct Early {
    /// What was sent, in case the server does not take it.
    pub(super) sent: Vec<u8>,
    /// How much more may be sent.
    pub(super) room: usize,
}

/// Most early data of a connection: they are held until the server has taken them.
const EARLY_DATA_MAX: usize = 16 * 1024;

/// Appends the first flight that the configuration's stages ask for. Answers the state, what was offered, and room for
/// early data.
pub(super) fn begin(
    config: &Arc<Config>,
    session: Option<Session>,
    entropy: &mut dyn Entropy,
    now_ms: u64,
    records: &mut Records,
    out: &mut Vec<u8>,
) -> (State, Option<SessionKind>, Option<Box<Early>>) {
    let settings = config.settings();
    let off = |stage| settings.stages_off.contains(stage);
    if off(Stage::Setup) {
        let suite = settings.suites[0];
        records.begin_with_zero_keys(suite, settings.stages_off, settings.encrypt_then_mac);
        return (State::Minimal(suite.version()), None, None);
    }
    if off(Stage::Handshake) {
        let walk = Skeleton::begin(config, session.is_some(), off(Stage::RoundTrip), out);
        let offered = walk.resumes();
        return (State::Skeleton(Box::new(walk)), offered, None);
    }
    let offer = Offer::new(config, session, entropy, now_ms, out);
    let offered = offer.offered();
    let room = if config.is_fast() { offered.map(|_| EARLY_DATA_MAX) } else { offer.early_data() };
    let early = room.map(|room| Box::new(Early { sent: Vec::new(), room: room.min(EARLY_DATA_MAX) }));
    if early.is_some() && !config.is_fast() {
        records.sealer = offer.early_sealer(config);
    }
    (State::Offer(Box::new(offer)), offered, early)
}
