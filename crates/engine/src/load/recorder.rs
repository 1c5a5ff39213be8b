//! Counts and histograms of a run. Recording neither allocates nor fails; what it may hold is bounded by `limits`.

use std::collections::BTreeMap;

use hdrhistogram::Histogram;
use tlsdyno_tls::{Group, Handshake, Suite, Version};

use super::limits::{FAULT_TEXTS_MAX, LATENCY_NS_MAX, NEGOTIATED_MAX};
use super::lives::Lives;
use super::outcome::{ErrorKind, Handshakes, Http2Use, Outcome, Phase, WindowUse};
use super::progress::{Recent, RecentLatencies, Snapshot};
use super::slices::{Counts, Slices};

/// Everything an [`Outcome`] is made of, in a form that is cheap to update.
pub struct Recorder {
    pub hits: u64,
    pub body_bytes: u64,
    pub connections: u64,
    pub redirects_followed: u64,
    pub redirects_unfinished: u64,
    pub handshakes: Handshakes,
    phases: [Histogram<u64>; Phase::ALL.len()],
    errors: [u64; ErrorKind::ALL.len()],
    statuses: [u64; STATUSES],
    tls_faults: BTreeMap<String, u64>,
    pub http2: Http2Use,
    negotiated: Vec<(Negotiated, u64)>,
    /// The run over time, if the plan wants it.
    slices: Option<Slices>,
    /// The first clients' connections, likewise.
    pub lives: Option<Lives>,
    /// For a display, if there is one.
    recent: Option<Box<RecentLatencies>>,
}

type Negotiated = (Version, Suite, Option<Group>);

/// Status codes have three digits.
const STATUSES: usize = 1000;

/// Under this text faults are counted once there are too many different ones.
const OTHER_FAULTS: &str = "other faults";

impl Recorder {
    /// `slice_ns`: cut the run into slices of this length, and keep the latencies of each. `recent`: record latencies
    /// there too.
    pub fn new(slice_ns: Option<u64>, keep_latencies: bool, recent: Option<Box<RecentLatencies>>) -> Recorder {
        Recorder {
            hits: 0,
            body_bytes: 0,
            connections: 0,
            redirects_followed: 0,
            redirects_unfinished: 0,
            handshakes: Handshakes::default(),
            phases: [(); Phase::ALL.len()].map(|()| histogram()),
            errors: [0; ErrorKind::ALL.len()],
            statuses: [0; STATUSES],
            tls_faults: BTreeMap::new(),
            http2: Http2Use::default(),
            negotiated: Vec::with_capacity(NEGOTIATED_MAX),
            slices: slice_ns.map(|length_ns| Slices::new(length_ns, histogram(), keep_latencies)),
            lives: slice_ns.map(|_| Lives::default()),
            recent,
        }
    }

    /// Forgets hits, handshakes and latencies, and connections where they have ended; what failed stays.
    pub fn forget_hits(&mut self, connections_ended: bool) {
        (self.hits, self.body_bytes, self.statuses) = (0, 0, [0; STATUSES]);
        self.handshakes = Handshakes::default();
        self.connections = if connections_ended { 0 } else { self.connections };
        self.phases.iter_mut().for_each(Histogram::reset);
    }

    pub fn latency(&mut self, phase: Phase, nanoseconds: u64) {
        self.phases[phase as usize].saturating_record(nanoseconds);
        if let Some(recent) = &mut self.recent {
            recent.record(phase, nanoseconds);
        }
    }

    /// How long a hit took, from when it was sent and, in an open loop, from when it was to be sent.
    pub fn hit(&mut self, nanoseconds: u64, scheduled_ns: Option<u64>) {
        self.hits += 1;
        self.latency(Phase::WholeResponse, nanoseconds);
        if let Some(scheduled_ns) = scheduled_ns {
            self.latency(Phase::ScheduledResponse, scheduled_ns);
        }
        if let Some(slices) = &mut self.slices {
            slices.latency(scheduled_ns.unwrap_or(nanoseconds));
        }
    }

    pub fn status(&mut self, status: u16) {
        self.statuses[usize::from(status).min(STATUSES - 1)] += 1;
    }

    pub fn error(&mut self, kind: ErrorKind) {
        self.errors[kind as usize] += 1;
    }

