//! The drivers with real servers: start, ready, account, end, and every way it can go wrong.

use crate::place;

use std::fs;
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use place::{Place, assert_serves_hello, eventually, fetch_twice_with_one_session, get, handshake, is_gone, kill};
use rustix::fs::{FileType, Mode};
use socket2::{Domain, Socket, Type};
use tlsdyno::model::{CertificateKind, ServerName, SessionCache};
use tlsdyno::process_tree;
use tlsdyno::servers::{self, CommandSpec, RunDirectory, ServerSpec, ServerTls};

#[test]
fn nginx_serves_accounts_and_leaves_nothing() {
    let place = Place::new();
    let mut nginx = place.start(&place.spec(ServerName::Nginx)).unwrap();
    assert!(nginx.obituary().is_none());
    assert_eq!(nginx.worker_pids().len(), 1);
    assert_eq!(nginx.listening_addresses(), [nginx.address()]);
    let before = nginx.cpu_ns().unwrap();
    assert_serves_hello(nginx.address(), "nginx");
    assert!(nginx.cpu_ns().unwrap() > before);
    assert_eq!(nginx.error_log_alarms(), Vec::<String>::new());
    let description = nginx.description();
    assert!(description.version.starts_with("nginx/") && description.config.contains("daemon off"), "{description:?}");
    let pids = nginx.pids();
    let address = nginx.address();
    nginx.stop().unwrap();
    assert!(pids.iter().all(|&pid| is_gone(pid)));
    assert!(TcpStream::connect(address).is_err());
    assert_eq!(place.leftovers(), Vec::<String>::new());
}

#[test]
fn a_killed_worker_is_an_alarm() {
    let place = Place::new();
    let nginx = place.start(&place.spec(ServerName::Nginx)).unwrap();
    let worker = nginx.worker_pids()[0];
    kill(worker);
    eventually("an alarm", || nginx.error_log_alarms().iter().any(|line| line.contains("exited on signal 9")));
    assert_eq!(nginx.error_log_alarms(), Vec::<String>::new(), "each alarm is told once");
}

#[test]
fn a_server_that_does_not_start_says_why() {
    let place = Place::new();
    let mut spec = place.spec(ServerName::Nginx);
    let mut tls = ServerTls::new(servers::certificates::create(CertificateKind::P256, place.directory.path()).unwrap());
    fs::write(&tls.certificate.key, "no key\n").unwrap();
    tls.tickets = false;
    spec.tls = Some(tls);
    let error = format!("{:#}", place.start(&spec).unwrap_err());
    assert!(error.contains("did not start (exit status 1)") && error.contains("p-256.key.pem"), "{error}");

    let error = format!("{:#}", place.start(&place.command("/no/such/server {port}", "127.0.0.1:{port}")).unwrap_err());
    assert!(error.contains("cannot run /no/such/server"), "{error}");

    let mut nowhere = place.spec(ServerName::Nginx);
    nowhere.docroot = "/no/such/docroot".into();
    let error = format!("{:#}", place.start(&nowhere).unwrap_err());
    assert!(error.contains("/no/such/docroot"), "{error}");
    assert_eq!(place.leftovers(), Vec::<String>::new());
}

#[test]
fn a_taken_port_names_its_owner() {
    let place = Place::new();
    let holder = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = holder.local_addr().unwrap().to_string();
    let error = format!("{:#}", place.start(&place.command("sleep 60", &address)).unwrap_err());
    assert!(error.contains(&address) && error.contains(&format!("process {}", std::process::id())), "{error}");
    assert_eq!(place.leftovers(), Vec::<String>::new());
}

