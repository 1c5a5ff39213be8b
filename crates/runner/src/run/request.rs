//! What a server is tried with before it is measured.

use std::time::Duration;

use tlsdyno_base::exchange::get;
use tlsdyno_engine::load::{Expect, Object, Workload};

/// Timeout of an answer from a server that may run under valgrind, which makes everything some fifty times slower.
pub const TIME_LIMIT_COUNTED: Duration = Duration::from_secs(60);

/// A whole GET of an object of the workload, preferably one with status 200, and the expected answer, to try a server.
pub fn plain_get(workload: &Workload, host: &str) -> (Vec<u8>, Expect) {
    let objects = || workload.objects.iter().filter(|object| object.method == "GET");
    let answers = |object: &&Object| matches!(object.expect.status, Some(200) | None);
    // Headers may make it a request for a part, or none for what is known already.
    let bare = objects().filter(|object| object.headers.is_empty()).find(answers);
    let object = bare.or_else(|| objects().filter(|object| object.expect.body_bytes.is_none()).find(answers));
    match object.or_else(|| objects().next()) {
        Some(object) => (get(&object.path, &object.headers, host), object.expect),
        None => (get("/", "", host), Expect::default()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_is_tried_with_a_page_if_there_is_one() {
        let object = |path: &str, status| Object {
            method: "GET".to_owned(),
            path: path.to_owned(),
            headers: "X: y\r\n".to_owned(),
            body_bytes: 0,
            expect: Expect { status: Some(status), body_bytes: None },
        };
        let tried = |objects: Vec<Object>| {
            let (request, expect) = plain_get(&Workload { objects, ..Workload::default() }, "a");
            (String::from_utf8(request).unwrap().lines().next().unwrap().to_owned(), expect.status)
        };
        let redirect = || object("/old", 301);
        assert_eq!(tried(vec![redirect()]), ("GET /old HTTP/1.1".to_owned(), Some(301)));
        assert_eq!(tried(vec![redirect(), object("/new", 200)]), ("GET /new HTTP/1.1".to_owned(), Some(200)));
        assert_eq!(tried(Vec::new()), ("GET / HTTP/1.1".to_owned(), None));
    }
}
