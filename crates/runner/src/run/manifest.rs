//! The circumstances of a run, read from the machine.

use std::fs;
use std::path::{Path, PathBuf};

use openssl::nid::Nid;
use openssl::pkey::Id;
use openssl::x509::X509;
use tlsdyno_base::exchange::Answer;
use tlsdyno_base::units::{format_binary_bytes, format_count};
use tlsdyno_engine::load::Outcome;
use tlsdyno_record::model::workload::WorkloadSpec;
use tlsdyno_record::model::{Experiment, WorkersModel, without_secrets, without_value};
use tlsdyno_record::store::machine::telling;
use tlsdyno_record::store::{LibraryUsed, Machine, Manifest, Warning};
use tlsdyno_servers::Description;
use tlsdyno_servers::library::version_of;
use tlsdyno_workloads::Summary;

use super::testbed::{ServerUnderTest, Testbed};

/// Remark on an OpenSSL in a foreign server where no library counts handshakes.
const NOT_COUNTED: &str = ", which is mapped (whether it did the TLS was not counted)";

/// The load's CPU on this machine; those of workers are not known here.
pub fn cpus_of_load(workers: Option<&WorkersModel>, cpu: usize) -> Vec<u32> {
    if workers.is_some() { Vec::new() } else { vec![cpu as u32] }
}

/// Fills in what is known once the servers run. Unknown texts stay empty.
pub fn describe(manifest: &mut Manifest, testbed: &mut Testbed) {
    let experiment = &testbed.experiment;
    manifest.server_cpus = vec![testbed.cpus.server as u32];
    manifest.client_cpus = cpus_of_load(experiment.workers.as_ref(), testbed.cpus.load);
    manifest.certificate = experiment.tls.certificate().to_string();
    manifest.effort = experiment.load.effort.to_string();
    manifest.workload = match &experiment.workload {
        WorkloadSpec::Paths { paths, .. } => {
            format!("{} of {}, as a browser asks{}", listed(paths), testbed.host_name, assumed(experiment))
        }
        WorkloadSpec::Url { path, bytes: None, .. } => {
            format!("GET {path} of {}, over and over{}", testbed.host_name, assumed(experiment))
        }
        _ => workload_line(&testbed.site.summary),
    };
    if let Some(network) = &experiment.network {
        manifest.workload.push_str(&format!("; through a network of {network}"));
    }
    describe_seed(manifest, &experiment.workload);
    if let Ok(toml) = experiment.without_secrets().to_toml() {
        manifest.server_config.insert("experiment.toml".to_owned(), toml);
    }
    manifest.hardware = testbed
        .servers
        .iter()
        .filter_map(|server| Some((server.model.name.clone(), server.hardware.clone()?)))
        .collect();
    manifest.libraries = testbed
        .libraries
        .iter()
        .map(|(prefix, library)| LibraryUsed {
            prefix: prefix.to_owned(),
            version: library.version(),
            files: library.files().to_vec(),
        })
        .collect();
    if let Some(instance) = testbed.servers.first_mut().and_then(|server| server.instance.as_mut()) {
        describe_server(manifest, instance.description());
    }
    let is_counted = testbed.servers.iter().any(ServerUnderTest::is_instrumented);
    if experiment.server.kind.is_users_own() && !is_counted && !manifest.openssl_version.is_empty() {
        manifest.openssl_version.push_str(NOT_COUNTED);
    }
    manifest.server_name = match &experiment.server.command {
        Some(command) => without_secrets(command),
        None => experiment.server.kind.name().to_owned(),
    };
}

/// A few paths, or their number and the first.
fn listed(paths: &[String]) -> String {
    const ALL: usize = 5;
    const FIRST: usize = 3;
    match paths.len() {
        ..=ALL => format!("GET {}", paths.join(", ")),
        many => format!("{many} paths, the first GET {}", paths[..FIRST].join(", ")),
    }
}

/// Assumed hits per handshake, in brackets, where no flag determines them.
fn assumed(experiment: &Experiment) -> String {
    assumption(experiment).map_or_else(String::new, |assumption| format!(" ({assumption})"))
}

/// As [`assumed`], without brackets.
pub fn assumption(experiment: &Experiment) -> Option<String> {
    let load = &experiment.load;
    let is_said = load.requests_per_connection.is_some() || load.reuse_percent.is_some();
    experiment.workload.assumption().filter(|_| !is_said && experiment.foreign_traffic.is_none())
}

/// What a client saw of a server with a foreign configuration: its certificate, and its name for itself.
pub fn describe_seen(manifest: &mut Manifest, seen: &Answer) {
    if let Some(certificate) = certificate_text(&seen.chain) {
        manifest.certificate = certificate;
    }
    if let Some(server) = seen.header("Server").filter(|server| !manifest.server_version.contains(server)) {
        manifest.server_version.push_str(&format!(", calls itself {server}"));
    }
}

