//! A load run on the terminal.

use std::fmt::Write;

use tlsdyno_engine::load::Phase;

use crate::load::summary::Summary;

/// The summary as people read it: units on every number.
pub fn text(summary: &Summary) -> String {
    let mut out = String::new();
    write_all(&mut out, summary).expect("writing to a string succeeds");
    out
}

fn write_all(out: &mut String, summary: &Summary) -> std::fmt::Result {
    let effort = summary.effort.as_ref().map_or("plain HTTP".to_owned(), |effort| format!("effort {effort}"));
    writeln!(out, "{}   {effort}   {}", summary.url, duration(summary.elapsed_ns as f64))?;
    for (negotiated, count) in &summary.negotiated {
        writeln!(out, "TLS {negotiated}   {} handshakes", grouped(*count))?;
    }
    writeln!(out)?;
    line(out, "hits", &grouped(summary.hits), &format!("{} /s", grouped(summary.hits_per_second.round() as u64)))?;
    match summary.rate_per_second_asked {
        Some(rate) => {
            line(out, "unserved", &grouped(summary.unserved), &format!("of the open loop at {rate} /s"))?;
        }
        None if summary.unserved > 0 => line(out, "unserved", &grouped(summary.unserved), "by the times of the trace")?,
        None => {}
    }
    let seconds = summary.elapsed_ns as f64 / 1e9;
    let rate = if seconds > 0.0 { summary.body_bytes as f64 / seconds } else { 0.0 };
    line(out, "body", &bytes(summary.body_bytes as f64), &format!("{}/s", bytes(rate)))?;
    let (followed, unfinished) = (summary.redirects_followed, summary.redirects_unfinished);
    if followed + unfinished > 0 {
        let detail = format!("followed, {} more came as the run ended", grouped(unfinished));
        line(out, "redirects", &grouped(followed), &detail)?;
    }
    line(out, "connections", &grouped(summary.connections), "")?;
    write_handshakes(out, summary)?;
    if let Some(window) = summary.window {
        let limit = window.limit.map_or("no bound".to_owned(), |limit| format!("window {}", grouped(limit)));
        let detail = format!("requests apart at most ({limit}), {} stalls", grouped(window.stalls));
        line(out, "order", &grouped(window.largest_distance), &detail)?;
    }
    let per_hit = summary.client_cpu_ns_per_hit.map_or("-".to_owned(), |cpu| format!("{}/hit", duration(cpu)));
    line(out, "client CPU", &per_hit, &format!("{:.0} % of a core", summary.client_busy_fraction * 100.0))?;
    let errors: Vec<String> =
        summary.errors.iter().map(|(kind, count)| format!("{} {kind}", grouped(*count))).collect();
    line(out, "errors", if errors.is_empty() { "none" } else { "" }, &errors.join(", "))?;
    for (fault, count) in &summary.tls_faults {
        writeln!(out, "  {:>12} × {fault}", grouped(*count))?;
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
    line(out, "full", &grouped(counts.full), "handshakes")?;
    let asked = summary.reuse_percent_asked.map_or(String::new(), |asked| format!(", asked for {asked:.1} %"));
    let detail = format!(
        "handshakes, {achieved:.1} %{asked} (intended {}, offered {})",
        grouped(counts.resumed_intended),
        grouped(counts.resumed_offered)
    );
    line(out, "resumed", &grouped(counts.resumed_accepted), &detail)?;
    if counts.early_offered > 0 {
        let detail = format!("requests with the hello were taken (offered {})", grouped(counts.early_offered));
        line(out, "early data", &grouped(counts.early_accepted), &detail)?;
    }
    if counts.retried > 0 {
        let detail = "handshakes, a round trip more each: the server asked for another group's key share (--group)";
        line(out, "retried", &grouped(counts.retried), detail)?;
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
        write!(out, "  {:<18}{:>11}", phase.name().replace('_', " "), grouped(latency.count))?;
        for value in [latency.mean, latency.p50, latency.p90, latency.p99, latency.p999, latency.max] {
            write!(out, "{:>10}", duration(value as f64))?;
        }
        writeln!(out)?;
    }
    Ok(())
}

fn line(out: &mut String, name: &str, value: &str, more: &str) -> std::fmt::Result {
    writeln!(out, "{}", format!("  {name:<14}{value:>14}   {more}").trim_end())
}

/// A time with three or four digits and its unit.
pub fn duration(nanoseconds: f64) -> String {
    match nanoseconds {
        under if under < 1e3 => format!("{under:.0} ns"),
        under if under < 1e6 => format!("{:.1} µs", under / 1e3),
        under if under < 1e9 => format!("{:.2} ms", under / 1e6),
        over => format!("{:.2} s", over / 1e9),
    }
}

/// An amount of data with its decimal unit.
pub fn bytes(bytes: f64) -> String {
    match bytes {
        under if under < 1e3 => format!("{under:.0} B"),
        under if under < 1e6 => format!("{:.1} kB", under / 1e3),
        under if under < 1e9 => format!("{:.1} MB", under / 1e6),
        over => format!("{:.2} GB", over / 1e9),
    }
}

/// A count with its thousands set apart.
pub fn grouped(count: u64) -> String {
    let digits = count.to_string();
    let mut out = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_read_well() {
        assert_eq!([0, 999, 1000, 1_234_567].map(grouped), ["0", "999", "1,000", "1,234,567"]);
        assert_eq!([950.0, 1500.0, 2.5e6, 3e9].map(duration), ["950 ns", "1.5 µs", "2.50 ms", "3.00 s"]);
        assert_eq!([10.0, 1024.0, 5e8, 2e9].map(bytes), ["10 B", "1.0 kB", "500.0 MB", "2.00 GB"]);
    }
}
