//! Records of a conversation as the fuzzer writes them: a list of kinds, lengths and contents.

use tlsdyno_wire::codec::put_vector16;
use tlsdyno_wire::record;

/// Flag of a record that is protected as the no-op stages do it in TLS 1.3.
pub(super) const PROTECTED_13: u8 = 0x80;
/// The same for AES-GCM in TLS 1.2.
pub(super) const PROTECTED_12: u8 = 0x40;

/// Kind of what is no record: its content comes as it is.
pub(super) const RAW: u8 = 0;

/// Appends one record to a script: content type with flags, length, content.
pub(super) fn put_record(script: &mut Vec<u8>, kind: u8, content: &[u8]) {
    script.push(kind);
    put_vector16(script, |out| out.extend_from_slice(content));
}

/// The bytes on the wire of a script; a length that points beyond the end takes what is left.
pub(super) fn records(mut script: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    while let [kind, high, low, rest @ ..] = script {
        let length = usize::from(u16::from_be_bytes([*high, *low]) % 0x4800).min(rest.len());
        let (content, rest) = rest.split_at(length);
        script = rest;
        if *kind == RAW {
            out.extend_from_slice(content);
            continue;
        }
        let inner = kind & 0x3f;
        let header = |kind, length: usize| record::Header::new(kind, length as u16).bytes;
        if kind & PROTECTED_13 != 0 {
            out.extend_from_slice(&header(record::APPLICATION_DATA, length + 17));
            out.extend_from_slice(content);
            out.push(inner);
            out.extend_from_slice(&[0; 16]);
        } else if kind & PROTECTED_12 != 0 {
            out.extend_from_slice(&header(inner, length + 24));
            out.extend_from_slice(&[0; 8]);
            out.extend_from_slice(content);
            out.extend_from_slice(&[0; 16]);
        } else {
            out.extend_from_slice(&header(inner, length));
            out.extend_from_slice(content);
        }
    }
    out
}
