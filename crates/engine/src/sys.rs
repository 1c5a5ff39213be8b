//! What the hot path alone asks of the system: waiting, time slices, randomness, and how much a socket still has to
//! send. The only module of this crate that may hold unsafe code.
#![allow(unsafe_code)]

use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};

use openssl::ssl::SslContextBuilder;
use rustix::io::Errno;
use rustix::time::Timespec;
use tlsdyno_sys::set_option;

/// Room for what epoll_wait(2) tells, which may move to another thread together with its epoll instance.
pub struct Events(pub Vec<rustix::event::epoll::Event>);

// SAFETY: an event is plain data; it could hold a pointer, but this crate registers numbers only, and reads them as
// numbers.
unsafe impl Send for Events {}

/// Lets `bind` name an address without taking a port for it: `connect` then takes one that is free for its destination.
pub fn bind_address_no_port(socket: &OwnedFd) -> io::Result<()> {
    set_option(socket, libc::IPPROTO_IP, libc::IP_BIND_ADDRESS_NO_PORT, 1)
}

/// Asks to be told of input only when there are so many bytes of it (SO_RCVLOWAT). The end of the stream, an error, or
/// a window that is nearly full is told at once all the same.
pub fn set_low_water_mark(socket: impl AsFd, bytes: u32) -> io::Result<()> {
    set_option(socket, libc::SOL_SOCKET, libc::SO_RCVLOWAT, bytes as libc::c_int)
}

/// How long the sessions of this context can be resumed, SSL_CTX_set_timeout(3), which the crate `openssl` leaves out.
pub fn set_session_timeout(context: &mut SslContextBuilder, seconds: u32) {
    unsafe extern "C" {
        fn SSL_CTX_set_timeout(context: *mut libc::c_void, seconds: libc::c_long) -> libc::c_long;
    }
    // SAFETY: the context lives as long as it is borrowed, nobody else has it yet, and the function only writes its
    // field.
    unsafe { SSL_CTX_set_timeout(context.as_ptr().cast(), seconds.into()) };
}

/// `struct sched_attr` of the kernel in its first version (include/uapi/linux/sched/types.h).
#[repr(C)]
#[derive(Default)]
struct SchedulerAttributes {
    size: u32,
    policy: u32,
    flags: u64,
    nice: i32,
    priority: u32,
    runtime: u64,
    deadline: u64,
    period: u64,
}

/// Has the scheduler give this thread the CPU for so long at a time, in nanoseconds; whoever wants it for a shorter
/// time gets it sooner (EEVDF). 0: as usual. Needs no privilege. Linux before 6.12 lets it be as it is, and so does
/// this where the thread has another policy than the usual one.
pub fn set_time_slice(nanoseconds: u64) {
    let size = size_of::<SchedulerAttributes>() as u32;
    let mut attributes = SchedulerAttributes::default();
    // SAFETY: the structure has the size that is said, and outlives both calls; 0 is the calling thread.
    let known = unsafe { libc::syscall(libc::SYS_sched_getattr, 0, &raw mut attributes, size, 0) };
    if known != 0 || attributes.policy != libc::SCHED_OTHER as u32 {
        return;
    }
    attributes = SchedulerAttributes { size, nice: attributes.nice, runtime: nanoseconds, ..Default::default() };
    // SAFETY: as above.
    unsafe { libc::syscall(libc::SYS_sched_setattr, 0, &raw const attributes, 0) };
}

/// Sleeps for this many nanoseconds, or until a signal comes.
pub fn pause_ns(nanoseconds: u64) {
    // A signal cuts the pause short, which is what its sender wants.
    let _ = rustix::thread::nanosleep(&timespec(nanoseconds));
}

/// This many nanoseconds as the system calls want them.
pub fn timespec(nanoseconds: u64) -> Timespec {
    Timespec { tv_sec: (nanoseconds / 1_000_000_000) as i64, tv_nsec: (nanoseconds % 1_000_000_000) as _ }
}

/// Bytes written to a TCP socket that its peer has not acknowledged (SIOCOUTQ); 0 where the system does not say.
pub fn unsent_bytes(socket: impl AsFd) -> usize {
    let mut bytes: libc::c_int = 0;
    // SAFETY: the descriptor is open while it is borrowed, and the call (`TIOCOUTQ` is `SIOCOUTQ`) writes one int to
    // where the pointer says.
    let result = unsafe { libc::ioctl(socket.as_fd().as_raw_fd(), libc::TIOCOUTQ, &raw mut bytes) };
    if result == 0 { usize::try_from(bytes).unwrap_or(0) } else { 0 }
}

/// A new connection of a listener, non-blocking. Through the C library, not by the bare system call: the shim of
/// experiments stands in front of that and refuses connections from elsewhere to a server whose TLS it has taken apart.
pub fn accept(listener: impl AsFd) -> Result<OwnedFd, Errno> {
    let flags = libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC;
    // SAFETY: the descriptor is open while it is borrowed; with null pointers nothing is written.
    let result =
        unsafe { libc::accept4(listener.as_fd().as_raw_fd(), std::ptr::null_mut(), std::ptr::null_mut(), flags) };
    if result < 0 {
        return Err(Errno::from_io_error(&io::Error::last_os_error()).unwrap_or(Errno::IO));
    }
    // SAFETY: a descriptor that the call has just made, and nobody else has.
    Ok(unsafe { OwnedFd::from_raw_fd(result) })
}

/// The system's randomness, fetched a page at a time: a handshake takes 32 to 96 bytes, and a system call for each
/// would show in its cost.
#[derive(Debug)]
pub struct Random {
    source: File,
    page: Box<[u8; PAGE]>,
    used: usize,
}

const PAGE: usize = 4096;

impl Random {
    /// Opens the system's source. Fails where there is no `/dev/urandom`.
    pub fn new() -> io::Result<Random> {
        let mut random = Random { source: File::open("/dev/urandom")?, page: Box::new([0; PAGE]), used: PAGE };
        random.refill();
        Ok(random)
    }

    /// Fills `bytes`. No byte is handed out twice.
    pub fn fill(&mut self, bytes: &mut [u8]) {
        let mut filled = 0;
        while filled < bytes.len() {
            if self.used == PAGE {
                self.refill();
            }
            let count = (bytes.len() - filled).min(PAGE - self.used);
            bytes[filled..filled + count].copy_from_slice(&self.page[self.used..self.used + count]);
            self.page[self.used..self.used + count].fill(0);
            self.used += count;
            filled += count;
        }
    }

    fn refill(&mut self) {
        // Reading an open /dev/urandom fails for no reason that the program could handle; going on without randomness
        // is none.
        self.source.read_exact(&mut self.page[..]).expect("/dev/urandom can be read once it is open");
        self.used = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn random_bytes_do_not_repeat_across_pages() {
        let mut random = Random::new().unwrap();
        let mut seen = std::collections::HashSet::new();
        for _ in 0..1000 {
            let mut bytes = [0; 24];
            random.fill(&mut bytes);
            assert!(seen.insert(bytes));
        }
    }
}
