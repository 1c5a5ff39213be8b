//! What could be changed: what is tried, what is there already, and what cannot be told here.

use anyhow::{Context, Result, ensure};
use tlsdyno_record::model::{CertificateKind, ConfigurationModel, RemedyModel, ServerName, SessionCache, TlsChange};
use tlsdyno_servers::driver_of;
use tlsdyno_servers::installed::Facts;
use tlsdyno_tls::{Group, Version};

use crate::reading::Reading;

/// A remedy, and what becomes of it here.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Considered {
    pub name: &'static str,
    pub outcome: Outcome,
    /// Why that becomes of it.
    pub why: String,
    /// What it costs in security, memory or old clients.
    pub price: &'static str,
}

/// What becomes of a remedy.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Outcome {
    /// It is measured with these settings.
    Tried(TlsChange),
    /// The server has it.
    There,
    /// It is told from the files only.
    NotMeasured,
}

impl Considered {
    /// What is changed, where it is tried.
    pub fn change(&self) -> Option<&TlsChange> {
        match &self.outcome {
            Outcome::Tried(change) => Some(change),
            _ => None,
        }
    }

    /// Whether it is a profile of many settings.
    pub fn is_profile(&self) -> bool {
        self.name.starts_with(MOZILLA)
    }

    /// Whether this names it: each of its words is in the name.
    fn is_called(&self, asked: &str) -> bool {
        let name = self.name.to_ascii_lowercase();
        let mut words = asked.split_whitespace().map(str::to_ascii_lowercase).peekable();
        words.peek().is_some() && words.all(|word| name.contains(&word))
    }
}

/// Those that are named.
///
/// # Errors
/// A name is none of these, or of one that is not tried; which are.
pub(crate) fn chosen<'a>(considered: &'a [Considered], names: &[String]) -> Result<Vec<&'a Considered>> {
    let mut chosen = Vec::new();
    for name in names {
        let tried = || considered.iter().filter(|of| of.change().is_some());
        let known = tried().map(|of| of.name).collect::<Vec<_>>().join(", ");
        let found = considered.iter().find(|of| of.is_called(name));
        let found = found.with_context(|| format!("`{}` names no remedy; to try here: {known}", name.trim()))?;
        let (outcome, why) = (found.outcome.told(), &found.why);
        ensure!(found.change().is_some(), "{} is {outcome}: {why}. To try here: {known}", found.name);
        chosen.push(found);
    }
    Ok(chosen)
}

/// What several are called together.
pub(crate) const TOGETHER: &str = "together";

/// The configuration of several together; `None`: of fewer than two.
pub(crate) fn together(chosen: &[&Considered]) -> Option<ConfigurationModel> {
    let changes = chosen.iter().filter_map(|of| of.change());
    let tls = changes.fold(TlsChange::default(), |all, change| change.over(&all));
    let model = ConfigurationModel { name: TOGETHER.to_owned(), tls, ..ConfigurationModel::default() };
    (chosen.len() > 1).then_some(model)
}

impl Outcome {
    /// In a word or two.
    pub fn told(&self) -> &'static str {
        match self {
            Outcome::Tried(_) => "to try",
            Outcome::There => "there already",
            Outcome::NotMeasured => "not measured",
        }
    }
}

/// OpenSSL's first version with ML-KEM.
const WITH_ML_KEM: [u32; 2] = [3, 5];

/// All that are known, in the order of what they usually gain. `visitors_return`: the load is of a log, in which they
/// do.
pub(crate) fn considered(reading: &Reading, visitors_return: bool) -> Vec<Considered> {
    vec![
        ecdsa(reading),
        tls13(reading),
        tickets(reading, visitors_return),
        shared_cache(reading, visitors_return),
        hybrid(reading),
        early_data(reading),
        chain(reading),
        keep_alive(reading),
        behind(reading),
        intermediate(reading),
        modern(reading),
    ]
}

/// What the names of Mozilla's profiles begin with (Server Side TLS 5.7).
const MOZILLA: &str = "Mozilla";

