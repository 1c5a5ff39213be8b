//! What the tests of the load engine share: small servers that run in a thread, and plans against them.

#![allow(dead_code, reason = "no test uses all of it")]

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::thread;

use tlsdyno_engine::load::{
    Connections, Expect, LoadTarget, Object, Outcome, Pacing, Plan, Request, Resumption, Route, SessionLimits, Until,
    User, Workload, run,
};

/// Serves each connection in a thread of its own with `serve`, for as long as the test lasts.
pub fn server(serve: impl Fn(TcpStream) + Send + Sync + 'static) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = listener.local_addr().expect("its address");
    let serve = Arc::new(serve);
    thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            let serve = Arc::clone(&serve);
            thread::spawn(move || serve(stream));
        }
    });
    address
}

/// One request as a server sees it.
pub struct Asked {
    pub line: String,
    pub close: bool,
    pub body_bytes: u64,
}

/// Reads the next request with its body; `None` at the end of the stream.
pub fn next_request(reader: &mut BufReader<TcpStream>) -> Option<Asked> {
    let mut asked = Asked { line: String::new(), close: false, body_bytes: 0 };
    reader.read_line(&mut asked.line).ok().filter(|bytes| *bytes > 0)?;
    loop {
        let mut header = String::new();
        reader.read_line(&mut header).ok().filter(|bytes| *bytes > 0)?;
        let header = header.trim_end().to_ascii_lowercase();
        asked.close |= header == "connection: close";
        if let Some(length) = header.strip_prefix("content-length: ") {
            asked.body_bytes = length.parse().expect("a length");
        }
        if header.is_empty() {
            break;
        }
    }
    let copied = std::io::copy(&mut reader.take(asked.body_bytes), &mut std::io::sink()).ok()?;
    (copied == asked.body_bytes).then_some(asked)
}

/// A well-behaved HTTP/1.1 server: the path is the size of the answer, for example `/100`.
pub fn well_behaved(stream: TcpStream) {
    let mut reader = BufReader::new(stream.try_clone().expect("a second handle"));
    let mut stream = stream;
    while let Some(asked) = next_request(&mut reader) {
        let mut words = asked.line.split(' ');
        let (method, path) = (words.next().expect("method"), words.next().expect("path"));
        let bytes: usize = path.trim_start_matches('/').parse().unwrap_or(0);
        let mut answer = format!("HTTP/1.1 200 OK\r\nContent-Length: {bytes}\r\n\r\n").into_bytes();
        if method != "HEAD" {
            answer.resize(answer.len() + bytes, b'x');
        }
        if stream.write_all(&answer).is_err() || asked.close {
            return;
        }
    }
}

pub fn object(method: &str, path: &str, body_bytes: Option<u64>) -> Object {
    Object {
        method: method.into(),
        path: path.into(),
        headers: String::new(),
        body_bytes: 0,
        expect: Expect { status: Some(200), body_bytes },
    }
}

/// So many users, each with these objects as pages of the given sizes, over and over.
pub fn workload(objects: Vec<Object>, users: u32, requests: u32, page: u32) -> Workload {
    let count = objects.len() as u32;
    let mut workload = Workload { objects, ..Workload::default() };
    for user in 0..users {
        for request in 0..requests {
            workload.requests.push(Request {
                object: request % count,
                page_end: (request + 1) % page == 0,
                close_after: false,
                forget_session: false,
            });
        }
        workload.users.push(User { requests: user * requests..(user + 1) * requests });
    }
    workload
}

pub fn connections(total: u32, per_user: u32, requests_each: Option<u32>) -> Connections {
    Connections { total, per_user, first_alone: true, requests_each, timeout_ns: 5_000_000_000, batch_ns: 0 }
}

pub fn plan(address: SocketAddr, workload: Workload, connections: Connections) -> Plan {
    Plan {
        streams: 1,
        pages_at_once_count: 1,
        target: LoadTarget { address, host: "localhost".into(), tls: None, prior_knowledge: false },
        route: Route::default(),
        body: None,
        users: 0..workload.users.len() as u32,
        workload: Arc::new(workload),
        connections,
        timeouts: tlsdyno_engine::load::Timeouts::default(),
        resumption: Resumption::Never,
        session_limits: SessionLimits::default(),
        window: None,
        redirects: None,
        numbered: false,
        pacing: Pacing::Closed,
        until: Until::Laps(1),
        slice_ns: None,
        rated: None,
        lead_in_ns: 0,
        share: tlsdyno_engine::load::Share::default(),
    }
}

pub fn go(plan: &Plan) -> Outcome {
    run(plan, &AtomicBool::new(false)).expect("the plan is sound")
}
