//! Installed configurations of HAProxy, Apache and lighttpd: the copy of each starts beside the original, answers as
//! that does with TLS and without, changes nothing of it, and gives advice.

use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tlsdyno::exchange::{exchange, get};
use tlsdyno::installed::{Installed, InstalledFile};
use tlsdyno::model::CertificateKind;
use tlsdyno::run::preflight::compile;
use tlsdyno::servers::certificates;
use tlsdyno::servers::{CommandSpec, Instance, ServerSpec};
use tlsdyno_tls::{Effort, Settings};

use crate::place::{self, Place};

/// Three sites of a server with TLS, in the file layout of its package. `AT` is the directory, `RSA` and `KEY` a
/// certificate.
struct Shop {
    main: &'static str,
    files: &'static [(&'static str, &'static str)],
    /// What a client is told of the copy.
    told: &'static [&'static str],
}

const HAPROXY: Shop = Shop {
    main: "haproxy.cfg",
    files: &[(
        "haproxy.cfg",
        "global\n  log /dev/log local0\n  chroot AT\n  stats socket AT/run/admin.sock mode 660 level admin\n  daemon\n\
        \x20 pidfile AT/run/haproxy.pid\n  crt-base AT\n  ssl-default-bind-options ssl-min-ver TLSv1.2 no-tls-tickets\n\
        defaults\n  log global\n  mode http\n  option httplog\n  timeout connect 5s\n  timeout client 50s\n\
            \x20 timeout server 50s\n\
        frontend web\n  bind *:80\n  bind :443,[::]:443 ssl crt both.pem alpn h2,http/1.1\n\
        \x20 http-request redirect scheme https unless { ssl_fc }\n\
            \x20 use_backend blog if { hdr(host) -i blog.example }\n\
        \x20 default_backend shop\n\
        frontend inner\n  bind 127.0.0.1:8404\n  http-request return status 200 content-type text/plain string shop\n\
        backend shop\n  server own 127.0.0.1:8404 check\n\
        backend blog\n  http-request return status 200 content-type text/plain string blog\n",
    )],
    told: &["Left out: chroot, daemon", "Into the copy's private directory: log"],
};

const APACHE: Shop = Shop {
    main: "apache2.conf",
    files: &[
        ("envvars", "export APACHE_LOG_DIR=AT/log$SUFFIX\nexport APACHE_PID_FILE=AT/run/apache2.pid\n"),
        (
            "apache2.conf",
            "DefaultRuntimeDir AT/run\nPidFile ${APACHE_PID_FILE}\nErrorLog ${APACHE_LOG_DIR}/error.log\n\
            User nobody\nGroup nogroup\n\
            IncludeOptional mods-enabled/*.load\nInclude ports.conf\n<Directory AT/www>\n Require all granted\n\
            </Directory>\n\
            LogFormat \"%h %l %u %t \\\"%r\\\" %>s %O\" common\nIncludeOptional sites-enabled/*.conf\n",
        ),
        (
            "mods-enabled/all.load",
            "<IfModule !mod_ssl.c>\nLoadModule ssl_module MODULES/mod_ssl.so\n</IfModule>\n\
            LoadModule mpm_event_module MODULES/mod_mpm_event.so\n\
            LoadModule socache_shmcb_module MODULES/mod_socache_shmcb.so\n\
            LoadModule authz_core_module MODULES/mod_authz_core.so\nLoadModule dir_module MODULES/mod_dir.so\n\
            LoadModule alias_module MODULES/mod_alias.so\n\
            SSLSessionCache shmcb:AT/run/ssl_scache(512000)\n",
        ),
        ("ports.conf", "Listen 80\n<IfModule ssl_module>\n Listen 443\n</IfModule>\n"),
        (
            "sites-enabled/0.conf",
            "<VirtualHost *:80>\n ServerName shop.example\n Redirect / https://shop.example/\n</VirtualHost>\n",
        ),
        (
            "sites-enabled/1.conf",
            "<VirtualHost *:443>\n ServerName shop.example\n DocumentRoot AT/www/shop\n SSLEngine on\n\
            \x20SSLCertificateFile RSA\n\
            SSLCertificateKeyFile KEY\n CustomLog ${APACHE_LOG_DIR}/shop.log common\n</VirtualHost>\n",
        ),
        (
            "sites-enabled/2.conf",
            "<IfModule mod_ssl.c>\n<VirtualHost *:443>\n ServerName blog.example\n DocumentRoot AT/www/blog\n\
            \x20SSLEngine on\n\
            SSLCertificateFile RSA\n SSLCertificateKeyFile KEY\n</VirtualHost>\n</IfModule>\n",
        ),
    ],
    told: &["Left out: VirtualHost *:80", "CustomLog, ErrorLog, SSLSessionCache"],
};

