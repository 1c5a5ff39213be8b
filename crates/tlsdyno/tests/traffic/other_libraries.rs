//! Servers whose TLS no provider can be put into are refused at their first start.

use crate::place::Place;
use crate::stacks::go_server;

#[test]
fn a_server_on_go_is_refused_in_one_sentence() {
    let place = Place::new();
    let object = place.path().join("object");
    std::fs::write(&object, "an object").unwrap();
    let (program, object) = (go_server::program().display(), object.display());
    let command =
        format!("{program} -certificate {{certificate}} -key {{key}} -object {object} -listen 127.0.0.1:{{port}}");
    let address = ["--address", "127.0.0.1:{port}", "--path", "/"];
    for kind in [&["ablate", "--quick"][..], &["ablate", "--method", "doubling"], &["profile"]] {
        let arguments = [kind, &["--server-command", &command], &address, &["--no-report"]].concat();
        let output = place.tlsdyno(&arguments).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(6), "{kind:?}: {said}");
        let last = said.lines().last().unwrap_or_default();
        assert!(last.contains("Go's crypto/tls") && last.contains("tlsdyno load URL"), "{kind:?}: {said}");
        assert!(said.lines().count() < 9 && output.stdout.is_empty(), "{kind:?}: {said}");
    }
    let listed = place.tlsdyno(&["list", "--json"]).output().unwrap();
    assert_eq!(String::from_utf8_lossy(&listed.stdout).trim(), "[]");
}
