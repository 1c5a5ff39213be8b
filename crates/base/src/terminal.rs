//! The terminal that a screen is painted on: taken over and given back, whatever happens.

mod keyboard;
mod paint;
pub mod pane;

use std::fs::File;
use std::io::Write;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Mutex, Once, PoisonError, Weak};
use std::time::Duration;

use ratatui::buffer::Buffer;
use ratatui::layout::Size;
use rustix::termios::{Termios, tcgetwinsize};

pub use self::keyboard::Key;

const COLUMNS_MIN: u16 = 20;
const ROWS_MIN: u16 = 4;

/// A terminal taken over. Dropping it gives it back.
pub struct Terminal {
    keyboard: OwnedFd,
    output: OwnedFd,
    colours: bool,
    /// `None` once it was given back.
    held: Arc<Mutex<Option<Held>>>,
}

struct Held {
    keyboard: OwnedFd,
    output: File,
    before: Termios,
}

/// The terminal held now, for a panic in any thread: its message must not be painted over, nor stand in settings of
/// ours.
static HELD: Mutex<Weak<Mutex<Option<Held>>>> = Mutex::new(Weak::new());

impl Terminal {
    /// Takes over the terminal of this process, if it has one that can show a screen: standard input and standard error
    /// are one, and it is in the foreground there.
    pub fn open() -> Option<Terminal> {
        let capable = std::env::var("TERM").is_ok_and(|term| !term.is_empty() && term != "dumb");
        let no_colour = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
        let (input, output) = (std::io::stdin(), std::io::stderr());
        if !capable || !keyboard::is_ours(input.as_fd()) {
            return None;
        }
        give_back_on_panic();
        Terminal::on(input.as_fd(), output.as_fd(), !no_colour)
    }

    fn on(keyboard: BorrowedFd, output: BorrowedFd, colours: bool) -> Option<Terminal> {
        let size = size(output)?;
        if size.width < COLUMNS_MIN || size.height < ROWS_MIN {
            return None;
        }
        let clone = |fd: BorrowedFd| fd.try_clone_to_owned().ok();
        let (keyboard, output) = (clone(keyboard)?, clone(output)?);
        let (for_return, mut painted) = (clone(keyboard.as_fd())?, File::from(clone(output.as_fd())?));
        let before = keyboard::take(keyboard.as_fd())?;
        // Where writing fails, the screen stays empty; there is nobody to tell.
        let _ = painted.write_all(paint::HIDE.as_bytes());
        let held = Arc::new(Mutex::new(Some(Held { keyboard: for_return, output: painted, before })));
        *HELD.lock().unwrap_or_else(PoisonError::into_inner) = Arc::downgrade(&held);
        Some(Terminal { keyboard, output, colours, held })
    }

    /// Its columns and rows now.
    pub fn size(&self) -> Size {
        size(self.output.as_fd()).unwrap_or(Size::new(COLUMNS_MIN, ROWS_MIN))
    }

    /// Paints a screen over the last one. `anew`: what there was may stand in other rows than it was painted in.
    pub fn paint(&self, buffer: &Buffer, anew: bool) {
        let erase = if anew { paint::ERASE } else { "" };
        let text = format!("{erase}{}", paint::bytes(buffer, self.colours));
        if let Some(held) = self.held.lock().unwrap_or_else(PoisonError::into_inner).as_mut() {
            let _ = held.output.write_all(text.as_bytes());
        }
    }

    /// Waits for keys, at most this long.
    pub fn keys(&self, at_most: Duration) -> Vec<Key> {
        keyboard::keys(self.keyboard.as_fd(), at_most)
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        give_back(&self.held);
    }
}

fn give_back(held: &Mutex<Option<Held>>) {
    if let Some(mut held) = held.lock().unwrap_or_else(PoisonError::into_inner).take() {
        let _ = held.output.write_all([paint::ERASE, paint::SHOW].concat().as_bytes());
        keyboard::give_back(held.keyboard.as_fd(), &held.before);
    }
}

fn give_back_on_panic() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let tell = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            let held = HELD.lock().unwrap_or_else(PoisonError::into_inner).upgrade();
            if let Some(held) = held {
                give_back(&held);
            }
            tell(panic);
        }));
    });
}

fn size(output: BorrowedFd) -> Option<Size> {
    let size = tcgetwinsize(output).ok()?;
    Some(Size::new(size.ws_col, size.ws_row))
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use rustix::termios::{LocalModes, tcgetattr};

    use super::*;

    #[test]
    fn a_panic_gives_the_terminal_back_before_its_message() {
        let (mut far, near) = pty_process::blocking::open().unwrap();
        far.resize(pty_process::Size::new(24, 80)).unwrap();
        let modes = || tcgetattr(near.as_fd()).unwrap().local_modes;
        let before = modes();
        give_back_on_panic();
        let terminal = Terminal::on(near.as_fd(), near.as_fd(), true).unwrap();
        assert_eq!(terminal.size(), Size::new(80, 24));
        assert_eq!(before - modes(), LocalModes::ICANON | LocalModes::ECHO, "Ctrl-C is still a signal");
        std::thread::scope(|scope| assert!(scope.spawn(|| panic!("on purpose")).join().is_err()));
        assert_eq!(modes(), before, "while the terminal is still open");
        terminal.paint(&Buffer::with_lines(["too late"]), false);
        drop(terminal);
        rustix::io::write(near.as_fd(), b"end").unwrap();
        let mut written = Vec::new();
        while !written.ends_with(b"end") {
            let mut bytes = [0; 256];
            let count = far.read(&mut bytes).unwrap();
            written.extend_from_slice(&bytes[..count]);
        }
        assert_eq!(String::from_utf8(written).unwrap(), format!("{}{}{}end", paint::HIDE, paint::ERASE, paint::SHOW));
    }

    #[test]
    fn what_is_too_small_or_no_terminal_shows_no_screen() {
        let (far, near) = pty_process::blocking::open().unwrap();
        assert!(Terminal::on(near.as_fd(), near.as_fd(), true).is_none(), "no size is known");
        far.resize(pty_process::Size::new(ROWS_MIN, COLUMNS_MIN)).unwrap();
        let file = tempfile::tempfile().unwrap();
        assert!(Terminal::on(file.as_fd(), near.as_fd(), true).is_none());
        assert!(Terminal::on(near.as_fd(), file.as_fd(), true).is_none());
    }
}
