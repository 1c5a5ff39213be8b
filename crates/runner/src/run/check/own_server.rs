//! What a server of the user's own can be told: settings that stand in its configuration are put into the copy of an
//! installed one, or where the command has a place for them. Others are refused; none is left out in silence.

use anyhow::{Result, ensure};
use tlsdyno_record::model::{ConfigurationModel, Experiment, Tls, TlsChange};
use tlsdyno_servers::CommandSpec;
use tlsdyno_tls::Version;

use crate::run::own_command::{command_spec, command_specs, shows_ours};

/// Refuses settings of a user's own server that have no effect on it, in all configurations. The error names the
/// setting and the remedy.
pub(super) fn check(experiment: &Experiment) -> Result<()> {
    let all = experiment.tls.of_server();
    let mut commands = command_specs(experiment).into_iter();
    commands.try_for_each(|command| refuse_idle(&all, &command, &experiment.tls, true))
}

/// Refuses settings of this configuration that have no effect. The caller adds its name to errors.
pub(super) fn check_configuration(experiment: &Experiment, model: &ConfigurationModel, tls: &Tls) -> Result<()> {
    if !experiment.server.kind.is_users_own() {
        ensure!(
            model.tls.keep_alive_s.or(model.tls.record_bytes).is_none(),
            "`tls.keep_alive_s` and `tls.record_bytes` are for the copy of an installed server; leave them out"
        );
        return Ok(());
    }
    refuse_idle(&model.tls, &command_spec(experiment, Some(model)), tls, false)?;
    let count = model.processors.map_or(1, |processors| processors.count);
    let idle = "has no effect here: how many workers a server of your own has stands in its own configuration";
    ensure!(model.workers.is_none(), "`workers` {idle}");
    ensure!(
        count == 1,
        "`processors.count = {count}` {idle}. Name one with as many by `server_command`, or use --server nginx"
    );
    Ok(())
}

