//! Whether what is asked for is answered as expected, path by path, and what to do where it is not.

use std::time::{Duration, Instant};

use anyhow::Result;
use tlsdyno_base::exchange::{Answer, Failure, exchange_within, get};
use tlsdyno_engine::load::Expect;

use super::{Check, compile};
use crate::run::testbed::Testbed;

/// What answers where nothing else is said.
const USUAL_STATUS: u16 = 200;
/// Paths that are named in one message.
const NAMED_MAX: usize = 4;
/// How long the paths of a workload are tried: what an application takes for each is not known.
const TIME_MAX: Duration = Duration::from_secs(10);

/// Whether an answer is right, and what was seen.
pub(super) fn judge(answer: &Result<Answer, Failure>, request: &[u8], expect: &Expect) -> (bool, String) {
    let answer = match answer {
        Err(failure) => return (false, failure.to_string()),
        Ok(answer) => answer,
    };
    let wanted = expect.status.unwrap_or(USUAL_STATUS);
    let location = answer.header("Location");
    let to = location.as_ref().map_or_else(String::new, |location| format!(" to {location}"));
    let seen = format!("status {}{to}, {} bytes", answer.status, answer.body_bytes);
    if answer.status != wanted {
        let request = String::from_utf8_lossy(request);
        let path = request.split(' ').nth(1).unwrap_or_default();
        let advice = advice(answer.status, location.as_deref(), path, host_of(&request), answer);
        return (false, format!("{seen}, where {path} is to answer with {wanted}: {advice}"));
    }
    (expect.body_bytes.is_none_or(|bytes| bytes == answer.body_bytes), seen)
}

/// The host that a request names.
fn host_of(request: &str) -> &str {
    request.lines().find_map(|line| line.strip_prefix("Host: ")).unwrap_or_default()
}

/// What to do about a status that is not the expected one.
fn advice(status: u16, location: Option<&str>, path: &str, host: &str, answer: &Answer) -> String {
    let elsewhere = location.and_then(|location| location.split_once("://"));
    let other = elsewhere.map(|(_, rest)| rest.split(['/', '?', '#']).next().unwrap_or_default());
    let declared = format!("or write `{path} {status}` into the file of --paths, if that is what is to be measured");
    let says = |text: &str| String::from_utf8_lossy(answer.body()).contains(text);
    match (status, other, location) {
        (USUAL_STATUS, ..) => format!("leave the status behind {path} in the file of --paths out"),
        (300..=399, Some(other), _) if !other.eq_ignore_ascii_case(host) => {
            format!("name the host that it leads to (--host {other}), {declared}")
        }
        (300..=399, _, Some(location)) => {
            format!("name the page that it leads to, {location} (--path, --paths), {declared}")
        }
        (401, ..) => format!("give what it asks for (-H 'Authorization: …'), {declared}"),
        (400, ..) if says("SSL certificate error") => {
            "it does not take the certificate of --client-cert; its log says why".to_owned()
        }
        (400, ..) if says("SSL certificate") => {
            "it wants a certificate of its clients: give one (--client-cert, --client-key)".to_owned()
        }
        (403, ..) => format!("name a page that clients on loopback may have (--path, --paths), {declared}"),
        (404 | 410, ..) => format!("name a page that it has (--path, --paths), {declared}"),
        (500..=599, ..) => format!("see what it logs and whether the application behind it runs, {declared}"),
        _ => format!("name another page (--path, --paths), {declared}"),
    }
}

/// Whether the server of a configuration answers every path of the workload as expected; `None`: there is one path
/// only, which the other checks have asked for.
///
/// # Errors
/// The client cannot be set up.
pub(super) fn check(testbed: &Testbed, index: usize) -> Result<Option<Check>> {
    let objects = testbed.site.workload.objects.iter().filter(|object| object.method == "GET");
    let objects: Vec<_> = objects.collect();
    if objects.len() < 2 {
        return Ok(None);
    }
    let (host, address) = (&testbed.host_name, testbed.address(index));
    let limit = testbed.servers[index].time_limit();
    let config = testbed.servers[index].settings.as_ref().map(compile).transpose()?;
    let (began, mut tried, mut wrong) = (Instant::now(), 0, Vec::new());
    for object in &objects {
        if began.elapsed() > TIME_MAX || wrong.len() > NAMED_MAX {
            break;
        }
        let request = get(&object.path, &object.headers, host);
        let answer = exchange_within(limit, address, config.as_ref(), None, &request);
        let (right, seen) = judge(&answer, &request, &object.expect);
        tried += 1;
        wrong.extend((!right).then(|| format!("{}: {seen}", object.path)));
    }
    let untried = objects.len() - tried;
    let rest = if untried > 0 { format!("; {untried} more were not tried") } else { String::new() };
    let seen = if wrong.is_empty() { format!("{tried} paths") } else { wrong.join("; ") };
    Ok(Some(Check::new("every path answers as expected", wrong.is_empty(), seen + &rest)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn judged(response: &str, status: Option<u16>) -> (bool, String) {
        let status_seen = response.split(' ').nth(1).unwrap().parse().unwrap();
        let body_bytes = response.split("\r\n\r\n").nth(1).unwrap().len() as u64;
        let answer =
            Answer { status: status_seen, body_bytes, response: response.as_bytes().to_vec(), ..Answer::default() };
        judge(&Ok(answer), &get("/login", "", "shop.example"), &Expect { status, body_bytes: None })
    }

    #[test]
    fn an_unexpected_status_says_what_to_do() {
        let elsewhere = "HTTP/1.1 301 Moved\r\nlocation: https://www.shop.example/\r\n\r\n-";
        let (right, seen) = judged(elsewhere, None);
        let wanted = "status 301 to https://www.shop.example/, 1 bytes, where /login is to answer with 200";
        assert!(!right && seen.starts_with(wanted) && seen.contains("--host www.shop.example"), "{seen}");
        assert!(judged(elsewhere, Some(301)).0);
        let within = judged("HTTP/1.1 302 Found\r\nLocation: /account\r\n\r\n", None).1;
        assert!(within.contains("leads to, /account") && within.contains("`/login 302`"), "{within}");
        for (head, remedy) in [
            ("401 Unauthorized\r\nWWW-Authenticate: Basic\r\n\r\n", "-H 'Authorization"),
            ("400 Bad Request\r\n\r\nNo required SSL certificate was sent", "--client-cert"),
            ("400 Bad Request\r\n\r\nThe SSL certificate error", "does not take"),
            ("403 Forbidden\r\n\r\n", "loopback"),
            ("404 Not Found\r\n\r\n", "--paths"),
            ("502 Bad Gateway\r\n\r\n", "application behind it"),
        ] {
            let seen = judged(&format!("HTTP/1.1 {head}"), None).1;
            assert!(seen.contains(remedy), "{seen}");
        }
        assert!(judged("HTTP/1.1 200 OK\r\n\r\n", Some(301)).1.contains("leave the status behind /login"));
        assert!(judged("HTTP/1.1 404 Not Found\r\n\r\n", Some(404)).0);
    }
}
