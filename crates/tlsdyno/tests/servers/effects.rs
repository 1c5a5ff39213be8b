//! What servers under test do to the system that they run on: nothing, beyond their private directory.

use crate::place;

use std::collections::BTreeMap;
use std::fs;
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::thread;

use place::{Place, get};
use serde_json::Value;
use tlsdyno::installed::InstalledFile;
use tlsdyno::model::CertificateKind;
use tlsdyno::namespace::{self, Apart};
use tlsdyno::servers::{CommandSpec, ServerSpec, certificates, held_back};

/// An nginx that is installed below `at`, with all that it writes, and whom it asks. Nobody may hear of the copy.
struct Live {
    logs: UdpSocket,
    asked: TcpListener,
}

impl Live {
    fn install(at: &Path) -> Live {
        let files = certificates::create(CertificateKind::P256, at).unwrap();
        let logs = UdpSocket::bind("127.0.0.1:0").unwrap();
        let asked = TcpListener::bind("127.0.0.1:0").unwrap();
        logs.set_nonblocking(true).unwrap();
        asked.set_nonblocking(true).unwrap();
        for name in ["www", "cache", "scgi", "stored", "temporary", "logs"] {
            fs::create_dir(at.join(name)).unwrap();
            fs::set_permissions(at.join(name), fs::Permissions::from_mode(0o755)).unwrap();
        }
        fs::set_permissions(at, fs::Permissions::from_mode(0o755)).unwrap();
        fs::write(at.join("www/index.html"), "the front page\n".repeat(100)).unwrap();
        fs::write(at.join("scgi/0123456789abcdef0123456789abcdef"), "an answer that is kept\n").unwrap();
        let (syslog, port) = (logs.local_addr().unwrap(), asked.local_addr().unwrap());
        let text = format!(
            "error_log syslog:server={syslog} info; pid {at}/nginx.pid; events {{}}\n\
             http {{ proxy_cache_path {at}/cache keys_zone=c:1m; scgi_cache_path {at}/scgi keys_zone=s:1m inactive=1s \
             max_size=1k;\n fastcgi_temp_path {at}/temporary; ssl_protocols TLSv1.2 TLSv1.3;\n\
             server {{ listen 8443 ssl; server_name shop.example; root {at}/www;\n\
             ssl_certificate {}; ssl_certificate_key {}; ssl_trusted_certificate {};\n\
             ssl_stapling on; ssl_stapling_responder http://{port}/;\n\
             location / {{ mirror /mirror; dav_methods PUT; }}\n\
             location = /mirror {{ internal; proxy_pass http://{port}; }}\n\
             location /logged {{ access_log syslog:server={syslog},tag=live; return 200 logged; }}\n\
             location /inner {{ proxy_pass http://127.0.0.1:8080; proxy_store {at}/stored$uri; }} }}\n\
             server {{ listen 127.0.0.1:8080; access_log {at}/logs/inner.log; return 200 inner; }} }}\n",
            files.chain.display(),
            files.key.display(),
            files.ca.display(),
            at = at.display(),
        );
        fs::write(at.join("nginx.conf"), text).unwrap();
        Live { logs, asked }
    }

    fn has_heard_nothing(&self) {
        let mut line = [0; 200];
        let heard = self.logs.recv(&mut line);
        assert!(heard.is_err(), "the live syslog heard {}", String::from_utf8_lossy(&line));
        assert!(self.asked.accept().is_err(), "a live server was asked");
    }
}

/// All that can be told of the files below a directory without opening them.
fn state(at: &Path) -> BTreeMap<String, String> {
    let mut found = BTreeMap::new();
    let mut directories = vec![at.to_owned()];
    while let Some(directory) = directories.pop() {
        for entry in fs::read_dir(&directory).into_iter().flatten().flatten() {
            let of = entry.metadata().unwrap();
            let told = format!(
                "inode {} mode {:o} owner {}:{} {} bytes written {}.{:09} changed {}.{:09}",
                of.ino(),
                of.mode(),
                of.uid(),
                of.gid(),
                of.size(),
                of.mtime(),
                of.mtime_nsec(),
                of.ctime(),
                of.ctime_nsec()
            );
            found.insert(entry.path().display().to_string(), told);
            if of.is_dir() {
                directories.push(entry.path());
            }
        }
    }
    found
}

fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

#[test]
fn the_installed_server_is_as_it_was() {
    let place = Place::new();
    let at = place.path().join("live");
    fs::create_dir(&at).unwrap();
    let live = Live::install(&at);
    let paths = place.path().join("paths.txt");
    fs::write(&paths, "/\n/logged\n/inner\n").unwrap();
    // Whose owners nginx changes where it runs as root.
    let installed = ["/var/lib/nginx", "/var/log/nginx"];
    let before = (state(&at), installed.map(|path| state(Path::new(path))));
    let (config, paths) = (at.join("nginx.conf").display().to_string(), paths.display().to_string());
    let arguments = ["ablate", "--server-config", &config, "--paths", &paths, "--stages", "authentication"];
    let mut command = place.tlsdyno(&[&arguments[..], &["--time", "1", "--json", "--no-report"]].concat());
    if is_root() {
        command = place.with_all_else_read_only(&command);
    }
    let output = command.output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    let result = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{said}");
    assert_eq!((state(&at), installed.map(|path| state(Path::new(path)))), before);
    live.has_heard_nothing();
    for told in ["access_log", "proxy_cache_path", "Switched off: dav_methods, mirror, proxy_store, ssl_stapling"] {
        assert!(said.contains(told), "{told} is not in {said}");
    }
    assert!(result.contains("# Switched off: "), "the record has it too");
}

/// By the system's own word: every address that the copy connects or sends to.
#[test]
fn a_copy_asks_nobody() {
    if Command::new("strace").arg("-V").output().is_err() {
        panic!("strace is missing: scripts/install-packages installs it");
    }
    let place = Place::new();
    let at = place.path().join("live");
    fs::create_dir(&at).unwrap();
    let live = Live::install(&at);
    let command = CommandSpec {
        command: "nginx".to_owned(),
        address: "127.0.0.1:{port}".to_owned(),
        plain_address: Some("127.0.0.1:{plain_port}".to_owned()),
        original: Some(Arc::new(InstalledFile {
            path: at.join("nginx.conf"),
            program: "nginx".to_owned(),
            ..InstalledFile::default()
        })),
    };
    let calls = place.path().join("calls");
    fs::create_dir(&calls).unwrap();
    let mut spec = ServerSpec::of_command(command, place.docroot());
    let trace = ["strace", "-f", "-e", "trace=connect,sendto,sendmsg", "-o"].map(Into::into);
    spec.under = trace.into_iter().chain([calls.join("trace").into_os_string()]).collect();
    spec.writable.push(calls.clone());
    let server = place.start(&spec).unwrap();
    let plain = server.plain_address().unwrap();
    let host = |path: &str| format!("GET {path} HTTP/1.1\r\nHost: shop.example\r\nConnection: close\r\n\r\n");
    for (path, wanted) in [("/", "the front page"), ("/logged", "logged"), ("/inner", "inner")] {
        let answer = place::request(plain, &host(path));
        assert!(answer.contains(wanted), "{path}: {answer}\n{}", server.log_tail());
    }
    let handshake = place::handshake(&server, &["-status"]);
    assert!(handshake.contains("Cipher is"), "{handshake}");
    let own = server.directory.display().to_string();
    server.stop().unwrap();
    let text = fs::read_to_string(calls.join("trace")).unwrap();
    // glibc looks for a cache of names, nginx's own processes talk over pairs of sockets that have no name.
    let is_address = |line: &&str| line.contains("sa_family=") && !line.contains("/nscd/socket");
    let strangers: Vec<&str> = text.lines().filter(is_address).filter(|line| !line.contains(&own)).collect();
    assert_eq!(strangers, Vec::<&str>::new());
    assert!(text.contains("listen-") && text.contains(&own), "the inner server was asked: {text}");
    live.has_heard_nothing();
}

