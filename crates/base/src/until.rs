//! Waiting for what nobody tells.

use std::thread;
use std::time::{Duration, Instant};

/// Looks again and again, with `pause` between, until what it sees `is_so` or the time `within` is over: what it saw
/// last.
///
/// # Errors
/// As `look`, at once.
pub fn until<T, E>(
    within: Duration,
    pause: Duration,
    mut look: impl FnMut() -> Result<T, E>,
    is_so: impl Fn(&T) -> bool,
) -> Result<T, E> {
    let limit = Instant::now() + within;
    loop {
        let seen = look()?;
        if is_so(&seen) || Instant::now() >= limit {
            return Ok(seen);
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
        let mut looks = 0;
        let mut look = || {
            looks += 1;
            if looks < 5 { Ok(looks) } else { Err("gone") }
        };
        assert_eq!(until(day, none, &mut look, |seen| *seen == 2), Ok(2));
        assert_eq!(until(none, Duration::from_nanos(1), &mut look, |_| false), Ok(3), "looked once at least");
        assert_eq!(until(day, none, &mut look, |_| false), Err("gone"));
    }
}
