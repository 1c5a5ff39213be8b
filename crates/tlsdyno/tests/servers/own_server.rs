//! A server as its operator has it: an installed nginx in a distribution's layout, and two builds of a server.

use crate::place;

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use place::Place;
use rustix::fs::{FileType, Mode};
use serde_json::Value;
use tlsdyno::exchange::{exchange, get};
use tlsdyno::model::CertificateKind;
use tlsdyno::process_tree;
use tlsdyno::run::preflight::compile;
use tlsdyno::servers::{ServerSpec, ServerTls, certificates};
use tlsdyno_tls::{Effort, Settings};

/// A shop in the layout of Debian: three servers (redirects, the shop, what its application answers), compression,
/// includes by pattern and with relative names, ports that belong to somebody else.
fn shop(at: &Path) {
    shop_with(at, CertificateKind::P256);
}

fn shop_with(at: &Path, certificate: CertificateKind) {
    let files = certificates::create(certificate, at).unwrap();
    let write = |name: &str, text: &str| {
        let path = at.join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    };
    fs::copy(&files.chain, at.join("shop.pem")).unwrap();
    fs::copy(&files.key, at.join("shop.key")).unwrap();
    write("mime.types", "types { text/html html; text/css css; }");
    write("staff", "me:{PLAIN}a secret\n");
    write("proxy_params", "proxy_set_header Host $host;");
    write("www/index.html", &"<p>An item of the shop</p>".repeat(200));
    write("www/site.css", &"p { margin: 0 }\n".repeat(500));
    write(
        "nginx.conf",
        "worker_processes auto;\npid /run/nginx.pid;\nerror_log /var/log/nginx/error.log;\n\
         events { worker_connections 768; }\nhttp {\n  include mime.types;\n  ssl_protocols TLSv1.2 TLSv1.3;\n\
         access_log /var/log/nginx/access.log;\n  gzip on;\n  gzip_types text/css;\n  include sites-enabled/*;\n}\n",
    );
    let www = at.join("www");
    let site = format!(
        "server {{ listen 80 default_server; return 301 https://$host$request_uri; }}\n\
         server {{ listen 443 ssl default_server; server_name shop.example; root {};\n\
         ssl_certificate shop.pem; ssl_certificate_key shop.key;\n\
         auth_basic shop; auth_basic_user_file staff;\n\
         location /app/ {{ include proxy_params; proxy_pass http://127.0.0.1:9000/; }} }}\n",
        www.display()
    );
    write("sites-enabled/shop", &site);
    write("sites-enabled/app", "server { listen 127.0.0.1:9000; location / { return 200 \"cart of $arg_user\\n\"; } }");
    for entry in [at, &www] {
        fs::set_permissions(entry, fs::Permissions::from_mode(0o755)).unwrap();
    }
}

#[test]
fn an_installed_nginx_is_measured_in_one_command() {
    let place = Place::new();
    let site = place.path().join("etc");
    fs::create_dir(&site).unwrap();
    shop(&site);
    let before = fs::read_to_string(site.join("sites-enabled/shop")).unwrap();
    let paths = place.path().join("paths.txt");
    fs::write(&paths, "https://shop.example/\n/site.css\n\n# what the application answers\n/app/?user=7\n/none 404\n")
        .unwrap();
    let (config, paths) = (site.join("nginx.conf").display().to_string(), paths.display().to_string());
    let password = "Authorization: Basic bWU6YSBzZWNyZXQ=";
    let arguments =
        ["ablate", "--server-config", &config, "--paths", &paths, "--stages", "authentication", "-H", password];
    let output = place.tlsdyno(&[&arguments[..], &["--time", "4", "--json", "--no-report"]].concat()).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    let result = place::measured(&output);
    let manifest = &result["manifest"];
    let of = |name: &str| manifest[name].as_str().unwrap_or_default().to_owned();
    assert!(of("certificate").starts_with("p-256 "), "as the client saw it, not the flag's: {manifest}");
    assert!(of("server_version").contains("nginx/"), "{manifest}");
    assert!(of("workload").contains("/app/?user=7") && of("workload").contains("shop.example"), "{manifest}");
    let written = manifest["server_config"]["configuration"].as_str().unwrap();
    assert!(written.contains("proxy_pass …;") && written.contains("ssl_certificate /"), "{written}");
    assert!(!written.contains("/var/log"), "{written}");
    assert!(!String::from_utf8_lossy(&output.stdout).contains("bWU6"), "a password is in the record");
    assert!(said.contains("Measured: shop.example of"), "{said}");
    let names: Vec<&str> =
        result["configurations"].as_array().unwrap().iter().filter_map(|one| one["name"].as_str()).collect();
    assert!(names.contains(&"plain HTTP"), "the same objects without TLS: {names:?}");
    assert_eq!(fs::read_to_string(site.join("sites-enabled/shop")).unwrap(), before);
}

