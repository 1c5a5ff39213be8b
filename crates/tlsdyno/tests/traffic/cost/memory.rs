//! `tlsdyno cost --memory` on servers of which it is known what they hold, and how many connections.

use std::path::PathBuf;
use std::process::Command;

use serde_json::Value;
use tlsdyno::model::CertificateKind;
use tlsdyno::servers::certificates;

use super::{refused, run, serving, sheet};
use crate::place::Place;

/// Allocates and fills so many bytes for each connection. Compiled without optimisation, which would leave them out.
const MORE_OF_EACH: &str = r#"
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>
void *SSL_new(void *context) {
    void *(*next)(void *) = (void *(*)(void *))dlsym(RTLD_NEXT, "SSL_new");
    void *more = malloc(BYTES);
    memset(more, 1, BYTES);
    return next(context);
}
"#;

/// A command line for nginx in one process, which takes so many connections, the listening socket among them, and has
/// these parameters of its listener.
pub(super) fn nginx(place: &Place, worker_connections: u32, listener: &str) -> String {
    let files = certificates::create(CertificateKind::P256, place.path()).unwrap();
    let of_content = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"];
    let of_content: String = of_content.iter().map(|of| format!("{of}_temp_path {{dir}}/{of};\n")).collect();
    let text = format!(
        "daemon off; master_process off; error_log stderr crit; pid {{dir}}/nginx.pid;\n\
         events {{ worker_connections {worker_connections}; }}\n\
         http {{ access_log off; {of_content}\n\
         server {{ listen 127.0.0.1:{{port}} ssl{listener}; ssl_protocols TLSv1.3;\n\
         ssl_certificate {}; ssl_certificate_key {};\n\
         location / {{ return 200 hello; }} }} }}\n",
        files.chain.display(),
        files.key.display()
    );
    let path = place.path().join(format!("memory-{worker_connections}.conf"));
    std::fs::write(&path, text).unwrap();
    format!("nginx -e stderr -c {}", path.display())
}

fn memory(place: &Place, command: &str, arguments: &[&str]) -> Value {
    let server = ["--memory", "--server-command", command, "--address", "127.0.0.1:{port}", "--json"];
    sheet(&run(place, &[&server, arguments].concat()))
}

/// Memory of one connection of the first server in this state, bytes.
fn bytes(sheet: &Value, state: &str) -> f64 {
    let states = sheet["memory"]["servers"][0]["states"].as_array().unwrap();
    let of = states.iter().find(|of| of["state"] == state);
    of.unwrap_or_else(|| panic!("no {state}: {sheet:#}"))["bytes"]["value"].as_f64().unwrap()
}

#[test]
fn each_state_is_measured_with_all_of_its_connections() {
    let place = Place::new();
    let sheet = memory(&place, &nginx(&place, 2000, ""), &["--connections", "200", "--series", "1"]);
    let [tcp, flight, finished, answered] = ["tcp", "flight", "finished", "answered"].map(|of| bytes(&sheet, of));
    // A handshake under way holds buffers that are given back at its end.
    assert!(tcp > 0.0 && finished > 2.0 * tcp && flight > finished && answered > 2.0 * tcp, "{sheet:#}");
    assert!(sheet["answer"].as_str().unwrap().contains("Idle after the handshake"), "{sheet:#}");
    let series: Vec<&Value> = sheet["blocks"].as_array().unwrap().iter().filter(|of| of["memory"].is_array()).collect();
    assert_eq!(series.len(), 4, "{sheet:#}");
    for points in series.iter().map(|of| of["memory"].as_array().unwrap()) {
        let number = |point: &Value, of: &str| point[of].as_u64().unwrap();
        let before = number(&points[0], "descriptors");
        assert_eq!((points.len(), number(&points[11], "connections")), (12, 200));
        for point in points {
            assert_eq!(number(point, "descriptors") - before, number(point, "connections"), "{points:?}");
        }
    }
}

#[test]
fn what_is_allocated_for_a_connection_is_found() {
    let place = Place::new();
    let source = place.path().join("more.c");
    std::fs::write(&source, MORE_OF_EACH).unwrap();
    let library: PathBuf = place.path().join("more.so");
    let how = ["-O0", "-fno-builtin", "-shared", "-fPIC", "-DBYTES=2048", "-o"];
    let compiled = Command::new("cc").args(how).args([&library, &source]).status().unwrap();
    assert!(compiled.success());
    let command = nginx(&place, 2000, "");
    let [usual, more] = ["", &format!("env LD_PRELOAD={} ", library.display())].map(|preload| {
        let arguments = ["--state", "finished", "--connections", "512", "--series", "1"];
        bytes(&memory(&place, &format!("{preload}{command}"), &arguments), "finished")
    });
    // And the 16 bytes by which the C library knows it.
    assert!((more - usual - 2064.0).abs() < 200.0, "{more} {usual}");
}

#[test]
fn a_server_that_takes_fewer_is_told_with_their_number_or_refused() {
    let place = Place::new();
    let few = ["--state", "finished", "--connections", "200", "--series", "1"];
    let sheet = memory(&place, &nginx(&place, 160, ""), &few);
    assert_eq!(sheet["memory"]["servers"][0]["states"][0]["connections"], 125, "{sheet:#}");
    let said = sheet["warnings"].to_string();
    assert!(said.contains("a series ended at 125 of 200") && said.contains("worker_connections"), "{said}");
    let output = run(&place, &[&["--memory", "--server-command", &nginx(&place, 8, "")], &few[..], &ADDRESS].concat());
    let said = String::from_utf8_lossy(&output.stdout);
    let said = said.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(output.status.code() == Some(5) && said.contains("too few for a slope"), "{said}");
}

const ADDRESS: [&str; 2] = ["--address", "127.0.0.1:{port}"];

#[test]
fn a_server_that_runs_grows_after_asking_and_once() {
    let place = Place::new();
    let files = certificates::create(CertificateKind::P256, place.path()).unwrap();
    let [chain, key] = [&files.chain, &files.key].map(|path| path.to_str().unwrap());
    let docroot = place.docroot();
    let serve = ["serve", "--listen", "127.0.0.1:0", "--print-address", "--docroot", docroot.to_str().unwrap()];
    let serve = [&serve[..], &["--certificate", chain, "--key", key]].concat();
    let servers = [serving(&mut place.tlsdyno(&serve)), serving(&mut place.tlsdyno(&serve))];
    let [one, other] = [0, 1].map(|at| format!("https://{}/hello.txt", servers[at].1));
    refused(&place, &[&one, "--memory"], 2, "--i-may-grow-this");
    refused(&place, &[&one, "--state", "tcp"], 2, "--memory");
    let asked = [&one, "--against", &other, "--memory", "--i-may-grow-this", "--connections", "128"];
    refused(&place, &[&asked[..], &["--state", "tcp", "--state", "flight"]].concat(), 2, "give one --state");
    let sheet = sheet(&run(&place, &[&asked[..], &["--json"]].concat()));
    assert!(bytes(&sheet, "finished") > 0.0, "{sheet:#}");
    assert_eq!(sheet["blocks"].as_array().unwrap().len(), 2, "{sheet:#}");
    assert!(sheet["memory"]["servers"][1]["states"][0]["more_bytes"]["value"].is_f64(), "{sheet:#}");
}
