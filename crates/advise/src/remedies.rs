//! What could be changed: what is tried, what is there already, and what cannot be told here.

use anyhow::{Context, Result, ensure};
use tlsdyno_record::model::{CertificateKind, ConfigurationModel, RemedyModel, ServerName, SessionCache, TlsChange};
use tlsdyno_servers::directives::{self, CertificateFile, Setting};
use tlsdyno_servers::driver_of;
use tlsdyno_servers::installed::Facts;
use tlsdyno_stats::advice::{ConsideredModel, Here};
use tlsdyno_tls::{Group, Version};

use crate::certificate::Certificate;
use crate::reading::{KEPT_S, Reading};
use crate::rules::{INTERMEDIATE_CIPHERS, INTERMEDIATE_SESSION_S};

/// A remedy, and what becomes of it here.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Considered {
    pub name: &'static str,
    pub here: Here,
    /// Why that becomes of it.
    pub why: String,
    /// What it costs in security, memory or old clients.
    pub price: &'static str,
    /// What is changed where it is measured.
    pub change: Option<TlsChange>,
    /// What the operator writes.
    pub settings: Vec<Setting>,
    /// A patch has it only where it is asked for by name.
    pub is_apart: bool,
}

impl Considered {
    fn named(name: &'static str, price: &'static str) -> Considered {
        let settings = Vec::new();
        Considered { name, here: Here::There, why: String::new(), price, change: None, settings, is_apart: false }
    }

    /// This becomes of it.
    fn is(self, here: Here, why: impl Into<String>) -> Considered {
        Considered { here, why: why.into(), ..self }
    }

    /// It is measured, and written as it is changed there.
    fn tried(self, change: TlsChange, why: impl Into<String>) -> Considered {
        let settings = Setting::of_change(&change);
        Considered { change: Some(change), settings, ..self.is(Here::ToTry, why) }
    }

    /// It is written so.
    fn written(self, settings: Vec<Setting>) -> Considered {
        Considered { settings, ..self }
    }

    /// The lines to write.
    pub fn lines(&self, server: ServerName) -> Vec<String> {
        self.settings.iter().flat_map(|setting| directives::lines(server, setting.clone())).collect()
    }

    /// As a record keeps it.
    pub fn model(&self, server: ServerName) -> ConsideredModel {
        ConsideredModel {
            name: self.name.to_owned(),
            here: self.here,
            why: self.why.clone(),
            price: self.price.to_owned(),
            lines: self.lines(server),
        }
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
/// A name is none of these, or of one that nothing is written for; which are.
pub(crate) fn chosen<'a>(considered: &'a [Considered], names: &[String]) -> Result<Vec<&'a Considered>> {
    let mut chosen = Vec::new();
    for name in names {
        let tried = || considered.iter().filter(|of| of.change.is_some());
        let known = tried().map(|of| of.name).collect::<Vec<_>>().join(", ");
        let found = considered.iter().find(|of| of.is_called(name));
        let found = found.with_context(|| format!("`{}` names no remedy; to try here: {known}", name.trim()))?;
        let (here, why) = (found.here.name(), &found.why);
        ensure!(found.change.is_some(), "{} is {here}: {why}. To try here: {known}", found.name);
        chosen.push(found);
    }
    Ok(chosen)
}

/// What several are called together.
pub(crate) const TOGETHER: &str = "together";

/// The configuration of several together; `None`: of fewer than two.
pub(crate) fn together(chosen: &[&Considered]) -> Option<ConfigurationModel> {
    let changes = chosen.iter().filter_map(|of| of.change.as_ref());
    let tls = changes.fold(TlsChange::default(), |all, change| change.over(&all));
    let model = ConfigurationModel { name: TOGETHER.to_owned(), tls, ..ConfigurationModel::default() };
    (chosen.len() > 1).then_some(model)
}

