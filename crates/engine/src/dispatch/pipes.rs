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

impl Pipe {
    fn make() -> Option<Pipe> {
        let (output, input) = pipe_with(PipeFlags::NONBLOCK | PipeFlags::CLOEXEC).ok()?;
        let bytes = fcntl_setpipe_size(&input, PIPE_BYTES).or_else(|_| fcntl_getpipe_size(&input)).ok()?;
        (bytes >= PIPE_BYTES_MIN).then_some(Pipe { output, input, bytes: 0 })
    }
}

#[derive(Debug)]
pub(super) struct Pipes {
    spare: Vec<Pipe>,
    lent: u32,
    most: u32,
    /// The system gave no more, or too small a one (pipe-user-pages-soft): it is not asked again before one comes
    /// back.
    refused: bool,
}

impl Pipes {
    pub(super) fn new(most: u32) -> Pipes {
        Pipes { spare: Vec::with_capacity(SPARE_PIPES), lent: 0, most, refused: false }
    }

    pub(super) fn set_most(&mut self, most: u32) {
        self.most = most;
    }

    /// An empty pipe; `None` when there may be, or can be, no more.
    pub(super) fn take(&mut self) -> Option<Pipe> {
        if self.lent >= self.most {
            return None;
        }
        let pipe = match self.spare.pop() {
            Some(pipe) => pipe,
            None if self.refused => return None,
            None => {
                let made = Pipe::make();
                self.refused = made.is_none() && self.lent > 0;
                made?
            }
        };
        self.lent += 1;
        Some(pipe)
    }

    /// Takes a pipe back. One with bytes in it is closed: they belong to a connection that is gone.
    pub(super) fn give(&mut self, pipe: Pipe) {
        self.lent -= 1;
        self.refused = false;
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
