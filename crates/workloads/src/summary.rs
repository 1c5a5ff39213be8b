//! A workload in numbers.

use std::sync::Once;

use serde::Serialize;
use tlsdyno_engine::load::{Request, Workload};

use super::unsent::{self, Unsent};
use super::{DocrootFile, LogSummary};

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Summary {
    pub workload: String,
    pub hits: u64,
    pub users: u64,
    /// TLS sessions that the workload asks for: one for each user and one more each time a user forgets its session.
    /// So many handshakes are full if the first of a session is alone; connections opened together before it add
    /// to them.
    pub sessions: u64,
    /// `sessions` in per cent of `hits`.
    pub full_handshakes_per_hit_percent: f64,
    /// Pages: groups of requests that are outstanding together; as many as `hits` where each waits for the one before.
    pub pages: u64,
    /// How often a user closes all its connections: after each of these, and at its beginning, it opens new ones.
    pub closes: u64,
    pub objects: u64,
    pub files: u64,
    pub corpus_bytes: u64,
    /// Bytes of all response bodies whose length is known beforehand.
    pub response_bytes: u64,
    /// Sizes of those responses, each counted as often as it is requested, bytes.
    pub response_size_bytes: Sizes,
    /// Sizes of the files, each counted once, bytes.
    pub file_size_bytes: Sizes,
    /// What was found in the recording, if the workload is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub har: Option<HarSummary>,
    /// What was found in the log, if the workload is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub log: Option<LogSummary>,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct HarSummary {
    pub origin: String,
    pub pages: u64,
    pub requests: u64,
    pub other_origins: u64,
    /// Entries that no server answered (cache, blocked, `data:`), left out.
    pub not_requested: u64,
    /// Requests left out because of their method, by it.
    pub unsent: Unsent,
    /// Requests whose response has a body of which the recording does not tell the size.
    pub unknown_size_count: u64,
}

impl HarSummary {
    /// What a reader of results must know about the recording, each with its remedy.
    pub fn warnings(&self) -> Vec<String> {
        let HarSummary { unknown_size_count, requests, .. } = self;
        let unknown = (*unknown_size_count > 0).then(|| {
            format!(
                "the recording does not tell how long {unknown_size_count} of the {requests} responses are, and they \
                 are taken as empty where the server's own are not asked for; record the pages with a browser that \
                 writes `content.size` or Content-Length (Chrome, Edge)"
            )
        });
        unknown.into_iter().collect()
    }
}

impl Summary {
    /// What a reader of results must know about the log or recording that the workload is, and how the log was read.
    pub fn notes(&self) -> Vec<String> {
        let log = self.log.iter().flat_map(|log| log.read.notes().into_iter().chain(log.read.warnings()));
        log.chain(self.har.iter().flat_map(HarSummary::warnings)).collect()
    }

    /// What is left out because it may change something.
    pub fn beforehand(&self) -> Option<String> {
        unsent::note(self.log.as_ref().map(|log| &log.unsent).or(self.har.as_ref().map(|har| &har.unsent))?)
    }

    /// Says the same on standard error: once, though a workload is made anew for each rate.
    pub fn tell(&self) {
        static SAID: Once = Once::new();
        let all = || self.beforehand().into_iter().chain(self.notes());
        SAID.call_once(|| all().for_each(|notes| tell!("{}: {notes}", self.workload)));
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Sizes {
    pub mean: f64,
    pub p50: u64,
    pub p90: u64,
    pub p99: u64,
    pub max: u64,
}

impl Sizes {
    /// From sizes with the number of times each occurs; all 0 if there are none.
    fn new(mut sizes: Vec<(u64, u64)>) -> Self {
        sizes.retain(|(_, count)| *count > 0);
        sizes.sort_unstable();
        let total: u64 = sizes.iter().map(|(_, count)| count).sum();
        let sum: u128 = sizes.iter().map(|(size, count)| u128::from(*size) * u128::from(*count)).sum();
        let percentile = |percent: u64| {
            // The smallest size that at least so many per cent do not exceed (nearest rank).
            let rank = (total * percent).div_ceil(100);
            let mut passed = 0;
            sizes.iter().find(|(_, count)| {
                passed += count;
                passed >= rank
            })
        };
        let size = |percent| percentile(percent).map_or(0, |(size, _)| *size);
        let mean = if total == 0 { 0.0 } else { sum as f64 / total as f64 };
        Self { mean, p50: size(50), p90: size(90), p99: size(99), max: size(100) }
    }
}

impl Summary {
    /// Counts what `workload` asks for.
    pub(super) fn new(name: &str, workload: &Workload, files: &[DocrootFile]) -> Self {
        let mut uses = vec![0_u64; workload.objects.len()];
        for request in &workload.requests {
            uses[request.object as usize] += 1;
        }
        let responses: Vec<(u64, u64)> = workload
            .objects
            .iter()
            .zip(&uses)
            .filter_map(|(object, uses)| object.expect.body_bytes.map(|bytes| (bytes, *uses)))
            .collect();
        let count =
            |counted: fn(&Request) -> bool| workload.requests.iter().filter(|request| counted(request)).count() as u64;
        let hits = workload.requests.len() as u64;
        let sessions = workload.users.len() as u64 + count(|request| request.forget_session);
        Self {
            workload: name.to_owned(),
            hits,
            users: workload.users.len() as u64,
            sessions,
            full_handshakes_per_hit_percent: 100.0 * sessions as f64 / hits.max(1) as f64,
            pages: count(|request| request.page_end),
            closes: count(|request| request.close_after),
            objects: workload.objects.len() as u64,
            files: files.len() as u64,
            corpus_bytes: files.iter().fold(0, |sum, file| sum.saturating_add(file.bytes)),
            response_bytes: responses
                .iter()
                .fold(0, |sum: u64, (bytes, uses)| sum.saturating_add(bytes.saturating_mul(*uses))),
            response_size_bytes: Sizes::new(responses),
            file_size_bytes: Sizes::new(files.iter().map(|file| (file.bytes, 1)).collect()),
            har: None,
            log: None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tlsdyno_record::model::workload::WorkloadSpec;

    #[test]
    fn percentiles_are_nearest_rank_and_weighted() {
        let sizes = Sizes::new(vec![(100, 1), (1, 50), (10, 49), (7, 0)]);
        assert_eq!((sizes.p50, sizes.p90, sizes.p99, sizes.max), (1, 10, 10, 100));
        assert!((sizes.mean - (100.0 + 50.0 + 490.0) / 100.0).abs() < 1e-9);
        assert_eq!(Sizes::new(Vec::new()), Sizes::default());
    }

    #[test]
    fn the_summary_of_ecommerce_shows_the_published_aggregates() {
        let site = super::super::make(&WorkloadSpec::Ecommerce { users: 200, seed: 3 }).unwrap();
        let summary = &site.summary;
        assert_eq!((summary.hits, summary.users, summary.sessions), (2_400, 200, 200));
        assert_eq!((summary.objects, summary.files, summary.corpus_bytes), (40, 40, 279 * 1024));
        assert!((summary.full_handshakes_per_hit_percent - 100.0 / 12.0).abs() < 1e-9);
        assert!((summary.response_size_bytes.mean / 1024.0 - 6.975).abs() < 0.01);
        assert_eq!(summary.response_bytes as f64, summary.response_size_bytes.mean * 2_400.0);
    }
}
