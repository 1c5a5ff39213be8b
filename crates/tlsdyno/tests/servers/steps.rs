//! `tlsdyno profile --keys` and `--events` from the command line to the record and the reports, on real servers.

use std::process::{Command, Stdio};

use serde_json::Value;
use tlsdyno::store::Store;
use tlsdyno_lab::KINDS;

use crate::place::{self, Place};

/// Every cell has a round in any case, however busy the machine is.
fn stepped(place: &Place, more: &[&str]) -> Value {
    let arguments = ["profile", "--time", "4", "--seed", "5", "--no-report", "--json"];
    place::measured(&place.run(&[&arguments[..], more].concat()))
}

fn value(of: &Value) -> f64 {
    of["value"].as_f64().unwrap_or_else(|| panic!("{of}"))
}

fn cpu_ns(cell: &Value, end: &str, name: &str) -> Option<f64> {
    let steps = cell[end].as_array().unwrap();
    steps.iter().find(|step| step["name"] == name).map(|step| value(&step["cpu_ns"]))
}

/// Parts are the whole, bytes agree between both ends, and where the private key is used costs what it must.
fn check(cell: &Value) {
    let parts: f64 = cell["server"].as_array().unwrap().iter().map(|step| value(&step["cpu_ns"])).sum();
    let whole = value(&cell["server_ns"]);
    // Each is a trimmed mean of few rounds.
    assert!(whole > 10_000.0 && (parts - whole).abs() < 0.5 * whole, "{parts} of {whole}: {cell}");
    let (server, client) = (&cell["server_bytes"], &cell["client_bytes"]);
    let agree = |one: &Value, other: &Value| (one.as_f64().unwrap() - other.as_f64().unwrap()).abs();
    assert!(agree(&server[0], &client[1]) < 600.0, "tickets may come behind the client's end: {cell}");
    assert!(cell["lost_count"].as_u64() < cell["connections"].as_u64(), "{cell}");
}

/// Keys of then and of now by static RSA and by ECDHE; a longer chain is more bytes.
#[test]
fn steps_of_handshakes_by_key_and_chain() {
    let place = Place::new();
    let flags = ["--server", "nginx", "--tls", "1.2", "--suite", "AES128-SHA", "--keys", "rsa-512,rsa-2048,p-256"];
    let printed = stepped(&place, &[&flags[..], &["--chain", "1,2"]].concat());
    let cells = printed["steps"]["cells"].as_array().unwrap();
    assert_eq!(cells.len(), 3 * 2 * 2);
    cells.iter().for_each(check);
    let of = |key: &str, length: u32, kind: &str| {
        let is_it = |cell: &&Value| cell["key"] == key && cell["chain_count"] == length && cell["handshakes"] == kind;
        cells.iter().find(is_it).unwrap_or_else(|| panic!("{key}"))
    };
    let key_ns = |key| cpu_ns(of(key, 1, "full"), "server", "ClientKeyExchange").unwrap();
    assert!(key_ns("rsa-2048") > 2.0 * key_ns("rsa-512"), "{} {}", key_ns("rsa-2048"), key_ns("rsa-512"));
    assert!(cpu_ns(of("p-256", 1, "full"), "server", "ServerKeyExchange").is_some());
    assert_eq!(cpu_ns(of("rsa-2048", 1, "resumed"), "server", "ClientKeyExchange"), None);
    let sent = |length| of("rsa-2048", length, "full")["server_bytes"][0].as_f64().unwrap();
    assert!(sent(2) > sent(1) + 500.0, "{} {}", sent(1), sent(2));
    let record = Store::open_for_reading_at(&place.path().join("store.sqlite")).unwrap().load("last").unwrap();
    let again: Value = serde_json::from_str(&KINDS.json_text(&record).unwrap()).unwrap();
    assert_eq!(again["steps"], printed["steps"], "the record holds what was printed");
    assert!(KINDS.html(&record).unwrap().contains("steps-bars"));
}

#[test]
fn events_of_both_ends_are_on_one_clock() {
    events_are_on_one_clock(&["nginx"]);
}

