//! Certificates for servers under test: a root of its own and a leaf for this host's loopback names.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use openssl::pkey::PKey;
use openssl::rsa::Rsa;
use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair, KeyUsagePurpose,
    PublicKeyData, RsaKeySize, SignatureAlgorithm,
};
use serde::{Deserialize, Serialize};
use tlsdyno_record::model::CertificateKind;

use super::worker_user::create_for_workers;

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CertificateFiles {
    pub kind: CertificateKind,
    /// What the server sends: the leaf, and authorities between it and the root where there are some.
    pub chain: PathBuf,
    /// The leaf's private key, PKCS#8, readable by its owner only.
    pub key: PathBuf,
    /// The root that an honest client trusts.
    pub ca: PathBuf,
}

impl CertificateFiles {
    /// Writes chain and key into one file, which only this user can read.
    pub fn write_in_one(&self, path: &Path) -> Result<()> {
        let read = |path: &Path| fs::read(path).with_context(|| format!("read {}", path.display()));
        create_for_workers(path, None, &[read(&self.chain)?, read(&self.key)?].concat())
    }
}

/// The key of a leaf: what rcgen needs of it, and what is written. rcgen's library makes no RSA key below 2048 bits.
struct LeafKey {
    public: Vec<u8>,
    algorithm: &'static SignatureAlgorithm,
    private_pem: String,
}

impl PublicKeyData for LeafKey {
    fn der_bytes(&self) -> &[u8] {
        &self.public
    }

    fn algorithm(&self) -> &'static SignatureAlgorithm {
        self.algorithm
    }
}

impl LeafKey {
    fn generate(kind: CertificateKind) -> Result<LeafKey> {
        if let Some(bits) = kind.rsa_bits().filter(|_| kind.is_small_rsa()) {
            return LeafKey::small_rsa(bits).with_context(|| format!("generate a {kind} key"));
        }
        let key = generate_key(kind)?;
        let (public, algorithm) = (key.der_bytes().to_vec(), key.algorithm());
        Ok(LeafKey { public, algorithm, private_pem: key.serialize_pem() })
    }

    fn small_rsa(bits: u32) -> Result<LeafKey> {
        let key = Rsa::generate(bits)?;
        let public = key.public_key_to_der_pkcs1()?;
        let private_pem = String::from_utf8(PKey::from_rsa(key)?.private_key_to_pem_pkcs8()?)?;
        Ok(LeafKey { public, algorithm: &rcgen::PKCS_RSA_SHA256, private_pem })
    }
}

fn generate_key(kind: CertificateKind) -> Result<KeyPair> {
    let rsa = |size| KeyPair::generate_rsa_for(&rcgen::PKCS_RSA_SHA256, size);
    match kind {
        // Small ones are made otherwise.
        CertificateKind::Rsa512 | CertificateKind::Rsa768 | CertificateKind::Rsa1024 | CertificateKind::Rsa2048 => {
            rsa(RsaKeySize::_2048)
        }
        CertificateKind::Rsa3072 => rsa(RsaKeySize::_3072),
        CertificateKind::Rsa4096 => rsa(RsaKeySize::_4096),
        CertificateKind::P256 => KeyPair::generate_for(&rcgen::PKCS_ECDSA_P256_SHA256),
        CertificateKind::P384 => KeyPair::generate_for(&rcgen::PKCS_ECDSA_P384_SHA384),
        CertificateKind::Ed25519 => {
            // OpenSSL before 3.5 does not read what rcgen writes (RFC 5958, version 2).
            let pkcs8 = PKey::generate_ed25519().and_then(|key| key.private_key_to_pkcs8());
            let pkcs8 = pkcs8.context("generate an Ed25519 key")?;
            KeyPair::from_pkcs8_der_and_sign_algo(&pkcs8.into(), &rcgen::PKCS_ED25519)
        }
        CertificateKind::MlDsa44 => KeyPair::generate_for(&rcgen::PKCS_ML_DSA_44),
        CertificateKind::MlDsa65 => KeyPair::generate_for(&rcgen::PKCS_ML_DSA_65),
        CertificateKind::MlDsa87 => KeyPair::generate_for(&rcgen::PKCS_ML_DSA_87),
    }
    .with_context(|| format!("generate a {kind} key"))
}

/// Whether the system's OpenSSL has ML-KEM and ML-DSA. The built-in server runs with it, as distributions' servers do.
pub fn has_post_quantum() -> bool {
    // OPENSSL_VERSION_NUMBER of 3.5.0 (openssl/opensslv.h).
    openssl::version::number() >= 0x3050_0000
}

/// Makes a root and a leaf of this kind and writes `KIND.chain.pem`, `KIND.key.pem`, `KIND.ca.pem` into `directory`.
///
/// The leaf is for `localhost`, `127.0.0.1` and `::1` and valid for the years that rcgen takes for granted (1975 to
/// 4096), so that a wrong clock cannot spoil an experiment. The root has a key of the same type, RSA always of 2048
/// bits: its size costs an honest client time, the server none.
pub fn create(kind: CertificateKind, directory: &Path) -> Result<CertificateFiles> {
    create_chain(kind, 1, directory)
}

