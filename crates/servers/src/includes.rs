//! Configuration files of the user's own with placeholders, and the files that they include: filled in as copies.
//!
//! nginx, Apache and lighttpd write `include`, and look for relative names beside the main file (nginx), below a
//! directory that the command names, or beside the including file (lighttpd). A copy lies elsewhere, so that the
//! relative names in it are made absolute.
//!
//! Circle: a file that is included is filled in as the command that names it is.

use std::collections::BTreeMap;
use std::fs;
use std::ops::Range;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use anyhow::{Context, Result};
use itertools::Itertools;
use regex_lite::Regex;
use rustix::process::geteuid;
use tlsdyno_base::private;

use super::command::fill;
use super::{glob, nginx};

/// Longest file that is looked through for placeholders.
const TEMPLATE_BYTES_MAX: u64 = 1 << 20;
/// Includes within includes; more is a circle.
const DEPTH_MAX: u32 = 16;
const KEYWORDS: [&str; 3] = ["include", "Include", "IncludeOptional"];
/// A comment up to the end of its line; or the name of a directive, its first argument with quotes, and a semicolon.
static COMMENT_OR_DIRECTIVE: LazyLock<Regex> = LazyLock::new(|| {
    let argument = r#"("[^"\n]*"?|'[^'\n]*'?|[^\s;]+)"#;
    let text = format!(r"(?m)(?:^|\s)#.*$|(?:^|[\s{{}};])(\w+)[ \t]+{argument}([ \t]*;)?");
    Regex::new(&text).expect("a test uses it")
});

/// A file and the files that it includes.
#[derive(Debug)]
pub struct Tree {
    path: PathBuf,
    text: String,
    names: Vec<Named>,
}

#[derive(Debug)]
struct Named {
    /// Where the name stands in the text, with its quotes.
    at: Range<usize>,
    /// The name, absolute; of an include a pattern.
    absolute: PathBuf,
    /// What an include brings in; empty for other files.
    included: Vec<Tree>,
    /// What stands between two names that take the place of one pattern.
    between: String,
}

impl Tree {
    /// Reads a file; `None` where it is no text that a server would read. `homes`: where relative names may be meant.
    pub fn read(path: &Path, homes: &[&Path]) -> Option<Tree> {
        let beside: Vec<&Path> = path.parent().into_iter().chain(homes.iter().copied()).collect();
        Tree::read_within(path, &beside, DEPTH_MAX)
    }

    fn read_within(path: &Path, homes: &[&Path], depth: u32) -> Option<Tree> {
        let short = fs::metadata(path).is_ok_and(|metadata| metadata.is_file() && metadata.len() <= TEMPLATE_BYTES_MAX);
        let text = short.then(|| fs::read_to_string(path).ok()).flatten()?;
        let found = names(&text);
        let known = |(keyword, at, name, ends): (&str, Range<usize>, &str, bool)| {
            let is_include = KEYWORDS.contains(&keyword);
            let own = path.parent().into_iter();
            let places = || homes.iter().copied().chain(own.clone()).map(|home| home.join(name));
            let files = |place: &PathBuf| glob::files(place);
            let absolute = places().find(|place| !files(place).is_empty())?;
            let within = |file: &PathBuf| Tree::read_within(file, homes, depth - 1);
            let included =
                if is_include && depth > 0 { files(&absolute).iter().filter_map(within).collect() } else { vec![] };
            let between = if ends { format!("; {keyword} ") } else { format!("\n{keyword} ") };
            Some(Named { at, absolute, included, between })
        };
        let names = found.into_iter().filter_map(known).collect();
        Some(Tree { path: path.to_owned(), text, names })
    }

    /// The file and what it includes, each once.
    pub fn files(&self) -> Vec<(&Path, &str)> {
        let included = self.names.iter().flat_map(|name| &name.included).flat_map(Tree::files);
        [(self.path.as_path(), self.text.as_str())].into_iter().chain(included).unique_by(|(path, _)| *path).collect()
    }

    pub fn mentions(&self, placeholder: &str) -> bool {
        let within = || self.names.iter().flat_map(|name| &name.included);
        self.text.contains(placeholder) || within().any(|tree| tree.mentions(placeholder))
    }

    pub fn mentions_any(&self, placeholders: &[&str]) -> bool {
        placeholders.iter().any(|placeholder| self.mentions(placeholder))
    }

    /// Writes a copy with the values filled in, and copies of the included files that hold placeholders. Answers where.
    pub fn write(&self, directory: &Path, placeholders: &[&str], values: &BTreeMap<&str, String>) -> Result<PathBuf> {
        self.write_as(self.path.file_name().unwrap_or_default().as_ref(), directory, placeholders, values, &mut 0)
    }

