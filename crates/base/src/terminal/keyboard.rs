//! The keyboard while a screen is shown: keys come one by one and are not echoed; Ctrl-C remains the signal that it is.

use std::iter::from_fn;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::termios::{LocalModes, OptionalActions, SpecialCodeIndex, Termios, tcgetattr, tcgetpgrp, tcsetattr};

/// Keys that mean something on a screen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Key {
    /// The key q, which ends a program.
    Quit,
    /// The arrow, or k as in vi.
    Up,
    /// The arrow, or j.
    Down,
    /// The key Enter, which opens what is marked.
    Enter,
    /// Esc.
    Escape,
    /// 0 to 9.
    Digit(usize),
}

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

/// Waits for keys, at most this long.
pub fn keys(keyboard: BorrowedFd, at_most: Duration) -> Vec<Key> {
    let fd = keyboard.as_fd();
    let mut waits = [PollFd::new(&fd, PollFlags::IN)];
    let timeout = Timespec { tv_sec: at_most.as_secs() as i64, tv_nsec: i64::from(at_most.subsec_nanos()) };
    let came = poll(&mut waits, Some(&timeout)).unwrap_or(0) > 0;
    if !came {
        return Vec::new();
    }
    let mut keys = [0; 64];
    match rustix::io::read(keyboard, &mut keys) {
        Ok(count) if count > 0 => keys_of(&keys[..count]),
        // The terminal hung up: there is nobody to wait for, but the wait must last, or its caller would spin.
        _ => {
            std::thread::sleep(at_most);
            Vec::new()
        }
    }
}

/// What a terminal sends for keys (ECMA-48, section 5.4: control sequences); it sends one whole.
fn keys_of(mut bytes: &[u8]) -> Vec<Key> {
    let next = || {
        let (first, rest) = bytes.split_first()?;
        bytes = rest;
        let sequence = rest.strip_prefix(b"[").or(rest.strip_prefix(b"O")).filter(|_| *first == b'\x1b');
        let Some(sequence) = sequence else { return Some(plain(*first)) };
        let end = sequence.iter().position(|byte| (0x40..=0x7e).contains(byte))?;
        bytes = &sequence[end + 1..];
        Some(match sequence[end] {
            b'A' => Some(Key::Up),
            b'B' => Some(Key::Down),
            _ => None,
        })
    };
    from_fn(next).flatten().collect()
}

fn plain(byte: u8) -> Option<Key> {
    Some(match byte {
        b'q' | b'Q' => Key::Quit,
        b'k' => Key::Up,
        b'j' => Key::Down,
        b'\r' | b'\n' => Key::Enter,
        b'\x1b' => Key::Escape,
        b'0'..=b'9' => Key::Digit(usize::from(byte - b'0')),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_told_from_the_sequences_of_others() {
        let all = [Key::Up, Key::Down, Key::Escape, Key::Digit(7), Key::Enter, Key::Quit];
        assert_eq!(keys_of(b"\x1b[A\x1bOB\x1b\x1b[3~\x1b[1;5C7x\nq"), all);
        assert_eq!(keys_of(b"\x1b["), []);
    }
}
