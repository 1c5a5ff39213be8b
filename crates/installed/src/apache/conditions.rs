//! Sections that Apache takes or leaves as it reads them (`<IfModule>` and others), decided as it does: by the modules
//! that are loaded so far, by what is defined, by its version, and by the files that are there.

use std::path::PathBuf;
use std::sync::LazyLock;

use anyhow::{Context, Result};
use regex_lite::Regex;
use tlsdyno_base::input;

use super::reader::{Directive, Reader};
use tlsdyno_servers::apache::PACKAGE;
use tlsdyno_servers::programs;

const MODULE_BYTES_MAX: u64 = 64 << 20;
/// What Debian's Apache is built with, where none is installed.
const USUAL: &str = "core.c mod_so.c mod_watchdog.c http_core.c mod_log_config.c mod_logio.c mod_version.c mod_unixd.c";

/// What the program says of the modules that it is built with, and of its version; `None`: it is not installed.
static SAID: LazyLock<Option<[String; 2]>> = LazyLock::new(|| {
    PACKAGE.installed().map(|program| ["-l", "-v"].map(|flag| programs::output_of(&program, &[flag])))
});

/// The modules that are there so far, as [`bare`] has them, and the files of these and of the program.
#[derive(Debug)]
pub(super) struct Modules {
    names: Vec<String>,
    files: Vec<PathBuf>,
}

/// What the names of a module have in common: of itself (`ssl_module`), its source (`mod_ssl.c`) and its file.
fn bare(name: &str) -> String {
    let name = name.trim_end_matches(".c").trim_end_matches(".so").trim_end_matches("_module");
    name.trim_start_matches("mod_").trim_start_matches("mpm_").to_owned()
}

impl Modules {
    pub(super) fn built_in() -> Modules {
        let listed = SAID.as_ref().map_or(USUAL, |[listed, _]| listed).split_whitespace();
        let names = listed.filter(|word| word.ends_with(".c")).map(bare).collect();
        Modules { names, files: PACKAGE.installed().into_iter().collect() }
    }

    /// After `LoadModule NAME FILE`.
    pub(super) fn load(&mut self, name: &str, file: PathBuf) {
        self.names.extend([bare(name), bare(&file.file_name().unwrap_or_default().to_string_lossy())]);
        self.files.push(file);
    }

    /// Whether one of them has this directive: it holds the name as a text that ends with a zero.
    fn know(&self, directive: &str) -> bool {
        let wanted = format!("\0{directive}\0").to_ascii_lowercase();
        let bytes = |file: &PathBuf| input::read(file, MODULE_BYTES_MAX).unwrap_or_default().to_ascii_lowercase();
        self.files.iter().any(|file| memchr::memmem::find(&bytes(file), wanted.as_bytes()).is_some())
    }
}

/// Whether the condition of a section is met; `None`: it has none that is decided as it is read.
pub(super) fn is_met(reader: &Reader, section: &Directive) -> Result<Option<bool>> {
    let arguments = section.values().join(" ");
    let (word, wanted) = arguments.strip_prefix('!').map_or((arguments.as_str(), true), |rest| (rest.trim(), false));
    let is = match section.name.to_ascii_lowercase().as_str() {
        "ifmodule" => reader.modules.names.contains(&bare(word)),
        "ifdefine" => reader.defined.contains_key(word),
        "iffile" => reader.root.join(word).exists(),
        "ifdirective" => reader.modules.know(word),
        "ifsection" => reader.modules.know(&format!("<{word}")),
        "ifversion" => {
            let own = SAID.as_ref().and_then(|[_, said]| said.split_once("Apache/")?.1.split_whitespace().next());
            let is = own.and_then(|own| is_of_version(own, word));
            is.with_context(|| format!("<IfVersion {arguments}> is for an Apache that is installed here"))?
        }
        _ => return Ok(None),
    };
    Ok(Some(is == wanted))
}

/// Whether a version meets `>= 2.4.2`, `2.4.2`, `~ ^2\.4` or `/^2\.4/` (mod_version).
fn is_of_version(own: &str, condition: &str) -> Option<bool> {
    let (operator, version) = condition.split_once(' ').unwrap_or(("=", condition));
    let expression = version.strip_prefix('/').and_then(|rest| rest.strip_suffix('/'));
    if let Some(expression) = expression.or(Some(version).filter(|_| operator == "~")) {
        return Some(Regex::new(expression).ok()?.is_match(own));
    }
    // What is left out is 0.
    let numbers = |version: &str| -> Option<Vec<u32>> {
        format!("{version}.0.0").split('.').take(3).map(|part| part.parse().ok()).collect()
    };
    let order = numbers(own)?.cmp(&numbers(version)?);
    match operator {
        "=" | "==" => Some(order.is_eq()),
        ">" => Some(order.is_gt()),
        ">=" => Some(order.is_ge()),
        "<" => Some(order.is_lt()),
        "<=" => Some(order.is_le()),
        _ => None,
    }
}

pub(super) fn defined_by(arguments: &str) -> impl Iterator<Item = String> {
    let arguments = format!(" {arguments}").replace(" -D ", " -D");
    arguments
        .split_whitespace()
        .filter_map(|word| word.strip_prefix("-D").map(str::to_owned))
        .collect::<Vec<_>>()
        .into_iter()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_compared_as_apache_compares_them() {
        let is = |condition: &str| is_of_version("2.4.62", condition);
        for met in ["= 2.4.62", "2.4.62", ">= 2.4", "> 2.4", "< 2.5", "<= 2.4.62", "~ ^2\\.4\\.6", "/^2.4/", ">= 2"] {
            assert_eq!(is(met), Some(true), "{met}");
        }
        for not in ["= 2.4", "2.4", "< 2.4", "> 2.4.62", "~ ^2\\.2", "= /^2.2/"] {
            assert_eq!(is(not), Some(false), "{not}");
        }
        assert_eq!((is("2.x"), is("?? 2.4")), (None, None));
    }

    #[test]
    fn modules_are_known_by_themselves_and_by_their_sources() {
        let mut modules = Modules::built_in();
        modules.load("mpm_event_module", "/x/mod_mpm_event.so".into());
        modules.load("php_module", "/x/libphp.so".into());
        for known in ["core.c", "mod_so.c", "so_module", "event.c", "mpm_event_module", "mod_php.c", "libphp.c"] {
            assert!(modules.names.contains(&bare(known)), "{known}");
        }
        assert!(!modules.names.contains(&bare("mod_ssl.c")));
        assert_eq!(defined_by("-D SSL -DPHP -k start").collect::<Vec<_>>(), ["SSL", "PHP"]);
    }
}
