//! An installed configuration as the driver of commands takes it, and where in its files a line stands that a server's
//! message names by its place in the copy.

use std::path::{Path, PathBuf};

use anyhow::Result;
use regex_lite::Regex;
use tlsdyno_record::model::TlsChange;
use tlsdyno_servers::command::Original;
use tlsdyno_servers::includes::Tree;
use tlsdyno_servers::view::View;
use tlsdyno_servers::{InstancePlace, ServerTls};

use super::{Installed, haproxy};

/// A line that stands in more places, as `}` does, says nothing.
const PLACES_MOST: usize = 3;

/// A configuration that is read anew for each copy.
#[derive(Clone, Debug, Default)]
pub struct InstalledFile {
    pub path: PathBuf,
    /// The server's, by which it is known what the file says.
    pub program: String,
    /// See [`Installed::host`], [`Installed::replays`] and [`Installed::may_load`].
    pub host: Option<String>,
    pub replays: bool,
    pub may_load: Vec<String>,
}

impl InstalledFile {
    pub fn read(&self) -> Result<Installed> {
        let (host, may_load) = (self.host.clone(), self.may_load.clone());
        Ok(Installed { host, replays: self.replays, may_load, ..Installed::read(&self.path, Some(&self.program))? })
    }
}

impl Original for InstalledFile {
    fn write(
        &self,
        program: &Path,
        [port, plain_port]: [u16; 2],
        directory: &Path,
        tls: Option<(&TlsChange, &ServerTls, InstancePlace)>,
    ) -> Result<(Vec<String>, String)> {
        let mut installed = self.read()?;
        if let Some((asked, tls, place)) = tls {
            installed.change_tls(asked, tls, place)?;
        }
        installed.write(port, plain_port, directory, program)
    }

    fn view(&self) -> Result<View> {
        let installed = self.read()?;
        Ok(View { layered: installed.runs_code(), documents: installed.site.documents(), ..View::default() })
    }

    fn effects(&self) -> Result<Vec<String>> {
        self.read()?.effects()
    }

    fn places(&self, message: &str, directory: &Path, copy: &str) -> Option<String> {
        places(message, directory, copy, &self.path)
    }
}

/// What a message says of lines of the copy in `directory`, in terms of the installed configuration: where each stands
/// there, too. `None`: it names none, or only lines that the copy alone has. `copy`: the text, behind a line of ours.
fn places(message: &str, directory: &Path, copy: &str, installed: &Path) -> Option<String> {
    let file = format!(r"{}/[\w.-]+", regex_lite::escape(&directory.display().to_string()));
    // Apache says `line 7 of FILE`, nginx and HAProxy `FILE:7`, lighttpd `FILE line: 7`.
    let named = Regex::new(&format!(r"line (\d+) of {file}|{file}(?::| line: )(\d+)")).ok()?;
    let mut notes = Vec::new();
    for found in named.captures_iter(message) {
        let number = found.get(1).or(found.get(2)).and_then(|number| number.as_str().parse().ok()).unwrap_or(0);
        let line = copy.lines().nth(number).map(plain).filter(|line| !line.is_empty());
        let originals = line.as_deref().map_or_else(Vec::new, |line| lines_like(line, installed));
        if (1..=PLACES_MOST).contains(&originals.len()) {
            notes.push(format!("line {number} of the copy is {}", originals.join(" or ")));
        }
    }
    notes.dedup();
    (!notes.is_empty()).then(|| notes.join("; "))
}

/// Where such lines stand, as `FILE:LINE`.
fn lines_like(line: &str, installed: &Path) -> Vec<String> {
    let files = haproxy::files(installed).unwrap_or_default();
    let mut found = Vec::new();
    for tree in files.iter().filter_map(|file| Tree::read(file, &[file.parent()?])) {
        for (path, text) in tree.files() {
            let numbered = text.lines().enumerate().filter(|(_, other)| plain(other).contains(line));
            found.extend(numbered.map(|(at, _)| format!("{}:{}", path.display(), at + 1)));
        }
    }
    found
}

/// A line without blanks, which a copy has elsewhere.
fn plain(line: &str) -> String {
    line.split_whitespace().collect()
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn the_line_of_a_copy_is_named_by_its_original() {
        let home = tempfile::tempdir().unwrap();
        let main = home.path().join("main.conf");
        fs::write(&main, "# comment\ninclude more.conf;\n").unwrap();
        fs::write(home.path().join("more.conf"), "server {\n    gzip on;  wrong   words ;\n}\n").unwrap();
        let at = "/run/own-1";
        let copy = "# nginx -c nginx.conf\nserver {\n        wrong words;\n    only here;\n}\n";
        let notes = |message: String| places(&message, Path::new(at), copy, &main);
        let expected = Some(format!("line 2 of the copy is {}/more.conf:2", home.path().display()));
        assert_eq!(notes(format!("[emerg] unknown directive \"wrong\" in {at}/nginx.conf:2")), expected);
        assert_eq!(notes(format!("AH00526: Syntax error on line 2 of {at}/nginx.conf:\nInvalid")), expected);
        assert_eq!(notes(format!("source: {at}/nginx.conf line: 2 pos: 8 unexpected")), expected);
        for nothing in [format!("{at}/nginx.conf:3"), format!("{at}/nginx.conf:99"), "x:2".to_owned()] {
            assert_eq!(notes(nothing), None);
        }
    }
}