/// Key and name of a chain's first certificate, and size of the chain: `p-256 of shop.example, chain of 2, 2,134
/// bytes`.
fn certificate_text(chain: &[Vec<u8>]) -> Option<String> {
    let own = X509::from_der(chain.first()?).ok()?;
    let key = own.public_key().ok()?;
    let kind = match key.id() {
        Id::RSA => format!("rsa-{}", key.bits()),
        Id::EC => format!("p-{}", key.bits()),
        Id::ED25519 => "ed25519".to_owned(),
        _ => format!("key of {} bits", key.bits()),
    };
    let name = own.subject_name().entries_by_nid(Nid::COMMONNAME).next();
    let name =
        name.and_then(|name| name.data().to_string().ok()).map_or_else(String::new, |name| format!(" of {name}"));
    let bytes: usize = chain.iter().map(Vec::len).sum();
    Some(format!("{kind}{name}, chain of {}, {} bytes", chain.len(), format_count(bytes as u64)))
}

/// Removes the values of headers and secrets from a command line: a record may be given to others.
pub fn hide_headers(arguments: &mut [String]) {
    let mut is_header = false;
    for argument in arguments {
        if is_header {
            *argument = without_value(argument);
            is_header = false;
            continue;
        }
        // Short flags may stand together, and the value may follow at once.
        let short = argument.strip_prefix('-').filter(|rest| !rest.starts_with('-'));
        let header = short.and_then(|rest| rest.split_once('H'));
        is_header = argument == "--header" || header.is_some_and(|(_, value)| value.is_empty());
        if let Some(value) = argument.strip_prefix("--header=") {
            *argument = format!("--header={}", without_value(value));
        } else if let Some((flags, value)) = header {
            *argument = format!("-{flags}H{}", without_value(value));
        } else {
            *argument = without_secrets(argument);
        }
    }
}

pub fn describe_machine(manifest: &mut Manifest) {
    manifest.tool_version = env!("CARGO_PKG_VERSION").to_owned();
    manifest.command_line = std::env::args().collect();
    hide_headers(&mut manifest.command_line);
    manifest.kernel = kernel();
    let machine = Machine::here();
    manifest.cpu_model.clone_from(&machine.name);
    manifest.machine = Some(machine);
    manifest.governor = read_line("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor");
    manifest.cpus = std::thread::available_parallelism().map_or(1, |count| count.get() as u32);
}

/// Seed of the workload's random choices, if it has any.
pub fn describe_seed(manifest: &mut Manifest, workload: &WorkloadSpec) {
    if let WorkloadSpec::Ecommerce { seed, .. }
    | WorkloadSpec::Department { seed, .. }
    | WorkloadSpec::Specweb96 { seed, .. }
    | WorkloadSpec::Specweb99 { seed, .. } = workload
    {
        manifest.seeds.insert("workload".to_owned(), *seed);
    }
}

pub fn describe_server(manifest: &mut Manifest, description: Description) {
    manifest.server_version = description.version;
    manifest.openssl_version = openssl_of(&description.openssl_libraries);
    manifest.server_config.insert("configuration".to_owned(), description.config);
    manifest.server_config.extend(description.companions);
    manifest.cpu_accounting = description.cpu_account;
    describe_environment(manifest, description.environment);
}

/// Variables with which the server was started, if that is known.
pub fn describe_environment(manifest: &mut Manifest, variables: Option<Vec<(String, String)>>) {
    if let Some(machine) = &mut manifest.machine {
        machine.environment = variables.map(telling);
    }
}

/// Warns of two libraries of one version: two builds of it may be wanted, or a mistake.
pub fn same_version(manifest: &Manifest) -> Option<Warning> {
    let [first, second] = &manifest.libraries[..] else { return None };
    let what = format!("Both libraries say that they are {}", first.version);
    let remedy = "That is as it should be for two builds of one version only";
    (first.version == second.version).then(|| Warning::new("same_version", what).with_remedy(remedy))
}

/// Warns of a frequency governor that disturbs measuring, if it can be read.
pub fn governor_warning(manifest: &Manifest) -> Option<Warning> {
    let governor = manifest.governor.as_ref().filter(|governor| *governor != "performance")?;
    let what = format!("the CPU frequency governor is `{governor}`: the clock may change between blocks");
    let remedy = "Set it to `performance` while measuring (cpupower frequency-set -g performance).";
    Some(Warning::new("governor", what).with_remedy(remedy))
}

/// Negotiated parameters of a run's handshakes, most frequent first, as `version suite group`, and whether HTTP/2 is
/// spoken.
pub fn negotiated_text(outcome: &Outcome) -> String {
    let mut texts: Vec<(&String, &u64)> = outcome.negotiated.iter().collect();
    texts.sort_by_key(|(_, count)| std::cmp::Reverse(**count));
    let text = texts.into_iter().map(|(text, _)| text.as_str()).collect::<Vec<_>>().join("; ");
    let has_http2 = outcome.http2.as_ref().is_some_and(|http2| http2.chosen_count > 0);
    if has_http2 { text + " · HTTP/2" } else { text }
}

