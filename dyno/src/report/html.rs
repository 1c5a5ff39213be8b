//! The results as one self-contained HTML file: it works offline, without any request, and under a policy without
//! `eval`.

use std::fmt::Write as _;

use askama::Template;

use super::answer::answer;
use super::charts::{self, Chart};
use super::sections::{self, Section};
use super::text::{self, share_label};
use crate::stats::{ConfigurationSummary, Metric, Share, Summary, Verdict};
use crate::store::Record;
use crate::units::{self, format_duration, format_interval, format_quantity, format_tenths};

/// The viewer, in the order in which a page must load it (versions and licences: `assets/vega/README.md`).
const VIEWER: [&str; 3] = [
    include_str!("../../assets/vega/vega.min.js"),
    include_str!("../../assets/vega/vega-lite.min.js"),
    include_str!("../../assets/vega/vega-embed.min.js"),
];
pub(super) const VIEWER_LICENCES: &str = include_str!("../../assets/vega/LICENCES.txt");

#[derive(Template)]
#[template(path = "report.html")]
struct Page<'a> {
    title: &'a str,
    version: &'a str,
    question: &'a str,
    answer: String,
    date: String,
    record: &'a Record,
    rounds: u32,
    shares: Vec<ShareRow>,
    any_bound: bool,
    remarks: Vec<String>,
    sections: Vec<Section>,
    remedies: Option<Section>,
    configurations: Vec<ConfigurationRow>,
    latencies: Vec<LatencyRow>,
    warnings: Vec<String>,
    manifest: Vec<(&'static str, String)>,
    command: String,
    cost_strip: Option<ChartView>,
    cost_intervals: Option<ChartView>,
    throughput: Option<ChartView>,
    latency: Option<ChartView>,
    viewer: String,
    licences: &'static str,
}

/// A chart ready for the page.
pub(super) struct ChartView {
    pub id: String,
    pub alternative: String,
    pub specification: String,
}

/// A line of the table of shares.
struct ShareRow {
    label: String,
    colour: &'static str,
    cpu: String,
    cpu_interval: String,
    resolved: bool,
    time: String,
    time_interval: String,
    time_bound: bool,
}

/// A line of the table of configurations.
struct ConfigurationRow {
    name: String,
    rate: String,
    rate_interval: String,
    server: String,
    server_interval: String,
    client: String,
    full: String,
    resumed: String,
    blocks: u32,
    valid: bool,
    preflight: Vec<String>,
}

/// A line of the table of latencies.
struct LatencyRow {
    configuration: String,
    phase: String,
    count: String,
    values: Vec<String>,
}

/// The page of a record.
pub fn page(record: &Record, summary: &Summary) -> Result<String, askama::Error> {
    let shares = share_rows(summary);
    Page {
        title: &record.question,
        version: &record.manifest.tool_version,
        question: &record.question,
        answer: unbroken(&answer(summary)),
        date: units::format_date(record.created_unix_s as i64),
        record,
        rounds: summary.rounds,
        any_bound: shares.iter().any(|row| row.time_bound),
        shares,
        remarks: super::terminal::comparisons(summary),
        sections: sections::answers(summary),
        remedies: sections::remedies(record, summary),
        configurations: record
            .configurations
            .iter()
            .zip(&summary.configurations)
            .map(|(of, row)| configuration_row(row, of))
            .collect(),
        latencies: summary.configurations.iter().flat_map(latency_rows).collect(),
        warnings: super::warnings(summary).iter().map(|warning| text::capitalised(warning)).collect(),
        manifest: manifest(record),
        command: shell_command(&record.manifest.command_line),
        cost_strip: charts::cost_strip(summary).map(view),
        cost_intervals: charts::cost_intervals(summary).map(view),
        throughput: charts::throughput(summary).map(view),
        latency: charts::latency(summary).map(view),
        viewer: viewer(),
        licences: VIEWER_LICENCES,
    }
    .render()
}

/// The scripts without their references to source maps, which a browser's developer tools would try to fetch.
pub(super) fn viewer() -> String {
    let lines =
        VIEWER.iter().flat_map(|script| script.lines()).filter(|line| !line.starts_with("//# sourceMappingURL"));
    lines.fold(String::new(), |mut all, line| {
        all.push_str(line);
        all.push('\n');
        all
    })
}

pub(super) fn view(chart: Chart) -> ChartView {
    // In JSON a `<` may be written as an escape; so no text in a chart can end the script element around it.
    let specification = chart.specification.to_string().replace('<', "\\u003c");
    ChartView { id: chart.id, alternative: chart.alternative, specification }
}

fn share_rows(summary: &Summary) -> Vec<ShareRow> {
    let colours = charts::stage_colours(summary);
    let times: Vec<&Share> = summary.shares.by(Metric::Throughput).collect();
    summary
        .shares
        .by(Metric::Cpu)
        .zip(times)
        .zip(colours)
        .map(|((cpu, time), (_, colour))| ShareRow {
            label: share_label(cpu),
            colour,
            cpu: format_tenths(cpu.percent),
            cpu_interval: format_interval(cpu.low, cpu.high),
            resolved: cpu.verdict == Verdict::Resolved,
            time: format_tenths(time.percent),
            time_interval: format_interval(time.low, time.high),
            time_bound: time.bound,
        })
        .collect()
}

