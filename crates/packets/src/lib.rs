//! Kinds of TLS handshakes of a server that runs, counted from packets that pass by. Nothing is sent, and the server is
//! not touched.
//!
//! [`Watch`] turns packets of any capture into [`Counts`]; [`Capture`] hands it those of this machine.
//!
//! What a bystander cannot see is not told: in TLS 1.3 whether early data was taken, which protocol ALPN came to,
//! client certificates, and what an alert says; in any version requests; in TLS 1.2 the group. Addresses of clients
//! are not kept, and names of servers only if asked for. Whoever can send packets past this machine can make up
//! connections, and so counts.
#![forbid(unsafe_code)]
#![warn(missing_docs)]

mod capture;
mod counts;
mod filter;
mod handshake;
mod names;
mod offer;
mod packet;
mod stream;
mod table;
mod watch;

pub use capture::{Capture, Captured, Settings, open_socket};
pub use counts::{Agreed, Connections, Counts, Offers, Traffic};
pub use names::Names;
pub use packet::Packet;
pub use watch::{PATIENCE, Watch};
