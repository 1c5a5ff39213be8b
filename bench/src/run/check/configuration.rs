//! Configurations that make sense: hardware that can be emulated, stages that go together.

use anyhow::{Result, ensure};
use tlsdyno_tls::{Stage, StageSet};

use crate::model::{ConfigurationModel, Processors};
use crate::native::layout::provider as layout;

/// The slowest processor that is emulated: a quota must give each at least a hundredth of its period.
const SPEED_MIN: f64 = 0.01;

/// A configuration without what does not change what is measured: names, and the idle provider or
/// shim where a stage that is off loads it in any case.
pub(super) fn setting(model: &ConfigurationModel) -> ConfigurationModel {
    ConfigurationModel {
        name: String::new(),
        label: None,
        base: None,
        idle_provider: model.needs_provider(),
        idle_shim: model.needs_shim(),
        ..model.clone()
    }
}

/// Emulated hardware that makes sense.
pub(super) fn check_hardware(model: &ConfigurationModel) -> Result<()> {
    let positive = |value: f64| value.is_finite() && value > 0.0;
    if let Some(Processors { count, speed }) = model.processors {
        ensure!(count > 0, "`processors.count` must be at least 1");
        ensure!(
            (SPEED_MIN..=1.0).contains(&speed),
            "`processors.speed = {speed}`: expected a part of a real processor, {SPEED_MIN} to 1"
        );
    }
    if let Some(accelerator) = &model.accelerator {
        ensure!(
            (1..=layout::ENGINES_MAX as u32).contains(&accelerator.engines),
            "`accelerator.engines = {}`: expected 1 to {}",
            accelerator.engines,
            layout::ENGINES_MAX
        );
        ensure!(
            [accelerator.operation_us.is_some(), accelerator.cpu_rates.is_some(), accelerator.card.is_some()]
                .iter()
                .filter(|given| **given)
                .count()
                == 1,
            "an accelerator needs one of `operation_us` (time of one operation), `cpu_rates` (its rate as a multiple \
             of the CPU's own) and `card` (one of a paper)"
        );
        ensure!(
            accelerator.card.is_none() || model.burn_us.is_none(),
            "`accelerator.card` says what CPU time an operation leaves; leave `burn_us` out"
        );
        let speeds = [accelerator.operation_us, accelerator.cpu_rates];
        ensure!(
            speeds.into_iter().flatten().all(|value| positive(value) && value < 1e6),
            "`accelerator`: `operation_us` and `cpu_rates` must lie between 0 and 1,000,000"
        );
        ensure!(
            !model.noop.contains(Stage::Authentication),
            "an accelerator takes the place of `authentication`: leave that out of `noop`"
        );
    }
    if let Some(cost_us) = model.page_cost_us {
        ensure!(
            positive(cost_us) && cost_us < 1e7,
            "`page_cost_us = {cost_us}`: expected microseconds of CPU time, 0 to 10,000,000"
        );
    }
    if let Some(burn_us) = model.burn_us {
        ensure!(
            (0.0..1e6).contains(&burn_us),
            "`burn_us = {burn_us}`: expected microseconds of CPU time, 0 to 1,000,000"
        );
    }
    Ok(())
}

/// What can be computed twice.
pub(super) fn check_doubled(model: &ConfigurationModel) -> Result<()> {
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

/// Which stages of the shim go together (docs/NOOP.md).
pub(super) fn check_combination(off: StageSet) -> Result<()> {
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
