//! The copy of an installed configuration: one walk over its directives takes what reaches beyond the server out, or
//! into a private directory, and lets it listen on ports of ours.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Result, bail};

use super::effects::{Handling, TEMPORARY, effect_of, is_known};
use super::listeners::Listeners;
use super::reader::{Directive, all};
use super::targets::{self, ProxyAddress, ProxyTarget, is_address, is_to_target};
use super::text::word_of;
use super::variable_targets::{GROUP, InGroup};
use super::{http_of, one_client, scheme, variable_targets};
use crate::site::{ASKED, Done, LEFT_OUT, MAY_DO_ANYTHING, NOT_KNOWN, OWN_PLACE, Ports, RAISED, SWITCHED_OFF};

impl Ports<'_> {
    fn own_path(&self, name: &str) -> String {
        word_of(&self.own(name))
    }
}

/// Connections that a load of 64 users may need, 256 at once, and nginx itself.
const CONNECTIONS: u32 = 1024;

pub(super) struct Copy<'a> {
    pub(super) directives: Vec<Directive>,
    ports: Ports<'a>,
    listeners: Listeners<'a>,
    done: Done,
    /// The copy's own places by those of the installed server: two logs with different settings cannot be one file.
    places: BTreeMap<(&'static str, String), String>,
    /// Groups of servers, and whether they are asked by nothing but plain HTTP.
    upstreams: BTreeMap<String, bool>,
    /// The group whose servers are read.
    upstream: Option<String>,
}

