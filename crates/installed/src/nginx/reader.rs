//! Reads a configuration as nginx itself does (`ngx_conf_file.c`), with all that it includes, and writes it again.

use std::fmt::Write as _;
use std::iter;
use std::path::{Path, absolute};
use std::sync::LazyLock;

use anyhow::{Context, Result, bail, ensure};
use regex_lite::Regex;

use super::text::{name_of, path_of, value, word_of};
use super::{elsewhere, lua};
use crate::files::{At, Files};
use tlsdyno_servers::{glob, nginx};

/// Includes within includes; more is a circle.
const DEPTH_MAX: u32 = 16;
const BLOCKS_MAX: u32 = 64;
/// Blocks that hold data: what stands first in their lines is no directive.
const OF_DATA: [&str; 6] = ["types", "map", "geo", "split_clients", "charset_map", "geoip2"];
/// What the value of a directive for a file begins with where it names no file beside the configuration.
const NO_FILE: [&str; 5] = ["/", "$", "data:", "engine:", "store:"];

/// A directive with its block, if it has one. Arguments are words as they stand in the file, quotes included.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Directive {
    pub(super) name: String,
    pub(super) arguments: Vec<String>,
    pub(super) block: Option<Block>,
    /// Bytes from its name to its end.
    pub(super) at: At,
}

#[derive(Clone, Debug, PartialEq)]
pub(super) enum Block {
    Directives(Vec<Directive>),
    /// Lines of data, each read like a directive.
    Data(Vec<Directive>),
    Script(String),
}

impl Directive {
    pub(super) fn new<Word: Into<String>>(name: &str, arguments: impl IntoIterator<Item = Word>) -> Directive {
        let arguments = arguments.into_iter().map(Into::into).collect();
        Directive { name: name.to_owned(), arguments, block: None, at: At::default() }
    }

    pub(super) fn inner(&self) -> &[Directive] {
        match &self.block {
            Some(Block::Directives(inner)) => inner,
            _ => &[],
        }
    }

    pub(super) fn inner_mut(&mut self) -> Option<&mut Vec<Directive>> {
        match &mut self.block {
            Some(Block::Directives(inner)) => Some(inner),
            _ => None,
        }
    }

    /// The directives or the lines of data in its block.
    fn lines_mut(&mut self) -> Option<&mut Vec<Directive>> {
        match &mut self.block {
            Some(Block::Directives(lines) | Block::Data(lines)) => Some(lines),
            _ => None,
        }
    }

    /// Its arguments without quotes and escapes, as nginx reads them.
    pub(super) fn values(&self) -> impl Iterator<Item = String> {
        self.arguments.iter().map(|word| value(word).into_owned())
    }

    /// The first argument, read in the same way as [`Directive::values`].
    pub(super) fn first(&self) -> Option<String> {
        self.arguments.first().map(|word| value(word).into_owned())
    }

    pub(super) fn says(&self, wanted: &str) -> bool {
        self.arguments.iter().any(|word| value(word) == wanted)
    }

    pub(super) fn write(&self, text: &mut String, depth: usize) {
        let indent = "    ".repeat(depth);
        let words: Vec<&str> = iter::once(&self.name).chain(&self.arguments).map(String::as_str).collect();
        let _ = write!(text, "{indent}{}", words.join(" "));
        match &self.block {
            None => text.push_str(";\n"),
            Some(Block::Script(script)) => {
                let _ = writeln!(text, " {{{script}}}");
            }
            Some(Block::Directives(lines) | Block::Data(lines)) => {
                text.push_str(" {\n");
                lines.iter().for_each(|directive| directive.write(text, depth + 1));
                let _ = writeln!(text, "{indent}}}");
            }
        }
    }
}

/// All directives with those in their blocks, in the order of the file.
pub(super) fn all(directives: &[Directive]) -> impl Iterator<Item = &Directive> {
    let mut left: Vec<&Directive> = directives.iter().rev().collect();
    iter::from_fn(move || {
        let next = left.pop()?;
        left.extend(next.inner().iter().rev());
        Some(next)
    })
}