/// Two that find a port free at the same time may both bind it with SO_REUSEPORT, and share its connections.
#[test]
fn a_port_that_another_program_shares_is_taken() {
    let place = Place::new();
    let holder = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
    holder.set_reuse_port(true).unwrap();
    holder.bind(&SocketAddr::from((Ipv4Addr::LOCALHOST, 0)).into()).unwrap();
    let address = holder.local_addr().unwrap().as_socket().unwrap().to_string();
    // The server begins to wait for it when its port has been found free.
    let fifo = place.path().join("fifo");
    rustix::fs::mknodat(rustix::fs::CWD, &fifo, FileType::Fifo, Mode::from(0o600), 0).unwrap();
    let port = address.rsplit(':').next().unwrap();
    let listens = format!("socket.create_server((\"127.0.0.1\", {port}), reuse_port=True)");
    let script = format!("import socket, time; open(\"{}\").read(); kept = {listens}; time.sleep(60)", fifo.display());
    let error = thread::scope(|scope| {
        scope.spawn(|| {
            let _waiting = fs::File::options().write(true).open(&fifo).unwrap();
            holder.listen(1).unwrap();
        });
        let command = format!("python3 -c '{script}'");
        format!("{:#}", place.start(&place.command(&command, &address)).unwrap_err())
    });
    assert!(error.contains(&format!("others listen at {address}, too")), "{error}");
    assert_eq!(place.leftovers(), Vec::<String>::new());
}

/// A small server of the user's own, which forks into the background like a daemon of old if asked to.
const OWN_SERVER: &str = r#"
import http.server, os, sys
address, port, daemon = sys.argv[1], int(sys.argv[2]), sys.argv[3] == 'daemon'
server = http.server.HTTPServer((address, port), http.server.SimpleHTTPRequestHandler)
if daemon:
    if os.fork(): os._exit(0)
    os.setsid()
    if os.fork(): os._exit(0)
server.serve_forever()
"#;

fn own_server(place: &Path, address: &str, mode: &str) -> ServerSpec {
    let script = place.join("server.py");
    fs::write(&script, OWN_SERVER).unwrap();
    let command = format!("python3 '{}' {address} {{port}} {mode}", script.display());
    let spec = CommandSpec { command, address: "127.0.0.1:{port}".into(), plain_address: None, original: None };
    ServerSpec::of_command(spec, place.to_owned())
}

#[test]
fn an_own_command_in_the_background_is_found_and_ended() {
    let place = Place::new();
    let mut server = place.start(&own_server(&place.docroot(), "127.0.0.1", "daemon")).unwrap();
    assert!(server.obituary().is_none() && get(server.address()).contains(" 404 "));
    assert!(server.cpu_ns().unwrap() > 0);
    // It listens before it is in the background.
    eventually("one process", || server.pids().len() == 1);
    let pids = server.pids();
    server.stop().unwrap();
    assert!(is_gone(pids[0]));
}

#[test]
fn an_altered_server_must_not_be_reachable() {
    let place = Place::new();
    let mut spec = own_server(&place.docroot(), "0.0.0.0", "foreground");
    drop(place.start(&spec).unwrap());
    spec.handed.environment = vec![("OPENSSL_CONF".into(), "/dev/null".into())];
    let error = format!("{:#}", place.start(&spec).unwrap_err());
    assert!(error.contains("0.0.0.0:") && error.contains("--allow-insecure-listen"), "{error}");
    // At once, also where it is not ready and never will be.
    let mut elsewhere = spec.clone();
    elsewhere.command.as_mut().unwrap().address = "127.0.0.1:{plain_port}".into();
    let error = format!("{:#}", place.start(&elsewhere).unwrap_err());
    assert!(error.contains("0.0.0.0:") && error.contains("--allow-insecure-listen"), "{error}");
    spec.allow_insecure_listen = true;
    let open = place.start(&spec).unwrap();
    open.refuse_open_listeners().unwrap();
    drop(open);
    let mut on_loopback = own_server(&place.docroot(), "127.0.0.1", "foreground");
    on_loopback.handed = spec.handed.clone();
    place.start(&on_loopback).unwrap().refuse_open_listeners().unwrap();
}

#[test]
fn a_dying_server_is_noticed() {
    let place = Place::new();
    let mut server = place.start(&own_server(&place.docroot(), "127.0.0.1", "foreground")).unwrap();
    let pid = server.pids()[0];
    assert!(server.obituary().is_none());
    kill(pid);
    eventually("death", || is_gone(pid));
    let limit = Instant::now() + Duration::from_secs(60);
    while server.obituary().is_none() {
        assert!(Instant::now() < limit);
    }
    server.stop().unwrap();
}

