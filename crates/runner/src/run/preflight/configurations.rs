//! Which configurations are measured: every server is started once and checked. One that fails is kept in the record,
//! marked invalid.

use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow};
use tlsdyno_base::fault::{Fault, OrFault, fault_of};
use tlsdyno_base::interrupt;
use tlsdyno_record::model::{ConfigurationModel, Experiment, Tls};
use tlsdyno_record::store::{Configuration, Preflight, Record, Role, Warning};
use tlsdyno_servers::quota;
use tlsdyno_tls::{Stage, StageSet};

use super::{ASKED, Check, Target, explain, paths, preflight};
use crate::run::hardware;
use crate::run::manifest::is_libcrypto;
use crate::run::observer::Observer;
use crate::run::testbed::{ServerUnderTest, Testbed};
use crate::run::verify::resumes;

const IS_MAPPED: &str = " is mapped in every worker";
/// Number of a log's last lines in a message.
const LOG_LINES: usize = 3;

/// A configuration changes TLS settings or processors, or adds an accelerator or a known cost.
fn changes_settings(model: &ConfigurationModel) -> bool {
    let without_settings = ConfigurationModel {
        noop: model.noop,
        plain_http: model.plain_http,
        idle_provider: model.idle_provider,
        idle_shim: model.idle_shim,
        wrapped: model.wrapped,
        doubled: model.doubled,
        copies: model.copies,
        name: model.name.clone(),
        label: model.label.clone(),
        ..ConfigurationModel::as_is()
    };
    without_settings != *model
}

/// Role of a configuration, from the stages that it replaces or doubles. `singles`: stages that the experiment replaces
/// one by one; `doubled`: sets that it doubles.
fn role_of(model: &ConfigurationModel, singles: StageSet, doubled: &[StageSet]) -> Role {
    if changes_settings(model) {
        return Role::Setting;
    }
    match model.doubled {
        _ if model.copies => return Role::Copies,
        Some(StageSet::NONE) => return Role::NothingDoubled,
        Some(stages) if is_all(stages, doubled) => return Role::AllDoubled,
        Some(stages) => return Role::Doubled(stages),
        None => {}
    }
    match model.noop.only() {
        _ if model.plain_http => Role::PlainHttp,
        _ if model.is_untouched() => Role::AsIs,
        Some(stage) => Role::StageOff(stage),
        None if model.noop.is_empty() => Role::Loaded,
        None if model.noop == singles => Role::AllOff,
        None => Role::Several(model.noop),
    }
}

pub fn roles(experiment: &Experiment) -> Vec<Role> {
    let plain = || experiment.configurations.iter().filter(|model| !changes_settings(model));
    // Stages of the shim overlap with those of the provider and with each other, so that there is no configuration
    // without any of them.
    let singles =
        plain().filter_map(|model| model.noop.only()).filter(|stage| Stage::PROVIDER.contains(stage)).collect();
    let doubled: Vec<StageSet> = plain().filter_map(|model| model.doubled).filter(|set| !set.is_empty()).collect();
    experiment.configurations.iter().map(|model| role_of(model, singles, &doubled)).collect()
}

/// A set is the union of several others of `sets`.
fn is_all(stages: StageSet, sets: &[StageSet]) -> bool {
    let others = || sets.iter().filter(|set| **set != stages);
    others().count() > 1 && others().fold(StageSet::NONE, |all, set| all.union(*set)) == stages
}

/// Reason why configurations with a quota of CPU time cannot be measured on this machine; `None`: they can, or there
/// are none. Fails where every configuration beside the untouched server has a quota: nothing could be compared.
fn quota_refused(testbed: &Testbed) -> Result<Option<String>> {
    let limited = |server: &&ServerUnderTest| server.placement.quota_cpus.is_some();
    let asked_for = || testbed.servers.iter().filter(|server| !server.model.is_untouched());
    if asked_for().find(limited).is_none() {
        return Ok(None);
    }
    match quota::require() {
        Ok(()) => Ok(None),
        Err(error) if asked_for().all(|server| limited(&server)) => Err(error).or_fault(Fault::Environment),
        Err(error) => Ok(Some(format!("{error:#}"))),
    }
}

