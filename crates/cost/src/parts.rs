//! What steps differ in: the parts of a connection, and what another choice would cost.

use serde::Serialize;
use tlsdyno_base::bootstrap::{Column, Estimate};
use tlsdyno_base::verdict::Direction;
use tlsdyno_stats::rows::Rows;
use tlsdyno_tls::{Group, Version};

use crate::Measured;
use crate::steps::{COMPRESSED, MORE_REQUESTS, Step};

/// What steps differ in.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PartCost {
    /// What it is.
    pub part: String,
    /// What it belongs to.
    pub kind: PartKind,
    /// How it follows from the steps.
    pub of: String,
    /// Server CPU, nanoseconds.
    pub cost_ns: Estimate,
}

/// What a part belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum PartKind {
    /// The life of a whole connection: these add up to it.
    Life,
    /// What is more than a part of that life, or in none.
    Beside,
    /// What another choice would cost more.
    Choice,
}

/// A whole handshake, without TCP.
pub const FULL: &str = "full handshake";
/// The same where a session is resumed.
pub const RESUMED: &str = "resumed handshake";
/// The next request on a connection.
pub const NEXT: &str = "next request on the connection";
/// The certificate, and the signature behind it.
pub const SIGNATURE: &str = "certificate and signature";
/// The server's half of the key agreement: its key pair, and the shared secret.
pub const KEY_AGREEMENT: &str = "key agreement";
/// What follows it in the server's first flight but for certificate and signature.
const KEY_SCHEDULE: &str = "key schedule and encryption of its messages";
/// Both, where nothing tells them apart.
pub const TOGETHER: &str = "key agreement and key schedule, together";

/// How the name of a part ends that nothing takes apart.
pub const JOINED: &str = ", together";

/// Steps by which key agreement is told apart.
const HELLO: &str = "TLS 1.3, hello without a usable suite";
const UNSIGNED: &str = "TLS 1.3, hello without a usable signature";
/// The step that ends behind a multiplication.
pub const ZERO: &str = "TLS 1.3, hello whose share gives no secret";
const RESUMED_FLIGHT: &str = "TLS 1.3, resumed, server's flight";

/// A part as a sum of steps.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Part {
    pub name: String,
    pub kind: PartKind,
    terms: Vec<(f64, String)>,
}

/// A server, and what its steps cost in each of the rows.
pub(crate) type Seen<'a> = (&'a Measured, &'a [Column]);

impl Part {
    fn of(kind: PartKind, name: impl Into<String>, terms: &[(f64, &str)]) -> Part {
        let terms = terms.iter().map(|(weight, step)| (*weight, (*step).to_owned())).collect();
        Part { name: name.into(), kind, terms }
    }

    fn difference(kind: PartKind, name: impl Into<String>, [more, less]: [&str; 2]) -> Part {
        Part::of(kind, name, &[(1.0, more), (-1.0, less)])
    }

    /// What it costs in each row; `None`: not all its steps were measured.
    pub fn columns<'a>(&self, (measured, columns): Seen<'a>) -> Option<Vec<(&'a Column, f64)>> {
        let column = |name: &str| columns.get(measured.steps.iter().position(|step| step.name == name)?);
        self.terms.iter().map(|(weight, name)| Some((column(name)?, *weight))).collect()
    }

    /// Whether it costs less than nothing for certain, which no part of a connection's life does.
    fn is_impossible(&self, server: Seen, rows: &Rows) -> bool {
        let costs = |terms: Vec<_>| rows.estimate_sum(&terms).direction();
        self.kind == PartKind::Life && self.columns(server).map(costs) == Some(Direction::Smaller)
    }

    fn told(&self) -> String {
        let term = |(weight, name): &(f64, String)| format!("{} {name}", if *weight > 0.0 { "+" } else { "−" });
        self.terms.iter().map(term).collect::<Vec<_>>().join(" ").trim_start_matches("+ ").to_owned()
    }
}

