//! The keyboard while a screen is shown: keys come one by one and are not echoed; Ctrl-C remains the signal that it is.

use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::termios::{LocalModes, OptionalActions, SpecialCodeIndex, Termios, tcgetattr, tcgetpgrp, tcsetattr};

/// Whether the process is in the foreground of this terminal: whoever changes its settings from the background is
/// stopped.
pub fn is_ours(keyboard: BorrowedFd) -> bool {
    tcgetpgrp(keyboard).is_ok_and(|group| group == rustix::process::getpgrp())
}

/// Takes the keyboard over. Answers how it was before, for [`give_back`]; `None`: it is no terminal.
pub fn take(keyboard: BorrowedFd) -> Option<Termios> {
    let before = tcgetattr(keyboard).ok()?;
    let mut ours = before.clone();
    ours.local_modes.remove(LocalModes::ICANON | LocalModes::ECHO);
    ours.special_codes[SpecialCodeIndex::VMIN] = 1;
    ours.special_codes[SpecialCodeIndex::VTIME] = 0;
    // A client that stands still measures nothing, and Ctrl-Z would leave these settings to the shell.
    ours.special_codes[SpecialCodeIndex::VSUSP] = 0;
    tcsetattr(keyboard, OptionalActions::Now, &ours).ok()?;
    Some(before)
}

pub fn give_back(keyboard: BorrowedFd, before: &Termios) {
    // A terminal that is gone needs no settings.
    let _ = tcsetattr(keyboard, OptionalActions::Now, before);
}

/// Waits for keys, at most this long. Answers whether one of them was q.
pub fn quit_asked(keyboard: BorrowedFd, at_most: Duration) -> bool {
    let fd = keyboard.as_fd();
    let mut waits = [PollFd::new(&fd, PollFlags::IN)];
    let timeout = Timespec { tv_sec: at_most.as_secs() as i64, tv_nsec: i64::from(at_most.subsec_nanos()) };
    let came = poll(&mut waits, Some(&timeout)).unwrap_or(0) > 0;
    if !came {
        return false;
    }
    let mut keys = [0; 64];
    match rustix::io::read(keyboard, &mut keys) {
        Ok(count) if count > 0 => keys[..count].iter().any(|key| matches!(key, b'q' | b'Q')),
        // The terminal hung up: there is nobody to wait for, but the wait must last, or its caller would spin.
        _ => {
            std::thread::sleep(at_most);
            false
        }
    }
}