/// Starts every server once, checks it, and adds its configuration to the record. A configuration that fails, or cannot
/// run on this machine, is kept and marked invalid.
pub fn start_and_check(
    testbed: &mut Testbed,
    record: &mut Record,
    stop: &AtomicBool,
    observer: &mut dyn Observer,
) -> Result<()> {
    let roles = roles(&testbed.experiment);
    let quota_refused = quota_refused(testbed)?;
    let (began, mut seen) = (Instant::now(), Vec::new());
    let mut checked: Vec<Option<Configuration>> = vec![None; roles.len()];
    for (need, index) in in_order_of_need(&testbed.servers) {
        interrupt::before_measuring(stop, interrupt::check(stop))?;
        let role = roles[index].clone();
        if need > Need::Host && testbed.prepared_until.is_some_and(|until| Instant::now() > until) {
            checked[index] = Some(not_begun(&testbed.servers[index], role, began.elapsed()));
            continue;
        }
        observer.step(&format!("starting and checking: {}", testbed.servers[index].model.name));
        let refused = quota_refused.as_ref().filter(|_| testbed.servers[index].placement.quota_cpus.is_some());
        let checks = match (refused, testbed.servers[index].base) {
            (Some(why), _) => Ok(vec![Check::new("its CPU time can be limited", false, why.clone())]),
            (None, Some(base)) => {
                let base_configuration = checked[base].as_ref().context("its base is checked first")?;
                checks_on_machine(testbed, index, base, base_configuration)
            }
            (None, None) => started(testbed, index, record, observer),
        };
        let checks = dispensable(&testbed.servers[index], checks);
        // Who is stopped while a server does not answer is not told that it does not.
        let checks = interrupt::before_measuring(stop, checks.and_then(|of| interrupt::check(stop).map(|()| of)))?;
        if is_asked(&checks) {
            seen.extend(testbed.servers[testbed.host(index)].instruments.saw_handshakes()?);
        }
        if checks.iter().any(|check| !check.passed) {
            testbed.instance(index).map_or(Ok(()), |instance| instance.refuse_closed_descriptors())?;
        }
        let configuration = configuration(&testbed.servers[index], role, &checks);
        observer.preflight(&configuration.name, configuration.preflight.passed.len(), &configuration.preflight.failed);
        let log = testbed.instance(index).map(|instance| instance.log_tail()).unwrap_or_default();
        require_untouched(&configuration, &testbed.experiment.tls, &log)?;
        let unmapped = checks.iter().find(|check| !check.passed && check.name.ends_with(IS_MAPPED));
        if let Some(Check { seen, .. }) = unmapped.filter(|_| testbed.experiment.server.kind.is_users_own()) {
            // Nor will it have what the other configurations put into it.
            return Err(anyhow!("{seen}. `tlsdyno cost` measures it from outside")).or_fault(Fault::Environment);
        }
        checked[index] = Some(configuration);
    }
    record.configurations.extend(checked.into_iter().flatten());
    let left_out = record.configurations.iter().filter(|of| of.preflight == Preflight::default()).count();
    if left_out > 0 {
        observer.warn(&format!(
            "{left_out} of {} configurations will not be measured: starting and checking the others took {:.0} s",
            record.configurations.len(),
            began.elapsed().as_secs_f64()
        ));
    }
    refuse_another_library(testbed, &seen)
}

/// Turns a server's failure to start, by its own fault, into a failed check, as the others can be measured without it.
/// Not for the untouched server.
fn dispensable(server: &ServerUnderTest, checks: Result<Vec<Check>>) -> Result<Vec<Check>> {
    let is_untouched = server.model.without_library().is_untouched();
    match checks {
        Err(error) if !is_untouched && fault_of(&error).is_some_and(Fault::is_of_server) => {
            Ok(vec![Check::new("the server starts", false, format!("{error:#}"))])
        }
        checks => checks,
    }
}

/// Fails where this is the untouched server, and did not pass its checks: all others are compared with it. `log`: the
/// only source of the reason.
fn require_untouched(configuration: &Configuration, tls: &Tls, log: &str) -> Result<()> {
    if configuration.role != Role::AsIs || configuration.valid {
        return Ok(());
    }
    let failed = configuration.preflight.failed.join("; ");
    let remedy = remedy(&failed, tls, log);
    Err(anyhow!("the untouched server does not pass its checks: {failed}{remedy}")).or_fault(Fault::Server)
}

