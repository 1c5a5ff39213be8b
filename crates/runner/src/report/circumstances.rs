//! What every report of a record ends with: the circumstances, how it was measured, how to do it again.

use tlsdyno_base::foreign::quoted;
use tlsdyno_base::units::{format_date, format_percent, format_tenths};
use tlsdyno_record::store::machine::unlike;
use tlsdyno_record::store::{Machine, Manifest, Record, Role, Warning};

use super::document::{Content, Document, Medium, Method, Section};
use tlsdyno_stats::reference::Reference;

fn meta(record: &Record, rounds: u32) -> String {
    let id = if record.id.is_empty() { String::new() } else { format!(" · record {}", record.id) };
    let stopped = if record.finished { "" } else { " · stopped early" };
    let word = if rounds == 1 { "round" } else { "rounds" };
    format!("tlsdyno · {} · {rounds} {word}{id}{stopped}", format_date(record.created_unix_s as i64))
}

/// A report of a record: its sections, with the parts that all reports have.
pub fn document(record: &Record, rounds: u32, answer: String, sections: Vec<Section>, method: Method) -> Document {
    let sections = measured_line(record).into_iter().chain(sections);
    let pace = Reference::of(record).map(|of| Section::default().text(of.sentence()));
    let sections = sections.chain(pace).chain(record_line(record)).chain(closing(record, method));
    let meta = meta(record, rounds);
    let sections = sections.collect();
    Document { title: record.question.clone(), meta, answer, sections, ..Document::default() }
}

/// Of the record, then of each of its parts under its name.
pub fn texts<'a>(of_all: &[Warning], parts: impl Iterator<Item = (&'a String, &'a Vec<String>)>) -> Vec<String> {
    let of_parts = parts.flat_map(|(name, warnings)| warnings.iter().map(move |warning| format!("{name}: {warning}")));
    of_all.iter().map(Warning::to_string).chain(of_parts).collect()
}

/// Empty without warnings.
pub fn warnings_of(warnings: &[Warning]) -> Section {
    self::warnings(warnings.iter().map(Warning::to_string).collect())
}

pub fn warnings(texts: Vec<String>) -> Section {
    let section = Section::default();
    if texts.is_empty() { section } else { section.with(Content::Warnings(texts)) }
}

/// What was measured, for a terminal only: a page has it among the circumstances.
fn measured_line(record: &Record) -> Option<Section> {
    let manifest = &record.manifest;
    let server = server_text(manifest);
    let server = without_library(&server, manifest.openssl_version.split(" (").next().unwrap_or_default());
    let hits = hits_per_handshake(record).unwrap_or_default();
    let parts =
        [server, &manifest.openssl_version, &manifest.negotiated, &manifest.certificate, &manifest.workload, &hits];
    let parts = parts.into_iter().map(str::trim).filter(|part| !part.is_empty());
    let text = parts.collect::<Vec<_>>().join(" · ");
    (!text.is_empty()).then(|| Section::default().text(format!("Measured: {text}.")).on(Medium::Terminal))
}

/// A server's version without that of its library, where the library stands beside it.
fn without_library<'a>(server: &'a str, library: &str) -> &'a str {
    let named = server.find(", built with ").or_else(|| server.find(&format!(", {library}")));
    let named = named.filter(|&at| !library.is_empty() && server[at..].contains(library));
    named.map_or(server, |at| &server[..at])
}

