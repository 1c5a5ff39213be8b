//! HPACK (RFC 7541): the tables that both ends keep, and the decoder of what a server sends.

use std::collections::VecDeque;

use super::huffman;

/// Fields of the static table (RFC 7541 appendix A).
#[rustfmt::skip]
const STATIC: [(&str, &str); 61] = [
    (":authority", ""), (":method", "GET"), (":method", "POST"), (":path", "/"), (":path", "/index.html"),
    (":scheme", "http"), (":scheme", "https"), (":status", "200"), (":status", "204"), (":status", "206"),
    (":status", "304"), (":status", "400"), (":status", "404"), (":status", "500"), ("accept-charset", ""),
    ("accept-encoding", "gzip, deflate"), ("accept-language", ""), ("accept-ranges", ""), ("accept", ""),
    ("access-control-allow-origin", ""), ("age", ""), ("allow", ""), ("authorization", ""), ("cache-control", ""),
    ("content-disposition", ""), ("content-encoding", ""), ("content-language", ""), ("content-length", ""),
    ("content-location", ""), ("content-range", ""), ("content-type", ""), ("cookie", ""), ("date", ""),
    ("etag", ""), ("expect", ""), ("expires", ""), ("from", ""), ("host", ""), ("if-match", ""),
    ("if-modified-since", ""), ("if-none-match", ""), ("if-range", ""), ("if-unmodified-since", ""),
    ("last-modified", ""), ("link", ""), ("location", ""), ("max-forwards", ""), ("proxy-authenticate", ""),
    ("proxy-authorization", ""), ("range", ""), ("referer", ""), ("refresh", ""), ("retry-after", ""),
    ("server", ""), ("set-cookie", ""), ("strict-transport-security", ""), ("transfer-encoding", ""),
    ("user-agent", ""), ("vary", ""), ("via", ""), ("www-authenticate", ""),
];

/// What a field counts beside its name and value, bytes (RFC 7541 section 4.1).
const FIELD_OVERHEAD: usize = 32;

/// Why a header block cannot be decoded. All are errors of the connection: the tables of both ends differ from then on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HpackFault {
    /// The block ends within a field.
    Truncated,
    /// An integer is larger than anything that can be meant.
    Integer,
    /// An index points to no field of the tables.
    Index,
    /// A string is no Huffman code, or its padding is wrong.
    Huffman,
    /// The table is made larger than it may be, or within a block.
    TableSize,
    /// The fields of a block are larger together than the limit.
    ListTooLarge,
}

/// The dynamic table: the last fields that were inserted, as many as its size has room for. Names and values lie in one
/// buffer, oldest first, so that an insertion allocates nothing once the buffer has grown.
#[derive(Clone, Debug, Default)]
pub(super) struct Table {
    bytes: Vec<u8>,
    /// Oldest first.
    fields: VecDeque<Place>,
    size: usize,
    size_max: usize,
}

/// Where a field lies: its name, and behind it its value.
#[derive(Clone, Copy, Debug)]
struct Place {
    start: usize,
    name: usize,
    value: usize,
}

impl Place {
    fn of<'a>(&self, bytes: &'a [u8]) -> (&'a [u8], &'a [u8]) {
        bytes[self.start..self.end()].split_at(self.name)
    }

    fn end(&self) -> usize {
        self.start + self.name + self.value
    }
}

impl Table {
    pub fn new(size_max: usize) -> Table {
        Table { size_max, ..Table::default() }
    }

    pub fn size_max(&self) -> usize {
        self.size_max
    }

    pub fn set_size_max(&mut self, size_max: usize) {
        self.size_max = size_max;
        self.evict(0);
    }

    /// Lets the oldest fields go until another one of so many bytes fits.
    fn evict(&mut self, room: usize) {
        while self.size + room > self.size_max
            && let Some(Place { name, value, .. }) = self.fields.pop_front()
        {
            self.size -= name + value + FIELD_OVERHEAD;
        }
        let unused = self.fields.front().map_or(self.bytes.len(), |oldest| oldest.start);
        if unused == self.bytes.len() || unused > self.size_max {
            self.bytes.drain(..unused);
            self.fields.iter_mut().for_each(|place| place.start -= unused);
        }
    }

    pub fn insert(&mut self, name: &[u8], value: &[u8]) {
        let bytes = name.len() + value.len() + FIELD_OVERHEAD;
        self.evict(bytes);
        // A field larger than the table leaves it empty, which is no error (RFC 7541 section 4.4).
        if bytes > self.size_max {
            return;
        }
        self.fields.push_back(Place { start: self.bytes.len(), name: name.len(), value: value.len() });
        self.bytes.extend_from_slice(name);
        self.bytes.extend_from_slice(value);
        self.size += bytes;
    }

    /// The fields of the dynamic table, newest first: so the first has index 62.
    fn newest_first(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        self.fields.iter().rev().map(|place| place.of(&self.bytes))
    }

    /// The field with this index in both tables together (RFC 7541 section 2.3.3).
    fn get(&self, index: usize) -> Option<(&[u8], &[u8])> {
        match index.checked_sub(STATIC.len() + 1) {
            Some(newest) => {
                let place = self.fields.get(self.fields.len().checked_sub(newest + 1)?)?;
                Some(place.of(&self.bytes))
            }
            None => {
                let (name, value) = STATIC.get(index.checked_sub(1)?)?;
                Some((name.as_bytes(), value.as_bytes()))
            }
        }
    }