/// Starts the server of a configuration, if it does not run, and checks it. Requests that a server without no-ops
/// answers otherwise than in the log are left out.
fn started(
    testbed: &mut Testbed,
    index: usize,
    record: &mut Record,
    observer: &mut dyn Observer,
) -> Result<Vec<Check>> {
    testbed.activate(index)?;
    testbed.make_universal(index)?;
    let server = &testbed.servers[index];
    let model = &server.model;
    if model.plain_http && server.has_http2() && !testbed.has_prior_knowledge(index) {
        let what =
            "plain HTTP is HTTP/1.1 here, beside HTTP/2 over TLS: what is left without TLS is of another protocol";
        record.warnings.push(Warning::new("plain_http1", what));
    }
    let is_plain_or_untouched = model.plain_http || model.without_library().is_untouched();
    let has_paths =
        is_plain_or_untouched && testbed.experiment.workload.is_servers_own() && testbed.host(index) == index;
    let left_out = if has_paths { paths::leave_out(testbed, index)? } else { None };
    if let Some(Some(told)) = &left_out {
        observer.tell(told);
        record.warnings.push(Warning::new("left_out", told));
    }
    let mut checks = checks_of(testbed, index)?;
    if has_paths && left_out.is_none() && checks.iter().all(|check| check.passed) {
        checks.extend(paths::check(testbed, index)?);
    }
    Ok(checks)
}

/// A library of ours was mapped, and a client reached a server that stayed alive.
fn is_asked(checks: &[Check]) -> bool {
    let mapped = |check: &&Check| check.name.ends_with(IS_MAPPED);
    checks.iter().any(|check| check.name == ASKED)
        && !checks.iter().any(|check| check.crashed)
        && checks.iter().filter(mapped).count() > 0
        && checks.iter().filter(mapped).all(|check| check.passed)
}

/// Fails where no library in the server's OpenSSL has seen a handshake: `seen` has the finding of each.
fn refuse_another_library(testbed: &mut Testbed, seen: &[bool]) -> Result<()> {
    if seen.is_empty() || seen.contains(&true) {
        return Ok(());
    }
    let files = testbed.servers.iter_mut().filter_map(|server| server.instance.as_mut());
    let files = files.flat_map(|instance| instance.description().openssl_libraries).find(|file| is_libcrypto(file));
    let file = files.map_or_else(String::new, |file| format!(" ({})", file.display()));
    Err(anyhow!(
        "no handshake of this server went through the OpenSSL that it has mapped{file}: what was put in there was \
         never called. Its TLS is another library's, or an OpenSSL's inside of the program or of another process; \
         stages can be removed from a shared OpenSSL 3 only. `tlsdyno load` and `compare` measure it as it is"
    ))
    .or_fault(Fault::Environment)
}

/// Importance of a configuration to the others.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Need {
    /// All others are compared with it.
    Untouched,
    /// Others are modes of its server.
    Host,
    Other,
    /// It is a variant of another one on a machine.
    OnMachine,
}

/// Order of the checks: if time is too short, the configurations come first without which the others say nothing.
fn in_order_of_need(servers: &[ServerUnderTest]) -> Vec<(Need, usize)> {
    let need = |(index, server): (usize, &ServerUnderTest)| {
        let need = match () {
            () if server.base.is_some() => Need::OnMachine,
            () if server.model.without_library().is_untouched() => Need::Untouched,
            () if servers.iter().any(|other| other.host == Some(index)) => Need::Host,
            () => Need::Other,
        };
        (need, index)
    };
    let mut order: Vec<(Need, usize)> = servers.iter().enumerate().map(need).collect();
    order.sort_unstable();
    order
}

/// A configuration that was left out for lack of time.
fn not_begun(server: &ServerUnderTest, role: Role, taken: Duration) -> Configuration {
    let what = format!("not measured: starting and checking the others took {:.0} s", taken.as_secs_f64());
    let remedy = "Measure longer (--time), fewer stages, or on a machine with less else to do";
    let warnings = vec![Warning::new("not_measured", what).with_remedy(remedy)];
    Configuration { valid: false, warnings, ..configuration(server, role, &[]) }
}