/// Hits per handshake of the server as is, or of the loaded URL: the cost of TLS per hit depends most on it.
fn hits_per_handshake(record: &Record) -> Option<String> {
    let as_is = record.configurations.iter().position(|of| of.role == Role::AsIs).unwrap_or(0);
    let of = record.blocks.iter().filter(|block| block.valid && block.configuration == as_is);
    let [hits, full, resumed] = of.fold([0, 0, 0], |[hits, full, resumed], block| {
        [hits + block.hits, full + block.handshakes_full, resumed + block.resumed_accepted]
    });
    if full + resumed == 0 {
        return None;
    }
    let each = format_tenths(hits as f64 / (full + resumed) as f64);
    let percent = format_percent(100.0 * full as f64 / (full + resumed) as f64);
    Some(match (full, resumed) {
        (_, 0) => format!("{each} hits per handshake, all of them full"),
        (0, _) => format!("{each} hits per handshake, all of them resumed"),
        _ => {
            let of_full = format_tenths(hits as f64 / full as f64);
            format!("{each} hits per handshake, {percent} of them full ({of_full} hits per full handshake)")
        }
    })
}

/// Name and version of the measured server, each once: most versions name the server, and a user's own command goes by
/// what it says that it is.
pub fn server_text(manifest: &Manifest) -> String {
    let (name, version) = (&manifest.server_name, &manifest.server_version);
    let said = version.trim_start_matches("own command: ");
    let kind = name.split('-').next().unwrap_or_default().to_lowercase();
    match said != version || said.to_lowercase().starts_with(&kind) {
        true => said.to_owned(),
        false => format!("{name} {said}").trim_end().to_owned(),
    }
}

/// Differences between the conditions of two records: the question, the server, the machine, the tool.
pub fn changed(first: &Record, second: &Record) -> Vec<String> {
    let [machine, other] = [first, second].map(|record| record.manifest.machine.as_ref());
    let all = |record: &Record| {
        let of = &record.manifest;
        // Machines that are known tell more than their models.
        let model = if machine.is_some() && other.is_some() { String::new() } else { of.cpu_model.clone() };
        [
            ("CPU", model),
            ("question", record.question.clone()),
            ("server", server_text(of)),
            ("OpenSSL", of.openssl_version.clone()),
            ("certificate", of.certificate.clone()),
            ("negotiated", of.negotiated.clone()),
            ("workload", of.workload.clone()),
            ("client effort", of.effort.clone()),
            ("system", of.kernel.clone()),
            ("version of tlsdyno", of.tool_version.clone()),
        ]
    };
    let both = all(first).into_iter().zip(all(second)).filter(|((_, a), (_, b))| a != b);
    let told = both.map(|((name, a), (_, b))| format!("the {name} differs: {}, then {}", quoted(&a), quoted(&b)));
    unlike(machine, other).map(|of| of.to_string()).into_iter().chain(told).collect()
}

/// Path of the page, for a terminal; `None`: the record is in no store.
fn record_line(record: &Record) -> Option<Section> {
    let text = format!("Record {id}: `tlsdyno report {id}` writes report.html.", id = record.id);
    let section = Section::default().text(text).on(Medium::Terminal);
    (!record.id.is_empty()).then_some(section)
}

/// The end of a page.
fn closing(record: &Record, method: Method) -> [Section; 3] {
    let mut circumstances =
        Section::titled("", "Circumstances").on(Medium::Page).with(Content::Facts(manifest(record)));
    for (name, text) in &record.manifest.server_config {
        circumstances = circumstances.with(Content::Folded(name.clone(), vec![Content::Code(text.clone())]));
    }
    let checks = record.configurations.iter().map(|of| {
        let failed = of.preflight.failed.iter().map(|check| format!("failed: {check}"));
        let all: Vec<String> = failed.chain(of.preflight.passed.iter().cloned()).collect();
        (of.name.clone(), if all.is_empty() { "–".to_owned() } else { all.join("\n") })
    });
    let checked = Content::Facts(checks.collect());
    let circumstances = circumstances.with(Content::Folded("What the preflight checked".to_owned(), vec![checked]));
    let again = Section::titled("", "Do it again")
        .on(Medium::Page)
        .with(Content::Code(shell_command(&record.manifest.command_line)));
    let of_store =
        |id| format!("Raw blocks: `tlsdyno report {id} --csv`; everything as JSON: `tlsdyno report {id} --json`.");
    let stored = Some(&record.id).filter(|id| !id.is_empty()).map(of_store);
    [circumstances, method.section(), stored.into_iter().fold(again, Section::text)]
}

