//! Source text without what is not code: comments become blanks, the contents of strings become `x`. Every character
//! stays on its line and in its column, so that what is found can be told with its place.

/// How a language writes comments and strings.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Language {
    Rust,
    C,
    Toml,
    Shell,
}

impl Language {
    /// By the end of the file's name, or by its first line.
    pub fn of(path: &str, text: &str) -> Option<Language> {
        match path.rsplit_once('.').map(|(_, end)| end) {
            Some("rs") => Some(Language::Rust),
            Some("c" | "h") => Some(Language::C),
            Some("toml") => Some(Language::Toml),
            Some("sh") => Some(Language::Shell),
            _ if path.ends_with("Makefile") => Some(Language::Shell),
            _ => {
                let first = text.lines().next().unwrap_or_default();
                (first.starts_with("#!") && first.ends_with("sh")).then_some(Language::Shell)
            }
        }
    }
}

/// `text` with its comments and strings emptied.
pub fn code_of(text: &str, language: Language) -> String {
    match language {
        Language::Rust | Language::C => Scanner { rest: text, code: String::new(), language }.scanned(),
        Language::Toml | Language::Shell => text.lines().map(|line| without_hash(line) + "\n").collect(),
    }
}

/// A whole line of comment is emptied; what stands behind code is left, because `#` may be in a string.
fn without_hash(line: &str) -> String {
    if line.trim_start().starts_with('#') { String::new() } else { line.to_owned() }
}

struct Scanner<'t> {
    rest: &'t str,
    code: String,
    language: Language,
}

impl Scanner<'_> {
    fn scanned(mut self) -> String {
        while let Some(first) = self.rest.chars().next() {
            if self.rest.starts_with("//") {
                self.take(self.rest.find('\n').unwrap_or(self.rest.len()), ' ');
            } else if self.rest.starts_with("/*") {
                self.take(self.comment_length(), ' ');
            } else if let Some(length) = self.raw_string_length() {
                self.take(length, 'x');
            } else if first == '"' {
                self.take(quoted_length(self.rest, '"'), 'x');
            } else if first == '\'' && self.is_character() {
                self.take(quoted_length(self.rest, '\''), 'x');
            } else {
                self.code.push(first);
                self.rest = &self.rest[first.len_utf8()..];
            }
        }
        self.code
    }

    /// Moves on, with `filler` for each character that is no white space.
    fn take(&mut self, length: usize, filler: char) {
        let (taken, rest) = self.rest.split_at(length);
        self.code.extend(taken.chars().map(|character| if character.is_whitespace() { character } else { filler }));
        self.rest = rest;
    }

    /// Length of the comment that begins here; Rust's comments may hold comments.
    fn comment_length(&self) -> usize {
        let mut depth = 0;
        let mut at = 0;
        while at < self.rest.len() {
            let here = &self.rest[at..];
            if here.starts_with("/*") && (depth == 0 || self.language == Language::Rust) {
                depth += 1;
                at += 2;
            } else if here.starts_with("*/") {
                depth -= 1;
                at += 2;
                if depth == 0 {
                    return at;
                }
            } else {
                at += here.chars().next().map_or(1, char::len_utf8);
            }
        }
        self.rest.len()
    }

    /// `r"…"`, `br#"…"#` and the like.
    fn raw_string_length(&self) -> Option<usize> {
        if self.language != Language::Rust || self.code.ends_with(|last: char| last.is_alphanumeric() || last == '_') {
            return None;
        }
        let marks = self.rest.strip_prefix(['b', 'c']).unwrap_or(self.rest).strip_prefix('r')?;
        let hashes = marks.len() - marks.trim_start_matches('#').len();
        let content = marks[hashes..].strip_prefix('"')?;
        let end = format!("\"{}", "#".repeat(hashes));
        let length = content.find(&end).map_or(content.len(), |at| at + end.len());
        Some(self.rest.len() - content.len() + length)
    }

    /// Whether a character literal begins here, not a lifetime.
    fn is_character(&self) -> bool {
        let mut next = self.rest.chars().skip(1);
        let (first, second) = (next.next(), next.next());
        first == Some('\\') || second == Some('\'')
    }
}

fn quoted_length(text: &str, quote: char) -> usize {
    let mut escaped = false;
    for (at, character) in text.char_indices().skip(1) {
        if !escaped && character == quote {
            return at + 1;
        }
        escaped = character == '\\' && !escaped;
    }
    text.len()
}

/// Rust code without the items that are only compiled for tests.
pub fn without_tests(code: &str) -> String {
    let mut kept = String::new();
    let mut rest = code;
    while let Some(at) = rest.find("#[cfg(test)]") {
        let item = item_length(&rest[at..]);
        kept.push_str(&rest[..at]);
        kept.extend(rest[at..at + item].chars().filter(|character| *character == '\n'));
        rest = &rest[at + item..];
    }
    kept + rest
}

/// To the end of the item that begins here with its attributes: its closing brace, or its semicolon.
pub fn item_length(code: &str) -> usize {
    let mut depth = 0_i32;
    for (at, character) in code.char_indices() {
        match character {
            '{' | '(' | '[' => depth += 1,
            '}' | ')' | ']' => {
                depth -= 1;
                if depth == 0 && character == '}' {
                    // `use a::{b, c};`
                    return at + if code[at + 1..].starts_with(';') { 2 } else { 1 };
                }
            }
            ';' if depth == 0 => return at + 1,
            _ => {}
        }
    }
    code.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rust(text: &str) -> String {
        code_of(text, Language::Rust)
    }

    #[test]
    fn comments_and_strings_are_emptied_in_place() {
        assert_eq!(rust("a // b\nc"), "a     \nc");
        assert_eq!(rust("a /* b /* c */\n d */ e"), "a             \n      e");
        assert_eq!(code_of("a /* b /* c */ d", Language::C), "a              d");
        assert_eq!(rust(r#"let a = "{ // \" b"; c"#), "let a = xx xx xx xx; c");
        assert_eq!(rust("r#\"{\" // \"# + br\"}\" + b'{' + '\\'' 'a fn"), "xxxxx xx xx + xxxxx + bxxx + xxxx 'a fn");
        assert_eq!(rust("let for_r\"\" = r;"), "let for_rxx = r;");
        assert_eq!(code_of("a = 1 # b\n  # c\n", Language::Toml), "a = 1 # b\n\n");
    }

    #[test]
    fn items_for_tests_go_and_lines_stay() {
        let code =
            "a;\n#[cfg(test)]\n#[path = xxx]\nmod tests {\n    fn b() {}\n}\nc;\n#[cfg(test)]\nuse d::{e, f};\ng;";
        assert_eq!(without_tests(code).lines().filter(|line| !line.is_empty()).collect::<Vec<_>>(), ["a;", "c;", "g;"]);
        assert_eq!(without_tests(code).lines().count(), code.lines().count());
    }

    #[test]
    fn scripts_are_told_by_their_first_line_and_makefiles_by_name() {
        assert_eq!(Language::of("scripts/papers", "#!/bin/sh\n"), Some(Language::Shell));
        assert_eq!(Language::of("Makefile", "all:\n"), Some(Language::Shell));
        assert_eq!(Language::of("LICENSE", "MIT\n"), None);
    }
}
