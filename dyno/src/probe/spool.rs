//! Rounds on their way to the store. Measuring never waits for a database: a round is appended to a file, and a thread
//! of its own takes the file to the store. What a killed robot left is taken by the next one. The store knows rounds
//! that it already has, so that taking one twice does no harm.

use std::collections::{BTreeMap, VecDeque};
use std::fs::{File, OpenOptions, TryLockError};
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use anyhow::{Context, Result, ensure};

use super::entry::Entry;
use super::site::file_of;

/// Rounds kept in memory while the spool cannot be written.
const MEMORY_MAX: usize = 10_000;
/// Spools in one directory: robots on one store at the same time.
const SPOOLS_MAX: usize = 1000;

/// A file of entries, locked by this process.
#[derive(Debug)]
pub struct Spool {
    state: Mutex<State>,
    bytes_max: u64,
    /// Where damaged lines go.
    aside: PathBuf,
}

#[derive(Debug)]
struct State {
    file: File,
    /// Length of the file.
    bytes: u64,
    /// Where the first entry begins that the store does not have.
    taken: u64,
    /// Damaged lines before this are put aside.
    examined: u64,
    /// Lines that could not be written yet.
    waiting: VecDeque<String>,
    /// Rounds that found no room, by run and series: the first of them, when it began, and how many.
    dropped: BTreeMap<(String, String), (u64, i64, u64)>,
    dropped_count: u64,
    /// Lines that nobody could read; they were put aside.
    damaged_count: u64,
}

impl Spool {
    /// Takes the first spool in `directory` that no other robot has. `bytes_max`: its largest size.
    ///
    /// # Errors
    /// The directory cannot be made or written.
    pub fn take(directory: &Path, bytes_max: u64) -> Result<Spool> {
        std::fs::create_dir_all(directory).with_context(|| format!("failed to make {}", directory.display()))?;
        for number in 0..SPOOLS_MAX {
            if let Some(file) = lock(&directory.join(format!("spool-{number}")))? {
                return Spool::on(file, bytes_max, directory);
            }
        }
        anyhow::bail!("{} has {SPOOLS_MAX} spools in use", directory.display())
    }

    /// Spools that robots left with rounds in them.
    ///
    /// # Errors
    /// The directory cannot be read.
    pub fn left(directory: &Path) -> Result<Vec<Spool>> {
        let mut left = Vec::new();
        for number in 0..SPOOLS_MAX {
            let path = directory.join(format!("spool-{number}"));
            if !path.exists() {
                break;
            }
            // An empty one is the next robot's own: there are no more files than robots at a time.
            if let Some(file) = lock(&path)?
                && file.metadata().is_ok_and(|file| file.len() > 0)
            {
                left.push(Spool::on(file, u64::MAX, directory)?);
            }
        }
        Ok(left)
    }

    fn on(file: File, bytes_max: u64, directory: &Path) -> Result<Spool> {
        let bytes = file.metadata().context("failed to ask for the size of the spool")?.len();
        let state = State {
            file,
            bytes,
            taken: 0,
            examined: 0,
            waiting: VecDeque::new(),
            dropped: BTreeMap::new(),
            dropped_count: 0,
            damaged_count: 0,
        };
        let spool = Spool { state: Mutex::new(state), bytes_max, aside: directory.join("damaged") };
        spool.end_the_cut_line()?;
        Ok(spool)
    }

    /// A robot that was killed while it wrote leaves a line without its end: nothing may be appended to it.
    fn end_the_cut_line(&self) -> Result<()> {
        let mut state = self.state.lock().expect("no holder of the spool panics");
        let mut last = [b'\n'];
        if state.bytes > 0 {
            state.file.read_exact_at(&mut last, state.bytes - 1).context("failed to read the spool")?;
        }
        if last != *b"\n" {
            state.file.write_all(b"\n").context("failed to write the spool")?;
            state.bytes += 1;
        }
        Ok(())
    }

