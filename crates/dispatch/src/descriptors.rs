//! How many files a dispatcher opens, and what it does where it may not open so many.

use anyhow::{Result, ensure};
use tlsdyno_base::open_files;
use tlsdyno_engine::dispatch::Limits;

use super::config::Config;
use super::control::{CLIENTS_MAX, RESERVE};

/// A connection has two descriptors: the client's and the backend's.
const OF_CONNECTION: u64 = 2;
/// A pipe has two ends. A connection borrows one for a direction that moves much.
const OF_PIPE: u64 = 2;
/// Standard streams; the wake-up of the loops and their end; signals.
const OF_PROCESS: u64 = 3 + 3 + 5;
/// Epoll and the loop's shares in the wake-up and the end; listeners come on top.
const OF_LOOP: u64 = 4;
/// Epoll and the wake-up; a check of each backend comes on top.
const OF_CHECKS: u64 = 2;
/// Socket, wake-up, reserve.
const OF_CONTROL: u64 = 3 + RESERVE as u64;
/// A file that is read again, and what the shell left open.
const SPARE: u64 = 8;

/// The descriptors that a dispatcher needs at most.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Need {
    /// Descriptors of the process without a single connection.
    own: u64,
    connections: u64,
    pipes: u64,
}

impl Need {
    pub fn of(config: &Config) -> Need {
        let loops = config.loops() as u64;
        let control = if config.control.is_some() { OF_CONTROL + CLIENTS_MAX as u64 } else { 0 };
        let of_loops = loops * (OF_LOOP + config.listen.len() as u64);
        let own = OF_PROCESS + of_loops + OF_CHECKS + config.backends.len() as u64 + control + SPARE;
        let connections = u64::from(config.limits.connections);
        // One for each direction: more are never used.
        Need { own, connections, pipes: u64::from(config.limits.pipes).min(2 * connections) }
    }

    fn all(&self) -> u64 {
        self.own + OF_CONNECTION * self.connections + OF_PIPE * self.pipes
    }

    /// Pipes for which there is room beside all connections where a process may open `most` files; `None`: not even
    /// the connections fit.
    fn pipes_within(&self, most: u64) -> Option<u64> {
        let left = most.checked_sub(self.own + OF_CONNECTION * self.connections)?;
        Some((left / OF_PIPE).min(self.pipes))
    }

    /// Connections that fit within `most` files, with a pipe for each until there are as many pipes as are wanted.
    /// 0: none do.
    fn connections_within(&self, most: u64) -> u64 {
        let left = most.saturating_sub(self.own);
        let with_a_pipe_each = left / (OF_CONNECTION + OF_PIPE);
        with_a_pipe_each.max(left.saturating_sub(OF_PIPE * self.pipes) / OF_CONNECTION)
    }
}

/// Makes room for all that the configuration allows, and gives pipes up where that helps: without one, bytes are
/// copied. Answers the limits to run with.
///
/// # Errors
/// The connections do not fit into the limit on open files; says how many do, and how to raise it.
pub fn make_room_for(config: &Config) -> Result<Limits> {
    let need = Need::of(config);
    let most = open_files::most();
    let (all, pipes) = (need.all(), need.pipes_within(most));
    ensure!(pipes.is_some(), "{}", refusal(need, most));
    open_files::raise_to(all.min(most))?;
    let Some(pipes) = pipes.filter(|pipes| *pipes < need.pipes) else {
        return Ok(config.limits);
    };
    tell!(
        "tlsdyno dispatch: this process may open {most} files, which leaves room for {pipes} pipes of {} beside {} \
         connections: what moves much without one is copied, which costs more CPU time. For all of them: {}",
        need.pipes,
        need.connections,
        open_files::raising_to(all)
    );
    Ok(Limits { pipes: pipes as u32, ..config.limits })
}

fn refusal(need: Need, most: u64) -> String {
    let Need { own, connections, pipes, .. } = need;
    let fit = need.connections_within(most);
    let fewer = match fit {
        0 => String::new(),
        _ => format!(
            ", or allow {fit} connections, which fit with a pipe for each that moves much (`--max-connections {fit}`, \
             in a file `connections = {fit}` under [limits])"
        ),
    };
    format!(
        "{connections} connections need {} open files, two for each, besides {} for {pipes} pipes and {own} for the \
         dispatcher itself: {} in all. This process may open {most}. Raise the limit with {}{fewer}",
        OF_CONNECTION * connections,
        OF_PIPE * pipes,
        need.all(),
        open_files::raising_to(need.all())
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(connections: u32, pipes: u32) -> Config {
        let text = "listen = [\"127.0.0.1:1\"]\nloops = 2\n[[backend]]\naddress = \"127.0.0.1:2\"";
        let mut config: Config = toml::from_str(text).unwrap();
        (config.limits.connections, config.limits.pipes) = (connections, pipes);
        config
    }

    #[test]
    fn connections_cost_two_and_pipes_two_more() {
        let own = Need::of(&config(2, 0)).own;
        let all = |connections, pipes| Need::of(&config(connections, pipes)).all() - own;
        assert_eq!(all(100, 0), 200);
        assert_eq!(all(100, 50), 300);
        assert_eq!(all(100, 256), 600, "a pipe for each direction of each connection");
        assert_eq!(all(8192, 256), 16_384 + 512);
        assert_eq!(all(1, 0), 2, "however many loops there are");
        let mut controlled = config(2, 0);
        controlled.control = Some("control".into());
        assert_eq!(Need::of(&controlled).own - own, OF_CONTROL + CLIENTS_MAX as u64);
    }

    #[test]
    fn as_many_connections_as_are_advised_do_fit() {
        for most in [60, 100, 256, 1024, 4096, 16_000] {
            for pipes in [0, 1, 8, 256] {
                let advised = Need::of(&config(8192, pipes)).connections_within(most);
                if advised == 0 {
                    continue;
                }
                let need = Need::of(&config(advised as u32, pipes));
                let fitting = need.pipes_within(most);
                assert!(
                    fitting.is_some_and(|fitting| fitting >= advised.min(pipes.into())),
                    "{most} {pipes}: {advised}"
                );
                let more = Need::of(&config(advised as u32 + 1, pipes)).pipes_within(most);
                let has_room = more.is_some_and(|fitting| fitting >= (advised + 1).min(pipes.into()));
                assert!(!has_room, "{most} files, {pipes} pipes: more than {advised} fit");
            }
        }
        assert!(Need::of(&config(8192, 256)).pipes_within(256).is_none());
        assert!(refusal(Need::of(&config(8192, 256)), 10).ends_with("in this shell"), "nothing fits");
    }
}
