//! What steps differ in: the parts of a connection, and what another choice would cost.

use serde::Serialize;
use tlsdyno_base::bootstrap::{Column, Estimate};
use tlsdyno_base::exchange::Reach;
use tlsdyno_base::verdict::Direction;
use tlsdyno_stats::rows::Rows;
use tlsdyno_tls::{Group, Lack, Signer, Suite, Version};

use crate::Measured;
use crate::part_id::{PartId, PartKind, Stretch};
use crate::steps::{MORE_REQUESTS, Resumed, Step, StepId};
use crate::sum::{Seen, Sum};

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PartCost {
    /// Identity, which also determines the name.
    #[serde(rename = "part")]
    pub id: PartId,
    pub kind: PartKind,
    /// Sum of steps from which the cost follows.
    pub of: Sum,
    /// Server CPU time, or the client's wait, nanoseconds.
    pub cost_ns: Estimate,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Part {
    pub id: PartId,
    of: Sum,
}

impl Part {
    fn difference(id: PartId, steps: [&StepId; 2]) -> Part {
        Part { id, of: Sum::difference(steps) }
    }

    /// Weighted columns of the steps; `None`: some were not measured.
    pub fn columns<'a>(&self, server: Seen<'a>) -> Option<Vec<(&'a Column, f64)>> {
        self.of.columns(server)
    }

    /// The interval of its cost lies below 0, which is impossible for a part of a connection's life.
    fn is_impossible(&self, server: Seen, rows: &Rows) -> bool {
        let costs = |terms: Vec<_>| rows.estimate_sum(&terms).direction();
        self.id.kind() == PartKind::Life && self.columns(server).map(costs) == Some(Direction::Smaller)
    }
}

/// The parts of each server; the same parts for both where there are two.
pub(crate) fn decomposed(servers: &[Seen], rows: &Rows) -> Vec<Vec<Part>> {
    let with = |agreement| servers.iter().map(|(measured, _)| all(measured, agreement)).collect::<Vec<_>>();
    let of_server = |(server, parts): (&Seen, &Vec<Part>)| {
        parts.iter().find(|part| part.is_impossible(*server, rows)).map(|part| part.id.clone())
    };
    let impossible = |parts: &[Vec<Part>]| servers.iter().zip(parts).find_map(of_server);
    let found: Vec<Agreement> = servers.iter().map(|server| Agreement::of(*server, rows)).collect();
    let agreement = found.first().copied().filter(|first| found.iter().all(|other| other == first));
    let mut parts = with(agreement.unwrap_or(Agreement::Unknown));
    let is_of_agreement = |id| [Stretch::KeyAgreement, Stretch::KeySchedule].map(PartId::stretch).contains(&id);
    if impossible(&parts).is_some_and(is_of_agreement) {
        parts = with(Agreement::Unknown);
    }
    // A step ended somewhere else in the server's work than was thought: the two lines that it divides are one.
    while let Some(id) = impossible(&parts)
        && parts.iter_mut().filter_map(|of| join(of, &id)).count() > 0
    {}
    parts
}

/// Joins this part with the next one in the life of a connection; the last part with the previous one.
fn join(parts: &mut Vec<Part>, id: &PartId) -> Option<()> {
    let at = parts.iter().position(|part| part.id == *id)?;
    let life = parts.iter().filter(|part| part.id.kind() == PartKind::Life).count();
    let first = if at + 1 < life { at } else { at.checked_sub(1)? };
    let second = parts.remove(first + 1);
    let Part { id, of } = &mut parts[first];
    if let (PartId::Life(stretches), PartId::Life(more)) = (id, second.id) {
        stretches.extend(more);
    }
    // The step between them goes.
    let Sum(second) = second.of;
    let ended: Vec<(f64, StepId)> = second.iter().map(|(weight, step)| (-weight, step.clone())).collect();
    let begun = std::mem::take(&mut of.0);
    of.0.extend(begun.iter().filter(|term| !ended.contains(term)).cloned());
    of.0.extend(second.into_iter().filter(|(weight, step)| !begun.contains(&(-weight, step.clone()))));
    Some(())
}

