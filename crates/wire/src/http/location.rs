//! The `Location` header of a redirect, collected for whoever wants to follow it: the one thing of a response that is
//! kept.

use super::head::{split, trim_end};
use super::{HttpFault, LOCATION_BYTES_MAX};

/// Whether a response with this status sends the client elsewhere by its `Location` (RFC 9110 section 15.4).
pub const fn is_redirect(status: u16) -> bool {
    matches!(status, 301 | 302 | 303 | 307 | 308)
}

const NAME: &[u8] = b"location:";

/// Collects the header from the pieces in which header lines arrive.
#[derive(Clone, Debug, Default)]
pub(super) struct Location {
    /// The line that is arriving, while it may be the one.
    line: Vec<u8>,
    other: bool,
    value: Option<Vec<u8>>,
}

impl Location {
    /// Takes a piece of a header line, with its line end if it `ends` there.
    pub fn take(&mut self, piece: &[u8], ends: bool) -> Result<(), HttpFault> {
        if !self.other {
            self.line.extend_from_slice(piece);
            let compared = self.line.len().min(NAME.len());
            self.other = !self.line[..compared].eq_ignore_ascii_case(&NAME[..compared]);
            if !self.other && self.line.len() > LOCATION_BYTES_MAX {
                return Err(HttpFault::HeadTooLong);
            }
        }
        if ends {
            self.line_ended()?;
        } else if self.other {
            self.line.clear();
        }
        Ok(())
    }

    fn line_ended(&mut self) -> Result<(), HttpFault> {
        let other = std::mem::take(&mut self.other);
        let line = std::mem::take(&mut self.line);
        let line = trim_end(line.strip_suffix(b"\n").unwrap_or(&line));
        if other {
            return Ok(());
        }
        let Some((_, value)) = split(line) else { return Ok(()) };
        // Two that differ: whoever chose one would guess.
        if self.value.as_deref().is_some_and(|before| before != value) {
            return Err(HttpFault::Location);
        }
        self.value = Some(value.to_vec());
        Ok(())
    }

    pub fn value(&self) -> Option<&[u8]> {
        self.value.as_deref()
    }
}
