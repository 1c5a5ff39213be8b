//! Reads a configuration of Apache as it does itself: directives and sections, with all that they include.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};

use crate::glob;
use crate::installed::bytes_in;
use crate::installed::nginx::text_of;

/// Includes within includes; more is a circle.
const DEPTH_MAX: u32 = 16;
/// Sections within sections.
const SECTIONS_MAX: usize = 32;

/// A directive with its arguments as they stand there; with what is in it where it is a section.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Directive {
    pub(super) name: String,
    pub(super) arguments: String,
    pub(super) inner: Option<Vec<Directive>>,
}

impl Directive {
    pub(super) fn of(name: &str, arguments: impl Into<String>) -> Directive {
        Directive { name: name.to_owned(), arguments: arguments.into(), inner: None }
    }

    /// Whether it has this name, in whatever letters.
    pub(super) fn is(&self, name: &str) -> bool {
        self.name.eq_ignore_ascii_case(name)
    }

    pub(super) fn is_any(&self, names: &[&str]) -> bool {
        names.iter().any(|name| self.is(name))
    }

    /// What Apache takes its arguments for.
    pub(super) fn values(&self) -> Vec<String> {
        values(&self.arguments)
    }

    pub(super) fn first(&self) -> Option<String> {
        self.values().into_iter().next()
    }

    /// Whether it holds only under a condition on modules, variables or versions, which is taken to be met.
    pub(super) fn is_condition(&self) -> bool {
        self.inner.is_some()
            && self.is_any(&["IfModule", "IfDefine", "IfVersion", "IfDirective", "IfFile", "IfSection"])
    }

    pub(super) fn write(&self, text: &mut String, depth: usize) {
        let indent = "    ".repeat(depth);
        let blank = if self.arguments.is_empty() { "" } else { " " };
        match &self.inner {
            None => {
                let _ = write!(text, "{indent}{}{blank}{}", self.name, self.arguments);
                // The next line is none of it.
                text.push_str(if text.ends_with('\\') { " \n" } else { "\n" });
            }
            Some(inner) => {
                let _ = writeln!(text, "{indent}<{}{blank}{}>", self.name, self.arguments);
                inner.iter().for_each(|directive| directive.write(text, depth + 1));
                let _ = writeln!(text, "{indent}</{}>", self.name);
            }
        }
    }
}

/// Those of a list, with those under conditions in their place.
pub(super) fn flat(directives: &[Directive]) -> Vec<&Directive> {
    let mut flat: Vec<&Directive> = Vec::new();
    for directive in directives {
        match &directive.inner {
            Some(inner) if directive.is_condition() => flat.extend(self::flat(inner)),
            _ => flat.push(directive),
        }
    }
    flat
}

/// All of them with those in sections.
pub(super) fn all(directives: &[Directive]) -> Vec<&Directive> {
    let mut all = Vec::new();
    for directive in directives {
        all.push(directive);
        all.extend(directive.inner.iter().flat_map(|inner| self::all(inner)));
    }
    all
}

/// The words of arguments, without quotes (`ap_getword_conf`).
fn values(arguments: &str) -> Vec<String> {
    let mut words = Vec::new();
    let mut rest = arguments.trim_start();
    while let Some(first) = rest.chars().next() {
        let is_quoted = first == '"' || first == '\'';
        let mut word = String::new();
        let mut characters = rest.char_indices().skip(usize::from(is_quoted)).peekable();
        let mut end = rest.len();
        while let Some((at, character)) = characters.next() {
            match characters.peek() {
                Some((_, next)) if character == '\\' && (*next == '\\' || is_quoted && *next == first) => {
                    word.push(*next);
                    characters.next();
                }
                _ if is_quoted && character == first || !is_quoted && character.is_ascii_whitespace() => {
                    end = at + 1;
                    break;
                }
                _ => word.push(character),
            }
        }
        words.push(word);
        rest = rest[end..].trim_start();
    }
    words
}

/// What is read, and what it is read with.
#[derive(Debug)]
pub(super) struct Reader {
    /// The directory of relative names.
    pub(super) root: PathBuf,
    /// Values of `${NAME}`: those of Debian's `envvars`, of `Define`, and of this process's environment.
    variables: BTreeMap<String, String>,
}

impl Reader {
    pub(super) fn new(path: &Path) -> Result<Reader> {
        let path = std::path::absolute(path).with_context(|| format!("read {}", path.display()))?;
        let root = path.parent().unwrap_or(Path::new("/")).to_owned();
        let text = fs::read_to_string(root.join("envvars")).unwrap_or_default();
        Ok(Reader { root, variables: environment(&text) })
    }

