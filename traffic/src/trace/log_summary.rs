//! What was found in a log, so that nothing is left out or changed silently.

use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;

use anyhow::{Result, bail};
use serde::Serialize;

use super::access_log::{Entry, Fault};
use super::layout::Found;
use super::logged::{Hit, Method, Replay, Response};
use super::objects::Objects;
use tlsdyno_base::foreign::clipped;

/// Examples kept of each kind of malformed line.
const EXAMPLES: usize = 3;
/// So many of a hundred lines may have another word where the client belongs: one that is damaged, say.
const NOT_CLIENTS_PERCENT: u64 = 5;
/// Characters kept of an example.
const EXAMPLE_CHARACTERS: usize = 160;
/// Characters kept of a client: names of hosts have up to 253 (RFC 1035 section 2.3.4, written out).
const CLIENT_CHARACTERS: usize = 253;
/// Distinct methods counted by name; forged ones must not fill the memory.
const METHODS: usize = 32;
/// The name under which the others are counted: in lower case, which no method in the table has by chance.
const OTHER_METHODS: &[u8] = b"other";
/// Clients shown.
const BUSIEST: usize = 5;

/// What reading a log has found, whatever it is read for.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct LogRead {
    /// Lines read.
    pub lines: u64,
    /// Lines that could not be used, by reason.
    pub malformed: Vec<Malformed>,
    /// Lines left out on request, by what was asked for.
    pub excluded: Vec<Excluded>,
    /// Requests whose line names a user agent (combined format).
    pub with_user_agent: u64,
    /// Requests by method, as logged.
    pub methods: BTreeMap<String, u64>,
    /// Requests by status, as logged.
    pub statuses: BTreeMap<u16, u64>,
    /// Bytes of all response bodies as logged; responses replayed differ where an object's size varied.
    pub logged_bytes: u64,
    /// Where in the lines the clients were found.
    #[serde(flatten)]
    pub found: FoundClients,
    /// Lines stamped earlier than the line before; the order of the log is kept.
    pub backward_time_stamps: u64,
    /// Earliest and latest time stamp, seconds since 1970.
    pub time_range_s: Option<(i64, i64)>,
    /// The clients with the most requests: a proxy that stands for many users would be among them.
    pub busiest_clients: Vec<Busy>,
    /// Why reading ended early, if it did.
    pub damage: Option<String>,
}

/// What was found in a log that is replayed.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct LogSummary {
    /// By reading it.
    #[serde(flatten)]
    pub read: LogRead,
    /// Requests by how they are replayed: `get`, `head`, `post`, `conditional`, `range`, `missing`, `stand_in`.
    pub replayed_as: BTreeMap<&'static str, u64>,
    /// Files that are requested under another path than the log's.
    pub renamed_files: u64,
    /// Files that had several sizes; the most usual was taken.
    pub files_of_varying_size: u64,
    /// Files whose size the log does not tell; they are empty.
    pub files_of_unknown_size: u64,
}

/// Where in the lines of a log its clients were found, as far as that is not the first word.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct FoundClients {
    /// Requests whose line has something before the client, which was cut.
    pub with_prefix_count: u64,
    /// What that is in the first of them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub first_prefix: Option<String>,
    /// Requests whose client was taken from behind the user agent (X-Forwarded-For): before the time stands a proxy.
    pub forwarded_count: u64,
    /// The proxy of the first of them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub first_proxy: Option<String>,
    /// Requests with an address behind the user agent that was not taken for the client.
    pub forwarded_unused_count: u64,
}

/// Lines that could not be used for one reason.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Malformed {
    /// Short name of the reason.
    pub reason: &'static str,
    /// How many.
    pub lines: u64,
    /// What they lack, in words.
    pub text: &'static str,
    /// The first of them.
    pub examples: Vec<Example>,
}

/// One malformed line.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Example {
    /// Line number, from 1.
    pub line: u64,
    /// Its beginning; bytes that are not printable ASCII are escaped.
    pub text: String,
}

/// Lines left out on request.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Excluded {
    /// What was asked for.
    pub by: String,
    /// How many lines it left out.
    pub lines: u64,
}

/// A client with many requests.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Busy {
    /// Address or name as logged.
    pub client: String,
    /// Its requests.
    pub hits: u64,
}

/// A client with more than this share of the requests may be many users, or none.
const BUSY_SHARE: f64 = 0.05;

impl FoundClients {
    fn add(&mut self, found: &Found<'_>) {
        let shown = |text: &[u8]| clipped(text.escape_ascii().map(char::from), EXAMPLE_CHARACTERS);
        match found {
            Found::Words { before, another } => {
                self.forwarded_unused_count += u64::from(*another);
                if !before.is_empty() {
                    self.with_prefix_count += 1;
                    self.first_prefix.get_or_insert_with(|| shown(before));
                }
            }
            Found::Forwarded { proxy } => {
                self.forwarded_count += 1;
                self.first_proxy.get_or_insert_with(|| shown(proxy));
            }
            Found::Asked => {}
        }
    }
}

