//! Interoperation over sockets: Go's crypto/tls and nginx in processes of their own, rustls in a thread.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, LazyLock};
use std::thread;
use std::time::{Duration, Instant};

use rustls::ServerConnection;
use tlsdyno_tls::suite::Protection;
use tlsdyno_tls::{Config, Effort, Group, Session, SessionKind, Settings, Suite, Version};

use crate::harness::{Caller, EFFORTS, KeyKind, answer, config, groups_for, is_tls13, keys_for, narrow};
use crate::processes::{Call, PATIENCE, Process, Reporter, directory_with};
use crate::rustls_server::rustls_config;

/// The Go server, built once per test run; Go's own cache makes later runs short.
static GO_SERVER: LazyLock<PathBuf> = LazyLock::new(|| {
    let target = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let program = target.join("go_server");
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/interop/go/main.go");
    let status = Command::new("go")
        .args(["build", "-o"])
        .arg(&program)
        .arg(&source)
        .env("GOCACHE", target.join("go-cache"))
        .env("GOTOOLCHAIN", "local")
        .status()
        .expect("this test needs Go: install the package golang-go");
    assert!(status.success(), "go build failed");
    program
});

struct GoServer(Reporter);

impl GoServer {
    fn start(key: KeyKind, suite: Suite, group: Group) -> GoServer {
        let directory = directory_with(key);
        let path = |name: &str| directory.path().join(name);
        let tls12 = if is_tls13(suite) { 0 } else { suite.code() };
        let mut command = Command::new(&*GO_SERVER);
        command
            .arg("-socket")
            .arg(path("socket"))
            .arg("-certificate")
            .arg(path("certificate.pem"))
            .arg("-key")
            .arg(path("key.pem"))
            .args(["-suite", &tls12.to_string(), "-group", &group.code().to_string()])
            // Static RSA is off by default in Go.
            .env("GODEBUG", "tlsrsakex=1");
        GoServer(Reporter::start(&mut command, directory))
    }

    fn exchange(&mut self, config: &Arc<Config>, session: Option<Session>) -> Caller {
        let (caller, said) = self.0.exchange(config, session);
        let handshake = caller.handshake();
        let version = if handshake.version == Version::Tls13 { 0x0304 } else { 0x0303 };
        let group = handshake.group.map_or(0, Group::code);
        let (suite, resumed) = (handshake.suite.code(), handshake.resumed.is_some());
        let expected = format!("{version:#06x} {suite:#06x} {group:#06x} {resumed}");
        assert_eq!(said, expected);
        caller
    }
}

/// Go has no AES-256-CBC with SHA-256.
fn go_speaks(suite: Suite) -> bool {
    suite.protection() != Protection::Aes256CbcSha256
}

/// The second number of Go's version.
static GO_MINOR: LazyLock<u32> = LazyLock::new(|| {
    let output = Command::new("go").args(["env", "GOVERSION"]).env("GOTOOLCHAIN", "local").output().unwrap();
    let version = String::from_utf8(output.stdout).unwrap();
    version.trim().split('.').nth(1).and_then(|minor| minor.parse().ok()).expect(&version)
});

/// Debian 13 has Go 1.24.
fn go_has(group: Group) -> bool {
    let since = match group {
        Group::X25519MlKem768 => 24,
        Group::P256MlKem768 | Group::P384MlKem1024 => 26,
        _ => 0,
    };
    *GO_MINOR >= since
}

#[test]
fn go_speaks_every_suite_and_group_full_and_resumed() {
    for suite in Suite::ALL.iter().copied().filter(|suite| go_speaks(*suite)) {
        let groups = || groups_for(suite).iter().copied().filter(|group| go_has(*group));
        for (key, group) in keys_for(suite).iter().flat_map(|key| groups().map(|group| (*key, group))) {
            let mut server = GoServer::start(key, suite, group);
            for effort in EFFORTS {
                let config = config(narrow(suite, group, effort));
                let first = server.exchange(&config, None);
                let kind = if is_tls13(suite) { SessionKind::Tls13Psk } else { SessionKind::Tls12Ticket };
                let session = first.taken.sessions.last().expect("Go issues tickets").clone();
                assert_eq!(session.kind(), kind);
                for _ in 0..2 {
                    let resumed = server.exchange(&config, Some(session.clone()));
                    assert_eq!(resumed.handshake().resumed, Some(kind), "{suite} {group} {effort}");
                }
            }
        }
    }
}

#[test]
fn go_asks_for_another_group() {
    for group in [Group::P384, Group::P384MlKem1024].into_iter().filter(|group| go_has(*group)) {
        let mut server = GoServer::start(KeyKind::P256, Suite::Tls13Aes128Gcm, group);
        for shares in [&[Group::X25519][..], &[Group::X25519MlKem768, Group::X25519]] {
            let settings = narrow(Suite::Tls13Aes128Gcm, Group::X25519, Effort::Honest);
            let config = config(Settings { groups: [shares, &[group]].concat(), ..settings });
            let first = server.exchange(&config, None);
            assert!(first.handshake().hello_retry);
            let session = first.taken.sessions.last().cloned();
            let resumed = server.exchange(&config, session);
            assert!(resumed.handshake().hello_retry && resumed.handshake().resumed.is_some());
        }
    }
}

