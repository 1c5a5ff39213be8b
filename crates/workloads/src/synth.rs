//! Writes a workload as an access log in combined format, for other tools and for reading back.
//!
//! Time stamps are made so that reading the log back gives the same workload: requests of one page within one second,
//! pages on one connection a few seconds apart, more than the keep-alive time where connections close, more than the
//! lifetime of a session where it is forgotten.

use std::io::{self, Write};

use tlsdyno_engine::load::{Request, Workload};
use tlsdyno_record::model::workload::{ReplaySpec, SessionsSpec};

/// Pause between pages on one connection, seconds: longer than what reading takes for one page.
const BETWEEN_PAGES_S: u64 = 5;
/// When the log begins: 17 May 2015 10:00 UTC, seconds since 1970.
const BEGIN_S: i64 = 1_431_856_800;

/// Writes `workload` to `out`: user n has address 10.0.0.0 + n + 1 and comes n seconds after the first. Lines are in
/// order of time.
pub fn write_log(workload: &Workload, out: &mut impl Write) -> io::Result<()> {
    let mut lines: Vec<(u64, u32, u32)> = Vec::with_capacity(workload.requests.len());
    for (number, user) in workload.users.iter().enumerate() {
        let mut at_s = number as u64;
        for index in user.requests.clone() {
            let request = &workload.requests[index as usize];
            if request.forget_session {
                at_s += forget_pause_s();
            }
            lines.push((at_s, number as u32, index));
            at_s += pause_s(request);
        }
    }
    // Stable within a second: users in their order, their requests in theirs.
    lines.sort_unstable();
    for (at_s, user, index) in lines {
        write_line(workload, user, &workload.requests[index as usize], BEGIN_S + at_s as i64, out)?;
    }
    Ok(())
}

fn pause_s(request: &Request) -> u64 {
    if request.close_after {
        u64::from(ReplaySpec::default().keep_alive_s) + BETWEEN_PAGES_S
    } else if request.page_end {
        BETWEEN_PAGES_S
    } else {
        0
    }
}

/// Time without a request after which reading back takes a session as forgotten.
fn forget_pause_s() -> u64 {
    match ReplaySpec::default().sessions {
        SessionsSpec::LifetimeS(seconds) => u64::from(seconds) + 1,
        SessionsSpec::PerAddress => 0,
    }
}

fn write_line(workload: &Workload, user: u32, request: &Request, at_s: i64, out: &mut impl Write) -> io::Result<()> {
    let object = &workload.objects[request.object as usize];
    let address = std::net::Ipv4Addr::from_bits((10 << 24) + user + 1);
    let format = time::macros::format_description!("[day]/[month repr:short]/[year]:[hour]:[minute]:[second] +0000");
    let date = time::OffsetDateTime::from_unix_timestamp(at_s)
        .map_err(io::Error::other)?
        .format(&format)
        .map_err(io::Error::other)?;
    let bytes =
        object.expect.body_bytes.filter(|bytes| *bytes > 0).map_or_else(|| "-".to_owned(), |bytes| bytes.to_string());
    let status = object.expect.status.unwrap_or(200);
    writeln!(
        out,
        "{address} - - [{date}] \"{} {} HTTP/1.1\" {status} {bytes} \"-\" \"tlsdyno\"",
        object.method, object.path
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{ServedWorkload, make};
    use tlsdyno_record::model::workload::{OrderSpec, WorkloadSpec};

    /// Writes the workload as a log and reads it back.
    fn there_and_back(site: &ServedWorkload, order: OrderSpec) -> ServedWorkload {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("access.log");
        let mut log = Vec::new();
        write_log(&site.workload, &mut log).unwrap();
        std::fs::write(&path, log).unwrap();
        make(&WorkloadSpec::Trace { path, exclude: Vec::new(), replay: ReplaySpec { order, ..ReplaySpec::default() } })
            .unwrap()
    }

    /// Each request with its path, size and marks: what must survive, whatever the objects' numbers.
    fn unfolded(site: &ServedWorkload) -> Vec<(&str, Option<u64>, bool, bool, bool)> {
        let object = |request: &Request| &site.workload.objects[request.object as usize];
        site.workload
            .requests
            .iter()
            .map(|request| {
                let object = object(request);
                (
                    object.path.as_str(),
                    object.expect.body_bytes,
                    request.page_end,
                    request.close_after,
                    request.forget_session,
                )
            })
            .collect()
    }

    #[test]
    fn ecommerce_comes_back_with_its_pages() {
        let site = make(&WorkloadSpec::Ecommerce { users: 150, seed: 4 }).unwrap();
        let back = there_and_back(&site, OrderSpec::Pages);
        assert_eq!(unfolded(&back), unfolded(&site));
        assert_eq!(back.workload.users, site.workload.users);
    }

    #[test]
    fn department_comes_back_in_total_order() {
        let site = make(&WorkloadSpec::Department { scale: 0.02, seed: 4 }).unwrap();
        let back = there_and_back(&site, OrderSpec::Total);
        assert_eq!(unfolded(&back), unfolded(&site));
        assert_eq!(back.summary.corpus_bytes, site.summary.corpus_bytes);
    }
}