/// Changes all directives and lines of data.
pub(super) fn change_all(directives: &mut [Directive], change: &mut dyn FnMut(&mut Directive)) {
    for directive in directives {
        change(directive);
        if let Some(lines) = directive.lines_mut() {
            change_all(lines, change);
        }
    }
}

/// Whether a name is one of a pattern with at most one star, which stands for any letters.
pub(super) fn matches(pattern: &str, name: &str) -> bool {
    match pattern.split_once('*') {
        None => pattern == name,
        Some((before, behind)) => {
            name.len() >= before.len() + behind.len() && name.starts_with(before) && name.ends_with(behind)
        }
    }
}

/// Reads a configuration.
pub(super) fn read(path: &Path, files: &mut Files) -> Result<Vec<Directive>> {
    // As nginx does: a link is not followed to where the rest of the configuration would be looked for.
    let path = absolute(path).with_context(|| format!("read {}", path.display()))?;
    let home = path.parent().unwrap_or(Path::new("/"));
    ensure!(!path.is_dir(), "{0} is a directory; name the file in it: {0}/nginx.conf", path.display());
    if let Some(advice) = elsewhere::advice(&path, &files.text(&path)?.1) {
        bail!("{advice}");
    }
    with_includes(parsed(&path, files)?, home, files, DEPTH_MAX)
}

/// The directives of a file, includes not followed.
fn parsed(path: &Path, files: &mut Files) -> Result<Vec<Directive>> {
    let (file, text) = files.text(path)?;
    let mut words = Lexer { text: &text, file, at: 0 };
    words.directives(0).with_context(|| format!("{} is no nginx configuration: line {}", path.display(), words.line()))
}

/// The directives with those of files that they include. `home`: where nginx looks for relative names.
fn with_includes(directives: Vec<Directive>, home: &Path, files: &mut Files, depth: u32) -> Result<Vec<Directive>> {
    let mut all = Vec::new();
    for mut directive in directives {
        if let (true, Some(pattern)) = (directive.name == "include", directive.arguments.first()) {
            ensure!(depth > 0, "{pattern} is included within itself");
            let pattern = home.join(path_of(&value(pattern)));
            let found = glob::files(&pattern);
            ensure!(
                !found.is_empty() || glob::is_pattern(&pattern),
                "the configuration includes {}, and there is no such file",
                pattern.display()
            );
            for file in found {
                all.extend(with_includes(parsed(&file, files)?, home, files, depth - 1)?);
            }
            continue;
        }
        if let (true, Some(file)) = (nginx::names_file(&directive.name), directive.arguments.first_mut()) {
            let name = value(file);
            if !name.is_empty() && !NO_FILE.iter().any(|start| name.starts_with(start)) {
                *file = word_of(&name_of(&home.join(path_of(&name))));
            }
        }
        if let Some(lines) = directive.lines_mut() {
            *lines = with_includes(std::mem::take(lines), home, files, depth)?;
        }
        all.push(directive);
    }
    Ok(all)
}

/// The words of a configuration: what nginx's own reader takes for one (`ngx_conf_read_token`).
struct Lexer<'a> {
    text: &'a str,
    file: usize,
    at: usize,
}

static SKIPPED: LazyLock<Regex> = LazyLock::new(|| Regex::new(r"^(?:[ \t\r\n]|#[^\n]*)*").expect("a test uses it"));
/// A word, or `;`, `{`, `}`. In one without quotes a brace may stand behind `$`, and anything behind a backslash.
static WORD: LazyLock<Regex> = LazyLock::new(|| {
    let quoted = r#""(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*'"#;
    let bare = r#"(?:\\.?|\$\{|[^ \t\r\n;{}"'\\])(?:\\.?|\$\{|[^ \t\r\n;{\\])*"#;
    Regex::new(&format!("^(?s:[;{{}}]|{quoted}|{bare})")).expect("a test uses it")
});

