//! The code that a process has mapped: from an address to the function, and from a stack to its callers.

use std::collections::HashMap;
use std::ops::Range;
use std::path::PathBuf;

use anyhow::{Context, Result};
use framehop::x86_64::{CacheX86_64, UnwindRegsX86_64, UnwinderX86_64};
use framehop::{ExplicitModuleSectionInfo, Module, Unwinder};

use super::elf::{Symbols, Tables};
use super::groups::{Frame, PROFILER, found};
use super::samples::{Samples, Trampolines};

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
}

/// All of it, with what was already looked up.
pub struct Space {
    /// What it was made of.
    pub maps: Vec<Mapping>,
    files: Vec<(Range<u64>, File)>,
    unwinder: UnwinderX86_64<Vec<u8>>,
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
            unwinder.add_module(Module::new(name.clone(), range.clone(), base, sections(tables)));
            files.push((range.clone(), File { name, base, symbols: Symbols::of(path) }));
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
        let registers = UnwindRegsX86_64::new(ip, sp, bp);
        let mut frames = self.unwinder.iter_frames(ip, registers, &mut self.cache, &mut read);
        let mut addresses = Vec::new();
        // What cannot be unwound any further is told as far as it went.
        while let Ok(Some(frame)) = frames.next() {
            addresses.push(frame.address_for_lookup());
            if addresses.len() == FRAMES_MAX {
                break;
            }
        }
        addresses
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
        let found = self.files.iter().find(|(range, _)| range.contains(&address));
        let Some((_, File { name: file, base, symbols })) = found else { return Frame::default() };
        let function = symbols.name_at(address.wrapping_sub(*base)).map(str::to_owned);
        let trampoline =
            function.as_deref().filter(|_| file == PROFILER).and_then(|name| name.strip_prefix("trampoline_"));
        // Their numbers are octal (native/profiler/trampolines.c).
        let number = trampoline.and_then(|number| usize::from_str_radix(number, 8).ok());
        let stage = number.and_then(|number| self.trampolines.get(number).copied().flatten());
        Frame { file: file.clone(), function, stage }
    }
}

fn sections(tables: Tables) -> ExplicitModuleSectionInfo<Vec<u8>> {
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
