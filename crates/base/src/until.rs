//! Waiting for what nobody tells.

use std::thread;
use std::time::{Duration, Instant};

/// Looks again and again, with `pause` between, until what it sees `is_so` or the time `within` is over: what it saw
/// last.
pub fn until<T, E>(
    within: Duration,
    pause: Duration,
    mut poll: impl FnMut() -> Result<T, E>,
    is_so: impl Fn(&T) -> bool,
) -> Result<T, E> {
    let limit = Instant::now() + within;
    loop {
        let state = poll()?;
        if is_so(&state) || Instant::now() >= limit {
            return Ok(state);
        }
        thread::sleep(pause);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_ends_with_what_is_so_with_the_time_or_with_an_error() {
        let (day, none) = (Duration::from_secs(86_400), Duration::ZERO);
        let mut polls = 0;
        let mut poll = || {
            polls += 1;
            if polls < 5 { Ok(polls) } else { Err("gone") }
        };
        assert_eq!(until(day, none, &mut poll, |state| *state == 2), Ok(2));
        assert_eq!(until(none, Duration::from_nanos(1), &mut poll, |_| false), Ok(3), "looked once at least");
        assert_eq!(until(day, none, &mut poll, |_| false), Err("gone"));
    }
}
