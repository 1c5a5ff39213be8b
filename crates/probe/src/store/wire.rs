//! The connection to a PostgreSQL server: every wait on it has an end, and so has what is held of what the server says.

use std::cell::Cell;
use std::fmt::Debug;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::task::{Context as Task, Poll};
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail, ensure};
use postgres_openssl::MakeTlsConnector;
use socket2::{SockRef, TcpKeepalive};
use tlsdyno_base::fault::Fault;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpStream, UnixStream, lookup_host};
use tokio::runtime::{Builder, Runtime};
use tokio::task::JoinHandle;
use tokio_postgres::config::{Host, TargetSessionAttrs};
use tokio_postgres::tls::MakeTlsConnect;
use tokio_postgres::{Client, Config, SimpleQueryMessage};

/// Port of a server whose URL names none.
const PORT: u16 = 5432;
/// Bytes that a server may say before it is ready: some parameters and notices.
const GREETING_BYTES_MAX: usize = 1 << 20;
/// Bytes that may come for an answer, or for a part of it that is taken as it comes.
const ANSWER_BYTES_MAX: usize = 64 << 20;
/// How long a server whose machine does not answer is taken for alive.
const SILENCE: Duration = Duration::from_secs(10);
/// How long the server may take to hear of the end.
const FAREWELL: Duration = Duration::from_secs(1);

/// The runtime and the task that carry a client's words to the server.
pub(super) struct Wire {
    /// `Some` until it is dropped.
    runtime: Option<Runtime>,
    carrier: Option<JoinHandle<()>>,
    /// How long an answer may take.
    patience: Duration,
    budget: Budget,
    /// An answer did not come in time. What comes now would be taken for another's.
    is_given_up: Cell<bool>,
}

impl Wire {
    /// Connects within that time to the first of the servers that can be. `patience`: how long an answer may take
    /// later.
    ///
    /// # Errors
    /// None can be. [`Fault::Unreachable`]: the time is over.
    pub(super) fn connect(
        config: &Config,
        tls: MakeTlsConnector,
        within: Duration,
        patience: Duration,
    ) -> Result<(Client, Wire)> {
        let runtime = Builder::new_current_thread().enable_all().build().context("failed to prepare a connection")?;
        let (runtime, budget) = (Some(runtime), Budget::default());
        let mut wire = Wire { runtime, carrier: None, patience, budget, is_given_up: Cell::new(false) };
        let (client, carrier) = wire.within(within, dial(config, tls, within, &wire.budget))?;
        wire.carrier = Some(carrier);
        Ok((client, wire))
    }

    /// Waits for an answer.
    ///
    /// # Errors
    /// The server says why. [`Fault::Unreachable`]: it does not answer in time.
    pub(super) fn wait<T>(&self, answer: impl Future<Output = Result<T, tokio_postgres::Error>>) -> Result<T> {
        self.budget.set(ANSWER_BYTES_MAX);
        self.within(self.patience, async { Ok(answer.await?) })
    }

    fn within<T>(&self, most: Duration, work: impl Future<Output = Result<T>>) -> Result<T> {
        ensure!(!self.is_given_up.get(), "the database did not answer before");
        let runtime = self.runtime.as_ref().expect("there until it is dropped");
        let done = runtime.block_on(async { tokio::time::timeout(most, work).await });
        done.unwrap_or_else(|_| {
            self.is_given_up.set(true);
            let most_s = most.as_secs_f64();
            Err(Fault::Unreachable.wrap(anyhow!("the database did not answer within {most_s:.1} s")))
        })
    }
}

impl Drop for Wire {
    fn drop(&mut self) {
        let Some(runtime) = self.runtime.take() else { return };
        if let Some(carrier) = self.carrier.take()
            && !self.is_given_up.get()
        {
            // The client is gone: the carrier tells the server and ends.
            let _ = runtime.block_on(async { tokio::time::timeout(FAREWELL, carrier).await });
        }
        // A name that is still being looked up holds nobody up.
        runtime.shutdown_background();
    }
}

