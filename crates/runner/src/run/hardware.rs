//! Emulated hardware of a configuration: from what the experiment says to what the provider does, and the checks that
//! it does so.

use std::path::Path;

use anyhow::{Context, Result};
use openssl::hash::MessageDigest;
use openssl::pkey::{PKey, Private};
use openssl::sign::Signer;
use tlsdyno_base::affinity::on_cpu;
use tlsdyno_native::{Engines, Hardware};
use tlsdyno_record::model::{Accelerator, Batch, Card, ConfigurationModel, Machine, Processors, speed_beside};
use tlsdyno_servers::quota::{self, Quota};
use tlsdyno_sys::thread_cpu_ns;

use super::preflight::Check;

/// CPU time for measuring the rate of private-key operations, nanoseconds for each of [`BATCHES`].
const BATCH_NS: u64 = 20_000_000;
/// Number of batches, whose median counts.
const BATCHES: usize = 7;

/// Workers beyond the processors for each operation done at once, where a worker waits for its operation. At the
/// papers' busiest a card works three quarters of its time (Coarfa et al. 2006, section 3.6: 757 hits a second; by our
/// reading a third of them full handshakes; 330 operations a second): then more than eight are seldom there at once.
const WAITING_EACH: u32 = 8;

/// Settings of the provider in this configuration's server. `key`: private key in PEM; `cpu`: where the rate of its
/// operation is measured for a declared accelerator; `machines`: of the experiment.
pub fn hardware(model: &ConfigurationModel, machines: &[Machine], key: &Path, cpu: usize) -> Result<Hardware> {
    let burn_instructions = model.burn_instructions.unwrap_or(0);
    let with = |accelerator| Hardware { accelerator, burn_ns: model.burn_ns(), burn_instructions };
    let Some(accelerator) = &model.accelerator else { return Ok(with(None)) };
    if let Some(card) = accelerator.card {
        let speed = speed_beside(machines, card.beside().1).context("a card needs machines to stand beside")?;
        return Ok(of_card(card, accelerator.engines, speed, private_key_ns(key, cpu)?));
    }
    let own_ns = if accelerator.cpu_rates.is_some() { private_key_ns(key, cpu)? } else { 0.0 };
    Ok(with(Some(engines(accelerator, model.processors.unwrap_or_default(), own_ns))))
}

/// A card of the papers. `speed`: speed of the paper's processor as a part of ours; `own_ns`: CPU time of one operation
/// at full speed. A quota does not change that CPU time, so that what the card leaves of it is, like the card's own
/// time, the same on all machines.
fn of_card(card: Card, engines: u32, speed: f64, own_ns: f64) -> Hardware {
    let all_ns = own_ns / speed * card.beside().0 / card.operations_per_s();
    let operation_ns = (f64::from(engines) * all_ns).round().max(1.0) as u64;
    let burn_ns = (own_ns / card.effective_speed()).round() as u64;
    Hardware { accelerator: Some(Engines::one_by_one(engines, operation_ns)), burn_ns, burn_instructions: 0 }
}

/// `own_ns`: CPU time of one private-key operation on a whole processor; a slower processor has a lower rate.
fn engines(accelerator: &Accelerator, processors: Processors, own_ns: f64) -> Engines {
    let of_rates = |rates: f64| f64::from(accelerator.engines) * own_ns / processors.speed / rates;
    let operation_ns = match (accelerator.operation_us, accelerator.cpu_rates) {
        (Some(us), _) => us * 1e3,
        (None, rates) => of_rates(rates.unwrap_or(1.0)),
    };
    let engines = Engines::one_by_one(accelerator.engines, operation_ns.round().max(1.0) as u64);
    let batched = |of: Batch| Engines { batch: of.operations_count, gather_ns: (of.gather_us * 1e3) as u64, ..engines };
    accelerator.batch.map_or(engines, batched)
}

/// CPU time of one signature, nanoseconds, by the system's libcrypto, which the servers use too, in a thread on `cpu`.
pub fn private_key_ns(key: &Path, cpu: usize) -> Result<f64> {
    let pem = tlsdyno_base::input::read(key, tlsdyno_base::input::TEXT_BYTES_MAX)
        .with_context(|| format!("read the private key {}", key.display()))?;
    let key = PKey::private_key_from_pem(&pem).context("the server's private key")?;
    on_cpu(cpu, || signatures_ns(&key))
}

fn signatures_ns(key: &PKey<Private>) -> Result<f64> {
    let sign = || -> Result<()> {
        let mut signer = Signer::new(MessageDigest::sha256(), key)?;
        signer.sign_oneshot_to_vec(b"tlsdyno").map(drop).context("sign")
    };
    // The first one makes tables and blinding values.
    sign()?;
    let mut means = Vec::new();
    for _ in 0..BATCHES {
        let began = thread_cpu_ns();
        let mut count = 0;
        while thread_cpu_ns() - began < BATCH_NS {
            sign()?;
            count += 1;
        }
        means.push((thread_cpu_ns() - began) as f64 / f64::from(count));
    }
    means.sort_by(f64::total_cmp);
    Ok(means[BATCHES / 2])
}

/// Counters of the provider that one full handshake must raise by one, each with the reason.
pub fn counted_once(model: &ConfigurationModel) -> Vec<(&'static str, &'static str)> {
    let accelerator = model.accelerator.as_ref();
    let burns = model.burn_us.is_some_and(|us| us > 0.0) || accelerator.is_some_and(|of| of.card.is_some());
    [
        (accelerator.is_some(), "accelerated", "private-key operations run in the accelerator (counter)"),
        (accelerator.is_some_and(|of| of.asynchronous), "accelerated_async", "the server goes on meanwhile (counter)"),
        (burns, "burns", "private-key operations burn CPU time (counter)"),
    ]
    .into_iter()
    .filter_map(|(is_declared, counter, name)| is_declared.then_some((counter, name)))
    .collect()
}

