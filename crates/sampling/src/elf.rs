//! What is read of a library: the tables by which its stack is unwound, and the names of its functions, as far as the
//! file has them, or a debug package that is installed for it.

use std::collections::HashMap;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use framehop::{Module, ModuleSectionInfo};
use object::elf::PF_X;
use object::{
    Object, ObjectSection, ObjectSegment, ObjectSymbol, ObjectSymbolTable, RelocationTarget, SegmentFlags, SymbolKind,
};

use super::{calls, go};

/// The functions of a library, by address in the file.
#[derive(Debug, Default)]
struct Symbols(Vec<Symbol>);

#[derive(Debug)]
struct Symbol {
    start: u64,
    end: u64,
    name: String,
}

/// The section by which programs of Go are known.
const OF_GO: &str = ".gopclntab";

impl Symbols {
    fn of(file: &object::File) -> Symbols {
        let mut symbols = Vec::new();
        add(&mut symbols, file);
        let debug = file.build_id().ok().flatten().and_then(debug_file).and_then(|path| std::fs::read(path).ok());
        if let Some(debug) = debug
            && let Ok(file) = object::File::parse(&*debug)
        {
            add(&mut symbols, &file);
        }
        if file.symbol_table().is_none()
            && let Some(table) = file.section_by_name(OF_GO).and_then(|section| section.data().ok())
        {
            let code = file.section_by_name(".text").map_or(0, |section| section.address());
            let functions = go::functions(table, file.entry(), code).unwrap_or_default();
            symbols.extend(functions.into_iter().map(|(at, name)| Symbol { start: at.start, end: at.end, name }));
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

    /// The function that contains an address.
    fn name_at(&self, address: u64) -> Option<&str> {
        let after = self.0.partition_point(|symbol| symbol.start <= address);
        let symbol = self.0.get(after.checked_sub(1)?)?;
        (address < symbol.end).then_some(symbol.name.as_str())
    }
}

fn add<'a>(symbols: &mut Vec<Symbol>, file: &impl Object<'a>) {
    let is_of_go = file.section_by_name(OF_GO).is_some();
    let all = file.symbols().chain(file.dynamic_symbols());
    for symbol in all.filter(|symbol| symbol.kind() == SymbolKind::Text && symbol.size() > 0 && symbol.is_definition())
    {
        if let Ok(name) = symbol.name() {
            // `write@@GLIBC_2.2.5`, and a compiler's copy for one caller: `step.part.0`.
            // Names of Go and Rust have dots of their own.
            let is_whole = is_of_go || name.starts_with("_ZN") || name.starts_with("_R");
            let end = if is_whole { name.len() } else { name.find(['@', '.']).unwrap_or(name.len()) };
            let name = name[..end].to_owned();
            symbols.push(Symbol { start: symbol.address(), end: symbol.address() + symbol.size(), name });
        }
    }
}

/// Path of debug symbols by build id, the same in the debug packages of all distributions.
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

/// A file mapped as code. Addresses in the file are those that it was linked for.
pub struct File {
    /// Without directories.
    pub name: String,
    /// Difference from an address in the file to one in the process.
    base: u64,
    symbols: Symbols,
    /// All code, including the procedure linkage table, with its first address in the file.
    code: (u64, Arc<[u8]>),
    /// Functions of other files, by the address of the slot where the loader writes theirs.
    imports: HashMap<u64, String>,
}

impl File {
    /// The file whose bytes from `offset` on are mapped at `range`, and its tables for unwinding. It is read at `at`,
    /// and called as the end of `path`.
    pub fn of(at: &Path, path: &Path, range: &Range<u64>, offset: u64) -> Option<(File, Module<Arc<[u8]>>)> {
        let bytes = std::fs::read(at).ok()?;
        let file = object::File::parse(&*bytes).ok()?;
        let is_code = |flags| matches!(flags, SegmentFlags::Elf { p_flags, .. } if p_flags & PF_X == PF_X);
        let code = file.segments().find(|segment| is_code(segment.flags()))?;
        // The kernel maps whole pages: what stands in the first one before the segment belongs to another, which may be
        // linked for another distance from the beginning of the file (lld does so).
        let base = range.start.wrapping_sub(offset).wrapping_add(code.file_range().0).wrapping_sub(code.address());
        let code = (code.address(), code.data().ok()?.into());
        let name = path.file_name()?.to_string_lossy().into_owned();
        let module = Module::new(name.clone(), range.clone(), base, Sections(&file));
        Some((File { name, base, symbols: Symbols::of(&file), code, imports: imports(&file) }, module))
    }

    /// The names of its functions.
    pub fn functions(&self) -> impl Iterator<Item = &str> {
        self.symbols.0.iter().map(|symbol| symbol.name.as_str())
    }

    /// `address`: of the process.
    pub fn function_at(&self, address: u64) -> Option<&str> {
        self.symbols.name_at(address.wrapping_sub(self.base))
    }

    /// `address`: of the process.
    pub fn code_before(&self, address: u64) -> &[u8] {
        let (start, code) = &self.code;
        let end = address.wrapping_sub(self.base).checked_sub(*start).and_then(|end| usize::try_from(end).ok());
        end.and_then(|end| code.get(..end)).unwrap_or_default()
    }

    /// The imported function that is called just before an address of the process.
    pub fn called_before(&self, address: u64) -> Option<&str> {
        let (start, code) = &self.code;
        let slot = calls::slot_called_before(address.wrapping_sub(self.base), *start, code)?;
        self.imports.get(&slot).map(String::as_str)
    }

    /// The function of this file that is called by its address just before an address of the process.
    pub fn called_within_before(&self, address: u64) -> Option<&str> {
        let (start, code) = &self.code;
        self.symbols.name_at(calls::target_called_before(address.wrapping_sub(self.base), *start, code)?)
    }
}

/// The sections of a file, for the unwinder.
struct Sections<'a>(&'a object::File<'a>);

impl ModuleSectionInfo<Arc<[u8]>> for Sections<'_> {
    fn base_svma(&self) -> u64 {
        0
    }

    fn section_svma_range(&mut self, name: &[u8]) -> Option<Range<u64>> {
        let section = self.0.section_by_name_bytes(name)?;
        Some(section.address()..section.address() + section.size())
    }

    fn section_data(&mut self, name: &[u8]) -> Option<Arc<[u8]>> {
        Some(self.0.section_by_name_bytes(name)?.data().ok()?.into())
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
        let bytes = std::fs::read(&own).unwrap();
        let parsed = object::File::parse(&*bytes).unwrap();
        assert!(Sections(&parsed).section_data(b".eh_frame").is_some_and(|data| !data.is_empty()));
        let is_code = |segment: &object::Segment| segment.permissions().executable();
        let code = parsed.segments().find(is_code).unwrap();
        // Mapped 4096 bytes behind where it was linked for, from the beginning of its page on.
        let before = code.file_range().0 % 4096;
        let from = code.address() - before + 4096;
        let (file, _) = File::of(&own, &own, &(from..u64::MAX), code.file_range().0 - before).unwrap();
        let is_it = |symbol: &&Symbol| symbol.name.contains("own_functions_are_found_in_the_file");
        let symbol = file.symbols.0.iter().find(is_it).unwrap();
        assert_eq!(file.function_at(symbol.start + 4096), Some(symbol.name.as_str()));
        assert!(File::of(Path::new("/proc/self/status"), &own, &(0..1), 0).is_none());
    }
}