/// OpenSSL's first version with ML-KEM, which its own choice of groups begins with.
const WITH_ML_KEM: [u32; 2] = [3, 5];
/// The first nginx whose own choice of protocols has TLS 1.3.
const SPEAKS_TLS13: [u32; 2] = [1, 24];
/// The hybrid that browsers offer.
const HYBRID: &str = "X25519MLKEM768";

/// All that are known, in the order of what they usually gain. `visitors_return`: the load is of a log, in which they
/// do.
pub(crate) fn considered(reading: &Reading, visitors_return: bool) -> Vec<Considered> {
    let all = [
        Some(keep_alive(reading, visitors_return)),
        Some(p256(reading)),
        Some(group(reading)),
        Some(tls13(reading)),
        Some(tickets(reading, visitors_return)),
        Some(shared_cache(reading, visitors_return)),
        records(reading),
        Some(hybrid(reading)),
        Some(early_data(reading)),
        Some(chain(reading)),
        Some(behind(reading)),
        suites(reading),
        Some(intermediate(reading)),
        Some(modern(reading)),
    ];
    let is_unspoken = unspoken_groups(reading).is_some();
    let measured = |of: Considered| match of.change.is_some() && is_unspoken {
        true => Considered { here: Here::NotMeasured, change: None, ..of },
        false => of,
    };
    let mut all: Vec<Considered> = all.into_iter().flatten().chain(remarks(reading)).map(measured).collect();
    // Here two may come to the same, which is measured once.
    for at in 1..all.len() {
        let (before, of) = all.split_at_mut(at);
        if let Some(same) = before.iter().find(|other| other.change.is_some() && other.change == of[0].change) {
            (of[0].change, of[0].here) = (None, Here::NotMeasured);
            of[0].why = format!("here it changes in CPU time what \"{}\" does", same.name);
        }
    }
    all
}

/// The groups that are taken, where tlsdyno's client speaks none of them, so that nothing can be measured.
pub(crate) fn unspoken_groups(reading: &Reading) -> Option<String> {
    let groups = &reading.facts.groups;
    let known = groups.is_empty() || groups.iter().any(|group| group.parse::<Group>().is_ok());
    (!known).then(|| groups.join(", "))
}

fn keep_alive(reading: &Reading, visitors_return: bool) -> Considered {
    let Facts { keep_alive: [keep, requests], keep_alive_s, .. } = &reading.facts;
    let of = Considered::named("keep-alive", "memory for each open connection");
    let keep = keep_alive_s.map_or_else(|| keep.clone(), |seconds| format!("{seconds}s"));
    let change = TlsChange { keep_alive_s: Some(KEPT_S), ..TlsChange::default() };
    let told = reading.hits_per_handshake().zip(reading.hits_if_kept);
    let by_log =
        told.map(|(now, then)| format!("{keep}: by the log {now:.1} hits a connection, with {KEPT_S}s {then:.1}"));
    match (keep_alive_s, told, by_log) {
        (Some(0), ..) => {
            let why = "connections are not kept: each request pays for a handshake of its own";
            // A patch has the time alone.
            let is_apart = reading.server == ServerName::Nginx && requests == "0";
            let by_hand = if is_apart { "; take `keepalive_requests 0` out" } else { "" };
            Considered { is_apart, ..of.tried(change, format!("{why}{by_hand}")) }
        }
        (_, Some((now, then)), Some(why)) if visitors_return && then > LONGER_GAINS * now => of.tried(change, why),
        (_, _, Some(why)) => of.is(Here::There, why),
        (Some(seconds), ..) if *seconds < KEPT_S => {
            let why =
                format!("{keep}, {requests} requests; whether longer saves handshakes is told by a log (--trace)");
            of.is(Here::NotMeasured, why).written(vec![Setting::KeepAlive(KEPT_S)])
        }
        _ => of.is(Here::There, format!("{keep}, {requests} requests")),
    }
}

/// A connection has to carry so many times the hits for a longer time to be tried.
const LONGER_GAINS: f64 = 1.05;