/// The parts of the connections of each server, the same ones where there are two.
pub(crate) fn decomposed(servers: &[Seen], rows: &Rows) -> Vec<Vec<Part>> {
    let with = |agreement| servers.iter().map(|(measured, _)| all(measured, agreement)).collect::<Vec<_>>();
    let of_server = |(server, parts): (&Seen, &Vec<Part>)| {
        parts.iter().find(|part| part.is_impossible(*server, rows)).map(|part| part.name.clone())
    };
    let impossible = |parts: &[Vec<Part>]| servers.iter().zip(parts).find_map(of_server);
    let found: Vec<Agreement> = servers.iter().map(|server| Agreement::of(*server, rows)).collect();
    let agreement = found.first().copied().filter(|first| found.iter().all(|other| other == first));
    let mut parts = with(agreement.unwrap_or(Agreement::Unknown));
    if impossible(&parts).is_some_and(|name| [KEY_AGREEMENT, KEY_SCHEDULE].contains(&name.as_str())) {
        parts = with(Agreement::Unknown);
    }
    // A step ended somewhere else in the server's work than was thought: the two lines that it divides are one.
    while let Some(name) = impossible(&parts)
        && parts.iter_mut().filter_map(|of| join(of, &name)).count() > 0
    {}
    parts
}

/// Joins the part of this name with the one that follows in the life of a connection, the last with the one before.
fn join(parts: &mut Vec<Part>, name: &str) -> Option<()> {
    let at = parts.iter().position(|part| part.name == name)?;
    let life = parts.iter().filter(|part| part.kind == PartKind::Life).count();
    let first = if at + 1 < life { at } else { at.checked_sub(1)? };
    let second = parts.remove(first + 1);
    let Part { name, terms, .. } = &mut parts[first];
    *name = format!("{}, {}{JOINED}", name.trim_end_matches(JOINED), second.name.trim_end_matches(JOINED));
    // The step between them goes.
    let ended: Vec<(f64, String)> = second.terms.iter().map(|(weight, step)| (-weight, step.clone())).collect();
    let begun = std::mem::take(terms);
    terms.extend(begun.iter().filter(|term| !ended.contains(term)).cloned());
    terms.extend(second.terms.into_iter().filter(|(weight, step)| !begun.contains(&(-weight, step.clone()))));
    Some(())
}

/// What the parts of a server cost.
pub(crate) fn costs(server: Seen, parts: &[Part], rows: &Rows) -> Vec<PartCost> {
    let cost = |part: &Part| {
        let cost_ns = rows.estimate_sum(&part.columns(server)?);
        let cost = PartCost { of: part.told(), part: part.name.clone(), kind: part.kind, cost_ns };
        cost_ns.value.is_finite().then_some(cost)
    };
    parts.iter().filter_map(cost).collect()
}

/// Parts whose steps the server takes, and had no turn in the same round.
pub(crate) fn unmeasured(server: Seen, parts: &[Part], rows: &Rows) -> Vec<String> {
    let is_untold = |terms: Vec<_>| !rows.estimate_sum(&terms).value.is_finite();
    parts.iter().filter(|part| part.columns(server).is_some_and(is_untold)).map(|part| part.name.clone()).collect()
}

/// What tells key agreement apart from the key schedule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Agreement {
    /// The server agrees before it looks for a signature that the client takes: a hello without one costs more by a
    /// dearer group.
    First,
    /// It looks for a signature first, and finds that a share gives no secret after its multiplication, as RFC 7748
    /// section 6.1 has it: such a hello costs more than one without a usable signature, and less than what follows.
    ByZero,
    /// Nothing that is certain.
    Unknown,
}

impl Agreement {
    fn of(server: Seen, rows: &Rows) -> Agreement {
        let [unsigned, unsigned_p384, zero, flight, flight_p384, resumed] = [
            UNSIGNED,
            "TLS 1.3, hello without a usable signature, P-384",
            ZERO,
            "TLS 1.3, server's flight",
            "TLS 1.3, server's flight, P-384",
            RESUMED_FLIGHT,
        ];
        let direction = |terms: &[(f64, &str)]| {
            let sum = Part::of(PartKind::Beside, "", terms).columns(server)?;
            Some(rows.estimate_sum(&sum).direction())
        };
        // By more than half of what the group costs more where the handshake goes on.
        let excess = [(1.0, unsigned_p384), (-1.0, unsigned), (-0.5, flight_p384), (0.5, flight)];
        // A server may look up a certificate in between, which a share without a secret does not come to: that is no
        // key agreement, and is by more than a quarter of it dearer.
        let lookup = [(1.0, unsigned), (-1.25, zero), (0.25, HELLO)];
        if direction(&excess) == Some(Direction::Bigger) {
            let is_other_work = direction(&lookup) == Some(Direction::Bigger);
            return if is_other_work { Agreement::Unknown } else { Agreement::First };
        }
        let of_zero = direction(&[(1.0, zero), (-1.0, unsigned)]);
        let rest = direction(&[(1.0, resumed), (-1.0, zero)]);
        match of_zero == Some(Direction::Bigger) && rest == Some(Direction::Bigger) {
            true => Agreement::ByZero,
            false => Agreement::Unknown,
        }
    }
}

