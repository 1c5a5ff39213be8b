//! How much alike the requests of one backend are, by its own access log: its working set, and what a cache of a given
//! size would miss.
//!
//! Backends on one machine share one page cache, so that the misses of each cannot be measured; they are computed with
//! an LRU cache that holds whole files (Pai et al. 1998, *Locality-Aware Request Distribution*, section 4.1, simulate
//! theirs alike).

use std::collections::{BTreeMap, HashMap};
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result};
use tlsdyno_base::until::until;
use tlsdyno_record::store::Locality;
use tlsdyno_servers::growing_log::GrowingLog;
use tlsdyno_workloads::ServedWorkload;

/// How long servers may take to log the last requests of a block.
const LOGGED_WITHIN: Duration = Duration::from_secs(10);
const LOOK_AGAIN: Duration = Duration::from_millis(2);

#[derive(Debug, Default)]
pub struct Logs(Vec<GrowingLog>);

impl Logs {
    pub fn new<'a>(files: impl Iterator<Item = &'a Path>) -> Logs {
        Logs(files.map(|file| GrowingLog::new(file.to_owned())).collect())
    }

    /// Passes over what was logged so far.
    pub fn skip(&mut self) -> Result<()> {
        self.0.iter_mut().try_for_each(|log| log.new_lines().map(drop))
    }

    /// The new lines of each log as soon as there are `requests` of them in all. `None`: there are not so many, or
    /// more.
    pub fn lines_of(&mut self, requests: u64) -> Result<Option<Vec<String>>> {
        let mut texts = vec![String::new(); self.0.len()];
        let look = || -> Result<u64> {
            for (text, log) in texts.iter_mut().zip(&mut self.0) {
                text.push_str(&log.new_lines()?);
            }
            Ok(texts.iter().map(|text| text.lines().count() as u64).sum())
        };
        let seen = until(LOGGED_WITHIN, LOOK_AGAIN, look, |seen| *seen >= requests)?;
        Ok((seen == requests).then_some(texts))
    }
}

/// The size of cache with which those of all backends together hold every object once, bytes.
pub fn enough_for_all_together(site: &ServedWorkload, backends: u32) -> u64 {
    let sizes: HashMap<&str, u64> =
        site.workload.objects.iter().map(|object| (&*object.path, object.expect.body_bytes.unwrap_or(0))).collect();
    sizes.values().sum::<u64>().div_ceil(u64::from(backends.max(1))).max(1)
}

/// A cache of whole objects that gives up the one not asked for the longest.
#[derive(Clone, Debug)]
pub struct Cache {
    capacity_bytes: u64,
    used_bytes: u64,
    /// When each was asked for last, in requests, and its size.
    objects: HashMap<String, (u64, u64)>,
    by_age: BTreeMap<u64, String>,
    requests: u64,
}

impl Cache {
    pub fn new(capacity_bytes: u64) -> Cache {
        Cache { capacity_bytes, used_bytes: 0, objects: HashMap::new(), by_age: BTreeMap::new(), requests: 0 }
    }

    /// Whether an object of this size is in it. Now it is, unless it is larger than the cache.
    pub fn ask(&mut self, object: &str, bytes: u64) -> bool {
        self.requests += 1;
        let held = self.objects.remove(object);
        if let Some((age, bytes)) = held {
            self.by_age.remove(&age);
            self.used_bytes -= bytes;
        }
        if bytes <= self.capacity_bytes {
            while self.used_bytes + bytes > self.capacity_bytes {
                let Some((_, oldest)) = self.by_age.pop_first() else { break };
                self.used_bytes -= self.objects.remove(&oldest).map_or(0, |(_, bytes)| bytes);
            }
            self.used_bytes += bytes;
            self.objects.insert(object.to_owned(), (self.requests, bytes));
            self.by_age.insert(self.requests, object.to_owned());
        }
        held.is_some()
    }

    /// Asks for what the lines of an access log say: bytes of the body, a blank, the path.
    ///
    /// # Errors
    /// A line is none of these.
    pub fn replay(&mut self, lines: &str) -> Result<Locality> {
        let mut locality = Locality { cache_bytes: self.capacity_bytes, ..Locality::default() };
        let mut sizes: HashMap<&str, u64> = HashMap::new();
        for line in lines.lines() {
            let parsed = line.split_once(' ').and_then(|(bytes, object)| Some((bytes.parse::<u64>().ok()?, object)));
            let (bytes, object) = parsed.with_context(|| format!("no line of an access log: `{line}`"))?;
            locality.requests += 1;
            locality.misses += u64::from(!self.ask(object, bytes));
            let size = sizes.entry(object).or_default();
            *size = bytes.max(*size);
        }
        (locality.objects, locality.object_bytes) = (sizes.len() as u64, sizes.values().sum());
        Ok(locality)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_object_not_asked_for_the_longest_goes_first() {
        let mut cache = Cache::new(10);
        assert!(!cache.ask("/a", 4) && !cache.ask("/b", 4) && cache.ask("/a", 4));
        assert!(!cache.ask("/c", 4), "10 bytes hold two of them");
        assert!(cache.ask("/a", 4) && cache.ask("/c", 4) && !cache.ask("/b", 4));
        assert!(!cache.ask("/large", 11) && !cache.ask("/large", 11), "it never fits");
        assert!(cache.ask("/b", 4) && cache.ask("/c", 4), "and drives nothing out");
        assert!(!cache.ask("/whole", 10) && cache.ask("/whole", 10) && !cache.ask("/b", 4));
        assert_eq!((cache.used_bytes, cache.objects.len(), cache.by_age.len()), (4, 1, 1));
    }

    #[test]
    fn a_log_gives_working_set_and_misses() {
        let mut cache = Cache::new(100);
        let first = cache.replay("10 /a\n20 /b\n10 /a\n0 /a\n").unwrap();
        let expected = Locality { requests: 4, objects: 2, object_bytes: 30, misses: 2, cache_bytes: 100 };
        assert_eq!(first, expected);
        // The cache is still warm in the next block.
        assert_eq!(
            cache.replay("20 /b\n").unwrap(),
            Locality { requests: 1, objects: 1, object_bytes: 20, misses: 0, ..expected }
        );
        assert!(cache.replay("GET /").unwrap_err().to_string().contains("`GET /`"));
    }
}
