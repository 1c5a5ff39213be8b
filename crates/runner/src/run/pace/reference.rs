//! What fixed work of ours costs on a CPU at a moment, in turns with blocks and slices: the machine's pace of a run in
//! work of the kinds that a TLS server does. None of it is the server's own library, or a fast library would look dear.

use std::hint::black_box;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use aws_lc_rs::agreement::{self, PrivateKey, UnparsedPublicKey, X25519};
use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::rsa::KeySize;
use aws_lc_rs::signature::{ECDSA_P256_SHA256_ASN1_SIGNING, EcdsaKeyPair, RSA_PSS_SHA256, RsaKeyPair};
use tlsdyno_record::store::Reference;
use tlsdyno_sys::thread_cpu_ns;

use crate::run::cpus;
use crate::run::lines::Lines;

/// Part of the time for references: one in a hundred.
const TIME_BETWEEN: u32 = 100;
/// More than most last-level caches hold.
const MEMORY_BYTES: usize = 64 << 20;
/// Pieces of each kind of work. The median counts: an interrupt within one is not the pace.
const PIECES: usize = 5;
const MULTIPLICATIONS: u32 = 20_000;
const LOADS: u32 = 500;
/// Operations of some microseconds in a piece.
const OPERATIONS: u32 = 3;

/// All that the work needs, made once in a run.
pub struct ReferenceWork {
    cpu: usize,
    rsa: RsaKeyPair,
    p256: EcdsaKeyPair,
    x25519: PrivateKey,
    peer: Vec<u8>,
    memory: Lines,
    place: u32,
    ends: [TcpStream; 2],
    /// When the next one may be.
    due: Instant,
}

impl ReferenceWork {
    pub fn on(cpu: usize) -> Result<ReferenceWork> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).context("listen on loopback")?;
        let near = TcpStream::connect(listener.local_addr()?)?;
        let (far, _) = listener.accept()?;
        for end in [&near, &far] {
            end.set_nodelay(true)?;
        }
        let x25519 = PrivateKey::generate(&X25519)?;
        Ok(ReferenceWork {
            cpu,
            rsa: RsaKeyPair::generate(KeySize::Rsa2048)?,
            p256: EcdsaKeyPair::generate(&ECDSA_P256_SHA256_ASN1_SIGNING)?,
            peer: x25519.compute_public_key()?.as_ref().to_vec(),
            x25519,
            memory: Lines::of_bytes(MEMORY_BYTES),
            place: 0,
            ends: [near, far],
            due: Instant::now(),
        })
    }

    /// The costs at this moment; `None`: the last ones are not long enough ago, or that CPU cannot be had.
    pub fn if_due(&mut self) -> Option<Reference> {
        if Instant::now() < self.due {
            return None;
        }
        let cpu = self.cpu;
        // A thread of its own, for ours runs anywhere.
        let measured = std::thread::scope(|scope| {
            let work = scope.spawn(|| {
                cpus::stay_on(cpu).ok()?;
                Some((self.measured().ok()?, Duration::from_nanos(thread_cpu_ns())))
            });
            work.join().ok().flatten()
        });
        let (reference, took) = measured?;
        // Of CPU time, as others may have had that CPU meanwhile.
        self.due = Instant::now() + took * TIME_BETWEEN;
        Some(reference)
    }

    fn measured(&mut self) -> Result<Reference> {
        let random = SystemRandom::new();
        let mut signature = vec![0; self.rsa.public_modulus_len()];
        let rsa = piece(1, || Ok(self.rsa.sign(&RSA_PSS_SHA256, &random, b"tlsdyno", &mut signature)?))?;
        let p256 = piece(OPERATIONS, || Ok(self.p256.sign(&random, b"tlsdyno").map(drop)?))?;
        let x25519 = piece(OPERATIONS, || {
            let peer = UnparsedPublicKey::new(&X25519, &self.peer);
            agreement::agree(&self.x25519, peer, anyhow::anyhow!("no secret"), |_| Ok(()))
        })?;
        // These are whole loops, whose steps no call is between.
        let multiplication = piece(1, || multiplied(MULTIPLICATIONS))? / u64::from(MULTIPLICATIONS);
        let (memory, mut place) = (&self.memory, self.place);
        let loads = piece(1, || {
            place = memory.after(place, LOADS);
            Ok(())
        })?;
        self.place = place;
        let [near, far] = &mut self.ends;
        let loopback = piece(OPERATIONS, || {
            let mut byte = [0];
            near.write_all(&byte)?;
            far.read_exact(&mut byte)?;
            far.write_all(&byte)?;
            Ok(near.read_exact(&mut byte)?)
        })?;
        // In the order of `FixedWork::ALL`.
        Ok(Reference([rsa, p256, x25519, multiplication, loads / u64::from(LOADS), loopback]))
    }
}

/// Integer multiplications in four chains, as big numbers have.
fn multiplied(count: u32) -> Result<()> {
    let mut values: [u64; 4] = black_box([3, 5, 7, 11]);
    for _ in 0..count {
        let [a, b, c, d] = values;
        values = [a.wrapping_mul(b | 1), b.wrapping_mul(c | 1) ^ a, c.wrapping_mul(d | 1), d.wrapping_mul(a | 1) ^ c];
    }
    black_box(values);
    Ok(())
}

/// CPU time of one of `count` operations, picoseconds: the median of some pieces, after one that warms caches.
fn piece(count: u32, mut operation: impl FnMut() -> Result<()>) -> Result<u64> {
    let mut once = || -> Result<u64> {
        let began_ns = thread_cpu_ns();
        for _ in 0..count {
            operation()?;
        }
        Ok((thread_cpu_ns() - began_ns) * 1000 / u64::from(count))
    };
    once()?;
    let mut all = std::iter::repeat_with(once).take(PIECES).collect::<Result<Vec<u64>>>()?;
    all.sort_unstable();
    Ok(all[PIECES / 2])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_of_work_is_timed_and_the_next_one_waits() {
        let mut work = ReferenceWork::on(cpus::allowed()[0]).unwrap();
        let Reference(all) = work.if_due().unwrap();
        assert!(all.iter().all(|ps| *ps > 0) && all[0] > all[1], "an RSA signature takes longer: {all:?}");
        assert!(work.due > Instant::now() && work.place != 0);
        work.due = Instant::now() + Duration::from_secs(3600);
        assert_eq!(work.if_due(), None);
    }
}
