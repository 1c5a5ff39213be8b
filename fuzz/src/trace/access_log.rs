//! What the fuzz target of access logs runs; in `crates/workloads/src/` the tests do it with the inputs that are
//! kept.

use super::access_log::{self, parse_with};
use super::json_line::as_combined;
use super::layout::{Field, Found, Layout};

/// Any bytes are an entry or a fault wherever the client is looked for, and an entry written again reads as the same
/// entry, in combined format and in JSON.
pub fn access_log_line(line: &[u8]) {
    if let Some(combined) = as_combined(line) {
        access_log_line(&combined);
    }
    let mut clock = access_log::Clock::default();
    let usual = Layout::default();
    let asked = [Field::Number(1), Field::Number(9), Field::Last].map(|field| Layout { field: Some(field), ..usual });
    let others = [Layout { words_before: 2, ..usual }, Layout { behind_proxy: true, ..usual }];
    for layout in asked.iter().chain(&others) {
        if let Ok(entry) = parse_with(line, &mut clock, layout) {
            assert!(!entry.client.is_empty() && entry.client.len() <= line.len().max(45), "a client is in the line");
        }
    }
    let Ok(entry) = parse_with(line, &mut clock, &usual) else { return };
    assert_eq!(parse_with(line, &mut clock, &usual), Ok(entry.clone()), "a remembered time reads alike");
    assert!(!entry.client.is_empty() && !entry.method.is_empty() && !entry.target.is_empty());
    assert!((100..600).contains(&entry.status));

    let mut again = entry.client.to_vec();
    again.extend(b" - - [17/May/2015:10:05:03 +0000] \"");
    again.extend(entry.method.bytes());
    again.push(b' ');
    again.extend(entry.target);
    again.extend(format!(" HTTP/1.1\" {} ", entry.status).bytes());
    again.extend(entry.bytes.map_or("-".to_owned(), |bytes| bytes.to_string()).bytes());
    if let Some(agent) = &entry.user_agent {
        again.extend(b" \"-\" \"");
        again.extend(*agent);
        again.push(b'"');
    }
    let found = Found::Words { before: b"", another: false };
    let expected = access_log::Entry { time_s: 1_431_857_103, found, ..entry };
    assert_eq!(parse_with(&again, &mut clock, &usual), Ok(expected.clone()), "{}", again.escape_ascii());
    survives_json(&expected);
}

/// Where the entry is text that needs no marks of escape.
fn survives_json(entry: &access_log::Entry<'_>) {
    let texts = [&entry.client, entry.target, entry.user_agent.unwrap_or(b"M")].map(std::str::from_utf8);
    let [Ok(client), Ok(target), Ok(agent)] = texts else { return };
    let is_plain = |text: &str| !text.contains(['"', '\\']) && text.trim_ascii() == text && text != "-";
    if ![client, target, agent].into_iter().all(is_plain) || agent.is_empty() {
        return;
    }
    let request = format!("{} {target} HTTP/1.1", entry.method);
    let fields = serde_json::json!({
        "remote_addr": client, "time_iso8601": "2015-05-17T10:05:03+00:00", "request": request,
        "status": entry.status, "body_bytes_sent": entry.bytes, "http_user_agent": agent,
    });
    let combined = as_combined(fields.to_string().as_bytes()).expect("all that a line needs is there");
    let again = parse_with(&combined, &mut access_log::Clock::default(), &Layout::default());
    let user_agent = Some(agent.as_bytes());
    assert_eq!(again, Ok(access_log::Entry { user_agent, ..entry.clone() }), "{}", combined.escape_ascii());
}
