//! Warnings: a type, so that each text can adapt to what happened and say what to do next.

use std::fmt;

use serde::{Deserialize, Serialize};

/// Something that the reader of a result must know. Its text (`Display`) says what it means and what to do.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Warning {
    /// The experiment was stopped before its planned end.
    Stopped {
        /// Complete rounds that were measured.
        rounds: u32,
        /// What stopped it, for example `Ctrl-C` or `the server died`.
        cause: String,
    },
    /// Too few rounds for a trustworthy interval.
    FewRounds {
        /// Rounds used.
        rounds: u32,
    },
    /// Blocks or rounds were left out of the comparison.
    RoundsDropped {
        /// The configuration whose blocks were unusable or missing.
        configuration: String,
        /// Rounds left out.
        dropped: u32,
        /// Rounds measured.
        of: u32,
    },
    /// The server was not the bottleneck.
    ClientBound {
        /// The configurations in which it was.
        configurations: Vec<String>,
        /// How many configurations there are.
        all: u32,
        /// Effort of the load client, which could be lower.
        effort: String,
    },
    /// Neither side was busy all the time: requests waited for each other, or somebody else had the server's CPU.
    Unsaturated {
        /// The configurations in which it was so.
        configurations: Vec<String>,
        /// How many configurations there are.
        all: u32,
        /// The program that used most of the server's CPU beside the experiment, with its process, and what per cent of
        /// one CPU it had; `None`: nobody had much.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        other: Option<(String, f64)>,
    },
    /// The preflight of a configuration failed: its numbers would not mean what its name says.
    PreflightFailed {
        /// What failed.
        check: String,
    },
    /// A process of the server died in the preflight of a configuration.
    PreflightCrash {
        /// What failed, and who died of what.
        check: String,
    },
    /// Requests or connections failed.
    Errors {
        /// Kind of the error.
        kind: String,
        /// How many.
        count: u64,
        /// Out of how many requests.
        requests: u64,
    },
    /// The server took fewer or more sessions than the plan wanted to resume.
    Reuse {
        /// Connections that should have resumed.
        intended: u64,
        /// Connections that offered a session.
        offered: u64,
        /// Connections on which the server took it.
        accepted: u64,
    },
    /// A load is not what was asked for.
    Missed {
        /// What came instead, why, and what to do.
        what: String,
    },
    /// The hypervisor gave the machine's CPUs to others.
    Steal {
        /// Time stolen, nanoseconds, summed over CPUs.
        steal_ns: u64,
        /// Time measured, nanoseconds.
        elapsed_ns: u64,
    },
    /// The same work cost more or less CPU time from round to round.
    UnsteadyPace {
        /// A hit of the server as is in the cheapest round, nanoseconds of CPU time.
        least_ns: f64,
        /// In the dearest round.
        most_ns: f64,
    },
    /// The CPU frequency may change while measuring.
    Governor {
        /// The governor in force.
        governor: String,
    },
    /// Server and client share CPUs.
    SharedCpus {
        /// Why, for example `this machine has 1 CPU`.
        cause: String,
    },
    /// There was no plain-HTTP side to compare with.
    NoPlainHttp,
    /// Stages have no share of their own, so that another share holds their cost.
    Unmeasured {
        /// The stages.
        stages: Vec<String>,
        /// The share that holds them: `other_tls`, `rest` or `missing_to_100`.
        share: String,
    },
    /// Shares are smaller than what this machine can tell from no difference.
    BelowDetectionLimit {
        /// The shares.
        shares: Vec<String>,
        /// The limit, per cent of a hit.
        limit_percent: f64,
    },
    /// The record could not be kept in the store.
    NotStored {
        /// What went wrong and the remedy.
        cause: String,
        /// The file that holds the record instead.
        saved_as: Option<String>,
    },
    /// Anything else.
    Other {
        /// What happened and what it means.
        what: String,
        /// What to do.
        remedy: String,
    },
}

