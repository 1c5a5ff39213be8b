//! Workers that an sshd and a Slurm start, both the tests' own, on this machine.
//! `make test-machines` installs them and runs this.

use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use super::{TLSDYNO, json, load, processes_with, site, text};
use crate::place::eventually;

/// A server of an engine, ended with the test.
struct Daemon(Child);

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn start(program: &str, arguments: &[&str], log: &Path) -> Daemon {
    let log = std::fs::File::create(log).unwrap();
    let mut command = Command::new(program);
    command.args(arguments).stdin(Stdio::null()).stdout(log.try_clone().unwrap()).stderr(log);
    Daemon(command.spawn().unwrap_or_else(|error| panic!("{program}: {error}; `make test-machines` installs it")))
}

fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

fn output(program: &str, arguments: &[&str]) -> String {
    let output = Command::new(program).args(arguments).output().unwrap();
    assert!(output.status.success(), "{program} {arguments:?}: {}", text(&output.stderr));
    text(&output.stdout).trim().to_owned()
}

/// An sshd on loopback and the configuration of an ssh that knows it under the names `one` and `two`.
fn sshd(place: &Path) -> Daemon {
    let path = |name: &str| place.join(name).to_str().unwrap().to_owned();
    for key in ["host", "user"] {
        output("ssh-keygen", &["-q", "-t", "ed25519", "-N", "", "-f", &path(key)]);
    }
    std::fs::copy(path("user.pub"), path("authorized")).unwrap();
    std::fs::create_dir(path("cache")).unwrap();
    if rustix::process::geteuid().is_root() {
        // The service would make it.
        std::fs::create_dir_all("/run/sshd").unwrap();
    }
    let (port, user) = (free_port(), output("id", &["-un"]));
    let server = format!(
        "ListenAddress 127.0.0.1\nPort {port}\nHostKey {}\nAuthorizedKeysFile {}\nPasswordAuthentication no\n\
         KbdInteractiveAuthentication no\nUsePAM no\nStrictModes no\nPidFile none\nSetEnv XDG_CACHE_HOME={}\n",
        path("host"),
        path("authorized"),
        path("cache")
    );
    std::fs::write(path("sshd_config"), server).unwrap();
    let client = format!(
        "Host one two\n HostName 127.0.0.1\n Port {port}\n User {user}\n IdentityFile {}\n IdentitiesOnly yes\n \
         UserKnownHostsFile {}\n HostKeyAlias alias\n StrictHostKeyChecking yes\n",
        path("user"),
        path("known")
    );
    std::fs::write(path("ssh_config"), client).unwrap();
    std::fs::write(path("known"), format!("alias {}", std::fs::read_to_string(path("host.pub")).unwrap())).unwrap();
    // sshd starts itself anew for each connection, and so wants its whole name.
    let daemon = start("/usr/sbin/sshd", &["-D", "-e", "-f", &path("sshd_config")], &place.join("sshd.log"));
    eventually("starting sshd", || std::net::TcpStream::connect(("127.0.0.1", port)).is_ok());
    daemon
}

#[test]
#[ignore = "needs openssh-server: make test-machines"]
fn ssh_ships_the_program_once_and_workers_come_through_its_tunnel() {
    let directory = tempfile::tempdir().unwrap();
    let _sshd = sshd(directory.path());
    let (_site, url) = site();
    let ssh = format!("ssh -F {}", directory.path().join("ssh_config").display());
    let run =
        |hosts: &str| load(&[&url, "-k", "--on", hosts, "--ssh", &ssh, "-n", "400", "--close", "--json"]).output();
    let copies = || {
        let all = std::fs::read_dir(directory.path().join("cache/tlsdyno")).unwrap();
        all.map(|entry| entry.unwrap()).map(|entry| (entry.path(), entry.metadata().unwrap())).collect::<Vec<_>>()
    };
    for round in 0..2 {
        let output = run("one,two,one").unwrap();
        assert_eq!(output.status.code(), Some(0), "{round}: {}", text(&output.stderr));
        let result = json(&output);
        assert_eq!((&result["hits"], result["workers"].as_array().unwrap().len()), (&400.into(), 3));
        println!("ssh: began after {:?} ns", super::of_each(&result, |part| part["began_after_ns"].as_u64()));
    }
    let all = copies();
    let [(path, copy)] = &all[..] else { panic!("{all:?}") };
    assert_eq!((copy.permissions().mode() & 0o777, copy.len()), (0o700, std::fs::metadata(TLSDYNO).unwrap().len()));
    // A damaged copy is replaced.
    let made = copy.modified().unwrap();
    std::fs::write(path, "damaged").unwrap();
    assert_eq!(run("one").unwrap().status.code(), Some(0));
    let all = copies();
    let [(_, copy)] = &all[..] else { panic!("{all:?}") };
    assert!(copy.len() > 7 && copy.modified().unwrap() > made);
    let name = all[0].0.to_str().unwrap();
    eventually("ending workers", || processes_with(name).is_empty());
    // Hosts that are not there, and no way in.
    let output = run("one,three.invalid").unwrap();
    assert_eq!(output.status.code(), Some(4));
    let said = text(&output.stderr);
    assert!(said.contains("three.invalid") && said.contains("BatchMode=yes"), "{said}");
    std::fs::write(directory.path().join("authorized"), "").unwrap();
    let said = text(&run("one").unwrap().stderr);
    assert!(said.contains("Permission denied") && said.contains("without a password"), "{said}");
}

