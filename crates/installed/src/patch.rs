//! The lines of remedies as a patch against the reader's own files: they take the place of what says the same, or stand
//! where TLS is switched on. Before a patch is shown, the patched files are read again, and tested by their server.
//!
//! Circle: the readers of the four servers say what a patch may change.

mod edit;
mod own_test;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};
use similar::TextDiff;
use tlsdyno_record::model::ServerName;

use super::files::{At, Files};
use super::site::is_listed;
use super::{apache, bytes_of, haproxy, lighttpd, nginx};
use edit::{Edit, edit, edited};
use tlsdyno_servers::directives::{Setting, lines};

/// A change of files that was tried on copies of them.
#[derive(Debug)]
pub struct Patch {
    /// A unified patch, for `patch -p1 -d /`. Certificates and keys are examples that the reader replaces.
    pub bytes: Vec<u8>,
    pub tried: String,
}

/// A directive, a line or a block of a configuration.
#[derive(Clone, Debug, Default)]
pub(super) struct Part {
    /// What it is about ([`name_of`]): those of one name take each other's place.
    pub(super) name: String,
    /// The whole of it, but for what is in it.
    pub(super) says: String,
    /// Nowhere: no file says it.
    pub(super) at: At,
    /// Lines of a remedy that belong to such a place ([`New`]) stand behind it.
    pub(super) place: &'static str,
    pub(super) inner: Vec<Part>,
}

/// What a remedy says: a directive with the comments above it.
#[derive(Debug)]
pub(super) struct New {
    /// Its own, and that of the list that it adds to, or of what else has parameters of HAProxy's `bind`.
    names: Vec<String>,
    lines: Vec<String>,
    /// Where it stands if nothing says the same: behind what switches on TLS (`tls`), in HAProxy's section `global` or
    /// in those that listen with TLS (`front`), or at the end of the main file (`end`).
    place: &'static str,
    /// It stands behind what says the same.
    is_beside: bool,
}

impl New {
    /// The directive, without the comments above it.
    fn directive(&self) -> &str {
        self.lines.last().map_or("", String::as_str)
    }
}

/// Edits by the number of their file.
type Edits = BTreeMap<usize, Vec<Edit>>;

/// A certificate goes to the site of `host` alone, where that site has one of its own.
pub fn patch(path: &Path, server: ServerName, host: Option<&str>, settings: &[Setting]) -> Result<Patch> {
    let mut files = Files::default();
    let before = parts(server, path, &mut files)?;
    let old = files.read.clone();
    let mut changed: BTreeMap<PathBuf, String> = BTreeMap::new();
    let (mut all_new, mut now) = (Vec::new(), before.clone());
    for setting in settings {
        let mut edits = Edits::new();
        for new in new_of(server, setting) {
            add_edits((server, host), &new, &now, &files, &mut edits)?;
            all_new.push(new);
        }
        for (file, edits) in edits {
            let (path, text) = &files.read[file];
            changed.insert(path.clone(), edited(text, edits));
        }
        files = Files { changed: changed.clone(), ..Files::default() };
        now = parts(server, path, &mut files).context("the patched files are not understood")?;
    }
    changed.retain(|path, text| old.iter().any(|(other, old)| other == path && old != text));
    ensure!(!changed.is_empty(), "{} has no line that these remedies would change", path.display());
    let [before, after] = [&before, &now].map(|parts| apart_from(&all_new, parts));
    ensure!(before == after, "a patch of {} would change more than these remedies do", path.display());
    let tried = own_test::tried(server, path, &changed, &all_new)?;
    let patch = old.iter().filter_map(|(path, text)| Some(unified(path, text, changed.get(path)?)));
    let tried = format!("read again, the patched files differ in nothing else. {tried}");
    Ok(Patch { bytes: bytes_of(&patch.collect::<String>()), tried })
}

fn parts(server: ServerName, path: &Path, files: &mut Files) -> Result<Vec<Part>> {
    match server {
        ServerName::Nginx => nginx::parts(path, files),
        ServerName::Haproxy => haproxy::parts(path, files),
        ServerName::ApacheEvent | ServerName::ApachePrefork => apache::parts(path, files),
        ServerName::Lighttpd => lighttpd::parts(path, files),
        other => bail!("{other} has no configuration file"),
    }
}

fn new_of(server: ServerName, setting: &Setting) -> Vec<New> {
    let is_beside = matches!(setting, Setting::AlsoCertificate(_));
    let mut all: Vec<New> = Vec::new();
    let mut lines_of_next = Vec::new();
    let mut place = if server == ServerName::Haproxy { "front" } else { "tls" };
    for line in lines(server, setting.clone()) {
        if line == "global" {
            place = "global";
            continue;
        }
        let line = line.trim_start();
        lines_of_next.push(line.to_owned());
        if !line.starts_with('#') {
            let mut words = line.split([' ', ';']);
            let own = name_of(words.next().unwrap_or_default(), words.next().unwrap_or_default());
            let names = match server {
                ServerName::Lighttpd => lighttpd::names_of(line).unwrap_or(vec![own]),
                _ if own == "bind" => vec![own, "ssl-default-bind-options".to_owned()],
                _ => vec![own],
            };
            // These hold for the whole server.
            let is_of_all = line.starts_with("SSLSessionCache") || line.starts_with("server.");
            let lines = std::mem::take(&mut lines_of_next);
            all.push(New { names, lines, place: if is_of_all { "end" } else { place }, is_beside });
        }
    }
    all
}

