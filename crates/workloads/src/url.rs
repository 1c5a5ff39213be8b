//! `url`: one object over and over, the workload of `tlsdyno load URL`.

use anyhow::{Result, ensure};
use tlsdyno_engine::load::{Expect, Request, Workload};
use tlsdyno_record::model::workload::hits_of_paths;

use super::{DocrootFile, Parts, add_user, getting};

/// Makes the workload. `bytes` is the object's size if the document root is ours; `None` for anybody's server, whose
/// response may then have any length.
pub(super) fn make(path: &str, bytes: Option<u64>, users: u32, requests_per_user: u32) -> Result<Parts> {
    ensure!(path.starts_with('/'), "the path `{path}` of the request must begin with a slash");
    ensure!(
        path.bytes().all(|byte| byte.is_ascii_graphic()),
        "the path `{path}` holds characters that cannot stand on a request line; percent-encode them (a space is %20)"
    );
    ensure!(users > 0 && requests_per_user > 0, "the workload needs at least one user and one request for each");
    ensure!(
        u64::from(users) * u64::from(requests_per_user) <= u64::from(u32::MAX),
        "{users} users with {requests_per_user} requests each are more requests than fit a workload (2^32 - 1)"
    );
    let mut workload = Workload { objects: vec![getting(path, bytes)], ..Workload::default() };
    let request = |number| {
        let close_after = number + 1 == requests_per_user;
        Request { page_end: true, close_after, ..Request::default() }
    };
    for _ in 0..users {
        add_user(&mut workload, (0..requests_per_user).map(request));
    }
    let file = path.split('?').next().unwrap_or(path).to_owned();
    let files = bytes.map(|bytes| DocrootFile { path: file, bytes }).into_iter().collect();
    Ok(Parts { workload, files })
}

/// What a browser sends with its requests (Firefox 140), but for cookies.
const BROWSER: &str = "User-Agent: Mozilla/5.0 (X11; Linux x86_64; rv:140.0) Gecko/20100101 Firefox/140.0\r\n\
    Accept: text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8\r\n\
    Accept-Language: en-US,en;q=0.5\r\nAccept-Encoding: gzip, deflate, br, zstd\r\n";
/// Makes the workload of a server's own objects: `PATH` or `PATH STATUS` each. `hits`: so many requests of each user,
/// on the average; `None`: each asks for all of them, and for 12 at least.
pub(super) fn make_paths(paths: &[String], users: u32, hits: Option<f64>) -> Result<Parts> {
    ensure!(!paths.is_empty() && users > 0, "the workload needs at least one path and one user");
    let mut workload = Workload::default();
    for line in paths {
        let (path, status) = line.split_once(' ').unwrap_or((line, "200"));
        let status: Option<u16> = status.trim().parse().ok().filter(|status| (200..600).contains(status));
        ensure!(
            status.is_some(),
            "`{line}`: behind a path stands the status that it answers with, 200 to 599, or nothing"
        );
        let mut one = make(path, None, 1, 1)?.workload;
        for object in &mut one.objects {
            object.headers = BROWSER.to_owned();
            object.expect = Expect { status, body_bytes: None };
        }
        workload.objects.append(&mut one.objects);
    }
    let objects = workload.objects.len() as u64;
    let each = hits.unwrap_or_else(|| f64::from(hits_of_paths(paths.len() as u32)));
    ensure!(each >= 1.0, "{each} hits per handshake: each connection asks for 1 object at least");
    ensure!(
        f64::from(users) * each <= f64::from(u32::MAX),
        "{users} users with {each} requests each are more requests than fit a workload (2^32 - 1)"
    );
    // All users together walk through the list over and over, so that each object is asked for as often, and a
    // fraction is what some users ask for more than others.
    let place = |user: u32| (f64::from(user) * each) as u64;
    for user in 0..users {
        let (first, next) = (place(user), place(user + 1));
        let request = |number| {
            let (object, close_after) = ((number % objects) as u32, number + 1 == next);
            Request { object, page_end: true, close_after, ..Request::default() }
        };
        add_user(&mut workload, (first..next).map(request));
    }
    Ok(Parts { workload, files: Vec::new() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_user_makes_its_requests_one_after_the_other() {
        let parts = make("/1k?x", Some(1024), 3, 2).unwrap();
        assert_eq!(parts.workload.users.len(), 3);
        assert_eq!(parts.workload.requests.len(), 6);
        assert!(parts.workload.requests.iter().all(|request| request.page_end));
        let closes: Vec<bool> = parts.workload.requests.iter().map(|request| request.close_after).collect();
        assert_eq!(closes, [false, true, false, true, false, true]);
        assert_eq!(parts.files, [DocrootFile { path: "/1k".to_owned(), bytes: 1024 }]);
        assert_eq!(parts.workload.objects[0].expect.body_bytes, Some(1024));
    }

    #[test]
    fn users_ask_for_all_paths_as_browsers_do() {
        let paths = ["/", "/app?x=1", "/old 301"].map(str::to_owned);
        let workload = make_paths(&paths, 2, None).unwrap().workload;
        assert_eq!((workload.objects.len(), workload.users.len(), workload.requests.len()), (3, 2, 24));
        assert_eq!(workload.objects[2].expect.status, Some(301));
        assert!(workload.objects.iter().all(|object| object.headers.contains("Accept-Encoding: gzip")));
        assert!(workload.requests[11].close_after && !workload.requests[10].close_after);
        for wrong in ["", "x", "/ okay", "/ 99"] {
            assert!(make_paths(&[wrong.to_owned()], 1, None).is_err(), "{wrong}");
        }
    }

    /// Whatever the list is, as many hits come to a handshake as were asked for, and no object is preferred.
    #[test]
    fn hits_per_handshake_are_what_was_asked_for() {
        for (paths, hits) in [(6, 12.0), (120, 12.0), (120, 3.0), (1, 1.0), (7, 2.5), (3, 40.25), (120, 1.75)] {
            let list: Vec<String> = (0..paths).map(|path| format!("/{path}")).collect();
            let workload = make_paths(&list, 960, Some(hits)).unwrap().workload;
            let each = |user: &tlsdyno_engine::load::User| user.requests.end - user.requests.start;
            let counts: Vec<u32> = workload.users.iter().map(each).collect();
            assert!(counts.iter().all(|count| (f64::from(*count) - hits).abs() < 1.0), "{paths} {hits}");
            assert_eq!(workload.requests.len(), (960.0 * hits) as usize, "{paths} {hits}");
            let closes = workload.requests.iter().filter(|request| request.close_after).count();
            assert_eq!(closes, workload.users.len());
            let asked = |object| workload.requests.iter().filter(|request| request.object == object).count();
            let (least, most) =
                (0..paths).map(asked).fold((usize::MAX, 0), |(least, most), count| (least.min(count), most.max(count)));
            assert!(most - least <= 1, "{paths} {hits}: {least} to {most}");
        }
        assert!(make_paths(&["/".to_owned()], 1, Some(0.5)).is_err());
    }

    #[test]
    fn somebody_elses_server_needs_no_files() {
        let parts = make("/", None, 1, 1).unwrap();
        assert!(parts.files.is_empty());
        assert_eq!(parts.workload.objects[0].expect, Expect { status: Some(200), body_bytes: None });
    }

    #[test]
    fn what_cannot_be_requested_is_refused_with_the_remedy() {
        assert!(make("index.html", None, 1, 1).is_err());
        assert!(make("/a b", None, 1, 1).unwrap_err().to_string().contains("%20"));
        assert!(make("/", None, 0, 1).is_err());
        assert!(make("/", None, u32::MAX, 2).is_err());
    }
}
