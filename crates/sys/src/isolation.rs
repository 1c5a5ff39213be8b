//! What sets a process apart from its machine: namespaces, mounts that nobody writes to, packets of its own.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::fs::OpenOptionsExt;

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
