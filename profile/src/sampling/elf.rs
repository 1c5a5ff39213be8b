//! What is read of a library: the tables by which its stack is unwound, and the names of its functions, as far as the
//! file has them, or a debug package that is installed for it.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use object::elf::PF_X;
use object::{
    Object, ObjectSection, ObjectSegment, ObjectSymbol, ObjectSymbolTable, RelocationTarget, SegmentFlags, SymbolKind,
};

/// The functions of a library, by address in the file's own count.
#[derive(Debug, Default)]
pub struct Symbols(Vec<Symbol>);

#[derive(Debug)]
struct Symbol {
    start: u64,
    end: u64,
    name: String,
}

impl Symbols {
    /// Of a file, and of the debug package's file for it.
    pub fn of(path: &Path) -> Symbols {
        let mut symbols = Vec::new();
        let bytes = std::fs::read(path).unwrap_or_default();
        if let Ok(file) = object::File::parse(&*bytes) {
            add(&mut symbols, &file);
            let debug = file.build_id().ok().flatten().and_then(debug_file).and_then(|path| std::fs::read(path).ok());
            if let Some(debug) = debug
                && let Ok(file) = object::File::parse(&*debug)
            {
                add(&mut symbols, &file);
            }
        }
        Symbols::sorted(symbols)
    }

    /// One name for each address: of several the one without leading underscores, as programs call it.
    fn sorted(mut symbols: Vec<Symbol>) -> Symbols {
        let key =
            |symbol: &Symbol| (symbol.start, symbol.name.starts_with('_'), symbol.name.len(), symbol.name.clone());
        symbols.sort_by_cached_key(key);
        symbols.dedup_by_key(|symbol| symbol.start);
        Symbols(symbols)
    }

    /// The function at an address.
    pub fn name_at(&self, address: u64) -> Option<&str> {
        let after = self.0.partition_point(|symbol| symbol.start <= address);
        let symbol = self.0.get(after.checked_sub(1)?)?;
        (address < symbol.end).then_some(symbol.name.as_str())
    }
}

fn add<'a>(symbols: &mut Vec<Symbol>, file: &impl Object<'a>) {
    let all = file.symbols().chain(file.dynamic_symbols());
    for symbol in all.filter(|symbol| symbol.kind() == SymbolKind::Text && symbol.size() > 0 && symbol.is_definition())
    {
        if let Ok(name) = symbol.name() {
            // `write@@GLIBC_2.2.5`, and a compiler's copy for one caller: `step.part.0`.
            let name = name.split(['@', '.']).next().unwrap_or(name).to_owned();
            symbols.push(Symbol { start: symbol.address(), end: symbol.address() + symbol.size(), name });
        }
    }
}

/// Where debug packages of all distributions put the file for a build.
fn debug_file(build_id: &[u8]) -> Option<PathBuf> {
    let text: String = build_id.iter().map(|byte| format!("{byte:02x}")).collect();
    let path = PathBuf::from(format!("/usr/lib/debug/.build-id/{}/{}.debug", text.get(..2)?, text.get(2..)?));
    path.exists().then_some(path)
}

fn imports<'a>(file: &'a object::File<'a>) -> HashMap<u64, String> {
    let symbols = file.dynamic_symbol_table();
    let name = |target: RelocationTarget| {
        let RelocationTarget::Symbol(index) = target else { return None };
        let symbol = symbols.as_ref()?.symbol_by_index(index).ok()?;
        Some(symbol.name().ok()?.to_owned()).filter(|name| !name.is_empty())
    };
    let all = file.dynamic_relocations().into_iter().flatten();
    all.filter_map(|(at, relocation)| Some((at, name(relocation.target())?))).collect()
}

/// A section of a file: its name, its address in the file's own count, and what is in it.
pub type Section = (&'static str, std::ops::Range<u64>, Arc<[u8]>);

/// What unwinding needs of a library.
#[derive(Debug)]
pub struct Tables {
    /// Where the file's first byte that is mapped there would be, by the file's own count, for an offset into the file.
    segments: Vec<(u64, u64, u64)>,
    /// Sections by name with their address in the file's own count.
    pub sections: Vec<Section>,
    /// All code, with what the linker made for calls of other files, and its address in the file's own count.
    pub code: (u64, Arc<[u8]>),
    /// Functions of other files by where the loader puts their addresses.
    pub imports: HashMap<u64, String>,
}

impl Tables {
    /// Of a file.
    pub fn of(path: &Path) -> Option<Tables> {
        let bytes = std::fs::read(path).ok()?;
        let file = object::File::parse(&*bytes).ok()?;
        let segments = file.segments().map(|segment| {
            let (at, size) = segment.file_range();
            (at, size, segment.address())
        });
        let section = |name: &'static str| {
            let section = file.section_by_name(name)?;
            let range = section.address()..section.address() + section.size();
            Some((name, range, section.data().ok()?.into()))
        };
        let is_code = |flags| matches!(flags, SegmentFlags::Elf { p_flags, .. } if p_flags & PF_X == PF_X);
        let code = file.segments().find(|segment| is_code(segment.flags()));
        let code = code.and_then(|segment| Some((segment.address(), segment.data().ok()?.into())));
        let sections = [".text", ".eh_frame", ".eh_frame_hdr", ".got"].into_iter().filter_map(section).collect();
        Some(Tables { segments: segments.collect(), sections, code: code?, imports: imports(&file) })
    }

    /// The address in the file's own count of an offset into the file.
    pub fn address_of(&self, offset: u64) -> Option<u64> {
        let inside = |(at, size, _): &&(u64, u64, u64)| (*at..at + size).contains(&offset);
        self.segments.iter().find(inside).map(|(at, _, address)| offset - at + address)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn symbol(start: u64, size: u64, name: &str) -> Symbol {
        Symbol { start, end: start + size, name: name.to_owned() }
    }

    #[test]
    fn an_address_has_the_name_of_the_function_that_it_is_in() {
        let symbols = Symbols::sorted(vec![symbol(16, 8, "__write"), symbol(16, 8, "write"), symbol(32, 4, "read")]);
        assert_eq!(symbols.name_at(16), Some("write"));
        assert_eq!(
            (symbols.name_at(23), symbols.name_at(24)),
            (Some("write"), None),
            "between functions there is none"
        );
        assert_eq!((symbols.name_at(0), symbols.name_at(35)), (None, Some("read")));
    }

    #[test]
    fn own_functions_are_found_in_the_file() {
        let own = std::env::current_exe().unwrap();
        let symbols = Symbols::of(&own);
        assert!(symbols.0.iter().any(|symbol| symbol.name.contains("own_functions_are_found_in_the_file")));
        let tables = Tables::of(&own).unwrap();
        assert!(tables.sections.iter().any(|(name, _, data)| *name == ".eh_frame" && !data.is_empty()));
        assert!(Tables::of(Path::new("/proc/self/status")).is_none());
    }
}
