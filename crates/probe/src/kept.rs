//! Sessions that are kept from round to round: does the site still take one after a minute, five minutes, an hour?

use tlsdyno_tls::{Session, SessionKind};

/// Ages at which kept sessions are offered, in seconds: in the first round at which they are that old.
pub const AGES_S: [u32; 3] = [60, 300, 3600];
/// Bytes of a ticket that name the server's key, in the form of RFC 5077 section 4.
const KEY_NAME_BYTES: usize = 16;

/// What one site's rounds hand on to the next ones.
#[derive(Debug, Default)]
pub struct Keeping {
    /// For each age a session, and when it was kept (ns of a clock that goes on while the machine sleeps).
    slots: [Option<(Session, u64)>; AGES_S.len()],
    /// The first bytes of the last ticket.
    key_name: Vec<u8>,
}

#[derive(Clone, Debug)]
pub struct Due {
    pub session: Session,
    pub age_s: u32,
}

impl Keeping {
    /// The session whose time has come, that of the greatest age first; one a round, so that a round stays short.
    pub fn due(&mut self, now_ns: u64) -> Option<Due> {
        let age_s = |since_ns: u64| u32::try_from(now_ns.saturating_sub(since_ns) / 1_000_000_000).unwrap_or(u32::MAX);
        let (slot, _) = self
            .slots
            .iter_mut()
            .zip(AGES_S)
            .rev()
            .find(|(slot, least_s)| slot.as_ref().is_some_and(|(_, since_ns)| age_s(*since_ns) >= *least_s))?;
        let (session, since_ns) = slot.take()?;
        Some(Due { session, age_s: age_s(since_ns) })
    }

    /// Keeps sessions that a round had left, where one is wanted. A PSK may be good for one use only; IDs and tickets
    /// of TLS 1.2 are for many.
    pub fn keep(&mut self, mut spare: Vec<Session>, now_ns: u64) {
        for slot in self.slots.iter_mut().filter(|slot| slot.is_none()) {
            let next = match spare.last() {
                Some(last) if last.kind() != SessionKind::Tls13Psk => Some(last.clone()),
                _ => spare.pop(),
            };
            *slot = next.map(|session| (session, now_ns));
        }
    }

    /// The name of the key that the site's tickets are encrypted with, where they have one: their first bytes, if those
    /// are the same in tickets that follow each other.
    pub fn key_name(&mut self, tickets: &[Session]) -> String {
        let mut name = String::new();
        for ticket in tickets {
            let bytes = ticket.identity_start(KEY_NAME_BYTES).unwrap_or_default();
            if !bytes.is_empty() && bytes == self.key_name {
                name = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
            }
            self.key_name = bytes.to_vec();
        }
        name
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;

    fn sessions(count: usize, kind: u8) -> Vec<Session> {
        // As `Session::to_bytes` writes it; the suite is that of the kind.
        let (suite, secret): ([u8; 2], &[u8]) =
            if kind == 2 { ([0x13, 1], &[7; 32]) } else { ([0xc0, 0x2f], &[7; 48]) };
        let one = |number: usize| {
            let mut bytes = vec![kind, suite[0], suite[1], 0, 0, 0, u8::from(kind == 2)];
            bytes.extend([7200u32, 0, 0].iter().flat_map(|number| number.to_be_bytes()));
            let mut identity = [9; 20];
            identity[19] = number as u8;
            for field in [&identity[..], secret, &[]] {
                bytes.extend((field.len() as u16).to_be_bytes());
                bytes.extend_from_slice(field);
            }
            Session::from_bytes(&bytes, 0).unwrap()
        };
        (0..count).map(one).collect()
    }

    #[test]
    fn each_age_is_tried_once_in_its_time() {
        let mut keeping = Keeping::default();
        keeping.keep(sessions(3, 2), 0);
        assert!(keeping.due(59 * SECOND).is_none());
        assert_eq!(keeping.due(61 * SECOND).unwrap().age_s, 61);
        assert!(keeping.due(62 * SECOND).is_none());
        // A robot that slept tries the oldest class first.
        assert_eq!(keeping.due(4000 * SECOND).unwrap().age_s, 4000);
        assert_eq!(keeping.due(4000 * SECOND).unwrap().age_s, 4000);
        assert!(keeping.due(4000 * SECOND).is_none());
    }

    #[test]
    fn one_psk_fills_one_place_and_one_ticket_of_tls12_all() {
        let filled = |kind| {
            let mut keeping = Keeping::default();
            keeping.keep(sessions(1, kind), 0);
            keeping.slots.iter().flatten().count()
        };
        assert_eq!((filled(2), filled(1)), (1, 3));
    }

    #[test]
    fn a_key_has_a_name_where_tickets_begin_alike() {
        let mut keeping = Keeping::default();
        let tickets = sessions(2, 2);
        assert_eq!(keeping.key_name(&tickets[..1]), "", "one ticket says nothing");
        assert_eq!(keeping.key_name(&tickets[1..]), "09".repeat(16));
        assert_eq!(Keeping::default().key_name(&sessions(2, 0)), "", "an ID is no ticket");
    }
}
