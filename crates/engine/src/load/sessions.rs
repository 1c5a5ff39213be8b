//! TLS sessions: who holds which, and when a connection uses one. Works on any session type, so that it is tested
//! without TLS.

use std::collections::VecDeque;

use super::limits::{SESSIONS_PER_USER_MAX, SESSIONS_SHARED_MAX};
use super::plan::Resumption;
use super::users::ActiveId;

/// What a connection does about resumption.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Decision<S> {
    /// The plan wants this connection to resume.
    pub intended: bool,
    /// The session that it offers; `None` although intended: there is none.
    pub session: Option<S>,
}

#[derive(Debug)]
pub struct Sessions<S> {
    rule: Rule<S>,
}

#[derive(Debug)]
enum Rule<S> {
    Never,
    Always(Vec<Stock<S>>),
    /// One stock for all: the share is a property of the whole run, and would be missed if every user began without a
    /// session.
    Share {
        counter: ReuseCounter,
        stock: Stock<S>,
    },
    /// Each client's own, by its place among the active users, and each with its own count.
    ShareOfEach {
        share: f64,
        clients: Vec<(ReuseCounter, Stock<S>)>,
    },
}

/// The place of a client, made if it is new.
fn client<S: Clone>(
    clients: &mut Vec<(ReuseCounter, Stock<S>)>,
    share: f64,
    id: ActiveId,
) -> &mut (ReuseCounter, Stock<S>) {
    while clients.len() <= id as usize {
        clients.push((ReuseCounter::new(share), Stock::new(SESSIONS_PER_USER_MAX)));
    }
    &mut clients[id as usize]
}

/// The counter's decision with what the stock has for it.
fn share_decision<S: Clone>(
    counter: &mut ReuseCounter,
    stock: &mut Stock<S>,
    usable: impl FnMut(&S) -> bool,
) -> Decision<S> {
    let intended = counter.wants_reuse();
    let session = if intended { stock.take(usable) } else { None };
    counter.count(session.is_some());
    Decision { intended, session }
}

impl<S: Clone> Sessions<S> {
    /// No sessions yet.
    pub fn new(resumption: Resumption) -> Sessions<S> {
        let rule = match resumption {
            Resumption::Never => Rule::Never,
            Resumption::Always => Rule::Always(Vec::new()),
            Resumption::Share(share) => {
                Rule::Share { counter: ReuseCounter::new(share), stock: Stock::new(SESSIONS_SHARED_MAX) }
            }
            Resumption::ShareOfEach(share) => Rule::ShareOfEach { share, clients: Vec::new() },
        };
        Sessions { rule }
    }

    /// Decides for one connection. `usable` tells whether a session still is (its lifetime may be over).
    pub fn decide(&mut self, user: ActiveId, usable: impl FnMut(&S) -> bool) -> Decision<S> {
        match &mut self.rule {
            Rule::Never => Decision { intended: false, session: None },
            Rule::Always(stocks) => {
                let session = stocks.get_mut(user as usize).and_then(|stock| stock.take(usable));
                Decision { intended: session.is_some(), session }
            }
            Rule::Share { counter, stock } => share_decision(counter, stock, usable),
            Rule::ShareOfEach { share, clients } => {
                let (counter, stock) = client(clients, *share, user);
                share_decision(counter, stock, usable)
            }
        }
    }

    /// A connection failed before its handshake was complete: it takes no part in the share.
    pub fn undo(&mut self, user: ActiveId, offered: bool) {
        match &mut self.rule {
            Rule::Share { counter, .. } => counter.undo(offered),
            Rule::ShareOfEach { share, clients } => client(clients, *share, user).0.undo(offered),
            Rule::Never | Rule::Always(_) => {}
        }
    }

    /// The server did not take a session: those that were offered before are of no use either.
    pub fn refused(&mut self, user: ActiveId) {
        match &mut self.rule {
            Rule::Never => {}
            Rule::Always(stocks) => {
                if let Some(stock) = stocks.get_mut(user as usize) {
                    stock.used.clear();
                }
            }
            Rule::Share { stock, .. } => stock.used.clear(),
            Rule::ShareOfEach { share, clients } => client(clients, *share, user).1.used.clear(),
        }
    }

    pub fn store(&mut self, user: ActiveId, session: S) {
        match &mut self.rule {
            Rule::Never => {}
            Rule::Always(stocks) => {
                while stocks.len() <= user as usize {
                    stocks.push(Stock::new(SESSIONS_PER_USER_MAX));
                }
                stocks[user as usize].put(session);
            }
            Rule::Share { stock, .. } => stock.put(session),
            Rule::ShareOfEach { share, clients } => client(clients, *share, user).1.put(session),
        }
    }