impl fmt::Display for Warning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Warning::Stopped { rounds: 0, cause } => {
                write!(
                    f,
                    "stopped early ({cause}), before one round was complete: there is nothing to compare. \
                    Run it again."
                )
            }
            Warning::Stopped { rounds, cause } => {
                write!(
                    f,
                    "stopped early ({cause}): the results are from the {rounds} complete rounds so far. \
                    Run it to its end for narrower intervals."
                )
            }
            Warning::FewRounds { rounds } => write!(
                f,
                "only {rounds} complete {}: an interval from fewer than 5 is a rough guess, and no share is \
                    called resolved. Measure longer (--time).",
                if *rounds == 1 { "round" } else { "rounds" }
            ),
            Warning::RoundsDropped { configuration, dropped, of } => write!(
                f,
                "{dropped} of {of} rounds were left out because the block of \"{configuration}\" was missing or \
                    invalid. The warnings of its blocks in the record say why."
            ),
            Warning::ClientBound { configurations, all, effort } => {
                let every = configurations.len() as u32 == *all;
                write!(f, "something else than the server was the limit in {}", Places(configurations, *all))?;
                f.write_str(
                    " (the load client, or requests that wait for each other): hits per second and shares from \
                     throughput are bounds there. CPU per hit stays valid.",
                )?;
                match effort.as_str() {
                    _ if !every => Ok(()),
                    "honest" => f.write_str(" Give the client more CPUs, or --effort lean."),
                    _ => f.write_str(" Give the client more CPUs."),
                }
            }
            Warning::Unsaturated { configurations, all, other } => {
                write!(f, "the server was not saturated in {}", Places(configurations, *all))?;
                match other {
                    Some((who, percent)) => write!(
                        f,
                        ": {who} used {percent:.0} % of the server's CPU meanwhile. Hits per second are lower bounds \
                         there, CPU per hit is valid. End that program, or measure on a quiet machine"
                    ),
                    None => f.write_str(
                        ": requests waited for each other (few users at once, or each user's in strict order). Hits \
                         per second are lower bounds there, CPU per hit is valid. Raise --connections, or use a \
                         workload with more users",
                    ),
                }
            }
            Warning::PreflightFailed { check } => {
                write!(
                    f,
                    "preflight failed: {check}. This configuration was not used. Its server's error log says more; \
                     `tlsdyno doctor` shows what this machine lacks, if it lacks something."
                )
            }
            Warning::PreflightCrash { check } => write!(
                f,
                "preflight failed: {check}. This configuration was not used. A crash is a fault of the server, of its \
                 OpenSSL, or of what tlsdyno put into it, not of this machine: please report it with the versions of \
                 the server and of OpenSSL."
            ),
            Warning::Errors { kind, count, requests } => write!(
                f,
                "{count} of {requests} requests failed ({kind}). {}",
                match kind.as_str() {
                    "refused" | "reset" | "closed" =>
                        "Read the server's error log; it may have run out of \
                        connections or died.",
                    "timeout" | "connect_timeout" | "handshake_timeout" | "first_byte_timeout" | "total_timeout" =>
                        "The server did not answer in time; lower --connections.",
                    "cut" =>
                        "The server or the network is slow: its answers were not complete when the block had ended.",
                    "ports" | "descriptors" | "resources" =>
                        "The client ran out of ports or descriptors; raise `ulimit -n` or lower \
                        --connections.",
                    "tls" => "The handshake failed; the server's error log and `tlsdyno load URL` name the alert.",
                    "status" | "length" => "The server answered something else than expected; check its document root.",
                    _ => "Read the server's error log.",
                }
            ),
            Warning::Reuse { intended, offered, accepted } if offered < intended => write!(
                f,
                "{intended} connections were to resume a session, only {offered} had one to offer ({accepted} \
                 accepted): the server hands out too few tickets. Allow more tickets per handshake, or lower --reuse."
            ),
            Warning::Reuse { intended, offered, accepted } => write!(
                f,
                "of {intended} connections that were to resume a session {offered} offered one and the server \
                    took {accepted}. Check its session cache and ticket settings (size, lifetime, workers sharing it)."
            ),
            Warning::Missed { what } => f.write_str(what),
            Warning::Steal { steal_ns, elapsed_ns } => write!(
                f,
                "the hypervisor took {:.1} CPU seconds in {:.1} seconds: hits per second suffer, CPU per hit \
                    less. Measure on a quieter or dedicated machine.",
                *steal_ns as f64 / 1e9,
                *elapsed_ns as f64 / 1e9
            ),
            Warning::UnsteadyPace { least_ns, most_ns } => write!(
                f,
                "a hit of the server as is cost from {:.0} to {:.0} µs of CPU time by round: this machine's pace \
                    changes, for others use its caches and CPUs. Shares were compared within milliseconds and stand \
                    this; µs per hit do not. Measure on a quieter or dedicated machine.",
                least_ns / 1e3,
                most_ns / 1e3
            ),
            Warning::Governor { governor } => write!(
                f,
                "the CPU frequency governor is `{governor}`: the clock may change between blocks. Set it to \
                    `performance` while measuring (cpupower frequency-set -g performance)."
            ),
            Warning::SharedCpus { cause } => {
                write!(
                    f,
                    "server and client share CPUs ({cause}): hits per second are not the server's limit. \
                    CPU per hit stays valid."
                )
            }
            Warning::NoPlainHttp => f.write_str(
                "without a plain-HTTP side no share is claimed for it: \"rest\" is the rest of TLS and the server \
                    itself together. Give --plain-address IP:PORT of the same server without TLS.",
            ),
            Warning::Unmeasured { stages, share } => {
                write!(
                    f,
                    "no share of its own for {}: not selected, or the configuration failed its checks. \"{}\" holds \
                        that cost too. Measure all stages, or see what is said of those configurations.",
                    stages.join(", ").replace('_', " "),
                    match share.as_str() {
                        "rest" => "rest",
                        "missing_to_100" => "missing to 100 %",
                        _ => "rest of TLS",
                    }
                )
            }
            Warning::BelowDetectionLimit { shares, limit_percent } => write!(
                f,
                "below the detection limit of {limit_percent:.1} % of a hit: {}. Such a share may be chance, or what \
                 two starts of one server differ by. Measure longer (--time), and calibrate again if the machine is \
                 quieter now (tlsdyno doctor --calibrate).",
                shares.join(", ")
            ),
            Warning::NotStored { cause, saved_as: Some(file) } => {
                write!(
                    f,
                    "{cause}. Nothing measured is lost: the record is in {file}; `tlsdyno report {file}` reads it."
                )
            }
            Warning::NotStored { cause, saved_as: None } => {
                write!(f, "{cause}. The record exists only in this output: keep it (--json, report.html).")
            }
            Warning::Other { what, remedy } => write!(f, "{what}. {remedy}"),
        }
    }
}

/// Configurations: all of so many, a few in quotes, or their number.
struct Places<'a>(&'a [String], u32);

impl fmt::Display for Places<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const NAMED_MAX: usize = 3;
        if self.0.len() as u32 == self.1 {
            return f.write_str("every configuration");
        }
        if self.0.len() > NAMED_MAX {
            return write!(f, "{} of {} configurations", self.0.len(), self.1);
        }
        for (index, name) in self.0.iter().enumerate() {
            let separator = if index > 0 { ", " } else { "" };
            write!(f, "{separator}\"{name}\"")?;
        }
        Ok(())
    }
}
