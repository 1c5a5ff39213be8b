//! The file: what is wrong with it is named, by `validate` as by running, and a changed one is taken without dropping a
//! connection.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::process::Output;

use rustix::process::Signal;

use super::support::{Dispatcher, backend, control_path, tlsdyno};
use crate::place::eventually;

const GOOD: &str = "listen = [\"127.0.0.1:0\"]\n[[backend]]\naddress = \"127.0.0.1:9\"\n";

fn with_file(config: &str, arguments: &[&str]) -> Output {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), config).unwrap();
    tlsdyno().arg("dispatch").args(arguments).arg(file.path()).output().unwrap()
}

#[test]
fn a_second_dispatcher_at_an_address_says_that_clients_are_shared() {
    let (first, _file) = Dispatcher::from_file(GOOD);
    let (second, _file) = Dispatcher::from_file(&GOOD.replace("127.0.0.1:0", &first.address.to_string()));
    for (dispatcher, is_second) in [(first, false), (second, true)] {
        dispatcher.signal(Signal::TERM);
        let (_, said) = dispatcher.wait();
        assert_eq!(said.contains("another program listens at 127.0.0.1:"), is_second, "{said}");
    }
}

#[test]
fn what_is_wrong_is_named_by_validate_as_by_running() {
    let backend = "[[backend]]\naddress = \"127.0.0.1:9\"\n";
    let wrong = [
        ("listen = []\n".to_owned() + backend, "`listen` names no address"),
        ("listen = [\"127.0.0.1:0\"]\n".to_owned(), "there is no backend; give at least one"),
        (GOOD.replace("127.0.0.1:9\"", "localhost:9001\""), "names are not resolved in a file; write IP:PORT"),
        (GOOD.replace("127.0.0.1:9\"", "127.0.0.1:99999\""), "`127.0.0.1:99999` is no address: ports end at 65535"),
        (GOOD.replace("127.0.0.1:0\"", "127.0.0.1\""), "`127.0.0.1` is no address: the port is missing"),
        (GOOD.to_owned() + backend, "127.0.0.1:9 is named twice"),
        ("listen = [\"127.0.0.1:9\"]\n".to_owned() + backend, "both an address to listen on and a backend"),
        ("policy = \"best\"\n".to_owned() + GOOD, "best"),
        ("session_timeout = \"soon\"\n".to_owned() + GOOD, "`soon` is no time"),
        ("session_timeout = \"0s\"\n".to_owned() + GOOD, "`session_timeout`"),
        ("table_size = 0\n".to_owned() + GOOD, "`table_size`"),
        (GOOD.to_owned() + "[limits]\nconnections = 0\n", "`connections`"),
        (GOOD.to_owned() + "[limits]\nhello_time = \"0s\"\n", "`hello_time`"),
        (GOOD.to_owned() + "[check]\nfall = 0\n", "`fall`"),
        ("policy = \"lard\"\n".to_owned() + GOOD + "[check]\nkind = \"hello\"\n", "use check `tcp`"),
        ("lissen = 1\n".to_owned() + GOOD, "lissen"),
        (GOOD.to_owned() + "weight = 1\n", "weight"),
        (GOOD.to_owned() + "[limits]\nspeed = 1\n", "speed"),
        (GOOD.to_owned() + "[check]\nspeed = 1\n", "speed"),
    ];
    for (config, fault) in wrong {
        for arguments in [&["validate"][..], &["--config"]] {
            let output = with_file(&config, arguments);
            let said = String::from_utf8_lossy(&output.stderr);
            assert_eq!(output.status.code(), Some(3), "{arguments:?} {config}: {said}");
            assert!(said.contains(fault), "{config}: {said}");
            assert!(said.contains("is wrong") && !said.contains("failed to read"), "it could be read: {said}");
        }
    }
    let output = with_file(GOOD, &["validate"]);
    assert_eq!(output.status.code(), Some(0));
    assert!(String::from_utf8_lossy(&output.stdout).contains("is valid: 1 backends, session+address"));
}

