//! Calls as x86-64 writes them: whether an address stands behind one, and whom it calls in another file.

const CALL: u8 = 0xe8;
/// First byte of a call through a register or memory.
const INDIRECT: u8 = 0xff;
/// Second byte of a jump or call through memory at `[rip + disp32]`.
const JUMP_BY_PLACE: u8 = 0x25;
const CALL_BY_PLACE: u8 = 0x15;
/// Longest entry of a procedure linkage table: `endbr64`, `bnd jmp [rip + disp32]`.
const ENTRY_BYTES: usize = 12;

/// Code before the address ends with a call.
pub fn is_behind_call(code: &[u8]) -> bool {
    let from_end = |back: usize| code.len().checked_sub(back).map(|at| &code[at..]);
    let is_direct = from_end(5).is_some_and(|end| end[0] == CALL);
    // `ff /2`, with up to five bytes of place.
    let is_indirect = |back| from_end(back).is_some_and(|end| end[0] == INDIRECT && (end[1] >> 3) & 7 == 2);
    is_direct || (2..=7).any(is_indirect)
}

/// Where the address of the function is kept that is called just before `address`: by its place, or through a jump that
/// the linker made. `code` begins at `start`; all addresses are of the file's own count.
pub fn slot_called_before(address: u64, start: u64, code: &[u8]) -> Option<u64> {
    let before = code.get(..usize::try_from(address.checked_sub(start)?).ok()?)?;
    match *before.last_chunk::<6>()? {
        [INDIRECT, CALL_BY_PLACE, disp @ ..] => Some(displaced(address, disp)),
        [_, CALL, disp @ ..] => slot_of_jump(displaced(address, disp), start, code),
        _ => None,
    }
}

/// The address that is called directly just before `address`; all as in [`slot_called_before`].
pub fn target_called_before(address: u64, start: u64, code: &[u8]) -> Option<u64> {
    let before = code.get(..usize::try_from(address.checked_sub(start)?).ok()?)?;
    match *before.last_chunk::<5>()? {
        [CALL, disp @ ..] => Some(displaced(address, disp)),
        _ => None,
    }
}

/// Address of the slot through which an entry of the procedure linkage table jumps.
fn slot_of_jump(entry: u64, start: u64, code: &[u8]) -> Option<u64> {
    let at = usize::try_from(entry.checked_sub(start)?).ok()?;
    let entry_code = code.get(at..)?.get(..ENTRY_BYTES)?;
    let jump = entry_code.windows(6).position(|bytes| bytes[..2] == [INDIRECT, JUMP_BY_PLACE])?;
    let disp: [u8; 4] = entry_code[jump + 2..jump + 6].try_into().ok()?;
    Some(displaced(entry.wrapping_add(jump as u64 + 6), disp))
}

fn displaced(end: u64, disp: [u8; 4]) -> u64 {
    end.wrapping_add_signed(i64::from(i32::from_le_bytes(disp)))
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn any_code_is_read(code in vec(any::<u8>(), 0..64), start: u64, more in 0_u64..80, address: u64) {
            is_behind_call(&code);
            slot_called_before(address, start, &code);
            slot_called_before(start.wrapping_add(more), start, &code);
            target_called_before(start.wrapping_add(more), start, &code);
            slot_of_jump(start.wrapping_add(more), start, &code);
            slot_of_jump(address, 0, &code);
        }
    }

    #[test]
    fn what_stands_behind_a_call_is_known() {
        assert!(is_behind_call(&[0x90, 0xe8, 1, 2, 3, 4]));
        assert!(is_behind_call(&[0xff, 0xd0]), "call rax");
        assert!(is_behind_call(&[0x41, 0xff, 0x54, 0x24, 0x10]), "call [r12 + 0x10]");
        assert!(is_behind_call(&[0xff, 0x15, 1, 2, 3, 4]), "call [rip + …]");
        assert!(!is_behind_call(&[0x90; 8]) && !is_behind_call(&[]) && !is_behind_call(&[0xff, 0xe0]), "jmp rax");
    }

    #[test]
    fn calls_of_other_files_lead_to_where_their_addresses_are_kept() {
        // At 0x1000: endbr64; bnd jmp [rip + 0x100]; nop. At 0x1010: call 0x1000; at 0x1015: call [rip + 0x20].
        let mut code = vec![0xf3, 0x0f, 0x1e, 0xfa, 0xf2, 0xff, 0x25, 0, 1, 0, 0, 0x90];
        code.resize(0x10, 0x90);
        code.extend([0xe8, 0xeb, 0xff, 0xff, 0xff, 0xff, 0x15, 0x20, 0, 0, 0]);
        assert_eq!(slot_called_before(0x1015, 0x1000, &code), Some(0x100b + 0x100));
        assert_eq!(slot_called_before(0x101b, 0x1000, &code), Some(0x101b + 0x20));
        assert_eq!(target_called_before(0x1015, 0x1000, &code), Some(0x1000));
        assert_eq!(target_called_before(0x101b, 0x1000, &code), None, "by a place");
        assert_eq!(slot_called_before(0x1008, 0x1000, &code), None);
        assert_eq!(slot_called_before(0x9000, 0x1000, &code), None);
        assert_eq!(slot_called_before(0x10, 0x1000, &code), None);
    }
}
