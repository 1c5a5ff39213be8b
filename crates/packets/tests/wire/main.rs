//! What is counted of packets that are made of real handshakes, in any order, and of packets that nobody would send.

mod capture_files;
mod conversations;
// The program of the kernel is no part of the library's face.
#[allow(dead_code)]
#[path = "../../src/filter.rs"]
mod filter;
mod filtered;
mod fuzzed;
#[allow(dead_code)]
#[path = "../../../tls/tests/interop/harness.rs"]
mod harness;
mod hostile;
mod kinds;
#[allow(dead_code)]
#[path = "../../../tls/tests/interop/openssl_server.rs"]
mod openssl_server;
mod orders;
#[allow(dead_code)]
#[path = "../../src/packet.rs"]
mod packet;
mod packets;
#[allow(dead_code)]
#[path = "../../../tls/tests/interop/rustls_server.rs"]
mod rustls_server;
