//! The part of the ClientHello that is the same on every connection.

use std::net::IpAddr;

use tlsdyno_wire::codec::{put_u16, put_vector8, put_vector16};
use tlsdyno_wire::hello::{self, Template, put_extension};

use super::{Lack, Settings, Signer};
use crate::compressed;
use crate::crypto::verify::{ECDSA_SCHEMES, RSA_SCHEMES, SIGNATURE_SCHEMES};
use crate::suite::Version;

/// A value that stands for no suite, no group and no signature algorithm (RFC 8701 section 2): servers pass it over.
const NOBODY_KNOWS: u16 = 0x0a0a;

/// Extensions that are the same in every hello. Those that differ are appended by the offer: key share, ticket, cookie,
/// PSK.
pub(super) fn template(settings: &Settings) -> Template {
    let or_nothing = |lack: Lack, codes: Vec<u16>| if settings.lack == Some(lack) { vec![NOBODY_KNOWS] } else { codes };
    let suites = or_nothing(Lack::Suites, settings.suites.iter().map(|suite| suite.code()).collect());
    let groups = or_nothing(Lack::Groups, settings.groups.iter().map(|group| group.code()).collect());
    let schemes = or_nothing(Lack::Signatures, schemes(settings.signer));
    Template::new(&suites, |out| {
        if let Some(name) = sni(settings) {
            put_extension(out, hello::SERVER_NAME, |out| {
                put_vector16(out, |out| {
                    out.push(0); // host_name
                    put_vector16(out, |out| out.extend_from_slice(name.as_bytes()));
                });
            });
        }
        put_extension(out, hello::SUPPORTED_GROUPS, |out| {
            put_vector16(out, |out| groups.iter().for_each(|group| put_u16(out, *group)));
        });
        put_extension(out, hello::SIGNATURE_ALGORITHMS, |out| {
            put_vector16(out, |out| schemes.iter().for_each(|scheme| put_u16(out, *scheme)));
        });
        if settings.signer.is_some() {
            // Whoever signed the certificate is not limited (RFC 9846 section 4.2.3).
            put_extension(out, hello::SIGNATURE_ALGORITHMS_CERT, |out| {
                put_vector16(out, |out| SIGNATURE_SCHEMES.iter().for_each(|scheme| put_u16(out, *scheme)));
            });
        }
        if !settings.alpn.is_empty() {
            put_extension(out, hello::ALPN, |out| {
                put_vector16(out, |out| {
                    settings
                        .alpn
                        .iter()
                        .for_each(|name| put_vector8(out, |out| out.extend_from_slice(name.as_bytes())));
                });
            });
        }
        if settings.versions.contains(&Version::Tls13) {
            put_tls13_extensions(settings, out);
        }
        if settings.versions.contains(&Version::Tls12) {
            put_tls12_extensions(settings, out);
        }
    })
}

/// The algorithms that a key of this kind can sign with.
fn schemes(signer: Option<Signer>) -> Vec<u16> {
    match signer {
        None => SIGNATURE_SCHEMES.to_vec(),
        Some(Signer::Rsa) => RSA_SCHEMES.to_vec(),
        Some(Signer::Ecdsa) => ECDSA_SCHEMES.to_vec(),
    }
}

fn put_tls13_extensions(settings: &Settings, out: &mut Vec<u8>) {
    put_extension(out, hello::SUPPORTED_VERSIONS, |out| {
        put_vector8(out, |out| settings.versions.iter().for_each(|version| put_u16(out, version.code())));
    });
    if settings.compressed_certificate {
        put_extension(out, hello::COMPRESS_CERTIFICATE, |out| put_vector8(out, |out| put_u16(out, compressed::ZLIB)));
    }
    // psk_dhe_ke, also without a session at hand: servers issue no tickets otherwise (RFC 9846 section 4.2.9).
    let mode = u8::from(settings.lack != Some(Lack::Agreement));
    put_extension(out, hello::PSK_KEY_EXCHANGE_MODES, |out| put_vector8(out, |out| out.push(mode)));
}

fn put_tls12_extensions(settings: &Settings, out: &mut Vec<u8>) {
    put_extension(out, hello::EC_POINT_FORMATS, |out| put_vector8(out, |out| out.push(0))); // uncompressed
    put_extension(out, hello::RENEGOTIATION_INFO, |out| put_vector8(out, |_| ()));
    if settings.extended_master_secret {
        put_extension(out, hello::EXTENDED_MASTER_SECRET, |_| ());
    }
    if settings.encrypt_then_mac {
        put_extension(out, hello::ENCRYPT_THEN_MAC, |_| ());
    }
}

/// The name that is sent: an address is none.
pub(super) fn sni(settings: &Settings) -> Option<&str> {
    settings.server_name.as_deref().filter(|name| name.parse::<IpAddr>().is_err())
}
