//! The private keys that a service holds, and what it does with them.

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, Result, anyhow};
use aws_lc_rs::digest::{SHA256, digest};
use openssl::hash::MessageDigest;
use openssl::pkey::{HasPublic, Id, PKey, PKeyRef, Private};
use openssl::rsa::Rsa;
use openssl::sign::Signer;
use rustls::SignatureScheme;
use rustls::crypto::aws_lc_rs::sign::any_supported_type;
use rustls::sign::SigningKey;
use rustls_pki_types::PrivateKeyDer;
use tlsdyno_base::fault::{Fault, OrFault};

use crate::batch::{Batches, Settings};
use crate::form::{self, Form};
use crate::frame::{ANSWER_BYTES_MAX, KeyId, Operation, Request, Status};
use crate::identity::read_private;
use crate::premaster::Decryptor;

/// Which key it is: the same for a private key and for a certificate with its public part.
pub fn id_of<K: HasPublic>(key: &PKeyRef<K>) -> Result<KeyId> {
    let spki = key.public_key_to_der().context("encode a public key")?;
    Ok(digest(&SHA256, &spki).as_ref().first_chunk().copied().expect("a hash of 32 bytes"))
}

struct Key {
    signing: Arc<dyn SigningKey>,
    /// For what `signing` does not have: in TLS 1.2 a curve goes with every hash.
    curve: Option<PKey<Private>>,
    decrypting: Option<Decryptor>,
    /// Where it does so together with others: its place among them.
    together: Option<(Arc<Batches>, usize)>,
}

pub struct Keys {
    by_id: HashMap<KeyId, Key>,
    /// Keys that decrypt together, by modulus.
    batches: Vec<Arc<Batches>>,
}

impl Keys {
    /// Reads the keys in these files, which nobody else may read. `decryption`: RSA keys decrypt, too.
    ///
    /// # Errors
    /// [`Fault::Input`]: a file cannot be read, or by everybody, or holds no key that signs handshakes.
    pub fn read<P: AsRef<Path>>(files: &[P], decryption: bool) -> Result<Keys> {
        let read = |file: &P| {
            let file = file.as_ref();
            read_one(file, decryption).with_context(|| format!("the key {}", file.display()))
        };
        let by_id = files.iter().map(read).collect::<Result<_>>().or_fault(Fault::Input)?;
        Ok(Keys { by_id, batches: Vec::new() })
    }

    /// Keys that share a modulus decrypt together from now on.
    ///
    /// # Errors
    /// [`Fault::Usage`]: there are not as many of one modulus as a batch shall have. [`Fault::Input`]: they cannot
    /// decrypt together. [`Fault::Environment`]: there are no threads.
    pub fn batch(&mut self, settings: Settings) -> Result<()> {
        let mut families: HashMap<Vec<u8>, Vec<(KeyId, Rsa<Private>)>> = HashMap::new();
        for (id, rsa) in self.by_id.iter().filter_map(|(id, key)| Some((*id, key.decrypting.as_ref()?.rsa().clone()))) {
            families.entry(rsa.n().to_vec()).or_default().push((id, rsa));
        }
        families.retain(|_, family| family.len() > 1);
        let most = families.values().map(Vec::len).max().unwrap_or(0);
        ensure_fault!(
            Usage,
            families.values().all(|family| family.len() >= settings.batch) && most > 0,
            "--batch {} needs as many RSA keys of one modulus, each with --key, and there are {most}; \
             `tlsdyno cryptoserver batch-keys` makes some",
            settings.batch
        );
        for mut family in families.into_values() {
            family.sort_by(|one, other| one.1.e().ucmp(other.1.e()));
            let (ids, keys): (Vec<KeyId>, Vec<_>) = family.into_iter().unzip();
            let batches = Arc::new(Batches::start(keys, settings)?);
            for (place, id) in ids.into_iter().enumerate() {
                self.by_id.entry(id).and_modify(|key| key.together = Some((Arc::clone(&batches), place)));
            }
            self.batches.push(batches);
        }
        Ok(())
    }

    /// Where a request waits for others, and as whose.
    pub fn batches_of(&self, request: &Request) -> Option<(&Batches, usize)> {
        let key = self.by_id.get(&request.key).filter(|_| request.operation == Operation::Decrypt)?;
        key.together.as_ref().map(|(batches, place)| (&**batches, *place))
    }

