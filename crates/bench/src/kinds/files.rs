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
    let outline = |source| -> Result<Outline> {
        let chain = source::chain(source)?;
        let texts = Texts::of(&chain);
        let fault = |(span, message): (_, String)| texts.fault(span, &message);
        let merged = texts.tables()?.into_iter().map(Ok).reduce(|base, own| merge::merge(base?, own?));
        let table = merged.transpose().map_err(fault)?.unwrap_or_default();
        Written { table: &table, texts: &texts }.understood()
    };
    EMBEDDED.iter().map(|(name, text)| Ok((*name, outline(Source::new(name, text))?))).collect()
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
    use crate::kinds::ablation::Ablation;
    use tlsdyno_record::model::Experiment;
    use tlsdyno_record::model::workload::WorkloadSpec;

    #[test]
    fn experiments_have_names() {
        let question =
            |name: &str| find(&[&Ablation], Path::new(name)).map(|experiment| experiment.question().to_owned());
        assert_eq!(question("coarfa-2006-fig7").unwrap(), question("papers/coarfa-2006-fig7").unwrap());
        assert!(format!("{:#}", question("coarfa-2006-fig77").unwrap_err()).contains("--list"));
    }

    #[test]
    fn names_do_not_depend_on_their_folder() {
        let all = EMBEDDED.iter().chain(BASES);
        let mut names: Vec<&str> = all.clone().filter_map(|(name, _)| name.rsplit('/').next()).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), all.count());
    }

    #[test]
    fn bases_that_nobody_runs_have_no_names() {
        assert!(EMBEDDED.iter().all(|(name, _)| !name.contains("bases")));
        assert!(find(&[&Ablation], Path::new("bases/coarfa-2006")).is_err());
    }

    /// Writes the files to a temporary directory, and reads the first.
    fn read_files(files: &[(&str, &str)]) -> Result<Experiment> {
        let place = tempfile::tempdir().unwrap();
        for (name, text) in files {
            let path = place.path().join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        }
        crate::kinds::find(&Ablation, &place.path().join(files[0].0), "one server")
    }

    fn refusal(files: &[(&str, &str)]) -> String {
        format!("{:#}", read_files(files).unwrap_err())
    }

    #[test]
    fn a_users_file_extends_an_experiment_that_comes_with_tlsdyno() {
        let mine = "extends = \"remedies\"\n[measure]\ntime_s = 20.0\n";
        let mut expected: Experiment =
            crate::kinds::find(&Ablation, Path::new("modern/remedies"), "one server").unwrap();
        expected.measure.time_s = 20.0;
        assert_eq!(read_files(&[("mine.toml", mine)]).unwrap(), expected);
    }

    #[test]
    fn a_log_is_looked_for_beside_the_file_that_names_it() {
        let base = "question = \"q\"\n[workload]\nkind = \"trace\"\npath = \"access.log\"\n";
        let mine = "extends = \"logs/base.toml\"\n[workload]\nexclude = [\"crawlers\"]\n";
        let own = "extends = \"logs/base.toml\"\n[workload]\npath = \"my.log\"\n";
        let path_of = |last: &str| {
            let experiment = read_files(&[("mine.toml", last), ("logs/base.toml", base)]).unwrap();
            let WorkloadSpec::Trace { path, .. } = experiment.workload else { panic!("a log") };
            path
        };
        assert!(path_of(mine).ends_with("logs/access.log"), "{:?}", path_of(mine));
        assert!(path_of(own).ends_with("my.log") && !path_of(own).ends_with("logs/my.log"), "{:?}", path_of(own));
    }

    #[test]
    fn unknown_keys_are_told_with_the_file_and_the_line_that_hold_them() {
        let mine = "extends = \"base.toml\"\n[load]\nconnections = 3\n";
        let cases = [
            ("question = \"q\"\n[tls]\nsurprise = 1\n", mine, "base.toml, line 3: unknown field `surprise`"),
            ("question = \"q\"\n[workload]\nkind = \"cdnow\"\nusers = 1\nsurprise = 1\n", mine, "base.toml, line 2"),
            ("question = \"q\"\n", "extends = \"base.toml\"\n\n[load]\nsurprise = 1\n", "mine.toml, line 4: unknown"),
            ("question = \"q\"\n", "extends = \"base.toml\"\nsurprise = 1\n", "mine.toml, line 2: unknown"),
            ("question = \"q\n", mine, "base.toml, line 1"),
            ("question = \"q\"\nwithout = [\"tls\"]\n", mine, "base.toml, line 2: unknown field `without`"),
        ];
        for (base, mine, expected) in cases {
            let said = refusal(&[("mine.toml", mine), ("base.toml", base)]);
            assert!(said.contains(expected), "{said}");
        }
        let said = refusal(&[("mine.toml", "question = \"q\"\n[tls]\nversion = 1.3\n")]);
        assert!(said.contains("mine.toml, line 3") && said.contains("3 | version = 1.3"), "{said}");
    }

    #[test]
    fn a_base_that_is_missing_is_told_with_file_and_line() {
        for (base, expected) in [("nothing.toml", "failed to read"), ("nothing", "no experiment of that name")] {
            let said = refusal(&[("mine.toml", &format!("question = \"q\"\nextends = \"{base}\"\n"))]);
            assert!(said.contains("mine.toml, line 2") && said.contains(expected), "{said}");
        }
        let said = refusal(&[("mine.toml", "extends = [\"a\", \"b\"]\n")]);
        assert!(said.contains("mine.toml, line 1: `extends` takes the name of one"), "{said}");
    }

    #[test]
    fn a_circle_is_told_with_its_chain() {
        let extends = |base: &str| format!("question = \"q\"\nextends = \"{base}\"\n");
        let files = [
            ("a.toml", extends("sub/b.toml")),
            ("sub/b.toml", extends("c.toml")),
            ("sub/c.toml", extends("../sub/b.toml")),
        ];
        let files: Vec<(&str, &str)> = files.iter().map(|(name, text)| (*name, text.as_str())).collect();
        let said = refusal(&files);
        assert!(said.contains("c.toml, line 2"), "{said}");
        let chain: Vec<&str> =
            said.split('\n').next().unwrap().split(": ").last().unwrap().split(" extends ").collect();
        assert_eq!(chain.len(), 3, "{said}");
        assert!(chain[0].ends_with("sub/b.toml") && chain[1].ends_with("sub/c.toml"), "{said}");
        assert!(refusal(&[("a.toml", &extends("a.toml"))]).contains("in a circle"));
    }

    #[test]
    fn what_is_left_out_or_renamed_must_be_there() {
        let base = "question = \"q\"\n[[configuration]]\nname = \"as is\"\n";
        let cases = [
            ("without = [\"configuration.no RSA\"]", "`configuration.no RSA`, which is not in what this file extends"),
            ("without = \"remedy\"", "takes a list"),
            ("rename = { \"configuration.no RSA\" = \"x\" }", "`configuration.no RSA`, which is not in what"),
            ("rename = { question = \"x\" }", "only entries have names"),
        ];
        for (line, expected) in cases {
            let mine = format!("extends = \"base.toml\"\n{line}\n");
            let said = refusal(&[("mine.toml", &mine), ("base.toml", base)]);
            assert!(said.contains("mine.toml, line 2") && said.contains(expected), "{said}");
        }
    }
}
