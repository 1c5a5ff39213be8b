//! Under which name an object of a log is requested and stored.
//!
//! A log's path is kept where every server finds a file of that name for it. Elsewhere (a query that selects a page, a
//! path that is both a file and a folder, percent-encoding, `..`, bytes that are no text, names too long for a file
//! system, …) the last part of the name gets a tilde and a fingerprint of the original target: `/a/view.php?id=1`
//! becomes `/a/view~5f1c2e8a90b3d476.php?id=1`. Folder and extension stay, so that a server's rules for them still
//! apply; the query goes along, since it is part of the request's length, and a server of files ignores it.

use std::collections::HashSet;

use tlsdyno_wire::http::target_path;

use super::docroot::fingerprint;

/// Longest name of a file or folder that is kept; file systems allow 255 bytes, and 18 may be added.
const MAX_COMPONENT_BYTES: usize = 200;
/// Longest path that is kept; systems allow 4096 bytes including the document root.
const MAX_PATH_BYTES: usize = 2_000;
/// Longest query that is kept: with the path and the other lines it stays within the 8 KB that servers allow for a
/// request's head.
const MAX_QUERY_BYTES: usize = 4_000;
/// Longest part of the original name before the tilde.
const MAX_STEM_BYTES: usize = 60;
const MAX_EXTENSION_BYTES: usize = 8;

/// Path and query of a request target as logged: an absolute URI loses scheme and host, `*` and the like stay.
pub(super) fn split_target(target: &[u8]) -> (&[u8], Option<&[u8]>) {
    let (whole, query) = match memchr::memchr(b'?', target) {
        Some(mark) => (&target[..mark], Some(&target[mark + 1..])),
        None => (target, None),
    };
    (target_path(whole).unwrap_or(whole), query)
}

/// The names given out so far. Names are given in two steps, so that they depend on nothing but the log: first all
/// targets are [noted](Names::note), then each gets its file.
#[derive(Debug, Default)]
pub(super) struct Names {
    /// Folders of all paths that can be kept.
    folders: HashSet<Box<str>>,
    files: HashSet<Box<str>>,
}

impl Names {
    /// Takes note of a target whose path may become a file's.
    pub(super) fn note(&mut self, target: &[u8]) {
        let (path, _) = split_target(target);
        let folder = clean_folder(path);
        for (at, _) in folder.match_indices('/').skip(1) {
            if !self.folders.contains(&folder[..at]) {
                self.folders.insert(folder[..at].into());
            }
        }
    }

    /// Gives the file of `target` its path: its own if that can be kept, else a made one, unique among all.
    pub(super) fn file(&mut self, target: &[u8]) -> String {
        let (path, query) = split_target(target);
        if query.is_none() && is_clean(path) {
            let path = String::from_utf8_lossy(path).into_owned();
            if !self.folders.contains(path.as_str()) && self.files.insert(path.as_str().into()) {
                return path;
            }
        }
        let made = self.unused(target);
        self.files.insert(made.as_str().into());
        made
    }

    /// A path under which no file exists: the target's own if so, else a made one. Call it when all files have their
    /// names.
    pub(super) fn missing(&self, target: &[u8]) -> String {
        let (path, _) = split_target(target);
        if is_clean(path) {
            let path = String::from_utf8_lossy(path);
            let taken = |path: &str| self.folders.contains(path) || self.files.contains(path);
            let below_a_file = path.match_indices('/').skip(1).any(|(at, _)| self.files.contains(&path[..at]));
            if !taken(&path) && !below_a_file {
                return path.into_owned();
            }
        }
        self.unused(target)
    }

    /// The made name of `target` that is neither file nor folder yet.
    fn unused(&self, target: &[u8]) -> String {
        let (path, _) = split_target(target);
        let folder = clean_folder(path);
        let name =
            String::from_utf8_lossy(&path[path.iter().rposition(|byte| *byte == b'/').map_or(0, |slash| slash + 1)..]);
        let (stem, extension) = stem_and_extension(&name);
        let mut print = fingerprint(target);
        loop {
            let made = format!("{folder}{stem}~{print:016x}{extension}");
            if !self.files.contains(made.as_str()) && !self.folders.contains(made.as_str()) {
                return made;
            }
            // Two targets with the same fingerprint: only by intent, but then it must not hurt.
            print = print.wrapping_add(1);
        }
    }
}

