//! What a server shows: the certificates of a file.

use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result};
use openssl::asn1::Asn1Time;
use openssl::pkey::Id;
use openssl::x509::X509;
use tlsdyno_base::input;
use tlsdyno_base::units::format_of;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Certificate {
    /// As `RSA-2048`, `P-256`.
    pub key: String,
    /// Size of the elliptic curve of the key; `None`: not an elliptic-curve key.
    pub curve_bits: Option<u32>,
    /// Number of certificates that are sent, and their bytes.
    pub chain: [usize; 2],
    /// The chain ends with a root, which clients have themselves.
    pub sends_root: bool,
    /// Until it expires; negative: expired.
    pub days_left: i32,
}

impl Certificate {
    /// The first certificate of a PEM file, with the chain that follows it.
    pub fn read(path: &Path) -> Result<Certificate> {
        let chain = X509::stack_from_pem(&input::read(path, input::TEXT_BYTES_MAX)?)?;
        let first = chain.first().with_context(|| format!("{} holds no certificate", path.display()))?;
        let key = first.public_key()?;
        let name = match key.id() {
            Id::RSA => format!("RSA-{}", key.bits()),
            Id::EC => format!("P-{}", key.bits()),
            Id::ED25519 => "Ed25519".to_owned(),
            other => format!("key of type {}", other.as_raw()),
        };
        let is_root = |of: &X509| of.issuer_name().to_der().ok() == of.subject_name().to_der().ok();
        let now_s = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs() as i64);
        let mut bytes = 0;
        for certificate in &chain {
            bytes += certificate.to_der()?.len();
        }
        Ok(Certificate {
            key: name,
            curve_bits: matches!(key.id(), Id::EC | Id::ED25519).then(|| key.bits()),
            chain: [chain.len(), bytes],
            sends_root: chain.len() > 1 && chain.last().is_some_and(is_root),
            days_left: Asn1Time::from_unix(now_s)?.diff(first.not_after())?.days,
        })
    }

    /// Its signatures are as cheap as those on P-256.
    pub fn is_fast(&self) -> bool {
        self.curve_bits.is_some_and(|bits| bits <= 256)
    }

    pub fn told(&self) -> String {
        let [count, bytes] = self.chain;
        let root = if self.sends_root { ", with a root that clients have" } else { "" };
        let days = match self.days_left {
            ..0 => ", which has ended".to_owned(),
            days => format!(", {} left", format_of(days as f64, "day")),
        };
        format!("{}, chain of {count}, {bytes} bytes{root}{days}", self.key)
    }
}

#[cfg(test)]
mod tests {
    use tlsdyno_record::model::CertificateKind;
    use tlsdyno_servers::certificates;

    use super::*;

    #[test]
    fn keys_and_chains_are_told() {
        let place = tempfile::tempdir().unwrap();
        for (kind, key) in
            [(CertificateKind::Rsa2048, "RSA-2048"), (CertificateKind::P256, "P-256"), (CertificateKind::P384, "P-384")]
        {
            let files = certificates::create(kind, place.path()).unwrap();
            let certificate = Certificate::read(&files.chain).unwrap();
            assert!(certificate.days_left > 0 && certificate.told().starts_with(key), "{}", certificate.told());
            assert_eq!(certificate.is_fast(), key == "P-256", "{key}");
        }
        let empty = place.path().join("empty.pem");
        std::fs::write(&empty, "nothing").unwrap();
        assert!(Certificate::read(&empty).unwrap_err().to_string().contains("holds no certificate"));
    }
}
