//! Settings of the lean client, and their compiled form.

use crate::noop::StageSet;
use crate::suite::{Effort, Group, Suite, Version};

/// What the client offers and verifies. Plain data; [`Config::new`] checks and compiles it.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Versions offered.
    pub versions: Vec<Version>,
    /// Suites offered, best first.
    pub suites: Vec<Suite>,
    /// Groups offered, best first; the key share is for the first.
    pub groups: Vec<Group>,
    /// Server name (SNI; also the name verified at honest effort). `None`: no SNI.
    pub server_name: Option<String>,
    /// ALPN protocols offered, for example `http/1.1`. Empty: no ALPN extension.
    pub alpn: Vec<String>,
    /// How much the client does.
    pub effort: Effort,
    /// The stages replaced by no-ops.
    pub stages_off: StageSet,
    /// Offer encrypt-then-MAC (RFC 7366).
    pub encrypt_then_mac: bool,
    /// Offer the extended master secret (RFC 7627).
    pub extended_master_secret: bool,
    /// Offer and keep TLS 1.2 tickets (RFC 5077).
    pub tickets: bool,
    /// DER certificates trusted as roots at honest effort.
    pub trust_anchors: Vec<Vec<u8>>,
}

/// Compiled, immutable settings, shared by all connections of a configuration.
#[derive(Debug)]
pub struct Config {
    settings: Settings,
}

impl Config {
    /// The settings this was made from.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }
}
