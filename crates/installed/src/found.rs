//! Which servers are installed or run here.

use std::path::{Path, PathBuf};

use tlsdyno_base::process_tree;
use tlsdyno_record::model::ServerName;

use tlsdyno_servers::{driver_of, programs};

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    pub server: ServerName,
    pub path: PathBuf,
}

/// Where packages put configurations of other servers than nginx.
const OTHERS: [(ServerName, &str); 4] = [
    (ServerName::ApacheEvent, "/etc/apache2/apache2.conf"),
    (ServerName::ApacheEvent, "/etc/httpd/conf/httpd.conf"),
    (ServerName::Haproxy, "/etc/haproxy/haproxy.cfg"),
    (ServerName::Lighttpd, "/etc/lighttpd/lighttpd.conf"),
];

/// Those of this machine: nginx by its own word and by what runs, others by where packages put them.
pub fn all() -> Vec<Found> {
    let mut nginx: Vec<PathBuf> = running_nginx();
    nginx.extend(nginx_default());
    nginx.retain(|path| path.exists());
    let mut found: Vec<Found> = Vec::new();
    for path in nginx {
        if found.iter().all(|other| other.path != path) {
            found.push(Found { server: ServerName::Nginx, path });
        }
    }
    let others = OTHERS.into_iter().filter(|(_, path)| Path::new(path).exists());
    found.extend(others.map(|(server, path)| Found { server, path: path.into() }));
    found
}

fn nginx_default() -> Option<PathBuf> {
    let program = driver_of(ServerName::Nginx).package?.require("").ok()?;
    word_behind(&programs::output_of(&program, &["-V"]), "--conf-path=")
}

/// Those that masters which run now were started with.
fn running_nginx() -> Vec<PathBuf> {
    let lines = process_tree::all().into_iter().map(|process| process_tree::command_line(process.pid));
    // `nginx: master process /usr/sbin/nginx -c /srv/nginx.conf`; without -c it is the default.
    let masters = lines.filter(|line| line.starts_with("nginx: master process"));
    masters.filter_map(|line| word_behind(&line, "-c ")).filter(|path| path.is_absolute()).collect()
}

fn word_behind(text: &str, flag: &str) -> Option<PathBuf> {
    let (_, rest) = text.split_once(flag)?;
    rest.split_whitespace().next().map(PathBuf::from)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_stand_behind_their_flag() {
        let arguments = "configure arguments: --prefix=/usr/share/nginx --conf-path=/etc/nginx/nginx.conf --with-x";
        assert_eq!(word_behind(arguments, "--conf-path="), Some("/etc/nginx/nginx.conf".into()));
        assert_eq!(word_behind("nginx: master process nginx -c /srv/a.conf", "-c "), Some("/srv/a.conf".into()));
        assert_eq!(word_behind("nginx: master process nginx", "-c "), None);
    }
}
