//! Decryptions of several keys with one modulus, together (Shacham and Boneh 2001): requests are gathered up to a
//! number or a time, and one exponentiation decrypts them.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use openssl::pkey::Private;
use openssl::rsa::Rsa;
use tlsdyno_base::fault::{Fault, OrFault};
use tlsdyno_native::batch_rsa::BatchRsa;
use zeroize::Zeroizing;

use crate::gathering::Gathering;
use crate::premaster::{Decryptor, Secret};

#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// Most requests of one batch.
    pub batch: usize,
    /// How long a request may wait for others. Nothing: it takes what came while all threads were busy.
    pub wait: Duration,
    pub threads: usize,
}

/// What takes the secret, on a thread of the batches: it must not wait.
pub type Taker = Box<dyn FnOnce(Result<Secret, &'static str>) + Send>;

struct Waiting {
    version: u16,
    block: Vec<u8>,
    done: Taker,
}

struct Shared {
    keys: Vec<Decryptor>,
    gathering: Mutex<Gathering<Waiting>>,
    changed: Condvar,
    batches: AtomicU64,
}

/// The keys of one modulus, and threads that decrypt by them until the process ends.
pub struct Batches(Arc<Shared>);

impl Batches {
    /// Of keys in the ascending order of their public exponents.
    ///
    /// # Errors
    /// [`Fault::Input`]: they cannot decrypt together. [`Fault::Environment`]: there are no threads.
    pub fn start(keys: Vec<Rsa<Private>>, settings: Settings) -> Result<Batches> {
        let gathering = Mutex::new(Gathering::new(keys.len(), settings.batch, settings.wait));
        let decryptors = keys.iter().cloned().map(Decryptor::new).collect::<Result<_>>()?;
        let shared = Shared { keys: decryptors, gathering, changed: Condvar::new(), batches: AtomicU64::new(0) };
        let shared = Arc::new(shared);
        for _ in 0..settings.threads {
            let together = BatchRsa::new(&keys).or_fault(Fault::Input)?;
            let shared = Arc::clone(&shared);
            let thread = thread::Builder::new().name("batches".to_owned()).spawn(move || shared.serve(together));
            thread.context("start a thread").or_fault(Fault::Environment)?;
        }
        Ok(Batches(shared))
    }

    /// Decrypts a block by this member's key, with others.
    pub fn add(&self, member: usize, version: u16, block: &[u8], done: Taker) {
        if let Err(why) = self.0.keys[member].check(block) {
            return done(Err(why));
        }
        // It would spoil its batch, and every visitor can send it.
        if block.iter().all(|byte| *byte == 0) {
            return done(self.0.keys[member].decrypt(version, block));
        }
        let waiting = Waiting { version, block: block.to_vec(), done };
        if self.0.lock().add(member, Instant::now(), waiting) {
            self.0.changed.notify_one();
        }
    }

    /// Batches so far, those of one request among them.
    pub fn count(&self) -> u64 {
        self.0.batches.load(Ordering::Relaxed)
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Gathering<Waiting>> {
        self.gathering.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn serve(&self, mut together: BatchRsa) {
        loop {
            let batch = self.next();
            self.batches.fetch_add(1, Ordering::Relaxed);
            self.decrypt(&mut together, batch);
        }
    }

    fn next(&self) -> Vec<(usize, Waiting)> {
        let mut gathering = self.lock();
        loop {
            let now = Instant::now();
            gathering = match gathering.due() {
                None => self.changed.wait(gathering).unwrap_or_else(PoisonError::into_inner),
                Some(due) if due > now => {
                    let waited = self.changed.wait_timeout(gathering, due - now);
                    waited.unwrap_or_else(PoisonError::into_inner).0
                }
                Some(_) => break,
            };
        }
        let batch = gathering.take();
        if gathering.due().is_some() {
            self.changed.notify_one();
        }
        batch
    }

    fn decrypt(&self, together: &mut BatchRsa, batch: Vec<(usize, Waiting)>) {
        let blocks: Vec<(usize, &[u8])> = batch.iter().map(|(member, one)| (*member, &one.block[..])).collect();
        // One block alone costs less by OpenSSL's own way. A block that spoils a batch costs the others time, but no
        // answer.
        let plain = if blocks.len() > 1 { together.decrypt(&blocks) } else { None };
        let mut plain = plain.into_iter().flatten();
        for (member, one) in batch {
            let secret = match plain.next() {
                Some(plain) => Ok(self.keys[member].secret_in(&Zeroizing::new(plain), one.version, &one.block)),
                None => self.keys[member].decrypt(one.version, &one.block),
            };
            (one.done)(secret);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::LazyLock;
    use std::sync::mpsc::channel;

    use openssl::rsa::Padding;
    use proptest::prelude::*;

    use super::*;
    use crate::batch_keys;

    /// Of different sizes: small ones are made soon.
    static KEYS: LazyLock<Vec<Vec<Rsa<Private>>>> =
        LazyLock::new(|| [512, 768, 1024, 2048].map(|bits| batch_keys::generate(bits, 8).unwrap()).into());

    /// What OpenSSL itself makes of a block.
    fn alone(key: &Rsa<Private>, block: &[u8]) -> Vec<u8> {
        let mut plain = vec![0; block.len()];
        key.private_decrypt(block, &mut plain, Padding::NONE).unwrap();
        plain
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        #[test]
        fn any_members_decrypt_together_what_each_does_alone(
            which in 0..4usize, members in proptest::sample::subsequence((0..8usize).collect::<Vec<_>>(), 1..=8),
            seed in proptest::collection::vec(any::<u8>(), 2048), small: bool,
        ) {
            let keys = &KEYS[which];
            let bytes = keys[0].size() as usize;
            let mut blocks: Vec<Vec<u8>> = seed.chunks(bytes).take(members.len()).map(<[u8]>::to_vec).collect();
            for block in &mut blocks {
                // Below the modulus, whose highest bit is set; and numbers of few bytes, in which words are 0.
                block[0] &= 0x7f;
                if small {
                    block[..bytes - 3].fill(0);
                    block[bytes - 1] |= 1;
                }
            }
            let each = members.iter().zip(&blocks);
            let pairs: Vec<(usize, &[u8])> = each.map(|(member, block)| (*member, &block[..])).collect();
            let plain = BatchRsa::new(keys).unwrap().decrypt(&pairs).unwrap();
            for ((member, block), plain) in pairs.iter().zip(plain) {
                prop_assert_eq!(plain, alone(&keys[*member], block));
            }
        }
    }

    #[test]
    fn batches_follow_each_other_and_one_of_nothing_fails() {
        let mut together = BatchRsa::new(&KEYS[0]).unwrap();
        let (block, zero, all) = ([7; 64], [0; 64], [0x7f; 64]);
        for blocks in [&[(0, &block[..]), (7, &all[..])][..], &[(1, &all), (2, &block), (7, &block)], &[(0, &block)]] {
            let plain = together.decrypt(blocks).unwrap();
            for ((member, block), plain) in blocks.iter().zip(plain) {
                assert_eq!(plain, alone(&KEYS[0][*member], block));
            }
            assert!(together.decrypt(&[(0, &block), (1, &zero)]).is_none());
        }
        for wrong in [&[(1, &block[..]), (1, &block[..])][..], &[(2, &block), (1, &block)], &[(8, &block)], &[]] {
            assert!(together.decrypt(wrong).is_none());
        }
        assert!(together.decrypt(&[(0, &block[1..])]).is_none());
    }

    #[test]
    fn keys_that_cannot_decrypt_together_are_refused() {
        let refused = |keys: Vec<Rsa<Private>>| BatchRsa::new(&keys).err().unwrap().to_string();
        let [one, other] = [0, 1].map(|which| KEYS[which].clone());
        assert!(refused(vec![one[0].clone(), other[1].clone()]).contains("one modulus"));
        assert!(refused(vec![one[0].clone(), one[0].clone()]).contains("same public exponent"));
        assert!(refused(vec![one[0].clone()]).contains("2 to 8"));
    }

    #[test]
    fn secrets_come_to_who_asked_and_wrong_blocks_spoil_nobody_elses() {
        let keys = &KEYS[2];
        let settings = Settings { batch: 4, wait: Duration::from_millis(1), threads: 2 };
        let batches = Batches::start(keys.clone(), settings).unwrap();
        let (answers, answered) = channel();
        for number in 0..200u8 {
            let member = usize::from(number) % 8;
            let mut block = vec![0; 128];
            let secret = [&[3, 3][..], &[number; 46]].concat();
            // A number of 0 has no inverse: it is done alone.
            if number % 10 != 3 {
                keys[member].public_encrypt(&secret, &mut block, Padding::PKCS1).unwrap();
            }
            let answers = answers.clone();
            batches.add(member, 0x0303, &block, Box::new(move |secret| answers.send((number, secret)).unwrap()));
        }
        let mut numbers: Vec<u8> = (0..200)
            .map(|_| {
                let (number, secret) = answered.recv_timeout(Duration::from_secs(60)).unwrap();
                assert_eq!(secret.unwrap()[2..] == [number; 46], number % 10 != 3);
                number
            })
            .collect();
        numbers.sort_unstable();
        assert_eq!(numbers, (0..200).collect::<Vec<u8>>());
        assert!((45..180).contains(&batches.count()), "{}", batches.count());
        let (answers, answered) = channel();
        batches.add(0, 0x0303, &[0xff; 128], Box::new(move |secret| answers.send(secret).unwrap()));
        assert!(answered.recv().unwrap().is_err(), "not below the modulus");
    }
}
