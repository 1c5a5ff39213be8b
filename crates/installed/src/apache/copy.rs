//! The copy of an Apache: what of its directives stays, and what takes the place of the rest.

use std::collections::BTreeMap;

use anyhow::{Result, bail};

use super::reader::Directive;
use super::{SESSIONS, TABLE, has_tls, inner_of, is_host, is_of, runs_program, server_of};
use crate::effects::Handling;
use crate::site::{ASKED, Done, LEFT_OUT, MAY_DO_ANYTHING, OWN_PLACE, Ports, SWITCHED_OFF};

pub(super) struct Copy<'a> {
    ports: Ports<'a>,
    /// The port of the installed server that is measured.
    port: u16,
    main: &'a [Directive],
    pub(super) done: Done,
    /// The copy's own places by those of the installed server.
    places: BTreeMap<(String, String), String>,
}

impl<'a> Copy<'a> {
    pub(super) fn new(ports: Ports<'a>, port: u16, main: &'a [Directive]) -> Copy<'a> {
        Copy { ports, port, main, done: Done::default(), places: BTreeMap::new() }
    }

    pub(super) fn block(&mut self, directives: &[Directive]) -> Result<Vec<Directive>> {
        let mut kept = Vec::new();
        for directive in directives {
            if is_host(directive) {
                kept.extend(self.host(directive)?);
            } else if let Some(inner) = &directive.inner {
                let handling = TABLE.handling(&directive.name);
                if !self.done.keeps(handling, &format!("<{}>", directive.name)) {
                    continue;
                }
                // Lines of another language are no directives.
                let is_code = handling == Some(Handling::Code);
                let inner = if is_code { inner.clone() } else { self.block(inner)? };
                kept.push(Directive { inner: Some(inner), ..directive.clone() });
            } else {
                kept.extend(self.line(directive)?);
            }
        }
        Ok(kept)
    }

    /// A virtual host: on both ports where it is measured, otherwise not there.
    fn host(&mut self, host: &Directive) -> Result<Vec<Directive>> {
        if !has_tls(host, self.main) || server_of(host).port != self.port {
            self.done.add(LEFT_OUT, &format!("VirtualHost {}", host.arguments));
            return Ok(Vec::new());
        }
        let inner = self.block(inner_of(host))?;
        let mut plain = without_tls(&inner);
        plain.push(Directive::new("SSLEngine", "off"));
        let at = |port: u16, inner| Directive {
            inner: Some(inner),
            ..Directive::new(&host.name, format!("127.0.0.1:{port}"))
        };
        Ok(vec![at(self.ports.port, inner), at(self.ports.plain_port, plain)])
    }

    fn line(&mut self, directive: &Directive) -> Result<Option<Directive>> {
        let name = directive.name.as_str();
        let handling = TABLE.handling(name);
        match handling {
            Some(Handling::Refused) => {
                bail!("it has {name}, which would order certificates; give a configuration without it")
            }
            Some(Handling::OwnPlace) => return Ok(Some(self.writes(directive))),
            Some(Handling::Off) if directive.first().is_some_and(|word| !word.eq_ignore_ascii_case("off")) => {
                self.done.add(SWITCHED_OFF, name);
                return Ok(Some(Directive::new(name, "off")));
            }
            _ if !self.done.keeps(handling, name) => return Ok(None),
            Some(handling) if handling != Handling::Code && runs_program(directive) => {
                self.done.add(MAY_DO_ANYTHING, name)
            }
            _ => {}
        }
        let directive = &self.without_checks(directive);
        let words = directive.values();
        let asks = words.iter().find(|word| word.contains("://") && !word.contains("balancer://"));
        let passes_on =
            words.last().is_some_and(|flags| flags.trim_matches(['[', ']']).split(',').any(|flag| flag == "P"));
        let is_asking = match handling {
            Some(Handling::Asks) => true,
            _ => is_of(directive, "SetHandler AuthnProviderAlias") || directive.is("RewriteRule") && passes_on,
        };
        if let Some(target) = asks.filter(|_| is_asking) {
            if let Some(own) = self.in_place_of(target, name) {
                let arguments = directive.arguments.replace(target.as_str(), &own);
                return Ok(Some(Directive { arguments, ..directive.clone() }));
            }
        } else if handling == Some(Handling::Asks) && !is_of(directive, "ProxyPass ProxyPassMatch ProxyRequests") {
            self.done.add(ASKED, name);
        }
        Ok(Some(directive.clone()))
    }

    /// The same without the checks of mod_proxy_hcheck, which ask applications whether somebody asks the copy or not.
    fn without_checks(&mut self, directive: &Directive) -> Directive {
        const CHECKS: [&str; 7] =
            ["hcmethod=", "hcpasses=", "hcfails=", "hcinterval=", "hcuri=", "hctemplate=", "hcexpr="];
        let is_check = |word: &&str| CHECKS.iter().any(|check| word.to_ascii_lowercase().starts_with(check));
        if !is_of(directive, "ProxyPass ProxyPassMatch BalancerMember ProxySet") {
            return directive.clone();
        }
        let words: Vec<&str> = directive.arguments.split_ascii_whitespace().collect();
        if !words.iter().any(is_check) {
            return directive.clone();
        }
        self.done.add(LEFT_OUT, "health checks of mod_proxy_hcheck");
        let kept = words.into_iter().filter(|word| !is_check(word)).collect::<Vec<_>>();
        Directive { arguments: kept.join(" "), ..directive.clone() }
    }

    /// What stands in the place of an application that is not asked for real: `http://HOST:PORT/PATH`, behind `proxy:`
    /// or `unix:PATH|` or without.
    fn in_place_of(&mut self, target: &str, name: &str) -> Option<String> {
        let (prefix, rest) = target.split_at(if target.starts_with("proxy:") { 6 } else { 0 });
        let (socket, url) = match rest.strip_prefix("unix:").and_then(|rest| rest.split_once('|')) {
            Some((socket, url)) => (Some(socket), url),
            None => (None, rest),
        };
        let (scheme, place) = url.split_once("://")?;
        let place = place.split(['/', '$', '%']).next().unwrap_or_default();
        let application = match socket {
            Some(socket) => format!("unix:{socket}"),
            None if place.contains(':') => place.to_owned(),
            None => format!("{place}:80"),
        };
        // What is put together for each request, and what is no proxy, cannot be led elsewhere.
        let is_proxied = ["http", "https", "h2", "h2c", "ws", "wss", "ajp", "fcgi", "scgi", "uwsgi"].contains(&scheme);
        if !self.ports.replays || !is_proxied || place.is_empty() && socket.is_none() {
            self.done.asks(target, name);
            return None;
        }
        let own = self.ports.in_place_of(&application, scheme == "http", name, &mut self.done)?;
        Some(format!("{prefix}unix:{own}|{url}"))
    }

    /// The same with a place of the copy's own.
    fn writes(&mut self, directive: &Directive) -> Directive {
        let mut words = directive.values();
        let Some(first) = words.first_mut() else { return directive.clone() };
        // `shmcb:/run/apache2/ssl_scache(512000)`; `none` and a mere type are no place.
        let (kind, place, size) = match first.split_once(':') {
            Some((kind, rest)) if is_of(directive, SESSIONS) => {
                let (place, size) = rest.split_at(rest.find('(').unwrap_or(rest.len()));
                (format!("{kind}:"), place.to_owned(), size.to_owned())
            }
            None if is_of(directive, SESSIONS) => return directive.clone(),
            _ => (String::new(), first.clone(), String::new()),
        };
        if kind.starts_with("memcache") || kind.starts_with("redis") {
            self.done.asks(first, &directive.name);
            return directive.clone();
        }
        self.done.add(OWN_PLACE, &directive.name);
        *first = format!("{kind}{}{size}", self.place(&directive.name, place));
        let quoted = words.iter().map(|word| format!("\"{}\"", word.replace('\\', "\\\\").replace('"', "\\\"")));
        Directive::new(&directive.name, quoted.collect::<Vec<_>>().join(" "))
    }

    fn place(&mut self, name: &str, installed: String) -> String {
        let name = name.to_ascii_lowercase();
        // What is watched for alarms is one file; logs of requests are called as everywhere.
        if name == "errorlog" {
            return self.ports.own("error.log");
        }
        let kind = if name == "customlog" || name == "transferlog" { "access.log".to_owned() } else { name };
        let number = self.places.keys().filter(|(other, _)| *other == kind).count();
        let file = if number == 0 { kind.clone() } else { format!("{number}-{kind}") };
        let own = self.ports.own(&file);
        self.places.entry((kind, installed)).or_insert(own).clone()
    }
}

/// The same for the plain side.
fn without_tls(directives: &[Directive]) -> Vec<Directive> {
    let is_tls = |directive: &Directive| {
        let name = directive.name.to_ascii_lowercase();
        // Daemons of one name are there once.
        name.starts_with("ssl") && !name.starts_with("sslproxy") || name == "wsgidaemonprocess"
    };
    let inner = |directive: &Directive| directive.inner.as_deref().map(without_tls);
    directives
        .iter()
        .filter(|directive| !is_tls(directive))
        .map(|directive| Directive { inner: inner(directive), ..directive.clone() })
        .collect()
}
