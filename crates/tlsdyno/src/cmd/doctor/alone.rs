//! What a machine makes of CPU time burnt in handshakes where there is no instrument: the barest of servers, one thread
//! that accepts, shakes hands, answers and closes, and its clients on another CPU. Work that was warm is dearer after a
//! pause that touched none of it, the kernel's too; what a calibration measures beyond that is the instrument's.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::ScopedJoinHandle;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use openssl::ssl::{ErrorCode, Ssl, SslContext, SslFiletype, SslMethod, SslSessionCacheMode, SslStream};
use socket2::SockRef;
use tlsdyno_sys::thread_cpu_ns;

use crate::affinity;
use crate::model::CertificateKind;
use crate::random::SplitMix64;
use crate::servers::certificates;
use crate::stats::bootstrap::{Column, Combination, Estimate, RESAMPLES, SEED, estimate};
use crate::store::calibration::Recovered;

/// Connections that are open together, all with the same burn, so that the server need not wait for a client.
const BATCH: usize = 8;
/// What is asked for, and what is answered, bytes.
const REQUEST_BYTES: usize = 64;
const ANSWER_BYTES: usize = 1024;
/// After how long an end gives up on the other.
const PATIENCE: Duration = Duration::from_secs(5);

#[derive(Clone, Copy)]
pub(super) struct Cpus {
    pub server: usize,
    pub client: usize,
}

/// What burns of so many microseconds, one in each connection to a bare server, cost on its CPU, measured for so long.
pub(super) fn recovered(
    burns_us: &[f64],
    certificate: CertificateKind,
    cpus: Cpus,
    length: Duration,
    stop: &AtomicBool,
) -> Result<Vec<Recovered>> {
    let directory = tempfile::tempdir().context("make a directory for a certificate")?;
    let (server, client) = Server::with_client(certificate, directory.path())?;
    let (address, done) = (server.listener.local_addr()?, AtomicBool::new(false));
    std::thread::scope(|scope| {
        let visit = || {
            stay_on(cpus.client)?;
            client.visit(address, &done)
        };
        let visitors: Vec<_> = (0..BATCH).map(|_| scope.spawn(visit)).collect();
        let done = &done;
        let measured = scope.spawn(move || {
            stay_on(cpus.server)?;
            let measured = measured(&server, burns_us, length, stop);
            done.store(true, Ordering::Relaxed);
            // The clients may have connected once more; closing what they wait for ends their wait.
            drop(server);
            measured
        });
        let measured = joined(measured);
        let visited = visitors.into_iter().map(joined).fold(Ok(()), Result::and);
        match (measured, visited) {
            // Which end failed first is not known.
            (Err(error), Err(other)) => Err(error.context(format!("{other:#}"))),
            (measured, visited) => visited.and(measured),
        }
    })
}

fn stay_on(cpu: usize) -> Result<()> {
    affinity::stay_on(cpu).with_context(|| format!("run on CPU {cpu}"))
}

