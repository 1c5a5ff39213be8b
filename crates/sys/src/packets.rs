//! Packets that pass through this machine, in memory that the kernel shares: packet(7), TPACKET_V3.

use std::ffi::c_void;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicU32, Ordering};

use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};
use rustix::net::{AddressFamily, SocketFlags, SocketType, eth, socket_with};

use crate::sockets::{set_option, set_structure};

/// Bytes of a block, which the kernel hands over when it is full or [`RETIRE_MS`] old.
const BLOCK_BYTES: usize = 1 << 18;
const RETIRE_MS: u32 = 50;
/// Where things are in `struct tpacket_block_desc` and `struct tpacket3_hdr` of linux/if_packet.h, bytes.
const STATUS: usize = 8;
const PACKETS: usize = 12;
const FIRST_PACKET: usize = 16;
const NEXT: usize = 0;
const SECONDS: usize = 4;
const NANOSECONDS: usize = 8;
const CAPTURED: usize = 12;
const LENGTH: usize = 16;
const NETWORK: usize = 26;

/// What a ring did since the last question.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RingLosses {
    /// Packets that its filter let pass.
    pub packets: u64,
    /// Those of them for which there was no room.
    pub dropped: u64,
}

/// Opens a socket that gets a copy of each packet that a filter lets pass, from the header of IP on, of every interface
/// of this thread's network namespace, into a ring of about `bytes`. No interface is made promiscuous. `filter`: a
/// program of classic BPF, which answers how many bytes of a packet are kept.
///
/// # Errors
/// Without CAP_NET_RAW there is none.
pub fn open_packet_socket(filter: &[libc::sock_filter], bytes: usize) -> io::Result<OwnedFd> {
    let socket = socket_with(AddressFamily::PACKET, SocketType::DGRAM, SocketFlags::CLOEXEC, Some(eth::ALL))?;
    set_option(&socket, libc::SOL_PACKET, libc::PACKET_VERSION, libc::tpacket_versions::TPACKET_V3 as libc::c_int)?;
    let length = filter.len().try_into().map_err(|_| io::ErrorKind::InvalidInput)?;
    let program = libc::sock_fprog { len: length, filter: filter.as_ptr().cast_mut() };
    // SAFETY: the program lives on, with so many instructions, and the kernel only reads it.
    unsafe { set_structure(&socket, libc::SOL_SOCKET, libc::SO_ATTACH_FILTER, &program) }?;
    let request = libc::tpacket_req3 {
        tp_block_size: BLOCK_BYTES as u32,
        tp_block_nr: blocks_of(bytes) as u32,
        tp_frame_size: BLOCK_BYTES as u32,
        tp_frame_nr: blocks_of(bytes) as u32,
        tp_retire_blk_tov: RETIRE_MS,
        tp_sizeof_priv: 0,
        tp_feature_req_word: 0,
    };
    // What came before the filter was there, the kernel drops when it makes the ring.
    // SAFETY: the structure points to nothing.
    unsafe { set_structure(&socket, libc::SOL_PACKET, libc::PACKET_RX_RING, &request) }?;
    Ok(socket)
}

fn blocks_of(bytes: usize) -> usize {
    (bytes / BLOCK_BYTES).clamp(4, 1024)
}

/// What a packet socket gets, read in the memory that the kernel shares. That takes no privilege.
#[derive(Debug)]
pub struct PacketRing {
    socket: OwnedFd,
    memory: NonNull<u8>,
    blocks: usize,
    next: usize,
}

// SAFETY: the mapping is of this process, and belongs to this value alone.
unsafe impl Send for PacketRing {}

