//! What the fuzz target of access logs runs; in `dyno/src/trace/` the tests do it with the inputs that are kept.

use super::access_log;

/// Any bytes are an entry or a fault, and an entry written again reads as the same entry.
pub fn access_log_line(line: &[u8]) {
    let mut clock = access_log::Clock::default();
    let Ok(entry) = access_log::parse_with(line, &mut clock) else { return };
    assert_eq!(access_log::parse_with(line, &mut clock), Ok(entry), "a remembered time reads alike");
    assert!(!entry.client.is_empty() && !entry.method.is_empty() && !entry.target.is_empty());
    assert!((100..600).contains(&entry.status));

    let mut again = entry.client.to_vec();
    again.extend(b" - - [17/May/2015:10:05:03 +0000] \"");
    again.extend(entry.method);
    again.push(b' ');
    again.extend(entry.target);
    again.extend(format!(" HTTP/1.1\" {} ", entry.status).bytes());
    again.extend(entry.bytes.map_or("-".to_owned(), |bytes| bytes.to_string()).bytes());
    if let Some(agent) = entry.user_agent {
        again.extend(b" \"-\" \"");
        again.extend(agent);
        again.push(b'"');
    }
    let expected = access_log::Entry { time_s: 1_431_857_103, ..entry };
    assert_eq!(access_log::parse_with(&again, &mut clock), Ok(expected), "{}", again.escape_ascii());
}
