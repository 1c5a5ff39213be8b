//! The connections of a run's first clients, from open to closed: what a picture of a connection profile is made of
//! (Mraz, Witting and Dantzig 2002, Figure 2).

use super::limits::{LIVES_CLIENTS, LIVES_MAX};

/// One connection of one of the first clients.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Life {
    /// The client, a place among the users that are active at once.
    pub client_number: u32,
    /// When it began to connect, nanoseconds after the start of the run.
    pub opened_ns: u64,
    /// When it was closed, likewise.
    pub closed_ns: u64,
    /// Whether its session was resumed; `None`: it has none, or its handshake was not completed.
    pub resumed: Option<bool>,
    /// Number of requests completed on the connection.
    pub served_count: u32,
}

/// The lives of the first clients' connections, as many as there is room for.
#[derive(Debug)]
pub struct Lives(Vec<Life>);

impl Default for Lives {
    /// Room for all that is kept.
    fn default() -> Lives {
        Lives(Vec::with_capacity(LIVES_MAX))
    }
}

impl Lives {
    /// Notes a connection that is closed.
    pub fn note(&mut self, life: Life) {
        if life.client_number < LIVES_CLIENTS && self.0.len() < LIVES_MAX {
            self.0.push(life);
        }
    }

    /// All of them; none where there were more than there is room for, for a part would show no profile.
    pub fn finish(self) -> Vec<Life> {
        if self.0.len() < LIVES_MAX { self.0 } else { Vec::new() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_clients_are_kept_and_too_many_connections_are_none() {
        let life = |client_number| Life { client_number, opened_ns: 1, closed_ns: 2, resumed: None, served_count: 1 };
        let mut few = Lives::default();
        [0, LIVES_CLIENTS - 1, LIVES_CLIENTS].into_iter().for_each(|client| few.note(life(client)));
        assert_eq!(few.finish().len(), 2);
        let mut many = Lives::default();
        (0..=LIVES_MAX).for_each(|_| many.note(life(0)));
        assert!(many.finish().is_empty());
    }
}
