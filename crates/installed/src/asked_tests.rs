//! Who is asked behind copies of the four servers, and who is not.

use std::path::Path;

use super::{Installed, Ports};

/// Sites before applications: the file, lines of the copy, and words that are not in it.
struct CopyCase {
    file: &'static str,
    text: &'static str,
    there: &'static [&'static str],
    gone: &'static [&'static str],
}

const CASES: [CopyCase; 4] = [
    CopyCase {
        file: "nginx.conf",
        text: "events {}\nhttp { upstream app { server 10.0.0.1:8080 resolve; server unix:/run/b.sock; }\n\
            upstream php { server unix:/run/php.sock; }\n\
            server { listen 443 ssl; ssl_certificate x; ssl_certificate_key x;\n\
            location / { proxy_pass http://app; }\n location /a { proxy_pass http://10.0.0.2/b; }\n\
            location /c { proxy_pass https://10.0.0.3; }\n location /d { fastcgi_pass php; }\n\
            location /e { fastcgi_pass 10.0.0.4:9000; }\n location /f { uwsgi_pass unix:/run/u.sock; }\n\
            location /g { grpc_pass grpc://10.0.0.5:50051; }\n\
            set $up http://10.0.0.6:8080; location /h { proxy_pass $up; }\n\
            location /j { proxy_pass http://10.0.0.2:80$request_uri; } } }\n",
        there: &[
            "server unix:/run/here/application-0.sock;",
            "server unix:/run/here/application-1.sock;",
            "server unix:/run/here/not-asked.sock;",
            "proxy_pass http://unix:/run/here/application-2.sock:/b;",
            "proxy_pass https://unix:/run/here/not-asked.sock;",
            "fastcgi_pass php;",
            "fastcgi_pass unix:/run/here/not-asked.sock;",
            "uwsgi_pass unix:/run/here/not-asked.sock;",
            "grpc_pass grpc://unix:/run/here/not-asked.sock;",
            "http://unix:/run/here/application-2.sock:$request_uri\";",
            "set $up http://tlsdyno-application-3;",
            "server unix:/run/here/application-3.sock;",
        ],
        gone: &["10.0.0.", "/run/b", "/run/php", "/run/u", "resolve"],
    },
    CopyCase {
        file: "haproxy.cfg",
        text: "defaults\n  mode http\nfrontend web\n  bind :443 ssl crt x\n  default_backend app\n\
            backend app\n  server a ipv4@10.0.0.1:8080 check\n  server b /run/b.sock\n  server c 10.0.0.2:443 ssl\n\
            \x20 server-template d 1-3 10.0.0.3:80 resolvers r check\n  server e 10.0.0.4:9000 proto fcgi\n",
        there: &[
            "server a unix@/run/here/application-0.sock",
            "server b unix@/run/here/application-1.sock",
            "server c unix@/run/here/not-asked.sock ssl",
            "server d unix@/run/here/application-2.sock",
            "server e unix@/run/here/not-asked.sock proto fcgi",
        ],
        gone: &["10.0.0.", "/run/b", "server-template", "resolvers"],
    },
    CopyCase {
        file: "apache2.conf",
        text: "Listen 443\n<VirtualHost *:443>\nServerName x\nSSLEngine on\nSSLCertificateFile x\n\
            ProxyPass /a http://10.0.0.1/b timeout=5\nProxyPass /own !\n\
            <Proxy balancer://app>\nBalancerMember http://10.0.0.2:8080\n</Proxy>\nProxyPass / balancer://app/\n\
            ProxyPass /s unix:/run/b.sock|http://localhost/\nProxyPass /t https://10.0.0.3/\n\
            ProxyPassMatch ^/(.*\\.php)$ fcgi://10.0.0.4:9000/srv/$1\n\
            <FilesMatch php>\nSetHandler \"proxy:unix:/run/php.sock|fcgi://localhost\"\n</FilesMatch>\n\
            RewriteRule ^/ws/(.*) ws://10.0.0.5:3000/$1 [P,L]\nRewriteRule ^/old https://x/ [R]\n</VirtualHost>\n",
        there: &[
            "ProxyPass /a unix:/run/here/application-0.sock|http://10.0.0.1/b timeout=5",
            "ProxyPass /own !",
            "BalancerMember unix:/run/here/application-1.sock|http://10.0.0.2:8080",
            "ProxyPass / balancer://app/",
            "ProxyPass /s unix:/run/here/application-2.sock|http://localhost/",
            "ProxyPass /t unix:/run/here/not-asked.sock|https://10.0.0.3/",
            "unix:/run/here/not-asked.sock|fcgi://10.0.0.4:9000/srv/$1",
            "SetHandler \"proxy:unix:/run/here/not-asked.sock|fcgi://localhost\"",
            "RewriteRule ^/ws/(.*) unix:/run/here/not-asked.sock|ws://10.0.0.5:3000/$1 [P,L]",
            "RewriteRule ^/old https://x/ [R]",
        ],
        gone: &["/run/b", "/run/php"],
    },
    CopyCase {
        file: "lighttpd.conf",
        text: "server.port = 80\n$SERVER[\"socket\"] == \":443\" { ssl.engine = \"enable\"\nssl.pemfile = \"x\" }\n\
            proxy.server = ( \"\" => ( ( \"host\" => \"10.0.0.1\", \"port\" => 8080 ),\n\
            ( \"socket\" => \"/run/b.sock\" ) ) )\n\
            fastcgi.server = ( \".php\" => ( \"php\" => ( \"host\" => \"/run/php.sock\", \"max-procs\" => 1 ) ),\n\
            \".py\" => ( ( \"socket\" => \"/run/py.sock\", \"bin-path\" => \"/srv/app.py\" ) ) )\n",
        there: &[
            "(\"socket\" => \"/run/here/application-0.sock\")",
            "(\"socket\" => \"/run/here/application-1.sock\")",
            "(\"max-procs\" => \"1\", \"socket\" => \"/run/here/not-asked.sock\")",
            "(\"bin-path\" => \"/srv/app.py\", \"socket\" => \"/run/here/program.sock\")",
        ],
        gone: &["10.0.0.", "/run/b", "/run/php", "/run/py"],
    },
];

