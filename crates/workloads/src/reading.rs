//! The entries of a log. Its first lines tell where in a line the client stands: words that a collector of logs put
//! before all of them are cut, and where a proxy's address stands first the client's is taken from behind.

use std::collections::{HashMap, HashSet};
use std::path::Path;

use anyhow::Result;
use tlsdyno_base::fault::{Fault, OrFault};
use tlsdyno_record::model::workload::{ClientField, ReplaySpec};

use super::access_log::{Clock, Entry, LineFault, parse_with};
use super::client::{Client, of_word};
use super::exclude::Exclude;
use super::json_line;
use super::layout::{Field, Found, Layout};
use super::log_file::{self, Line};
use super::log_summary::LogRead;

/// Lines, and bytes of them, by which it is decided where the client stands.
const SAMPLE_LINES: usize = 2_000;
const SAMPLE_BYTES: usize = 1 << 20;

/// The first line's time among the 32 bits of a hit's: 68 years of log on either side.
const MIDDLE_S: i64 = 1 << 31;

/// Hands each request of the log at `path` to `take`, in the order of the log, with its time in seconds from an
/// arbitrary point: each line that is neither malformed nor excluded. Answers what was found, and how many bytes of the
/// file were read if it can be read again.
pub(super) fn for_each_request(
    path: &Path,
    exclude: &[String],
    rules: &ReplaySpec,
    mut take: impl FnMut(&Entry<'_>, u32) -> Result<()>,
) -> Result<(LogRead, Option<u64>)> {
    let mut excluded = Exclude::new(exclude).or_fault(Fault::Usage)?;
    let mut found = LogRead::new(exclude);
    let mut first_s = None;
    let site = rules.site.as_deref().and_then(|site| of_word(site.as_bytes())).map(|site| site.text);
    let is_of_another =
        |entry: &Entry<'_>| site.is_some() && entry.site().is_some_and(|host| site.as_ref() != Some(&host));
    let each = |line: &Line<'_>, entry: Result<Entry<'_>, LineFault>| {
        found.lines += 1;
        match entry {
            Err(fault) => found.add_fault(fault, line.text),
            Ok(entry) if is_of_another(&entry) => found.of_other_sites += 1,
            Ok(entry) => match excluded.pattern(&entry) {
                Some(pattern) => found.excluded[pattern].lines += 1,
                None => {
                    found.add_entry(&entry);
                    let since_first_s = entry.time_s - *first_s.get_or_insert(entry.time_s);
                    take(&entry, (since_first_s + MIDDLE_S).clamp(0, i64::from(u32::MAX)) as u32)?;
                }
            },
        }
        Ok(())
    };
    let read = for_each_entry(path, rules, each).or_fault(Fault::Input)?;
    found.damage = read.damage;
    found.ensure_usable(path).or_fault(Fault::Input)?;
    Ok((found, read.file_bytes))
}

fn for_each_entry(
    path: &Path,
    rules: &ReplaySpec,
    mut take: impl FnMut(&Line<'_>, Result<Entry<'_>, LineFault>) -> Result<()>,
) -> Result<log_file::Read> {
    let mut clock = Clock::default();
    let mut parsed = |line: &Line<'_>, layout: &Layout| {
        let entry = if line.is_whole { parse_with(line.text, &mut clock, layout) } else { Err(LineFault::TooLong) };
        take(line, entry)
    };
    let mut layout = rules.client_field.map(|field| Layout { field: Some(field.into()), ..Layout::default() });
    let mut sample = Sample::default();
    let read = log_file::for_each_line(path, rules.first_bytes, |line| {
        let combined = line.is_whole.then(|| json_line::as_combined(line.text)).flatten();
        let line = Line { text: combined.as_deref().unwrap_or(line.text), ..line };
        if let Some(layout) = &layout {
            return parsed(&line, layout);
        }
        sample.add(&line);
        if sample.is_full() {
            let found = layout.insert(layout_of(&sample));
            sample.lines().try_for_each(|line| parsed(&line, found))?;
        }
        Ok(())
    })?;
    if layout.is_none() {
        let found = layout_of(&sample);
        sample.lines().try_for_each(|line| parsed(&line, &found))?;
    }
    Ok(read)
}

impl From<ClientField> for Field {
    fn from(field: ClientField) -> Field {
        match field {
            ClientField::Number(number) => Field::Number(number),
            ClientField::Last => Field::Last,
        }
    }
}

#[derive(Default)]
struct Sample {
    /// Each, and whether it is whole.
    lines: Vec<(Vec<u8>, bool)>,
    bytes: usize,
}

