//! Policy `lard` before real nginx: objects have their backend, overload moves them, and what names no object is passed
//! on all the same.

use std::collections::BTreeMap;
use std::fs;
use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};

use tlsdyno::model::ServerName;
use tlsdyno::servers::{self, Instance, ServerSpec};
use tlsdyno_engine::dispatch::limits::LARD_HIGH;

use crate::place::{Place, eventually};

use super::support::{ControlPath, Dispatcher, PATIENCE, control_path};

const BACKENDS: usize = 3;
const PATHS: usize = 12;

/// Plain servers that say who they are: the document root of each holds other contents under the same names.
struct Site {
    // In this order: servers end before their files go.
    servers: Vec<Instance>,
    _places: Vec<Place>,
    control: ControlPath,
}

impl Site {
    fn start() -> (Site, Dispatcher) {
        let mut site = Site { servers: Vec::new(), _places: Vec::new(), control: control_path() };
        for number in 0..BACKENDS {
            let place = Place::new();
            let docroot = place.docroot();
            (0..PATHS).for_each(|path| fs::write(docroot.join(path.to_string()), number.to_string()).unwrap());
            let spec = ServerSpec::new(ServerName::Nginx, docroot);
            site.servers.push(servers::start(&spec, place.path()).unwrap());
            site._places.push(place);
        }
        let addresses: Vec<SocketAddr> = site.servers.iter().map(Instance::address).collect();
        let dispatcher = Dispatcher::new(&addresses, &["--policy", "lard", "--loops", "1", "--control", &site.control]);
        (site, dispatcher)
    }
}

/// The backend that answers, told `pieces` one by one.
fn ask(dispatcher: &Dispatcher, pieces: &[&[u8]]) -> usize {
    let mut stream = dispatcher.connect();
    for piece in pieces {
        stream.write_all(piece).unwrap();
    }
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap_or_else(|| panic!("{answer}"));
    assert!(head.starts_with("HTTP/1.1 200 "), "{answer}");
    body.parse().unwrap()
}

fn get(dispatcher: &Dispatcher, path: usize) -> usize {
    let query = ["", "?a=b", "?/c"][path % 3];
    ask(dispatcher, &[format!("GET /{path}{query} HTTP/1.0\r\n\r\n").as_bytes()])
}

#[test]
fn each_path_has_its_backend_and_overload_moves_it() {
    let (site, dispatcher) = Site::start();
    let mut holders = BTreeMap::new();
    for _ in 0..5 {
        for path in 0..PATHS {
            let holder = get(&dispatcher, path);
            assert_eq!(*holders.entry(path).or_insert(holder), holder, "/{path}");
        }
    }
    let paths_of = |number: usize| holders.values().filter(|&&holder| holder == number).count();
    assert!((0..BACKENDS).all(|number| paths_of(number) == PATHS / BACKENDS), "{holders:?}");
    let count = |name: &str| dispatcher.count(&site.control, name);
    let seen = [count("routed_new_object"), count("routed_object"), count("routed_moved_object")];
    assert_eq!(seen, [PATHS as u64, 4 * PATHS as u64, 0]);
    // Cut anywhere, in absolute form, with empty lines before it: the same object.
    assert_eq!(ask(&dispatcher, &[b"\r\nGET htt", b"p://x/", b"5?q HTTP/1.0\r", b"\n\r\n"]), holders[&5]);

    // Connections for one path that stay open: its backend has more than T_high of them, the others have none.
    let hold = |_| {
        let mut stream = dispatcher.connect();
        stream.write_all(b"GET /0 HTTP/1.1\r\n").unwrap();
        stream
    };
    let held: Vec<TcpStream> = (0..=LARD_HIGH).map(hold).collect();
    let open = |number: usize| dispatcher.status(&site.control)["backends"][number]["open"].as_u64().unwrap();
    eventually("its backend is overloaded", || open(holders[&0]) == u64::from(LARD_HIGH) + 1);
    let moved = get(&dispatcher, 0);
    assert_ne!(moved, holders[&0]);
    assert_eq!((get(&dispatcher, 0), count("routed_moved_object")), (moved, 1), "it stays where it went");
    drop(held);
    eventually("they end", || open(holders[&0]) == 0);
    assert_eq!(get(&dispatcher, 0), moved);
}

#[test]
fn what_names_no_object_is_passed_on_and_counted() {
    let (site, dispatcher) = Site::start();
    let overlong = [b"GET /".to_vec(), vec![b'x'; 20_000], b" HTTP/1.0\r\n\r\n".to_vec()].concat();
    let said: [&[u8]; 5] =
        [b"\x16\x03\x01\0\x05hello", b"\0noise\r\n\r\n", &overlong, b"OPTIONS * HTTP/1.0\r\n\r\n", b"GET /half"];
    for bytes in said {
        let mut stream = dispatcher.connect();
        stream.write_all(bytes).unwrap();
        stream.shutdown(Shutdown::Write).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        // nginx judges it, and closes; with input that it has not read, by a reset.
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer);
    }
    let count = |name: &str| dispatcher.count(&site.control, name);
    assert_eq!((count("routed_unkeyed"), count("routed_new_object"), count("not_tls")), (5, 0, 0));
    assert_eq!(dispatcher.spread(&site.control).iter().sum::<u64>(), 5);
    let metrics = super::support::tlsdyno()
        .args(["dispatch", "status", "--metrics", "--control", &site.control])
        .output()
        .unwrap();
    let metrics = String::from_utf8(metrics.stdout).unwrap();
    assert!(metrics.contains("tlsdyno_dispatch_routed_unkeyed_total 5\n"), "{metrics}");
    assert!(metrics.contains("table_entries{table=\"objects\"} 0"), "{metrics}");
    get(&dispatcher, 3);
    assert_eq!(count("routed_new_object"), 1, "requests are served as ever");
}
