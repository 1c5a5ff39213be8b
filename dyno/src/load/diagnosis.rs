//! What went wrong in a run, whose fault it is, and what to do: from the kinds of its errors.

use std::net::SocketAddr;

use tlsdyno_engine::load::{ErrorKind, Outcome};

/// The most frequent kind of error.
pub fn main_kind(outcome: &Outcome) -> Option<ErrorKind> {
    outcome.errors.iter().max_by_key(|(_, count)| **count).map(|(kind, _)| *kind)
}

/// What the main kind of error of a run means.
/// `offered`: what the client's hellos held, in words; empty: not told.
pub fn of(outcome: &Outcome, address: SocketAddr, offered: &str) -> String {
    let Some(kind) = main_kind(outcome) else {
        return format!("{address} answered nothing in the time; give it more (--duration)");
    };
    let fault = outcome.tls_faults.iter().max_by_key(|(_, count)| **count).map(|(fault, _)| fault.as_str());
    match (kind, fault) {
        (ErrorKind::Tls, Some(fault)) if fault.contains("authenticated") => {
            format!("{fault}; trust its certificate with --ca-file, or do not verify with --insecure")
        }
        (ErrorKind::Tls, Some(fault)) if fault.ends_with("alert handshake_failure") => {
            let offered = if offered.is_empty() { String::new() } else { format!(" ({offered})") };
            format!(
                "{fault}: most likely it has none of the groups or suites offered{offered}; name others (--group, \
                 --suite, --tls) or leave these flags out"
            )
        }
        (ErrorKind::Tls, Some(fault)) => fault.to_owned(),
        (kind, _) if kind.is_local() => of_kind(kind),
        (kind, _) => format!("{address} {}", of_kind(kind)),
    }
}

/// What a kind of error means: a predicate on the server's address or, where this machine is at fault, a sentence of
/// its own.
pub fn of_kind(kind: ErrorKind) -> String {
    match kind {
        ErrorKind::Refused => "refuses connections; is the server running, and on that port?".to_owned(),
        ErrorKind::Unreachable => "cannot be reached from here: there is no route, or a firewall forbids it; try \
                                   `ping` or `ip route get`"
            .to_owned(),
        ErrorKind::ConnectTimeout => "does not accept connections in time; a firewall drops them, or the server's \
                                      backlog is full (its `listen` setting, and sysctl net.core.somaxconn)"
            .to_owned(),
        ErrorKind::HandshakeTimeout => "accepts connections, but does not finish TLS handshakes in time; does it \
                                        speak TLS on that port, or are these more handshakes than it can do (fewer \
                                        --connections)?"
            .to_owned(),
        ErrorKind::Timeout => {
            "does not answer requests in time; it hangs or is overloaded, or --timeout is too short".to_owned()
        }
        ErrorKind::FirstByteTimeout => {
            "does not begin to answer in time; it is overloaded, or --first-byte-timeout is too short".to_owned()
        }
        ErrorKind::TotalTimeout => "does not complete its answers in time; it or the network is slow, or \
                                    --total-timeout is too short"
            .to_owned(),
        ErrorKind::Cut => "had not completed its answers when the time was over and --timeout behind it too, though \
             something still moved; it or the network is slow, or both times are too short (--duration, --timeout)"
            .to_owned(),
        ErrorKind::Reset => "resets connections; it is crashing or at a limit of its own (worker_connections, \
                             maxconn), or a firewall is between; its error log tells"
            .to_owned(),
        ErrorKind::Closed => "closes connections instead of answering; does it speak TLS where the URL says http, or \
                              the reverse?"
            .to_owned(),
        ErrorKind::Http => "does not answer in HTTP/1; does it speak TLS (https) or another protocol?".to_owned(),
        ErrorKind::Tls => "fails in TLS".to_owned(),
        ErrorKind::RedirectElsewhere => {
            "redirects to another scheme, host or port, which is not followed; load that by its own URL".to_owned()
        }
        ErrorKind::RedirectLimit => "redirects in a loop, or more often than --follow-redirects=MAX says; `curl -L \
                                     -v` shows where to"
            .to_owned(),
        ErrorKind::RedirectMalformed => {
            "redirects to what is no URL: see the Location header that `curl -v` shows".to_owned()
        }
        ErrorKind::Status => "answers with another status than expected: see --expect-status".to_owned(),
        ErrorKind::Length => "answers with another length than expected".to_owned(),
        ErrorKind::Ports => "this machine has no local port left for that address (each closed connection holds one \
                             for 60 s). More ports: `sudo sysctl -w net.ipv4.ip_local_port_range=\"1024 65535\" \
                             net.ipv4.tcp_tw_reuse=1`; fewer connections: --requests-per-connection"
            .to_owned(),
        ErrorKind::Descriptors => "this process has no file descriptor left, or the system has none; raise the limit \
                                   in this shell with `sudo prlimit --pid $$ --nofile=100000:100000` (system: `sudo \
                                   sysctl -w fs.file-max=1000000`), or use fewer --connections"
            .to_owned(),
        ErrorKind::Resources => "this machine has no memory left for connections; use fewer --connections, or raise \
                                 `sysctl net.ipv4.tcp_mem`"
            .to_owned(),
    }
}
