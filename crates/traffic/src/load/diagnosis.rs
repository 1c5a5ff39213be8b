//! What went wrong in a run, whose fault it is, and what to do: from the kinds of its errors.

use tlsdyno_engine::load::{ErrorKind, Outcome};

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sent {
    /// The server as messages name it: its address, or the path of its Unix socket.
    pub server: String,
    pub unix: bool,
    /// What the hellos offer, in words; `None`: plain HTTP.
    pub offered: Option<String>,
    /// The server name in the hellos; `None`: the URL names an address, and no name is sent.
    pub name: Option<String>,
}

pub fn main_kind(outcome: &Outcome) -> Option<ErrorKind> {
    outcome.errors.iter().max_by_key(|(_, count)| **count).map(|(kind, _)| *kind)
}

pub fn explain(outcome: &Outcome, sent: &Sent) -> String {
    let server = &sent.server;
    let Some(kind) = main_kind(outcome) else {
        return format!("{server} answered nothing in the time; give it more (--duration)");
    };
    let fault = outcome.tls_faults.iter().max_by_key(|(_, count)| **count).map(|(fault, _)| fault.as_str());
    let completed = outcome.handshakes.full + outcome.handshakes.resumed_accepted;
    match (kind, fault) {
        (ErrorKind::Tls, Some(fault)) => of_tls(fault, sent),
        (ErrorKind::Http | ErrorKind::StreamReset, _) if !outcome.http2_faults().is_empty() => {
            let fault = outcome.http2_faults().iter().max_by_key(|(_, count)| **count);
            let fault = fault.map_or("", |(fault, _)| fault.as_str());
            format!("{server} does not keep to HTTP/2: {fault}; leave out --http2, or see its error log")
        }
        (ErrorKind::Refused, _) if sent.unix => {
            format!("nothing listens on the Unix socket {server} any more, or its backlog is full")
        }
        (ErrorKind::Unreachable, _) if sent.unix => {
            format!("the Unix socket {server} cannot be connected to: it is gone, or its permissions forbid it")
        }
        (ErrorKind::Closed | ErrorKind::Reset, _) if sent.offered.is_some() && completed == 0 => format!(
            "{server} ends connections in the TLS handshake without a word; does it speak TLS on that port?{}",
            nameless(sent)
        ),
        (ErrorKind::Status, _) => format!("{server} {}", of_status(outcome, sent)),
        (kind, _) if kind.is_local() => of_kind(kind).to_owned(),
        (kind, _) => format!("{server} {}", of_kind(kind)),
    }
}

/// What ends a handshake, by words of the fault, and what to do about it. The first that fits counts.
const TLS_FAULTS: [(&[&str], &str); 12] = [
    (&["asked for a client certificate"], ": name one (--client-cert FILE --client-key FILE)"),
    (&["self-signed"], ": give it as --ca-file FILE, or do not verify the server (--insecure)"),
    (&["not valid for the name"], ": name another (--sni NAME), or do not verify the server (--insecure)"),
    (&["outside its validity period"], ": renew it, or do not verify the server (--insecure)"),
    (
        &["authority that is not trusted"],
        ": that is --ca-file FILE; or let the server send the certificates between its own and an authority that this \
         machine trusts, or do not verify it (--insecure)",
    ),
    (&["authenticated"], "; trust its certificate with --ca-file, or do not verify with --insecure"),
    (&["`HTTP/`"], ": it answers in plain HTTP; write http:// for https://, or the port of its TLS side"),
    (&["alert unrecognized_name"], ": it has no site of the name that the hello asks for; name one of its own (--sni)"),
    (&["alert no_application_protocol"], ": it speaks none of the protocols of --alpn; leave that out"),
    (
        &["certificate", "alert unknown_ca", "alert access_denied"],
        ": it refuses the certificate of --client-cert; name one that its authority issued",
    ),
    (
        &["alert handshake_failure", "alert insufficient_security"],
        ": most likely it has none of the groups or suites offered; name others (--group, --suite, --tls) or leave \
         these flags out",
    ),
    (
        &["alert protocol_version"],
        ": it has none of the versions of TLS offered; name another (--tls) or leave that out",
    ),
];

fn of_tls(fault: &str, sent: &Sent) -> String {
    let fits = |words: &&[&str]| words.iter().any(|words| fault.contains(words));
    let remedy = TLS_FAULTS.iter().find(|(words, _)| fits(words)).map_or("", |(_, remedy)| *remedy);
    let is_alert = fault.starts_with("the server sent the alert");
    let offered = sent.offered.as_ref().filter(|_| remedy.contains("offered"));
    let offered = offered.map_or(String::new(), |offered| format!(" ({offered})"));
    format!("{fault}{remedy}{offered}{}", if is_alert { nameless(sent) } else { String::new() })
}

/// Where no server name was sent, which some servers do not answer: how to send one.
fn nameless(sent: &Sent) -> String {
    match sent.name {
        Some(_) => String::new(),
        None => ". No server name was sent, as the URL names an address: --sni NAME sends one".to_owned(),
    }
}

/// What responses mean none of which had the expected status: a predicate on the server.
fn of_status(outcome: &Outcome, sent: &Sent) -> String {
    let Some((status, _)) = outcome.statuses.iter().max_by_key(|(_, count)| **count) else {
        return of_kind(ErrorKind::Status).to_owned();
    };
    let remedy = match status {
        300..400 => "--follow-redirects follows where that leads, --expect-status takes it for a hit",
        400 if sent.offered.is_some() => {
            "so nginx answers whoever has no client certificate, where it asks for one (--client-cert), and others a \
             Host header that they do not like (-H)"
        }
        421 => "the server name of the hello (--sni) and the Host header (-H) are of different sites",
        _ => "correct the URL or the Host header (-H), or take it for a hit (--expect-status)",
    };
    format!("answers with status {status}, which is not the one expected: {remedy}")
}

