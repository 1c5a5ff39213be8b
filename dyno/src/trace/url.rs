//! `url`: one object over and over, the workload of `tlsdyno load URL`.

use anyhow::{Result, ensure};
use tlsdyno_engine::load::{Expect, Object, Request, Workload};

use super::{DocrootFile, Parts, add_user};

/// Makes the workload. `bytes` is the object's size if the document root is ours; `None` for anybody's server, whose
/// response may then have any length.
///
/// # Errors
/// A path that cannot stand on a request line, or no user or request.
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
    let object = Object {
        method: "GET".to_owned(),
        path: path.to_owned(),
        headers: String::new(),
        body_bytes: 0,
        expect: Expect { status: Some(200), body_bytes: bytes },
    };
    let mut workload = Workload { objects: vec![object], ..Workload::default() };
    let request = |number| {
        let close_after = number + 1 == requests_per_user;
        Request { object: 0, page_end: true, close_after, forget_session: false }
    };
    for _ in 0..users {
        add_user(&mut workload, (0..requests_per_user).map(request));
    }
    let file = path.split('?').next().unwrap_or(path).to_owned();
    let files = bytes.map(|bytes| DocrootFile { path: file, bytes }).into_iter().collect();
    Ok(Parts { workload, files })
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
