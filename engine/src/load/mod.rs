//! The load engine: users with own TLS sessions fetch pages of objects over a few connections each.

pub mod limits;
mod outcome;
mod plan;
mod sessions;
mod users;

pub use outcome::{ErrorKind, Handshakes, Outcome, Phase};
pub use plan::{
    Connections, Expect, Object, Plan, Request, Resumption, Target, Until, User, Workload,
};
