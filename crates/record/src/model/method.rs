//! How the cost of a stage is found out.

use serde::{Deserialize, Deserializer};
use tlsdyno_tls::named;

named! {
    /// How the cost of a stage is found out (docs/METHODOLOGY.md, "Methods").
    pub enum Method: "method" {
        /// A no-op takes the place of the stage: what a hit then costs less. The server is insecure meanwhile, and the
        /// client must match.
        Removing = "removing",
        /// The stage is computed twice and one result kept: what a hit then costs more, in CPU time. The server stays
        /// as secure as it is, and any client works.
        Doubling = "doubling",
        /// The same under valgrind: what a hit then takes less or more of instructions in user space. For shares on
        /// machines that are too busy to time anything.
        Counting = "counting",
    }
}

/// What the servers of an experiment that counts are started with, timed or counted, so that all methods see the same
/// code: without AVX-512, VAES, SHA and ADX instructions, which valgrind does not know (OPENSSL_ia32cap(3)).
pub const COUNTED_CODE: (&str, &str) = ("OPENSSL_ia32cap", ":~0x5f42f02f0000");

/// Methods of an experiment that names none.
pub(super) fn usual() -> Vec<Method> {
    vec![Method::Removing]
}

pub(super) fn are_usual(methods: &Vec<Method>) -> bool {
    *methods == usual()
}

/// One name, or a list of names.
pub(super) fn one_or_several<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<Method>, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged, expecting = "expected a method (removing, doubling, counting) or a list of methods")]
    enum Names {
        One(Method),
        Several(Vec<Method>),
    }
    Ok(match Names::deserialize(from)? {
        Names::One(method) => vec![method],
        Names::Several(methods) => methods,
    })
}
