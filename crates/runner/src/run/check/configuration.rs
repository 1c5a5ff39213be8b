//! Configurations that make sense: hardware that can be emulated, stages that go together.

use anyhow::{Context, Result, ensure};
use tlsdyno_native::layout::provider as layout;
use tlsdyno_record::model::{Accelerator, Batch, ConfigurationModel, Experiment, Processors, ServerName, Tls};
use tlsdyno_servers::{driver_of, having};
use tlsdyno_tls::{Stage, StageSet};

use super::{check_sessions, expect, own_server, server};

/// Minimum speed of an emulated processor: a quota must give each at least a hundredth of its period.
const SPEED_MIN: f64 = 0.01;

/// The most workers that a configuration may ask for.
const WORKERS_MAX: u32 = 256;

/// Checks one configuration of an experiment. The caller adds its name to errors.
pub(super) fn check(experiment: &Experiment, index: usize) -> Result<()> {
    let (model, others) = (&experiment.configurations[index], &experiment.configurations[..index]);
    let tls = model.tls.applied(&experiment.tls);
    check_combination(model.noop)?;
    check_hardware(model)?;
    own_server::check_configuration(experiment, model, &tls)?;
    server::check_tls(&tls, experiment.server.kind)?;
    let workers = model.workers.unwrap_or(model.processors.map_or(1, |processors| processors.count));
    expect("workers", workers, model.workers.is_none() || (1..=WORKERS_MAX).contains(&workers), "1 to 256")?;
    check_sessions(experiment, model.server(experiment.server.kind), &tls, workers)?;
    check_shim(model.noop, &tls)?;
    let alters = model.needs_provider() || model.needs_shim();
    ensure!(
        !(model.plain_http && (alters || model.needs_doubler())),
        "plain HTTP has no TLS stages to switch off or to compute twice"
    );
    ensure!(
        !(alters && model.needs_doubler()),
        "provider and doubler both wrap OpenSSL's default provider; a configuration either replaces stages or doubles \
         some (`doubled`, `copies`)"
    );
    check_doubled(model)?;
    check_server(experiment, model)?;
    let card = model.accelerator.as_ref().and_then(|accelerator| accelerator.card);
    ensure!(
        card.is_none() || !experiment.machines.is_empty(),
        "a card of a paper stands beside `machines` of that paper; name some, or give `cpu_rates`"
    );
    let is_there = |name: &String| experiment.configurations.iter().any(|of| of.name == *name);
    ensure!(
        model.base.as_ref().is_none_or(is_there),
        "it is on a machine what another one is that is not there; leave `base` out"
    );
    check_repeat(experiment, model)?;
    ensure!(others.iter().all(|other| other.name != model.name), "two configurations are named `{}`", model.name);
    for other in others {
        let same = setting(other) == setting(model);
        ensure!(!same, "configurations `{}` and `{}` are the same setting; leave one out", other.name, model.name);
    }
    Ok(())
}

/// The server of a configuration, if it differs from the experiment's, and settings of some servers only.
fn check_server(experiment: &Experiment, model: &ConfigurationModel) -> Result<()> {
    let server = model.server(experiment.server.kind);
    let is_asynchronous = model.accelerator.as_ref().is_some_and(|accelerator| accelerator.asynchronous);
    ensure!(
        !is_asynchronous || driver_of(server).capabilities.is_none_or(|able| able.asynchronous),
        "only {able} goes on while an accelerator works; leave `asynchronous` out, or choose --server {able}",
        able = having(|able| able.asynchronous)
    );
    let [is_own, is_beside_own] =
        [model.server.unwrap_or_default(), experiment.server.kind].map(ServerName::is_users_own);
    ensure!(
        !is_own && model.server != Some(experiment.server.kind),
        "`server` names another server that tlsdyno configures than the experiment's"
    );
    ensure!(model.server.is_none() || !is_beside_own, "beside a server command there is no other server");
    ensure!(
        model.page_cost_us.is_none() || server == ServerName::Builtin,
        "only the built-in server makes pages of a stated cost (`page_cost_us`); choose --server builtin"
    );
    Ok(())
}

/// A repetition must be deliberate: exactly the setting that it names.
fn check_repeat(experiment: &Experiment, model: &ConfigurationModel) -> Result<()> {
    let Some(repeated) = &model.repeat_of else { return Ok(()) };
    let original = experiment.configurations.iter().find(|of| of.name == *repeated && of.name != model.name);
    let original = original.with_context(|| format!("it repeats `{repeated}`, which is not there"))?;
    let plain = |of: &ConfigurationModel| setting(&ConfigurationModel { repeat_of: None, ..of.clone() });
    ensure!(plain(original) == plain(model), "it says that it repeats `{repeated}`, but it is another setting");
    Ok(())
}

