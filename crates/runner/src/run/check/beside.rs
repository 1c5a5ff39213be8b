//! What does not go together: one line for each pair, with the way out.

use anyhow::{Result, bail};
use tlsdyno_record::model::{ConfigurationModel, Experiment, Method, Question, ServerName};

use crate::run::own_command;

pub(super) fn check(experiment: &Experiment) -> Result<()> {
    let Experiment { server, configurations, machines, network, workers, .. } = experiment;
    let only = |wanted: Method| experiment.methods.iter().all(|method| *method == wanted);
    let all = |is: fn(&ConfigurationModel) -> bool| configurations.iter().all(is);
    let is_own = server.kind.is_users_own();
    let has_libraries = !server.libraries.is_empty() || !all(|model| model.library.is_none());
    let workers = (workers.is_some(), "workers: they make a load of ours; leave them out");
    let network = (network.is_some(), "a network: it is for load that this command makes; leave it out");
    let machines = (!machines.is_empty(), "`machines`: they are quotas of servers that stay up; leave them out");
    let asks = experiment.asks();
    // Each with what it goes without.
    let table = [
        (
            matches!(asks, Question::ForeignTraffic(_)),
            "foreign traffic goes",
            vec![
                (!only(Method::Doubling), "other methods: clients that are not ours know no no-op (--method doubling)"),
                (!is_own, "a server of ours: nobody else loads that; name yours (--server-command)"),
                (!all(ConfigurationModel::needs_doubler), "configurations that are no stages computed twice"),
                (has_libraries, "libraries: the server has the one that its command finds; leave them out"),
                workers,
                network,
                machines,
            ],
        ),
        (
            asks == Question::Libraries,
            "a second library goes",
            vec![
                (!only(Method::Removing), "other methods: it is compared by removing stages (--method removing)"),
                (machines.0, "`machines`: it is compared by removing stages, on this machine"),
            ],
        ),
        (
            experiment.uses(Method::Counting),
            "method `counting` goes",
            vec![
                (server.kind == ServerName::Builtin, "the built-in server: valgrind hides its clock; --server nginx"),
                (own_command::has_fixed_port(experiment), "a fixed port: put {port} into command and --address"),
                workers,
                network,
            ],
        ),
        (
            experiment.measure.fresh_servers,
            "`measure.fresh_servers` goes",
            vec![
                (is_own, "a command of your own: it needs servers that tlsdyno configures (--server)"),
                (!all(|of| of.noop.shim().is_empty()), "stages of the shim, for clients must know the server"),
                machines,
            ],
        ),
    ];
    let mut asked = table.iter().filter(|(is_asked, ..)| *is_asked);
    match asked.find_map(|(_, who, without)| Some((who, without.iter().find(|(is_there, _)| *is_there)?))) {
        Some((who, (_, what))) => bail!("{who} without {what}"),
        None => Ok(()),
    }
}