    /// The user begins a new browser session, or is done. Where a share is asked for, what there is stays: the share
    /// alone decides.
    pub fn forget(&mut self, user: ActiveId) {
        if let Rule::Always(stocks) = &mut self.rule
            && let Some(stock) = stocks.get_mut(user as usize)
        {
            stock.fresh.clear();
            stock.used.clear();
        }
    }

    /// Whether the user's next connection could resume.
    pub fn holds(&self, user: ActiveId) -> bool {
        match &self.rule {
            Rule::Never => false,
            Rule::Always(stocks) => stocks.get(user as usize).is_some_and(|stock| !stock.is_empty()),
            Rule::Share { stock, .. } => !stock.is_empty(),
            Rule::ShareOfEach { clients, .. } => clients.get(user as usize).is_some_and(|(_, stock)| !stock.is_empty()),
        }
    }

    /// Whether sessions are used at all, so that waiting for one makes sense.
    pub fn matter(&self) -> bool {
        match &self.rule {
            Rule::Never => false,
            Rule::Always(_) => true,
            Rule::Share { counter, .. } => counter.share > 0.0,
            Rule::ShareOfEach { share, .. } => *share > 0.0,
        }
    }

    /// Whether a share is asked for that the run's first connections would miss if they all opened before the first
    /// session arrived.
    pub fn want_first_alone(&self) -> bool {
        matches!(&self.rule, Rule::Share { counter, stock } if counter.share > 0.0 && stock.is_empty())
    }
}

/// The running-counter rule: reuse if and only if reused < share · connections so far. At one half: new, reused, new,
/// reused.
#[derive(Clone, Copy, Debug)]
struct ReuseCounter {
    share: f64,
    connections: u64,
    reused: u64,
}

impl ReuseCounter {
    fn new(share: f64) -> ReuseCounter {
        ReuseCounter { share, connections: 0, reused: 0 }
    }

    fn wants_reuse(&self) -> bool {
        (self.reused as f64) < self.share * self.connections as f64
    }

    /// Counts a connection. One that was to reuse but had no session counts as new, so that a later one makes up for
    /// it.
    fn count(&mut self, reused: bool) {
        self.connections += 1;
        self.reused += u64::from(reused);
    }

    fn undo(&mut self, reused: bool) {
        self.connections -= 1;
        self.reused -= u64::from(reused);
    }
}

/// Sessions in the order of their arrival. Each is used once if there are enough (RFC 9846 appendix C.4 asks that of
/// clients, and some servers insist on it); when they run out, the newest used one is offered again, which most servers
/// accept.
#[derive(Debug)]
struct Stock<S> {
    fresh: VecDeque<S>,
    used: VecDeque<S>,
    most: usize,
}

/// Used sessions kept for another use: the newest, and one more in case it is refused.
const USED_MAX: usize = 2;

impl<S: Clone> Stock<S> {
    fn new(most: usize) -> Stock<S> {
        Stock { fresh: VecDeque::new(), used: VecDeque::new(), most }
    }

    fn is_empty(&self) -> bool {
        self.fresh.is_empty() && self.used.is_empty()
    }

    fn put(&mut self, session: S) {
        if self.fresh.len() + USED_MAX >= self.most {
            self.fresh.pop_front();
        }
        self.fresh.push_back(session);
    }

