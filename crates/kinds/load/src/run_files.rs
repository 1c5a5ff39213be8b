//! A load run in files: the form follows from the name's ending.

use std::fmt::Write;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use tlsdyno_base::metrics::Metrics;
use tlsdyno_record::store::Record;
use tlsdyno_record::store::load_run::Summary;
use tlsdyno_runner::kinds::Kind;
use tlsdyno_runner::report::render::{csv, html, json};

use super::Loads;
use crate::run_page;

/// Every file name must end in a format of a run, or of a record; the error lists the formats.
pub fn check_endings(paths: &[PathBuf], of_record: bool) -> Result<()> {
    paths.iter().try_for_each(|path| if of_record { form_of_record(path).map(drop) } else { form(path).map(drop) })
}

/// In the format of the file name's ending.
pub fn write_record(path: &Path, record: &Record) -> Result<()> {
    let text = form_of_record(path)?(record)?;
    std::fs::write(path, text).with_context(|| format!("failed to write {}", path.display()))
}

fn form_of_record(path: &Path) -> Result<fn(&Record) -> Result<String>> {
    Ok(match path.extension().and_then(|ending| ending.to_str()) {
        Some("json") => |record| Ok(Loads.summary(record)?.json(record) + "\n"),
        Some("csv") => |record| Ok(csv::blocks(record)),
        Some("html") => |record| Ok(html::page(&Loads.summary(record)?.document(record))?),
        _ => bail!("{}: several runs go to a file that ends in .html, .json or .csv", path.display()),
    })
}

/// In the format of the file name's ending.
pub fn write_load(path: &Path, summary: &Summary) -> Result<()> {
    let text = form(path)?(summary)?;
    std::fs::write(path, text).with_context(|| format!("failed to write {}", path.display()))
}

type Form = fn(&Summary) -> Result<String>;

fn form(path: &Path) -> Result<Form> {
    Ok(match path.extension().and_then(|ending| ending.to_str()) {
        Some("json") => |summary| json::load(summary).context("failed to encode the result"),
        Some("csv") => |summary| Ok(csv::slices(summary)),
        Some("prom") => |summary| Ok(prometheus(summary)),
        Some("hdr") => percentiles,
        Some("html") => |summary| Ok(html::page(&run_page::document(summary))?),
        _ => bail!("{}: the ending must be .json, .csv, .prom, .hdr or .html", path.display()),
    })
}

/// The text format of Prometheus, version 0.0.4, for a textfile collector or a push gateway: base units are seconds.
fn prometheus(summary: &Summary) -> String {
    let mut metrics = Metrics::default();
    let mut metric = |name: &str, help: &str, values: &[(Vec<(&str, &str)>, f64)]| {
        let name = format!("tlsdyno_load_{name}");
        metrics.head(&name, "gauge", help);
        for (labels, value) in values {
            metrics.sample(&name, &[&[("url", summary.url.as_str())], &labels[..]].concat(), value);
        }
    };
    let outcome = &summary.outcome;
    for (name, help, value) in [
        ("hits", "Completed requests as expected.", outcome.hits as f64),
        ("hits_per_second", "Hits by elapsed time.", summary.hits_per_second),
        ("elapsed_seconds", "From the first connect to the last response.", outcome.elapsed_ns as f64 / 1e9),
        ("body_bytes", "Body bytes received.", outcome.body_bytes as f64),
        ("unserved", "Requests of an open loop that were due but not sent.", outcome.unserved as f64),
        ("redirects_followed", "Redirects followed.", outcome.redirects_followed as f64),
        ("client_busy_ratio", "CPU time of the client by elapsed time.", summary.client_busy_fraction),
    ] {
        metric(name, help, &[(Vec::new(), value)]);
    }
    let counts = outcome.handshakes;
    let kinds = [
        ("full", counts.full),
        ("resumed_intended", counts.resumed_intended),
        ("resumed_offered", counts.resumed_offered),
        ("resumed_accepted", counts.resumed_accepted),
        ("early_offered", counts.early_offered),
        ("early_accepted", counts.early_accepted),
        ("retried", counts.retried_count),
    ];
    let kinds = kinds.map(|(kind, count)| (vec![("kind", kind)], count as f64));
    metric("handshakes", "Completed handshakes.", &kinds);
    let errors: Vec<_> =
        outcome.errors.iter().map(|(kind, count)| (vec![("kind", kind.name())], *count as f64)).collect();
    metric("errors", "Failed requests and connections.", &errors);
    let mut latencies = Vec::new();
    for (phase, latency) in &summary.latency_ns {
        let quantiles = [
            ("0.5", latency.p50),
            ("0.9", latency.p90),
            ("0.99", latency.p99),
            ("0.999", latency.p999),
            ("1", latency.max),
        ];
        latencies
            .extend(quantiles.map(|(q, value)| (vec![("phase", phase.name()), ("quantile", q)], value as f64 / 1e9)));
    }
    metric("latency_seconds", "Latency by phase and quantile.", &latencies);
    metrics.text()
}

/// The percentile distribution of every phase in the text form of HdrHistogram's plotter, milliseconds.
fn percentiles(summary: &Summary) -> Result<String> {
    let mut out = String::new();
    for (phase, histogram) in &summary.outcome.phases {
        writeln!(out, "# {phase}, milliseconds")?;
        writeln!(out, "{:>16} {:>16} {:>12} {:>18}", "Value", "Percentile", "TotalCount", "1/(1-Percentile)")?;
        for step in histogram.iter_quantiles(5) {
            let quantile = step.quantile();
            let inverse = if quantile < 1.0 { format!("{:18.2}", 1.0 / (1.0 - quantile)) } else { String::new() };
            let value = step.value_iterated_to() as f64 / 1e6;
            let line = format!(
                "{value:16.6} {quantile:16.12} {:12} {inverse}",
                histogram.count_between(0, step.value_iterated_to())
            );
            writeln!(out, "{}", line.trim_end())?;
        }
        writeln!(out, "#[Mean    = {:16.6}]", histogram.mean() / 1e6)?;
        writeln!(out, "#[Max     = {:16.6}, Total count    = {:12}]\n", histogram.max() as f64 / 1e6, histogram.len())?;
    }
    Ok(out)
}
