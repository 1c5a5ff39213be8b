//! Reads a configuration of HAProxy as it does itself: lines of words, in sections.

use std::fmt::Write as _;

use anyhow::{Context, Result, ensure};

use crate::files::At;
use crate::site::is_listed;

const KINDS: &str = "global defaults frontend backend listen peers mailers resolvers userlist program ring log-forward \
    log-profile cache fcgi-app http-errors crt-store acme traces healthcheck spoe-agent spoe-message";

/// A section: the words that begin it, and its lines.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Section {
    pub(super) head: Vec<String>,
    pub(super) lines: Vec<Line>,
    pub(super) at: At,
}

/// The words of a line as they stand there, quotes included; one at least.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Line {
    pub(super) words: Vec<String>,
    pub(super) at: At,
}

impl Section {
    pub(super) fn kind(&self) -> &str {
        self.head.first().map_or("", String::as_str)
    }

    pub(super) fn name(&self) -> Option<&String> {
        self.head.get(1)
    }

    pub(super) fn is_front(&self) -> bool {
        ["frontend", "listen"].contains(&self.kind())
    }

    pub(super) fn binds(&self) -> impl Iterator<Item = &Line> {
        self.lines.iter().filter(|line| line.starts(&["bind"]) && line.words.len() > 1)
    }

    pub(super) fn write(&self, text: &mut String) {
        if !self.head.is_empty() {
            let _ = writeln!(text, "{}", self.head.join(" "));
        }
        for line in &self.lines {
            let _ = writeln!(text, "    {}", line.words.join(" "));
        }
    }
}

impl From<Vec<String>> for Line {
    fn from(words: Vec<String>) -> Line {
        Line { words, at: At::default() }
    }
}

impl Line {
    /// Splits the text at single blanks.
    pub(super) fn parse(text: &str) -> Line {
        text.split(' ').map(str::to_owned).collect::<Vec<_>>().into()
    }

    pub(super) fn has(&self, word: &str) -> bool {
        self.words.iter().any(|other| other == word)
    }

    pub(super) fn starts(&self, words: &[&str]) -> bool {
        self.behind(words).is_some()
    }

    /// The words that follow these first words, if the line begins with them.
    pub(super) fn behind(&self, words: &[&str]) -> Option<&[String]> {
        let is_it = self.words.len() >= words.len() && self.words.iter().zip(words).all(|(one, other)| one == other);
        is_it.then(|| &self.words[words.len()..])
    }

    /// The word that follows this one, without quotes.
    pub(super) fn value(&self, word: &str) -> Option<String> {
        let at = self.words.iter().position(|other| other == word)?;
        self.words.get(at + 1).map(|value| plain(value))
    }

    /// A word of a list with what follows it, where it is there.
    pub(super) fn with_value(&self, entry: &str) -> Vec<String> {
        let (word, follow) = entry.split_once(':').unwrap_or((entry, "0"));
        let at = self.words.iter().position(|other| other == word).unwrap_or(self.words.len());
        self.words.iter().skip(at).take(1 + follow.parse().unwrap_or(0)).cloned().collect()
    }

    /// Takes a word out wherever it is, and so many behind it.
    pub(super) fn remove(&mut self, word: &str, follow: usize) {
        while let Some(at) = self.words.iter().position(|other| other == word) {
            self.words.drain(at..(at + 1 + follow).min(self.words.len()));
        }
    }

    /// The same for a list: behind a colon how many follow each.
    pub(super) fn remove_listed(&mut self, list: &str) {
        for entry in list.split(' ') {
            let (word, follow) = entry.split_once(':').unwrap_or((entry, "0"));
            self.remove(word, follow.parse().unwrap_or(0));
        }
    }

    /// The addresses of a `bind`, as they are compared.
    pub(super) fn addresses(&self) -> impl Iterator<Item = String> {
        let list = self.words.get(1).map(|list| plain(list)).unwrap_or_default();
        list.split(',').map(plain_address).collect::<Vec<_>>().into_iter()
    }

