//! The sheet of locks: how many each connection takes, whose they are, and where.

use tlsdyno_base::bootstrap::Estimate;
use tlsdyno_base::units::{format_count, format_quantity, format_short};
use tlsdyno_record::store::{LockOperation, Record};
use tlsdyno_report::rows::Rows;
use tlsdyno_runner::report::circumstances;
use tlsdyno_runner::report::document::{Content, Document, Medium, Method, Section};

use super::summary::{LockCounts, LocksSummary, Owner, OwnerLocks, ServerLocks, StepLocks};

/// Number of places that are told of each kind of connection, of calls and of instructions each.
const SITES: usize = 8;
const COLUMNS: [&str; 4] = ["locked instructions", "read locks", "write locks", "mutexes"];

pub fn document(record: &Record, summary: &LocksSummary) -> Document {
    let servers = &summary.servers;
    let mut sections = vec![overview(servers)];
    for server in servers {
        let of = if servers.len() == 1 { String::new() } else { format!(", {}", server.identity.label) };
        sections.push(owners(server, &of));
        for (number, step) in server.steps.iter().enumerate() {
            let medium = if number == 0 { Medium::Everywhere } else { Medium::Page };
            sections.push(sites(step, &of).on(medium));
        }
        if !server.identity.refused.is_empty() {
            let title = format!("What this server does not take{of}");
            sections.push(Section::titled("refused", title).with(Content::Facts(server.identity.refused.clone())));
        }
    }
    sections.push(circumstances::warnings_of(&summary.warnings));
    circumstances::document(record, summary.rounds, answer(summary), sections, Method::Locks)
}

/// What the first kind of connection takes in each server.
pub fn answer(summary: &LocksSummary) -> String {
    let of_server = |server: &ServerLocks| {
        let step = server.steps.first()?;
        let [instructions, read, write, mutexes] = step.counts.all();
        Some(format!(
            "{}, {} ({}): a connection with a {} executes {} locked instructions, and takes {} read locks, {} write \
             locks and {} mutexes.",
            server.identity.label,
            server.identity.called(),
            server.identity.negotiated,
            step.step.replacen(", one request", " and one request", 1),
            told(instructions),
            told(read),
            told(write),
            told(mutexes)
        ))
    };
    let said: Vec<String> = summary.servers.iter().filter_map(of_server).collect();
    if said.is_empty() { "Nothing was counted.".to_owned() } else { said.join(" ") }
}

/// Exact numbers as they are, others with the least and the greatest.
fn told(of: Estimate) -> String {
    let number = |value: f64| match (10.0 * value).round() as u64 {
        _ if value < 1000.0 => format_short(value),
        tenths if value.fract() != 0.0 => format!("{}.{}", format_count(tenths / 10), tenths % 10),
        _ => format_quantity(value),
    };
    match (of.has_interval(), of.low == of.high) {
        (true, true) => number(of.value),
        (true, false) => format!("{} {}", number(of.value), of.ends(number)),
        (false, _) => format!("{} (once)", number(of.value)),
    }
}

fn with_counts<'a, T>(rows: Rows<'a, T>, counts: impl Fn(&T) -> &LockCounts + Copy) -> Rows<'a, T> {
    (0..COLUMNS.len()).fold(rows, |rows, at| rows.number(COLUMNS[at], move |of| told(counts(of).all()[at])))
}

/// A row for each server and kind of connection.
fn overview(servers: &[ServerLocks]) -> Section {
    let all: Vec<(&ServerLocks, &StepLocks)> =
        servers.iter().flat_map(|server| server.steps.iter().map(move |step| (server, step))).collect();
    let rows = Rows::new(&all).words("connection", |(_, step)| step.step.clone());
    let rows = with_counts(rows, |(_, step)| &step.counts);
    let thousands = |of: &(&ServerLocks, &StepLocks)| format_quantity(of.1.instructions_count.value / 1e3);
    let rows = rows.number("thousand instructions", thousands);
    let is_one = servers.len() == 1;
    let name = |server: &ServerLocks| {
        format!("{} · {} · {}", server.identity.label, server.identity.called(), server.identity.negotiated)
    };
    let rows = rows.headed(|(server, _)| (!is_one).then(|| name(server)));
    let note = "Without brackets: equal in both differences, exact. With: the lesser and the greater. One that was \
                counted once says so.";
    Section::titled("locks", "What connections do with locks").rows(rows).notes([note.to_owned()])
}

fn owners(server: &ServerLocks, of: &str) -> Section {
    let all: Vec<(&str, &OwnerLocks)> =
        server.steps.iter().flat_map(|step| step.owners.iter().map(|of| (step.step.as_str(), of))).collect();
    let has_library = all.iter().any(|(_, of)| of.owner == Owner::TlsLibrary);
    let name = |owner: Owner| match owner {
        Owner::TlsLibrary => "the TLS library",
        Owner::Program if has_library => "the server",
        Owner::Program => "the server's program, the TLS library in it",
        Owner::Allocator => "allocating memory",
        Owner::CLibrary => "the C library else",
        Owner::Other => "other libraries and modules",
    };
    let rows = Rows::new(&all).words("code of", |(_, of)| name(of.owner).to_owned());
    let rows = with_counts(rows, |(_, of)| &of.counts).headed(|(step, _)| Some((*step).to_owned()));
    Section::titled("owners", format!("Whose they are{of}")).rows(rows)
}

/// The most frequent places, of calls and of instructions.
fn sites(step: &StepLocks, of: &str) -> Section {
    let sites = |is_call: bool| {
        let own = step.sites.iter().filter(move |site| is_call == (site.operation != LockOperation::Instruction));
        own.take(SITES)
    };
    let operation = |operation| match operation {
        LockOperation::Instruction => "locked instruction",
        LockOperation::Read => "read lock",
        LockOperation::Write => "write lock",
        LockOperation::Mutex => "mutex",
    };
    let rows = Rows::new(sites(true).chain(sites(false)))
        .words("what", |site| operation(site.operation).to_owned())
        .words("function", |site| site.function.clone())
        .words("file", |site| site.object.clone())
        .number("each", |site| told(site.count));
    let note = format!("The first {SITES} of calls and of instructions; `--json` has all.");
    Section::titled("sites", format!("Where, {}{of}", step.step)).rows(rows).notes([note])
}