impl LogRead {
    /// Where the clients were found, where that is not the first word of each line, in sentences.
    pub fn notes(&self) -> Vec<String> {
        let found = &self.found;
        let of_all = |number: u64| {
            let hits = self.statuses.values().sum::<u64>();
            if number == hits {
                "each request's line".to_owned()
            } else {
                format!("{number} of {hits} requests' lines")
            }
        };
        let mut notes = Vec::new();
        if let Some(prefix) = &found.first_prefix {
            let lines = of_all(found.with_prefix_count);
            notes.push(format!("what stands before the client in {lines} was cut; the first is \"{prefix}\""));
        }
        if let Some(proxy) = &found.first_proxy {
            notes.push(format!(
                "the client in {} is the first address behind the user agent (X-Forwarded-For), since a proxy \
                 ({proxy}) stands before the time; --client-field names another field",
                of_all(found.forwarded_count)
            ));
        }
        if found.forwarded_unused_count > 0 {
            notes.push(format!(
                "{} also have an address behind the user agent (X-Forwarded-For?), which was not taken for the client; \
                 --client-field last would",
                of_all(found.forwarded_unused_count)
            ));
        }
        notes
    }

    /// Says on standard error how the log at `path` was read, where its numbers are not shown.
    pub fn tell(&self, path: &Path) {
        let told = self.notes().into_iter().chain(self.warnings());
        told.for_each(|told| tell!("log {}: {told}", path.display()));
    }

    /// What a reader of results must know about how the log was read, each with its remedy.
    pub fn warnings(&self) -> Vec<String> {
        let mut warnings: Vec<String> =
            self.damage.iter().map(|damage| format!("the log ends early: {damage}")).collect();
        let malformed: u64 = self.malformed.iter().map(|malformed| malformed.lines).sum();
        if malformed > 0 {
            let reasons: Vec<String> = self.malformed.iter().map(ToString::to_string).collect();
            let reasons = reasons.join("; ");
            warnings.push(format!("{malformed} of the {} lines of the log could not be used: {reasons}", self.lines));
        }
        for excluded in self.excluded.iter().filter(|excluded| excluded.lines == 0) {
            let reason = if self.with_user_agent == 0 { " (the log does not name user agents)" } else { "" };
            warnings.push(format!("excluding {} left out no line{reason}", excluded.by));
        }
        let hits = self.statuses.values().sum::<u64>() as f64;
        for busy in self.busiest_clients.iter().filter(|busy| busy.hits as f64 > BUSY_SHARE * hits) {
            let percent = 100.0 * busy.hits as f64 / hits;
            warnings.push(format!(
            "{percent:.0} % of the requests are by {}; if that is a proxy or a crawler, leave it out (--exclude {})",
            busy.client, busy.client
        ));
        }
        warnings
    }
}

impl fmt::Display for Malformed {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{} {}", self.lines, self.text)?;
        match self.examples.first() {
            Some(first) => write!(formatter, " (first: line {}: {})", first.line, first.text),
            None => Ok(()),
        }
    }
}

/// Counts kept while a log is read: by value where there are few, so that a line costs little.
#[derive(Debug)]
pub(super) struct Counts {
    pub lines: u64,
    pub damage: Option<String>,
    pub with_user_agent: u64,
    pub logged_bytes: u64,
    pub backward: u64,
    pub range_s: Option<(i64, i64)>,
    /// By index into the list of what is excluded.
    excluded: Vec<u64>,
    faults: BTreeMap<Fault, (u64, Vec<Example>)>,
    /// In order of appearance: the first is nearly always the one looked for.
    methods: Vec<(Box<[u8]>, u64)>,
    /// By status; the parser lets 100 to 599 pass.
    statuses: [u64; 600],
    last_s: Option<i64>,
    found: FoundClients,
}

impl Default for Counts {
    fn default() -> Self {
        Self {
            lines: 0,
            damage: None,
            with_user_agent: 0,
            logged_bytes: 0,
            backward: 0,
            range_s: None,
            excluded: Vec::new(),
            faults: BTreeMap::new(),
            methods: Vec::new(),
            statuses: [0; 600],
            last_s: None,
            found: FoundClients::default(),
        }
    }
}

impl Counts {
    pub(super) fn add_fault(&mut self, fault: Fault, line: &[u8]) {
        let (count, examples) = self.faults.entry(fault).or_default();
        *count += 1;
        if examples.len() < EXAMPLES {
            let text = clipped(line.escape_ascii().map(char::from), EXAMPLE_CHARACTERS);
            examples.push(Example { line: self.lines, text });
        }
    }

    pub(super) fn add_excluded(&mut self, pattern: usize) {
        if self.excluded.len() <= pattern {
            self.excluded.resize(pattern + 1, 0);
        }
        self.excluded[pattern] += 1;
    }