#[test]
fn applications_are_replayed_or_not_asked_unless_that_is_said() {
    for CopyCase { file, text, there, gone } in CASES {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join(file);
        std::fs::write(&path, text).unwrap();
        let installed = Installed::read(&path, None).unwrap();
        let ports = Ports { port: 4443, plain_port: 4080, directory: Path::new("/run/here"), replays: true };
        let copy = installed.copy(ports).unwrap();
        let code = &copy.text;
        for line in there {
            assert!(code.contains(line), "{line} is not in\n{code}");
        }
        for word in gone {
            assert!(!code.contains(word), "{word} is in\n{code}");
        }
        assert!(copy.asked.is_empty() && copy.replayed.len() >= 2, "{file}: {:?}", copy.notes);
        // As it is written, where the user says so.
        let asking = Installed { replays: false, ..installed };
        let copy = asking.copy(Ports { replays: false, ..ports }).unwrap();
        assert!(copy.replayed.is_empty() && copy.asked.len() >= 3, "{file}: {:?}", copy.notes);
    }
}

/// Those of another machine, replayed or not, and those of which nobody knows where they are, need the user's word.
#[test]
fn applications_of_other_machines_are_refused() {
    let place = tempfile::tempdir().unwrap();
    let said = |target: &str, edit: &dyn Fn(&mut Installed)| {
        let path = place.path().join("nginx.conf");
        let text = format!(
            "events {{}}\nhttp {{ server {{ listen 443 ssl; ssl_certificate x; ssl_certificate_key x;\n\
             set $app 192.0.2.7:80; location / {{ proxy_pass {target}; }} }} }}\n"
        );
        std::fs::write(&path, text).unwrap();
        let mut installed = Installed::read(&path, None).unwrap();
        edit(&mut installed);
        let written = installed.write(1, 2, place.path(), Path::new("/no/nginx"));
        written.map_or_else(|error| format!("{error:#}"), |_| String::new())
    };
    let replayed: &dyn Fn(&mut Installed) = &|_| ();
    let asked: &dyn Fn(&mut Installed) = &|installed| installed.replays = false;
    for how in [replayed, asked] {
        assert!(said("http://192.0.2.7:80", how).contains("--i-may-load-this 192.0.2.7"));
        assert_eq!(said("http://127.0.0.1:1", how), "");
        assert_eq!(said("http://unix:/run/a.sock:/", how), "");
        let allowed = |installed: &mut Installed| {
            how(installed);
            installed.may_load = vec!["192.0.2.7".to_owned()];
        };
        assert_eq!(said("http://192.0.2.7:80", &allowed), "");
    }
    assert!(said("http://$app", replayed).contains("--i-may-load-this 192.0.2.7"));
    assert!(said("http://$host", replayed).contains("--ask-backend"));
    assert!(said("http://$app", asked).contains("--i-may-load-this $app"));
}