impl Sample {
    fn add(&mut self, line: &Line<'_>) {
        self.bytes += line.text.len();
        self.lines.push((line.text.to_vec(), line.is_whole));
    }

    fn is_full(&self) -> bool {
        self.lines.len() >= SAMPLE_LINES || self.bytes >= SAMPLE_BYTES
    }

    fn lines(&self) -> impl Iterator<Item = Line<'_>> {
        self.lines.iter().map(|(text, is_whole)| Line { text, is_whole: *is_whole })
    }
}

/// So many of a hundred lines must name a forwarded address for the server to be behind a proxy that always does.
const FORWARDED_PERCENT: usize = 80;
/// With so many of a hundred lines by one address, that is the proxy of the others.
const ONE_PROXY_PERCENT: usize = 95;

/// Where the clients of these lines stand.
fn layout_of(sample: &Sample) -> Layout {
    let mut clock = Clock::default();
    let mut before: HashMap<usize, usize> = HashMap::new();
    let mut varying = Varying::default();
    let whole = || sample.lines().filter(|line| line.is_whole).map(|line| line.text);
    for entry in whole().filter_map(|line| parse_with(line, &mut clock, &Layout::default()).ok()) {
        if let Found::Words { before: text, .. } = entry.found {
            *before.entry(words_in(text)).or_default() += 1;
        }
        varying.clients.insert(entry.client.into_owned());
    }
    whole().for_each(|line| varying.add(line));
    // The fewest where two are as frequent.
    let usual = before.into_iter().max_by_key(|(words, lines)| (*lines, std::cmp::Reverse(*words)));
    let words_before = varying.column().unwrap_or(usual.map_or(0, |(words, _)| words));
    let layout = Layout { field: None, words_before, behind_proxy: true };

    let (mut firsts, mut forwarded): (HashMap<Vec<u8>, usize>, HashSet<Vec<u8>>) = Default::default();
    let (mut count, mut with_forwarded) = (0, 0);
    for entry in whole().filter_map(|line| parse_with(line, &mut clock, &layout).ok()) {
        count += 1;
        let first = match entry.found {
            Found::Forwarded { proxy } => {
                with_forwarded += 1;
                forwarded.insert(entry.client.into_owned());
                proxy
            }
            Found::Words { .. } | Found::Asked => entry.client,
        };
        *firsts.entry(first.into_owned()).or_default() += 1;
    }
    let most = firsts.values().copied().max().unwrap_or(0);
    let is_usual = with_forwarded * 100 >= count * FORWARDED_PERCENT || most * 100 >= count * ONE_PROXY_PERCENT;
    // A few addresses behind the user agent beside many first ones are servers', not clients'.
    let behind_proxy = with_forwarded > 0 && is_usual && forwarded.len() >= firsts.len();
    Layout { behind_proxy, ..layout }
}

/// Words before the time that are looked at.
const COLUMNS: usize = 6;
/// Where so many times as many addresses stand in another place of the lines, that is the clients': a proxy, or an
/// address of the server itself, stands first.
const TIMES_AS_MANY: usize = 2;

/// The addresses before the time, by their places, and what would be taken for the clients.
#[derive(Default)]
struct Varying {
    lines: usize,
    columns: [(usize, HashSet<Vec<u8>>); COLUMNS],
    clients: HashSet<Vec<u8>>,
}

impl Varying {
    fn add(&mut self, line: &[u8]) {
        let Some(time) = memchr::memmem::find(line, b" [") else { return };
        self.lines += 1;
        let mut rest = &line[..time];
        for (lines, addresses) in &mut self.columns {
            let (word, behind) = super::fields::listed(rest);
            if let Some(client) = of_word(word).filter(Client::is_address) {
                *lines += 1;
                addresses.insert(client.text.into_owned());
            }
            rest = behind;
        }
    }

    /// The place of the clients, where it is not where they would be looked for.
    fn column(&self) -> Option<usize> {
        let usual = |(lines, _): &(usize, HashSet<Vec<u8>>)| lines * 100 >= self.lines * FORWARDED_PERCENT;
        let places = self.columns.iter().enumerate().filter(|(_, column)| usual(column));
        let (place, (_, addresses)) = places.max_by_key(|(_, (_, addresses))| addresses.len())?;
        (addresses.len() >= TIMES_AS_MANY * self.clients.len().max(1)).then_some(place)
    }
}

/// Whole words of what stands before a client.
fn words_in(before: &[u8]) -> usize {
    let blank = before.iter().rposition(|byte| super::fields::is_blank(*byte)).map_or(0, |blank| blank + 1);
    before[..blank].split(|byte| super::fields::is_blank(*byte)).filter(|word| !word.is_empty()).count()
}

#[cfg(test)]
mod tests;
