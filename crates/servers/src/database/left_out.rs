//! In place of what asks PostgreSQL, where the feature `postgres` is left out.

use anyhow::Result;
use tlsdyno_base::fault::left_out;
use tlsdyno_engine::serve::{Docroot, Pages};

/// Never made, because nothing can be connected to.
#[derive(Debug)]
pub enum DatabasePages {}

impl DatabasePages {
    pub fn connect(_: &str) -> Result<DatabasePages> {
        Err(left_out("a page that asks PostgreSQL", "postgres"))
    }
}

impl Pages for DatabasePages {
    fn body(&mut self, _: &[u8]) -> Option<Vec<u8>> {
        match *self {}
    }
}

pub fn fill(settings: &str, _: &Docroot) -> Result<()> {
    DatabasePages::connect(settings).map(drop)
}
