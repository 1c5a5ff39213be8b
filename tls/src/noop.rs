//! The stages that a provider can replace, and the constants of the wire contract (`docs/NOOP.md`).

use std::fmt;
use std::str::FromStr;

/// One TLS processing component that the provider can replace by a no-op (what each means for the wire: `docs/NOOP.md`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Stage {
    /// Private-key signature, or RSA decryption in the static-RSA key exchange.
    Authentication,
    /// (EC)DH key generation, derivation and validation of the peer's share.
    KeyAgreement,
    /// The encrypting half of record protection.
    Cipher,
    /// The authenticating half of record protection.
    Mac,
    /// libssl's own hashing (transcript).
    Digest,
    /// TLS1-PRF, HKDF, TLS13-KDF and the HMACs of the handshake.
    Kdf,
    /// Random bytes drawn by libssl.
    Randomness,
}

impl Stage {
    /// Every provider stage, in the order of reports.
    pub const ALL: [Stage; 7] = [
        Stage::Authentication,
        Stage::KeyAgreement,
        Stage::Cipher,
        Stage::Mac,
        Stage::Digest,
        Stage::Kdf,
        Stage::Randomness,
    ];

    /// The name used in experiments, JSON and the provider's configuration.
    pub const fn name(self) -> &'static str {
        match self {
            Stage::Authentication => "authentication",
            Stage::KeyAgreement => "key_agreement",
            Stage::Cipher => "cipher",
            Stage::Mac => "mac",
            Stage::Digest => "digest",
            Stage::Kdf => "kdf",
            Stage::Randomness => "randomness",
        }
    }
}

impl fmt::Display for Stage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A stage name that nobody knows.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("unknown stage `{0}`; stages are authentication, key_agreement, cipher, mac, digest, kdf, randomness")]
pub struct UnknownStage(pub String);

impl FromStr for Stage {
    type Err = UnknownStage;

    fn from_str(name: &str) -> Result<Stage, UnknownStage> {
        Stage::ALL.into_iter().find(|stage| stage.name() == name).ok_or_else(|| UnknownStage(name.to_owned()))
    }
}

/// A set of stages: those that are switched off (replaced by no-ops) in one configuration.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct StageSet(u8);

impl StageSet {
    /// Nothing replaced: the server as it is.
    pub const NONE: StageSet = StageSet(0);
    /// Every provider stage replaced.
    pub const ALL: StageSet = StageSet(0x7f);

    /// Whether `stage` is in the set.
    pub const fn contains(self, stage: Stage) -> bool {
        self.0 & (1 << stage as u8) != 0
    }

    /// This set and `stage`.
    #[must_use]
    pub const fn with(self, stage: Stage) -> StageSet {
        StageSet(self.0 | (1 << stage as u8))
    }

    /// This set without `stage`.
    #[must_use]
    pub const fn without(self, stage: Stage) -> StageSet {
        StageSet(self.0 & !(1 << stage as u8))
    }

    /// Whether nothing is replaced.
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// The stages in the set, in the order of reports.
    pub fn iter(self) -> impl Iterator<Item = Stage> {
        Stage::ALL.into_iter().filter(move |stage| self.contains(*stage))
    }
}

impl FromIterator<Stage> for StageSet {
    fn from_iter<I: IntoIterator<Item = Stage>>(stages: I) -> StageSet {
        stages.into_iter().fold(StageSet::NONE, StageSet::with)
    }
}

impl fmt::Display for StageSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, stage) in self.iter().enumerate() {
            if index > 0 {
                f.write_str(",")?;
            }
            f.write_str(stage.name())?;
        }
        Ok(())
    }
}

/// Every byte of a no-op signature.
pub const SIGNATURE_FILL: u8 = 0xa5;
/// Every byte of a no-op shared secret.
pub const SECRET_FILL: u8 = 0x5a;
/// Every byte derived by a no-op KDF, and of a handshake HMAC.
pub const KDF_FILL: u8 = 0x3c;
/// Every byte of a no-op record HMAC and PSK binder.
pub const MAC_FILL: u8 = 0xc3;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_round_trip_and_sets_print_in_report_order() {
        for stage in Stage::ALL {
            assert_eq!(stage.name().parse(), Ok(stage));
        }
        let set: StageSet = [Stage::Kdf, Stage::Cipher].into_iter().collect();
        assert_eq!(set.to_string(), "cipher,kdf");
        assert_eq!(StageSet::ALL, Stage::ALL.into_iter().collect());
        assert!("rsa".parse::<Stage>().is_err());
    }
}
