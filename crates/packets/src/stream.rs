//! One direction of a connection: segments put in order, with the gaps that nobody will fill.

use std::borrow::Cow;

/// Most bytes of segments that wait for earlier ones, in one direction.
const MOST_WAITING_BYTES: usize = 16 * 1024;
/// Most such segments.
const MOST_WAITING: usize = 64;

/// The payload of a segment.
#[derive(Clone, Debug)]
pub struct Piece<'a> {
    /// Sequence number of its first byte.
    pub sequence: u32,
    /// What its sender had received by then.
    pub acknowledged: u32,
    /// When it passed, nanoseconds.
    pub time_ns: u64,
    /// As many of its bytes as were captured.
    pub bytes: Cow<'a, [u8]>,
    /// Bytes that it had.
    pub length: u32,
}

impl Piece<'_> {
    /// Takes away what comes before `sequence`; whether anything is left.
    fn begin_at(&mut self, sequence: u32) -> bool {
        let known = distance(self.sequence, sequence);
        if known > 0 {
            let known = known as u32;
            let of_bytes = self.bytes.len().min(known as usize);
            match &mut self.bytes {
                Cow::Borrowed(bytes) => *bytes = &bytes[of_bytes..],
                Cow::Owned(bytes) => drop(bytes.drain(..of_bytes)),
            }
            self.length = self.length.saturating_sub(known);
            self.sequence = sequence;
        }
        self.length > 0
    }

    fn into_owned(self) -> Piece<'static> {
        Piece { bytes: Cow::Owned(self.bytes.into_owned()), ..self }
    }
}

/// How far it is from one sequence number to another; negative: backwards (RFC 9293 section 3.4).
pub fn distance(from: u32, to: u32) -> i32 {
    to.wrapping_sub(from) as i32
}

/// What comes next in a direction.
#[derive(Debug)]
pub enum Next<'a> {
    Piece(Piece<'a>),
    /// So many bytes that no capture will show.
    Gap(u32),
}

/// Segments on their way into order.
#[derive(Debug)]
pub struct Stream {
    next: u32,
    /// The other end has received everything before this, whether or not it was seen here.
    received: u32,
    /// Ordered by sequence number.
    waiting: Vec<Piece<'static>>,
    waiting_bytes: usize,
    /// Bytes that the last piece had and of which the capture cut the end.
    cut: u32,
}

impl Stream {
    /// `first`: sequence number of the first byte.
    pub fn new(first: u32) -> Stream {
        Stream { next: first, received: first, waiting: Vec::new(), waiting_bytes: 0, cut: 0 }
    }

    /// Bytes that wait here.
    pub fn held_bytes(&self) -> usize {
        self.waiting_bytes
    }

    /// The other end says what it has received: what is missing before it will not come any more.
    pub fn note_received(&mut self, up_to: u32) {
        if distance(self.received, up_to) > 0 {
            self.received = up_to;
        }
    }

    /// Nothing will come any more: whatever is missing is a gap.
    pub fn give_up_gaps(&mut self) {
        if let Some(last) = self.waiting.last() {
            self.note_received(last.sequence);
        }
    }

    /// Whether everything before `sequence` is known, or known to be lost.
    pub fn has_reached(&self, sequence: u32) -> bool {
        distance(self.next, sequence) <= 0 || distance(self.received, sequence) <= 0
    }

    /// Takes a piece. It comes back at once where nothing is missing before it, so that it need not be copied.
    pub fn put<'a>(&mut self, mut piece: Piece<'a>) -> Option<Piece<'a>> {
        if !piece.begin_at(self.next) {
            return None;
        }
        if piece.sequence == self.next && self.cut == 0 {
            return Some(self.pass(piece));
        }
        let at = self.waiting.partition_point(|other| distance(other.sequence, piece.sequence) > 0);
        let is_known = self.waiting.get(at).is_some_and(|other| {
            other.sequence == piece.sequence && other.length >= piece.length && other.bytes.len() >= piece.bytes.len()
        });
        let has_room =
            self.waiting.len() < MOST_WAITING && self.waiting_bytes + piece.bytes.len() <= MOST_WAITING_BYTES;
        if !is_known && has_room {
            self.waiting_bytes += piece.bytes.len();
            self.waiting.insert(at, piece.into_owned());
        }
        None
    }

    /// What of the waiting comes next, if it can be told.
    pub fn take(&mut self) -> Option<Next<'static>> {
        if self.cut > 0 {
            return Some(self.gap(self.cut));
        }
        loop {
            let lost = distance(self.next, self.received);
            let missing = self.waiting.first().map(|first| distance(self.next, first.sequence));
            let lost = missing.map_or(lost, |missing| missing.min(lost));
            if lost > 0 {
                return Some(self.gap(lost as u32));
            }
            if missing.is_none_or(|missing| missing > 0) {
                return None;
            }
            let mut first = self.waiting.remove(0);
            self.waiting_bytes -= first.bytes.len();
            if first.begin_at(self.next) {
                return Some(Next::Piece(self.pass(first)));
            }
        }
    }

    fn pass<'a>(&mut self, piece: Piece<'a>) -> Piece<'a> {
        self.next = piece.sequence.wrapping_add(piece.bytes.len() as u32);
        self.cut = piece.length.saturating_sub(piece.bytes.len() as u32);
        piece
    }

    fn gap(&mut self, bytes: u32) -> Next<'static> {
        self.next = self.next.wrapping_add(bytes);
        self.cut = 0;
        Next::Gap(bytes)
    }
}
