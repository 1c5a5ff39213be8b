//! What was found in a log, so that nothing is left out or changed silently.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Result, bail, ensure};
use serde::Serialize;
use tlsdyno_base::foreign::clipped;

use super::access_log::{Entry, LineFault};
use super::layout::Found;
use super::unsent::Unsent;

/// Examples kept of each kind of malformed line.
const EXAMPLES: usize = 3;
/// So many of a hundred lines may have another word where the client belongs: one that is damaged, say.
const NOT_CLIENTS_PERCENT: u64 = 5;
const EXAMPLE_CHARACTERS: usize = 160;
/// Characters kept of a client: names of hosts have up to 253 (RFC 1035 section 2.3.4, written out).
const CLIENT_CHARACTERS: usize = 253;
/// Distinct methods, and sites, counted by name; forged ones must not fill the memory.
const NAMES: usize = 32;
/// The name under which the others are counted: in lower case and without a dot, which none in the table has by chance.
const OTHERS: &str = "other";
const BUSIEST: usize = 5;

/// What reading a log has found, whatever it is read for.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct LogRead {
    pub lines: u64,
    /// Lines that could not be used, by reason, the most frequent first once all has been read.
    pub malformed: Vec<Malformed>,
    /// Lines left out on request, by what was asked for.
    pub excluded: Vec<Excluded>,
    /// Requests whose line names a user agent (combined format).
    pub with_user_agent: u64,
    pub methods: BTreeMap<String, u64>,
    pub statuses: BTreeMap<u16, u64>,
    /// Bytes of all response bodies as logged; responses replayed differ where an object's size varied.
    pub logged_bytes: u64,
    #[serde(flatten)]
    pub found: FoundClients,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub sites: BTreeMap<String, u64>,
    /// Requests for other sites than the one asked for, left out.
    pub of_other_sites: u64,
    /// Requests by clients on loopback, and by load tools.
    #[serde(skip)]
    artificial: (u64, u64),
    /// Lines stamped earlier than the line before; the order of the log is kept.
    pub backward_time_stamps: u64,
    #[serde(skip)]
    last_s: Option<i64>,
    /// Earliest and latest time stamp, seconds since 1970.
    pub time_range_s: Option<(i64, i64)>,
    /// The clients with the most requests: a proxy that stands for many users would be among them.
    pub busiest_clients: Vec<Busy>,
    pub damage: Option<String>,
}

