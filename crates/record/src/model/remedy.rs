//! What the owner of a server can change, in one table: `advise` says what becomes of each on an installed server,
//! `run remedies` ranks what some gain, and `plan --what-if` tells what some would come to.

use tlsdyno_tls::{Group, Version, named};

use super::{CertificateKind, SessionCache, TicketKeys, TlsChange};

/// A row of the table of remedies.
#[derive(Clone, Debug, PartialEq)]
pub struct Remedy {
    /// Id of the remedy.
    pub id: RemedyId,
    /// Title of the remedy.
    pub title: &'static str,
    /// What it costs in security, memory or old clients, where nothing else is known of a server.
    pub price: &'static str,
    /// What it changes of a server; the lines that each server needs follow from it.
    pub change: TlsChange,
    /// The part that is left of what certificate and signature cost.
    pub signature_times: Option<f64>,
    /// The recommendation that it follows.
    pub rule: Option<&'static Rule>,
}

/// A recommendation of others.
#[derive(Debug, PartialEq)]
pub struct Rule {
    /// Name of the recommendation.
    pub name: &'static str,
    /// When the recommendation was published.
    pub published: &'static str,
    /// Where the recommendation is published.
    pub source: &'static str,
    /// When this program was last compared with it. `make test-long` fails where that is a year ago.
    pub compared: &'static str,
}

/// The rules that remedies follow.
pub const RULES: [&Rule; 3] = [&PROFILES, &BCP_195, &EARLY_DATA];

/// Mozilla gave its profiles and their generator to TLSRef in June 2026. Guideline 6.0 as Mozilla's repository has it
/// (src/static/guidelines/6.0.json); sessions as the generator wrote them for guideline 5.7 of May 2023.
const PROFILES: Rule = Rule {
    name: "TLSRef guideline 6.0, formerly Mozilla's",
    published: "June 2026",
    source: "https://data.tlsref.org/guidelines/6.0.json",
    compared: "2026-11-28",
};
const BCP_195: Rule = Rule {
    name: "BCP 195: forward secrecy, AEAD suites, fresh ticket keys (RFC 9325)",
    published: "November 2022",
    source: "https://www.rfc-editor.org/rfc/rfc9325",
    compared: "2026-11-28",
};
const EARLY_DATA: Rule = Rule {
    name: "early data in HTTP (RFC 8470)",
    published: "September 2018",
    source: "https://www.rfc-editor.org/rfc/rfc8470",
    compared: "2026-11-28",
};

/// How long connections without a request are kept: nginx's own time, seconds.
pub const KEPT_S: u32 = 75;
/// Those who cannot connect to what the profile *intermediate* leaves.
const OLD_CLIENTS: &str =
    "clients older than Chrome 49, Safari 9, Java 8u161 or Internet Explorer on Windows 10 cannot connect";
const SIGNED_OLD: &str = "a second certificate to renew; the first stays beside it, for clients before 2014";
const SMALLER_CURVE: &str =
    "128 bits of security for clients that offer no more, where larger curves have 192 and more";
const TICKETS: &str = "their keys must be renewed, as who steals one reads what was recorded with TLS 1.2 (BCP 195)";
const LATER: &str = "the first bytes of a large answer are read later on a slow line";
const NO_GAIN: &str = "no gain in CPU time: what is recorded today cannot be read by quantum computers later";
const REPEATED: &str =
    "such requests can be repeated by whoever records them (RFC 8470): for pages that change nothing";

const UNCHANGED: TlsChange = TlsChange {
    version: None,
    suite: None,
    group: None,
    certificate: None,
    chain_count: None,
    tickets: None,
    ticket_keys: None,
    session_cache: None,
    session_timeout_s: None,
    early_data: None,
    http2: None,
    keep_alive_s: None,
    record_bytes: None,
};

