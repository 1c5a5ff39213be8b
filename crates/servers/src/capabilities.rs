//! What each server can be told. What it cannot is refused before anything starts, with what it has.

use anyhow::{Result, bail, ensure};
use tlsdyno_record::model::{ServerName, SessionCache, TicketKeys};
use tlsdyno_tls::Version;

use super::{DRIVERS, ServerTls, driver_of};

#[derive(Clone, Copy, Debug)]
pub struct Capabilities {
    pub name: &'static str,
    pub session_caches: &'static [SessionCache],
    /// Its workers find each other's sessions without tickets too, in a cache that is called shared.
    pub workers_share_sessions: bool,
    pub ticket_keys: &'static [TicketKeys],
    pub session_timeout: bool,
    pub early_data: bool,
    /// Over TLS, and without it to clients that know.
    pub http2: bool,
    /// It goes on with other connections while a private-key operation runs elsewhere.
    pub asynchronous: bool,
    /// It has a process for each connection, so that many servers at once are many processes.
    pub process_per_connection: bool,
}

pub(super) const OWN_AND_SHARED: &[TicketKeys] = &[TicketKeys::Own, TicketKeys::Shared];
pub(super) const ALL_KEYS: &[TicketKeys] = &TicketKeys::ALL;

/// What most servers can be told; their names and caches come in place of these.
pub(super) const USUAL: Capabilities = Capabilities {
    name: "",
    session_caches: &[],
    workers_share_sessions: true,
    ticket_keys: ALL_KEYS,
    session_timeout: true,
    early_data: true,
    http2: true,
    asynchronous: false,
    process_per_connection: false,
};

/// The servers that can do something, for messages: `nginx, haproxy and builtin`.
pub fn having(what: impl Fn(&Capabilities) -> bool) -> String {
    let able = DRIVERS.iter().filter_map(|driver| driver.capabilities.as_ref()).filter(|able| what(able));
    let mut names: Vec<&str> = able.map(|able| able.name).collect();
    names.dedup();
    match names.split_last() {
        Some((last, [])) => (*last).to_owned(),
        Some((last, rest)) => format!("{} and {last}", rest.join(", ")),
        None => "no server".to_owned(),
    }
}

