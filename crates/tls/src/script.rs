//! The flights of a handshake by size: recorded on real connections, replayed by skeletons (docs/NOOP.md, "handshake").

/// Most flights of a handshake: a HelloRetryRequest adds two to the four that tickets make.
pub const FLIGHTS_MAX: usize = 6;

/// The sizes of one kind of handshake.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize), serde(deny_unknown_fields))]
pub struct Script {
    /// Bytes of each flight, records whole; the client's first, then alternating.
    pub flights: Vec<u32>,
    /// After so many flights the client may send data.
    pub ready_after: usize,
}

impl Script {
    /// What a first flight holds at least: record header, mark, kind, and what servers look at before they take it for
    /// TLS.
    const FIRST_MIN: u32 = 16;

    /// What is wrong with it, if it cannot be played.
    pub fn fault(&self) -> Option<&'static str> {
        let ready = self.ready_after;
        let first = self.flights.first().copied().unwrap_or_default();
        match self.flights.len() {
            0 | 1 => Some("it has no flight of the server"),
            count if count > FLIGHTS_MAX => Some("it has more flights than a handshake"),
            count if !(2..=count).contains(&ready) => {
                Some("the client never becomes ready, or before it has heard anything")
            }
            // The client's flights have even places; once it may send data there is none left to send.
            count if (ready..count).any(|at| at % 2 == 0) => Some("a flight of the client comes after its data"),
            _ if first < Script::FIRST_MIN || first > 5 + u32::from(u16::MAX) => {
                Some("its first flight does not fit one record, or has less than 16 bytes")
            }
            _ if self.flights.iter().any(|&bytes| bytes < 2) => Some("a flight has less than 2 bytes"),
            _ => None,
        }
    }

    /// Bytes of the client's flights.
    pub fn client_bytes(&self) -> u64 {
        self.flights.iter().step_by(2).map(|&bytes| u64::from(bytes)).sum()
    }

    /// Bytes of the server's flights.
    pub fn server_bytes(&self) -> u64 {
        self.flights.iter().skip(1).step_by(2).map(|&bytes| u64::from(bytes)).sum()
    }
}

/// The scripts of a configuration, one for each kind of handshake.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize), serde(deny_unknown_fields))]
pub struct Scripts {
    /// The flights of a full handshake.
    pub full: Script,
    /// Of a resumed one. `None`: sessions are not resumed.
    pub resumed: Option<Script>,
}

/// The flights of a connection under way. Held inline: every connection has one.
#[derive(Clone, Debug, Default)]
pub(crate) struct Flights {
    bytes: [u32; FLIGHTS_MAX],
    count: u8,
    ready_after: u8,
    /// Data have begun: what follows belongs to no flight.
    ended: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum From {
    Client,
    Server,
}

impl Flights {
    /// Counts bytes of a handshake message or what goes with it.
    pub fn count(&mut self, from: From, bytes: usize) {
        if self.ended || bytes == 0 {
            return;
        }
        let last_from = if self.count % 2 == 1 { From::Client } else { From::Server };
        if self.count == 0 || from != last_from {
            if usize::from(self.count) == FLIGHTS_MAX {
                return;
            }
            self.count += 1;
        }
        let flight = &mut self.bytes[usize::from(self.count) - 1];
        *flight = flight.saturating_add(bytes as u32);
    }

    /// From now on the client may send data.
    pub fn ready(&mut self) {
        self.ready_after = self.count;
    }

    pub fn end(&mut self) {
        self.ended = true;
    }

    pub fn script(&self) -> Script {
        let flights = self.bytes[..usize::from(self.count)].to_vec();
        Script { flights, ready_after: usize::from(self.ready_after) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flights_are_told_apart_by_who_sends() {
        let mut flights = Flights::default();
        flights.count(From::Client, 243);
        flights.count(From::Server, 127);
        flights.count(From::Client, 0);
        flights.count(From::Server, 1236);
        flights.count(From::Client, 80);
        flights.ready();
        flights.count(From::Server, 255);
        flights.count(From::Server, 255);
        flights.end();
        flights.count(From::Server, 1000);
        let script = flights.script();
        assert_eq!(script, Script { flights: vec![243, 1363, 80, 510], ready_after: 3 });
        assert_eq!(script.fault(), None);
        assert_eq!((script.client_bytes(), script.server_bytes()), (323, 1873));
    }

    #[test]
    fn scripts_that_cannot_be_played_say_why() {
        let fault = |flights: &[u32], ready_after| Script { flights: flights.to_vec(), ready_after }.fault();
        assert_eq!(fault(&[430, 141, 51], 3), None);
        for (flights, ready_after, word) in [
            (&[200][..], 1, "no flight of the server"),
            (&[200, 100], 3, "never becomes ready"),
            (&[200, 100, 80], 0, "before it has heard"),
            (&[200, 100, 80], 2, "after its data"),
            (&[15, 100, 80], 3, "16 bytes"),
            (&[200, 1, 80], 3, "2 bytes"),
            (&[200; 7], 7, "more flights"),
        ] {
            assert!(fault(flights, ready_after).unwrap().contains(word), "{flights:?}");
        }
    }
}
