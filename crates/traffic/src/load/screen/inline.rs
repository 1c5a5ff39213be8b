//! The screen while it is shown.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use tlsdyno_base::terminal::{Key, Terminal};
use tlsdyno_engine::load::{Plan, Watcher};

use super::view::View;
use super::{LOOKED, RENEWED, draw};

pub struct Screen {
    terminal: Terminal,
    view: View,
}

impl Screen {
    /// On the terminal of this process, if it has one that can show a screen.
    pub fn open(url: &str, plan: &Plan) -> Option<Screen> {
        Some(Screen { terminal: Terminal::open()?, view: View::new(url, plan) })
    }

    /// Shows the screen until the run is `done`, or is to `stop`: from then on a second Ctrl-C ends the process at
    /// once, so that the terminal has to be as before.
    pub fn show(mut self, watcher: &mut Watcher, done: &AtomicBool, stop: &AtomicBool) {
        let Screen { terminal, view } = &mut self;
        let began = Instant::now();
        let mut asked: Option<Instant> = None;
        let mut painted = None;
        while !done.load(Ordering::Relaxed) && !stop.load(Ordering::Relaxed) {
            if asked.is_none_or(|asked| asked.elapsed() >= RENEWED) {
                asked = Some(Instant::now());
                watcher.ask();
            }
            let (snapshot, size) = (watcher.snapshot(), terminal.size());
            if snapshot.is_some() || painted != Some(size) {
                view.elapsed = began.elapsed();
                if let Some(snapshot) = snapshot {
                    view.take(snapshot);
                    view.take_each(watcher.each());
                }
                terminal.paint(&draw::screen(view, size), painted != Some(size));
                painted = Some(size);
            }
            if terminal.keys(LOOKED).contains(&Key::Quit) {
                stop.store(true, Ordering::Relaxed);
            }
        }
    }
}