/// What was found in a log that is replayed.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct LogSummary {
    #[serde(flatten)]
    pub read: LogRead,
    /// Requests left out because of their method, by it.
    pub unsent: Unsent,
    /// Requests by how they are replayed: `get`, `head`, `post`, `conditional`, `range`, `missing`, `stand_in`,
    /// `other_status`.
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
    /// The prefix of the first of them.
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
    pub reason: &'static str,
    pub lines: u64,
    pub text: &'static str,
    pub examples: Vec<Example>,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Example {
    /// Line number, from 1.
    pub line: u64,
    /// Its beginning; bytes that are not printable ASCII are escaped.
    pub text: String,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Excluded {
    pub by: String,
    pub lines: u64,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Busy {
    pub client: String,
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
        let of_all = |number: u64| match self.hits() {
            hits if number == hits => "each request's line".to_owned(),
            hits => format!("{number} of {hits} requests' lines"),
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
        let mut sites: Vec<(&String, &u64)> = self.sites.iter().collect();
        sites.sort_by_key(|(_, hits)| std::cmp::Reverse(**hits));
        let each: Vec<String> = sites.iter().take(BUSIEST).map(|(site, hits)| format!("{site} ({hits})")).collect();
        let each = each.join(", ");
        match (sites.len(), self.of_other_sites) {
            (0 | 1, 0) => {}
            (all, 0) => notes.push(format!(
                "the requests for all its {all} sites are taken, as if they were one: {each}; --exclude NAME leaves \
                 one out"
            )),
            (_, others) => {
                notes.push(format!("taken: {each}; {others} requests for other sites are left out (--host)"))
            }
        }
        notes
    }

    /// Why it cannot tell how visitors use connections, if it cannot.
    pub fn cannot_tell(&self) -> Option<String> {
        let (hits, (of_loopback, of_tools)) = (self.hits(), self.artificial);
        let why = match () {
            () if of_tools * 2 > hits => format!("{of_tools} of its {hits} requests are a load tool's"),
            () if of_loopback == hits => "its clients are on this machine only".to_owned(),
            () if self.busiest_clients.len() == 1 => "all of it is by one client".to_owned(),
            () if hits < HITS_LEAST => format!("it has {hits} requests, and {HITS_LEAST} are the least"),
            () => return None,
        };
        Some(format!("{why}: that says nothing of how visitors use connections"))
    }

    /// Says on standard error how the log at `path` was read, where its numbers are not shown.
    pub fn tell(&self, path: &Path) {
        let note = self.notes().into_iter().chain(self.warnings());
        note.for_each(|note| tell!("log {}: {note}", path.display()));
    }

    /// What a reader of results must know about how the log was read, each with its remedy.
    pub fn warnings(&self) -> Vec<String> {
        let mut warnings: Vec<String> =
            self.damage.iter().map(|damage| format!("the log ends early: {damage}")).collect();
        let malformed: u64 = self.malformed.iter().map(|malformed| malformed.lines).sum();
        if malformed > 0 {
            let Self { lines, .. } = self;
            warnings.push(format!("{malformed} of the {lines} lines of the log could not be used: {}", self.reasons()));
        }
        for excluded in self.excluded.iter().filter(|excluded| excluded.lines == 0) {
            let reason = if self.with_user_agent == 0 { " (the log does not name user agents)" } else { "" };
            warnings.push(format!("excluding {} left out no line{reason}", excluded.by));
        }
        let hits = self.hits() as f64;
        for busy in self.busiest_clients.iter().filter(|busy| busy.hits as f64 > BUSY_SHARE * hits) {
            let percent = 100.0 * busy.hits as f64 / hits;
            warnings.push(format!(
                "{percent:.0} % of the requests are by {0}; if that is a proxy or a crawler, leave it out (--exclude \
                 {0})",
                busy.client
            ));
        }
        warnings.extend(self.cannot_tell());
        warnings
    }

    /// What malformed lines lack, each with the first of them.
    fn reasons(&self) -> String {
        let reason = |Malformed { lines, text, examples, .. }: &Malformed| {
            let Example { line, text: first } = &examples[0];
            match lines {
                1 => format!("1 {} (line {line}: {first})", of_one(text)),
                _ => format!("{lines} {text} (first: line {line}: {first})"),
            }
        };
        self.malformed.iter().map(reason).collect::<Vec<_>>().join("; ")
    }
}

impl LogRead {
    /// Counts nothing yet. `exclude`: the patterns of lines that are left out.
    pub(super) fn new(exclude: &[String]) -> LogRead {
        let excluded = exclude.iter().map(|by| Excluded { by: by.clone(), lines: 0 });
        LogRead { excluded: excluded.collect(), ..LogRead::default() }
    }

    pub(super) fn add_fault(&mut self, fault: LineFault, line: &[u8]) {
        let (reason, text) = fault.description();
        let known = self.malformed.iter().position(|malformed| malformed.reason == reason);
        let at = known.unwrap_or_else(|| {
            self.malformed.push(Malformed { reason, lines: 0, text, examples: Vec::new() });
            self.malformed.len() - 1
        });
        let malformed = &mut self.malformed[at];
        malformed.lines += 1;
        if malformed.examples.len() < EXAMPLES {
            let text = clipped(line.escape_ascii().map(char::from), EXAMPLE_CHARACTERS);
            malformed.examples.push(Example { line: self.lines, text });
        }
    }

    pub(super) fn add_entry(&mut self, entry: &Entry<'_>) {
        count(&mut self.methods, entry.method);
        if let Some(site) = entry.site() {
            count(&mut self.sites, &String::from_utf8_lossy(&site));
        }
        self.found.add(&entry.found);
        self.artificial.0 += u64::from(entry.client.starts_with(b"127.") || *entry.client == *b"::1");
        self.artificial.1 += u64::from(entry.user_agent.is_some_and(is_of_tool));
        *self.statuses.entry(entry.status).or_default() += 1;
        self.with_user_agent += u64::from(entry.user_agent.is_some());
        self.logged_bytes = self.logged_bytes.saturating_add(entry.bytes.unwrap_or(0));
        self.backward_time_stamps += u64::from(self.last_s.is_some_and(|last_s| entry.time_s < last_s));
        self.last_s = Some(entry.time_s);
        let (first, last) = self.time_range_s.unwrap_or((entry.time_s, entry.time_s));
        self.time_range_s = Some((first.min(entry.time_s), last.max(entry.time_s)));
    }

    /// The requests: lines that are neither malformed nor excluded.
    pub(super) fn hits(&self) -> u64 {
        self.statuses.values().sum()
    }

    /// Puts the malformed lines in order once all has been read, and refuses a log of which nothing can be used: says
    /// what its lines lack.
    pub(super) fn ensure_usable(&mut self, path: &Path) -> Result<()> {
        self.malformed.sort_by_key(|malformed| std::cmp::Reverse(malformed.lines));
        let (path, lines) = (path.display(), self.lines);
        let excluded = self.excluded.iter().map(|excluded| excluded.lines).sum::<u64>() + self.of_other_sites;
        let not_a_client = LineFault::NotAClient.description().0;
        if let Some(others) = self.malformed.iter().find(|malformed| malformed.reason == not_a_client) {
            // What came out would be about these words.
            let lines = others.lines + self.hits() + excluded;
            ensure!(
                others.lines * 100 <= lines * NOT_CLIENTS_PERCENT,
                "{} of {lines} lines of the log {path} have neither an address nor the name of a host where the client \
                 belongs, the first is line {}: {}. Say which field is the client with --client-field (a number from \
                 1, or last): what stands there is taken as it is",
                others.lines,
                others.examples[0].line,
                others.examples[0].text
            );
        }
        if self.hits() > 0 {
            return Ok(());
        }
        if let Some(damage) = &self.damage {
            bail!("the log {path} has no usable line: {damage}");
        }
        ensure!(lines > 0, "the log {path} is empty; name one with requests in it");
        let host = (self.of_other_sites > 0).then_some("--host");
        let by: Vec<&str> = self.excluded.iter().map(|excluded| excluded.by.as_str()).chain(host).collect();
        let by = by.join(", ");
        ensure!(
            excluded == 0,
            "nothing of the log {path} is left: {excluded} of its {lines} lines are excluded by {by}; exclude less"
        );
        bail!(
            "the log {path} has no usable line; of its {lines} lines {}. It must be in common or combined format, \
             or JSON, like: 192.0.2.1 - - [17/May/2015:10:05:03 +0000] \"GET /index.html HTTP/1.1\" 200 5120",
            self.reasons()
        )
    }
}

/// What one line lacks: "have no time" is "has no time".
fn of_one(reason: &str) -> String {
    let (verb, rest) = reason.split_once(' ').unwrap_or((reason, ""));
    format!("{} {rest}", if verb == "are" { "is" } else { "has" })
}

/// Counts by name, as long as there are not too many.
fn count(counts: &mut BTreeMap<String, u64>, name: &str) {
    match counts.get_mut(name) {
        Some(count) => *count += 1,
        None => {
            let name = if counts.len() < NAMES { name } else { OTHERS };
            *counts.entry(name.to_owned()).or_default() += 1;
        }
    }
}

/// Fewest requests that say something of visitors.
const HITS_LEAST: u64 = 100;
/// What user agents of load tools begin with, in lower case, this one's first.
const TOOLS: &str = include_str!("load_tools.txt");

fn is_of_tool(agent: &[u8]) -> bool {
    TOOLS.lines().any(|tool| agent.get(..tool.len()).is_some_and(|start| start.eq_ignore_ascii_case(tool.as_bytes())))
}

pub(super) fn busiest<'name>(clients: impl Iterator<Item = (u64, &'name [u8])>) -> Vec<Busy> {
    let mut clients: Vec<_> = clients.collect();
    // By name where equally busy, so that the order is always the same.
    clients.sort_unstable_by(|one, other| other.0.cmp(&one.0).then(one.1.cmp(other.1)));
    clients.truncate(BUSIEST);
    let shown = |client: &[u8]| clipped(client.escape_ascii().map(char::from), CLIENT_CHARACTERS);
    clients.into_iter().map(|(hits, client)| Busy { client: shown(client), hits }).collect()
}