/// Known circumstances of the measurement.
fn manifest(record: &Record) -> Vec<(String, String)> {
    let manifest = &record.manifest;
    let cpus = |cpus: &[u32]| cpus.iter().map(u32::to_string).collect::<Vec<_>>().join(", ");
    let seeds: Vec<String> = manifest.seeds.iter().map(|(purpose, seed)| format!("{purpose} {seed}")).collect();
    let all = [
        ("server", server_text(manifest)),
        ("OpenSSL", manifest.openssl_version.clone()),
        ("certificate", manifest.certificate.clone()),
        ("negotiated", manifest.negotiated.clone()),
        ("workload", manifest.workload.clone()),
        ("handshakes", hits_per_handshake(record).unwrap_or_default()),
        ("client effort", manifest.effort.clone()),
        ("CPU", manifest.machine.as_ref().map_or(manifest.cpu_model.clone(), Machine::short)),
        ("CPUs of the machine", manifest.cpus.to_string()),
        ("CPUs of the server", cpus(&manifest.server_cpus)),
        ("CPUs of the client", cpus(&manifest.client_cpus)),
        ("frequency governor", manifest.governor.clone().unwrap_or_default()),
        ("CPU accounting", manifest.cpu_accounting.clone()),
        ("system", manifest.kernel.clone()),
        ("seeds", seeds.join("; ")),
        ("tlsdyno", manifest.tool_version.clone()),
    ];
    let known = all.into_iter().map(|(name, value)| (name.to_owned(), value.trim().to_owned()));
    known.filter(|(_, value)| !value.is_empty()).collect()
}

fn shell_command(arguments: &[String]) -> String {
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
    use tlsdyno_record::store::Block;

    #[test]
    fn hits_per_handshake_are_told_of_the_server_as_is() {
        let block = |configuration, hits, handshakes_full, resumed_accepted| Block {
            configuration,
            valid: true,
            hits,
            handshakes_full,
            resumed_accepted,
            ..Block::default()
        };
        let said = |blocks: Vec<Block>| hits_per_handshake(&Record { blocks, ..Record::begun_now("q", 1) });
        let all_full = said(vec![block(0, 60, 5, 0), block(0, 60, 5, 0), block(1, 60, 60, 0)]);
        assert_eq!(all_full.as_deref(), Some("12.0 hits per handshake, all of them full"));
        let some = said(vec![block(0, 120, 10, 30)]);
        assert_eq!(some.as_deref(), Some("3.0 hits per handshake, 25.0 % of them full (12.0 hits per full handshake)"));
        assert_eq!(said(vec![block(0, 120, 0, 0)]), None);
    }

    #[test]
    fn a_library_is_named_once() {
        let library = "OpenSSL 3.0.19 27 Jan 2026";
        let nginx = format!("nginx/1.22.1, built with OpenSSL 3.0.22 25 Aug 2026 (running with {library})");
        assert_eq!(without_library(&nginx, library), "nginx/1.22.1");
        assert_eq!(without_library(&format!("HAProxy version 2.6, {library}"), library), "HAProxy version 2.6");
        for whole in ["Apache/2.4.71 (Debian), event", "nginx/1.22.1, built with OpenSSL 3.0.22"] {
            assert_eq!([without_library(whole, library), without_library(whole, "")], [whole; 2]);
        }
    }

    #[test]
    fn commands_survive_the_shell() {
        let arguments = ["tlsdyno", "ablate", "--server-command", "nginx -c it's.conf", ""].map(str::to_owned);
        assert_eq!(shell_command(&arguments), r"tlsdyno ablate --server-command 'nginx -c it'\''s.conf' ''");
    }
}
