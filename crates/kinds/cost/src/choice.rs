//! What a server and its clients agree on, as values, and what another choice costs, by the steps of connections.

use serde::{Deserialize, Serialize};
use tlsdyno_base::bootstrap::{Column, Estimate};
use tlsdyno_base::exchange::Reach;
use tlsdyno_record::model::{CertificateKind, TlsChange};
use tlsdyno_stats::Metric;
use tlsdyno_stats::rounds::Rounds;
use tlsdyno_tls::{Group, Signer, Version};

use crate::Measured;
use crate::steps::{Resumed, StepId};

#[derive(Clone, Copy, Debug, PartialEq, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Choice {
    Version(Version),
    Certificate(CertificateKind),
    Group(Group),
}

pub fn reversed(of: Estimate) -> Estimate {
    Estimate { value: -of.value, low: -of.high, high: -of.low }
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct Told {
    /// As far as it is known.
    pub agreed: Vec<Choice>,
    /// Additional server CPU time per handshake of the second choice over the first, nanoseconds.
    pub differences: Vec<(Choice, Choice, Estimate)>,
    /// Cost of certificate and signature in a full handshake, nanoseconds; `None`: not determined.
    pub signature_ns: Option<Estimate>,
}

impl Choice {
    /// The choices in what a record says was negotiated, `1.3 TLS_AES_128_GCM_SHA256 X25519`; of several the first,
    /// which is the usual one.
    pub fn in_text(text: &str) -> Vec<Choice> {
        let choice = |word: &str| {
            let group = || word.parse().ok().map(Choice::Group);
            word.parse().ok().map(Choice::Version).or_else(group)
        };
        text.split([';', '|']).next().into_iter().flat_map(str::split_whitespace).filter_map(choice).collect()
    }

    /// The only choice that a change makes; `None`: it makes several, or others.
    pub fn of_change(change: &TlsChange) -> Option<Choice> {
        let TlsChange { certificate, group, .. } = *change;
        let group = group.filter(|_| certificate.is_none());
        let choice = certificate.map(Choice::Certificate).or(group.map(Choice::Group));
        choice.filter(|_| TlsChange { certificate, group, ..TlsChange::default() } == *change)
    }

    /// Both choose the same thing, as two groups do.
    pub fn is_like(self, other: Choice) -> bool {
        std::mem::discriminant(&self) == std::mem::discriminant(&other)
    }

    pub fn told(self) -> String {
        match self {
            Choice::Version(version) => format!("TLS {version}"),
            Choice::Certificate(kind) => format!("certificate {kind}"),
            Choice::Group(group) => format!("group {group}"),
        }
    }
}

impl Told {
    /// From the steps of the record's first server: its certificates, its groups where it agrees on X25519 (another
    /// group costs a second hello), and its signatures.
    pub fn of(server: &Measured, rounds: &Rounds<'_>) -> Told {
        // The server's part of a handshake.
        let flight = |signer, group, resumes| -> Option<Column> {
            let step = StepId { signer, group, resumes, ..StepId::new(server.version()?, Reach::Flight) };
            Some(rounds.cost(server.number_of(&step)?, Metric::Cpu))
        };
        let more = |more: Option<Column>, less: Option<Column>| {
            let terms = [(&more?, 1.0), (&less?, -1.0)];
            Some(rounds.rows(Metric::Cpu).estimate_sum(&terms)).filter(|of| of.value.is_finite())
        };
        let usual = || flight(None, None, None);
        let from = Choice::Group(Group::X25519);
        let of_group = |to| Some((from, Choice::Group(to), more(flight(None, Some(to), None), usual())?));
        let groups = Group::ALL.into_iter().filter(|_| server.group.is_none_or(|usual| usual == Group::X25519));
        let mut differences: Vec<_> = groups.filter_map(of_group).collect();
        let key = |signer| server.keys.iter().copied().find(|key| key.signer() == Some(signer));
        let [rsa, ecdsa] = [Signer::Rsa, Signer::Ecdsa].map(|signer| (key(signer), flight(Some(signer), None, None)));
        if let (Some(from), Some(to), Some(more_ns)) = (rsa.0, ecdsa.0, more(ecdsa.1, rsa.1)) {
            differences.push((Choice::Certificate(from), Choice::Certificate(to), more_ns));
        }
        let agreed = [
            server.version().map(Choice::Version),
            server.group.map(Choice::Group),
            server.keys.first().copied().map(Choice::Certificate),
        ];
        let agreed = agreed.into_iter().flatten().collect();
        let signature_ns = more(usual(), flight(None, None, Some(Resumed::Ticket)));
        Told { agreed, differences, signature_ns }
    }

    /// Additional cost of `to` over `from`, nanoseconds; `None`: not determined.
    pub fn difference(&self, from: Choice, to: Choice) -> Option<Estimate> {
        let find = |from, to| self.differences.iter().find(|of| (of.0, of.1) == (from, to)).map(|of| of.2);
        find(from, to).or_else(|| find(to, from).map(reversed))
    }
}
