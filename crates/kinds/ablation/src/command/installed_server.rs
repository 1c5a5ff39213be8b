//! An installed server under test: what is measured of it, and what its configuration makes of flags that say nothing.

use std::path::{Path, absolute};

use anyhow::{Context, Result};
use tlsdyno_installed::{Choice, Installed, Offer, bytes_of, server_of};
use tlsdyno_record::model::{Server, ServerName, SessionCache, Tls};
use tlsdyno_servers::{driver_of, programs};
use tlsdyno_tls::{Group, Version};

/// First version of nginx whose default protocols include TLS 1.3. Other servers take OpenSSL's default.
const SPEAKS_TLS13: [u32; 3] = [1, 23, 4];

/// The server of this configuration, with the host that clients ask for. `kind`: server that the configuration is for,
/// if known.
pub(super) fn fit(path: &Path, server: Server, kind: Option<ServerName>) -> Result<Server> {
    let installed = read(path, kind)?;
    Ok(Server {
        // Not its target, where it is a link: servers look for includes beside the link.
        config: Some(absolute(path).with_context(|| format!("read {}", path.display()))?),
        command: Some(installed.program()?.display().to_string()),
        plain_address: Some("127.0.0.1:{plain_port}".to_owned()),
        host: installed.site.chosen(server.host.as_deref())?.host,
        ..server
    })
}

/// `kind`: server that the configuration is for, if known.
pub fn read(path: &Path, kind: Option<ServerName>) -> Result<Installed> {
    let package = kind.and_then(|kind| driver_of(kind).package);
    Installed::read(path, package.map(|package| package.programs[0]))
}

/// The copy that would be measured, whose first lines say what becomes of each setting.
pub fn printed(path: &Path, kind: Option<ServerName>, host: Option<&str>) -> Result<Vec<u8>> {
    let installed = read(path, kind)?;
    let host = installed.site.chosen(host)?.host;
    // Ports that a reader sees to be examples.
    let text = installed.serving(host.as_deref()).text(4443, 4080, Path::new("/the/private/directory"))?;
    Ok(bytes_of(&text))
}

/// Changes TLS settings that the server does not speak, and returns the remarks about that.
pub(super) fn negotiated(server: &Server, tls: Tls) -> Result<(Tls, Vec<String>)> {
    let Some(path) = &server.config else { return Ok((tls, Vec::new())) };
    let installed = Installed::read(path, server.command.as_deref())?;
    let host = server.host.as_deref();
    let mut notes = Vec::new();
    let Choice { others, is_known, .. } = installed.site.choice(host);
    let shown = host.unwrap_or("the default server");
    notes.push(match others.len() {
        0 => format!("Measured: {shown} of {}", path.display()),
        _ => format!("Measured: {shown} of {}. --host NAME chooses another: {}", path.display(), some(&others)),
    });
    if let Some(host) = host.filter(|_| !is_known) {
        notes.push(format!("No server there is named {host}: the default server answers, unless a pattern (`~`) fits"));
    }
    notes.extend(installed.site.notes().into_iter().map(|(what, why)| format!("{what}. {why}")));
    let offer = installed.site.offer(host);
    let version = version(&offer, tls.version, server.command.as_deref().unwrap_or_default());
    if version != tls.version {
        notes.push(format!("The configuration speaks no TLS {}: it is measured with TLS {version}", tls.version));
    }
    let group = group(&offer, tls.group);
    if group != tls.group {
        notes.push(format!("The configuration takes no group {}: it is measured with {group}", tls.group));
    }
    // A suite belongs to a version.
    let suite = tls.suite.filter(|_| version == tls.version);
    let facts = installed.site.facts(host);
    let keeps_none = !facts.tickets && ["none", "off"].contains(&facts.session_cache.as_str());
    let resumes = match keeps_none && tls.session_cache.is_none() {
        true => {
            notes.push("The configuration keeps no sessions and issues no tickets: nobody resumes".to_owned());
            Tls { tickets: false, session_cache: Some(SessionCache::Off), ..tls }
        }
        false => tls,
    };
    Ok((Tls { version, group, suite, ..resumes }, notes))
}

fn some(names: &[String]) -> String {
    const NAMED_MAX: usize = 8;
    let named = names.iter().take(NAMED_MAX).map(String::as_str).collect::<Vec<_>>().join(", ");
    let more = names.len().saturating_sub(NAMED_MAX);
    if more > 0 { format!("{named} and {more} more") } else { named }
}

/// The requested version, or the highest that the server speaks.
fn version(offer: &Offer, asked: Version, program: &str) -> Version {
    let speaks = |version: Version| match version {
        _ if !offer.protocols.is_empty() => offer.protocols.iter().any(|protocol| protocol == name(version)),
        Version::Tls12 => true,
        Version::Tls13 if server_of(program) == Some(ServerName::Nginx) => {
            version_of(&programs::output_of(Path::new(program), &["-v"])) >= Some(SPEAKS_TLS13)
        }
        Version::Tls13 => true,
    };
    let all = [asked, Version::Tls13, Version::Tls12];
    all.into_iter().find(|version| speaks(*version)).unwrap_or(asked)
}

fn name(version: Version) -> &'static str {
    match version {
        Version::Tls12 => "TLSv1.2",
        Version::Tls13 => "TLSv1.3",
    }
}

fn version_of(said: &str) -> Option<[u32; 3]> {
    let (_, behind) = said.split_once("nginx/")?;
    let end = behind.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(behind.len());
    let numbers: Vec<u32> = behind[..end].split('.').filter_map(|number| number.parse().ok()).collect();
    numbers.try_into().ok()
}

/// The requested group, or the first that both know.
fn group(offer: &Offer, asked: Group) -> Group {
    let known: Vec<Group> = offer.groups.iter().filter_map(|group| group.parse().ok()).collect();
    if known.contains(&asked) { asked } else { known.first().copied().unwrap_or(asked) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_server_speaks_takes_the_place_of_what_it_does_not() {
        let offer = |protocols: &[&str], groups: &[&str]| Offer {
            protocols: protocols.iter().map(|text| (*text).to_owned()).collect(),
            groups: groups.iter().map(|text| (*text).to_owned()).collect(),
        };
        let old = offer(&["TLSv1.1", "TLSv1.2"], &["secp384r1", "prime256v1"]);
        assert_eq!(version(&old, Version::Tls13, ""), Version::Tls12);
        assert_eq!(group(&old, Group::X25519), Group::P384);
        assert_eq!(group(&old, Group::P256), Group::P256);
        let new = offer(&["TLSv1.2", "TLSv1.3"], &["X25519"]);
        assert_eq!(version(&new, Version::Tls12, ""), Version::Tls12);
        assert_eq!(version(&offer(&["TLSv1.3"], &[]), Version::Tls12, ""), Version::Tls13);
        assert_eq!(group(&offer(&[], &[]), Group::X25519), Group::X25519);
        assert_eq!(group(&offer(&[], &["brainpoolP256r1"]), Group::X25519), Group::X25519);
        assert_eq!(version_of("nginx version: nginx/1.22.1 (Ubuntu)\n"), Some([1, 22, 1]));
        assert!(version_of("nginx version: openresty/1.25.3.1") < Some(SPEAKS_TLS13));
        assert_eq!(version(&offer(&[], &[]), Version::Tls13, "/no/such/nginx"), Version::Tls12);
    }
}
