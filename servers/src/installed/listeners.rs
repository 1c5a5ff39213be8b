//! Where the servers of a configuration listen, and where those of its copy do.
//!
//! nginx chooses a server by the socket that a connection came in on, then by name. So each socket of the original has
//! one of the copy: the measured one two ports of loopback, one with TLS and one without, the others a Unix socket,
//! where somebody may ask for it.

use std::collections::BTreeSet;

use super::reader::Directive;
use super::targets::{Place, Target, for_each_target, is_address, is_this_machine};
use super::variable_targets::{self, InGroup};
use super::{Ports, names};

/// Where a server that says nothing listens, and where one that names an address only.
const PORT_BY_DEFAULT: u16 = 80;
/// Where most sites serve TLS.
const PORT_OF_TLS: u16 = 443;
/// Most ports of a range.
const RANGE_MAX: u16 = 1024;
/// Every address of the machine, version 4, as nginx writes it.
const ANY_V4: &str = "*";

/// Where somebody listens.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Socket {
    /// A TCP port at an address as it is written: `*`, `127.0.0.1`, `[::1]`, a name.
    Tcp(String, u16),
    /// A path.
    Unix(String),
}

impl std::fmt::Display for Socket {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Socket::Tcp(address, port) => write!(f, "{address}:{port}"),
            Socket::Unix(path) => write!(f, "unix:{path}"),
        }
    }
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

    fn is_of_any_address(&self) -> bool {
        matches!(self, Socket::Tcp(address, _) if address == ANY_V4 || address == "[::]")
    }
}

/// A server's listener.
struct Listen {
    socket: Socket,
    tls: bool,
    http2: bool,
    is_default: bool,
}

/// What a server listens on. HTTP/3 is left out: it is not measured.
fn listens_of(server: &[Directive]) -> Vec<Listen> {
    let all_tls = is_switched_on(server);
    let directives = server.iter().filter(|of| of.name == "listen");
    let mut listens: Vec<Listen> = Vec::new();
    for directive in directives.clone().filter(|of| !of.says("quic")) {
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

/// A server and what it listens on.
pub(super) struct Server<'a> {
    pub(super) directives: &'a [Directive],
    listens: Vec<Listen>,
}

impl Server<'_> {
    fn of(directives: &[Directive]) -> Server<'_> {
        Server { directives, listens: listens_of(directives) }
    }

    /// All of `http`.
    pub(super) fn all(http: &[Directive]) -> Vec<Server<'_>> {
        http.iter().filter(|of| of.name == "server").map(|of| Server::of(of.inner())).collect()
    }

    /// Whether it listens on a socket, and is the default server there.
    pub(super) fn listens_on(&self, socket: &Socket) -> Option<bool> {
        let mut there = self.listens.iter().filter(|listen| listen.socket == *socket).peekable();
        there.peek().is_some().then(|| there.any(|listen| listen.is_default))
    }
}

/// Whether a server, or `http` for all of them, speaks TLS on all listeners, as old configurations say it.
fn is_switched_on(directives: &[Directive]) -> bool {
    directives.iter().any(|of| of.name == "ssl" && of.says("on"))
}

/// Whether a server speaks TLS on any of its listeners.
pub(super) fn has_tls(server: &[Directive]) -> bool {
    listens_of(server).iter().any(|listen| listen.tls)
}

/// A socket with what all servers that listen on it have in common.
#[derive(Clone, Debug)]
struct Group {
    socket: Socket,
    tls: bool,
    http2: bool,
    /// Somebody within may ask for it, or a server listens nowhere else.
    is_needed: bool,
}

/// All sockets of a configuration, in its order.
#[derive(Clone, Debug)]
pub(super) struct Listeners {
    groups: Vec<Group>,
    /// The one that is measured.
    measured: Option<usize>,
}

impl Listeners {
    /// Those of `http`, of which the one that serves `host` with TLS is measured.
    pub(super) fn of(http: &[Directive], host: Option<&str>) -> Listeners {
        let servers = Server::all(http);
        let mut groups: Vec<Group> = Vec::new();
        let all_tls = is_switched_on(http);
        for Listen { socket, tls, http2, .. } in servers.iter().flat_map(|server| &server.listens) {
            let tls = *tls || all_tls;
            match groups.iter_mut().find(|group| group.socket == *socket) {
                Some(group) => (group.tls, group.http2) = (group.tls || tls, group.http2 || *http2),
                None => groups.push(Group { socket: socket.clone(), tls, http2: *http2, is_needed: false }),
            }
        }
        let mut listeners = Listeners { groups, measured: None };
        listeners.measured = listeners.serving(&servers, host);
        listeners.find_needed(http, &servers);
        listeners
    }

    /// The measured one.
    pub(super) fn measured(&self) -> Option<&Socket> {
        self.measured.map(|index| &self.groups[index].socket)
    }

    /// The port on which its clients reach it.
    pub(super) fn measured_port(&self) -> u16 {
        match self.measured() {
            Some(Socket::Tcp(_, port)) => *port,
            _ => PORT_OF_TLS,
        }
    }

    /// The sockets with TLS, those with the usual port first.
    pub(super) fn with_tls(&self) -> Vec<&Socket> {
        let mut sockets: Vec<&Socket> =
            self.groups.iter().filter(|group| group.tls).map(|group| &group.socket).collect();
        sockets.sort_by_key(|socket| !matches!(socket, Socket::Tcp(_, PORT_OF_TLS)));
        sockets
    }