#[test]
fn even_a_killed_supervisor_leaves_nothing() {
    let place = Place::new();
    let mut nginx = place.start(&place.spec(ServerName::Nginx)).unwrap();
    let pids = nginx.pids();
    let parent = process_tree::stat(process_tree::stat(pids[0]).unwrap().parent).unwrap();
    // Where there is a PID namespace, its first process stands between.
    let is_namespaced = process_tree::command_line(parent.pid).contains("--first-process");
    kill(if is_namespaced { parent.parent } else { parent.pid });
    // The first process dies with its parent, and its namespace with it. Without one the workers are then nobody's
    // children, but still of its group.
    eventually("death of the master", || is_gone(pids[0]));
    assert!(nginx.obituary().is_some());
    let error = nginx.stop().unwrap_err().to_string();
    assert!(error.contains("supervisor"), "{error}");
    eventually("processes gone", || pids.iter().all(|&pid| is_gone(pid)));
    assert_eq!(place.leftovers(), Vec::<String>::new());
}

#[test]
fn the_environment_reaches_the_server_alone() {
    let place = Place::new();
    let probe = place.directory.path().join("probe");
    let command = format!("sh -c 'env > \"{}\"; exit 3'", probe.display());
    let mut spec = place.command(&command, "127.0.0.1:1");
    spec.writable.push(place.path().to_owned());
    spec.handed.environment = vec![("TLSDYNO_PROBE".into(), "seen".into())];
    let error = format!("{:#}", place.start(&spec).unwrap_err());
    assert!(error.contains("exit status 3"), "{error}");
    assert!(fs::read_to_string(probe).unwrap().contains("TLSDYNO_PROBE=seen"));
    assert!(std::env::var_os("TLSDYNO_PROBE").is_none());
}

#[test]
fn servers_run_where_they_are_told() {
    let place = Place::new();
    let mut spec = place.spec(ServerName::Nginx);
    spec.cpus = vec![0];
    let nginx = place.start(&spec).unwrap();
    for pid in nginx.pids() {
        let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
        assert!(status.lines().any(|line| line == "Cpus_allowed_list:\t0"), "{status}");
    }
    drop(nginx);
    spec.cpus = vec![1000];
    let error = format!("{:#}", place.start(&spec).unwrap_err());
    assert!(error.contains("cannot run on CPU 1000"), "{error}");
}

#[test]
fn the_run_directory_lives_as_long_as_its_owner() {
    drop(Place::new());
    let directory = RunDirectory::create().unwrap();
    let path = directory.path().to_owned();
    fs::write(path.join("file"), "content").unwrap();
    let is_root = rustix::process::geteuid().is_root();
    assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, if is_root { 0o710 } else { 0o700 });
    // A second one of the same living owner leaves it alone.
    drop(RunDirectory::create().unwrap());
    assert!(path.join("file").exists());
    drop(directory);
    assert!(!path.exists());
}

/// Not a test by itself: the process that `nothing_outlives_a_killed_owner` kills. It says what it has started and
/// waits.
#[test]
#[ignore = "runs as the victim of another test"]
fn victim() {
    if std::env::var_os("TLSDYNO_VICTIM").is_none() {
        return;
    }
    // The place of the killing test, which removes it.
    let docroot = PathBuf::from(std::env::var_os("TLSDYNO_VICTIM_DOCROOT").unwrap());
    servers::launch::set_own_executable(Path::new(env!("CARGO_BIN_EXE_tlsdyno")));
    let directory = RunDirectory::create().unwrap();
    let start = |spec| servers::start(&spec, directory.path()).unwrap();
    let nginx = start(ServerSpec::new(ServerName::Nginx, docroot.clone()));
    let background = start(own_server(&docroot, "127.0.0.1", "daemon"));
    // The last of its processes alone answers.
    assert!(get(background.address()).contains(" 404 "));
    eventually("one process", || background.pids().len() == 1);
    let pids: Vec<String> = nginx.pids().iter().chain(&background.pids()).map(ToString::to_string).collect();
    println!("started: {} {} {}", pids.join(","), nginx.address(), directory.path().display());
    match std::env::var("TLSDYNO_VICTIM").unwrap().as_str() {
        "panic" => panic!("as asked"),
        _ => std::thread::sleep(Duration::from_secs(60)),
    }
}