pub(crate) fn costs(server: Seen, parts: &[Part], rows: &Rows) -> Vec<PartCost> {
    let cost = |part: &Part| {
        let cost_ns = rows.estimate_sum(&part.columns(server)?);
        let cost = PartCost { id: part.id.clone(), kind: part.id.kind(), of: part.of.clone(), cost_ns };
        cost_ns.value.is_finite().then_some(cost)
    };
    parts.iter().filter_map(cost).collect()
}

/// Parts whose steps the server takes, but which had no turn in the same round.
pub(crate) fn unmeasured(server: Seen, parts: &[Part], rows: &Rows) -> Vec<PartId> {
    let is_untold = |terms: Vec<_>| !rows.estimate_sum(&terms).value.is_finite();
    parts.iter().filter(|part| part.columns(server).is_some_and(is_untold)).map(|part| part.id.clone()).collect()
}

fn today(reach: Reach) -> StepId {
    StepId::new(Version::Tls13, reach)
}

/// The ClientHello lacks this, and the server refuses it.
fn refused(lack: Lack) -> StepId {
    StepId::refused(Version::Tls13, lack)
}

/// Resumes TLS 1.3 with a ticket.
fn resumed(reach: Reach) -> StepId {
    StepId::resumed(Version::Tls13, Resumed::Ticket, reach)
}

/// Method that separates the key agreement from the key schedule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Agreement {
    /// The server agrees before it looks for a signature that the client takes: a hello without one costs more by a
    /// dearer group.
    First,
    /// It looks for a signature first, and finds that a share gives no secret after its multiplication, as RFC 7748
    /// section 6.1 has it: such a hello costs more than one without a usable signature, and less than what follows.
    ByZero,
    Unknown,
}

impl Agreement {
    fn of(server: Seen, rows: &Rows) -> Agreement {
        let [hello, unsigned, zero] = [Lack::Suites, Lack::Signatures, Lack::Secret].map(refused);
        let (flight, resumed) = (today(Reach::Flight), resumed(Reach::Flight));
        let [unsigned_p384, flight_p384] =
            [&unsigned, &flight].map(|step| StepId { group: Some(Group::P384), ..step.clone() });
        let direction = |terms: &[(f64, &StepId)]| {
            let sum = Sum(terms.iter().map(|(weight, step)| (*weight, (*step).clone())).collect());
            Some(rows.estimate_sum(&sum.columns(server)?).direction())
        };
        // By more than half of what the group costs more where the handshake goes on.
        let excess = [(1.0, &unsigned_p384), (-1.0, &unsigned), (-0.5, &flight_p384), (0.5, &flight)];
        // A server may look up a certificate in between, which a share without a secret does not come to: that is no
        // key agreement, and is by more than a quarter of it dearer.
        let lookup = [(1.0, &unsigned), (-1.25, &zero), (0.25, &hello)];
        if direction(&excess) == Some(Direction::Bigger) {
            let is_other_work = direction(&lookup) == Some(Direction::Bigger);
            return if is_other_work { Agreement::Unknown } else { Agreement::First };
        }
        let of_zero = direction(&[(1.0, &zero), (-1.0, &unsigned)]);
        let rest = direction(&[(1.0, &resumed), (-1.0, &zero)]);
        match of_zero == Some(Direction::Bigger) && rest == Some(Direction::Bigger) {
            true => Agreement::ByZero,
            false => Agreement::Unknown,
        }
    }
}

/// All parts that the steps of a server may determine.
fn all(measured: &Measured, agreement: Agreement) -> Vec<Part> {
    let Some(version) = measured.version() else { return Vec::new() };
    let is_there = |part: &Part| part.of.0.iter().all(|(_, step)| measured.number_of(step).is_some());
    let mut all = match version {
        Version::Tls13 => life(agreement, measured.number_of(&resumed(Reach::Flight)).is_some()),
        Version::Tls12 => life_of_old(),
    };
    let before = before_tls(measured, version);
    all.splice(..0, beginning(before.clone()));
    let is_retried = measured.group.is_some_and(|group| group != Group::X25519);
    all.extend(beside(version, &before, is_retried));
    all.extend(requests(&measured.steps, version, measured.suite));
    all.extend(choices(&measured.steps, measured.group.unwrap_or(Group::X25519), measured.suite));
    all.retain(is_there);
    all.sort_by_key(|part| part.id.kind());
    all
}

