//! Rounds on their way to the store. Measuring never waits for a database: a round is appended to a file, and a thread
//! of its own takes the file to the store. What a killed robot left is taken by the next one. The store knows rounds
//! that it already has, so that taking one twice does no harm.

use std::collections::{BTreeMap, VecDeque};
use std::fs::{File, OpenOptions, TryLockError};
use std::io::{BufRead, BufReader, Seek, SeekFrom, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard};

use anyhow::{Context, Result, ensure};

use super::entry::Entry;
use super::site::file_of;

/// Rounds kept in memory while the spool cannot be written.
const MEMORY_MAX: usize = if cfg!(test) { 1_000 } else { 10_000 };
/// Spools in one directory: robots on one store at the same time.
const SPOOLS_MAX: usize = 1000;
/// Rounds taken at once.
const TAKEN_AT_ONCE: usize = 256;
/// So much of a damaged line is kept. A crash of the machine leaves lines of zeros of any length.
const DAMAGED_BYTES_MAX: usize = 256 * 1024;

/// A file of entries, locked by this process.
#[derive(Debug)]
pub struct Spool {
    state: Mutex<State>,
    bytes_max: u64,
    /// Where damaged lines go.
    aside: PathBuf,
}

/// What was read of a spool, and how far.
#[derive(Debug, Default)]
pub struct Oldest {
    pub entries: Vec<Entry>,
    /// Lines among them that nobody can read.
    damaged: Vec<Vec<u8>>,
    file: u64,
    /// How far what waits in memory was read, by the count of all lines that ever waited there.
    memory: u64,
}

/// What became of rounds that the store has not.
#[derive(Clone, Copy, Debug)]
pub struct Rest {
    /// No round waits in the file.
    pub is_file_empty: bool,
    /// Rounds that wait in memory, for the file takes none: they end with this process.
    pub in_memory_count: u64,
    /// Rounds that found no room on disk or in memory.
    pub dropped_count: u64,
    /// Lines that nobody could read; they were put aside.
    pub damaged_count: u64,
}

#[derive(Debug)]
struct State {
    file: File,
    bytes: u64,
    /// Where the first entry begins that the store does not have.
    taken: u64,
    /// Lines that could not be written yet.
    waiting: VecDeque<String>,
    /// Lines that have left `waiting` so far.
    left_memory: u64,
    /// Rounds that found no room, by run and series: the first of them, when it began, and how many.
    dropped: BTreeMap<(String, String), (u64, i64, u64)>,
    dropped_count: u64,
    damaged_count: u64,
}

impl Spool {
    /// Takes the first spool in `directory` that no other robot has. `bytes_max`: its largest size.
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

    fn on(mut file: File, bytes_max: u64, directory: &Path) -> Result<Spool> {
        let mut bytes = file.metadata().context("failed to ask for the size of the spool")?.len();
        // A robot that was killed while it wrote leaves a line without its end: nothing may be appended to it.
        let mut last = [b'\n'];
        if bytes > 0 {
            file.read_exact_at(&mut last, bytes - 1).context("failed to read the spool")?;
        }
        if last != *b"\n" {
            file.write_all(b"\n").context("failed to write the spool")?;
            bytes += 1;
        }
        let state = State {
            file,
            bytes,
            taken: 0,
            waiting: VecDeque::new(),
            left_memory: 0,
            dropped: BTreeMap::new(),
            dropped_count: 0,
            damaged_count: 0,
        };
        Ok(Spool { state: Mutex::new(state), bytes_max, aside: directory.join("damaged") })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no holder of the spool panics")
    }

    /// Appends a round. It never fails: what finds no room on disk waits in memory, and what finds none there either
    /// is counted, and becomes a row of missed rounds as soon as there is room.
    pub fn add(&self, entry: &Entry) {
        let mut state = self.state();
        state.write_waiting(self.bytes_max);
        if state.waiting.len() >= MEMORY_MAX {
            return state.drop_entry(entry);
        }
        state.own_up(&(entry.run.clone(), entry.round.series()));
        state.waiting.push_back(line(entry));
        state.write_waiting(self.bytes_max);
    }

    /// Tells of rounds that were dropped, and writes what waits in memory however long the file becomes: no other round
    /// follows, and who ends has no memory.
    pub fn close(&self) {
        let mut state = self.state();
        let all: Vec<_> = state.dropped.keys().cloned().collect();
        all.iter().for_each(|series| state.own_up(series));
        state.write_waiting(u64::MAX);
    }