/// A certificate of another kind is put into the copy of an installed server; on a server that has no place for it, it
/// is refused; and where it only seems to have one, the preflight sees that it is not there.
#[test]
fn another_certificate_of_an_own_server_is_applied_or_refused() {
    let place = Place::new();
    let site = place.path().join("etc");
    fs::create_dir(&site).unwrap();
    shop_with(&site, CertificateKind::Rsa2048);
    let experiment = |name: &str, server: &str| {
        let path = place.path().join(name);
        let text = format!(
            "question = \"ECDSA?\"\n[server]\nkind = \"command\"\naddress = \"127.0.0.1:{{port}}\"\n{server}\n\
             [server.client]\nheaders = [\"Authorization: Basic bWU6YSBzZWNyZXQ=\"]\n\
             [workload]\nkind = \"url\"\npath = \"/\"\nusers = 2000\nrequests_per_user = 1\n\
             [measure]\ntime_s = 3.0\n[[configuration]]\nname = \"as is\"\n\
             [[configuration]]\nname = \"ECDSA\"\ntls = {{ certificate = \"p-256\" }}\n"
        );
        fs::write(&path, text).unwrap();
        let output = place.tlsdyno(&["run", &path.display().to_string(), "--json", "--no-report"]).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        println!("{said}");
        (output.status, said, serde_json::from_slice::<Value>(&output.stdout).unwrap_or_default())
    };
    // What a client saw of each configuration, passed or failed.
    let seen = |result: &Value, name: &str| {
        let configurations = result["configurations"].as_array().unwrap();
        let of = configurations.iter().find(|of| of["name"] == name).unwrap_or_else(|| panic!("{result}"));
        (of["valid"].as_bool().unwrap(), of["preflight"].to_string() + &of["warnings"].to_string())
    };

    let config = site.join("nginx.conf").display().to_string();
    let copy = format!("command = \"nginx\"\nconfig = \"{config}\"\nhost = \"shop.example\"");
    let (_, said, result) = experiment("copy.toml", &copy);
    // A client of the preflight saw each certificate.
    assert!(seen(&result, "as is").0 && seen(&result, "ECDSA").0, "{said} {result}");

    let own = |comment: &str| {
        let www = site.join("www");
        let text = format!(
            "daemon off; pid {{dir}}/nginx.pid; error_log stderr; {comment}\nevents {{}}\n\
             http {{ access_log off; server {{\n\
             listen 127.0.0.1:{{port}} ssl; ssl_protocols TLSv1.2 TLSv1.3; root {};\n\
             ssl_certificate {}; ssl_certificate_key {}; }} }}\n",
            www.display(),
            site.join("shop.pem").display(),
            site.join("shop.key").display()
        );
        let path = place.path().join("own.conf");
        fs::write(&path, text).unwrap();
        format!("command = \"nginx -p {{dir}} -e stderr -c {}\"", path.display())
    };
    let (status, said, _) = experiment("own.toml", &own(""));
    let wanted = "`tls.certificate` has no effect here: the certificate of a server of your own stands in its own";
    assert!(!status.success() && said.contains(wanted) && said.contains("server_command"), "{said}");

    let (_, said, result) = experiment("vacuous.toml", &own("# {certificate} {key}"));
    let (valid, text) = seen(&result, "ECDSA");
    assert!(!valid && text.contains("asked for certificate p-256, negotiated rsa-2048"), "{said} {result}");
    assert!(seen(&result, "as is").0, "{said} {result}");
}

