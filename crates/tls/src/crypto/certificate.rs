//! The few fields of an X.509 certificate that the client needs at every effort: the public key, and the validity
//! period (RFC 5280 section 4.1). Chains and names are rustls-webpki's (see [`super::verify`]).

use super::CryptoError;

/// What the public key of a certificate is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyKind {
    /// An RSA key that signs.
    Rsa {
        /// Length of the modulus in bytes, which is also that of a signature.
        modulus_bytes: usize,
    },
    /// An ECDSA key on P-256.
    P256,
    /// An ECDSA key on P-384.
    P384,
    /// An ECDSA key on P-521.
    P521,
    /// An Ed25519 key (RFC 8410).
    Ed25519,
    /// An ML-DSA-44 key (RFC 9881), as the next two.
    MlDsa44,
    /// An ML-DSA-65 key.
    MlDsa65,
    /// An ML-DSA-87 key.
    MlDsa87,
    /// A key that the client cannot use.
    Other,
}

/// The public key of a certificate, borrowed from its DER form.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PublicKey<'a> {
    /// The whole SubjectPublicKeyInfo in DER.
    pub spki_der: &'a [u8],
    /// The key proper: an RSAPublicKey, an uncompressed point, or the bytes of the algorithm's own form.
    pub key: &'a [u8],
    /// Algorithm and size of the key.
    pub kind: KeyKind,
}

/// The fields read from a certificate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Certificate<'a> {
    /// The public key of the subject.
    pub public_key: PublicKey<'a>,
    /// First second of validity, in Unix time.
    pub not_before_unix_s: u64,
    /// Last second of validity, in Unix time.
    pub not_after_unix_s: u64,
    /// Issuer and subject are the same.
    pub self_issued: bool,
}

const SEQUENCE: u8 = 0x30;
const INTEGER: u8 = 0x02;
const BIT_STRING: u8 = 0x03;
const OID: u8 = 0x06;
const UTC_TIME: u8 = 0x17;
const GENERALIZED_TIME: u8 = 0x18;
/// `[0] EXPLICIT Version`; absent from version 1 certificates.
const VERSION: u8 = 0xa0;

const OID_RSA: &[u8] = &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x01, 0x01];
const OID_EC: &[u8] = &[0x2a, 0x86, 0x48, 0xce, 0x3d, 0x02, 0x01];
const OID_ED25519: &[u8] = &[0x2b, 0x65, 0x70];
const OID_ML_DSA_44: &[u8] = &[0x60, 0x86, 0x48, 0x01, 0x65, 0x03, 0x04, 0x03, 0x11];
const OID_ML_DSA_65: &[u8] = &[0x60, 0x86, 0x48, 0x01, 0x65, 0x03, 0x04, 0x03, 0x12];
const OID_ML_DSA_87: &[u8] = &[0x60, 0x86, 0x48, 0x01, 0x65, 0x03, 0x04, 0x03, 0x13];
const OID_P256: &[u8] = &[0x2a, 0x86, 0x48, 0xce, 0x3d, 0x03, 0x01, 0x07];
const OID_P384: &[u8] = &[0x2b, 0x81, 0x04, 0x00, 0x22];
const OID_P521: &[u8] = &[0x2b, 0x81, 0x04, 0x00, 0x23];

