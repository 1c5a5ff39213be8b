//! The files that a configuration consists of, as they are or as a patch would have them, and places in them.

use std::collections::BTreeMap;
use std::ops::Range;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use super::{bytes_in, text_of};

/// Files in the order in which they were read, each once.
#[derive(Clone, Debug, Default)]
pub(super) struct Files {
    pub(super) read: Vec<(PathBuf, String)>,
    /// What stands in the place of the text of a file.
    pub(super) changed: BTreeMap<PathBuf, String>,
}

impl Files {
    pub(super) fn text(&mut self, path: &Path) -> Result<(usize, String)> {
        // A site that is switched on by a link is one file with its target.
        let target = path.canonicalize().with_context(|| format!("read {}", path.display()))?;
        if let Some(number) = self.read.iter().position(|(other, _)| *other == target) {
            return Ok((number, self.read[number].1.clone()));
        }
        let text = match self.changed.get(&target) {
            Some(text) => text.clone(),
            None => text_of(&bytes_in(path)?),
        };
        self.read.push((target, text.clone()));
        Ok((self.read.len() - 1, text))
    }
}

/// Where something stands: the number of its file, and its bytes there. This is no part of what it says, so that two
/// places are equal.
#[derive(Clone, Debug, Default, Eq)]
pub(super) struct At {
    pub(super) file: usize,
    /// Empty: in no file.
    pub(super) bytes: Range<usize>,
}

impl PartialEq for At {
    fn eq(&self, _: &At) -> bool {
        true
    }
}
