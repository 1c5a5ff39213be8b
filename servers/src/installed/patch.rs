//! The lines of remedies as a patch against the reader's own files: what says the same takes their place, or they stand
//! where TLS is switched on.

use std::path::Path;

use anyhow::{Context, Result, bail, ensure};
use regex_lite::Regex;
use similar::TextDiff;
use tlsdyno_record::model::ServerName;

use super::{haproxy, lighttpd};
use crate::directives::{Setting, lines};
use crate::includes::Tree;

/// A unified patch of a configuration with all that it includes, for `patch -p1 -d /`. Certificates and keys are
/// examples that the reader replaces.
///
/// # Errors
/// A file cannot be read, or nothing in it can be changed so.
pub fn patch(path: &Path, server: ServerName, settings: &[Setting]) -> Result<String> {
    let mut files = Vec::new();
    for file in haproxy::files(path)? {
        let home = file.parent().unwrap_or(Path::new("/"));
        let tree = Tree::read(&file, &[home]).with_context(|| format!("{} is no text", file.display()))?;
        files.extend(tree.files().into_iter().map(|(path, text)| (path.to_owned(), text.to_owned())));
    }
    let mut texts: Vec<Vec<String>> = files.iter().map(|(_, text)| text.lines().map(str::to_owned).collect()).collect();
    for setting in settings {
        let is_beside = matches!(setting, Setting::AlsoCertificate(_));
        apply(server, &lines(server, setting.clone()), is_beside, &mut texts);
    }
    let new = settings.iter().flat_map(|setting| lines(server, setting.clone()));
    let names: Vec<String> = new.filter_map(|line| name_of(server, &line)).collect();
    let is_new = |of: &String| name_of(server, of).is_some_and(|name| names.contains(&name));
    let mut patch = String::new();
    for ((path, old), new) in files.iter().zip(&texts) {
        let path = path.canonicalize().with_context(|| format!("find {}", path.display()))?;
        let kept = statements(&new.join("\n"));
        let lost =
            statements(old).into_iter().find(|of| server == ServerName::Nginx && !kept.contains(of) && !is_new(of));
        if let Some(lost) = lost {
            bail!("`{lost}` in {} would go with a line that these remedies change: give it its own", path.display());
        }
        patch.push_str(&unified(&path, old, new));
    }
    ensure!(!patch.is_empty(), "{} has no line that these remedies would change", path.display());
    Ok(patch)
}

/// What a text of nginx says, comments apart.
fn statements(text: &str) -> Vec<String> {
    let text = Regex::new(r"(?m)(^|[\s;])#.*$").expect("a test uses it").replace_all(text, "$1");
    text.split([';', '{', '}']).map(|of| of.split_whitespace().collect::<Vec<_>>().join(" ")).collect()
}

/// Puts lines into all files, beside what says the same where that stays. The first file is the main one.
fn apply(server: ServerName, new: &[String], is_beside: bool, files: &mut [Vec<String>]) {
    if server == ServerName::Haproxy {
        return files.iter_mut().for_each(|file| haproxy::apply(new, file));
    }
    if server == ServerName::Lighttpd && new.iter().any(|line| replace_pair(line, files)) {
        return;
    }
    let names = new.iter().filter(|_| !is_beside || server == ServerName::Lighttpd);
    let names: Vec<String> = names.filter_map(|line| name_of(server, line)).collect();
    let mut is_there = false;
    for file in files.iter_mut() {
        is_there |= replace(server, &names, new, file);
    }
    if is_there {
        return;
    }
    let is_anchor = |line: &str| {
        let line = line.trim_start();
        match server {
            ServerName::Nginx => line.starts_with("listen") && line.contains(" ssl"),
            ServerName::Lighttpd => line.starts_with("ssl.openssl.ssl-conf-cmd") && line.trim_end().ends_with(')'),
            _ => line.to_ascii_lowercase().starts_with("sslengine on"),
        }
    };
    // These hold for the whole server.
    let in_main = new.iter().any(|line| line.starts_with("SSLSessionCache") || line.starts_with("server."));
    let mut is_put = false;
    for file in files.iter_mut().filter(|_| !in_main) {
        let mut at = 0;
        while at < file.len() {
            // Behind the last of several.
            let next =
                file[at + 1..].iter().find(|line| !line.trim().is_empty() && !line.trim_start().starts_with('#'));
            if is_anchor(&file[at]) && !next.is_some_and(|next| is_anchor(next)) {
                let indent = indent_of(&file[at]).to_owned();
                file.splice(at + 1..at + 1, new.iter().map(|line| format!("{indent}{line}")));
                is_put = true;
                at += new.len();
            }
            at += 1;
        }
    }
    if !is_put && let Some(main) = files.first_mut().filter(|_| in_main || server == ServerName::Lighttpd) {
        main.extend(new.iter().cloned());
    }
}