impl<'a> Certificate<'a> {
    /// Reads a certificate. Its signature and extensions are not looked at.
    ///
    /// # Errors
    /// [`CryptoError::MalformedCertificate`].
    pub fn from_der(der: &'a [u8]) -> Result<Certificate<'a>, CryptoError> {
        let mut certificate = Der(Der(der).read(SEQUENCE)?);
        let mut tbs = Der(certificate.read(SEQUENCE)?);
        if tbs.0.first() == Some(&VERSION) {
            tbs.read(VERSION)?;
        }
        tbs.read(INTEGER)?; // serial number
        tbs.read(SEQUENCE)?; // signature algorithm
        let issuer = tbs.read(SEQUENCE)?;
        let mut validity = Der(tbs.read(SEQUENCE)?);
        let not_before_unix_s = validity.read_time()?;
        let not_after_unix_s = validity.read_time()?;
        let self_issued = tbs.read(SEQUENCE)? == issuer;
        let public_key = PublicKey::from_spki(tbs.read_whole(SEQUENCE)?)?;
        Ok(Certificate { public_key, not_before_unix_s, not_after_unix_s, self_issued })
    }
}

impl<'a> PublicKey<'a> {
    /// Reads a SubjectPublicKeyInfo.
    ///
    /// # Errors
    /// [`CryptoError::MalformedCertificate`].
    pub fn from_spki(spki_der: &'a [u8]) -> Result<PublicKey<'a>, CryptoError> {
        let mut spki = Der(Der(spki_der).read(SEQUENCE)?);
        let mut algorithm = Der(spki.read(SEQUENCE)?);
        let oid = algorithm.read(OID)?;
        let key = match spki.read(BIT_STRING)?.split_first() {
            Some((0, key)) => key,
            _ => {
                return Err(CryptoError::MalformedCertificate("the public key is not a string of whole bytes"));
            }
        };
        let kind = match oid {
            OID_RSA => KeyKind::Rsa { modulus_bytes: modulus_bytes(key)? },
            OID_EC => match algorithm.read(OID)? {
                OID_P256 => KeyKind::P256,
                OID_P384 => KeyKind::P384,
                OID_P521 => KeyKind::P521,
                _ => KeyKind::Other,
            },
            OID_ED25519 => KeyKind::Ed25519,
            OID_ML_DSA_44 => KeyKind::MlDsa44,
            OID_ML_DSA_65 => KeyKind::MlDsa65,
            OID_ML_DSA_87 => KeyKind::MlDsa87,
            _ => KeyKind::Other,
        };
        Ok(PublicKey { spki_der, key, kind })
    }
}

fn modulus_bytes(rsa_public_key: &[u8]) -> Result<usize, CryptoError> {
    let modulus = Der(Der(rsa_public_key).read(SEQUENCE)?).read(INTEGER)?;
    let leading_zeros = modulus.iter().take_while(|&&byte| byte == 0).count();
    Ok(modulus.len() - leading_zeros)
}

struct Der<'a>(&'a [u8]);

impl<'a> Der<'a> {
    /// The content of the next element, which must have this tag.
    fn read(&mut self, tag: u8) -> Result<&'a [u8], CryptoError> {
        self.read_parts(tag).map(|(_, content)| content)
    }

    /// The next element with its tag and length.
    fn read_whole(&mut self, tag: u8) -> Result<&'a [u8], CryptoError> {
        self.read_parts(tag).map(|(whole, _)| whole)
    }

    fn read_parts(&mut self, tag: u8) -> Result<(&'a [u8], &'a [u8]), CryptoError> {
        const MALFORMED: CryptoError = CryptoError::MalformedCertificate("unexpected or truncated DER element");
        let [found, first, rest @ ..] = self.0 else {
            return Err(MALFORMED);
        };
        if *found != tag {
            return Err(MALFORMED);
        }
        let (header, length) = match *first {
            short @ 0..=0x7f => (2, short as usize),
            0x81..=0x83 => {
                let count = (*first - 0x80) as usize;
                let bytes = rest.get(..count).ok_or(MALFORMED)?;
                (2 + count, bytes.iter().fold(0, |length, &byte| length << 8 | byte as usize))
            }
            _ => return Err(MALFORMED),
        };
        let (whole, after) = self.0.split_at_checked(header + length).ok_or(MALFORMED)?;
        self.0 = after;
        Ok((whole, &whole[header..]))
    }

    /// A UTCTime or GeneralizedTime in the forms that RFC 5280 section 4.1.2.5 allows, in Unix time; times before 1970
    /// are 0.
    fn read_time(&mut self) -> Result<u64, CryptoError> {
        const MALFORMED: CryptoError = CryptoError::MalformedCertificate("unreadable validity time");
        let (text, year_digits) = match self.0.first() {
            Some(&UTC_TIME) => (self.read(UTC_TIME)?, 2),
            _ => (self.read(GENERALIZED_TIME)?, 4),
        };
        let (digits, zone) = text.split_at_checked(year_digits + 10).ok_or(MALFORMED)?;
        if zone != b"Z" || !digits.iter().all(u8::is_ascii_digit) {
            return Err(MALFORMED);
        }
        let number = |digits: &[u8]| digits.iter().fold(0, |value, digit| value * 10 + i64::from(digit - b'0'));
        let (year, rest) = digits.split_at(year_digits);
        let year = match number(year) {
            year if year_digits == 4 => year,
            year if year < 50 => 2000 + year,
            year => 1900 + year,
        };
        let [month, day, hour, minute, second] = [0, 2, 4, 6, 8].map(|at| number(&rest[at..at + 2]));
        if !(1..=12).contains(&month) {
            return Err(MALFORMED);
        }
        let seconds = ((days_since_1970(year, month, day) * 24 + hour) * 60 + minute) * 60 + second;
        Ok(seconds.max(0) as u64)
    }
}

