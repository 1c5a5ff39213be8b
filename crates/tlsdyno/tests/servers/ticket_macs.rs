//! Whose key protects a ticket. mod_ssl of Apache 2.4 on OpenSSL 3 (2.4.71 does) keeps a pointer into the stack of a
//! function that has returned as the key of its tickets' MACs, in place of a copy of what it read from
//! SSLSessionTicketKeyFile. Whether two servers with one file then take each other's tickets is chance: those of
//! Debian 12 do, those of Debian 13 do not.

use std::fs;
use std::path::Path;

use openssl::hash::MessageDigest;
use openssl::pkey::PKey;
use openssl::sign::Signer;

const NAME_BYTES: usize = 16;
const MAC_BYTES: usize = 32;

/// Whether the ticket in this file of `openssl s_client -sess_out` has the name of the keys (its first 16 bytes), but a
/// MAC that is not by the key that follows there: the server was given these keys, and lost one.
pub fn is_by_a_lost_key(session: &Path, keys: &[u8]) -> bool {
    let (name, key) = (&keys[..NAME_BYTES], &keys[NAME_BYTES..2 * NAME_BYTES]);
    let ticket = ticket(&fs::read_to_string(session).unwrap(), name).expect("a ticket with the name of the keys");
    let (protected, mac) = ticket.split_at(ticket.len() - MAC_BYTES);
    let key = PKey::hmac(key).unwrap();
    let mut signer = Signer::new(MessageDigest::sha256(), &key).unwrap();
    signer.sign_oneshot_to_vec(protected).unwrap() != mac
}

/// In the session's PEM, the OCTET STRING that begins with this name.
fn ticket(session: &str, name: &[u8]) -> Option<Vec<u8>> {
    let base64: String = session.lines().filter(|line| !line.starts_with('-')).collect();
    let der = openssl::base64::decode_block(&base64).unwrap();
    let start = der.windows(name.len()).position(|bytes| bytes == name)?;
    let length = match der[..start] {
        [.., 4, 0x82, high, low] => usize::from(u16::from_be_bytes([high, low])),
        [.., 4, 0x81, length] => usize::from(length),
        _ => return None,
    };
    Some(der[start..start + length].to_vec())
}

#[test]
fn a_mac_by_the_key_of_the_file_is_not_lost() {
    let keys: Vec<u8> = (0..48).collect();
    let session_by = |key: &[u8]| {
        let protected = [&keys[..NAME_BYTES], &[9; 150]].concat();
        let key = PKey::hmac(key).unwrap();
        let mac = Signer::new(MessageDigest::sha256(), &key).unwrap().sign_oneshot_to_vec(&protected).unwrap();
        let der = [&[4, 0x81, (protected.len() + mac.len()) as u8][..], &protected, &mac].concat();
        let file = tempfile::NamedTempFile::new().unwrap();
        fs::write(&file, format!("-----BEGIN-----\n{}\n-----END-----\n", openssl::base64::encode_block(&der))).unwrap();
        file
    };
    assert!(!is_by_a_lost_key(session_by(&keys[16..32]).path(), &keys));
    assert!(is_by_a_lost_key(session_by(&[0; 16]).path(), &keys));
}
