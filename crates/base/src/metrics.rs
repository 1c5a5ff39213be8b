//! The text format of Prometheus, version 0.0.4.

use std::fmt::{Display, Write};

/// Media type of a page of metrics (Prometheus, "Exposition formats").
pub const KIND: &str = "text/plain; version=0.0.4; charset=utf-8";

/// Metrics one after the other, each with its samples behind its head.
#[derive(Default)]
pub struct Metrics(String);

impl Metrics {
    /// Begins a metric. `kind`: counter, gauge or histogram. `help`: a sentence in a line.
    pub fn head(&mut self, name: &str, kind: &str, help: &str) {
        // Writing into a string cannot fail.
        let _ = writeln!(self.0, "# HELP {name} {help}\n# TYPE {name} {kind}");
    }

    /// Adds a sample of it. Values of labels may be of any text.
    pub fn sample<L: AsRef<str>>(&mut self, name: &str, labels: &[(&str, L)], value: impl Display) {
        let labels: Vec<String> =
            labels.iter().map(|(name, text)| format!("{name}=\"{}\"", of_label(text.as_ref()))).collect();
        let labels = if labels.is_empty() { String::new() } else { format!("{{{}}}", labels.join(",")) };
        let _ = writeln!(self.0, "{name}{labels} {value}");
    }

    /// The page of what was added.
    pub fn text(self) -> String {
        self.0
    }
}

fn of_label(text: &str) -> String {
    text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_label_keeps_to_its_line_and_its_quotation_marks() {
        let mut metrics = Metrics::default();
        metrics.head("a_total", "counter", "What it is.");
        metrics.sample("a_total", &[("site", "https://a/\"b\\c\nd"), ("kind", "full")], 1.5);
        metrics.sample::<&str>("a_total", &[], 2);
        let expected = "# HELP a_total What it is.\n# TYPE a_total counter\n\
                        a_total{site=\"https://a/\\\"b\\\\c\\nd\",kind=\"full\"} 1.5\na_total 2\n";
        assert_eq!(metrics.text(), expected);
    }
}