/// All parts that these steps could tell of.
fn all(measured: &Measured, agreement: Agreement) -> Vec<Part> {
    let whole = &measured.whole;
    let version = &whole[..whole.find(',').unwrap_or_default()];
    let resumes = !measured.refused.iter().any(|(step, _)| step == RESUMED_FLIGHT);
    let mut all = if version == "TLS 1.3" { life(agreement, resumes) } else { life_of_old() };
    all.retain(|part| !measured.refused.iter().any(|(step, _)| part.terms.iter().any(|(_, name)| name == step)));
    let is_retried = measured.group.is_some_and(|group| group != Group::X25519);
    all.extend(beside(version, is_retried));
    let suite = measured.suite.map_or("AES-128".to_owned(), |suite| suite.to_string());
    all.extend(requests(&measured.steps, version, &suite));
    all.extend(choices(&measured.steps, measured.group.unwrap_or(Group::X25519), &suite));
    all.sort_by_key(|part| part.kind);
    all
}

/// `resumes`: the server does, which is what tells the signature from the rest.
fn life(agreement: Agreement, resumes: bool) -> Vec<Part> {
    let of = |name: &str, steps: [&str; 2]| Part::difference(PartKind::Life, name, steps);
    let [hello, unsigned, zero, resumed, flight, handshake, request] =
        [HELLO, UNSIGNED, ZERO, RESUMED_FLIGHT, "TLS 1.3, server's flight", "TLS 1.3, handshake", "TLS 1.3, request"];
    let mut life = vec![Part::of(PartKind::Life, "accepting and closing", &[(1.0, "TCP")])];
    life.push(of("reading the hello", [hello, "TCP"]));
    match agreement {
        _ if !resumes => life.push(of("key agreement, certificate and signature, together", [flight, hello])),
        Agreement::First => {
            life.push(of(KEY_AGREEMENT, [unsigned, hello]));
            life.push(of(KEY_SCHEDULE, [resumed, unsigned]));
        }
        Agreement::ByZero => {
            let rest = [(1.0, resumed), (-1.0, hello), (-1.0, zero), (1.0, unsigned)];
            life.push(of(KEY_AGREEMENT, [zero, unsigned]));
            life.push(Part::of(PartKind::Life, KEY_SCHEDULE, &rest));
        }
        Agreement::Unknown => life.push(of(TOGETHER, [resumed, hello])),
    }
    life.extend(resumes.then(|| of(SIGNATURE, [flight, resumed])));
    life.push(of("client's Finished, tickets", [handshake, flight]));
    life.push(of("the request", [request, handshake]));
    life
}

fn life_of_old() -> Vec<Part> {
    let of = |name: &str, steps: [&str; 2]| Part::difference(PartKind::Life, name, steps);
    let [hello, flight, handshake, request] =
        ["TLS 1.2, hello without a usable suite", "TLS 1.2, server's flight", "TLS 1.2, handshake", "TLS 1.2, request"];
    vec![
        Part::of(PartKind::Life, "accepting and closing", &[(1.0, "TCP")]),
        of("reading the hello", [hello, "TCP"]),
        of("key share, certificate and signature", [flight, hello]),
        of("key agreement, key schedule, Finished", [handshake, flight]),
        of("the request", [request, handshake]),
    ]
}

fn beside(version: &str, is_retried: bool) -> Vec<Part> {
    let of = |name: String, steps: [&str; 2]| Part::difference(PartKind::Beside, name, steps);
    let handshakes = |version: &str, of_old: &str| {
        let [full, resumed] = ["handshake", "resumed, handshake"].map(|name| format!("{version}, {name}"));
        [
            of(format!("{FULL}{of_old}"), [&full, "TCP"]),
            of(format!("{RESUMED}{of_old}"), [&resumed, "TCP"]),
            of(format!("saved by resumption{of_old}"), [&full, &resumed]),
        ]
    };
    let mut beside = Vec::from(handshakes(version, ""));
    if version == "TLS 1.3" {
        beside.extend(handshakes("TLS 1.2", ", TLS 1.2"));
        let retry = ["TLS 1.3, server's flight after a retry", "TLS 1.3, server's flight"];
        beside.extend((!is_retried).then(|| of("a second hello (HelloRetryRequest)".to_owned(), retry)));
    }
    beside
}

