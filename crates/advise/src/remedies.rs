//! What could be changed: what is tried, what is there already, and what cannot be told here.

use anyhow::{Context, Result, ensure};
use tlsdyno_base::units::format_of;
use tlsdyno_installed::Facts;
use tlsdyno_record::model::remedy::KEPT_S;
use tlsdyno_record::model::{
    CertificateKind, ConfigurationModel, RemedyId, RemedyModel, ServerName, SessionCache, TlsChange,
};
use tlsdyno_servers::directives::{self, CertificateFile, Setting};
use tlsdyno_servers::driver_of;
use tlsdyno_tls::{Group, Version};

use crate::certificate::Certificate;
use crate::reading::Reading;
use crate::record::{ConsideredModel, Here};
use crate::rules::{INTERMEDIATE_CIPHERS, INTERMEDIATE_SESSION_S};

/// A remedy, and its outcome on this server.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Considered {
    pub id: RemedyId,
    pub here: Here,
    /// Reason for the outcome.
    pub why: String,
    /// Price in security, memory or old clients.
    pub price: &'static str,
    /// The change that is measured; `None`: not measured.
    pub change: Option<TlsChange>,
    /// What the operator writes in the configuration.
    pub settings: Vec<Setting>,
    /// A patch contains it only where it is requested by name.
    pub is_apart: bool,
}

impl Considered {
    fn new(id: RemedyId) -> Considered {
        let (price, settings) = (id.remedy().price, Vec::new());
        Considered { id, here: Here::There, why: String::new(), price, change: None, settings, is_apart: false }
    }

    /// Replaces the usual price.
    fn priced(self, price: &'static str) -> Considered {
        Considered { price, ..self }
    }

    pub fn title(&self) -> &'static str {
        self.id.remedy().title
    }

    /// Sets the outcome with its reason.
    fn is(self, here: Here, why: impl Into<String>) -> Considered {
        Considered { here, why: why.into(), ..self }
    }

    fn tried(self, why: impl Into<String>) -> Considered {
        let change = self.id.remedy().change.clone();
        self.changed(change, why)
    }

    fn changed(self, change: TlsChange, why: impl Into<String>) -> Considered {
        let settings = Setting::of_change(&change);
        Considered { change: Some(change), settings, ..self.is(Here::ToTry, why) }
    }

    fn written(self, settings: Vec<Setting>) -> Considered {
        Considered { settings, ..self }
    }

    pub fn lines(&self, server: ServerName) -> Vec<String> {
        self.settings.iter().flat_map(|setting| directives::lines(server, setting.clone())).collect()
    }

    pub fn model(&self, server: ServerName) -> ConsideredModel {
        ConsideredModel {
            id: Some(self.id),
            name: self.title().to_owned(),
            here: self.here,
            why: self.why.clone(),
            price: self.price.to_owned(),
            lines: self.lines(server),
        }
    }

    /// `asked` is its id, or each word of `asked` is in its title.
    fn is_called(&self, asked: &str) -> bool {
        let title = self.title().to_ascii_lowercase();
        let mut words = asked.split_whitespace().map(str::to_ascii_lowercase).peekable();
        self.id.name() == asked.trim() || words.peek().is_some() && words.all(|word| title.contains(&word))
    }
}

pub(crate) fn chosen<'a>(considered: &'a [Considered], names: &[String]) -> Result<Vec<&'a Considered>> {
    let mut chosen = Vec::new();
    for name in names {
        let tried = || considered.iter().filter(|of| of.change.is_some());
        let known = tried().map(Considered::title).collect::<Vec<_>>().join(", ");
        let found = considered.iter().find(|of| of.is_called(name));
        let found = found.with_context(|| format!("`{}` names no remedy; to try here: {known}", name.trim()))?;
        let (here, why) = (found.here.name(), &found.why);
        ensure!(found.change.is_some(), "{} is {here}: {why}. To try here: {known}", found.title());
        chosen.push(found);
    }
    Ok(chosen)
}

/// The configuration of several remedies together; `None`: fewer than two.
pub(crate) fn together(chosen: &[&Considered]) -> Option<ConfigurationModel> {
    let changes = chosen.iter().filter_map(|of| of.change.as_ref());
    let tls = changes.fold(TlsChange::default(), |all, change| change.over(&all));
    let model = ConfigurationModel { name: "together".to_owned(), tls, ..ConfigurationModel::default() };
    (chosen.len() > 1).then_some(model)
}

