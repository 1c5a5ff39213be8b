//! Whether what is asked for is answered as expected, path by path, and what to do where it is not.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Result;
use tlsdyno_base::exchange::{Answer, Failure, exchange_within, get};
use tlsdyno_base::fault::{Fault, OrFault};
use tlsdyno_base::units::format_of;
use tlsdyno_engine::load::{Expect, Workload, without};
use tlsdyno_record::model::workload::WorkloadSpec;

use super::{Check, compile};
use crate::run::testbed::Testbed;

/// Status of an answer where none is specified.
const USUAL_STATUS: u16 = 200;
/// Maximum number of paths in one message.
const NAMED_MAX: usize = 4;
/// Maximum duration of trying the paths of a workload: the time that an application takes for each is not known.
const TIME_MAX: Duration = Duration::from_secs(10);

/// Maximum part of the requests of a log or recording that may be answered otherwise, per cent.
const LOST_PERCENT_MAX: f64 = 20.0;

/// Whether an answer is as expected, and the finding.
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

fn host_of(request: &str) -> &str {
    request.lines().find_map(|line| line.strip_prefix("Host: ")).unwrap_or_default()
}

/// Remedy for an unexpected status.
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
        (500..=599, ..) => format!(
            "see what it logs and whether the application behind it runs and is asked (--ask-backend), {declared}"
        ),
        _ => format!("name another page (--path, --paths), {declared}"),
    }
}

/// Part of a log or recording that is left out, because a server answers it otherwise or there was no time to try it.
#[derive(Debug, Default)]
struct LeftOut {
    /// Indices of objects, with the findings.
    wrong: Vec<(u32, String)>,
    untried: Vec<u32>,
    tried: usize,
}

impl LeftOut {
    /// Tries all requests without side effects, the most frequent first. Leaves nothing out where every request fails.
    fn of(workload: &Workload, hits: &[u64], ask: &dyn Fn(&str, &str) -> Result<Answer, Failure>) -> LeftOut {
        let is_safe = |place: &u32| ["GET", "HEAD"].contains(&&*workload.objects[*place as usize].method);
        let mut places: Vec<u32> = (0..workload.objects.len() as u32).filter(is_safe).collect();
        places.sort_by_key(|place| std::cmp::Reverse(hits[*place as usize]));
        let (mut left_out, began) = (LeftOut::default(), Instant::now());
        for place in places {
            let object = &workload.objects[place as usize];
            if began.elapsed() > TIME_MAX {
                left_out.untried.push(place);
                continue;
            }
            let seen = match ask(&object.path, &object.headers) {
                Ok(answer) if object.expect.status.is_none_or(|status| status == answer.status) => None,
                Ok(answer) => Some(answer.status.to_string()),
                Err(_) if left_out.tried == 0 => return LeftOut::default(),
                Err(failure) => Some(failure.to_string()),
            };
            left_out.tried += 1;
            left_out.wrong.extend(seen.map(|seen| (place, seen)));
        }
        left_out
    }

    /// Share of the requests that are answered otherwise, per cent, and a remark.
    fn told(&self, workload: &Workload, hits: &[u64]) -> (f64, Option<String>) {
        let all = hits.iter().sum::<u64>().max(1);
        let lost: u64 = self.wrong.iter().map(|(place, _)| hits[*place as usize]).sum();
        let untried: u64 = self.untried.iter().map(|place| hits[*place as usize]).sum();
        let percent = 100.0 * lost as f64 / all as f64;
        let named = self.wrong.iter().take(NAMED_MAX).map(|(place, seen)| {
            let object = &workload.objects[*place as usize];
            format!("{} ({seen}, recorded {})", object.path, object.expect.status.unwrap_or(USUAL_STATUS))
        });
        let told = format!(
            "left out: {lost} of {all} requests ({percent:.1} %; up to {LOST_PERCENT_MAX:.0} % may be), asked in {} \
             that the server answers otherwise than recorded: {}",
            format_of(self.wrong.len() as f64, "way"),
            named.collect::<Vec<_>>().join(", ")
        );
        let more = format!("{told}; and {untried} that could not be tried within {} s", TIME_MAX.as_secs());
        let told = if untried > 0 { more } else { told };
        (percent, (lost + untried > 0).then_some(told))
    }
}