/// What requests on a kept connection cost, page by page; without TLS; by another cipher than the `usual` one.
fn requests(steps: &[Step], primary: &str, usual: &str) -> Vec<Part> {
    let each = 1.0 / f64::from(MORE_REQUESTS);
    let is_mate = |of: &Step, step: &Step, more: u32| {
        of.version == step.version
            && of.page == step.page
            && of.suite.is_none()
            && of.more_requests == more
            && of.reach == step.reach
            && of.resumes.is_none()
    };
    let mate = |step: &Step, more| steps.iter().find(|of| is_mate(of, step, more)).map(|of| of.name.as_str());
    let part = |step: &Step| -> Option<Vec<Part>> {
        let page = if step.page.is_empty() { String::new() } else { format!(", {}", step.page) };
        let many = mate(step, MORE_REQUESTS)?;
        if let Some(suite) = step.suite {
            let each = 1.0 / f64::from(MORE_REQUESTS + 1);
            let name = format!("{suite} in place of {usual}, each request{page}");
            return Some(vec![Part::of(PartKind::Choice, name, &[(each, &step.name), (-each, many)])]);
        }
        let next = [(each, many), (-each, mate(step, 0)?)];
        let Some(version) = step.version else {
            let name = format!("next request without TLS{page}");
            let version = Version::ALL.into_iter().find(|version| primary == format!("TLS {version}"));
            let with_tls = Step { version, ..step.clone() };
            let tls = [(each, mate(&with_tls, MORE_REQUESTS)?), (-each, mate(&with_tls, 0)?)];
            let less = next.map(|(weight, name)| (-weight, name));
            let of_tls = Part::of(PartKind::Beside, format!("TLS in the next request{page}"), &[tls, less].concat());
            return Some(vec![Part::of(PartKind::Beside, name, &next), of_tls]);
        };
        let version = format!("TLS {version}");
        let other = if version == primary { String::new() } else { format!(", {version}") };
        Some(vec![Part::of(PartKind::Beside, format!("{NEXT}{other}{page}"), &next)])
    };
    steps.iter().filter(|step| step.more_requests > 0).filter_map(part).flatten().collect()
}

/// What another choice would cost more. `usual`: the group that the server agrees on; `usual_suite`: what its suite is
/// called.
fn choices(steps: &[Step], usual: Group, usual_suite: &str) -> Vec<Part> {
    let of = |name: String, steps: [&str; 2]| Part::difference(PartKind::Choice, name, steps);
    let flight = "TLS 1.3, server's flight";
    let of_step = |step: &Step| match (step.group, step.suite, step.more_requests) {
        (Some(group), _, _) if step.lack.is_none() => {
            let name = match usual {
                Group::X25519 => format!("{group} in place of X25519"),
                _ if group == usual => format!("a client that offers {group} first, and needs no second hello"),
                _ => format!("{group} in place of {usual} by a second hello"),
            };
            Some(of(name, [&step.name, flight]))
        }
        (_, Some(suite), 0) => Some(of(format!("{suite} in place of {usual_suite}"), [&step.name, "TLS 1.3, request"])),
        _ => None,
    };
    let mut choices: Vec<Part> = steps.iter().filter_map(of_step).collect();
    let [rsa, ecdsa] = ["RSA", "ECDSA"].map(|signer| format!("{flight}, {signer} certificate"));
    choices.push(of("its RSA certificate in place of its ECDSA one".to_owned(), [&rsa, &ecdsa]));
    choices.push(of("its certificate compressed by zlib".to_owned(), [COMPRESSED, flight]));
    let early = ["TLS 1.3, resumed, early data", "TLS 1.3, resumed, request"];
    choices.push(of("the request as early data".to_owned(), early));
    let by_key = ["TLS 1.3, resumed without a key agreement, handshake", "TLS 1.3, resumed, handshake"];
    choices.push(of("resumption without a key agreement (psk_ke)".to_owned(), by_key));
    let by_id = ["TLS 1.2, resumed by ID, handshake", "TLS 1.2, resumed, handshake"];
    choices.push(of("a session by ID in place of a ticket, TLS 1.2".to_owned(), by_id));
    choices
}

