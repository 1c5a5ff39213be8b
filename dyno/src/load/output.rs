//! A load run in files: the form follows from the name's ending.

use std::fmt::Write;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

use crate::load::report;
use crate::load::summary::Summary;
use crate::{histogram, units};

/// Whether every file has an ending that says what to write.
///
/// # Errors
/// One has not; says which there are.
pub fn check(paths: &[PathBuf]) -> Result<()> {
    paths.iter().try_for_each(|path| form(path).map(drop))
}

/// Writes the summary to a file.
///
/// # Errors
/// The file cannot be written.
pub fn write(path: &Path, summary: &Summary) -> Result<()> {
    let text = form(path)?(summary)?;
    std::fs::write(path, text).with_context(|| format!("failed to write {}", path.display()))
}

type Form = fn(&Summary) -> Result<String>;

fn form(path: &Path) -> Result<Form> {
    Ok(match path.extension().and_then(|ending| ending.to_str()) {
        Some("json") => json,
        Some("csv") => |summary| Ok(csv(summary)),
        Some("prom") => |summary| Ok(prometheus(summary)),
        Some("hdr") => percentiles,
        Some("html") => |summary| Ok(html(summary)),
        _ => bail!("{}: the ending must be .json, .csv, .prom, .hdr or .html", path.display()),
    })
}

fn json(summary: &Summary) -> Result<String> {
    Ok(serde_json::to_string_pretty(summary).context("failed to encode the result")? + "\n")
}

/// One line for each slice, for spreadsheets and plots.
fn csv(summary: &Summary) -> String {
    let mut out = "ends_ns,elapsed_ns,hits,errors,latency_ns_p50,latency_ns_p99,redirects\n".to_owned();
    let mut ends_ns = 0;
    for slice in &summary.slices {
        ends_ns += slice.elapsed_ns;
        let (elapsed, hits, errors) = (slice.elapsed_ns, slice.hits, slice.errors);
        out += &format!(
            "{ends_ns},{elapsed},{hits},{errors},{},{},{}\n",
            slice.latency_ns_p50, slice.latency_ns_p99, slice.redirects
        );
    }
    out
}

/// The text format of Prometheus, version 0.0.4, for a textfile collector or a push gateway: base units are seconds.
fn prometheus(summary: &Summary) -> String {
    let mut out = String::new();
    let url = summary.url.replace('\\', "\\\\").replace('"', "\\\"");
    let mut metric = |name: &str, kind: &str, help: &str, values: &[(String, f64)]| {
        let _ = writeln!(out, "# HELP tlsdyno_load_{name} {help}\n# TYPE tlsdyno_load_{name} {kind}");
        for (labels, value) in values {
            let _ = writeln!(out, "tlsdyno_load_{name}{{url=\"{url}\"{labels}}} {value}");
        }
    };
    let one = |value: f64| vec![(String::new(), value)];
    metric("hits", "gauge", "Completed requests as expected.", &one(summary.hits as f64));
    metric("hits_per_second", "gauge", "Hits by elapsed time.", &one(summary.hits_per_second));
    metric(
        "elapsed_seconds",
        "gauge",
        "From the first connect to the last response.",
        &one(summary.elapsed_ns as f64 / 1e9),
    );
    metric("body_bytes", "gauge", "Body bytes received.", &one(summary.body_bytes as f64));
    metric("unserved", "gauge", "Requests of an open loop that were due but not sent.", &one(summary.unserved as f64));
    metric("redirects_followed", "gauge", "Redirects followed.", &one(summary.redirects_followed as f64));
    metric("client_busy_ratio", "gauge", "CPU time of the client by elapsed time.", &one(summary.client_busy_fraction));
    let counts = summary.handshakes;
    let kinds = [
        ("full", counts.full),
        ("resumed_intended", counts.resumed_intended),
        ("resumed_offered", counts.resumed_offered),
        ("resumed_accepted", counts.resumed_accepted),
        ("early_offered", counts.early_offered),
        ("early_accepted", counts.early_accepted),
    ];
    let kinds = kinds.map(|(kind, count)| (format!(",kind=\"{kind}\""), count as f64));
    metric("handshakes", "gauge", "Completed handshakes.", &kinds);
    let errors: Vec<_> =
        summary.errors.iter().map(|(kind, count)| (format!(",kind=\"{kind}\""), *count as f64)).collect();
    metric("errors", "gauge", "Failed requests and connections.", &errors);
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
            .extend(quantiles.map(|(q, value)| (format!(",phase=\"{phase}\",quantile=\"{q}\""), value as f64 / 1e9)));
    }
    metric("latency_seconds", "gauge", "Latency by phase and quantile.", &latencies);
    out
}

