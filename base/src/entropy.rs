//! Random bytes for the TLS client where it does not matter how fast they come.

use tlsdyno_tls::Entropy;

/// Random bytes from OpenSSL.
pub struct SystemEntropy;

impl Entropy for SystemEntropy {
    fn fill(&mut self, bytes: &mut [u8]) {
        openssl::rand::rand_bytes(bytes).expect("the system's random generator works");
    }
}
