//! The files of the workspace.

use std::process::Command;
use std::sync::OnceLock;

use anyhow::{Context, Result, ensure};

use super::source::{Language, code_of, without_tests};
use crate::tlsdyno::workspace;

/// A path from the folder in which its crate stands.
pub fn within_crates(path: &str) -> &str {
    path.trim_start_matches("crates/").trim_start_matches("kinds/")
}

#[derive(Clone, Debug)]
pub struct File {
    /// Path from the workspace's directory, with `/`.
    pub path: String,
    pub text: String,
    /// `None` for prose and data.
    pub language: Option<Language>,
    code: OnceLock<String>,
    product_code: OnceLock<String>,
}

impl File {
    pub fn new(path: &str, text: &str) -> File {
        let (code, product_code) = Default::default();
        File { path: path.to_owned(), text: text.to_owned(), language: Language::of(path, text), code, product_code }
    }

    pub fn is_rust(&self) -> bool {
        self.language == Some(Language::Rust)
    }

    /// Its text without comments and what is in strings; nothing for prose.
    pub fn code(&self) -> &str {
        self.code.get_or_init(|| self.language.map_or_else(String::new, |language| code_of(&self.text, language)))
    }

    /// As [`File::code`], but Rust also without what is only compiled for tests.
    pub fn product_code(&self) -> &str {
        if self.is_rust() { self.product_code.get_or_init(|| without_tests(self.code())) } else { self.code() }
    }
}

/// Every file with text that git knows or would add.
///
/// # Errors
/// This is no checkout, or a file cannot be read.
pub fn of_workspace() -> Result<Vec<File>> {
    let list = Command::new("git")
        .args(["ls-files", "-z", "--cached", "--others", "--exclude-standard"])
        .current_dir(workspace())
        .output()
        .context("failed to run git")?;
    ensure!(list.status.success(), "git lists no files: {}", String::from_utf8_lossy(&list.stderr));
    let names = String::from_utf8(list.stdout).context("a file name is not UTF-8")?;
    let mut files = Vec::new();
    for name in names.split_terminator('\0') {
        let path = workspace().join(name);
        // A file that was removed and not yet committed is still listed.
        if !path.is_file() {
            continue;
        }
        let bytes = std::fs::read(&path).with_context(|| format!("failed to read {}", path.display()))?;
        if let Ok(text) = String::from_utf8(bytes) {
            files.push(File::new(name, &text));
        }
    }
    files.sort_by(|a, b| a.path.cmp(&b.path));
    Ok(files)
}
