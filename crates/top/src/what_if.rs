//! What would change the server's CPU time, from the samples and the handshakes of the same minute, and whom another
//! choice would lose.
//!
//! Signatures and certificates are work of full handshakes alone, so that their share and the number of full handshakes
//! tell what one of them is worth. What another certificate or group costs no sample tells: that comes from a record.

use anyhow::Result;
use serde::Serialize;
use tlsdyno_base::bootstrap::Estimate;
use tlsdyno_base::ensure_fault;
use tlsdyno_base::fault::{Fault, OrFault};
use tlsdyno_base::units::{format_micros, format_percent};
use tlsdyno_cost::choice::{Choice, Told, reversed};
use tlsdyno_packets::Counts;
use tlsdyno_plan::measured::Source;
use tlsdyno_record::store;
use tlsdyno_tls::Group;

use crate::kinds::Passed;
use crate::part::Part;
use crate::server::Seen;

/// Changes of a smaller part of the server's CPU time are not told, percent.
const TOLD_PERCENT: f64 = 0.1;
/// What only full handshakes do.
const OF_FULL: &[Part] = &[Part::Signature, Part::Certificates];
/// What only handshakes do. Messages are not in it: the library's code for records cannot be told from them.
const OF_HANDSHAKES: &[Part] =
    &[Part::Signature, Part::Certificates, Part::KeyAgreement, Part::KeyDerivation, Part::Sessions];

/// A change of what is done.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
enum Change {
    /// Sessions that clients offered in vain are resumed, as where all workers and machines share ticket keys.
    SessionsAccepted,
    /// The same hits come on half as many connections.
    TwiceTheHits,
    /// Another certificate or group in place of today's.
    Choice(Choice),
}

/// What a change adds to the server's CPU time, percent of it.
#[derive(Clone, Debug, Serialize)]
struct WhatIf {
    change: Change,
    percent: f64,
    low: f64,
    high: f64,
}

/// Clients that would not get a handshake any more, percent of the hellos.
#[derive(Clone, Copy, Debug, Serialize)]
struct Lost {
    without_tls12_percent: f64,
    without_x25519_percent: f64,
    without_rsa_percent: f64,
}

/// What changes would do to a server.
#[derive(Debug, Serialize)]
pub struct WhatIfs {
    what_ifs: Vec<WhatIf>,
    /// `None`: no hello passed.
    lost: Option<Lost>,
    /// Cost of certificate and signature in a full handshake by the record and by the samples, nanoseconds, where they
    /// contradict each other.
    #[serde(skip_serializing_if = "Option::is_none")]
    contradiction_ns: Option<[Estimate; 2]>,
    #[serde(skip)]
    has_record: bool,
}

/// What a record tells that certificates and groups cost (`--costs`).
///
/// # Errors
/// There is no such record, or it tells nothing of them.
pub fn costs(record: &str) -> Result<Told> {
    let told = Source::of(&store::find(record).or_fault(Fault::Input)?, None).or_fault(Fault::Input)?.told;
    ensure_fault!(
        Input,
        !told.differences.is_empty() || told.signature_ns.is_some(),
        "record {record} tells no cost of another certificate or group, nor of a signature; give one of tlsdyno cost"
    );
    Ok(told)
}

impl WhatIfs {
    /// Of what was seen of a server. `told`: what a record of it tells.
    pub fn of(seen: &Seen, passed: &Passed, told: Option<&Told>) -> WhatIfs {
        let counts = &passed.counts;
        // A client that breaks off after the server's flight had its signature.
        let of = &counts.connections;
        let signed = of.full_handshakes + of.refused_by_clients + of.left_by_clients + of.unfinished_handshakes;
        let per_one_ns = |count: u64| seen.cpu_ns as f64 / seen.elapsed.as_secs_f64() / passed.per_s(count);
        let all = reversed(seen.shares.of(OF_FULL));
        let refused = counts.agreed.resumption_refused_count as f64 / signed as f64;
        let half = reversed(seen.shares.of(OF_HANDSHAKES)).scaled(0.5);
        let mut what_ifs = vec![(Change::SessionsAccepted, all.scaled(refused)), (Change::TwiceTheHits, half)];
        let signature_ns = seen.shares.of(OF_FULL).scaled(per_one_ns(signed) / 100.0);
        let today = told.map(|told| Today::of(told, signature_ns));
        what_ifs.extend(today.iter().flat_map(Today::choices).map(|(from, to, more_ns)| {
            let count = match from {
                Choice::Group(group) => counts.chosen_groups.get(&group.code()).copied().unwrap_or_default(),
                _ => of.full_handshakes,
            };
            (Change::Choice(to), more_ns.scaled(100.0 / per_one_ns(count)))
        }));
        what_ifs.retain(|(_, percent)| percent.has_interval() && percent.value.abs() >= TOLD_PERCENT);
        let pair = today.and_then(|today| today.signature_ns).map(|record_ns| [record_ns, signature_ns]);
        let what_if = |(change, Estimate { value: percent, low, high })| WhatIf { change, percent, low, high };
        WhatIfs {
            what_ifs: what_ifs.into_iter().map(what_if).collect(),
            lost: Lost::of(counts),
            contradiction_ns: pair.filter(|[record, seen]| record.high < seen.low || seen.high < record.low),
            has_record: told.is_some(),
        }
    }

