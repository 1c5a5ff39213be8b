//! Where the servers of a configuration listen, and where those of its copy do.
//!
//! nginx chooses a server by the socket that a connection came in on, then by name. So each socket of the original has
//! one of the copy: the measured one two ports of loopback, one with TLS and one without, the others a Unix socket,
//! where somebody may ask for it.

use std::collections::BTreeSet;

use super::names::knows;
use super::reader::Directive;
use super::targets::{ProxyAddress, ProxyTarget, all_targets, is_address, is_this_machine};
use super::variable_targets::{self, InGroup};
use crate::site::{PORT_OF_TLS, Ports, split};

/// Where a server that says nothing listens, and where one that names an address only.
const PORT_BY_DEFAULT: u16 = 80;
/// Most ports of a range.
const RANGE_MAX: u16 = 1024;
/// Every address of the machine, version 4, as nginx writes it.
const ANY_V4: &str = "*";

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Socket {
    /// A TCP port at an address as it is written: `*`, `127.0.0.1`, `[::1]`, a name.
    Tcp(String, u16),
    Unix(String),
}

impl Socket {
    /// The sockets of the first argument of `listen`: `443`, `*:443`, `[::]:443`, `localhost`, `8000-8003`.
    fn all_of(listen: &str) -> Vec<Socket> {
        if let Some(path) = listen.strip_prefix("unix:") {
            return vec![Socket::Unix(path.to_owned())];
        }
        let is_port = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit() || byte == b'-');
        let (address, ports) = match listen.rsplit_once(':') {
            _ if is_port(listen) => (ANY_V4, listen),
            Some((address, ports)) if is_port(ports) => (address, ports),
            _ => (listen, ""),
        };
        let (from, to) = ports.split_once('-').unwrap_or((ports, ports));
        let from: u16 = from.parse().unwrap_or(PORT_BY_DEFAULT);
        let to: u16 = to.parse().unwrap_or(from).min(from.saturating_add(RANGE_MAX));
        (from..=to).map(|port| Socket::at(address, port)).collect()
    }

    fn at(address: &str, port: u16) -> Socket {
        let address = match address {
            "0.0.0.0" => ANY_V4,
            "localhost" => "127.0.0.1",
            other => other,
        };
        Socket::Tcp(address.to_ascii_lowercase(), port)
    }

    /// The port, unless the listener is a Unix socket.
    pub(super) fn port(&self) -> Option<u16> {
        match self {
            Socket::Tcp(_, port) => Some(*port),
            Socket::Unix(_) => None,
        }
    }
}

#[derive(Debug)]
struct Listen {
    socket: Socket,
    tls: bool,
    http2: bool,
    is_default: bool,
}

/// What a server listens on. HTTP/3 is left out: it is not measured.
fn listens_of(server: &[Directive]) -> Vec<Listen> {
    let all_tls = is_switched_on(server);
    let directives = server.iter().filter(|directive| directive.name == "listen");
    let mut listens: Vec<Listen> = Vec::new();
    for directive in directives.clone().filter(|directive| !directive.says("quic")) {
        for socket in directive.first().iter().flat_map(|listen| Socket::all_of(listen)) {
            listens.push(Listen {
                socket,
                tls: all_tls || directive.says("ssl"),
                http2: directive.says("http2"),
                is_default: directive.says("default_server") || directive.says("default"),
            });
        }
    }
    if directives.count() == 0 {
        let socket = Socket::at(ANY_V4, PORT_BY_DEFAULT);
        listens.push(Listen { socket, tls: all_tls, http2: false, is_default: false });
    }
    listens
}

#[derive(Debug)]
struct Server<'a> {
    directives: &'a [Directive],
    listens: Vec<Listen>,
}

impl Server<'_> {
    /// Whether it listens on a socket, and is the default server there.
    fn listens_on(&self, socket: &Socket) -> Option<bool> {
        let mut there = self.listens.iter().filter(|listen| listen.socket == *socket).peekable();
        there.peek().is_some().then(|| there.any(|listen| listen.is_default))
    }
}

/// Whether a server, or `http` for all of them, speaks TLS on all listeners, as old configurations say it.
fn is_switched_on(directives: &[Directive]) -> bool {
    directives.iter().any(|directive| directive.name == "ssl" && directive.says("on"))
}

pub(super) fn has_tls(server: &[Directive]) -> bool {
    listens_of(server).iter().any(|listen| listen.tls)
}

