//! How connections reach the server: over TCP, from which addresses, or over a Unix socket.

use std::net::{IpAddr, SocketAddr};
use std::os::fd::OwnedFd;
use std::path::PathBuf;

use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};

use super::connection::kind_of;
use super::outcome::ErrorKind;
use crate::sys;

/// How connections reach the server, where that is not simply its address.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Route {
    /// A Unix socket in place of TCP.
    pub unix_path: Option<PathBuf>,
    /// Local addresses that connections come from, in turn: each has ports of its own for the server's address.
    pub sources: Vec<IpAddr>,
    /// The addresses belong to the clients (places among the active users) in turn, instead of to the connections.
    pub source_of_client: bool,
    /// Servers that take the connections in turn, in place of the target's address; empty: that one.
    pub servers: Vec<SocketAddr>,
    /// The servers belong to the clients in turn, instead of to the connections.
    pub server_of_client: bool,
}

impl Route {
    /// Connections to one server that it has ports for.
    pub fn connections_max(&self, per_source: u32) -> u32 {
        match self.unix_path {
            Some(_) => u32::MAX,
            None => per_source.saturating_mul(self.sources.len().max(1) as u32),
        }
    }

    /// The server that this connection goes to, `connection` having been made before, in place of `address`.
    pub fn server(&self, address: SocketAddr, client: u32, connection: u64) -> SocketAddr {
        let turn = if self.server_of_client { u64::from(client) } else { connection };
        let of_turn = |count: usize| self.servers[(turn % count as u64) as usize];
        if self.servers.is_empty() { address } else { of_turn(self.servers.len()) }
    }

    /// Whether connecting completes at once.
    pub fn is_local(&self, address: &SocketAddr) -> bool {
        self.unix_path.is_some() || address.ip().is_loopback()
    }

    /// A socket that begins to connect; `turn` chooses among the sources. With `joined`, acknowledgements wait for data
    /// to travel with, that of the TCP handshake for the first: for clients that speak first. Fails with the kind
    /// of error that the run counts.
    pub fn connect(&self, address: &SocketAddr, turn: u64, joined: bool) -> Result<OwnedFd, ErrorKind> {
        match &self.unix_path {
            Some(path) => connect_unix(path),
            None => self.connect_tcp(address, turn, joined),
        }
    }

    fn connect_tcp(&self, address: &SocketAddr, turn: u64, joined: bool) -> Result<OwnedFd, ErrorKind> {
        let family = match address {
            SocketAddr::V4(_) => AddressFamily::INET,
            SocketAddr::V6(_) => AddressFamily::INET6,
        };
        let socket = socket(family)?;
        if !self.sources.is_empty() {
            let source = self.sources[(turn % self.sources.len() as u64) as usize];
            // Without this `bind` would take the port from all of the source's connections, not only from those to this
            // server.
            sys::bind_address_no_port(&socket).map_err(|_| ErrorKind::Ports)?;
            rustix::net::bind(&socket, &SocketAddr::new(source, 0)).map_err(kind_of)?;
        }
        if joined {
            // Refused, the handshake ends by itself.
            let _ = rustix::net::sockopt::set_tcp_quickack(&socket, false);
        }
        match rustix::net::connect(&socket, address) {
            Ok(()) | Err(Errno::INPROGRESS | Errno::INTR) => Ok(socket),
            Err(error) => Err(kind_of(error)),
        }
    }
}

fn connect_unix(path: &std::path::Path) -> Result<OwnedFd, ErrorKind> {
    let socket = socket(AddressFamily::UNIX)?;
    let address = SocketAddrUnix::new(path).map_err(|_| ErrorKind::Unreachable)?;
    match rustix::net::connect(&socket, &address) {
        Ok(()) => Ok(socket),
        // The backlog of a Unix socket is full; unlike TCP's it makes nobody wait.
        Err(Errno::AGAIN) => Err(ErrorKind::Refused),
        Err(Errno::NOENT) => Err(ErrorKind::Unreachable),
        Err(error) => Err(kind_of(error)),
    }
}

fn socket(family: AddressFamily) -> Result<OwnedFd, ErrorKind> {
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    rustix::net::socket_with(family, SocketType::STREAM, flags, None).map_err(kind_of)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn servers_take_turns_by_client_or_by_connection() {
        let address = |port| SocketAddr::from(([127, 0, 0, 1], port));
        let ports = |route: &Route, calls: &[(u32, u64)]| -> Vec<u16> {
            calls.iter().map(|(client, made)| route.server(address(9), *client, *made).port()).collect()
        };
        let calls = [(0, 0), (1, 1), (2, 2), (0, 3), (0, 4)];
        let mut route = Route::default();
        assert_eq!(ports(&route, &calls), [9; 5]);
        route.servers = vec![address(1), address(2)];
        assert_eq!(ports(&route, &calls), [1, 2, 1, 2, 1]);
        route.server_of_client = true;
        assert_eq!(ports(&route, &calls), [1, 2, 1, 1, 1]);
    }
}
