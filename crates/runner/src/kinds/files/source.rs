//! Where the text of an experiment lies: in a file, or in the program. What extends what is followed here.

use std::ops::Range;
use std::path::{Path, PathBuf};

use anyhow::{Result, anyhow, bail};
use tlsdyno_base::foreign::shortened;
use tlsdyno_base::input;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::{BASES, EMBEDDED, RECIPES, values};

/// The key that names the base of a file.
pub const EXTENDS: &str = "extends";

#[derive(Clone, Debug, PartialEq)]
pub struct Source {
    /// A path as the user may open it, or the name of an experiment that comes with tlsdyno.
    pub name: String,
    pub text: String,
    /// Base of relative paths in the text.
    pub directory: PathBuf,
}

impl Source {
    /// The file `which`, or the experiment of that name, with or without its directory.
    pub fn find(which: &Path) -> Result<Source> {
        match which.exists() {
            true => Ok(Source::of_file(which, input::text(which)?)),
            false => Source::embedded(&which.to_string_lossy(), &[EMBEDDED]),
        }
    }

    fn of_file(path: &Path, text: String) -> Source {
        let directory = path.parent().unwrap_or(Path::new(".")).to_owned();
        Source { name: path.display().to_string(), text, directory }
    }

    pub fn embedded(name: &str, lists: &[&[(&str, &str)]]) -> Result<Source> {
        let matches = |full: &str| full == name || full.rsplit('/').next() == Some(name);
        let all = lists.iter().copied().flatten();
        match all.filter(|(full, _)| matches(full)).collect::<Vec<_>>()[..] {
            [(full, text)] => Ok(Source::new(full, text)),
            [] => bail!(
                "there is no file {}, and no experiment of that name; `tlsdyno run --list` shows those that there \
                 are",
                shortened(name)
            ),
            _ => bail!(
                "`{name}` is the name of several experiments; write the folder too, as `tlsdyno run --list` shows"
            ),
        }
    }

    /// A text that is part of the program.
    pub fn new(name: &str, text: &str) -> Source {
        Source { name: name.to_owned(), text: text.to_owned(), directory: PathBuf::from(".") }
    }

    /// The base, and the place of its name in the text.
    fn base(&self) -> Result<Option<(Source, Range<usize>)>> {
        let table = self.table()?;
        let Some(value) = table.get(EXTENDS) else { return Ok(None) };
        let span = value.span();
        let DeValue::String(which) = value.get_ref() else {
            return Err(self.fault(span, "`extends` takes the name of one experiment or file, in quotes"));
        };
        // An ending tells a file from a name: what is read does not depend on where tlsdyno is started.
        let found = if which.ends_with(".toml") {
            let path = self.directory.join(&**which);
            input::text_of_regular(&path).map(|text| Source::of_file(&path, text))
        } else {
            Source::embedded(which, &[EMBEDDED, BASES, RECIPES])
        };
        let base =
            found.map_err(|error| self.fault(span.clone(), &format!("what it extends cannot be read: {error:#}")))?;
        Ok(Some((base, span)))
    }

    /// Parsed TOML, with the place of each key and value in the text.
    pub fn table(&self) -> Result<DeTable<'_>> {
        let parsed = DeTable::parse(&self.text).map(Spanned::into_inner);
        parsed.map_err(|error| self.fault(error.span().unwrap_or_default(), error.message()))
    }

    /// An error that shows the line of `span`.
    pub fn fault(&self, span: Range<usize>, message: &str) -> anyhow::Error {
        let start = span.start.min(self.text.len());
        let before = self.text.get(..start).unwrap_or_default();
        let number = before.matches('\n').count() + 1;
        let line = self.text.lines().nth(number - 1).unwrap_or_default();
        let (name, message, line) = (shortened(&self.name), shortened(message.trim_end()), shortened(line));
        anyhow!("in {name}, line {number}: {message}\n  {number} | {line}")
    }

    /// The same for two sources of one file, whatever their paths.
    fn identity(&self) -> String {
        std::fs::canonicalize(&self.name).map_or_else(|_| self.name.clone(), |path| path.display().to_string())
    }
}

/// `last` and its bases, the outermost first; fails on a circle.
pub fn chain(last: Source) -> Result<Vec<Source>> {
    let mut chain = vec![last];
    while let Some((base, span)) = chain[chain.len() - 1].base()? {
        if let Some(first) = chain.iter().position(|source| source.identity() == base.identity()) {
            let circle: Vec<&str> = chain[first..].iter().chain([&base]).map(|source| source.name.as_str()).collect();
            let message = format!(
                "these files extend each other in a circle, take one `extends` out: {}",
                circle.join(" extends ")
            );
            return Err(chain[chain.len() - 1].fault(span, &message));
        }
        chain.push(base);
    }
    for source in &chain {
        if let Some((span, message)) = values::refused(&source.table()?, "") {
            return Err(source.fault(span, &message));
        }
    }
    chain.reverse();
    Ok(chain)
}