#[test]
fn flags_name_what_is_wrong_with_an_address_too() {
    let said = |backends: &[&str]| {
        let output = tlsdyno().args(["dispatch", "--listen", "127.0.0.1:0"]).args(backends).output().unwrap();
        assert_eq!(output.status.code(), Some(2));
        String::from_utf8(output.stderr).unwrap()
    };
    assert!(said(&["--backend", "127.0.0.1:99999"]).contains("ports end at 65535; write IP:PORT"));
    assert!(said(&["--backend", "127.0.0.1"]).contains("the port is missing; write IP:PORT"));
    assert_eq!(
        said(&[]),
        "tlsdyno: there is no backend; give at least one: `--backend IP:PORT`, in a file `[[backend]]` with its \
         `address`\n"
    );
    let output = tlsdyno().args(["dispatch", "validate", "/nowhere.toml"]).output().unwrap();
    assert_eq!(output.status.code(), Some(3));
    assert!(
        String::from_utf8_lossy(&output.stderr).contains("failed to read the dispatcher's configuration /nowhere.toml")
    );
}

#[test]
fn a_port_in_use_and_a_missing_dispatcher_are_named() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let output = tlsdyno().args(["dispatch", "--listen", &address, "--backend", "127.0.0.1:9"]).output().unwrap();
    assert_eq!(output.status.code(), Some(6));
    assert!(String::from_utf8_lossy(&output.stderr).contains(&address));
    let output = tlsdyno().args(["dispatch", "status", "--control", "/nowhere"]).output().unwrap();
    assert_eq!(output.status.code(), Some(4));
    assert!(String::from_utf8_lossy(&output.stderr).contains("no dispatcher answers on /nowhere"));
}

#[test]
fn a_changed_file_is_taken_while_connections_go_on() {
    let named = |name: &'static [u8]| {
        backend(move |mut stream: TcpStream| {
            let _ = stream.write_all(name);
            let mut byte = [0];
            while let Ok(1) = stream.read(&mut byte) {
                if stream.write_all(&byte).is_err() {
                    return;
                }
            }
        })
    };
    let ((old, _old), (new, _new)) = (named(b"old"), named(b"new"));
    let control = control_path();
    // One loop: of several each takes the file in its own time.
    let config = |backends: &[std::net::SocketAddr]| {
        let mut text = format!(
            "listen = [\"127.0.0.1:0\"]\npolicy = \"round-robin\"\nloops = 1\ncontrol = \"{}\"\n[check]\nkind = \
             \"none\"\n",
            &*control
        );
        backends.iter().for_each(|address| text += &format!("[[backend]]\naddress = \"{address}\"\n"));
        text
    };
    let (dispatcher, file) = Dispatcher::from_file(&config(&[old]));
    let name_of = |client: &mut TcpStream| {
        let mut name = [0; 3];
        client.read_exact(&mut name).unwrap();
        name
    };
    let mut long = dispatcher.connect();
    assert_eq!(name_of(&mut long), *b"old");

    std::fs::write(file.path(), config(&[new])).unwrap();
    dispatcher.signal(Signal::HUP);
    eventually("new connections go to the new backend", || name_of(&mut dispatcher.connect()) == *b"new");
    long.write_all(b"x").unwrap();
    let mut byte = [0];
    long.read_exact(&mut byte).unwrap();
    assert_eq!(byte, *b"x", "the old connection goes on");

    std::fs::write(file.path(), "listen = nonsense").unwrap();
    dispatcher.signal(Signal::HUP);
    assert_eq!(name_of(&mut dispatcher.connect()), *b"new");
    let metrics = tlsdyno().args(["dispatch", "status", "--metrics", "--control", &control]).output().unwrap();
    let metrics = String::from_utf8(metrics.stdout).unwrap();
    let up = format!("tlsdyno_dispatch_backend_up{{backend=\"{new}\"}} 1");
    assert!(metrics.lines().any(|line| line == up), "{metrics}");
    for line in metrics.lines().filter(|line| !line.starts_with('#')) {
        let (name, value) = line.rsplit_once(' ').unwrap();
        assert!(name.starts_with("tlsdyno_dispatch_") && value.parse::<u64>().is_ok(), "{line}");
    }
    let text = tlsdyno().args(["dispatch", "status", "--control", &control]).output().unwrap();
    assert!(String::from_utf8_lossy(&text.stdout).contains("running, policy round-robin"));
    drop(long);
    dispatcher.signal(Signal::TERM);
    let (code, said) = dispatcher.wait();
    assert_eq!(code, Some(0), "{said}");
    assert!(said.contains("reloaded") && said.contains("the old settings stay"), "{said}");
}