    /// A line each.
    pub fn lines(&self) -> Vec<String> {
        let mut told: Vec<String> = self.what_ifs.iter().map(WhatIf::text).collect();
        if !self.has_record && !told.is_empty() {
            told.push("another certificate or group: --costs RECORD, of tlsdyno cost https://…".to_owned());
        }
        let changes = (!told.is_empty()).then(|| format!("what would change it: {}", told.join(" · ")));
        let contradiction = self.contradiction_ns.map(|[record, seen]| {
            format!(
                "certificate and signature cost {} µs a full handshake by the record, {} by the samples: it is of \
                 another server, certificate or load, and its changes are worth less or more than it says",
                record.with_interval(format_micros),
                seen.with_interval(format_micros)
            )
        });
        [changes, self.lost.map(Lost::text), contradiction].into_iter().flatten().collect()
    }
}

/// What a record tells of a server, and which of its certificates this one has.
struct Today<'t> {
    told: &'t Told,
    agreed: Vec<Choice>,
    /// What certificate and signature cost with it.
    signature_ns: Option<Estimate>,
}

impl Today<'_> {
    /// The certificate is that whose cost is next to `seen_ns`, that of the samples: a server that has two gives the
    /// cheaper one to `cost`, and the server that runs may have the other alone.
    fn of(told: &Told, seen_ns: Estimate) -> Today<'_> {
        let usual = Today { told, agreed: told.agreed.clone(), signature_ns: told.signature_ns };
        let other = usual.choices().find(|(from, ..)| matches!(from, Choice::Certificate(_)));
        let (Some(usual_ns), Some((from, to, more_ns))) = (told.signature_ns, other) else { return usual };
        let other_ns = usual_ns.less(reversed(more_ns));
        let distance = |of: Estimate| (of.value / seen_ns.value).max(f64::MIN_POSITIVE).ln().abs();
        if distance(usual_ns) <= distance(other_ns) {
            return usual;
        }
        let agreed = told.agreed.iter().map(|of| if *of == from { to } else { *of }).collect();
        Today { told, agreed, signature_ns: Some(other_ns) }
    }

    /// Pairs of what is agreed on and what could be, with what it costs more.
    fn choices(&self) -> impl Iterator<Item = (Choice, Choice, Estimate)> {
        let of =
            |&(from, to, more_ns): &(Choice, Choice, Estimate)| [(from, to, more_ns), (to, from, reversed(more_ns))];
        self.told.differences.iter().flat_map(of).filter(|(from, ..)| self.agreed.contains(from))
    }
}

impl WhatIf {
    fn text(&self) -> String {
        let what = match self.change {
            Change::SessionsAccepted => "sessions taken that were refused".to_owned(),
            Change::TwiceTheHits => "twice as many hits a connection".to_owned(),
            Change::Choice(to) => to.told(),
        };
        let percent = Estimate { value: self.percent, low: self.low, high: self.high };
        let least = if self.change == Change::TwiceTheHits { " or more" } else { "" };
        format!("{what} {}{least}", percent.in_unit(" points", |points| format!("{points:+.1}")))
    }
}

impl Lost {
    fn of(counts: &Counts) -> Option<Lost> {
        let hellos = counts.offers.hellos;
        let lost = |have: u64| 100.0 * hellos.saturating_sub(have) as f64 / hellos as f64;
        (hellos > 0).then(|| Lost {
            without_tls12_percent: lost(counts.offers.tls13_hellos),
            without_x25519_percent: lost(counts.offered_groups.get(&Group::X25519.code()).copied().unwrap_or_default()),
            without_rsa_percent: lost(counts.offers.ecdsa_hellos),
        })
    }

