//! What HAProxy says of TLS, and what is asked for in its place.

use std::path::Path;

use anyhow::{Result, ensure};
use tlsdyno_record::model::{SessionCache, TlsChange};
use tlsdyno_tls::Version;

use super::reader::{Line, Section};
use crate::patch::Part;
use crate::site::versions;
use tlsdyno_servers::{InstancePlace, ServerTls, haproxy};

/// The versions, lowest first, as options name them behind `no-` and `force-`.
const VERSIONS: [(&str, &str); 4] =
    [("TLSv1.0", "tlsv10"), ("TLSv1.1", "tlsv11"), ("TLSv1.2", "tlsv12"), ("TLSv1.3", "tlsv13")];

/// All that says them, behind a colon how many words follow each.
const VERSION_WORDS: &str = "ssl-min-ver:1 ssl-max-ver:1 no-tlsv10 no-tlsv11 no-tlsv12 no-tlsv13 force-tlsv10 \
    force-tlsv11 force-tlsv12 force-tlsv13";

/// The versions of a `bind`; none where nobody says any.
pub(super) fn protocols(bind: &Line, options: &[String]) -> Vec<String> {
    let defaults = Line::from(options.to_vec());
    let bound = |word: &str| bind.value(word).or_else(|| defaults.value(word));
    let says = |word: &str| bind.has(word) || defaults.has(word);
    let forced = VERSIONS.iter().find(|(_, short)| says(&format!("force-{short}")));
    let is_out = |short: &str| says(&format!("no-{short}"));
    let named = versions(bound("ssl-min-ver"), bound("ssl-max-ver"));
    let all = if named.is_empty() { versions(Some("TLSv1.2".to_owned()), None) } else { named.clone() };
    let is_left = |name: &String| {
        let short = VERSIONS.iter().find(|(known, _)| known == name).map_or("", |(_, short)| short);
        forced.map_or(!is_out(short), |(_, forced)| *forced == short)
    };
    let left: Vec<String> = all.iter().filter(|name| is_left(name)).cloned().collect();
    // Nobody says anything that changes what it does by itself.
    if named.is_empty() && left.len() == all.len() { Vec::new() } else { left }
}

/// The files of certificates: those of `crt`, and of the first line of each list.
pub(super) fn certificates(bind: &Line, base: &str, home: &Path) -> Vec<String> {
    let behind = |word: &'static str| {
        let at = bind.words.iter().enumerate().filter(move |(_, other)| *other == word);
        at.filter_map(|(at, _)| bind.words.get(at + 1)).map(|value| value.trim_matches(['"', '\'']).to_owned())
    };
    let place = |name: &str| match base {
        "" => home.join(name).display().to_string(),
        base => Path::new(base).join(name).display().to_string(),
    };
    let listed = behind("crt-list").filter_map(|list| {
        let text = std::fs::read_to_string(home.join(list)).ok()?;
        text.lines()
            .find(|line| !line.trim().is_empty() && !line.starts_with('#'))?
            .split_whitespace()
            .next()
            .map(str::to_owned)
    });
    let files = behind("crt").chain(listed).flat_map(|name| {
        let path = place(&name);
        let directory = Path::new(&path).is_dir();
        // Of a directory the first is shown to clients that ask for no name.
        let first = || tlsdyno_servers::glob::files(&Path::new(&path).join("*")).into_iter().next();
        if directory { first().map(|file| file.display().to_string()) } else { Some(path) }
    });
    files.collect()
}

const KEEP_ALIVE: [[&str; 2]; 3] = [["timeout", "http-keep-alive"], ["option", "httpclose"], ["option", "forceclose"]];

/// Puts what is asked for into all listeners with TLS.
pub(super) fn change(sections: &mut [Section], asked: &TlsChange, tls: &ServerTls, place: InstancePlace) -> Result<()> {
    if asked.certificate.is_some() {
        tls.certificate.write_in_one(&place.own.join(haproxy::CERTIFICATE_FILE))?;
    }
    let gone = gone(asked);
    // Of all that a server of ours would have, what is asked.
    let ours = super::line_of(&format!("bind {}", haproxy::tls_parameters(tls, place)?)).unwrap_or_default();
    let parameters: Vec<String> = gone.split(' ').flat_map(|entry| ours.with_value(entry)).collect();
    let mut global: Vec<(&str, String)> = Vec::new();
    if let Some(cache) = asked.session_cache {
        global.push(("tune.ssl.cachesize", haproxy::cached_sessions_of(cache == SessionCache::Off)));
    }
    global.extend(asked.session_timeout_s.map(|seconds| ("tune.ssl.lifetime", haproxy::session_lifetime(seconds))));
    global.extend(asked.record_bytes.map(|bytes| ("tune.ssl.maxrecord", format!("tune.ssl.maxrecord {bytes}"))));
    for section in sections {
        if let Some(seconds) = asked.keep_alive_s.filter(|_| section.is_front() || section.kind() == "defaults") {
            section.lines.retain(|line| !KEEP_ALIVE.iter().any(|words| line.starts(words)));
            section.lines.push(Line::parse(&format!("timeout http-keep-alive {seconds}s")));
        }
        if section.kind() == "global" {
            section.lines.retain(|line| !global.iter().any(|(name, _)| line.words[0] == *name));
            section.lines.extend(global.iter().map(|(_, line)| Line::parse(line)));
            let options = section.lines.iter_mut().filter(|line| line.words[0] == "ssl-default-bind-options");
            options.for_each(|line| line.remove_listed(&gone));
            section.lines.retain(|line| line.words[0] != "ssl-default-bind-options" || line.words.len() > 1);
        }
        for bind in section.lines.iter_mut().filter(|line| line.words[0] == "bind" && line.has("ssl")) {
            bind.remove_listed(&gone);
            bind.words.extend(parameters.iter().cloned());
        }
    }
    Ok(())
}

