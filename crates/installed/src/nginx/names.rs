//! The names of a server, and what clients call it.

use super::reader::Directive;

pub(super) fn names(server: &[Directive]) -> impl Iterator<Item = String> {
    server.iter().filter(|directive| directive.name == "server_name").flat_map(Directive::values)
}

/// Whether a server has a name. Patterns (`~`) are not looked into.
pub(super) fn knows(server: &[Directive], name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    names(server).map(|own| own.to_ascii_lowercase()).any(|own| match (own.strip_prefix('.'), own.strip_prefix('*')) {
        (Some(domain), _) => name.strip_suffix(domain).is_some_and(|rest| rest.is_empty() || rest.ends_with('.')),
        (_, Some(domain)) => name.ends_with(domain) && name.len() > domain.len(),
        _ if own.ends_with(".*") => name.starts_with(&own[..own.len() - 1]) && name.len() > own.len() - 1,
        _ => own == name,
    })
}

#[cfg(test)]
mod tests {
    use super::super::reader::directives_of;
    use super::*;

    #[test]
    fn names_are_known_as_nginx_knows_them() {
        let knows = |names: &str, name: &str| {
            let server = directives_of(&format!("server_name {names};")).unwrap();
            knows(&server, name)
        };
        for (names, name, is) in [
            ("x.example", "X.Example", true),
            (".x.example", "x.example", true),
            (".x.example", "a.x.example", true),
            (".x.example", "ax.example", false),
            ("*.x.example", "a.b.x.example", true),
            ("*.x.example", "x.example", false),
            ("x.*", "x.org", true),
            ("x.*", "x.", false),
            ("a b", "b", true),
        ] {
            assert_eq!(knows(names, name), is, "{names} {name}");
        }
    }
}
