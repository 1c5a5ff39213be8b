//! What a stack is, as a file says it.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use serde::Deserialize;
use tlsdyno_base::fault::{Fault, OrFault};
use tlsdyno_runner::kinds::files::{self, RECIPES};
use tlsdyno_servers::programs;
use tlsdyno_tls::Group;

use super::home;
use super::source::Source;

/// Where recipes of stacks stand among those that come with tlsdyno. Others are parts of them.
const FOLDER: &str = "stacks/";

/// How a server with its TLS library is made and started, or how a library is made.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Recipe {
    /// Name of its file.
    #[serde(skip)]
    pub file: String,
    pub title: String,
    /// Programs and files that must be there, each with Debian's package that has it.
    #[serde(default)]
    pub programs: BTreeMap<String, String>,
    /// CPU time of its steps, without those of its library.
    #[serde(default)]
    pub minutes: f64,
    /// Name of the recipe of the library that it is linked with, below `stacks/parts`.
    library: Option<String>,
    #[serde(skip)]
    linked: Option<Box<Recipe>>,
    pub source: Option<Source>,
    /// Files that are added to the source.
    #[serde(default, rename = "file")]
    files: Vec<Added>,
    /// Lines for a shell in the directory of the source. Without any it is installed, or not.
    #[serde(default)]
    pub steps: Vec<String>,
    /// What is filled in here, and where this is the library, in what is linked with it.
    #[serde(default)]
    values: BTreeMap<String, String>,
    /// `None`: a library.
    pub server: Option<Serving>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Added {
    /// Path in the source.
    name: String,
    text: String,
}

/// How a server is started. Beside the placeholders of all recipes those of a server command are filled in.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Serving {
    /// Stays in the foreground, with one worker.
    pub command: String,
    /// Text of a file that the command names as `{configuration}`; empty: it needs none.
    #[serde(default)]
    pub configuration: String,
    /// A line for a shell that prints what the server and its library are.
    pub version: String,
    /// Why it cannot stand in a table beside others, for example for want of TLS 1.3.
    pub apart: Option<String>,
    /// The only group that it takes, of those that all others take. It stands apart where another is measured.
    pub group: Option<Group>,
}

/// Whether a stack can be measured.
#[derive(Clone, Debug, PartialEq)]
pub enum State {
    Installed,
    Built,
    /// It can be built here, in so many minutes of CPU time.
    Unbuilt(f64),
    /// These packages of Debian have what is missing here.
    Missing(BTreeSet<String>),
}

impl Recipe {
    /// A stack by its name (`nginx/aws-lc`), or a file that ends in `.toml`.
    pub fn find(which: &str) -> Result<Recipe> {
        if which.ends_with(".toml") {
            return Recipe::read(Path::new(which));
        }
        let file = format!("{FOLDER}{}", which.replace('/', "-"));
        let is_known = RECIPES.iter().any(|(name, _)| *name == file);
        let known = is_known.then_some(()).with_context(|| format!("no stack is called {which}; see `tlsdyno stacks`"));
        known.or_fault(Fault::Usage).and_then(|()| Recipe::read(Path::new(&file)))
    }

    /// All stacks that come with tlsdyno.
    pub fn all() -> Result<Vec<Recipe>> {
        let is_stack = |name: &&str| name.strip_prefix(FOLDER).is_some_and(|rest| !rest.contains('/'));
        RECIPES.iter().map(|(name, _)| *name).filter(is_stack).map(|name| Recipe::read(Path::new(name))).collect()
    }

    fn read(path: &Path) -> Result<Recipe> {
        let mut recipe: Recipe = files::recipe(path).or_fault(Fault::Input)?;
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        recipe.file = name.strip_suffix(".toml").unwrap_or(&name).to_owned();
        let library = recipe.library.as_ref().map(|name| Recipe::read(&Path::new("stacks/parts").join(name)));
        recipe.linked = library.transpose()?.map(Box::new);
        Ok(recipe)
    }

    /// What it is called: `nginx/aws-lc` in `nginx-aws-lc.toml`.
    pub fn name(&self) -> String {
        self.file.replacen('-', "/", 1)
    }

    /// The library that it is linked with.
    pub fn library(&self) -> Option<&Recipe> {
        self.linked.as_deref()
    }

