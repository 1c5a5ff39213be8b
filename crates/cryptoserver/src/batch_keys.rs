//! Keys and certificates for batches: one modulus, and the smallest public exponents that are coprime.

use std::fs::{self, File};
use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use openssl::asn1::Asn1Time;
use openssl::bn::{BigNum, BigNumContext, BigNumRef, MsbOption};
use openssl::hash::MessageDigest;
use openssl::pkey::{PKey, Private};
use openssl::rsa::Rsa;
use openssl::x509::extension::{BasicConstraints, SubjectAlternativeName};
use openssl::x509::{X509, X509Name};
use tlsdyno_base::fault::{Fault, OrFault};

/// Public exponents, in the order in which they are taken.
const EXPONENTS: [u32; tlsdyno_native::batch_rsa::MEMBERS_MAX] = [3, 5, 7, 11, 13, 17, 19, 23];
const DAYS: u32 = 365;

/// So many keys of one modulus, 2 to 8.
pub fn generate(bits: u32, count: usize) -> Result<Vec<Rsa<Private>>> {
    let exponents = &EXPONENTS[..count];
    let product = EXPONENTS[..count].iter().map(|exponent| u64::from(*exponent)).product::<u64>();
    // Primes that go with the product go with each of its factors.
    let made = Rsa::generate_with_e(bits, &*BigNum::from_slice(&product.to_be_bytes())?)?;
    let mut context = BigNumContext::new_secure()?;
    let (p, q) = made.p().zip(made.q()).context("a key without its primes")?;
    let less_one = |prime: &BigNumRef| -> Result<BigNum> {
        let mut less = prime.to_owned()?;
        less.sub_word(1)?;
        less.set_const_time();
        Ok(less)
    };
    let (p_less, q_less, mut both) = (less_one(p)?, less_one(q)?, BigNum::new_secure()?);
    both.checked_mul(&p_less, &q_less, &mut context)?;
    both.set_const_time();
    let mut key = |exponent: &u32| -> Result<Rsa<Private>> {
        let e = BigNum::from_u32(*exponent)?;
        let [mut d, mut d_p, mut d_q] = [BigNum::new_secure()?, BigNum::new_secure()?, BigNum::new_secure()?];
        d.mod_inverse(&e, &both, &mut context)?;
        d_p.mod_inverse(&e, &p_less, &mut context)?;
        d_q.mod_inverse(&e, &q_less, &mut context)?;
        let own = |number: &BigNumRef| number.to_owned();
        let crt = own(made.iqmp().context("a key without its coefficient")?)?;
        Ok(Rsa::from_private_components(own(made.n())?, e, d, own(p)?, own(q)?, d_p, d_q, crt)?)
    };
    exponents.iter().map(&mut key).collect()
}

/// Writes `NAME-e3.key`, `NAME-e3.pem` and so on for each of `count` keys into `directory`, which is made: private keys
/// and certificates for `name`, signed by themselves. The paths of the certificates.
///
/// # Errors
/// [`Fault::Environment`]: a file cannot be written or is there already.
pub fn write(directory: &Path, name: &str, bits: u32, count: usize) -> Result<Vec<PathBuf>> {
    let put = |path: &Path, text: &[u8], mode: u32| -> Result<()> {
        let file = File::options().write(true).create_new(true).mode(mode).open(path);
        file.and_then(|mut file| file.write_all(text)).with_context(|| format!("failed to write {}", path.display()))
    };
    let write_all = || -> Result<Vec<PathBuf>> {
        fs::create_dir_all(directory).with_context(|| format!("failed to make {}", directory.display()))?;
        let one = |(rsa, exponent): (Rsa<Private>, &u32)| {
            let path = |end: &str| directory.join(format!("{name}-e{exponent}.{end}"));
            let key = PKey::from_rsa(rsa)?;
            put(&path("key"), &key.private_key_to_pem_pkcs8()?, 0o600)?;
            put(&path("pem"), &certificate(&key, name)?.to_pem()?, 0o644)?;
            Ok(path("pem"))
        };
        generate(bits, count)?.into_iter().zip(&EXPONENTS).map(one).collect()
    };
    write_all().or_fault(Fault::Environment)
}

fn certificate(key: &PKey<Private>, name: &str) -> Result<X509> {
    let mut subject = X509Name::builder()?;
    subject.append_entry_by_text("CN", name)?;
    let (subject, mut serial, mut builder) = (subject.build(), BigNum::new()?, X509::builder()?);
    serial.rand(127, MsbOption::ONE, false)?;
    builder.set_version(2)?;
    builder.set_serial_number(&*serial.to_asn1_integer()?)?;
    builder.set_subject_name(&subject)?;
    builder.set_issuer_name(&subject)?;
    builder.set_not_before(&*Asn1Time::days_from_now(0)?)?;
    builder.set_not_after(&*Asn1Time::days_from_now(DAYS)?)?;
    builder.set_pubkey(key)?;
    builder.append_extension(BasicConstraints::new().critical().build()?)?;
    let names = SubjectAlternativeName::new().dns(name).build(&builder.x509v3_context(None, None))?;
    builder.append_extension(names)?;
    builder.sign(key, MessageDigest::sha256())?;
    Ok(builder.build())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn certificates_share_a_modulus_and_belong_to_their_keys() {
        let place = tempfile::tempdir().unwrap();
        let certificates = write(&place.path().join("made"), "localhost", 2048, 4).unwrap();
        let mut moduli = Vec::new();
        for (path, exponent) in certificates.iter().zip(EXPONENTS) {
            let certificate = X509::from_pem(&fs::read(path).unwrap()).unwrap();
            let key = PKey::private_key_from_pem(&fs::read(path.with_extension("key")).unwrap()).unwrap();
            assert!(certificate.public_key().unwrap().public_eq(&key));
            assert!(certificate.verify(&key).unwrap() && key.rsa().unwrap().check_key().unwrap());
            assert_eq!(key.rsa().unwrap().e(), &*BigNum::from_u32(exponent).unwrap());
            moduli.push(key.rsa().unwrap().n().to_vec());
        }
        moduli.dedup();
        assert_eq!((moduli.len(), certificates.len()), (1, 4));
        let again = write(&place.path().join("made"), "localhost", 2048, 4).unwrap_err();
        assert!(format!("{again:#}").contains("localhost-e3.key"), "{again:#}");
    }
}
