//! The parts of TLS that samples are told by.

use tlsdyno_tls::named;

named! {
    /// What TLS did in a sample, in the order of answers.
    pub enum Part: "part of TLS" {
        /// A private-key operation: a signature, or the decryption of a static RSA key exchange.
        Signature = "signature",
        /// A key share was made, or a shared secret.
        KeyAgreement = "key_agreement",
        /// HKDF, or the PRF of TLS 1.2.
        KeyDerivation = "key_derivation",
        /// Records were encrypted or decrypted, or tickets.
        Encryption = "encryption",
        /// Messages of the handshake: their encoding, decoding and hashes, and the protocol's states.
        Messages = "messages",
        /// Certificates and chains were encoded, parsed or verified.
        Certificates = "certificates",
        /// Sessions and tickets were encoded, looked up or stored.
        Sessions = "sessions",
        /// Random numbers outside of the parts above.
        Random = "random",
        /// Memory was allocated, freed, copied or cleared, outside of the parts above.
        Memory = "memory",
        /// Locks were taken, outside of the parts above.
        Locks = "locks",
        /// The kernel worked for TLS: reads, writes, page faults, interrupts.
        Kernel = "kernel",
        /// The rest of TLS.
        Rest = "rest",
    }
}

impl Part {
    /// How the screen calls it.
    pub fn title(self) -> &'static str {
        match self {
            Part::Signature => "signatures",
            Part::KeyAgreement => "key agreement",
            Part::KeyDerivation => "key derivation",
            Part::Encryption => "encryption",
            Part::Messages => "messages",
            Part::Certificates => "certificates",
            Part::Sessions => "sessions",
            Part::Random => "random numbers",
            Part::Memory => "memory",
            Part::Locks => "locks",
            Part::Kernel => "kernel under TLS",
            Part::Rest => "rest of TLS",
        }
    }
}
