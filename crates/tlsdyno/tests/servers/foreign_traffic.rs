//! A server of somebody's own under a load that tlsdyno does not make: stages computed twice for moments, every answer
//! right, and the server left at its work when tlsdyno is killed.

use std::fs::{self, File};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::fs::FileExt;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use tlsdyno::exchange::exchange;
use tlsdyno::kinds::ablation::summary::traffic::Traffic;
use tlsdyno::model::{CertificateKind, Tls};
use tlsdyno::native::layout::doubler as layout;
use tlsdyno::run::credentials::Credentials;
use tlsdyno::store::{Record, Store};
use tlsdyno_tls::{Config, Effort, Settings, Stage, StageSet};

use crate::place::{Place, eventually, kill, signal};

const REQUEST: &[u8] = b"GET /body.bin HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";

fn body() -> Vec<u8> {
    (0..40_000).map(|at| (at % 251 + at / 977) as u8).collect()
}

/// Somebody's nginx with its own configuration and a fixed port.
struct Site {
    place: Place,
    address: SocketAddr,
    credentials: Credentials,
}

impl Site {
    fn new() -> Site {
        let place = Place::new();
        fs::write(place.docroot().join("body.bin"), body()).unwrap();
        let credentials = Credentials::create(CertificateKind::Rsa2048, place.path()).unwrap();
        let address = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let own = place.path().join("own");
        fs::create_dir(&own).unwrap();
        let (files, docroot) = (&credentials.files, place.docroot());
        let user = if rustix::process::geteuid().is_root() { "user nobody nogroup;" } else { "" };
        let configuration = format!(
            "{user} daemon off; worker_processes 2; pid {own}/nginx.pid; error_log {own}/error.log;
events {{ worker_connections 256; }}
http {{ access_log off; client_body_temp_path {own}/1; proxy_temp_path {own}/2; fastcgi_temp_path {own}/3;
uwsgi_temp_path {own}/4; scgi_temp_path {own}/5;
server {{ listen {address} ssl; ssl_certificate {chain}; ssl_certificate_key {key};
ssl_protocols TLSv1.2 TLSv1.3; ssl_session_cache shared:s:1m; root {docroot}; }} }}",
            own = own.display(),
            chain = files.chain.display(),
            key = files.key.display(),
            docroot = docroot.display()
        );
        fs::write(own.join("nginx.conf"), configuration).unwrap();
        Site { place, address, credentials }
    }

    fn own(&self, name: &str) -> String {
        self.place.path().join("own").join(name).display().to_string()
    }

    /// tlsdyno with this server, which answers by now.
    fn double(&self, more: &[&str]) -> Child {
        let command = format!("nginx -e {} -c {}", self.own("error.log"), self.own("nginx.conf"));
        let address = self.address.to_string();
        let fixed = ["ablate", "--method", "doubling", "--foreign-traffic", "--path", "/body.bin", "--no-report"];
        let given = ["--server-command", &command, "--address", &address, "--latency-within", "10000%"];
        let mut tlsdyno = self.place.tlsdyno(&[&fixed[..], &given, more].concat());
        let child = tlsdyno.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        eventually("the server answers", || TcpStream::connect(self.address).is_ok());
        child
    }

    fn record(&self) -> Record {
        Store::open_for_reading_at(&self.place.path().join("store.sqlite")).unwrap().load("last").unwrap()
    }

    /// Ends the server as its owner would.
    fn end_server(&self) {
        let pid = fs::read_to_string(self.own("nginx.pid")).unwrap().trim().parse().unwrap();
        signal(pid, rustix::process::Signal::TERM);
        eventually("the server ends", || TcpStream::connect(self.address).is_err());
    }
}

/// Clients that check certificates, signatures and bodies, full handshakes and resumed ones in turn.
struct Load {
    stop: Arc<AtomicBool>,
    answers: Arc<AtomicU64>,
    threads: Vec<thread::JoinHandle<Vec<String>>>,
}

impl Load {
    fn start(site: &Site) -> Load {
        let (stop, answers) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
        let settings = site.credentials.client_settings(&Tls::default(), Effort::Honest);
        let config = Arc::new(Config::new(Settings { ..settings }).unwrap());
        let client = || {
            let (stop, answers, config, address) = (stop.clone(), answers.clone(), config.clone(), site.address);
            move || {
                let (mut faults, mut session, expected) = (Vec::new(), None, body());
                while !stop.load(Ordering::Relaxed) {
                    let is_offered = session.is_some();
                    match exchange(address, Some(&config), session.take(), REQUEST) {
                        Err(fault) => faults.push(fault.to_string()),
                        Ok(answer) if (answer.status, answer.body() == expected) != (200, true) => {
                            faults.push(format!("status {}, {} bytes", answer.status, answer.body_bytes));
                        }
                        Ok(answer) if is_offered && !answer.is_resumed() => faults.push("not resumed".to_owned()),
                        Ok(answer) => session = answer.sessions.into_iter().next().filter(|_| !is_offered),
                    }
                    answers.fetch_add(1, Ordering::Relaxed);
                }
                faults
            }
        };
        let threads = (0..2).map(|_| thread::spawn(client())).collect();
        Load { stop, answers, threads }
    }

