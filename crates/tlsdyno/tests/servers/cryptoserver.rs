//! `tlsdyno cryptoserver`: stock servers whose private keys are elsewhere, with the real agent and the real service.

mod intruder;
mod visitors;

use crate::place;

use std::fs;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use openssl::ssl::{SslConnector, SslMethod, SslVersion};
use place::{Place, at_once, eventually};
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use serde_json::Value;
use tlsdyno::model::{CertificateKind, ServerName};
use tlsdyno::native::Handed;
use tlsdyno::servers::certificates::{self, CertificateFiles};
use tlsdyno::servers::{Instance, ServerSpec, ServerTls};

const TLS13: SslVersion = SslVersion::TLS1_3;
const TLS12: SslVersion = SslVersion::TLS1_2;
/// A suite of static RSA, which decrypts.
const STATIC_RSA: &str = "AES128-GCM-SHA256";

/// A site with its key elsewhere: authorities, certificates and the files of a front end.
struct Site {
    place: Place,
    certificate: CertificateFiles,
    /// Of agents and services.
    authority: Issuer<'static, KeyPair>,
}

/// A private key, as a service wants it.
fn write_secret(path: &Path, text: &str) {
    fs::write(path, text).unwrap();
    fs::set_permissions(path, fs::Permissions::from_mode(0o600)).unwrap();
}

/// A process of tlsdyno that ends with this value.
struct Running {
    process: Child,
    /// What it prints, from the second line on.
    output: BufReader<std::process::ChildStdout>,
    address: SocketAddr,
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

impl Running {
    /// Ends it as an operator does, and takes its last line of metrics.
    fn end(mut self) -> Value {
        place::signal(self.process.id(), rustix::process::Signal::TERM);
        let mut rest = String::new();
        self.output.read_to_string(&mut rest).unwrap();
        serde_json::from_str(rest.lines().last().unwrap()).unwrap()
    }
}

impl Site {
    fn new(kind: CertificateKind) -> Site {
        let place = Place::new();
        let certificate = certificates::create(kind, place.path()).unwrap();
        let key = KeyPair::generate().unwrap();
        let mut authority = CertificateParams::new(vec![]).unwrap();
        authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        fs::write(place.path().join("links-ca.pem"), authority.self_signed(&key).unwrap().pem()).unwrap();
        let site = Site { place, certificate, authority: Issuer::new(authority, key) };
        for (serial, name) in ["service", "agent"].into_iter().enumerate() {
            write_secret(&site.path(&format!("{name}.key")), &KeyPair::generate().unwrap().serialize_pem());
            site.certify(name, name, serial as u64 + 1, Duration::from_secs(3600));
        }
        site.front_end(&[site.certificate.chain.to_str().unwrap()]);
        site
    }

    /// A certificate of the links' authority for the key of this name, from an hour ago.
    fn certify(&self, name: &str, key: &str, serial: u64, for_so_long: Duration) {
        let key = KeyPair::from_pem(&fs::read_to_string(self.path(&format!("{key}.key"))).unwrap()).unwrap();
        let mut params = CertificateParams::new(vec!["127.0.0.1".to_owned()]).unwrap();
        let now = SystemTime::now();
        (params.not_before, params.not_after) = ((now - Duration::from_secs(3600)).into(), (now + for_so_long).into());
        params.serial_number = Some(serial.into());
        let certificate = params.signed_by(&key, &self.authority).unwrap();
        fs::write(self.path(&format!("{name}.pem")), certificate.pem()).unwrap();
    }

    /// Writes what a web server with these certificates loads.
    fn front_end(&self, certificates: &[&str]) {
        let [front, socket] = ["front", "keys.sock"].map(|name| self.path(name).to_str().unwrap().to_owned());
        let mut arguments = vec!["cryptoserver", "front-end", &front, "--socket", &socket];
        arguments.extend(certificates.iter().flat_map(|one| ["--certificate", *one]));
        let made = self.place.run(&arguments);
        assert!(made.status.success(), "{made:?}");
    }