fn events_are_on_one_clock(servers: &[&str]) {
    let place = Place::new();
    for server in servers {
        let printed = stepped(&place, &["--server", server, "--cert", "p-256", "--events", "2"]);
        let cells = printed["steps"]["cells"].as_array().unwrap();
        assert_eq!(cells.len(), 2, "{server}");
        for cell in cells {
            check(cell);
            let flows = cell["flows"].as_array().unwrap();
            assert!((1..=2).contains(&flows.len()), "{server}: {cell}");
            for flow in flows {
                let ends = |end: &str| {
                    let events = flow[end].as_array().unwrap();
                    let ns = |event: &Value, at: &str| event[at].as_i64().unwrap();
                    (ns(&events[0], "from_ns"), ns(events.last().unwrap(), "to_ns"))
                };
                let (client, server_end) = (ends("client"), ends("server"));
                assert!(client.0 == 0 && server_end.0 > 0 && server_end.1 <= client.1, "{server}: {flow}");
            }
        }
        let signed = cpu_ns(&cells[0], "server", "CertificateVerify");
        assert!(signed.is_some_and(|ns| ns > 0.0), "{server}: {}", cells[0]);
        assert_eq!(cpu_ns(&cells[1], "server", "CertificateVerify"), None, "{server}");
    }
    let record = Store::open_for_reading_at(&place.path().join("store.sqlite")).unwrap().load("last").unwrap();
    assert!(KINDS.html(&record).unwrap().contains("steps-flows-0"));
}

/// The client of the system's OpenSSL sees the same messages.
#[test]
fn a_stock_client_is_the_other_end() {
    a_stock_client_sees_the_same(&["--tls", "1.3", "--keys", "p-256"]);
}

fn a_stock_client_sees_the_same(flags: &[&str]) {
    let place = Place::new();
    let of_either = |client: &str, flags: &[&str]| {
        let printed = stepped(&place, &[&["--server", "nginx", "--client", client, "--events", "1"], flags].concat());
        printed["steps"]["cells"].as_array().unwrap().clone()
    };
    let (own, stock) = (of_either("own", flags), of_either("openssl", flags));
    assert_eq!(stock.len(), 2, "{flags:?}");
    for (own, stock) in own.iter().zip(&stock) {
        check(stock);
        let messages = |cell: &Value| -> Vec<String> {
            let names = cell["client"].as_array().unwrap().iter().map(|step| step["name"].as_str().unwrap());
            // Tickets of TLS 1.3 come with the response.
            let is_message = |name: &&str| name.starts_with(char::is_uppercase) && *name != "NewSessionTicket";
            names.filter(is_message).map(str::to_owned).collect()
        };
        let seen = messages(stock);
        assert!(messages(own).iter().all(|name| seen.contains(name)), "{flags:?}: {own}\n{stock}");
        assert!(value(&stock["client_ns"]) > 0.0, "{flags:?}: {stock}");
        assert!(stock["flows"].is_array(), "{flags:?}");
    }
}

/// Runs a command, and prints what it printed and how many connections on loopback had a handshake of so many bytes
/// each way. Of TLS 1.2 these are all records of types 20 and 22; of TLS 1.3 the client's up to its Finished, the first
/// of type 23, and what the server had sent by then. Connections that the kernel had no room for are left out.
const CAPTURE: &str = r#"
import collections, json, socket, struct, subprocess, sys
SO_RCVBUFFORCE, OUTGOING, ETH_P_ALL = 33, 4, 3
s = socket.socket(socket.AF_PACKET, socket.SOCK_DGRAM, socket.htons(ETH_P_ALL))
s.bind(("lo", ETH_P_ALL))
s.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, 512 << 20)
said = subprocess.run(sys.argv[2:], stdout=subprocess.PIPE, check=True).stdout
s.setblocking(False)
class Connection:
    def __init__(self):
        self.sent, self.received, self.received_before_finished, self.whole = b"", b"", None, False
connections = {}
while True:
    try:
        packet, address = s.recvfrom(70000)
    except BlockingIOError:
        break
    head = (packet[0] & 15) * 4
    if address[2] != OUTGOING or packet[0] >> 4 != 4 or packet[9] != 6:
        continue
    source, destination = struct.unpack("!HH", packet[head:head + 4])
    flags, data = packet[head + 13], packet[head + (packet[head + 12] >> 4) * 4:struct.unpack("!H", packet[2:4])[0]]
    if flags & 0x12 == 2:
        connections[source, destination] = Connection()
    if (source, destination) in connections:
        of = connections[source, destination]
        if data and of.received and of.received_before_finished is None:
            of.received_before_finished = len(of.received)
        of.sent += data
    elif (destination, source) in connections:
        of = connections[destination, source]
        of.received += data
        of.whole |= bool(flags & 1)
