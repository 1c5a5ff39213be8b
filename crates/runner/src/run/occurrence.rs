//! Which stages occur in which handshake, and which of them show on the wire.
//!
//! The preflight needs this: where a stage occurs and shows, a client without the no-op must fail; elsewhere call
//! counters are the only evidence (`docs/NOOP.md`).

use tlsdyno_tls::{Stage, StageSet, Suite};

/// Evidence of one stage in one kind of handshake.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Occurrence {
    /// The peer sees the stage's result: an unmatched client must fail.
    OnTheWire,
    /// The stage's result cannot be told from a real one: its call counter must increase.
    Hidden,
    /// The stage does no work here: its call counter must not change.
    Absent,
}

/// How `stage` of the provider shows in a handshake with `suite`, full or resumed, where the stages `off` are replaced.
///
/// What key agreement and transcript hash yield reaches the wire only through the KDF, so with the KDF off too nobody
/// can tell them from real ones.
pub fn occurrence(stage: Stage, suite: Suite, resumed: bool, off: StageSet) -> Occurrence {
    let occurs = with_shim(stage, suite, off).unwrap_or_else(|| stage.occurs(suite.key_exchange(), resumed));
    if occurs { shown(stage, off) } else { Occurrence::Absent }
}

/// Whether a stage of the provider occurs where the shim replaces the handshake; `None`: the handshake is real.
fn with_shim(stage: Stage, suite: Suite, off: StageSet) -> Option<bool> {
    if off.contains(Stage::Setup) {
        // Records only. The provider knows CBC records by parameters that only libssl gives.
        return Some(matches!(stage, Stage::Cipher | Stage::Mac) && !suite.protection().is_cbc());
    }
    off.contains(Stage::Handshake).then_some(false)
}

/// Evidence of a stage that occurs.
fn shown(stage: Stage, off: StageSet) -> Occurrence {
    let masked = off.contains(Stage::Kdf) && matches!(stage, Stage::KeyAgreement | Stage::Digest);
    if masked || !stage.shows() { Occurrence::Hidden } else { Occurrence::OnTheWire }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn resumption_skips_authentication_and_in_tls12_key_agreement() {
        use Occurrence::*;
        let table = [
            (Stage::Authentication, Suite::Tls13Aes128Gcm, OnTheWire, Absent),
            (Stage::KeyAgreement, Suite::Tls13Aes128Gcm, OnTheWire, OnTheWire),
            (Stage::KeyAgreement, Suite::EcdheRsaAes128Gcm, OnTheWire, Absent),
            (Stage::KeyAgreement, Suite::RsaAes128Sha, Absent, Absent),
            (Stage::Mac, Suite::RsaAes128Sha, OnTheWire, OnTheWire),
            (Stage::Randomness, Suite::RsaAes128Sha, Hidden, Hidden),
        ];
        for (stage, suite, full, resumed) in table {
            assert_eq!(occurrence(stage, suite, false, StageSet::NONE.with(stage)), full, "{stage} {suite} full");
            assert_eq!(occurrence(stage, suite, true, StageSet::NONE.with(stage)), resumed, "{stage} {suite} resumed");
        }
    }

    #[test]
    fn the_shim_leaves_little_of_a_handshake() {
        use Occurrence::*;
        let off =
            |stages: &[Stage]| StageSet::PROVIDER.without(Stage::Kdf).iter().chain(stages.iter().copied()).collect();
        let skeleton = off(&[Stage::Handshake, Stage::Marshalling]);
        let fast = off(&[Stage::SessionCache, Stage::Marshalling, Stage::RoundTrip]);
        let (aead, cbc) = (Suite::Tls13Aes128Gcm, Suite::RsaAes128Sha);
        for stage in Stage::PROVIDER {
            assert_eq!(occurrence(stage, aead, false, skeleton), Absent);
        }
        assert_eq!(occurrence(Stage::Digest, cbc, true, fast), OnTheWire);
        assert_eq!(occurrence(Stage::Randomness, cbc, true, fast), Hidden);
        // The server's Finished is protected; the client's is left out.
        assert_eq!(occurrence(Stage::Cipher, cbc, true, fast), OnTheWire);
        let minimal = off(&[Stage::Setup]);
        assert_eq!(occurrence(Stage::Cipher, aead, false, minimal), OnTheWire);
        assert_eq!(occurrence(Stage::Cipher, cbc, false, minimal), Absent);
        assert_eq!(occurrence(Stage::Digest, aead, false, minimal), Absent);
    }

    #[test]
    fn the_kdf_hides_what_only_it_shows() {
        let all = |stage, resumed| occurrence(stage, Suite::Tls13Aes128Gcm, resumed, StageSet::PROVIDER);
        assert_eq!(all(Stage::Digest, false), Occurrence::Hidden);
        assert_eq!(all(Stage::KeyAgreement, true), Occurrence::Hidden);
        assert_eq!(all(Stage::Cipher, false), Occurrence::OnTheWire);
        assert_eq!(occurrence(Stage::KeyAgreement, Suite::RsaAes128Sha, false, StageSet::PROVIDER), Occurrence::Absent);
    }
}
