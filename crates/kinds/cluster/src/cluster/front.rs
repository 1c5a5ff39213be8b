//! Front ends that end TLS before plain servers: which ways to the servers there are then, and what may be asked for.
//! Circle: a cluster has ways, and a cell is one of them under one traffic.

use anyhow::{Result, bail, ensure};
use serde::{Deserialize, Serialize};
use tlsdyno_record::model::Policy;
use tlsdyno_record::model::workload::WorkloadSpec;
use tlsdyno_servers::Proxy;

use crate::cluster::check::some_and_different;
use crate::cluster::file::{Cluster, ClusterExperiment, USUAL_SPREAD};

/// Most front ends of a cell.
const OF_A_CELL_MAX: u32 = 16;
/// Most of all cells: each has its own, so that what one does changes no other.
const OF_ALL_MAX: u32 = 128;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Front {
    pub ends: u32,
    pub spread: Policy,
}

/// The way of a request: who chooses the server, and what ends TLS before that, where that is not the server.
pub type Way = (Policy, Option<Front>);

/// A way in words: `lard behind 2 front ends`.
pub fn name((policy, front): &Way) -> String {
    let policy = policy.name();
    match front {
        None => policy.to_owned(),
        Some(Front { ends: 1, .. }) => format!("{policy} behind 1 front end"),
        Some(Front { ends, spread }) if *spread == USUAL_SPREAD => {
            format!("{policy} behind {ends} front ends")
        }
        Some(Front { ends, spread }) => format!("{policy} behind {ends} front ends by {}", spread.name()),
    }
}

impl Cluster {
    pub fn has_front_ends(&self) -> bool {
        self.most_front_ends() > 0
    }

    pub fn most_front_ends(&self) -> u32 {
        self.front_ends.iter().copied().max().unwrap_or(0)
    }

    /// The ways of all policies, those of the first one first.
    pub fn ways(&self) -> Vec<Way> {
        self.policies.iter().flat_map(|policy| self.ways_of(*policy)).collect()
    }

    fn ways_of(&self, policy: Policy) -> Vec<Way> {
        let counts = if self.front_ends.is_empty() { &[0][..] } else { &self.front_ends };
        let each = |&ends: &u32| -> Vec<Way> {
            match ends {
                0 if self.front_ends.is_empty() || !policy.reads_requests() => vec![(policy, None)],
                0 => Vec::new(),
                _ if !policy.goes_behind_front_ends() => Vec::new(),
                // One gets all connections, however they are spread.
                1 => self.spread.iter().take(1).map(|&spread| (policy, Some(Front { ends, spread }))).collect(),
                _ => self.spread.iter().map(|&spread| (policy, Some(Front { ends, spread }))).collect(),
            }
        };
        counts.iter().flat_map(each).collect()
    }

    /// The policies that plain HTTP is measured by beside TLS: the first that it can pass, and those that read
    /// requests.
    pub fn plain_policies(&self) -> Vec<Policy> {
        let passes = |policy: &&Policy| !policy.needs_tls() && **policy != Policy::UriHash;
        let all = self.policies.iter().filter(passes).enumerate();
        all.filter(|(index, policy)| *index == 0 || policy.reads_requests()).map(|(_, policy)| *policy).collect()
    }
}