/// Days from 1970-01-01 to a date of the Gregorian calendar, counting years from March so that the leap day comes last.
fn days_since_1970(year: i64, month: i64, day: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let day_of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    year * 365 + year.div_euclid(4) - year.div_euclid(100) + year.div_euclid(400) + day_of_year - 719_468
}

#[cfg(test)]
mod tests {
    use openssl::asn1::Asn1Time;
    use openssl::ec::{EcGroup, EcKey};
    use openssl::hash::MessageDigest;
    use openssl::nid::Nid;
    use openssl::pkey::PKey;
    use openssl::x509::X509;

    use super::*;

    /// A certificate of OpenSSL's, of X.509 version 1 (`version` 0) or 3 (2).
    fn certificate(version: i32, not_before_unix_s: i64, not_after_unix_s: i64) -> Vec<u8> {
        let key = EcKey::generate(&EcGroup::from_curve_name(Nid::SECP384R1).unwrap()).unwrap();
        let key = PKey::from_ec_key(key).unwrap();
        let mut builder = X509::builder().unwrap();
        builder.set_version(version).unwrap();
        builder.set_pubkey(&key).unwrap();
        builder.set_not_before(&Asn1Time::from_unix(not_before_unix_s).unwrap()).unwrap();
        builder.set_not_after(&Asn1Time::from_unix(not_after_unix_s).unwrap()).unwrap();
        builder.sign(&key, MessageDigest::sha384()).unwrap();
        builder.build().to_der().unwrap()
    }

    #[test]
    fn key_and_validity_are_read_from_either_version() {
        // 2000-02-29 and 1999-12-31 as UTCTime, 2050-03-01 and 2262-04-11 as GeneralizedTime.
        for (version, before, after) in [(0, 951_782_400, 2_529_705_599), (2, 946_684_799, 9_223_372_036)] {
            let der = certificate(version, before, after);
            let read = Certificate::from_der(&der).unwrap();
            assert_eq!((read.not_before_unix_s, read.not_after_unix_s), (before as u64, after as u64));
            assert_eq!((read.public_key.kind, read.public_key.key.len()), (KeyKind::P384, 97));
        }
    }

    #[test]
    fn damaged_certificates_never_panic() {
        let der = certificate(2, 0, 1);
        for length in 0..der.len() {
            assert!(Certificate::from_der(&der[..length]).is_err());
        }
        for position in 0..der.len() {
            for value in [0, 0x7f, 0x80, 0x84, 0xff] {
                let mut damaged = der.clone();
                damaged[position] = value;
                let _ = Certificate::from_der(&damaged);
            }
        }
    }
}
