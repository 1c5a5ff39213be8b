//! Dynamic pages of the workload specweb99 on Apache: server-side includes put the file that the query names between
//! two words.

use std::fs;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command};

use serde_json::Value;
use tlsdyno::model::CertificateKind;
use tlsdyno::servers::{certificates, programs};

use crate::place::{Place, eventually, signal};

/// What a page has around the file.
const AROUND: [&str; 2] = ["<p>", "</p>"];

const CONNECTIONS: u32 = 4;

/// Ends in order, and takes its workers along.
struct Apache(Child);

impl Drop for Apache {
    fn drop(&mut self) {
        signal(self.0.id(), rustix::process::Signal::TERM);
        let _ = self.0.wait();
    }
}

fn config(place: &Place, address: SocketAddr) -> String {
    let own = place.path().display();
    let files = certificates::create(CertificateKind::Rsa2048, place.path()).unwrap();
    let modules = ["mpm_prefork", "authz_core", "socache_shmcb", "ssl", "include"]
        .map(|name| format!("LoadModule {name}_module /usr/lib/apache2/modules/mod_{name}.so\n"));
    let user = if rustix::process::geteuid().is_root() { "User nobody\nGroup nogroup\n" } else { "" };
    let (chain, key) = (files.chain.display(), files.key.display());
    format!(
        "{}{user}ServerRoot {own}\nDefaultRuntimeDir {own}\nPidFile {own}/pid\nErrorLog {own}/error.log\n\
         Listen {address}\nServerName localhost\nDocumentRoot {own}/site/docroot\nKeepAliveTimeout 60\n\
         SSLEngine on\nSSLCertificateFile {chain}\nSSLCertificateKeyFile {key}\nSSLSessionCache shmcb:{own}/cache\n\
         CustomLog {own}/access.log \"%>s %m %B %U %q\"\n\
         <Directory {own}/site/docroot>\nOptions FollowSymLinks Includes\nRequire all granted\n</Directory>\n\
         <Files *.shtml>\nSetOutputFilter INCLUDES\n</Files>\n",
        modules.concat()
    )
}

#[test]
fn apache_answers_gets_cookies_and_posts_of_specweb99_by_included_files() {
    let place = Place::new();
    let site = place.path().join("site");
    let imported = place.run(&["trace", "import", "specweb99", "--directories", "1", "-o", "site"]);
    assert!(imported.status.success(), "{imported:?}");
    let [before, after] = AROUND;
    fs::write(site.join("docroot/page.shtml"), format!("{before}<!--#include virtual=\"$QUERY_STRING\" -->{after}"))
        .unwrap();
    let address = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    fs::write(place.path().join("apache.conf"), config(&place, address)).unwrap();
    let program = programs::find("apache2").expect("apache2 is installed: apt-get install apache2-bin");
    let mut command = Command::new(program);
    // It ends all of its process group.
    command.arg("-f").arg(place.path().join("apache.conf")).arg("-DFOREGROUND").process_group(0);
    let apache = Apache(command.spawn().unwrap());
    eventually("Apache listens", || TcpStream::connect(address).is_ok());
    let url = format!("https://{address}/");
    let connections = CONNECTIONS.to_string();
    let workload = ["--workload", "specweb99", "--directories", "1", "--dynamic", "/page.shtml"];
    let output = place.run(&[&["load", &url, "-k", "-c", &connections, "-d", "1s", "--json"], &workload[..]].concat());
    let result: Value = serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{output:?}"));
    assert_eq!(result["errors"], serde_json::json!({}), "{result}");
    drop(apache);
    let log = fs::read_to_string(place.path().join("access.log")).unwrap();
    let (mut posts, mut dynamic, mut complete, mut all) = (0, 0, 0, 0);
    for line in log.lines() {
        let [status, method, bytes, path, query] = line.split(' ').collect::<Vec<_>>()[..] else { panic!("{line}") };
        assert_eq!(status, "200", "{line}");
        all += 1;
        posts += u32::from(method == "POST");
        if path == "/page.shtml" {
            dynamic += 1;
            let file = site.join("docroot").join(query.trim_start_matches("?/"));
            let whole = fs::metadata(file).unwrap().len() as usize + before.len() + after.len();
            complete += u32::from(bytes.parse::<usize>().unwrap() == whole);
        }
    }
    let hits = result["hits"].as_u64().unwrap();
    assert!(all >= hits && hits > 100 && posts > 0, "{hits} hits, {all} lines, {posts} POSTs");
    // In the end the client leaves its last requests.
    assert!(dynamic - complete <= CONNECTIONS, "{complete} of {dynamic} pages hold their file");
    // Of each user 30 in a hundred are dynamic; the last users are cut off.
    let percent = 100.0 * f64::from(dynamic) / all as f64;
    assert!((20.0..40.0).contains(&percent), "{percent} % of {all}");
}