/// Puts the pair that a line adds to a list in the place of one with the same key, where it is there already.
fn replace_pair(line: &str, files: &mut [Vec<String>]) -> bool {
    let pair = Regex::new(r#""([^"]+)"\s*=>\s*"([^"]*)""#).expect("a test uses it");
    let Some(own) = pair.captures(line).filter(|_| line.contains("+=")) else { return false };
    let mut is_there = false;
    for line in files.iter_mut().flatten() {
        if let Some(there) = pair.captures_iter(line).find(|there| there[1].eq_ignore_ascii_case(&own[1])) {
            let value = lighttpd::merged(&own[1], &own[2], &[(own[1].to_owned(), there[2].to_owned())]);
            *line = line.replace(&there[0], &format!("\"{}\" => \"{value}\"", &own[1]));
            is_there = true;
        }
    }
    is_there
}

/// Names of one command of OpenSSL.
const GROUPS: [&str; 3] = ["Groups", "Curves", "ECDHParameters"];

/// The directive of a line; of one with several subjects with its first word. `None`: it adds to others.
fn name_of(server: ServerName, line: &str) -> Option<String> {
    let mut words = line.split_whitespace();
    let first = words.next().filter(|word| !word.starts_with('#'))?;
    let second = words.next().unwrap_or_default();
    match first {
        _ if server == ServerName::Lighttpd && second == "+=" => None,
        "SSLOpenSSLConfCmd" if GROUPS.contains(&second) => Some("SSLOpenSSLConfCmd Groups".to_owned()),
        "SSLOpenSSLConfCmd" | "ssl_conf_command" => Some(format!("{first} {second}")),
        first => Some(first.to_owned()),
    }
}

/// Puts lines in the place of the first of these names in each block; others of them go. Answers whether any is there.
fn replace(server: ServerName, names: &[String], new: &[String], file: &mut Vec<String>) -> bool {
    let mut is_there = false;
    let mut is_put = false;
    let mut at = 0;
    while at < file.len() {
        let line = file[at].trim();
        let opens = line.ends_with('{') || line.starts_with("<VirtualHost");
        is_put &= !opens;
        if !name_of(server, line).is_some_and(|name| names.iter().any(|other| name.eq_ignore_ascii_case(other))) {
            at += 1;
            continue;
        }
        let is_end = |line: &String| server != ServerName::Nginx || line.contains(';');
        let count = 1 + file[at..].iter().position(is_end).unwrap_or(0);
        let indent = indent_of(&file[at]).to_owned();
        let put: Vec<String> = new.iter().filter(|_| !is_put).map(|line| format!("{indent}{line}")).collect();
        let step = put.len();
        file.splice(at..at + count, put);
        (at, is_put, is_there) = (at + step, true, true);
    }
    is_there
}

fn indent_of(line: &str) -> &str {
    &line[..line.len() - line.trim_start().len()]
}

/// The change of a file as `patch` takes it; empty: none.
fn unified(path: &Path, old: &str, new: &[String]) -> String {
    let [before, after] = ["a", "b"].map(|tree| format!("{tree}{}", path.display()));
    let [old, new] = [old.lines().collect::<Vec<_>>(), new.iter().map(String::as_str).collect()];
    TextDiff::from_slices(&old, &new).unified_diff().header(&before, &after).to_string()
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::process::{Command, Stdio};

    use tlsdyno_record::model::{CertificateKind, SessionCache};

    use super::*;
    use crate::installed::Installed;

    /// The files of a server, patched by `patch` itself.
    fn patched(server: ServerName, files: &[(&str, &str)], settings: &[Setting]) -> (tempfile::TempDir, Vec<String>) {
        let place = tempfile::tempdir().unwrap();
        for (name, text) in files {
            let path = place.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        let text = patch(&place.path().join(files[0].0), server, settings).unwrap();
        let file = place.path().join("tls.patch");
        fs::write(&file, &text).unwrap();
        let done = Command::new("patch")
            .args(["--batch", "-p1", "-d", "/", "-i"])
            .arg(&file)
            .stdout(Stdio::null())
            .status()
            .unwrap();
        assert!(done.success(), "{text}");
        let read = |(name, _): &(&str, &str)| fs::read_to_string(place.path().join(name)).unwrap();
        let texts = files.iter().map(read).collect();
        (place, texts)
    }

    const SETTINGS: [Setting; 4] = [
        Setting::Certificate(CertificateKind::P256),
        Setting::AlsoTls13,
        Setting::Tickets(true),
        Setting::SessionCache(SessionCache::Shared),
    ];

    #[test]
    fn lines_take_the_place_of_those_that_say_the_same() {
        let main = "events {}\nhttp {\n    ssl_protocols TLSv1.2;\n    include sites/*;\n}\n";
        let site = "server {\n    listen 443 ssl;\n    listen [::]:443 ssl;\n    ssl_certificate /a.pem;\n\
            \x20   ssl_certificate_key\n\
            \x20       /a.key;\n    root /x;\n}\nserver {\n    listen 443 ssl;\n    ssl_certificate /b.pem;\n\
            \x20   ssl_certificate_key /b.key;\n}\n";
        let (place, texts) = patched(ServerName::Nginx, &[("nginx.conf", main), ("sites/a", site)], &SETTINGS);
        assert_eq!(texts[0], main.replace("TLSv1.2", "TLSv1.2 TLSv1.3"));
        assert_eq!(texts[1].matches("ssl_certificate /etc/ssl/site.pem;").count(), 2, "{}", texts[1]);
        assert_eq!(texts[1].matches("ssl_session_tickets on;").count(), 2, "{}", texts[1]);
        assert!(!texts[1].contains("/a.") && !texts[1].contains("/b.") && texts[1].contains("# openssl ecparam"));
        let facts = Installed::read(&place.path().join("nginx.conf"), None).unwrap().site.facts(None);
        assert_eq!(
            (facts.protocols, facts.session_cache.as_str()),
            (vec!["TLSv1.2".to_owned(), "TLSv1.3".to_owned()], "shared:SSL:10m")
        );
    }

    #[test]
    fn apache_haproxy_and_lighttpd_have_their_own_places() {
        let main = "ServerRoot /x\nListen 443\n<VirtualHost *:443>\n  SSLEngine on\n\
            \x20 SSLCertificateFile /a.pem\n</VirtualHost>\n";
        let (place, _) = patched(ServerName::ApacheEvent, &[("apache2.conf", main)], &SETTINGS);
        let facts = Installed::read(&place.path().join("apache2.conf"), None).unwrap().site.facts(None);
        assert_eq!(
            (facts.certificates.concat().as_str(), facts.protocols.concat().as_str()),
            ("/etc/ssl/site.pem", "TLSv1.2TLSv1.3")
        );
        assert_eq!(facts.session_cache, "shared: shmcb");

        let main = "global\n  ssl-default-bind-options no-tls-tickets ssl-min-ver TLSv1.2\n\
            \x20 tune.ssl.cachesize 0\nfrontend x\n\
            \x20 bind :443 ssl crt /a.pem alpn h2 # here\n  default_backend y\n";
        let (place, texts) = patched(ServerName::Haproxy, &[("haproxy.cfg", main)], &SETTINGS);
        let facts = Installed::read(&place.path().join("haproxy.cfg"), None).unwrap().site.facts(None);
        assert_eq!(
            (facts.certificates.concat().as_str(), facts.tickets, facts.http2),
            ("/etc/ssl/site.pem", true, true)
        );
        assert_eq!(
            (facts.protocols.concat().as_str(), facts.session_cache.as_str()),
            ("TLSv1.2TLSv1.3", "shared: 20000 blocks"),
            "{}",
            texts[0]
        );

        let main = "server.port = 80\nssl.pemfile = \"/a.pem\"\n$SERVER[\"socket\"] == \":443\" {\n\
            \x20 ssl.engine = \"enable\"\n}\n";
        let (_place, texts) = patched(ServerName::Lighttpd, &[("lighttpd.conf", main)], &SETTINGS);
        let text = &texts[0];
        assert!(text.contains("ssl.pemfile = \"/etc/ssl/site.pem\"") && text.contains("MinProtocol"), "{text}");
        assert!(text.contains("server.feature-flags += (\"ssl.session-cache\" => \"enable\")"), "{text}");
    }

    #[test]
    fn a_patch_of_nothing_is_refused() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("nginx.conf");
        fs::write(&path, "http {}\n").unwrap();
        let refused = patch(&path, ServerName::Nginx, &SETTINGS).unwrap_err().to_string();
        assert!(refused.contains("no line"), "{refused}");
    }

    fn nginx(text: &str, settings: &[Setting]) -> String {
        patched(ServerName::Nginx, &[("nginx.conf", text)], settings).1.remove(0)
    }

    #[test]
    fn lines_stand_once_behind_listeners_with_a_comment_between() {
        let site = "http {\n server {\n  listen 443 ssl;\n  # between\n  listen [::]:443 ssl;\n  root /w;\n }\n}\n";
        let wanted = site.replace("[::]:443 ssl;\n", "[::]:443 ssl;\n  ssl_session_tickets off;\n");
        assert_eq!(nginx(site, &[Setting::Tickets(false)]), wanted);
    }

    #[test]
    fn a_patch_that_would_lose_a_directive_is_refused() {
        let site = "http {\n server {\n  listen 443 ssl; # x\n  ssl_certificate /a;\n  ssl_certificate_key /b; \
            add_header X-A b;\n }\n}\n";
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("nginx.conf");
        fs::write(&path, site).unwrap();
        let refused = patch(&path, ServerName::Nginx, &SETTINGS).unwrap_err().to_string();
        assert!(refused.contains("`add_header X-A b` in"), "{refused}");
        patch(&path, ServerName::Nginx, &SETTINGS[1..]).unwrap();
    }

    #[test]
    fn lists_of_lighttpd_have_a_key_once() {
        let site = "ssl.pemfile = \"/a.pem\"\nssl.openssl.ssl-conf-cmd = (\"MinProtocol\" => \"TLSv1.3\",\n\
            \x20 \"Options\" => \"-SessionTicket,ServerPreference\")\n";
        let settings = [Setting::AlsoTls13, Setting::Tickets(true)];
        let (_place, texts) = patched(ServerName::Lighttpd, &[("lighttpd.conf", site)], &settings);
        let wanted = site
            .replace("TLSv1.3", "TLSv1.2")
            .replace("-SessionTicket,ServerPreference", "ServerPreference,SessionTicket");
        assert_eq!(texts[0], wanted);
    }

    #[test]
    fn lines_of_haproxy_keep_their_comments_and_certificates() {
        let site = "global\n  ssl-default-bind-options no-sslv3 no-tlsv10 no-tls-tickets prefer-client-ciphers\n\
            frontend x\n\
            \x20 bind :443 ssl crt /a.pem alpn h2 no-tlsv11 # here\n";
        let settings = [Setting::AlsoTls13, Setting::Tickets(true)];
        let (_place, texts) = patched(ServerName::Haproxy, &[("haproxy.cfg", site)], &settings);
        let wanted = site.replace("no-sslv3 no-tlsv10 no-tls-tickets ", "").replace("no-tlsv11", "ssl-min-ver TLSv1.2");
        assert_eq!(texts[0], wanted);
    }
}
