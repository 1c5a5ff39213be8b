//! The subcommands, one file each: `Args` (clap) and `run`, which answers the exit code.

pub mod ablate;
pub mod cli;
pub mod cluster;
pub mod compare;
pub mod completions;
pub mod dispatch;
pub mod doctor;
pub mod list;
pub mod load;
pub mod man;
pub mod probe;
pub mod report;
pub mod reuse;
pub mod run;
pub mod serve;
pub mod supervise;
pub mod trace;
