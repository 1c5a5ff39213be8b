//! Where a load goes, where it comes from, and what it sends: Unix sockets, other addresses, several URLs, bodies.

use std::collections::BTreeMap;
use std::os::unix::net::UnixListener;
use std::thread;

use super::{ONE_BYTE, built_in, json, load, refuse, server, stderr};

#[test]
fn a_unix_socket_is_loaded() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("socket");
    let listener = UnixListener::bind(&path).unwrap();
    thread::spawn(move || {
        use std::io::{Read, Write};
        for mut stream in listener.incoming().map_while(Result::ok) {
            thread::spawn(move || {
                let mut head = [0; 4096];
                while stream.read(&mut head).is_ok_and(|bytes| bytes > 0) {
                    stream.write_all(ONE_BYTE.as_bytes()).unwrap();
                }
            });
        }
    });
    let unix = path.display().to_string();
    let flags = ["--unix", &unix, "--connections", "2", "--duration", "100ms", "--json"];
    let output = load(&[&["http://example.org/"], &flags[..]].concat());
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    assert!(json(&output)["hits"].as_u64().unwrap() > 10);
    let to = |path: &str, words: &[&str]| refuse(&["http://localhost/", "--unix", path, "-d", "100ms"], 4, words);
    to("/no/such/socket", &["there is no Unix socket /no/such/socket"]);
    let file = directory.path().join("file");
    std::fs::write(&file, "").unwrap();
    to(file.to_str().unwrap(), &["is no Unix socket"]);
    let left = directory.path().join("left");
    drop(UnixListener::bind(&left).unwrap());
    to(left.to_str().unwrap(), &["nothing listens on the Unix socket", "left"]);
}

#[test]
fn connections_come_from_the_sources_in_turn() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let (peers, seen) = std::sync::mpsc::channel();
    thread::spawn(move || {
        use std::io::{Read, Write};
        for mut stream in listener.incoming().map_while(Result::ok) {
            peers.send(stream.peer_addr().unwrap().ip().to_string()).unwrap();
            let mut head = [0; 4096];
            let _ = stream.read(&mut head);
            let _ = stream.write_all(ONE_BYTE.as_bytes());
        }
    });
    let flags = ["--source", "127.0.0.2-127.0.0.4", "--close", "--connections", "1", "--total-connections", "30"];
    let output = load(&[&[format!("http://{address}/").as_str()], &flags[..]].concat());
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let mut counts = BTreeMap::new();
    seen.try_iter().for_each(|peer| *counts.entry(peer).or_insert(0) += 1);
    let expected = ["127.0.0.2", "127.0.0.3", "127.0.0.4"].map(|peer| (peer.to_owned(), 10));
    assert_eq!(counts, expected.into_iter().collect());
    refuse(&["http://127.0.0.1/", "--connections", "70000"], 2, &["--source"]);
}

#[test]
fn several_urls_a_body_and_another_address() {
    let (address, heads) = server(ONE_BYTE);
    let directory = tempfile::tempdir().unwrap();
    let flags = ["--also", "http://example.org:1/b", "--weights", "3,1", "--connect-to", &address.to_string()];
    let counted = ["--close", "--connections", "1", "--total-connections", "40"];
    let output = load(&[&["http://example.org:1/a"], &flags[..], &counted].concat());
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let heads: Vec<String> = heads.try_iter().collect();
    assert!(heads.iter().all(|head| head.contains("\r\nHost: example.org:1\r\n")), "{heads:?}");
    assert_eq!(heads.iter().filter(|head| head.starts_with("GET /a ")).count(), 30);
    refuse(&["http://127.0.0.1/", "--also", "http://127.0.0.1:81/"], 2, &["another server"]);
    refuse(&["http://127.0.0.1/", "--also", "http://127.0.0.1/x", "--weights", "1"], 2, &["1 numbers for 2 URLs"]);

    let (address, body) = body_server();
    let content: Vec<u8> = (0..200_000u32).map(|index| index as u8).collect();
    let file = directory.path().join("body");
    std::fs::write(&file, &content).unwrap();
    let flags = ["-X", "POST", "--close", "--total-connections", "1", "--connections", "1", "--body-file"];
    let output = load(&[&[format!("http://{address}/").as_str()], &flags[..], &[file.to_str().unwrap()]].concat());
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    assert!(body.recv().unwrap() == content);
}

/// Answers one POST, and tells its body.
fn body_server() -> (std::net::SocketAddr, std::sync::mpsc::Receiver<Vec<u8>>) {
    use std::io::{BufRead, BufReader, Read, Write};
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let (bodies, seen) = std::sync::mpsc::channel();
    thread::spawn(move || {
        let (stream, _) = listener.accept().unwrap();
        let mut reader = BufReader::new(stream);
        let mut length = 0;
        loop {
            let mut line = String::new();
            reader.read_line(&mut line).unwrap();
            if let Some(value) = line.strip_prefix("Content-Length: ") {
                length = value.trim().parse().unwrap();
            }
            if line == "\r\n" {
                break;
            }
        }
        let mut body = vec![0; length];
        reader.read_exact(&mut body).unwrap();
        reader.get_mut().write_all(ONE_BYTE.as_bytes()).unwrap();
        bodies.send(body).unwrap();
    });
    (address, seen)
}

#[test]
fn server_name_and_protocols_are_as_asked_for() {
    let directory = tempfile::tempdir().unwrap();
    let (server, ca) = built_in(directory.path());
    let url = format!("https://no-such-host.invalid:{}/x", server.address().port());
    let connect_to = server.address().to_string();
    let flags = ["--connect-to", &connect_to, "--ca-file", &ca, "--close", "--total-connections", "3"];
    let run = |more: &[&str]| load(&[&[url.as_str()], &flags[..], more].concat());
    assert_eq!(run(&[]).status.code(), Some(4), "the certificate is for another name");
    let output = run(&["--sni", "localhost", "--alpn", "http/1.0,http/1.1"]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    refuse(&[&url, "--connect-to", &connect_to, "-k", "--alpn", ""], 2, &["ALPN"]);
    refuse(&[&url, "-k", "--alpn", "h2,http/1.1"], 2, &["`h2`", "HTTP/2 is --http2"]);
    server.stop().unwrap();
}