impl<'a> Copy<'a> {
    /// A copy of an installed configuration in which the server of `host` is measured.
    pub(super) fn new(installed: &'a [Directive], host: Option<&str>, ports: Ports<'a>) -> Result<Copy<'a>> {
        let mut copy = Copy {
            directives: Vec::new(),
            ports,
            listeners: Listeners::new(http_of(installed), host),
            done: Done::default(),
            places: BTreeMap::new(),
            upstreams: upstreams(installed),
            upstream: None,
        };
        let mut directives = installed.to_vec();
        let mut error_log = vec![ports.own_path("error.log")];
        for log in directives.extract_if(.., |directive| directive.name == "error_log") {
            error_log.splice(1.., log.arguments.into_iter().skip(1));
            copy.done.add(OWN_PLACE, "error_log");
        }
        copy.block(&mut directives, false)?;
        for events in
            directives.iter_mut().filter(|directive| directive.name == "events").filter_map(Directive::inner_mut)
        {
            copy.events(events);
        }
        for http in directives.iter_mut().filter(|directive| directive.name == "http").filter_map(Directive::inner_mut)
        {
            copy.http(http);
        }
        copy.directives = vec![
            Directive::new("daemon", ["off"]),
            Directive::new("pid", [ports.own_path("nginx.pid")]),
            Directive::new("lock_file", [ports.own_path("nginx.lock")]),
            Directive::new("error_log", error_log),
            Directive::new("worker_processes", ["1"]),
        ];
        copy.directives.extend(directives);
        Ok(copy)
    }

    /// A load has more connections at once than few users have, and a server behind it takes as many again.
    fn events(&mut self, events: &mut [Directive]) {
        let few = events.iter_mut().filter(|directive| directive.name == "worker_connections");
        for few in few.filter(|directive| {
            directive.first().and_then(|count| count.parse().ok()).is_some_and(|count: u32| count < CONNECTIONS)
        }) {
            self.done.add(RAISED, &format!("worker_connections {} to {CONNECTIONS}", few.arguments.concat()));
            few.arguments = vec![CONNECTIONS.to_string()];
        }
    }

    fn http(&mut self, http: &mut Vec<Directive>) {
        let Ports { port, plain_port, .. } = self.ports;
        // Listeners say which of them speak TLS.
        http.retain(|directive| directive.name != "ssl");
        let mut own = one_client::unlimited(http);
        own.extend(TEMPORARY.iter().map(|(name, _)| Directive::new(name, [self.ports.own_path(name)])));
        if !http.iter().any(|directive| directive.name == "access_log") {
            own.push(Directive::new("access_log", [self.place("access_log", "")]));
        }
        let passes = || {
            all(http).filter(|directive| {
                directive.name.ends_with("_pass") && directive.first().is_some_and(|to| to.contains('$'))
            })
        };
        let all_plain = passes().all(|directive| {
            directive.name == "proxy_pass" && !directive.first().is_some_and(|to| to.starts_with("https"))
        });
        variable_targets::adapt(http, &mut |value| {
            self.listeners.in_group(value, self.ports).or_else(|| self.in_group(value, all_plain))
        });
        http.splice(..0, own);
        scheme::adapt(http, [port, plain_port], self.listeners.measured_port());
    }

    /// Adapts the directives of a block. `stapled`: a file in a block around it has the answers of the OCSP responder.
    fn block(&mut self, directives: &mut Vec<Directive>, stapled: bool) -> Result<()> {
        let stapled = stapled || directives.iter().any(|directive| directive.name == "ssl_stapling_file");
        let mut kept = Vec::new();
        for mut directive in std::mem::take(directives) {
            if !self.keeps(&mut directive, stapled)? {
                continue;
            }
            if is_to_target(&directive)
                && let Some(target) = directive.first()
                && let Some(place) =
                    self.listeners.in_copy(&target, self.ports).or_else(|| self.in_place_of(&directive.name, &target))
            {
                directive.arguments[0] = word_of(&place);
                // A socket has no name to be looked up.
                directive.arguments.retain(|word| word != "resolve");
            }
            let is_server = directive.name == "server";
            let upstream = directive.first().filter(|_| directive.name == "upstream");
            if let Some(inner) = directive.inner_mut() {
                // On both of our ports where it is measured; otherwise where somebody within may ask for it.
                if is_server {
                    let listens = self.listeners.of_copy(inner, self.ports);
                    inner.retain(|directive| directive.name != "listen" && directive.name != "ssl");
                    inner.splice(..0, listens);
                }
                let around = std::mem::replace(&mut self.upstream, upstream);
                self.block(inner, stapled)?;
                self.upstream = around;
            }
            kept.push(directive);
        }
        one_client::adapt(&mut kept);
        *directives = kept;
        Ok(())
    }

    /// What stands in the place of an application that is not asked for real.
    fn in_place_of(&mut self, name: &str, target: &str) -> Option<String> {
        let ProxyTarget { scheme, place, path } = ProxyTarget::parse(target).filter(|_| self.ports.replays)?;
        let is_group = |host: &str| self.upstream.is_none() && self.upstreams.contains_key(host);
        let is_plain = match (&self.upstream, &place) {
            (_, ProxyAddress::Tcp(host, _)) if is_group(host) => return None,
            (Some(group), _) => self.upstreams.get(group).copied().unwrap_or(false),
            (None, _) => name == "proxy_pass" && scheme == "http://",
        };
        let application = match place {
            ProxyAddress::Tcp(host, port) => format!("{host}:{port}"),
            ProxyAddress::Unix(socket) => format!("unix:{socket}"),
        };
        let name = if self.upstream.is_some() { "upstream" } else { name };
        let own = self.ports.in_place_of(&application, is_plain, name, &mut self.done)?;
        Some(targets::at_socket(scheme, &own, path))
    }

    /// The same for a value that a variable has: a group of the one socket. `all_plain`: those without a scheme are
    /// asked by plain HTTP.
    fn in_group(&mut self, value: &str, all_plain: bool) -> Option<InGroup> {
        let replays = self.ports.replays && is_address(value);
        let ProxyTarget { scheme, place: ProxyAddress::Tcp(host, port), path } =
            ProxyTarget::parse(value).filter(|_| replays)?
        else {
            return None;
        };
        if self.upstreams.contains_key(host) {
            return None;
        }
        let is_plain = all_plain && (scheme == "http://" || scheme.is_empty());
        let own = self.ports.in_place_of(&format!("{host}:{port}"), is_plain, "proxy_pass", &mut self.done)?;
        let name = own.rsplit('/').next().unwrap_or_default().trim_end_matches(".sock");
        let group = format!("{GROUP}{name}");
        Some(InGroup { value: format!("{scheme}{group}{path}"), group, address: format!("unix:{own}") })
    }

    /// Does to a directive what becomes of it, and answers whether it stays.
    fn keeps(&mut self, directive: &mut Directive, stapled: bool) -> Result<bool> {
        let name = directive.name.clone();
        let is_on = directive.arguments.iter().any(|word| word != "off");
        let Some((handling, what)) = effect_of(&name) else {
            if !is_known(&name) {
                self.done.add(NOT_KNOWN, &name);
            }
            return Ok(true);
        };
        let done = match handling {
            Handling::Refused => bail!("it has {name}, which {what}; give a configuration without it"),
            Handling::Ours => return Ok(false),
            Handling::LeftOut => LEFT_OUT,
            Handling::Code => MAY_DO_ANYTHING,
            Handling::OwnPlace if is_on => {
                if let Some(first) = directive.arguments.first_mut() {
                    *first = self.place(&name, first);
                }
                OWN_PLACE
            }
            Handling::Off if is_on && !(name == "ssl_stapling" && stapled) => {
                directive.arguments = vec!["off".to_owned()];
                SWITCHED_OFF
            }
            _ => return Ok(true),
        };
        self.done.add(done, &name);
        Ok(handling != Handling::LeftOut)
    }

    /// Where the copy writes what the installed server writes at `installed`.
    fn place(&mut self, name: &str, installed: &str) -> String {
        let kind = match name {
            "access_log" => "access.log",
            // What is watched for alarms is one file.
            "error_log" => return self.ports.own_path("error.log"),
            "google_perftools_profiles" => "profile",
            _ if name.ends_with("key_log") => "keys",
            _ => "cache",
        };
        let number = self.places.keys().filter(|(other, _)| *other == kind).count();
        let file = match (kind, number) {
            ("access.log", 0) => kind.to_owned(),
            ("access.log", number) => format!("access-{number}.log"),
            (_, number) => format!("{kind}-{}", number + 1),
        };
        let ports = self.ports;
        self.places.entry((kind, installed.to_owned())).or_insert_with(|| ports.own_path(&file)).clone()
    }

    pub(super) fn into_done(mut self) -> Done {
        ["temporary files", "process files"].iter().for_each(|name| self.done.add(OWN_PLACE, name));
        for (application, name) in self.applications() {
            match is_elsewhere(&name) {
                true => self.done.asks(&application, &name),
                false => self.done.add(ASKED, &format!("{application} ({name})")),
            }
        }
        self.done
    }

    /// The servers and applications that it asks for real, each with what names it: those that are not in its
    /// directory.
    fn applications(&self) -> BTreeSet<(String, String)> {
        let own = self.ports.directory.display().to_string();
        let asked = all(&self.directives).filter_map(|directive| {
            let name = match (directive.name.as_str(), &directive.block) {
                ("server", None) => "upstream",
                (name, _) => effect_of(name).filter(|(handling, _)| *handling == Handling::Asks).map(|_| name)?,
            };
            let target = directive
                .first()
                .filter(|target| target != "off" && !target.contains(&own) && !self.is_group(target))?;
            if variable_targets::leads_to_groups(&self.directives, &target) {
                return None;
            }
            Some((target, name.to_owned()))
        });
        asked.collect()
    }

    fn is_group(&self, target: &str) -> bool {
        let place = target.split_once("://").map_or(target, |(_, rest)| rest).split('/').next().unwrap_or_default();
        self.upstreams.contains_key(place.split(':').next().unwrap_or_default())
    }
}

/// Whether a directive of this name leads requests on: name servers, this system's authentication and devices do not.
fn is_elsewhere(name: &str) -> bool {
    !["resolver", "auth_pam", "auth_gss", "ssl_engine"].contains(&name)
}

/// All groups of servers, and whether nothing but `proxy_pass http://` leads to them.
fn upstreams(installed: &[Directive]) -> BTreeMap<String, bool> {
    let passes = || all(installed).filter(|directive| directive.name.ends_with("_pass"));
    let is_other = |directive: &&Directive, name: &str| {
        let target = directive.first().unwrap_or_default();
        let (scheme, place) = target.split_once("://").unwrap_or(("", &target));
        place.split(['/', ':']).next() == Some(name) && (directive.name != "proxy_pass" || scheme != "http")
    };
    let names = all(installed).filter(|directive| directive.name == "upstream").filter_map(Directive::first);
    names.map(|name| (name.clone(), !passes().any(|directive| is_other(&directive, &name)))).collect()
}