/// Checks that a quota stops a process from using more CPU time.
pub fn quota_check(limit: &Quota) -> Check {
    let name = "the quota of CPU time is in force";
    match limit.exercise() {
        Ok(times) => {
            let seen = limit.cpus().map_or_else(
                |error| format!("{error:#}"),
                |cpus| {
                    let period_ms = quota::period_us(cpus) / 1000;
                    format!("{cpus} CPUs in periods of {period_ms} ms; loops were stopped {times} times")
                },
            );
            Check::new(name, times > 0, seen)
        }
        Err(error) => Check::new(name, false, format!("{error:#}")),
    }
}

/// For the manifest; `None` where no hardware is emulated.
pub fn description(
    model: &ConfigurationModel,
    placement: &super::cpus::Placement,
    workers: u32,
    hardware: Option<Hardware>,
    load_cpu: usize,
) -> Option<String> {
    let mut parts = Vec::new();
    if let Some(Processors { count, speed }) = model.processors {
        let list = placement.server.iter().map(ToString::to_string).collect::<Vec<_>>().join(" and ");
        let shared = if placement.server.contains(&load_cpu) { ", of which the load has the rest" } else { "" };
        parts.push(match placement.quota_cpus {
            Some(quota) => {
                format!("{count} x {speed} of a processor: a quota of {quota:.3} CPUs on CPU {list}{shared}")
            }
            None => format!("{count} whole processors: CPU {list}"),
        });
    }
    if let Some(hardware) = hardware {
        parts.extend(hardware.accelerator.map(|engines| engines.describe(workers)));
        if hardware.burn_ns > 0 {
            parts.push(format!(
                "{:.1} us of CPU time burnt by each private-key operation",
                hardware.burn_ns as f64 / 1e3
            ));
        }
    }
    (!parts.is_empty()).then(|| parts.join("; "))
}

/// Processes or threads of the server: as configured, else one per processor. Where each operation of an accelerator
/// blocks one, more, so that processors stay busy (as by Apache's many processes in Coarfa et al. 2006).
pub fn workers(model: &ConfigurationModel) -> u32 {
    if let Some(workers) = model.workers {
        return workers;
    }
    let processors = model.processors.unwrap_or_default().count;
    let blocked = model.accelerator.as_ref().filter(|accelerator| !accelerator.asynchronous);
    let at_once = |of: &Accelerator| of.engines * of.batch.map_or(1, |batch| batch.operations_count);
    processors + blocked.map_or(0, |accelerator| WAITING_EACH * at_once(accelerator))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn accelerator(engines: u32, operation_us: Option<f64>, cpu_rates: Option<f64>) -> Accelerator {
        Accelerator { engines, operation_us, cpu_rates, ..Accelerator::default() }
    }

    #[test]
    fn rates_are_multiples_of_the_processor_beside() {
        let of = |accelerator: &Accelerator, speed| {
            let engines = engines(accelerator, Processors { count: 1, speed }, 600_000.0);
            f64::from(engines.count) * 1e9 / engines.operation_ns as f64
        };
        // A whole processor makes 1,667 signatures a second; one of half its speed half as many.
        assert!((of(&accelerator(1, None, Some(4.0)), 1.0) - 6_666.7).abs() < 1.0);
        assert!((of(&accelerator(3, None, Some(4.0)), 0.5) - 3_333.3).abs() < 1.0);
        assert!((of(&accelerator(2, Some(500.0), None), 0.5) - 4_000.0).abs() < 1.0);
    }

    #[test]
    fn a_card_is_as_fast_beside_every_machine() {
        // A processor here needs 70.4 µs, as a fifth of one 352 µs: 2,841 a second, of which the card does 330/70.4.
        let hardware = of_card(Card::Axl300, 1, 0.2, 70_400.0);
        assert_eq!(hardware.accelerator, Some(Engines::one_by_one(1, 75_093)));
        assert_eq!(hardware.burn_ns, 7_489);
        assert_eq!(of_card(Card::Axl300, 2, 0.2, 70_400.0).accelerator.unwrap().operation_ns, 150_187);
    }

    #[test]
    fn a_private_key_operation_takes_time() {
        let directory = tempfile::tempdir().unwrap();
        let key = PKey::from_ec_key(
            openssl::ec::EcKey::generate(
                &openssl::ec::EcGroup::from_curve_name(openssl::nid::Nid::X9_62_PRIME256V1).unwrap(),
            )
            .unwrap(),
        )
        .unwrap();
        let path = directory.path().join("key.pem");
        std::fs::write(&path, key.private_key_to_pem_pkcs8().unwrap()).unwrap();
        let cpu = super::super::cpus::allowed()[0];
        let ns = private_key_ns(&path, cpu).unwrap();
        assert!((1_000.0..100_000_000.0).contains(&ns), "{ns} ns");
    }

    #[test]
    fn workers_go_on_while_others_wait() {
        let with = |accelerator, count| {
            let processors = Some(Processors { count, speed: 0.4 });
            workers(&ConfigurationModel { accelerator, processors, ..ConfigurationModel::as_is() })
        };
        assert_eq!(with(None, 2), 2);
        let control = ConfigurationModel { workers: Some(9), ..ConfigurationModel::as_is() };
        assert_eq!(workers(&control), with(Some(accelerator(1, Some(1.0), None)), 1));
        assert_eq!(with(Some(accelerator(3, Some(1.0), None)), 2), 26);
        let asynchronous = Accelerator { asynchronous: true, ..accelerator(3, Some(1.0), None) };
        assert_eq!(with(Some(asynchronous), 2), 2);
    }
}
