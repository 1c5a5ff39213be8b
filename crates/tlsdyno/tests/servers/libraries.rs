//! One server on two libraries, copies of the system's: each has its own mapped, and what is compared is both.

use crate::place;

use std::fs;
use std::path::{Path, PathBuf};

use place::Place;
use serde_json::Value;
use tlsdyno::model::ServerName;
use tlsdyno::servers::{Library, mapped_libraries};

/// A prefix with copies of the libraries that this process has mapped.
fn copy(at: &Path) -> PathBuf {
    fs::create_dir_all(at.join("lib")).unwrap();
    for name in ["libssl.so.3", "libcrypto.so.3"] {
        let is_it = |path: &PathBuf| path.file_name().is_some_and(|file| file == name);
        let mapped = mapped_libraries(std::process::id()).unwrap().into_iter().map(|library| library.path);
        fs::copy(mapped.into_iter().find(is_it).unwrap(), at.join("lib").join(name)).unwrap();
    }
    at.canonicalize().unwrap()
}

#[test]
fn a_server_is_measured_on_two_libraries_side_by_side() {
    let place = Place::new();
    let [first, second] = ["a", "b"].map(|name| copy(&place.path().join(name)));
    let prefixes = [&first, &second].map(|prefix| prefix.display().to_string());
    let output = place.run(&[
        "ablate",
        "--server",
        "nginx",
        "--library",
        &prefixes[0],
        "--library",
        &prefixes[1],
        "--stages",
        "authentication",
        "--cert",
        "p-256",
        "--reuse",
        "0%",
        "--time",
        "4",
        "--no-report",
        "--json",
    ]);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{said}");
    let results: Value = serde_json::from_slice(&output.stdout).unwrap();
    let rows = results["libraries"]["rows"].as_array().unwrap();
    let stages: Vec<&str> = rows.iter().map(|row| row["stage"].as_str().unwrap()).collect();
    assert_eq!(stages, ["whole", "authentication", "remainder"]);
    for (side, prefix) in [("first", &prefixes[0]), ("second", &prefixes[1])] {
        assert!(rows[0][side]["value"].as_f64().unwrap() > 0.0, "{rows:?}");
        let named = results["libraries"][side].as_str().unwrap();
        assert!(named.ends_with(&format!("in {prefix}")), "of one version they are told by their places: {named}");
    }
    let used = results["manifest"]["libraries"].as_array().unwrap();
    let files: Vec<&str> = used.iter().filter_map(|used| used["files"][1].as_str()).collect();
    assert_eq!(files, prefixes.map(|prefix| format!("{prefix}/lib/libcrypto.so.3")));
    assert!(results["warnings"].to_string().contains("Both libraries say that they are OpenSSL 3"), "{results}");
    let configurations = results["configurations"].as_array().unwrap();
    assert!(configurations.iter().all(|of| of["valid"] == true), "{configurations:?}");
}

#[test]
fn a_server_without_the_library_that_was_named_is_not_measured() {
    let place = Place::new();
    // Neither this nor what it imports uses TLS.
    let program = "import socket, sys\n\
                   listener = socket.create_server(('127.0.0.1', int(sys.argv[1])))\n\
                   while True: listener.accept()[0].close()\n";
    fs::write(place.path().join("server.py"), program).unwrap();
    let command = format!("python3 {} {{port}}", place.path().join("server.py").display());
    let mut spec = place.command(&command, "127.0.0.1:{port}");
    spec.library = Some(Library::at(&copy(&place.path().join("a"))).unwrap());
    let error = format!("{:#}", place.start(&spec).unwrap_err());
    assert!(error.contains("mapped no libssl"), "{error}");
    assert_eq!(place.leftovers(), [""; 0]);
    let library = spec.library;
    place.start(&tlsdyno::servers::ServerSpec { library, ..place.spec(ServerName::Builtin) }).unwrap();
}
