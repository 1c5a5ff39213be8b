//! What the fuzz target of configurations of HAProxy, Apache and lighttpd runs; in `crates/installed/src/` a
//! test does it for a moment.

use super::{ServerName, rewritten};

/// Whose configurations these are, by the first byte of an input.
pub const SERVERS: [ServerName; 3] = [ServerName::Haproxy, ServerName::ApacheEvent, ServerName::Lighttpd];

/// Any text is understood or refused, and what was understood is written so that it is understood alike.
pub fn configuration(bytes: &[u8]) {
    let Some((first, text)) = bytes.split_first() else { return };
    let server = SERVERS[usize::from(*first) % SERVERS.len()];
    let Ok(text) = std::str::from_utf8(text) else { return };
    let Ok(again) = rewritten(server, text) else { return };
    let third = rewritten(server, &again);
    assert_eq!(third.ok().as_ref(), Some(&again), "{server}: {text:?}");
}
