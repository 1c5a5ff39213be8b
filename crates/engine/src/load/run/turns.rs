//! A load that takes turns with another one, of milliseconds each. Between two of its turns it opens no connection and
//! makes no request; its connections and sessions stay as they are, so that a turn of kept connections holds no
//! handshakes.
//!
//! A turn ends when what it began has ended: a connection that it opened makes its requests within it, where those are
//! few. Else handshakes of one turn would be paid for by hits of the next, and the first turn that counts would have
//! hits whose handshakes nobody counted.

use super::{ConnectionSlot, Run};
use crate::load::connection::Connection;
use crate::load::plan::Plan;
use crate::load::users::Action;

/// A turn that is over: nothing is under way any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Turn {
    /// Its beginning, nanoseconds of the monotonic clock.
    pub began_ns: u64,
    /// When its last request was complete, likewise.
    pub ended_ns: u64,
    /// Requests that were completed in it.
    pub hits: u64,
    /// Number of full handshakes in the turn.
    pub handshakes_full: u64,
}

/// The end of a turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NextTurn {
    /// So many nanoseconds.
    Lasts(u64),
    /// So many hits. They are forgotten then, with their latencies: this turn brings the load up.
    LeadsIn(u64),
}

/// Requests that a turn makes at most to end the connections that it opened, all together.
const REQUESTS_TO_END_MAX: u64 = 4096;

/// Asked for the next turn at the beginning and after each; may wait until it is time. `None`: the run is over.
pub type AskForTurn<'t> = dyn FnMut(Option<Turn>) -> Option<NextTurn> + 't;

pub(super) struct Turns<'t> {
    ask: &'t mut AskForTurn<'t>,
    /// `None`: there are no more.
    next: Option<NextTurn>,
    began_ns: u64,
    hits_before: u64,
    full_before: u64,
    /// Nothing is begun any more.
    is_over: bool,
    /// Connections have few requests, and make all of them in the turn that opened them.
    ends_connections: bool,
    /// What is to be begun in the next turn, and the number of the connection in its place: the server may close it.
    deferred: Vec<(Action, u32)>,
    /// The length of all turns that counted, nanoseconds.
    counted_ns: u64,
}

impl<'t> Turns<'t> {
    /// Waits for the first turn; `None`: there is none.
    pub(super) fn begin(plan: &Plan, ask: &'t mut AskForTurn<'t>) -> Option<Turns<'t>> {
        let next = Some(ask(None)?);
        Some(Turns {
            ask,
            next,
            began_ns: tlsdyno_sys::monotonic_ns(),
            hits_before: 0,
            full_before: 0,
            is_over: false,
            ends_connections: requests_of_connection(plan) * u64::from(plan.connections.total) <= REQUESTS_TO_END_MAX,
            deferred: Vec::new(),
            counted_ns: 0,
        })
    }

    fn ends_ns(&self) -> Option<u64> {
        match self.next? {
            NextTurn::Lasts(length_ns) => Some(self.began_ns + length_ns),
            NextTurn::LeadsIn(_) => None,
        }
    }
}

/// Requests of a connection at most.
fn requests_of_connection(plan: &Plan) -> u64 {
    let of_users = plan.workload.users.iter().map(|user| user.requests.end - user.requests.start).max();
    let limits = [plan.connections.requests_each, plan.session_limits.requests, of_users];
    limits.into_iter().flatten().min().unwrap_or(u32::MAX).into()
}

impl Run<'_> {
    /// Keeps what begins something for the next turn, if this one is over. What ends something is done at once.
    pub(super) fn is_deferred(&mut self, action: &Action) -> bool {
        let Some(turns) = self.turns.as_mut().filter(|turns| turns.is_over) else { return false };
        let number = match action {
            Action::Open { .. } => 0,
            Action::Send { connection, .. } => {
                let ConnectionSlot { number, connection } = &self.places[*connection as usize];
                let is_of_turn = |connection: &Connection| {
                    connection.opened_ns >= turns.began_ns && (turns.ends_connections || connection.served == 0)
                };
                if connection.as_ref().is_some_and(is_of_turn) {
                    return false;
                }
                *number
            }
            Action::Close { .. } | Action::Forget { .. } => return false,
        };
        turns.deferred.push((*action, number));
        true
    }

    /// When the turn is over by time.
    pub(super) fn turn_ends_ns(&self) -> Option<u64> {
        self.turns.as_ref().filter(|turns| !turns.is_over)?.ends_ns()
    }

    /// Whether there were turns, and there will be no more: what is still open ends with the run.
    pub(super) fn has_had_its_turns(&self) -> bool {
        self.turns.as_ref().is_some_and(|turns| turns.next.is_none())
    }

    /// The length of all turns that counted, where there are turns.
    pub(super) fn counted_turns_ns(&self) -> Option<u64> {
        self.turns.as_ref().map(|turns| turns.counted_ns)
    }

    /// Ends the turn when it is over and nothing is under way any more, and waits for the next one.
    pub(super) fn take_turns(&mut self) {
        let Some(turns) = &mut self.turns else { return };
        let Some(next) = turns.next else { return };
        turns.is_over |= match next {
            NextTurn::Lasts(length_ns) => self.now_ns >= turns.began_ns + length_ns,
            NextTurn::LeadsIn(hits) => self.recorder.hits >= turns.hits_before + hits,
        };
        let mut connections = self.places.iter().filter_map(|place| place.connection.as_ref());
        if !turns.is_over || connections.any(|connection| connection.waits_for_server()) {
            return;
        }
        let turn = Turn {
            began_ns: turns.began_ns,
            ended_ns: self.now_ns,
            hits: self.recorder.hits - turns.hits_before,
            handshakes_full: self.recorder.handshakes.full - turns.full_before,
        };
        match next {
            NextTurn::Lasts(_) => turns.counted_ns += turn.ended_ns - turn.began_ns,
            NextTurn::LeadsIn(_) => self.recorder.forget_hits(turns.ends_connections),
        }
        turns.next = (turns.ask)(Some(turn));
        // The server was not silent: it was not asked.
        self.now_ns = tlsdyno_sys::monotonic_ns();
        (self.heard_ns, turns.began_ns) = (self.now_ns, self.now_ns);
        (turns.hits_before, turns.full_before) = (self.recorder.hits, self.recorder.handshakes.full);
        turns.is_over = turns.next.is_none();
        let deferred = if turns.is_over { Vec::new() } else { std::mem::take(&mut turns.deferred) };
        self.users.tell_time(self.now_ns);
        for (action, number) in deferred {
            match action {
                // The server has closed it; the policy knows.
                Action::Send { connection, .. } if !self.is_current(connection, number) => {}
                action => self.act(action),
            }
        }
        self.flush();
        self.carry_out();
    }
}