    /// The socket with TLS on which a server has this name, or answers to all.
    fn serving(&self, servers: &[Server], host: Option<&str>) -> Option<usize> {
        let (name, port) = host.map_or(("", None), names::split);
        let mut sockets = self.with_tls();
        sockets.sort_by_key(|socket| port.is_some_and(|port| !matches!(socket, Socket::Tcp(_, of) if *of == port)));
        let knows = |socket: &&Socket| {
            servers.iter().any(|server| server.listens_on(socket).is_some() && names::knows(server.directives, name))
        };
        let socket = sockets.iter().copied().find(knows).or(sockets.first().copied())?;
        self.index_of(socket)
    }

    fn index_of(&self, socket: &Socket) -> Option<usize> {
        self.groups.iter().position(|group| group.socket == *socket)
    }

    fn find_needed(&mut self, http: &[Directive], servers: &[Server]) {
        let measured = self.measured();
        let is_elsewhere = |server: &&Server| measured.is_none_or(|of| server.listens_on(of).is_none());
        let mut needed: BTreeSet<usize> = BTreeSet::new();
        for listen in servers.iter().filter(is_elsewhere).flat_map(|server| &server.listens) {
            needed.extend(self.index_of(&listen.socket));
        }
        let mut need = |target: &str| needed.extend(self.asked(target).map(|(index, _)| index));
        for_each_target(http, &mut need);
        variable_targets::all(http).iter().filter(|value| is_address(value)).for_each(|value| need(value));
        for index in needed {
            self.groups[index].is_needed = true;
        }
    }

    /// The listeners of a server's copy.
    pub(super) fn of_copy(&self, server: &[Directive], ports: &Ports) -> Vec<Directive> {
        let mut new: Vec<Directive> = Vec::new();
        let server = Server::of(server);
        for (index, group) in self.groups.iter().enumerate() {
            let Some(is_default) = server.listens_on(&group.socket) else { continue };
            let mut add = |address: String, words: &[(&str, bool)]| {
                let words = words.iter().copied().chain([("default_server", is_default)]);
                let words = words.filter(|(_, said)| *said).map(|(word, _)| word.to_owned());
                new.push(Directive::of("listen", std::iter::once(address).chain(words).collect()));
            };
            let protocols = [("ssl", group.tls), ("http2", group.http2)];
            if self.measured == Some(index) {
                add(format!("127.0.0.1:{}", ports.port), &protocols);
                add(format!("127.0.0.1:{}", ports.plain_port), &[]);
            } else if group.is_needed {
                add(self.address(index, ports), &protocols);
            }
        }
        new
    }

    /// Where the copy listens in place of a socket.
    fn address(&self, index: usize, ports: &Ports) -> String {
        match self.measured == Some(index) {
            true => format!("127.0.0.1:{}", ports.port),
            false => format!("unix:{}/listen-{index}.sock", ports.directory.display()),
        }
    }

    /// A target that is a server of the same configuration leads to that of the copy.
    pub(super) fn in_copy(&self, target: &str, ports: &Ports) -> Option<String> {
        let (index, Target { scheme, path, .. }) = self.asked(target)?;
        let address = self.address(index, ports);
        // Behind a socket's path a colon ends it.
        let colon = if address.starts_with("unix:") && !path.is_empty() { ":" } else { "" };
        Some(format!("{scheme}{address}{colon}{path}"))
    }

    /// The same for a value that a variable has.
    pub(super) fn in_group(&self, value: &str, ports: &Ports) -> Option<InGroup> {
        let (index, Target { scheme, path, .. }) = self.asked(value).filter(|_| is_address(value))?;
        let group = format!("tlsdyno-listen-{index}");
        Some(InGroup { value: format!("{scheme}{group}{path}"), group, address: self.address(index, ports) })
    }

    /// The socket of this configuration that a target reaches.
    fn asked<'t>(&self, target: &'t str) -> Option<(usize, Target<'t>)> {
        let target = Target::of(target)?;
        let index = match target.place {
            Place::Unix(path) => self.index_of(&Socket::Unix(path.to_owned())),
            Place::Tcp(host, port) => {
                self.index_of(&Socket::at(host, port)).or_else(|| self.of_any_address(host, port))
            }
        }?;
        Some((index, target))
    }

    /// The socket for all addresses that takes what is sent to this host.
    fn of_any_address(&self, host: &str, port: u16) -> Option<usize> {
        let takes = |group: &&Group| {
            group.socket.is_of_any_address() && matches!(&group.socket, Socket::Tcp(_, of) if *of == port)
        };
        let mut candidates: Vec<&Group> = self.groups.iter().filter(takes).collect();
        let is_v6 = host.starts_with('[');
        candidates.sort_by_key(|group| matches!(&group.socket, Socket::Tcp(of, _) if (of == ANY_V4) == is_v6));
        let found = candidates.first().filter(|_| is_this_machine(host))?;
        self.index_of(&found.socket)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sockets(listen: &str) -> String {
        Socket::all_of(listen).iter().map(ToString::to_string).collect::<Vec<_>>().join(" ")
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