    fn path(&self, name: &str) -> PathBuf {
        self.place.path().join(name)
    }

    fn start(&self, arguments: &[&str], own: &str) -> Running {
        let files = [format!("{own}.pem"), format!("{own}.key")];
        let mut command = self.place.tlsdyno(&[&["cryptoserver"], arguments].concat());
        // Seldom enough that a run of ten minutes fits into the pipe, which is read at the end.
        command.args(["--cert", &files[0], "--cert-key", &files[1], "--metrics-every", "10"]);
        let mut process = command.stdout(Stdio::piped()).spawn().unwrap();
        let output = BufReader::new(process.stdout.take().unwrap());
        Running { process, output, address: ([127, 0, 0, 1], 0).into() }
    }

    fn service(&self, listen: SocketAddr, more: &[&str]) -> Running {
        let (key, listen) = (self.certificate.key.to_str().unwrap(), listen.to_string());
        let arguments = ["--key", key, "--listen", &listen, "--client-ca", "links-ca.pem", "--print-address"];
        let mut running = self.start(&[&arguments, more].concat(), "service");
        let mut line = String::new();
        running.output.read_line(&mut line).unwrap();
        running.address = line.trim().parse().unwrap();
        running
    }

    fn agent(&self, services: &[SocketAddr]) -> Running {
        let services: Vec<String> = services.iter().map(ToString::to_string).collect();
        let mut arguments =
            vec!["agent", "--socket", "keys.sock", "--socket-mode", "666", "--server-ca", "links-ca.pem"];
        arguments.extend(services.iter().flat_map(|service| ["--to", service.as_str()]));
        let agent = self.start(&arguments, "agent");
        eventually("the agent listens", || self.path("keys.sock").exists());
        agent
    }

    /// The web server, which has the stub, and the provider by its environment alone.
    fn web_server(&self, kind: ServerName, asynchronous: bool) -> Instance {
        let mut name = self.certificate.chain.file_stem().unwrap().to_owned();
        name.push(".key");
        self.web_server_with(kind, asynchronous, self.path("front").join(name))
    }

    /// The same with this file for its key.
    fn web_server_with(&self, kind: ServerName, asynchronous: bool, key: PathBuf) -> Instance {
        let tls = ServerTls::new(CertificateFiles { key, ..self.certificate.clone() });
        let environment = vec![("OPENSSL_CONF".into(), self.path("front").join("openssl.cnf").into_os_string())];
        let handed = Handed { environment, descriptors: vec![] };
        let spec = ServerSpec { tls: Some(tls), handed, asynchronous, connections: 16, ..self.place.spec(kind) };
        self.place.start(&spec).unwrap_or_else(|error| panic!("{kind:?}: {error:#}"))
    }

