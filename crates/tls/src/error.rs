//! What can go wrong on a connection, whose fault it is, and the alert that goes with it.

use std::fmt;

use tlsdyno_wire::codec::DecodeError;
use tlsdyno_wire::record::FrameError;

use crate::crypto::CryptoError;

/// An alert description (RFC 9846 section 6), shown by its name there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Alert(pub u8);

macro_rules! alerts {
    ($($constant:ident = $code:literal $name:literal;)*) => {
        impl Alert {
            $(#[doc = concat!("`", $name, "`.")] pub const $constant: Alert = Alert($code);)*

            /// The name in the IANA registry, where there is one.
            pub const fn name(self) -> Option<&'static str> {
                match self.0 { $($code => Some($name),)* _ => None }
            }
        }
    };
}

alerts! {
    CLOSE_NOTIFY = 0 "close_notify";
    UNEXPECTED_MESSAGE = 10 "unexpected_message";
    BAD_RECORD_MAC = 20 "bad_record_mac";
    DECRYPTION_FAILED = 21 "decryption_failed";
    RECORD_OVERFLOW = 22 "record_overflow";
    DECOMPRESSION_FAILURE = 30 "decompression_failure";
    HANDSHAKE_FAILURE = 40 "handshake_failure";
    NO_CERTIFICATE = 41 "no_certificate";
    BAD_CERTIFICATE = 42 "bad_certificate";
    UNSUPPORTED_CERTIFICATE = 43 "unsupported_certificate";
    CERTIFICATE_REVOKED = 44 "certificate_revoked";
    CERTIFICATE_EXPIRED = 45 "certificate_expired";
    CERTIFICATE_UNKNOWN = 46 "certificate_unknown";
    ILLEGAL_PARAMETER = 47 "illegal_parameter";
    UNKNOWN_CA = 48 "unknown_ca";
    ACCESS_DENIED = 49 "access_denied";
    DECODE_ERROR = 50 "decode_error";
    DECRYPT_ERROR = 51 "decrypt_error";
    EXPORT_RESTRICTION = 60 "export_restriction";
    PROTOCOL_VERSION = 70 "protocol_version";
    INSUFFICIENT_SECURITY = 71 "insufficient_security";
    INTERNAL_ERROR = 80 "internal_error";
    INAPPROPRIATE_FALLBACK = 86 "inappropriate_fallback";
    USER_CANCELED = 90 "user_canceled";
    NO_RENEGOTIATION = 100 "no_renegotiation";
    MISSING_EXTENSION = 109 "missing_extension";
    UNSUPPORTED_EXTENSION = 110 "unsupported_extension";
    CERTIFICATE_UNOBTAINABLE = 111 "certificate_unobtainable";
    UNRECOGNIZED_NAME = 112 "unrecognized_name";
    BAD_CERTIFICATE_STATUS_RESPONSE = 113 "bad_certificate_status_response";
    BAD_CERTIFICATE_HASH_VALUE = 114 "bad_certificate_hash_value";
    UNKNOWN_PSK_IDENTITY = 115 "unknown_psk_identity";
    CERTIFICATE_REQUIRED = 116 "certificate_required";
    GENERAL_ERROR = 117 "general_error";
    NO_APPLICATION_PROTOCOL = 120 "no_application_protocol";
}

impl fmt::Display for Alert {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.name() {
            Some(name) => f.write_str(name),
            None => write!(f, "alert {}", self.0),
        }
    }
}