    /// The oldest entries that the store does not have; none: it has all. Those that the file does not take come from
    /// memory.
    pub fn oldest(&self) -> Result<Oldest> {
        let mut state = self.state();
        state.write_waiting(self.bytes_max);
        let mut oldest = Oldest { file: state.taken, memory: state.left_memory, ..Oldest::default() };
        let mut file = BufReader::new(&state.file);
        file.seek(SeekFrom::Start(state.taken)).context("failed to read the spool")?;
        while oldest.entries.len() < TAKEN_AT_ONCE && oldest.file < state.bytes {
            let mut line = Vec::new();
            let read = file.read_until(b'\n', &mut line).context("failed to read the spool")?;
            ensure!(read > 0, "another program has shortened the spool");
            oldest.file += read as u64;
            match serde_json::from_slice(&line) {
                Ok(entry) => oldest.entries.push(entry),
                // A robot that was killed while it wrote, a crash of the machine, or a newer tlsdyno.
                Err(_) => oldest.damaged.push(line[..read.min(DAMAGED_BYTES_MAX)].trim_ascii_end().to_vec()),
            }
        }
        if oldest.entries.is_empty() {
            let lines = state.waiting.iter().take(TAKEN_AT_ONCE);
            oldest.entries.extend(lines.filter_map(|line| serde_json::from_str::<Entry>(line).ok()));
            oldest.memory += oldest.entries.len() as u64;
        }
        Ok(oldest)
    }

    /// The store has these entries. Damaged lines among them are put aside.
    pub fn taken(&self, oldest: &Oldest) -> Result<()> {
        let mut state = self.state();
        if !oldest.damaged.is_empty() {
            let failed = || format!("failed to write {}", self.aside.display());
            let mut aside = OpenOptions::new().append(true).create(true).open(&self.aside).with_context(failed)?;
            aside.write_all(&[oldest.damaged.join(&b'\n'), b"\n".to_vec()].concat()).with_context(failed)?;
            state.damaged_count += oldest.damaged.len() as u64;
        }
        // Some may have found room in the file meanwhile: they are taken twice, which the store knows.
        while state.left_memory < oldest.memory && state.waiting.pop_front().is_some() {
            state.left_memory += 1;
        }
        state.taken = oldest.file;
        if state.taken == state.bytes && state.bytes > 0 {
            state.file.set_len(0).context("failed to empty the spool")?;
            (state.bytes, state.taken) = (0, 0);
        }
        Ok(())
    }

    pub fn rest(&self) -> Rest {
        let state = self.state();
        let waiting = state.waiting.iter().filter_map(|line| serde_json::from_str::<Entry>(line).ok());
        Rest {
            is_file_empty: state.taken == state.bytes,
            in_memory_count: waiting.filter(|entry| entry.missed_count.is_none()).count() as u64,
            dropped_count: state.dropped_count,
            damaged_count: state.damaged_count,
        }
    }
}

