//! In place of the screen, where the feature `screen` is left out: the line is shown instead.

use std::io::IsTerminal;
use std::sync::Once;
use std::sync::atomic::AtomicBool;

use tlsdyno_base::fault::left_out;
use tlsdyno_engine::load::{Plan, Watcher};

/// No screen.
pub enum Screen {}

impl Screen {
    /// Says once, to whoever would have seen a display, that this program has none.
    pub fn open(_: &str, _: &Plan) -> Option<Screen> {
        static ONCE: Once = Once::new();
        if std::io::stderr().is_terminal() {
            ONCE.call_once(|| tell!("a line in place of the screen: {}", left_out("the screen", "screen")));
        }
        None
    }

    pub fn show(self, _: &mut Watcher, _: &AtomicBool, _: &AtomicBool) {
        match self {}
    }
}