    /// Appends a round. It never fails: what finds no room on disk waits in memory, and what finds none there either
    /// is counted, and becomes a row of missed rounds as soon as there is room.
    pub fn add(&self, entry: &Entry) {
        let mut state = self.state.lock().expect("no holder of the spool panics");
        state.write_waiting(self.bytes_max);
        if state.waiting.len() >= MEMORY_MAX {
            return state.drop_entry(entry);
        }
        state.own_up(&(entry.run.clone(), entry.round.series()));
        state.waiting.push_back(line(entry));
        state.write_waiting(self.bytes_max);
    }

    /// Tells of rounds that were dropped, now that no other follows.
    pub fn close(&self) {
        let mut state = self.state.lock().expect("no holder of the spool panics");
        let all: Vec<_> = state.dropped.keys().cloned().collect();
        all.iter().for_each(|series| state.own_up(series));
        state.write_waiting(self.bytes_max);
    }

    /// The oldest entries that the store does not have, and where the next ones begin. A damaged line is put aside.
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn oldest(&self) -> Result<(Vec<Entry>, u64)> {
        const PIECE: usize = 256 * 1024;
        let mut state = self.state.lock().expect("no holder of the spool panics");
        state.write_waiting(self.bytes_max);
        let length = usize::try_from(state.bytes - state.taken).unwrap_or(PIECE).min(PIECE);
        let mut bytes = vec![0; length];
        state.file.read_exact_at(&mut bytes, state.taken).context("failed to read the spool")?;
        let whole = bytes.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
        ensure!(whole > 0 || length < PIECE, "a line of the spool is longer than {PIECE} bytes");
        let mut entries = Vec::new();
        let mut at = state.taken;
        for line in bytes[..whole].split_inclusive(|byte| *byte == b'\n') {
            match serde_json::from_slice(line) {
                Ok(entry) => entries.push(entry),
                // A robot that was killed while it wrote, or a newer tlsdyno, for which it is kept. The same lines are
                // read again while the store takes nothing.
                Err(_) if at >= state.examined => {
                    put_aside(&self.aside, line)?;
                    state.damaged_count += 1;
                }
                Err(_) => {}
            }
            at += line.len() as u64;
        }
        state.examined = state.examined.max(at);
        Ok((entries, at))
    }

    /// The store has everything before `until`.
    ///
    /// # Errors
    /// The file cannot be emptied.
    pub fn taken(&self, until: u64) -> Result<()> {
        let mut state = self.state.lock().expect("no holder of the spool panics");
        state.taken = until;
        if state.taken == state.bytes && state.bytes > 0 {
            state.file.set_len(0).context("failed to empty the spool")?;
            (state.bytes, state.taken, state.examined) = (0, 0, 0);
        }
        Ok(())
    }

    /// Whether the store has everything.
    pub fn is_empty(&self) -> bool {
        let state = self.state.lock().expect("no holder of the spool panics");
        state.taken == state.bytes && state.waiting.is_empty()
    }

    /// Whether rounds wait in memory, for the file takes none.
    pub fn waits_in_memory(&self) -> bool {
        !self.state.lock().expect("no holder of the spool panics").waiting.is_empty()
    }

    /// Rounds that found no room on disk or in memory.
    pub fn dropped_count(&self) -> u64 {
        self.state.lock().expect("no holder of the spool panics").dropped_count
    }

    /// Lines that nobody could read.
    pub fn damaged_count(&self) -> u64 {
        self.state.lock().expect("no holder of the spool panics").damaged_count
    }
}

fn line(entry: &Entry) -> String {
    serde_json::to_string(entry).expect("rounds are always JSON") + "\n"
}

fn put_aside(path: &Path, line: &[u8]) -> Result<()> {
    let failed = || format!("failed to write {}", path.display());
    let mut file = OpenOptions::new().append(true).create(true).open(path).with_context(failed)?;
    file.write_all(line).with_context(failed)
}