#[test]
fn nothing_outlives_a_killed_owner() {
    let place = Place::new();
    for way in ["kill", "panic"] {
        let mut victim = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "lifecycle::victim", "--ignored", "--nocapture"])
            .env("TLSDYNO_VICTIM", way)
            .env("TLSDYNO_VICTIM_DOCROOT", place.docroot())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut output = std::io::BufReader::new(victim.stdout.take().unwrap());
        let mut line = String::new();
        while !line.contains("started: ") || !line.ends_with('\n') {
            line.clear();
            assert_ne!(std::io::BufRead::read_line(&mut output, &mut line).unwrap(), 0, "the victim said nothing");
        }
        let words: Vec<&str> = line[line.find("started: ").unwrap()..].split_whitespace().collect();
        let pids: Vec<u32> = words[1].split(',').map(|pid| pid.parse().unwrap()).collect();
        let (address, directory) = (words[2].parse::<SocketAddr>().unwrap(), PathBuf::from(words[3]));
        assert!(pids.len() >= 3);
        if way == "kill" {
            assert!(pids.iter().all(|&pid| !is_gone(pid)) && directory.exists());
            victim.kill().unwrap();
        }
        victim.wait().unwrap();
        eventually("processes gone", || pids.iter().all(|&pid| is_gone(pid)));
        eventually("directory gone", || !directory.exists());
        assert!(TcpStream::connect(address).is_err(), "{way}");
    }
}

#[test]
fn both_servers_serve_both_versions_with_every_resumption() {
    let place = Place::new();
    let certificate = servers::certificates::create(CertificateKind::P256, place.directory.path()).unwrap();
    for kind in [ServerName::Builtin, ServerName::Nginx] {
        for (tickets, session_cache) in [(true, false), (false, true), (false, false)] {
            let kept = if session_cache { SessionCache::Shared } else { SessionCache::Off };
            let tls = ServerTls { tickets, session_cache: kept, ..ServerTls::new(certificate.clone()) };
            let spec = ServerSpec { tls: Some(tls), log_sessions: true, ..place.spec(kind) };
            let server = place.start(&spec).unwrap();
            let case = format!("{kind:?}, tickets {tickets}, cache {session_cache}");
            for version in ["-tls1_2", "-tls1_3"] {
                fetch_twice_with_one_session(&server, version);
            }
            let counts = server.session_counts().unwrap();
            let resumed = if tickets || session_cache { 2 } else { 0 };
            assert_eq!((counts.requests, counts.connections, counts.resumed), (4, 4, resumed), "{case}");
            assert_eq!(counts.negotiated.values().sum::<u64>(), 4, "{case}");
            assert!(counts.negotiated.keys().any(|name| name.starts_with("TLSv1.3 TLS_")), "{counts:?}");
            assert_eq!(server.error_log_alarms(), Vec::<String>::new(), "{case}");
            let libraries = server.description().openssl_libraries;
            assert!(libraries.iter().any(|path| path.to_string_lossy().contains("libssl")), "{case}: {libraries:?}");
            servers::require_mapped(&server.worker_pids(), &libraries[0]).unwrap();
            server.stop().unwrap();
        }
    }
}

