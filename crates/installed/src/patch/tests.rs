use std::fs;
use std::process::{Command, Stdio};

use tlsdyno_record::model::{CertificateKind, SessionCache};

use super::*;
use crate::Installed;

/// The files of a server, patched by `patch` itself.
fn patched(server: ServerName, files: &[(&str, &str)], settings: &[Setting]) -> (tempfile::TempDir, Vec<String>) {
    let place = tempfile::tempdir().unwrap();
    for (name, text) in files {
        let path = place.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }
    let text = patch(&place.path().join(files[0].0), server, None, settings).unwrap();
    let file = place.path().join("tls.patch");
    fs::write(&file, &text.bytes).unwrap();
    let done = Command::new("patch")
        .args(["--batch", "-p1", "-d", "/", "-i"])
        .arg(&file)
        .stdout(Stdio::null())
        .status()
        .unwrap();
    assert!(done.success(), "{}", String::from_utf8_lossy(&text.bytes));
    assert!(text.tried.starts_with("read again"), "{}", text.tried);
    let read = |(name, _): &(&str, &str)| fs::read_to_string(place.path().join(name)).unwrap();
    let texts = files.iter().map(read).collect();
    (place, texts)
}

const SETTINGS: [Setting; 4] = [
    Setting::Certificate(CertificateKind::P256),
    Setting::AlsoTls13,
    Setting::Tickets(true),
    Setting::SessionCache(SessionCache::Shared),
];

#[test]
fn lines_take_the_place_of_those_that_say_the_same() {
    let main = "events {}\nhttp {\n    ssl_protocols TLSv1.2;\n    include sites/*;\n}\n";
    let site = "server {\n    listen 443 ssl;\n    listen [::]:443 ssl;\n    ssl_certificate /a.pem;\n\
        \x20   ssl_certificate_key\n\
        \x20       /a.key;\n    root /x;\n}\nserver {\n    listen 443 ssl;\n    ssl_certificate /b.pem;\n\
        \x20   ssl_certificate_key /b.key;\n}\n";
    let (place, texts) = patched(ServerName::Nginx, &[("nginx.conf", main), ("sites/a", site)], &SETTINGS);
    assert_eq!(texts[0], main.replace("TLSv1.2", "TLSv1.2 TLSv1.3"));
    assert_eq!(texts[1].matches("ssl_certificate /etc/ssl/site.pem;").count(), 2, "{}", texts[1]);
    assert_eq!(texts[1].matches("ssl_session_tickets on;").count(), 2, "{}", texts[1]);
    assert!(!texts[1].contains("/a.") && !texts[1].contains("/b.") && texts[1].contains("# openssl ecparam"));
    let facts = Installed::read(&place.path().join("nginx.conf"), None).unwrap().site.facts(None);
    assert_eq!(
        (facts.protocols, facts.session_cache.as_str()),
        (vec!["TLSv1.2".to_owned(), "TLSv1.3".to_owned()], "shared:SSL:10m")
    );
}

#[test]
fn a_certificate_goes_to_the_site_that_is_asked_about() {
    let nginx = "events {}\nhttp {\nserver { listen 443 ssl; server_name a.b; ssl_certificate /a.pem; \
                 ssl_certificate_key /a.key; }\nserver { listen 443 ssl; server_name x.b c.d; ssl_certificate /c.pem; \
                 ssl_certificate_key /c.key; }\n}\n";
    let apache = "<VirtualHost *:443>\nServerName a.b\nSSLEngine on\nSSLCertificateFile /a.pem\n</VirtualHost>\n\
                  <VirtualHost *:443>\nServerName x.b\nServerAlias C.D\nSSLEngine on\nSSLCertificateFile /c.pem\n\
                  </VirtualHost>\n";
    for (server, text) in [(ServerName::Nginx, nginx), (ServerName::ApacheEvent, apache)] {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("site.conf");
        fs::write(&path, text).unwrap();
        let told = |host| {
            let patch = patch(&path, server, host, &SETTINGS[..1]).unwrap();
            String::from_utf8(patch.bytes).unwrap()
        };
        let (of_one, of_all) = (told(Some("c.d")), told(None));
        let gone =
            |patch: &str| ["/a.pem", "/c.pem"].map(|it| patch.lines().any(|of| of.starts_with('-') && of.contains(it)));
        assert_eq!((gone(&of_one), gone(&of_all)), ([false, true], [true, true]), "{server}: {of_one}");
    }
}