/// The same with so many certificates that the server sends: its own, and authorities between it and the root, with
/// keys like the root's.
pub fn create_chain(kind: CertificateKind, length: u32, directory: &Path) -> Result<CertificateFiles> {
    let root_kind = if kind.is_rsa() { CertificateKind::Rsa2048 } else { kind };
    let root_key = generate_key(root_kind)?;
    let between = length.saturating_sub(1) as u8;
    let root = authority_parameters("tlsdyno root of one run", between);
    let root_pem = root.self_signed(&root_key).context("sign the root certificate")?.pem();
    let leaf_key = LeafKey::generate(kind)?;
    let mut issuer = Issuer::new(root, root_key);
    // As a server sends them: each behind the one that it signs.
    let mut authorities_pem = String::new();
    for below in (0..between).rev() {
        let key = generate_key(root_kind)?;
        let authority = authority_parameters(&format!("tlsdyno authority {} of one run", between - below), below);
        let signed = authority.signed_by(&key, &issuer).context("sign a certificate of the chain")?;
        authorities_pem.insert_str(0, &signed.pem());
        issuer = Issuer::new(authority, key);
    }
    let leaf_pem = leaf_parameters(kind)?.signed_by(&leaf_key, &issuer).context("sign the server certificate")?.pem();
    let leaf_pem = leaf_pem + &authorities_pem;

    let file = |part: &str| directory.join(format!("{kind}.{part}.pem"));
    let files = CertificateFiles { kind, chain: file("chain"), key: file("key"), ca: file("ca") };
    fs::write(&files.chain, leaf_pem).with_context(|| format!("write {}", files.chain.display()))?;
    fs::write(&files.ca, root_pem).with_context(|| format!("write {}", files.ca.display()))?;
    create_for_workers(&files.key, None, leaf_key.private_pem.as_bytes())?;
    Ok(files)
}

/// An authority that may certify chains of `below` more authorities.
fn authority_parameters(name: &str, below: u8) -> CertificateParams {
    let mut authority = CertificateParams::default();
    authority.distinguished_name.push(DnType::CommonName, name);
    authority.is_ca = IsCa::Ca(BasicConstraints::Constrained(below));
    authority.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    authority
}

fn leaf_parameters(kind: CertificateKind) -> Result<CertificateParams> {
    let names = ["localhost", "127.0.0.1", "::1"].map(str::to_owned).to_vec();
    let mut leaf = CertificateParams::new(names).context("name the server certificate")?;
    leaf.distinguished_name.push(DnType::CommonName, "localhost");
    leaf.use_authority_key_identifier_extension = true;
    leaf.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    leaf.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    if kind.is_rsa() {
        // Static RSA key exchange encrypts to the key (RFC 5246 section 7.4.2).
        leaf.key_usages.push(KeyUsagePurpose::KeyEncipherment);
    }
    Ok(leaf)
}

#[cfg(test)]
mod tests {
    use openssl::ssl::{SslContext, SslFiletype, SslMethod};
    use openssl::x509::X509;

    use super::*;

    #[test]
    fn openssl_accepts_key_chain_and_names() {
        let directory = tempfile::tempdir().unwrap();
        for kind in CertificateKind::ALL {
            if kind.is_post_quantum() && !has_post_quantum() {
                continue;
            }
            let files = create(kind, directory.path()).unwrap();
            let mut context = SslContext::builder(SslMethod::tls_server()).unwrap();
            context.set_security_level(0);
            context.set_certificate_chain_file(&files.chain).unwrap();
            context.set_private_key_file(&files.key, SslFiletype::PEM).unwrap();
            context.check_private_key().unwrap();
            let root = X509::from_pem(&fs::read(&files.ca).unwrap()).unwrap();
            let leaf = X509::from_pem(&fs::read(&files.chain).unwrap()).unwrap();
            assert!(leaf.verify(&root.public_key().unwrap()).unwrap(), "{kind}");
            let names = leaf.subject_alt_names().unwrap();
            assert!(names.iter().any(|name| name.dnsname() == Some("localhost")));
            assert!(names.iter().any(|name| name.ipaddress() == Some(&[127, 0, 0, 1])));
            let bits = leaf.public_key().unwrap().rsa().ok().map(|key| key.size() * 8);
            assert_eq!(bits, kind.rsa_bits());
            let mode = std::os::unix::fs::PermissionsExt::mode(&fs::metadata(&files.key).unwrap().permissions());
            assert_eq!(mode & 0o777, 0o600);
        }
    }

    #[test]
    fn a_chain_leads_from_the_leaf_to_the_root() {
        let directory = tempfile::tempdir().unwrap();
        for kind in [CertificateKind::Rsa512, CertificateKind::P256] {
            let files = create_chain(kind, 3, directory.path()).unwrap();
            let mut chain = X509::stack_from_pem(&fs::read(&files.chain).unwrap()).unwrap();
            assert_eq!(chain.len(), 3);
            chain.push(X509::from_pem(&fs::read(&files.ca).unwrap()).unwrap());
            for pair in chain.windows(2) {
                assert!(pair[0].verify(&pair[1].public_key().unwrap()).unwrap(), "{kind}");
            }
        }
    }

    #[test]
    fn names_round_trip() {
        for kind in CertificateKind::ALL {
            assert_eq!(kind.name().parse(), Ok(kind));
            assert_eq!(serde_json::to_string(&kind).unwrap(), format!("\"{kind}\""));
        }
        assert!("rsa".parse::<CertificateKind>().unwrap_err().to_string().contains("rsa-2048"));
    }
}