fn line(entry: &Entry) -> String {
    serde_json::to_string(entry).expect("rounds are always JSON") + "\n"
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
            self.left_memory += 1;
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
    use crate::round::Round;

    fn entry(number: u64) -> Entry {
        Entry::made("run", number, Round { site: "https://a/".to_owned(), ..Round::default() })
    }

    fn numbers(spool: &Spool) -> (Vec<u64>, Oldest) {
        let oldest = spool.oldest().unwrap();
        (oldest.entries.iter().map(|entry| entry.number).collect(), oldest)
    }

    fn is_empty(spool: &Spool) -> bool {
        let rest = spool.rest();
        rest.is_file_empty && rest.in_memory_count == 0
    }

    #[test]
    fn what_one_robot_left_another_finds_in_order() {
        let directory = tempfile::tempdir().unwrap();
        let spool = Spool::take(directory.path(), 1 << 20).unwrap();
        (0..3).for_each(|number| spool.add(&entry(number)));
        let (found, until) = numbers(&spool);
        assert_eq!(found, [0, 1, 2]);
        spool.add(&entry(3));
        spool.taken(&until).unwrap();
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
            spool.taken(&numbers(spool).1).unwrap();
            assert!(is_empty(spool));
        }
    }

    #[test]
    fn a_cut_line_costs_its_own_round_only() {
        let directory = tempfile::tempdir().unwrap();
        let spool = Spool::take(directory.path(), 1 << 20).unwrap();
        spool.add(&entry(0));
        spool.state().file.write_all(b"{\"run\":\"x").unwrap();
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
            spool.state().file.write_all(&foreign).unwrap();
            drop(spool);
            let spool = Spool::take(directory.path(), 1 << 20).unwrap();
            (before..before + after).for_each(|number| spool.add(&entry(number)));
            let (found, until) = numbers(&spool);
            proptest::prop_assert_eq!(found, (0..before + after).collect::<Vec<_>>());
            spool.taken(&until).unwrap();
            proptest::prop_assert!(is_empty(&spool));
        }
    }

    #[test]
    fn a_full_spool_waits_in_memory_and_tells_what_it_had_to_drop() {
        let directory = tempfile::tempdir().unwrap();
        let spool = Spool::take(directory.path(), 2000).unwrap();
        let all = MEMORY_MAX as u64 + 100;
        (0..all).for_each(|number| spool.add(&entry(number)));
        assert!(spool.rest().dropped_count > 90);
        let (mut made, mut missed) = (Vec::new(), 0);
        let mut take = |spool: &Spool| {
            let until = spool.oldest().unwrap();
            for entry in &until.entries {
                match entry.missed_count {
                    Some(count) => missed += count,
                    None => made.push(entry.number),
                }
            }
            spool.taken(&until).unwrap();
        };
        (0..50).for_each(|_| take(&spool));
        // There is room again: the next round is kept, and what was dropped is told before it.
        spool.add(&entry(all));
        while !is_empty(&spool) {
            take(&spool);
        }
        assert_eq!((made.len() as u64 + missed, missed), (all + 1, spool.rest().dropped_count));
        assert!(made.is_sorted() && made.last() == Some(&all));
    }

    /// After a crash of the machine the file has zeros where its last writes should be.
    #[test]
    fn a_line_of_any_length_is_passed_over() {
        let directory = tempfile::tempdir().unwrap();
        for (count, length) in
            [300 * 1024, DAMAGED_BYTES_MAX - 1, DAMAGED_BYTES_MAX, 3 * DAMAGED_BYTES_MAX + 5].into_iter().enumerate()
        {
            let spool = Spool::take(directory.path(), 64 << 20).unwrap();
            spool.add(&entry(0));
            spool.state().file.write_all(&vec![0; length]).unwrap();
            drop(spool);
            let spool = Spool::take(directory.path(), 64 << 20).unwrap();
            (1..3).for_each(|number| spool.add(&entry(number)));
            let mut found = Vec::new();
            for _ in 0..2 {
                // Read again, as while the store takes nothing.
                numbers(&spool);
                let (some, until) = numbers(&spool);
                found.extend(some);
                spool.taken(&until).unwrap();
            }
            assert_eq!((found, spool.rest().damaged_count, is_empty(&spool)), (vec![0, 1, 2], 1, true), "{length}");
            let aside = std::fs::metadata(directory.path().join("damaged")).unwrap().len();
            assert!(aside <= (count as u64 + 1) * (DAMAGED_BYTES_MAX as u64 + 1), "{aside}");
        }
    }

    /// The store may be elsewhere, and take what the own disk does not.
    #[test]
    fn rounds_that_no_file_takes_come_from_memory_and_the_last_ones_are_written_all_the_same() {
        let directory = tempfile::tempdir().unwrap();
        let spool = Spool::take(directory.path(), 0).unwrap();
        (0..600).for_each(|number| spool.add(&entry(number)));
        assert_eq!((spool.rest().in_memory_count, spool.rest().is_file_empty), (600, true));
        let (found, until) = numbers(&spool);
        spool.add(&entry(600));
        spool.taken(&until).unwrap();
        assert_eq!(spool.rest().in_memory_count, 601 - found.len() as u64);
        let (second, until) = numbers(&spool);
        // Meanwhile they found room: the store gets some of them twice.
        spool.close();
        spool.taken(&until).unwrap();
        assert_eq!(spool.rest().in_memory_count, 0);
        assert_eq!([found, second].concat(), (0..512).collect::<Vec<_>>());
        let mut last = Vec::new();
        while !is_empty(&spool) {
            let (some, until) = numbers(&spool);
            last.extend(some);
            spool.taken(&until).unwrap();
        }
        assert_eq!(last, (256..=600).collect::<Vec<_>>());
    }

    #[test]
    fn what_nobody_can_read_is_kept_aside() {
        let directory = tempfile::tempdir().unwrap();
        let spool = Spool::take(directory.path(), 1 << 20).unwrap();
        spool.state().file.write_all(b"{\"from\":\"a newer tlsdyno\"}\n").unwrap();
        drop(spool);
        let spool = Spool::take(directory.path(), 1 << 20).unwrap();
        let (found, oldest) = numbers(&spool);
        spool.taken(&oldest).unwrap();
        assert_eq!((found.len(), spool.rest().damaged_count), (0, 1));
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