/// nginx with one TLS listener whose only answer is what it knows of the connection.
fn start_nginx(key: KeyKind, directives: &str) -> Process {
    let directory = directory_with(key);
    let path = directory.path().display();
    let configuration = format!(
        "daemon off; master_process off; error_log {path}/error.log; pid {path}/nginx.pid;
        events {{ worker_connections 64; }}
        http {{
            access_log off; client_body_temp_path {path}/body; proxy_temp_path {path}/proxy; fastcgi_temp_path \
         {path}/fastcgi;
            uwsgi_temp_path {path}/uwsgi; scgi_temp_path {path}/scgi;
            server {{
                listen unix:{path}/socket ssl;
                ssl_certificate {path}/certificate.pem; ssl_certificate_key {path}/key.pem;
                ssl_protocols TLSv1.2 TLSv1.3; ssl_ciphers ALL:@SECLEVEL=0; {directives}
                location / {{ return 200 \"$ssl_protocol $ssl_cipher $ssl_session_reused\\n\"; }}
            }}
        }}"
    );
    let file = directory.path().join("nginx.conf");
    std::fs::write(&file, configuration).unwrap();
    let child = Command::new("nginx")
        .arg("-c")
        .arg(&file)
        .arg("-e")
        .arg(directory.path().join("error.log"))
        .env("PATH", format!("{}:/usr/sbin", std::env::var("PATH").unwrap_or_default()))
        .spawn()
        .expect("this test needs nginx: install the package nginx-light or nginx");
    let mut process = Process { child, directory };
    let start = Instant::now();
    while UnixStream::connect(process.socket()).is_err() {
        let log = || std::fs::read_to_string(process.directory.path().join("error.log")).unwrap_or_default();
        assert!(process.child.try_wait().unwrap().is_none(), "nginx ended: {}", log());
        assert!(start.elapsed() < PATIENCE, "nginx does not listen: {}", log());
        thread::sleep(Duration::from_millis(5));
    }
    process
}

/// One request; what nginx says of the connection must be what the client thinks.
fn ask_nginx(nginx: &Process, config: &Arc<Config>, session: Option<Session>) -> Caller {
    let mut call = nginx.call(config, session);
    call.caller.client.send(b"GET / HTTP/1.1\r\nHost: server.example\r\n\r\n", &mut call.caller.output).unwrap();
    call.until(|caller| caller.taken.data.ends_with(b"\n") && !caller.taken.data.ends_with(b"\r\n"));
    let handshake = call.caller.handshake();
    let said = String::from_utf8_lossy(&call.caller.taken.data).lines().last().unwrap_or_default().to_owned();
    let reused = if handshake.resumed.is_some() { "r" } else { "." };
    assert_eq!(said, format!("TLSv{} {} {reused}", handshake.version, handshake.suite.openssl_name()));
    call.caller
}

#[test]
fn nginx_speaks_every_suite_full_and_resumed() {
    let tickets = "ssl_session_cache none;";
    let ids = "ssl_session_tickets off; ssl_session_cache shared:S:1m;";
    for (key, directives, kind12) in [
        (KeyKind::P256, tickets, SessionKind::Tls12Ticket),
        (KeyKind::P256, ids, SessionKind::Tls12Id),
        (KeyKind::Rsa2048, tickets, SessionKind::Tls12Ticket),
        (KeyKind::Rsa2048, ids, SessionKind::Tls12Id),
    ] {
        let nginx = start_nginx(key, directives);
        for suite in Suite::ALL.iter().copied().filter(|suite| keys_for(*suite).contains(&key)) {
            let config = config(narrow(suite, Group::P256, Effort::Honest));
            let first = ask_nginx(&nginx, &config, None);
            let kind = if is_tls13(suite) { SessionKind::Tls13Psk } else { kind12 };
            let session = first.taken.sessions.last().expect("nginx issues sessions").clone();
            assert_eq!(session.kind(), kind, "{suite}");
            let resumed = ask_nginx(&nginx, &config, Some(session));
            assert_eq!(resumed.handshake().resumed, Some(kind), "{suite}");
        }
    }
}

#[test]
fn nginx_takes_the_base_point_of_every_group() {
    let nginx = start_nginx(KeyKind::P256, "ssl_ecdh_curve X25519:P-256:P-384; ssl_session_cache none;");
    for group in Group::CURVES {
        for suite in [Suite::Tls13Aes128Gcm, Suite::EcdheEcdsaAes128Gcm] {
            let mut settings = narrow(suite, group, Effort::Floor);
            if !is_tls13(suite) && group != Group::P256 {
                settings.groups.push(Group::P256); // the certificate's curve
            }
            let caller = ask_nginx(&nginx, &config(settings), None);
            assert_eq!(caller.handshake().group, Some(group));
        }
    }
}

#[test]
fn rustls_over_a_socket() {
    for suite in [Suite::Tls13Aes256Gcm, Suite::EcdheEcdsaAes128Gcm] {
        let server = rustls_config(KeyKind::P256, &[suite], &[Group::X25519], true);
        let config = config(narrow(suite, Group::X25519, Effort::Honest));
        let mut session = None;
        for connection in 0..3 {
            let (ours, mut theirs) = UnixStream::pair().unwrap();
            let mut tls = ServerConnection::new(Arc::clone(&server)).unwrap();
            let thread = thread::spawn(move || {
                let mut stream = rustls::Stream::new(&mut tls, &mut theirs);
                let mut requests = Vec::new();
                let mut buffer = [0; 64];
                // Reading 0 is the client's close_notify.
                while let length @ 1.. = stream.read(&mut buffer).unwrap() {
                    requests.extend_from_slice(&buffer[..length]);
                    stream.write_all(&answer(&mut requests)).unwrap();
                }
            });
            let mut call = Call::new(ours, &config, session);
            call.ask();
            call.caller.client.close(&mut call.caller.output);
            call.until(|_| true);
            thread.join().unwrap();
            assert_eq!(call.caller.handshake().resumed.is_some(), connection > 0);
            session = call.caller.taken.sessions.pop();
        }
    }
}
