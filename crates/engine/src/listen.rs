//! Sockets that the loops of the dispatcher and of the built-in server accept connections on.

use std::io;
use std::net::{SocketAddr, TcpListener};

use socket2::{Domain, Protocol, Type};

/// Pending connections the kernel may queue for each loop.
const BACKLOG: i32 = 4096;

/// Binds a listening socket as the loops want it. `shared`: each loop has its own on the same address (SO_REUSEPORT),
/// among which the kernel distributes connections.
pub fn bind(address: SocketAddr, shared: bool) -> io::Result<TcpListener> {
    let socket =
        socket2::Socket::new(Domain::for_address(address), Type::STREAM.nonblocking().cloexec(), Some(Protocol::TCP))?;
    socket.set_reuse_address(true)?;
    socket.set_reuse_port(shared)?;
    // Accepted sockets inherit it: a response is written in one go, and what comes in pieces is passed on in pieces.
    socket.set_tcp_nodelay(true)?;
    socket.bind(&address.into())?;
    socket.listen(BACKLOG)?;
    Ok(socket.into())
}
