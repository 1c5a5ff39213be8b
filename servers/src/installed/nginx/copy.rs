//! The copy of an installed configuration: one walk over its directives takes what reaches beyond the server out, or
//! into a private directory, and lets it listen on ports of ours.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Result, bail};

use super::effects::{Handling, TEMPORARY, effect_of, is_known};
use super::listeners::Listeners;
use super::reader::{Directive, all};
use super::targets::{Place, Target, is_to_target};
use super::text::word_of;
use super::{http_of, one_client, scheme, variable_targets};
use crate::installed::site::{ASKED, Done, LEFT_OUT, MAY_DO_ANYTHING, NOT_KNOWN, OWN_PLACE, Ports, SWITCHED_OFF};

impl Ports<'_> {
    /// A file of the copy's own, as a word of its configuration.
    fn own_path(&self, name: &str) -> String {
        word_of(&self.own(name))
    }
}

/// A configuration that runs beside the installed one.
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
    /// Where answers are replayed.
    replays: BTreeSet<String>,
}

impl<'a> Copy<'a> {
    /// Of an installed configuration, of which the server of `host` is measured.
    ///
    /// # Errors
    /// It has a directive that no copy can have.
    pub(super) fn of(installed: &'a [Directive], host: Option<&str>, ports: Ports<'a>) -> Result<Copy<'a>> {
        let mut copy = Copy {
            directives: Vec::new(),
            ports,
            listeners: Listeners::of(http_of(installed), host),
            done: Done::default(),
            places: BTreeMap::new(),
            upstreams: upstreams(installed),
            upstream: None,
            replays: BTreeSet::new(),
        };
        let mut directives = installed.to_vec();
        let mut error_log = vec![ports.own_path("error.log")];
        for log in directives.extract_if(.., |of| of.name == "error_log") {
            error_log.splice(1.., log.arguments.into_iter().skip(1));
            copy.done.add(OWN_PLACE, "error_log");
        }
        copy.block(&mut directives, false)?;
        for http in directives.iter_mut().filter(|of| of.name == "http").filter_map(Directive::inner_mut) {
            copy.http(http);
        }
        copy.directives = vec![
            Directive::of("daemon", ["off"]),
            Directive::of("pid", [ports.own_path("nginx.pid")]),
            Directive::of("lock_file", [ports.own_path("nginx.lock")]),
            Directive::of("error_log", error_log),
            Directive::of("worker_processes", ["1"]),
        ];
        copy.directives.extend(directives);
        Ok(copy)
    }

    /// What belongs to `http` as a whole.
    fn http(&mut self, http: &mut Vec<Directive>) {
        let Ports { port, plain_port, .. } = self.ports;
        // Listeners say which of them speak TLS.
        http.retain(|of| of.name != "ssl");
        let mut own = one_client::unlimited(http);
        own.extend(TEMPORARY.iter().map(|(name, _)| Directive::of(name, [self.ports.own_path(name)])));
        if !http.iter().any(|of| of.name == "access_log") {
            own.push(Directive::of("access_log", [self.place("access_log", "")]));
        }
        variable_targets::adapt(http, &|value| self.listeners.in_group(value, self.ports));
        http.splice(..0, own);
        scheme::adapt(http, [port, plain_port], self.listeners.measured_port());
    }

    /// Adapts the directives of a block. `stapled`: a file in a block around it has the answers of the OCSP responder.
    fn block(&mut self, directives: &mut Vec<Directive>, stapled: bool) -> Result<()> {
        let stapled = stapled || directives.iter().any(|of| of.name == "ssl_stapling_file");
        let mut kept = Vec::new();
        for mut directive in std::mem::take(directives) {
            if !self.keeps(&mut directive, stapled)? {
                continue;
            }
            if is_to_target(&directive)
                && let Some(target) = directive.first()
                && let Some(place) = self.listeners.in_copy(&target, self.ports).or_else(|| self.replayed(&target))
            {
                directive.arguments[0] = word_of(&place);
            }
            let is_server = directive.name == "server";
            let upstream = directive.first().filter(|_| directive.name == "upstream");
            if let Some(inner) = directive.inner_mut() {
                // On both of our ports where it is measured; otherwise where somebody within may ask for it.
                if is_server {
                    let listens = self.listeners.of_copy(inner, self.ports);
                    inner.retain(|of| of.name != "listen" && of.name != "ssl");
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

    /// The same target with the answers of its application replayed, where it is asked by plain HTTP.
    fn replayed(&mut self, target: &str) -> Option<String> {
        let Target { scheme, place, path } = Target::of(target)?;
        let is_plain = match (&self.upstream, &place) {
            (Some(name), _) => *self.upstreams.get(name)?,
            (None, Place::Tcp(host, _)) => scheme == "http://" && !self.upstreams.contains_key(*host),
            (None, Place::Unix(_)) => scheme == "http://",
        };
        let application = match place {
            _ if !is_plain => return None,
            Place::Tcp(host, port) => format!("{host}:{port}"),
            Place::Unix(socket) => format!("unix:{socket}"),
        };
        let name = if self.upstream.is_some() { "upstream" } else { "proxy_pass" };
        let own = self.ports.replayed(&application, name, &mut self.done)?;
        self.replays.insert(own.to_string());
        Some(format!("{scheme}{own}{path}"))
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

    /// What was done.
    pub(super) fn told(mut self) -> Done {
        ["temporary files", "process files"].iter().for_each(|name| self.done.add(OWN_PLACE, name));
        self.applications().iter().for_each(|name| self.done.add(ASKED, name));
        self.done
    }

    /// The servers and applications that it asks for real: those that are not in its directory.
    fn applications(&self) -> BTreeSet<String> {
        let own = self.ports.directory.display().to_string();
        let asked = all(&self.directives).filter_map(|of| {
            let name = match (of.name.as_str(), &of.block) {
                ("server", None) => "upstream",
                (name, _) => effect_of(name).filter(|(handling, _)| *handling == Handling::Asks).map(|_| name)?,
            };
            let target =
                of.first().filter(|target| target != "off" && !target.contains(&own) && !self.is_own(target))?;
            Some(format!("{target} ({name})"))
        });
        asked.collect()
    }

    /// Whether a target is a group of servers, or a place where answers are replayed.
    fn is_own(&self, target: &str) -> bool {
        let place = target.split_once("://").map_or(target, |(_, rest)| rest).split('/').next().unwrap_or_default();
        self.replays.contains(place) || self.upstreams.contains_key(place.split(':').next().unwrap_or_default())
    }
}

/// All groups of servers, and whether nothing but `proxy_pass http://` leads to them.
fn upstreams(installed: &[Directive]) -> BTreeMap<String, bool> {
    let passes = || all(installed).filter(|of| of.name.ends_with("_pass"));
    let is_other = |of: &&Directive, name: &str| {
        let target = of.first().unwrap_or_default();
        let (scheme, place) = target.split_once("://").unwrap_or(("", &target));
        place.split(['/', ':']).next() == Some(name) && (of.name != "proxy_pass" || scheme != "http")
    };
    let names = all(installed).filter(|of| of.name == "upstream").filter_map(Directive::first);
    names.map(|name| (name.clone(), !passes().any(|of| is_other(&of, &name)))).collect()
}