    fn take(&mut self, mut usable: impl FnMut(&S) -> bool) -> Option<S> {
        while let Some(session) = self.fresh.pop_back() {
            if usable(&session) {
                if self.used.len() == USED_MAX {
                    self.used.pop_front();
                }
                self.used.push_back(session.clone());
                return Some(session);
            }
        }
        while let Some(session) = self.used.back() {
            if usable(session) {
                return Some(session.clone());
            }
            self.used.pop_back();
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Runs connections one after another; each full handshake yields `tickets`, each resumed one `tickets_resumed`.
    fn achieved(share: f64, connections: u64, tickets: u64, tickets_resumed: u64) -> (u64, u64) {
        let mut sessions = Sessions::new(Resumption::Share(share));
        let (mut intended, mut offered) = (0, 0);
        for serial in 0..connections {
            let decision = sessions.decide(serial as ActiveId % 7, |_| true);
            intended += u64::from(decision.intended);
            offered += u64::from(decision.session.is_some());
            let issued = if decision.session.is_some() { tickets_resumed } else { tickets };
            for ticket in 0..issued {
                sessions.store(0, (serial, ticket));
            }
        }
        (intended, offered)
    }

    #[test]
    fn half_alternates() {
        let mut sessions = Sessions::new(Resumption::Share(0.5));
        sessions.store(0, ());
        let kinds: String =
            (0..8).map(|user| if sessions.decide(user, |_| true).session.is_some() { 'R' } else { 'N' }).collect();
        assert_eq!(kinds, "NRNRNRNR");
    }

    proptest! {
        #[test]
        fn any_share_is_met_to_a_connection(
            share in 0.0f64..=1.0,
            connections in 1u64..3000,
            tickets in 1u64..3,
            resumed in 0u64..2,
        ) {
            let (intended, offered) = achieved(share, connections, tickets, resumed);
            prop_assert_eq!(intended, offered);
            prop_assert!((offered as f64 - share * connections as f64).abs() <= 1.0);
        }
    }

    #[test]
    fn late_sessions_are_made_up_for() {
        let mut sessions = Sessions::new(Resumption::Share(0.6));
        let mut offered = 0;
        for connection in 0..10_000 {
            if connection == 500 {
                sessions.store(0, ());
            }
            let decision = sessions.decide(0, |_| true);
            offered += u64::from(decision.session.is_some());
            assert!(decision.session.is_none() || decision.intended);
        }
        assert!((5999..=6001).contains(&offered), "{offered}");
    }

    #[test]
    fn failed_connections_do_not_count() {
        let mut sessions = Sessions::new(Resumption::Share(0.5));
        sessions.store(0, ());
        let mut completed = [0u32, 0];
        for connection in 0..1000 {
            let offered = sessions.decide(0, |_| true).session.is_some();
            if connection % 3 == 0 {
                sessions.undo(0, offered);
            } else {
                completed[usize::from(offered)] += 1;
            }
        }
        assert!(completed[0].abs_diff(completed[1]) <= 1, "{completed:?}");
    }

    #[test]
    fn each_session_is_used_once_while_there_are_enough() {
        let mut stock = Stock::new(8);
        for session in 1..=3 {
            stock.put(session);
        }
        let taken: Vec<_> = (0..5).map(|_| stock.take(|_| true)).collect();
        assert_eq!(taken, [Some(3), Some(2), Some(1), Some(1), Some(1)]);
        assert_eq!(stock.take(|&session| session != 1), Some(2), "the expired one is dropped");
        assert_eq!(stock.take(|_| false), None);
        assert!(stock.is_empty());
    }

    #[test]
    fn a_stock_is_bounded() {
        let mut sessions = Sessions::new(Resumption::Always);
        for session in 0..1000 {
            sessions.store(3, session);
            sessions.decide(3, |_| true);
            sessions.store(3, session);
        }
        let Rule::Always(stocks) = &sessions.rule else { unreachable!() };
        assert!(stocks[3].fresh.len() + stocks[3].used.len() <= SESSIONS_PER_USER_MAX);
        assert!(sessions.holds(3) && !sessions.holds(2));
        sessions.forget(3);
        assert!(!sessions.holds(3));
    }

    #[test]
    fn users_hold_their_own_sessions() {
        let mut sessions = Sessions::new(Resumption::Always);
        sessions.store(1, "one");
        assert_eq!(sessions.decide(0, |_| true), Decision { intended: false, session: None });
        assert_eq!(sessions.decide(1, |_| true), Decision { intended: true, session: Some("one") });
        sessions.refused(1);
        assert!(!sessions.holds(1));
    }

    /// Two clients, one of which connects three times as often: each resumes one half of its own connections, with its
    /// own sessions, also across the users that it plays.
    #[test]
    fn each_client_has_its_own_share_and_sessions() {
        let mut sessions = Sessions::new(Resumption::ShareOfEach(0.5));
        let mut offered = [Vec::new(), Vec::new()];
        for turn in 0..40u32 {
            let user = u32::from(turn % 4 == 3);
            let decision = sessions.decide(user, |_| true);
            offered[user as usize].push(decision.session.is_some());
            assert!(decision.session.is_none_or(|(owner, _)| owner == user));
            sessions.store(user, (user, turn));
            sessions.forget(user);
        }
        for of_client in offered {
            let expected: Vec<bool> = (0..of_client.len()).map(|at| at % 2 == 1).collect();
            assert_eq!(of_client, expected);
        }
        assert!(!sessions.want_first_alone() && sessions.matter() && sessions.holds(1) && !sessions.holds(2));
        sessions.decide(0, |_| true);
        let Rule::ShareOfEach { clients, .. } = &mut sessions.rule else { unreachable!() };
        let (fresh, used) = (clients[0].1.fresh.len(), clients[0].1.used.len());
        assert!(fresh + used <= SESSIONS_PER_USER_MAX);
        sessions.refused(1);
        sessions.undo(1, true);
        assert!(sessions.holds(0));
    }
}
