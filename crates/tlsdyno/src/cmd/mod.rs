//! The subcommands, one file each: `Args` (clap) and `run`, which answers the exit code.

pub mod cli;
pub mod completions;
pub mod doctor;
pub mod help;
pub mod list;
pub mod man;
pub mod other_tools;
pub mod report;
pub mod run;
pub mod serve;
pub mod supervise;
pub mod trace;
pub mod worker;