    /// A full handshake by a client that verifies, and a request; says what went wrong.
    fn visit(&self, address: SocketAddr, version: SslVersion, suites: Option<&str>) -> Result<(), String> {
        visit(address, &client(&self.certificate.ca, version, suites))
    }
}

/// One that verifies.
fn client(ca: &Path, version: SslVersion, suites: Option<&str>) -> SslConnector {
    let mut connector = SslConnector::builder(SslMethod::tls_client()).unwrap();
    connector.set_ca_file(ca).unwrap();
    connector.set_min_proto_version(Some(version)).unwrap();
    connector.set_max_proto_version(Some(version)).unwrap();
    suites.iter().for_each(|suites| connector.set_cipher_list(suites).unwrap());
    connector.build()
}

fn visit(address: SocketAddr, client: &SslConnector) -> Result<(), String> {
    let stream = TcpStream::connect(address).map_err(|error| error.to_string())?;
    stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    let mut tls = client.connect("localhost", stream).map_err(|error| format!("{error:?}"))?;
    tls.write_all(b"GET /hello.txt HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").unwrap();
    let mut answer = String::new();
    let _ = tls.read_to_string(&mut answer);
    if answer.ends_with("hello, world\n") { Ok(()) } else { Err(format!("answered {answer:?}")) }
}

fn any_port() -> SocketAddr {
    ([127, 0, 0, 1], 0).into()
}

#[test]
fn stock_servers_sign_without_a_private_key() {
    let cases = [
        (ServerName::Nginx, CertificateKind::Rsa2048, false),
        (ServerName::Nginx, CertificateKind::P256, false),
        (ServerName::Nginx, CertificateKind::P384, false),
        (ServerName::Haproxy, CertificateKind::Rsa2048, true),
        (ServerName::Haproxy, CertificateKind::P256, false),
        (ServerName::ApacheEvent, CertificateKind::Rsa2048, false),
        (ServerName::ApachePrefork, CertificateKind::P256, false),
    ];
    at_once(cases, |(kind, certificate, asynchronous)| {
        let site = Site::new(certificate);
        let service = site.service(any_port(), &[]);
        let agent = site.agent(&[service.address]);
        let server = site.web_server(kind, asynchronous);
        for version in [TLS13, TLS12, TLS13, TLS12] {
            site.visit(server.address(), version, None).unwrap_or_else(|error| panic!("{kind:?}: {error}"));
        }
        // Static RSA decrypts, which is off.
        let refused = site.visit(server.address(), TLS12, Some(STATIC_RSA));
        assert!(refused.is_err(), "{kind:?}");
        site.visit(server.address(), TLS13, None).unwrap();
        server.stop().unwrap();
        let (carried, signed) = (agent.end(), service.end());
        assert!(signed["signatures"].as_u64().unwrap() >= 5, "{kind:?}: {signed}");
        assert_eq!(signed["decryptions"], 0, "{kind:?}: {signed}");
        assert_eq!(signed["refused"], u64::from(certificate.is_rsa()), "{kind:?}: {signed}");
        assert_eq!(carried["failed"], 0, "{kind:?}: {carried}");
    });
}

#[test]
fn pre_master_secrets_are_decrypted_where_that_is_allowed() {
    let site = Site::new(CertificateKind::Rsa2048);
    let service = site.service(any_port(), &["--allow-decryption"]);
    let agent = site.agent(&[service.address]);
    let server = site.web_server(ServerName::Nginx, false);
    for _ in 0..3 {
        site.visit(server.address(), TLS12, Some(STATIC_RSA)).unwrap();
    }
    server.stop().unwrap();
    drop(agent);
    assert_eq!(service.end()["decryptions"], 3);
}

/// nginx with these certificates on a port each; as it blocks, with more workers than a batch.
struct Sites {
    nginx: Child,
    ports: Vec<u16>,
}

impl Sites {
    /// `keys`: the folder of its keys, or of their stubs.
    fn start(site: &Site, certificates: &[String], keys: &str) -> Sites {
        let held: Vec<TcpListener> = certificates.iter().map(|_| TcpListener::bind(any_port()).unwrap()).collect();
        let ports: Vec<u16> = held.iter().map(|port| port.local_addr().unwrap().port()).collect();
        let server = |(port, name): (&u16, &String)| {
            format!(
                "server {{ listen 127.0.0.1:{port} ssl; ssl_certificate {name}.pem; \
                 ssl_certificate_key {keys}/{name}.key; }}"
            )
        };
        let servers: Vec<String> = ports.iter().zip(certificates).map(server).collect();
        let user = if rustix::process::geteuid().is_root() { "user root;" } else { "" };
        let temporary = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"].map(|of| format!("{of}_temp_path {of};"));
        let text = format!(
            "{user} daemon off; worker_processes 8; pid nginx.pid; events {{ worker_connections 64; }}
             http {{ {} access_log off; root docroot; ssl_protocols TLSv1.2 TLSv1.3; ssl_ciphers {STATIC_RSA}; {} }}",
            temporary.concat(),
            servers.join("\n"),
        );
        fs::write(site.path("nginx.conf"), text).unwrap();
        drop(held);
        let program = tlsdyno::servers::programs::find("nginx").unwrap();
        let mut command = std::process::Command::new(program);
        command.args(["-e", "error.log", "-c", "nginx.conf", "-p"]).arg(site.place.path());
        let nginx = command.env("OPENSSL_CONF", site.path("front/openssl.cnf")).spawn().unwrap();
        eventually("nginx listens", || ports.iter().all(|port| TcpStream::connect(("127.0.0.1", *port)).is_ok()));
        Sites { nginx, ports }
    }
}

impl Drop for Sites {
    fn drop(&mut self) {
        // The master takes its workers along.
        place::signal(self.nginx.id(), rustix::process::Signal::TERM);
        let _ = self.nginx.wait();
    }
}

/// A site with four certificates of one modulus, whose key a service has with these flags, and their names.
fn batch_site(flags: &[&str]) -> (Site, Vec<String>, Running, Running) {
    let site = Site::new(CertificateKind::Rsa2048);
    let made = site.place.run(&["cryptoserver", "batch-keys", ".", "--name", "localhost"]);
    assert!(made.status.success(), "{made:?}");
    let names: Vec<String> = [3, 5, 7, 11].map(|exponent| format!("localhost-e{exponent}")).into();
    let [certificates, keys] =
        ["pem", "key"].map(|end| names.iter().map(|name| format!("{name}.{end}")).collect::<Vec<_>>());
    site.front_end(&certificates.iter().map(String::as_str).collect::<Vec<_>>());
    let mut flags = [&["--allow-decryption"], flags].concat();
    flags.extend(keys.iter().flat_map(|key| ["--key", key.as_str()]));
    let service = site.service(any_port(), &flags);
    let agent = site.agent(&[service.address]);
    (site, names, service, agent)
}

/// Full handshakes on all ports at once, each with a load of its own; what these tell.
fn visited(site: &Site, sites: &Sites, how: &[&str]) -> Vec<Value> {
    let load = |port: &u16| {
        let url = format!("https://127.0.0.1:{port}/hello.txt");
        let child = site.place.tlsdyno(&[&["load", &url, "-k", "--close", "--json"], how].concat());
        { child }.stdout(Stdio::piped()).spawn().unwrap()
    };
    let loads: Vec<Child> = sites.ports.iter().map(load).collect();
    let told = |load: Child| {
        let output = load.wait_with_output().unwrap();
        let result: Value = serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{output:?}"));
        assert_eq!(result["errors"], serde_json::json!({}), "{result}");
        let full = &result["handshakes"]["full"];
        assert!(full.as_u64() >= result["hits"].as_u64(), "{full} for {}", result["hits"]);
        result
    };
    loads.into_iter().map(told).collect()
}

fn hits(loads: &[Value]) -> u64 {
    loads.iter().map(|load| load["hits"].as_u64().unwrap()).sum()
}

#[test]
fn certificates_of_one_modulus_decrypt_in_batches_under_load() {
    let (site, names, service, agent) = batch_site(&["--batch", "4", "--batch-wait", "20ms"]);
    let sites = Sites::start(&site, &names, "front");
    let hits = hits(&visited(&site, &sites, &["--tls", "1.2", "--suite", STATIC_RSA, "-c", "2", "-d", "2s"]));
    drop(sites);
    let (carried, done) = (agent.end(), service.end());
    let [decryptions, batches] = ["decryptions", "batches"].map(|name| done[name].as_u64().unwrap());
    assert!(decryptions >= hits && hits > 0, "{hits} hits, {done}");
    assert_eq!((&carried["failed"], &done["refused"], &done["failed"]), (&0.into(), &0.into(), &0.into()));
    assert!(batches * 2 <= decryptions, "{done}");
}

#[test]
fn batches_of_more_keys_than_there_are_are_refused() {
    let site = Site::new(CertificateKind::Rsa2048);
    let arguments =
        ["--cert", "service.pem", "--cert-key", "service.key", "--client-ca", "links-ca.pem", "--batch", "4"];
    let key = ["cryptoserver", "--key", site.certificate.key.to_str().unwrap()];
    for (more, code, says) in [(&["--allow-decryption"][..], 2, "batch-keys"), (&[], 2, "--allow-decryption")] {
        let refused = site.place.run(&[&key[..], &arguments, more].concat());
        let said = String::from_utf8_lossy(&refused.stderr).into_owned();
        assert!(refused.status.code() == Some(code) && said.contains(says), "{said}");
    }
}

#[test]
fn without_an_agent_or_a_service_handshakes_fail_and_the_log_says_what_to_do() {
    let site = Site::new(CertificateKind::P256);
    let server = site.web_server(ServerName::Nginx, false);
    let refused = site.visit(server.address(), TLS13, None).unwrap_err();
    assert!(refused.contains("alert"), "{refused}");
    let log = || fs::read_to_string(server.directory.join("error.log")).unwrap();
    eventually("the log names the agent", || log().contains("start it there: tlsdyno cryptoserver agent"));

    let nobody = TcpListener::bind(any_port()).unwrap().local_addr().unwrap();
    let agent = site.agent(&[nobody]);
    let refused = site.visit(server.address(), TLS13, None).unwrap_err();
    assert!(refused.contains("alert"), "{refused}");
    eventually("the log names the service", || log().contains(&format!("no cryptoserver answers ({nobody}")));

    let service = site.service(nobody, &[]);
    eventually("it serves again", || site.visit(server.address(), TLS13, None).is_ok());
    drop(service);
    drop(agent);
    server.stop().unwrap();
}

/// One handshake after the other, until one fails.
fn come(address: SocketAddr, client: &SslConnector, stop: &AtomicBool, visits: &AtomicU32) -> Result<(), String> {
    while !stop.load(Ordering::Relaxed) {
        visit(address, client)?;
        visits.fetch_add(1, Ordering::Relaxed);
    }
    Ok(())
}

/// Services are killed and started again, one and both, until this time has passed, while four visitors come one
/// handshake after the other; not one of them fails.
fn killed_and_restarted(kind: ServerName, asynchronous: bool, certificate: CertificateKind, how_long: Duration) {
    let site = Site::new(certificate);
    let mut first = site.service(any_port(), &[]);
    let mut second = site.service(any_port(), &[]);
    let places = [first.address, second.address];
    let agent = site.agent(&places);
    let server = site.web_server(kind, asynchronous);
    let (address, stop, visits) = (server.address(), AtomicBool::new(false), AtomicU32::new(0));
    let (began, mut kills, mut longest) = (Instant::now(), 0, Duration::ZERO);
    thread::scope(|scope| {
        let visitors: Vec<_> = (0..4)
            .map(|number| {
                let client = client(&site.certificate.ca, if number % 2 == 0 { TLS13 } else { TLS12 }, None);
                let (stop, visits) = (&stop, &visits);
                scope.spawn(move || come(address, &client, stop, visits))
            })
            .collect();
        let go_on = || {
            let (before, limit) = (visits.load(Ordering::Relaxed), Instant::now() + Duration::from_secs(30));
            while visits.load(Ordering::Relaxed) < before + 40 && Instant::now() < limit {
                thread::sleep(Duration::from_millis(5));
            }
        };
        loop {
            go_on();
            drop(first);
            go_on();
            let again = site.service(places[0], &[]);
            go_on();
            // Both are gone for as long as a restart takes.
            let gone = Instant::now();
            drop(second);
            drop(again);
            second = site.service(places[1], &[]);
            longest = longest.max(gone.elapsed());
            go_on();
            kills += 3;
            if began.elapsed() >= how_long {
                break;
            }
            first = site.service(places[0], &[]);
        }
        stop.store(true, Ordering::Relaxed);
        // After two seconds without any the agent gives up: not all of them may go into a restart.
        let is_judged = longest < Duration::from_secs(1);
        for visitor in visitors {
            let ended = visitor.join().unwrap();
            assert!(!is_judged || ended == Ok(()), "{kind:?} after {kills} kills, restarts of {longest:?}: {ended:?}");
        }
        assert!(second.end()["signatures"].as_u64().unwrap() > 0);
    });
    let visits = visits.load(Ordering::Relaxed);
    let carried = agent.end();
    let lost_none = visits >= 160 && carried["failed"] == 0;
    assert!(lost_none || longest >= Duration::from_secs(1), "{kind:?}: {visits}, {carried}");
    let took = began.elapsed();
    println!("{kind:?}, {certificate:?}: {visits} handshakes in {took:.0?}, {kills} kills, restarts of at most");
    println!("{longest:.1?}: {carried}");
    server.stop().unwrap();
}

#[test]
fn services_are_killed_and_restarted_under_load_and_no_handshake_fails() {
    for (kind, asynchronous) in [(ServerName::Nginx, false), (ServerName::Haproxy, true)] {
        killed_and_restarted(kind, asynchronous, CertificateKind::Rsa2048, Duration::ZERO);
    }
}

mod long {
    use super::*;

