//! What the hot path asks of the system: clocks, randomness, how much a socket still has to send, and what the kernel
//! knows of the times of its packets. The only module of this crate that may hold unsafe code.
#![allow(unsafe_code)]

use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt;

use openssl::ssl::SslContextBuilder;
use rustix::io::Errno;
use rustix::time::{ClockId, Timespec, clock_gettime};

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

fn set_option(socket: impl AsFd, level: libc::c_int, name: libc::c_int, value: libc::c_int) -> io::Result<()> {
    let length = size_of::<libc::c_int>() as libc::socklen_t;
    // SAFETY: the descriptor is open as long as it is borrowed, and the option's value is a whole `int` that outlives
    // the call.
    let result =
        unsafe { libc::setsockopt(socket.as_fd().as_raw_fd(), level, name, std::ptr::from_ref(&value).cast(), length) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
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

/// Lets the next child of this process be the first of a new PID namespace, unshare(2). The calling process must have
/// one thread, and can have no more afterwards.
pub fn unshare_pid_namespace() -> io::Result<()> {
    // SAFETY: the hazard of unshare(2) is a table of descriptors that threads no longer share; it stays shared here.
    unsafe { rustix::thread::unshare_unsafe(rustix::thread::UnshareFlags::NEWPID) }?;
    Ok(())
}

/// Gives this process a mount namespace of its own, unshare(2), which begins as a copy.
pub fn unshare_mount_namespace() -> io::Result<()> {
    // SAFETY: as above.
    unsafe { rustix::thread::unshare_unsafe(rustix::thread::UnshareFlags::NEWNS) }?;
    Ok(())
}

/// Gives this thread a network namespace of its own, unshare(2), in which there is nothing but a loopback that is down.
pub fn unshare_network_namespace() -> io::Result<()> {
    // SAFETY: as above.
    unsafe { rustix::thread::unshare_unsafe(rustix::thread::UnshareFlags::NEWNET) }?;
    Ok(())
}

/// `struct ifreq` of the kernel (include/uapi/linux/if.h), as far as TUNSETIFF reads it.
#[repr(C)]
struct InterfaceRequest {
    name: [u8; libc::IFNAMSIZ],
    flags: u16,
    rest: [u8; 22],
}

/// Makes a TUN device, of packets of IP and nothing before them, in this thread's network namespace; it ends with the
/// file, which never blocks. `pattern`: its name, of which `%d` becomes the first free number. Answers the name.
pub fn open_tun(pattern: &str) -> io::Result<(File, String)> {
    const TUN_NO_INFORMATION: u16 = 0x1001;
    const TUNSETIFF: libc::c_ulong = 0x4004_54ca;
    let file = File::options().read(true).write(true).custom_flags(libc::O_NONBLOCK).open("/dev/net/tun")?;
    let mut request = InterfaceRequest { name: [0; libc::IFNAMSIZ], flags: TUN_NO_INFORMATION, rest: [0; 22] };
    let bytes = pattern.bytes().take(libc::IFNAMSIZ - 1);
    request.name.iter_mut().zip(bytes).for_each(|(place, byte)| *place = byte);
    // SAFETY: the descriptor is open, and the request is a whole `struct ifreq` that outlives the call.
    let result = unsafe { libc::ioctl(file.as_raw_fd(), TUNSETIFF, &raw mut request) };
    if result != 0 {
        return Err(io::Error::last_os_error());
    }
    let name = request.name.split(|byte| *byte == 0).next().unwrap_or_default();
    Ok((file, String::from_utf8_lossy(name).into_owned()))
}

/// `struct mount_attr` of the kernel (include/uapi/linux/mount.h).
#[repr(C)]
#[derive(Default)]
struct MountAttributes {
    set: u64,
    clear: u64,
    propagation: u64,
    user_namespace: u64,
}

/// Makes a mount and all that are below it read-only in this mount namespace, mount_setattr(2): Linux 5.12. `mount`: a
/// directory, or what open_tree(2) answered.
pub fn make_mounts_read_only(mount: impl AsFd) -> io::Result<()> {
    const READ_ONLY: u64 = 1;
    let attributes = MountAttributes { set: READ_ONLY, ..MountAttributes::default() };
    let flags = libc::AT_EMPTY_PATH | libc::AT_RECURSIVE;
    // SAFETY: the descriptor is open while it is borrowed, the path is an empty string, and the structure has the size
    // that is said and outlives the call.
    let result = unsafe {
        libc::syscall(
            libc::SYS_mount_setattr,
            mount.as_fd().as_raw_fd(),
            c"".as_ptr(),
            flags,
            &raw const attributes,
            size_of::<MountAttributes>(),
        )
    };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Nanoseconds on the monotonic clock, from an arbitrary start.
pub fn monotonic_ns() -> u64 {
    nanoseconds(clock_gettime(ClockId::Monotonic))
}

/// CPU time of the calling thread, user and system, in nanoseconds.
pub fn thread_cpu_ns() -> u64 {
    nanoseconds(clock_gettime(ClockId::ThreadCPUTime))
}

/// CPU time of another process, user and system, of all its threads that are or were, in nanoseconds. `None`: there is
/// no such process. While the process runs, the kernel brings it up to date at ticks and when it stops running.
pub fn process_cpu_ns(pid: u32) -> Option<u64> {
    // What clock_getcpuclockid(3) makes of a process id: its complement above three bits that say "all time of all
    // threads, as scheduled" (include/linux/posix-timers_types.h).
    const SCHEDULED_TIME: libc::clockid_t = 2;
    let clock = (!(pid as libc::clockid_t) << 3) | SCHEDULED_TIME;
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the time is a whole `timespec` that outlives the call; a clock that is none is refused.
    let result = unsafe { libc::clock_gettime(clock, &raw mut time) };
    (result == 0).then_some(time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64)
}

fn nanoseconds(time: Timespec) -> u64 {
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
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
    fn clocks_advance() {
        let (wall, cpu) = (monotonic_ns(), thread_cpu_ns());
        pause_ns(1_000_000);
        assert!(monotonic_ns() - wall >= 1_000_000);
        assert!(thread_cpu_ns() > cpu);
    }

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