#[test]
fn apache_haproxy_and_lighttpd_have_their_own_places() {
    let main = "ServerRoot /x\nListen 443\n<VirtualHost *:443>\n  SSLEngine on\n\
        \x20 SSLCertificateFile /a.pem\n</VirtualHost>\n";
    let (place, _) = patched(ServerName::ApacheEvent, &[("apache2.conf", main)], &SETTINGS);
    let facts = Installed::read(&place.path().join("apache2.conf"), None).unwrap().site.facts(None);
    assert_eq!(
        (facts.certificates.concat().as_str(), facts.protocols.concat().as_str()),
        ("/etc/ssl/site.pem", "TLSv1.2TLSv1.3")
    );
    assert_eq!(facts.session_cache, "shared: shmcb");

    let main = "global\n  ssl-default-bind-options no-tls-tickets ssl-min-ver TLSv1.2\n\
        \x20 tune.ssl.cachesize 0\nfrontend x\n\
        \x20 bind :443 ssl crt /a.pem alpn h2 # here\n  default_backend y\n";
    let (place, texts) = patched(ServerName::Haproxy, &[("haproxy.cfg", main)], &SETTINGS);
    let facts = Installed::read(&place.path().join("haproxy.cfg"), None).unwrap().site.facts(None);
    assert_eq!((facts.certificates.concat().as_str(), facts.tickets, facts.http2), ("/etc/ssl/site.pem", true, true));
    assert_eq!(
        (facts.protocols.concat().as_str(), facts.session_cache.as_str()),
        ("TLSv1.2TLSv1.3", "shared: 20000 blocks"),
        "{}",
        texts[0]
    );

    let main = "server.port = 80\nssl.pemfile = \"/a.pem\"\n\
        $SERVER[\"socket\"] == \":443\" {\n\
        \x20 ssl.engine = \"enable\"\n}\n";
    let (_place, texts) = patched(ServerName::Lighttpd, &[("lighttpd.conf", main)], &SETTINGS);
    let text = &texts[0];
    assert!(text.contains("ssl.pemfile = \"/etc/ssl/site.pem\"") && text.contains("MinProtocol"), "{text}");
    assert!(text.contains("server.feature-flags += (\"ssl.session-cache\" => \"enable\")"), "{text}");
}

#[test]
fn a_patch_of_nothing_is_refused() {
    let place = tempfile::tempdir().unwrap();
    let path = place.path().join("nginx.conf");
    fs::write(&path, "http {}\n").unwrap();
    let refused = patch(&path, ServerName::Nginx, None, &SETTINGS).unwrap_err().to_string();
    assert!(refused.contains("no line"), "{refused}");
}

fn nginx(text: &str, settings: &[Setting]) -> String {
    patched(ServerName::Nginx, &[("nginx.conf", text)], settings).1.remove(0)
}

#[test]
fn what_stands_beside_a_changed_directive_stays() {
    let site = "http {\n  server {\n    listen 443 ssl; server_name a.example;\n\
        \x20   ssl_certificate /a.pem; ssl_certificate_key /a.key; add_header X-A b; client_max_body_size 7m;\n\
        \x20   root /w; ssl_protocols TLSv1.2; index x.html;\n  }\n}\n";
    let wanted = "http {\n  server {\n    listen 443 ssl; server_name a.example;\n    ssl_session_tickets off;\n    \
        # openssl ecparam -name prime256v1 -genkey -noout -out site.key, then a certificate for it \
        from your authority\n\
        \x20   ssl_certificate /etc/ssl/site.pem; ssl_certificate_key /etc/ssl/site.key; add_header X-A b; \
        client_max_body_size 7m;\n    root /w; ssl_protocols TLSv1.2 TLSv1.3; index x.html;\n  }\n}\n";
    let settings = [Setting::Certificate(CertificateKind::P256), Setting::AlsoTls13, Setting::Tickets(false)];
    assert_eq!(nginx(site, &settings), wanted);
    // A whole server in one line.
    let site = "http { server { listen 443 ssl; ssl_session_tickets off; root /x; } }\n";
    let wanted =
        "http { server { listen 443 ssl; ssl_protocols TLSv1.2 TLSv1.3; ssl_session_tickets on; root /x; } }\n";
    assert_eq!(nginx(site, &[Setting::AlsoTls13, Setting::Tickets(true)]), wanted);
}

#[test]
fn lines_stand_once_in_each_server_that_needs_them() {
    let site = "http {\n  server {\n    listen 443 ssl default_server;\n    # between\n\
        \x20   listen [::]:443 ssl default_server;\n  }\n  server {\n    listen 443 ssl;\n    ssl_protocols TLSv1.1;\n\
        \x20 }\n  server {\n    listen 80;\n  }\n}\nstream {\n\
        \x20 server {\n    listen 1 ssl;\n    ssl_protocols TLSv1.2;\n  }\n}\n";
    let wanted = site.replace(
        "[::]:443 ssl default_server;\n",
        "[::]:443 ssl default_server;\n    ssl_protocols TLSv1.2 TLSv1.3;\n",
    );
    assert_eq!(nginx(site, &[Setting::AlsoTls13]), wanted.replace("TLSv1.1", "TLSv1.2 TLSv1.3"));
    // What a file says that both include is said once.
    let main = "http {\n server {\n  listen 443 ssl;\n  include tls;\n }\n server {\n\
        \x20 listen 444 ssl;\n  include tls;\n }\n}\n";
    let files = [("nginx.conf", main), ("tls", "ssl_protocols TLSv1.2; # old\n")];
    let (_place, texts) = patched(ServerName::Nginx, &files, &[Setting::AlsoTls13]);
    assert_eq!(texts, [main, "ssl_protocols TLSv1.2 TLSv1.3; # old\n"]);
}