/// The first build, and one that burns CPU time for each page.
fn fast_and_slow() -> [String; 2] {
    let program = env!("CARGO_BIN_EXE_tlsdyno");
    let serve = "serve --docroot {docroot} --listen 127.0.0.1:{port} --certificate {certificate} --key {key}";
    [format!("{program} {serve}"), format!("{program} {serve} --transaction cpu:1ms")]
}

/// How comparing two builds ends, and all that it said.
fn compared(first: &str, second: &str, time: &str) -> (Option<i32>, String) {
    let output = Place::new().run(&["compare", "--run", first, "--run", second, "-d", time]);
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    (output.status.code(), text + &String::from_utf8_lossy(&output.stderr))
}

/// Which one is slower is judged on made-up records (`stats/compared.rs`).
#[test]
fn two_builds_are_compared_for_a_comment_and_for_bencher() {
    let ([fast, slow], place) = (fast_and_slow(), Place::new());
    let metrics = place.path().join("metrics.json");
    let shown = ["--markdown", "--bencher", metrics.to_str().unwrap(), "--report", "page.html"];
    let output = place.run(&[&["compare", "--run", &fast, "--run", &slow, "-d", "5s"][..], &shown].concat());
    let comment = String::from_utf8_lossy(&output.stdout);
    // 8: on a busy machine there may be too few rounds for a verdict.
    assert!([Some(0), Some(8), Some(10)].contains(&output.status.code()), "{output:?}");
    assert!(comment.contains("CPU time per hit") && comment.contains("\n| CPU per hit |"), "{comment}");
    assert!(!comment.contains("How it was measured"), "that is for the page: {comment}");
    assert!(fs::read_to_string(place.path().join("page.html")).unwrap().contains("How it was measured"));
    let metrics: Value = serde_json::from_slice(&fs::read(metrics).unwrap()).unwrap();
    let of = &metrics["tlsdyno"];
    assert!(of["cpu-per-hit"]["value"].as_f64().is_some_and(|ns| ns > 1e5), "{metrics}");
    assert!(of["cpu-per-hit-change-percent"]["value"].is_number(), "{metrics}");
}

/// A gate would otherwise let it pass for undecided.
#[test]
fn a_build_that_no_client_can_talk_to_is_not_undecided() {
    let place = Place::new();
    let nginx = |name: &str, line: &str| {
        let path = place.path().join(name);
        let text = format!(
            "daemon off; pid {{dir}}/pid; events {{}}\nhttp {{ access_log off; server {{ \
             listen 127.0.0.1:{{port}} ssl; root {{docroot}}; ssl_certificate {{certificate}}; \
             ssl_certificate_key {{key}}; ssl_protocols TLSv1.3; {line} }} }}"
        );
        fs::write(&path, text).unwrap();
        format!("nginx -p {{dir}} -e stderr -c {}", path.display())
    };
    let (good, deaf) = (nginx("good.conf", ""), nginx("deaf.conf", "ssl_ecdh_curve P-521;"));
    let output = place.run(&["compare", "--run", &good, "--run", &deaf, "-d", "3s", "--markdown"]);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.code() == Some(5) && said.contains("the second build failed its checks"), "{output:?}");
    let comment = String::from_utf8_lossy(&output.stdout);
    assert!(comment.contains("> warning: second: "), "{comment}");
}