/// What a kind of error means: a predicate on the server's address or, where this machine is at fault, a sentence of
/// its own.
pub fn of_kind(kind: ErrorKind) -> &'static str {
    match kind {
        ErrorKind::Refused => "refuses connections; is the server running, and on that port?",
        ErrorKind::Unreachable => {
            "cannot be reached from here: there is no route, or a firewall forbids it; try `ping` or `ip route get`"
        }
        ErrorKind::ConnectTimeout => {
            "does not accept connections in time; a firewall drops them, or the server's backlog is full (its `listen` \
             setting, and sysctl net.core.somaxconn)"
        }
        ErrorKind::HandshakeTimeout => {
            "accepts connections, but does not finish TLS handshakes in time; does it speak TLS on that port, or are \
             these more handshakes than it can do (fewer --connections)?"
        }
        ErrorKind::Timeout => "does not answer requests in time; it hangs or is overloaded, or --timeout is too short",
        ErrorKind::FirstByteTimeout => {
            "does not begin to answer in time; it is overloaded, or --first-byte-timeout is too short"
        }
        ErrorKind::TotalTimeout => {
            "does not complete its answers in time; it or the network is slow, or --total-timeout is too short"
        }
        ErrorKind::Cut => {
            "had not completed its answers when the time was over and --timeout behind it too, though something still \
             moved; it or the network is slow, or both times are too short (--duration, --timeout)"
        }
        ErrorKind::Reset => {
            "resets connections; it is crashing or at a limit of its own (worker_connections, maxconn), or a firewall \
             is between; its error log tells"
        }
        ErrorKind::Closed => {
            "closes connections instead of answering; does it speak TLS where the URL says http, or the reverse?"
        }
        ErrorKind::Http => "does not answer in HTTP/1; does it speak TLS (https) or another protocol?",
        ErrorKind::StreamReset => "resets streams of HTTP/2 in place of answers; its error log tells why",
        ErrorKind::Tls => "fails in TLS",
        ErrorKind::RedirectElsewhere => {
            "redirects to another scheme, host or port, which is not followed; load that by its own URL"
        }
        ErrorKind::RedirectLimit => {
            "redirects in a loop, or more often than --follow-redirects=MAX says; `curl -L -v` shows where to"
        }
        ErrorKind::RedirectMalformed => "redirects to what is no URL: see the Location header that `curl -v` shows",
        ErrorKind::Status => "answers with another status than expected; see --expect-status",
        ErrorKind::Length => "answers with another length than expected",
        ErrorKind::Ports => {
            "this machine has no local port left for that address (each closed connection holds one for 60 s). More \
             ports: `sudo sysctl -w net.ipv4.ip_local_port_range=\"1024 65535\" net.ipv4.tcp_tw_reuse=1`; fewer \
             connections: --requests-per-connection"
        }
        ErrorKind::Descriptors => {
            "this process has no file descriptor left, or the system has none; raise the limit in this shell with \
             `sudo prlimit --pid $$ --nofile=100000:100000` (system: `sudo sysctl -w fs.file-max=1000000`), or use \
             fewer --connections"
        }
        ErrorKind::Resources => {
            "this machine has no memory left for connections; use fewer --connections, or raise `sysctl \
             net.ipv4.tcp_mem`"
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sent(name: Option<&str>) -> Sent {
        let offered = Some("offered were TLS 1.3".to_owned());
        Sent { server: "192.0.2.1:443".to_owned(), unix: false, offered, name: name.map(str::to_owned) }
    }

    #[test]
    fn every_fault_of_tls_has_its_own_remedy() {
        use tlsdyno_tls::crypto::CryptoError;
        use tlsdyno_tls::{Alert, Error};
        let refused = |fault| Error::Refused(fault).to_string();
        let alert = |alert| Error::AlertReceived(alert).to_string();
        let mismatch = CryptoError::NameMismatch { asked: "a".to_owned(), presented: vec!["b".to_owned()] };
        let expired = CryptoError::CertificateExpired("it expired 3 days ago".to_owned());
        let cases = [
            (refused(CryptoError::SelfSigned), "give it as --ca-file"),
            (refused(CryptoError::UnknownIssuer), "--ca-file FILE; or let the server send"),
            (refused(mismatch), "`a`, but for b: name another (--sni NAME)"),
            (refused(expired), "3 days ago: renew it"),
            (refused(CryptoError::BadSignature), "trust its certificate"),
            (Error::CertificateWanted(Alert::HANDSHAKE_FAILURE).to_string(), "name one (--client-cert"),
            (alert(Alert::CERTIFICATE_UNKNOWN), "it refuses the certificate of --client-cert"),
            (alert(Alert::UNKNOWN_CA), "it refuses the certificate of --client-cert"),
            (alert(Alert::UNRECOGNIZED_NAME), "no site of the name"),
            (alert(Alert::NO_APPLICATION_PROTOCOL), "--alpn"),
            (alert(Alert::HANDSHAKE_FAILURE), "leave these flags out (offered were TLS 1.3)"),
            (alert(Alert::PROTOCOL_VERSION), "leave that out (offered were TLS 1.3)"),
        ];
        for (fault, remedy) in cases {
            let said = of_tls(&fault, &sent(Some("a")));
            assert!(said.starts_with(&fault) && said.contains(remedy), "{said}");
            assert!(!said.contains("no server name"), "{said}");
        }
        assert!(of_tls(&alert(Alert::INTERNAL_ERROR), &sent(None)).contains("--sni NAME sends one"));
    }
}