/// Connects to the first server of the configuration that can be connected to, and is of the kind asked for.
async fn dial(
    config: &Config,
    tls: MakeTlsConnector,
    within: Duration,
    budget: &Budget,
) -> Result<(Client, JoinHandle<()>)> {
    let ports = config.get_ports();
    let mut failed = anyhow::anyhow!("the URL names no host");
    for (index, host) in config.get_hosts().iter().enumerate() {
        let port = ports.get(index).or(ports.first()).copied().unwrap_or(PORT);
        let dialled = match host {
            Host::Unix(directory) => match UnixStream::connect(directory.join(format!(".s.PGSQL.{port}"))).await {
                Ok(stream) => greet(stream, "", config, &tls, budget).await,
                Err(error) => Err(error.into()),
            },
            Host::Tcp(name) => match connect(name, port, within).await {
                Ok(stream) => greet(stream, name, config, &tls, budget).await,
                Err(error) => Err(error.into()),
            },
        };
        match dialled {
            Ok(connected) => return Ok(connected),
            Err(error) => failed = error,
        }
    }
    Err(failed)
}

async fn connect(name: &str, port: u16, within: Duration) -> io::Result<TcpStream> {
    let mut failed = io::Error::new(io::ErrorKind::NotFound, "the name has no address");
    let addresses: Vec<_> = lookup_host((name, port)).await?.collect();
    // One that swallows everything must not take the time of the others.
    let of_each = within / addresses.len().max(1) as u32;
    for address in addresses {
        let connected = tokio::time::timeout(of_each, TcpStream::connect(address)).await;
        match connected.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into())) {
            Ok(stream) => {
                let socket = SockRef::from(&stream);
                socket.set_tcp_nodelay(true)?;
                socket.set_tcp_user_timeout(Some(SILENCE))?;
                socket.set_tcp_keepalive(&TcpKeepalive::new().with_time(SILENCE).with_interval(SILENCE))?;
                return Ok(stream);
            }
            Err(error) => failed = error,
        }
    }
    Err(failed)
}

/// Makes a stream the connection of a client.
async fn greet<S>(
    stream: S,
    name: &str,
    config: &Config,
    tls: &MakeTlsConnector,
    budget: &Budget,
) -> Result<(Client, JoinHandle<()>)>
where
    S: AsyncRead + AsyncWrite + Unpin + Debug + Send + Sync + 'static,
{
    budget.set(GREETING_BYTES_MAX);
    let stream = Metered { stream, budget: budget.clone() };
    let tls = MakeTlsConnect::<Metered<S>>::make_tls_connect(&mut tls.clone(), name)?;
    let (client, connection) = config.connect_raw(stream, tls).await?;
    // What goes wrong there, the client is told.
    let carrier = tokio::spawn(async { drop(connection.await) });
    let wanted = config.get_target_session_attrs();
    if wanted != TargetSessionAttrs::Any {
        let answer = client.simple_query("SHOW transaction_read_only").await?;
        let is_read_only = answer.iter().any(|message| match message {
            SimpleQueryMessage::Row(row) => row.get(0) == Some("on"),
            _ => false,
        });
        match (wanted, is_read_only) {
            (TargetSessionAttrs::ReadWrite, true) => bail!("the database does not allow writes"),
            (TargetSessionAttrs::ReadOnly, false) => bail!("the database is not read-only"),
            _ => {}
        }
    }
    Ok((client, carrier))
}

/// How many bytes may still come. Clones belong together.
#[derive(Clone, Debug, Default)]
struct Budget(Arc<AtomicUsize>);

impl Budget {
    fn set(&self, bytes: usize) {
        self.0.store(bytes, Relaxed);
    }
}

/// A stream of which no more is read than its budget allows.
#[derive(Debug)]
struct Metered<S> {
    stream: S,
    budget: Budget,
}

impl<S: AsyncRead + Unpin> AsyncRead for Metered<S> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Task<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let left = self.budget.0.load(Relaxed);
        if left == 0 {
            return Poll::Ready(Err(io::Error::other("the database says much and does not answer")));
        }
        let most = left.min(into.remaining());
        let mut some = ReadBuf::new(into.initialize_unfilled_to(most));
        let polled = Pin::new(&mut self.stream).poll_read(cx, &mut some);
        let count = some.filled().len();
        into.advance(count);
        self.budget.0.store(left - count, Relaxed);
        polled
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Metered<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Task<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Task<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Task<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}