/// Remedy where the untouched server refuses the client, or where only its log may say why.
fn remedy(failed: &str, tls: &Tls, log: &str) -> String {
    let version = tls.version;
    let suites = || tls.suite.map_or_else(|| "every suite of it".to_owned(), |suite| suite.openssl_name().to_owned());
    let groups = || tls.groups_of_own().iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
    match () {
        () if failed.contains("alert protocol_version") => {
            format!(". It does not speak TLS {version}: let it, or measure another version (--tls)")
        }
        () if failed.contains("alert unrecognized_name") => {
            ". It has no server of the name that it was asked for, or was asked for none: name one of its own (--host)"
                .to_owned()
        }
        () if failed.contains("alert handshake_failure") => format!(
            ". It took none of what was offered: TLS {version}, {}, groups {}. Name another suite or group (--suite, \
             --group)",
            suites(),
            groups()
        ),
        () if failed.contains("alert internal_error") && !log.is_empty() => {
            let last: Vec<&str> = log.lines().rev().take(LOG_LINES).collect();
            format!(". Its log ends with:\n{}", last.into_iter().rev().collect::<Vec<_>>().join("\n"))
        }
        () => String::new(),
    }
}

/// Checks that the quota limits the server of this configuration; `None`: it has no quota.
fn quota_check(testbed: &mut Testbed, index: usize) -> Option<Check> {
    testbed.servers[index].placement.quota_cpus?;
    testbed.instance(index).and_then(|instance| instance.quota.as_ref()).map(hardware::quota_check)
}

/// Checks of a variant on a machine, in the server of its base: the base passed its checks, and the quota works.
fn checks_on_machine(testbed: &mut Testbed, index: usize, base: usize, of_base: &Configuration) -> Result<Vec<Check>> {
    testbed.follow_base(index, base);
    testbed.activate(index)?;
    let name = format!("its server has passed as \"{}\"", of_base.name);
    let passed = Check::new(name, of_base.valid, format!("{} checks", of_base.preflight.passed.len()));
    Ok([passed].into_iter().chain(quota_check(testbed, index)).collect())
}

/// Requirements on a running server before it is measured.
pub fn checks_of(testbed: &mut Testbed, index: usize) -> Result<Vec<Check>> {
    let (host, address) = (testbed.host(index), testbed.address(index));
    let mut checks = Vec::new();
    let mut vigil = testbed.instance(index).map(|instance| instance.watch());
    for (what, library) in testbed.servers[host].libraries() {
        let Some(instance) = testbed.instance(index) else { break };
        let mapped = instance.of_living_workers(|pids| tlsdyno_servers::require_mapped(pids, &library));
        let seen = mapped.as_ref().map_or_else(|error| format!("{error:#}"), |()| "mapped".to_owned());
        checks.push(Check::new(format!("{what}{IS_MAPPED}"), mapped.is_ok(), seen));
    }
    checks.extend(quota_check(testbed, index));
    let server = &testbed.servers[index];
    let (request, expect) = testbed.preflight_request();
    let target = Target {
        address,
        settings: server.settings.as_ref(),
        prior_knowledge: testbed.has_prior_knowledge(index),
        instruments: &testbed.servers[host].instruments,
        doubled: server.doubled(),
        asked: Some(&server.asked),
        hardware: hardware::counted_once(&server.model),
        foreign_session: server.foreign_session.as_ref(),
        request: &request,
        expect,
        resumable: testbed.can_resume(index),
        resumes: resumes(&testbed.site.workload, &testbed.experiment.load, server.has_http2())?,
        is_tls_client: server.is_tls_client,
        time_limit: server.time_limit(),
    };
    checks.extend(preflight(&target)?);
    if let (Some(instance), Some(vigil)) = (testbed.instance(index), &mut vigil) {
        let failed = checks.iter().any(|check| !check.passed);
        let death = if failed { instance.awaited_death(vigil) } else { instance.death(vigil) };
        if let Some(death) = death {
            explain(&mut checks, &death);
        }
    }
    Ok(checks)
}

