//! What each server can be told about sessions. What it cannot is refused before anything starts, with what it has.

use anyhow::{Result, bail, ensure};
use tlsdyno_tls::Version;

use super::{ServerKind, ServerTls};
use crate::model::{SessionCache, TicketKeys};

/// What a server has.
struct Abilities {
    name: &'static str,
    caches: &'static [SessionCache],
    ticket_keys: &'static [TicketKeys],
    early_data: bool,
}

/// Servers that take early data, for messages.
const EARLY_DATA_SERVERS: &str = "nginx, haproxy and builtin";

const OWN_AND_SHARED: &[TicketKeys] = &[TicketKeys::Own, TicketKeys::Shared];
const ALL_KEYS: &[TicketKeys] = &[TicketKeys::Own, TicketKeys::Shared, TicketKeys::Rotating];
const APACHE_CACHES: &[SessionCache] =
    &[SessionCache::Off, SessionCache::Shared, SessionCache::Dbm, SessionCache::Memcached, SessionCache::Redis];

impl Abilities {
    /// Of a server with so many workers; `None`: a user's own, whose configuration is the user's.
    fn of(kind: &ServerKind, workers: u32, tickets: bool) -> Option<Abilities> {
        use SessionCache::{Builtin, BuiltinShared, Off, Shared};
        Some(match kind {
            ServerKind::BuiltIn => {
                Abilities { name: "builtin", caches: &[Off, Shared], ticket_keys: &[TicketKeys::Own], early_data: true }
            }
            ServerKind::Nginx => Abilities {
                name: "nginx",
                caches: &[Off, Builtin, Shared, BuiltinShared],
                ticket_keys: ALL_KEYS,
                early_data: true,
            },
            ServerKind::ApacheEvent | ServerKind::ApachePrefork => {
                Abilities { name: "apache", caches: APACHE_CACHES, ticket_keys: OWN_AND_SHARED, early_data: false }
            }
            ServerKind::Haproxy => {
                Abilities { name: "haproxy", caches: &[Off, Shared], ticket_keys: ALL_KEYS, early_data: true }
            }
            // Its one worker shares its cache with nobody, which is as good; with tickets on, no session gets there.
            ServerKind::Lighttpd if workers == 1 || tickets => Abilities {
                name: "lighttpd",
                caches: &[Off, Builtin, Shared],
                ticket_keys: OWN_AND_SHARED,
                early_data: false,
            },
            ServerKind::Lighttpd => Abilities {
                name: "lighttpd with several workers and without tickets",
                caches: &[Off, Builtin],
                ticket_keys: OWN_AND_SHARED,
                early_data: false,
            },
            ServerKind::Command(_) => return None,
        })
    }
}

/// What is wanted of a server's sessions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wanted {
    /// See [`ServerTls::session_cache`].
    pub session_cache: SessionCache,
    /// See [`ServerTls::tickets`].
    pub tickets: bool,
    /// See [`ServerTls::ticket_keys`].
    pub ticket_keys: TicketKeys,
    /// See [`ServerTls::early_data`].
    pub early_data: bool,
    /// TLS 1.3 is among the versions.
    pub tls13: bool,
}

impl Wanted {
    /// What these settings want.
    pub fn of(tls: &ServerTls) -> Wanted {
        Wanted {
            session_cache: tls.session_cache,
            tickets: tls.tickets,
            ticket_keys: tls.ticket_keys,
            early_data: tls.early_data,
            tls13: tls.versions().contains(&Version::Tls13),
        }
    }

    /// Refuses what a server with so many workers does not have.
    ///
    /// # Errors
    /// What it has instead, or which server has it.
    pub fn refuse_unable(&self, kind: &ServerKind, workers: u32) -> Result<()> {
        ensure!(
            self.tickets || self.ticket_keys == TicketKeys::Own,
            "ticket keys `{}` with tickets switched off: drop one of them (--ticket-keys, --no-tickets)",
            self.ticket_keys.name()
        );
        ensure!(
            self.tls13 || !self.early_data,
            "early data belongs to TLS 1.3: choose --tls 1.3, or drop --early-data"
        );
        let Some(able) = Abilities::of(kind, workers, self.tickets) else {
            ensure!(
                self.ticket_keys == TicketKeys::Own,
                "the ticket keys of your own server command are its own matter: put them into its configuration"
            );
            return Ok(());
        };
        if !able.caches.contains(&self.session_cache) {
            let has: Vec<_> = able.caches.iter().map(|cache| cache.name()).collect();
            bail!("{} has no session cache `{}`; it has {}", able.name, self.session_cache.name(), has.join(", "));
        }
        if !able.ticket_keys.contains(&self.ticket_keys) {
            let has: Vec<_> = able.ticket_keys.iter().map(|keys| keys.name()).collect();
            bail!(
                "{} cannot have ticket keys `{}`; it has {}; nginx and haproxy have all",
                able.name,
                self.ticket_keys.name(),
                has.join(", ")
            );
        }
        ensure!(able.early_data || !self.early_data, "{} takes no early data; {EARLY_DATA_SERVERS} do", able.name);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const USUAL: Wanted = Wanted {
        session_cache: SessionCache::Shared,
        tickets: true,
        ticket_keys: TicketKeys::Own,
        early_data: false,
        tls13: true,
    };

    #[test]
    fn the_usual_is_had_by_all_and_refusals_name_what_there_is() {
        use ServerKind::{ApacheEvent, ApachePrefork, BuiltIn, Haproxy, Lighttpd, Nginx};
        for kind in [ApacheEvent, ApachePrefork, BuiltIn, Haproxy, Lighttpd, Nginx] {
            USUAL.refuse_unable(&kind, 1).unwrap();
        }
        let refused = |wanted: Wanted, kind, workers| wanted.refuse_unable(&kind, workers).unwrap_err().to_string();
        let dbm = Wanted { session_cache: SessionCache::Dbm, ..USUAL };
        assert_eq!(
            refused(dbm, Nginx, 1),
            "nginx has no session cache `dbm`; it has off, builtin, shared, builtin-shared"
        );
        USUAL.refuse_unable(&Lighttpd, 2).unwrap();
        assert!(refused(Wanted { tickets: false, ..USUAL }, Lighttpd, 2).contains("it has off, builtin"));
        let rotating = Wanted { ticket_keys: TicketKeys::Rotating, ..USUAL };
        assert!(refused(rotating, ApacheEvent, 1).contains("it has own, shared; nginx and haproxy"));
        assert!(refused(Wanted { tickets: false, ..rotating }, Nginx, 1).contains("--no-tickets"));
        let early = Wanted { early_data: true, ..USUAL };
        assert!(refused(early, Lighttpd, 1).contains(EARLY_DATA_SERVERS));
        assert!(refused(Wanted { tls13: false, ..early }, Nginx, 1).contains("--tls 1.3"));
    }
}
