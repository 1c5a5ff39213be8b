//! What becomes of a directive in the copy: tables of what each server's directives do besides answering.

use std::collections::BTreeMap;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Handling {
    /// Its first argument becomes a file or directory of the copy's own.
    OwnPlace,
    /// It gets the argument `off`.
    Off,
    LeftOut,
    /// It stays: the server asks other hosts for real.
    Asks,
    /// It stays: code, which may do anything.
    Code,
    /// It stays: what it leads to is of the copy's own, or stands in the configuration itself.
    Stays,
    /// It stays, and pages and records show its value, which matters to TLS or to measuring.
    Shown,
    /// The copy has its own, always.
    Ours,
    /// No copy is made.
    Refused,
}

const SECTIONS: [(&str, Handling); 9] = [
    ("[own]", Handling::OwnPlace),
    ("[off]", Handling::Off),
    ("[out]", Handling::LeftOut),
    ("[asks]", Handling::Asks),
    ("[code]", Handling::Code),
    ("[stays]", Handling::Stays),
    ("[shown]", Handling::Shown),
    ("[ours]", Handling::Ours),
    ("[refused]", Handling::Refused),
];

/// What stands in the place of a value that pages and records do not show.
pub(super) const BLOTTED: &str = "…";

/// The directives of a server by name, in small letters.
#[derive(Debug)]
pub(super) struct Table {
    names: BTreeMap<String, Handling>,
    /// Names with a star, which stands for any letters.
    patterns: Vec<(String, String, Handling)>,
}

impl Table {
    /// The text has a section for each handling, in which names stand with blanks between them.
    pub(super) fn parse(text: &str) -> Table {
        let mut table = Table { names: BTreeMap::new(), patterns: Vec::new() };
        let mut handling = Handling::Stays;
        for line in text.lines().filter(|line| !line.starts_with('#')) {
            match SECTIONS.iter().find(|(name, _)| *name == line) {
                Some((_, section)) => handling = *section,
                None => line.split_ascii_whitespace().for_each(|name| table.add(name, handling)),
            }
        }
        table
    }

    fn add(&mut self, name: &str, handling: Handling) {
        let name = name.to_ascii_lowercase();
        match name.split_once('*') {
            Some((before, behind)) => self.patterns.push((before.to_owned(), behind.to_owned(), handling)),
            None => drop(self.names.insert(name, handling)),
        }
    }

    /// What becomes of a directive: by its own name, else by the longest pattern. `None`: it is not known.
    pub(super) fn handling(&self, name: &str) -> Option<Handling> {
        let name = name.to_ascii_lowercase();
        let fits = |(before, behind, _): &&(String, String, Handling)| {
            name.len() >= before.len() + behind.len() && name.starts_with(&**before) && name.ends_with(&**behind)
        };
        let of_patterns =
            || self.patterns.iter().filter(fits).max_by_key(|(before, behind, _)| before.len() + behind.len());
        self.names.get(&name).copied().or_else(|| of_patterns().map(|(.., handling)| *handling))
    }
}

impl Handling {
    /// Whether pages and records show the value: it is on the list of what matters, or the copy made it.
    pub(super) fn is_shown(self) -> bool {
        matches!(self, Handling::Shown | Handling::OwnPlace | Handling::Off | Handling::Ours)
    }
}

/// A name as pages and records show it, and whether its value is shown: what is not known may be a secret itself.
pub(super) fn shown(name: &str, handling: Option<Handling>) -> (&str, bool) {
    match handling {
        Some(handling) => (name, handling.is_shown()),
        None => (BLOTTED, false),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_most_exact_entry_of_a_table_holds() {
        let table = Table::parse("# no name\n[shown]\nssl.* Ssl.Engine\n[stays]\n*.debug\nssl.x.* a\n[out]\nssl.key\n");
        let handling = |name: &str| table.handling(name);
        assert_eq!([handling("ssl.any"), handling("SSL.engine")], [Some(Handling::Shown); 2]);
        assert_eq!([handling("x.debug"), handling("ssl.x.y"), handling("a")], [Some(Handling::Stays); 3]);
        assert_eq!((handling("ssl.key"), handling("no"), handling("b")), (Some(Handling::LeftOut), None, None));
        assert_eq!(shown("secret", handling("secret")), (BLOTTED, false));
        assert_eq!([shown("a", handling("a")), shown("ssl.y", handling("ssl.y"))], [("a", false), ("ssl.y", true)]);
    }
}