    pub fn batch_count(&self) -> u64 {
        self.batches.iter().map(|batches| batches.count()).sum()
    }

    pub fn count(&self) -> usize {
        self.by_id.len()
    }

    /// Does what is asked for: a signature or a secret.
    ///
    /// # Errors
    /// How the request ended otherwise, and why.
    pub fn perform(&self, request: &Request) -> Result<Vec<u8>, (Status, &'static str)> {
        let key = self.by_id.get(&request.key).ok_or((Status::NoKey, "the cryptoserver has no such key"))?;
        match request.operation {
            Operation::Sign => key.sign(request.detail, request.message),
            Operation::Decrypt => {
                let off = "the cryptoserver decrypts nothing: it runs without --allow-decryption, or the key is no RSA";
                let decryptor = key.decrypting.as_ref().ok_or((Status::Refused, off))?;
                let secret = decryptor.decrypt(request.detail, request.message);
                secret.map(Vec::from).map_err(|why| (Status::Refused, why))
            }
        }
    }
}

impl Key {
    fn sign(&self, scheme: u16, message: &[u8]) -> Result<Vec<u8>, (Status, &'static str)> {
        let form = form::of(message, scheme).map_err(|why| (Status::Refused, why))?;
        let failed = (Status::Failed, "the signature failed");
        if let Some(signer) = self.signing.choose_scheme(&[SignatureScheme::from(scheme)]) {
            return signer.sign(message).map_err(|_| failed);
        }
        let hash = match scheme {
            0x0403 => MessageDigest::sha256(),
            0x0503 => MessageDigest::sha384(),
            _ => MessageDigest::sha512(),
        };
        let curve = self.curve.as_ref().filter(|_| form == Form::ServerKeyExchange && scheme & 0xff == 3);
        let key = curve.ok_or((Status::Refused, "the key has not this signature scheme"))?;
        Signer::new(hash, key).and_then(|mut signer| signer.sign_oneshot_to_vec(message)).map_err(|_| failed)
    }
}

