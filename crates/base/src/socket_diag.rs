//! Sockets of this network namespace as the kernel tells them when it is asked for one state, sock_diag(7).

use std::io::{Error, ErrorKind, Result};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, netlink, recv, send, socket_with};

/// `SOCK_DIAG_BY_FAMILY` of linux/sock_diag.h.
const BY_FAMILY: u16 = 20;
/// `NLM_F_REQUEST | NLM_F_DUMP`, `NLMSG_ERROR` and `NLMSG_DONE` of linux/netlink.h.
const REQUEST_ALL: u16 = 0x301;
const ERROR: u16 = 2;
const DONE: u16 = 3;
/// IANA's numbers of protocols.
const TCP: u8 = 6;
const UDP: u8 = 17;
/// Bytes of `struct nlmsghdr` of linux/netlink.h, and of `struct inet_diag_req_v2` and `struct inet_diag_msg` of
/// linux/inet_diag.h.
const HEADER: usize = 16;
const ASKED: usize = 56;
const TOLD: usize = 72;

/// Inodes and local addresses of the sockets in this state; `table` is the name of a file below `/proc/PID/net`.
pub(crate) fn sockets(table: &str, state: u8) -> Result<Vec<(u64, SocketAddr)>> {
    let family = if table.ends_with('6') { AddressFamily::INET6 } else { AddressFamily::INET };
    let protocol = if table.starts_with("udp") { UDP } else { TCP };
    let socket = socket_with(AddressFamily::NETLINK, SocketType::RAW, SocketFlags::CLOEXEC, Some(netlink::SOCK_DIAG))?;
    let mut request = Vec::with_capacity(HEADER + ASKED);
    request.extend(((HEADER + ASKED) as u32).to_ne_bytes());
    request.extend([BY_FAMILY, REQUEST_ALL].map(u16::to_ne_bytes).concat());
    // Neither a number of the request nor a sender is needed: nobody else uses this socket.
    request.extend([0; 8]);
    request.extend([family.as_raw() as u8, protocol, 0, 0]);
    request.extend((1_u32 << state).to_ne_bytes());
    // Any address and port.
    request.resize(HEADER + ASKED, 0);
    send(&socket, &request, SendFlags::empty())?;
    let mut found = Vec::new();
    let mut buffer = vec![0; 1 << 16];
    loop {
        let (length, _) = recv(&socket, &mut buffer, RecvFlags::empty())?;
        if length == 0 {
            return Err(ErrorKind::UnexpectedEof.into());
        }
        let mut rest = &buffer[..length];
        while let Some(header) = rest.get(..HEADER) {
            let length = u32::from_ne_bytes([header[0], header[1], header[2], header[3]]) as usize;
            let message = rest.get(HEADER..length).ok_or(ErrorKind::InvalidData)?;
            match u16::from_ne_bytes([header[4], header[5]]) {
                DONE => return Ok(found),
                ERROR => return Err(error(message)),
                _ => found.push(entry(message).ok_or(ErrorKind::InvalidData)?),
            }
            rest = rest.get(length.next_multiple_of(4)..).unwrap_or_default();
        }
    }
}

/// A negative errno comes first, `struct nlmsgerr`.
fn error(message: &[u8]) -> Error {
    let errno = message.first_chunk().map(|errno| i32::from_ne_bytes(*errno));
    errno.map_or(ErrorKind::InvalidData.into(), |errno| Error::from_raw_os_error(-errno))
}

/// Inode and local address of a `struct inet_diag_msg`.
fn entry(message: &[u8]) -> Option<(u64, SocketAddr)> {
    let message: &[u8; TOLD] = message.first_chunk()?;
    let address: [u8; 16] = *message[8..].first_chunk()?;
    let ip = match AddressFamily::from_raw(message[0].into()) {
        AddressFamily::INET => IpAddr::V4(Ipv4Addr::from(*address.first_chunk::<4>()?)),
        AddressFamily::INET6 => IpAddr::V6(Ipv6Addr::from(address)),
        _ => return None,
    };
    let inode = u32::from_ne_bytes(*message[68..].first_chunk()?);
    Some((inode.into(), SocketAddr::new(ip, u16::from_be_bytes([message[4], message[5]]))))
}