/// `?query` as it can stand on a request line, or nothing. Bytes that cannot are percent-encoded; what is too long is
/// cut.
pub(super) fn query_suffix(target: &[u8]) -> String {
    let Some(query) = split_target(target).1 else {
        return String::new();
    };
    let mut suffix = String::from("?");
    encode(query, &mut suffix);
    suffix
}

/// Appends `bytes` as they may stand in a query (RFC 3986 section 3.4), percent-encoded where needed.
pub(super) fn encode(bytes: &[u8], out: &mut String) {
    for (at, byte) in bytes.iter().enumerate() {
        if out.len() >= MAX_QUERY_BYTES {
            break;
        }
        let encoded =
            *byte == b'%' && bytes.get(at + 1..at + 3).is_some_and(|digits| digits.iter().all(u8::is_ascii_hexdigit));
        if byte.is_ascii_alphanumeric() || b"-._~!$&'()*+,;=:@/?".contains(byte) || encoded {
            out.push(char::from(*byte));
        } else {
            out.push_str(&format!("%{byte:02X}"));
        }
    }
}

/// Whether every server finds the file of this name for this path, whatever it does to paths: nothing to decode, to
/// merge, to resolve or to hide.
fn is_clean(path: &[u8]) -> bool {
    path.len() <= MAX_PATH_BYTES
        && path.strip_prefix(b"/").is_some_and(|rest| rest.split(|byte| *byte == b'/').all(is_clean_component))
}

fn is_clean_component(component: &[u8]) -> bool {
    // Names beginning with a dot are hidden or forbidden by many configurations, with a tilde they may mean a user's
    // folder.
    !component.is_empty()
        && component.len() <= MAX_COMPONENT_BYTES
        && !matches!(component[0], b'.' | b'~')
        && component.iter().all(|byte| byte.is_ascii_alphanumeric() || b"-._~+=@,".contains(byte))
}

/// The folders of `path` up to the first that cannot be kept, with a slash at both ends.
fn clean_folder(path: &[u8]) -> String {
    let mut folder = String::from("/");
    let Some(rest) = path.strip_prefix(b"/") else {
        return folder;
    };
    let Some(last_slash) = rest.iter().rposition(|byte| *byte == b'/') else {
        return folder;
    };
    for component in rest[..last_slash].split(|byte| *byte == b'/') {
        if !is_clean_component(component) || folder.len() + component.len() > MAX_PATH_BYTES - MAX_COMPONENT_BYTES {
            break;
        }
        folder.push_str(&String::from_utf8_lossy(component));
        folder.push('/');
    }
    folder
}

/// The beginning and the extension (with its dot) of a made name. A folder's own page is its index.
fn stem_and_extension(name: &str) -> (String, String) {
    if name.is_empty() {
        return ("index".to_owned(), ".html".to_owned());
    }
    let (stem, extension) = match name.rsplit_once('.') {
        Some((stem, extension)) if is_plain_extension(extension) => (stem, format!(".{extension}")),
        _ => (name, String::new()),
    };
    let mut stem: String = stem
        .chars()
        .map(|char| if char.is_ascii_alphanumeric() || "-_".contains(char) { char } else { '_' })
        .take(MAX_STEM_BYTES)
        .collect();
    if stem.is_empty() {
        stem.push('_');
    }
    (stem, extension)
}

