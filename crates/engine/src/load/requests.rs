//! Requests in wire form, made once: sending one copies a line or two and allocates nothing.

use super::plan::{Expect, Object, Workload};
use super::redirect::Hop;

/// The workload's objects as request heads.
#[derive(Debug)]
pub struct Requests {
    /// Heads without their last line, one behind the other.
    bytes: Vec<u8>,
    objects: Vec<Prepared>,
}

#[derive(Clone, Copy, Debug)]
struct Prepared {
    from: u32,
    to: u32,
    body_bytes: u64,
    to_head: bool,
    expect: Expect,
}

/// What there is to know about a request once its head was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Written {
    /// Bytes of body that must follow.
    pub body_bytes: u64,
    pub to_head: bool,
    /// What the response must look like.
    pub expect: Expect,
}

impl Requests {
    /// Prepares every object of `workload` for the host `host`. Answers `None` when the heads exceed 4 GiB together.
    pub fn new(workload: &Workload, host: &str) -> Option<Requests> {
        let mut bytes = Vec::new();
        let mut objects = Vec::with_capacity(workload.objects.len());
        for object in &workload.objects {
            let from = u32::try_from(bytes.len()).ok()?;
            put_request_line(&object.method, object.path.as_bytes(), host, &mut bytes);
            bytes.extend_from_slice(object.headers.as_bytes());
            put_length(object, &mut bytes);
            objects.push(Prepared {
                from,
                to: u32::try_from(bytes.len()).ok()?,
                body_bytes: object.body_bytes,
                to_head: object.method == "HEAD",
                expect: object.expect,
            });
        }
        Some(Requests { bytes, objects })
    }

    /// Appends the head of a request for `object` to `out`. `last`: the connection closes after the response. `number`:
    /// the place in the trace that it carries.
    pub fn write(&self, object: u32, last: bool, number: Option<u32>, out: &mut Vec<u8>) -> Written {
        let prepared = self.objects[object as usize];
        out.extend_from_slice(&self.bytes[prepared.from as usize..prepared.to as usize]);
        if let Some(number) = number {
            let (digits, length) = decimal(number);
            out.extend_from_slice(b"Trace-Index: ");
            out.extend_from_slice(&digits[10 - length..]);
            out.extend_from_slice(b"\r\n");
        }
        put_end(last, out);
        Written { body_bytes: prepared.body_bytes, to_head: prepared.to_head, expect: prepared.expect }
    }
}

/// Appends the head of a request for `object` that a redirect sent on.
pub fn write_redirected(object: &Object, host: &str, hop: &Hop, last: bool, out: &mut Vec<u8>) -> Written {
    let method = if hop.to_get { "GET" } else { &object.method };
    put_request_line(method, &hop.target, host, out);
    for line in object.headers.split_inclusive('\n') {
        // What describes a body goes with it (RFC 9110 section 15.4).
        let describes_body = line.get(..8).is_some_and(|start| start.eq_ignore_ascii_case("content-"));
        if !(hop.to_get && describes_body) {
            out.extend_from_slice(line.as_bytes());
        }
    }
    if !hop.to_get {
        put_length(object, out);
    }
    put_end(last, out);
    let body_bytes = if hop.to_get { 0 } else { object.body_bytes };
    Written { body_bytes, to_head: method == "HEAD", expect: object.expect }
}

fn put_request_line(method: &str, target: &[u8], host: &str, out: &mut Vec<u8>) {
    for part in [method.as_bytes(), b" ", target, b" HTTP/1.1\r\nHost: ", host.as_bytes(), b"\r\n"] {
        out.extend_from_slice(part);
    }
}

/// A request with a body, and one that could have one, tells its length (RFC 9110 section 8.6).
fn put_length(object: &Object, out: &mut Vec<u8>) {
    if object.body_bytes > 0 || matches!(object.method.as_str(), "POST" | "PUT" | "PATCH") {
        out.extend_from_slice(format!("Content-Length: {}\r\n", object.body_bytes).as_bytes());
    }
}

fn put_end(last: bool, out: &mut Vec<u8>) {
    out.extend_from_slice(if last { b"Connection: close\r\n\r\n" } else { b"\r\n" });
}

/// The decimal digits of a number, at the end of the array, and how many there are: without allocating.
fn decimal(mut number: u32) -> ([u8; 10], usize) {
    let mut digits = [b'0'; 10];
    let mut length = 0;
    loop {
        digits[9 - length] = b'0' + (number % 10) as u8;
        length += 1;
        number /= 10;
        if number == 0 {
            return (digits, length);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::load::plan::Object;
    use tlsdyno_wire::http::{Body, request_head};

    fn object(method: &str, headers: &str, body_bytes: u64) -> Object {
        Object {
            method: method.into(),
            path: "/a?b".into(),
            headers: headers.into(),
            body_bytes,
            expect: Expect::default(),
        }
    }

    #[test]
    fn a_redirected_request_loses_its_body_where_it_becomes_a_get() {
        let object = object("POST", "Content-Type: x\r\nAccept: y\r\n", 3);
        for to_get in [false, true] {
            let hop = Hop { target: b"/b?c".to_vec(), to_get, count: 1, began_ns: 0 };
            let mut out = Vec::new();
            let written = write_redirected(&object, "h", &hop, to_get, &mut out);
            let head = request_head(&out).unwrap().unwrap();
            let (method, bytes) = if to_get { (&b"GET"[..], 0) } else { (&b"POST"[..], 3) };
            assert_eq!((head.method, head.target, head.persists), (method, &b"/b?c"[..], !to_get));
            assert_eq!((head.body, written.body_bytes), (Body::Length(bytes), bytes));
            assert_eq!(head.headers.get("accept"), Some(&b"y"[..]));
            assert_eq!(head.headers.get("content-type").is_some(), !to_get);
            assert_eq!(head.headers.get("content-length").is_some(), !to_get);
        }
    }

    #[test]
    fn requests_read_back_as_what_was_asked_for() {
        let workload = Workload {
            objects: vec![
                object("GET", "If-None-Match: \"x\"\r\n", 0),
                object("HEAD", "", 0),
                object("POST", "", 7),
                object("POST", "", 0),
            ],
            ..Workload::default()
        };
        let requests = Requests::new(&workload, "example.org:8443").unwrap();
        for (index, object) in workload.objects.iter().enumerate() {
            for last in [false, true] {
                let mut out = Vec::new();
                let number = last.then_some(4_294_967_295 / (index as u32 + 1));
                let written = requests.write(index as u32, last, number, &mut out);
                let head = request_head(&out).unwrap().unwrap();
                assert_eq!(head.bytes, out.len());
                assert_eq!(head.method, object.method.as_bytes());
                assert_eq!(head.target, b"/a?b");
                let text = number.map(|number| number.to_string().into_bytes());
                assert_eq!(head.headers.get("trace-index"), text.as_deref());
                assert_eq!(head.headers.get("host"), Some(&b"example.org:8443"[..]));
                assert_eq!(head.persists, !last);
                assert_eq!(head.body, Body::Length(object.body_bytes));
                assert_eq!(head.headers.get("content-length").is_some(), object.method == "POST");
                assert_eq!(head.headers.get("if-none-match").is_some(), !object.headers.is_empty());
                assert_eq!((written.body_bytes, written.to_head), (object.body_bytes, object.method == "HEAD"));
            }
        }
    }
}
