//! What an installed nginx does besides answering, and what becomes of it in the copy: the directives that name a place
//! to write, a receiver, an application or code. docs/SERVERS.md has the same table.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use anyhow::{Result, bail};

use super::reader::{Block, Directive};
use super::text::word_of;

/// Every directive that may stand in `http`, in a block of it or beside it, of nginx 1.22 and 1.26 and of the modules
/// that Debian 12 and 13 have, as their tables of commands have them, and those of later versions that are known.
const KNOWN: &str = include_str!("directives.txt");

/// What becomes of a directive in the copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Handling {
    /// Its first argument becomes a file or directory of the copy's own.
    OwnPlace,
    /// It gets the argument `off`.
    Off,
    /// It is left out.
    LeftOut,
    /// It stays: others are asked for real.
    Asks,
    /// It stays: code, which may do anything.
    Code,
    /// It stays: what it leads to is of the copy's own, or stands in the configuration itself.
    Stays,
    /// The copy has its own, always.
    Ours,
    /// No copy is made.
    Refused,
}

/// Names (a star stands for any letters), what becomes of them, and what they do.
type Effect = (&'static [&'static str], Handling, &'static str);

const EFFECTS: &[Effect] = &[
    (
        &["daemon", "master_process", "pid", "lock_file", "worker_processes", "worker_cpu_affinity", "env"],
        Handling::Ours,
        "the process itself",
    ),
    (&["nchan_message_temp_path"], Handling::OwnPlace, "writes messages to files"),
    (&["*_temp_path"], Handling::Ours, "write bodies to files"),
    (&["access_log", "error_log"], Handling::OwnPlace, "write logs or send them to a syslog server"),
    (&["*_cache_path"], Handling::OwnPlace, "write caches and delete what is old in them"),
    (&["google_perftools_profiles"], Handling::OwnPlace, "writes profiles"),
    (&["*_ssl_key_log", "ssl_key_log"], Handling::OwnPlace, "write keys of connections"),
    (&["srcache_store"], Handling::LeftOut, "writes answers to a cache server"),
    (&["*_store"], Handling::Off, "write answers to files below the document root"),
    (&["dav_methods", "create_full_put_path"], Handling::Off, "let clients write and delete files"),
    (&["mirror"], Handling::Off, "asks a second server for each request"),
    (&["ssl_stapling"], Handling::Off, "asks the certificate's OCSP responder, unless a file has the answer"),
    (&["ssl_ocsp"], Handling::Off, "asks an OCSP responder for each client certificate"),
    (&["otel_trace", "opentracing", "opentelemetry"], Handling::Off, "send traces to a collector"),
    (&["stream", "mail", "rtmp", "mgmt"], Handling::LeftOut, "serve or report on their own"),
    (&["post_action"], Handling::LeftOut, "asks once more after each request"),
    (&["modsecurity_rules_remote"], Handling::LeftOut, "loads rules from a server"),
    (&["nchan_publisher_upstream_request", "nchan_*subscribe_request", "nchan_authorize_request"], Handling::Stays, ""),
    (&["health_check", "check", "state", "keyval_zone", "zone_sync*"], Handling::LeftOut, "ask servers or write state"),
    (&["vhost_traffic_status_dump"], Handling::LeftOut, "writes counters to a file"),
    (&["rtmp_socket_dir", "rtmp_auto_push*"], Handling::LeftOut, "make sockets"),
    (&["working_directory", "worker_rlimit_core", "debug_points"], Handling::LeftOut, "decide where cores are dumped"),
    (&["worker_priority"], Handling::LeftOut, "takes CPU time from others"),
    (&["*_pass"], Handling::Asks, "asks an application or a server"),
    (&["nchan_redis_server", "nchan_redis_url", "nchan_use_redis"], Handling::Asks, "asks Redis"),
    (&["resolver"], Handling::Asks, "asks a name server"),
    (&["auth_pam", "auth_gss"], Handling::Asks, "ask this system's authentication"),
    (&["ssl_engine"], Handling::Asks, "may ask a device"),
    (&["*_by_lua", "*_by_lua_block", "*_by_lua_file"], Handling::Code, "Lua"),
    (&["perl", "perl_set", "perl_modules", "perl_require"], Handling::Code, "Perl"),
    (
        &[
            "js_import",
            "js_include",
            "js_content",
            "js_set",
            "js_header_filter",
            "js_body_filter",
            "js_periodic",
            "js_access",
            "js_preload_object",
            "js_load_*",
        ],
        Handling::Code,
        "JavaScript",
    ),
    (&["modsecurity_rules", "modsecurity_rules_file"], Handling::Code, "ModSecurity, which may write its own logs"),
    (&["client_body_in_file_only"], Handling::Stays, "writes bodies, into the copy's own directory"),
    (&["auth_request", "srcache_fetch"], Handling::Stays, "ask a location of the same configuration"),
    (&["ssl_stapling_file", "ssl_stapling_responder", "ssl_ocsp_responder"], Handling::Stays, "need what is off"),
    (&["load_module"], Handling::Stays, "its directives are looked at one by one"),
    (&["acme_issuer"], Handling::Refused, "would order certificates from its authority"),
];