    pub(super) fn port(&self) -> Option<u16> {
        let first = self.addresses().next()?;
        let port = first.rsplit_once(':')?.1;
        port.split('-').next()?.parse().ok()
    }
}

/// An address without what says the same: `ipv4@*:80` is `:80`, `localhost:80` is `127.0.0.1:80`.
pub(super) fn plain_address(address: &str) -> String {
    let address = plain(address);
    let address = ["ipv4@", "ipv6@", "unix@"].iter().find_map(|start| address.strip_prefix(start)).unwrap_or(&address);
    match address.rsplit_once(':') {
        Some(("*" | "0.0.0.0" | "[::]" | "::" | "127.0.0.1" | "localhost" | "", port)) => format!(":{port}"),
        _ => address.to_owned(),
    }
}

/// A word without its quotes and backslashes.
pub(super) fn plain(word: &str) -> String {
    let mut text = String::with_capacity(word.len());
    let mut characters = word.chars();
    while let Some(character) = characters.next() {
        match character {
            '"' | '\'' => {}
            '\\' => text.extend(characters.next()),
            other => text.push(other),
        }
    }
    text
}

/// Decides the condition of an `.if` behind these sections.
pub(super) type Decide<'a> = &'a dyn Fn(&str, &[Section]) -> Result<bool>;

/// Reads the text of a file into sections; what stands before the first goes to the last that is there. Lines under a
/// condition that is not met are left out.
pub(super) fn read(text: &str, file: usize, sections: &mut Vec<Section>, decide: Decide) -> Result<()> {
    // Of each `.if`: whether the lines hold that stand here, and whether those of a later branch may.
    let mut open: Vec<[bool; 2]> = Vec::new();
    for (number, line) in text.lines().enumerate() {
        let (words, comment) = split(line).with_context(|| format!("line {}: a quote is not closed", number + 1))?;
        let Some(first) = words.first() else { continue };
        let from = line.as_ptr() as usize - text.as_ptr() as usize;
        let to = from + line[..line.len() - comment.len()].trim_end().len();
        let at = At { file, bytes: from + line.len() - line.trim_start().len()..to };
        let is_met = |may: bool| match may {
            true => decide(&words[1..].join(" "), sections).with_context(|| format!("line {}", number + 1)),
            false => Ok(false),
        };
        let holds = open.last().is_none_or(|[holds, _]| *holds);
        match first.as_str() {
            ".if" => {
                let is = is_met(holds)?;
                open.push([is, holds && !is]);
            }
            ".elif" | ".else" | ".endif" => {
                let branch = open.pop().with_context(|| format!("line {}: {first} without .if", number + 1))?;
                let is = if first == ".else" { branch[1] } else { first == ".elif" && is_met(branch[1])? };
                open.extend((first != ".endif").then_some([is, branch[1] && !is]));
            }
            ".notice" | ".warning" | ".alert" | ".diag" => {}
            _ if !holds => {}
            kind if is_listed(KINDS, kind) => sections.push(Section { head: words, lines: Vec::new(), at }),
            _ => sections
                .last_mut()
                .into_iter()
                .for_each(|last| last.lines.push(Line { words: words.clone(), at: at.clone() })),
        }
    }
    ensure!(open.is_empty(), "an .if is not ended");
    Ok(())
}