/// First version of OpenSSL with ML-KEM, which its default groups begin with.
const WITH_ML_KEM: [u32; 2] = [3, 5];
/// First version of nginx whose default protocols include TLS 1.3.
const SPEAKS_TLS13: [u32; 2] = [1, 24];
/// The hybrid group that browsers offer.
const HYBRID: &str = "X25519MLKEM768";

/// All known remedies, in the order of their usual gain. `visitors_return`: the load follows a log, in which visitors
/// return.
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
            of[0].why = format!("here it changes in CPU time what \"{}\" does", same.title());
        }
    }
    all
}

/// The groups that the server takes, if tlsdyno's client speaks none of them, so that nothing can be measured.
pub(crate) fn unspoken_groups(reading: &Reading) -> Option<String> {
    let groups = &reading.facts.groups;
    let known = groups.is_empty() || groups.iter().any(|group| group.parse::<Group>().is_ok());
    (!known).then(|| groups.join(", "))
}

fn keep_alive(reading: &Reading, visitors_return: bool) -> Considered {
    let Facts { keep_alive: [keep, requests], keep_alive_s, .. } = &reading.facts;
    let of = Considered::new(RemedyId::KeepAlive);
    let keep = keep_alive_s.map_or_else(|| keep.clone(), |seconds| format!("{seconds}s"));
    let told = reading.hits_per_handshake().zip(reading.hits_if_kept);
    let by_log =
        told.map(|(now, then)| format!("{keep}: by the log {now:.1} hits a connection, with {KEPT_S}s {then:.1}"));
    match (keep_alive_s, told, by_log) {
        (Some(0), ..) => {
            let why = "connections are not kept: each request pays for a handshake of its own";
            // A patch has the time alone.
            let is_apart = reading.server == ServerName::Nginx && requests == "0";
            let by_hand = if is_apart { "; take `keepalive_requests 0` out" } else { "" };
            Considered { is_apart, ..of.tried(format!("{why}{by_hand}")) }
        }
        (_, Some((now, then)), Some(why)) if visitors_return && then > LONGER_GAINS * now => of.tried(why),
        (_, _, Some(why)) => of.is(Here::There, why),
        (Some(seconds), ..) if *seconds < KEPT_S => {
            let why =
                format!("{keep}, {requests} requests; whether longer saves handshakes is told by a log (--trace)");
            of.is(Here::NotMeasured, why).written(vec![Setting::KeepAlive(KEPT_S)])
        }
        _ => of.is(Here::There, format!("{keep}, {requests} requests")),
    }
}

/// Minimum ratio of hits per connection for a longer keep-alive time to be tried.
const LONGER_GAINS: f64 = 1.05;

fn p256(reading: &Reading) -> Considered {
    let considered = Considered::new(RemedyId::EcdsaCertificate);
    let keys: Vec<&Certificate> = reading.known_certificates().collect();
    if let Some(of) = keys.iter().find(|of| of.is_fast()) {
        let why = format!("a {} certificate is shown to whoever takes it", of.key);
        return considered.priced("").is(Here::There, why);
    }
    let rsa = keys.iter().find(|of| of.curve_bits.is_none());
    if let Some(curve) = keys.iter().find(|of| of.curve_bits.is_some()) {
        let by_hand = if rsa.is_some() { "; put it in the place of that one, beside the RSA one" } else { "" };
        let of = considered.priced("128 bits of security, where the larger curve has more");
        let of = of.tried(format!("the certificate is {}{by_hand}", curve.key));
        return if rsa.is_some() { of.written(Vec::new()) } else { of };
    }
    let why = rsa.map_or("the certificate cannot be read".to_owned(), |rsa| format!("the certificate is {}", rsa.key));
    if reading.server == ServerName::Lighttpd {
        let of = considered.priced("clients before 2014 cannot connect");
        return Considered { is_apart: true, ..of.tried(why + "; lighttpd shows one") };
    }
    let file = CertificateFile::beside(&reading.facts.certificates, reading.host.as_deref(), CertificateKind::P256);
    considered.tried(why).written(vec![Setting::AlsoCertificate(file)])
}