impl PacketRing {
    /// Of a socket that was opened with so many `bytes`.
    ///
    /// # Errors
    /// There is no memory, or it is no such socket.
    pub fn of(socket: OwnedFd, bytes: usize) -> io::Result<PacketRing> {
        let (blocks, access) = (blocks_of(bytes), ProtFlags::READ | ProtFlags::WRITE);
        // SAFETY: the kernel chooses where, so that no other mapping is replaced.
        let memory =
            unsafe { mmap(ptr::null_mut(), blocks * BLOCK_BYTES, access, MapFlags::SHARED, &socket, 0) }?.cast::<u8>();
        let memory = NonNull::new(memory).ok_or(io::ErrorKind::OutOfMemory)?;
        let ring = PacketRing { socket, memory, blocks, next: 0 };
        // Also: it is a packet socket, and not a file that others may cut.
        ring.losses()?;
        Ok(ring)
    }

    /// Hands over the packets that have come: when (nanoseconds of the real-time clock), as many of their bytes as the
    /// filter said, and how many they had. They come a moment late, all together; [`AsFd`] is readable then.
    pub fn read(&mut self, mut each: impl FnMut(u64, &[u8], usize)) {
        for _ in 0..self.blocks {
            // SAFETY: the block lies within the mapping.
            let block = unsafe { self.memory.add(self.next * BLOCK_BYTES) };
            // SAFETY: the word lies within the block and is aligned; the kernel writes it in one piece.
            let status = unsafe { AtomicU32::from_ptr(block.add(STATUS).cast().as_ptr()) };
            if status.load(Ordering::Acquire) & libc::TP_STATUS_USER == 0 {
                return;
            }
            // SAFETY: as long as the status says so, the kernel leaves the block alone.
            let bytes = unsafe { std::slice::from_raw_parts(block.as_ptr(), BLOCK_BYTES) };
            packets(bytes, &mut each);
            status.store(libc::TP_STATUS_KERNEL, Ordering::Release);
            self.next = (self.next + 1) % self.blocks;
        }
    }

    /// What came since the last call, and what was lost.
    pub fn losses(&self) -> io::Result<RingLosses> {
        let mut told = libc::tpacket_stats_v3 { tp_packets: 0, tp_drops: 0, tp_freeze_q_cnt: 0 };
        let mut length = size_of_val(&told) as libc::socklen_t;
        let (level, name) = (libc::SOL_PACKET, libc::PACKET_STATISTICS);
        // SAFETY: the call writes at most `length` bytes to the structure.
        let result = unsafe {
            libc::getsockopt(self.socket.as_raw_fd(), level, name, (&raw mut told).cast::<c_void>(), &raw mut length)
        };
        if result != 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(RingLosses { packets: told.tp_packets.into(), dropped: told.tp_drops.into() })
    }
}

/// The packets of a block. What does not fit into it is left out: nothing here trusts a length.
fn packets(block: &[u8], each: &mut impl FnMut(u64, &[u8], usize)) {
    let word = |at: usize| block.get(at..)?.first_chunk().map(|word| u32::from_ne_bytes(*word));
    let mut at = word(FIRST_PACKET).unwrap_or_default() as usize;
    for _ in 0..word(PACKETS).unwrap_or_default() {
        let of = |field: usize| word(at + field).map(|word| word as usize);
        let begin = block.get(at + NETWORK..).and_then(|bytes| bytes.first_chunk());
        let (Some(next), Some(seconds), Some(nanoseconds), Some(captured), Some(length), Some(begin)) =
            (of(NEXT), of(SECONDS), of(NANOSECONDS), of(CAPTURED), of(LENGTH), begin)
        else {
            return;
        };
        let begin = at + usize::from(u16::from_ne_bytes(*begin));
        let Some(bytes) = block.get(begin..begin + captured) else { return };
        each(seconds as u64 * 1_000_000_000 + nanoseconds as u64, bytes, length);
        at += next;
    }
}

impl AsFd for PacketRing {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl Drop for PacketRing {
    fn drop(&mut self) {
        // SAFETY: the mapping has this place and size, and nothing borrows from it any more.
        let _ = unsafe { munmap(self.memory.as_ptr().cast(), self.blocks * BLOCK_BYTES) };
    }
}
