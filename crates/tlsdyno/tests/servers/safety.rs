//! Servers with no-ops cannot be used by anybody else: another user reaches neither configuration nor area, and when
//! tlsdyno and everything that guards its servers are killed at once, nothing is left where PID namespaces are allowed,
//! elsewhere workers that refuse.

use crate::place;

use std::collections::BTreeSet;
use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use place::{Place, eventually, is_gone};
use rustix::process::{Pid, Signal};
use tlsdyno::listening::listening_addresses;
use tlsdyno::model::CertificateKind;
use tlsdyno::process_tree::{self, command_line, descendants};
use tlsdyno::servers::{MappedLibrary, certificates, mapped_libraries};

/// Tried in `make test`; the others in `make test-long`.
const SERVERS: [&str; 2] = ["builtin", "nginx"];

/// The user `nobody`, who may make no PID namespace.
const NOBODY: u32 = 65_534;
/// A user who has nothing to do with the run.
const STRANGER: u32 = 65_432;

/// A run with servers that have no-ops.
struct Run {
    process: Child,
    /// Processes that have the provider.
    altered: Vec<u32>,
    /// Every process that descends from the runner, with its start time: together with the number it is nobody else.
    all: Vec<(u32, u64)>,
    place: Place,
}

impl Run {
    /// Starts the run and waits until its load process is there: then all servers have been started and checked.
    fn start(server: &str, user: Option<u32>) -> Run {
        let place = Place::new();
        fs::write(place.path().join("experiment.toml"), EXPERIMENT.replace("SERVER", server)).unwrap();
        let mut command = place.tlsdyno(&["run", "--no-report", "experiment.toml"]);
        if let Some(user) = user {
            command = as_user(user, &place, &command);
        }
        Run::of(place, server, command)
    }

    /// The same of a server of the user's own, by a command or by an installed configuration, under a umask that takes
    /// nothing from anybody.
    fn of_own(how: &str) -> Run {
        let place = Place::new();
        let own = place.path().join("own");
        fs::create_dir(&own).unwrap();
        let files = certificates::create(CertificateKind::P256, &own).unwrap();
        let (conf, header) = (own.join("nginx.conf"), own.join("header"));
        fs::write(&header, "X-Key: secret\n").unwrap();
        let listen = if how == "--server-config" { "443" } else { "127.0.0.1:{port}" };
        let text = format!(
            "user nobody nogroup; daemon off; pid {}/pid; events {{}} http {{ access_log off; server {{ listen \
             {listen} ssl; ssl_protocols TLSv1.2 TLSv1.3; ssl_certificate {}; ssl_certificate_key {}; root {}; \
             add_header X-Key secret; }} }}\n",
            own.display(),
            files.chain.display(),
            files.key.display(),
            place.docroot().display(),
        );
        fs::write(&conf, text).unwrap();
        fs::set_permissions(&conf, fs::Permissions::from_mode(0o600)).unwrap();
        let (conf, header) = (conf.display().to_string(), format!("@{}", header.display()));
        let server = match how {
            "--server-config" => vec![how.to_owned(), conf],
            _ => {
                vec![how.to_owned(), format!("nginx -c {conf}"), "--address".to_owned(), "127.0.0.1:{port}".to_owned()]
            }
        };
        let mut arguments = vec!["ablate", "--path", "/hello.txt", "-H", &header, "--time", "60", "--no-report"];
        arguments.extend(["--stages", "authentication,cipher"]);
        arguments.extend(server.iter().map(String::as_str));
        let same = place.tlsdyno(&arguments);
        let mut command = std::process::Command::new("sh");
        command.args(["-c", "umask 000; exec \"$0\" \"$@\""]).arg(same.get_program()).args(same.get_args());
        command.current_dir(place.path()).stdin(Stdio::null());
        command.envs(same.get_envs().filter_map(|(name, value)| Some((name, value?))));
        Run::of(place, how, command)
    }

    fn of(place: Place, server: &str, mut command: std::process::Command) -> Run {
        let output = fs::File::create(place.path().join("output")).unwrap();
        let process = command.stdout(output.try_clone().unwrap()).stderr(output).spawn().unwrap();
        let mut run = Run { process, altered: Vec::new(), all: Vec::new(), place };
        run.await_load(server);
        run
    }

    fn await_load(&mut self, server: &str) {
        let runner = self.process.id();
        let limit = Instant::now() + Duration::from_secs(90);
        while !descendants(runner).iter().any(|child| command_line(child.pid).contains("load --job")) {
            let said = || fs::read_to_string(self.place.path().join("output")).unwrap();
            assert!(Instant::now() < limit && !is_gone(runner), "{server}: the run does not begin: {}", said());
            std::thread::sleep(Duration::from_millis(20));
        }
        self.all = descendants(runner).iter().map(|child| (child.pid, child.started_ticks)).collect();
        let has = |pid: u32, name: &str| {
            let is_it = |library: &MappedLibrary| library.path.ends_with(name);
            mapped_libraries(pid).is_ok_and(|all| all.iter().any(is_it))
        };
        self.altered = self.all.iter().map(|(pid, _)| *pid).filter(|&pid| has(pid, "tlsdyno-provider.so")).collect();
        let guarded = self.altered.iter().all(|&pid| has(pid, "tlsdyno-shim.so"));
        assert!(guarded, "{server}: a process has the provider without the shim, which looks at who connects");
        assert!(!self.altered.is_empty(), "{server}: no process has the provider");
    }