impl Capabilities {
    /// Where it can keep sessions with so many workers, and what it is called then. One worker alone needs no
    /// cache that is shared, and with tickets on the cache is not used.
    fn session_caches(&self, workers: u32, tickets: bool) -> (String, Vec<SessionCache>) {
        if self.workers_share_sessions || workers == 1 || tickets {
            return (self.name.to_owned(), self.session_caches.to_vec());
        }
        let own = self.session_caches.iter().copied().filter(|cache| *cache != SessionCache::Shared);
        (format!("{} with several workers and without tickets", self.name), own.collect())
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wanted {
    pub session_cache: SessionCache,
    pub tickets: bool,
    pub ticket_keys: TicketKeys,
    pub session_timeout_s: Option<u32>,
    pub early_data: bool,
    pub http2: bool,
    pub tls13: bool,
}

impl Wanted {
    pub fn new(tls: &ServerTls) -> Wanted {
        Wanted {
            session_cache: tls.session_cache,
            tickets: tls.tickets,
            ticket_keys: tls.ticket_keys,
            session_timeout_s: tls.session_timeout_s,
            early_data: tls.early_data,
            http2: false,
            tls13: tls.versions().contains(&Version::Tls13),
        }
    }

    /// Refuses what a server with so many workers does not have.
    pub fn refuse_unable(&self, server: ServerName, workers: u32) -> Result<()> {
        ensure!(
            self.tickets || self.ticket_keys == TicketKeys::Own,
            "ticket keys `{}` with tickets switched off: drop one of them (--ticket-keys, --no-tickets)",
            self.ticket_keys.name()
        );
        ensure!(self.session_timeout_s != Some(0), "a session has to last at least 1 s (`session_timeout_s`)");
        ensure!(
            self.tls13 || !self.early_data,
            "early data belongs to TLS 1.3: choose --tls 1.3, or drop --early-data"
        );
        let Some(able) = &driver_of(server).capabilities else { return Ok(()) };
        let (name, caches) = able.session_caches(workers, self.tickets);
        if !caches.contains(&self.session_cache) {
            let has: Vec<_> = caches.iter().map(|cache| cache.name()).collect();
            bail!("{name} has no session cache `{}`; it has {}", self.session_cache.name(), has.join(", "));
        }
        if !able.ticket_keys.contains(&self.ticket_keys) {
            let has: Vec<_> = able.ticket_keys.iter().map(|keys| keys.name()).collect();
            bail!(
                "{name} cannot have ticket keys `{}`; it has {}; {} have all",
                self.ticket_keys.name(),
                has.join(", "),
                having(|able| TicketKeys::ALL.iter().all(|keys| able.ticket_keys.contains(keys)))
            );
        }
        ensure!(
            able.session_timeout || self.session_timeout_s.is_none(),
            "{name} cannot be told how long sessions last; {} can",
            having(|able| able.session_timeout)
        );
        ensure!(
            able.early_data || !self.early_data,
            "{name} takes no early data; {} do",
            having(|able| able.early_data)
        );
        ensure!(
            able.http2 || !self.http2,
            "{} speaks HTTP/1.1 only; {} speak HTTP/2 too",
            server.name(),
            having(|able| able.http2)
        );
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLAIN: Wanted = Wanted {
        session_cache: SessionCache::Shared,
        tickets: true,
        ticket_keys: TicketKeys::Own,
        session_timeout_s: None,
        early_data: false,
        http2: false,
        tls13: true,
    };

    #[test]
    fn the_usual_is_had_by_all_and_refusals_name_what_there_is() {
        use ServerName::{ApacheEvent, Lighttpd, Nginx};
        for server in ServerName::configured() {
            PLAIN.refuse_unable(server, 1).unwrap();
        }
        let refused = |wanted: Wanted, server, workers| wanted.refuse_unable(server, workers).unwrap_err().to_string();
        let dbm = Wanted { session_cache: SessionCache::Dbm, ..PLAIN };
        assert_eq!(
            refused(dbm, Nginx, 1),
            "nginx has no session cache `dbm`; it has off, builtin, shared, builtin-shared"
        );
        PLAIN.refuse_unable(Lighttpd, 2).unwrap();
        assert_eq!(
            refused(Wanted { tickets: false, ..PLAIN }, Lighttpd, 2),
            "lighttpd with several workers and without tickets has no session cache `shared`; it has off, builtin"
        );
        let rotating = Wanted { ticket_keys: TicketKeys::Rotating, ..PLAIN };
        assert!(refused(rotating, ApacheEvent, 1).contains("it has own, shared; nginx and "));
        assert!(refused(Wanted { tickets: false, ..rotating }, Nginx, 1).contains("--no-tickets"));
        let short = Wanted { session_timeout_s: Some(2), ..PLAIN };
        assert!(refused(short, Lighttpd, 1).contains("nginx, apache, haproxy and builtin can"));
        assert!(refused(Wanted { session_timeout_s: Some(0), ..PLAIN }, Nginx, 1).contains("at least 1 s"));
        let early = Wanted { early_data: true, ..PLAIN };
        assert!(refused(early, Lighttpd, 1).starts_with("lighttpd takes no early data; nginx, "));
        let http2 = Wanted { http2: true, ..PLAIN };
        let able = "nginx, apache, haproxy and lighttpd speak HTTP/2 too";
        assert_eq!(
            refused(http2, ServerName::ApachePrefork, 1),
            format!("apache-prefork speaks HTTP/1.1 only; {able}")
        );
        assert_eq!(refused(http2, ServerName::Builtin, 1), format!("builtin speaks HTTP/1.1 only; {able}"));
        assert!(refused(Wanted { tls13: false, ..early }, Nginx, 1).contains("--tls 1.3"));
    }

    #[test]
    fn servers_are_listed_once_in_the_order_of_their_drivers() {
        let listed = |names: &[&str]| having(|able| names.contains(&able.name));
        assert_eq!(listed(&["builtin", "haproxy", "apache"]), "apache, haproxy and builtin");
        assert_eq!(listed(&["builtin", "nginx"]), "nginx and builtin");
        assert_eq!(listed(&["haproxy"]), "haproxy");
        assert_eq!(listed(&[]), "no server");
    }
}