/// The groups to write: hybrids in the configuration, the browsers' hybrid if the library has it, the usual curves,
/// then the configuration's others.
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
    let (considered, listed) = (Considered::new(RemedyId::X25519), there.join(", "));
    if there.is_empty() || has_group(reading, Group::X25519) {
        let why = if there.is_empty() { "OpenSSL's own choice has it".to_owned() } else { listed };
        return considered.priced("").is(Here::There, why);
    }
    let considered = if has_group(reading, Group::P256) { considered.priced("none") } else { considered };
    let unspoken = if unspoken_groups(reading).is_some() { "; tlsdyno's client does not speak it" } else { "" };
    let why = format!("only {listed} is taken: clients that begin with X25519 are asked again{unspoken}");
    considered.tried(why).written(vec![Setting::Groups(groups(reading))])
}

/// Whether the server speaks TLS 1.3, with the reason.
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
    let of = Considered::new(RemedyId::Tls13);
    let only = reading.facts.protocols.join(" and ");
    match speaks_tls13(reading) {
        Ok(true) => of.is(Here::There, "spoken"),
        Ok(false) if only.is_empty() => of.tried("ssl_protocols is not set: this nginx speaks none by itself"),
        Ok(false) => of.tried(format!("only {only} is spoken: a handshake takes a round trip more")),
        Err(why) => of.is(Here::NotMeasured, why),
    }
}

fn has_shared_cache(reading: &Reading) -> bool {
    reading.facts.session_cache.contains("shared")
}

fn tickets(reading: &Reading, visitors_return: bool) -> Considered {
    let of = Considered::new(RemedyId::Tickets);
    let cache = &reading.facts.session_cache;
    match (reading.facts.tickets, has_shared_cache(reading), visitors_return) {
        (true, ..) => of.is(Here::There, "issued: visitors who come back resume"),
        (false, true, _) => of
            .is(Here::NotMeasured, format!("off; the cache ({cache}) resumes sessions of TLS 1.2 and of TLS 1.3, too")),
        (false, false, true) => of.tried(format!("off, and the session cache is {cache}: nobody resumes")),
        (false, false, false) => of.is(Here::NotMeasured, RETURNING),
    }
}

/// Reason why remedies for returning visitors are not measured without a log.
const RETURNING: &str = "nobody knows how many visitors come back: name a log with --trace";

fn shared_cache(reading: &Reading, visitors_return: bool) -> Considered {
    let of = Considered::new(RemedyId::SharedCache);
    let cache = &reading.facts.session_cache;
    match (has_shared_cache(reading), reading.facts.tickets, visitors_return) {
        (true, ..) => of.is(Here::There, cache.clone()),
        (false, true, _) => of.is(Here::NotMeasured, "tickets are on, and all clients of today take them"),
        (false, false, true) => of.tried(format!("the cache is {cache}, and there are no tickets")),
        (false, false, false) => of.is(Here::NotMeasured, RETURNING),
    }
}

/// Record size below which a larger answer costs too much CPU time, bytes.
const SMALL_RECORD: u32 = 4096;

fn records(reading: &Reading) -> Option<Considered> {
    let bytes = reading.facts.record_bytes.filter(|bytes| *bytes < SMALL_RECORD)?;
    let why = format!("an answer is cut into records of {bytes} bytes, each encrypted and authenticated by itself");
    Some(Considered::new(RemedyId::LargeRecords).tried(why))
}

fn hybrid(reading: &Reading) -> Considered {
    let listed = &reading.facts.groups;
    let of = Considered::new(RemedyId::HybridGroup);
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
            .tried("browsers offer it, and the list of groups lacks it")
            .written(vec![Setting::Groups(groups(reading))]),
    }
}

fn early_data(reading: &Reading) -> Considered {
    let takes_any = driver_of(reading.server).capabilities.is_some_and(|able| able.early_data);
    let of = Considered::new(RemedyId::EarlyData);
    match (reading.facts.early_data, takes_any) {
        (true, _) => of.is(Here::There, "taken"),
        (false, true) => {
            of.is(Here::NotMeasured, "saves visitors who come back a round trip; its CPU time: tlsdyno run remedies")
        }
        (false, false) => of.is(Here::NotMeasured, format!("{} takes none", reading.server.name())),
    }
}

fn chain(reading: &Reading) -> Considered {
    let of = Considered::new(RemedyId::ShorterChain);
    match reading.known_certificates().find(|certificate| certificate.sends_root) {
        Some(Certificate { chain: [count, _], .. }) => of
            .is(Here::NotMeasured, format!("a root is sent among {count} certificates: leave it out, clients have it")),
        None => of.is(Here::There, "no root is sent"),
    }
}

