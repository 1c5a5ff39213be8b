//! The code that a process has mapped: from an address to the function, and from a stack to its callers.

use std::collections::HashMap;
use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;

use anyhow::{Context, Result};
use framehop::x86_64::{CacheX86_64, UnwindRegsX86_64, UnwinderX86_64};
use framehop::{ExplicitModuleSectionInfo, FrameAddress, Module, Unwinder};

use super::elf::{Symbols, Tables};
use super::groups::{Frame, LIBCRYPTO, PROFILER, found};
use super::{Trampolines, calls};
use crate::store::samples::Samples;

/// More frames than this have no stack of a server.
const FRAMES_MAX: usize = 96;

/// A mapping of code: addresses, offset into the file, and the file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mapping {
    range: Range<u64>,
    offset: u64,
    path: PathBuf,
}

/// The code of a process, from `/proc/PID/maps`.
pub fn code_of(pid: u32) -> Result<Vec<Mapping>> {
    let path = format!("/proc/{pid}/maps");
    let maps = std::fs::read_to_string(&path).with_context(|| format!("cannot read {path}"))?;
    Ok(maps.lines().filter_map(mapping).collect())
}

/// `7f0000001000-7f0000002000 r-xp 00001000 fe:00 1234    /usr/lib/libssl.so.3`
fn mapping(line: &str) -> Option<Mapping> {
    let mut fields = line.splitn(6, ' ');
    let (start, end) = fields.next()?.split_once('-')?;
    let executable = fields.next()?.contains('x');
    let offset = u64::from_str_radix(fields.next()?, 16).ok()?;
    let path = fields.nth(2)?.trim();
    let range = u64::from_str_radix(start, 16).ok()?..u64::from_str_radix(end, 16).ok()?;
    (executable && path.starts_with('/')).then(|| Mapping { range, offset, path: PathBuf::from(path) })
}

/// A file that is mapped as code.
struct File {
    name: String,
    /// What is added to an address of the file's own count.
    base: u64,
    symbols: Symbols,
    /// Its code, from an address of its own count on.
    code: (u64, Arc<[u8]>),
    /// The functions of other files that it calls, by where their addresses are kept.
    imports: HashMap<u64, String>,
}

impl File {
    /// The code up to an address of the process.
    fn code_before(&self, address: u64) -> &[u8] {
        let (start, code) = &self.code;
        let end = address.wrapping_sub(self.base).checked_sub(*start).and_then(|end| usize::try_from(end).ok());
        end.and_then(|end| code.get(..end)).unwrap_or_default()
    }

    /// The imported function that is called just before an address of the process.
    fn called_before(&self, address: u64) -> Option<&str> {
        let (start, code) = &self.code;
        let at = address.wrapping_sub(self.base);
        let slot = calls::slot_called_before(at, *start, code)?;
        self.imports.get(&slot).map(String::as_str)
    }
}

/// All of it, with what was already looked up.
pub struct Space {
    /// What it was made of.
    pub maps: Vec<Mapping>,
    files: Vec<(Range<u64>, File)>,
    unwinder: UnwinderX86_64<Arc<[u8]>>,
    cache: CacheX86_64,
    trampolines: Trampolines,
    known: HashMap<u64, Frame>,
}

impl Space {
    /// Reads the files.
    pub fn of(maps: Vec<Mapping>, trampolines: &Trampolines) -> Space {
        let mut unwinder = UnwinderX86_64::new();
        let mut files = Vec::new();
        for Mapping { range, offset, path } in &maps {
            let Some(tables) = Tables::of(path) else { continue };
            let Some(address) = tables.address_of(*offset) else { continue };
            let base = range.start.wrapping_sub(address);
            let name = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
            let Tables { code, imports, .. } = &tables;
            let (code, imports) = (code.clone(), imports.clone());
            unwinder.add_module(Module::new(name.clone(), range.clone(), base, sections(tables)));
            files.push((range.clone(), File { name, base, symbols: Symbols::of(path), code, imports }));
        }
        let (trampolines, known) = (trampolines.clone(), HashMap::new());
        Space { maps, files, unwinder, cache: CacheX86_64::new(), trampolines, known }
    }