const LIGHTTPD: Shop = Shop {
    main: "lighttpd.conf",
    files: &[
        (
            "lighttpd.conf",
            "server.modules = ( \"mod_accesslog\", \"mod_redirect\" )\nserver.document-root = \"AT/www/shop\"\n\
            server.port = 80\n\
            server.errorlog = \"AT/log/error.log\"\nserver.username = \"nobody\"\n\
            server.pid-file = \"AT/run/lighttpd.pid\"\n\
            index-file.names = ( \"index.html\" )\ninclude \"conf-enabled/*.conf\"\n\
            $HTTP[\"scheme\"] == \"http\" { url.redirect = ( \"\" => \"https://${url.authority}${qsa}\" ) }\n",
        ),
        (
            "conf-enabled/10-ssl.conf",
            "server.modules += ( \"mod_openssl\" )\nssl.pemfile = \"AT/both.pem\"\n\
            $SERVER[\"socket\"] == \":443\" { ssl.engine = \"enable\" }\n\
            $SERVER[\"socket\"] == \"[::]:443\" { ssl.engine = \"enable\" }\n",
        ),
        (
            "conf-enabled/20-sites.conf",
            "accesslog.filename = \"AT/log/access.log\"\n\
            $HTTP[\"host\"] == \"blog.example\" { server.document-root = \"AT/www/blog\" }\n",
        ),
    ],
    told: &["accesslog.filename, server.errorlog", "Left out: redirects of http"],
};

/// Where the files of a shop are, and its main file.
fn install(shop: &Shop, at: &Path) -> PathBuf {
    let rsa = certificates::create(CertificateKind::Rsa2048, at).unwrap();
    let texts = [&rsa.chain, &rsa.key].map(|path| fs::read_to_string(path).unwrap());
    let write = |name: &str, text: &str| {
        let path = at.join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::set_permissions(path.parent().unwrap(), fs::Permissions::from_mode(0o755)).unwrap();
        fs::write(&path, text).unwrap();
    };
    for (name, text) in [("both.pem", texts.concat().as_str()), ("log/error.log", "old\n"), ("run/x.pid", "1\n")] {
        write(name, text);
    }
    for name in ["shop", "blog"] {
        write(&format!("www/{name}/index.html"), name);
    }
    let modules =
        ["/usr/lib/apache2/modules", "/usr/lib64/httpd/modules"].into_iter().find(|path| Path::new(path).exists());
    for (name, text) in shop.files {
        let text = text.replace("AT", at.to_str().unwrap()).replace("MODULES", modules.unwrap_or_default());
        let [chain, key] = [&rsa.chain, &rsa.key].map(|path| path.to_str().unwrap());
        write(name, &text.replace("RSA", chain).replace("KEY", key));
    }
    at.join(shop.main)
}

/// Every file and directory below, with what any use of it would change.
fn state(at: &Path) -> Vec<String> {
    let mut all = Vec::new();
    for entry in fs::read_dir(at).unwrap().flatten() {
        let (path, is) = (entry.path(), entry.metadata().unwrap());
        let times = [is.mtime(), is.mtime_nsec(), is.ctime(), is.ctime_nsec()];
        all.push(format!(
            "{} {} {} {:o} {} {} {times:?}",
            path.display(),
            is.ino(),
            is.len(),
            is.mode(),
            is.uid(),
            is.gid()
        ));
        if is.is_dir() {
            all.extend(state(&path));
        }
    }
    all.sort();
    all
}

/// A copy that runs.
fn started(place: &Place, installed: &Installed, main: &Path, host: Option<String>) -> Instance {
    let program = installed.program().unwrap().display().to_string();
    let command = CommandSpec {
        command: program.clone(),
        address: "127.0.0.1:{port}".to_owned(),
        plain_address: Some("127.0.0.1:{plain_port}".to_owned()),
        original: Some(Arc::new(InstalledFile {
            path: main.to_owned(),
            program,
            host,
            replays: installed.replays,
            ..InstalledFile::default()
        })),
    };
    place.start(&ServerSpec::of_command(command, place.docroot())).unwrap()
}