/// Why a connection failed. The variant says whose fault it is; [`Error::alert`] which alert the server was sent.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The server refused to go on and said why.
    #[error("the server sent the alert {0}")]
    AlertReceived(Alert),
    /// The same after it had asked for a client certificate and got none.
    #[error("the server asked for a client certificate, got none and sent the alert {0}")]
    CertificateWanted(Alert),
    /// The server sent a message that cannot be read.
    #[error("the server sent an invalid message: {0}")]
    InvalidMessage(#[from] DecodeError),
    /// The server's bytes are not TLS records, or too long ones.
    #[error("the server does not speak TLS as it should: {0}")]
    InvalidRecord(#[from] FrameError),
    /// The server sent a message that has no place here.
    #[error("the server sent {got} where {expected} was expected")]
    UnexpectedMessage {
        /// The message that came.
        got: &'static str,
        /// The messages that the state allows.
        expected: &'static str,
    },
    /// The server broke a rule of the protocol.
    #[error("the server misbehaved: {what}")]
    PeerMisbehaved {
        /// The rule that the server broke.
        what: &'static str,
        /// The alert that the specification asks for.
        alert: Alert,
    },
    /// Server and client have nothing in common that the handshake needs.
    #[error("the server is incompatible with this configuration: {what}")]
    PeerIncompatible {
        /// What is not shared.
        what: &'static str,
        /// The alert that the specification asks for.
        alert: Alert,
    },
    /// A record does not authenticate: the ends have different keys, different no-op stages, or the record was changed.
    #[error("a record of the server does not authenticate (bad_record_mac); do both ends have the same stages off?")]
    BadRecordMac,
    /// The server's Finished is wrong: the ends saw different handshakes or have different no-op stages.
    #[error("the server's Finished is wrong; do both ends have the same stages off?")]
    BadFinished,
    /// Certificate, signature or key share of the server was refused.
    #[error("the server could not be authenticated or agreed with: {0}")]
    Refused(CryptoError),
    /// The server closed the TCP connection during the handshake.
    #[error("the server closed the connection during the handshake")]
    ClosedInHandshake,
    /// The server closed the TCP connection without close_notify: data may be missing (RFC 9846 section 6.1).
    #[error("the server closed the connection without close_notify")]
    Truncated,
    /// Data was to be sent before the handshake was complete or after the connection was closed: the caller's fault.
    #[error("the connection is not open for sending")]
    NotConnected,
    /// The connection failed before, with an error of its own.
    #[error("the connection has failed before")]
    Failed,
}

impl Error {
    /// The fatal alert that the server is sent for this error; `None` where none is due.
    pub fn alert(&self) -> Option<Alert> {
        match self {
            Error::AlertReceived(_) | Error::CertificateWanted(_) => None,
            Error::ClosedInHandshake | Error::Truncated => None,
            Error::NotConnected | Error::Failed => None,
            Error::InvalidMessage(_) => Some(Alert::DECODE_ERROR),
            // A record but for its type: RFC 9846 section 5.
            Error::InvalidRecord(FrameError::NotTls([_, 3, ..])) => Some(Alert::UNEXPECTED_MESSAGE),
            Error::InvalidRecord(FrameError::NotTls(_)) => Some(Alert::PROTOCOL_VERSION),
            Error::InvalidRecord(FrameError::Oversized { .. }) => Some(Alert::RECORD_OVERFLOW),
            Error::UnexpectedMessage { .. } => Some(Alert::UNEXPECTED_MESSAGE),
            Error::PeerMisbehaved { alert, .. } | Error::PeerIncompatible { alert, .. } => Some(*alert),
            Error::BadRecordMac => Some(Alert::BAD_RECORD_MAC),
            Error::BadFinished => Some(Alert::DECRYPT_ERROR),
            Error::Refused(fault) => Some(refusal_alert(fault)),
        }
    }

    pub(crate) fn illegal(what: &'static str) -> Error {
        Error::PeerMisbehaved { what, alert: Alert::ILLEGAL_PARAMETER }
    }
}

fn refusal_alert(fault: &CryptoError) -> Alert {
    match fault {
        CryptoError::BadRecordMac => Alert::BAD_RECORD_MAC,
        CryptoError::RecordOverflow { .. } => Alert::RECORD_OVERFLOW,
        CryptoError::NoContentType => Alert::UNEXPECTED_MESSAGE,
        CryptoError::BadKeyShare(_) | CryptoError::KeyShareLength { .. } | CryptoError::UnsupportedScheme(_) => {
            Alert::ILLEGAL_PARAMETER
        }
        CryptoError::UnsuitableKey(_) => Alert::UNSUPPORTED_CERTIFICATE,
        CryptoError::SmallRsaKey { .. } => Alert::INSUFFICIENT_SECURITY,
        CryptoError::UnknownIssuer | CryptoError::SelfSigned => Alert::UNKNOWN_CA,
        CryptoError::CertificateExpired(_) => Alert::CERTIFICATE_EXPIRED,
        CryptoError::BadSignature => Alert::DECRYPT_ERROR,
        CryptoError::MalformedCertificate(_) | CryptoError::NameMismatch { .. } | CryptoError::BadCertificate(_) => {
            Alert::BAD_CERTIFICATE
        }
    }
}

impl From<CryptoError> for Error {
    fn from(fault: CryptoError) -> Error {
        match fault {
            CryptoError::BadRecordMac => Error::BadRecordMac,
            fault => Error::Refused(fault),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn alerts_have_their_names() {
        assert_eq!(Alert::HANDSHAKE_FAILURE.to_string(), "handshake_failure");
        assert_eq!(Alert(120).to_string(), "no_application_protocol");
        assert_eq!(Alert(200).to_string(), "alert 200");
        assert_eq!(Error::AlertReceived(Alert(40)).to_string(), "the server sent the alert handshake_failure");
    }

    #[test]
    fn an_alert_goes_out_for_every_fault_of_the_server_and_for_no_other() {
        assert_eq!(Error::BadFinished.alert(), Some(Alert::DECRYPT_ERROR));
        assert_eq!(Error::from(CryptoError::BadRecordMac).alert(), Some(Alert::BAD_RECORD_MAC));
        assert_eq!(Error::from(CryptoError::UnknownIssuer).alert(), Some(Alert::UNKNOWN_CA));
        for silent in [
            Error::AlertReceived(Alert(40)),
            Error::CertificateWanted(Alert(116)),
            Error::ClosedInHandshake,
            Error::Truncated,
            Error::NotConnected,
            Error::Failed,
        ] {
            assert_eq!(silent.alert(), None);
        }
    }

    #[test]
    fn plain_http_is_recognised() {
        let error = Error::from(FrameError::NotTls(*b"HTTP/"));
        assert_eq!(error.to_string(), "the server does not speak TLS as it should: not a TLS record: `HTTP/`");
    }
}