impl State {
    fn drop_entry(&mut self, entry: &Entry) {
        let count = entry.missed_count.unwrap_or(1);
        let series = (entry.run.clone(), entry.round.series());
        let dropped = self.dropped.entry(series).or_insert((entry.number, entry.round.started_unix_us, 0));
        dropped.2 += count;
        self.dropped_count += count;
    }

    /// Rounds of this series that were dropped become a row.
    fn own_up(&mut self, series: &(String, String)) {
        if let Some((first, began_unix_us, count)) = self.dropped.remove(series) {
            self.waiting.push_back(line(&Entry::missed(&series.0, first, count, &series.1, began_unix_us)));
        }
    }

    fn write_waiting(&mut self, bytes_max: u64) {
        while let Some(line) = self.waiting.front() {
            if self.bytes + line.len() as u64 > bytes_max {
                return;
            }
            match self.file.write_all(line.as_bytes()) {
                Ok(()) => self.bytes += line.len() as u64,
                Err(_) => {
                    // Half a line may be there; the next attempt begins where this one did.
                    let _ = self.file.set_len(self.bytes);
                    return;
                }
            }
            self.waiting.pop_front();
        }
    }
}

/// The file, unless another process has it.
fn lock(path: &Path) -> Result<Option<File>> {
    let failed = || format!("failed to open {}", path.display());
    let file = OpenOptions::new().read(true).append(true).create(true).open(path).with_context(failed)?;
    match file.try_lock() {
        Ok(()) => Ok(Some(file)),
        Err(TryLockError::WouldBlock) => Ok(None),
        Err(TryLockError::Error(error)) => Err(error).with_context(failed),
    }
}

/// A site that only this process probes into this store, as long as it lives.
#[derive(Debug)]
pub struct Claim {
    _file: File,
}

impl Claim {
    /// Claims a site. `directory` belongs to the store.
    ///
    /// # Errors
    /// Another robot has it.
    pub fn of(directory: &Path, series: &str) -> Result<Claim> {
        std::fs::create_dir_all(directory).with_context(|| format!("failed to make {}", directory.display()))?;
        let file = lock(&file_of(directory, series, "lock"))?.with_context(|| taken(series))?;
        Ok(Claim { _file: file })
    }
}