/// How far a connection goes before TLS.
fn before_tls(measured: &Measured, version: Version) -> StepId {
    let opened = StepId::new(version, Reach::Opened);
    if measured.number_of(&opened).is_some() { opened } else { StepId::new(version, Reach::Tcp) }
}

/// The first stretches of a connection's life, whose last step before TLS this is.
fn beginning(before: StepId) -> Vec<Part> {
    let tcp = StepId { reach: Reach::Tcp, ..before.clone() };
    let hello = StepId { lack: Some(Lack::Suites), reach: Reach::Refused, ..before.clone() };
    let opening = Part::difference(PartId::stretch(Stretch::Opening), [&before, &tcp]);
    let hello = Part::difference(PartId::stretch(Stretch::Hello), [&hello, &before]);
    let accepting = Part { id: PartId::stretch(Stretch::Accepting), of: Sum(vec![(1.0, tcp)]) };
    [Some(accepting), (before.reach == Reach::Opened).then_some(opening), Some(hello)].into_iter().flatten().collect()
}

/// Without its beginning. `resumes`: the server does, which is what tells the signature from the rest.
fn life(agreement: Agreement, resumes: bool) -> Vec<Part> {
    let of = |stretch, steps: [&StepId; 2]| Part::difference(PartId::stretch(stretch), steps);
    let [hello, unsigned, zero] = [Lack::Suites, Lack::Signatures, Lack::Secret].map(refused);
    let [flight, handshake, request] = [Reach::Flight, Reach::Finished, Reach::Answered].map(today);
    let resumed = resumed(Reach::Flight);
    let mut life = Vec::new();
    match agreement {
        _ if !resumes => {
            let both = PartId::Life(vec![Stretch::KeyAgreement, Stretch::Signature]);
            life.push(Part::difference(both, [&flight, &hello]));
        }
        Agreement::First => {
            life.push(of(Stretch::KeyAgreement, [&unsigned, &hello]));
            life.push(of(Stretch::KeySchedule, [&resumed, &unsigned]));
        }
        Agreement::ByZero => {
            life.push(of(Stretch::KeyAgreement, [&zero, &unsigned]));
            let rest = vec![(1.0, resumed.clone()), (-1.0, hello), (-1.0, zero), (1.0, unsigned)];
            life.push(Part { id: PartId::stretch(Stretch::KeySchedule), of: Sum(rest) });
        }
        Agreement::Unknown => life.push(of(Stretch::AgreementAndSchedule, [&resumed, &hello])),
    }
    life.extend(resumes.then(|| of(Stretch::Signature, [&flight, &resumed])));
    life.push(of(Stretch::Finished, [&handshake, &flight]));
    life.push(of(Stretch::Request, [&request, &handshake]));
    life
}

/// Without its beginning.
fn life_of_old() -> Vec<Part> {
    let of = |stretch, steps: [&StepId; 2]| Part::difference(PartId::stretch(stretch), steps);
    let hello = StepId::refused(Version::Tls12, Lack::Suites);
    let [flight, handshake, request] =
        [Reach::Flight, Reach::Finished, Reach::Answered].map(|reach| StepId::new(Version::Tls12, reach));
    vec![
        of(Stretch::ShareAndSignature, [&flight, &hello]),
        of(Stretch::AgreementToFinished, [&handshake, &flight]),
        of(Stretch::Request, [&request, &handshake]),
    ]
}

fn beside(primary: Version, before: &StepId, is_retried: bool) -> Vec<Part> {
    let handshakes = |version: Version| {
        let other = (version != primary).then_some(version);
        let full = StepId::new(version, Reach::Finished);
        let resumed = StepId::resumed(version, Resumed::Ticket, Reach::Finished);
        [
            Part::difference(PartId::Full(other), [&full, before]),
            Part::difference(PartId::Resumed(other), [&resumed, before]),
            Part::difference(PartId::Saved(other), [&full, &resumed]),
        ]
    };
    let mut beside = Vec::from(handshakes(primary));
    if primary == Version::Tls13 {
        beside.extend(handshakes(Version::Tls12));
        let flight = today(Reach::Flight);
        let retried = StepId { lack: Some(Lack::Shares), ..flight.clone() };
        beside.extend((!is_retried).then(|| Part::difference(PartId::Retry, [&retried, &flight])));
    }
    beside
}

