//! HAProxy in TCP mode: it passes TLS through.

use std::io::{Read, Write};
use std::net::SocketAddr;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result};
use askama::Template;
use tlsdyno_record::model::Policy;

use super::super::haproxy::{PACKAGE, connections_max};
use super::super::{InstancePlace, Prepared, programs, rendered};
use super::Made;

const CONFIG_FILE: &str = "haproxy.cfg";
const STATS_FILE: &str = "stats";
const PATIENCE: Duration = Duration::from_secs(5);

pub(super) fn program() -> Result<PathBuf> {
    PACKAGE.require(" or leave its policies out of --policies")
}

#[derive(Debug)]
struct Counter(PathBuf);

impl super::Counter for Counter {
    fn read(&mut self) -> Result<Vec<u64>> {
        let ask = || -> Result<Vec<u64>> {
            let mut stream = UnixStream::connect(&self.0)?;
            stream.set_read_timeout(Some(PATIENCE))?;
            stream.write_all(b"show stat\n")?;
            let mut text = String::new();
            stream.read_to_string(&mut text)?;
            totals(&text).context("it lacks the columns `svname` and `stot`")
        };
        ask().with_context(|| format!("read HAProxy's statistics from {}", self.0.display()))
    }
}

/// The column `stot` of each server of the statistics: sessions passed to it so far.
fn totals(statistics: &str) -> Option<Vec<u64>> {
    let mut lines = statistics.lines();
    let header: Vec<&str> = lines.next()?.trim_start_matches("# ").split(',').collect();
    let column = |name: &str| header.iter().position(|found| *found == name);
    let (server, total) = (column("svname")?, column("stot")?);
    lines
        .map(|line| line.split(',').collect::<Vec<_>>())
        .filter(|fields| fields.get(server).is_some_and(|name| name.starts_with('s')))
        .map(|fields| fields.get(total)?.parse().ok())
        .collect()
}

pub(super) fn prepare(policy: Policy, backends: &[SocketAddr], place: InstancePlace) -> Result<Made> {
    let program = program()?;
    let configuration = Configuration::new(policy, backends, place);
    let config = rendered(&configuration)?;
    let path = place.write(CONFIG_FILE, &config)?;
    let output = programs::output_of(&program, &["-v"]);
    let version = output.lines().next().unwrap_or("HAProxy of unknown version");
    let prepared = Prepared {
        config,
        version: version.split(" - ").next().unwrap_or_default().to_owned(),
        ..Prepared::new(program, vec!["-db".into(), "-f".into(), path.into()])
    };
    Ok((prepared, Box::new(Counter(configuration.stats))))
}

#[derive(Template)]
#[template(path = "dispatcher-haproxy.cfg", escape = "none")]
struct Configuration<'a> {
    policy: Policy,
    backends: &'a [SocketAddr],
    place: InstancePlace<'a>,
    stats: PathBuf,
    connections: u64,
}

impl<'a> Configuration<'a> {
    fn new(policy: Policy, backends: &'a [SocketAddr], place: InstancePlace<'a>) -> Configuration<'a> {
        // Half of the connections: splicing takes pipes besides.
        let connections = connections_max() / 2;
        Configuration { policy, backends, place, stats: place.own.join(STATS_FILE), connections }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn totals_are_those_of_the_servers() {
        let statistics = "# pxname,svname,scur,stot,\nl,FRONTEND,1,30,\nl,s0,0,10,\nl,s1,0,20,\nl,BACKEND,0,30,\n\n";
        assert_eq!(totals(statistics), Some(vec![10, 20]));
        assert_eq!(totals("# pxname,svname\n"), None);
    }

    #[test]
    fn only_the_stick_table_looks_into_responses() {
        let backends = ["127.0.0.1:1".parse().unwrap()];
        let text = |policy| rendered(&Configuration::new(policy, &backends, InstancePlace::example())).unwrap();
        assert!(text(Policy::HaproxyStick).contains("tcp-response inspect-delay"));
        assert!(
            !text(Policy::HaproxySource).contains("inspect") && text(Policy::HaproxySource).contains("balance source")
        );
    }
}