#[test]
fn what_is_no_configuration_to_measure_is_refused_at_once() {
    let place = Place::new();
    let file = |name: &str, text: &str| {
        let path = place.path().join(name);
        fs::write(&path, text).unwrap();
        path.display().to_string()
    };
    let plain = file("plain.conf", "events {} http { server { listen 80; } }");
    let haproxy = file("haproxy.cfg", "global\n  daemon\n");
    let empty = file("empty.txt", "# nothing\n");
    let hosts = file("hosts.txt", "https://a/\nhttps://b/\n");
    for (arguments, word) in [
        (&["--server-config", &plain][..], "listens with TLS"),
        (&["--server-config", "/no/such.conf"][..], "/no/such.conf"),
        (&["--server-command", "x {port}", "--paths", &empty][..], "names no path"),
        (&["--server-command", "x {port}", "--paths", &hosts][..], "several hosts"),
        (&["--server", "nginx", "--paths", &hosts][..], "--server-config"),
        (&["--server-command", "nginx -p /no/site -c my.conf", "--path", "/"][..], "/no/site/my.conf, and there is no"),
        (&["--server-config", &haproxy][..], "speaks TLS"),
        (&["--server-config", &plain, "-H", "Host: x"][..], "--host"),
    ] {
        let output = place.tlsdyno(&[&["ablate"][..], arguments].concat()).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr).replace('\n', " ");
        assert!(!output.status.success() && said.contains(word), "{arguments:?}: {said}");
    }
}

/// `openssl s_server -WWW` answers as HTTP/1.0 does, and waits for the client's close_notify before it closes.
#[test]
fn an_answer_without_a_length_ends_with_close_notify() {
    let place = Place::new();
    let files = certificates::create(CertificateKind::P256, place.path()).unwrap();
    let (at, chain, key) = (place.docroot(), files.chain.display(), files.key.display());
    let serve = format!("openssl s_server -quiet -WWW -accept 127.0.0.1:{{port}} -cert {chain} -key {key}");
    let command = format!("sh -c 'cd {} && exec {serve}'", at.display());
    let instance = place.start(&place.command(&command, "127.0.0.1:{port}")).unwrap();
    let config = compile(&Settings { effort: Effort::Lean, ..Settings::default() }).unwrap();
    let answer = exchange(instance.address(), Some(&config), None, &get("/hello.txt", "", "localhost")).unwrap();
    assert!(answer.status == 200 && answer.response.ends_with(b"hello, world\n"));
    assert!(answer.handshake.is_some());
    instance.stop().unwrap();
}

#[test]
fn haproxy_gets_certificate_and_key_in_one_file() {
    let place = Place::new();
    let path = place.path().join("haproxy.cfg");
    let text = "defaults\n  mode http\n  timeout client 5s\n  timeout connect 5s\n  timeout server 5s\n\
                frontend site\n  bind 127.0.0.1:{port} ssl crt {pem}\n\
                \u{20} http-request return status 200 content-type text/plain string hello\n";
    fs::write(&path, text).unwrap();
    let tls = ServerTls::new(certificates::create(CertificateKind::P256, place.path()).unwrap());
    let command = place.command(&format!("haproxy -db -f {}", path.display()), "127.0.0.1:{port}");
    let instance = place.start(&ServerSpec { tls: Some(tls), ..command }).unwrap();
    let config = compile(&Settings { effort: Effort::Lean, ..Settings::default() }).unwrap();
    let answer = exchange(instance.address(), Some(&config), None, &get("/", "", "localhost")).unwrap();
    assert_eq!(answer.body(), b"hello");
    instance.stop().unwrap();
}

