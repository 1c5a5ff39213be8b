//! A load run on the terminal.

use std::fmt::Write;

use tlsdyno_engine::load::Phase;

use crate::load::summary::Summary;
use crate::units::{format_bytes, format_count, format_duration, format_rate};

/// The summary as people read it: units on every number.
pub fn text(summary: &Summary) -> String {
    let mut out = String::new();
    write_all(&mut out, summary).expect("writing to a string succeeds");
    out
}

fn write_all(out: &mut String, summary: &Summary) -> std::fmt::Result {
    let effort = summary.effort.as_ref().map_or("plain HTTP".to_owned(), |effort| format!("effort {effort}"));
    writeln!(out, "{}   {effort}   {}", summary.url, format_duration(summary.elapsed_ns as f64))?;
    for (negotiated, count) in &summary.negotiated {
        writeln!(out, "TLS {negotiated}   {} handshakes", format_count(*count))?;
    }
    writeln!(out)?;
    line(out, "hits", &format_count(summary.hits), &format_rate(summary.hits_per_second))?;
    match summary.rate_per_second_asked {
        Some(rate) => {
            line(out, "unserved", &format_count(summary.unserved), &format!("of the open loop at {rate} /s"))?;
        }
        None if summary.unserved > 0 => {
            line(out, "unserved", &format_count(summary.unserved), "by the times of the trace")?
        }
        None => {}
    }
    let seconds = summary.elapsed_ns as f64 / 1e9;
    let rate = if seconds > 0.0 { summary.body_bytes as f64 / seconds } else { 0.0 };
    line(out, "body", &format_bytes(summary.body_bytes as f64), &format!("{}/s", format_bytes(rate)))?;
    let (followed, unfinished) = (summary.redirects_followed, summary.redirects_unfinished);
    if followed + unfinished > 0 {
        let detail = format!("followed, {} more came as the run ended", format_count(unfinished));
        line(out, "redirects", &format_count(followed), &detail)?;
    }
    line(out, "connections", &format_count(summary.connections), "")?;
    write_handshakes(out, summary)?;
    if let Some(window) = summary.window {
        let limit =
            window.limit.map_or("no bound".to_owned(), |limit| format!("window {}", format_count(u64::from(limit))));
        let detail = format!("requests apart at most ({limit}), {} stalls", format_count(window.stalls));
        line(out, "order", &format_count(window.largest_distance), &detail)?;
    }
    let per_hit = summary.client_cpu_ns_per_hit.map_or("-".to_owned(), |cpu| format!("{}/hit", format_duration(cpu)));
    line(out, "client CPU", &per_hit, &format!("{:.0} % of a core", summary.client_busy_fraction * 100.0))?;
    let errors: Vec<String> =
        summary.errors.iter().map(|(kind, count)| format!("{} {kind}", format_count(*count))).collect();
    line(out, "errors", if errors.is_empty() { "none" } else { "" }, &errors.join(", "))?;
    for (fault, count) in &summary.tls_faults {
        writeln!(out, "  {:>12} × {fault}", format_count(*count))?;
    }
    write_latencies(out, summary)?;
    for warning in &summary.warnings {
        writeln!(out, "\nwarning: {warning}")?;
    }
    Ok(())
}

fn write_handshakes(out: &mut String, summary: &Summary) -> std::fmt::Result {
    let counts = summary.handshakes;
    let Some(achieved) = summary.reuse_percent_achieved else {
        return Ok(());
    };
    line(out, "full", &format_count(counts.full), "handshakes")?;
    let asked = summary.reuse_percent_asked.map_or(String::new(), |asked| format!(", asked for {asked:.1} %"));
    let detail = format!(
        "handshakes, {achieved:.1} %{asked} (intended {}, offered {})",
        format_count(counts.resumed_intended),
        format_count(counts.resumed_offered)
    );
    line(out, "resumed", &format_count(counts.resumed_accepted), &detail)?;
    if counts.early_offered > 0 {
        let detail = format!("requests with the hello were taken (offered {})", format_count(counts.early_offered));
        line(out, "early data", &format_count(counts.early_accepted), &detail)?;
    }
    Ok(())
}

fn write_latencies(out: &mut String, summary: &Summary) -> std::fmt::Result {
    if summary.latency_ns.is_empty() {
        return Ok(());
    }
    write!(out, "\n  {:<18}{:>11}", "latency", "count")?;
    for column in ["mean", "p50", "p90", "p99", "p99.9", "max"] {
        write!(out, "{column:>10}")?;
    }
    writeln!(out)?;
    for phase in Phase::ALL {
        let Some(latency) = summary.latency_ns.get(phase.name()) else {
            continue;
        };
        write!(out, "  {:<18}{:>11}", phase.name().replace('_', " "), format_count(latency.count))?;
        for value in [latency.mean, latency.p50, latency.p90, latency.p99, latency.p999, latency.max] {
            write!(out, "{:>10}", format_duration(value as f64))?;
        }
        writeln!(out)?;
    }
    Ok(())
}

fn line(out: &mut String, name: &str, value: &str, more: &str) -> std::fmt::Result {
    writeln!(out, "{}", format!("  {name:<14}{value:>14}   {more}").trim_end())
}
