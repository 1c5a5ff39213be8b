//! What an installed nginx does besides answering, and what becomes of it in the copy: a table of the directives that
//! name a place to write, a receiver, an application or code. docs/SERVERS.md has the same table.

use std::sync::LazyLock;

use Handling::{Asks, Code, LeftOut, Off, Ours, OwnPlace, Refused, Stays};

use super::reader::{Block, Directive, matches};
pub(super) use crate::effects::Handling;
use crate::effects::{BLOTTED, Table, shown};

/// Every directive that may stand in `http`, in a block of it or beside it, of nginx 1.22 and 1.26 and of the modules
/// that Debian 12 and 13 have, as their tables of commands have them, and those of later versions that are known.
const KNOWN: &str = include_str!("directives.txt");

/// Those of them that matter to TLS and to measuring: pages and records show their values.
static SHOWN: LazyLock<Table> = LazyLock::new(|| Table::parse(include_str!("shown.txt")));

/// Names (a star stands for any letters), what becomes of them, and what they do.
type Effect = (&'static str, Handling, &'static str);

/// The first row that has a name counts.
const EFFECTS: &[Effect] = &[
    ("daemon master_process pid lock_file worker_processes worker_cpu_affinity env", Ours, "the process itself"),
    ("nchan_message_temp_path", OwnPlace, "writes messages to files"),
    ("*_temp_path", Ours, "write bodies to files"),
    ("access_log error_log", OwnPlace, "write logs or send them to a syslog server"),
    ("*_cache_path", OwnPlace, "write caches and delete what is old in them"),
    ("google_perftools_profiles", OwnPlace, "writes profiles"),
    ("*_ssl_key_log ssl_key_log", OwnPlace, "write keys of connections"),
    ("srcache_store", LeftOut, "writes answers to a cache server"),
    ("*_store", Off, "write answers to files below the document root"),
    ("dav_methods create_full_put_path", Off, "let clients write and delete files"),
    ("mirror", Off, "asks a second server for each request"),
    ("ssl_stapling", Off, "asks the certificate's OCSP responder, unless a file has the answer"),
    ("ssl_ocsp", Off, "asks an OCSP responder for each client certificate"),
    ("otel_trace opentracing opentelemetry", Off, "send traces to a collector"),
    ("stream mail rtmp mgmt", LeftOut, "serve or report on their own"),
    ("post_action", LeftOut, "asks once more after each request"),
    ("modsecurity_rules_remote", LeftOut, "loads rules from a server"),
    ("nchan_publisher_upstream_request nchan_*subscribe_request nchan_authorize_request", Stays, ""),
    ("health_check check state keyval_zone zone_sync*", LeftOut, "ask servers or write state"),
    ("vhost_traffic_status_dump", LeftOut, "writes counters to a file"),
    ("rtmp_socket_dir rtmp_auto_push*", LeftOut, "make sockets"),
    ("working_directory worker_rlimit_core debug_points", LeftOut, "decide where cores are dumped"),
    ("worker_priority", LeftOut, "takes CPU time from others"),
    ("*_pass", Asks, "asks an application or a server"),
    ("nchan_redis_server nchan_redis_url nchan_use_redis", Asks, "asks Redis"),
    ("resolver", Asks, "asks a name server"),
    ("auth_pam auth_gss", Asks, "ask this system's authentication"),
    ("ssl_engine", Asks, "may ask a device"),
    ("*_by_lua *_by_lua_block *_by_lua_file", Code, "Lua"),
    ("perl perl_set perl_modules perl_require", Code, "Perl"),
    (
        "js_import js_include js_content js_set js_header_filter js_body_filter js_periodic js_access \
         js_preload_object js_load_*",
        Code,
        "JavaScript",
    ),
    ("modsecurity_rules modsecurity_rules_file", Code, "ModSecurity, which may write its own logs"),
    ("client_body_in_file_only", Stays, "writes bodies, into the copy's own directory"),
    ("auth_request srcache_fetch", Stays, "ask a location of the same configuration"),
    ("ssl_stapling_file ssl_stapling_responder ssl_ocsp_responder", Stays, "need what is off"),
    ("load_module", Stays, "its directives are looked at one by one"),
    ("acme_issuer", Refused, "would order certificates from its authority"),
];

/// Paths that nginx was built with hold unless these are set; the module that each is of.
pub(super) const TEMPORARY: [(&str, &str); 5] = [
    ("client_body_temp_path", ""),
    ("proxy_temp_path", "--without-http_proxy_module"),
    ("fastcgi_temp_path", "--without-http_fastcgi_module"),
    ("uwsgi_temp_path", "--without-http_uwsgi_module"),
    ("scgi_temp_path", "--without-http_scgi_module"),
];

/// The same text for an nginx of this build, which does not know the directives of modules that it is without.
pub(super) fn fitting(text: &str, build: &str) -> String {
    let is_without = |option: &str| !option.is_empty() && build.contains(option);
    let is_missing =
        |line: &str| TEMPORARY.iter().any(|(name, option)| is_without(option) && line.trim_start().starts_with(name));
    text.lines().filter(|line| !is_missing(line)).map(|line| format!("{line}\n")).collect()
}

/// What becomes of a directive, and what it does. `None`: it has no effect, or is not known.
pub(super) fn effect_of(directive: &str) -> Option<(Handling, &'static str)> {
    let found = EFFECTS.iter().find(|(names, ..)| names.split(' ').any(|pattern| matches(pattern, directive)));
    found.map(|(_, handling, what)| (*handling, *what))
}

/// Whether nginx or one of its usual modules has a directive of this name.
pub(super) fn is_known(directive: &str) -> bool {
    KNOWN.split_ascii_whitespace().any(|known| known == directive)
}

/// The same with those values alone that pages and records show. A block of data is a table of the site's own.
pub(super) fn blotted(directives: &[Directive]) -> Vec<Directive> {
    let one = |directive: &Directive| {
        let known = || is_known(&directive.name).then_some(Stays);
        let handling =
            SHOWN.handling(&directive.name).or_else(|| effect_of(&directive.name).map(|(handling, _)| handling));
        let (name, is_shown) = shown(&directive.name, handling.or_else(known));
        let blotted_out = || directive.arguments.first().map(|_| BLOTTED.to_owned()).into_iter().collect();
        let arguments = if is_shown { directive.arguments.clone() } else { blotted_out() };
        let block = directive.block.as_ref().map(|block| match block {
            Block::Directives(inner) => Block::Directives(blotted(inner)),
            _ => Block::Script(format!(" {BLOTTED} ")),
        });
        Directive { arguments, block, ..Directive::new(name, [""; 0]) }
    };
    directives.iter().map(one).collect()
}

#[cfg(test)]
mod tests;
