use super::*;
use crate::Installed;
use tlsdyno_record::model::ServerName;

const PRINTED: &str = "config {\n    server.port = 80\n    server.modules = (\"mod_openssl\", \"mod_accesslog\")\n\
    server.errorlog = \"/var/log/lighttpd/error.log\"\n    server.username = \"www-data\"\n\
        \x20   server.document-root = \"/srv/shop\"\n\
    server.upload-dirs = (\"/var/cache/lighttpd/uploads\")\n\
    server.feature-flags = (\"server.h2proto\" => \"enable\")\n\
    accesslog.filename = \"/var/log/lighttpd/access.log\"\n    ssl.pemfile = \"/etc/lighttpd/server.pem\"\n\
    ssl.openssl.ssl-conf-cmd = (\"MinProtocol\" => \"TLSv1.2\", \"Options\" => \"-SessionTicket,ServerPreference\")\n\
    $SERVER[\"socket\"] == \"0.0.0.0:443\" {\n ssl.engine = \"enable\"\n } # end\n\
    $SERVER[\"socket\"] == \"[::]:443\" {\n ssl.engine = \"enable\"\n } # end\n\
    $SERVER[\"socket\"] == \"[::]:80\" {\n\n } # end\n\
    $HTTP[\"scheme\"] == \"http\" {\n url.redirect = (\"\" => \"https://x\")\n } # end\n\
    else $HTTP[\"host\"] == \"blog.example\" {\n ssl.pemfile = \"/b.pem\"\n ssl.ca-file = \"/b-ca.pem\"\n\
        \x20server.document-root = \"/srv/blog\"\n } # end\n\
    proxy.server = (\"/app\" => ((\"host\" => \"127.0.0.1\", \"port\" => 3000)))\n}\n";

fn installed(printed: &str) -> Installed {
    let site = Box::new(Lighttpd::parse(printed).unwrap());
    Installed { server: ServerName::Lighttpd, site, host: None, replays: false, may_load: Vec::new() }
}

#[test]
fn a_site_runs_beside_the_installed_one() {
    let text = installed(PRINTED).text(4443, 4080, Path::new("/run/here")).unwrap();
    for there in [
        "server.port = 4080\n",
        "server.bind = \"127.0.0.1\"\n",
        "$SERVER[\"socket\"] == \"127.0.0.1:4443\" {\n    ssl.engine = \"enable\"\n",
        "server.errorlog = \"/run/here/error.log\"\n",
        "accesslog.filename = \"/run/here/access.log\"\n",
        "server.upload-dirs = (\"/run/here\")\n",
        "ssl.pemfile = \"/etc/lighttpd/server.pem\"\n",
        "\n$HTTP[\"host\"] == \"blog.example\" {\n",
        "# Asked for real where the load leads there: 127.0.0.1:3000 (proxy.server)",
    ] {
        assert!(text.contains(there), "{there} is not in\n{text}");
    }
    for gone in [":443\"", ":80\"", "/var/log", "/var/cache", "url.redirect", "else"] {
        assert!(!text.contains(gone), "{gone} is in\n{text}");
    }
    // Where the main server speaks TLS, only its socket does in the copy.
    let text = installed("server.port = 443\nssl.engine = \"enable\"\n").text(1, 2, Path::new("/x")).unwrap();
    assert_eq!(text.matches("ssl.engine").count(), 1, "{text}");
}

#[test]
fn what_it_says_of_tls_is_read() {
    let installed = installed(PRINTED);
    let facts = installed.site.facts(None);
    assert_eq!(facts.certificates, ["/etc/lighttpd/server.pem"]);
    assert_eq!(facts.protocols, ["TLSv1.2", "TLSv1.3"]);
    assert_eq!((facts.session_cache.as_str(), facts.tickets, facts.http2), ("off", false, true));
    assert_eq!((facts.passes_on, facts.access_logs.len()), (Some(true), 1));
    let choice = installed.site.choice(None);
    assert_eq!((choice.host, choice.others), (None, vec!["blog.example".to_owned()]));
    assert_eq!(installed.site.documents(), [PathBuf::from("/srv/shop"), PathBuf::from("/srv/blog")]);
}

#[test]
fn what_is_asked_takes_the_place_of_what_stands_there() {
    use tlsdyno_record::model::CertificateKind;
    use tlsdyno_tls::Version;

    let place = tempfile::tempdir().unwrap();
    let at = crate::tests::instance(place.path());
    let files = tlsdyno_servers::certificates::create(CertificateKind::P256, place.path()).unwrap();
    let asked = TlsChange {
        certificate: Some(CertificateKind::P256),
        version: Some(Version::Tls13),
        tickets: Some(true),
        session_cache: Some(SessionCache::Shared),
        ..TlsChange::default()
    };
    let mut installed = installed(PRINTED);
    installed.change_tls(&asked, &ServerTls::new(files), at).unwrap();
    let text = installed.text(1, 2, Path::new("/x")).unwrap();
    for there in [
        "p-256.chain.pem\"",
        "\"MinProtocol\" => \"TLSv1.3\"",
        "\"MaxProtocol\" => \"TLSv1.3\"",
        "\"Options\" => \"ServerPreference,SessionTicket\"",
        "\"ssl.session-cache\" => \"enable\"",
        "\"server.h2proto\" => \"enable\"",
    ] {
        assert!(text.contains(there), "{there} is not in\n{text}");
    }
    for gone in ["/etc/lighttpd/server.pem", "/b.pem", "/b-ca.pem", "-SessionTicket"] {
        assert!(!text.contains(gone), "{gone} is in\n{text}");
    }
}

