//! When connections were set up, as the shim wrote it down.

use crate::layout::shim as layout;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TimeStamp {
    /// From 1, in order of completion over all processes.
    pub number: u64,
    /// How the connection began: one of the first [`layout::KINDS`] of [`layout::COUNTERS`].
    pub kind: &'static str,
    pub pid: u32,
    /// Calls of the server that drove the handshake.
    pub calls: u16,
    /// Monotonic clock at the server's first call, nanoseconds.
    pub start_ns: u64,
    /// When the connection was set up, by the same clock, nanoseconds.
    pub end_ns: u64,
    /// Bytes received until then, what was read ahead of it included.
    pub bytes_received: u64,
    /// Bytes sent until then.
    pub bytes_sent: u64,
    /// CPU time of the server's process between the two, nanoseconds: of this connection where there is no other. No
    /// more than [`layout::TOO_LONG_NS`], as the times of its steps.
    pub cpu_ns: u32,
    /// Steps of libssl's state machine. Empty where there was no real handshake; cut after [`layout::STEPS`].
    pub steps: Vec<Step>,
}

/// The end of a step of libssl's state machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Step {
    /// Which one (`OSSL_HANDSHAKE_STATE`).
    pub state: u16,
    /// Nanoseconds after the start.
    pub after_ns: u32,
    /// CPU time of the process since the start, nanoseconds.
    pub cpu_ns: u32,
}

impl TimeStamp {
    /// It took so long that its times are not known: 4.29 s or more.
    pub fn is_too_long(&self) -> bool {
        let is = |ns: u32| ns == layout::TOO_LONG_NS;
        self.end_ns.saturating_sub(self.start_ns) >= u64::from(layout::TOO_LONG_NS)
            || is(self.cpu_ns)
            || self.steps.iter().any(|step| is(step.after_ns) || is(step.cpu_ns))
    }

    /// `None` for an entry that was never written, or is being written.
    pub(super) fn read(bytes: &[u8]) -> Option<TimeStamp> {
        use layout::stamp as at;
        let u16_at = |at: usize| u16::from_ne_bytes(bytes[at..at + 2].try_into().expect("2 bytes"));
        let u32_at = |at: usize| u32::from_ne_bytes(bytes[at..at + 4].try_into().expect("4 bytes"));
        let u64_at = |at: usize| u64::from_ne_bytes(bytes[at..at + 8].try_into().expect("8 bytes"));
        let number = u64_at(at::NUMBER_AT);
        if number == 0 {
            return None;
        }
        let steps = (u32_at(at::STEP_COUNT_AT) as usize).min(layout::STEPS);
        Some(TimeStamp {
            number,
            kind: layout::COUNTERS[..layout::KINDS].get(usize::from(u16_at(at::KIND_AT)))?.1,
            pid: u32_at(at::PID_AT),
            calls: u16_at(at::CALLS_AT),
            start_ns: u64_at(at::START_NS_AT),
            end_ns: u64_at(at::END_NS_AT),
            bytes_received: u64_at(at::BYTES_RECEIVED_AT),
            bytes_sent: u64_at(at::BYTES_SENT_AT),
            cpu_ns: u32_at(at::CPU_NS_AT),
            steps: (0..steps)
                .map(|step| at::STEPS_AT + step * layout::STEP_SIZE)
                .map(|at| Step { state: u16_at(at), after_ns: u32_at(at + 4), cpu_ns: u32_at(at + 8) })
                .collect(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_beyond_what_a_stamp_holds_are_known_to_be_unknown() {
        let step = Step { state: 20, after_ns: 1_000, cpu_ns: 900 };
        let stamp = TimeStamp {
            number: 1,
            kind: "full_handshakes",
            pid: 1,
            calls: 1,
            start_ns: 10,
            end_ns: 4_000_000_010,
            bytes_received: 1,
            bytes_sent: 1,
            cpu_ns: 4_000_000_000,
            steps: vec![step],
        };
        assert!(!stamp.is_too_long());
        let max = layout::TOO_LONG_NS;
        let late = TimeStamp { steps: vec![step, Step { after_ns: max, ..step }], ..stamp.clone() };
        let dear = TimeStamp { cpu_ns: max, ..stamp.clone() };
        let long = TimeStamp { end_ns: 10 + u64::from(max), ..stamp };
        assert!(late.is_too_long() && dear.is_too_long() && long.is_too_long());
    }
}
