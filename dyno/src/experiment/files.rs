//! Experiments as files: the user's own, and those of the repository by name, so that the installed program has them too.

use std::path::Path;

use anyhow::{Context, Result, bail};

use super::control_characters;
use super::model::{Experiment, Measure};
use crate::cluster::ClusterExperiment;

/// Name (`papers/coarfa-2006-fig7`) and text of each experiment of the repository, sorted by name.
pub const EMBEDDED: &[(&str, &str)] = &include!(concat!(env!("OUT_DIR"), "/experiments.rs"));

/// An experiment of either kind.
#[derive(Clone, Debug, PartialEq)]
pub enum AnyExperiment {
    /// One server after the other: `tlsdyno ablate`.
    Server(Experiment),
    /// Several behind a dispatcher, which a table `cluster` distinguishes: `tlsdyno cluster`.
    Cluster(ClusterExperiment),
}

impl AnyExperiment {
    /// Reads an experiment file, which lies in `directory`.
    ///
    /// # Errors
    /// It is no such TOML, or asks for what cannot be.
    pub fn from_toml(text: &str, directory: &Path) -> Result<AnyExperiment> {
        let table: toml::Table = toml::from_str(text)?;
        control_characters::refuse(text)?;
        if table.contains_key("cluster") {
            return ClusterExperiment::from_toml(text, directory).map(AnyExperiment::Cluster);
        }
        Experiment::from_toml(text, directory).map(AnyExperiment::Server)
    }

    /// What it asks.
    pub fn question(&self) -> &str {
        match self {
            AnyExperiment::Server(experiment) => &experiment.question,
            AnyExperiment::Cluster(experiment) => &experiment.question,
        }
    }

    /// How long and where it is measured.
    pub fn measure(&self) -> &Measure {
        match self {
            AnyExperiment::Server(experiment) => &experiment.measure,
            AnyExperiment::Cluster(experiment) => &experiment.measure,
        }
    }
}

/// Reads an experiment: a file, or the name of an experiment of the repository, with or without its folder.
///
/// # Errors
/// There is none of this name, or it cannot be read or understood.
pub fn find(which: &Path) -> Result<AnyExperiment> {
    if which.exists() {
        let text = std::fs::read_to_string(which).with_context(|| format!("failed to read {}", which.display()))?;
        let directory = which.parent().unwrap_or(Path::new("."));
        return AnyExperiment::from_toml(&text, directory).with_context(|| format!("in {}", which.display()));
    }
    let name = which.to_string_lossy();
    let matches = |full: &str| full == name || full.rsplit('/').next() == Some(&name);
    match EMBEDDED.iter().filter(|(full, _)| matches(full)).collect::<Vec<_>>()[..] {
        [(full, text)] => AnyExperiment::from_toml(text, Path::new(".")).with_context(|| format!("in {full}")),
        [] => bail!(
            "there is no file {name}, and no experiment of that name; `tlsdyno run --list` shows those that there are"
        ),
        _ => bail!("`{name}` is the name of several experiments; write the folder too, as `tlsdyno run --list` shows"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn experiments_have_names() {
        let question = |name: &str| find(Path::new(name)).map(|experiment| experiment.question().to_owned());
        assert_eq!(question("coarfa-2006-fig7").unwrap(), question("papers/coarfa-2006-fig7").unwrap());
        assert!(format!("{:#}", question("coarfa-2006-fig77").unwrap_err()).contains("--list"));
    }

    #[test]
    fn names_do_not_depend_on_their_folder() {
        let mut names: Vec<&str> = EMBEDDED.iter().filter_map(|(name, _)| name.rsplit('/').next()).collect();
        let all = names.len();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), all);
    }
}
