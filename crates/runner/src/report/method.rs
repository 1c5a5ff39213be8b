//! How a record was measured, in the words of a page.

use askama::Template;

use super::document::{Content, Medium, Section};

/// Method behind the numbers of a report.
#[derive(Clone, Copy, Debug, Template)]
#[template(path = "method.html")]
pub enum Method {
    /// Stages were replaced by no-ops.
    Stages(Rounds),
    /// Stages were computed twice and nothing replaced.
    Doubling(Rounds),
    /// Instructions were counted, and nothing timed.
    Counting,
    /// A server was loaded, in one run for each point or in rounds.
    Load,
    /// Policies dispatched the same traffic: requests at given times, or a given number of them.
    Cluster {
        /// Requests at given times.
        open_loop: bool,
    },
    Profile,
    /// Primitives were called by a separate process.
    Primitives,
    Steps,
    /// Connections of several reaches were made, and the CPU time of a foreign server's processes was read.
    Cost,
    /// Connections were opened and held, and the memory of a server's processes was read.
    Memory,
    /// Locks of a server under valgrind were counted.
    Locks,
}

/// Rounds behind CPU time per hit.
#[derive(Clone, Copy, Debug)]
pub struct Rounds {
    pub rounds: u32,
    /// Sweeps of slices in them; 0: blocks only.
    pub sweeps: u32,
    /// Blocks measured hits per second.
    pub has_rates: bool,
}

impl Method {
    /// On pages only.
    pub fn section(self) -> Section {
        let html = self.render().expect("its templates hold numbers and flags only");
        Section::titled("", "How it was measured").on(Medium::Page).with(Content::Html(html))
    }
}