    const TEN_MINUTES: Duration = Duration::from_secs(600);

    #[test]
    #[ignore = "ten minutes of kills: make test-long"]
    fn nginx_loses_no_handshake_in_ten_minutes_of_kills() {
        killed_and_restarted(ServerName::Nginx, false, CertificateKind::Rsa2048, TEN_MINUTES);
    }

    #[test]
    #[ignore = "ten minutes of kills: make test-long"]
    fn haproxy_loses_no_handshake_in_ten_minutes_of_kills() {
        killed_and_restarted(ServerName::Haproxy, true, CertificateKind::P256, TEN_MINUTES);
    }
}

#[test]
fn the_front_end_has_no_secret_and_a_readable_key_is_refused() {
    let site = Site::new(CertificateKind::Rsa2048);
    let stub = fs::read(site.path("front/rsa-2048.chain.key")).unwrap();
    let stub = openssl::pkey::PKey::private_key_from_pem(&stub).unwrap().rsa().unwrap();
    assert_eq!(stub.p().unwrap().num_bytes(), 0);
    assert_eq!(stub.d().num_bytes(), 32);
    let key = &site.certificate.key;
    fs::set_permissions(key, fs::Permissions::from_mode(0o644)).unwrap();
    let arguments =
        ["cryptoserver", "--cert", "service.pem", "--cert-key", "service.key", "--client-ca", "links-ca.pem"];
    let refused = site.place.run(&[&arguments[..], &["--key", key.to_str().unwrap()]].concat());
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(refused.status.code() == Some(3) && said.contains("chmod o="), "{said}");
    // Nor whoever proves who it is with a key that everybody has.
    fs::set_permissions(key, fs::Permissions::from_mode(0o600)).unwrap();
    fs::set_permissions(site.path("service.key"), fs::Permissions::from_mode(0o644)).unwrap();
    let agent = ["cryptoserver", "agent", "--to", "127.0.0.1:1", "--socket", "keys.sock"];
    let own = ["--cert", "service.pem", "--cert-key", "service.key", "--server-ca", "links-ca.pem"];
    for command in [[&arguments[..], &["--key", key.to_str().unwrap()]].concat(), [&agent[..], &own].concat()] {
        let refused = site.place.run(&command);
        let said = String::from_utf8_lossy(&refused.stderr).into_owned();
        assert!(refused.status.code() == Some(3) && said.contains("chmod o= service.key"), "{said}");
    }
}
