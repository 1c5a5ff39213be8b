//! How long a database may take: one that is frozen, or talks without end, holds nobody up for ever.

use std::future::Future;
use std::io;
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use anyhow::{Result, anyhow};
use tlsdyno_base::fault::Fault;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::runtime::Runtime;

/// How long an answer may take.
const ANSWER: Duration = Duration::from_secs(60);
/// The same once its asker wants to end.
const LAST_ANSWER: Duration = Duration::from_secs(5);
/// All that the asker still has to ask then, together.
const LAST_ANSWERS: Duration = Duration::from_secs(60);
/// How often a waiter looks whether its asker wants to end.
const NAP: Duration = Duration::from_millis(200);

/// How long a database may take for an answer. Clones belong together.
#[derive(Clone, Debug)]
pub struct Patience {
    answer: Duration,
    /// Since when the asker wants to end.
    ending: Arc<OnceLock<Instant>>,
}

impl Default for Patience {
    fn default() -> Patience {
        Patience::of(ANSWER)
    }
}

impl Patience {
    /// So long for each answer.
    pub fn of(answer: Duration) -> Patience {
        Patience { answer, ending: Arc::default() }
    }

    /// The asker wants to end: an answer may take [`LAST_ANSWER`] from now on, and all of them [`LAST_ANSWERS`].
    pub fn end(&self) {
        self.ending.get_or_init(Instant::now);
    }

    /// How long an answer may take by the database's own clock.
    pub(super) fn answer(&self) -> Duration {
        self.answer
    }

    /// How long whoever has waited since then may go on, if it may at all wait for `most`.
    fn left(&self, since: Instant, most: Duration) -> Duration {
        match self.ending.get() {
            None => most.saturating_sub(since.elapsed()),
            Some(ending) => {
                let of_answer = most.min(LAST_ANSWER).saturating_sub(since.max(*ending).elapsed());
                of_answer.min(LAST_ANSWERS.saturating_sub(ending.elapsed()))
            }
        }
    }

    /// Waits for work of the runtime, at most so long.
    ///
    /// # Errors
    /// Those of the work. [`Fault::Unreachable`]: the time is over.
    pub(super) fn wait<T>(
        &self,
        runtime: &Runtime,
        most: Duration,
        work: impl Future<Output = Result<T>>,
    ) -> Result<T> {
        let began = Instant::now();
        runtime.block_on(async {
            let mut work = pin!(work);
            loop {
                let left = self.left(began, most);
                if left.is_zero() {
                    let waited_s = began.elapsed().as_secs_f64();
                    return Err(Fault::Unreachable.of(anyhow!("the database did not answer within {waited_s:.1} s")));
                }
                if let Ok(done) = tokio::time::timeout(left.min(NAP), &mut work).await {
                    return done;
                }
            }
        })
    }
}

/// How many bytes may still come. Clones belong together.
#[derive(Clone, Debug, Default)]
pub(super) struct Budget(Arc<AtomicUsize>);

impl Budget {
    /// So many from now on.
    pub(super) fn set(&self, bytes: usize) {
        self.0.store(bytes, Relaxed);
    }
}

/// A stream of which no more is read than its budget allows.
#[derive(Debug)]
pub(super) struct Metered<S> {
    pub(super) stream: S,
    pub(super) budget: Budget,
}

impl<S: AsyncRead + Unpin> AsyncRead for Metered<S> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
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
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}