/// The percentile distribution of every phase in the text form of HdrHistogram's plotter, milliseconds.
fn percentiles(summary: &Summary) -> Result<String> {
    let mut out = String::new();
    for (phase, text) in &summary.histograms {
        let histogram = histogram::decode(text).context("a histogram is damaged")?;
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

/// One self-contained page: the answer, throughput and latency over time, and the whole table.
fn html(summary: &Summary) -> String {
    let escape = |text: &str| text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
    let slices = &summary.slices;
    let hits: Vec<f64> = slices.iter().map(|slice| slice.hits as f64 * 1e9 / slice.elapsed_ns.max(1) as f64).collect();
    let p50: Vec<f64> = slices.iter().map(|slice| slice.latency_ns_p50 as f64).collect();
    let p99: Vec<f64> = slices.iter().map(|slice| slice.latency_ns_p99 as f64).collect();
    let charts = [
        chart("Hits per second over time", &[("hits/s", "#1f77b4", &hits)], units::format_rate),
        chart("Latency over time", &[("p50", "#2ca02c", &p50), ("p99", "#d62728", &p99)], units::format_duration),
    ];
    format!(
        "<!doctype html>\n<html lang=\"en\">\n<meta charset=\"utf-8\">\n<meta name=\"viewport\" content=\"width=device-width\">\n\
         <title>tlsdyno load: {url}</title>\n<style>body{{font:16px/1.5 system-ui,sans-serif;max-width:60rem;margin:2rem auto;padding:0 1rem}}\
         svg{{width:100%;height:auto}}pre{{overflow-x:auto;font-size:13px}}</style>\n<h1>{} hits/s</h1>\n<p>{url}</p>\n{}{}\
         <pre>{}</pre>\n</html>\n",
        units::format_quantity(summary.hits_per_second),
        charts[0],
        charts[1],
        escape(&report::text(summary)),
        url = escape(&summary.url),
    )
}

/// Lines over time as SVG, from zero; empty with fewer than two points.
fn chart(title: &str, lines: &[(&str, &str, &[f64])], unit: fn(f64) -> String) -> String {
    let most = lines.iter().flat_map(|(_, _, values)| values.iter().copied()).fold(0.0, f64::max);
    let points = lines.first().map_or(0, |(_, _, values)| values.len());
    if points < 2 || most <= 0.0 {
        return String::new();
    }
    let mut out = format!(
        "<h2>{title}</h2>\n<svg viewBox=\"0 0 800 220\" role=\"img\" aria-label=\"{title}, at most {}\">\n",
        unit(most)
    );
    out += &format!(
        "<line x1=\"0\" y1=\"200\" x2=\"800\" y2=\"200\" stroke=\"#999\"/><text x=\"4\" y=\"14\" \
         font-size=\"12\">{}</text>\n",
        unit(most)
    );
    for (index, (name, colour, values)) in lines.iter().enumerate() {
        let place = |(at, value): (usize, &f64)| {
            format!("{:.1},{:.1}", 800.0 * at as f64 / (points - 1) as f64, 200.0 - 180.0 * value / most)
        };
        let path: Vec<String> = values.iter().enumerate().map(place).collect();
        out += &format!(
            "<polyline fill=\"none\" stroke=\"{colour}\" stroke-width=\"2\" points=\"{}\"/>\n",
            path.join(" ")
        );
        out += &format!("<text x=\"{}\" y=\"217\" font-size=\"12\" fill=\"{colour}\">{name}</text>\n", 4 + index * 80);
    }
    out + "</svg>\n"
}