/// A socket with what all servers that listen on it have in common.
#[derive(Debug)]
struct Group {
    socket: Socket,
    tls: bool,
    http2: bool,
    /// A request within the copy may reach the socket, or a server listens nowhere else.
    is_needed: bool,
}

/// All servers of a configuration and their sockets, in its order.
#[derive(Debug)]
pub(super) struct Listeners<'a> {
    servers: Vec<Server<'a>>,
    groups: Vec<Group>,
    measured: Option<usize>,
}

impl<'a> Listeners<'a> {
    /// Those of `http`, of which the one that serves `host` with TLS is measured.
    pub(super) fn new(http: &'a [Directive], host: Option<&str>) -> Listeners<'a> {
        let server =
            |directive: &'a Directive| Server { directives: directive.inner(), listens: listens_of(directive.inner()) };
        let servers: Vec<Server> = http.iter().filter(|directive| directive.name == "server").map(server).collect();
        let mut groups: Vec<Group> = Vec::new();
        let all_tls = is_switched_on(http);
        for Listen { socket, tls, http2, .. } in servers.iter().flat_map(|server| &server.listens) {
            let tls = *tls || all_tls;
            match groups.iter_mut().find(|group| group.socket == *socket) {
                Some(group) => (group.tls, group.http2) = (group.tls || tls, group.http2 || *http2),
                None => groups.push(Group { socket: socket.clone(), tls, http2: *http2, is_needed: false }),
            }
        }
        let mut listeners = Listeners { servers, groups, measured: None };
        listeners.measured = listeners.serving(host);
        for index in listeners.needed(http) {
            listeners.groups[index].is_needed = true;
        }
        listeners
    }

    pub(super) fn servers_on(&self, socket: &Socket) -> Vec<&'a [Directive]> {
        let there = self.servers.iter().filter_map(|server| Some((server.listens_on(socket)?, server.directives)));
        let mut there: Vec<(bool, &[Directive])> = there.collect();
        // Where none says so the first is the default server.
        there.sort_by_key(|(is_default, _)| !is_default);
        there.into_iter().map(|(_, directives)| directives).collect()
    }

