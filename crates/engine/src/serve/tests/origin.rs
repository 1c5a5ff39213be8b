//! The server before another one, as its clients see both.

use super::*;

/// A proxy that ends TLS before the server: its clients see the server's answers, and it keeps its connection.
#[test]
fn requests_are_passed_on_over_a_kept_connection() {
    let site = TestDocroot::new();
    let behind = site.serve(None);
    let settings = || Settings { origin: Some(behind.address), ..Settings::default() };
    let proxy = site.serve_with(Some(&site.tls()), settings());
    let connect = || connect_openssl(&proxy, SslVersion::TLS1_3).unwrap();
    let mut client = connect();
    assert_eq!(ask(&mut client, "GET /small HTTP/1.1\r\nHost: x").2, SMALL.as_bytes());
    assert_eq!(ask(&mut client, "GET /medium HTTP/1.1").2, medium());
    assert_eq!(ask(&mut client, "HEAD /medium HTTP/1.1").0, 200);
    assert_eq!(ask(&mut client, "GET /none HTTP/1.1").0, 404);
    // Two at once, then one that ends the client's connection, but not the one behind.
    client.write_all(b"GET /small HTTP/1.1\r\n\r\nGET /big HTTP/1.1\r\n\r\n").unwrap();
    assert_eq!(answer(&mut client, false).2, SMALL.as_bytes());
    assert_eq!(answer(&mut client, false).2.len() as u64, MEMORY_FILE_BYTES_MAX + 12_345);
    let (status, head, _) = ask(&mut client, "GET /small HTTP/1.1\r\nConnection: close");
    assert_eq!((status, header(&head, "Connection")), (200, Some("close")));
    assert!(is_closed(&mut client));
    assert_eq!(ask(&mut connect(), "GET /small HTTP/1.1").0, 200);
    let requests: Vec<String> = behind.log().lines().map(|line| line.replace("- - - ", "")).collect();
    assert_eq!(requests, ["1", "2", "3", "4", "5", "6", "7", "8"], "one connection behind");
    assert!(proxy.log().lines().last().unwrap().ends_with(" 1"), "{}", proxy.log());
    let mut client = connect();
    client.write_all(b"POST /small HTTP/1.1\r\nContent-Length: 1\r\n\r\nx").unwrap();
    assert_eq!(answer(&mut client, false).0, 501);
    // Clients that read slowly, or leave in the middle, are no burden to others.
    let mut slow = connect();
    for _ in 0..20 {
        slow.write_all(b"GET /big HTTP/1.1\r\n\r\n").unwrap();
    }
    assert_eq!(ask(&mut connect(), "GET /small HTTP/1.1").0, 200);
    drop(slow);
    assert_eq!(ask(&mut connect(), "GET /medium HTTP/1.1").2, medium());
    // The server behind is gone, and comes again.
    let address = behind.address;
    drop(behind);
    let lines_before = proxy.log().lines().count();
    assert_eq!(ask(&mut connect(), "GET /small HTTP/1.1").0, 502);
    assert_eq!(proxy.log().lines().count(), lines_before + 1, "a line for each request");
    let again = site.serve_at(address, None, Settings::default());
    assert_eq!(ask(&mut connect(), "GET /small HTTP/1.1").2, SMALL.as_bytes());
    drop(again);
}

/// Answers `served` requests on each connection with what `answers` has for them, and closes it upon the next one, or
/// where there is nothing more to say. Ends with the last answer.
fn origin_by_hand(listener: TcpListener, connections: Vec<Vec<&'static [u8]>>) -> JoinHandle<Vec<usize>> {
    std::thread::spawn(move || {
        let mut asked = Vec::new();
        for answers in connections {
            let (mut stream, _) = listener.accept().unwrap();
            let (mut head, mut requests, mut answers) = (Vec::new(), 0, answers.into_iter());
            let mut byte = [0];
            while stream.read(&mut byte).is_ok_and(|bytes| bytes == 1) {
                head.push(byte[0]);
                if head.ends_with(b"\r\n\r\n") {
                    head.clear();
                    requests += 1;
                    let Some(answer) = answers.next() else { break };
                    stream.write_all(answer).unwrap();
                }
            }
            asked.push(requests);
        }
        asked
    })
}

/// What is closed as the request comes is asked again, unless that might change something; what says more than it was
/// asked for says nothing to others; hints on the way are left out.
#[test]
fn an_origin_of_little_manners_harms_nobody() {
    const OK: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";
    const TOO_MUCH: &[u8] =
        b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nokHTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nevil";
    const HINTS: &[u8] =
        b"HTTP/1.1 103 Early Hints\r\n\r\nHTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\nok";
    let site = TestDocroot::new();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let settings = Settings { origin: Some(listener.local_addr().unwrap()), ..Settings::default() };
    let behind = origin_by_hand(listener, vec![vec![OK], vec![OK, OK], vec![TOO_MUCH], vec![HINTS]]);
    let proxy = site.serve_with(None, settings);
    let mut client = proxy.connect();
    assert_eq!(ask(&mut client, "GET / HTTP/1.1").2, b"ok");
    // The first connection ends as this comes, which goes over the second.
    assert_eq!(ask(&mut client, "GET / HTTP/1.1").2, b"ok");
    assert_eq!(ask(&mut client, "DELETE / HTTP/1.1").2, b"ok");
    // The second ends, and nobody knows whether it was done.
    assert_eq!(ask(&mut client, "DELETE / HTTP/1.1").0, 502);
    let mut client = proxy.connect();
    client.write_all(b"GET / HTTP/1.1\r\n\r\n").unwrap();
    assert!(is_closed(&mut client), "two answers to one request");
    let mut client = proxy.connect();
    let (status, head, body) = ask(&mut client, "GET / HTTP/1.1");
    assert_eq!((status, body.as_slice(), header(&head, "Connection")), (200, &b"ok"[..], Some("keep-alive")));
    drop((client, proxy));
    assert_eq!(behind.join().unwrap(), [2, 3, 1, 1]);
}