/// The words of a line, and the comment behind them; `None`: a quote is not closed.
pub(super) fn split(line: &str) -> Option<(Vec<String>, &str)> {
    let mut words = Vec::new();
    let mut word = String::new();
    let mut quote = None;
    let mut comment = "";
    let mut characters = line.char_indices();
    while let Some((at, character)) = characters.next() {
        match (character, quote) {
            // In strong quotes a backslash is one.
            ('\\', None | Some('"')) => {
                word.push(character);
                word.extend(characters.next().map(|(_, escaped)| escaped));
                continue;
            }
            ('"' | '\'', None) => quote = Some(character),
            (_, Some(open)) if open == character => quote = None,
            ('#', None) => {
                comment = &line[at..];
                break;
            }
            (' ' | '\t' | '\r', None) => {
                if !word.is_empty() {
                    words.push(std::mem::take(&mut word));
                }
                continue;
            }
            _ => {}
        }
        word.push(character);
    }
    if !word.is_empty() {
        words.push(word);
    }
    quote.is_none().then_some((words, comment))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn words(line: &str) -> Option<Vec<String>> {
        split(line).map(|(words, _)| words)
    }

    fn read_text(text: &str) -> Result<Vec<Section>> {
        let mut sections = vec![Section::default()];
        read(text, 0, &mut sections, &|condition, _| Ok(condition == "yes"))?;
        Ok(sections)
    }

    #[test]
    fn words_are_what_haproxy_takes_for_one() {
        assert_eq!(words("  bind :443 ssl crt 'a b'\t# x").unwrap(), ["bind", ":443", "ssl", "crt", "'a b'"]);
        assert_eq!(
            words(r#"log-format "%ci # \" x" a\ b \#c"#).unwrap(),
            ["log-format", r#""%ci # \" x""#, r"a\ b", r"\#c"]
        );
        assert_eq!(words("x \"a"), None);
        assert_eq!(plain(r#""a 'b' "\ c"#), "a b  c");
        assert!(read_text("global\n log 'x").unwrap_err().to_string().contains("line 2"));
    }

    #[test]
    fn lines_under_a_condition_that_is_not_met_are_left_out() {
        let kept = |text: &str| {
            let sections = read_text(text)?;
            Ok::<_, anyhow::Error>(
                sections.iter().flat_map(|section| &section.lines).map(|line| line.words.concat()).collect::<String>(),
            )
        };
        let text = "global\n.if no\n a\n .if yes\n  b\n .else\n c\n .endif\n.elif yes\n d\n.elif yes\n e\n.else\n f\n\
            .endif\n.if yes\n g\n .if no\n h\n .else\n i\n .endif\n.else\n j\n.endif\nk\n.warning x";
        assert_eq!(kept(text).unwrap(), "dgik");
        for (text, fault) in [("global\n.if yes\n", "not ended"), ("global\n.else", "line 2: .else without .if")] {
            assert!(format!("{:#}", kept(text).unwrap_err()).contains(fault), "{text}");
        }
        assert_eq!(read_text(".if no\nfrontend x\n.endif\nfrontend y").unwrap().len(), 2);
    }

    #[test]
    fn addresses_that_mean_the_same_are_the_same() {
        let addresses = |text: &str| Line::parse(text).addresses().collect::<Vec<_>>().join(" ");
        assert_eq!(addresses("bind *:443,[::]:443 ssl"), ":443 :443");
        assert_eq!(addresses("bind ipv4@10.0.0.1:80"), "10.0.0.1:80");
        assert_eq!(addresses("bind unix@/run/x.sock"), "/run/x.sock");
        assert_eq!(addresses("bind abns@x"), "abns@x");
        assert_eq!(Line::parse("bind :8000-8010").port(), Some(8000));
        assert_eq!(Line::parse("bind /run/x").port(), None);
    }

    proptest! {
        /// Whatever stands in a file: it is read or refused, and what is read means the same when it is written.
        #[test]
        fn what_is_read_survives_being_written(text in "[ab \"'\\\\#\n\t:]{0,40}(global|frontend|\n\
            ){0,2}[ab \"'\\\\#\n]{0,40}") {
            if let Ok(read) = read_text(&text) {
                let mut written = String::new();
                read.iter().for_each(|section| section.write(&mut written));
                prop_assert_eq!(read_text(&written).unwrap(), read);
            }
        }
    }
}