impl<'a> Lexer<'a> {
    fn directives(&mut self, depth: u32) -> Result<Vec<Directive>> {
        ensure!(depth < BLOCKS_MAX, "its blocks are nested too deep");
        let mut all = Vec::new();
        let mut words: Vec<String> = Vec::new();
        let mut from = 0;
        loop {
            match self.next_word()? {
                None if depth == 0 && words.is_empty() => return Ok(all),
                None => bail!("it ends within a block or a directive"),
                Some("}") if depth > 0 && words.is_empty() => return Ok(all),
                Some("}") => bail!("a }} stands where none belongs"),
                Some(word @ (";" | "{")) => {
                    ensure!(!words.is_empty(), "a {word} stands where a directive should begin");
                    let name = plain_name(words.remove(0));
                    let block = match word {
                        ";" => None,
                        _ if name.ends_with("_by_lua_block") => Some(Block::Script(self.script()?)),
                        _ if OF_DATA.contains(&name.as_str()) => Some(Block::Data(self.directives(depth + 1)?)),
                        _ => Some(Block::Directives(self.directives(depth + 1)?)),
                    };
                    let at = At { file: self.file, bytes: from..self.at };
                    all.push(Directive { name, arguments: std::mem::take(&mut words), block, at });
                }
                Some(word) => {
                    from = if words.is_empty() { self.at - word.len() } else { from };
                    words.push(word.to_owned());
                }
            }
        }
    }

    fn rest(&self) -> &'a str {
        &self.text[self.at..]
    }

    /// The line that was read last, from 1.
    fn line(&self) -> usize {
        1 + self.text[..self.at].matches('\n').count()
    }

    /// The next word, or `;`, `{`, `}`; `None` at the end. Comments are passed over.
    fn next_word(&mut self) -> Result<Option<&'a str>> {
        self.at += SKIPPED.find(self.rest()).map_or(0, |skipped| skipped.end());
        let Some(word) = WORD.find(self.rest()) else {
            ensure!(self.rest().is_empty(), "a quote is not closed");
            return Ok(None);
        };
        let (word, behind) = self.rest().split_at(word.end());
        // Behind quotes nginx wants a blank, the end of the directive, or the parenthesis that closes a condition.
        let may_follow = behind.is_empty() || behind.starts_with([' ', '\t', '\r', '\n', ';', '{', ')']);
        ensure!(
            may_follow || !word.starts_with(['"', '\'']),
            "something stands right behind the word in quotes {word}"
        );
        self.at += word.len();
        Ok(Some(word))
    }

    /// A script up to the brace that closes it, which is passed over.
    fn script(&mut self) -> Result<String> {
        let end = lua::end_of_block(self.rest()).context("a script block is not closed")?;
        let script = self.rest()[..end].to_owned();
        self.at += end + 1;
        Ok(script)
    }
}

/// The name of a directive without quotes, where it needs none.
fn plain_name(word: String) -> String {
    let plain = value(&word);
    match !plain.is_empty() && plain.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_') {
        true => plain.into_owned(),
        false => word,
    }
}

