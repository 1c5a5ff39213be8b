//! Flags that choose a workload and say how a log is replayed; the same wherever one is taken.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use clap::ValueEnum;
use tlsdyno_base::choice::choice;
use tlsdyno_base::fault::{Fault, OrFault};
use tlsdyno_engine::time::Time;
use tlsdyno_record::model::workload::{
    ClientField, NamesSpec, OrderSpec, ReplaySpec, SentMethod, SessionsSpec, WorkloadSpec, hundred,
};

use super::directories_for;

/// Connections that the directories of specweb99 are for, where nobody says how many there will be.
const CONNECTIONS: u32 = 64;

/// Synthetic workloads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum WorkloadChoice {
    /// short sessions, small objects: one full handshake per 12 requests, 7 KB mean (Coarfa et al. 2006)
    Ecommerce,
    /// longer sessions, large objects: about 9 requests per session, 46 KB mean, heavy-tailed (Coarfa et al. 2006)
    Department,
    /// 36 files of 0.1 to 900 KB, about 15 KB mean, a connection for each request (Apostolopoulos et al. 2000)
    Specweb96,
    /// directories of the same files, kept and short connections, a full handshake for every fifth request
    /// (SPECweb99_SSL)
    Specweb99,
    /// 25 small objects in two pages over kept connections: 96 % reuse (Mraz et al. 2002)
    Cdnow,
}

impl WorkloadChoice {
    /// The workload for this many users (department: of this size), random choices by `seed`.
    pub fn spec(self, users: Option<u32>, scale: f64, seed: u64) -> WorkloadSpec {
        match self {
            WorkloadChoice::Ecommerce => WorkloadSpec::Ecommerce { users: users.unwrap_or(20_000), seed },
            WorkloadChoice::Department => WorkloadSpec::Department { scale, seed },
            WorkloadChoice::Specweb96 => {
                WorkloadSpec::Specweb96 { users: users.unwrap_or(5_000), seed, requests_per_user: hundred() }
            }
            WorkloadChoice::Specweb99 => WorkloadSpec::Specweb99 {
                users: users.unwrap_or(5_000),
                seed,
                directories: directories_for(CONNECTIONS),
                dynamic: None,
            },
            WorkloadChoice::Cdnow => WorkloadSpec::Cdnow { users: users.unwrap_or(20_000) },
        }
    }
}

/// What belongs to specweb99; the same flags wherever it is taken.
#[derive(Clone, Debug, Default, clap::Args)]
pub struct Specweb99Args {
    /// specweb99: directories of 36 files, 4.9 MB each [default: as the rules have them for so many connections]
    #[arg(long, value_name = "N")]
    pub directories: Option<u32>,
    /// specweb99: the server's page that three of ten requests are for, with the path of a file as its query; without
    /// one they are for the file
    #[arg(long, value_name = "PATH")]
    pub dynamic: Option<String>,
}

impl Specweb99Args {
    /// The workload with these, for so many connections, each of which has a user.
    pub fn applied(&self, spec: WorkloadSpec, connections: u32) -> Result<WorkloadSpec> {
        if let WorkloadSpec::Specweb99 { users, seed, .. } = spec {
            let directories = self.directories.unwrap_or_else(|| directories_for(connections));
            let (users, dynamic) = (users.max(connections), self.dynamic.clone());
            return Ok(WorkloadSpec::Specweb99 { users, seed, directories, dynamic });
        }
        self.ensure_absent("another workload than specweb99")?;
        Ok(spec)
    }

    pub fn ensure_absent(&self, what: &str) -> Result<()> {
        for (flag, given) in [("--directories", self.directories.is_some()), ("--dynamic", self.dynamic.is_some())] {
            ensure!(!given, "{flag} means nothing for {what}; leave it out");
        }
        Ok(())
    }
}

/// The absolute path of a log or recording, for it is read again by another process.
pub fn input(path: &Path, what: &str) -> Result<PathBuf> {
    let found = absolute(path, what)?;
    let failed = || format!("failed to read the {what} {}", path.display());
    tlsdyno_base::input::ensure_regular(&found).with_context(failed).or_fault(Fault::Input)?;
    Ok(found)
}

