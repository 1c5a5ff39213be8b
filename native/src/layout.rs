//! Where things stand in the areas, and what the libraries count in them. `native/layout.c` makes it of the C headers,
//! which say what each is. Numbers are in the machine's byte order.

use tlsdyno_tls::Stage;

/// Something that a library counts: the stage that it belongs to, if to one, and its name.
pub type Name = (Option<Stage>, &'static str);

#[derive(Clone, Copy, Debug)]
pub struct Layout {
    pub magic: [u8; 8],
    pub abi_version: u32,
    pub size: usize,
    /// How many slots it has: threads of servers count in one each.
    pub slots: usize,
    pub slots_at: usize,
    /// Numbers of a slot, of 8 bytes each.
    pub slot_numbers: usize,
}

include!(concat!(env!("OUT_DIR"), "/layout.rs"));

/// The text of what is included here, as the compiler of this build had `native/layout.c` print it.
pub const BUILT_IN: &str = include_str!(concat!(env!("OUT_DIR"), "/layout.rs"));

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stages_stand_in_the_same_order_in_c() {
        assert_eq!(provider::STAGES, Stage::PROVIDER.map(Stage::name));
        assert_eq!(shim::STAGES, Stage::SHIM.map(Stage::name));
    }
}