#[cfg(test)]
pub(crate) mod tests {
    use std::collections::BTreeMap;

    use tlsdyno_base::random::SplitMix64;
    use tlsdyno_stats::rows::Sliced;

    use super::*;

    pub(crate) fn measured(whole: &str) -> Measured {
        let version = Version::ALL.into_iter().find(|version| whole.starts_with(&format!("TLS {version}")));
        let steps = Step::all(version.unwrap(), &["/large".to_owned()], true);
        Measured { whole: whole.to_owned(), steps, ..Measured::default() }
    }

    /// Every step with a cost of its own, the same in all rounds.
    pub(crate) fn columns(measured: &Measured, cost: impl Fn(&Step) -> f64) -> Vec<Column> {
        measured.steps.iter().map(|step| vec![Some(cost(step)); 8]).collect()
    }

    #[test]
    fn parts_are_of_steps_that_there_are() {
        for whole in ["TLS 1.3, request", "TLS 1.2, request"] {
            let measured = measured(whole);
            let mut names: Vec<&str> = measured.steps.iter().map(|step| step.name.as_str()).collect();
            for part in all(&measured, Agreement::First) {
                // TLS 1.3 does not exist where 1.2 is spoken.
                let of_today =
                    |(_, step): &&(f64, String)| !(whole.starts_with("TLS 1.2") && step.starts_with("TLS 1.3"));
                for (_, step) in part.terms.iter().filter(of_today) {
                    assert!(names.contains(&step.as_str()), "{}: {step}", part.name);
                }
            }
            names.sort_unstable();
            names.dedup();
            assert_eq!(names.len(), measured.steps.len(), "two steps have one name");
        }
    }

    #[test]
    fn the_life_of_a_connection_adds_up_to_it() {
        for (whole, agreement, refused) in [
            ("TLS 1.3, request", Agreement::First, None),
            ("TLS 1.3, request", Agreement::First, Some(RESUMED_FLIGHT)),
            ("TLS 1.3, request", Agreement::ByZero, None),
            ("TLS 1.3, request", Agreement::Unknown, None),
            ("TLS 1.2, request", Agreement::Unknown, None),
        ] {
            let refused = refused.map(|step| (step.to_owned(), String::new())).into_iter().collect();
            let measured = Measured { refused, ..measured(whole) };
            let mut sum = BTreeMap::new();
            for part in all(&measured, agreement).iter().filter(|part| part.kind == PartKind::Life) {
                part.terms.iter().for_each(|(weight, name)| *sum.entry(name.clone()).or_insert(0.0) += weight);
            }
            sum.retain(|_, weight| *weight != 0.0);
            assert_eq!(sum.into_iter().collect::<Vec<_>>(), [(whole.to_owned(), 1.0)]);
        }
    }

    #[test]
    fn the_order_of_a_server_is_found_by_cost() {
        let measured = measured("TLS 1.3, request");
        let cost = |dearer_when_unsigned: bool| {
            columns(&measured, move |step| {
                let goes_on = step.lack.is_none() || dearer_when_unsigned;
                100.0 + if step.name.ends_with("P-384") && goes_on { 500.0 } else { 0.0 }
            })
        };
        let has = |columns: &[Column], name: &str| costs_of(&measured, columns).iter().any(|part| part.part == name);
        assert!(has(&cost(true), "key agreement") && !has(&cost(true), TOGETHER));
        assert!(!has(&cost(false), "key agreement") && has(&cost(false), TOGETHER));
    }

    #[test]
    fn requests_are_told_by_page_and_without_tls() {
        let measured = measured("TLS 1.3, request");
        let columns = columns(&measured, |step| {
            let requests = f64::from(1 + step.more_requests);
            let (page, tls) =
                (if step.page.is_empty() { 20.0 } else { 200.0 }, if step.version.is_some() { 5.0 } else { 0.0 });
            1000.0 + requests * (page + tls)
        });
        let costs = costs_of(&measured, &columns);
        let cost = |name: &str| costs.iter().find(|part| part.part == name).map(|part| part.cost_ns.value.round());
        assert_eq!(cost(NEXT), Some(25.0));
        assert_eq!(cost(&format!("{NEXT}, /large")), Some(205.0));
        assert_eq!(cost("next request without TLS, /large"), Some(200.0));
        assert_eq!(cost("TLS in the next request, /large"), Some(5.0));
    }