/// Cost of requests on a kept connection, by page; without TLS; by another suite than the `usual` one.
fn requests(steps: &[Step], primary: Version, usual: Option<Suite>) -> Vec<Part> {
    let next = |step: &StepId, sign: f64| {
        let each = sign / f64::from(MORE_REQUESTS);
        [(each, step.clone()), (-each, StepId { more_requests: 0, ..step.clone() })]
    };
    let parts = |step: &StepId| -> Vec<Part> {
        let page = step.page.clone();
        if let Some(suite) = step.suite {
            let each = 1.0 / f64::from(MORE_REQUESTS + 1);
            let of = Sum(vec![(each, step.clone()), (-each, StepId { suite: None, ..step.clone() })]);
            return vec![Part { id: PartId::SuiteOfEach(suite, usual, page), of }];
        }
        let of = Sum(next(step, 1.0).into());
        let Some(version) = step.version else {
            let with_tls = StepId { version: Some(primary), ..step.clone() };
            let of_tls = Sum([next(&with_tls, 1.0), next(step, -1.0)].concat());
            let without = Part { id: PartId::NextWithoutTls(page.clone()), of };
            return vec![without, Part { id: PartId::TlsInNext(page), of: of_tls }];
        };
        vec![Part { id: PartId::Next((version != primary).then_some(version), page), of }]
    };
    let of_http1 = |id: &&StepId| id.more_requests > 0 && id.http2.is_none();
    steps.iter().map(|step| &step.id).filter(of_http1).flat_map(parts).chain(of_http2()).collect()
}

fn of_http2() -> [Part; 3] {
    let [one, more, at_once] = StepId::over_http2();
    let next = |is_at_once, more: StepId| {
        let each = 1.0 / f64::from(more.more_requests);
        Part { id: PartId::NextOfHttp2(is_at_once), of: Sum(vec![(each, more), (-each, one.clone())]) }
    };
    let first = Part::difference(PartId::Http2, [&one, &today(Reach::Answered)]);
    [first, next(false, more), next(true, at_once)]
}

/// Additional cost of other choices. `usual`: the group that the server agrees on; `usual_suite`: the suite that it
/// takes instead of AES-128-GCM.
fn choices(steps: &[Step], usual: Group, usual_suite: Option<Suite>) -> Vec<Part> {
    let flight = today(Reach::Flight);
    let of_step = |step: &StepId| match (step.group, step.suite, step.more_requests) {
        (Some(group), ..) if step.lack.is_none() => {
            Some(Part::difference(PartId::Group(group, usual), [step, &flight]))
        }
        (_, Some(suite), 0) => {
            Some(Part::difference(PartId::Suite(suite, usual_suite), [step, &today(Reach::Answered)]))
        }
        _ => None,
    };
    let mut choices: Vec<Part> = steps.iter().filter_map(|step| of_step(&step.id)).collect();
    let [rsa, ecdsa] = Signer::ALL.map(|signer| StepId { signer: Some(signer), ..flight.clone() });
    let compressed = StepId { compressed: true, ..flight.clone() };
    let early = StepId::resumed(Version::Tls13, Resumed::EarlyData, Reach::Answered);
    let usual = resumed(Reach::Finished);
    let by_key = StepId { lack: Some(Lack::Agreement), ..usual.clone() };
    let [by_ticket, by_id] =
        [Resumed::Ticket, Resumed::Id].map(|how| StepId::resumed(Version::Tls12, how, Reach::Finished));
    choices.extend([
        Part::difference(PartId::RsaCertificate, [&rsa, &ecdsa]),
        Part::difference(PartId::CompressedCertificate, [&compressed, &flight]),
        Part::difference(PartId::EarlyData, [&early, &resumed(Reach::Answered)]),
        Part::difference(PartId::ResumedByKey, [&by_key, &usual]),
        Part::difference(PartId::ResumedById, [&by_id, &by_ticket]),
    ]);
    choices
}

#[cfg(test)]
pub(crate) mod tests {
    use std::collections::{BTreeMap, BTreeSet};

    use tlsdyno_base::random::SplitMix64;
    use tlsdyno_stats::rows::Sliced;

    use super::*;