    fn end(self) -> (u64, Vec<String>) {
        self.stop.store(true, Ordering::Relaxed);
        let faults = self.threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect();
        (self.answers.load(Ordering::Relaxed), faults)
    }
}

fn curl(site: &Site) {
    let output = Command::new("curl")
        .args(["--silent", "--show-error", "--insecure"])
        .arg(format!("https://{}/body.bin", site.address))
        .output()
        .unwrap();
    assert!(output.status.success() && output.stdout == body(), "{}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn stages_are_doubled_under_a_load_that_is_not_ours() {
    let site = Site::new();
    let mut tlsdyno = site.double(&["--at-most", "50%", "--time", "60"]);
    let load = Load::start(&site);
    let area = area_of(&tlsdyno).expect("memory shared with the server");
    eventually("something is doubled", || all_doubled(&area) > 0);
    let end = Instant::now() + Duration::from_secs(8);
    while Instant::now() < end {
        curl(&site);
    }
    // The load knows first: its clients ask no more when the server ends.
    load.stop.store(true, Ordering::Relaxed);
    signal(tlsdyno.id(), rustix::process::Signal::INT);
    let began = Instant::now();
    let (answers, faults) = load.end();
    let output = {
        tlsdyno.wait().unwrap();
        tlsdyno.wait_with_output().unwrap()
    };
    assert!(began.elapsed() < Duration::from_secs(40), "it went on for its minute: {:?}", began.elapsed());
    // The server ends with tlsdyno that was told to end, and may cut what is under way then.
    assert!(answers > 0 && faults.len() <= 2, "{answers} answers, {faults:?}");
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(said.contains("under its own traffic") || said.contains("could be told from noise"), "{said}");
    let traffic = Traffic::of(&site.record()).expect("intervals");
    let stages: Vec<&str> = traffic.stages.iter().map(|share| share.stage.as_str()).collect();
    let name = |stages: StageSet| stages.only().map_or("record_protection", Stage::name);
    let all: Vec<&str> = StageSet::groups().map(name).collect();
    assert_eq!(stages, all, "{traffic:?}");
    // What the stages cost is judged on made-up records (`summary/traffic.rs` of the ablation).
    assert!(traffic.stages.iter().all(|share| share.percent.value.is_finite()), "{traffic:?}");
    assert!(traffic.added_percent.is_finite() && traffic.handshakes_full > 0, "{traffic:?}");
}

/// All that was computed twice, read from the area itself.
fn all_doubled(area: &File) -> u64 {
    let mut bytes = vec![0; layout::AREA.size - layout::AREA.slots_at];
    area.read_exact_at(&mut bytes, layout::AREA.slots_at as u64).unwrap();
    let numbers = bytes.chunks_exact(8).map(|number| u64::from_ne_bytes(number.try_into().unwrap()));
    numbers.enumerate().filter(|(at, _)| at / layout::SLOT_COUNTERS % 2 == 1).map(|(_, number)| number).sum()
}

/// The memory that it shares with its server.
fn area_of(tlsdyno: &Child) -> Option<File> {
    let folder = fs::read_dir(format!("/proc/{}/fd", tlsdyno.id())).ok()?;
    let is_area = |path: &std::path::PathBuf| {
        fs::read_link(path).is_ok_and(|target| target.to_string_lossy().contains("tlsdyno-doubler"))
    };
    File::open(folder.flatten().map(|entry| entry.path()).find(is_area)?).ok()
}

#[test]
fn a_server_goes_on_when_its_owner_is_killed_under_load() {
    let site = Site::new();
    let mut tlsdyno = site.double(&["--at-most", "100%", "--time", "60"]);
    let load = Load::start(&site);
    let area = area_of(&tlsdyno).expect("memory shared with the server");
    eventually("something is doubled", || all_doubled(&area) > 0);
    kill(tlsdyno.id());
    tlsdyno.wait().unwrap();
    eventually("the load goes on without doubling", || {
        let (doubled, answers) = (all_doubled(&area), load.answers.load(Ordering::Relaxed));
        eventually("the load goes on", || load.answers.load(Ordering::Relaxed) > answers + 20);
        all_doubled(&area) == doubled
    });
    curl(&site);
    let (_, faults) = load.end();
    assert_eq!(faults, Vec::<String>::new());
    site.end_server();
    eventually("nothing is left", || site.place.processes().is_empty());
}