    /// A Go server whose `GetCertificate` takes 300 µs, which it calls before it looks at signature algorithms: by the
    /// hello without a usable one key agreement takes 438 µs, and the key schedule −246.
    #[test]
    fn a_part_below_nothing_is_joined_with_the_next() {
        let measured = measured("TLS 1.3, request");
        // TCP 30, the hello 180, key agreement 130, the certificate 300, the rest 115, a signature 25.
        let cost = |lookup: f64, zero: f64| {
            columns(&measured, move |step| match step.name.as_str() {
                "TCP" => 30.0,
                name if name.ends_with("usable suite") || name.ends_with("usable group") => 210.0,
                "TLS 1.3, hello without a usable signature, P-384" => 840.0 + lookup,
                "TLS 1.3, server's flight, P-384" => 980.0 + lookup,
                ZERO => zero,
                UNSIGNED => 340.0 + lookup,
                "TLS 1.3, server's flight" => 480.0 + lookup,
                "TLS 1.3, handshake" => 500.0 + lookup,
                name if name.starts_with("TLS 1.3, resumed") => 455.0,
                _ => 600.0 + lookup,
            })
        };
        let ns = |costs: &[PartCost], name: &str| {
            costs.iter().find(|part| part.part == name).map(|part| part.cost_ns.value.round())
        };
        let plain = costs_of(&measured, &cost(0.0, 338.0));
        assert_eq!([KEY_AGREEMENT, KEY_SCHEDULE].map(|name| ns(&plain, name)), [Some(130.0), Some(115.0)]);
        // One that takes less than the key schedule makes nothing negative, but a share without a secret costs less.
        for (lookup, zero) in [(300.0, 338.0), (300.0, 638.0), (100.0, 338.0)] {
            let costs = costs_of(&measured, &cost(lookup, zero));
            assert_eq!(ns(&costs, TOGETHER), Some(245.0), "{lookup} {zero}: {costs:?}");
            assert_eq!([KEY_AGREEMENT, KEY_SCHEDULE].map(|name| ns(&costs, name)), [None, None]);
            assert_eq!(ns(&costs, SIGNATURE), Some(25.0 + lookup));
        }
    }

    /// Whatever the order of a server's work: no part of a connection's life costs less than nothing for certain, and
    /// all of them add up to it.
    #[test]
    fn no_life_has_a_part_below_nothing() {
        let mut random = SplitMix64::new(52);
        let mut joined = 0;
        for _ in 0..300 {
            let measured = measured(if random.below(2) == 0 { "TLS 1.3, request" } else { "TLS 1.2, request" });
            let drawn: Vec<f64> = measured.steps.iter().map(|_| 100.0 + 400.0 * random.uniform()).collect();
            let noise = |_| 1.0 + 0.02 * random.normal();
            let noise: Vec<f64> = (0..8 * drawn.len()).map(noise).collect();
            let column = |(at, cost): (usize, &f64)| (0..8).map(|row| Some(cost * noise[8 * at + row])).collect();
            let columns: Vec<Column> = drawn.iter().enumerate().map(column).collect();
            let costs = costs_of(&measured, &columns);
            let life: Vec<&PartCost> = costs.iter().filter(|part| part.kind == PartKind::Life).collect();
            joined += usize::from(life.iter().any(|part| part.part.ends_with(JOINED) && part.part != TOGETHER));
            let below: Vec<&&PartCost> = life.iter().filter(|part| part.cost_ns.high < 0.0).collect();
            assert!(below.is_empty() || life.len() == 1, "{below:?}");
            let whole = measured.steps.iter().position(|step| step.name == measured.whole).unwrap();
            let sum: f64 = life.iter().map(|part| part.cost_ns.value).sum();
            assert!((sum - rows().estimate(&columns[whole]).value).abs() < 1e-6);
        }
        assert!(joined > 100, "{joined}");
    }

    /// Eight rounds of a sweep each.
    pub(crate) fn rows() -> Rows {
        Rows::Sliced(Sliced::of(&[1; 8]).0)
    }

    fn costs_of(measured: &Measured, columns: &[Column]) -> Vec<PartCost> {
        let parts = decomposed(&[(measured, columns)], &rows()).remove(0);
        costs((measured, columns), &parts, &rows())
    }
}
