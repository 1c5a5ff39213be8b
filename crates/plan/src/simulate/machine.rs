//! A machine: its CPUs, the keys of its tickets, how many sessions it gave out.

use std::collections::VecDeque;

/// What a client holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Session {
    /// The key of its ticket, or the store that it is in; 0: there is none.
    pub key: u32,
    /// Sessions that the machine had given out before.
    pub number: u32,
    /// When it was given out, seconds.
    pub at_s: u32,
}

#[derive(Clone, Debug)]
pub(super) struct Machine {
    /// When each CPU has done what came so far, nanoseconds.
    free_ns: Vec<u64>,
    /// When connections that have no more requests to come will be closed, nanoseconds.
    pub closings_ns: VecDeque<u64>,
    /// The key that it gives out tickets under, and the one before.
    pub keys: [u32; 2],
    pub issued: u32,
    pub works: bool,
    pub busy_ns: u64,
    /// CPU time that it takes for a second's work, seconds.
    times: f64,
}

impl Machine {
    pub fn new(cpus: u32, key: u32, times: f64) -> Machine {
        Machine {
            free_ns: vec![0; cpus as usize],
            closings_ns: VecDeque::new(),
            keys: [key, key],
            issued: 0,
            works: true,
            busy_ns: 0,
            times,
        }
    }

    /// Does a piece of work that comes now; answers when it is done.
    pub fn serve(&mut self, now_ns: u64, work_ns: f64) -> u64 {
        let takes_ns = (work_ns * self.times) as u64;
        self.busy_ns += takes_ns;
        let free = self.free_ns.iter_mut().min();
        let free_ns = free.expect("a machine has a CPU");
        *free_ns = now_ns.max(*free_ns) + takes_ns;
        *free_ns
    }

    /// Whether it takes a session. `holds`: how many its store has room for; `None`: it reads tickets.
    pub fn knows(&self, session: Session, holds: Option<u32>) -> bool {
        let is_held = holds.is_none_or(|holds| self.issued.wrapping_sub(session.number) <= holds);
        self.keys.contains(&session.key) && is_held
    }

    pub fn issue(&mut self, now_s: u32) -> Session {
        self.issued = self.issued.wrapping_add(1);
        Session { key: self.keys[0], number: self.issued, at_s: now_s }
    }

    pub fn start(&mut self, now_ns: u64) {
        self.works = true;
        self.free_ns.fill(now_ns);
        self.closings_ns.clear();
    }
}
