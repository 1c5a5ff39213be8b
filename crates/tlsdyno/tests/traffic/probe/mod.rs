//! `tlsdyno probe` against real servers.

mod capture;
mod database;
mod network;
mod once;
mod relay;
mod robot;
mod serve;
mod simulated;
mod store;

use std::process::{Command, Output, Stdio};

use serde_json::Value;
use tlsdyno::model::{CertificateKind, ServerName};
use tlsdyno::servers::{Instance, ServerSpec, ServerTls, certificates};
use tlsdyno_tls::Version;

use super::place::Place;

/// A server of that kind with that version of TLS, and the file of its root.
fn server(place: &Place, kind: ServerName, version: Version) -> (Instance, String) {
    server_with(place, kind, |tls| tls.versions = vec![version])
}

fn server_with(place: &Place, kind: ServerName, change: impl FnOnce(&mut ServerTls)) -> (Instance, String) {
    let files = certificates::create(CertificateKind::P256, place.path()).unwrap();
    let root = files.ca.to_str().unwrap().to_owned();
    let mut tls = ServerTls::new(files);
    change(&mut tls);
    let server = place.start(&ServerSpec { tls: Some(tls), ..place.spec(kind) }).unwrap();
    (server, root)
}

fn url(server: &Instance) -> String {
    format!("https://localhost:{}/hello.txt", server.address().port())
}

/// A robot that does not outlive its test, however that ends.
fn robot(command: &Command) -> Command {
    let mut bound = Command::new("setpriv");
    bound.args(["--pdeathsig", "KILL"]).arg(command.get_program()).args(command.get_args());
    bound.envs(command.get_envs().filter_map(|(name, value)| Some((name, value?))));
    if let Some(directory) = command.get_current_dir() {
        bound.current_dir(directory);
    }
    bound.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
    bound
}

fn probe(place: &Place, arguments: &[&str]) -> Output {
    place.run(&[&["probe"], arguments].concat())
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// The objects on standard output, one a line.
fn objects(output: &Output) -> Vec<Value> {
    let text = String::from_utf8_lossy(&output.stdout);
    text.lines().map(|line| serde_json::from_str(line).unwrap_or_else(|_| panic!("{}", stderr(output)))).collect()
}
