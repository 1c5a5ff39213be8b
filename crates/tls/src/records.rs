//! The record layer of one connection: what is sent under the current keys, and records cut out of what is received.

use tlsdyno_wire::limits;
use tlsdyno_wire::record::{self, Deframer};

use crate::crypto::protect::{Opener, Sealer};
use crate::error::Alert;
use crate::noop::StageSet;
use crate::suite::{Suite, Version};

#[derive(Default)]
pub(crate) struct Records {
    pub deframer: Deframer,
    pub sealer: Option<Sealer>,
    pub opener: Option<Opener>,
}

impl Records {
    /// Keys, fixed IVs and MAC keys of zeros in both directions (docs/NOOP.md, "setup").
    pub fn begin_with_zero_keys(&mut self, suite: Suite, off: StageSet, encrypt_then_mac: bool) {
        self.sealer = Some(Sealer::with_zero_keys(suite, off, encrypt_then_mac));
        self.opener = Some(Opener::with_zero_keys(suite, off, encrypt_then_mac));
    }

    /// Appends records with `content`, protected once there are keys.
    pub fn send(&mut self, content_type: u8, content: &[u8], out: &mut Vec<u8>) {
        match &mut self.sealer {
            Some(sealer) => sealer.seal(content_type, content, out),
            None => record::put_plain(out, content_type, content),
        }
    }

    /// Appends an alert, fatal unless it is one of the three that never are (RFC 9846 section 6, RFC 5246 section 7.2).
    pub fn send_alert(&mut self, alert: Alert, out: &mut Vec<u8>) {
        let warning = matches!(alert, Alert::CLOSE_NOTIFY | Alert::USER_CANCELED | Alert::NO_RENEGOTIATION);
        self.send(record::ALERT, &[if warning { 1 } else { 2 }, alert.0], out);
    }

    /// Appends the one change_cipher_spec of TLS 1.2 (RFC 5246 section 7.1).
    pub fn send_change_cipher_spec(&mut self, out: &mut Vec<u8>) {
        self.send(record::CHANGE_CIPHER_SPEC, &[1], out);
    }

    pub fn body_limit(&self, version: Option<Version>) -> usize {
        match (&self.opener, version) {
            (None, _) | (_, None) => limits::RECORD_PLAINTEXT,
            (Some(_), Some(Version::Tls12)) => limits::RECORD_TLS12,
            (Some(_), Some(Version::Tls13)) => limits::RECORD_TLS13,
        }
    }
}
