use std::fs;

use super::*;
use crate::Installed;

const SITE: &str = "global\n\tlog /dev/log\tlocal0 # where\n\tchroot /var/lib/haproxy\n\
    \tstats socket /run/haproxy/admin.sock\n\
    \tuser haproxy\n\tdaemon\n\tcrt-base /etc/ssl/private\n\tssl-default-bind-options ssl-min-ver TLSv1.2 \
    no-tls-tickets\n\
    defaults\n\tlog global\n\tmode http\n\toption httplog\n\ttimeout http-keep-alive 10s\n\
    \toption external-check\n\texternal-check command /bin/true\n\
    frontend web\n  bind *:80\n  bind :443,[::]:443 ssl crt shop.pem alpn h2,http/1.1 accept-proxy\n\
    \x20 http-request redirect scheme https unless { ssl_fc }\n\
    \x20 stick-table type ip size 1m peers mates\n  http-request deny if { sc_http_req_rate(0) gt 100 }\n\
    \x20 use_backend blog if { hdr(host) -i blog.example }\n  default_backend app\n\
    listen stats\n  bind 127.0.0.1:8404\n  stats enable\n\
    backend app\n  server a 10.0.0.1:8080 check inter 2s\n  server own 127.0.0.1:8404 send-proxy\n\
    peers mates\n  peer x 10.0.0.2:1024\n";

fn installed(text: &str) -> (tempfile::TempDir, Installed) {
    let place = tempfile::tempdir().unwrap();
    let path = place.path().join("haproxy.cfg");
    fs::write(&path, text).unwrap();
    let installed = Installed { replays: false, ..Installed::read(&path, None).unwrap() };
    (place, installed)
}

#[test]
fn a_site_runs_beside_the_installed_one() {
    let (_place, installed) = installed(SITE);
    let text = installed.text(4443, 4080, Path::new("/run/here")).unwrap();
    for there in [
        "bind 127.0.0.1:4080\n",
        "bind 127.0.0.1:4443 ssl crt shop.pem alpn h2,http/1.1\n",
        "bind unix@/run/here/listen-",
        "log stdout format raw local0\n",
        "server a 10.0.0.1:8080 inter 2s\n",
        "server own unix@/run/here/listen-",
        "stick-table type ip size 1m\n",
        "ssl-default-bind-options ssl-min-ver TLSv1.2 no-tls-tickets",
        "# Asked for real where the load leads there: 10.0.0.1:8080 (server)",
        ", external-check, health checks (it also asks servers that are down), ",
        ", option external-check, ",
    ] {
        assert!(text.contains(there), "{there} is not in\n{text}");
    }
    let lines: Vec<&str> = text.lines().filter(|line| !line.starts_with('#')).collect();
    for gone in [
        ":443",
        "*:80",
        "daemon",
        "chroot",
        "admin.sock",
        "/dev/log",
        "redirect",
        "deny",
        "peers",
        "check",
        "accept-proxy",
    ] {
        assert!(!lines.iter().any(|line| line.contains(gone)), "{gone} is in\n{text}");
    }
}

#[test]
fn what_it_says_of_tls_is_read() {
    let (place, installed) = installed(SITE);
    let facts = installed.site.facts(None);
    assert_eq!(facts.certificates, ["/etc/ssl/private/shop.pem"]);
    assert_eq!(facts.protocols, ["TLSv1.2", "TLSv1.3"]);
    assert_eq!((facts.tickets, facts.http2, facts.passes_on), (false, true, Some(true)));
    assert_eq!((facts.session_cache.as_str(), facts.keep_alive[0].as_str()), ("shared: 20000 blocks", "10s"));
    let choice = installed.site.choice(None);
    assert_eq!((choice.host, choice.others), (None, vec!["blog.example".to_owned()]));
    let offered = |options: &str| {
        let text = format!("frontend web\n bind :443 ssl crt x {options}\n default_backend x\n");
        self::installed(&text).1.site.facts(None)
    };
    assert_eq!(offered("").protocols, [""; 0]);
    assert_eq!(offered("no-tlsv13").protocols, ["TLSv1.2"]);
    assert_eq!(offered("force-tlsv13 curves X25519:P-256").protocols, ["TLSv1.3"]);
    assert_eq!(offered("curves X25519:P-256 allow-0rtt").groups, ["X25519", "P-256"]);
    let path = place.path().join("plain.cfg");
    fs::write(&path, "frontend web\n bind :80\n").unwrap();
    assert!(Installed::read(&path, None).unwrap_err().to_string().contains("speaks TLS"));
}

#[test]
fn what_is_asked_takes_the_place_of_what_stands_there() {
    use tlsdyno_record::model::{CertificateKind, SessionCache};
    use tlsdyno_tls::Version;

    let (place, mut installed) = installed(SITE);
    let at = crate::tests::instance(place.path());
    let files = tlsdyno_servers::certificates::create(CertificateKind::P256, place.path()).unwrap();
    let asked = TlsChange {
        certificate: Some(CertificateKind::P256),
        version: Some(Version::Tls13),
        tickets: Some(true),
        session_cache: Some(SessionCache::Off),
        ..TlsChange::default()
    };
    let tls = ServerTls { versions: vec![Version::Tls13], ..ServerTls::new(files) };
    installed.change_tls(&asked, &tls, at).unwrap();
    let text = installed.text(1, 2, Path::new("/x")).unwrap();
    for there in ["certificate.pem' ssl-min-ver TLSv1.3 ssl-max-ver TLSv1.3", "tune.ssl.cachesize 0"] {
        assert!(text.contains(there), "{there} is not in\n{text}");
    }
    for gone in ["shop.pem", "no-tls-tickets", "TLSv1.2"] {
        assert!(!text.contains(gone), "{gone} is in\n{text}");
    }
}

#[test]
fn what_reaches_others_is_left_out_or_told() {
    let site = SITE.replacen(
        "\tdaemon\n",
        "\tdaemon\n\tlua-load /x.lua\n\tstrange secret\n\tsetenv TOKEN secret\n\texternal-check\n",
        1,
    );
    let lines = "  option external-check\n  option strange\n  http-request do-resolve(txn.x,dns) str(secret)\n\
                 \x20 tcp-request content lua.x\n  filter spoe engine x\n  default_backend app\n";
    let site = site.replacen("  default_backend app\n", lines, 1);
    let site = site + "userlist u\n  user admin insecure-password secret\n";
    let (_place, installed) = installed(&site);
    let text = installed.text(4443, 4080, Path::new("/run/here")).unwrap();
    for there in [
        "may do anything: filter spoe, lua-load, tcp-request lua.x\n",
        "not known: option strange, strange\n",
        "option external-check",
        "http-request do-resolve",
    ] {
        assert!(text.contains(there), "{there} is not in\n{text}");
    }
    let lines: Vec<&str> = text.lines().filter(|line| !line.starts_with('#')).collect();
    assert!(!lines.iter().any(|line| line.contains("external-check")) && installed.runs_code(), "{text}");
    let shown = installed.copy(installed.example()).unwrap().shown;
    for there in
        ["ssl crt shop.pem", "no-tls-tickets", "    user …\n", "setenv …\n", "server a 10.0.0.1:8080 …\n", "    …"]
    {
        assert!(shown.contains(there), "{there} is not in\n{shown}");
    }
    assert!(!shown.contains("secret") && !shown.contains("strange"), "{shown}");
    let (_place, installed) = self::installed(&(SITE.to_owned() + "acme le\n  directory https://x\n"));
    assert!(installed.effects().unwrap_err().to_string().contains("would order certificates"));
}
