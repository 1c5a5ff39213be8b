//! `cost --locks`: counts repeat, and what a preloaded library does with locks in addition is found, and nothing else.

use std::fs;
use std::path::Path;
use std::process::Command;

use serde_json::Value;
use tlsdyno::model::CertificateKind;
use tlsdyno::servers::certificates;

use crate::build;
use crate::place::Place;

/// Executes one locked instruction, and takes one read lock, for each connection.
const PRELOADED: &str = r#"
#include <dlfcn.h>
#include <pthread.h>
static long count;
static pthread_rwlock_t lock = PTHREAD_RWLOCK_INITIALIZER;
void *SSL_new(void *context) {
    void *(*real)(void *) = (void *(*)(void *))dlsym(RTLD_NEXT, "SSL_new");
    __asm__ volatile("lock addq $1, %0" : "+m"(count));
    pthread_rwlock_rdlock(&lock);
    pthread_rwlock_unlock(&lock);
    return real(context);
}
"#;

fn preloaded(place: &Place) -> String {
    let (source, library) = (place.path().join("locking.c"), place.path().join("locking.so"));
    fs::write(&source, PRELOADED).unwrap();
    let mut compiler = Command::new("cc");
    compiler.args(["-D_GNU_SOURCE", "-O1", "-shared", "-fPIC", "-pthread", "-o"]).args([&library, &source]);
    build::run(&mut compiler);
    library.display().to_string()
}

/// The command line of an nginx of one process.
fn nginx(place: &Place) -> String {
    let files = certificates::create(CertificateKind::P256, place.path()).unwrap();
    let [chain, key, docroot] =
        [&files.chain, &files.key, &place.docroot()].map(|path: &_| Path::display(path).to_string());
    let configuration = format!(
        "daemon off;\nmaster_process off;\nerror_log stderr;\npid {{dir}}/pid;\nevents {{}}\nhttp {{\n\
         access_log off;\nclient_body_temp_path {{dir}}/b;\nproxy_temp_path {{dir}}/p;\nfastcgi_temp_path {{dir}}/f;\n\
         uwsgi_temp_path {{dir}}/u;\nscgi_temp_path {{dir}}/s;\n\
         server {{ listen 127.0.0.1:{{port}} ssl; ssl_certificate {chain}; ssl_certificate_key {key}; root {docroot};\n\
         location / {{ return 200 ok; }} }}\n}}\n"
    );
    let file = place.path().join("nginx.conf");
    fs::write(&file, configuration).unwrap();
    format!("nginx -e stderr -c {}", file.display())
}

/// A count that was the same each time.
fn exact(of: &Value, name: &str) -> f64 {
    let [value, low, high] = ["value", "low", "high"].map(|end| of[name][end].as_f64().unwrap());
    assert!(low == value && value == high, "{name} does not repeat: {}", of[name]);
    value
}

fn owner<'a>(step: &'a Value, name: &str) -> Option<&'a Value> {
    step["owners"].as_array().unwrap().iter().find(|of| of["owner"] == name)
}

#[test]
fn what_a_server_does_with_locks_repeats_and_what_is_added_is_found() {
    let place = Place::new();
    let (plain, library) = (nginx(&place), preloaded(&place));
    let with_more = format!("env LD_PRELOAD={library} {plain}");
    let addresses = ["--address", "127.0.0.1:{port}", "--against-address", "127.0.0.1:{port}"];
    let commands = ["cost", "--server-command", &plain, "--against-command", &with_more, "--locks", "--quick"];
    let output = place.tlsdyno(&[&commands, &addresses[..], &["--json", "--no-report"]].concat()).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let sheet: Value = serde_json::from_slice(&output.stdout).unwrap();
    let step = |server: usize, number: usize| &sheet["locks"]["servers"][server]["steps"][number];
    for (number, added) in [(0, 1.0), (1, 1.0), (2, 0.0)] {
        let [plain, with_more] = [0, 1].map(|server| step(server, number));
        let [reads, more_reads] = [plain, with_more].map(|of| exact(of, "read_locks_count"));
        assert_eq!(more_reads - reads, added, "{with_more:#}");
        for name in ["locked_instructions_count", "read_locks_count", "write_locks_count"] {
            let [one, other] = [plain, with_more].map(|of| owner(of, "tls_library").map_or(0.0, |of| exact(of, name)));
            assert_eq!(one, other, "{name} of the TLS library");
        }
        let of_preloaded = owner(with_more, "other").map_or(0.0, |of| exact(of, "locked_instructions_count"));
        assert_eq!(of_preloaded, added, "{with_more:#}");
        assert_eq!(owner(plain, "other"), None);
    }
    // A resumed handshake has no certificate and signature; whatever the version of OpenSSL, both take locks.
    let [full, resumed] = [0, 1].map(|number| exact(step(0, number), "read_locks_count"));
    assert!(full > 0.0 && resumed > 0.0, "{full} and {resumed}");
    let sites = step(1, 0)["sites"].as_array().unwrap();
    let is_added = |site: &&Value| site["object"] == "locking.so" && site["function"] == "SSL_new";
    assert_eq!(sites.iter().filter(is_added).count(), 2, "{sites:#?}");
}

#[test]
fn what_cannot_be_counted_is_refused_in_one_sentence() {
    let place = Place::new();
    let command = ["cost", "--server-command", "nginx", "--address", "127.0.0.1:{port}", "--locks"];
    let refused = |more: &[&str], why: &str| {
        let output = place.tlsdyno(&[&command, more].concat()).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.code() == Some(2) && said.contains(why), "{more:?}: {said}");
    };
    refused(&["--against", "https://127.0.0.1:1/"], "--against-command");
    refused(&["--page", "/large"], "leave them or --locks out");
    refused(&["--against-command", "nginx"], "--against-address");
}