/// Requirements of the shim's stages on the TLS settings.
fn check_shim(off: StageSet, tls: &Tls) -> Result<()> {
    ensure!(
        !off.contains(Stage::Setup) || tls.suite.is_some(),
        "without any set-up (`setup` off) no suite is negotiated: name one (--suite, or suite in [tls])"
    );
    ensure!(
        !tls.early_data || !off.contains(Stage::Marshalling) && !off.contains(Stage::Setup),
        "early data need a real handshake and protected data: leave `marshalling` and `setup` on, or early_data out"
    );
    ensure!(
        !tls.http2 || !off.contains(Stage::Handshake) && !off.contains(Stage::Setup),
        "HTTP/2 is chosen in the handshake (ALPN): leave `handshake` and `setup` on, or --http2 out"
    );
    Ok(())
}

/// A configuration without names, and without the idle provider or shim where a stage that is off loads it in any case:
/// equal ones measure the same.
fn setting(model: &ConfigurationModel) -> ConfigurationModel {
    ConfigurationModel {
        name: String::new(),
        label: None,
        base: None,
        idle_provider: model.needs_provider(),
        idle_shim: model.needs_shim(),
        ..model.clone()
    }
}

fn check_hardware(model: &ConfigurationModel) -> Result<()> {
    if let Some(Processors { count, speed }) = model.processors {
        expect("processors.count", count, count > 0, "at least 1")?;
        let is_emulated = (SPEED_MIN..=1.0).contains(&speed);
        expect("processors.speed", speed, is_emulated, "a part of a real processor, 0.01 to 1")?;
    }
    if let Some(accelerator) = &model.accelerator {
        check_accelerator(accelerator)?;
        ensure!(
            accelerator.card.is_none() || model.burn_us.is_none(),
            "`accelerator.card` says what CPU time an operation leaves; leave `burn_us` out"
        );
        ensure!(
            !model.noop.contains(Stage::Authentication),
            "an accelerator takes the place of `authentication`: leave that out of `noop`"
        );
    }
    if let Some(us) = model.page_cost_us {
        expect("page_cost_us", us, us > 0.0 && us < 1e7, "microseconds of CPU time, 0 to 10,000,000")?;
    }
    model.burn_us.map_or(Ok(()), |us| {
        expect("burn_us", us, (0.0..1e6).contains(&us), "microseconds of CPU time, 0 to 1,000,000")
    })
}

/// Refuses an accelerator that cannot be emulated.
pub fn check_accelerator(accelerator: &Accelerator) -> Result<()> {
    let (engines, most) = (accelerator.engines, layout::ENGINES_MAX as u32);
    expect("accelerator.engines", engines, (1..=most).contains(&engines), &format!("1 to {most}"))?;
    let given = [accelerator.operation_us.is_some(), accelerator.cpu_rates.is_some(), accelerator.card.is_some()];
    ensure!(
        given.into_iter().filter(|given| *given).count() == 1,
        "an accelerator needs one of `operation_us` (time of one operation), `cpu_rates` (its rate as a multiple \
         of the CPU's own) and `card` (one of a paper)"
    );
    let speeds = [accelerator.operation_us, accelerator.cpu_rates];
    ensure!(
        speeds.into_iter().flatten().all(|value| value > 0.0 && value < 1e6),
        "`accelerator`: `operation_us` and `cpu_rates` must lie between 0 and 1,000,000"
    );
    let Some(Batch { operations_count, gather_us }) = accelerator.batch else { return Ok(()) };
    let most = layout::BATCH_MAX;
    ensure!(
        (2..=most as u32).contains(&operations_count) && (0.0..1e6).contains(&gather_us) && given[0],
        "`accelerator.batch` needs `operation_us`, the time of a batch, and expects 2 to {most} `operations_count` and \
         0 to 1,000,000 `gather_us`"
    );
    Ok(())
}

/// Refuses stages that cannot be computed twice.
fn check_doubled(model: &ConfigurationModel) -> Result<()> {
    let stages = model.doubled.unwrap_or_default();
    ensure!(
        stages.shim().is_empty(),
        "`doubled`: {} are no computations and cannot be done twice; possible are {}",
        stages.shim(),
        StageSet::PROVIDER
    );
    ensure!(
        !model.copies || stages.is_empty(),
        "`copies` and `doubled` exclude each other: doubling records copies them in any case"
    );
    Ok(())
}

fn check_combination(off: StageSet) -> Result<()> {
    let without = |stage| off.contains(stage);
    ensure!(
        !without(Stage::Handshake) || without(Stage::Marshalling),
        "a skeleton handshake agrees on no keys, so its data must travel in plain: switch `marshalling` off too"
    );
    ensure!(
        !without(Stage::RoundTrip)
            || without(Stage::Marshalling) && (without(Stage::Handshake) || without(Stage::SessionCache)),
        "fast resumption (`round_trip` off) needs `marshalling` off, and `handshake` or `session_cache`"
    );
    ensure!(
        !without(Stage::Setup) || off.shim() == StageSet::NONE.with(Stage::Setup),
        "a minimal set-up has neither handshake nor sessions: switch no other stage of the shim off with `setup`"
    );
    Ok(())
}
