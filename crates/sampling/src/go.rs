//! Names of the functions of a Go program by the table that its runtime has for itself, which stays where the symbol
//! table was left out (`go build -ldflags=-s`). Its form: Go's `internal/abi/symtab.go` and `debug/gosym/pclntab.go`.

use std::ops::Range;

/// What the table of Go 1.18 begins with, and that of 1.20 and later.
const MAGICS: [u64; 2] = [0xffff_fff0, 0xffff_fff1];
const POINTER_BYTES: u8 = 8;
/// The function that a program begins with, unless another linker put C before it.
const FIRST: &str = "_rt0_amd64_linux";

/// The functions of a table, with their addresses in the file. `entry`: where the program begins; `code`: its section
/// `.text`. `None`: the table has another form, or C stands before Go's code and the table does not tell where that is,
/// as Go 1.26's.
pub fn functions(table: &[u8], entry: u64, code: u64) -> Option<Vec<(Range<u64>, String)>> {
    let number = |at: usize, bytes: usize| {
        let bytes = table.get(at..at.checked_add(bytes)?)?;
        Some(bytes.iter().rev().fold(0, |number, byte| number << 8 | u64::from(*byte)))
    };
    // Of the header, in pointers behind its first eight bytes: functions, first address, names, functions' places.
    let [count, text, names, places] = [1, 3, 4, 8].map(|at| number(8 * at, 8));
    let [count, names, places] = [count?, names?, places?].map(|number| usize::try_from(number).unwrap_or(usize::MAX));
    if !MAGICS.contains(&number(0, 4)?) || table[7] != POINTER_BYTES || count > table.len() / 8 {
        return None;
    }
    let name = |offset: u64| {
        let at = names.checked_add(offset as usize)?;
        let bytes = table.get(at..)?.split(|byte| *byte == 0).next()?;
        Some(String::from_utf8_lossy(bytes).into_owned())
    };
    let function = |at: usize| {
        let entry = places.checked_add(8 * at)?;
        let told = places.checked_add(number(entry + 4, 4)? as usize)?;
        Some((number(entry, 4)?..number(entry.checked_add(8)?, 4)?, name(number(told.checked_add(4)?, 4)?)?))
    };
    let mut functions = (0..count).map(function).collect::<Option<Vec<(Range<u64>, String)>>>()?;
    let first = || functions.iter().find(|(_, name)| name == FIRST).map(|(at, _)| entry.wrapping_sub(at.start));
    let text = text.filter(|text| *text > 0).or_else(|| first().filter(|text| *text == code))?;
    functions.iter_mut().for_each(|(at, _)| *at = text.wrapping_add(at.start)..text.wrapping_add(at.end));
    Some(functions)
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    /// A table of two functions; `text`: where the first begins, as the header says it.
    fn table(text: u64) -> Vec<u8> {
        let names = b"_rt0_amd64_linux\0crypto/tls.(*Conn).Handshake\0";
        let places = 72 + names.len() as u64;
        let mut table = vec![0xf1, 0xff, 0xff, 0xff, 0, 0, 1, 8];
        table.extend([2, 0, text, 72, 0, 0, 0, places].iter().flat_map(|number: &u64| number.to_le_bytes()));
        table.extend_from_slice(names);
        // Beginnings with the places of what is told of each, the end, then beginning and name.
        let words: [u32; 9] = [0, 20, 16, 28, 64, 0, 0, 16, 17];
        table.extend(words.iter().flat_map(|word| word.to_le_bytes()));
        table
    }

    #[test]
    fn functions_are_named_where_they_are() {
        for (text, entry, first) in [(0x40_1000, 0, 0x40_1000), (0, 0x46_0000, 0x46_0000)] {
            let found = functions(&table(text), entry, entry).unwrap();
            assert_eq!(found[0], (first..first + 16, FIRST.to_owned()));
            assert_eq!(found[1], (first + 16..first + 64, "crypto/tls.(*Conn).Handshake".to_owned()));
        }
        assert_eq!(functions(&table(0)[..100], 0, 0), None);
        assert_eq!(functions(&table(0), 0x40_0040, 0x40_0000), None, "C comes first");
        assert_eq!(functions(&[], 0, 0), None);
    }

    proptest! {
        #[test]
        fn any_table_is_read(mut of in vec(any::<u8>(), 0..300), at in 0..200_usize, byte: u8, entry: u64) {
            functions(&of, entry, entry);
            of.splice(..of.len().min(8), table(0)[..8].iter().copied());
            functions(&of, entry, entry);
            let mut changed = table(0);
            let length = changed.len();
            changed[at % length] = byte;
            functions(&changed, entry, entry);
        }
    }
}