/// An installed configuration of each server: its program, its file, and what stands there. `AT` is where it lies.
const SITES: [(&str, &str, &str); 4] = [
    (
        "nginx",
        "nginx.conf",
        "events {} http { server { listen 8443 ssl; root AT/docroot; ssl_certificate AT/both.pem; \
         ssl_certificate_key AT/both.pem; } }",
    ),
    (
        "apache2",
        "apache2.conf",
        "LoadModule mpm_event_module /usr/lib/apache2/modules/mod_mpm_event.so\n\
         LoadModule ssl_module /usr/lib/apache2/modules/mod_ssl.so\n\
         LoadModule authz_core_module /usr/lib/apache2/modules/mod_authz_core.so\nErrorLog AT/error.log\nListen 443\n\
         <VirtualHost *:443>\nServerName shop.example\nDocumentRoot AT/docroot\nSSLEngine on\n\
         SSLCertificateFile AT/both.pem\n</VirtualHost>\n",
    ),
    (
        "haproxy",
        "haproxy.cfg",
        "global\n  lua-load AT/ask.lua\ndefaults\n  mode http\n  timeout connect 5s\n  timeout client 5s\n\
         \x20 timeout server 5s\nfrontend web\n  bind :443 ssl crt AT/both.pem\n\
         \x20 http-request use-service lua.ask\n",
    ),
    (
        "lighttpd",
        "lighttpd.conf",
        "server.modules = ( \"mod_openssl\", \"mod_cgi\" )\nserver.document-root = \"AT/docroot\"\nserver.port = 443\n\
         ssl.engine = \"enable\"\nssl.pemfile = \"AT/both.pem\"\ncgi.assign = ( \".sh\" => \"/bin/bash\" )\n",
    ),
];

/// One of them where `place` is, with an application that listens and code of theirs that asks it.
fn site(place: &Place, (_, name, text): (&str, &str, &str)) -> (PathBuf, TcpListener) {
    let files = certificates::create(CertificateKind::P256, place.path()).unwrap();
    let both = [files.chain, files.key].map(|path| fs::read_to_string(path).unwrap()).concat();
    fs::write(place.path().join("both.pem"), both).unwrap();
    let asked = TcpListener::bind("127.0.0.1:0").unwrap();
    asked.set_nonblocking(true).unwrap();
    let port = asked.local_addr().unwrap().port();
    let lua = format!(
        "core.register_service('ask', 'http', function(applet)\n\
         local asked = core.tcp()\nasked:settimeout(1)\nasked:connect('127.0.0.1', {port})\n\
         applet:set_status(200)\napplet:add_header('Content-Length', '5')\napplet:start_response()\n\
         applet:send('hello')\nend)\n"
    );
    fs::write(place.path().join("ask.lua"), lua).unwrap();
    let script = format!("(: 3<>/dev/tcp/127.0.0.1/{port}) 2>/dev/null\nprintf 'Content-Length: 5\\r\\n\\r\\nhello'\n");
    fs::write(place.docroot().join("ask.sh"), script).unwrap();
    let file = place.path().join(name);
    fs::write(&file, text.replace("AT", &place.path().display().to_string())).unwrap();
    (file, asked)
}

/// By the system's own word, from where the copy of each server runs.
#[test]
fn nobody_but_its_own_listener_answers_a_copy() {
    if !is_root() {
        return;
    }
    for of in SITES {
        let place = Place::new();
        let (file, asked) = site(&place, of);
        let socket = place.path().join("socket");
        let _listens = UnixListener::bind(&socket).unwrap();
        let connect = format!("import socket; socket.socket(socket.AF_UNIX).connect('{}')", socket.display());
        let _apart = Apart::enter().unwrap();
        let command = CommandSpec {
            command: of.0.to_owned(),
            address: "127.0.0.1:{port}".to_owned(),
            plain_address: Some("127.0.0.1:{plain_port}".to_owned()),
            original: Some(Arc::new(InstalledFile {
                path: file,
                program: of.0.to_owned(),
                replays: true,
                ..InstalledFile::default()
            })),
        };
        let spec = ServerSpec { apart: true, ..ServerSpec::of_command(command, place.docroot()) };
        let server = place.start(&spec).unwrap();
        let (address, pid) = (server.address(), server.worker_pids()[0].to_string());
        let succeeds = |words: [&str; 3]| {
            let inside = Command::new("nsenter").args(["-t", &pid, "-n", "-m", "--"]).args(words).output().unwrap();
            inside.status.success()
        };
        let tcp = |to: SocketAddr| succeeds(["bash", "-c", &format!(": 3<>/dev/tcp/{}/{}", to.ip(), to.port())]);
        assert!(TcpStream::connect(address).is_ok() && tcp(address), "{of:?}");
        assert!(!tcp(asked.local_addr().unwrap()), "{of:?} reaches a program of this machine");
        assert!(!succeeds(["python3", "-c", &connect]), "{of:?} reaches its socket");
        assert!(namespace::outside(|| TcpStream::connect(address)).unwrap().is_err(), "{of:?} is reached");
        server.stop().unwrap();
        assert!(asked.accept().is_err(), "{of:?}");
    }
}

