//! The doubler: no code of a no-op in it, every result right in and across all modes, in real servers too, and no
//! trouble when its owner ends.

mod library;
mod programs;
mod servers;
