//! What a site does against single clients and with the kernel's help, where the one client is the load on loopback:
//! it is let in where others are, no limit for one address holds it back, and records pass through OpenSSL.

use super::reader::{Directive, all};

/// Where clients of the copy come from: loopback, and its own servers.
const OURS: [&str; 2] = ["127.0.0.1", "unix:"];
/// Limits for one address, with what counts without holding back (nginx 1.17.6) and how loudly it says so.
const LIMITS: [(&str, &str, &str); 2] = [
    ("limit_req", "limit_req_dry_run", "limit_req_log_level"),
    ("limit_conn", "limit_conn_dry_run", "limit_conn_log_level"),
];

pub(super) fn adapt(directives: &mut Vec<Directive>) {
    directives
        .retain(|directive| LIMITS.iter().all(|(_, dry, level)| directive.name != *dry && directive.name != *level));
    if let Some(first) = directives.iter().position(|directive| directive.name == "allow" || directive.name == "deny")
        && directives.iter().any(|directive| directive.name == "allow")
    {
        let ours = OURS.map(|address| Directive::new("allow", [address]));
        directives.splice(first..first, ours);
    }
    for directive in directives.iter_mut().filter(|directive| is_kernel_tls(directive)) {
        let options = directive.values().nth(1).unwrap_or_default();
        let without = options.split(',').filter(|option| !is_ktls(option)).chain(["-KTLS"]).collect::<Vec<_>>();
        directive.arguments[1] = without.join(",");
    }
}

/// Directives for `http` that keep limits from holding the load back.
pub(super) fn unlimited(http: &[Directive]) -> Vec<Directive> {
    let there = LIMITS.iter().filter(|(name, ..)| all(http).any(|directive| directive.name == *name));
    there.flat_map(|(_, dry, level)| [Directive::new(dry, ["on"]), Directive::new(level, ["info"])]).collect()
}

/// What differs because of it, and why, in sentences.
pub(super) fn notes(http: &[Directive]) -> Vec<(String, String)> {
    let is_limit = |directive: &Directive| LIMITS.iter().any(|(name, ..)| directive.name == *name);
    type IsSo<'a> = &'a dyn Fn(&Directive) -> bool;
    let sentences: [(IsSo, &str, &str); 4] = [
        (
            &is_kernel_tls,
            "Kernel TLS (`ssl_conf_command Options KTLS`) is off in the copy",
            "With it records do not pass through OpenSSL, where their cost is measured",
        ),
        (
            &|directive| directive.name == "allow",
            "The copy lets clients on loopback in wherever the configuration lets others in (`allow`)",
            "All of the load comes from there",
        ),
        (
            &is_limit,
            "Limits for one address (`limit_req`, `limit_conn`) count in the copy, but hold nobody back",
            "All of the load comes from one address",
        ),
        (
            &|directive| directive.name == "listen" && directive.says("proxy_protocol"),
            "The copy expects no PROXY protocol (`listen … proxy_protocol`)",
            "Clients reach it without a balancer before it",
        ),
    ];
    let notes = sentences.into_iter().filter(|(is_so, ..)| all(http).any(is_so));
    notes.map(|(_, what, why)| (what.to_owned(), why.to_owned())).collect()
}

fn is_kernel_tls(directive: &Directive) -> bool {
    let mut values = directive.values();
    directive.name == "ssl_conf_command"
        && values.next().is_some_and(|what| what.eq_ignore_ascii_case("Options"))
        && values.next().is_some_and(|options| options.split(',').any(is_ktls))
}

fn is_ktls(option: &str) -> bool {
    option.trim().trim_start_matches('+').eq_ignore_ascii_case("KTLS")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn directive(text: &str) -> Directive {
        let mut words = text.split(' ').map(str::to_owned);
        Directive::new(&words.next().unwrap(), words)
    }

    fn adapted(texts: &[&str]) -> Vec<String> {
        let mut directives: Vec<Directive> = texts.iter().map(|text| directive(text)).collect();
        adapt(&mut directives);
        let text = |directive: Directive| {
            std::iter::once(directive.name).chain(directive.arguments).collect::<Vec<_>>().join(" ")
        };
        directives.into_iter().map(text).collect()
    }

    #[test]
    fn the_load_is_let_in_where_others_are() {
        let admitted =
            ["root /www", "allow 127.0.0.1", "allow unix:", "deny 10.1.0.0/16", "allow 10.0.0.0/8", "deny all"];
        assert_eq!(adapted(&["root /www", "deny 10.1.0.0/16", "allow 10.0.0.0/8", "deny all"]), admitted);
        assert_eq!(adapted(&["deny all"]), ["deny all"], "nobody is let in");
    }

    #[test]
    fn records_pass_through_openssl() {
        let option = |options: &str| adapted(&[&format!("ssl_conf_command {options}")]).remove(0);
        assert_eq!(option("Options KTLS,PrioritizeChaCha"), "ssl_conf_command Options PrioritizeChaCha,-KTLS");
        assert_eq!(option("Options +ktls"), "ssl_conf_command Options -KTLS");
        for kept in ["Options -KTLS", "Options PrioritizeChaCha", "Ciphersuites KTLS"] {
            assert_eq!(option(kept), format!("ssl_conf_command {kept}"));
        }
    }

    #[test]
    fn limits_count_and_hold_nobody_back() {
        let http = [directive("limit_conn per 20"), directive("limit_conn_dry_run off")];
        let names: Vec<String> = unlimited(&http).into_iter().map(|directive| directive.name).collect();
        assert_eq!(names, ["limit_conn_dry_run", "limit_conn_log_level"]);
        assert_eq!(adapted(&["limit_conn per 20", "limit_conn_dry_run off"]), ["limit_conn per 20"]);
        assert!(notes(&http)[0].0.contains("limit_conn") && notes(&[]).is_empty());
    }
}