/// Tries the requests of a log or recording on the server of a configuration, and removes from the workload those that
/// it answers otherwise. Returns a remark; `None`: the workload is neither. Fails where the untouched server loses more
/// than a result could stand for.
pub(super) fn leave_out(testbed: &mut Testbed, index: usize) -> Result<Option<Option<String>>> {
    if !matches!(testbed.experiment.workload, WorkloadSpec::Trace { .. } | WorkloadSpec::Har { .. }) {
        return Ok(None);
    }
    let workload = Arc::clone(&testbed.site.workload);
    let mut hits = vec![0; workload.objects.len()];
    workload.requests.iter().for_each(|request| hits[request.object as usize] += 1);
    let (host, address) = (&testbed.host_name, testbed.address(index));
    let config = testbed.servers[index].settings.as_ref().map(compile).transpose()?;
    let limit = testbed.servers[index].time_limit();
    let ask =
        |path: &str, headers: &str| exchange_within(limit, address, config.as_ref(), None, &get(path, headers, host));
    let left_out = LeftOut::of(&workload, &hits, &ask);
    let (percent, told) = left_out.told(&workload, &hits);
    if percent > LOST_PERCENT_MAX {
        let lost = anyhow::anyhow!("{}. Are applications asked (--ask-backend)?", told.unwrap_or_default());
        return if testbed.servers[index].settings.is_some() { Err(lost).or_fault(Fault::Input) } else { Ok(None) };
    }
    let lost: BTreeSet<u32> = left_out.wrong.iter().map(|(place, _)| *place).chain(left_out.untried).collect();
    if !lost.is_empty() {
        testbed.site.workload = Arc::new(without(&workload, &lost));
    }
    Ok(Some(told))
}

/// Checks that the server of a configuration answers every path of the workload as expected; `None`: there is one path
/// only, which other checks request.
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

    #[test]
    fn what_is_answered_otherwise_than_recorded_is_left_out_counted_and_named() {
        use tlsdyno_engine::load::Object;
        let object = |method: &str, path: &str, status| Object {
            method: method.to_owned(),
            path: path.to_owned(),
            headers: String::new(),
            body_bytes: 0,
            expect: Expect { status: Some(status), body_bytes: None },
        };
        let objects = vec![
            object("GET", "/", 200),
            object("GET", "/login", 302),
            object("GET", "/gone", 200),
            object("HEAD", "/gone", 200),
            object("POST", "/pay", 302),
            object("GET", "/broken", 200),
        ];
        let (workload, hits) = (Workload { objects, ..Workload::default() }, [90, 5, 2, 1, 1, 1]);
        let ask = |path: &str, _: &str| match path {
            "/" => Ok(Answer { status: 200, ..Answer::default() }),
            "/login" => Ok(Answer { status: 302, ..Answer::default() }),
            "/gone" => Ok(Answer { status: 404, ..Answer::default() }),
            "/broken" => Err(Failure::Closed),
            other => panic!("{other} was asked"),
        };
        let left_out = LeftOut::of(&workload, &hits, &ask);
        assert_eq!(left_out.wrong.iter().map(|(place, _)| *place).collect::<Vec<_>>(), [2, 3, 5]);
        assert_eq!((left_out.tried, left_out.untried.len()), (5, 0));
        let (percent, told) = left_out.told(&workload, &hits);
        let told = told.unwrap();
        assert!((percent - 4.0).abs() < 1e-9);
        assert!(told.contains("4 of 100 requests (4.0 %;") && told.contains("/gone (404, recorded 200)"), "{told}");
        // A server that answers nobody is not the log's fault.
        let silent = LeftOut::of(&workload, &hits, &|_, _| Err(Failure::Closed));
        assert!(silent.wrong.is_empty() && silent.told(&workload, &hits).1.is_none());
    }
}