/// What is said to a robot that comes second.
pub fn taken(series: &str) -> String {
    format!(
        "another robot probes {series} into this store; end it, or name another --store, or this place by --vantage"
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::probe::round::Round;

    fn entry(number: u64) -> Entry {
        Entry::made("run", number, Round { site: "https://a/".to_owned(), ..Round::default() })
    }

    fn numbers(spool: &Spool) -> (Vec<u64>, u64) {
        let (entries, until) = spool.oldest().unwrap();
        (entries.iter().map(|entry| entry.number).collect(), until)
    }

    #[test]
    fn what_one_robot_left_another_finds_in_order() {
        let directory = tempfile::tempdir().unwrap();
        let spool = Spool::take(directory.path(), 1 << 20).unwrap();
        (0..3).for_each(|number| spool.add(&entry(number)));
        let (found, until) = numbers(&spool);
        assert_eq!(found, [0, 1, 2]);
        spool.add(&entry(3));
        spool.taken(until).unwrap();
        assert_eq!(numbers(&spool).0, [3]);
        // Another robot at the same time has a spool of its own.
        let other = Spool::take(directory.path(), 1 << 20).unwrap();
        other.add(&entry(9));
        assert!(Spool::left(directory.path()).unwrap().is_empty(), "both are in use");
        drop((spool, other));
        // What the store has already is told again: only the store knows for certain. An empty one tells nothing.
        std::fs::write(directory.path().join("spool-2"), "").unwrap();
        let left = Spool::left(directory.path()).unwrap();
        assert_eq!(left.iter().map(|spool| numbers(spool).0).collect::<Vec<_>>(), [vec![0, 1, 2, 3], vec![9]]);
        for spool in &left {
            spool.taken(numbers(spool).1).unwrap();
            assert!(spool.is_empty());
        }
    }

    #[test]
    fn a_cut_line_costs_its_own_round_only() {
        let directory = tempfile::tempdir().unwrap();
        let spool = Spool::take(directory.path(), 1 << 20).unwrap();
        spool.add(&entry(0));
        spool.state.lock().unwrap().file.write_all(b"{\"run\":\"x").unwrap();
        drop(spool);
        let spool = Spool::take(directory.path(), 1 << 20).unwrap();
        spool.add(&entry(2));
        assert_eq!(numbers(&spool).0, [0, 2]);
    }

    proptest::proptest! {
        #![proptest_config(proptest::prelude::ProptestConfig::with_cases(64))]
        /// Whatever a crash of the machine left between two runs, rounds before and after it are there, in order, once.
        #[test]
        fn rounds_around_foreign_bytes_are_there(before in 0u64..5, foreign: Vec<u8>, after in 1u64..5) {
            let directory = tempfile::tempdir().unwrap();
            let spool = Spool::take(directory.path(), 1 << 20).unwrap();
            (0..before).for_each(|number| spool.add(&entry(number)));
            spool.state.lock().unwrap().file.write_all(&foreign).unwrap();
            drop(spool);
            let spool = Spool::take(directory.path(), 1 << 20).unwrap();
            (before..before + after).for_each(|number| spool.add(&entry(number)));
            let (found, until) = numbers(&spool);
            proptest::prop_assert_eq!(found, (0..before + after).collect::<Vec<_>>());
            spool.taken(until).unwrap();
            proptest::prop_assert!(spool.is_empty());
        }
    }

    #[test]
    fn a_full_spool_waits_in_memory_and_tells_what_it_had_to_drop() {
        let directory = tempfile::tempdir().unwrap();
        let spool = Spool::take(directory.path(), 2000).unwrap();
        let all = MEMORY_MAX as u64 + 100;
        (0..all).for_each(|number| spool.add(&entry(number)));
        assert!(spool.dropped_count() > 90);
        let (mut made, mut missed) = (Vec::new(), 0);
        let mut take = |spool: &Spool| {
            let (found, until) = spool.oldest().unwrap();
            for entry in found {
                match entry.missed_count {
                    Some(count) => missed += count,
                    None => made.push(entry.number),
                }
            }
            spool.taken(until).unwrap();
        };
        (0..50).for_each(|_| take(&spool));
        // There is room again: the next round is kept, and what was dropped is told before it.
        spool.add(&entry(all));
        while !spool.is_empty() {
            take(&spool);
        }
        assert_eq!((made.len() as u64 + missed, missed), (all + 1, spool.dropped_count()));
        assert!(made.is_sorted() && made.last() == Some(&all));
    }

    #[test]
    fn what_nobody_can_read_is_kept_aside() {
        let directory = tempfile::tempdir().unwrap();
        let spool = Spool::take(directory.path(), 1 << 20).unwrap();
        spool.state.lock().unwrap().file.write_all(b"{\"from\":\"a newer tlsdyno\"}\n").unwrap();
        drop(spool);
        let spool = Spool::take(directory.path(), 1 << 20).unwrap();
        assert_eq!((numbers(&spool).0.len(), spool.damaged_count()), (0, 1));
        let aside = std::fs::read_to_string(directory.path().join("damaged")).unwrap();
        assert!(aside.contains("a newer tlsdyno"));
    }

    #[test]
    fn a_site_has_one_robot() {
        let directory = tempfile::tempdir().unwrap();
        let claim = Claim::of(directory.path(), "https://a/").unwrap();
        Claim::of(directory.path(), "https://b/").unwrap();
        let error = Claim::of(directory.path(), "https://a/").unwrap_err().to_string();
        assert!(error.contains("another robot probes https://a/"), "{error}");
        drop(claim);
        Claim::of(directory.path(), "https://a/").unwrap();
    }
}
