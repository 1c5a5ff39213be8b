//! Flags of other load generators (curl, wrk, h2load, ab, oha, hey, bombardier, k6, vegeta, locust): each is answered
//! with its counterpart in `tlsdyno load`, for the nearest spelling of ours means something else.

use clap::Command;
use clap::error::{Error, ErrorKind};
use tlsdyno_base::program::unknown_flag;

/// The subcommands that take the flags of a load.
const OF_LOAD: [&str; 2] = ["load", "reuse"];

/// What a flag is here, or why there is none.
#[rustfmt::skip]
const COUNTERPARTS: [(&[&str], &str); 55] = [
    // How long, how much, how fast.
    (&["-t"], "threads (wrk, h2load) are --threads N here, the time (ab, locust) is -d 10s, the time-out (hey, \
               bombardier) --timeout 10s"),
    (&["--cpus"], "here --threads N"),
    (&["--run-time", "--test-duration"], "here -d 10s"),
    (&["--iterations", "--num-requests"], "here -n 10000"),
    (&["-i"], "iterations (k6) are -n 10000 here, a HEAD request (ab) is -X HEAD; the headers of answers (curl) are \
               not shown"),
    (&["-q", "-R", "-r", "--qps", "--rps"], "here --rate 100/s"),
    (&["--vus", "--clients", "--concurrency", "--max-connections", "--max-workers"], "here --connections N"),
    (&["-u"], "users (locust, k6) are --connections N here, a login (curl) is -H 'Authorization: Basic …'"),
    (&["--stage", "--stages", "--ramp-up", "--spawn-rate", "--rampup", "--burst-delay", "--burst-rate"],
     "a load is constant here; --sweep 100..5000 makes one rate after the other"),
    (&["--latency-correction"], "always on with --rate: latency counts from the intended time"),
    (&["-l", "--latency", "--latencies"], "percentiles are always printed; -o FILE.hdr has all of them"),
    // Connections.
    (&["--disable-keepalive", "--no-keep-alive", "--no-connection-reuse", "--no-vu-connection-reuse"], "here --close"),
    (&["--keepalive"], "connections are kept unless --close says otherwise"),
    (&["-p"], "a body to send (ab) is --body-file FILE -X POST here; streams (oha) are --streams N, \
               with --http2"),
    (&["--http2-prior-knowledge", "--h2c"], "an http:// URL and --http2"),
    (&["--http3", "--alpn-list", "--npn-list"],
     "tlsdyno speaks HTTP/1.1 and, with --http2, HTTP/2 by ALPN"),
    (&["--http1", "--http1.1", "--h1", "--http-version"], "tlsdyno speaks HTTP/1.1 unless --http2 says otherwise"),
    (&["-x", "--proxy"], "no proxy is used; --connect-to HOST:PORT connects to another address than the URL's"),
    (&["--resolve", "--resolvers"], "here --connect-to HOST:PORT"),
    (&["-4", "-6", "--ipv4", "--ipv6"], "name an address of that family: --connect-to HOST:PORT"),
    (&["--unix-socket"], "here --unix PATH"),
    (&["--interface", "--laddr"], "here --source ADDRESS"),
    (&["--max-time"], "here --total-timeout 5s for each answer, -d 10s for the whole load"),
    (&["-m", "--max-concurrent-streams"], "a method (hey, oha, bombardier) is -X POST here, a time limit (curl) \
               --total-timeout 5s, requests at once (h2load) --http2 --streams N"),
    // TLS.
    (&["--cacert", "--capath", "--root-certs"], "here --ca-file FILE"),
    (&["-E", "--cert"], "here --client-cert FILE, with --client-key FILE"),
    (&["--key"], "here --client-key FILE, with --client-cert FILE"),
    (&["--insecure-skip-tls-verify", "--no-check-certificate"], "here --insecure"),
    (&["--ciphers", "--cipher", "--tls13-ciphers"], "here --suite NAME"),
    (&["--curves", "--groups"], "here --group NAME"),
    (&["--tlsv1.2", "--tls-max"], "here --tls 1.2"),
    (&["--tlsv1.3"], "here --tls 1.3"),
    (&["--session-tickets", "--tls-session-tickets"], "here --reuse always"),
    (&["--no-sessionid", "--no-session-id"], "sessions are resumed only where --reuse or --profile says so"),
    (&["--no-alpn"], "no protocol is offered unless --alpn http/1.1 says so"),
    (&["--servername", "--server-name"], "here --sni NAME"),
    // Requests.
    (&["--request"], "here -X METHOD"),
    (&["-I", "--head"], "here -X HEAD"),
    (&["--data", "--data-binary", "--data-raw", "--data-ascii", "--data-urlencode", "--post-data", "-D"],
     "here --body-file FILE -X POST"),
    (&["-F", "--form", "--form-string"],
     "forms are not made here; put the body into a file: --body-file FILE -X POST -H 'Content-Type: …'"),
    (&["-f"], "a body (bombardier) is --body-file FILE here, a script (locust) --har FILE or --trace LOG"),
    (&["-T"], "a content type (ab, hey) is -H 'Content-Type: …' here"),
    (&["-A", "--user-agent"], "here -H 'User-Agent: …'"),
    (&["--referer"], "here -H 'Referer: …'"),
    (&["-b", "--cookie", "-C"], "here -H 'Cookie: …'"),
    (&["-a", "--user", "--basic"], "here -H 'Authorization: Basic …'"),
    (&["--compressed"], "here -H 'Accept-Encoding: gzip'; bodies are not unpacked"),
    (&["--disable-compression"], "nothing asks for compression unless -H 'Accept-Encoding: gzip' does"),
    (&["-L", "--location", "--redirect", "--redirects"], "here --follow-redirects"),
    (&["--disable-redirects"], "redirects are not followed unless --follow-redirects says so"),
    (&["-s", "--script", "--targets", "--input-file"],
     "several requests are --also URL, --har FILE or --trace LOG here; scripts are not run"),
    // Results.
    (&["-j"], "here --json"),
    (&["--format", "--output-format", "--out", "--csv", "--html", "--summary-export"],
     "here -o FILE.json, .csv, .prom, .html or .hdr"),
    (&["--no-tui", "--headless", "--quiet", "--silent", "--no-print"], "here --progress none"),
    (&["--host"], "here the URL says it; another Host header is -H 'Host: …'"),
];

