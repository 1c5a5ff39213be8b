//! The share of a log's connections that would resume, for many session lifetimes at once.

use serde::Serialize;

use super::sessions::LIFETIMES_S;

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Lifetime {
    pub lifetime_s: u32,
    /// Connections that resume, per cent, where the lifetime counts from the full handshake (session IDs and tickets
    /// of TLS 1.2, RFC 5077 section 3.3).
    pub resumed_percent: f64,
    /// The same where each connection brings a new ticket (TLS 1.3, RFC 8446 section 4.6.1).
    pub renewed_percent: f64,
}

/// One user's last handshakes: the full one for each lifetime, and that of the last connection.
#[derive(Clone, Copy, Debug, Default)]
pub struct Handshakes {
    full_s: [Option<u32>; LIFETIMES_S.len()],
    last_s: Option<u32>,
}

/// Connections counted so far, and those with a full handshake, by lifetime.
#[derive(Debug, Default)]
pub struct Connections {
    all: u64,
    full: [u64; LIFETIMES_S.len()],
    renewed_full: [u64; LIFETIMES_S.len()],
}

impl Connections {
    /// Counts a connection of a user that is opened at `at_s`.
    pub fn opened(&mut self, handshakes: &mut Handshakes, at_s: u32) {
        self.all += 1;
        for (lane, lifetime_s) in LIFETIMES_S.into_iter().enumerate() {
            let is_over =
                |since_s: Option<u32>| since_s.is_none_or(|since_s| at_s.saturating_sub(since_s) > lifetime_s);
            if is_over(handshakes.full_s[lane]) {
                self.full[lane] += 1;
                handshakes.full_s[lane] = Some(at_s);
            }
            self.renewed_full[lane] += u64::from(is_over(handshakes.last_s));
        }
        handshakes.last_s = Some(at_s);
    }

    pub fn all(&self) -> u64 {
        self.all
    }

    /// The shares of connections that resume.
    pub fn finish(&self) -> Vec<Lifetime> {
        let percent = |full: u64| 100.0 - 100.0 * full as f64 / self.all.max(1) as f64;
        let at = |(lane, lifetime_s): (usize, u32)| Lifetime {
            lifetime_s,
            resumed_percent: percent(self.full[lane]),
            renewed_percent: percent(self.renewed_full[lane]),
        };
        LIFETIMES_S.into_iter().enumerate().map(at).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_session_of_tls_12_ages_from_its_full_handshake_and_one_of_tls_13_from_the_last_connection() {
        let (mut connections, mut user) = (Connections::default(), Handshakes::default());
        // A connection every 20 s for two minutes: seven.
        (0..=6).for_each(|number| connections.opened(&mut user, 1_000 + 20 * number));
        let shares = connections.finish();
        let share = |lifetime_s| shares.iter().find(|share| share.lifetime_s == lifetime_s).unwrap();
        let percent = |full: u32| 100.0 - 100.0 * f64::from(full) / 7.0;
        // 10 s: each is full. 30 s: full at 0, 40, 80, 120, or the first alone. 60 s: at 0 and 80.
        assert_eq!([share(10).resumed_percent, share(10).renewed_percent], [0.0, 0.0]);
        assert_eq!([share(30).resumed_percent, share(30).renewed_percent], [percent(4), percent(1)]);
        assert_eq!([share(60).resumed_percent, share(3600).resumed_percent], [percent(2), percent(1)]);
    }
}
