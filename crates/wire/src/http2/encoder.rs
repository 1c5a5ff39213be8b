//! Requests as header blocks, with fields indexed as browsers index them.
//!
//! As in Chromium's `HpackEncoder`: a field that a table has is an index; of the others all go into the dynamic table
//! but the pseudo-headers, of which only `:authority` does; strings are in Huffman code where that is shorter; each
//! cookie is a field of its own (RFC 9113 section 8.2.3). So the second request on a connection is mostly indices.

use super::hpack::{Found, Table, put_integer};
use super::{TABLE_BYTES_ANNOUNCED, TABLE_BYTES_DEFAULT, huffman};

/// Header fields of HTTP/1.1 that are about the connection (RFC 9113 section 8.2.2), and `host`, which is `:authority`.
const LEFT_OUT: [&[u8]; 7] =
    [b"host", b"connection", b"proxy-connection", b"keep-alive", b"transfer-encoding", b"upgrade", b"te"];

/// Encodes the requests of one connection, in their order.
#[derive(Clone, Debug)]
pub struct Encoder {
    table: Table,
    /// The table was made smaller, or larger, and the server does not know yet: the smallest size in between, bytes.
    resized: Option<usize>,
    name: Vec<u8>,
    scheme: &'static [u8],
}

impl Default for Encoder {
    fn default() -> Encoder {
        Encoder::new(true)
    }
}

impl Encoder {
    /// For requests over TLS, or without.
    pub(super) fn new(over_tls: bool) -> Encoder {
        let scheme: &[u8] = if over_tls { b"https" } else { b"http" };
        Encoder { table: Table::new(TABLE_BYTES_DEFAULT), resized: None, name: Vec::new(), scheme }
    }

    /// The server allows a table of so many bytes; no more is used than this client announces itself.
    pub(super) fn set_table_allowed(&mut self, bytes: usize) {
        let bytes = bytes.min(TABLE_BYTES_ANNOUNCED);
        if bytes != self.table.size_max() || self.resized.is_some() {
            self.resized = Some(self.resized.unwrap_or(bytes).min(bytes));
            self.table.set_size_max(bytes);
        }
    }

    /// Appends the request whose HTTP/1.1 head is `head`. Lines that are no header lines are left out.
    pub fn request(&mut self, head: &[u8], out: &mut Vec<u8>) {
        if let Some(smallest) = self.resized.take() {
            // RFC 7541 section 4.2: the smallest size first, then the one that holds.
            for size in [Some(smallest).filter(|size| *size < self.table.size_max()), Some(self.table.size_max())] {
                size.into_iter().for_each(|size| put_integer(out, 0x20, 5, size));
            }
        }
        let mut lines = head.split(|byte| *byte == b'\n').map(<[u8]>::trim_ascii);
        let mut words = lines.next().unwrap_or_default().split(|byte| *byte == b' ');
        let (method, path) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
        let fields = lines.filter_map(|line| {
            let colon = line.iter().position(|byte| *byte == b':')?;
            Some((&line[..colon], line[colon + 1..].trim_ascii()))
        });
        let authority = fields.clone().find(|(name, _)| name.eq_ignore_ascii_case(b"host"));
        self.field(b":method", method, out);
        if let Some((_, authority)) = authority {
            self.field(b":authority", authority, out);
        }
        self.field(b":scheme", self.scheme, out);
        self.field(b":path", path, out);
        let mut name = std::mem::take(&mut self.name);
        for (given, value) in fields {
            name.clear();
            name.extend(given.iter().map(u8::to_ascii_lowercase));
            if name == b"cookie" {
                value.split(|byte| *byte == b';').for_each(|cookie| self.field(&name, cookie.trim_ascii(), out));
            } else if !LEFT_OUT.contains(&&name[..]) {
                self.field(&name, value, out);
            }
        }
        self.name = name;
    }

    fn field(&mut self, name: &[u8], value: &[u8], out: &mut Vec<u8>) {
        let keeps = !name.starts_with(b":") || name == b":authority";
        let (form, prefix_bits) = if keeps { (0x40, 6) } else { (0, 4) };
        match self.table.find(name, value) {
            Found::Field(index) => return put_integer(out, 0x80, 7, index),
            Found::Name(index) => put_integer(out, form, prefix_bits, index),
            Found::Nothing => {
                out.push(form);
                put_string(name, out);
            }
        }
        put_string(value, out);
        if keeps {
            self.table.insert(name, value);
        }
    }
}

fn put_string(string: &[u8], out: &mut Vec<u8>) {
    let coded_bytes = huffman::coded_bytes(string);
    if coded_bytes < string.len() {
        put_integer(out, 0x80, 7, coded_bytes);
        huffman::encode(string, out);
    } else {
        put_integer(out, 0, 7, string.len());
        out.extend_from_slice(string);
    }
}