fn answers_as_installed(shop: &Shop) {
    let place = Place::new();
    let site = tempfile::tempdir_in(place.path()).unwrap();
    fs::set_permissions(site.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let main = install(shop, site.path());
    let before = state(site.path());
    let installed = Installed::read(&main, None).unwrap();
    let told = installed.effects().unwrap().join("\n");
    for said in shop.told {
        assert!(told.contains(said), "{said} is not in\n{told}");
    }
    for (asked, body) in [(None, "shop"), (Some("blog.example"), "blog")] {
        let host = installed.site.choice(asked).host;
        let instance = started(&place, &installed, &main, host.clone());
        let host = host.unwrap_or_else(|| "shop.example".to_owned());
        let settings = Settings { server_name: Some(host.clone()), effort: Effort::Lean, ..Settings::default() };
        let request = get("/", "", &host);
        let answer = exchange(instance.address(), Some(&compile(&settings).unwrap()), None, &request).unwrap();
        let plain = exchange(instance.plain_address().unwrap(), None, None, &request).unwrap();
        for (answer, how) in [(answer, "with TLS"), (plain, "without")] {
            let text = String::from_utf8_lossy(&answer.response);
            assert_eq!(answer.body(), body.as_bytes(), "{}, {how}: {text}", shop.main);
        }
        instance.stop().unwrap();
    }
    assert_eq!(state(site.path()), before, "of the installed server something was changed");
}

/// Servers before an application at `127.0.0.1:PORT`.
const BEFORE_AN_APPLICATION: [Shop; 4] = [
    Shop {
        main: "nginx.conf",
        files: &[(
            "nginx.conf",
            "events {}\nhttp { upstream app { server 127.0.0.1:PORT; keepalive 4; }\n\
            server { listen 443 ssl; ssl_certificate RSA; ssl_certificate_key KEY;\n\
            location / { proxy_pass http://app; } } }\n",
        )],
        told: &["127.0.0.1:PORT (upstream)"],
    },
    Shop {
        main: "haproxy.cfg",
        files: &[(
            "haproxy.cfg",
            "defaults\n  mode http\n  timeout connect 5s\n  timeout client 50s\n  timeout server 50s\n\
            frontend web\n  bind :443 ssl crt AT/both.pem\n  default_backend app\n\
            backend app\n  server app 127.0.0.1:PORT check\n",
        )],
        told: &["127.0.0.1:PORT (server)"],
    },
    Shop {
        main: "apache2.conf",
        files: &[(
            "apache2.conf",
            "LoadModule ssl_module MODULES/mod_ssl.so\nLoadModule mpm_event_module MODULES/mod_mpm_event.so\n\
            LoadModule authz_core_module MODULES/mod_authz_core.so\nLoadModule proxy_module MODULES/mod_proxy.so\n\
            LoadModule proxy_http_module MODULES/mod_proxy_http.so\nServerName shop.example\nListen 443\n\
            <VirtualHost *:443>\n ServerName shop.example\n SSLEngine on\n SSLCertificateFile RSA\n\
            \x20SSLCertificateKeyFile KEY\n ProxyPass / http://127.0.0.1:PORT/\n</VirtualHost>\n",
        )],
        told: &["127.0.0.1:PORT (ProxyPass)"],
    },
    Shop {
        main: "lighttpd.conf",
        files: &[(
            "lighttpd.conf",
            "server.modules = ( \"mod_proxy\", \"mod_openssl\" )\nserver.document-root = \"AT/www/shop\"\n\
            server.port = 80\nssl.pemfile = \"AT/both.pem\"\n\
            $SERVER[\"socket\"] == \":443\" { ssl.engine = \"enable\" }\n\
            proxy.server = ( \"\" => ( ( \"host\" => \"127.0.0.1\", \"port\" => PORT ) ) )\n",
        )],
        told: &["127.0.0.1:PORT (proxy.server)"],
    },
];

/// However often they are asked, the application behind them is asked once.
#[test]
fn answers_of_an_application_are_replayed() {
    for shop in BEFORE_AN_APPLICATION {
        let place = Place::new();
        let site = tempfile::tempdir_in(place.path()).unwrap();
        fs::set_permissions(site.path(), fs::Permissions::from_mode(0o755)).unwrap();
        let main = install(&shop, site.path());
        let asked = Arc::new(AtomicUsize::new(0));
        let port = application(asked.clone()).port().to_string();
        fs::write(&main, fs::read_to_string(&main).unwrap().replace("PORT", &port)).unwrap();
        let installed = Installed::read(&main, None).unwrap();
        let told = installed.effects().unwrap().join("\n");
        let said = format!("then replayed from memory: {}", shop.told[0].replace("PORT", &port));
        assert!(told.contains(&said), "{said} is not in\n{told}");
        let instance = started(&place, &installed, &main, None);
        for _ in 0..3 {
            let request = get("/page", "", "shop.example");
            let settings = Settings { effort: Effort::Lean, ..Settings::default() };
            let answer = exchange(instance.address(), Some(&compile(&settings).unwrap()), None, &request).unwrap();
            let text = String::from_utf8_lossy(&answer.response);
            assert_eq!(answer.body(), b"of the application", "{}: {text}", shop.main);
        }
        assert_eq!(asked.load(Ordering::Relaxed), 1, "{}", shop.main);
        instance.stop().unwrap();
    }
}

/// It counts the requests for its page. Whether it is there is asked otherwise.
fn application(asked: Arc<AtomicUsize>) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let mut request = Vec::new();
            let mut piece = [0; 4096];
            while !request.ends_with(b"\r\n\r\n") {
                match stream.read(&mut piece) {
                    Ok(read @ 1..) => request.extend_from_slice(&piece[..read]),
                    _ => break,
                }
            }
            if request.windows(5).any(|word| word == b"/page") {
                asked.fetch_add(1, Ordering::Relaxed);
            }
            let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 18\r\n\r\nof the application");
        }
    });
    address
}