def records(stream):
    while len(stream) >= 5:
        length = 5 + struct.unpack("!H", stream[3:5])[0]
        yield stream[0], length
        stream = stream[length:]
def of_1_2(stream):
    return sum(length for kind, length in records(stream) if kind in (20, 22))
def until_finished(stream):
    total = 0
    for kind, length in records(stream):
        total += length
        if kind == 23:
            break
    return total
counts = collections.Counter()
for of in connections.values():
    if of.whole and of.sent[:1] == b"\x16":
        sizes = (of_1_2(of.sent), of_1_2(of.received))
        if sys.argv[1] == "1.3":
            sizes = (until_finished(of.sent), of.received_before_finished)
        counts[sizes] += 1
print(json.dumps({"said": json.loads(said), "counts": [[*sizes, count] for sizes, count in counts.items()]}))
"#;

/// Means over all connections are the bytes of each, which a capture of the packets has too.
fn bytes_are_those_of_a_capture() {
    if !rustix::process::geteuid().is_root() {
        return println!("only root captures packets: not tried");
    }
    let captured = |version: &str| {
        let place = Place::new();
        let flags = ["profile", "--time", "4", "--server", "nginx", "--tls", version, "--cert", "rsa-2048"];
        let profile = place.tlsdyno(&[&flags[..], &["--events", "1", "--no-report", "--json"]].concat());
        // Nobody else's packets are on the loopback of a namespace of its own.
        let mut command = Command::new("unshare");
        command.args([
            "--net",
            "sh",
            "-c",
            "ip link set lo up && exec \"$@\"",
            "sh",
            "python3",
            "-c",
            CAPTURE,
            version,
        ]);
        command.arg(profile.get_program()).args(profile.get_args()).current_dir(place.path()).stdin(Stdio::null());
        command.envs(profile.get_envs().filter_map(|(name, value)| Some((name, value?))));
        command.output().unwrap()
    };
    for version in ["1.2", "1.3"] {
        let output = captured(version);
        assert!(output.status.success(), "{version}: {}", String::from_utf8_lossy(&output.stderr));
        let printed: Value = serde_json::from_slice(&output.stdout).unwrap();
        let cells = printed["said"]["steps"]["cells"].as_array().unwrap();
        assert_eq!(cells.len(), 2);
        for cell in cells {
            let ours = &cell["client_bytes"];
            let is_it = |seen: &&Value| seen[0].as_f64() == ours[0].as_f64() && seen[1].as_f64() == ours[1].as_f64();
            let seen = printed["counts"].as_array().unwrap().iter().find(is_it);
            let told = format!("{ours} by the client, captured {}", printed["counts"]);
            assert!(seen.is_some(), "{version} {}: {told}", cell["handshakes"]);
        }
    }
}

#[test]
fn keys_and_chains_that_cannot_be_are_refused() {
    let place = Place::new();
    for (flags, word) in [
        (&["--keys", "rsa-511"][..], "known are"),
        (&["--keys", "rsa-512", "--tls", "1.3"], "--tls 1.2"),
        (&["--chain", "0"], "--chain"),
        (&["--chain", "3,1"], "ascend"),
        (&["--events", "5000"], "--events"),
    ] {
        let output = place.tlsdyno(&[&["profile"], flags].concat()).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.code() == Some(2) && said.contains(word), "{flags:?}: {said}");
    }
}

mod long {
    use super::*;

    #[test]
    #[ignore = "a profile step by step ends with 5 on a very busy machine: make test-long"]
    fn bytes_are_those_of_a_capture() {
        super::bytes_are_those_of_a_capture();
    }

    /// Servers of threads, of processes, and one that drives its handshakes by reading.
    #[test]
    #[ignore = "every server: make test-long"]
    fn events_of_both_ends_are_on_one_clock_with_every_server() {
        events_are_on_one_clock(&["apache", "haproxy", "lighttpd"]);
    }

    #[test]
    #[ignore = "more of the same: make test-long"]
    fn a_stock_client_is_the_other_end_of_tls_1_2() {
        a_stock_client_sees_the_same(&["--tls", "1.2", "--suite", "AES128-SHA", "--keys", "rsa-512", "--chain", "2"]);
    }
}