fn joined<T>(thread: ScopedJoinHandle<Result<T>>) -> Result<T> {
    thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

fn measured(server: &Server, burns_us: &[f64], length: Duration, stop: &AtomicBool) -> Result<Vec<Recovered>> {
    let costs: Vec<f64> = [0.0].iter().chain(burns_us).copied().collect();
    let mut columns: Vec<Column> = vec![Vec::new(); burns_us.len()];
    let places: Vec<usize> = (0..costs.len()).collect();
    let mut random = SplitMix64::new(SEED);
    // The first handshakes fetch and allocate what later ones find.
    server.cost_us(0.0)?;
    let began = Instant::now();
    while began.elapsed() < length && !stop.load(Ordering::Relaxed) {
        let mut found = vec![0.0; costs.len()];
        for index in random.shuffled(&places) {
            found[index] = server.cost_us(costs[index])?;
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

/// The end whose CPU time is measured.
struct Server {
    listener: TcpListener,
    context: SslContext,
}

impl Server {
    fn with_client(certificate: CertificateKind, directory: &Path) -> Result<(Server, Client)> {
        let files = certificates::create(certificate, directory)?;
        let mut context = SslContext::builder(SslMethod::tls_server())?;
        context.set_certificate_chain_file(&files.chain)?;
        context.set_private_key_file(&files.key, SslFiletype::PEM)?;
        let listener = TcpListener::bind("127.0.0.1:0").context("listen on 127.0.0.1")?;
        SockRef::from(&listener).set_read_timeout(Some(PATIENCE))?;
        let mut client = SslContext::builder(SslMethod::tls_client())?;
        client.set_session_cache_mode(SslSessionCacheMode::OFF);
        Ok((Server { listener, context: context.build() }, Client { context: client.build() }))
    }

    /// CPU time of a connection with such a burn, on average over a batch, microseconds.
    fn cost_us(&self, burn_us: f64) -> Result<f64> {
        let before = thread_cpu_ns();
        self.serve((burn_us * 1e3) as u64).context("serve clients of our own")?;
        Ok((thread_cpu_ns() - before) as f64 / 1e3 / BATCH as f64)
    }

    /// Serves a batch step by step, as servers with an event loop do: each step of all connections before the next.
    fn serve(&self, burn_ns: u64) -> Result<()> {
        let mut streams = Vec::with_capacity(BATCH);
        for _ in 0..BATCH {
            let (stream, _) = self.listener.accept()?;
            streams.push(SslStream::new(Ssl::new(&self.context)?, patient(stream)?)?);
        }
        for stream in &mut streams {
            burn(burn_ns);
            answer_hello(stream)?;
        }
        for stream in &mut streams {
            stream.accept()?;
            stream.read_exact(&mut [0; REQUEST_BYTES])?;
            stream.write_all(&[b'x'; ANSWER_BYTES])?;
            // Only said: the client closes when it has read all.
            stream.shutdown()?;
        }
        Ok(())
    }
}

/// Sends all that comes before the client's Finished.
fn answer_hello(stream: &mut SslStream<TcpStream>) -> Result<()> {
    // The hello is there by now, or is waited for; the rest is left for the next step.
    stream.get_ref().peek(&mut [0])?;
    stream.get_ref().set_nonblocking(true)?;
    match stream.accept() {
        Ok(()) => {}
        Err(error) if error.code() == ErrorCode::WANT_READ => {}
        Err(error) => return Err(error.into()),
    }
    Ok(stream.get_ref().set_nonblocking(false)?)
}

/// The end that connects, again and again.
struct Client {
    context: SslContext,
}

impl Client {
    fn visit(&self, address: SocketAddr, done: &AtomicBool) -> Result<()> {
        while !done.load(Ordering::Relaxed) {
            let visited = self.visit_once(address);
            // The server leaves with a connection open.
            if !done.load(Ordering::Relaxed) {
                visited.context("visit a server of our own")?;
            }
        }
        Ok(())
    }

    fn visit_once(&self, address: SocketAddr) -> Result<()> {
        let stream = patient(TcpStream::connect(address)?)?;
        // No TIME-WAIT is left behind, of which thousands would use the ports up.
        SockRef::from(&stream).set_linger(Some(Duration::ZERO))?;
        let mut stream = SslStream::new(Ssl::new(&self.context)?, stream)?;
        stream.connect()?;
        stream.write_all(&[b'x'; REQUEST_BYTES])?;
        let mut answer = Vec::with_capacity(ANSWER_BYTES);
        stream.read_to_end(&mut answer)?;
        ensure!(answer.len() == ANSWER_BYTES, "the answer has {} bytes", answer.len());
        Ok(())
    }
}

fn patient(stream: TcpStream) -> Result<TcpStream> {
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    Ok(stream)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_to_a_bare_server_cost_what_is_burnt_besides() {
        let cpu = affinity::allowed()[0];
        let cpus = Cpus { server: cpu, client: cpu };
        let length = Duration::from_secs(2);
        let found = recovered(&[20_000.0], CertificateKind::P256, cpus, length, &AtomicBool::new(false)).unwrap();
        assert!((15_000.0..40_000.0).contains(&found[0].measured_us), "{found:?}");
    }

    #[test]
    fn a_client_without_a_server_says_so() {
        let directory = tempfile::tempdir().unwrap();
        let (server, client) = Server::with_client(CertificateKind::P256, directory.path()).unwrap();
        let address = server.listener.local_addr().unwrap();
        drop(server);
        let error = client.visit(address, &AtomicBool::new(false)).unwrap_err();
        assert!(format!("{error:#}").contains("visit a server of our own: Connection refused"), "{error:#}");
    }

    #[test]
    fn a_burn_takes_the_threads_own_time() {
        let before = thread_cpu_ns();
        burn(3_000_000);
        let spent = thread_cpu_ns() - before;
        assert!((2_900_000..6_000_000).contains(&spent), "{spent} ns");
    }
}