    fn write_as(
        &self,
        name: &Path,
        directory: &Path,
        placeholders: &[&str],
        values: &BTreeMap<&str, String>,
        count: &mut u32,
    ) -> Result<PathBuf> {
        let filled_in = |text: &str| fill(text, values).with_context(|| format!("in {}", self.path.display()));
        let (mut text, mut rest_at) = (String::new(), 0);
        for named in &self.names {
            text.push_str(&filled_in(&self.text[rest_at..named.at.start])?);
            rest_at = named.at.end;
            let is_template = |tree: &Tree| tree.mentions_any(placeholders);
            if !named.included.iter().any(is_template) {
                text.push_str(&named.absolute.display().to_string());
                continue;
            }
            let mut paths = Vec::new();
            for tree in &named.included {
                paths.push(if is_template(tree) {
                    *count += 1;
                    let file = tree.path.file_name().unwrap_or_default().to_string_lossy();
                    let name = format!("included-{count}-{file}");
                    tree.write_as(name.as_ref(), directory, placeholders, values, count)?.display().to_string()
                } else {
                    tree.path.display().to_string()
                });
            }
            text.push_str(&paths.join(&named.between));
        }
        text.push_str(&filled_in(&self.text[rest_at..])?);
        let copy = directory.join(name);
        let written = private::write(&copy, text.as_bytes()).and_then(|()| {
            // It may be read before the server becomes another user, or behind `setpriv`: by whom the original is.
            let owner = fs::metadata(&self.path)?.uid();
            std::os::unix::fs::chown(&copy, Some(owner).filter(|_| geteuid().is_root()), None)
        });
        written.with_context(|| format!("write {}", copy.display()))?;
        Ok(copy)
    }
}

/// The names of other files in a text: the directive, where the name stands, the name without quotes, and whether a
/// semicolon ends it.
fn names(text: &str) -> Vec<(&str, Range<usize>, &str, bool)> {
    let mut found = Vec::new();
    let mut at = 0;
    while let Some(captures) = COMMENT_OR_DIRECTIVE.captures_at(text, at) {
        at = captures.get(0).map_or(text.len(), |all| all.end());
        let (Some(directive), Some(name)) = (captures.get(1), captures.get(2)) else { continue };
        if !KEYWORDS.contains(&directive.as_str()) && !nginx::names_file(directive.as_str()) {
            at = directive.end();
            continue;
        }
        let bare = name.as_str().trim_matches(['"', '\'']);
        if !bare.is_empty() {
            found.push((directive.as_str(), name.range(), bare, captures.get(3).is_some()));
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn included_files_are_filled_in_and_relative_names_stay_right() {
        let place = tempfile::tempdir().unwrap();
        let site = place.path().join("etc");
        fs::create_dir_all(site.join("sites-enabled")).unwrap();
        let write = |name: &str, text: &str| fs::write(site.join(name), text).unwrap();
        write("nginx.conf", "http {\n include mime.types;\n include sites-enabled/*; # include x\n}\n");
        write("mime.types", "types { text/html html; }");
        write("cert.pem", "-");
        write("sites-enabled/b", "server { listen {port} ssl; ssl_certificate cert.pem; include proxy_params; }");
        write("sites-enabled/a", "server { listen 81; }");
        write("proxy_params", "proxy_set_header Host $host;");
        let tree = Tree::read(&site.join("nginx.conf"), &[]).unwrap();
        assert!(tree.mentions("{port}") && !tree.mentions("{docroot}"));
        let run = place.path().join("run");
        fs::create_dir(&run).unwrap();
        let values = BTreeMap::from([("port", "4443".to_owned())]);
        let copy = tree.write(&run, &["{port}"], &values).unwrap();
        let (at, text) = (site.display(), fs::read_to_string(copy).unwrap());
        let wanted = format!(
            "http {{\n include {at}/mime.types;\n include {at}/sites-enabled/a; \
             include {}/included-1-b; # include x\n}}\n",
            run.display()
        );
        assert_eq!(text, wanted);
        assert_eq!(
            fs::read_to_string(run.join("included-1-b")).unwrap(),
            format!("server {{ listen 4443 ssl; ssl_certificate {at}/cert.pem; include {at}/proxy_params; }}")
        );
    }

    #[test]
    fn names_are_found_in_every_servers_way_of_writing() {
        let found =
            |text: &'static str| names(text).into_iter().map(|(_, _, name, ends)| (name, ends)).collect::<Vec<_>>();
        assert_eq!(found("Include \"conf.d/*.conf\"\nIncludeOptional x\n"), [("conf.d/*.conf", false), ("x", false)]);
        assert_eq!(found("location / { include proxy_params; }"), [("proxy_params", true)]);
        assert_eq!(found("# include a;\nincluded b; x-include c;"), []);
        assert_eq!(found("ssl_certificate_key k;"), [("k", true)]);
    }
}
