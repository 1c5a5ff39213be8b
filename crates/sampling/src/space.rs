//! The code that a process has mapped: from an address to the function, and from a stack to its callers.

use std::collections::HashMap;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use framehop::x86_64::{CacheX86_64, UnwindRegsX86_64, UnwinderX86_64};
use framehop::{FrameAddress, Unwinder};
use tlsdyno_servers::MappedCode;

use super::elf::File;
use super::{Frame, calls};

/// Maximum depth: no server has a deeper stack.
const FRAMES_MAX: usize = 96;

/// The code of a process, with a cache of lookups.
pub struct Space {
    /// The mappings it was read from.
    pub maps: Vec<MappedCode>,
    files: Vec<(Range<u64>, File)>,
    unwinder: UnwinderX86_64<Arc<[u8]>>,
    cache: CacheX86_64,
    without_tables: Vec<String>,
    callers: Vec<String>,
    known: HashMap<u64, Frame>,
}

impl Space {
    /// The code that a process has mapped; [`super::Settings`] says which files are searched.
    pub fn of(pid: u32, maps: Vec<MappedCode>, [without_tables, callers]: [Vec<String>; 2]) -> Space {
        let mut unwinder = UnwinderX86_64::new();
        let mut files = Vec::new();
        for MappedCode { addresses, offset_bytes, library } in &maps {
            // What the process has mapped, though its path may lead elsewhere (in a container, behind chroot(2)) or
            // the file was replaced. Only root may read it so.
            let mapped = format!("/proc/{pid}/map_files/{:x}-{:x}", addresses.start, addresses.end);
            let read = |path: &Path| File::of(path, &library.path, addresses, *offset_bytes);
            let by_path = || if library.deleted { None } else { read(&library.path) };
            let Some((file, module)) = read(Path::new(&mapped)).or_else(by_path) else { continue };
            unwinder.add_module(module);
            files.push((addresses.clone(), file));
        }
        Space { maps, files, unwinder, cache: CacheX86_64::new(), without_tables, callers, known: HashMap::new() }
    }

    /// Whether one of the files has a function whose name answers.
    pub fn has_function(&self, is_it: impl Fn(&str) -> bool) -> bool {
        self.files.iter().any(|(_, file)| file.functions().any(&is_it))
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
                self.file_at(*addresses.last()?).filter(|file| is_one_of(&file.name, &self.without_tables))?;
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

    /// For code that carries no tables (assembler uses every register as it likes): the next word of the stack that is
    /// an address behind a call, and where the stack goes on behind it.
    fn caller_on_stack(&self, sp: u64, read: &mut impl FnMut(u64) -> Result<u64, ()>) -> Option<(u64, u64)> {
        let mut at = sp;
        loop {
            let word = read(at).ok()?;
            at += 8;
            let file = self.file_at(word).filter(|file| is_one_of(&file.name, &self.callers));
            if file.is_some_and(|file| calls::is_behind_call(file.code_before(word))) {
                return Some((word, at));
            }
        }
    }

    fn file_at(&self, address: u64) -> Option<&File> {
        self.files.iter().find(|(range, _)| range.contains(&address)).map(|(_, file)| file)
    }

    /// The places of these addresses.
    pub fn frames(&mut self, addresses: &[u64]) -> Vec<Frame> {
        addresses.iter().map(|address| self.frame(*address)).collect()
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
        let (file, function) = (found.name.clone(), found.function_at(address).map(str::to_owned));
        // Of a caller, the address is that of the last byte of its call.
        let calls = found.called_before(address + 1).map(str::to_owned);
        let calls_within = found.called_within_before(address + 1).map(str::to_owned);
        Frame { file, function, calls, calls_within }
    }
}

fn is_one_of(name: &str, beginnings: &[String]) -> bool {
    beginnings.iter().any(|beginning| name.starts_with(beginning.as_str()))
}
