//! Experiments as files: the user's own, and those of the repository by name, so that the installed program has them
//! too.

mod merge;
mod source;
mod texts;
mod values;

use std::ffi::OsStr;
use std::path::Path;

use anyhow::{Context, Result};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use tlsdyno_record::model::Measure;
use toml::Spanned;
use toml::de::{DeTable, Deserializer};

use super::{AnyExperiment, Kind};
use source::Source;
use texts::Texts;

/// Name (`papers/coarfa-2006-fig7`) and text of each experiment of the repository, sorted by name.
pub const EMBEDDED: &[(&str, &str)] = &include!(concat!(env!("OUT_DIR"), "/experiments.rs"));

/// Name and text of bases: files that several experiments extend and nobody runs.
const BASES: &[(&str, &str)] = &include!(concat!(env!("OUT_DIR"), "/bases.rs"));

/// Name and text of each recipe of a stack that comes with tlsdyno (`stacks/nginx-aws-lc`). Those below `stacks/parts`
/// are what others extend, or are linked with.
pub const RECIPES: &[(&str, &str)] = &include!(concat!(env!("OUT_DIR"), "/recipes.rs"));

/// The experiment of the repository that a command line names, by name or as a file, without its directory.
pub fn named_in(command_line: &[String]) -> Option<&'static str> {
    let is_named = |name: &&str| command_line.iter().any(|word| Path::new(word).file_stem() == Some(OsStr::new(name)));
    EMBEDDED.iter().filter_map(|(name, _)| name.rsplit('/').next()).find(is_named)
}

/// A file with all that it extends, not yet parsed as a kind of experiment.
pub struct Written<'a> {
    table: &'a DeTable<'a>,
    texts: &'a Texts<'a>,
}

impl Written<'_> {
    pub fn understood<T: DeserializeOwned>(&self) -> Result<T> {
        let Written { table, texts } = self;
        T::deserialize(Deserializer::from(Spanned::new(texts.last(), (*table).clone())))
            .map_err(|error| texts.fault(error.span().unwrap_or_else(|| texts.last()), error.message()))
    }

    /// By the kind whose key the file has, else by the first.
    fn read(&self, kinds: &[&dyn Kind]) -> Result<Box<dyn AnyExperiment>> {
        let has_key = |kind: &&&dyn Kind| self.table.contains_key(kind.key());
        kinds.iter().find(has_key).unwrap_or(&kinds[0]).read(self)
    }
}

/// Reads an experiment of one of these kinds: a file, or the name of an experiment of the repository, with or without
/// its folder.
///
/// # Errors
/// There is none of this name, or it cannot be read or understood.
pub fn find(kinds: &[&dyn Kind], which: &Path) -> Result<Box<dyn AnyExperiment>> {
    read(kinds, Source::find(which)?)
}

/// Whether a file, or one that it extends, has this key.
pub fn has(which: &Path, key: &str) -> Result<bool> {
    let chain = source::chain(Source::find(which)?)?;
    Ok(Texts::of(&chain).tables()?.iter().any(|table| table.contains_key(key)))
}

/// Keys that files of all kinds have.
#[derive(Default, Deserialize)]
#[serde(default)]
pub struct Outline {
    pub question: String,
    /// Duration and machine of the measurement.
    pub measure: Measure,
}

/// Names and outlines of all experiments that come with tlsdyno, of all kinds.
pub fn outlines() -> Result<Vec<(&'static str, Outline)>> {
    EMBEDDED.iter().map(|(name, text)| Ok((*name, merged(Source::new(name, text))?))).collect()
}

/// A recipe of a stack with all that it extends: a file that ends in `.toml`, or one of [`RECIPES`] by its name.
///
/// # Errors
/// There is none of this name, or it cannot be read or understood.
pub fn recipe<T: DeserializeOwned>(which: &Path) -> Result<T> {
    let is_file = which.extension().is_some_and(|ending| ending == "toml");
    merged(if is_file { Source::find(which)? } else { Source::embedded(&which.to_string_lossy(), &[RECIPES])? })
}

/// A file with all that it extends.
fn merged<T: DeserializeOwned>(last: Source) -> Result<T> {
    let chain = source::chain(last)?;
    let texts = Texts::of(&chain);
    let fault = |(span, message): (_, String)| texts.fault(span, &message);
    let merged = texts.tables()?.into_iter().map(Ok).reduce(|base, own| merge::merge(base?, own?));
    let table = merged.transpose().map_err(fault)?.unwrap_or_default();
    Written { table: &table, texts: &texts }.understood()
}

/// `last`: the file; what it extends is read as well.
fn read(kinds: &[&dyn Kind], last: Source) -> Result<Box<dyn AnyExperiment>> {
    let name = last.name.clone();
    let chain = source::chain(last)?;
    let texts = Texts::of(&chain);
    let mut tables = texts.tables()?.into_iter();
    // The outermost base extends nothing, so that `without` and `rename` are unknown keys there.
    let mut table = tables.next().unwrap_or_default();
    let mut experiment = Written { table: &table, texts: &texts }.read(kinds)?;
    for own in tables {
        table = merge::merge(table, own).map_err(|(span, message)| texts.fault(span, &message))?;
        // One after the other: what is wrong in a base must not be told of a file that extends it.
        experiment = Written { table: &table, texts: &texts }.read(kinds)?;
    }
    experiment.complete(texts.directory_of_workload(&table)).with_context(|| format!("in {name}"))?;
    Ok(experiment)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_do_not_depend_on_their_folder() {
        let all = EMBEDDED.iter().chain(BASES).chain(RECIPES);
        let mut names: Vec<&str> = all.clone().filter_map(|(name, _)| name.rsplit('/').next()).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), all.count());
    }

    #[test]
    fn bases_that_nobody_runs_have_no_names() {
        assert!(EMBEDDED.iter().all(|(name, _)| !name.contains("bases")));
    }
}