/// Each remedy: its id, which is no title that people gave to remedies of their own, its title, other titles that it
/// had, and its price; what it changes; what else is known of it.
macro_rules! remedies {
    ($($variant:ident: $name:literal, $title:literal $(| $old:literal)*, $price:expr;
       {$($field:ident: $to:expr),*} $($more:ident: $value:expr),*;)*) => {
        named! {
            /// A remedy. Files name it by its id, or by a title of it.
            pub enum RemedyId: "remedy" { $(#[doc = $title] $variant = $name | $title $(| $old)*,)* }
        }

        /// All of them, in the order of their ids.
        pub const REMEDIES: [Remedy; RemedyId::ALL.len()] = [$(Remedy {
            $($more: Some($value),)*
            ..Remedy {
                id: RemedyId::$variant,
                title: $title,
                price: $price,
                change: TlsChange { $($field: Some($to),)* ..UNCHANGED },
                signature_times: None,
                rule: None,
            }
        }),*];
    };
}

remedies! {
    KeepAlive: "keep-alive", "keep-alive", "memory for each open connection"; {keep_alive_s: KEPT_S};
    EcdsaCertificate: "ecdsa-certificate", "ECDSA P-256 certificate" | "ECDSA certificate", SIGNED_OLD;
        {certificate: CertificateKind::P256};
    X25519: "x25519", "X25519 for key agreement", SMALLER_CURVE; {group: Group::X25519};
    Tls13: "tls-1.3", "TLS 1.3", "none; older clients go on with TLS 1.2"; {version: Version::Tls13};
    Tickets: "session-tickets", "session tickets", TICKETS; {tickets: true} rule: &BCP_195;
    SharedCache: "shared-session-cache", "shared session cache", "some 250 bytes of memory a session";
        {session_cache: SessionCache::Shared};
    LargeRecords: "large-records", "TLS records of 16 KB", LATER; {record_bytes: 16_384};
    HybridGroup: "hybrid-group", "hybrid group X25519MLKEM768", NO_GAIN; {group: Group::X25519MlKem768};
    EarlyData: "early-data", "early data", REPEATED; {early_data: true} rule: &EARLY_DATA;
    ShorterChain: "shorter-chain", "shorter chain", "none"; {};
    KeepAliveBehind: "keep-alive-behind", "keep-alive to the server behind", "some open connections there"; {};
    FewerSuites: "fewer-suites", "fewer suites", OLD_CLIENTS; {} rule: &BCP_195;
    Intermediate: "profile-intermediate", "TLSRef (Mozilla) intermediate" | "Mozilla intermediate", OLD_CLIENTS;
        {} rule: &PROFILES;
    Modern: "profile-modern", "TLSRef (Mozilla) modern" | "Mozilla modern", "clients before 2018 cannot connect";
        {} rule: &PROFILES;
    Http2: "http-2", "HTTP/2", ""; {};
    Workers: "workers-on-all-cpus", "workers on all CPUs", ""; {};
    MoreConnections: "more-connections", "more connections", ""; {};
    Renewal: "certificate-renewal", "renewal of the certificate", ""; {};
    Accelerator: "signature-accelerator", "accelerator for private-key operations", "hardware";
        {} signature_times: 0.25;
    EndlessAccelerator: "endless-accelerator", "an accelerator without limits", "nobody sells one";
        {} signature_times: 0.0;
    PlainData: "plain-data", "plain data, the bound of kernel or hardware TLS", "it cannot be had itself"; {};
    SharedTicketKeys: "shared-ticket-keys", "shared ticket keys", TICKETS; {ticket_keys: TicketKeys::Shared};
}

impl RemedyId {
    /// The row of the table for this id.
    pub fn remedy(self) -> &'static Remedy {
        &REMEDIES[self as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_remedy_has_its_row_and_is_read_by_its_id_and_by_its_title() {
        for (remedy, id) in REMEDIES.iter().zip(RemedyId::ALL) {
            assert_eq!((remedy.id, id.remedy().id), (id, id));
            assert_eq!([id.name(), remedy.title].map(|text| text.parse()), [Ok(id), Ok(id)]);
        }
        assert!(RULES.iter().all(|rule| REMEDIES.iter().any(|remedy| remedy.rule == Some(rule))));
    }
}