fn p256(reading: &Reading) -> Considered {
    let name = "ECDSA P-256 certificate";
    let change = TlsChange { certificate: Some(CertificateKind::P256), ..TlsChange::default() };
    let keys: Vec<&Certificate> = reading.known_certificates().collect();
    if let Some(of) = keys.iter().find(|of| of.is_fast()) {
        return Considered::named(name, "")
            .is(Here::There, format!("a {} certificate is shown to whoever takes it", of.key));
    }
    let rsa = keys.iter().find(|of| of.curve_bits.is_none());
    if let Some(curve) = keys.iter().find(|of| of.curve_bits.is_some()) {
        let by_hand = if rsa.is_some() { "; put it in the place of that one, beside the RSA one" } else { "" };
        let of = Considered::named(name, "128 bits of security, where the larger curve has more");
        let of = of.tried(change, format!("the certificate is {}{by_hand}", curve.key));
        return if rsa.is_some() { of.written(Vec::new()) } else { of };
    }
    let why = rsa.map_or("the certificate cannot be read".to_owned(), |rsa| format!("the certificate is {}", rsa.key));
    if reading.server == ServerName::Lighttpd {
        let of = Considered::named(name, "clients before 2014 cannot connect");
        return Considered { is_apart: true, ..of.tried(change, why + "; lighttpd shows one") };
    }
    let file = CertificateFile::beside(&reading.facts.certificates, reading.host.as_deref(), CertificateKind::P256);
    Considered::named(name, "a second certificate to renew; the first stays beside it, for clients before 2014")
        .tried(change, why)
        .written(vec![Setting::AlsoCertificate(file)])
}

/// The groups to write: hybrids that are there, that of browsers where the library has it, and the usual curves. What
/// is there besides stays behind them.
fn groups(reading: &Reading) -> String {
    let there = &reading.facts.groups;
    let hybrids = there.iter().map(String::as_str).filter(|group| group.contains("MLKEM"));
    let own = (reading.openssl() >= Some(WITH_ML_KEM)).then_some(HYBRID);
    let usual = ["X25519", "prime256v1", "secp384r1"];
    let mut groups: Vec<&str> = Vec::new();
    for group in own.into_iter().chain(hybrids).chain(usual).chain(there.iter().map(String::as_str)) {
        let same = |other: &&str| match (group.parse::<Group>(), other.parse::<Group>()) {
            (Ok(group), Ok(other)) => group == other,
            _ => group.eq_ignore_ascii_case(other),
        };
        if !groups.iter().any(same) {
            groups.push(group);
        }
    }
    groups.join(":")
}

fn has_group(reading: &Reading, wanted: Group) -> bool {
    reading.facts.groups.iter().any(|group| group.parse() == Ok(wanted))
}

fn group(reading: &Reading) -> Considered {
    let there = &reading.facts.groups;
    let (name, listed) = ("X25519 for key agreement", there.join(", "));
    if there.is_empty() || has_group(reading, Group::X25519) {
        let why = if there.is_empty() { "OpenSSL's own choice has it".to_owned() } else { listed };
        return Considered::named(name, "").is(Here::There, why);
    }
    let price = match has_group(reading, Group::P256) {
        true => "none",
        false => "128 bits of security for clients that offer no more, where larger curves have 192 and more",
    };
    let unspoken = if unspoken_groups(reading).is_some() { "; tlsdyno's client does not speak it" } else { "" };
    let why = format!("only {listed} is taken: clients that begin with X25519 are asked again{unspoken}");
    let change = TlsChange { group: Some(Group::X25519), ..TlsChange::default() };
    Considered::named(name, price).tried(change, why).written(vec![Setting::Groups(groups(reading))])
}

/// Whether TLS 1.3 is spoken, and why, where that can be told.
fn speaks_tls13(reading: &Reading) -> Result<bool, String> {
    let protocols = &reading.facts.protocols;
    match (protocols.as_slice(), reading.server) {
        ([], ServerName::Nginx) => match reading.nginx() {
            Some(version) => Ok(version >= SPEAKS_TLS13),
            None => Err("ssl_protocols is not set, so that nginx decides; set TLSv1.2 TLSv1.3".to_owned()),
        },
        ([], _) => Ok(true),
        (protocols, _) => Ok(protocols.iter().any(|protocol| protocol == "TLSv1.3")),
    }
}

