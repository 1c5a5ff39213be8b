//! What `tlsdyno top` says beside the truth: the server has a library preloaded that adds up, by the clock of each
//! thread's CPU time, what is spent in calls of libssl, and that does work of a known amount where it is asked to.

use std::fs::{self, File, OpenOptions, Permissions};
use std::net::SocketAddr;
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::process::{Child, Command, Stdio};

use serde_json::Value;
use tlsdyno::model::{CertificateKind, ServerName};
use tlsdyno::servers::{Instance, ServerTls, certificates};
use tlsdyno_tls::Version;

use crate::place::Place;
use crate::top::watched_while;

mod go;
mod injected;
mod shares;

/// Numbers of the area before the slots of the threads, and those of a slot (oracle.c).
const HEAD: usize = 16;
const SLOT: usize = 8;
const SLOTS: usize = 64;

/// What the server's threads have done so far.
#[derive(Clone, Copy, Debug, Default)]
struct Done {
    /// CPU time in calls of libssl, and of all, nanoseconds.
    tls_ns: f64,
    cpu_ns: f64,
    /// How often work was injected, and its CPU time, nanoseconds: into signatures, key agreements, pages.
    injected: [(f64, f64); 3],
}

impl Done {
    fn since(self, before: Done) -> Done {
        let less = |at: usize| {
            let ((times, ns), (times_before, ns_before)) = (self.injected[at], before.injected[at]);
            (times - times_before, ns - ns_before)
        };
        Done { tls_ns: self.tls_ns - before.tls_ns, cpu_ns: self.cpu_ns - before.cpu_ns, injected: [0, 1, 2].map(less) }
    }

    fn share(&self) -> f64 {
        100.0 * self.tls_ns / self.cpu_ns
    }
}

/// A server that is told the truth of, with its place.
struct Watched {
    place: Place,
    server: Instance,
    area: File,
}

impl Watched {
    /// One that serves `/page` of so many bytes.
    fn start(name: ServerName, key: CertificateKind, page_bytes: usize) -> Watched {
        let place = Place::new();
        fs::write(place.docroot().join("page"), vec![b'x'; page_bytes]).unwrap();
        let [shared, library, source] = ["shared", "oracle.so", "oracle.c"].map(|name| place.path().join(name));
        fs::create_dir(&shared).unwrap();
        let area = shared.join("area");
        fs::write(&area, vec![0; 8 * (HEAD + SLOT * SLOTS)]).unwrap();
        fs::set_permissions(&area, Permissions::from_mode(0o666)).unwrap();
        fs::write(&source, include_str!("oracle.c")).unwrap();
        let mut compiler = Command::new("cc");
        compiler.args(["-std=gnu11", "-Wall", "-Wextra", "-Werror", "-O2", "-shared", "-fPIC"]);
        compiler.arg(format!("-DAREA=\"{}\"", area.display())).arg("-o").args([&library, &source]);
        assert!(compiler.status().unwrap().success());
        let certificate = certificates::create(key, place.path()).unwrap();
        let mut spec = place.spec(name);
        spec.tls = Some(ServerTls { versions: vec![Version::Tls13], ..ServerTls::new(certificate) });
        spec.writable = vec![shared];
        spec.handed.environment = vec![("LD_PRELOAD".into(), library.into())];
        let server = place.start(&spec).unwrap();
        let area = OpenOptions::new().read(true).write(true).open(area).unwrap();
        Watched { place, server, area }
    }

    /// CPU time so far. The clock is read at the beginning and at the end of each call of libssl, and what passes
    /// between is the call and one reading; the other one is counted here too, for `top` sees both within the call.
    fn done(&self) -> Done {
        let mut bytes = vec![0; 8 * (HEAD + SLOT * SLOTS)];
        self.area.read_exact_at(&mut bytes, 0).unwrap();
        let numbers: Vec<f64> =
            bytes.chunks_exact(8).map(|eight| u64::from_le_bytes(eight.try_into().unwrap()) as f64).collect();
        let (head, slots) = numbers.split_at(HEAD);
        let sum = |at: usize| slots.chunks_exact(SLOT).map(|slot| slot[at]).sum::<f64>();
        let read_ns = sum(4) / sum(3).max(1.0);
        Done {
            tls_ns: sum(0) + sum(2) * read_ns,
            cpu_ns: sum(1),
            injected: [0, 1, 2].map(|at| (head[4 + at], head[7 + at])),
        }
    }

    /// From now on so much is done in each signature, key agreement, page, nanoseconds.
    fn inject(&self, ns: [u64; 3]) {
        let bytes: Vec<u8> = ns.iter().flat_map(|ns| ns.to_le_bytes()).collect();
        self.area.write_all_at(&bytes, 8).unwrap();
    }

    /// What `top` says of so many seconds of a load, and what was done meanwhile.
    fn told(&self, seconds: &str, load: &[&str]) -> (Value, Done) {
        let mut begun = Done::default();
        let server = told(&self.place, self.server.address(), seconds, load, || begun = self.done());
        (server, self.done().since(begun))
    }
}

/// What `top` says of so many seconds of a server under a load that goes on for longer; `begun` happens once it is
/// watched.
fn told(place: &Place, at: SocketAddr, seconds: &str, load: &[&str], begun: impl FnOnce()) -> Value {
    let longer = format!("{}s", seconds.parse::<u32>().unwrap() + 3);
    let load = loading(place, at, &[load, &["--duration", &longer]].concat());
    let mut seen = watched_while(place, at, seconds, begun);
    let loaded: Value = serde_json::from_slice(&load.wait_with_output().unwrap().stdout).unwrap();
    assert_eq!(loaded["errors"], serde_json::json!({}), "{loaded}");
    seen["servers"][0].take()
}

/// A load of its page.
fn loading(place: &Place, at: SocketAddr, more: &[&str]) -> Child {
    let load = ["load", &format!("https://{at}/page"), "--effort", "floor", "--json"];
    let mut command = place.tlsdyno(&[&load, more].concat());
    command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap()
}
