//! Where things stand in the areas, as another compiler reads the C headers.

use std::process::Command;

use crate::build::{self, SANITIZERS};

#[test]
fn every_compiler_says_what_was_built_in() {
    let built_in = tlsdyno::native::layout::BUILT_IN;
    for (compiler, flags) in [("cc", &[][..]), ("clang", SANITIZERS)] {
        let program = build::test_program(compiler, "../layout", flags);
        assert_eq!(build::run(&mut Command::new(program)), built_in, "{compiler}");
    }
}
