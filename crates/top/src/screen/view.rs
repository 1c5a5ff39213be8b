//! What the screen shows, and what keys change of it.

use tlsdyno_base::terminal::Key;

use super::history::History;

/// What is shown of a server.
#[derive(Clone, Debug)]
pub struct Shown {
    /// Its first process.
    pub root: u32,
    /// Name, ports, process and library.
    pub title: String,
    /// In the list: CPUs used, the share of TLS, connections a second.
    pub cells: [String; 3],
    /// The same of it alone, in a line.
    pub share: String,
    /// Each part of TLS that is shown, and its share, percent, with both ends of its interval.
    pub parts: Vec<(&'static str, [f64; 3])>,
    /// What else there is to say.
    pub lines: Vec<String>,
}

/// All that is shown.
#[derive(Default)]
pub struct View {
    pub servers: Vec<Shown>,
    pub history: History,
    /// Lines below a list.
    pub more: Vec<String>,
    /// The last line.
    pub own: String,
    /// Which line of the list is marked.
    pub marked: usize,
    /// The first process of the server that is opened.
    pub opened: Option<u32>,
}

impl View {
    /// The server that is opened, if it is there.
    pub fn opened(&self) -> Option<&Shown> {
        self.servers.iter().find(|server| Some(server.root) == self.opened)
    }

    /// Answers whether it is to end.
    pub fn press(&mut self, key: Key) -> bool {
        let last = self.servers.len().saturating_sub(1);
        let open = |at: usize| self.servers.get(at).map(|server| server.root);
        match key {
            Key::Quit => return true,
            Key::Escape => self.opened = None,
            _ if self.opened().is_some() => {}
            Key::Up => self.marked = self.marked.min(last).saturating_sub(1),
            Key::Down => self.marked = (self.marked + 1).min(last),
            Key::Enter => self.opened = open(self.marked.min(last)),
            Key::Digit(number) => self.opened = number.checked_sub(1).and_then(open),
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::screen::draw::tests::server;

    #[test]
    fn keys_open_a_server_and_go_back() {
        let mut view = View { servers: vec![server(10), server(20), server(30)], ..View::default() };
        let mut after = |keys: &[Key]| {
            keys.iter().for_each(|key| assert!(!view.press(*key)));
            (view.opened, view.marked)
        };
        assert_eq!(after(&[Key::Down, Key::Enter]), (Some(20), 1));
        assert_eq!(after(&[Key::Down, Key::Escape]), (None, 1), "in an opened one there is nothing to mark");
        assert_eq!(after(&[Key::Down, Key::Down, Key::Down, Key::Enter, Key::Escape, Key::Digit(1)]), (Some(10), 2));
        assert_eq!(after(&[Key::Escape, Key::Digit(0), Key::Digit(9)]), (None, 2));
        view.servers.truncate(1);
        assert!(!view.press(Key::Enter) && view.opened == Some(10), "the marked one has gone");
        assert!(view.press(Key::Quit));
    }
}