/// The same text with spaces that do not break before `%` and inside brackets.
pub(super) fn unbroken(text: &str) -> String {
    let mut bracket = false;
    let text = text.replace(" %", "\u{a0}%").replace("% [", "%\u{a0}[");
    text.chars()
        .map(|character| {
            bracket = (bracket || character == '[') && character != ']';
            if bracket && character == ' ' { '\u{a0}' } else { character }
        })
        .collect()
}

fn configuration_row(row: &ConfigurationSummary, of: &crate::store::Configuration) -> ConfigurationRow {
    let bound = if row.client_bound { "≥ " } else { "" };
    let rate_interval = if row.hits_per_second_low.is_finite() {
        format!("[{}, {}]", format_quantity(row.hits_per_second_low), format_quantity(row.hits_per_second_high))
    } else {
        format_interval(f64::NAN, f64::NAN)
    };
    let failed = of.preflight.failed.iter().map(|check| format!("failed: {check}"));
    ConfigurationRow {
        name: row.name.clone(),
        rate: format!("{bound}{}", format_quantity(row.hits_per_second)),
        rate_interval,
        server: format_tenths(row.server_cpu_ns_per_hit / 1e3),
        server_interval: format_interval(row.server_cpu_ns_per_hit_low / 1e3, row.server_cpu_ns_per_hit_high / 1e3),
        client: format_tenths(row.client_cpu_ns_per_hit / 1e3),
        full: units::format_count(row.handshakes_full),
        resumed: units::format_count(row.handshakes_resumed),
        blocks: row.blocks,
        valid: row.valid,
        preflight: failed.chain(of.preflight.passed.iter().cloned()).collect(),
    }
}

fn latency_rows(configuration: &ConfigurationSummary) -> Vec<LatencyRow> {
    let order =
        |phase: &str| charts::PHASES.iter().position(|(name, ..)| *name == phase).unwrap_or(charts::PHASES.len());
    let mut phases: Vec<_> = configuration.latency_ns.iter().collect();
    phases.sort_by_key(|(phase, _)| order(phase));
    phases
        .into_iter()
        .map(|(phase, latency)| LatencyRow {
            configuration: configuration.name.clone(),
            phase: phase.replace('_', " "),
            count: units::format_count(latency.count),
            values: [latency.p50, latency.p90, latency.p99, latency.p999, latency.max]
                .map(|ns| format_duration(ns as f64))
                .to_vec(),
        })
        .collect()
}

/// What is known of the circumstances; what is not known is left out.
pub(super) fn manifest(record: &Record) -> Vec<(&'static str, String)> {
    let manifest = &record.manifest;
    let cpus = |cpus: &[u32]| cpus.iter().map(u32::to_string).collect::<Vec<_>>().join(", ");
    let seeds = manifest.seeds.iter().fold(String::new(), |mut text, (purpose, seed)| {
        let separator = if text.is_empty() { "" } else { "; " };
        write!(text, "{separator}{purpose} {seed}").expect("a string takes everything");
        text
    });
    let all = [
        ("server", format!("{} {}", manifest.server_name, manifest.server_version)),
        ("OpenSSL", manifest.openssl_version.clone()),
        ("certificate", manifest.certificate.clone()),
        ("negotiated", manifest.negotiated.clone()),
        ("workload", manifest.workload.clone()),
        ("client effort", manifest.effort.clone()),
        ("CPU", manifest.cpu_model.clone()),
        ("CPUs of the machine", manifest.cpus.to_string()),
        ("CPUs of the server", cpus(&manifest.server_cpus)),
        ("CPUs of the client", cpus(&manifest.client_cpus)),
        ("frequency governor", manifest.governor.clone().unwrap_or_default()),
        ("CPU accounting", manifest.cpu_accounting.clone()),
        ("system", manifest.kernel.clone()),
        ("seeds", seeds),
        ("tlsdyno", manifest.tool_version.clone()),
    ];
    all.into_iter()
        .map(|(name, value)| (name, value.trim().to_owned()))
        .filter(|(_, value)| !value.is_empty())
        .collect()
}

/// The command line as a shell reads it.
pub(super) fn shell_command(arguments: &[String]) -> String {
    let quoted = |argument: &String| {
        let plain = |c: char| c.is_ascii_alphanumeric() || "-_./:=,+@%".contains(c);
        if !argument.is_empty() && argument.chars().all(plain) {
            argument.clone()
        } else {
            format!("'{}'", argument.replace('\'', "'\\''"))
        }
    };
    arguments.iter().map(quoted).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_stay_on_one_line() {
        assert_eq!(unbroken("A (1.2 % [1.0, 1.4]) b"), "A (1.2\u{a0}%\u{a0}[1.0,\u{a0}1.4]) b");
    }

    #[test]
    fn commands_survive_the_shell() {
        let arguments = ["tlsdyno", "ablate", "--server-command", "nginx -c it's.conf", ""].map(str::to_owned);
        assert_eq!(shell_command(&arguments), r"tlsdyno ablate --server-command 'nginx -c it'\''s.conf' ''");
    }

    #[test]
    fn no_chart_can_end_its_script_element() {
        let specification = serde_json::json!({"name": "</script><b>"});
        let view = view(Chart { id: "x".to_owned(), alternative: String::new(), specification: specification.clone() });
        assert!(!view.specification.contains('<'));
        assert_eq!(serde_json::from_str::<serde_json::Value>(&view.specification).expect("JSON"), specification);
    }

    #[test]
    fn the_viewer_fits_into_a_script_element() {
        let viewer = viewer();
        assert!(
            !viewer.contains("</script") && !viewer.contains("<!--") && !viewer.contains("sourceMappingURL="),
            "it would end the element"
        );
    }
}