/// Mozilla's profile for most sites: what a client of today gets of it. Both want an elliptic curve and no tickets.
fn intermediate(reading: &Reading) -> Considered {
    let Facts { protocols, tickets, .. } = &reading.facts;
    let is_there = has_ecdsa(reading) && !tickets && protocols.len() == 2 && protocols[1] == "TLSv1.3";
    let caches = driver_of(reading.server).capabilities.map_or(&[][..], |able| able.session_caches);
    let change = TlsChange {
        certificate: Some(CertificateKind::P256),
        version: Some(Version::Tls13),
        group: Some(Group::X25519),
        tickets: Some(false),
        session_cache: caches.contains(&SessionCache::Shared).then_some(SessionCache::Shared),
        ..TlsChange::default()
    };
    let outcome = if is_there { Outcome::There } else { Outcome::Tried(change) };
    let why = "TLS 1.2 and 1.3, P-256, X25519, sessions in a cache and no tickets".to_owned();
    Considered { name: "Mozilla intermediate", outcome, why, price: "clients before 2014 cannot connect" }
}

fn modern(reading: &Reading) -> Considered {
    let is_there = has_ecdsa(reading) && !reading.facts.tickets && reading.facts.protocols == ["TLSv1.3"];
    let outcome = if is_there { Outcome::There } else { Outcome::NotMeasured };
    let why = "TLS 1.3 alone: a client of today gets what Mozilla intermediate gives it, and costs as much".to_owned();
    Considered { name: "Mozilla modern", outcome, why, price: "clients before 2018 cannot connect" }
}

fn has_ecdsa(reading: &Reading) -> bool {
    reading.known_certificates().any(|certificate| certificate.is_ecdsa)
}

fn ecdsa(reading: &Reading) -> Considered {
    let change = TlsChange { certificate: Some(CertificateKind::P256), ..TlsChange::default() };
    let has = has_ecdsa(reading);
    let rsa = reading.known_certificates().next().map(|certificate| certificate.key.clone());
    let (outcome, why) = match (has, rsa) {
        (true, _) => (Outcome::There, "a certificate on an elliptic curve is shown to whoever takes it".to_owned()),
        (false, Some(key)) => (
            Outcome::Tried(change),
            format!("the certificate is {key}: its signatures are the dearest part of most full handshakes"),
        ),
        (false, None) => (Outcome::Tried(change), "the certificate cannot be read".to_owned()),
    };
    let price = match reading.server {
        ServerName::Lighttpd => "clients before 2014 cannot connect, as lighttpd shows one certificate",
        _ => "a second certificate to renew; clients before 2014 need the RSA one beside it",
    };
    Considered { name: "ECDSA P-256 certificate", outcome, why, price }
}

fn tls13(reading: &Reading) -> Considered {
    let protocols = &reading.facts.protocols;
    let speaks = protocols.iter().any(|protocol| protocol == "TLSv1.3");
    let change = TlsChange { version: Some(Version::Tls13), ..TlsChange::default() };
    let (outcome, why) = match (speaks, protocols.is_empty()) {
        (true, _) => (Outcome::There, "spoken".to_owned()),
        (false, true) if reading.server == ServerName::Nginx => {
            (Outcome::NotMeasured, "ssl_protocols is not set, so that nginx decides; set TLSv1.2 TLSv1.3".to_owned())
        }
        (false, true) => (Outcome::There, "spoken, as nobody says otherwise".to_owned()),
        (false, false) => (
            Outcome::Tried(change),
            format!("only {} is spoken: a handshake takes a round trip more", protocols.join(" and ")),
        ),
    };
    Considered { name: "TLS 1.3", outcome, why, price: "none; older clients go on with TLS 1.2" }
}

fn tickets(reading: &Reading, visitors_return: bool) -> Considered {
    let change = TlsChange { tickets: Some(true), ..TlsChange::default() };
    let (outcome, why) = match (reading.facts.tickets, visitors_return) {
        (true, _) => (Outcome::There, "issued: visitors who come back resume".to_owned()),
        (false, true) => (Outcome::Tried(change), "switched off: with TLS 1.3 nobody resumes".to_owned()),
        (false, false) => (Outcome::NotMeasured, RETURNING.to_owned()),
    };
    let price = "their keys must be renewed daily, as who steals one reads what was recorded with TLS 1.2";
    Considered { name: "session tickets", outcome, why, price }
}

/// Why remedies for visitors who come back are not measured without a log.
const RETURNING: &str = "nobody knows how many visitors come back: name a log with --trace";

fn shared_cache(reading: &Reading, visitors_return: bool) -> Considered {
    let change = TlsChange { session_cache: Some(SessionCache::Shared), ..TlsChange::default() };
    let cache = &reading.facts.session_cache;
    let (outcome, why) = match (cache.contains("shared"), reading.facts.tickets, visitors_return) {
        (true, ..) => (Outcome::There, cache.clone()),
        (false, true, _) => (Outcome::NotMeasured, "tickets are on, and all clients of today take them".to_owned()),
        (false, false, true) => (Outcome::Tried(change), format!("the cache is {cache}, and there are no tickets")),
        (false, false, false) => (Outcome::NotMeasured, RETURNING.to_owned()),
    };
    Considered { name: "shared session cache", outcome, why, price: "some 250 bytes of memory a session" }
}