/// Code that a copy keeps asks others as often as it is called.
#[test]
fn code_of_a_copy_reaches_nobody_unless_it_may() {
    for (of, path) in [(SITES[2], "/"), (SITES[3], "/ask.sh")] {
        let place = Place::new();
        let (file, application) = site(&place, of);
        let file = file.display().to_string();
        let (asked, taken) = mpsc::channel();
        application.set_nonblocking(false).unwrap();
        // Connections that nobody takes would fill its queue, and code that asks then waits for minutes.
        thread::spawn(move || application.incoming().try_for_each(|_| asked.send(())));
        let run = |flags: &[&str]| {
            let arguments = ["ablate", "--server-config", &file, "--path", path, "--stages", "authentication"];
            let output = place.run(&[&arguments[..], &["--time", "1", "--json", "--no-report"], flags].concat());
            let said = String::from_utf8_lossy(&output.stderr).into_owned();
            assert!([Some(0), Some(8)].contains(&output.status.code()), "{}: {said}", output.status);
            said
        };
        if is_root() {
            let said = run(&[]);
            assert!(said.contains("network is its own: it reaches nobody"), "{said}");
            assert!(taken.try_recv().is_err(), "{of:?}");
        }
        let said = run(&["--ask-backend"]);
        assert!(said.contains("it reaches for real (--ask-backend)"), "{said}");
        assert!(taken.try_recv().is_ok(), "{of:?}: {said}");
    }
}

/// What a user's command writes: nothing for real but where it may, though it sees what it wrote.
#[test]
fn a_command_writes_to_a_layer() {
    let place = Place::new();
    if let Err(why) = held_back::allowed(true) {
        assert!(!is_root(), "{why}");
        return;
    }
    // A directory of the root that is no place of tests, and one of tests.
    let outside = tempfile::Builder::new().prefix("tlsdyno-test-").tempdir_in("/var/tmp").unwrap();
    let (data, kept) = (outside.path().join("data"), place.path().join("kept"));
    fs::create_dir(&kept).unwrap();
    fs::write(&data, "as it was\n").unwrap();
    let socket = outside.path().join("socket");
    let _listens = UnixListener::bind(&socket).unwrap();
    let before = state(outside.path());
    let seen = kept.join("seen");
    let script = place.path().join("serve.sh");
    let text = format!(
        "set -e\necho more >> {data}\ncp {data} {outside}/copy\ntouch /run/tlsdyno-test /tmp/tlsdyno-test\n\
         python3 -c 'import socket; socket.socket(socket.AF_UNIX).connect(\"{outside}/socket\")'\ncp {data} {seen}\n\
         exec python3 -m http.server --bind 127.0.0.1 --directory \"$1\" \"$2\"\n",
        data = data.display(),
        outside = outside.path().display(),
        seen = seen.display(),
    );
    fs::write(&script, text).unwrap();
    let mut spec = place.command(&format!("sh {} {{docroot}} {{port}}", script.display()), "127.0.0.1:{port}");
    spec.writable.push(kept.clone());
    let server = place.start(&spec).unwrap();
    assert!(get(server.address()).ends_with("hello, world\n"));
    assert_eq!(fs::read_to_string(&seen).unwrap(), "as it was\nmore\n", "{}", server.log_tail());
    server.stop().unwrap();
    assert_eq!(state(outside.path()), before);
    for name in ["/run/tlsdyno-test", "/tmp/tlsdyno-test"] {
        assert!(!Path::new(name).exists(), "{name}");
    }
}