fn is_plain_extension(extension: &str) -> bool {
    (1..=MAX_EXTENSION_BYTES).contains(&extension.len()) && extension.bytes().all(|byte| byte.is_ascii_alphanumeric())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn files(targets: &[&str]) -> Vec<String> {
        let mut names = Names::default();
        targets.iter().for_each(|target| names.note(target.as_bytes()));
        targets.iter().map(|target| names.file(target.as_bytes())).collect()
    }

    #[test]
    fn plain_paths_are_kept() {
        assert_eq!(files(&["/a/b.html", "/x", "/a/c-1_2.tar.gz"]), ["/a/b.html", "/x", "/a/c-1_2.tar.gz"]);
    }

    #[test]
    fn a_path_that_is_both_file_and_folder_becomes_two_names_whatever_the_order() {
        for order in [["/a", "/a/b"], ["/a/b", "/a"]] {
            let names = files(&order);
            let file = names[order.iter().position(|target| *target == "/a").unwrap()].clone();
            assert!(file.starts_with("/a~"), "{names:?}");
            assert!(names.contains(&"/a/b".to_owned()), "{names:?}");
        }
    }

    #[test]
    fn what_cannot_be_kept_gets_a_fingerprint_and_keeps_folder_and_extension() {
        let cases = [
            ("/", "/index~", ".html"),
            ("/blog/", "/blog/index~", ".html"),
            ("/a/view.php?id=1", "/a/view~", ".php"),
            ("/caf%C3%A9.html", "/caf_C3_A9~", ".html"),
            ("/../../etc/passwd", "/passwd~", ""),
            ("/a//b.css", "/a/b~", ".css"),
            ("/.htaccess", "/_~", ".htaccess"),
            ("/~user/x.html", "/x~", ".html"),
            ("*", "/_~", ""),
            ("http://host/p.gif?q", "/p~", ".gif"),
            ("http://host", "/index~", ".html"),
        ];
        for (target, start, end) in cases {
            let name = files(&[target]).remove(0);
            assert!(name.starts_with(start) && name.ends_with(end), "{target} became {name}");
        }
        let long = format!("/{}/x.png", "y".repeat(300));
        assert!(files(&[&long])[0].starts_with("/x~"));
    }

    #[test]
    fn different_targets_get_different_files_the_same_each_time() {
        let targets = ["/v?id=1", "/v?id=2", "/v", "/v/", "//v", "/v?", "/v?id=1#x"];
        let names = files(&targets);
        assert_eq!(names.iter().collect::<HashSet<_>>().len(), targets.len(), "{names:?}");
        assert_eq!(names, files(&targets));
    }

    #[test]
    fn a_missing_path_is_its_own_unless_something_is_there() {
        let mut names = Names::default();
        for target in [&b"/a/b"[..], b"/c"] {
            names.note(target);
            names.file(target);
        }
        assert_eq!(names.missing(b"/nothing/here.png"), "/nothing/here.png");
        for taken in ["/a", "/a/b", "/c", "/c/below", "/a/"] {
            let path = names.missing(taken.as_bytes());
            assert!(path.contains('~'), "{taken} became {path}");
        }
    }

    #[test]
    fn queries_can_stand_on_a_request_line() {
        assert_eq!(query_suffix(b"/a"), "");
        assert_eq!(query_suffix(b"/a?"), "?");
        assert_eq!(query_suffix(b"/a?x=1&y=%20z"), "?x=1&y=%20z");
        assert_eq!(query_suffix(b"/a?x y\xff\"%zz#"), "?x%20y%FF%22%25zz%23");
        assert!(query_suffix(format!("/a?{}", "q".repeat(9_000)).as_bytes()).len() <= MAX_QUERY_BYTES + 2);
    }

    proptest! {
        /// Whatever stands in a log: names are clean, unique, and no name is the folder of another.
        #[test]
        fn names_can_live_together(targets in proptest::collection::vec("(/[ab.~%?]{0,3}){1,4}|[ -~]{1,20}", 1..40)) {
            let targets: Vec<String> = targets.into_iter().collect::<HashSet<_>>().into_iter().collect();
            let names = files(&targets.iter().map(String::as_str).collect::<Vec<_>>());
            for (index, name) in names.iter().enumerate() {
                prop_assert!(is_clean(name.as_bytes()), "{} for {}", name, targets[index]);
                prop_assert!(!names[index + 1..].contains(name), "{} twice", name);
                let folder = format!("{name}/");
                prop_assert!(!names.iter().any(|other| other.starts_with(&folder)), "{} is a folder too", name);
            }
        }
    }
}