fn hybrid(reading: &Reading) -> Considered {
    let change = TlsChange { group: Some(Group::X25519MlKem768), ..TlsChange::default() };
    let has = reading.facts.groups.iter().any(|group| group.contains("MLKEM"));
    let (outcome, why) = match (has, openssl_version(&reading.version)) {
        (true, _) => (Outcome::There, "offered".to_owned()),
        (false, Some(version)) if version < WITH_ML_KEM => {
            (Outcome::NotMeasured, format!("OpenSSL {}.{} has no ML-KEM; 3.5 has", version[0], version[1]))
        }
        (false, _) => {
            (Outcome::Tried(change), "browsers offer it, and it costs the server more than X25519".to_owned())
        }
    };
    let price = "no gain in CPU time: what is recorded today cannot be read by quantum computers later";
    Considered { name: "hybrid group X25519MLKEM768", outcome, why, price }
}

fn early_data(reading: &Reading) -> Considered {
    let takes_any = driver_of(reading.server).capabilities.is_some_and(|able| able.early_data);
    let (outcome, why) = match (reading.facts.early_data, takes_any) {
        (true, _) => (Outcome::There, "taken".to_owned()),
        (false, true) => {
            let why = "saves visitors who come back a round trip, and the server no CPU time to speak of";
            (Outcome::NotMeasured, why.to_owned())
        }
        (false, false) => (Outcome::NotMeasured, format!("{} takes none", reading.server.name())),
    };
    let price = "such requests can be repeated by whoever records them (RFC 8470): for pages that change nothing";
    Considered { name: "early data", outcome, why, price }
}

fn chain(reading: &Reading) -> Considered {
    let with_root = reading.known_certificates().find(|certificate| certificate.sends_root);
    let (outcome, why) = match with_root {
        Some(certificate) => (
            Outcome::NotMeasured,
            format!("a root is sent among {} certificates: leave it out, clients have it", certificate.chain[0]),
        ),
        None => (Outcome::There, "no root is sent".to_owned()),
    };
    Considered { name: "shorter chain", outcome, why, price: "none" }
}

fn keep_alive(reading: &Reading) -> Considered {
    let [keep, requests] = &reading.facts.keep_alive;
    let is_off = keep.trim_end_matches(['s', 'm']) == "0";
    let outcome = if is_off { Outcome::NotMeasured } else { Outcome::There };
    let why = match is_off {
        true => "connections are not kept: each request pays for a handshake of its own".to_owned(),
        false => format!("{keep}, {requests} requests"),
    };
    Considered { name: "keep-alive", outcome, why, price: "memory for each open connection" }
}

fn behind(reading: &Reading) -> Considered {
    let (outcome, why) = match reading.facts.passes_on {
        Some(false) => (
            Outcome::NotMeasured,
            match reading.server {
                ServerName::Nginx => {
                    "each request opens a connection to the server behind: an upstream with `keepalive` keeps them"
                }
                _ => "each request opens a connection to the server behind",
            }
            .to_owned(),
        ),
        Some(true) => (Outcome::There, "its connections are kept".to_owned()),
        None => (Outcome::There, "nothing is passed on".to_owned()),
    };
    Considered { name: "keep-alive to the server behind", outcome, why, price: "some open connections there" }
}

/// `[3, 0]` of `built with OpenSSL 3.0.11 19 Sep 2023`; the one that it runs with is named last.
fn openssl_version(said: &str) -> Option<[u32; 2]> {
    let (_, rest) = said.rsplit_once("OpenSSL ")?;
    let mut numbers = rest.split('.').map(|number| number.parse().ok());
    Some([numbers.next()??, numbers.next()??])
}

