//! What the fuzz targets of the dispatcher run, as plain functions that panic on a fault: `fuzz_targets/` hands them
//! libFuzzer's inputs, and `crates/engine/tests/fuzz_briefly.rs` seeds and mutated ones.
//!
//! An input is a script: one byte of choices, then steps of a kind, a length of two bytes, and so many bytes.

pub mod relay;
pub mod route;
pub mod seeds;

/// One step of a script.
struct Step<'a> {
    kind: u8,
    bytes: &'a [u8],
}

/// The steps; a length that points beyond the end takes what is left.
fn steps(mut script: &[u8]) -> impl Iterator<Item = Step<'_>> {
    std::iter::from_fn(move || {
        let [kind, high, low, rest @ ..] = script else { return None };
        let length = usize::from(u16::from_be_bytes([*high, *low])).min(rest.len());
        let (bytes, rest) = rest.split_at(length);
        script = rest;
        Some(Step { kind: *kind, bytes })
    })
}

fn put_step(script: &mut Vec<u8>, kind: u8, bytes: &[u8]) {
    script.push(kind);
    script.extend_from_slice(&(bytes.len() as u16).to_be_bytes());
    script.extend_from_slice(bytes);
}
