//! `--http2`: on the servers of a distribution, on one that does not speak it, and on servers that do not keep to it.

mod hostile;
mod installed;

use serde_json::json as value;

use super::{built_in, json, load, refuse, stderr};

/// The built-in server speaks HTTP/1.1 and chooses that: told in the text, in JSON, and by the exit code.
#[test]
fn a_server_without_it_is_loaded_in_http1_and_that_is_told() {
    let directory = tempfile::tempdir().unwrap();
    let (server, ca) = built_in(directory.path());
    let url = format!("https://{}/x", server.address());
    let flags = [url.as_str(), "--ca-file", &ca, "--http2", "--streams", "10", "-n", "30", "-c", "3"];
    let output = load(&[&flags[..], &["--json"]].concat());
    let measured = json(&output);
    assert_eq!((output.status.code(), &measured["hits"]), (Some(8), &value!(30)), "{}", stderr(&output));
    let http2 = value!({"chosen_count": 0, "downgraded_count": 3, "repeated_count": 0, "faults": {}});
    assert_eq!(measured["http2"], http2);
    let warning = measured["warnings"][0].as_str().unwrap();
    assert!(warning.contains("did not choose HTTP/2 on 3 of 3") && warning.contains("leave out --http2"), "{warning}");
    let text = String::from_utf8(load(&flags).stdout).unwrap();
    assert!(text.contains("connections by the server's choice, HTTP/1.1 3"), "{text}");
    server.stop().unwrap();
}

#[test]
fn what_does_not_go_with_it_is_refused() {
    let with = |more: &[&str], words: &[&str]| refuse(&[&["https://127.0.0.1:1/", "-k"], more].concat(), 2, words);
    with(&["--streams", "5"], &["--http2"]);
    with(&["--http2", "--streams", "0"], &["1..=1000"]);
    with(&["--http2", "--alpn", "http/1.1"], &["cannot be used with"]);
    with(&["--http2", "--early-data", "--reuse", "always"], &["cannot be used with"]);
    with(&["--http2", "--per-user", "4"], &["cannot be used with"]);
}