    /// Where no-ops are served.
    fn addresses(&self) -> BTreeSet<SocketAddr> {
        listening_addresses(&self.altered).into_iter().collect()
    }

    /// SIGKILL to everything that is not a server: guards first, so that nothing ends in order.
    fn kill_all_but_servers(&mut self) {
        for (pid, _) in &self.all {
            let line = command_line(*pid);
            if line.contains("supervise --directory") || line.contains("load --job") {
                kill(*pid);
            }
        }
        kill(self.process.id());
        self.process.wait().unwrap();
    }

    /// What still runs.
    fn left(&self) -> Vec<u32> {
        let lives = |pid: u32, started: u64| {
            tlsdyno::process_tree::stat(pid)
                .is_some_and(|process| process.started_ticks == started && process.state != 'Z')
        };
        self.all.iter().filter(|(pid, started)| lives(*pid, *started)).map(|(pid, _)| *pid).collect()
    }
}

/// Whether a user can do this, given to the shell as its `$1`.
fn can(user: u32, what: &str, argument: &str) -> bool {
    let mut command = std::process::Command::new("sh");
    command.args(["-c", what, "sh", argument]).uid(user).gid(user);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).status().unwrap().success()
}

/// Neither the files of the run nor its areas, at the owner or at any server, can be opened by another user; nobody can
/// truncate an area.
fn assert_closed_to_others(server: &str, run: &Run, owner: u32) {
    let files = files_below(run.place.path());
    let closed: Vec<&String> =
        files.iter().filter(|path| path.contains("/provider-") || path.contains("/shim-")).collect();
    assert!(closed.iter().any(|path| path.ends_with("/openssl.cnf")), "{server}: {files:?}");
    for path in closed {
        assert!(!can(STRANGER, "cat \"$1\"", path), "{server}: {path} can be read");
    }
    let runner = (run.process.id(), 0);
    let mut areas = 0;
    for (pid, _) in run.all.iter().chain([&runner]) {
        for path in descriptors_of_areas(*pid) {
            areas += 1;
            assert!(!can(STRANGER, "exec 9<\"$1\"", &path), "{server}: {path} can be opened");
            assert!(!can(STRANGER, "exec 9<>\"$1\" && truncate -s 0 \"$1\"", &path), "{server}: {path} can be opened");
            assert!(!can(owner, "truncate -s 0 \"$1\"", &path), "{server}: {path} can be truncated by its owner");
        }
    }
    assert!(areas > 3, "{server}: {areas} areas at the runner and its servers");
}

fn files_below(directory: &Path) -> Vec<String> {
    let mut found = Vec::new();
    for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
        match entry.file_type() {
            Ok(kind) if kind.is_dir() => found.extend(files_below(&entry.path())),
            _ => found.push(entry.path().display().to_string()),
        }
    }
    found
}

fn descriptors_of_areas(pid: u32) -> Vec<String> {
    let entries = fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().flatten();
    let is_area = |path: &Path| fs::read_link(path).is_ok_and(|to| to.to_string_lossy().starts_with("/memfd:tlsdyno"));
    entries.map(|entry| entry.path()).filter(|path| is_area(path)).map(|path| path.display().to_string()).collect()
}

fn kill(pid: u32) {
    // It may have ended with another.
    let _ = rustix::process::kill_process(Pid::from_raw(i32::try_from(pid).unwrap()).unwrap(), Signal::KILL);
}

/// The same command for a user who may not be able to reach this program where it is.
fn as_user(user: u32, place: &Place, command: &std::process::Command) -> std::process::Command {
    let program = place.path().join("tlsdyno");
    // Another process copies it: what another test starts meanwhile would inherit our open file, and nobody can run a
    // file that is open for writing.
    let copied = std::process::Command::new("cp").arg(command.get_program()).arg(&program).status().unwrap();
    assert!(copied.success());
    for entry in fs::read_dir(place.path()).unwrap() {
        std::os::unix::fs::chown(entry.unwrap().path(), Some(user), Some(user)).unwrap();
    }
    std::os::unix::fs::chown(place.path(), Some(user), Some(user)).unwrap();
    let mut same = std::process::Command::new(program);
    same.args(command.get_args()).current_dir(place.path()).stdin(Stdio::null()).uid(user).gid(user);
    same.envs(command.get_envs().filter_map(|(name, value)| Some((name, value?))));
    same
}

impl Drop for Run {
    /// Ends what is left of it, also what a server has forked since [`Run::all`] was read (Apache prefork does so under
    /// load): such a process has an open file, or a library, in the directory of the run.
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
        let place = self.place.path().display().to_string();
        let of_run = |pid: &u32| *pid != std::process::id() && uses(*pid, &place);
        process_tree::all().iter().map(|process| process.pid).filter(of_run).for_each(kill);
    }
}