#[test]
fn what_reaches_others_is_the_copys_own_left_out_or_told() {
    let printed = PRINTED.replacen(
        "server.port = 80\n",
        "server.port = 80\n server.errorlog-use-syslog = \"enable\"\n accesslog.use-syslog = \"enable\"\n\
         dir-listing.cache = (\"path\" => \"/var/c\")\n fastcgi.server = (\".php\" => ((\"bin-path\" => \"/x/php\")))\n\
         strange.thing = \"secret\"\n vhostdb.mysql = (\"password\" => \"secret\")\n",
        1,
    );
    let installed = installed(&printed);
    let text = installed.text(4443, 4080, Path::new("/run/here")).unwrap();
    for there in [
        "accesslog.filename = \"/run/here/access.log\"\n",
        "server.errorlog = \"/run/here/error.log\"\n",
        "Left out: dir-listing.cache, redirects of http\n",
        "may do anything: bin-path of fastcgi.server\n",
        "not known: strange.thing\n",
        "vhostdb.mysql",
    ] {
        assert!(text.contains(there), "{there} is not in\n{text}");
    }
    let lines: String = text.lines().filter(|line| !line.starts_with('#')).collect();
    assert_eq!((lines.matches("accesslog.filename").count(), lines.matches("server.errorlog ").count()), (1, 1));
    assert!(!lines.contains("syslog"), "{text}");
    assert!(installed.runs_code());
    let shown = installed.copy(installed.example()).unwrap().shown;
    for there in
        ["\"MinProtocol\" => \"TLSv1.2\"", "vhostdb.mysql = …", "… = …", "proxy.server = …", "\"blog.example\" {"]
    {
        assert!(shown.contains(there), "{there} is not in\n{shown}");
    }
    for secret in ["secret", "strange", "php", "3000"] {
        assert!(!shown.contains(secret), "{secret} is in\n{shown}");
    }
}

#[test]
fn a_file_that_others_may_write_is_not_run_by_root() {
    let place = tempfile::tempdir().unwrap();
    let [path, more, ran] = ["lighttpd.conf", "more.conf", "ran"].map(|name| place.path().join(name));
    let shell = format!("include_shell \"touch {}; echo\"\n", ran.display());
    std::fs::write(&path, format!("{shell}include \"more.conf\"\nserver.port = 1\nssl.engine = \"enable\"\n")).unwrap();
    // A circle ends.
    std::fs::write(&more, "include \"lighttpd.conf\"\n").unwrap();
    assert_eq!(commands_in(&path).unwrap(), ["touch"]);
    if geteuid().is_root() {
        std::os::unix::fs::chown(&more, Some(4_000_000), None).unwrap();
        let refused = Lighttpd::read(&path).unwrap_err().to_string();
        assert!(refused.contains("more.conf: the user 4000000 owns") && !ran.exists(), "{refused}");
    }
}

#[test]
fn a_socket_that_only_switches_tls_on_has_what_the_main_server_says() {
    let printed = "config {\n server.port = 80\n ssl.pemfile = \"/both.pem\"\n\
        ssl.openssl.ssl-conf-cmd = (\"MinProtocol\" => \"TLSv1.2\", \"Options\" => \"-SessionTicket\")\n\
        $SERVER[\"socket\"] == \":443\" {\n ssl.engine = \"enable\"\n\
        $HTTP[\"host\"] == \"slow.example\" {\n server.max-keep-alive-idle = 60\n }\n }\n}\n";
    let mut installed = installed(printed);
    let kept = |host| installed.site.facts(host).keep_alive[0].clone();
    assert_eq!([kept(None), kept(Some("slow.example"))], ["5s", "60s"]);
    let asked = TlsChange { tickets: Some(true), ..TlsChange::default() };
    let place = tempfile::tempdir().unwrap();
    let files =
        tlsdyno_servers::certificates::create(tlsdyno_record::model::CertificateKind::P256, place.path()).unwrap();
    installed.change_tls(&asked, &ServerTls::new(files), crate::tests::instance("/own".as_ref())).unwrap();
    let text = installed.text(4443, 4080, Path::new("/x")).unwrap();
    // mod_openssl wants the certificate where it has any other of these.
    let (_, socket) = text.split_once("127.0.0.1:4443\" {").unwrap();
    assert!(
        socket.contains("ssl.pemfile = \"/both.pem\"") && socket.contains("\"Options\" => \"SessionTicket\""),
        "{text}"
    );
}