    pub(crate) fn measured(version: Version) -> Measured {
        Measured { steps: Step::all(version, &["/large".to_owned()], true), ..Measured::default() }
    }

    pub(crate) fn columns(measured: &Measured, cost: impl Fn(&StepId) -> f64) -> Vec<Column> {
        measured.steps.iter().map(|step| vec![Some(cost(&step.id)); 8]).collect()
    }

    #[test]
    fn parts_are_of_steps_that_there_are() {
        for (version, agreement, count) in [
            (Version::Tls13, Agreement::First, 37),
            (Version::Tls13, Agreement::ByZero, 37),
            (Version::Tls13, Agreement::Unknown, 36),
            (Version::Tls12, Agreement::Unknown, 16),
        ] {
            let measured = measured(version);
            let parts = all(&measured, agreement);
            assert_eq!(parts.len(), count, "{parts:?}");
            let names: BTreeSet<String> = parts.iter().map(|part| part.id.to_string()).collect();
            assert_eq!(names.len(), count, "two parts have one name");
            let names: BTreeSet<&str> = measured.steps.iter().map(|step| step.name.as_str()).collect();
            assert_eq!(names.len(), measured.steps.len(), "two steps have one name");
        }
    }

    #[test]
    fn the_life_of_a_connection_adds_up_to_it() {
        for (version, agreement, resumes) in [
            (Version::Tls13, Agreement::First, true),
            (Version::Tls13, Agreement::First, false),
            (Version::Tls13, Agreement::ByZero, true),
            (Version::Tls13, Agreement::Unknown, true),
            (Version::Tls12, Agreement::Unknown, true),
        ] {
            let mut measured = measured(version);
            // A server that resumes nothing has no opening here.
            let is_there = |step: &StepId| resumes || step.resumes.is_none() && step.reach != Reach::Opened;
            measured.steps.retain(|step| is_there(&step.id));
            let mut sum = BTreeMap::new();
            for part in all(&measured, agreement).iter().filter(|part| part.id.kind() == PartKind::Life) {
                part.of.0.iter().for_each(|(weight, step)| *sum.entry(step.to_string()).or_insert(0.0) += weight);
            }
            sum.retain(|_, weight| *weight != 0.0);
            let whole = StepId::whole(version, false).to_string();
            assert_eq!(sum.into_iter().collect::<Vec<_>>(), [(whole, 1.0)]);
        }
    }

    #[test]
    fn the_order_of_a_server_is_found_by_cost() {
        let measured = measured(Version::Tls13);
        let cost = |dearer_when_unsigned: bool| {
            columns(&measured, move |step| {
                let goes_on = step.lack.is_none() || dearer_when_unsigned;
                100.0 + if step.group == Some(Group::P384) && goes_on { 500.0 } else { 0.0 }
            })
        };
        let has = |columns: &[Column], stretch| {
            costs_of(&measured, columns).iter().any(|part| part.id == PartId::stretch(stretch))
        };
        assert_eq!(AGREEMENT.map(|stretch| has(&cost(true), stretch)), [true, true, false]);
        assert_eq!(AGREEMENT.map(|stretch| has(&cost(false), stretch)), [false, false, true]);
    }

    #[test]
    fn requests_are_told_by_page_and_without_tls() {
        let measured = measured(Version::Tls13);
        let columns = columns(&measured, |step| {
            let requests = f64::from(1 + step.more_requests);
            let (page, tls) =
                (if step.page.is_empty() { 20.0 } else { 200.0 }, if step.version.is_some() { 5.0 } else { 0.0 });
            1000.0 + requests * (page + tls)
        });
        let costs = costs_of(&measured, &columns);
        let cost = |id: PartId| ns(&costs, &id);
        let large = || "/large".to_owned();
        assert_eq!(cost(PartId::Next(None, String::new())), Some(25.0));
        assert_eq!(cost(PartId::Next(None, large())), Some(205.0));
        assert_eq!(cost(PartId::NextWithoutTls(large())), Some(200.0));
        assert_eq!(cost(PartId::TlsInNext(large())), Some(5.0));
    }

