//! A network between clients and servers of this machine: a relay of packets in user space between network namespaces,
//! for kernels without netem, and for tests that play with single packets.

pub mod certificate;
mod link;
mod relay;
mod through;

pub use link::Wide;
pub use relay::{Link, Relay, Travel};
pub use through::{Through, check_address, open};
pub use tlsdyno_base::namespace::Namespace;