fn tls13(reading: &Reading) -> Considered {
    let of = Considered::named("TLS 1.3", "none; older clients go on with TLS 1.2");
    let change = TlsChange { version: Some(Version::Tls13), ..TlsChange::default() };
    let only = reading.facts.protocols.join(" and ");
    match speaks_tls13(reading) {
        Ok(true) => of.is(Here::There, "spoken"),
        Ok(false) if only.is_empty() => of.tried(change, "ssl_protocols is not set: this nginx speaks none by itself"),
        Ok(false) => of.tried(change, format!("only {only} is spoken: a handshake takes a round trip more")),
        Err(why) => of.is(Here::NotMeasured, why),
    }
}

fn has_shared_cache(reading: &Reading) -> bool {
    reading.facts.session_cache.contains("shared")
}

fn tickets(reading: &Reading, visitors_return: bool) -> Considered {
    let price = "their keys must be renewed, as who steals one reads what was recorded with TLS 1.2 (BCP 195)";
    let of = Considered::named("session tickets", price);
    let change = TlsChange { tickets: Some(true), ..TlsChange::default() };
    let cache = &reading.facts.session_cache;
    match (reading.facts.tickets, has_shared_cache(reading), visitors_return) {
        (true, ..) => of.is(Here::There, "issued: visitors who come back resume"),
        (false, true, _) => of
            .is(Here::NotMeasured, format!("off; the cache ({cache}) resumes sessions of TLS 1.2 and of TLS 1.3, too")),
        (false, false, true) => of.tried(change, format!("off, and the session cache is {cache}: nobody resumes")),
        (false, false, false) => of.is(Here::NotMeasured, RETURNING),
    }
}

/// Why remedies for visitors who come back are not measured without a log.
const RETURNING: &str = "nobody knows how many visitors come back: name a log with --trace";

fn shared_cache(reading: &Reading, visitors_return: bool) -> Considered {
    let of = Considered::named("shared session cache", "some 250 bytes of memory a session");
    let change = TlsChange { session_cache: Some(SessionCache::Shared), ..TlsChange::default() };
    let cache = &reading.facts.session_cache;
    match (has_shared_cache(reading), reading.facts.tickets, visitors_return) {
        (true, ..) => of.is(Here::There, cache.clone()),
        (false, true, _) => of.is(Here::NotMeasured, "tickets are on, and all clients of today take them"),
        (false, false, true) => of.tried(change, format!("the cache is {cache}, and there are no tickets")),
        (false, false, false) => of.is(Here::NotMeasured, RETURNING),
    }
}

/// Records below this cost too much of a larger answer, bytes.
const SMALL_RECORD: u32 = 4096;
const LARGEST_RECORD: u32 = 16_384;

fn records(reading: &Reading) -> Option<Considered> {
    let bytes = reading.facts.record_bytes.filter(|bytes| *bytes < SMALL_RECORD)?;
    let change = TlsChange { record_bytes: Some(LARGEST_RECORD), ..TlsChange::default() };
    let why = format!("an answer is cut into records of {bytes} bytes, each encrypted and authenticated by itself");
    let price = "the first bytes of a large answer are read later on a slow line";
    Some(Considered::named("TLS records of 16 KB", price).tried(change, why))
}

fn hybrid(reading: &Reading) -> Considered {
    let listed = &reading.facts.groups;
    let price = "no gain in CPU time: what is recorded today cannot be read by quantum computers later";
    let of = Considered::named("hybrid group X25519MLKEM768", price);
    let change = TlsChange { group: Some(Group::X25519MlKem768), ..TlsChange::default() };
    if listed.iter().any(|group| group.contains("MLKEM")) {
        return of.is(Here::There, "offered");
    }
    match reading.openssl() {
        None => of.is(Here::NotMeasured, "the version of its library is not known"),
        Some([major, minor]) if [major, minor] < WITH_ML_KEM => {
            of.is(Here::NotMeasured, format!("OpenSSL {major}.{minor} has no ML-KEM; 3.5 has"))
        }
        Some([major, minor]) if listed.is_empty() => {
            of.is(Here::There, format!("OpenSSL {major}.{minor} offers it by itself"))
        }
        Some(_) => of
            .tried(change, "browsers offer it, and the list of groups lacks it")
            .written(vec![Setting::Groups(groups(reading))]),
    }
}

