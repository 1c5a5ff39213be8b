//! Two loads of this process on servers of this machine, in turns of milliseconds: what the machine does meanwhile
//! meets both.
//!
//! The loop of `sliced` makes its connections anew in each slice, which is right where a slice is a piece of a workload
//! and its sessions. Of a load on kept connections most of such a slice would be handshakes, so that here each load
//! keeps its connections and rests while the other one has its turn.

use std::sync::atomic::AtomicBool;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::{self, Scope, ScopedJoinHandle};
use std::time::{Duration, Instant};

use tlsdyno_engine::load::{HeldSessions, LoadError, NextTurn, Outcome, Plan, Turn, run_in_turns};
use tlsdyno_servers::cpu::ProcessClocks;

/// Length of a turn: long against a server's time to resume its work, short against the time for which a machine is
/// steady.
const TURN: Duration = Duration::from_millis(15);

/// A load, its held sessions, and the clocks of its server.
pub(super) struct Side<'a> {
    pub(super) plan: &'a Plan,
    pub(super) sessions: &'a mut HeldSessions,
    pub(super) clocks: ProcessClocks,
}

/// Outcome of a load, and the CPU time of its server in its turns.
pub(super) struct OfSide {
    pub(super) outcome: Outcome,
    pub(super) server_cpu_ns: u64,
}

/// Loads both for about the given time, in the order a b b a a b b a …, after connecting both. `None`: it had no turn,
/// for the other one ended before.
pub(super) fn round(
    sides: [Side<'_>; 2],
    begins: usize,
    length: Duration,
    stop: &AtomicBool,
) -> Result<[Option<OfSide>; 2], LoadError> {
    thread::scope(|scope| {
        let mut loops = sides.map(|side| Loop::start(scope, side, stop));
        let turn = NextTurn::Lasts(TURN.as_nanos() as u64);
        let mut go_on = (0..2).all(|number| {
            let up = loops[number].connections;
            loops[number].turn(NextTurn::LeadsIn(up)).is_some()
        });
        for of_loop in &mut loops {
            of_loop.server_cpu_ns = 0;
        }
        let began = Instant::now();
        while go_on {
            let order = [begins, 1 - begins, 1 - begins, begins];
            go_on = order.into_iter().all(|number| loops[number].turn(turn).is_some()) && began.elapsed() < length;
        }
        let [a, b] = loops.map(Loop::end);
        Ok([a?, b?])
    })
}

/// A load on its own thread, which waits for its turns.
struct Loop<'scope> {
    go: Sender<NextTurn>,
    done: Receiver<Turn>,
    thread: ScopedJoinHandle<'scope, Result<Outcome, LoadError>>,
    clocks: ProcessClocks,
    server_cpu_ns: u64,
    connections: u64,
}

impl<'scope> Loop<'scope> {
    fn start<'env: 'scope>(scope: &'scope Scope<'scope, 'env>, side: Side<'env>, stop: &'env AtomicBool) -> Self {
        let ((go, waiting), (tell, done)) = (channel(), channel());
        let Side { plan, sessions, clocks } = side;
        let thread = scope.spawn(move || {
            // Whoever gives the turns is gone when the last one was.
            let mut ask = |turn: Option<Turn>| {
                turn.map_or(Some(()), |turn| tell.send(turn).ok())?;
                waiting.recv().ok()
            };
            run_in_turns(plan, stop, sessions, &mut ask)
        });
        Loop { go, done, thread, clocks, server_cpu_ns: 0, connections: plan.connections.total.into() }
    }

    /// A turn, from rest to rest of the server. `None`: the load or the server has ended.
    fn turn(&mut self, next: NextTurn) -> Option<Turn> {
        let before_ns = self.clocks.at_rest_ns()?;
        self.go.send(next).ok()?;
        let turn = self.done.recv().ok()?;
        self.server_cpu_ns += self.clocks.at_rest_ns()?.saturating_sub(before_ns);
        Some(turn)
    }

    fn end(self) -> Result<Option<OfSide>, LoadError> {
        let Loop { go, thread, server_cpu_ns, .. } = self;
        drop(go);
        match thread.join().unwrap_or_else(|fault| std::panic::resume_unwind(fault)) {
            Ok(outcome) => Ok(Some(OfSide { outcome, server_cpu_ns })),
            Err(LoadError::NotBegun) => Ok(None),
            Err(error) => Err(error),
        }
    }
}
