//! Workers by Slurm: one `srun`, inside of an allocation or not, starts them all and ends them.

use super::launch::Order;
use super::token::Token;

/// The command. Partition, account and the like are for Slurm's own variables (`SLURM_PARTITION=…`, see `man srun`).
/// srun hands its standard input to every task, so that no file with the token is needed where they run.
pub fn order(program: &str, address: &str, workers: usize, arguments: &[String], token: &Token) -> Order {
    let mut command: Vec<String> =
        ["srun", "--job-name=tlsdyno", "--input=all", "--unbuffered", "--kill-on-bad-exit=0"]
            .map(str::to_owned)
            .to_vec();
    command.push(format!("--ntasks={workers}"));
    command.extend([program, "worker", "--join", address, "--token-file", "-"].map(str::to_owned));
    command.extend_from_slice(arguments);
    Order { command, input: token.text().into_bytes(), undo: Vec::new() }
}
