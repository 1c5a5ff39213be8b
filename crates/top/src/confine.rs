//! A process that gives up whatever it does not need before it reads what strangers sent.

use std::env::consts::ARCH;

use anyhow::{Context, Result};
use rustix::io::Errno;
use rustix::process::{Gid, Signal, Uid, geteuid, set_parent_process_death_signal};
use rustix::thread::{
    CapabilitySet, CapabilitySets, set_capabilities, set_no_new_privs, set_thread_groups, set_thread_res_gid,
    set_thread_res_uid,
};
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter, SeccompRule,
};

/// The user and the group that own nothing, as root: the kernel's overflow ids (user_namespaces(7)).
const NOBODY: u32 = 65_534;
/// What reading packets and answering takes: waiting, streams, memory, the clock, and the process's end.
#[rustfmt::skip]
const ALLOWED: &[libc::c_long] = &[
    libc::SYS_ppoll, libc::SYS_read, libc::SYS_recvfrom, libc::SYS_write, libc::SYS_sendto, libc::SYS_getsockopt,
    libc::SYS_clock_gettime, libc::SYS_brk, libc::SYS_munmap, libc::SYS_mremap, libc::SYS_madvise, libc::SYS_futex,
    libc::SYS_getrandom, libc::SYS_restart_syscall, libc::SYS_rt_sigreturn, libc::SYS_rt_sigprocmask,
    libc::SYS_sigaltstack, libc::SYS_getpid, libc::SYS_gettid, libc::SYS_tgkill, libc::SYS_close, libc::SYS_exit,
    libc::SYS_exit_group,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_poll,
];

/// Gives up root, all capabilities, and all system calls but those of [`ALLOWED`]; the process ends with its parent's
/// thread that started it. It must have one thread. There is no way back.
///
/// # Errors
/// The kernel has no filters of system calls (seccomp(2)).
pub fn confine() -> Result<()> {
    if geteuid().is_root() {
        let (user, group) = (Uid::from_raw(NOBODY), Gid::from_raw(NOBODY));
        let groups = set_thread_groups(&[]);
        for left in [groups, set_thread_res_gid(group, group, group), set_thread_res_uid(user, user, user)] {
            // Root of a user namespace that has no other user is nobody outside.
            if !matches!(left, Ok(()) | Err(Errno::INVAL | Errno::PERM)) {
                left.context("failed to become the user nobody")?;
            }
        }
    }
    let none = CapabilitySet::empty();
    set_capabilities(None, CapabilitySets { effective: none, permitted: none, inheritable: none })
        .context("failed to give up capabilities")?;
    // A change of the user would undo it.
    set_parent_process_death_signal(Some(Signal::KILL)).context("failed to ask to end with the parent")?;
    set_no_new_privs(true).context("failed to give up new privileges")?;
    let filter = filter().context("failed to make a filter of system calls")?;
    seccompiler::apply_filter(&filter).context("the kernel has no filters of system calls (seccomp)")
}

/// What is not allowed fails with EPERM. Memory may be had, but not for code.
fn filter() -> Result<BpfProgram> {
    let no_code = SeccompCmpOp::MaskedEq(libc::PROT_EXEC as u64);
    let no_code = SeccompRule::new(vec![SeccompCondition::new(2, SeccompCmpArgLen::Dword, no_code, 0)?])?;
    let rules = ALLOWED.iter().map(|call| (*call, Vec::new())).chain([(libc::SYS_mmap, vec![no_code])]);
    let refused = SeccompAction::Errno(libc::EPERM as u32);
    Ok(SeccompFilter::new(rules.collect(), refused, SeccompAction::Allow, ARCH.try_into()?)?.try_into()?)
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::io::ErrorKind::PermissionDenied;
    use std::net::UdpSocket;

    use super::*;

    /// Privileges and filters are those of a thread.
    #[test]
    fn who_is_confined_has_memory_and_nothing_else() {
        let confined = || {
            confine().unwrap();
            let memory = vec![1_u8; 64 << 20];
            let refused = [File::open("/etc/passwd").err(), UdpSocket::bind("127.0.0.1:0").err()];
            (
                memory.iter().map(|byte| u64::from(*byte)).sum::<u64>(),
                refused.map(|error| error.map(|error| error.kind())),
            )
        };
        let seen = std::thread::spawn(confined).join().unwrap();
        assert_eq!(seen, (64 << 20, [Some(PermissionDenied); 2]));
        File::open("/etc/passwd").unwrap();
    }
}
