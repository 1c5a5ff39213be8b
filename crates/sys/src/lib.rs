//! System calls that need unsafe code, for all crates; what the hot path alone calls is in `engine/src/sys.rs`.
#![allow(unsafe_code)]

mod clock;
mod isolation;
mod packets;
mod sockets;

pub use clock::{monotonic_ns, process_cpu_ns, thread_cpu_ns};
pub use isolation::{
    make_mounts_read_only, open_tun, unshare_mount_namespace, unshare_network_namespace, unshare_pid_namespace,
};
pub use packets::{PacketRing, RingLosses, open_packet_socket};
pub use sockets::{connect_round_trip_ns, receive_stamped, set_option, stamp_arrivals};
