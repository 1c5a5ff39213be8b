use super::*;
use crate::Installed;

const MAIN: &str = "ServerRoot /etc/apache2\nLoadModule ssl_module modules/mod_ssl.so\n\
    Mutex file:/var/lock/apache2 default\nPidFile /run/apache2/apache2.pid\n\
    User www-data\nErrorLog /var/log/apache2/error.log\nListen 80\n<IfModule ssl_module>\n Listen 443\n\
    SSLSessionCache shmcb:/run/apache2/ssl_scache(512000)\n SSLProtocol all -SSLv3 -TLSv1 -TLSv1.1\n</IfModule>\n\
    LogFormat \"%h %{SSL_PROTOCOL}x\" timed\n<VirtualHost *:80>\n Redirect / https://shop.example/\n</VirtualHost>\n\
    <IfModule mod_ssl.c>\n<VirtualHost _default_:443>\n ServerName shop.example:443\n ServerAlias www.shop.example\n\
    DocumentRoot /srv/shop\n SSLEngine on\n SSLCertificateFile /etc/ssl/shop.pem\n\
        \x20SSLCertificateKeyFile /etc/ssl/shop.key\n\
    CustomLog /var/log/apache2/shop.log timed\n SSLUseStapling On\n <Directory /srv/shop>\n SSLRequireSSL\n\
        \x20Require all granted\n\
    </Directory>\n ProxyPass /app http://127.0.0.1:3000/\n</VirtualHost>\n</IfModule>\n\
    <VirtualHost *:8443>\n ServerName admin.example\n SSLEngine on\n KeepAlive Off\n SSLSessionTickets off\n\
        </VirtualHost>\n";

fn installed(text: &str) -> Installed {
    let place = tempfile::tempdir().unwrap();
    let path = place.path().join("apache2.conf");
    std::fs::write(&path, text).unwrap();
    Installed { replays: false, ..Installed::read(&path, None).unwrap() }
}

#[test]
fn a_site_runs_beside_the_installed_one() {
    let text = installed(MAIN).text(4443, 4080, Path::new("/run/here")).unwrap();
    for there in [
        "Listen 127.0.0.1:4443 https",
        "Listen 127.0.0.1:4080 http",
        "PidFile \"/run/here/apache.pid\"",
        "ErrorLog \"/run/here/error.log\"",
        "SSLSessionCache \"shmcb:/run/here/sslsessioncache(512000)\"",
        "<VirtualHost 127.0.0.1:4443>",
        "<VirtualHost 127.0.0.1:4080>",
        "CustomLog \"/run/here/access.log\" \"timed\"",
        "SSLUseStapling off",
        "User www-data",
        "SSLCertificateFile /etc/ssl/shop.pem",
        "# Left out: VirtualHost *:80, VirtualHost *:8443",
        "# Asked for real where the load leads there: http://127.0.0.1:3000/ (ProxyPass)",
    ] {
        assert!(text.contains(there), "{there} is not in\n{text}");
    }
    let (_, plain) = text.split_once("127.0.0.1:4080>").unwrap();
    assert!(plain.contains("SSLEngine off") && plain.contains("DocumentRoot /srv/shop"), "{plain}");
    let lines: Vec<&str> = text.lines().filter(|line| !line.starts_with('#')).collect();
    for gone in ["Listen 80", "Mutex", "/var/log", "/run/apache2", "admin.example", "Redirect"] {
        assert!(!lines.iter().any(|line| line.contains(gone)), "{gone} is in\n{text}");
    }
    assert_eq!(text.matches("SSLRequireSSL").count(), 1, "{text}");
}

