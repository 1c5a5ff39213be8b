//! The key without a secret that a web server loads in place of its private key. It has the public parts, and where the
//! secret would stand [`MARKER`] and the key's identifier (`native/cryptoserver/key.c` knows it by that). Servers check
//! that it belongs to the certificate, which it does. Without the provider its signatures are worth nothing.

use anyhow::{Context, Result, bail};
use openssl::bn::{BigNum, BigNumContext};
use openssl::ec::EcKey;
use openssl::pkey::{Id, PKey};
use openssl::rsa::Rsa;
use openssl::x509::X509;

use crate::keys::id_of;

/// What stands before the identifier.
pub const MARKER: &[u8; 16] = b"tlsdyno-remote-1";

/// The stub for the first certificate in a text in PEM form, as PKCS #8 in PEM form.
///
/// # Errors
/// There is no certificate, or its key is neither RSA nor on a curve of at least 256 bits.
pub fn of_certificate(pem: &[u8]) -> Result<Vec<u8>> {
    let certificate = X509::from_pem(pem).context("no certificate in PEM form")?;
    let public = certificate.public_key().context("the certificate's key cannot be used")?;
    let marker = BigNum::from_slice(&[&MARKER[..], &id_of(&public)?].concat())?;
    let stub = match public.id() {
        Id::RSA => {
            let rsa = public.rsa()?;
            let (n, e) = (rsa.n().to_owned()?, rsa.e().to_owned()?);
            let none = BigNum::new;
            let stub = Rsa::from_private_components(n, e, marker, none()?, none()?, none()?, none()?, none()?);
            PKey::from_rsa(stub?)?
        }
        Id::EC => {
            let ec = public.ec_key()?;
            let (mut order, mut context) = (BigNum::new()?, BigNumContext::new()?);
            ec.group().order(&mut order, &mut context)?;
            if order <= marker {
                bail!("the certificate's key is on a curve of less than 256 bits");
            }
            PKey::from_ec_key(EcKey::from_private_components(ec.group(), &marker, ec.public_key())?)?
        }
        _ => bail!("the certificate's key is neither RSA nor ECDSA: no other can be at a cryptoserver"),
    };
    stub.private_key_to_pem_pkcs8().context("encode the stub")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn certificate(algorithm: &'static rcgen::SignatureAlgorithm) -> (String, String) {
        let key = rcgen::KeyPair::generate_for(algorithm).unwrap();
        let certificate = rcgen::CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
        (certificate.self_signed(&key).unwrap().pem(), key.serialize_pem())
    }

    #[test]
    fn a_stub_belongs_to_its_certificate_and_has_no_secret() {
        for algorithm in [&rcgen::PKCS_RSA_SHA256, &rcgen::PKCS_ECDSA_P256_SHA256, &rcgen::PKCS_ECDSA_P384_SHA384] {
            let (certificate, private) = certificate(algorithm);
            let private = PKey::private_key_from_pem(private.as_bytes()).unwrap();
            let stub = PKey::private_key_from_pem(&of_certificate(certificate.as_bytes()).unwrap()).unwrap();
            assert!(private.public_eq(&stub));
            let secret = match stub.id() {
                Id::RSA => stub.rsa().unwrap().d().to_vec(),
                _ => stub.ec_key().unwrap().private_key().to_vec(),
            };
            assert_eq!(secret, [&MARKER[..], &id_of(&private).unwrap()].concat());
        }
    }

    #[test]
    fn other_keys_are_refused() {
        let (certificate, _) = certificate(&rcgen::PKCS_ED25519);
        assert!(of_certificate(certificate.as_bytes()).unwrap_err().to_string().contains("neither RSA nor ECDSA"));
        assert!(of_certificate(b"nothing").is_err());
    }
}
