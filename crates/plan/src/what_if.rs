//! What if: changes as data, each with the cost or the traffic that it changes.

use std::path::Path;

use anyhow::{Context, Result};
use serde::Deserialize;
use tlsdyno_base::units::format_micros;
use tlsdyno_cost::choice::{Choice, reversed};
use tlsdyno_record::model::{RemedyId, TicketKeys};

use crate::costs::Costs;
use crate::measured::Term;
use crate::model::Site;
use crate::traffic::Traffic;

const KNOWN: &str = include_str!("../../../experiments/what-ifs.toml");

#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Change {
    /// The name by which it is asked for.
    pub name: String,
    /// What it is, for readers of the file.
    #[serde(default)]
    says: String,
    /// The remedy that it is: what that changes need not be said again.
    remedy: Option<RemedyId>,
    /// Kinds of work whose costs it changes as a choice does.
    #[serde(default)]
    of: Vec<Term>,
    /// What handshakes negotiate then.
    to: Option<Choice>,
    /// Instead of a choice: certificate and signature cost so many times what they do.
    signature_times: Option<f64>,
    /// The machines share ticket keys.
    #[serde(default)]
    shares_keys: bool,
    /// Connections close after so long without a request, seconds.
    keep_alive_s: Option<u32>,
    #[serde(default)]
    measured_by: String,
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
    let changes = |text: &str| -> Result<Vec<Change>, toml::de::Error> {
        Ok(toml::from_str::<File>(text)?.change.into_iter().map(Change::completed).collect())
    };
    let mut known = changes(KNOWN).context("what-ifs.toml")?;
    let mut asked = Vec::new();
    for name in names.iter().map(|name| name.trim()) {
        if name.ends_with(".toml") {
            let text = std::fs::read_to_string(name).with_context(|| format!("failed to read {name}"))?;
            let own = changes(&text).with_context(|| format!("{name} is not understood"))?;
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
    /// This change, with what its remedy changes filled in.
    fn completed(self) -> Change {
        let Some(remedy) = self.remedy.map(RemedyId::remedy) else { return self };
        let to = self.to.or(Choice::of_change(&remedy.change));
        let of = match (self.of.as_slice(), to) {
            // Another signature costs nothing where a session is resumed.
            ([], Some(Choice::Group(_))) => vec![Term::Full, Term::Resumed],
            ([], _) => vec![Term::Full],
            _ => self.of,
        };
        Change {
            of,
            to,
            signature_times: self.signature_times.or(remedy.signature_times),
            shares_keys: self.shares_keys || remedy.change.ticket_keys == Some(TicketKeys::Shared),
            keep_alive_s: self.keep_alive_s.or(remedy.change.keep_alive_s),
            ..self
        }
    }

    /// The site and its costs with the change; otherwise what is missing for it.
    pub fn made(&self, site: &Site, costs: &Costs, log: Option<&Path>) -> Result<(Site, Costs), String> {
        let lacks = |what: &str| format!("{}: {what}; {}", self.name, self.measured_by);
        let mut site = site.clone();
        site.shares_keys |= self.shares_keys;
        if let Some(keep_alive_s) = self.keep_alive_s {
            let Some(log) = log else { return Err(lacks("only a log tells when users come again")) };
            let traffic = Traffic::of(log, Some(keep_alive_s)).map_err(|error| format!("{}: {error:#}", self.name))?;
            site.requests_per_connection = traffic.requests_per_connection;
            site.reuse_fraction = traffic.reuse_fraction;
        }
        let more_ns = match (self.to, self.signature_times) {
            (Some(_), _) if self.is_there(costs) => return Ok((site, costs.clone())),
            (Some(to), _) => {
                let Some(from) = costs.told.agreed.iter().copied().find(|from| from.is_like(to)) else {
                    let what = format!("the records do not tell what their cells have in place of {}", to.told());
                    return Err(lacks(&what));
                };
                let told = costs.told.difference(from, to);
                told.ok_or_else(|| format!("no record tells what {} costs in place of {}", to.told(), from.told()))
            }
            (None, Some(times)) => {
                let less_ns = costs.told.signature_ns.map(|of| reversed(of.scaled(1.0 - times)));
                less_ns.ok_or_else(|| "no record tells what a signature costs".to_owned())
            }
            (None, None) => return Ok((site, costs.clone())),
        };
        let more_ns = more_ns.map_err(|what| lacks(&what))?;
        let changed = costs.changed(&self.of, more_ns);
        let changed = match self.to {
            Some(to) => changed.with_choice(to, more_ns),
            None => changed,
        };
        match changed.refused() {
            None => Ok((site, changed)),
            Some(what) => Err(format!(
                "{}: it changes a handshake by {} µs, and then {what}; of a record of another server take the \
                 differences alone (RECORD@0)",
                self.name,
                more_ns.with_interval(format_micros)
            )),
        }
    }

    /// Whether the cells have it already, so that it gains nothing.
    pub fn is_there(&self, costs: &Costs) -> bool {
        self.to.is_some_and(|to| costs.told.agreed.contains(&to))
    }

    /// Choices come first: what a signature costs follows from them.
    pub fn is_factor(&self) -> bool {
        self.signature_times.is_some()
    }
}

#[cfg(test)]
mod tests {
    use tlsdyno_base::bootstrap::Estimate;
    use tlsdyno_engine::dispatch::Policy;
    use tlsdyno_record::model::CertificateKind;

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

    /// RSA at first; ECDSA costs so many microseconds less.
    fn with_both(saves_us: f64) -> Costs {
        let mut costs = samples::costs(0.01);
        let more_ns = Estimate { value: -1e3 * saves_us, low: -1.1e3 * saves_us, high: -0.9e3 * saves_us };
        let [from, to] = [CertificateKind::Rsa2048, CertificateKind::P256].map(Choice::Certificate);
        costs.told.differences.push((from, to, more_ns));
        costs.told.signature_ns = Some(Estimate { value: 350e3, low: 340e3, high: 360e3 });
        costs
    }

    fn per_hit(costs: &Costs) -> Estimate {
        site().predict(costs, Machines { servers: 1, proxies: 0 }, None).cpu_ns_per_hit
    }

    #[test]
    fn a_change_changes_its_cost_with_its_interval() {
        let costs = with_both(200.0);
        let (_, changed) = all(&["p-256"])[0].made(&site(), &costs, None).unwrap();
        let [before, after] = [&costs, &changed].map(per_hit);
        assert!((before.value - after.value - 100e3).abs() < 1e3, "half of the connections: {before:?} {after:?}");
        assert!(after.half_width() > before.half_width() * 1.2, "{before:?} {after:?}");
        // A signature of the certificate that it has then.
        let (_, both) = all(&["accelerator 4x"])[0].made(&site(), &changed, None).unwrap();
        assert!((after.value - per_hit(&both).value - 0.5 * 0.75 * 150e3).abs() < 1e3, "{after:?} {both:?}");
    }

    #[test]
    fn what_is_there_gains_nothing_and_the_way_back_costs() {
        let mut costs = with_both(600.0);
        costs.told.agreed[0] = Choice::Certificate(CertificateKind::P256);
        let [p256, rsa] = [&all(&["p-256"])[0], &all(&["rsa-2048"])[0]].map(Clone::clone);
        assert!(p256.is_there(&costs) && !rsa.is_there(&costs));
        let (_, same) = p256.made(&site(), &costs, None).unwrap();
        assert_eq!(per_hit(&same), per_hit(&costs));
        let (_, back) = rsa.made(&site(), &costs, None).unwrap();
        assert!((per_hit(&back).value - per_hit(&costs).value - 300e3).abs() < 1e3);
        // A record that tells nothing of it decides nothing.
        costs.told.agreed.clear();
        assert!(p256.made(&site(), &costs, None).unwrap_err().contains("do not tell what their cells have"));
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
        // More than a full handshake has beside a resumed one.
        let said = all(&["p-256"])[0].made(&site(), &with_both(700.0), None).unwrap_err();
        assert!(said.contains("a resumed one, which does less"), "{said}");
        assert!(find(&["p-512".to_owned()]).unwrap_err().to_string().contains("known: p-256"));
    }
}
