//! The limit on open files, which bounds the connections of the load process.

use anyhow::{Context, Result, ensure};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Descriptors that the process needs besides its connections: standard streams, epoll, randomness, job file.
const OTHERS: u64 = 32;

/// Makes room for so many connections of a load process: raises the soft limit on open files as far as the hard one
/// allows.
pub fn make_room_for(connections: u32) -> Result<()> {
    make_room("--connections", connections, 1, OTHERS)
}

/// Makes room for the connections that a flag names, of which each needs so many files, and for others.
pub fn make_room(flag: &str, connections: u32, files_each: u64, others: u64) -> Result<()> {
    let (needed, most) = (u64::from(connections) * files_each + others, most());
    ensure!(
        most >= needed,
        "{connections} connections need {needed} open files, but this process may have only {most}; raise the limit \
         with {}, or use at most {flag} {}",
        raising_to(needed),
        most.saturating_sub(others) / files_each
    );
    raise_to(needed)
}

/// How many files this process can be allowed to open.
pub fn most() -> u64 {
    getrlimit(Resource::Nofile).maximum.unwrap_or(u64::MAX)
}

/// Raises the soft limit to so many, if it is lower. They are no more than [`most`].
pub fn raise_to(needed: u64) -> Result<()> {
    let limit = getrlimit(Resource::Nofile);
    if limit.current.is_none_or(|current| current >= needed) {
        return Ok(());
    }
    setrlimit(Resource::Nofile, Rlimit { current: Some(needed), maximum: limit.maximum })
        .context("failed to raise the limit on open files")
}

/// The command that raises the limit.
pub fn raising_to(needed: u64) -> String {
    format!("`sudo prlimit --pid $$ --nofile={needed}:{needed}` in this shell")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_limit_is_raised_or_the_remedy_named() {
        make_room_for(1).unwrap();
        let hard = getrlimit(Resource::Nofile).maximum.unwrap_or(u64::MAX);
        if let Ok(beyond) = u32::try_from(hard.saturating_add(1)) {
            assert!(make_room_for(beyond).unwrap_err().to_string().contains("prlimit"));
        }
    }
}