    /// The index of a field, or of one with its name.
    pub fn find(&self, name: &[u8], value: &[u8]) -> Found {
        let dynamic = self.newest_first().position(|field| field == (name, value));
        if let Some(newest) = dynamic {
            return Found::Field(STATIC.len() + 1 + newest);
        }
        let of_name = |field: &(&str, &str)| field.0.as_bytes() == name;
        let Some(first) = STATIC.iter().position(of_name) else {
            let newest = self.newest_first().position(|field| field.0 == name);
            return newest.map_or(Found::Nothing, |newest| Found::Name(STATIC.len() + 1 + newest));
        };
        let mut same_name = STATIC[first..].iter().take_while(|field| of_name(field));
        match same_name.position(|field| field.1.as_bytes() == value) {
            Some(after) => Found::Field(first + 1 + after),
            None => Found::Name(first + 1),
        }
    }
}

/// What the tables have of a field: an index from 1 on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Found {
    Field(usize),
    Name(usize),
    Nothing,
}

/// Decodes the header blocks of one connection, in their order.
#[derive(Clone, Debug)]
pub struct Decoder {
    table: Table,
    /// What the table may be set to: what was announced, bytes.
    size_allowed: usize,
    /// Name and value of a field that was in Huffman code.
    name: Vec<u8>,
    value: Vec<u8>,
}

impl Decoder {
    /// A decoder whose table may have so many bytes, as `SETTINGS_HEADER_TABLE_SIZE` announced.
    pub fn new(size_allowed: usize) -> Decoder {
        Decoder { table: Table::new(super::TABLE_BYTES_DEFAULT), size_allowed, name: Vec::new(), value: Vec::new() }
    }

    /// Decodes a whole block, and hands each name and value to `field`. `list_max`: most bytes of all its fields
    /// together, counted as RFC 9113 section 6.5.2 does. After a fault the decoder is of no use.
    pub fn decode(
        &mut self,
        block: &[u8],
        list_max: usize,
        mut field: impl FnMut(&[u8], &[u8]),
    ) -> Result<(), HpackFault> {
        let mut input = Input(block);
        let (mut list_bytes, mut any_field) = (0, false);
        let mut count = |name: &[u8], value: &[u8]| {
            list_bytes += name.len() + value.len() + FIELD_OVERHEAD;
            if list_bytes > list_max { Err(HpackFault::ListTooLarge) } else { Ok(()) }
        };
        while let Some(&first) = input.0.first() {
            // RFC 7541 section 6 has these forms.
            if first & 0x80 != 0 {
                let (name, value) = self.table.get(input.integer(7)?).ok_or(HpackFault::Index)?;
                count(name, value)?;
                field(name, value);
            } else if first & 0xe0 == 0x20 {
                let size = input.integer(5)?;
                if any_field || size > self.size_allowed {
                    return Err(HpackFault::TableSize);
                }
                self.table.set_size_max(size);
                continue;
            } else {
                let keeps = first & 0x40 != 0;
                let index = input.integer(if keeps { 6 } else { 4 })?;
                let name = match index {
                    0 => input.string(&mut self.name)?,
                    _ => {
                        let (name, _) = self.table.get(index).ok_or(HpackFault::Index)?;
                        // Copied: an insertion may let the field go whose name this is.
                        self.name.clear();
                        self.name.extend_from_slice(name);
                        &self.name
                    }
                };
                let value = input.string(&mut self.value)?;
                count(name, value)?;
                field(name, value);
                if keeps {
                    self.table.insert(name, value);
                }
            }
            any_field = true;
        }
        Ok(())
    }
}

/// What is left of a block.
struct Input<'a>(&'a [u8]);

impl<'a> Input<'a> {
    fn byte(&mut self) -> Result<u8, HpackFault> {
        let (first, rest) = self.0.split_first().ok_or(HpackFault::Truncated)?;
        self.0 = rest;
        Ok(*first)
    }

    /// An integer whose first byte has so many bits of it (RFC 7541 section 5.1). None that is meant has more than four
    /// bytes.
    fn integer(&mut self, prefix_bits: u32) -> Result<usize, HpackFault> {
        let most = (1 << prefix_bits) - 1;
        let mut value = usize::from(self.byte()?) & most;
        if value < most {
            return Ok(value);
        }
        for shift in [0, 7, 14, 21] {
            let byte = self.byte()?;
            value += usize::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Ok(value);
            }
        }
        Err(HpackFault::Integer)
    }

    /// A string; one in Huffman code is decoded into `decoded`.
    fn string<'b>(&mut self, decoded: &'b mut Vec<u8>) -> Result<&'b [u8], HpackFault>
    where
        'a: 'b,
    {
        let is_coded = self.0.first().is_some_and(|first| first & 0x80 != 0);
        let length = self.integer(7)?;
        let (string, rest) = self.0.split_at_checked(length).ok_or(HpackFault::Truncated)?;
        self.0 = rest;
        if !is_coded {
            return Ok(string);
        }
        decoded.clear();
        huffman::decode(string, decoded)?;
        Ok(decoded)
    }
}

/// Appends an integer behind the bits of `form` (RFC 7541 section 5.1).
pub(super) fn put_integer(out: &mut Vec<u8>, form: u8, prefix_bits: u32, value: usize) {
    let most = (1 << prefix_bits) - 1;
    if value < most {
        return out.push(form | value as u8);
    }
    out.push(form | most as u8);
    let mut rest = value - most;
    while rest >= 0x80 {
        out.push(0x80 | (rest & 0x7f) as u8);
        rest >>= 7;
    }
    out.push(rest as u8);
}
