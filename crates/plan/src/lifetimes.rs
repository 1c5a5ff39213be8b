//! What the lifetime of a session saves of a log's traffic by measured costs, beside what a theft opens.

use serde_json::{Value, json};
use tlsdyno_base::bootstrap::Estimate;
use tlsdyno_runner::report::workload;
use tlsdyno_workloads::Lifetime;

use crate::costs::Costs;
use crate::model::{Machines, Site};
use crate::page::Plan;

/// Name of a change behind the name of a column; empty: the server as it was measured.
type Named = (String, Costs);

pub(crate) struct Lifetimes<'a> {
    /// Connections of the log that resume, by session lifetime.
    pub of: &'a [Lifetime],
    /// The server of the records renews a session by each connection (TLS 1.3).
    pub is_renewed: bool,
    /// A ticket key makes tickets for so long, seconds; `None`: for a lifetime.
    pub keys_change_s: Option<u32>,
    /// Costs of other keys, groups or suites.
    pub changed: Vec<Named>,
}

impl Lifetimes<'_> {
    /// Adds the table. `machines`: those that it is about.
    pub fn add_to(mut self, plan: &mut Plan<'_>, machines: Machines) {
        let all: Vec<Site> = self.of.iter().map(|of| self.site(plan.site, of)).collect();
        let most = all.iter().max_by(|one, two| one.reuse_fraction.total_cmp(&two.reuse_fraction));
        let lacks = most.map_or(Vec::new(), |site| plan.costs.missing(&site.needs(machines, plan.costs)));
        self.changed.insert(0, (String::new(), plan.costs.clone()));
        let saved: Vec<(String, Vec<Estimate>)> = match lacks.is_empty() {
            true => {
                self.changed.iter().map(|(name, costs)| (name.clone(), saved(plan, machines, &all, costs))).collect()
            }
            false => Vec::new(),
        };
        plan.warnings.extend(lacks.iter().map(|what| format!("what lifetimes save needs the cost of a {what}")));
        plan.more.push(workload::lifetimes(self.of, self.keys_change_s, &saved));
        let told = |(at, of): (usize, &Lifetime)| {
            let saved = saved.iter().map(|(name, parts)| json!({"with": name.trim_start(), "cpu_saved": parts[at]}));
            json!({"lifetime": of, "saved": saved.collect::<Vec<_>>()})
        };
        plan.json.push(("lifetimes", self.of.iter().enumerate().map(told).collect::<Vec<Value>>().into()));
    }

    fn site(&self, site: &Site, of: &Lifetime) -> Site {
        let percent = if self.is_renewed { of.renewed_percent } else { of.resumed_percent };
        Site { reuse_fraction: percent / 100.0, ..site.clone() }
    }
}

/// The part of the CPU time without sessions, at the costs of the records, that is saved with these.
fn saved(plan: &Plan<'_>, machines: Machines, all: &[Site], costs: &Costs) -> Vec<Estimate> {
    let none = Site { reuse_fraction: 0.0, ..plan.site.clone() };
    let part = |site: &Site| {
        costs.estimate(|drawn| {
            let before = none.cpu_s_per_s(plan.costs, &drawn.of_same(plan.costs), machines);
            1.0 - site.cpu_s_per_s(costs, drawn, machines) / before
        })
    };
    all.iter().map(part).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::costs::samples;
    use crate::measured::Term;
    use crate::model::tests::site;
    use crate::page;

    #[test]
    fn a_lifetime_saves_what_resumed_connections_cost_less() {
        let (site, costs) = (site(), samples::costs(0.01));
        let one = Machines { servers: 1, proxies: 0 };
        let predictions = [site.predict(&costs, one, None)];
        let mut plan = Plan::of(&site, &costs, &predictions);
        let of = [Lifetime { lifetime_s: 300, resumed_percent: 50.0, renewed_percent: 80.0 }];
        let cheaper = costs.changed(&[Term::Full], Estimate { value: -300e3, low: -310e3, high: -290e3 });
        let changed = vec![(" with p-256".to_owned(), cheaper)];
        Lifetimes { of: &of, is_renewed: true, keys_change_s: Some(3600), changed }.add_to(&mut plan, one);
        // 940 µs a full connection with its request, 340 a resumed one: 0.2 · 940 + 0.8 · 340 of 940.
        let part = |at: usize| plan.json[0].1[0]["saved"][at]["cpu_saved"]["value"].as_f64().unwrap();
        assert!((part(0) - 0.8 * 600.0 / 940.0).abs() < 0.01, "{}", part(0));
        assert!((part(1) - (0.8 * 600.0 + 0.2 * 300.0) / 940.0).abs() < 0.01, "{}", part(1));
        let text = tlsdyno_report::terminal::text(&page::document(&plan), tlsdyno_report::terminal::Style::PLAIN);
        for told in ["80.0 %", "65 min", "saved with p-256"] {
            assert!(text.contains(told), "{told:?} is not in\n{text}");
        }
    }
}