    /// The directives of a file with those of files that it includes.
    pub(super) fn file(&mut self, path: &Path, depth: u32) -> Result<Vec<Directive>> {
        let text = text_of(&bytes_in(path)?);
        let parsed = parsed(&text).with_context(|| format!("{} is no configuration of Apache", path.display()))?;
        self.with_includes(parsed, depth)
    }

    fn with_includes(&mut self, directives: Vec<Directive>, depth: u32) -> Result<Vec<Directive>> {
        let mut all = Vec::new();
        for mut directive in directives {
            directive.arguments = self.expanded(&directive.arguments);
            let values = directive.values();
            if let (true, Some(root)) = (directive.is("ServerRoot"), values.first()) {
                self.root = PathBuf::from(root);
            }
            if let (true, Some(name)) = (directive.is("Define"), values.first()) {
                self.variables.insert(name.clone(), values.get(1).cloned().unwrap_or_default());
            }
            if directive.is_any(&["Include", "IncludeOptional"]) {
                ensure!(depth > 0, "{} is included within itself", directive.arguments);
                let pattern = self.root.join(values.first().map_or("", String::as_str));
                for file in self.included(&pattern, directive.is("Include"))? {
                    all.extend(self.file(&file, depth - 1)?);
                }
                continue;
            }
            if let Some(inner) = directive.inner.take() {
                directive.inner = Some(self.with_includes(inner, depth)?);
            }
            all.push(directive);
        }
        Ok(all)
    }

    fn included(&self, pattern: &Path, must_be_there: bool) -> Result<Vec<PathBuf>> {
        // Of a directory all files are meant.
        let within = |path: &Path| if path.is_dir() { glob::files(&path.join("*")) } else { glob::files(path) };
        let files = within(pattern);
        let is_missing = must_be_there && files.is_empty() && !glob::is_pattern(pattern) && !pattern.is_dir();
        ensure!(!is_missing, "the configuration includes {}, and there is no such file", pattern.display());
        Ok(files)
    }

    /// Text with the values of variables that are known; others stay.
    fn expanded(&self, text: &str) -> String {
        let mut expanded = String::with_capacity(text.len());
        let mut rest = text;
        while let Some((before, name, behind)) = variable(rest) {
            expanded.push_str(before);
            match self.variables.get(name).cloned().or_else(|| std::env::var(name).ok()) {
                Some(value) => expanded.push_str(&value),
                None => expanded.push_str(&rest[before.len()..rest.len() - behind.len()]),
            }
            rest = behind;
        }
        expanded + rest
    }
}

/// What stands before the first `${NAME}`, its name, and what stands behind it.
fn variable(text: &str) -> Option<(&str, &str, &str)> {
    let (before, rest) = text.split_once("${")?;
    let (name, behind) = rest.split_once('}')?;
    Some((before, name, behind))
}

/// Variables that a file for a shell exports, as Debian's is written: `export NAME=value$OTHER`.
fn environment(text: &str) -> BTreeMap<String, String> {
    let mut variables: BTreeMap<String, String> = BTreeMap::new();
    for line in text.lines().map(str::trim).filter_map(|line| line.strip_prefix("export ")) {
        let Some((name, value)) = line.split_once('=') else { continue };
        let mut value = value.trim_matches(['"', '\'']).to_owned();
        for (other, known) in &variables {
            value = value.replace(&format!("${{{other}}}"), known).replace(&format!("${other}"), known);
        }
        // Debian has a suffix for a second server on the machine, which is empty for the first.
        variables.insert(name.to_owned(), value.replace("$SUFFIX", ""));
    }
    variables
}

/// The directives of a text, includes not followed.
pub(super) fn parsed(text: &str) -> Result<Vec<Directive>> {
    let mut open: Vec<(Directive, usize)> = Vec::new();
    let mut done: Vec<Directive> = Vec::new();
    let mut lines = text.lines().enumerate();
    while let Some((number, line)) = lines.next() {
        let mut line = line.to_owned();
        // Only at the very end of a line: a blank behind it makes it a letter (`ap_cfg_getline`).
        while line.ends_with('\\') {
            line.pop();
            let Some((_, next)) = lines.next() else { break };
            line.push_str(next);
        }
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let at = number + 1;
        if let Some(name) = line.strip_prefix("</") {
            let (mut section, mark) = open.pop().with_context(|| format!("line {at}: {line} ends nothing"))?;
            let name = name.trim_end_matches('>').trim_end();
            ensure!(section.is(name), "line {at}: {line} ends a section {}", section.name);
            section.inner = Some(done.split_off(mark));
            done.push(section);
            continue;
        }
        let section = line.strip_prefix('<');
        let (name, arguments) = match section {
            Some(rest) => {
                let rest = rest.strip_suffix('>').with_context(|| format!("line {at}: {line} lacks its >"))?;
                rest.split_once([' ', '\t']).unwrap_or((rest, ""))
            }
            None => line.split_once([' ', '\t']).unwrap_or((line, "")),
        };
        ensure!(!name.is_empty(), "line {at}: a name is missing");
        let directive = Directive::of(name, arguments.trim());
        match section {
            Some(_) => {
                ensure!(open.len() < SECTIONS_MAX, "line {at}: its sections are nested too deep");
                open.push((directive, done.len()));
            }
            None => done.push(directive),
        }
    }
    if let Some((section, _)) = open.pop() {
        bail!("a section {} is not ended", section.name);
    }
    Ok(done)
}