/// What is said of a flag of another tool.
fn counterpart(flag: &str) -> Option<&'static str> {
    COUNTERPARTS.iter().find(|(flags, _)| flags.contains(&flag)).map(|(_, here)| *here)
}

/// Answers an error of a load with the counterpart of another tool's flag. `arguments` are the words after the name of
/// the program.
pub fn explain(error: &Error, of: &mut Command, arguments: &[String]) -> Option<Error> {
    let said = OF_LOAD.contains(&of.get_name()).then(|| said(error, of, arguments)).flatten();
    Some(of.error(ErrorKind::UnknownArgument, said?))
}

/// What is said of the flag of another tool that the error is about.
fn said(error: &Error, of: &Command, arguments: &[String]) -> Option<String> {
    if let Some(said) = arguments.iter().find_map(|word| with_one_dash(word, of)) {
        return Some(said);
    }
    let unknown = unknown_flag(error)?;
    counterpart(unknown).map(|here| format!("{unknown}: {here}"))
}

/// A long flag with one dash, as programs in Go take them (hey, vegeta): clap reads letters out of it.
fn with_one_dash(word: &str, of: &Command) -> Option<String> {
    let name = word.split('=').next()?.strip_prefix('-').filter(|name| name.len() > 2 && !name.starts_with('-'))?;
    let long = format!("--{name}");
    let is_ours = of.get_arguments().any(|argument| argument.get_long() == Some(name));
    let here = if is_ours { format!("here with two dashes, {long}") } else { counterpart(&long)?.to_owned() };
    Some(format!("-{name}: {here}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cmd::cli::tests::{command, explained};

    fn told(line: &str) -> String {
        let arguments: Vec<String> = line.split(' ').map(str::to_owned).collect();
        let error = command().try_get_matches_from([&["tlsdyno".to_owned()], &arguments[..]].concat()).expect_err(line);
        let error = explained(error, &arguments);
        assert_eq!(error.exit_code(), crate::exit::Exit::Usage as i32);
        error.to_string()
    }

    fn load() -> Command {
        command().find_subcommand("load").expect("a subcommand").clone()
    }

    fn has(load: &Command, flag: &str) -> bool {
        load.get_arguments().any(|argument| {
            let long = argument.get_long_and_visible_aliases().unwrap_or_default();
            let short = argument.get_short_and_visible_aliases().unwrap_or_default();
            long.iter().any(|long| flag == format!("--{long}")) || short.iter().any(|short| flag == format!("-{short}"))
        })
    }

    #[test]
    fn every_counterpart_exists_and_no_flag_of_ours_is_taken_for_another_tools() {
        let load = load();
        let mut seen = std::collections::BTreeSet::new();
        for (flags, here) in COUNTERPARTS {
            for flag in flags {
                assert!(!has(&load, flag), "{flag} is a flag here");
                assert!(seen.insert(*flag), "{flag} stands twice");
            }
            let words = here.split([' ', ',', ';', ':', ')']).filter(|word| word.starts_with('-'));
            for named in words {
                assert!(has(&load, named), "{here}: there is no {named}");
            }
        }
    }

    #[test]
    fn flags_of_other_tools_are_answered_with_their_counterpart() {
        for (line, answer) in [
            ("load -t2 -c10 -d30s http://localhost/", "-t: threads (wrk, h2load) are --threads N here"),
            ("reuse -t 2 http://localhost/", "-t: threads"),
            ("load --qps 100 http://localhost/", "--qps: here --rate 100/s"),
            ("load -q 100 http://localhost/", "-q: here --rate 100/s"),
            ("load --disable-keepalive https://localhost/", "--disable-keepalive: here --close"),
            ("load --latency-correction --rate 9 http://localhost/", "--latency-correction: always on with --rate"),
            ("load --cacert=ca.pem https://localhost/", "--cacert: here --ca-file FILE"),
            ("load -cert=my.pem https://localhost/", "-cert: here --client-cert FILE"),
            ("load -duration=5s https://localhost/", "-duration: here with two dashes, --duration"),
            ("load -z 5s -disable-keepalive https://localhost/", "-disable-keepalive: here --close"),
        ] {
            let told = told(line);
            assert!(told.starts_with(&format!("error: {answer}")), "{line}: {told}");
            assert!(!told.contains("tip:"), "{line}: {told}");
        }
    }

    #[test]
    fn tips_are_about_misspellings_only() {
        for line in ["load --conections 5 http://localhost/", "load --durration 5s http://localhost/"] {
            assert!(told(line).contains("a similar argument exists"), "{line}");
        }
        for line in ["load --frobnicate http://localhost/", "load --sweep-up 5 http://localhost/", "ablate --qps 5"] {
            let told = told(line);
            assert!(told.contains("unexpected argument") && !told.contains("tip:"), "{line}: {told}");
            assert!(!told.contains("--on"), "{line}: {told}");
        }
        assert!(told("load --threads x http://localhost/").contains("invalid value 'x'"));
    }
}
