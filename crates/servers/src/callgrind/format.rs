//! What the lines of callgrind's files say (valgrind's manual, "Callgrind Format Specification").

use std::collections::HashMap;

#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Function {
    pub object: String,
    pub name: String,
}

/// What some code executed. Misses and branches are 0 where no caches were given.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Executed {
    pub instructions: u64,
    /// Instructions and data that missed the caches of the first level.
    pub near_misses: u64,
    /// Those of them that missed the last level too.
    pub far_misses: u64,
    pub mispredicted: u64,
}

impl Executed {
    /// The names of callgrind's events whose sums these are.
    const EVENTS: [&[&str]; 4] = [&["Ir"], &["I1mr", "D1mr", "D1mw"], &["ILmr", "DLmr", "DLmw"], &["Bcm", "Bim"]];

    /// Of a line's numbers, which belong to `events` and may lack zeros at the end.
    fn from_events(events: &[&str], numbers: &[u64]) -> Option<Executed> {
        let sum = |names: &[&str]| {
            let wanted = events.iter().zip(numbers).filter(|(event, _)| names.contains(event));
            wanted.map(|(_, number)| *number).try_fold(0_u64, u64::checked_add)
        };
        let [instructions, near_misses, far_misses, mispredicted] = Executed::EVENTS.map(sum);
        Some(Executed {
            instructions: instructions?,
            near_misses: near_misses?,
            far_misses: far_misses?,
            mispredicted: mispredicted?,
        })
    }

    /// `None` where the sum does not fit into 64 bits.
    pub(super) fn checked_add(self, more: Executed) -> Option<Executed> {
        Some(Executed {
            instructions: self.instructions.checked_add(more.instructions)?,
            near_misses: self.near_misses.checked_add(more.near_misses)?,
            far_misses: self.far_misses.checked_add(more.far_misses)?,
            mispredicted: self.mispredicted.checked_add(more.mispredicted)?,
        })
    }
}

/// A line of costs.
pub(super) struct Line<'a> {
    /// The function that executed it, or that calls.
    pub function: &'a Function,
    /// Address in the function's file; 0: the file tells none.
    pub address: u64,
    /// The name of the function that is called, and how often: then `executed` is what these calls did in all.
    pub called: Option<(&'a str, u64)>,
    pub executed: Executed,
}

/// Tells `each` the lines of costs in a file. `None`: it is no file of callgrind, its lines do not add up to the total
/// that it says itself, or `each` refused one.
pub(super) fn read(text: &str, mut each: impl FnMut(Line<'_>) -> Option<()>) -> Option<()> {
    let (mut objects, mut names) = (Names::default(), Names::default());
    let (mut function, mut callee) = (Function::default(), String::new());
    let (mut calls, mut events, mut places) = (None, vec!["Ir"], vec!["line"]);
    let mut sum = Executed::default();
    for line in text.lines() {
        if let Some(name) = line.strip_prefix("ob=") {
            function.object = objects.resolve(name)?;
        } else if let Some(name) = line.strip_prefix("fn=") {
            function.name = names.resolve(name)?;
        } else if let Some(name) = line.strip_prefix("cob=") {
            objects.resolve(name)?;
        } else if let Some(name) = line.strip_prefix("cfn=") {
            callee = names.resolve(name)?;
        } else if let Some(value) = line.strip_prefix("calls=") {
            calls = Some(value.split(' ').next()?.parse::<u64>().ok()?);
        } else if let Some(value) = line.strip_prefix("events: ") {
            events = value.split_whitespace().collect();
        } else if let Some(value) = line.strip_prefix("positions: ") {
            places = value.split_whitespace().collect();
        } else if line.starts_with(|first: char| first.is_ascii_digit() || "+-*".contains(first)) {
            let address = if places[..] == ["line"] { 0 } else { address(line)? };
            let costs = numbers(line.splitn(places.len() + 1, ' ').nth(places.len())?)?;
            let executed = Executed::from_events(&events, &costs)?;
            let called = calls.take().map(|count| (callee.as_str(), count));
            // Behind `calls=` stands what the calls cost in all.
            if called.is_none() {
                sum = sum.checked_add(executed)?;
            }
            each(Line { function: &function, address, called, executed })?;
        }
    }
    (sum == Executed::from_events(&events, &total_of(text)?)?).then_some(())
}

/// The first word of a line where instructions have lines of their own (`--dump-instr=yes --compress-pos=no`).
fn address(line: &str) -> Option<u64> {
    u64::from_str_radix(line.split(' ').next()?.strip_prefix("0x")?, 16).ok()
}

/// `None` where a word is no number, or where there is none.
fn numbers(text: &str) -> Option<Vec<u64>> {
    let numbers: Vec<u64> = text.split_whitespace().map(|number| number.parse().ok()).collect::<Option<_>>()?;
    (!numbers.is_empty()).then_some(numbers)
}

/// Names are written once, with a number, and then as this number.
#[derive(Default)]
struct Names(HashMap<String, String>);

impl Names {
    /// `(5) name`, or `(5)`.
    fn resolve(&mut self, text: &str) -> Option<String> {
        match text.split_once(' ') {
            Some((number, name)) => {
                self.0.insert(number.to_owned(), name.to_owned());
                Some(name.to_owned())
            }
            None => self.0.get(text).cloned(),
        }
    }
}

/// The total that a file says itself: at its end that of its lines. The summary at its beginning has what was executed
/// while the file was begun, too.
fn total_of(text: &str) -> Option<Vec<u64>> {
    let line_after = |name: &str| text.lines().find_map(|line| line.strip_prefix(name));
    numbers(line_after("totals: ").or_else(|| line_after("summary: "))?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn totals_are_found() {
        assert_eq!(total_of("version: 1\nevents: Ir\nsummary: 1206\n\nfl=a\n"), Some(vec![1206]));
        assert_eq!(total_of("summary: 19 3\nfl=a\n1 2\ntotals: 17 3\n"), Some(vec![17, 3]));
        assert_eq!(total_of("fl=a\ntotals: x\n"), None);
        assert_eq!(total_of(""), None);
    }

    #[test]
    fn addresses_are_told_where_the_file_has_them() {
        let text = "positions: instr line\nevents: Ir\nob=(1) /a\nfn=(1) work\n0x1f0 0 5\ncfn=(2) help\ncalls=2 0x9 0\n\
                    0x1f4 0 8\ntotals: 5\n";
        let mut seen = Vec::new();
        let told = read(text, |line| {
            let called = line.called.map(|(name, count)| (name.to_owned(), count));
            seen.push((line.address, called, line.executed.instructions));
            Some(())
        });
        let expected = vec![(0x1f0, None, 5), (0x1f4, Some(("help".to_owned(), 2)), 8)];
        assert_eq!((told, seen), (Some(()), expected));
        assert_eq!(read(&text.replace("0x1f0", "+3"), |_| Some(())), None, "an address that depends on the one before");
    }
}