fn early_data(reading: &Reading) -> Considered {
    let takes_any = driver_of(reading.server).capabilities.is_some_and(|able| able.early_data);
    let price = "such requests can be repeated by whoever records them (RFC 8470): for pages that change nothing";
    let of = Considered::named("early data", price);
    match (reading.facts.early_data, takes_any) {
        (true, _) => of.is(Here::There, "taken"),
        (false, true) => {
            of.is(Here::NotMeasured, "saves visitors who come back a round trip; its CPU time: tlsdyno run remedies")
        }
        (false, false) => of.is(Here::NotMeasured, format!("{} takes none", reading.server.name())),
    }
}

fn chain(reading: &Reading) -> Considered {
    let of = Considered::named("shorter chain", "none");
    match reading.known_certificates().find(|certificate| certificate.sends_root) {
        Some(Certificate { chain: [count, _], .. }) => of
            .is(Here::NotMeasured, format!("a root is sent among {count} certificates: leave it out, clients have it")),
        None => of.is(Here::There, "no root is sent"),
    }
}

fn behind(reading: &Reading) -> Considered {
    let of = Considered::named("keep-alive to the server behind", "some open connections there");
    let how = if reading.server == ServerName::Nginx { ": an upstream with `keepalive` keeps them" } else { "" };
    match reading.facts.passes_on {
        Some(false) => of.is(Here::NotMeasured, format!("each request opens a connection to the server behind{how}")),
        Some(true) => of.is(Here::There, "its connections are kept"),
        None => of.is(Here::There, "nothing is passed on"),
    }
}

/// Those who cannot connect to what the profile *intermediate* leaves.
const OLD_CLIENTS: &str =
    "clients older than Chrome 49, Safari 9, Java 8u161 or Internet Explorer on Windows 10 cannot connect";

fn suites(reading: &Reading) -> Option<Considered> {
    let weak = reading.facts.weak_suites.as_slice();
    let [first, second, ..] = weak else { return None };
    let count = weak.len();
    let why = format!("{count} suites up to TLS 1.2 have no forward secrecy or no AEAD (BCP 195): {first}, {second} …");
    let of = Considered::named("fewer suites", OLD_CLIENTS).is(Here::Remark, why);
    Some(of.written(vec![Setting::Ciphers(INTERMEDIATE_CIPHERS)]))
}

