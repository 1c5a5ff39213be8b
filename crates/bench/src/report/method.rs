//! How a record was measured, in the words of a page.

use askama::Template;

use super::document::{Content, Medium, Section};

/// What was done to get the numbers.
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
    /// Policies dispatched the same traffic: requests at given times, or a given amount of them.
    Cluster {
        /// Requests at given times.
        open_loop: bool,
    },
    /// Calls were timed inside the server.
    Profile,
    /// Primitives were called by a process of their own.
    Primitives,
    /// Handshakes were followed step by step.
    Steps,
    /// Connections of several reaches were made, and the CPU time of a foreign server's processes was read.
    Cost,
}

/// What CPU time per hit comes from.
#[derive(Clone, Copy, Debug)]
pub struct Rounds {
    /// How many there were.
    pub rounds: u32,
    /// Sweeps of slices in them; 0: they had blocks only.
    pub sweeps: u32,
    /// Hits per second were measured, in blocks.
    pub has_rates: bool,
}

impl Method {
    /// The section about it, on pages only.
    pub fn section(self) -> Section {
        let html = self.render().expect("its templates hold numbers and flags only");
        Section::titled("", "How it was measured").on(Medium::Page).with(Content::Html(html))
    }
}
