//! Pipes for splice(2): borrowed while a connection moves data, kept for the next one when empty.

use std::os::fd::OwnedFd;

use rustix::pipe::{PipeFlags, fcntl_getpipe_size, fcntl_setpipe_size, pipe_with};

use super::limits::{PIPE_BYTES, PIPE_BYTES_MIN, SPARE_PIPES};

/// A pipe, and how many bytes are in it.
#[derive(Debug)]
pub(super) struct Pipe {
    pub(super) output: OwnedFd,
    pub(super) input: OwnedFd,
    pub(super) bytes: usize,
}

/// The pipes of one loop.
#[derive(Debug)]
pub(super) struct Pipes {
    spare: Vec<Pipe>,
    lent: u32,
    most: u32,
}

impl Pipes {
    /// At most `most` at a time.
    pub(super) fn new(most: u32) -> Pipes {
        Pipes { spare: Vec::with_capacity(SPARE_PIPES), lent: 0, most }
    }

    pub(super) fn set_most(&mut self, most: u32) {
        self.most = most;
    }

    /// An empty pipe; `None` when there may be, or can be, no more.
    pub(super) fn take(&mut self) -> Option<Pipe> {
        if self.lent >= self.most {
            return None;
        }
        let pipe = self.spare.pop().or_else(|| {
            let (output, input) = pipe_with(PipeFlags::NONBLOCK | PipeFlags::CLOEXEC).ok()?;
            let bytes = fcntl_setpipe_size(&input, PIPE_BYTES).or_else(|_| fcntl_getpipe_size(&input)).ok()?;
            if bytes < PIPE_BYTES_MIN {
                return None;
            }
            Some(Pipe { output, input, bytes: 0 })
        })?;
        self.lent += 1;
        Some(pipe)
    }

    /// Takes a pipe back. One with bytes in it is closed: they belong to a connection that is gone.
    pub(super) fn give(&mut self, pipe: Pipe) {
        self.lent -= 1;
        if pipe.bytes == 0 && self.spare.len() < SPARE_PIPES {
            self.spare.push(pipe);
        }
    }

    /// Closes the pipes that nobody uses. Whether there were any.
    pub(super) fn close_spare(&mut self) -> bool {
        let any = !self.spare.is_empty();
        self.spare.clear();
        any
    }
}