    /// A Go server whose `GetCertificate` takes 300 µs, which it calls before it looks at signature algorithms: by the
    /// hello without a usable one key agreement takes 438 µs, and the key schedule −246.
    #[test]
    fn a_part_below_nothing_is_joined_with_the_next() {
        let measured = measured(Version::Tls13);
        // TCP 30, the hello 180, key agreement 130, the certificate 300, the rest 115, a signature 25.
        let cost = |lookup: f64, zero: f64| {
            columns(&measured, move |step| match (step.reach, step.lack, step.group) {
                (Reach::Tcp | Reach::Opened, ..) => 30.0,
                (_, Some(Lack::Suites | Lack::Groups), _) => 210.0,
                (_, Some(Lack::Signatures), Some(_)) => 840.0 + lookup,
                (_, Some(Lack::Signatures), None) => 340.0 + lookup,
                (_, Some(Lack::Secret), _) => zero,
                _ if step.resumes.is_some() => 455.0,
                (Reach::Flight, _, Some(_)) => 980.0 + lookup,
                (Reach::Flight, ..) => 480.0 + lookup,
                (Reach::Finished, ..) => 500.0 + lookup,
                _ => 600.0 + lookup,
            })
        };
        let ns = |costs: &[PartCost], stretch| ns(costs, &PartId::stretch(stretch));
        let plain = costs_of(&measured, &cost(0.0, 338.0));
        assert_eq!(AGREEMENT.map(|stretch| ns(&plain, stretch)), [Some(130.0), Some(115.0), None]);
        // One that takes less than the key schedule makes nothing negative, but a share without a secret costs less.
        for (lookup, zero) in [(300.0, 338.0), (300.0, 638.0), (100.0, 338.0)] {
            let costs = costs_of(&measured, &cost(lookup, zero));
            assert_eq!(AGREEMENT.map(|stretch| ns(&costs, stretch)), [None, None, Some(245.0)], "{lookup} {zero}");
            assert_eq!(ns(&costs, Stretch::Signature), Some(25.0 + lookup));
        }
    }

    /// Whatever the order of a server's work: no part of a connection's life costs less than nothing for certain, and
    /// all of them add up to it.
    #[test]
    fn no_life_has_a_part_below_nothing() {
        let mut random = SplitMix64::new(52);
        let mut joined = 0;
        for _ in 0..300 {
            let measured = measured(Version::ALL[random.below(2)]);
            let drawn: Vec<f64> = measured.steps.iter().map(|_| 100.0 + 400.0 * random.uniform()).collect();
            let noise = |_| 1.0 + 0.02 * random.normal();
            let noise: Vec<f64> = (0..8 * drawn.len()).map(noise).collect();
            let column = |(at, cost): (usize, &f64)| (0..8).map(|row| Some(cost * noise[8 * at + row])).collect();
            let columns: Vec<Column> = drawn.iter().enumerate().map(column).collect();
            let costs = costs_of(&measured, &columns);
            let life: Vec<&PartCost> = costs.iter().filter(|part| part.kind == PartKind::Life).collect();
            joined += usize::from(life.iter().any(|part| matches!(&part.id, PartId::Life(of) if of.len() > 1)));
            let below: Vec<&&PartCost> = life.iter().filter(|part| part.cost_ns.high < 0.0).collect();
            assert!(below.is_empty() || life.len() == 1, "{below:?}");
            let whole = measured.whole_number().unwrap();
            let sum: f64 = life.iter().map(|part| part.cost_ns.value).sum();
            assert!((sum - rows().estimate(&columns[whole]).value).abs() < 1e-6);
        }
        assert!(joined > 100, "{joined}");
    }

    pub(crate) fn rows() -> Rows {
        Rows::Sliced(Sliced::of(&[1; 8]).0)
    }

    /// Stretches of the key agreement and of what follows it.
    const AGREEMENT: [Stretch; 3] = [Stretch::KeyAgreement, Stretch::KeySchedule, Stretch::AgreementAndSchedule];

    fn ns(costs: &[PartCost], id: &PartId) -> Option<f64> {
        costs.iter().find(|part| part.id == *id).map(|part| part.cost_ns.value.round())
    }

    fn costs_of(measured: &Measured, columns: &[Column]) -> Vec<PartCost> {
        let parts = decomposed(&[(measured, columns)], &rows()).remove(0);
        costs((measured, columns), &parts, &rows())
    }
}