    /// Servers on the measured socket.
    pub(super) fn measured_servers(&self) -> Vec<&'a [Directive]> {
        self.measured.map_or(Vec::new(), |index| self.servers_on(&self.groups[index].socket))
    }

    /// The port on which clients of the measured socket reach it.
    pub(super) fn measured_port(&self) -> u16 {
        self.measured.and_then(|index| self.groups[index].socket.port()).unwrap_or(PORT_OF_TLS)
    }

    /// The sockets with TLS, those with the usual port first.
    pub(super) fn with_tls(&self) -> Vec<&Socket> {
        let mut sockets: Vec<_> = self.groups.iter().filter(|group| group.tls).map(|group| &group.socket).collect();
        sockets.sort_by_key(|socket| socket.port() != Some(PORT_OF_TLS));
        sockets
    }

    /// The socket with TLS on which a server has this name, or answers to all.
    fn serving(&self, host: Option<&str>) -> Option<usize> {
        let (name, port) = host.map_or(("", None), split);
        let mut sockets = self.with_tls();
        sockets.sort_by_key(|socket| port.is_some() && socket.port() != port);
        let is_known = |socket: &&&Socket| self.servers_on(socket).iter().any(|server| knows(server, name));
        self.index_of(sockets.iter().find(is_known).or(sockets.first())?)
    }

    fn index_of(&self, socket: &Socket) -> Option<usize> {
        self.groups.iter().position(|group| group.socket == *socket)
    }

    /// Whether the measured socket speaks HTTP/2, as it was written before nginx 1.25.1: one of its servers says so for
    /// all.
    pub(super) fn have_http2(&self) -> bool {
        self.measured.is_some_and(|index| self.groups[index].http2)
    }

    /// The sockets of servers that are not on the measured one, and those that a proxy of the configuration asks.
    fn needed(&self, http: &[Directive]) -> BTreeSet<usize> {
        let measured = self.measured.map(|index| &self.groups[index].socket);
        let is_elsewhere = |server: &&Server| measured.is_none_or(|socket| server.listens_on(socket).is_none());
        let elsewhere = self.servers.iter().filter(is_elsewhere).flat_map(|server| &server.listens);
        let values = variable_targets::all_values(http).into_iter().filter(|value| is_address(value));
        let asked = all_targets(http).chain(values).filter_map(|target| Some(self.asked(&target)?.0));
        elsewhere.filter_map(|listen| self.index_of(&listen.socket)).chain(asked).collect()
    }

    pub(super) fn of_copy(&self, server: &[Directive], ports: Ports) -> Vec<Directive> {
        let mut new: Vec<Directive> = Vec::new();
        let server = Server { directives: server, listens: listens_of(server) };
        for (index, group) in self.groups.iter().enumerate() {
            let Some(is_default) = server.listens_on(&group.socket) else { continue };
            let mut add = |address: String, tls, http2| {
                let words = [("ssl", tls), ("http2", http2), ("default_server", is_default)];
                let words = words.into_iter().filter(|(_, is_set)| *is_set).map(|(word, _)| word.to_owned());
                new.push(Directive::new("listen", std::iter::once(address).chain(words)));
            };
            if self.measured == Some(index) || group.is_needed {
                add(self.address(index, ports), group.tls, group.http2);
            }
            if self.measured == Some(index) {
                add(format!("127.0.0.1:{}", ports.plain_port), false, false);
            }
        }
        new
    }

    /// Where the copy listens in place of a socket.
    fn address(&self, index: usize, ports: Ports) -> String {
        match self.measured == Some(index) {
            true => format!("127.0.0.1:{}", ports.port),
            false => format!("unix:{}/listen-{index}.sock", ports.directory.display()),
        }
    }

    /// A target that is a server of the same configuration leads to that of the copy.
    pub(super) fn in_copy(&self, target: &str, ports: Ports) -> Option<String> {
        let (index, ProxyTarget { scheme, path, .. }) = self.asked(target)?;
        let address = self.address(index, ports);
        // Behind a socket's path a colon ends it.
        let colon = if address.starts_with("unix:") && !path.is_empty() { ":" } else { "" };
        Some(format!("{scheme}{address}{colon}{path}"))
    }

    /// The same for a value that a variable has.
    pub(super) fn in_group(&self, value: &str, ports: Ports) -> Option<InGroup> {
        let (index, ProxyTarget { scheme, path, .. }) = self.asked(value).filter(|_| is_address(value))?;
        let group = format!("{}listen-{index}", variable_targets::GROUP);
        Some(InGroup { value: format!("{scheme}{group}{path}"), group, address: self.address(index, ports) })
    }

    /// The socket of this configuration that a target reaches.
    fn asked<'t>(&self, target: &'t str) -> Option<(usize, ProxyTarget<'t>)> {
        let target = ProxyTarget::parse(target)?;
        let index = match target.place {
            ProxyAddress::Unix(path) => self.index_of(&Socket::Unix(path.to_owned())),
            ProxyAddress::Tcp(host, port) => {
                self.index_of(&Socket::at(host, port)).or_else(|| self.of_any_address(host, port))
            }
        }?;
        Some((index, target))
    }

    /// The socket for all addresses that takes what is sent to this host, of its version of IP where there is one.
    fn of_any_address(&self, host: &str, port: u16) -> Option<usize> {
        let [v4, v6] = [ANY_V4, "[::]"].map(|address| self.index_of(&Socket::at(address, port)));
        let found = if host.starts_with('[') { v6.or(v4) } else { v4.or(v6) };
        found.filter(|_| is_this_machine(host))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sockets(listen: &str) -> String {
        let shown = |socket: Socket| match socket {
            Socket::Tcp(address, port) => format!("{address}:{port}"),
            Socket::Unix(path) => format!("unix:{path}"),
        };
        Socket::all_of(listen).into_iter().map(shown).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn sockets_are_read_as_nginx_reads_them() {
        for (listen, wanted) in [
            ("443", "*:443"),
            ("*:443", "*:443"),
            ("0.0.0.0:443", "*:443"),
            ("[::]:443", "[::]:443"),
            ("[::1]", "[::1]:80"),
            ("localhost:8443", "127.0.0.1:8443"),
            ("10.0.0.1", "10.0.0.1:80"),
            ("shop.example:81", "shop.example:81"),
            ("unix:/run/a.sock", "unix:/run/a.sock"),
            ("8000-8002", "*:8000 *:8001 *:8002"),
        ] {
            assert_eq!(sockets(listen), wanted, "{listen}");
        }
    }
}
