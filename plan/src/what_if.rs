//! What if: changes as data, each with the cost or the traffic that it changes.

use std::path::Path;

use anyhow::{Context, Result};
use serde::Deserialize;
use tlsdyno_base::bootstrap::Estimate;

use crate::costs::Costs;
use crate::measured::Term;
use crate::model::Site;
use crate::traffic::Traffic;

const KNOWN: &str = include_str!("../../experiments/what-ifs.toml");

/// A change.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Change {
    /// What it is asked for by.
    pub name: String,
    /// What it is.
    pub says: String,
    /// Costs that it changes.
    #[serde(default)]
    of: Vec<Term>,
    /// By this part of a record of costs.
    #[serde(default)]
    part: String,
    /// So many times.
    #[serde(default = "once")]
    part_times: f64,
    /// Or by what one of these configurations costs more than the server as it is.
    #[serde(default)]
    configurations: Vec<String>,
    /// So many times.
    #[serde(default = "once")]
    configuration_times: f64,
    /// The machines share ticket keys.
    #[serde(default)]
    shares_keys: bool,
    /// Connections close after so long without a request, seconds.
    #[serde(default)]
    keep_alive_s: Option<u32>,
    /// What tells the difference.
    #[serde(default)]
    measured_by: String,
}

fn once() -> f64 {
    1.0
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    change: Vec<Change>,
}

/// The changes of these names, of those that come along or of a file.
///
/// # Errors
/// One is not known, or the file cannot be understood.
pub(crate) fn find(names: &[String]) -> Result<Vec<Change>> {
    let mut known = toml::from_str::<File>(KNOWN).context("what-ifs.toml")?.change;
    let mut asked = Vec::new();
    for name in names.iter().map(|name| name.trim()) {
        if name.ends_with(".toml") {
            let text = std::fs::read_to_string(name).with_context(|| format!("failed to read {name}"))?;
            let own = toml::from_str::<File>(&text).with_context(|| format!("{name} is not understood"))?.change;
            asked.extend(own.iter().cloned());
            known.extend(own);
            continue;
        }
        let all: Vec<&str> = known.iter().map(|change| change.name.as_str()).collect();
        let found = known.iter().find(|change| change.name == name);
        asked.push(found.with_context(|| format!("no change is called `{name}`; known: {}", all.join(", ")))?.clone());
    }
    Ok(asked)
}

impl Change {
    /// The site and its costs with the change; otherwise what is missing for it.
    pub fn made(&self, site: &Site, costs: &Costs, log: Option<&Path>) -> Result<(Site, Costs), String> {
        let lacks = |what: &str| Err(format!("{}: {what}; {}", self.name, self.measured_by));
        let mut site = site.clone();
        site.shares_keys |= self.shares_keys;
        if let Some(keep_alive_s) = self.keep_alive_s {
            let Some(log) = log else { return lacks("only a log tells when users come again") };
            let traffic = Traffic::of(log, Some(keep_alive_s)).map_err(|error| format!("{}: {error:#}", self.name))?;
            site.requests_per_connection = traffic.requests_per_connection;
            site.reuse_fraction = traffic.reuse_fraction;
        }
        if self.of.is_empty() {
            return Ok((site, costs.clone()));
        }
        match self.difference(costs) {
            Some(more_ns) => {
                let changed = costs.changed(&self.of, more_ns);
                match changed.below_zero() {
                    None => Ok((site, changed)),
                    Some(what) => Err(format!(
                        "{}: it takes away {:.0} µs, more than a {what} costs by these records; of a record of another \
                         server or certificate take the differences alone (RECORD@0)",
                        self.name,
                        -more_ns.value / 1e3
                    )),
                }
            }
            None => lacks("no record tells what it costs"),
        }
    }

    fn difference(&self, costs: &Costs) -> Option<Estimate> {
        let named = |name: &str| costs.differences.iter().find(|(of, _)| of == name).map(|(_, more)| *more);
        let part = named(&self.part).map(|of| times(of, self.part_times));
        let configuration = || self.configurations.iter().find_map(|name| named(name));
        part.or_else(|| configuration().map(|of| times(of, self.configuration_times)))
    }
}

fn times(of: Estimate, factor: f64) -> Estimate {
    let [one, two] = [of.low * factor, of.high * factor];
    Estimate { value: of.value * factor, low: one.min(two), high: one.max(two) }
}

#[cfg(test)]
mod tests {
    use tlsdyno_engine::dispatch::Policy;

    use super::*;
    use crate::costs::samples;
    use crate::model::Machines;

    fn site() -> Site {
        Site {
            rate_per_s: 1000.0,
            requests_per_connection: 1.0,
            reuse_fraction: 0.5,
            kilobytes: None,
            cpus: 1.0,
            policy: Policy::RoundRobin,
            shares_keys: false,
        }
    }

    fn all(names: &[&str]) -> Vec<Change> {
        find(&names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>()).unwrap()
    }

    #[test]
    fn a_change_changes_its_cost_with_its_interval() {
        let mut costs = samples::costs(0.01);
        let saves = Estimate { value: 600e3, low: 580e3, high: 620e3 };
        costs.differences.push(("its RSA certificate in place of its ECDSA one".to_owned(), saves));
        let (site, changed) = all(&["p-256"])[0].made(&site(), &costs, None).unwrap();
        let one = Machines { servers: 1, proxies: 0 };
        let [before, after] = [&costs, &changed].map(|costs| site.predict(costs, one, None).cpu_ns_per_hit);
        assert!((before.value - after.value - 300e3).abs() < 1e3, "half of the connections: {before:?} {after:?}");
        assert!(after.half_width() > before.half_width() * 1.2, "{before:?} {after:?}");
    }

    #[test]
    fn shared_keys_keep_all_sessions_and_what_is_missing_is_named() {
        let costs = samples::costs(0.0);
        let (shared, _) = all(&["shared ticket keys"])[0].made(&site(), &costs, None).unwrap();
        let two = Machines { servers: 2, proxies: 0 };
        assert_eq!([site().kept(two), shared.kept(two)], [0.5, 1.0]);
        let said = all(&["hybrid group"])[0].made(&site(), &costs, None).unwrap_err();
        assert!(said.contains("tlsdyno cost"), "{said}");
        let said = all(&["keep-alive 60s"])[0].made(&site(), &costs, None).unwrap_err();
        assert!(said.contains("--trace"), "{said}");
        let mut costs = costs;
        let saves = Estimate { value: 901e3, low: 900e3, high: 902e3 };
        costs.differences.push(("its RSA certificate in place of its ECDSA one".to_owned(), saves));
        let said = all(&["p-256"])[0].made(&site(), &costs, None).unwrap_err();
        assert!(said.contains("more than a connection with a full handshake costs"), "{said}");
        assert!(find(&["p-512".to_owned()]).unwrap_err().to_string().contains("known: p-256"));
    }
}