fn read_one(file: &Path, decryption: bool) -> Result<(KeyId, Key)> {
    let pem = read_private(file)?;
    // Without a question for a passphrase.
    let key = PKey::private_key_from_pem_callback(&pem, |_| Ok(0)).context("no private key in PEM form")?;
    let rsa = (key.id() == Id::RSA).then(|| key.rsa()).transpose()?;
    let too_large = rsa.as_ref().is_some_and(|rsa| rsa.size() as usize > ANSWER_BYTES_MAX);
    ensure_fault!(Input, !too_large, "RSA keys have at most 4096 bits here");
    ensure_fault!(Input, matches!(key.id(), Id::RSA | Id::EC), "only RSA and ECDSA keys sign here");
    let der = PrivateKeyDer::try_from(key.private_key_to_pkcs8()?).map_err(|why| anyhow!("{why}"))?;
    let signing = any_supported_type(&der).context("it signs no handshake")?;
    let id = id_of(&key)?;
    let curve = (key.id() == Id::EC).then_some(key);
    let decrypting = rsa.filter(|_| decryption).map(Decryptor::new).transpose()?;
    Ok((id, Key { signing, curve, decrypting, together: None }))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use openssl::rsa::Padding;
    use openssl::sign::{RsaPssSaltlen, Verifier};

    use super::*;

    fn keys(kinds: &[&'static rcgen::SignatureAlgorithm], decryption: bool) -> (Keys, Vec<PKey<Private>>) {
        let place = tempfile::tempdir().unwrap();
        let made = kinds.iter().enumerate().map(|(number, kind)| {
            let (path, pem) = (place.path().join(number.to_string()), rcgen::KeyPair::generate_for(kind).unwrap());
            std::fs::write(&path, pem.serialize_pem()).unwrap();
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
            (path, PKey::private_key_from_pem(pem.serialize_pem().as_bytes()).unwrap())
        });
        let (paths, private): (Vec<_>, Vec<_>) = made.unzip();
        (Keys::read(&paths, decryption).unwrap(), private)
    }

    fn request<'a>(key: &PKey<Private>, operation: Operation, detail: u16, message: &'a [u8]) -> Request<'a> {
        Request { tag: 1, operation, key: id_of(key).unwrap(), detail, message }
    }

    /// Whether OpenSSL takes it for a signature of that scheme.
    fn verifies(key: &PKey<Private>, scheme: u16, message: &[u8], signature: &[u8]) -> bool {
        let hash = match scheme {
            0x0804 | 0x0403 | 0x0401 => MessageDigest::sha256(),
            _ => MessageDigest::sha384(),
        };
        let mut verifier = Verifier::new(hash, key).unwrap();
        if scheme >> 8 == 8 {
            verifier.set_rsa_padding(Padding::PKCS1_PSS).unwrap();
            verifier.set_rsa_pss_saltlen(RsaPssSaltlen::DIGEST_LENGTH).unwrap();
        }
        verifier.verify_oneshot(signature, message).unwrap()
    }

    #[test]
    fn handshakes_are_signed_and_nothing_else() {
        let kinds = [&rcgen::PKCS_RSA_SHA256, &rcgen::PKCS_ECDSA_P256_SHA256, &rcgen::PKCS_ECDSA_P384_SHA384];
        let (keys, private) = keys(&kinds, false);
        let mut signed = 0;
        for (message, scheme) in form::examples() {
            for key in &private {
                match keys.perform(&request(key, Operation::Sign, scheme, &message)) {
                    Ok(signature) => {
                        assert!(verifies(key, scheme, &message, &signature), "{scheme:04x}");
                        signed += 1;
                    }
                    Err((status, _)) => assert_eq!(status, Status::Refused, "another key's scheme"),
                }
                let hash = digest(&SHA256, &message);
                let oracle = keys.perform(&request(key, Operation::Sign, scheme, hash.as_ref()));
                assert_eq!(oracle.unwrap_err().0, Status::Refused);
            }
        }
        // One by each key that fits; the last by two, as in TLS 1.2 a curve goes with every hash.
        assert_eq!(signed, form::examples().len() + 1);
    }

    #[test]
    fn decryption_is_off_unless_asked_for_and_for_other_keys() {
        let kinds = [&rcgen::PKCS_RSA_SHA256, &rcgen::PKCS_ECDSA_P256_SHA256];
        for allowed in [false, true] {
            let (keys, private) = keys(&kinds, allowed);
            let mut block = [0; 256];
            private[0].rsa().unwrap().public_encrypt(&[3; 48], &mut block, Padding::PKCS1).unwrap();
            let answers = [0, 1].map(|at| keys.perform(&request(&private[at], Operation::Decrypt, 0x0303, &block)));
            assert_eq!(answers[0].as_deref().ok(), allowed.then_some(&[3; 48][..]));
            assert_eq!(answers[1].as_ref().unwrap_err().0, Status::Refused);
        }
    }

    #[test]
    fn keys_of_one_modulus_decrypt_together_and_fewer_than_a_batch_are_refused() {
        let place = tempfile::tempdir().unwrap();
        let certificates = crate::batch_keys::write(place.path(), "site", 2048, 3).unwrap();
        let paths: Vec<_> = certificates.iter().map(|path| path.with_extension("key")).collect();
        let settings = Settings { batch: 3, wait: std::time::Duration::from_millis(1), threads: 1 };
        let mut keys = Keys::read(&paths, true).unwrap();
        keys.batch(settings).unwrap();
        for (member, path) in paths.iter().enumerate() {
            let key = PKey::private_key_from_pem(&std::fs::read(path).unwrap()).unwrap();
            let found = keys.batches_of(&request(&key, Operation::Decrypt, 0x0303, b"")).unwrap();
            assert_eq!(found.1, member);
            assert!(keys.batches_of(&request(&key, Operation::Sign, 0x0303, b"")).is_none());
        }
        let refused = Keys::read(&paths[..2], true).unwrap().batch(settings).unwrap_err().to_string();
        assert!(refused.contains("there are 2") && refused.contains("batch-keys"), "{refused}");
        assert!(Keys::read(&paths, false).unwrap().batch(settings).is_err(), "they decrypt nothing");
    }

    #[test]
    fn a_key_that_is_not_there_is_named_so() {
        let (keys, private) = keys(&[&rcgen::PKCS_ECDSA_P256_SHA256], false);
        let stranger = Request { key: [0; 16], ..request(&private[0], Operation::Sign, 0x0403, b"") };
        assert_eq!(keys.perform(&stranger).unwrap_err().0, Status::NoKey);
    }
}
