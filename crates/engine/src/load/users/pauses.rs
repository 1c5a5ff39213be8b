//! Pauses between the connections of a user (Mraz, Witting and Dantzig 2002, Figure 2, "intermittent"): long ones let
//! sessions expire in between.

use std::collections::BTreeSet;

use super::{ActiveId, Use, Users};
use crate::load::pacing::Random;
use crate::load::plan::{Pause, Spread};

#[derive(Debug)]
pub(super) struct Pauses {
    pause: Pause,
    random: Random,
    /// Users that wait, and until when.
    waiting: BTreeSet<(u64, ActiveId)>,
}

impl Pauses {
    fn draw_ns(&mut self) -> u64 {
        match self.pause.spread {
            Spread::Constant => self.pause.mean_ns,
            Spread::Exponential => (-self.random.uniform().ln() * self.pause.mean_ns as f64) as u64,
        }
    }
}

impl Users<'_> {
    /// The same with pauses between the connections of each user.
    pub fn with_pauses(self, pause: Option<Pause>) -> Self {
        let pauses = pause.map(|pause| Pauses { pause, random: Random::new(pause.seed), waiting: BTreeSet::new() });
        Users { pauses, ..self }
    }

    /// Lets a user wait whose last connection closes, before it opens the next. Answers whether it does.
    pub(super) fn begin_pause(&mut self, id: ActiveId) -> bool {
        let user = &self.users[id as usize];
        let goes_on = |connection: &u32| self.connections[*connection as usize].used != Use::Closing;
        let is_new = user.session.began_ns.is_none();
        if is_new || !self.session_is_up(id) && user.connections.iter().any(goes_on) {
            return false;
        }
        let Some(pauses) = &mut self.pauses else { return false };
        let until_ns = self.now_ns + pauses.draw_ns();
        pauses.waiting.insert((until_ns, id));
        self.hold(id);
        // Of a session that is up nothing is kept open meanwhile.
        self.close_idle(id);
        true
    }

    /// Begins the pages of users whose pause is over.
    pub(super) fn end_pauses(&mut self) {
        let now_ns = self.now_ns;
        while let Some(pauses) = &mut self.pauses
            && let Some((until_ns, id)) = pauses.waiting.first().copied().filter(|(until_ns, _)| *until_ns <= now_ns)
        {
            pauses.waiting.remove(&(until_ns, id));
            self.open_page(id);
            self.advance(id);
        }
    }

    pub(super) fn next_pause_ns(&self) -> Option<u64> {
        self.pauses.as_ref()?.waiting.first().map(|(until_ns, _)| *until_ns)
    }

    pub(super) fn pausing(&self) -> Option<usize> {
        self.pauses.as_ref().map(|pauses| pauses.waiting.len())
    }

    pub(super) fn stop_pauses(&mut self) {
        self.pauses.iter_mut().for_each(|pauses| pauses.waiting.clear());
    }
}
