//! `tlsdyno cost` on servers whose costs are known, and on those that cannot be measured.

use std::io::{BufRead, BufReader};
use std::net::TcpListener;
use std::process::{Child, Command, Stdio};

use serde_json::Value;
use tlsdyno::kinds::cost::summary::LIFE;

use crate::place::Place;
use crate::stacks::go_server::GoServer;

/// The server ends with the test.
struct Serving(Child);

impl Drop for Serving {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn cost(place: &Place, url: &str) -> Value {
    let output = place.tlsdyno(&["cost", url, "--time", "10", "--json", "--no-report"]).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

/// CPU time in microseconds of a line of the sheet.
fn us(sheet: &Value, list: &str, key: &str, name: &str) -> f64 {
    let lines = sheet["cost"][list].as_array().unwrap();
    let line = lines.iter().find(|line| line[key] == name).unwrap_or_else(|| panic!("no `{name}` in {sheet:#}"));
    line["cpu_ns"]["value"].as_f64().unwrap() / 1e3
}

#[test]
fn a_page_that_burns_cpu_time_is_found_in_the_request_and_nowhere_else() {
    let place = Place::new();
    let mut command = place.tlsdyno(&["serve", "--listen", "127.0.0.1:0", "--print-address"]);
    command.args(["--docroot", "docroot"]).args(["--transaction", "cpu:5ms"]).stdout(Stdio::piped());
    let mut server = Serving(command.spawn().unwrap());
    let mut line = String::new();
    BufReader::new(server.0.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let address: Value = serde_json::from_str(&line).unwrap();
    let sheet = cost(&place, &format!("https://{}/hello.txt", address["address"].as_str().unwrap()));
    let part = |name| us(&sheet, "parts", "part", name);
    let whole = us(&sheet, "steps", "step", "TLS 1.3, request");
    assert!((LIFE.map(part).iter().sum::<f64>() / whole - 1.0).abs() < 0.02, "{sheet:#}");
    // Other programs make code that runs beside them dearer.
    assert!((4_500.0..9_000.0).contains(&part("the request")), "{sheet:#}");
    assert!((4_500.0..9_000.0).contains(&part("next request on the connection")), "{sheet:#}");
    for name in &LIFE[..5] {
        assert!(part(name) < 2_500.0, "{name}: {sheet:#}");
    }
    assert!(part("a second hello (HelloRetryRequest)") < 2_500.0, "{sheet:#}");
}

#[test]
fn a_server_on_another_library_has_a_sheet() {
    let place = Place::new();
    let server = GoServer::start(b"object", None);
    let sheet = cost(&place, &format!("https://127.0.0.1:{}/", server.address.port()));
    assert!(us(&sheet, "parts", "part", "full handshake, TLS 1.3") > us(&sheet, "steps", "step", "TCP"), "{sheet:#}");
}

#[test]
fn what_cannot_be_measured_is_refused_in_one_sentence() {
    let place = Place::new();
    let nobody = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let nobody = format!("https://{nobody}/");
    for (url, code, why) in [
        ("http://127.0.0.1:1/", 2, "is plain HTTP"),
        ("https://192.0.2.1/", 2, "--i-may-load-this"),
        (nobody.as_str(), 4, "nobody answers"),
    ] {
        let output = place.tlsdyno(&["cost", url, "--no-report"]).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{url}: {said}");
        assert!(said.contains(why) && said.lines().count() < 4, "{url}: {said}");
    }
}

/// Its connections cost nothing by the clocks of the processes that were there before.
#[test]
fn a_server_with_a_process_for_each_connection_is_refused() {
    let place = Place::new();
    let program = "import socketserver, sys, time\n\
        class Wait(socketserver.BaseRequestHandler):\n    def handle(self): time.sleep(5)\n\
        server = socketserver.ForkingTCPServer(('127.0.0.1', 0), Wait)\n\
        print(server.server_address[1], flush=True)\nserver.serve_forever()\n";
    let mut command = Command::new("python3");
    let mut server = Serving(command.args(["-c", program]).stdout(Stdio::piped()).spawn().unwrap());
    let mut port = String::new();
    BufReader::new(server.0.stdout.take().unwrap()).read_line(&mut port).unwrap();
    let url = format!("https://127.0.0.1:{}/", port.trim());
    let output = place.tlsdyno(&["cost", &url, "--no-report"]).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(6), "{said}");
    assert!(said.contains("a process for a connection"), "{said}");
}