/// Directives that set the same thing: a name, and the name that both are compared by.
const SAME: [(&str, &str); 7] = [
    ("sslopensslconfcmd curves", "sslopensslconfcmd groups"),
    ("sslopensslconfcmd ecdhparameters", "sslopensslconfcmd groups"),
    ("ssl_conf_command groups", "ssl_ecdh_curve"),
    ("ssl_conf_command curves", "ssl_ecdh_curve"),
    ("option httpclose", "timeout http-keep-alive"),
    ("option forceclose", "timeout http-keep-alive"),
    ("ssl.openssl.ssl-conf-cmd curves", "ssl.openssl.ssl-conf-cmd groups"),
];

/// Directives that stand once for each of their first words.
const WITH_SUBJECT: &str = "sslopensslconfcmd ssl_conf_command proxy_set_header timeout option http-request \
    ssl.openssl.ssl-conf-cmd server.feature-flags";

/// The name of a directive: of one with several subjects with its first word.
pub(super) fn name_of(directive: &str, first: &str) -> String {
    let name = directive.to_ascii_lowercase();
    let is_of_subject = is_listed(WITH_SUBJECT, &name);
    let name = if is_of_subject { format!("{name} {}", first.to_ascii_lowercase()) } else { name };
    SAME.iter().find(|(other, _)| *other == name).map_or(name, |(_, same)| (*same).to_owned())
}

/// What puts new lines into files that say this.
fn add_edits(
    (server, host): (ServerName, Option<&str>),
    new: &New,
    parts: &[Part],
    files: &Files,
    edits: &mut Edits,
) -> Result<()> {
    let is_certificate = new.directive().contains("ertificate");
    let own: Vec<&Part> = match host {
        Some(host) if is_certificate => sites(parts, host, &new.names),
        _ => Vec::new(),
    };
    let text = |part: &Part| files.read[part.at.file].1.as_str();
    let mut put = |part: &Part, is_behind: bool, lines: &[String]| {
        edits.entry(part.at.file).or_default().push(edit(text(part), part, is_behind, lines));
    };
    if new.names[0] == "bind" {
        for part in parts.iter().flat_map(|section| &section.inner) {
            if let Some(lines) = haproxy::with_parameters(new.directive(), part)? {
                put(part, false, &lines);
            }
        }
    } else if new.place == "end" && !is_there(&new.names, parts) {
        let main = &files.read[0].1;
        let begin = if main.ends_with('\n') { "" } else { "\n" };
        edits.entry(0).or_default().push((main.len()..main.len(), format!("{begin}{}\n", new.lines.join("\n"))));
    } else if !own.is_empty() {
        own.into_iter().for_each(|site| place(new, &site.inner, false, &mut put));
    } else {
        // Sections of HAProxy say it for each other, and a server without a certificate needs none.
        let is_for_all = server == ServerName::Haproxy || is_certificate;
        place(new, parts, is_for_all && is_there(&new.names[..1], parts), &mut put);
    }
    Ok(())
}

/// Blocks of a host that have a directive of one of these names.
fn sites<'a>(parts: &'a [Part], host: &str, names: &[String]) -> Vec<&'a Part> {
    let of = |part: &'a Part| {
        let named = part.inner.iter().filter(|of| is_listed("server_name servername serveralias", &of.name));
        let mut words = named.flat_map(|of| of.says.split([' ', '\t', '\n', ';', '"']).skip(1));
        match words.any(|word| word.eq_ignore_ascii_case(host)) {
            true if is_there(names, &part.inner) => vec![part],
            _ => sites(&part.inner, host, names),
        }
    };
    parts.iter().flat_map(of).collect()
}

fn is_there(names: &[String], parts: &[Part]) -> bool {
    parts.iter().any(|part| names.contains(&part.name) || is_there(names, &part.inner))
}

/// Puts lines behind parts (`true`) or in their place, in a block and in those within. `is_said`: a block around it
/// says the same, which holds here, too.
fn place(new: &New, parts: &[Part], mut is_said: bool, put: &mut impl FnMut(&Part, bool, &[String])) {
    let written = || parts.iter().filter(|part| !part.at.bytes.is_empty());
    let own: Vec<&Part> = written().filter(|part| part.name == new.names[0]).collect();
    let added_to = || written().rfind(|part| new.names.contains(&part.name));
    let behind = match own.last() {
        Some(last) => new.is_beside.then_some(*last),
        None if is_said => None,
        None => added_to().or_else(|| written().rfind(|part| part.place == new.place)),
    };
    behind.into_iter().for_each(|part| put(part, true, &new.lines));
    for (number, part) in own.iter().enumerate().filter(|_| !new.is_beside) {
        let pair = lighttpd::instead(&part.says, new.directive()).map(|pair| vec![pair]);
        // Another one of its name has the lines.
        let lines = if number > 0 { Vec::new() } else { pair.unwrap_or_else(|| new.lines.clone()) };
        put(part, false, &lines);
    }
    is_said |= !own.is_empty() || behind.is_some();
    parts.iter().for_each(|part| place(new, &part.inner, is_said, put));
}

/// All that is said besides what these lines are about.
fn apart_from(new: &[New], parts: &[Part]) -> String {
    let kept = parts.iter().filter(|part| !new.iter().any(|new| new.names.contains(&part.name)));
    kept.map(|part| format!("{}\n{}", part.says, apart_from(new, &part.inner))).collect()
}

fn unified(path: &Path, old: &str, new: &str) -> String {
    let [before, after] = ["a", "b"].map(|tree| format!("{tree}{}", path.display()));
    TextDiff::from_lines(old, new).unified_diff().header(&before, &after).to_string()
}

#[cfg(test)]
mod tests;