#[cfg(test)]
pub(super) fn directives_of(text: &str) -> Result<Vec<Directive>> {
    Lexer { text, file: 0, at: 0 }.directives(0)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use proptest::prelude::*;

    use super::super::text::{bytes_of, text_of};
    use super::*;

    fn read(path: &Path) -> Result<Vec<Directive>> {
        super::read(path, &mut Files::default())
    }

    fn written(directives: &[Directive]) -> String {
        let mut text = String::new();
        directives.iter().for_each(|directive| directive.write(&mut text, 0));
        text
    }

    #[test]
    fn words_are_what_nginx_takes_for_one() {
        let words = |text: &str| directives_of(text).unwrap()[0].arguments.clone();
        assert_eq!(words("x a\u{a0}b\u{b}c d;"), ["a\u{a0}b\u{b}c", "d"]);
        assert_eq!(words("x ${a}b a}b a#b \"a;\" 'b{' a\\;b;"), ["${a}b", "a}b", "a#b", "\"a;\"", "'b{'", "a\\;b"]);
        assert_eq!(words("x ($a = \"b\") {}"), ["($a", "=", "\"b\"", ")"]);
        assert_eq!(words("x ~ ^/a\\{2\\}$ {}"), ["~", "^/a\\{2\\}$"]);
        assert_eq!(words("x $ {}"), ["$"]);
        assert_eq!(words("x\r\n y\t# } ; \"\r\n z;"), ["y", "z"]);
        assert_eq!(directives_of("\"listen\" 80; '~a' b;").unwrap()[0].name, "listen");
        assert_eq!(directives_of("'~a' b;").unwrap()[0].name, "'~a'");
    }

    #[test]
    fn what_nginx_refuses_is_refused_with_its_line() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("x.conf");
        let fault = |text: &str| {
            fs::write(&path, text).unwrap();
            format!("{:#}", read(&path).unwrap_err())
        };
        assert!(fault("events {}\nhttp { server {").contains("line 2: it ends within"));
        assert!(fault("\n\na \"b").contains("line 3: a quote"));
        assert!(fault("a \"b\"c;").contains("right behind"));
        assert!(fault("include x.conf;").contains("within itself"));
        assert!(fault("include y.conf;").contains("y.conf, and there is no such file"));
        assert!(fault("}").contains("no nginx configuration"));
        assert!(fault("a_by_lua_block { \"}\" ").contains("not closed"));
        fs::write(&path, "include none*.conf; a b;").unwrap();
        assert_eq!(read(&path).unwrap().len(), 1);
        assert!(read(place.path()).unwrap_err().to_string().contains("nginx.conf"));
    }

    #[test]
    fn files_beside_the_configuration_are_named_absolutely() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("x.conf");
        let text = "ssl_crl a.crl; proxy_ssl_trusted_certificate \"b c.pem\"; ssl_stapling_file /d;\n\
                    proxy_ssl_certificate \"\"; ssl_certificate $e; ssl_certificate_key data:x; root www;\n\
                    ssl_certificate_key certs/$ssl_server_name.key;";
        fs::write(&path, text).unwrap();
        let home = place.path().display();
        let arguments: Vec<String> =
            read(&path).unwrap().into_iter().flat_map(|directive| directive.arguments).collect();
        let (crl, trusted, key) =
            (format!("{home}/a.crl"), format!("\"{home}/b c.pem\""), format!("\"{home}/certs/$ssl_server_name.key\""));
        assert_eq!(arguments, [&crl, &trusted, "/d", "\"\"", "$e", "data:x", "www", &key]);
    }

    #[test]
    fn bytes_that_are_no_text_stay() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("x.conf");
        fs::write(&path, b"# f\xfcr alle\nadd_header X \"\xe4}\";\ninclude s\xe9/*;").unwrap();
        let odd = place.path().join(path_of(&text_of(b"s\xe9")));
        fs::create_dir(&odd).unwrap();
        fs::write(odd.join("a"), b"b \xff;").unwrap();
        assert_eq!(bytes_of(&written(&read(&path).unwrap())), b"add_header X \"\xe4}\";\nb \xff;\n");
    }

    #[test]
    fn scripts_stay_as_they_are() {
        let script = " t = { \"}\", '{' } -- } it's\n ngx.print([[}]]) ";
        let text = format!("location / {{ set_by_lua_block $x {{{script}}} a b; }}");
        let read = directives_of(&text).unwrap();
        assert_eq!(read[0].inner()[0].block, Some(Block::Script(script.to_owned())));
        assert_eq!(directives_of(&written(&read)).unwrap(), read);
    }

    proptest! {
        /// Whatever stands in a file: it is read or refused, and what is read means the same when it is written.
        #[test]
        fn what_is_read_survives_being_written(text in "[ab \"'${};#\\\\\n\t\u{a0}\u{10ff80})]{0,60}") {
            if let Ok(read) = directives_of(&text) {
                prop_assert_eq!(directives_of(&written(&read)).unwrap(), read);
            }
        }
    }
}