    /// Ends the slice of the run that is over by now, if one is.
    pub fn cut(&mut self, now_ns: u64) {
        if let Some(slices) = &mut self.slices {
            let counts = Counts {
                hits: self.hits,
                errors: self.errors.iter().sum(),
                redirects: self.redirects_followed,
                full: self.handshakes.full,
                resumed: self.handshakes.resumed_accepted,
            };
            slices.advance(now_ns, counts);
        }
    }

    /// The latencies for a display since it last had them, in place of which it gives empty ones.
    pub fn take_recent(&mut self, empty: Box<RecentLatencies>) -> Option<Box<RecentLatencies>> {
        self.recent.as_mut().map(|recent| std::mem::replace(recent, empty))
    }

    /// What a display is told, without latencies.
    pub fn snapshot(&self, at_ns: u64, client_cpu_ns: u64, window: Option<WindowUse>) -> Snapshot {
        let usual = self.negotiated.iter().max_by_key(|(_, count)| *count);
        Snapshot {
            at_ns,
            loops: 1,
            hits: self.hits,
            body_bytes: self.body_bytes,
            connections: self.connections,
            handshakes: self.handshakes,
            errors: self.errors,
            client_cpu_ns,
            window,
            slice: self.slices.as_ref().and_then(Slices::last),
            negotiated: usual.map(|(negotiated, _)| *negotiated),
            recent: [Recent::default(); Phase::ALL.len()],
        }
    }

    /// Counts a TLS fault by its text.
    pub fn tls_fault(&mut self, text: String) {
        count_text(&mut self.tls_faults, text);
    }

    /// Counts a fault of HTTP/2 by its text.
    pub fn http2_fault(&mut self, text: String) {
        count_text(&mut self.http2.faults, text);
    }

    pub fn negotiated(&mut self, handshake: &Handshake) {
        let key = (handshake.version, handshake.suite, handshake.group);
        if let Some((_, count)) = self.negotiated.iter_mut().find(|(known, _)| *known == key) {
            *count += 1;
        } else if self.negotiated.len() < NEGOTIATED_MAX {
            self.negotiated.push((key, 1));
        }
    }

    pub fn finish(self) -> Outcome {
        let some = |count: &u64| *count > 0;
        let (slices, slice_latencies) = self.slices.map_or_else(Default::default, Slices::finish);
        Outcome {
            hits: self.hits,
            body_bytes: self.body_bytes,
            connections: self.connections,
            handshakes: self.handshakes,
            phases: Phase::ALL.into_iter().zip(self.phases).filter(|(_, histogram)| !histogram.is_empty()).collect(),
            errors: ErrorKind::ALL.into_iter().zip(self.errors).filter(|(_, count)| some(count)).collect(),
            statuses: (0..).zip(self.statuses).filter(|(_, count)| some(count)).collect(),
            tls_faults: self.tls_faults,
            http2: (self.http2 != Http2Use::default()).then_some(self.http2),
            negotiated: self.negotiated.iter().map(|(key, count)| (name(key), *count)).collect(),
            redirects_followed: self.redirects_followed,
            redirects_unfinished: self.redirects_unfinished,
            slices,
            slice_latencies,
            lives: self.lives.map_or(Vec::new(), Lives::finish),
            ..Outcome::default()
        }
    }
}

/// Faults are rare or the run is worthless, so that the text may cost something.
fn count_text(counts: &mut BTreeMap<String, u64>, text: String) {
    let known = counts.len() < FAULT_TEXTS_MAX || counts.contains_key(&text);
    let text = if known { text } else { OTHER_FAULTS.to_owned() };
    *counts.entry(text).or_default() += 1;
}

/// An empty histogram of latencies. Three significant digits: what is merged must have the same.
pub fn histogram() -> Histogram<u64> {
    // These bounds are valid: this cannot fail, whatever the run.
    let mut histogram =
        Histogram::new_with_bounds(1, LATENCY_NS_MAX, 3).expect("bounds and precision of the histograms are valid");
    // Writes every page of it, so that neither page faults nor memory come up during the run, when a latency has a new
    // magnitude.
    histogram.reset();
    histogram
}

fn name((version, suite, group): &Negotiated) -> String {
    match group {
        Some(group) => format!("{version} {suite} {group}"),
        None => format!("{version} {suite}"),
    }
}
