//! A summary as text for people: one line for each fact, with units.

use std::fmt;

use super::log_summary::LogSummary;
use super::summary::{Sizes, Summary};
use crate::foreign::quoted;

impl fmt::Display for Summary {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut lines = Lines(formatter);
        lines.add("workload", &self.workload)?;
        lines.add("hits", &count(self.hits))?;
        lines.add("users", &count(self.users))?;
        let sessions = format!(
            "{}: {:.1} % of the hits need a full handshake",
            count(self.sessions),
            self.full_handshakes_per_hit_percent
        );
        lines.add("TLS sessions", &sessions)?;
        if self.sessions != self.users {
            let percent = 100.0 * self.users as f64 / self.hits.max(1) as f64;
            lines.add("", &format!("({percent:.1} % if only the first request of each user did)"))?;
        }
        lines.add(
            "pages",
            &format!("{}, {:.1} hits each", count(self.pages), self.hits as f64 / self.pages.max(1) as f64),
        )?;
        lines.add("connections", &format!("closed {} times by the users", count(self.closes)))?;
        lines.add("objects", &format!("{}, from {} files", count(self.objects), count(self.files)))?;
        lines.add("responses", &format!("{}: {}", bytes(self.response_bytes), sizes(&self.response_size_bytes)))?;
        lines.add("files", &format!("{}: {}", bytes(self.corpus_bytes), sizes(&self.file_size_bytes)))?;
        if let Some(har) = &self.har {
            lines.add("recording", &format!("{} pages of {}", count(har.pages), quoted(&har.origin)))?;
            lines.add("left out", &format!("{} requests to other sites", count(har.other_origins)))?;
            lines.add("", &format!("{} entries that no server answered", count(har.not_requested)))?;
        }
        self.log.as_ref().map_or(Ok(()), |log| write_log(&mut lines, log))
    }
}

fn write_log(lines: &mut Lines<'_, '_>, log: &LogSummary) -> fmt::Result {
    let range =
        log.time_range_s.map_or_else(String::new, |(first, last)| format!(", {} to {} UTC", date(first), date(last)));
    lines.add("log", &format!("{} lines{range}", count(log.lines)))?;
    lines.add("methods", &listed(log.methods.iter()))?;
    lines.add("statuses", &listed(log.statuses.iter()))?;
    lines.add("replayed as", &listed(log.replayed_as.iter()))?;
    let malformed: u64 = log.malformed.iter().map(|malformed| malformed.lines).sum();
    lines.add("malformed", &format!("{} lines", count(malformed)))?;
    for excluded in &log.excluded {
        lines.add("excluded", &format!("{} lines by {}", count(excluded.lines), excluded.by))?;
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
        lines.add("note", &format!("{} {text}", count(*number)))?;
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
    items.map(|(name, number)| format!("{name} {}", count(*number))).collect::<Vec<_>>().join(", ")
}

pub(super) fn sizes(sizes: &Sizes) -> String {
    format!(
        "mean {}, half up to {}, 90 % up to {}, 99 % up to {}, largest {}",
        bytes(sizes.mean.round() as u64),
        bytes(sizes.p50),
        bytes(sizes.p90),
        bytes(sizes.p99),
        bytes(sizes.max)
    )
}

/// A number with commas between thousands.
pub(super) fn count(number: u64) -> String {
    let digits = number.to_string();
    let groups: Vec<&str> =
        digits.as_bytes().rchunks(3).rev().map(|group| std::str::from_utf8(group).unwrap_or("")).collect();
    groups.join(",")
}

/// A size in the unit that leaves it at least 1, with three significant digits; 1 KB is 1024 bytes, as in the papers.
pub(super) fn bytes(bytes: u64) -> String {
    const UNITS: [&str; 5] = ["B", "KB", "MB", "GB", "TB"];
    let mut value = bytes as f64;
    let mut unit = 0;
    // 999.5 would be printed as 1000.
    while value >= 999.5 && unit + 1 < UNITS.len() {
        value /= 1024.0;
        unit += 1;
    }
    let decimals = match value {
        _ if unit == 0 => 0,
        value if value < 9.995 => 2,
        value if value < 99.95 => 1,
        _ => 0,
    };
    format!("{value:.decimals$} {}", UNITS[unit])
}

pub(super) fn date(seconds: i64) -> String {
    let format = time::macros::format_description!("[day] [month repr:short] [year] [hour]:[minute]");
    time::OffsetDateTime::from_unix_timestamp(seconds)
        .ok()
        .and_then(|date| date.format(&format).ok())
        .unwrap_or_else(|| format!("second {seconds}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::workload::WorkloadSpec;

    #[test]
    fn numbers_and_sizes_read_easily() {
        assert_eq!([0, 999, 1_000, 1_234_567].map(count), ["0", "999", "1,000", "1,234,567"]);
        let sizes = [0, 999, 1_000, 1_024, 7_142, 285_696, 1_048_575, 555_745_280, u64::MAX];
        assert_eq!(
            sizes.map(bytes),
            ["0 B", "999 B", "0.98 KB", "1.00 KB", "6.97 KB", "279 KB", "1.00 MB", "530 MB", "16777216 TB"]
        );
        assert_eq!(date(1_431_857_103), "17 May 2015 10:05");
    }

    #[test]
    fn ecommerce_reads_like_the_paper() {
        let site = super::super::make(&WorkloadSpec::Ecommerce { users: 100, seed: 1 }).unwrap();
        let text = site.summary.to_string();
        for line in [
            "hits          1,200",
            "8.3 % of the hits need a full handshake",
            "pages         300, 4.0 hits each",
            "279 KB: mean 6.97 KB",
        ] {
            assert!(text.contains(line), "{line:?} is not in\n{text}");
        }
    }
}
