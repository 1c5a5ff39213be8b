//! The stages that provider and shim can replace: what is known of each but what it computes. And the constants of the
//! wire contract (`docs/NOOP.md`).

use std::fmt;

use crate::named;
use crate::suite::KeyExchange;

named! {
    /// One TLS processing component that can be replaced by a no-op (what each means for the wire: `docs/NOOP.md`). The
    /// provider's come first, then the shim's, each in the order of `native/stages.h`.
    pub enum Stage: "stage" {
        /// Private-key signature, or RSA decryption in the static-RSA key exchange.
        Authentication = "authentication",
        /// (EC)DH key generation, derivation and validation of the peer's share.
        KeyAgreement = "key_agreement",
        /// The encrypting half of record protection.
        Cipher = "cipher",
        /// The authenticating half of record protection.
        Mac = "mac",
        /// libssl's own hashing (transcript).
        Digest = "digest",
        /// TLS1-PRF, HKDF, TLS13-KDF and the HMACs of the handshake.
        Kdf = "kdf",
        /// Random bytes drawn by libssl.
        Randomness = "randomness",
        /// Session cache: off means a perfect one, whose look-ups always hit and whose inserts cost nothing (Coarfa et
        /// al. 2006 section 2.3.4).
        SessionCache = "session_cache",
        /// Record marshalling with everything in it: off means that data travel in plain after a real handshake
        /// (section 2.3.6).
        Marshalling = "marshalling",
        /// The computation of handshakes: off means messages of the right sizes without content (section 2.3.7).
        /// Implies `Marshalling`.
        Handshake = "handshake",
        /// The round trip of resumed handshakes: off means that the request travels with the hello (section 2.3.8).
        RoundTrip = "round_trip",
        /// Connection set-up as a whole: off means no handshake and zero keys, with real record protection (section
        /// 2.3.9).
        Setup = "setup",
    }
}

impl Stage {
    /// The stages that the provider replaces, in the order of reports.
    pub const PROVIDER: [Stage; Stage::SessionCache as usize] = *Stage::ALL.first_chunk().unwrap();

    /// The stages that the shim replaces, in the order of reports.
    pub const SHIM: [Stage; Stage::ALL.len() - Stage::PROVIDER.len()] = *Stage::ALL.last_chunk().unwrap();

    /// The stage as text for people, for example `key agreement`.
    pub fn label(self) -> String {
        match self {
            Stage::Mac | Stage::Kdf => self.name().to_uppercase(),
            Stage::Marshalling => "record processing".to_owned(),
            Stage::RoundTrip => "a round trip".to_owned(),
            Stage::Setup => "connection setup".to_owned(),
            other => other.name().replace('_', " "),
        }
    }

    /// What people call a server without it. What replaces a stage of the shim is named after what is there instead:
    /// "no session cache" would be understood as a server that resumes nothing.
    pub fn absence(self) -> String {
        match self {
            Stage::SessionCache => "perfect session cache".to_owned(),
            Stage::Marshalling => "unencrypted data".to_owned(),
            Stage::Handshake => "bare handshake".to_owned(),
            Stage::RoundTrip => "one round trip less".to_owned(),
            Stage::Setup => "no connection setup".to_owned(),
            other => format!("no {}", other.label()),
        }
    }

    /// This stage and those that must be off where it is.
    pub const fn with_needed(self) -> StageSet {
        let this = StageSet::NONE.with(self);
        match self {
            Stage::Handshake => this.with(Stage::Marshalling),
            Stage::RoundTrip => this.with(Stage::SessionCache).with(Stage::Marshalling),
            _ => this,
        }
    }

    /// This stage and those that are timed, and usually computed, in one call with it.
    pub const fn together(self) -> StageSet {
        if StageSet::RECORDS.contains(self) { StageSet::RECORDS } else { StageSet::NONE.with(self) }
    }

    /// Whether a stage of the provider has something to do in a real handshake.
    pub const fn occurs(self, exchange: KeyExchange, resumed: bool) -> bool {
        match self {
            // A resumed handshake proves the session's secret instead of the certificate (RFC 5246 section 7.3, RFC
            // 9846 section 2.2).
            Stage::Authentication => !resumed,
            // TLS 1.3 resumes with PSK and (EC)DHE; TLS 1.2 resumes without any key agreement.
            Stage::KeyAgreement => match exchange {
                KeyExchange::Tls13 => true,
                KeyExchange::EcdheEcdsa | KeyExchange::EcdheRsa => !resumed,
                KeyExchange::Rsa => false,
            },
            _ => true,
        }
    }