/// Paths that nginx was built with hold unless these are set; the module that each is of.
const TEMPORARY: [(&str, &str); 5] = [
    ("client_body_temp_path", ""),
    ("proxy_temp_path", "--without-http_proxy_module"),
    ("fastcgi_temp_path", "--without-http_fastcgi_module"),
    ("uwsgi_temp_path", "--without-http_uwsgi_module"),
    ("scgi_temp_path", "--without-http_scgi_module"),
];

/// What has become of a configuration.
#[derive(Debug, Default)]
pub(super) struct Contained {
    /// By what was done: the directives, and how often.
    done: BTreeMap<Handling, BTreeMap<String, u32>>,
    unknown: BTreeSet<String>,
    /// The copy's own places by those of the installed server: two logs with different settings cannot be one file.
    places: BTreeMap<(&'static str, String), String>,
}

impl Contained {
    /// Whether anything stays whose writing nobody foresees.
    pub(super) fn runs_code(&self) -> bool {
        self.done.contains_key(&Handling::Code) || !self.unknown.is_empty()
    }

    /// What was done, in sentences.
    pub(super) fn told(&self, applications: &BTreeSet<String>) -> Vec<String> {
        let listed = |handling| {
            let of = self.done.get(&handling)?;
            let times = |(name, times): (&String, &u32)| match times {
                1 => name.clone(),
                times => format!("{name} ({times} times)"),
            };
            Some(of.iter().map(times).collect::<Vec<_>>().join(", "))
        };
        let mut told = Vec::new();
        let own = listed(Handling::OwnPlace).map(|names| names + ", ").unwrap_or_default();
        told.push(format!("Into the copy's private directory: {own}temporary files, process files"));
        told.extend(listed(Handling::Off).map(|names| format!("Switched off: {names}")));
        told.extend(listed(Handling::LeftOut).map(|names| format!("Left out: {names}")));
        told.extend(
            listed(Handling::Code)
                .map(|names| format!("Runs as it does in the installed server, and may do anything: {names}")),
        );
        if !self.unknown.is_empty() {
            let names = self.unknown.iter().map(String::as_str).collect::<Vec<_>>().join(", ");
            told.push(format!("Stays, and what it does is not known: {names}"));
        }
        if !applications.is_empty() {
            let names = applications.iter().map(String::as_str).collect::<Vec<_>>().join(", ");
            told.push(format!("Asked for real where the load leads there: {names}"));
        }
        told
    }

    fn count(&mut self, handling: Handling, name: &str) {
        *self.done.entry(handling).or_default().entry(name.to_owned()).or_default() += 1;
    }