impl ClusterExperiment {
    pub(super) fn check_front_ends(&self) -> Result<()> {
        let Cluster { front_ends, front_end, spread, policies, plain, .. } = &self.cluster;
        if front_ends.is_empty() {
            ensure!(
                !policies.contains(&Policy::UriHash),
                "policy uri-hash is one of front ends that end TLS; add --front-ends 1 (`front_ends = [1]` in a file)"
            );
            let usual = Cluster::default();
            ensure!(
                *front_end == usual.front_end && *spread == usual.spread,
                "--front-end and --spread are about front ends; add --front-ends 1"
            );
            return Ok(());
        }
        ensure!(
            !plain,
            "--plain has no TLS for front ends to end; leave it out (--plain-limit sets plain HTTP beside)"
        );
        some_and_different("--front-ends", front_ends, ToString::to_string)?;
        ensure!(front_ends.iter().all(|ends| *ends <= OF_A_CELL_MAX), "--front-ends must be at most {OF_A_CELL_MAX}");
        ensure!(
            Proxy::FRONT_ENDS.contains(front_end),
            "--front-end is haproxy or nginx: {front_end} chooses no server"
        );
        some_and_different("--spread", spread, |policy| policy.name().to_owned())?;
        let is_spread = |policy: &Policy| !policy.reads_requests() && *policy != Policy::Direct;
        ensure!(
            spread.iter().all(is_spread),
            "--spread passes TLS on to front ends; take for example round-robin or session"
        );
        if let Some(policy) = policies.iter().find(|policy| self.cluster.ways_of(**policy).is_empty()) {
            let name = policy.name();
            ensure!(
                !policy.goes_behind_front_ends(),
                "policy {name} reads requests, which TLS hides from it; give --front-ends 1 or more"
            );
            bail!(
                "policy {name} passes connections on to servers that end TLS; add 0 to --front-ends, or leave it out"
            );
        }
        let by_object = policies.iter().find(|policy| policy.reads_requests());
        ensure!(
            by_object.is_none() || !matches!(self.workload, WorkloadSpec::Url { .. }),
            "policy {} sends all requests for one object to one backend; give a workload of many objects, for example \
             --workload specweb96",
            by_object.map_or("", |policy| policy.name())
        );
        let all: u32 = self.cells().iter().filter_map(|cell| cell.front).map(|front| front.ends).sum();
        ensure!(
            all <= OF_ALL_MAX,
            "all cells together have {all} front ends, at most {OF_ALL_MAX} make sense; give fewer --front-ends, \
             --policies, --sessions or --reuse"
        );
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use tlsdyno_engine::dispatch::Policy as Rule;

    use super::*;
    use crate::cluster::cell::Cell;
    use crate::cluster::file::Traffic;

    fn experiment(front_ends: &[u32], policies: &[Policy]) -> ClusterExperiment {
        let cluster = Cluster { front_ends: front_ends.to_vec(), policies: policies.to_vec(), ..Cluster::default() };
        let traffic = Traffic { reuse_percent: vec![80.0], ..Traffic::default() };
        ClusterExperiment { cluster, traffic, ..ClusterExperiment::default() }
    }

    const BLIND: Policy = Policy::Own(Rule::RoundRobin);
    const SESSION: Policy = Policy::Own(Rule::Session);
    const LARD: Policy = Policy::Own(Rule::Lard);

    #[test]
    fn each_policy_goes_where_it_can_choose() {
        let mut experiment = experiment(&[0, 1, 2], &[BLIND, SESSION, Policy::UriHash, LARD]);
        experiment.cluster.spread = vec![BLIND, SESSION];
        experiment.cluster.plain_limit = true;
        experiment.check().unwrap();
        let names: Vec<String> = experiment.cells().iter().map(Cell::short_name).collect();
        let behind = |policy: &str| {
            ["1 front end", "2 front ends", "2 front ends by session"]
                .map(|ends| format!("{policy} behind {ends}, 80 % reuse"))
        };
        let plain = ["round-robin, plain HTTP", "lard, plain HTTP"].map(str::to_owned);
        let without = ["round-robin, 80 % reuse", "session, 80 % reuse"].map(str::to_owned);
        let expected: Vec<String> = without[..1].iter().cloned().chain(behind("round-robin")).collect();
        assert_eq!(names[..4], expected[..]);
        assert_eq!(names[4], without[1]);
        assert_eq!((&names[5..8], &names[8..11]), (&behind("uri-hash")[..], &behind("lard")[..]));
        assert_eq!(names[11..], plain);
    }

    #[test]
    fn what_cannot_be_is_refused_with_the_remedy() {
        let said = |front_ends: &[u32], policies: &[Policy], edit: &dyn Fn(&mut ClusterExperiment)| {
            let mut experiment = experiment(front_ends, policies);
            edit(&mut experiment);
            format!("{:#}", experiment.check().unwrap_err())
        };
        let as_is = &|_: &mut ClusterExperiment| {};
        assert!(said(&[1], &[BLIND, SESSION], as_is).contains("add 0 to --front-ends"));
        assert!(said(&[0], &[BLIND, LARD], as_is).contains("--front-ends 1 or more"));
        assert!(said(&[], &[Policy::UriHash], as_is).contains("add --front-ends 1"));
        assert!(said(&[], &[BLIND, LARD], as_is).contains("--front-ends"));
        assert!(said(&[17], &[LARD], as_is).contains("at most 16"));
        assert!(said(&[1, 1], &[LARD], as_is).contains("1 twice"));
        assert!(said(&[1], &[LARD], &|e| e.cluster.front_end = Proxy::Stunnel).contains("haproxy or nginx"));
        assert!(said(&[], &[BLIND], &|e| e.cluster.spread = vec![SESSION]).contains("add --front-ends"));
        assert!(said(&[2], &[BLIND], &|e| e.cluster.spread = vec![LARD]).contains("round-robin or session"));
        let memcached = |e: &mut ClusterExperiment| {
            e.cluster.sessions = vec![crate::cluster::file::Sharing::Memcached];
        };
        assert!(said(&[1], &[LARD], &memcached).contains("haproxy has no session cache"));
        let object = WorkloadSpec::Url { path: "/o".to_owned(), bytes: Some(1), users: 9, requests_per_user: 1 };
        assert!(said(&[1], &[LARD], &|e| e.workload = object.clone()).contains("--workload specweb96"));
        let many = |e: &mut ClusterExperiment| e.traffic.reuse_percent = (0..9).map(f64::from).collect();
        assert!(said(&[16], &[LARD], &many).contains("144 front ends"));
    }
}
