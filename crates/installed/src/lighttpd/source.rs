//! The files of a configuration of lighttpd as they are written, for a patch: what lighttpd prints (`-p`) names
//! no files.

use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use anyhow::Result;
use regex_lite::Regex;

use crate::files::{At, Files};
use crate::patch::{Part, name_of};
use tlsdyno_servers::glob;

/// A setting or an include: its value is a text, a list, or what else stands on the line.
static SETTING: LazyLock<Regex> = LazyLock::new(|| {
    let value = r##""[^"\n]*"|\((?:[^()"#]|"[^"]*"|#[^\n]*)*\)|[^\s#}]+"##;
    Regex::new(&format!(r"(?m)(?:^|\{{)[ \t]*(?:([\w.-]+)[ \t]*(?:\+?=|:=)|include)\s*({value})"))
        .expect("a test uses it")
});
static PAIR: LazyLock<Regex> = LazyLock::new(|| Regex::new(r#""([^"]+)"\s*=>\s*"([^"]*)""#).expect("a test uses it"));

/// The settings of a configuration with the files that it includes, and the pairs of a list before it.
pub(crate) fn parts(path: &Path, files: &mut Files) -> Result<Vec<Part>> {
    let mut parts = Vec::new();
    let mut left: Vec<PathBuf> = vec![path.to_owned()];
    while let Some(path) = left.pop() {
        let count = files.read.len();
        let (file, text) = files.text(&path)?;
        // Each file once, so that a circle ends.
        for captures in SETTING.captures_iter(&text).take_while(|_| file >= count) {
            let value = captures.get(2).map_or(0..0, |value| value.range());
            let Some(name) = captures.get(1) else {
                let home = path.parent().unwrap_or(Path::new("/"));
                left.extend(glob::files(&home.join(captures[2].trim_matches(['(', '"', ')', ' ']))));
                continue;
            };
            let part = |name: &str, key: &str, says: &str, bytes| {
                let place = if name == "ssl.pemfile" { "tls" } else { "" };
                Part { name: name_of(name, key), says: says.to_owned(), at: At { file, bytes }, place, inner: vec![] }
            };
            let pairs = PAIR.captures_iter(&captures[2]).map(|pair| {
                let from = value.start + pair.get(0).map_or(0, |pair| pair.start());
                part(name.as_str(), &pair[1], &pair[0], from..from + pair[0].len())
            });
            parts.extend(pairs);
            // A list of pairs is said by these.
            let says = if PAIR.is_match(&captures[2]) { "" } else { &captures[0] };
            parts.push(part(name.as_str(), "", says, name.start()..value.end));
        }
    }
    Ok(parts)
}

/// The pair that a line adds to a list, and the list; `None`: it adds none.
pub(crate) fn names_of(line: &str) -> Option<Vec<String>> {
    let (name, _) = line.split_once(" += ")?;
    Some(vec![name_of(name, &PAIR.captures(line)?[1]), name_of(name, "")])
}

/// What stands in the place of a pair: another one.
pub(crate) fn instead(says: &str, new: &str) -> Option<String> {
    let (there, own) = (PAIR.captures(says)?, PAIR.captures(new)?);
    let value = super::merged(&own[1], &own[2], &[(there[1].to_owned(), there[2].to_owned())]);
    Some(format!("\"{}\" => \"{value}\"", &own[1]))
}
