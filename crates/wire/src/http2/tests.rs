//! HPACK beside another implementation, and what a connection makes of servers that keep to the protocol and of those
//! that do not.

mod client;
mod hpack;