/// munged, slurmctld and slurmd with this machine as their only node.
fn slurm(place: &Path) -> Vec<Daemon> {
    let path = |name: &str| place.join(name).to_str().unwrap().to_owned();
    ["state", "spool"].iter().for_each(|name| std::fs::create_dir(path(name)).unwrap());
    let mut key = [0; 1024];
    openssl::rand::rand_bytes(&mut key).unwrap();
    std::fs::write(path("munge.key"), key).unwrap();
    std::fs::set_permissions(path("munge.key"), PermissionsExt::from_mode(0o400)).unwrap();
    let munge = [
        "--foreground".to_owned(),
        "--force".to_owned(),
        format!("--key-file={}", path("munge.key")),
        format!("--socket={}", path("munge.sock")),
        format!("--pid-file={}", path("munge.pid")),
        format!("--log-file={}", path("munge.log")),
        format!("--seed-file={}", path("munge.seed")),
    ];
    let munge: Vec<&str> = munge.iter().map(String::as_str).collect();
    let mut daemons = vec![start("/usr/sbin/munged", &munge, &place.join("munged.out"))];
    let host = output("hostname", &["-s"]);
    let (control, node) = (free_port(), free_port());
    let configuration = format!(
        "ClusterName=loopback\nSlurmctldHost={host}(127.0.0.1)\nSlurmUser=root\nSlurmdUser=root\nAuthType=auth/munge\n\
         AuthInfo=socket={}\nCredType=cred/munge\nMpiDefault=none\nSlurmctldPort={control}\nSlurmdPort={node}\n\
         StateSaveLocation={}\nSlurmdSpoolDir={}\nSlurmctldPidFile={}\nSlurmdPidFile={}\n\
         ProctrackType=proctrack/linuxproc\nTaskPlugin=task/none\nSelectType=select/cons_tres\n\
         SelectTypeParameters=CR_Core\nJobAcctGatherType=jobacct_gather/none\nSwitchType=switch/none\n\
         AccountingStorageType=accounting_storage/none\nReturnToService=2\n\
         NodeName={host} NodeAddr=127.0.0.1 CPUs=2 State=UNKNOWN\n\
         PartitionName=all Nodes={host} Default=YES MaxTime=INFINITE State=UP OverSubscribe=FORCE:8\n",
        path("munge.sock"),
        path("state"),
        path("spool"),
        path("slurmctld.pid"),
        path("slurmd.pid"),
    );
    std::fs::write(path("slurm.conf"), configuration).unwrap();
    for program in ["slurmctld", "slurmd"] {
        let log = place.join(format!("{program}.out"));
        daemons.push(start(&format!("/usr/sbin/{program}"), &["-D", "-f", &path("slurm.conf")], &log));
    }
    let configuration = path("slurm.conf");
    eventually("starting Slurm", || {
        let mut nodes = Command::new("sinfo");
        let nodes = nodes.args(["-h", "-o", "%t"]).env("SLURM_CONF", &configuration).output().unwrap();
        text(&nodes.stdout).trim() == "idle"
    });
    daemons
}