#[test]
fn settings_reach_both_servers() {
    let place = Place::new();
    let certificate = servers::certificates::create(CertificateKind::Rsa2048, place.directory.path()).unwrap();
    for kind in [ServerName::Builtin, ServerName::Nginx] {
        let tls = ServerTls {
            versions: vec!["1.2".parse().unwrap()],
            suites: vec!["AES128-SHA".parse().unwrap(), "ECDHE-RSA-AES128-SHA".parse().unwrap()],
            groups: vec!["P-384".parse().unwrap()],
            encrypt_then_mac: false,
            ..ServerTls::new(certificate.clone())
        };
        let mut spec = ServerSpec { tls: Some(tls), workers: 2, ..place.spec(kind) };
        let server = place.start(&spec).unwrap();
        let said = handshake(&server, &[]);
        assert!(said.contains("Cipher is AES128-SHA") && said.contains("Protocol  : TLSv1.2"), "{said}");
        let said = handshake(&server, &["-cipher", "ECDHE-RSA-AES128-SHA"]);
        assert!(said.contains("P-384") || said.contains("secp384r1"), "{kind:?}: {said}");
        assert!(handshake(&server, &["-tls1_3"]).contains("Cipher is (NONE)"));
        assert_eq!(server.worker_pids().len(), if kind == ServerName::Nginx { 2 } else { 1 });
        server.stop().unwrap();
        // Plain HTTP, the same driver.
        spec.tls = None;
        let server = place.start(&spec).unwrap();
        assert!(get(server.address()).ends_with("hello, world\n"));
    }
}

/// `tlsdyno serve` as a person or script runs it.
#[test]
fn serve_prints_addresses_and_ends_when_told() {
    let place = Place::new();
    let mut server = Command::new(env!("CARGO_BIN_EXE_tlsdyno"))
        .args([
            "serve",
            "--print-address",
            "--listen",
            "127.0.0.1:0",
            "--listen-plain",
            "127.0.0.1:0",
            "--workers",
            "2",
        ])
        .arg("--docroot")
        .arg(place.docroot())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = std::io::BufRead::lines(std::io::BufReader::new(server.stdout.take().unwrap()));
    let mut address = || serde_json::from_str::<serde_json::Value>(&lines.next().unwrap().unwrap()).unwrap();
    let (tls, plain) = (address(), address());
    assert_eq!((&tls["tls"], &plain["tls"]), (&true.into(), &false.into()));
    assert!(get(plain["address"].as_str().unwrap().parse().unwrap()).ends_with("hello, world\n"));
    rustix::process::kill_process(rustix::process::Pid::from_child(&server), rustix::process::Signal::INT).unwrap();
    assert!(server.wait().unwrap().success());
}

#[test]
fn serve_explains_what_it_refuses() {
    let place = Place::new();
    let docroot = place.docroot();
    let holder = TcpListener::bind("127.0.0.1:0").unwrap();
    let taken = holder.local_addr().unwrap().to_string();
    for (arguments, code, words) in [
        (vec!["--listen", "0.0.0.0:0"], 2, "--allow-insecure-listen"),
        (vec!["--listen-plain", &taken], 5, "Address already in use"),
        (vec!["--certificate", "/no/such.pem", "--key", "/no/such.pem"], 5, "/no/such.pem"),
        (vec!["--tls", "1.1"], 2, "unknown TLS version"),
        (vec!["--suite", "RC4-MD5"], 2, "unknown cipher suite"),
        (vec!["--session-log", "/no/such/directory/log"], 2, "/no/such/directory/log"),
    ] {
        let output = Command::new(env!("CARGO_BIN_EXE_tlsdyno"))
            .arg("serve")
            .arg("--docroot")
            .arg(&docroot)
            .args(&arguments)
            .output();
        let output = output.unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{arguments:?}: {said}");
        assert!(said.contains(words), "{arguments:?}: {said}");
    }
    let output =
        Command::new(env!("CARGO_BIN_EXE_tlsdyno")).args(["serve", "--docroot", "/no/such/place"]).output().unwrap();
    assert_eq!(output.status.code(), Some(3));
}

