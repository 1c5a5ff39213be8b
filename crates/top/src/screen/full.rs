//! The whole screen on a terminal: a list of servers, and one of them opened.

use std::time::Duration;

use ratatui::layout::Size;
use tlsdyno_base::terminal::{Key, Terminal};

use super::draw;
use super::view::View;

/// The terminal with what is shown on it.
pub struct Full {
    terminal: Terminal,
    pub view: View,
    painted: Option<Size>,
}

impl Full {
    /// On the terminal of this process, if it has one that can show it; standard output has to be one too.
    pub fn open(opened: Option<u32>) -> Option<Full> {
        let terminal = Terminal::open().filter(|_| std::io::IsTerminal::is_terminal(&std::io::stdout()))?;
        Some(Full { terminal, view: View { opened, ..View::default() }, painted: None })
    }

    /// Paints what is shown now.
    pub fn paint(&mut self) {
        let size = self.terminal.size();
        self.terminal.paint(&draw::screen(&self.view, size), self.painted != Some(size));
        self.painted = Some(size);
    }

    /// Takes keys, and paints anew what they or another size of the terminal change. Answers whether it is to end.
    pub fn look(&mut self) -> bool {
        let keys = self.terminal.keys(Duration::ZERO);
        if self.painted.is_some_and(|size| size != self.terminal.size() || !keys.is_empty()) {
            let ends = keys.into_iter().any(|key| self.view.press(key));
            // What was there may be longer.
            self.painted = None;
            self.paint();
            return ends;
        }
        keys.contains(&Key::Quit)
    }
}