    fn text(self) -> String {
        let [tls12, x25519, rsa] =
            [self.without_tls12_percent, self.without_x25519_percent, self.without_rsa_percent].map(format_percent);
        format!("hellos lost without TLS 1.2 {tls12} · without X25519 {x25519} · without an RSA certificate {rsa}")
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tlsdyno_record::model::CertificateKind;

    use super::*;
    use crate::classify::Place;
    use crate::server::PERIOD_NS;
    use crate::shares::Times;

    /// Half of a CPU for ten seconds: of each ten samples four are signatures, one is a certificate.
    fn seen() -> Seen {
        let mut times = Times::new(None);
        for at in 0..1_000 {
            let place = match at % 10 {
                0..4 => Place::Tls(Part::Signature),
                4 => Place::Tls(Part::Certificates),
                5 => Place::Tls(Part::Messages),
                _ => Place::Server,
            };
            times.at(Duration::from_millis(10 * at)).add(place);
        }
        let elapsed = Duration::from_secs(10);
        let (cpu_ns, cpus_count, processes_count) = (5_000_000_000, 1, 1);
        Seen {
            shares: times.shares(),
            cpu_ns,
            elapsed,
            cpus_count,
            processes_count,
            sees_kernel: true,
            period_ns: PERIOD_NS,
        }
    }

    /// 1,000 full handshakes a second, in which certificate and signature cost 250 µs, 400 of them with a session.
    fn passed() -> Passed {
        let mut passed = Passed::of_seconds(5);
        passed.counts.connections.full_handshakes = 5_000;
        passed.counts.agreed.resumption_refused_count = 2_000;
        (passed.counts.offers.hellos, passed.counts.offers.tls13_hellos) = (5_000, 4_500);
        passed.counts.offers.ecdsa_hellos = 5_000;
        passed
    }

    /// Of a server with both certificates, whose signatures cost so many microseconds.
    fn record(p256_us: f64, rsa_us: f64) -> Told {
        let of = |us: f64| Estimate { value: 1e3 * us, low: 0.95e3 * us, high: 1.05e3 * us };
        let [p256, rsa] = [CertificateKind::P256, CertificateKind::Rsa2048].map(Choice::Certificate);
        let differences = vec![(rsa, p256, reversed(of(rsa_us - p256_us)))];
        Told { agreed: vec![p256], differences, signature_ns: Some(of(p256_us)) }
    }

    #[test]
    fn changes_are_told_by_samples_and_handshakes() {
        let what_ifs = WhatIfs::of(&seen(), &passed(), None);
        let [taken, twice] = &what_ifs.what_ifs[..] else { panic!("{what_ifs:?}") };
        assert!((taken.percent + 20.0).abs() < 1e-9 && taken.low < taken.percent && taken.percent < taken.high);
        assert!((twice.percent + 25.0).abs() < 1e-9, "messages are not in it");
        let lines = what_ifs.lines();
        assert!(lines[0].starts_with("what would change it: sessions taken that were refused -20.0 points ["));
        assert!(lines[0].contains("or more · another certificate or group: --costs"), "{lines:?}");
        assert!(
            lines[1].contains("without TLS 1.2 10.0 % · without X25519 100.0 % · without an RSA certificate 0.0 %")
        );
        let none = WhatIfs::of(&seen(), &Passed::of_seconds(5), None);
        assert!(none.lost.is_none() && none.what_ifs.len() == 1, "{none:?}");
    }

    #[test]
    fn the_certificate_of_today_is_that_whose_cost_the_samples_show() {
        let what_ifs = WhatIfs::of(&seen(), &passed(), Some(&record(40.0, 250.0)));
        let choice = what_ifs.what_ifs.last().unwrap();
        assert_eq!(choice.change, Change::Choice(Choice::Certificate(CertificateKind::P256)));
        // 210 µs less in each of 1,000 handshakes a second, of 500 ms.
        assert!((choice.percent + 42.0).abs() < 1e-6 && what_ifs.contradiction_ns.is_none(), "{what_ifs:?}");
        let what_ifs = WhatIfs::of(&seen(), &passed(), Some(&record(250.0, 900.0)));
        assert!((what_ifs.what_ifs.last().unwrap().percent - 130.0).abs() < 1e-6, "{what_ifs:?}");
    }

    #[test]
    fn a_record_that_the_samples_contradict_is_told() {
        let what_ifs = WhatIfs::of(&seen(), &passed(), Some(&record(40.0, 900.0)));
        assert!(what_ifs.lines().last().unwrap().contains("it is of another server, certificate or load"));
    }
}