fn configuration(server: &ServerUnderTest, role: Role, checks: &[Check]) -> Configuration {
    let model = &server.model;
    let text = |check: &Check| format!("{} ({})", check.name, check.seen);
    let texts = |passed: bool| checks.iter().filter(|check| check.passed == passed).map(text).collect::<Vec<_>>();
    let preflight = Preflight { passed: texts(true), failed: texts(false) };
    let valid = preflight.failed.is_empty();
    let warning = |check: &Check| {
        let what = format!("preflight failed: {}. This configuration was not used", text(check));
        match check.crashed {
            true => Warning::new("preflight_crash", what).with_remedy(
                "A crash is a fault of the server, of its OpenSSL, or of what tlsdyno put into it, not of this \
                 machine: please report it with the versions of the server and of OpenSSL.",
            ),
            false => Warning::new("preflight_failed", what).with_remedy(
                "Its server's error log says more; `tlsdyno doctor` shows what this machine lacks, if it lacks \
                 something.",
            ),
        }
    };
    let warnings = checks.iter().filter(|check| !check.passed).map(warning).collect();
    Configuration {
        name: model.name.clone(),
        noop: model.noop,
        role,
        tls: !model.plain_http,
        host_number: server.host,
        preflight,
        valid,
        warnings,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tlsdyno_record::model::{Method, Processors, SessionCache, TlsChange};

    #[test]
    fn a_refusal_names_its_remedy_and_the_log_where_only_that_knows_why() {
        let told = |failed: &str| remedy(failed, &Tls::default(), "one\ntwo\nthree\nfour\n");
        assert!(told("the server sent the alert unrecognized_name").contains("--host"));
        assert!(told("the server sent the alert internal_error").ends_with(":\ntwo\nthree\nfour"));
        assert_eq!(told("status 404"), "");
        assert_eq!(remedy("the server sent the alert internal_error", &Tls::default(), ""), "");
    }

    #[test]
    fn configurations_are_recognised_by_what_they_replace() {
        let mut experiment = Experiment::default();
        experiment.fill();
        let place = |name: &str| experiment.configurations.iter().position(|model| model.name == name).unwrap();
        assert_eq!(roles(&experiment)[place("all off")], Role::AllOff);
        let singles = StageSet::PROVIDER;
        let role = |model: &ConfigurationModel| role_of(model, singles, &[]);
        assert_eq!(role(&ConfigurationModel::as_is()), Role::AsIs);
        assert_eq!(role(&ConfigurationModel::plain_http()), Role::PlainHttp);
        assert_eq!(role(&ConfigurationModel { idle_provider: true, ..ConfigurationModel::as_is() }), Role::Loaded);
        assert_eq!(role(&ConfigurationModel::without("x", [Stage::Kdf])), Role::StageOff(Stage::Kdf));
        assert_eq!(role(&ConfigurationModel::without("x", Stage::PROVIDER)), Role::AllOff);
        let two = ConfigurationModel::without("x", [Stage::Cipher, Stage::Mac]);
        assert_eq!(role(&two), Role::Several([Stage::Cipher, Stage::Mac].into_iter().collect()));
        assert_eq!(role_of(&two, two.noop, &[]), Role::AllOff);
        assert_eq!(role_of(&two, StageSet::NONE, &[]), Role::Several(two.noop));
        let burning = ConfigurationModel { burn_us: Some(50.0), ..ConfigurationModel::as_is() };
        assert_eq!(role(&burning), Role::Setting);
        let no_cache = TlsChange { session_cache: Some(SessionCache::Off), ..TlsChange::default() };
        let without = ConfigurationModel { tls: no_cache, ..ConfigurationModel::without("x", [Stage::Kdf]) };
        assert_eq!(role(&without), Role::Setting);
        let slow = ConfigurationModel { processors: Some(Processors::default()), ..ConfigurationModel::plain_http() };
        assert_eq!(role(&slow), Role::Setting);
        assert_eq!(role(&ConfigurationModel { idle_shim: true, ..ConfigurationModel::as_is() }), Role::Loaded);
    }

    #[test]
    fn what_is_computed_twice_is_recognised() {
        let mut experiment = Experiment { methods: vec![Method::Doubling], ..Experiment::default() };
        experiment.fill();
        let roles = roles(&experiment);
        let role = |name: &str| {
            let place = experiment.configurations.iter().position(|model| model.name == name).unwrap();
            roles[place].clone()
        };
        assert_eq!(role("as is"), Role::AsIs);
        assert_eq!(role("nothing doubled"), Role::NothingDoubled);
        assert_eq!(role("records copied"), Role::Copies);
        assert_eq!(role("KDF twice"), Role::Doubled([Stage::Kdf].into_iter().collect()));
        assert_eq!(role("cipher and MAC twice"), Role::Doubled([Stage::Cipher, Stage::Mac].into_iter().collect()));
        assert_eq!(role("all twice"), Role::AllDoubled);
    }
}
