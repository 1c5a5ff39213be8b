//! A scan as text for people: one line for each fact, and the table of reuse.

use std::fmt;

use super::super::summary_text::{Lines, listed, sizes};
use super::LogScan;
use super::sessions::Reuse;
use crate::units::{format_binary_bytes, format_count, format_date, format_seconds};

impl fmt::Display for LogScan {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut lines = Lines(formatter);
        lines.add("workload", &self.workload)?;
        lines.add("hits", &format_count(self.hits))?;
        let estimated = if self.users_exact { "" } else { " (estimated to 0.8 %)" };
        lines.add("users", &format!("{}{estimated}", format_count(self.users)))?;
        let percent = self.full_handshakes_per_hit_percent;
        let lifetime = match self.session_lifetime_s {
            Some(seconds) => format!("a session ends after {} without a request", format_seconds(seconds)),
            None => "only the first request of each user needs one".to_owned(),
        };
        lines.add(
            "TLS sessions",
            &format!("{}: {percent:.1} % of the hits need a full handshake", format_count(self.sessions)),
        )?;
        lines.add("", &format!("({lifetime})"))?;
        let sizes = sizes(&self.response_size_bytes);
        lines.add("responses", &format!("{} as logged: {sizes}", format_binary_bytes(self.logged_bytes as f64)))?;
        let range = self
            .time_range_s
            .map_or_else(String::new, |(first, last)| format!(", {} to {}", format_date(first), format_date(last)));
        lines.add("log", &format!("{} lines{range}", format_count(self.lines)))?;
        lines.add("methods", &listed(self.methods.iter()))?;
        lines.add("statuses", &listed(self.statuses.iter()))?;
        let malformed: u64 = self.malformed.iter().map(|malformed| malformed.lines).sum();
        lines.add("malformed", &format!("{} lines", format_count(malformed)))?;
        for excluded in &self.excluded {
            lines.add("excluded", &format!("{} lines by {}", format_count(excluded.lines), excluded.by))?;
        }
        lines.add("busiest", &listed(self.busiest_clients.iter().map(|busy| (&busy.client, &busy.hits))))?;
        if self.backward_time_stamps > 0 {
            let number = format_count(self.backward_time_stamps);
            lines.add("note", &format!("{number} lines are stamped earlier than the line before"))?;
        }
        self.warnings().iter().try_for_each(|warning| lines.add("WARNING", warning))?;
        write!(formatter, "\n{}", self.reuse)
    }
}

impl fmt::Display for Reuse {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(formatter, "percent reuse (1 - full handshakes / hits), if a session")?;
        write!(formatter, "  {:<13}{:>9}", "lasts", "carries")?;
        for limit in &self.limits {
            write!(formatter, "{:>9}", limit.map_or_else(|| "any hits".to_owned(), |limit| format!("{limit} hits")))?;
        }
        writeln!(formatter, "{:>22}", "is renewed by each hit")?;
        for row in &self.rows {
            write!(formatter, "  {:<13}{:9}", format_seconds(row.lifetime_s), "")?;
            for percent in &row.percent_by_limit {
                write!(formatter, "{percent:>7.1} %")?;
            }
            writeln!(formatter, "{:>20.1} %", row.percent_renewed)?;
        }
        Ok(())
    }
}