/// Whether this process has a file or a library below this directory.
fn uses(pid: u32, directory: &str) -> bool {
    let is_below = |path: &Path| path.to_string_lossy().contains(directory);
    let files = fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten();
    let mut links = files.filter_map(|file| fs::read_link(file.ok()?.path()).ok());
    links.any(|path| is_below(&path))
        || mapped_libraries(pid).is_ok_and(|all| all.iter().any(|library| is_below(&library.path)))
}

const EXPERIMENT: &str = r#"
question = "What is left?"
[server]
kind = "SERVER"
[measure]
time_s = 60.0
[workload]
kind = "ecommerce"
users = 50
seed = 1
[load]
reuse_percent = 0
[[configuration]]
name = "as is"
[[configuration]]
name = "no authentication"
noop = ["authentication"]
[[configuration]]
name = "nothing"
noop = ["authentication", "key_agreement", "cipher", "mac", "digest", "kdf", "randomness"]
"#;

/// Whether anything answers a hello there: a record of TLS comes back, if only an alert.
fn answers(address: SocketAddr) -> bool {
    let Ok(mut stream) = TcpStream::connect_timeout(&address, Duration::from_secs(5)) else { return false };
    stream.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
    let mut first = [0; 1];
    stream.write_all(HELLO).and_then(|()| stream.read_exact(&mut first)).is_ok()
}

/// A hello of TLS 1.2 with one suite and no extension, RFC 5246 section 7.4.1.2.
const HELLO: &[u8] = &[
    0x16, 3, 1, 0, 45, 1, 0, 0, 41, 3, 3, // record, message, version
    1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31,
    32, 0, 0, 2, 0xc0, 0x2f, 1, 0, // no session, one suite, no compression
];

#[test]
fn nothing_is_left_where_pid_namespaces_are_allowed() {
    nothing_is_left(&SERVERS);
}

fn nothing_is_left(servers: &[&str]) {
    if !rustix::process::geteuid().is_root() {
        eprintln!("only root may make PID namespaces; the other test is about what is left without them");
        return;
    }
    for server in servers {
        let mut run = Run::start(server, None);
        assert_closed_to_others(server, &run, 0);
        run.kill_all_but_servers();
        eventually(&format!("{server}: every process has ended"), || run.left().is_empty());
    }
}

#[test]
fn nothing_is_left_of_a_users_own_server_and_nobody_else_reads_it() {
    if !rustix::process::geteuid().is_root() {
        eprintln!("only root may make PID namespaces");
        return;
    }
    for how in ["--server-config", "--server-command"] {
        let mut run = Run::of_own(how);
        let files = files_below(run.place.path());
        for path in &files {
            let mode = fs::symlink_metadata(path).unwrap().mode();
            assert_eq!(mode & 0o022, 0, "{how}: {path} has mode {mode:o}");
        }
        for name in ["/nginx.conf", "/launch.json", "/job.json"] {
            let of_name: Vec<&String> = files.iter().filter(|path| path.ends_with(name)).collect();
            assert!(!of_name.is_empty(), "{how}: {name} is not among {files:?}");
            for path in of_name {
                let mode = fs::metadata(path).unwrap().mode() & 0o7777;
                assert_eq!(mode & 0o137, 0, "{how}: {path} has mode {mode:o}");
                assert!(!can(STRANGER, "cat \"$1\"", path), "{how}: {path} can be read");
            }
        }
        let lines = run.all.iter().map(|(pid, _)| command_line(*pid)).collect::<String>();
        assert!(!lines.contains("secret"), "{lines}");
        run.kill_all_but_servers();
        eventually(&format!("{how}: every process has ended"), || run.left().is_empty());
    }
}

#[test]
fn orphaned_workers_refuse_every_connection() {
    orphaned_workers_refuse(&SERVERS);
}

fn orphaned_workers_refuse(servers: &[&str]) {
    let user = rustix::process::geteuid().is_root().then_some(NOBODY);
    let mut orphans = 0;
    for server in servers {
        let mut run = Run::start(server, user);
        let addresses = run.addresses();
        assert!(!addresses.is_empty() && addresses.iter().all(|address| answers(*address)), "{server}: {addresses:?}");
        if let Some(user) = user {
            assert_closed_to_others(server, &run, user);
        }
        run.kill_all_but_servers();
        eventually(&format!("{server}: what is left refuses"), || !addresses.iter().any(|address| answers(*address)));
        let left = run.left();
        orphans += run.altered.iter().filter(|pid| left.contains(pid)).count();
    }
    assert!(orphans > 0, "without orphans this shows nothing");
}

mod long {
    const OTHERS: [&str; 4] = ["apache", "apache-prefork", "haproxy", "lighttpd"];

    #[test]
    #[ignore = "every server: make test-long"]
    fn nothing_is_left_of_every_server_where_pid_namespaces_are_allowed() {
        super::nothing_is_left(&OTHERS);
    }

    #[test]
    #[ignore = "every server: make test-long"]
    fn orphaned_workers_of_every_server_refuse_every_connection() {
        super::orphaned_workers_refuse(&OTHERS);
    }
}