    /// The addresses of a stack, innermost first. `registers`: BP, SP, IP; `stack`: from SP on.
    pub fn unwind(&mut self, [bp, sp, ip]: [u64; 3], stack: &[u8]) -> Vec<u64> {
        let mut read = |address: u64| {
            let at = usize::try_from(address.checked_sub(sp).ok_or(())?).map_err(drop)?;
            let word = stack.get(at..at + 8).and_then(|word| word.try_into().ok()).ok_or(())?;
            Ok(u64::from_le_bytes(word))
        };
        let mut registers = UnwindRegsX86_64::new(ip, sp, bp);
        let mut frame = Some(FrameAddress::from_instruction_pointer(ip));
        let mut addresses = Vec::new();
        // Where the stack was searched last, and how many frames there were then.
        let mut searched: Option<(usize, u64)> = None;
        while let Some(address) = frame.filter(|_| addresses.len() < FRAMES_MAX) {
            addresses.push(address.address_for_lookup());
            let before_sp = registers.sp();
            let caller = self.unwinder.unwind_frame(address, &mut registers, &mut self.cache, &mut read);
            let known = caller.ok().flatten().filter(|caller| self.file_at(*caller).is_some());
            let caller = known.or_else(|| {
                // The outermost frames have no caller.
                self.file_at(*addresses.last()?).filter(|file| file.name.starts_with(LIBCRYPTO))?;
                // What was found on the stack and leads nowhere was left there by an earlier call.
                let (count, from) = searched.unwrap_or((addresses.len(), before_sp));
                addresses.truncate(count);
                let (caller, at) = self.caller_on_stack(from, &mut read)?;
                searched = Some((count, at));
                registers.set_sp(at);
                Some(caller)
            });
            // What cannot be unwound any further is told as far as it went.
            frame = caller.and_then(FrameAddress::from_return_address);
        }
        addresses
    }

    /// For code of libcrypto that carries no tables (what it has in assembler uses every register as it likes): the
    /// next word of the stack that is an address behind a call, and where the stack goes on behind it.
    fn caller_on_stack(&self, sp: u64, read: &mut impl FnMut(u64) -> Result<u64, ()>) -> Option<(u64, u64)> {
        let mut at = sp;
        loop {
            let word = read(at).ok()?;
            at += 8;
            let file = self.file_at(word).filter(|file| file.name.starts_with(LIBCRYPTO) || file.name == PROFILER);
            if file.is_some_and(|file| calls::is_behind_call(file.code_before(word))) {
                return Some((word, at));
            }
        }
    }

    fn file_at(&self, address: u64) -> Option<&File> {
        self.files.iter().find(|(range, _)| range.contains(&address)).map(|(_, file)| file)
    }

    /// Adds a sample.
    pub fn add(&mut self, samples: &mut Samples, is_kernel: bool, addresses: &[u64]) {
        let frames: Vec<Frame> = addresses.iter().map(|address| self.frame(*address)).collect();
        let found = found(is_kernel, &frames);
        *samples.groups.entry(found.group).or_default() += 1;
        if let Some(function) = found.function {
            *samples.functions.entry(function).or_default() += 1;
        }
        samples.stacks.add_stack(&found.stack);
    }

    fn frame(&mut self, address: u64) -> Frame {
        if let Some(frame) = self.known.get(&address) {
            return frame.clone();
        }
        let frame = self.looked_up(address);
        self.known.insert(address, frame.clone());
        frame
    }

    fn looked_up(&self, address: u64) -> Frame {
        let Some(found) = self.file_at(address) else { return Frame::default() };
        let File { name: file, base, symbols, .. } = found;
        let function = symbols.name_at(address.wrapping_sub(*base)).map(str::to_owned);
        let trampoline =
            function.as_deref().filter(|_| file == PROFILER).and_then(|name| name.strip_prefix("trampoline_"));
        // Their numbers are octal (native/profiler/trampolines.c).
        let number = trampoline.and_then(|number| usize::from_str_radix(number, 8).ok());
        let stage = number.and_then(|number| self.trampolines.get(number).copied().flatten());
        // Of a caller, the address is that of the last byte of its call.
        let calls = found.called_before(address + 1).map(str::to_owned);
        Frame { file: file.clone(), function, stage, calls }
    }
}

fn sections(tables: Tables) -> ExplicitModuleSectionInfo<Arc<[u8]>> {
    let mut info = ExplicitModuleSectionInfo::default();
    for (name, range, data) in tables.sections {
        match name {
            ".text" => (info.text_svma, info.text) = (Some(range), Some(data)),
            ".eh_frame" => (info.eh_frame_svma, info.eh_frame) = (Some(range), Some(data)),
            ".eh_frame_hdr" => (info.eh_frame_hdr_svma, info.eh_frame_hdr) = (Some(range), Some(data)),
            _ => info.got_svma = Some(range),
        }
    }
    info
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mappings_of_code_are_read() {
        let line = "7f0000001000-7f0000002000 r-xp 00003000 fe:00 1234                       /usr/lib/libssl.so.3";
        let found = mapping(line).unwrap();
        assert_eq!(found.range, 0x7f00_0000_1000..0x7f00_0000_2000);
        assert_eq!((found.offset, found.path), (0x3000, PathBuf::from("/usr/lib/libssl.so.3")));
        assert_eq!(mapping(&line.replace("r-xp", "r--p")), None);
        assert_eq!(mapping("7ffd1000-7ffd2000 r-xp 00000000 00:00 0                          [vdso]"), None);
        assert_eq!(mapping(""), None);
        assert!(!code_of(std::process::id()).unwrap().is_empty());
    }
}