#[test]
fn what_it_says_of_tls_is_read() {
    let installed = installed(MAIN);
    let facts = installed.site.facts(None);
    assert_eq!(facts.certificates, ["/etc/ssl/shop.pem"]);
    assert_eq!(facts.protocols, ["TLSv1.2", "TLSv1.3"]);
    assert_eq!((facts.session_cache.as_str(), facts.tickets, facts.stapling), ("shared: shmcb", true, true));
    assert_eq!((facts.keep_alive, facts.passes_on), (["5s".to_owned(), "100".to_owned()], Some(true)));
    let log = AccessLog { path: "/var/log/apache2/shop.log".to_owned(), format: "%h %{SSL_PROTOCOL}x".to_owned() };
    assert_eq!(facts.access_logs, [log]);
    let choice = installed.site.choice(None);
    assert_eq!((choice.host.as_deref(), choice.others), (Some("shop.example"), vec!["admin.example:8443".to_owned()]));
    let admin = installed.site.facts(Some("admin.example:8443"));
    assert_eq!((admin.tickets, admin.keep_alive[0].as_str(), admin.passes_on), (false, "0s", None));
    let text = installed.serving(Some("admin.example:8443")).text(1, 2, Path::new("/x")).unwrap();
    assert!(text.contains("ServerName admin.example") && !text.contains("ServerName shop"), "{text}");
    let joined = |text: &str| protocols(&text.split(' ').map(str::to_owned).collect::<Vec<_>>()).join(" ");
    assert_eq!(joined("-all +TLSv1.2"), "TLSv1.2");
    assert_eq!(joined("TLSv1.2 TLSv1.3"), "TLSv1.3");
}

#[test]
fn a_main_server_with_tls_and_parts_of_configurations_are_known() {
    let text = "Listen 8443\nSSLEngine on\nSSLCertificateFile x.pem\n";
    let text = installed(text).text(1, 2, Path::new("/x")).unwrap();
    assert!(text.contains("<VirtualHost 127.0.0.1:2>\n    SSLEngine off"), "{text}");
    let place = tempfile::tempdir().unwrap();
    let path = place.path().join("default-ssl.conf");
    std::fs::write(&path, "<VirtualHost *:443>\n SSLEngine on\n</VirtualHost>\n").unwrap();
    assert!(Installed::read(&path, None).unwrap_err().to_string().contains("part of a configuration"));
}

#[test]
fn what_is_asked_takes_the_place_of_what_stands_there() {
    use tlsdyno_record::model::{CertificateKind, SessionCache};

    let place = tempfile::tempdir().unwrap();
    let at = crate::tests::instance(place.path());
    let files = tlsdyno_servers::certificates::create(CertificateKind::P256, place.path()).unwrap();
    let asked = TlsChange {
        certificate: Some(CertificateKind::P256),
        version: Some(Version::Tls13),
        tickets: Some(false),
        session_cache: Some(SessionCache::Off),
        ..TlsChange::default()
    };
    let mut installed = installed(MAIN);
    let tls = ServerTls {
        versions: vec![Version::Tls13],
        tickets: false,
        session_cache: SessionCache::Off,
        ..ServerTls::new(files)
    };
    installed.change_tls(&asked, &tls, at).unwrap();
    let text = installed.text(1, 2, Path::new("/x")).unwrap();
    for there in [
        "p-256.chain.pem\"",
        "p-256.key.pem\"",
        "SSLProtocol -all +TLSv1.3",
        "SSLSessionTickets off",
        "SSLSessionCache none",
    ] {
        assert!(text.contains(there), "{there} is not in\n{text}");
    }
    for gone in ["shop.pem", "shop.key", "shmcb", "all -SSLv3"] {
        assert!(!text.contains(gone), "{gone} is in\n{text}");
    }
}

#[test]
fn programs_are_named_and_checks_of_others_left_out() {
    let main = MAIN.replacen(
        " SSLEngine on\n",
        " SSLEngine on\n RewriteMap m prg:/x/map\n SSLRandomSeed startup exec:/x/seed\n\
         <Perl>\n $x = 'secret';\n </Perl>\n\
         <Proxy balancer://b>\n BalancerMember http://10.0.0.1:80 hcmethod=GET hcinterval=1 route=a\n </Proxy>\n\
         ProxyHCExpr ok {x}\n Strange secret\n AuthLDAPURL ldap://u:secret@ldap.example/x\n\
         RequestHeader set Authorization secret\n CustomLog \"|/x/prog secret\" timed\n",
        1,
    );
    let installed = installed(&main);
    let text = installed.text(1, 2, Path::new("/run/here")).unwrap();
    for there in [
        "may do anything: <Perl>, RewriteMap, SSLRandomSeed\n",
        "not known: Strange\n",
        "ProxyHCExpr, VirtualHost *:80, VirtualHost *:8443, health checks of mod_proxy_hcheck\n",
        "ldap://ldap.example/x (AuthLDAPURL)",
        "BalancerMember http://10.0.0.1:80 route=a\n",
        "$x = 'secret';",
    ] {
        assert!(text.contains(there), "{there} is not in\n{text}");
    }
    assert!(installed.runs_code() && !text.contains("/x/prog"), "{text}");
    let shown = installed.copy(installed.example()).unwrap().shown;
    for there in ["SSLProtocol all -SSLv3", "RequestHeader …", "<VirtualHost 127.0.0.1:0>", "    …", "ServerName shop"]
    {
        assert!(shown.contains(there), "{there} is not in\n{shown}");
    }
    assert!(!shown.contains("secret") && !shown.contains("Strange"), "{shown}");
    let refused = self::installed(&(MAIN.to_owned() + "MDomain x\n")).effects().unwrap_err().to_string();
    assert!(refused.contains("order certificates"), "{refused}");
}

