//! The code that a process has mapped: from an address to the function, and from a stack to its callers.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;

use framehop::x86_64::{CacheX86_64, UnwindRegsX86_64, UnwinderX86_64};
use framehop::{FrameAddress, Unwinder};
use tlsdyno_record::store::samples::Samples;
use tlsdyno_servers::MappedCode;

use super::elf::File;
use super::groups::{Frame, LIBCRYPTO, PROFILER, found, stage_of_trampoline};
use super::{Trampolines, calls};

/// Maximum depth: no server has a deeper stack.
const FRAMES_MAX: usize = 96;

/// The code of a process, with a cache of lookups.
pub struct Space {
    /// The mappings it was read from.
    pub maps: Vec<MappedCode>,
    files: Vec<(Range<u64>, File)>,
    unwinder: UnwinderX86_64<Arc<[u8]>>,
    cache: CacheX86_64,
    trampolines: Trampolines,
    known: HashMap<u64, Frame>,
}

impl Space {
    pub fn of(maps: Vec<MappedCode>, trampolines: &Trampolines) -> Space {
        let mut unwinder = UnwinderX86_64::new();
        let mut files = Vec::new();
        // What a file that was replaced held is not known.
        for MappedCode { addresses, offset_bytes, library } in maps.iter().filter(|code| !code.library.deleted) {
            let Some((file, module)) = File::of(&library.path, addresses, *offset_bytes) else { continue };
            unwinder.add_module(module);
            files.push((addresses.clone(), file));
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
        let (file, function) = (found.name.clone(), found.function_at(address).map(str::to_owned));
        let profiled = function.as_deref().filter(|_| file == PROFILER);
        let stage = profiled.and_then(|function| stage_of_trampoline(function, &self.trampolines));
        // Of a caller, the address is that of the last byte of its call.
        let calls = found.called_before(address + 1).map(str::to_owned);
        Frame { file, function, stage, calls }
    }
}