#[test]
fn lists_of_lighttpd_have_a_key_once() {
    let site = "server.modules = (\"mod_openssl\")\nssl.pemfile = \"/a.pem\"\n\
        $SERVER[\"socket\"] == \":443\" { ssl.engine = \"enable\" }\n\
        ssl.openssl.ssl-conf-cmd = (\"MinProtocol\" => \"TLSv1.3\", # newest\n\
        \x20 \"Options\" => \"-SessionTicket,ServerPreference\")\n\
        server.feature-flags = (\"server.h2proto\" => \"enable\")\n";
    let settings = [Setting::AlsoTls13, Setting::Tickets(true), Setting::SessionCache(SessionCache::Shared)];
    let (_place, texts) = patched(ServerName::Lighttpd, &[("lighttpd.conf", site)], &settings);
    let wanted =
        site.replace("TLSv1.3", "TLSv1.2").replace("-SessionTicket,ServerPreference", "ServerPreference,SessionTicket")
            + "server.feature-flags += (\"ssl.session-cache\" => \"enable\")\n";
    assert_eq!(texts[0], wanted);
    // A comment in a list, and no end of the last line.
    let site = "ssl.pemfile = \"/a.pem\"\n$SERVER[\"socket\"] == \":443\" { ssl.engine = \"enable\" }\n\
        ssl.openssl.ssl-conf-cmd = (\n  # don't (yet)\n  \"MinProtocol\" => \"TLSv1.3\")";
    let (_place, texts) =
        patched(ServerName::Lighttpd, &[("lighttpd.conf", site)], &[settings[0].clone(), settings[2].clone()]);
    let cache = "\nserver.feature-flags += (\"ssl.session-cache\" => \"enable\")\n";
    assert_eq!(texts[0], site.replace("TLSv1.3", "TLSv1.2") + cache);
}

#[test]
fn lines_of_haproxy_keep_their_comments_and_parameters() {
    let site = "global\n  zero-warning\n  ssl-default-bind-options no-sslv3 no-tlsv10 no-tls-tickets # old\n\
        frontend x\n\
        \x20 mode http\n  timeout client 1s\n  bind :443 ssl crt /a.pem alpn h2 # here\n\
        \x20 bind :444 ssl crt '/b c.pem' no-tlsv11\n  bind :80\n";
    let settings = [Setting::AlsoTls13, Setting::Tickets(true), Setting::SessionCache(SessionCache::Shared)];
    let text =
        |site: &str, settings: &[Setting]| patched(ServerName::Haproxy, &[("haproxy.cfg", site)], settings).1.remove(0);
    let wanted = site
        .replace("ssl-default-bind-options no-sslv3 no-tlsv10 no-tls-tickets # old", "# old")
        .replace("alpn h2 # here", "alpn h2 ssl-min-ver TLSv1.2 # here")
        .replace("'/b c.pem' no-tlsv11", "'/b c.pem' ssl-min-ver TLSv1.2");
    assert_eq!(text(site, &settings), wanted.replace("global\n", "global\n    tune.ssl.cachesize 20000\n"));
    let with_certificate = text(site, &[Setting::Certificate(CertificateKind::P256)]);
    assert!(
        with_certificate.contains("crt /etc/ssl/site.pem    # certificate and key in one file\n"),
        "{with_certificate}"
    );
    assert!(with_certificate.contains("# here"), "{with_certificate}");
    let off = text(site, &[Setting::SessionCache(SessionCache::Off)]);
    assert_eq!(off, site.replace("global\n", "global\n    tune.ssl.cachesize 0\n"));
}

#[test]
fn branches_of_apache_that_are_not_taken_stay_as_they_are() {
    let site = "Listen 443\n<VirtualHost *:443>\n  SSLEngine on\n\
        \x20 <IfModule mod_gnutls.c>\n    SSLProtocol TLSv1.2\n  </IfModule>\n\
        </VirtualHost>\n<IfDefine NOPE>\n<VirtualHost *:444>\n  SSLEngine on\n</VirtualHost>\n</IfDefine>\n";
    let (_place, texts) = patched(ServerName::ApacheEvent, &[("apache2.conf", site)], &[Setting::AlsoTls13]);
    assert_eq!(texts[0], site.replacen("SSLEngine on\n", "SSLEngine on\n  SSLProtocol -all +TLSv1.2 +TLSv1.3\n", 1));
}