/// A site of the main file, with these lines before and within it.
fn site(before: &str, within: &str) -> String {
    format!(
        "Listen 443\nLoadModule ssl_module modules/mod_ssl.so\n{before}\n<VirtualHost *:443>\n ServerName a.example\n\
         SSLEngine on\n SSLCertificateFile /a.pem\n{within}\n</VirtualHost>\n"
    )
}

#[test]
fn what_stands_under_a_condition_that_is_not_met_is_not_there() {
    let text = site(
        "Define SHOP\nSSLProtocol all -SSLv3",
        "<IfModule mod_gnutls.c>\nSSLProtocol -all +TLSv1.2\nKeepAlive off\n</IfModule>\n\
         <IfFile /no/such/file>\nSSLUseStapling on\n</IfFile>\n<IfDefine NOPE>\nSSLSessionTickets off\n</IfDefine>\n\
         <IfDirective NoSuchThing>\nSSLUseStapling on\n</IfDirective>\n\
         <IfSection NoSuchThing>\nSSLUseStapling on\n</IfSection>\n\
         <IfModule !mod_ssl.c>\nSSLEngine off\n</IfModule>\n\
         <IfModule mod_ssl.c>\n<IfDefine SHOP>\nKeepAliveTimeout 7\n</IfDefine>\n</IfModule>",
    );
    let installed = installed(&text);
    let facts = installed.site.facts(None);
    assert_eq!(facts.protocols, ["TLSv1", "TLSv1.1", "TLSv1.2", "TLSv1.3"]);
    assert_eq!((facts.stapling, facts.tickets, facts.keep_alive[0].as_str()), (false, true, "7s"));
    let copy = installed.text(1, 2, Path::new("/x")).unwrap();
    for gone in ["-all", "<If", "SSLUseStapling", "SSLSessionTickets"] {
        assert!(!copy.contains(gone), "{gone} is in\n{copy}");
    }
}

#[test]
fn a_site_that_nothing_switches_on_is_not_there() {
    let place = tempfile::tempdir().unwrap();
    let path = place.path().join("apache2.conf");
    std::fs::write(&path, format!("Listen 80\n<IfDefine SSL>\n{}</IfDefine>\n", site("", ""))).unwrap();
    let refused = Installed::read(&path, None).unwrap_err().to_string();
    assert!(refused.contains("speaks TLS") && refused.contains("not met: <IfDefine SSL>"), "{refused}");
}

#[test]
fn macros_are_filled_in() {
    let text = "Listen 443\n<Macro Inner $a>\nServerAlias $a\n</Macro>\n<Macro V $h $ho>\n<VirtualHost *:443>\n\
        ServerName $h\nSSLEngine on\nSSLCertificateFile /$ho/$h.pem\nUse Inner www.$h\n</VirtualHost>\n</Macro>\n\
        Use v a.example keys\nUse V b.example keys\n";
    let site = installed(text).site;
    assert_eq!(site.facts(Some("www.b.example")).certificates, ["/keys/b.example.pem"]);
    assert_eq!(site.choice(None).others, ["b.example"]);
    let place = tempfile::tempdir().unwrap();
    let path = place.path().join("apache2.conf");
    for (text, said) in
        [("Listen 1\nUse V", "there is none"), ("Listen 1\n<Macro V>\nUse V\n</Macro>\nUse V", "uses itself")]
    {
        std::fs::write(&path, text).unwrap();
        let refused = format!("{:#}", Installed::read(&path, None).unwrap_err());
        assert!(refused.contains(said), "{refused}");
    }
}