    /// Where the copy writes what the installed server writes at `installed`.
    fn place(&mut self, name: &str, installed: &str, directory: &Path) -> String {
        let kind = match name {
            "access_log" => "access.log",
            // What is watched for alarms is one file.
            "error_log" => return own_path(directory, "error.log"),
            "google_perftools_profiles" => "profile",
            _ if name.ends_with("key_log") => "keys",
            _ => "cache",
        };
        let number = self.places.keys().filter(|(other, _)| *other == kind).count();
        let named = |number| match (kind, number) {
            ("access.log", 0) => kind.to_owned(),
            ("access.log", number) => format!("access-{number}.log"),
            (_, number) => format!("{kind}-{}", number + 1),
        };
        let place = self.places.entry((kind, installed.to_owned()));
        place.or_insert_with(|| own_path(directory, &named(number))).clone()
    }
}

/// A file of the copy's own, as a word of its configuration.
fn own_path(directory: &Path, name: &str) -> String {
    word_of(&directory.join(name).display().to_string())
}

/// Takes what reaches beyond the server out of a configuration, or into `directory`.
///
/// # Errors
/// It has a directive that no copy can have.
pub(super) fn contain(directives: &mut Vec<Directive>, directory: &Path) -> Result<Contained> {
    let mut contained = Contained::default();
    let mut level = Vec::new();
    for log in directives.iter().filter(|of| of.name == "error_log") {
        level = log.arguments.iter().skip(1).cloned().collect();
        contained.count(Handling::OwnPlace, "error_log");
    }
    directives.retain(|of| of.name != "error_log");
    contain_block(directives, directory, false, &mut contained)?;
    for http in directives.iter_mut().filter(|of| of.name == "http") {
        let Some(Block::Directives(inner)) = &mut http.block else { continue };
        let mut own: Vec<Directive> =
            TEMPORARY.iter().map(|(name, _)| Directive::of(name, vec![own_path(directory, name)])).collect();
        if !inner.iter().any(|of| of.name == "access_log") {
            own.push(Directive::of("access_log", vec![contained.place("access_log", "", directory)]));
        }
        inner.splice(..0, own);
    }
    let own = |name: &str, file: &str| Directive::of(name, vec![own_path(directory, file)]);
    let mut main = vec![Directive::of("daemon", vec!["off".to_owned()]), own("pid", "nginx.pid")];
    main.push(own("lock_file", "nginx.lock"));
    main.push(own("error_log", "error.log"));
    main[3].arguments.extend(level);
    main.push(Directive::of("worker_processes", vec!["1".to_owned()]));
    directives.splice(..0, main);
    Ok(contained)
}

/// `stapled`: a file in this block or around it has the answers of the OCSP responder.
fn contain_block(
    directives: &mut Vec<Directive>,
    directory: &Path,
    stapled: bool,
    contained: &mut Contained,
) -> Result<()> {
    let stapled = stapled || directives.iter().any(|of| of.name == "ssl_stapling_file");
    let mut kept = Vec::new();
    for mut directive in std::mem::take(directives) {
        let name = directive.name.clone();
        let (handling, is_of_data) = (handling_of(&name), directive.is_of_data());
        let first = directive.arguments.first().cloned().unwrap_or_default();
        let is_on = directive.arguments.iter().any(|word| word != "off");
        match handling {
            Some(Handling::Ours) => continue,
            Some(Handling::LeftOut) => {
                contained.count(Handling::LeftOut, &name);
                continue;
            }
            Some(Handling::Refused) => {
                bail!("it has {name}, which {}; give a configuration without it", what_of(&name))
            }
            Some(Handling::OwnPlace) if is_on => {
                contained.count(Handling::OwnPlace, &name);
                let place = contained.place(&name, &first, directory);
                if let Some(first) = directive.arguments.first_mut() {
                    *first = place;
                }
            }
            Some(Handling::Off) if is_on && !(name == "ssl_stapling" && stapled) => {
                contained.count(Handling::Off, &name);
                directive.arguments = vec!["off".to_owned()];
            }
            Some(Handling::Code) => contained.count(Handling::Code, &name),
            None if !KNOWN.split_ascii_whitespace().any(|known| known == name) => {
                contained.unknown.insert(name.clone());
            }
            _ => {}
        }
        if let Some(Block::Directives(inner)) = &mut directive.block
            && !is_of_data
        {
            contain_block(inner, directory, stapled, contained)?;
        }
        kept.push(directive);
    }
    *directives = kept;
    Ok(())
}

/// The servers and applications that a copy asks for real: those that are not in `directory`.
pub(super) fn applications(directives: &[Directive], directory: &Path) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    let mut upstreams = BTreeSet::new();
    collect_applications(directives, "", &mut found, &mut upstreams);
    let own = directory.display().to_string();
    let is_upstream = |target: &str| {
        let place = target.split_once("://").map_or(target, |(_, rest)| rest);
        upstreams.contains(place.split(['/', ':']).next().unwrap_or_default())
    };
    let outside = found.into_iter().filter(|(_, target)| !target.contains(&own) && !is_upstream(target));
    outside.map(|(name, target)| format!("{target} ({name})")).collect()
}

fn collect_applications(
    directives: &[Directive],
    around: &str,
    found: &mut BTreeSet<(String, String)>,
    upstreams: &mut BTreeSet<String>,
) {
    for directive in directives {
        let asks =
            handling_of(&directive.name) == Some(Handling::Asks) || around == "upstream" && directive.name == "server";
        match directive.first() {
            Some(target) if asks && target != "off" => {
                let name = if directive.name == "server" { "upstream" } else { &directive.name };
                found.insert((name.to_owned(), target));
            }
            Some(name) if directive.name == "upstream" => drop(upstreams.insert(name)),
            _ => {}
        }
        collect_applications(directive.inner(), &directive.name, found, upstreams);
    }
}

/// Where documents are, by directives that name them without variables.
pub(super) fn documents(directives: &[Directive]) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    for directive in directives {
        if let ("root" | "alias", Some(path)) = (directive.name.as_str(), directive.first()) {
            found.extend((path.starts_with('/') && path.len() > 1 && !path.contains('$')).then_some(path));
        }
        found.extend(documents(directive.inner()));
    }
    found
}

/// The same text for an nginx of this build, which does not know the directives of modules that it is without.
pub fn fitting(text: &str, build: &str) -> String {
    let missing: Vec<&str> = TEMPORARY
        .iter()
        .filter(|(_, option)| !option.is_empty() && build.contains(option))
        .map(|(name, _)| *name)
        .collect();
    let is_missing = |line: &str| missing.iter().any(|name| line.trim_start().starts_with(name));
    text.lines().filter(|line| !is_missing(line)).map(|line| format!("{line}\n")).collect()
}

fn effect_of(name: &str) -> Option<&'static Effect> {
    EFFECTS.iter().find(|(names, ..)| names.iter().any(|pattern| matches(pattern, name)))
}

fn handling_of(name: &str) -> Option<Handling> {
    effect_of(name).map(|(_, handling, _)| *handling)
}

fn what_of(name: &str) -> &'static str {
    effect_of(name).map_or("", |(.., what)| what)
}

/// Whether a name is one of a pattern with at most one star.
fn matches(pattern: &str, name: &str) -> bool {
    match pattern.split_once('*') {
        None => pattern == name,
        Some((before, behind)) => {
            name.len() >= before.len() + behind.len() && name.starts_with(before) && name.ends_with(behind)
        }
    }
}

#[cfg(test)]
mod tests;
