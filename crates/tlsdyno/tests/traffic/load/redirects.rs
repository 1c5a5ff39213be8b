//! `--follow-redirects`: on nginx, whose access log must agree with the counts, and on a server that redirects in other
//! ways.

use std::fs;
use std::net::TcpListener;
use std::path::Path;
use std::sync::Arc;

use serde_json::{Value, json as value};

use super::certificates::Nginx;
use super::s_server::{P256, self_signed};
use super::{json, load, refuse, serve, stderr};
use crate::place::eventually;

const LOCATIONS: &str =
    "location = /a { return 302 /b/c; } location = /b/c { return 301 ../d?e; } location = /loop { return 302 loop; }
    location = /elsewhere { return 302 http://other.example/; } location = /port { return 307 https://127.0.0.1:1/; }
    location = /post { return 303 /d; }";

fn run(url: &str, flags: &[&str]) -> Value {
    let output = load(&[&[url, "-k", "--json", "--connections", "8"], flags].concat());
    let measured = json(&output);
    // Without a hit the program says why, and ends otherwise.
    assert!(measured["hits"] == 0 || matches!(output.status.code(), Some(0 | 7)), "{}", stderr(&output));
    measured
}

fn count(of: &Value) -> u64 {
    of.as_u64().unwrap_or(0)
}

/// What nginx logged since the last call must become as many lines as the client has statuses.
fn log_agrees(place: &Path, measured: &Value, seen: &mut usize) {
    let counted: u64 = measured["statuses"].as_object().unwrap().values().map(count).sum();
    let lines = || fs::read_to_string(place.join("log")).unwrap().lines().count();
    eventually("nginx logs the requests that the client counts", || (lines() - *seen) as u64 == counted);
    *seen = lines();
}

#[test]
fn nginx_is_followed_and_its_log_agrees() {
    let directory = tempfile::tempdir().unwrap();
    let place = directory.path();
    self_signed(place, "server", &P256);
    let nginx = Nginx::start(place, LOCATIONS);
    let url = |path: &str| format!("https://127.0.0.1:{}{path}", nginx.port);
    let mut seen = 0;
    let follow = "--follow-redirects";
    for connections in [&["--duration", "2s"][..], &["--close", "--reuse", "50%", "--total-connections", "300"]] {
        let two = run(&url("/a"), &[&[follow], connections].concat());
        log_agrees(place, &two, &mut seen);
        let statuses = &two["statuses"];
        assert_eq!(two["errors"], value!({}));
        assert_eq!(two["hits"], statuses["200"], "what came after the last redirect");
        let redirects = count(&statuses["301"]) + count(&statuses["302"]);
        assert_eq!(redirects, count(&two["redirects_followed"]) + count(&two["redirects_unfinished"]));
        assert!(count(&two["hits"]) > 0 && count(&two["redirects_unfinished"]) <= 8, "{two}");
        if connections[0] == "--close" {
            assert_eq!(two["connections"], 300);
            let resumed = count(&two["handshakes"]["resumed_accepted"]);
            assert!((142..=150).contains(&resumed), "half, but for a user's first: {resumed}");
        }

        let endless = run(&url("/loop"), &[&["--follow-redirects=3"], connections].concat());
        log_agrees(place, &endless, &mut seen);
        let given_up = count(&endless["errors"]["redirect_limit"]);
        assert!(given_up > 0 && endless["hits"] == 0);
        let all = given_up + count(&endless["redirects_followed"]) + count(&endless["redirects_unfinished"]);
        assert_eq!(count(&endless["statuses"]["302"]), all);
        assert!(count(&endless["redirects_followed"]) >= 3 * given_up, "three before each is given up");
    }
    for path in ["/elsewhere", "/port"] {
        let elsewhere = run(&url(path), &[follow, "--close", "--total-connections", "9"]);
        assert_eq!(
            (&elsewhere["errors"], &elsewhere["redirects_followed"]),
            (&value!({"redirect_elsewhere": 9}), &value!(0))
        );
        log_agrees(place, &elsewhere, &mut seen);
    }
    let post = run(&url("/post"), &[follow, "--duration", "1s", "--method", "POST", "--body", "100"]);
    log_agrees(place, &post, &mut seen);
    assert!(count(&post["hits"]) > 0 && post["errors"] == value!({}), "{post}");
    let not_followed = run(&url("/a"), &["--close", "--total-connections", "9", "--expect-status", "302"]);
    assert_eq!((&not_followed["hits"], &not_followed["redirects_followed"]), (&value!(9), &value!(0)));
}

#[test]
fn chunked_answers_and_every_name_of_the_server_are_followed() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let answer = move |head: &str| {
        let location = match head.split(' ').nth(1).unwrap() {
            "/x/start" => "one",
            "/x/one" => "http://shop.example/two",
            "/two" => &format!("//127.0.0.1:{port}/three"),
            "/three" => &format!("http://inner.example:{port}/end?\u{e4}"),
            "/end?%C3%A4" if head.starts_with("PUT ") => {
                return "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n".to_owned();
            }
            "/bad" => "http://x:y/",
            other => panic!("{other}"),
        };
        format!("HTTP/1.1 307 x\r\nTransfer-Encoding: chunked\r\nLocation: {location}\r\n\r\n3\r\nabc\r\n0\r\n\r\n")
    };
    let (address, heads) = serve(listener, Arc::new(answer));
    let connect_to = address.to_string();
    let flags = [
        "--connect-to",
        &connect_to,
        "-H",
        "Host: inner.example",
        "-X",
        "PUT",
        "--duration",
        "1s",
        "--follow-redirects",
    ];
    let measured = run("http://shop.example/x/start", &flags);
    assert_eq!(measured["errors"], value!({}), "{measured}");
    assert!(count(&measured["hits"]) > 0);
    assert_eq!(measured["hits"], measured["statuses"]["200"]);
    assert!(heads.try_iter().all(|head| head.starts_with("PUT ") && head.contains("Host: inner.example\r\n")));
    let bad = run(&format!("http://{address}/bad"), &["--follow-redirects", "--close", "--total-connections", "5"]);
    assert_eq!(bad["errors"], value!({"redirect_malformed": 5}));
    refuse(&["http://127.0.0.1/", "--follow-redirects=0"], 2, &["--follow-redirects"]);
    refuse(&["http://127.0.0.1/", "--follow-redirects", "--trace", "x"], 2, &["--trace"]);
}