/// The profile for most sites: what a client of today gets of it. It takes nothing away that is stronger: the
/// certificates stay, a hybrid group stays, and who speaks TLS 1.3 alone goes on so.
fn intermediate(reading: &Reading) -> Considered {
    let of = Considered::named("TLSRef (Mozilla) intermediate", OLD_CLIENTS);
    let Facts { protocols, tickets, session_timeout_s, .. } = &reading.facts;
    let speaks = speaks_tls13(reading).unwrap_or(false);
    if protocols.as_slice() == ["TLSv1.3"] {
        return of.is(Here::There, "TLS 1.3 alone is stricter");
    }
    let caches = driver_of(reading.server).capabilities.map_or(&[][..], |able| able.session_caches);
    let lacks_cache = !has_shared_cache(reading) && caches.contains(&SessionCache::Shared);
    let lacks_group = !reading.facts.groups.is_empty() && !has_group(reading, Group::X25519);
    let change = TlsChange {
        version: (!speaks).then_some(Version::Tls13),
        group: lacks_group.then_some(Group::X25519),
        tickets: tickets.then_some(false),
        session_cache: lacks_cache.then_some(SessionCache::Shared),
        ..TlsChange::default()
    };
    let has_versions = protocols.iter().eq(["TLSv1.2", "TLSv1.3"]);
    let has_suites = reading.facts.weak_suites.is_empty() && !reading.facts.ciphers.is_empty();
    let settings = [
        (!has_versions).then_some(Setting::AlsoTls13),
        lacks_group.then(|| Setting::Groups(groups(reading))),
        (!has_suites).then_some(Setting::Ciphers(INTERMEDIATE_CIPHERS)),
        change.session_cache.map(Setting::SessionCache),
        (*session_timeout_s != Some(INTERMEDIATE_SESSION_S)).then_some(Setting::SessionTimeout(INTERMEDIATE_SESSION_S)),
        change.tickets.map(Setting::Tickets),
    ];
    let settings: Vec<Setting> = settings.into_iter().flatten().collect();
    let why = "TLS 1.2 and 1.3, suites with ECDHE and AEAD, sessions in a cache for a day and no tickets; certificates \
               and stronger groups stay";
    let of = match (change == TlsChange::default(), settings.is_empty()) {
        (true, true) => of.is(Here::There, why),
        (true, false) => of.is(Here::Remark, why),
        (false, _) => of.tried(change, why),
    };
    Considered { is_apart: true, ..of.written(settings) }
}

fn modern(reading: &Reading) -> Considered {
    let is_there = reading.facts.protocols == ["TLSv1.3"];
    Considered::named("TLSRef (Mozilla) modern", "clients before 2018 cannot connect").is(
        if is_there { Here::There } else { Here::NotMeasured },
        "TLS 1.3 alone: a client of today gets what it gets beside TLS 1.2",
    )
}

/// Fewer connections at once are few.
const FEW_CONNECTIONS: u32 = 256;
/// A certificate that ends within so many days should be renewed.
const SOON_DAYS: i32 = 14;

/// What costs no CPU time, and its owner should know.
fn remarks(reading: &Reading) -> Vec<Considered> {
    let Facts { http2, workers, connections_count, .. } = &reading.facts;
    let remark = |name: &'static str, why: String| Considered::named(name, "").is(Here::Remark, why);
    let http2 = (!http2).then(|| {
        let why = "off: a browser opens up to six connections to load a page, each with a handshake of its own";
        remark("HTTP/2", why.to_owned())
    });
    let cpus = reading.cpus;
    let workers = workers.filter(|count| (*count as usize) < cpus).map(|count| {
        remark("workers on all CPUs", format!("{count} of this machine's {cpus} CPUs is all that can be used"))
            .written(vec![Setting::Processors(cpus as u32)])
    });
    let connections = connections_count.filter(|count| *count < FEW_CONNECTIONS).map(|count| {
        let why =
            format!("{count} at once, those that are kept without a request among them: who comes then must wait");
        remark("more connections", why)
    });
    let soon = reading.known_certificates().min_by_key(|of| of.days_left).filter(|of| of.days_left < SOON_DAYS);
    let renewal = soon.map(|of| {
        let ends = if of.days_left < 0 { "has ended".to_owned() } else { format!("ends in {} days", of.days_left) };
        remark("renewal of the certificate", format!("the {} certificate {ends}", of.key))
    });
    [http2, workers, connections, renewal].into_iter().flatten().collect()
}

/// The configurations and remedies of an experiment for those that are tried.
pub(crate) fn models(considered: &[Considered]) -> (Vec<ConfigurationModel>, Vec<RemedyModel>) {
    let tried = || considered.iter().filter_map(|of| Some((of.name.to_owned(), of.change.clone()?)));
    let configuration = |(name, tls)| ConfigurationModel { name, tls, ..ConfigurationModel::default() };
    let remedy =
        |(name, _): (String, TlsChange)| RemedyModel { configuration: name.clone(), name, over: None, bound: false };
    (tried().map(configuration).collect(), tried().map(remedy).collect())
}

#[cfg(test)]
mod tests;