pub fn absolute(path: &Path, what: &str) -> Result<PathBuf> {
    path.canonicalize().with_context(|| format!("failed to read the {what} {}", path.display())).or_fault(Fault::Input)
}

/// How an access log is replayed; the same flags wherever a log is taken.
#[derive(Clone, Debug, Default, clap::Args)]
pub struct ReplayArgs {
    /// Log: leave out a client, a site, a prefix like 10.0.0.0/8, part of a user agent, or `crawlers`; repeatable
    #[arg(long, value_name = "WHAT")]
    pub exclude: Vec<String>,
    /// Log: fetch a document and what it embeds together, instead of one request after the other
    #[arg(long)]
    pub pages: bool,
    /// Log: a user forgets its TLS session after so long without a request; `never` makes only the first handshake of
    /// an address full [default: 300s]
    #[arg(id = "trace_session_lifetime", long = "trace-session-lifetime", value_name = "TIME|never")]
    #[arg(value_parser = session_lifetime)]
    pub session_lifetime: Option<SessionsSpec>,
    /// Log: a user's connection closes after so long without a request [default: 75s]
    #[arg(id = "trace_keep_alive", long = "trace-keep-alive", value_name = "TIME", value_parser = whole_seconds)]
    pub keep_alive: Option<u32>,
    /// Log: which field of a line is the client, by number from 1, or `last`; a text in quotation marks or square
    /// brackets is one field [default: the address or host name before the time, or X-Forwarded-For behind a proxy]
    #[arg(long, value_name = "N|last")]
    pub client_field: Option<ClientField>,
    /// Log or recording of your own server: send requests by these methods, too, comma-separated; they may change what
    /// it keeps. Those of a log have no body [default: GET and HEAD alone]
    #[arg(long, value_name = "METHODS", value_delimiter = ',', value_parser = choice(SentMethod::ALL))]
    pub send_methods: Vec<SentMethod>,
    /// See [`ReplaySpec::site`].
    #[arg(skip)]
    pub site: Option<String>,
}

impl ReplayArgs {
    pub fn workload(&self, path: PathBuf, names: NamesSpec) -> WorkloadSpec {
        let defaults = ReplaySpec::default();
        let replay = ReplaySpec {
            order: if self.pages { OrderSpec::Pages } else { defaults.order },
            sessions: self.session_lifetime.unwrap_or(defaults.sessions),
            keep_alive_s: self.keep_alive.unwrap_or(defaults.keep_alive_s),
            names,
            client_field: self.client_field,
            site: self.site.clone(),
            send_methods: self.send_methods.clone(),
            ..defaults
        };
        WorkloadSpec::Trace { path, exclude: self.exclude.clone(), replay }
    }

    pub fn ensure_absent(&self, what: &str) -> Result<()> {
        let flags = [
            ("--exclude", !self.exclude.is_empty()),
            ("--pages", self.pages),
            ("--trace-session-lifetime", self.session_lifetime.is_some()),
            ("--trace-keep-alive", self.keep_alive.is_some()),
            ("--client-field", self.client_field.is_some()),
            ("--send-methods", !self.send_methods.is_empty()),
        ];
        for (flag, given) in flags {
            ensure!(!given, "{flag} means nothing for {what}; leave it out");
        }
        Ok(())
    }
}

fn session_lifetime(text: &str) -> Result<SessionsSpec, String> {
    match text {
        "never" => Ok(SessionsSpec::PerAddress),
        time => whole_seconds(time)
            .map(SessionsSpec::LifetimeS)
            .map_err(|_| "neither a time in whole seconds nor `never`".to_owned()),
    }
}

/// Parses a time of whole seconds: logs know no smaller ones.
fn whole_seconds(text: &str) -> Result<u32, String> {
    let time = text.parse::<Time>()?.0;
    match u32::try_from(time.as_secs()) {
        Ok(seconds) if time.subsec_nanos() == 0 => Ok(seconds),
        _ => Err(format!("`{text}`: expected whole seconds, as 75s or 5m")),
    }
}