    /// Whether a peer can tell the result of its no-op from a real one.
    pub const fn shows(self) -> bool {
        !matches!(self, Stage::Randomness)
    }
}

/// A set of stages: those that are switched off (replaced by no-ops) in one configuration.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(from = "Vec<Stage>", into = "Vec<Stage>"))]
pub struct StageSet(u16);

impl StageSet {
    /// Nothing replaced: the server as it is.
    pub const NONE: StageSet = StageSet(0);
    /// All stages that the provider replaces.
    pub const PROVIDER: StageSet = StageSet((1 << Stage::PROVIDER.len()) - 1);
    /// The halves of record protection: an AEAD is one call.
    pub const RECORDS: StageSet = StageSet::NONE.with(Stage::Cipher).with(Stage::Mac);

    /// The provider's stages, in the sets in which they are removed and computed twice.
    pub fn groups() -> impl Iterator<Item = StageSet> {
        let is_first = |stage: &Stage| stage.together().iter().next() == Some(*stage);
        Stage::PROVIDER.into_iter().filter(is_first).map(Stage::together)
    }

    /// The stages in the set that the provider replaces.
    #[must_use]
    pub const fn provider(self) -> StageSet {
        StageSet(self.0 & StageSet::PROVIDER.0)
    }

    /// The stages in the set that the shim replaces.
    #[must_use]
    pub const fn shim(self) -> StageSet {
        StageSet(self.0 & !StageSet::PROVIDER.0)
    }

    /// Whether `stage` is in the set.
    pub const fn contains(self, stage: Stage) -> bool {
        self.0 & (1 << stage as u16) != 0
    }

    /// This set and `stage`.
    #[must_use]
    pub const fn with(self, stage: Stage) -> StageSet {
        StageSet(self.0 | (1 << stage as u16))
    }

    /// The stages of both sets.
    pub const fn union(self, other: StageSet) -> StageSet {
        StageSet(self.0 | other.0)
    }

    /// This set without `stage`.
    #[must_use]
    pub const fn without(self, stage: Stage) -> StageSet {
        StageSet(self.0 & !(1 << stage as u16))
    }

    /// Whether the set holds no stage.
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// The stages as text for people.
    pub fn label(self) -> String {
        self.iter().map(Stage::label).collect::<Vec<_>>().join(" and ")
    }

    /// The stage, if the set holds exactly one.
    pub fn only(self) -> Option<Stage> {
        self.iter().next().filter(|_| self.0.is_power_of_two())
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

impl From<Vec<Stage>> for StageSet {
    fn from(stages: Vec<Stage>) -> StageSet {
        stages.into_iter().collect()
    }
}

impl From<StageSet> for Vec<Stage> {
    fn from(set: StageSet) -> Vec<Stage> {
        set.iter().collect()
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
        for stage in Stage::ALL.into_iter() {
            assert_eq!(stage.name().parse(), Ok(stage));
        }
        let names = "authentication key_agreement cipher mac digest kdf randomness session_cache marshalling \
                     handshake round_trip setup";
        assert_eq!(Stage::ALL.map(Stage::name).join(" "), names, "files and records have these names");
        let set: StageSet = [Stage::Kdf, Stage::Cipher].into_iter().collect();
        assert_eq!(set.to_string(), "cipher,kdf");
        assert_eq!(StageSet::PROVIDER, Stage::PROVIDER.into_iter().collect());
        assert_eq!(StageSet::groups().fold(StageSet::NONE, StageSet::union), StageSet::PROVIDER);
        assert_eq!(StageSet::groups().count(), Stage::PROVIDER.len() - 1, "cipher and mac are one");
        let everything: StageSet = Stage::ALL.into_iter().collect();
        assert_eq!(everything.provider(), StageSet::PROVIDER);
        assert_eq!(everything.shim(), Stage::SHIM.into_iter().collect());
        assert!("rsa".parse::<Stage>().is_err());
    }
}
