//! Workloads: what is requested, by whom, in which order, and the files that the server needs for it.
//!
//! [`make`] turns a [`WorkloadSpec`] into a [`ServedWorkload`]; the runner writes its files with [`write_docroot`] and
//! the load process makes the same workload again from the same description. docs/WORKLOADS.md says what each workload
//! is and where its numbers come from.

#![forbid(unsafe_code)]
// They panic where the reader has gone (`2>&1 | head -1`): `tell!` does not.
#![cfg_attr(not(test), deny(clippy::print_stderr, clippy::print_stdout))]

#[macro_use]
extern crate tlsdyno_base;

mod access_log;
mod cdnow;
pub mod changing;
mod client;
mod department;
mod docroot;
mod ecommerce;
mod exclude;
mod fields;
pub mod flags;
mod har;
mod json_line;
#[cfg(test)]
pub(crate) mod kept_inputs;
mod layout;
mod log_file;
mod log_summary;
mod logged;
mod names;
mod objects;
mod reading;
mod replay;
mod scan;
mod sessions;
mod specweb96;
mod specweb99;
mod summary;
mod synth;
mod unsent;
mod url;

use std::sync::Arc;

use tlsdyno_base::fault::{Fault, OrFault};
use tlsdyno_engine::load::{Expect, Object, Request, User, Workload};
use tlsdyno_record::model::workload::WorkloadSpec;

pub use docroot::{MODIFIED, MODIFIED_UNIX_S, write as write_docroot};
pub use log_summary::{Example, Excluded, LogRead, LogSummary, Malformed};
pub use scan::connections::Lifetime;
pub use scan::{LogScan, scan as scan_log};
pub use specweb99::directories_for;
pub use summary::{HarSummary, Sizes, Summary};
pub use synth::write_log;

/// A workload with everything the server needs for it.
#[derive(Clone, Debug)]
pub struct ServedWorkload {
    /// The description that makes the same site again, in another process too, even if a log has grown meanwhile.
    pub spec: WorkloadSpec,
    pub workload: Arc<Workload>,
    /// The files that must exist for the responses to be as the workload expects; empty where the server is somebody
    /// else's.
    pub files: Vec<DocrootFile>,
    pub summary: Summary,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DocrootFile {
    /// Path as in the request, beginning with a slash; plain ASCII, no empty, `.` or `..` components.
    pub path: String,
    pub bytes: u64,
}

impl DocrootFile {
    fn object(&self) -> Object {
        getting(&self.path, Some(self.bytes))
    }
}

/// A request for this path, which is answered with so many bytes; `None`: with any number.
fn getting(path: &str, body_bytes: Option<u64>) -> Object {
    let expect = Expect { status: Some(200), body_bytes };
    Object { method: "GET".to_owned(), path: path.to_owned(), headers: String::new(), body_bytes: 0, expect }
}

#[derive(Debug)]
struct Parts {
    workload: Workload,
    files: Vec<DocrootFile>,
}

/// Appends a user who makes these requests.
fn add_user(workload: &mut Workload, requests: impl IntoIterator<Item = Request>) {
    let first = workload.requests.len() as u32;
    workload.requests.extend(requests);
    workload.users.push(User { requests: first..workload.requests.len() as u32 });
}

/// Makes the workload that `spec` describes. Deterministic: two processes make the same workload from the same
/// description. (For a log that is still written to: from [`ServedWorkload::spec`], which says how far it was read.)
pub fn make(spec: &WorkloadSpec) -> anyhow::Result<ServedWorkload> {
    let mut spec = spec.clone();
    let (mut har, mut log) = (None, None);
    let (name, made) = match &mut spec {
        WorkloadSpec::Ecommerce { users, seed } => ("ecommerce", ecommerce::make(*users, *seed)),
        WorkloadSpec::Department { scale, seed } => ("department", department::make(*scale, *seed)),
        WorkloadSpec::Url { path, bytes, users, requests_per_user } => {
            ("url", url::make(path, *bytes, *users, *requests_per_user))
        }
        WorkloadSpec::Paths { paths, users, hits_per_handshake } => {
            ("paths", url::make_paths(paths, *users, *hits_per_handshake))
        }
        WorkloadSpec::Specweb96 { users, seed, requests_per_user } => {
            ("specweb96", specweb96::make(*users, *seed, *requests_per_user))
        }
        WorkloadSpec::Specweb99 { users, seed, directories, dynamic } => {
            ("specweb99", specweb99::make(*users, *seed, *directories, dynamic.as_deref()))
        }
        WorkloadSpec::Cdnow { users } => ("cdnow", cdnow::make(*users)),
        WorkloadSpec::Har { path, har: rules } => {
            let (parts, found) = har::make(path, rules).or_fault(Fault::Input)?;
            har = Some(found);
            ("har", Ok(parts))
        }
        WorkloadSpec::Trace { path, exclude, replay } => {
            let (parts, found, first_bytes) = replay::make(path, exclude, replay)?;
            replay.first_bytes = first_bytes;
            log = Some(found);
            ("trace", Ok(parts))
        }
    };
    let Parts { workload, files } = made.or_fault(Fault::Usage)?;
    let summary = Summary { har, log, ..Summary::new(name, &workload, &files) };
    Ok(ServedWorkload { spec, workload: Arc::new(workload), files, summary })
}

/// The workload with each request a user by itself, so that any number of them is a piece of work.
pub fn requests_alone(workload: &Workload) -> Workload {
    let alone = |request: &Request| Request { page_end: true, close_after: false, forget_session: false, ..*request };
    let user = |index: u32| User { requests: index..index + 1 };
    Workload {
        requests: workload.requests.iter().map(alone).collect(),
        users: (0..workload.requests.len() as u32).map(user).collect(),
        ..workload.clone()
    }
}

/// The workload of a log with connections that close after so many seconds without a request. One whose times are not
/// known stays as it is.
pub fn with_keep_alive(workload: &Workload, seconds: u32) -> Workload {
    let mut requests = workload.requests.clone();
    for user in workload.users.iter().filter(|_| !workload.at_ms.is_empty()) {
        for index in user.requests.start as usize + 1..user.requests.end as usize {
            let gap_ms = workload.at_ms[index] - workload.at_ms[index - 1];
            let close = seconds == 0 || gap_ms > 1000 * u64::from(seconds) || requests[index].forget_session;
            requests[index - 1].close_after = close;
            requests[index - 1].page_end |= close;
        }
    }
    Workload { requests, ..workload.clone() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_description_makes_the_same_workload_and_another_seed_another() {
        let spec = |seed| WorkloadSpec::Ecommerce { users: 60, seed };
        let (first, again, other) = (make(&spec(1)).unwrap(), make(&spec(1)).unwrap(), make(&spec(2)).unwrap());
        assert_eq!(first.workload, again.workload);
        assert_eq!(first.files, again.files);
        assert_ne!(first.workload, other.workload);
    }

    #[test]
    fn a_workload_without_users_is_refused() {
        let error = make(&WorkloadSpec::Ecommerce { users: 0, seed: 1 }).unwrap_err().to_string();
        assert!(error.contains("1 to 10000000 users"), "{error}");
    }
}
