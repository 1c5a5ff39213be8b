//! What moves traffic: `tlsdyno load`, `tlsdyno dispatch` and workloads, against servers of several TLS stacks.
//!
//! They stand apart from `servers`: some raise this process's limit on open files, which its children inherit, and some
//! count the descriptors of a child, which must not inherit those that the tests of no-ops hand to their servers.

mod cost;
mod dispatch;
mod load;
mod machines;
mod other_libraries;
#[path = "../place/mod.rs"]
mod place;
mod plan;
mod probe;
mod replay;
mod reuse;
mod reuse_matrix;
mod stacks;
mod top;
mod top_changes;
mod top_truth;

mod trace;
