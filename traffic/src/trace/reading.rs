//! The entries of a log. Its first lines tell where in a line the client stands: words that a collector of logs put
//! before all of them are cut, and where a proxy's address stands first the client's is taken from behind.

use std::collections::{HashMap, HashSet};
use std::path::Path;

use anyhow::Result;

use super::access_log::{Clock, Entry, Fault, parse_with};
use super::layout::{Field, Found, Layout};
use super::log_file::{self, Line, Read};
use tlsdyno_record::model::workload::{ClientField, ReplaySpec};

/// Lines, and bytes of them, by which it is decided where the client stands.
const SAMPLE_LINES: usize = 2_000;
const SAMPLE_BYTES: usize = 1 << 20;

/// Hands each line of the log at `path` to `take` with what it says.
///
/// # Errors
/// See [`log_file::for_each_line`].
pub(super) fn for_each_entry(
    path: &Path,
    rules: &ReplaySpec,
    mut take: impl FnMut(&[u8], Result<Entry<'_>, Fault>) -> Result<()>,
) -> Result<Read> {
    let field = rules.client_field.map(|field| match field {
        ClientField::Number(number) => Field::Number(number),
        ClientField::Last => Field::Last,
    });
    let mut clock = Clock::default();
    let mut sample = Sample::default();
    let mut layout = field.map(|field| Layout { field: Some(field), ..Layout::default() });
    let read = log_file::for_each_line(path, rules.first_bytes, |line| {
        if let Some(layout) = &layout {
            return taken(&line, layout, &mut clock, &mut take);
        }
        sample.add(&line);
        if sample.is_full() {
            layout = Some(sample.hand_on(&mut clock, &mut take)?);
        }
        Ok(())
    })?;
    if layout.is_none() {
        sample.hand_on(&mut clock, &mut take)?;
    }
    Ok(read)
}

fn taken(
    line: &Line<'_>,
    layout: &Layout,
    clock: &mut Clock,
    take: &mut impl FnMut(&[u8], Result<Entry<'_>, Fault>) -> Result<()>,
) -> Result<()> {
    match line {
        Line::Whole(line) => take(line, parse_with(line, clock, layout)),
        Line::TooLong(start) => take(start, Err(Fault::TooLong)),
    }
}

/// The first lines of a log.
#[derive(Default)]
struct Sample {
    text: Vec<u8>,
    /// Where each line ends, and whether it was too long.
    ends: Vec<(usize, bool)>,
}

impl Sample {
    fn add(&mut self, line: &Line<'_>) {
        let (text, too_long) = match line {
            Line::Whole(text) => (text, false),
            Line::TooLong(text) => (text, true),
        };
        self.text.extend_from_slice(text);
        self.ends.push((self.text.len(), too_long));
    }

    fn is_full(&self) -> bool {
        self.ends.len() >= SAMPLE_LINES || self.text.len() >= SAMPLE_BYTES
    }

    fn lines(&self) -> impl Iterator<Item = Line<'_>> + Clone {
        let starts = std::iter::once(0).chain(self.ends.iter().map(|(end, _)| *end));
        starts.zip(&self.ends).map(|(start, (end, too_long))| {
            let text = &self.text[start..*end];
            if *too_long { Line::TooLong(text) } else { Line::Whole(text) }
        })
    }

    /// Decides where clients stand, and hands on the lines, read so.
    fn hand_on(
        &self,
        clock: &mut Clock,
        take: &mut impl FnMut(&[u8], Result<Entry<'_>, Fault>) -> Result<()>,
    ) -> Result<Layout> {
        let layout = layout_of(self.lines().filter_map(|line| match line {
            Line::Whole(text) => Some(text),
            Line::TooLong(_) => None,
        }));
        for line in self.lines() {
            taken(&line, &layout, clock, take)?;
        }
        Ok(layout)
    }
}

/// So many of a hundred lines must name a forwarded address for the server to be behind a proxy that always does.
const FORWARDED_PERCENT: usize = 80;
/// With so many of a hundred lines by one address, that is the proxy of the others.
const ONE_PROXY_PERCENT: usize = 95;

/// Where the clients of these lines stand.
fn layout_of<'line>(lines: impl Iterator<Item = &'line [u8]> + Clone) -> Layout {
    let mut clock = Clock::default();
    let mut before: HashMap<usize, usize> = HashMap::new();
    let told = |clock: &mut Clock, line, layout: &Layout| parse_with(line, clock, layout).ok();
    for entry in lines.clone().filter_map(|line| told(&mut clock, line, &Layout::default())) {
        if let Found::Words { before: text, .. } = entry.found {
            *before.entry(words_in(text)).or_default() += 1;
        }
    }
    // The fewest where two are as frequent.
    let usual = before.into_iter().max_by_key(|(words, lines)| (*lines, std::cmp::Reverse(*words)));
    let words_before = usual.map_or(0, |(words, _)| words);
    let layout = Layout { field: None, words_before, behind_proxy: true };

    let (mut firsts, mut forwarded): (HashMap<Vec<u8>, usize>, HashSet<Vec<u8>>) = Default::default();
    let (mut count, mut with_forwarded) = (0, 0);
    for entry in lines.filter_map(|line| told(&mut clock, line, &layout)) {
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

/// Whole words of what stands before a client.
fn words_in(before: &[u8]) -> usize {
    let blank = before.iter().rposition(|byte| super::fields::is_blank(*byte)).map_or(0, |blank| blank + 1);
    before[..blank].split(|byte| super::fields::is_blank(*byte)).filter(|word| !word.is_empty()).count()
}

#[cfg(test)]
mod tests;
