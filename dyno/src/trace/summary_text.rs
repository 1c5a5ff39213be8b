//! A summary as text for people: one line for each fact, with units.

use std::fmt;

use super::log_summary::LogSummary;
use super::summary::{Sizes, Summary};
use crate::foreign::quoted;
use crate::units::{format_binary_bytes, format_count, format_date};

impl fmt::Display for Summary {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut lines = Lines(formatter);
        lines.add("workload", &self.workload)?;
        lines.add("hits", &format_count(self.hits))?;
        lines.add("users", &format_count(self.users))?;
        let sessions = format!(
            "{}: {:.1} % of the hits need a full handshake",
            format_count(self.sessions),
            self.full_handshakes_per_hit_percent
        );
        lines.add("TLS sessions", &sessions)?;
        if self.sessions != self.users {
            let percent = 100.0 * self.users as f64 / self.hits.max(1) as f64;
            lines.add("", &format!("({percent:.1} % if only the first request of each user did)"))?;
        }
        lines.add(
            "pages",
            &format!("{}, {:.1} hits each", format_count(self.pages), self.hits as f64 / self.pages.max(1) as f64),
        )?;
        lines.add("connections", &format!("closed {} times by the users", format_count(self.closes)))?;
        lines.add("objects", &format!("{}, from {} files", format_count(self.objects), format_count(self.files)))?;
        lines.add(
            "responses",
            &format!("{}: {}", format_binary_bytes(self.response_bytes as f64), sizes(&self.response_size_bytes)),
        )?;
        lines.add(
            "files",
            &format!("{}: {}", format_binary_bytes(self.corpus_bytes as f64), sizes(&self.file_size_bytes)),
        )?;
        if let Some(har) = &self.har {
            lines.add("recording", &format!("{} pages of {}", format_count(har.pages), quoted(&har.origin)))?;
            lines.add("left out", &format!("{} requests to other sites", format_count(har.other_origins)))?;
            lines.add("", &format!("{} entries that no server answered", format_count(har.not_requested)))?;
        }
        self.log.as_ref().map_or(Ok(()), |log| write_log(&mut lines, log))
    }
}

fn write_log(lines: &mut Lines<'_, '_>, log: &LogSummary) -> fmt::Result {
    let range = log
        .time_range_s
        .map_or_else(String::new, |(first, last)| format!(", {} to {}", format_date(first), format_date(last)));
    lines.add("log", &format!("{} lines{range}", format_count(log.lines)))?;
    lines.add("methods", &listed(log.methods.iter()))?;
    lines.add("statuses", &listed(log.statuses.iter()))?;
    lines.add("replayed as", &listed(log.replayed_as.iter()))?;
    let malformed: u64 = log.malformed.iter().map(|malformed| malformed.lines).sum();
    lines.add("malformed", &format!("{} lines", format_count(malformed)))?;
    for excluded in &log.excluded {
        lines.add("excluded", &format!("{} lines by {}", format_count(excluded.lines), excluded.by))?;
    }
    let busiest = log.busiest_clients.iter().map(|busy| (&busy.client, &busy.hits));
    lines.add("busiest", &listed(busiest))?;
    let notes = [
        (log.backward_time_stamps, "lines are stamped earlier than the line before; the order of the log was kept"),
        (log.renamed_files, "files are requested under another path, since the log's cannot name a file"),
        (log.files_of_varying_size, "files had several sizes; the most usual was taken"),
        (log.files_of_unknown_size, "files are empty, since the log never shows their size"),
    ];
    for (number, text) in notes.iter().filter(|(number, _)| *number > 0) {
        lines.add("note", &format!("{} {text}", format_count(*number)))?;
    }
    log.warnings().iter().try_for_each(|warning| lines.add("WARNING", warning))
}

pub(super) struct Lines<'borrow, 'output>(pub &'borrow mut fmt::Formatter<'output>);

impl Lines<'_, '_> {
    pub(super) fn add(&mut self, name: &str, value: &str) -> fmt::Result {
        writeln!(self.0, "{name:<13} {value}")
    }
}

/// `name number` of each, separated by commas.
pub(super) fn listed<'items, Name: fmt::Display + 'items>(
    items: impl Iterator<Item = (&'items Name, &'items u64)>,
) -> String {
    items.map(|(name, number)| format!("{name} {}", format_count(*number))).collect::<Vec<_>>().join(", ")
}

pub(super) fn sizes(sizes: &Sizes) -> String {
    format!(
        "mean {}, half up to {}, 90 % up to {}, 99 % up to {}, largest {}",
        format_binary_bytes(sizes.mean),
        format_binary_bytes(sizes.p50 as f64),
        format_binary_bytes(sizes.p90 as f64),
        format_binary_bytes(sizes.p99 as f64),
        format_binary_bytes(sizes.max as f64)
    )
}

#[cfg(test)]
mod tests {
    use crate::model::workload::WorkloadSpec;

    #[test]
    fn ecommerce_reads_like_the_paper() {
        let site = crate::trace::make(&WorkloadSpec::Ecommerce { users: 100, seed: 1 }).unwrap();
        let text = site.summary.to_string();
        for line in [
            "hits          1,200",
            "8.3 % of the hits need a full handshake",
            "pages         300, 4.0 hits each",
            "279 KiB: mean 6.97 KiB",
        ] {
            assert!(text.contains(line), "{line:?} is not in\n{text}");
        }
    }
}