/// A command sees sockets of other programs, which end whenever they like.
#[test]
fn a_command_starts_while_sockets_of_others_come_and_go() {
    let place = Place::new();
    if let Err(why) = held_back::allowed(true) {
        assert!(!is_root(), "{why}");
        return;
    }
    let outside = tempfile::Builder::new().prefix("tlsdyno-test-").tempdir_in("/var/tmp").unwrap();
    let has_ended = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            for number in (0..).take_while(|_| !has_ended.load(Ordering::Relaxed)) {
                let names = (0..50).map(|of| outside.path().join(format!("{number}-{of}")));
                let listening = names.map(|name| (UnixListener::bind(&name).unwrap(), name)).collect::<Vec<_>>();
                listening.iter().for_each(|(_, name)| fs::remove_file(name).unwrap());
            }
        });
        let spec = place.command("python3 -m http.server --bind 127.0.0.1 {port}", "127.0.0.1:{port}");
        let started: Vec<_> = (0..8).map(|_| place.start(&spec).map(|server| server.stop())).collect();
        has_ended.store(true, Ordering::Relaxed);
        for one in started {
            one.unwrap().unwrap();
        }
    });
}

/// A server with a child for each connection, or with one thread for each and children that end when their work is
/// done, as the loader of nginx's caches does. A child takes two milliseconds of CPU time for each request.
const FORKING: &str = r#"
import os, socket, ssl, sys, threading, time
port, chain, key, way = int(sys.argv[1]), sys.argv[2], sys.argv[3], sys.argv[4]
context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
context.load_cert_chain(chain, key)
listener = socket.create_server(('127.0.0.1', port), backlog=256)
def serve(connection):
    try:
        tls, data = context.wrap_socket(connection, server_side=True), b''
        while True:
            while b'\r\n\r\n' not in data:
                more = tls.recv(4096)
                if not more: return
                data += more
            data = data.split(b'\r\n\r\n', 1)[1]
            begun = time.process_time()
            while way == 'children' and time.process_time() - begun < 0.002: pass
            tls.sendall(b'HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello')
    except OSError:
        pass
    finally:
        connection.close()
loaders = [os.pipe() for _ in range(20 if way == 'loader' else 0)]
for ends, done in loaders:
    if os.fork() == 0:
        listener.close()
        os.read(ends, 1)
        os._exit(0)
served = 0
while True:
    connection, _ = listener.accept()
    served += 1
    if served % 10 == 0 and loaders: os.write(loaders.pop()[1], b'.')
    if way == 'loader':
        threading.Thread(target=serve, args=(connection,)).start()
    elif os.fork() == 0:
        listener.close()
        serve(connection)
        os._exit(0)
    else:
        connection.close()
    try:
        while os.waitpid(-1, os.WNOHANG)[0]: pass
    except ChildProcessError:
        pass
"#;

/// Whether `ablate` measures that server, and what it said.
fn is_measured(place: &Place, way: &str) -> Value {
    let script = place.path().join("forking.py");
    fs::write(&script, FORKING).unwrap();
    let command = format!("python3 {} {{port}} {{certificate}} {{key}} {way}", script.display());
    let server = ["ablate", "--server-command", &command, "--path", "/", "--stages", "authentication"];
    let output = place.run(&[&server[..], &["--cert", "rsa-2048", "--time", "8", "--json", "--no-report"]].concat());
    let said = String::from_utf8_lossy(&output.stderr);
    // 8: on a busy machine there may be too few rounds for a verdict.
    assert!([Some(0), Some(8)].contains(&output.status.code()), "{said}\n{}", String::from_utf8_lossy(&output.stdout));
    let result: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert!(result["configurations"][0]["hits"].as_u64() > Some(0), "{result}");
    for configuration in result["configurations"].as_array().unwrap() {
        assert_eq!(configuration["valid"], true, "{configuration}");
        assert_eq!(configuration["errors"], serde_json::json!({}), "{configuration}");
    }
    result
}

#[test]
fn a_process_whose_work_is_done_is_no_death() {
    is_measured(&Place::new(), "loader");
}

#[test]
fn children_of_connections_are_accounted_for() {
    let place = Place::new();
    let result = is_measured(&place, "children");
    let all = result["configurations"].as_array().unwrap();
    let cost = |name: &str| {
        let of = all.iter().find(|one| one["name"] == name).unwrap();
        of["server_cpu_ns_per_hit"]["value"].as_f64().unwrap()
    };
    assert!(cost("as is") > 2_000_000.0, "{result}");
}