fn behind(reading: &Reading) -> Considered {
    let of = Considered::new(RemedyId::KeepAliveBehind);
    let how = if reading.server == ServerName::Nginx { ": an upstream with `keepalive` keeps them" } else { "" };
    match reading.facts.passes_on {
        Some(false) => of.is(Here::NotMeasured, format!("each request opens a connection to the server behind{how}")),
        Some(true) => of.is(Here::There, "its connections are kept"),
        None => of.is(Here::There, "nothing is passed on"),
    }
}

fn suites(reading: &Reading) -> Option<Considered> {
    let weak = reading.facts.weak_suites.as_slice();
    let [first, second, ..] = weak else { return None };
    let count = weak.len();
    let why = format!("{count} suites up to TLS 1.2 have no forward secrecy or no AEAD (BCP 195): {first}, {second} …");
    let of = Considered::new(RemedyId::FewerSuites).is(Here::Remark, why);
    Some(of.written(vec![Setting::Ciphers(INTERMEDIATE_CIPHERS)]))
}

/// The profile *intermediate* for most sites, as a client of today sees it. It removes nothing that is stronger:
/// certificates and hybrid groups stay, and a server of TLS 1.3 only stays one.
fn intermediate(reading: &Reading) -> Considered {
    let of = Considered::new(RemedyId::Intermediate);
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
        (false, _) => of.changed(change, why),
    };
    Considered { is_apart: true, ..of.written(settings) }
}

fn modern(reading: &Reading) -> Considered {
    let is_there = reading.facts.protocols == ["TLSv1.3"];
    Considered::new(RemedyId::Modern).is(
        if is_there { Here::There } else { Here::NotMeasured },
        "TLS 1.3 alone: a client of today gets what it gets beside TLS 1.2",
    )
}

/// A limit of concurrent connections below this is low.
const FEW_CONNECTIONS: u32 = 256;
/// A certificate that expires within so many days should be renewed.
const SOON_DAYS: i32 = 14;

/// Remarks for the server's owner that save no CPU time.
fn remarks(reading: &Reading) -> Vec<Considered> {
    let Facts { http2, workers, connections_count, .. } = &reading.facts;
    let remark = |id, why: String| Considered::new(id).is(Here::Remark, why);
    let http2 = (!http2).then(|| {
        let why = "off: a browser opens up to six connections to load a page, each with a handshake of its own";
        remark(RemedyId::Http2, why.to_owned())
    });
    let cpus = reading.cpus;
    let workers = workers.filter(|count| (*count as usize) < cpus).map(|count| {
        remark(RemedyId::Workers, format!("{count} of this machine's {cpus} CPUs is all that can be used"))
            .written(vec![Setting::Processors(cpus as u32)])
    });
    let connections = connections_count.filter(|count| *count < FEW_CONNECTIONS).map(|count| {
        let why =
            format!("{count} at once, those that are kept without a request among them: who comes then must wait");
        remark(RemedyId::MoreConnections, why)
    });
    let soon = reading.known_certificates().min_by_key(|of| of.days_left).filter(|of| of.days_left < SOON_DAYS);
    let renewal = soon.map(|of| {
        let ends = if of.days_left < 0 {
            "has ended".to_owned()
        } else {
            format!("ends in {}", format_of(of.days_left as f64, "day"))
        };
        remark(RemedyId::Renewal, format!("the {} certificate {ends}", of.key))
    });
    [http2, workers, connections, renewal].into_iter().flatten().collect()
}

/// Configurations and remedies of an experiment, for the remedies that are tried.
pub(crate) fn models(considered: &[Considered]) -> (Vec<ConfigurationModel>, Vec<RemedyModel>) {
    let tried = || considered.iter().filter_map(|of| Some((of, of.change.clone()?)));
    let name = |of: &Considered| of.title().to_owned();
    let configuration = |(of, tls)| ConfigurationModel { name: name(of), tls, ..ConfigurationModel::default() };
    let remedy = |(of, _): (&Considered, TlsChange)| {
        let (id, configuration) = (of.id.name().to_owned(), name(of));
        RemedyModel { name: id, configuration, over: None, bound: false }
    };
    (tried().map(configuration).collect(), tried().map(remedy).collect())
}

#[cfg(test)]
mod tests;