/// Reads a configuration with all that it includes. Answers the directory of relative names, too.
pub(super) fn read(path: &Path) -> Result<(Vec<Directive>, PathBuf)> {
    let mut reader = Reader::new(path)?;
    let directives = reader.file(path, DEPTH_MAX)?;
    Ok((directives, reader.root))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn words_are_what_apache_takes_for_one() {
        let of = |text: &str| values(text).join("|");
        assert_eq!(of(r#""/a b/c" combined  'x "y"' z\"#), r#"/a b/c|combined|x "y"|z\"#);
        assert_eq!(of(r#""%h \"%r\"" %u"#), r#"%h "%r"|%u"#);
        assert_eq!(of(""), "");
    }

    #[test]
    fn sections_continued_lines_and_comments_are_read() {
        let read = parsed(
            "# x\nListen 80\n<IfModule mod_ssl.c>\n  <VirtualHost *:443>\n SSLEngine \\\n on\n\
            </VirtualHost>\n</ifmodule>",
        )
        .unwrap();
        assert_eq!(read.len(), 2);
        assert!(read[1].is_condition());
        let host = &read[1].inner.as_ref().unwrap()[0];
        assert_eq!(
            (host.arguments.as_str(), host.inner.as_ref().unwrap()[0].first().as_deref()),
            ("*:443", Some("on"))
        );
        assert_eq!(all(&read).len(), 4);
        for (text, said) in
            [("<A>\n", "not ended"), ("</A>", "ends nothing"), ("<A>\n</B>", "ends a section A"), ("<A x", "lacks")]
        {
            assert!(format!("{:#}", parsed(text).unwrap_err()).contains(said), "{text}");
        }
    }

    #[test]
    fn includes_and_variables_are_followed() {
        let place = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| fs::write(place.path().join(name), text).unwrap();
        fs::create_dir(place.path().join("sites")).unwrap();
        write(
            "envvars",
            "if x; then\nfi\nexport APACHE_LOG_DIR=/var/log/apache2$SUFFIX\nexport A=${APACHE_LOG_DIR}/a\n",
        );
        write("apache2.conf", "Define site shop\nIncludeOptional sites\nInclude none*.conf\n");
        write("sites/a", "ErrorLog ${APACHE_LOG_DIR}/${site}.log\nX ${A} ${NOBODY_KNOWS}");
        let (read, root) = read(&place.path().join("apache2.conf")).unwrap();
        assert_eq!(root, place.path());
        let arguments: Vec<&str> = read.iter().map(|of| of.arguments.as_str()).collect();
        assert_eq!(arguments, ["site shop", "/var/log/apache2/shop.log", "/var/log/apache2/a ${NOBODY_KNOWS}"]);
        write("apache2.conf", "Include apache2.conf");
        assert!(super::read(&place.path().join("apache2.conf")).is_err());
        write("apache2.conf", "Include x.conf");
        assert!(format!("{:#}", super::read(&place.path().join("apache2.conf")).unwrap_err()).contains("no such file"));
    }

    #[test]
    fn a_backslash_before_a_blank_continues_no_line() {
        for (text, lines) in [("a b \\\nc", 1), ("a b \\\t\nc d", 2), ("\\\t\\", 1), ("a\\ \\\n\nb c", 2)] {
            let read = parsed(text).unwrap();
            let mut written = String::new();
            read.iter().for_each(|directive| directive.write(&mut written, 0));
            assert_eq!((read.len(), parsed(&written).unwrap()), (lines, read), "{text:?} as {written:?}");
        }
    }

    proptest! {
        /// Whatever stands in a file: it is read or refused, and what is read means the same when it is written.
        #[test]
        fn what_is_read_survives_being_written(text in "([ab \"'\\\\#\t<>/]{0,6}|<a>|</a>|\n){0,12}") {
            if let Ok(read) = parsed(&text) {
                let mut written = String::new();
                read.iter().for_each(|directive| directive.write(&mut written, 0));
                prop_assert_eq!(parsed(&written).unwrap(), read);
            }
            values(&text);
        }
    }
}
