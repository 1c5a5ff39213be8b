//! Reads a configuration of Apache as it does itself: directives and sections, with all that they include.
//!
//! Circle: conditions depend on what was read before them.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};

use super::conditions::{self, Modules};
use crate::files::{At, Files};
use tlsdyno_servers::glob;

/// Includes and macros within such; more is a circle.
const DEPTH_MAX: u32 = 16;
/// Maximum depth of sections within sections.
const SECTIONS_MAX: usize = 32;

/// A directive with its arguments as they stand there; with what is in it where it is a section.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Directive {
    pub(super) name: String,
    pub(super) arguments: String,
    pub(super) inner: Option<Vec<Directive>>,
    /// Its line, with those that continue it.
    pub(super) at: At,
}

impl Directive {
    pub(super) fn new(name: &str, arguments: impl Into<String>) -> Directive {
        Directive { name: name.to_owned(), arguments: arguments.into(), inner: None, at: At::default() }
    }

    /// Compares names as Apache does, without regard to case.
    pub(super) fn is(&self, name: &str) -> bool {
        self.name.eq_ignore_ascii_case(name)
    }

    pub(super) fn is_any(&self, names: &[&str]) -> bool {
        names.iter().any(|name| self.is(name))
    }

    /// Its arguments without quotes, as Apache reads them.
    pub(super) fn values(&self) -> Vec<String> {
        values(&self.arguments)
    }

    pub(super) fn first(&self) -> Option<String> {
        self.values().into_iter().next()
    }