#[test]
#[ignore = "needs Slurm and root: make test-machines"]
fn slurm_starts_all_workers_at_once_and_ends_them() {
    let directory = tempfile::tempdir().unwrap();
    let daemons = slurm(directory.path());
    let (_site, url) = site();
    let configuration = directory.path().join("slurm.conf");
    let run = |more: &[&str]| {
        let mut command = load(&[&[url.as_str(), "-k", "--engine", "slurm", "--close", "--json"], more].concat());
        command.env("SLURM_CONF", &configuration).env("SLURM_OVERCOMMIT", "1").output().unwrap()
    };
    let output = run(&["--workers", "4", "-n", "400"]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let result = json(&output);
    assert_eq!((&result["hits"], result["workers"].as_array().unwrap().len()), (&400.into(), 4));
    println!("Slurm: began after {:?} ns", super::of_each(&result, |part| part["began_after_ns"].as_u64()));
    eventually("emptying the queue", || {
        let queue = Command::new("squeue").arg("-h").env("SLURM_CONF", &configuration).output().unwrap();
        queue.status.success() && queue.stdout.is_empty()
    });
    // A queue without room, and Slurm's own words.
    let output = run(&["--workers", "500", "-n", "40000", "--connections", "1000", "--join-within", "3s"]);
    assert_ne!(output.status.code(), Some(0));
    println!("{}", text(&output.stderr));
    let mut command = load(&[&url, "-k", "--engine", "slurm", "--workers", "1"]);
    let output = command.env("SLURM_CONF", &configuration).env("SLURM_PARTITION", "none").output().unwrap();
    assert_eq!(output.status.code(), Some(6));
    assert!(text(&output.stderr).contains("invalid partition"), "{}", text(&output.stderr));
    drop(daemons);
}

/// A kubectl that starts two workers in place of pods, unless it was given pods to show; then it does not come back
/// from deleting them. With a file `silent` the second worker comes late, and who asks for pods waits.
const KUBECTL: &str = r#"#!/bin/sh
cd "$(dirname "$0")"
umask 077
case $1 in
create)
    manifest=$(cat)
    [ -e pods ] && exit
    token=$(printf %s "$manifest" | sed 's/.*"token":"\([^"]*\)".*/\1/')
    address=$(printf %s "$manifest" | sed 's/.*"--join","\([^"]*\)".*/\1/')
    printf %b "$token" > token
    for pod in 1 2; do
        TLSDYNO worker --join "$address" --token-file token > output 2>&1 &
        if [ -e silent ] && [ $pod = 1 ]; then sleep 9; fi
    done ;;
get)
    if [ -e silent ]; then exec sleep 7; fi
    cat pods ;;
delete)
    echo "$@" > deleted
    if [ -e pods ]; then exec sleep 1000; fi ;;
esac
"#;

#[test]
fn kubectl_makes_pods_and_is_not_waited_for_for_ever() {
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name);
    std::fs::write(path("kubectl"), KUBECTL.replace("TLSDYNO", TLSDYNO)).unwrap();
    std::fs::set_permissions(path("kubectl"), PermissionsExt::from_mode(0o755)).unwrap();
    let (_site, url) = site();
    let run = || {
        let engine = ["--engine", "kubernetes", "--workers", "2", "--image", "none", "--join-within", "30s"];
        let flags = [&["-k", "-n", "400", "--close", "--json"], &engine[..]].concat();
        let programs = format!("{}:{}", directory.path().display(), std::env::var("PATH").unwrap());
        load(&[&[url.as_str()], &flags[..]].concat()).env("PATH", programs).output().unwrap()
    };
    let output = run();
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let result = json(&output);
    assert_eq!((&result["hits"], result["workers"].as_array().unwrap().len()), (&400.into(), 2));
    let deleted = std::fs::read_to_string(path("deleted")).unwrap();
    assert!(deleted.contains("job,secret tlsdyno-"), "{deleted}");

    // Workers that have joined hear the coordinator, however long the cluster takes to say how pods are.
    std::fs::write(path("silent"), "").unwrap();
    let output = run();
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    std::fs::remove_file(path("silent")).unwrap();

    // An image that cannot be pulled, and a cluster that does not answer any more.
    let waiting = r#"{"reason": "ImagePullBackOff", "message": "no such image"}"#;
    let status = format!(r#"{{"containerStatuses": [{{"state": {{"waiting": {waiting}}}}}]}}"#);
    let pods = format!(r#"{{"items": [{{"metadata": {{"name": "pod-0"}}, "status": {status}}}]}}"#);
    std::fs::write(path("pods"), pods).unwrap();
    let output = run();
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(6), "{said}");
    assert!(said.contains("pod-0 cannot start: ImagePullBackOff: no such image"), "{said}");
    assert!(said.contains("may have left something: it took more than 5 s"), "{said}");
}
