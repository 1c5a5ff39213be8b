//! Connections of the users: when one is opened, what becomes of one when something happens to it, and when it closes.

use super::{Action, ActiveId, Connection, ConnectionId, Given, Loss, Use, Users};

impl Users<'_> {
    /// The connection can carry so many requests at once. `widens`: the user's other connections need not wait any
    /// longer.
    pub fn ready(&mut self, id: ConnectionId, widens: bool, room: u32) {
        let connection = &mut self.connections[id as usize];
        assert_eq!(connection.used, Use::Opening, "connection {id}");
        (connection.used, connection.room) = (Use::Open, room);
        let user = connection.user;
        self.users[user as usize].may_widen |= widens;
        self.advance(user);
        self.follow();
    }

    /// From now on the connection carries so many requests at once.
    pub fn set_room(&mut self, id: ConnectionId, room: u32) {
        let connection = &mut self.connections[id as usize];
        let user = connection.user;
        if std::mem::replace(&mut connection.room, room) < room {
            self.advance(user);
            self.follow();
        }
    }

    /// Sessions arrived on the connection: the user's other connections need not wait any longer.
    pub fn session_arrived(&mut self, id: ConnectionId) {
        let user = self.connections[id as usize].user;
        if !std::mem::replace(&mut self.users[user as usize].may_widen, true) {
            self.advance(user);
        }
    }

    /// The response to a request of the connection is complete, whether it was as expected or not. `persists`: the
    /// connection can carry another request.
    pub fn finished(&mut self, id: ConnectionId, request: u32, persists: bool) {
        let user = self.response_done(id, request, persists).0;
        self.note_served(user, request);
        self.advance(user);
        self.follow();
    }

    /// The server did not look at the request: it is made again.
    pub fn unprocessed(&mut self, id: ConnectionId, request: u32) {
        let (user, given) = self.response_done(id, request, true);
        self.users[user as usize].again.push(given);
        self.advance(user);
        self.follow();
    }

    /// The server takes no further request on the connection, and closes it when those under way are done.
    pub fn going_away(&mut self, id: ConnectionId) {
        let connection = &mut self.connections[id as usize];
        if connection.used == Use::Open {
            (connection.used, connection.server_closes) = (Use::Ending, true);
            self.close_if_done(id);
        }
    }

    /// The connection goes on or closes; answers whose request it was.
    pub(super) fn response_done(&mut self, id: ConnectionId, request: u32, persists: bool) -> (ActiveId, Given) {
        let given = self.take_under_way(id, request);
        let connection = &mut self.connections[id as usize];
        connection.server_closes |= !persists;
        if connection.used == Use::Open && (!persists || self.draining) {
            connection.used = Use::Ending;
        }
        let user = connection.user;
        self.users[user as usize].may_widen = true;
        self.close_if_done(id);
        (user, given)
    }

    fn close_if_done(&mut self, id: ConnectionId) {
        let connection = &mut self.connections[id as usize];
        if connection.used == Use::Ending && connection.under_way.is_empty() {
            connection.used = Use::Closing;
            self.actions.push_back(Action::Close { connection: id, server_first: connection.server_closes });
        }
    }

    /// The request is not under way any more.
    fn take_under_way(&mut self, id: ConnectionId, request: u32) -> Given {
        let connection = &mut self.connections[id as usize];
        let at = connection.under_way.iter().position(|given| given.request == request);
        let given = connection.under_way.swap_remove(at.expect("a response belongs to a request"));
        let user = &mut self.users[connection.user as usize];
        user.under_way -= 1;
        user.document.take_if(|document| *document == request);
        given
    }

    /// The connection is closed, as agreed or (an idle one) by the server.
    pub fn closed(&mut self, id: ConnectionId) {
        let connection = &self.connections[id as usize];
        assert!(connection.used == Use::Closing || connection.is_idle(), "closed while {:?}", connection.used);
        self.remove(id);
    }

    /// The connection is lost. Answers how many requests failed with it.
    pub fn lost(&mut self, id: ConnectionId, loss: Loss) -> u64 {
        let Connection { user, used, sent, .. } = self.connections[id as usize];
        assert!(used != Use::Free, "a connection was lost that is not open");
        // What was still to be done on it is not.
        self.actions.retain(|action| match action {
            Action::Send { connection, .. } | Action::Close { connection, .. } => *connection != id,
            Action::Open { .. } | Action::Forget { .. } => true,
        });
        let mut failed = 0;
        while let Some(&Given { request, .. }) = self.connections[id as usize].under_way.first() {
            let given = self.take_under_way(id, request);
            if loss == Loss::Stale {
                self.users[user as usize].again.push(given);
            } else {
                self.note_served(user, request);
                failed += 1;
            }
        }
        if used == Use::Opening && loss == Loss::NoResources {
            self.opening_paused = true;
            if let Some(left) = &mut self.connections_left {
                *left += 1;
            }
        } else if sent == 0
            && (used == Use::Opening || used == Use::Open && loss == Loss::Failed)
            && self.presentable(user) > 0
        {
            // The request that the connection was opened for, unless the user's other connections took it in the
            // meantime.
            let Given { request, .. } = self.users[user as usize].take_next();
            self.note_served(user, request);
            failed += 1;
        }
        self.remove(id);
        failed
    }

    /// The run is over, whatever is under way: all connections are lost. Answers how many requests failed with them.
    pub fn cut_off(&mut self) -> u64 {
        self.drain();
        let mut failed = 0;
        for id in 0..self.connections.len() as ConnectionId {
            if self.connections[id as usize].used != Use::Free {
                failed += self.lost(id, Loss::Failed);
            }
        }
        // Nobody carries out what was decided meanwhile.
        self.actions.clear();
        failed
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
            let slot = &mut self.connections[connection as usize];
            if slot.is_idle() {
                slot.used = Use::Closing;
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
        let (used, under_way) = (Use::Opening, Vec::new());
        let fresh = Connection { user, used, sent: 0, room: 1, under_way, server_closes: false };
        let connection = match self.free_connections.pop() {
            Some(id) => {
                let slot = &mut self.connections[id as usize];
                // Its memory is used again.
                let under_way = std::mem::take(&mut slot.under_way);
                *slot = Connection { under_way, ..fresh };
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