/// From the installed files to a decision, with nothing changed.
fn is_advised(shop: &Shop, line: &str) {
    let place = Place::new();
    let site = tempfile::tempdir_in(place.path()).unwrap();
    fs::set_permissions(site.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let main = install(shop, site.path());
    // One that runs from these files: a copy, because tests have no port 443.
    let installed = Installed::read(&main, None).unwrap();
    let instance = started(&place, &installed, &main, installed.site.choice(None).host);
    // Apache listens before it begins the processes that answer.
    let mut running = place.running();
    loop {
        std::thread::sleep(Duration::from_millis(500));
        let before = std::mem::replace(&mut running, place.running());
        if before == running {
            break;
        }
    }
    let before = state(site.path());
    assert!(!running.is_empty());
    let main = main.to_str().unwrap();
    let copy = place.run(&["ablate", "--server-config", main, "--print-config"]);
    let copy = String::from_utf8_lossy(&copy.stdout).into_owned();
    assert!(copy.contains("127.0.0.1:4443") && copy.contains("/the/private/directory/"), "{copy}");
    let output = place.run(&["advise", main, "--rate", "3000", "--time", "4", "--markdown", "--no-report"]);
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{said}{}", String::from_utf8_lossy(&output.stderr));
    // On a busy machine no round may be complete, which is said; the lines stand there in any case.
    let answers = ["At your 3000 hits/s this server takes", "Nothing could be compared"];
    assert!(answers.iter().any(|answer| said.contains(answer)), "{said}");
    let parts = ["| ECDSA P-256 certificate | ", line];
    assert!(parts.iter().all(|part| said.contains(part)), "{said}");
    assert!(said.lines().count() <= 10, "{said}");
    assert!(!said.contains("nginx"), "{said}");
    assert_eq!(state(site.path()), before, "of the installed server something was changed");
    // What ends is there for a moment more.
    place::eventually("it runs as before, and nothing else does", || place.running() == running);
    instance.stop().unwrap();
}

#[test]
fn haproxy_answers_as_the_installed_one() {
    answers_as_installed(&HAPROXY);
}

#[test]
fn apache_answers_as_the_installed_one() {
    answers_as_installed(&APACHE);
}

#[test]
fn lighttpd_answers_as_the_installed_one() {
    answers_as_installed(&LIGHTTPD);
}

#[test]
fn haproxy_is_advised() {
    is_advised(&HAPROXY, "bind :443 ssl crt /etc/ssl/site.pem crt /etc/ssl/site-second.pem");
}

#[test]
fn apache_is_advised() {
    is_advised(&APACHE, "SSLCertificateFile /etc/ssl/site-second.pem");
}

#[test]
fn lighttpd_is_advised() {
    is_advised(&LIGHTTPD, "ssl.pemfile = \"/etc/ssl/site.pem\"");
}
