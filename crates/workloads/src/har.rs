//! `--har`: a browser's recording as traffic. Each user visits the recorded pages in order; a batch of requests that
//! the browser had outstanding together is a page of the engine, fetched over the user's connections.

use std::collections::BTreeSet;
use std::path::Path;

use anyhow::{Context, Result, ensure};
use tlsdyno_base::foreign::quoted;
use tlsdyno_base::input;
use tlsdyno_engine::load::{Request, Workload};
use tlsdyno_record::model::workload::{HarSpec, NamesSpec, ReplaySpec};

use self::document::{Document, Exchange};
use super::logged::{Replay, Targets, place};
use super::summary::HarSummary;
use super::unsent::{self, Unsent, is_sent};
use super::{Parts, add_user, objects};

pub(super) mod document;

/// Largest file that is read: the texts of responses in it are passed over, but must be read.
const MAX_FILE_BYTES: u64 = 1 << 30;

const SITES_NAMED: usize = 10;

/// Makes the workload of the recording at `path`, and says what was found in it.
pub(super) fn make(path: &Path, spec: &HarSpec) -> Result<(Parts, HarSummary)> {
    let document = read(path)?;
    let origin = site_of(&document, spec.origin.as_deref())
        .with_context(|| format!("the HAR file {} has no request that a server answered", path.display()))?;
    let mut unsent = Unsent::new();
    let mut is_sent = |exchange: &Exchange| is_sent(&exchange.method, spec.names, &spec.send_methods, &mut unsent);
    let (pages, other_origins) = of_origin(&document, &origin, &mut is_sent);
    let total: usize = pages.iter().flatten().map(Vec::len).sum();
    ensure!(
        total > 0,
        "the HAR file {} has no request to {origin}; its sites are {}{}",
        path.display(),
        quoted_sites(&document),
        unsent::note(&unsent).map_or_else(String::new, |note| format!("; {note}"))
    );
    let requests = total as u64 * u64::from(spec.users);
    ensure!(spec.users > 0, "the workload needs at least one user");
    ensure!(
        requests <= u64::from(u32::MAX),
        "{} users with {total} requests each are more requests than fit a workload (2^32 - 1)",
        spec.users
    );
    let unknown = pages.iter().flatten().flatten().filter(|exchange| exchange.bytes.is_none()).count();
    let summary = HarSummary {
        origin,
        pages: pages.len() as u64,
        requests: total as u64,
        other_origins,
        unsent,
        not_requested: document.not_requested,
        unknown_size_count: unknown as u64,
    };
    Ok((parts(&pages, spec), summary))
}

fn read(path: &Path) -> Result<Document> {
    let text = input::read(path, MAX_FILE_BYTES).context("the HAR file cannot be used")?;
    document::parse(&text).with_context(|| format!("failed to read the HAR file {}", path.display()))
}

/// The site asked for, or that of the page that was opened: of the first request that was not sent elsewhere, as from
/// http to https, or from `example.org` to `www.example.org`.
fn site_of(document: &Document, wanted: Option<&str>) -> Option<String> {
    let mut exchanges = document.pages.iter().flatten().flatten();
    let first = exchanges.clone().next()?;
    let opened = exchanges.find(|exchange| !(300..=399).contains(&exchange.status) || exchange.status == 304);
    Some(wanted.map_or_else(|| opened.unwrap_or(first).origin.clone(), document::origin))
}

fn quoted_sites(document: &Document) -> String {
    let sites: BTreeSet<&str> =
        document.pages.iter().flatten().flatten().map(|exchange| exchange.origin.as_str()).collect();
    let mut named: Vec<String> = sites.iter().take(SITES_NAMED).map(|site| quoted(site)).collect();
    if sites.len() > SITES_NAMED {
        named.push(format!("and {} more", sites.len() - SITES_NAMED));
    }
    named.join(", ")
}

/// What of the recording went to `origin` and is sent again, without empty pages and batches, and how many requests
/// went elsewhere.
fn of_origin<'document>(
    document: &'document Document,
    origin: &str,
    is_sent: &mut dyn FnMut(&Exchange) -> bool,
) -> (Vec<Vec<Vec<&'document Exchange>>>, u64) {
    let mut others = 0;
    let mut batch = |batch: &'document Vec<Exchange>| -> Vec<&'document Exchange> {
        let ours: Vec<&Exchange> = batch.iter().filter(|exchange| exchange.origin == origin).collect();
        others += (batch.len() - ours.len()) as u64;
        ours.into_iter().filter(|exchange| is_sent(exchange)).collect()
    };
    let pages = document.pages.iter();
    let pages = pages.map(|page| page.iter().map(&mut batch).filter(|batch| !batch.is_empty()).collect::<Vec<_>>());
    let pages = pages.filter(|batches| !batches.is_empty()).collect();
    (pages, others)
}

fn parts(pages: &[Vec<Vec<&Exchange>>], spec: &HarSpec) -> Parts {
    let mut targets = Targets::new();
    let mut replays = Vec::new();
    let exchanges: Vec<&Exchange> = pages.iter().flatten().flatten().copied().collect();
    for exchange in &exchanges {
        let target = place(&mut targets, exchange.target.as_bytes());
        let (method, status, bytes) = (&exchange.method, exchange.status, exchange.bytes.unwrap_or(0));
        let replay = match spec.names {
            NamesSpec::Files => Replay::new(target, method, status, bytes),
            NamesSpec::AsRecorded => Replay::as_recorded(target, method, status, bytes),
        };
        if let Some(bytes) = exchange.bytes {
            targets[target as usize].note(&replay, bytes);
        }
        replays.push(replay);
    }
    let mut objects = objects::make(&targets, &replays, spec.names);
    for (object, exchange) in objects.objects.iter_mut().zip(&exchanges) {
        if object.method == "POST" {
            object.body_bytes = exchange.posted_bytes;
        }
    }
    let flow = flow(pages);
    let mut workload = Workload { objects: objects.objects, ..Workload::default() };
    for _ in 0..spec.users {
        add_user(&mut workload, flow.iter().copied());
    }
    Parts { workload, files: objects.files }
}

fn flow(pages: &[Vec<Vec<&Exchange>>]) -> Vec<Request> {
    let keep_alive_ms = i64::from(ReplaySpec::default().keep_alive_s) * 1000;
    let mut flow: Vec<Request> = Vec::new();
    let mut ended_ms = i64::MAX;
    for batch in pages.iter().flatten() {
        let began_ms = batch.iter().map(|exchange| exchange.began_ms).min().unwrap_or(ended_ms);
        if let Some(before) = flow.last_mut() {
            before.close_after = began_ms.saturating_sub(ended_ms) > keep_alive_ms;
        }
        for index in 1..=batch.len() {
            let (object, page_end) = (flow.len() as u32, index == batch.len());
            flow.push(Request { object, page_end, ..Request::default() });
        }
        ended_ms = batch.iter().map(|exchange| exchange.ended_ms).max().unwrap_or(ended_ms);
    }
    if let Some(last) = flow.last_mut() {
        last.close_after = true;
    }
    flow
}

#[cfg(test)]
mod tests;