#[test]
fn doctor_looks_at_everything() {
    let output = Command::new(env!("CARGO_BIN_EXE_tlsdyno")).args(["doctor", "--json"]).output().unwrap();
    let findings: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(output.status.code(), Some(if findings["able"] == true { 0 } else { 6 }));
    let checks = findings["checks"].as_array().unwrap();
    let of = |name: &str| {
        checks.iter().find(|check| check["name"] == name).unwrap_or_else(|| panic!("no {name} in {findings}"))
    };
    let servers = ["nginx", "apache", "haproxy", "lighttpd"];
    let machine =
        ["OpenSSL", "no-op provider", "CPUs", "CPU account", "CPU quota", "open files", "ports", "temporary files"];
    for name in machine.into_iter().chain(servers) {
        assert!(!of(name)["finding"].as_str().unwrap().is_empty());
    }
    assert_eq!(of("no-op provider")["verdict"], "ok", "{findings}");
    // Whatever is not as it should be comes with a remedy.
    for check in checks {
        assert_eq!(check["verdict"] == "ok", check["remedy"] == "", "{check}");
    }
}

/// An nginx with a configuration of the user's own: in the background as is nginx's habit, both kinds of address, fixed
/// ports, so that configurations take turns.
#[test]
fn an_own_nginx_takes_turns_on_its_fixed_ports() {
    let place = Place::new();
    let files = servers::certificates::create(CertificateKind::P256, place.directory.path()).unwrap();
    let free = || TcpListener::bind("127.0.0.1:0").unwrap();
    let (tls, plain) = (free(), free());
    let (address, plain_address) = (tls.local_addr().unwrap(), plain.local_addr().unwrap());
    drop((tls, plain));
    let config = place.directory.path().join("my.conf");
    let text = format!(
        "pid my.pid; error_log my.log; events {{}} http {{ access_log off; client_body_temp_path b; proxy_temp_path \
         p; fastcgi_temp_path f; uwsgi_temp_path u; scgi_temp_path s; server {{ listen {address} ssl; listen \
         {plain_address}; ssl_protocols TLSv1.2; ssl_certificate {}; ssl_certificate_key {}; root {}; }} }}",
        files.chain.display(),
        files.key.display(),
        place.docroot().display()
    );
    fs::write(&config, text).unwrap();
    let command = CommandSpec {
        command: format!("nginx -p {{dir}} -e my.log -c '{}'", config.display()),
        address: address.to_string(),
        plain_address: Some(plain_address.to_string()),
        original: None,
    };
    assert!(command.has_fixed_port());
    let spec = ServerSpec::of_command(command, place.docroot());
    for _ in 0..3 {
        let mut server = place.start(&spec).unwrap();
        assert_eq!((server.address(), server.plain_address()), (address, Some(plain_address)));
        assert!(get(plain_address).ends_with("hello, world\n"));
        let said = handshake(&server, &[]);
        // As its configuration has it, and nothing else: left alone, older ones speak TLS 1.2 at most, newer ones 1.3.
        assert!(said.contains("Cipher is ECDHE-ECDSA-"), "{said}\n{}", server.log_tail());
        assert!(server.obituary().is_none());
        let workers = server.worker_pids();
        assert_eq!(workers.len(), 1);
        assert!(process_tree::command_line(workers[0]).contains("worker process"));
        server.stop().unwrap();
    }
}

#[test]
fn both_cpu_accounts_agree() {
    let place = Place::new();
    let mut spec = place.spec(ServerName::Builtin);
    let certificate = servers::certificates::create(CertificateKind::Rsa2048, place.directory.path()).unwrap();
    spec.tls = Some(ServerTls::new(certificate));
    let server = place.start(&spec).unwrap();
    let mut threads = servers::cpu::ProcessAccount::default();
    let pid = server.pids()[0];
    let mut read = || (server.cpu_ns().unwrap(), threads.read_ns(&[process_tree::stat(pid).unwrap()]));
    let before = read();
    for _ in 0..10 {
        assert!(handshake(&server, &[]).contains("Cipher is TLS_"));
    }
    let after = read();
    let (best, summed) = (after.0 - before.0, after.1 - before.1);
    // Ten RSA signatures take several milliseconds; the two are not read at the same instant.
    assert!(best > 2_000_000 && best.abs_diff(summed) < best / 5 + 1_000_000, "{best} {summed}");
}