/// The configurations and remedies of an experiment for those that are tried.
pub(crate) fn models(considered: &[Considered]) -> (Vec<ConfigurationModel>, Vec<RemedyModel>) {
    let tried = || considered.iter().filter_map(|of| Some((of.name.to_owned(), of.change()?.clone())));
    let configuration = |(name, tls)| ConfigurationModel { name, tls, ..ConfigurationModel::default() };
    let remedy =
        |(name, _): (String, TlsChange)| RemedyModel { configuration: name.clone(), name, over: None, bound: false };
    (tried().map(configuration).collect(), tried().map(remedy).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::certificate::Certificate;

    fn reading(facts: Facts, is_ecdsa: bool) -> Reading {
        let certificate = Certificate {
            key: if is_ecdsa { "P-256" } else { "RSA-2048" }.to_owned(),
            is_ecdsa,
            chain: [2, 3000],
            sends_root: false,
            days_left: 60,
        };
        Reading {
            path: "/etc/nginx/nginx.conf".into(),
            server: ServerName::Nginx,
            host: None,
            others: Vec::new(),
            facts,
            certificates: vec![Ok(certificate)],
            version: "nginx/1.22.1 built with OpenSSL 3.0.11 19 Sep 2023".to_owned(),
            log: Err("no log".to_owned()),
        }
    }

    fn tried(reading: &Reading, visitors_return: bool) -> Vec<&'static str> {
        let is_tried = |of: &Considered| matches!(of.outcome, Outcome::Tried(_));
        considered(reading, visitors_return).iter().filter(|of| is_tried(of)).map(|of| of.name).collect()
    }

    #[test]
    fn what_is_there_is_not_advised() {
        let both = ["TLSv1.2", "TLSv1.3"].map(str::to_owned).to_vec();
        let good =
            Facts { protocols: both, tickets: true, session_cache: "shared:SSL:10m".to_owned(), ..Facts::default() };
        assert_eq!(tried(&reading(good.clone(), true), true), ["Mozilla intermediate"]);
        assert_eq!(tried(&reading(good, false), true), ["ECDSA P-256 certificate", "Mozilla intermediate"]);
        let old = Facts { protocols: vec!["TLSv1.2".to_owned()], session_cache: "none".to_owned(), ..Facts::default() };
        assert_eq!(tried(&reading(old.clone(), true), false), ["TLS 1.3", "Mozilla intermediate"]);
        assert_eq!(
            tried(&reading(old, true), true),
            ["TLS 1.3", "session tickets", "shared session cache", "Mozilla intermediate"]
        );
    }

    #[test]
    fn a_hybrid_group_is_tried_where_the_library_has_it() {
        let both = ["TLSv1.2", "TLSv1.3"].map(str::to_owned).to_vec();
        let mut reading = reading(Facts { protocols: both, tickets: true, ..Facts::default() }, true);
        assert_eq!(tried(&reading, false), ["Mozilla intermediate"]);
        reading.version = "nginx/1.28.0 built with OpenSSL 3.5.1 1 Jul 2025".to_owned();
        assert_eq!(tried(&reading, false), ["hybrid group X25519MLKEM768", "Mozilla intermediate"]);
        assert_eq!(openssl_version("nginx/1.28"), None);
    }

    #[test]
    fn remedies_are_chosen_by_a_few_words() {
        let reading = reading(Facts { protocols: vec!["TLSv1.2".to_owned()], ..Facts::default() }, false);
        let considered = considered(&reading, false);
        let chosen =
            |names: &[&str]| chosen(&considered, &names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>());
        let both = chosen(&["ECDSA certificate", " tls 1.3"]).unwrap();
        assert_eq!(both.iter().map(|of| of.name).collect::<Vec<_>>(), ["ECDSA P-256 certificate", "TLS 1.3"]);
        let model = together(&both).unwrap();
        assert_eq!((model.tls.certificate, model.tls.version), (Some(CertificateKind::P256), Some(Version::Tls13)));
        assert_eq!(together(&both[..1]), None);
        assert!(
            chosen(&["ticket keys"])
                .unwrap_err()
                .to_string()
                .contains("to try here: ECDSA P-256 certificate, TLS 1.3, Mozilla intermediate")
        );
        assert!(chosen(&["early data"]).unwrap_err().to_string().contains("early data is not measured"));
        assert!(chosen(&[" "]).is_err());
    }

    #[test]
    fn each_that_is_tried_is_a_configuration_and_a_remedy() {
        let reading = reading(Facts { protocols: vec!["TLSv1.2".to_owned()], ..Facts::default() }, false);
        let (configurations, remedies) = models(&considered(&reading, false));
        assert_eq!(configurations[0].tls.certificate, Some(CertificateKind::P256));
        assert_eq!(configurations[1].tls.version, Some(Version::Tls13));
        assert!(configurations.iter().zip(&remedies).all(|(of, remedy)| of.name == remedy.configuration));
    }
}