/// Refuses settings without effect. `by_all`: not those of a single configuration.
fn refuse_idle(asked: &TlsChange, command: &CommandSpec, tls: &Tls, by_all: bool) -> Result<()> {
    const CERTIFICATE: &str = "the certificate";
    let shown = shows_ours(command, tls);
    // Who does not offer to take any ticket gets none.
    let can_leave_out = tls.version == Version::Tls12;
    // What is not here is offered by clients, and the preflight sees what becomes of it. The last: a command that is
    // not the copy of an installed configuration can have it.
    let settings = [
        ("certificate", "--cert", CERTIFICATE, asked.certificate.is_some(), shown),
        ("chain_count", "", CERTIFICATE, asked.chain_count.is_some(), shown),
        ("tickets", "--no-tickets", "whether it issues tickets", asked.tickets.is_some(), can_leave_out),
        ("ticket_keys", "--ticket-keys", "where the keys of its tickets come from", asked.ticket_keys.is_some(), false),
        ("session_cache", "--session-cache", "where it keeps sessions", asked.session_cache.is_some(), false),
        ("session_timeout_s", "", "how long its sessions last", asked.session_timeout_s.is_some(), false),
        ("keep_alive_s", "", "how long it keeps connections", asked.keep_alive_s.is_some(), false),
        ("record_bytes", "", "how long its records are", asked.record_bytes.is_some(), false),
    ];
    for (key, flag, what, _, can_have) in settings.into_iter().filter(|(.., is_asked, _)| *is_asked) {
        let is_copy = command.original.is_some();
        let is_applied = if is_copy { key != "chain_count" || tls.certificate.is_some() } else { can_have };
        let whose = if by_all && !flag.is_empty() { format!("{flag} (`tls.{key}`)") } else { format!("`tls.{key}`") };
        let another = if by_all { "leave it out" } else { "name another server by `server_command` there" };
        let places = "put {certificate} and {key} into the command or a file that it names, ";
        ensure!(
            is_applied || is_copy,
            "{whose} has no effect here: {what} of a server of your own stands in its own configuration. Change it \
             there, {}or {another}. `tlsdyno ablate --server-config` measures a copy of an installed nginx with it",
            if what == CERTIFICATE { places } else { "" }
        );
        ensure!(is_applied, "{whose} goes with a certificate of ours: name its kind too (`tls.certificate`, --cert)");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use tlsdyno_tls::{Group, Suite};

    use super::*;
    use crate::run::check::CheckExperiment;
    use tlsdyno_record::model::workload::WorkloadSpec;
    use tlsdyno_record::model::{CertificateKind, Processors, Server, ServerName, SessionCache, TicketKeys};

    /// A server command without placeholders for a certificate.
    const OWN: &str = "server -p {port}";
    /// A server command that shows the certificate that it is given.
    const WITH_PLACES: &str = "server --cert {certificate} --key {key} -p {port}";

    fn experiment(command: &str, config: Option<&str>) -> Experiment {
        let server = Server {
            kind: ServerName::Command,
            command: Some(command.to_owned()),
            address: Some("127.0.0.1:{port}".to_owned()),
            config: config.map(Into::into),
            ..Server::default()
        };
        let workload = WorkloadSpec::Url { path: "/".to_owned(), bytes: None, users: 9, requests_per_user: 1 };
        Experiment { server, workload, configurations: vec![ConfigurationModel::as_is()], ..Experiment::default() }
    }

    /// Messages about a configuration with this change, on the three kinds of own servers.
    fn said(change: &TlsChange) -> [String; 3] {
        [(OWN, None), (WITH_PLACES, None), ("nginx", Some("/etc/nginx/nginx.conf"))].map(|(command, config)| {
            let mut of = experiment(command, config);
            let name = "changed".to_owned();
            of.configurations.push(ConfigurationModel { name, tls: change.clone(), ..ConfigurationModel::as_is() });
            of.check().map_or_else(|error| format!("{error:#}"), |()| String::new())
        })
    }

    /// Covers every key of a configuration's `tls`: a new key does not compile until it has its line here.
    #[test]
    fn every_setting_is_applied_or_refused() {
        let all = TlsChange {
            version: Some(Version::Tls12),
            suite: Some(Suite::Tls13Aes256Gcm),
            group: Some(Group::P256),
            certificate: Some(CertificateKind::P256),
            chain_count: Some(2),
            tickets: Some(true),
            ticket_keys: Some(TicketKeys::Shared),
            session_cache: Some(SessionCache::Shared),
            session_timeout_s: Some(9),
            early_data: Some(true),
            http2: Some(true),
            keep_alive_s: Some(75),
            record_bytes: Some(4096),
        };
        let TlsChange {
            version,
            suite,
            group,
            certificate,
            chain_count,
            tickets,
            ticket_keys,
            session_cache,
            session_timeout_s,
            early_data,
            http2,
            keep_alive_s,
            record_bytes,
        } = all;
        let none = TlsChange::default;
        let [yes, no] = [true, false];
        // Of an own server, of one with places for a certificate, of the copy of an installed one.
        let table = [
            ("version", TlsChange { version, ..none() }, [yes; 3]),
            ("suite", TlsChange { suite, ..none() }, [yes; 3]),
            ("group", TlsChange { group, ..none() }, [yes; 3]),
            ("certificate", TlsChange { certificate, ..none() }, [no, yes, yes]),
            ("chain_count", TlsChange { chain_count, ..none() }, [no, yes, no]),
            ("chain_count", TlsChange { certificate, chain_count, ..none() }, [no, yes, yes]),
            ("tickets", TlsChange { tickets, ..none() }, [no, no, yes]),
            ("tickets", TlsChange { version, tickets, ..none() }, [yes; 3]),
            ("ticket_keys", TlsChange { ticket_keys, ..none() }, [no, no, yes]),
            ("session_cache", TlsChange { session_cache, ..none() }, [no, no, yes]),
            ("session_timeout_s", TlsChange { session_timeout_s, ..none() }, [no, no, yes]),
            ("keep_alive_s", TlsChange { keep_alive_s, ..none() }, [no, no, yes]),
            ("record_bytes", TlsChange { record_bytes, ..none() }, [no, no, yes]),
            // Offered, and the preflight sees whether it is taken.
            ("early_data", TlsChange { early_data, ..none() }, [yes; 3]),
            ("http2", TlsChange { http2, ..none() }, [yes; 3]),
        ];
        for (key, change, applied) in table {
            for (said, applied) in said(&change).into_iter().zip(applied) {
                let named =
                    said.contains("configuration `changed`") && said.contains("tls.") && said.contains("rtificate")
                        || said.contains(&format!("`tls.{key}`"));
                assert_eq!(said.is_empty(), applied, "{key}: {said}");
                assert!(applied || named, "{key}: {said}");
            }
        }
    }

    #[test]
    fn what_all_configurations_are_to_have_is_refused_by_its_flag() {
        let said = |command: &str, config, edit: fn(&mut Tls)| {
            let mut of = experiment(command, config);
            edit(&mut of.tls);
            of.check().map_or_else(|error| format!("{error:#}"), |()| String::new())
        };
        type Edit = fn(&mut Tls);
        let edits: [(&str, Edit); 5] = [
            ("--cert", |tls| tls.certificate = Some(CertificateKind::P256)),
            ("--session-cache", |tls| tls.session_cache = Some(SessionCache::Shared)),
            ("--ticket-keys", |tls| tls.ticket_keys = Some(TicketKeys::Own)),
            ("--no-tickets", |tls| tls.tickets = false),
            ("tls.session_timeout_s", |tls| tls.session_timeout_s = Some(5)),
        ];
        for (flag, edit) in edits {
            let refused = said(OWN, None, edit);
            assert!(
                refused.contains(flag) && refused.contains("of a server of your own stands in"),
                "{flag}: {refused}"
            );
            assert_eq!(said("nginx", Some("/etc/nginx/nginx.conf"), edit), "", "{flag}");
        }
        assert_eq!(said(WITH_PLACES, None, |tls| tls.certificate = Some(CertificateKind::P256)), "");
        assert_eq!(said(OWN, None, |_| ()), "");
        let dbm: Edit = |tls| tls.session_cache = Some(SessionCache::Dbm);
        assert!(said("nginx", Some("/etc/nginx/nginx.conf"), dbm).contains("nginx has no session cache `dbm`"));
    }

    #[test]
    fn workers_of_an_own_server_are_its_own() {
        let mut of = experiment(OWN, None);
        let processors = Some(Processors { count: 2, speed: 0.4 });
        of.configurations.push(ConfigurationModel {
            name: "two".to_owned(),
            processors,
            ..ConfigurationModel::as_is()
        });
        assert!(format!("{:#}", of.check().unwrap_err()).contains("`processors.count = 2`"));
    }

    #[test]
    fn an_ecdsa_suite_of_an_own_server_needs_no_word_on_its_certificate() {
        let mut of = experiment(OWN, None);
        of.tls.version = Version::Tls12;
        of.tls.suite = Some(Suite::EcdheEcdsaAes128Gcm);
        of.check().unwrap();
        of.server = Server::default();
        assert!(of.check().unwrap_err().to_string().contains("needs an ECDSA certificate"));
    }
}
