//! Developer tasks: `cargo run -p xtask -- TASK`.

mod bench_batch;
mod bench_client;
mod bench_dispatch;
mod bench_threads;
mod bench_trace;
mod calibrate_series;
mod campaign;
mod compare_pairs;
mod distributions;
mod idle_connections;
mod nginx;
mod openssl_series;
mod process;
mod progress;
mod repeat_series;
mod results;
mod reuse_matrix;
mod soak;
mod stage_matrix;
mod statistics;
mod tidy;
mod tlsdyno;
mod uprobes;

use std::process::ExitCode;

use clap::error::ErrorKind;
use clap::{CommandFactory as _, Parser};

/// Developer tasks of tlsdyno
#[derive(Parser)]
enum Task {
    /// What batched RSA gains and what it makes visitors wait, beside a closed form
    BenchBatch(bench_batch::Arguments),
    /// What one operation costs the load client, beside other clients
    #[command(alias = "bench")]
    BenchClient(bench_client::Effort),
    /// What the dispatcher costs for each connection and each MiB, beside HAProxy
    BenchDispatch(bench_dispatch::Effort),
    /// What two loops of one load do, beside two processes and one loop
    BenchThreads(bench_threads::Arguments),
    /// How fast `tlsdyno trace show` reads an access log, beside mawk
    BenchTrace(bench_trace::Arguments),
    /// How often calibrations are right
    CalibrateSeries(calibrate_series::Series),
    /// The runs behind published tables: results/campaigns
    Campaign(campaign::Arguments),
    /// How often two loads in turn are told apart rightly
    ComparePairs(compare_pairs::Arguments),
    /// Every stage, server and classic experiment on Debian 12 and 13, in private directories
    Distributions(distributions::Arguments),
    /// What an open TLS connection without traffic costs the load process
    IdleConnections(idle_connections::Arguments),
    /// The provider's tests on other series of OpenSSL, built from source
    OpensslSeries(openssl_series::Arguments),
    /// Whether an interval holds for another run of the same experiment
    RepeatSeries(repeat_series::Series),
    /// Tables of pages, made of the records in results/
    Results(results::Arguments),
    /// Asked and achieved reuse on every server, for docs/RESULTS.md
    ReuseMatrix(reuse_matrix::Arguments),
    /// The load process at saturation for minutes, under reloads of the server
    Soak(soak::Arguments),
    /// Every stage on every server, for docs/STAGES.md
    StageMatrix(stage_matrix::Arguments),
    /// What no compiler checks: lengths, leftovers, dead files, units; and lines of code by folder
    Tidy(tidy::Arguments),
    /// What uprobes on SSL_do_handshake tell of a handshake's time, for docs/PROFILE.md
    Uprobes(uprobes::Arguments),
}

fn main() -> ExitCode {
    let done = match task() {
        Task::BenchBatch(arguments) => bench_batch::run(&arguments),
        Task::BenchClient(effort) => bench_client::run(&effort),
        Task::BenchDispatch(effort) => bench_dispatch::run(&effort),
        Task::BenchThreads(arguments) => bench_threads::run(&arguments),
        Task::BenchTrace(arguments) => bench_trace::run(&arguments),
        Task::CalibrateSeries(series) => calibrate_series::run(&series),
        Task::Campaign(arguments) => campaign::run(&arguments),
        Task::ComparePairs(arguments) => compare_pairs::run(&arguments),
        Task::Distributions(arguments) => distributions::run(&arguments),
        Task::IdleConnections(arguments) => idle_connections::run(&arguments),
        Task::OpensslSeries(arguments) => openssl_series::run(&arguments),
        Task::RepeatSeries(series) => repeat_series::run(&series),
        Task::Results(arguments) => results::run(&arguments),
        Task::ReuseMatrix(arguments) => reuse_matrix::run(&arguments),
        Task::Soak(arguments) => soak::run(&arguments),
        Task::StageMatrix(arguments) => stage_matrix::run(&arguments),
        Task::Tidy(arguments) => tidy::run(&arguments),
        Task::Uprobes(arguments) => uprobes::run(&arguments),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("xtask: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// What was asked for. Where a flag is not known, the task's flags are named.
fn task() -> Task {
    Task::try_parse().unwrap_or_else(|error| {
        let name = std::env::args().nth(1).unwrap_or_default();
        if let (ErrorKind::UnknownArgument, Some(task)) = (error.kind(), Task::command().find_subcommand_mut(&name)) {
            eprintln!("{}", task.render_help());
        }
        error.exit()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_of_every_task_are_consistent() {
        Task::command().debug_assert();
    }

    #[test]
    fn unknown_and_contradicting_flags_are_refused() {
        let task = |words: &[&str]| Task::try_parse_from([&["xtask"], words].concat());
        assert!(matches!(task(&["bench"]), Ok(Task::BenchClient(_))));
        assert!(task(&["soak", "--minute", "3"]).is_err());
        assert!(task(&["soak", "--minutes", "3", "--seconds", "9"]).is_err());
    }
}
