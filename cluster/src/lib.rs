//! Several machines: clusters behind dispatchers, and arrays of proxies before a server.

#![forbid(unsafe_code)]
// They panic where the reader has gone (`2>&1 | head -1`): `tell!` and `output::print` do not.
#![cfg_attr(not(test), deny(clippy::print_stderr, clippy::print_stdout))]

pub mod kinds;

pub use tlsdyno_base::{
    affinity, certificate_files, choice, distribution, exchange, exit, fault, foreign, histogram, input, interrupt,
    listening, open_files, output, process_tree, random, units,
};
pub use tlsdyno_bench::{report, run};
pub use tlsdyno_engine::time;
pub use tlsdyno_native as native;
pub use tlsdyno_record::{model, store};
pub use tlsdyno_servers as servers;
pub use tlsdyno_stats as stats;
pub use tlsdyno_traffic::{load, machines, trace};