/// The words whose place is taken, behind a colon how many follow each.
fn gone(asked: &TlsChange) -> String {
    let is_suite_of = |version| asked.suite.is_some_and(|suite| suite.version() == version);
    let all = [
        (asked.certificate.is_some(), "crt:1 crt-list:1"),
        (asked.version.is_some(), VERSION_WORDS),
        (is_suite_of(Version::Tls12), "ciphers:1"),
        (is_suite_of(Version::Tls13), "ciphersuites:1"),
        (asked.group.is_some(), "curves:1 ecdhe:1"),
        (asked.tickets.is_some(), "no-tls-tickets"),
        (asked.ticket_keys.is_some(), "tls-ticket-keys:1"),
        (asked.early_data.is_some(), "allow-0rtt"),
    ];
    all.into_iter().filter(|(is, _)| *is).map(|(_, words)| words).collect::<Vec<_>>().join(" ")
}

/// Parameters that have no value.
const FLAGS: &[&str] = &["no-tls-tickets", "allow-0rtt", "ssl"];
/// What an example line changes beside the parameters that it has, by words of it or by its comment.
const OPPOSITES: &[(&str, &str)] = &[
    ("# without no-tls-tickets", "no-tls-tickets"),
    // HAProxy takes either these or `ssl-min-ver`, and warns of both.
    ("ssl-min-ver", "ssl-max-ver:1 no-sslv3 no-tlsv10 no-tlsv11 no-tlsv12 no-tlsv13 force-tlsv12"),
    ("curves", "ecdhe:1"),
];
const EXAMPLE: [&str; 2] = ["crt", "/etc/ssl/site.pem"];

/// The parameters of an example of `bind`, each with its value: its certificate only where nothing else is shown.
fn parameters(example: &str) -> Vec<[&str; 2]> {
    let mut words = example.split('#').next().unwrap_or_default().split_whitespace().skip(3);
    let mut all = Vec::new();
    while let Some(word) = words.next() {
        let value = if FLAGS.contains(&word) { None } else { words.next() };
        all.push([word, value.unwrap_or_default()]);
    }
    let shows_more = all.len() > 1 || example.contains(OPPOSITES[0].0);
    all.retain(|parameter| !shows_more || *parameter != EXAMPLE);
    all
}

/// The line of a part with the parameters of an example of `bind`, if that changes it; none where nothing is left.
pub(crate) fn with_parameters(example: &str, part: &Part) -> Result<Option<Vec<String>>> {
    let line = super::line_of(&part.says).unwrap_or_default();
    let is_listener = part.name == "bind" && line.has("ssl");
    if !is_listener && part.name != "ssl-default-bind-options" {
        return Ok(None);
    }
    let mut changed = line.clone();
    let opposites = OPPOSITES.iter().filter(|(mark, _)| example.contains(mark));
    opposites.for_each(|(_, words)| changed.remove_listed(words));
    for [name, value] in parameters(example).into_iter().filter(|_| is_listener) {
        // A second certificate stands beside the first.
        if name != "crt" || value == EXAMPLE[1] {
            changed.remove(name, usize::from(!value.is_empty()));
        }
        changed.words.extend([name, value].into_iter().filter(|word| !word.is_empty()).map(str::to_owned));
    }
    let is_one = line.words.iter().filter(|word| word.starts_with("crt")).count() == 1
        && line.value("crt").is_some_and(|path| !Path::new(&path).is_dir());
    let is_replaced = is_listener && parameters(example).contains(&EXAMPLE);
    let says = &part.says;
    ensure!(is_one || !is_replaced, "`{says}` names several certificates, which one would replace: change it by hand");
    let advice = example.split_once('#').filter(|_| is_listener && example.contains("# certificate"));
    let advice = advice.map_or(String::new(), |(_, advice)| format!("    #{advice}"));
    let is_left = changed.words.len() > 1;
    Ok((changed != line).then(|| is_left.then(|| changed.words.join(" ") + &advice).into_iter().collect()))
}
