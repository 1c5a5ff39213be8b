//! GETs that look as if they changed something: by words of their paths and the names of their parameters.

use std::sync::Once;

use tlsdyno_engine::load::Workload;

/// Words, and lines that begin with `#`.
const WORDS: &str = include_str!("changing.txt");
/// Paths that are named, and characters of each.
const NAMED_MAX: usize = 8;
const CHARACTERS_MAX: usize = 60;

fn may_change(target: &str) -> bool {
    // A parameter's value says nothing of what is done, but a path in it may.
    let (path, query) = target.split_once('?').unwrap_or((target, ""));
    let names = query.split('&').map(|pair| pair.split('=').next().unwrap_or_default());
    let file = path.rsplit('/').next().unwrap_or_default();
    let is_asset = ["css", "js", "png", "svg", "jpg", "woff2"].iter().any(|end| file.ends_with(&format!(".{end}")));
    !is_asset && path.split('/').chain(names).any(has_word)
}

fn has_word(part: &str) -> bool {
    let parts: Vec<&str> = part.split(|c: char| !c.is_ascii_alphanumeric()).collect();
    let listed = || WORDS.lines().filter(|line| !line.starts_with('#')).flat_map(str::split_whitespace);
    let is = |word: &str| listed().any(|other| word.eq_ignore_ascii_case(other));
    parts.iter().any(|word| is(word)) || parts.windows(2).any(|pair| is(&pair.concat()))
}

/// Says the same on standard error: once, though a workload is made anew for each rate.
pub fn tell(workload: &Workload) {
    static SAID: Once = Once::new();
    SAID.call_once(|| warning(workload).iter().for_each(|warning| tell!("{warning}")));
}

/// What must be said of the GETs of this workload before an application gets them; `None`: nothing.
pub fn warning(workload: &Workload) -> Option<String> {
    let gets = workload.objects.iter().filter(|object| object.method == "GET" && may_change(&object.path));
    let paths: Vec<String> = gets.map(|object| object.path.chars().take(CHARACTERS_MAX).collect()).collect();
    let more = paths.len().saturating_sub(NAMED_MAX);
    let more = if more > 0 { format!(" and {more} more") } else { String::new() };
    let named = paths.iter().take(NAMED_MAX).map(String::as_str).collect::<Vec<_>>().join(", ");
    (!paths.is_empty()).then(|| {
        format!(
            "these GETs look as if they changed something, and the server, or an application behind it, gets them: \
             {named}{more}. If they do, stop now (Ctrl-C) and take them out of the list or log"
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_that_change_something_are_known_by_their_words() {
        for target in
            ["/logout", "/user/log-out", "/unsubscribe?token=1", "/admin/Delete?id=3", "/x.php?action=rm", "/cart/add"]
        {
            assert!(may_change(target), "{target}");
        }
        for target in ["/", "/item/7", "/address/list?page=2", "/news/logouts.html", "/q?text=delete", "/css/reset.css"]
        {
            assert!(!may_change(target), "{target}");
        }
    }

    #[test]
    fn they_are_named() {
        let note = |paths: &[&str]| {
            let objects = paths.iter().map(|path| super::super::getting(path, None)).collect();
            warning(&Workload { objects, ..Workload::default() })
        };
        assert_eq!(note(&["/", "/a"]), None);
        let said = note(&["/", "/logout", "/unsubscribe?token=1"]).unwrap();
        assert!(said.contains("/logout, /unsubscribe?token=1."), "{said}");
    }
}
