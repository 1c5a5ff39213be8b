//! Connections of the users: when one is opened, what becomes of one when something happens to it, and when it closes.

use super::{Action, ActiveId, Connection, ConnectionId, Loss, Use, Users};

impl Users<'_> {
    /// The connection can carry requests. `widens`: the user's other connections need not wait any longer.
    pub fn ready(&mut self, id: ConnectionId, widens: bool) {
        let user = self.set_use(id, Use::Opening, Use::Idle);
        self.users[user as usize].may_widen |= widens;
        self.advance(user);
        self.follow();
    }

    /// Sessions arrived on the connection: the user's other connections need not wait any longer.
    pub fn session_arrived(&mut self, id: ConnectionId) {
        let user = self.connections[id as usize].user;
        if !std::mem::replace(&mut self.users[user as usize].may_widen, true) {
            self.advance(user);
        }
    }

    /// The response on the connection is complete, whether it was as expected or not. `persists`: the connection can
    /// carry another request.
    pub fn finished(&mut self, id: ConnectionId, persists: bool) {
        let (user, request) = self.response_done(id, persists);
        self.note_served(user, request);
        self.advance(user);
        self.follow();
    }

    /// The connection goes on or closes; answers whose request it was.
    pub(super) fn response_done(&mut self, id: ConnectionId, persists: bool) -> (ActiveId, u32) {
        let connection = &mut self.connections[id as usize];
        let Use::Busy { request } = connection.used else { panic!("a response without a request") };
        let user = connection.user;
        let last = self.limits.requests_each.is_some_and(|each| connection.sent >= each);
        let active = &mut self.users[user as usize];
        active.under_way -= 1;
        active.may_widen = true;
        if persists && !last && !self.draining {
            connection.used = Use::Idle;
        } else {
            connection.used = Use::Closing;
            let server_first = !persists || last;
            self.actions.push_back(Action::Close { connection: id, server_first });
        }
        (user, request)
    }

    /// The connection is closed, as agreed or (an idle one) by the server.
    pub fn closed(&mut self, id: ConnectionId) {
        let used = self.connections[id as usize].used;
        assert!(matches!(used, Use::Closing | Use::Idle), "closed while {used:?}");
        self.remove(id);
    }

    /// The connection is lost. Answers whether a request failed with it.
    pub fn lost(&mut self, id: ConnectionId, loss: Loss) -> bool {
        let Connection { user, used, .. } = self.connections[id as usize];
        let presentable = self.presentable(user) > 0;
        let active = &mut self.users[user as usize];
        let request_failed = match (used, loss) {
            (Use::Busy { request }, Loss::Stale) => {
                active.under_way -= 1;
                active.again.push(request);
                false
            }
            (Use::Busy { request }, _) => {
                active.under_way -= 1;
                self.note_served(user, request);
                true
            }
            (Use::Opening, Loss::NoResources) => {
                self.opening_paused = true;
                if let Some(left) = &mut self.connections_left {
                    *left += 1;
                }
                false
            }
            // The request that the connection was opened for, unless the user's other connections took it in the
            // meantime.
            (Use::Opening, _) if presentable => {
                let request = active.again.pop().unwrap_or_else(|| {
                    active.next += 1;
                    active.next - 1
                });
                self.note_served(user, request);
                true
            }
            (Use::Opening | Use::Idle | Use::Closing, _) => false,
            (Use::Free, _) => panic!("a connection was lost that is not open"),
        };
        self.remove(id);
        request_failed
    }

    /// The run is over, whatever is under way: all connections are lost. Answers how many requests failed with them.
    pub fn cut_off(&mut self) -> u64 {
        self.drain();
        let mut failed = 0;
        for id in 0..self.connections.len() as ConnectionId {
            if self.connections[id as usize].used != Use::Free {
                failed += u64::from(self.lost(id, Loss::Failed));
            }
        }
        // Nobody carries out what was decided meanwhile.
        self.actions.clear();
        failed
    }

    fn set_use(&mut self, id: ConnectionId, from: Use, to: Use) -> ActiveId {
        let connection = &mut self.connections[id as usize];
        assert_eq!(connection.used, from, "connection {id}");
        connection.used = to;
        connection.user
    }

    fn remove(&mut self, id: ConnectionId) {
        let connection = &mut self.connections[id as usize];
        let user = connection.user;
        connection.used = Use::Free;
        self.free_connections.push(id);
        self.open -= 1;
        let active = &mut self.users[user as usize];
        active.connections.retain(|&other| other != id);
        if active.connections.is_empty() {
            active.may_widen = false;
        }
        self.note_closed(id);
        self.note_closed_by_clock(id);
        self.advance(user);
        self.fill();
        self.follow();
    }

    pub(super) fn close_idle(&mut self, id: ActiveId) {
        for &connection in &self.users[id as usize].connections {
            let used = &mut self.connections[connection as usize].used;
            if *used == Use::Idle {
                *used = Use::Closing;
                self.actions.push_back(Action::Close { connection, server_first: false });
            }
        }
    }

    pub(super) fn close(&mut self, connection: ConnectionId) {
        self.connections[connection as usize].used = Use::Closing;
        self.actions.push_back(Action::Close { connection, server_first: false });
    }

    pub(super) fn open_connections_for(&mut self, id: ActiveId) {
        while self.wants_connection(id) {
            if self.draining {
                return;
            }
            if !self.may_open() {
                if !std::mem::replace(&mut self.users[id as usize].waits, true) {
                    let turn = self.turn(id);
                    self.waiting.insert((turn, id));
                }
                return;
            }
            self.open(id);
        }
    }

    fn wants_connection(&self, id: ActiveId) -> bool {
        if self.session_is_up(id) {
            return false;
        }
        let user = &self.users[id as usize];
        let used = |connection: &ConnectionId| self.connections[*connection as usize].used;
        let opening = user.connections.iter().map(used).filter(|used| *used == Use::Opening).count();
        let open = user.connections.len() as u32;
        // A page gets its connections also when the first ones were fast enough to do without: see the module's
        // documentation.
        let page_wants = self.limits.requests_each.is_none() && open < user.page_requests && !self.page_is_done(id);
        let presentable = self.presentable(id);
        (presentable > opening as u32 || page_wants && (presentable > 0 || self.follow.is_none()))
            && open < self.limits.per_user
            && (open == 0 || user.may_widen || !self.limits.first_alone)
    }

    fn open(&mut self, user: ActiveId) {
        let fresh = Connection { user, used: Use::Opening, sent: 0 };
        let connection = match self.free_connections.pop() {
            Some(id) => {
                self.connections[id as usize] = fresh;
                id
            }
            None => {
                self.connections.push(fresh);
                self.connections.len() as ConnectionId - 1
            }
        };
        self.open += 1;
        self.users[user as usize].connections.push(connection);
        self.users[user as usize].session.began_ns.get_or_insert(self.now_ns);
        self.actions.push_back(Action::Open { connection, user });
        if let Some(left) = &mut self.connections_left {
            *left -= 1;
            if *left == 0 {
                self.drain();
            }
        }
    }
}
