//! What the fuzz target of requests for pages, as of `tlsdyno probe serve`, runs; in `crates/base/src/pages/` the tests
//! do it with the inputs that are kept.

use super::query::{Asked, asked};

/// A connection's bytes, the first saying whether it comes from this machine: a request that is understood is
/// understood alike however its bytes are cut, and what it asks for can be asked for again.
pub fn request(data: &[u8]) {
    let Some((&choice, bytes)) = data.split_first() else { return };
    let is_local = choice & 1 == 1;
    let whole = asked(bytes, is_local);
    // Pieces as they come from a socket: the first answer stands.
    let ends = (0..bytes.len()).step_by(1 + usize::from(choice >> 1)).chain([bytes.len()]);
    let first = ends.map(|end| asked(&bytes[..end], is_local)).find(|asked| *asked != Asked::Unfinished);
    if let Some(Asked::Page { .. }) = first {
        assert_eq!(first, Some(asked(bytes, is_local)), "more bytes do not change a request");
    }
    let Asked::Page { query, .. } = whole else { return };
    assert!(query.path.starts_with('/'), "{:?}", query.path);
    let values = form_urlencoded::Serializer::new(String::new()).extend_pairs(&query.values).finish();
    let again = format!("GET /?{values} HTTP/1.1\r\nHost: localhost\r\n\r\n");
    match asked(again.as_bytes(), is_local) {
        Asked::Page { query: read, .. } => assert_eq!(read.values, query.values),
        // A target is longer in its encoded form.
        other => assert!(again.len() > 60_000, "{other:?}"),
    }
}