/// Versions of the libcryptos that the server has mapped: a program may have its own beside the system's.
fn openssl_of(libraries: &[PathBuf]) -> String {
    let libraries = libraries.iter().filter(|path| is_libcrypto(path));
    let texts: Vec<String> = libraries.map(|path| format!("{} ({})", version_of(path), path.display())).collect();
    texts.join(" and ")
}

/// Judges by the file name.
pub fn is_libcrypto(file: &Path) -> bool {
    file.file_name().is_some_and(|name| name.to_string_lossy().contains("libcrypto"))
}

/// A workload in one line.
pub fn workload_line(summary: &Summary) -> String {
    // Of a server's own pages nobody knows the sizes.
    let known = |what: &str, bytes: f64| match bytes > 0.0 {
        true => format!(", {what} {}", format_binary_bytes(bytes)),
        false => String::new(),
    };
    format!(
        "{}: {} hits by {} users in {} sessions, {} objects{}{}",
        summary.workload,
        summary.hits,
        summary.users,
        summary.sessions,
        summary.objects,
        known("mean response", summary.response_size_bytes.mean),
        known("files", summary.corpus_bytes as f64)
    )
}

fn read_line(path: &str) -> Option<String> {
    fs::read_to_string(path).ok().map(|text| text.trim().to_owned()).filter(|text| !text.is_empty())
}

fn kernel() -> String {
    let name = rustix::system::uname();
    format!("{} {}", name.sysname().to_string_lossy(), name.release().to_string_lossy())
}

/// CPU time that the hypervisor took since boot, nanoseconds, over all CPUs (`/proc/stat`, eighth field, USER_HZ of
/// 100).
pub fn steal_ns() -> u64 {
    const NS_PER_TICK: u64 = 10_000_000;
    let stat = fs::read_to_string("/proc/stat").unwrap_or_default();
    let ticks = stat.lines().next().and_then(|line| line.split_ascii_whitespace().nth(8)?.parse::<u64>().ok());
    ticks.unwrap_or(0) * NS_PER_TICK
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use tlsdyno_engine::load::Http2Use;

    use super::*;

    #[test]
    fn only_a_governor_that_changes_the_clock_is_worth_a_warning() {
        let warns = |governor: Option<&str>| {
            governor_warning(&Manifest { governor: governor.map(str::to_owned), ..Manifest::default() }).is_some()
        };
        assert!(warns(Some("powersave")));
        assert!(!warns(Some("performance")) && !warns(None));
    }

    #[test]
    fn every_libcrypto_is_named() {
        let files = ["/usr/lib/libssl.so.3", "/a/libcrypto.so.3", "/b/libcrypto-1a2b.so.3"].map(PathBuf::from);
        let told = openssl_of(&files);
        assert!(told.contains("(/a/libcrypto.so.3) and ") && told.contains("(/b/libcrypto-1a2b.so.3)"), "{told}");
        assert_eq!(openssl_of(&files[..1]), "");
    }

    #[test]
    fn a_long_list_of_paths_is_told_by_its_beginning() {
        let paths: Vec<String> = (0..120).map(|path| format!("/{path}")).collect();
        assert_eq!(listed(&paths), "120 paths, the first GET /0, /1, /2");
        assert_eq!(listed(&paths[..4]), "GET /0, /1, /2, /3");
        let mut experiment =
            Experiment { workload: WorkloadSpec::of_paths(paths[..6].to_vec(), None), ..Experiment::default() };
        let said = assumed(&experiment);
        assert!(said.contains("all 6 paths 2 times: 12 hits per handshake") && said.contains("--hits-per-"), "{said}");
        experiment.load.reuse_percent = Some(0.0);
        assert_eq!(assumed(&experiment), "");
        experiment = Experiment { workload: WorkloadSpec::of_paths(paths, Some(12.0)), ..Experiment::default() };
        assert_eq!(assumed(&experiment), "");
    }

    #[test]
    fn what_was_negotiated_most_often_comes_first() {
        let negotiated = BTreeMap::from([("a".to_owned(), 2), ("b".to_owned(), 7)]);
        let mut outcome = Outcome { negotiated, ..Outcome::default() };
        assert_eq!(negotiated_text(&outcome), "b; a");
        outcome.http2 = Some(Http2Use { chosen_count: 9, ..Http2Use::default() });
        assert_eq!(negotiated_text(&outcome), "b; a · HTTP/2");
    }

    #[test]
    fn values_of_headers_are_not_kept() {
        let hidden = |line: &str| {
            let mut line: Vec<String> = line.split('|').map(str::to_owned).collect();
            hide_headers(&mut line);
            line.join("|")
        };
        let kept = "load|-kH|A: …|-H@/f:1|-HB: …|-H=C: …|--header=D: …|--header|E: …|-k|https://x/H:1";
        assert_eq!(hidden(&kept.replace('…', "secret")), kept);
    }
}