    /// Its directory.
    pub fn place(&self) -> Result<PathBuf> {
        Ok(home()?.join(&self.file))
    }

    /// The files that are added to the source, with their texts filled in.
    pub fn added(&self) -> Result<Vec<(&str, String)>> {
        self.files.iter().map(|added| Ok((&*added.name, self.filled(&added.text)?))).collect()
    }

    /// With the paths of what is built, and the values of this recipe and its library.
    pub fn filled(&self, text: &str) -> Result<String> {
        let prefix = |recipe: &Recipe| recipe.place().map(|place| place.join("installed").display().to_string());
        let mut text = text.replace("{prefix}", &prefix(self)?);
        let library = self.library();
        if let Some(library) = library {
            text = text.replace("{library}", &prefix(library)?);
        }
        let values = self.values.iter().chain(library.iter().flat_map(|library| &library.values));
        Ok(values.fold(text, |text, (name, value)| text.replace(&format!("{{{name}}}"), value)))
    }

    pub fn state(&self) -> Result<State> {
        if self.is_built()? {
            return Ok(State::Built);
        }
        let library =
            self.library().map(|library| Ok::<_, anyhow::Error>((library, library.is_built()?))).transpose()?;
        let unbuilt = library.filter(|(_, is_built)| !is_built).map(|(library, _)| library);
        let parts = || [self].into_iter().chain(unbuilt);
        let is_missing = |program: &str| match program.contains('/') {
            true => !Path::new(program).exists(),
            false => programs::find(program).is_none(),
        };
        let missing = parts().flat_map(|part| &part.programs).filter(|(program, _)| is_missing(program));
        let packages: BTreeSet<String> = missing.map(|(_, package)| package.clone()).collect();
        Ok(match (packages.is_empty(), self.steps.is_empty()) {
            (false, _) => State::Missing(packages),
            (true, true) => State::Installed,
            (true, false) => State::Unbuilt(parts().map(|part| part.minutes).sum()),
        })
    }
}

impl State {
    pub fn is_ready(&self) -> bool {
        matches!(self, State::Installed | State::Built)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Lines of a file of data.
    const LINES_MAX: usize = 60;

    #[test]
    fn every_recipe_is_understood_and_names_what_it_is_made_of() {
        for (name, text) in RECIPES {
            assert!(text.lines().count() <= LINES_MAX, "{name} is too long");
            let recipe = Recipe::read(Path::new(name)).unwrap();
            let sources = [&recipe].into_iter().chain(recipe.library()).filter_map(|of| of.source.as_ref());
            for source in sources.clone() {
                let is_sum = source.sha256.len() == 64 && source.sha256.chars().all(|c| c.is_ascii_hexdigit());
                assert!(is_sum, "{name} does not name the sum of its source");
            }
            let has_material = sources.count() > 0 || !recipe.files.is_empty();
            assert!(recipe.steps.is_empty() || has_material, "{name} is built of nothing");
            assert!(recipe.steps.is_empty() || recipe.minutes > 0.0, "{name} tells no time");
            assert!(!recipe.programs.is_empty(), "{name} needs no program");
        }
    }

    #[test]
    fn stacks_have_servers_whose_placeholders_are_known() {
        let all = Recipe::all().unwrap();
        assert!(all.len() >= 14, "{}", all.len());
        for recipe in all {
            let name = recipe.name();
            let server = recipe.server.as_ref().unwrap_or_else(|| panic!("{name} is no stack"));
            let texts = [&server.command, &server.configuration, &server.version].into_iter().chain(&recipe.steps);
            for text in texts.map(|text| recipe.filled(text).unwrap()) {
                let of_recipes = ["prefix", "library", "cc", "ld", "make", "module", "more", "asked", "provider"];
                assert!(!of_recipes.iter().any(|of| text.contains(&format!("{{{of}}}"))), "{name}: {text}");
            }
            assert_eq!(server.command.contains("{configuration}"), !server.configuration.is_empty(), "{name}");
            for needed in ["{port}", "{key}"] {
                let is_there = (server.command.clone() + &server.configuration).replace("{pem}", "{key}");
                assert!(is_there.contains(needed), "{name} lacks {needed}");
            }
            assert_eq!(Recipe::find(&name).unwrap().title, recipe.title);
        }
        assert!(Recipe::find("nginx/libressl").unwrap_err().to_string().contains("no stack is called"));
    }
}