    pub(super) fn add_entry(&mut self, entry: &Entry<'_>) {
        self.add_method(entry.method);
        self.found.add(&entry.found);
        self.statuses[usize::from(entry.status)] += 1;
        self.with_user_agent += u64::from(entry.user_agent.is_some());
        self.logged_bytes = self.logged_bytes.saturating_add(entry.bytes.unwrap_or(0));
        self.backward += u64::from(self.last_s.is_some_and(|last| entry.time_s < last));
        self.last_s = Some(entry.time_s);
        let (first, last) = self.range_s.unwrap_or((entry.time_s, entry.time_s));
        self.range_s = Some((first.min(entry.time_s), last.max(entry.time_s)));
    }

    fn add_method(&mut self, method: &[u8]) {
        if let Some((_, count)) = self.methods.iter_mut().find(|(known, _)| **known == *method) {
            *count += 1;
        } else if self.methods.len() < METHODS {
            self.methods.push((method.into(), 1));
        } else {
            self.add_method(OTHER_METHODS);
        }
    }

    /// Refuses a log in more than a few of whose lines another word stands where the client belongs: what comes out
    /// would be about these words.
    pub(super) fn ensure_clients(&self, path: &str, hits: u64) -> Result<()> {
        let Some((lines, examples)) = self.faults.get(&Fault::NotAClient) else { return Ok(()) };
        let told = lines + hits + self.all_excluded();
        if lines * 100 <= told * NOT_CLIENTS_PERCENT {
            return Ok(());
        }
        let first = examples.first().map(|first| format!("line {}: {}", first.line, first.text)).unwrap_or_default();
        bail!(
            "{lines} of {told} lines of the log {path} have neither an address nor the name of a host where the client \
             belongs, the first is {first}. Say which field is the client with --client-field (a number from 1, or \
             last): what stands there is taken as it is"
        )
    }

    /// Lines that were left out, in all.
    pub(super) fn all_excluded(&self) -> u64 {
        self.excluded.iter().sum()
    }

    /// The malformed lines by reason, the most frequent first.
    pub(super) fn malformed(&self) -> Vec<Malformed> {
        let mut malformed: Vec<Malformed> = self
            .faults
            .iter()
            .map(|(fault, (lines, examples))| Malformed {
                reason: fault.name(),
                lines: *lines,
                text: fault.text(),
                examples: examples.clone(),
            })
            .collect();
        malformed.sort_by_key(|malformed| std::cmp::Reverse(malformed.lines));
        malformed
    }

    /// What was found, when all has been read. `exclude`: what was asked to be left out.
    pub(super) fn finish(self, exclude: &[String], busiest_clients: Vec<Busy>) -> LogRead {
        let excluded = |(index, by): (usize, &String)| Excluded {
            by: by.clone(),
            lines: self.excluded.get(index).copied().unwrap_or(0),
        };
        let methods = self.methods.iter().map(|(name, count)| (String::from_utf8_lossy(name).into_owned(), *count));
        LogRead {
            malformed: self.malformed(),
            excluded: exclude.iter().enumerate().map(excluded).collect(),
            methods: methods.collect(),
            statuses: (0..).zip(self.statuses).filter(|(_, count)| *count > 0).collect(),
            busiest_clients,
            lines: self.lines,
            with_user_agent: self.with_user_agent,
            logged_bytes: self.logged_bytes,
            backward_time_stamps: self.backward,
            time_range_s: self.range_s,
            damage: self.damage,
            found: self.found,
        }
    }
}

impl LogSummary {
    /// Of a log that becomes these objects, requested so.
    pub(super) fn of(read: LogRead, objects: &Objects, replays: &[Replay], hits: &[Hit]) -> LogSummary {
        LogSummary {
            read,
            replayed_as: replayed_as(replays, hits),
            renamed_files: objects.renamed,
            files_of_varying_size: objects.of_varying_size,
            files_of_unknown_size: objects.unknown_size_count,
        }
    }
}

fn replayed_as(replays: &[Replay], hits: &[Hit]) -> BTreeMap<&'static str, u64> {
    let mut counts = BTreeMap::new();
    for hit in hits {
        let replay = &replays[hit.object as usize];
        let how = match (replay.response, replay.method) {
            (Response::NotModified, _) => "conditional",
            (Response::Part(_), _) => "range",
            (Response::Missing, _) => "missing",
            (Response::StandIn(_), _) => "stand_in",
            (Response::Whole, Method::Get) => "get",
            (Response::Whole, Method::Head) => "head",
            (Response::Whole, Method::Post) => "post",
        };
        *counts.entry(how).or_default() += 1;
    }
    counts
}

/// Of clients with their requests the busiest.
pub(super) fn busiest(mut clients: Vec<(u64, &[u8])>) -> Vec<Busy> {
    // By name where equally busy, so that the order is always the same.
    clients.sort_unstable_by(|one, other| other.0.cmp(&one.0).then(one.1.cmp(other.1)));
    clients.truncate(BUSIEST);
    let shown = |client: &[u8]| clipped(client.escape_ascii().map(char::from), CLIENT_CHARACTERS);
    clients.into_iter().map(|(hits, client)| Busy { client: shown(client), hits }).collect()
}
