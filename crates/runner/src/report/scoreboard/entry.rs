//! What a scoreboard keeps of a record: small enough to lie beside the page that quotes it.

use std::path::Path;

use anyhow::{Context, Result, ensure};
use serde::{Deserialize, Serialize};
use tlsdyno_base::input::{TEXT_BYTES_MAX, read as read_file};
use tlsdyno_base::units::format_date;
use tlsdyno_record::store::Record;
use tlsdyno_stats::scoreboard::Claim;

/// A record's question, origin and claims.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Entry {
    pub record: String,
    /// Experiment of the repository, for example `coarfa-2006-fig7`; empty: another one.
    pub experiment: String,
    /// Question of the experiment.
    pub title: String,
    pub paper: String,
    pub server: String,
    /// Date, versions, workload, rounds, and remarks about the machine, in one or two sentences.
    pub from: String,
    /// Claims of the paper with their fates.
    pub claims: Vec<Claim>,
}

impl Entry {
    /// `experiment`: of the repository; `beside`: the paper with the claims. `None` without a claim.
    pub fn of(record: &Record, experiment: Option<&str>, beside: Option<(&str, Vec<Claim>)>) -> Option<Entry> {
        let (paper, claims) = beside.filter(|(_, claims)| !claims.is_empty())?;
        let manifest = &record.manifest;
        let from = format!(
            "Record {} of {}, {}, {} ({}); {} rounds.",
            short(&record.id),
            format_date(record.created_unix_s as i64),
            manifest.server_version,
            manifest.certificate,
            manifest.workload,
            record.blocks.iter().map(|block| block.round + 1).max().unwrap_or(0)
        );
        Some(Entry {
            record: record.id.clone(),
            experiment: experiment.unwrap_or_default().to_owned(),
            title: record.question.clone(),
            paper: paper.to_owned() + ".",
            server: manifest.server_name.clone(),
            from,
            claims,
        })
    }

    /// Server and record, as the head of a column.
    pub(super) fn head(&self) -> String {
        format!("{} ({})", self.server, short(&self.record))
    }
}

fn short(id: &str) -> &str {
    id.get(..8).unwrap_or(id)
}

/// Reads the output of `tlsdyno scoreboard --json`. Fails where a verdict contradicts its interval.
pub fn read(path: &Path) -> Result<Vec<Entry>> {
    let text = read_file(path, TEXT_BYTES_MAX).with_context(|| format!("read {}", path.display()))?;
    let entries: Vec<Entry> = serde_json::from_slice(&text)
        .with_context(|| format!("{} is not what tlsdyno scoreboard --json writes", path.display()))?;
    for (entry, claim) in entries.iter().flat_map(|entry| entry.claims.iter().map(move |claim| (entry, claim))) {
        ensure!(
            !claim.contradicts_itself(),
            "{}: record {}, \"{}\": its interval does not say \"{}\"; make the file anew from the records",
            path.display(),
            entry.record,
            claim.about,
            claim.fate.word()
        );
    }
    Ok(entries)
}