#[test]
fn a_server_that_no_configuration_can_be_measured_on_is_refused_once() {
    let place = Place::new();
    let tlsdyno = env!("CARGO_BIN_EXE_tlsdyno");
    let script = place.path().join("start.sh");
    let text = "for f in /proc/self/fd/*; do n=${f##*/}\n\
                if [ $n -gt 9 ] && [ $n -ne 255 ]; then eval \"exec $n>&-\"; fi; done\nexec \"$@\"\n";
    fs::write(&script, text).unwrap();
    let serve = format!("{tlsdyno} serve --docroot {{docroot}} --certificate {{certificate}} --key {{key}} --listen");
    for (command, says) in [
        (format!("bash {} {serve} 127.0.0.1:{{port}}", script.display()), "closes inherited descriptors"),
        (format!("env -u OPENSSL_CONF {serve} 127.0.0.1:{{port}}"), "did not read the OPENSSL_CONF"),
        (format!("{serve} 0.0.0.0:{{port}} --allow-insecure-listen"), "which other hosts can reach"),
    ] {
        let output = place.run(&["ablate", "--quick", "--no-report", "--server-command", &command]);
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(6), "{said}");
        assert_eq!(said.lines().last().unwrap().matches(says).count(), 1, "{said}");
        assert!(said.matches("starting and checking").count() <= 2, "{said}");
    }
}

/// A program that the server has started has its environment, but serves nobody: h2o's for stack traces is its child,
/// and Apache's for logs one of its master.
#[test]
fn helper_programs_are_no_workers() {
    let place = Place::new();
    let tlsdyno = env!("CARGO_BIN_EXE_tlsdyno");
    let certificate = certificates::create(CertificateKind::P256, place.path()).unwrap();
    let serve = "serve --docroot {docroot} --listen 127.0.0.1:{port} --certificate {certificate} --key {key}";
    for helper in ["sleep 60", "openssl rand -out fifo 8"] {
        let fifo = place.path().join("fifo");
        let _ = rustix::fs::mknodat(rustix::fs::CWD, &fifo, FileType::Fifo, Mode::from(0o600), 0);
        let helper = helper.replace("fifo", &fifo.display().to_string());
        let spec = place.command(&format!("sh -c '{helper} & exec {tlsdyno} {serve}'"), "127.0.0.1:{port}");
        let spec = ServerSpec { tls: Some(ServerTls::new(certificate.clone())), ..spec };
        let server = place.start(&spec).unwrap();
        let workers = server.worker_pids();
        let names: Vec<String> = workers.iter().map(|pid| process_tree::command_line(*pid)).collect();
        assert!(names.len() == 1 && names[0].contains(" serve "), "{names:?}");
        server.stop().unwrap();
    }
}

#[test]
fn a_server_that_resumes_nothing_is_measured_where_nothing_resumes() {
    let place = Place::new();
    let command = |docroot: &str| {
        let serve = "serve --certificate {certificate} --key {key} --listen 127.0.0.1:{port}";
        format!("{} {serve} --docroot {docroot} --no-tickets --no-session-cache", env!("CARGO_BIN_EXE_tlsdyno"))
    };
    let ablate = ["ablate", "--no-report", "--json", "--time", "2", "--stages", "authentication", "--server-command"];
    let own = command(place.docroot().to_str().unwrap());
    for version in ["1.2", "1.3"] {
        let output = place.run(&[&ablate[..], &[&own, "--path", "/hello.txt", "--tls", version]].concat());
        let told = &place::measured(&output)["configurations"];
        assert!(told.as_array().unwrap().iter().all(|one| one["handshakes_resumed"] == 0), "{told}");
    }
    let output = place.run(&[&ablate[..], &[&command("{docroot}")]].concat());
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.code() == Some(5) && said.contains("--reuse 0%"), "{said}");
}

mod long {
    use super::*;

    #[test]
    #[ignore = "a verdict on a quiet machine: make test-long"]
    fn the_slower_of_two_builds_is_found() {
        let [fast, slow] = fast_and_slow();
        let (code, text) = compared(&fast, &slow, "30s");
        assert!(code == Some(10) && text.contains("The second build is slower: CPU time per hit +"), "{text}");
        let (code, text) = compared(&slow, &fast, "30s");
        assert!(code == Some(0) && text.contains("The second build is faster: CPU time per hit -"), "{text}");
    }
}
