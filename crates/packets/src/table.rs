//! The connections that are followed: as many as there is room for, however many come.

use std::collections::{HashMap, VecDeque};
use std::net::SocketAddr;

use crate::handshake::{End, Handshake};

/// How far a connection has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// A SYN of the client passed. A flood of them displaces others of this stage alone.
    Opening,
    /// Its handshake goes on.
    Talking,
    /// Its handshake is over; its end tells how many bytes it had.
    Over,
}

/// Most connections of each stage.
const MOST: [usize; 3] = [32_768, 16_384, 32_768];
/// Most bytes that all handshakes hold together.
const MOST_HELD_BYTES: usize = 32 << 20;

/// The two ends of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Ends {
    pub client: SocketAddr,
    pub server: SocketAddr,
}

/// A connection whose SYN passed.
#[derive(Debug)]
pub struct Flow {
    /// Which of the listeners it came to.
    pub listener: usize,
    /// Sequence numbers of the first byte of each [`End`], and of what comes behind its last, where known.
    pub first: [Option<u32>; 2],
    pub last: [Option<u32>; 2],
    pub handshake: Option<Box<Handshake>>,
    stage: Stage,
    /// Changes with the stage, so that older entries of queues are known as such.
    entry: u64,
    /// When its stage is over, nanoseconds.
    pub due_ns: u64,
    held_bytes: usize,
}

impl Flow {
    pub fn stage(&self) -> Stage {
        self.stage
    }

    /// Bytes that each end sent, once both have come to their ends.
    pub fn bytes(&self) -> Option<[u64; 2]> {
        let sent = |end: End| Some(u64::from(self.last[end as usize]?.wrapping_sub(self.first[end as usize]?)));
        Some([sent(End::Client)?, sent(End::Server)?])
    }
}

#[derive(Debug)]
struct Entry {
    number: u64,
    due_ns: u64,
    ends: Ends,
}

/// Why a connection leaves the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Leaves {
    /// Time is over.
    Due,
    /// There is no room.
    Displaced,
}

#[derive(Debug, Default)]
pub struct Table {
    /// Hashed with random seeds: strangers choose their addresses and ports.
    flows: HashMap<Ends, Flow, foldhash::quality::RandomState>,
    queues: [VecDeque<Entry>; 3],
    counts: [usize; 3],
    entries: u64,
    held_bytes: usize,
}

impl Table {
    pub fn get(&mut self, ends: &Ends) -> Option<&mut Flow> {
        self.flows.get_mut(ends)
    }

    /// Connections, and bytes that their handshakes hold.
    pub fn held(&self) -> (usize, usize) {
        (self.flows.len(), self.held_bytes)
    }

    pub fn insert(&mut self, ends: Ends, listener: usize, first: u32, due_ns: u64) {
        self.remove(&ends);
        let (stage, entry) = (Stage::Opening, self.entries);
        let (first, last) = ([Some(first), None], [None; 2]);
        let flow = Flow { listener, first, last, handshake: None, stage, entry, due_ns, held_bytes: 0 };
        self.flows.insert(ends, flow);
        self.queue(ends, stage, due_ns);
    }

    pub fn remove(&mut self, ends: &Ends) -> Option<Flow> {
        let flow = self.flows.remove(ends)?;
        self.counts[flow.stage as usize] -= 1;
        self.held_bytes -= flow.held_bytes;
        Some(flow)
    }

    /// Moves a connection to a stage, also to the end of the one it has.
    pub fn enter(&mut self, ends: &Ends, stage: Stage, due_ns: u64) {
        let Some(flow) = self.flows.get_mut(ends) else { return };
        self.counts[flow.stage as usize] -= 1;
        (flow.stage, flow.entry, flow.due_ns) = (stage, self.entries, due_ns);
        self.queue(*ends, stage, due_ns);
        self.weigh(ends);
    }

    /// Notes what the handshake of a connection holds now.
    pub fn weigh(&mut self, ends: &Ends) {
        let Some(flow) = self.flows.get_mut(ends) else { return };
        let held_bytes = flow.handshake.as_ref().map_or(0, |handshake| handshake.held_bytes());
        self.held_bytes = self.held_bytes - flow.held_bytes + held_bytes;
        flow.held_bytes = held_bytes;
    }

    /// The oldest connection that must leave now. Who calls removes it, or has it enter a stage.
    pub fn next_to_leave(&mut self, now_ns: u64) -> Option<(Ends, Leaves)> {
        for stage in [Stage::Opening, Stage::Talking, Stage::Over] {
            let at = stage as usize;
            let is_full = self.counts[at] > MOST[at]
                || (stage == Stage::Talking && self.held_bytes > MOST_HELD_BYTES && self.counts[at] > 0);
            while let Some(first) = self.queues[at].front().filter(|first| is_full || first.due_ns <= now_ns) {
                if self.flows.get(&first.ends).is_some_and(|flow| flow.entry == first.number) {
                    return Some((first.ends, if is_full { Leaves::Displaced } else { Leaves::Due }));
                }
                self.queues[at].pop_front();
            }
        }
        None
    }

    fn queue(&mut self, ends: Ends, stage: Stage, due_ns: u64) {
        let at = stage as usize;
        let number = self.entries;
        self.entries += 1;
        self.counts[at] += 1;
        self.queues[at].push_back(Entry { number, due_ns, ends });
        // Entries of connections that have moved on gather until they would be due.
        if self.queues[at].len() > 2 * MOST[at] {
            let flows = &self.flows;
            self.queues[at].retain(|entry| flows.get(&entry.ends).is_some_and(|flow| flow.entry == entry.number));
        }
    }
}
