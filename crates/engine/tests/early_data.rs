//! The load engine and the built-in server with early data: requests travel with the hello, and connections close in
//! good order.

mod support;

use std::fs;
use std::net::SocketAddr;
use std::os::unix::net::UnixStream;
use std::sync::Arc;

use support::*;
use tempfile::TempDir;
use tlsdyno_engine::load::{Phase, Plan, Resumption};
use tlsdyno_engine::serve::{self, Docroot, Listener, TlsSettings};
use tlsdyno_tls::{Config, Effort, Settings, Version};

/// A built-in server that runs until the test ends.
struct TestServer {
    address: SocketAddr,
    _directory: TempDir,
    _stop: UnixStream,
}

const SMALL: usize = 100;
const LARGE: usize = 300_000;

fn site(early_data: bool) -> TestServer {
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name);
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    fs::write(path("chain.pem"), made.cert.pem()).unwrap();
    fs::write(path("key.pem"), made.signing_key.serialize_pem()).unwrap();
    fs::create_dir(path("docroot")).unwrap();
    for (name, bytes) in [("small", SMALL), ("large", LARGE)] {
        fs::write(path("docroot").join(name), vec![b'x'; bytes]).unwrap();
    }
    let settings = TlsSettings {
        certificate: path("chain.pem"),
        key: path("key.pem"),
        versions: vec![Version::Tls13],
        suites: Vec::new(),
        groups: Vec::new(),
        tickets: true,
        session_cache: true,
        session_timeout_s: None,
        encrypt_then_mac: true,
        early_data,
    };
    let socket = serve::bind("127.0.0.1:0".parse().unwrap(), false).unwrap();
    let address = socket.local_addr().unwrap();
    let listeners = vec![Listener { socket, tls: Some(settings.context().unwrap()) }];
    let docroot = Arc::new(Docroot::load(&path("docroot")).unwrap());
    let (stop, stopped) = UnixStream::pair().unwrap();
    std::thread::spawn(move || serve::run(&listeners, &docroot, Default::default(), stopped).unwrap());
    TestServer { address, _directory: directory, _stop: stop }
}

/// Users who open a connection for each request; `each`: requests of a connection, the last of which says so.
fn early_plan(address: SocketAddr, each: Option<u32>) -> Plan {
    let mut post = object("POST", "/small", None);
    post.body_bytes = 10;
    post.expect.status = None;
    let objects = vec![object("GET", "/small", Some(SMALL as u64)), object("GET", "/large", Some(LARGE as u64)), post];
    let mut workload = workload(objects, 20, 12, 1);
    for request in &mut workload.requests {
        request.close_after = each.is_none();
    }
    let mut plan = plan(address, workload, connections(8, 1, each));
    plan.resumption = Resumption::Always;
    let settings = Settings {
        server_name: Some("localhost".to_owned()),
        effort: Effort::Lean,
        versions: vec![Version::Tls13],
        early_data: true,
        ..Settings::default()
    };
    plan.target.tls = Some(Arc::new(Config::new(settings).unwrap()));
    plan
}

#[test]
fn every_resumed_connection_sends_its_request_with_the_hello() {
    let site = site(true);
    // `Connection: close` included: a server that closed before the client's Finished would reset the connection.
    for each in [Some(1), None] {
        let outcome = go(&early_plan(site.address, each));
        assert_eq!((outcome.hits, outcome.errors.len()), (240, 0), "{:?} {:?}", outcome.errors, outcome.tls_faults);
        let handshakes = outcome.handshakes;
        assert_eq!((handshakes.full, handshakes.resumed_accepted), (20, 220), "{each:?}");
        assert_eq!((handshakes.early_offered, handshakes.early_accepted), (220, 220), "{each:?}");
        assert_eq!(outcome.phases[&Phase::ResumedHandshake].len(), 220);
    }
}

#[test]
fn a_server_that_takes_none_is_not_sent_any() {
    let site = site(false);
    let outcome = go(&early_plan(site.address, Some(1)));
    assert_eq!((outcome.hits, outcome.errors.len()), (240, 0), "{:?} {:?}", outcome.errors, outcome.tls_faults);
    assert_eq!((outcome.handshakes.early_offered, outcome.handshakes.resumed_accepted), (0, 220));
}