    /// The same with values in the place of a macro's parameters.
    fn filled(&self, values: &[(String, String)]) -> Directive {
        let inner = self.inner.as_ref().map(|inner| inner.iter().map(|directive| directive.filled(values)).collect());
        let [name, arguments] = [&self.name, &self.arguments].map(|text| with_values(text, values));
        Directive { name, arguments, inner, at: self.at.clone() }
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

/// All directives, those in sections included.
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
pub(super) struct Reader<'a> {
    /// The directory that relative names start from.
    pub(super) root: PathBuf,
    pub(super) modules: Modules,
    pub(super) defined: BTreeMap<String, String>,
    pub(super) left_out: Vec<String>,
    /// Values of `${NAME}` that nobody defines: those of Debian's `envvars`.
    variables: BTreeMap<String, String>,
    /// Sections of `Macro` by their names, in small letters.
    macros: BTreeMap<String, Directive>,
    files: &'a mut Files,
}

/// Variables that Debian's service has, by the file beside a configuration.
pub(crate) fn variables_beside(path: &Path) -> BTreeMap<String, String> {
    environment(&fs::read_to_string(path.with_file_name("envvars")).unwrap_or_default())
}

impl Reader<'_> {
    fn new<'a>(path: &Path, files: &'a mut Files) -> Result<Reader<'a>> {
        let path = std::path::absolute(path).with_context(|| format!("read {}", path.display()))?;
        let root = path.parent().unwrap_or(Path::new("/")).to_owned();
        let variables = variables_beside(&path);
        let arguments = variables.get("APACHE_ARGUMENTS").map_or("", String::as_str);
        let defined = conditions::defined_by(arguments).map(|name| (name, String::new())).collect();
        let (modules, macros) = (Modules::built_in(), BTreeMap::new());
        Ok(Reader { root, modules, defined, left_out: vec![], variables, macros, files })
    }

    /// The directives of a file with those of files that it includes.
    fn file(&mut self, path: &Path, depth: u32) -> Result<Vec<Directive>> {
        let (number, text) = self.files.text(path)?;
        let mut parsed = parsed(&text).with_context(|| format!("{} is no configuration of Apache", path.display()))?;
        set_file(&mut parsed, number);
        self.in_force(parsed, depth)
    }

    /// What holds of these, with what they include: what stands below a condition that is met is there without it.
    fn in_force(&mut self, directives: Vec<Directive>, depth: u32) -> Result<Vec<Directive>> {
        let mut all = Vec::new();
        for mut directive in directives {
            directive.arguments = self.expanded(&directive.arguments);
            let values = directive.values();
            let first = values.first().map_or("", String::as_str);
            match directive.name.to_ascii_lowercase().as_str() {
                "serverroot" => self.root = PathBuf::from(first),
                "define" => drop(self.defined.insert(first.to_owned(), values.get(1).cloned().unwrap_or_default())),
                "undefine" => drop(self.defined.remove(first)),
                "loadmodule" => {
                    let file = self.root.join(values.get(1).map_or("", String::as_str));
                    self.modules.load(first, file);
                }
                "macro" if directive.inner.is_some() => {
                    self.macros.insert(first.to_ascii_lowercase(), directive);
                    continue;
                }
                "undefmacro" => {
                    self.macros.remove(&first.to_ascii_lowercase());
                    continue;
                }
                "use" => {
                    all.extend(self.used(&values, depth)?);
                    continue;
                }
                "include" | "includeoptional" => {
                    ensure!(depth > 0, "{} is included within itself", directive.arguments);
                    for file in self.included(&self.root.join(first), directive.is("Include"))? {
                        all.extend(self.file(&file, depth - 1)?);
                    }
                    continue;
                }
                _ => {}
            }
            let is_met = conditions::is_met(self, &directive)?;
            if is_met == Some(false) {
                self.left_out.push(format!("<{} {}>", directive.name, directive.arguments));
                continue;
            }
            if let Some(inner) = directive.inner.take() {
                let inner = self.in_force(inner, depth)?;
                if is_met.is_some() {
                    all.extend(inner);
                    continue;
                }
                directive.inner = Some(inner);
            }
            all.push(directive);
        }
        Ok(all)
    }

    /// What `Use NAME VALUE…` stands for (mod_macro).
    fn used(&mut self, values: &[String], depth: u32) -> Result<Vec<Directive>> {
        let name = values.first().map_or("", String::as_str);
        let body = self.macros.get(&name.to_ascii_lowercase());
        let body = body.with_context(|| format!("`Use {name}` stands before a <Macro {name}>, or there is none"))?;
        ensure!(depth > 0, "the macro {name} uses itself");
        let mut pairs: Vec<_> = body.values().into_iter().skip(1).zip(values[1..].iter().cloned()).collect();
        // The longest first: `$ab` is not `$a` with a letter behind it.
        pairs.sort_by_key(|(parameter, _)| std::cmp::Reverse(parameter.len()));
        let filled = body.filled(&pairs).inner.unwrap_or_default();
        self.in_force(filled, depth - 1)
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
            let known = self.defined.get(name).or(self.variables.get(name)).cloned();
            match known.or_else(|| std::env::var(name).ok()) {
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

/// A text with values in the place of what stands for them, which is looked for in this order.
fn with_values(text: &str, values: &[(String, String)]) -> String {
    let mut filled = String::new();
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        match values.iter().find(|(name, _)| !name.is_empty() && rest.starts_with(name.as_str())) {
            Some((name, value)) => {
                filled.push_str(value);
                rest = &rest[name.len()..];
            }
            None => {
                filled.push(first);
                rest = &rest[first.len_utf8()..];
            }
        }
    }
    filled
}

fn set_file(directives: &mut [Directive], file: usize) {
    for directive in directives {
        directive.at.file = file;
        set_file(directive.inner.as_deref_mut().unwrap_or_default(), file);
    }
}

/// The directives of a text, includes not followed and conditions not decided.
pub(super) fn parsed(text: &str) -> Result<Vec<Directive>> {
    let mut open: Vec<(Directive, usize)> = Vec::new();
    let mut done: Vec<Directive> = Vec::new();
    let mut lines = text.lines().enumerate();
    while let Some((number, line)) = lines.next() {
        let from = line.as_ptr() as usize - text.as_ptr() as usize;
        let mut bytes = from + line.len() - line.trim_start().len()..from + line.len();
        let mut line = line.to_owned();
        // Only at the very end of a line: a blank behind it makes it a letter (`ap_cfg_getline`).
        while line.ends_with('\\') {
            line.pop();
            let Some((_, next)) = lines.next() else { break };
            line.push_str(next);
            bytes.end = next.as_ptr() as usize - text.as_ptr() as usize + next.len();
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
        let mut directive = Directive::new(name, arguments.trim());
        directive.at.bytes = bytes;
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

/// A configuration with all that it includes, as far as its conditions are met.
#[derive(Debug)]
pub(super) struct Read {
    pub(super) directives: Vec<Directive>,
    /// The directory that relative names start from.
    pub(super) root: PathBuf,
    pub(super) left_out: Vec<String>,
}

pub(super) fn read(path: &Path, files: &mut Files) -> Result<Read> {
    let mut reader = Reader::new(path, files)?;
    let directives = reader.file(path, DEPTH_MAX)?;
    Ok(Read { directives, root: reader.root, left_out: reader.left_out })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn words_are_what_apache_takes_for_one() {
        let joined = |text: &str| values(text).join("|");
        assert_eq!(joined(r#""/a b/c" combined  'x "y"' z\"#), r#"/a b/c|combined|x "y"|z\"#);
        assert_eq!(joined(r#""%h \"%r\"" %u"#), r#"%h "%r"|%u"#);
        assert_eq!(joined(""), "");
    }

    #[test]
    fn sections_continued_lines_and_comments_are_read() {
        let read = parsed(
            "# x\nListen 80\n<IfModule mod_ssl.c>\n  <VirtualHost *:443>\n SSLEngine \\\n on\n\
            </VirtualHost>\n</ifmodule>",
        )
        .unwrap();
        assert_eq!(read.len(), 2);
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
        let read_all = || super::read(&place.path().join("apache2.conf"), &mut Files::default());
        let Read { directives: read, root, .. } = read_all().unwrap();
        assert_eq!(root, place.path());
        let arguments: Vec<&str> = read.iter().map(|directive| directive.arguments.as_str()).collect();
        assert_eq!(arguments, ["site shop", "/var/log/apache2/shop.log", "/var/log/apache2/a ${NOBODY_KNOWS}"]);
        write("apache2.conf", "Include apache2.conf");
        assert!(read_all().is_err());
        write("apache2.conf", "Include x.conf");
        assert!(format!("{:#}", read_all().unwrap_err()).contains("no such file"));
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
