//! What the kernel knows of a socket: its options, when its packets came, and how long its connection took.

use std::io;
use std::os::fd::{AsFd, AsRawFd};

use rustix::time::{ClockId, Timespec, clock_gettime};

use crate::clock::nanoseconds;

/// Sets an option of a socket that is an `int`, setsockopt(2).
pub fn set_option(socket: impl AsFd, level: libc::c_int, name: libc::c_int, value: libc::c_int) -> io::Result<()> {
    // SAFETY: the kernel reads no further than the value, whatever option it is.
    unsafe { set_structure(socket, level, name, &value) }
}

/// Sets an option of a socket that is a structure.
///
/// # Safety
/// What the structure points to must be what the option asks for, and outlive the call.
pub(crate) unsafe fn set_structure<T>(
    socket: impl AsFd,
    level: libc::c_int,
    name: libc::c_int,
    value: &T,
) -> io::Result<()> {
    let length = size_of::<T>() as libc::socklen_t;
    // SAFETY: the descriptor is open as long as it is borrowed, and the value is whole and outlives the call; the
    // caller answers for what it points to.
    let result =
        unsafe { libc::setsockopt(socket.as_fd().as_raw_fd(), level, name, std::ptr::from_ref(value).cast(), length) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Has the kernel stamp what arrives at a socket (SO_TIMESTAMPNS). It begins to do so a moment after the first socket
/// of the machine asks for it.
pub fn stamp_arrivals(socket: impl AsFd) -> io::Result<()> {
    set_option(socket, libc::SOL_SOCKET, libc::SO_TIMESTAMPNS, 1)
}

/// Reads from a stream, recvmsg(2). Answers how many bytes came, and how many nanoseconds ago the last of them arrived
/// at this machine; `None` without [`stamp_arrivals`], and at the end of the stream.
pub fn receive_stamped(socket: impl AsFd, bytes: &mut [u8]) -> io::Result<(usize, Option<u64>)> {
    let mut part = libc::iovec { iov_base: bytes.as_mut_ptr().cast(), iov_len: bytes.len() };
    // Words, because the heads of control messages are aligned to them.
    let mut control = [0u64; 8];
    // SAFETY: all fields of the structure are numbers or pointers, for which zero is a value.
    let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
    message.msg_iov = &raw mut part;
    message.msg_iovlen = 1;
    message.msg_control = control.as_mut_ptr().cast();
    message.msg_controllen = size_of_val(&control) as _;
    // SAFETY: the descriptor is open while it is borrowed, and the call writes to the two places above, within their
    // lengths.
    let read = unsafe { libc::recvmsg(socket.as_fd().as_raw_fd(), &raw mut message, 0) };
    let now_ns = nanoseconds(clock_gettime(ClockId::Realtime));
    let read = usize::try_from(read).map_err(|_| io::Error::last_os_error())?;
    // SAFETY: the kernel has filled in the message, and the control messages lie in `control`.
    let mut head = unsafe { libc::CMSG_FIRSTHDR(&raw const message) };
    while !head.is_null() {
        // SAFETY: a head that the macros of the C library give lies in `control` wholly.
        let is_stamp = unsafe { ((*head).cmsg_level, (*head).cmsg_type) == (libc::SOL_SOCKET, libc::SCM_TIMESTAMPNS) };
        if is_stamp {
            // SAFETY: a message of this kind holds one timespec, aligned or not.
            let stamp: libc::timespec = unsafe { std::ptr::read_unaligned(libc::CMSG_DATA(head).cast()) };
            let arrived_ns = nanoseconds(Timespec { tv_sec: stamp.tv_sec, tv_nsec: stamp.tv_nsec });
            return Ok((read, now_ns.checked_sub(arrived_ns)));
        }
        // SAFETY: both are of the message above.
        head = unsafe { libc::CMSG_NXTHDR(&raw const message, head) };
    }
    Ok((read, None))
}

/// The round trip of a TCP connection that has just been made, in nanoseconds, as the kernel measured it from SYN to
/// SYN-ACK (`tcpi_rtt`). `None`: a packet had to be sent again, so that this is not how long it took; or the system
/// does not say.
pub fn connect_round_trip_ns(socket: impl AsFd) -> Option<u64> {
    // SAFETY: all fields are numbers, for which zero is a value.
    let mut info: libc::tcp_info = unsafe { std::mem::zeroed() };
    let mut length = size_of_val(&info) as libc::socklen_t;
    let fd = socket.as_fd().as_raw_fd();
    // SAFETY: the descriptor is open while it is borrowed, and the call writes at most `length` bytes to `info`.
    let result =
        unsafe { libc::getsockopt(fd, libc::IPPROTO_TCP, libc::TCP_INFO, (&raw mut info).cast(), &raw mut length) };
    let is_known = result == 0 && info.tcpi_rtt > 0 && info.tcpi_total_retrans == 0;
    is_known.then_some(u64::from(info.tcpi_rtt) * 1000)
}
