//! The load engine: users with own TLS sessions fetch pages of objects over a few connections each.
//!
//! [`run`] carries out a [`Plan`] on the calling thread and answers an [`Outcome`]. What is decided (`users`,
//! `sessions`) knows neither sockets nor clocks; `run` and `connection` carry it out.

mod connection;
pub mod limits;
mod lives;
mod merge;
mod outcome;
mod pacing;
mod plan;
mod progress;
mod rated;
mod recorder;
mod redirect;
mod requests;
mod route;
mod run;
mod sessions;
mod share;
mod slices;
mod storm;
mod users;
mod window;
mod without;
#[cfg(feature = "serde")]
mod written;

pub use lives::Life;
pub use merge::merge;
pub use outcome::{ErrorKind, Handshakes, Http2Use, LoopOutcome, Outcome, Phase, Relayed, WindowUse};
pub use plan::{
    Arrivals, BROWSER_ALPN, BROWSER_STREAMS, Connections, Expect, HTTP2, LoadTarget, Object, Pacing, Pause, Plan, Rate,
    Request, Resumption, SessionLimits, Spread, Timeouts, Until, User, Workload,
};
pub use progress::{Recent, RecordedLatencies, Snapshot, Watched, Watcher, watch};
pub use rated::{Kept, Rated};
pub use redirect::Redirects;
pub use route::Route;
pub use run::{
    AskForTurn, HeldSessions, LoadError, NextTurn, Turn, run, run_in_turns, run_together, run_together_holding,
};
pub use share::Share;
pub use slices::{Slice, SliceLatencies};
pub use without::without;
