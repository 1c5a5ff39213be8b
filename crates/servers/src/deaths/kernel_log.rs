//! The kernel's log (kmsg(4)): it names the library in which a thread has failed.

use std::collections::BTreeSet;
use std::fs::{File, OpenOptions};
use std::io::{ErrorKind, Read, Seek, SeekFrom};
use std::os::unix::fs::OpenOptionsExt;

use rustix::fs::OFlags;

/// Longer records are cut off by the kernel.
const RECORD_BYTES_MAX: usize = 8192;

#[derive(Debug)]
pub struct KernelLog {
    file: File,
    /// Where a thread of the server has failed, once that was read.
    place: Option<String>,
}

impl KernelLog {
    /// `None` where it may not be read (it takes root on most systems) or is not there (containers).
    pub fn from_now_on() -> Option<KernelLog> {
        let flags = OFlags::NONBLOCK.bits().cast_signed();
        let mut file = OpenOptions::new().read(true).custom_flags(flags).open("/dev/kmsg").ok()?;
        file.seek(SeekFrom::End(0)).ok()?;
        Some(KernelLog { file, place: None })
    }

    /// The library or program in which the first of `threads` has failed.
    pub fn place_of_fault(&mut self, threads: &BTreeSet<u32>) -> Option<String> {
        let mut record = [0; RECORD_BYTES_MAX];
        while self.place.is_none() {
            match self.file.read(&mut record) {
                Ok(read) if read > 0 => self.place = place_in(&String::from_utf8_lossy(&record[..read]), threads),
                // Records were overwritten before they were read; the next call goes on behind them.
                Err(error) if error.kind() == ErrorKind::BrokenPipe => {}
                _ => break,
            }
        }
        self.place.clone()
    }
}

/// `nginx[4711]: segfault at 0 ip 00007f sp 00007f error 4 in libcrypto.so.3[41c324,7f4c+384000] likely on CPU 0` is in
/// `libcrypto.so.3`.
fn place_in(record: &str, threads: &BTreeSet<u32>) -> Option<String> {
    let (_, message) = record.lines().next()?.split_once(';')?;
    let is_of =
        |part: &str| part.split_once(']').and_then(|(id, _)| id.parse().ok()).is_some_and(|id| threads.contains(&id));
    if !message.split('[').skip(1).any(is_of) {
        return None;
    }
    let (_, place) = message.rsplit_once(" in ")?;
    Some(place.split_once('[')?.0.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_place_is_that_of_the_servers_own_thread() {
        let threads = BTreeSet::from([4711]);
        let segfault = "6,1,1043849790,-;nginx[4711]: segfault at 0 ip 00007f4c61e1c324 sp 00007fff158a0f78 error 4 in \
                        libcrypto.so.3[41c324,7f4c61af7000+384000] likely on CPU 0 (core 0, socket 0)\n SUBSYSTEM=x\n";
        assert_eq!(place_in(segfault, &threads).as_deref(), Some("libcrypto.so.3"));
        let trap = "6,2,1,-;traps: h[a]proxy[4711] trap invalid opcode ip:55d0 sp:7ffd error:0 in haproxy[55d000+1000]";
        assert_eq!(place_in(trap, &threads).as_deref(), Some("haproxy"));
        assert_eq!(place_in(segfault, &BTreeSet::from([471])), None);
        assert_eq!(place_in("6,3,1,-;nginx[4711]: segfault at 0 ip 0 sp 0 error 14", &threads), None);
        assert_eq!(place_in("6,4,1,-;eth0: link in up", &threads), None);
    }
}
