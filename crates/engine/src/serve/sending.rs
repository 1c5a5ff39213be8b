//! An answer that is on its way, and the next piece of its body.

use std::fs::File;
use std::os::unix::fs::FileExt;

use super::answer::{Answer, REFUSAL};
use super::docroot::Content;
use super::limits::RECORD_BYTES;

pub struct Sending<'d> {
    pub answer: Answer<'d>,
    /// The object's file, if it is not in memory.
    pub file: Option<File>,
    /// The object's bytes, where they were asked for.
    pub page: Option<Vec<u8>>,
    /// Bytes of head and body that have gone.
    pub sent: u64,
    pub linger: bool,
}

impl Sending<'_> {
    pub fn body_bytes(&self) -> u64 {
        if self.answer.head_only { 0 } else { self.answer.end - self.answer.first }
    }

    /// The body from byte `from` on, or a piece of it. `None`: its file does not hold what was promised.
    pub fn body<'a>(&'a self, from: u64, piece: &'a mut [u8; RECORD_BYTES]) -> Option<&'a [u8]> {
        let left = self.body_bytes() - from;
        if left == 0 {
            return Some(&[]);
        }
        let first = self.answer.first + from;
        match (self.answer.object, &self.file) {
            (Some(_), Some(file)) => {
                let length = left.min(RECORD_BYTES as u64) as usize;
                file.read_exact_at(&mut piece[..length], first).ok()?;
                Some(&piece[..length])
            }
            (Some(object), None) if !self.answer.is_refusal() => match &object.content {
                Content::Memory(bytes) => bytes.get(first as usize..(first + left) as usize),
                Content::Page(_) => self.page.as_ref()?.get(first as usize..(first + left) as usize),
                Content::File(_) => None,
            },
            _ => REFUSAL.get(first as usize..),
        }
    }
}