#[test]
fn more_than_the_remedy_is_never_changed() {
    let part = |name: &str, says: &str| Part { name: name.to_owned(), says: says.to_owned(), ..Part::default() };
    let new = new_of(ServerName::Nginx, &Setting::AlsoTls13);
    let [before, same] =
        [[part("ssl_protocols", "a"), part("root", "/x")], [part("ssl_protocols", "b"), part("root", "/x")]];
    assert_eq!(apart_from(&new, &before), apart_from(&new, &same));
    assert_ne!(apart_from(&new, &before), apart_from(&new, &same[..1]));
}

/// A second certificate stands beside the first, and a list of certificates is nothing that one takes the place of.
#[test]
fn certificates_that_are_there_stay() {
    use tlsdyno_servers::directives::CertificateFile;

    let also = [Setting::AlsoCertificate(CertificateFile::example(CertificateKind::P256))];
    let site = "http {\n  ssl_certificate /a.pem;\n  ssl_certificate_key /a.key;\n  server {\n    listen 443 ssl;\n\
        \x20   ssl_certificate /b.pem; ssl_certificate_key /b.key; root /w;\n  }\n\
        \x20 server {\n    listen 444 ssl;\n  }\n}\n";
    let text = nginx(site, &also);
    for line in ["/a.pem", "/a.key", "/b.pem", "/b.key"] {
        assert_eq!(text.matches(line).count(), 1, "{text}");
    }
    assert_eq!(text.matches("site-second.pem;").count(), 2, "those without their own have the one around them: {text}");
    let site = "global\nfrontend x\n  bind :443 ssl crt /a.pem alpn h2\n  bind :444 ssl crt-list /list # b\n";
    let path = |text: &str| {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("haproxy.cfg");
        fs::write(&path, text).unwrap();
        (place, path)
    };
    let (_place, texts) = patched(ServerName::Haproxy, &[("haproxy.cfg", site)], &also);
    assert_eq!(texts[0].matches("crt /etc/ssl/site-second.pem").count(), 2, "{}", texts[0]);
    assert!(texts[0].contains("crt /a.pem alpn") && texts[0].contains("crt-list /list crt"), "{}", texts[0]);
    for list in ["crt-list /list", "crt /a.pem crt /b.pem", "crt /etc/ssl"] {
        let (_place, path) = path(&site.replace("crt-list /list", list));
        let refused = patch(&path, ServerName::Haproxy, None, &SETTINGS[..1]).unwrap_err().to_string();
        assert!(refused.contains(&format!("bind :444 ssl {list}")), "{refused}");
    }
}

#[test]
fn what_closes_connections_goes_where_they_are_kept() {
    let site = "defaults\n  mode http\n  option httpclose # old\nfrontend x\n  timeout client 1s\n\
        \x20 bind :443 ssl crt /a.pem\n";
    let (_place, texts) = patched(ServerName::Haproxy, &[("haproxy.cfg", site)], &[Setting::KeepAlive(75)]);
    assert_eq!(texts[0], site.replace("option httpclose", "timeout http-keep-alive 75s"));
    let site = site.replace("  option httpclose # old\n", "");
    let (_place, texts) = patched(ServerName::Haproxy, &[("haproxy.cfg", &site)], &[Setting::KeepAlive(75)]);
    assert_eq!(texts[0], site.replace("frontend x\n", "frontend x\n    timeout http-keep-alive 75s\n"));
}

/// What the server's own test refuses is never printed, and a file that it refuses as it is is said to be refused.
#[test]
fn a_patch_that_the_server_refuses_is_refused() {
    if !rustix::process::geteuid().is_root() {
        return;
    }
    let place = tempfile::tempdir().unwrap();
    let files = tlsdyno_servers::certificates::create(CertificateKind::Rsa2048, place.path()).unwrap();
    let (chain, key) = (files.chain.display(), files.key.display());
    let path = place.path().join("nginx.conf");
    let site = format!(
        "events {{}}\nhttp {{ server {{ listen 443 ssl; ssl_certificate {chain}; ssl_certificate_key {key}; }} }}\n"
    );
    fs::write(&path, &site).unwrap();
    let groups = |list: &str| patch(&path, ServerName::Nginx, None, &[Setting::Groups(list.to_owned())]);
    assert!(groups("X25519").unwrap().tried.contains("accepts them"));
    let refused = groups("no-such-group").unwrap_err().to_string();
    assert!(refused.contains("refuses the patched files") && refused.contains("no-such-group"), "{refused}");
    fs::write(&path, site.replace("events {}", "events {} nonsense on;")).unwrap();
    assert!(groups("X25519").unwrap().tried.contains("and yours as they are"));
}
