//! `tlsdyno advise` on an nginx that was configured by hand.

use std::fs;
use std::path::{Path, PathBuf};

use tlsdyno::model::CertificateKind;
use tlsdyno::servers::certificates;

use crate::place::Place;

/// A configuration with an RSA certificate where nobody resumes, and the log of a site.
fn installed(place: &Place) -> PathBuf {
    let files = certificates::create(CertificateKind::Rsa2048, place.path()).unwrap();
    let log = place.path().join("access.log");
    let line = |second: u32| {
        let (user, at) = (second / 4, format!("{:02}:{:02}", second / 60, second % 60));
        format!("10.0.0.{user} - - [01/Nov/2026:10:{at} +0000] \"GET /hello.txt HTTP/1.1\" 200 6\n")
    };
    fs::write(&log, (0..400).map(line).collect::<String>()).unwrap();
    let config = place.path().join("nginx.conf");
    let text = format!(
        "events {{}}\nhttp {{ access_log {}; server {{ listen 443 ssl; server_name shop.example; root {};\n\
         ssl_certificate {}; ssl_certificate_key {}; ssl_protocols TLSv1.2 TLSv1.3; ssl_session_tickets off;\n\
         location / {{ index hello.txt; }}\n\
         }} }}\n",
        log.display(),
        place.docroot().display(),
        files.chain.display(),
        files.key.display()
    );
    fs::write(&config, text).unwrap();
    config
}

#[test]
fn reading_says_what_is_there_and_what_would_be_tried() {
    let place = Place::new();
    let config = installed(&place);
    let before = fs::read_to_string(&config).unwrap();
    let output = place.run(&["advise", config.to_str().unwrap(), "--reading"]);
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    // Four requests of each of a hundred visitors.
    for line in
        ["hits per handshake  4.0 by the log", "RSA-2048", "ECDSA P-256 certificate          to try", "there already"]
    {
        assert!(said.contains(line), "{line}: {said}");
    }
    assert_eq!(fs::read_to_string(&config).unwrap(), before);
    let output = place.run(&["advise", "/no/such/nginx.conf"]);
    assert_eq!(output.status.code(), Some(3), "{}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn what_a_remedy_saves_is_told_in_the_owner_s_units_with_the_lines_to_write() {
    let place = Place::new();
    let config = installed(&place);
    let with_http2 = fs::read_to_string(&config).unwrap().replace("listen 443 ssl;", "listen 443 ssl http2;");
    fs::write(&config, with_http2).unwrap();
    let config = config.to_str().unwrap();
    let output = place.run(&["advise", config, "--rate", "3000", "--time", "4", "--markdown", "--no-report"]);
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{said}{}", String::from_utf8_lossy(&output.stderr));
    // On a busy machine no round may be complete, which is said; the lines stand there in any case.
    let answers = ["At your 3000 hits/s this server takes", "Nothing could be compared"];
    assert!(answers.iter().any(|answer| said.contains(answer)), "{said}");
    let parts = ["| ECDSA P-256 certificate | ", "ssl\\_certificate /etc/ssl/site-second.pem;"];
    assert!(parts.iter().all(|part| said.contains(part)), "{said}");
    let toml = place.run(&["advise", config, "--print-experiment"]);
    let toml = String::from_utf8_lossy(&toml.stdout).into_owned();
    assert!(toml.contains("session_cache = \"off\"") && toml.contains("http2 = true"), "{toml}");
    let by_http1 = place.run(&["advise", config, "--print-experiment", "--http1"]);
    assert!(!String::from_utf8_lossy(&by_http1.stdout).contains("http2"));
    assert!(toml.contains("hits_per_handshake = 4.0") && toml.contains("name = \"ECDSA P-256 certificate\""), "{toml}");
}

/// A redirect as logged is expected; a page that is gone since is left out, unless it is most of the log. In JSON.
#[test]
fn what_a_log_has_otherwise_than_the_server_answers_is_left_out_and_told() {
    let place = Place::new();
    let config = installed(&place);
    let redirect = "location = /login { return 302 /; }\nlocation / {";
    let text = fs::read_to_string(&config).unwrap().replace("location / {", redirect);
    fs::write(&config, text).unwrap();
    let log = |name: &str, gone: u32| {
        let path = place.path().join(name);
        let line = |number: u32| {
            let asked = |path: &str, status: u32| {
                let fields = serde_json::json!({
                    "ts": 1_664_858_220 + number, "remote_addr": format!("198.51.100.{}", number / 4),
                    "request": format!("GET {path} HTTP/1.1"), "status": status, "body_bytes_sent": 13,
                });
                format!("{fields}\n")
            };
            match number % 20 {
                0 => asked("/login", 302),
                place if place <= gone => asked("/gone.html", 200),
                _ => asked("/hello.txt", 200),
            }
        };
        fs::write(&path, (0..400).map(line).collect::<String>()).unwrap();
        path
    };
    let (few, many) = (log("few.json", 1), log("many.json", 9));
    let config = config.to_str().unwrap();
    let told = "left out: 20 of 400 requests (5.0 %; up to 20 % may be)";
    for command in [&["advise", config][..], &["ablate", "--server-config", config]] {
        let run = |log: &Path| {
            place.run(&[command, &["--trace", log.to_str().unwrap(), "--time", "4", "--no-report"]].concat())
        };
        let output = run(&few);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(matches!(output.status.code(), Some(0 | 8)), "{said}");
        assert!(said.contains(told) && said.contains("/gone.html (404, recorded 200)"), "{said}");
        assert!(!said.contains("/login ("), "{said}");
        let output = run(&many);
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(3), "{said}");
        assert!(said.contains("left out: 180 of 400 requests (45.0 %"), "{said}");
    }
}
