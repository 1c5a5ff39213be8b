//! What a machine makes of CPU time burnt between handshakes where there is neither a server nor an instrument: both
//! ends in memory, one thread. Work that was warm is dearer after a pause that touched none of it, by as much as others
//! use the core's caches meanwhile; what a calibration measures beyond that is the instrument's.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::io::{self, ErrorKind, Read, Write};
use std::path::Path;
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use openssl::ssl::{ErrorCode, Ssl, SslContext, SslFiletype, SslMethod, SslSessionCacheMode, SslStream};
use rustix::time::{ClockId, clock_gettime};

use crate::affinity;
use crate::model::CertificateKind;
use crate::random::SplitMix64;
use crate::servers::certificates;
use crate::stats::bootstrap::{Column, Combination, Estimate, RESAMPLES, SEED, estimate};
use crate::store::calibration::Recovered;

/// Handshakes in a row, all with the same burn before each.
const BATCH: u32 = 8;

/// What burns of so many microseconds, one before each handshake in memory, cost on a CPU, measured for so long.
///
/// # Errors
/// OpenSSL refuses to make a handshake with itself, or the thread cannot be bound.
pub(super) fn recovered(
    burns_us: &[f64],
    certificate: CertificateKind,
    cpu: usize,
    length: Duration,
    stop: &AtomicBool,
) -> Result<Vec<Recovered>> {
    std::thread::scope(|scope| {
        let measured = scope.spawn(|| {
            affinity::stay_on(cpu).with_context(|| format!("run on CPU {cpu}"))?;
            measured(burns_us, certificate, length, stop)
        });
        measured.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

fn measured(
    burns_us: &[f64],
    certificate: CertificateKind,
    length: Duration,
    stop: &AtomicBool,
) -> Result<Vec<Recovered>> {
    let directory = tempfile::tempdir().context("make a directory for a certificate")?;
    let ends = Ends::new(certificate, directory.path())?;
    let costs: Vec<f64> = [0.0].iter().chain(burns_us).copied().collect();
    let mut columns: Vec<Column> = vec![Vec::new(); burns_us.len()];
    let places: Vec<usize> = (0..costs.len()).collect();
    let (began, mut random) = (Instant::now(), SplitMix64::new(SEED));
    while began.elapsed() < length && !stop.load(Ordering::Relaxed) {
        let mut found = vec![0.0; costs.len()];
        for index in random.shuffled(&places) {
            found[index] = ends.cost_us(costs[index])?;
        }
        columns.iter_mut().zip(&found[1..]).for_each(|(column, cost)| column.push(Some(cost - found[0])));
    }
    let combinations: Vec<Combination> = (0..columns.len()).map(Combination::column).collect();
    let estimates = estimate(&columns, &combinations, RESAMPLES, SEED);
    let one = |(injected_us, found): (&f64, _)| {
        let Estimate { value, low, high } = found;
        Recovered { injected_us: *injected_us, measured_us: value, low_us: low, high_us: high }
    };
    Ok(burns_us.iter().zip(estimates).map(one).collect())
}

/// What both ends of a connection are made from.
struct Ends {
    server: SslContext,
    client: SslContext,
}

impl Ends {
    fn new(certificate: CertificateKind, directory: &Path) -> Result<Ends> {
        let files = certificates::create(certificate, directory)?;
        let mut server = SslContext::builder(SslMethod::tls_server())?;
        server.set_certificate_chain_file(&files.chain)?;
        server.set_private_key_file(&files.key, SslFiletype::PEM)?;
        let mut client = SslContext::builder(SslMethod::tls_client())?;
        client.set_session_cache_mode(SslSessionCacheMode::OFF);
        Ok(Ends { server: server.build(), client: client.build() })
    }

    /// CPU time of a full handshake with such a burn before it, on average over a batch, microseconds.
    fn cost_us(&self, burn_us: f64) -> Result<f64> {
        let before = thread_cpu_ns();
        for _ in 0..BATCH {
            burn((burn_us * 1e3) as u64);
            self.handshake()?;
        }
        Ok((thread_cpu_ns() - before) as f64 / 1e3 / f64::from(BATCH))
    }

    fn handshake(&self) -> Result<()> {
        let (near, far) = Memory::pair();
        let mut server = SslStream::new(Ssl::new(&self.server)?, near)?;
        let mut client = SslStream::new(Ssl::new(&self.client)?, far)?;
        loop {
            let client_waits = waits(client.connect())?;
            let server_waits = waits(server.accept())?;
            if !client_waits && !server_waits {
                return Ok(());
            }
        }
    }
}

/// Whether the other end's turn has come before this one is done.
fn waits(result: Result<(), openssl::ssl::Error>) -> Result<bool> {
    match result {
        Ok(()) => Ok(false),
        Err(error) if error.code() == ErrorCode::WANT_READ => Ok(true),
        Err(error) => Err(error).context("a handshake in memory"),
    }
}

/// Reads the clock until the time is up, like `native/provider/burn.c`.
fn burn(wanted_ns: u64) {
    if wanted_ns == 0 {
        return;
    }
    let (start, mut readings) = (thread_cpu_ns(), 0);
    loop {
        readings += 1;
        let spent = thread_cpu_ns() - start;
        let each = spent / readings;
        if spent + each + each / 2 >= wanted_ns {
            return;
        }
    }
}

fn thread_cpu_ns() -> u64 {
    let now = clock_gettime(ClockId::ThreadCPUTime);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

type Bytes = Rc<RefCell<VecDeque<u8>>>;

/// One end of a connection in memory.
struct Memory {
    incoming: Bytes,
    outgoing: Bytes,
}

impl Memory {
    fn pair() -> (Memory, Memory) {
        let (one, other) = (Bytes::default(), Bytes::default());
        (Memory { incoming: one.clone(), outgoing: other.clone() }, Memory { incoming: other, outgoing: one })
    }
}

impl Read for Memory {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        match self.incoming.borrow_mut().read(into)? {
            0 => Err(ErrorKind::WouldBlock.into()),
            count => Ok(count),
        }
    }
}

impl Write for Memory {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.outgoing.borrow_mut().write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn handshakes_in_memory_cost_what_is_burnt_besides() {
        let directory = tempfile::tempdir().unwrap();
        let ends = Ends::new(CertificateKind::P256, directory.path()).unwrap();
        ends.cost_us(0.0).unwrap();
        let least = |burn_us: f64| (0..5).map(|_| ends.cost_us(burn_us).unwrap()).fold(f64::INFINITY, f64::min);
        let (without, with) = (least(0.0), least(20_000.0));
        assert!(without > 10.0 && with - without > 19_000.0, "{without} {with}");
    }

    #[test]
    fn a_burn_takes_the_threads_own_time() {
        let before = thread_cpu_ns();
        burn(3_000_000);
        let spent = thread_cpu_ns() - before;
        assert!((2_900_000..6_000_000).contains(&spent), "{spent} ns");
    }
}
