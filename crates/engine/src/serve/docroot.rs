//! The static objects: read once at start, small ones held in memory.

use std::collections::HashMap;
use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use super::date::{HttpDate, http_date};
use super::limits::{FILES_MAX, MEMORY_BYTES, MEMORY_FILE_BYTES_MAX};

/// Why a docroot cannot be served.
#[derive(Debug, thiserror::Error)]
pub enum DocrootError {
    /// A file or directory cannot be read.
    #[error("cannot read {path} of the docroot: {source}")]
    Read {
        /// The file or directory.
        path: PathBuf,
        /// The error of the system.
        source: io::Error,
    },
    /// The docroot has more than [`super::limits::FILES_MAX`] files.
    #[error("the docroot {path} holds more than {FILES_MAX} files; serve a smaller one")]
    TooMany {
        /// The docroot.
        path: PathBuf,
    },
}

/// Where an object's bytes are.
#[derive(Debug)]
pub enum Content {
    /// The bytes are in memory.
    Memory(Box<[u8]>),
    /// In this file, read when requested.
    File(PathBuf),
    /// With [`Pages`](super::Pages), at this path.
    Page(Box<[u8]>),
}

/// A file that can be requested.
#[derive(Debug)]
pub struct Object {
    /// Its bytes.
    pub content: Content,
    /// Size in bytes.
    pub bytes: u64,
    /// When the file was last changed.
    pub last_modified: HttpDate,
    /// Its entity tag, with quotes: time of change and size, as nginx makes it.
    pub etag: Box<[u8]>,
    /// Header lines that are the same in every answer: type, dates, tag.
    pub header_lines: Box<[u8]>,
}

/// All objects of a docroot by their path (decoded, with leading slash), as they were at start.
#[derive(Debug, Default)]
pub struct Docroot {
    objects: HashMap<Box<[u8]>, Object>,
    memory_bytes: u64,
}

impl Docroot {
    /// Reads the tree below `root`; symbolic links are followed, one directory is never visited within itself.
    pub fn load(root: &Path) -> Result<Docroot, DocrootError> {
        let mut docroot = Docroot::default();
        docroot.visit(root, root, &mut Vec::new())?;
        Ok(docroot)
    }

    /// The object at a request target: the query is cut off, `%xx` is decoded, a trailing slash stands for
    /// `index.html`.
    ///
    /// `scratch` is used for paths that must be rewritten, so that the usual ones cost no copy.
    pub fn find(&self, target: &[u8], scratch: &mut Vec<u8>) -> Option<&Object> {
        let path = path_of(target);
        if !path.contains(&b'%') && !path.ends_with(b"/") {
            return self.objects.get(path);
        }
        scratch.clear();
        decode(path, scratch);
        if scratch.ends_with(b"/") {
            scratch.extend_from_slice(b"index.html");
        }
        self.objects.get(scratch.as_slice())
    }

    /// The path and the bytes of each object; of [`Content::Page`] none.
    pub fn bodies(&self) -> impl Iterator<Item = (&[u8], io::Result<Vec<u8>>)> {
        self.objects.iter().map(|(path, object)| {
            let body = match &object.content {
                Content::Memory(bytes) => Ok(bytes.to_vec()),
                Content::File(file) => fs::read(file),
                Content::Page(_) => Ok(Vec::new()),
            };
            (&**path, body)
        })
    }

    /// The same objects, each a page that is asked for when it is requested.
    #[must_use]
    pub fn as_pages(self) -> Docroot {
        let page = |(path, object): (Box<[u8]>, Object)| {
            let content = Content::Page(path.clone());
            (path, Object { content, ..object })
        };
        Docroot { objects: self.objects.into_iter().map(page).collect(), memory_bytes: 0 }
    }

    /// Number of objects.
    pub fn len(&self) -> usize {
        self.objects.len()
    }

    /// Whether there is no object.
    pub fn is_empty(&self) -> bool {
        self.objects.is_empty()
    }

    /// Bytes of content held in memory; at most [`MEMORY_BYTES`].
    pub fn memory_bytes(&self) -> u64 {
        self.memory_bytes
    }

    fn visit(&mut self, root: &Path, directory: &Path, above: &mut Vec<(u64, u64)>) -> Result<(), DocrootError> {
        let fail = |path: &Path, source| DocrootError::Read { path: path.to_owned(), source };
        let metadata = fs::metadata(directory).map_err(|error| fail(directory, error))?;
        let identity = (metadata.dev(), metadata.ino());
        if above.contains(&identity) {
            return Ok(());
        }
        above.push(identity);
        for entry in fs::read_dir(directory).map_err(|error| fail(directory, error))? {
            let path = entry.map_err(|error| fail(directory, error))?.path();
            // A link that leads nowhere is no object.
            let Ok(metadata) = fs::metadata(&path) else {
                continue;
            };
            if metadata.is_dir() {
                self.visit(root, &path, above)?;
            } else if metadata.is_file() {
                let object = self.object(&path, &metadata).map_err(|error| fail(&path, error))?;
                self.insert(root, &path, object)?;
            }
        }
        above.pop();
        Ok(())
    }

    fn object(&mut self, path: &Path, metadata: &fs::Metadata) -> io::Result<Object> {
        let bytes = metadata.len();
        let fits = bytes <= MEMORY_FILE_BYTES_MAX && self.memory_bytes + bytes <= MEMORY_BYTES;
        let (content, bytes) = if fits {
            let content = fs::read(path)?.into_boxed_slice();
            let bytes = content.len() as u64;
            self.memory_bytes += bytes;
            (Content::Memory(content), bytes)
        } else {
            fs::File::open(path)?;
            (Content::File(path.to_owned()), bytes)
        };
        let last_modified = http_date(metadata.mtime());
        let etag = format!("\"{:x}-{bytes:x}\"", metadata.mtime());
        let header_lines = format!(
            "Content-Type: {}\r\nLast-Modified: {}\r\nETag: {etag}\r\nAccept-Ranges: bytes\r\n",
            media_type(path),
            String::from_utf8_lossy(&last_modified)
        );
        Ok(Object {
            content,
            bytes,
            last_modified,
            etag: etag.into_bytes().into(),
            header_lines: header_lines.into_bytes().into(),
        })
    }

    fn insert(&mut self, root: &Path, path: &Path, object: Object) -> Result<(), DocrootError> {
        if self.objects.len() == FILES_MAX {
            return Err(DocrootError::TooMany { path: root.to_owned() });
        }
        let relative = path.strip_prefix(root).unwrap_or(path);
        let key = [b"/", relative.as_os_str().as_bytes()].concat();
        self.objects.insert(key.into(), object);
        Ok(())
    }
}

/// The path of a request target: without query, and without scheme and host of the absolute form (RFC 9112 section
/// 3.2.2).
fn path_of(target: &[u8]) -> &[u8] {
    let target = match target {
        [b'/', ..] => target,
        _ => {
            let after_scheme = target.windows(3).position(|window| window == b"://").map(|at| &target[at + 3..]);
            after_scheme.and_then(|rest| Some(&rest[rest.iter().position(|&byte| byte == b'/')?..])).unwrap_or_default()
        }
    };
    let end = target.iter().position(|&byte| byte == b'?' || byte == b'#').unwrap_or(target.len());
    &target[..end]
}

/// Decodes `%xx`; anything else, also a `%` without two hexadecimal digits, stands for itself.
fn decode(path: &[u8], out: &mut Vec<u8>) {
    let digit = |byte: Option<&u8>| byte.and_then(|&byte| (byte as char).to_digit(16));
    let mut at = 0;
    while at < path.len() {
        match (path[at], digit(path.get(at + 1)), digit(path.get(at + 2))) {
            (b'%', Some(high), Some(low)) => {
                out.push((high << 4 | low) as u8);
                at += 3;
            }
            (byte, ..) => {
                out.push(byte);
                at += 1;
            }
        }
    }
}

fn media_type(path: &Path) -> &'static str {
    match path.extension().and_then(|extension| extension.to_str()).unwrap_or_default() {
        "html" | "htm" => "text/html",
        "css" => "text/css",
        "js" => "text/javascript",
        "txt" => "text/plain",
        "json" => "application/json",
        "png" => "image/png",
        "jpg" | "jpeg" => "image/jpeg",
        "gif" => "image/gif",
        "svg" => "image/svg+xml",
        "ico" => "image/x-icon",
        _ => "application/octet-stream",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn objects_are_found_by_every_spelling_of_their_path() {
        let root = tempfile::tempdir().unwrap();
        fs::create_dir_all(root.path().join("a b/ü")).unwrap();
        fs::write(root.path().join("a b/ü/x%41.css"), "body").unwrap();
        fs::write(root.path().join("index.html"), "home").unwrap();
        // A loop of links ends.
        std::os::unix::fs::symlink(root.path(), root.path().join("a b/loop")).unwrap();
        std::os::unix::fs::symlink("/nowhere", root.path().join("dangling")).unwrap();
        let docroot = Docroot::load(root.path()).unwrap();
        assert_eq!((docroot.len(), docroot.memory_bytes()), (2, 8));
        let mut scratch = Vec::new();
        let mut find = |target: &str| docroot.find(target.as_bytes(), &mut scratch).map(|object| object.bytes);
        assert_eq!(find("/"), Some(4));
        assert_eq!(find("/index.html?query=/%"), Some(4));
        assert_eq!(find("http://host:80/index.html"), Some(4));
        assert_eq!(find("/a%20b/%C3%BC/x%2541.css"), Some(4));
        for absent in ["", "*", "/no", "/../etc/passwd", "/%2e%2e/etc/passwd", "/%", "/a%20b", "http://host"] {
            assert_eq!(find(absent), None, "{absent}");
        }
    }

    #[test]
    fn big_files_stay_on_disk() {
        let root = tempfile::tempdir().unwrap();
        fs::File::create(root.path().join("big")).unwrap().set_len(MEMORY_FILE_BYTES_MAX + 1).unwrap();
        fs::write(root.path().join("empty"), "").unwrap();
        let docroot = Docroot::load(root.path()).unwrap();
        assert_eq!(docroot.memory_bytes(), 0);
        let big = docroot.find(b"/big", &mut Vec::new()).unwrap();
        assert!(matches!(big.content, Content::File(_)));
        assert!(Docroot::load(Path::new("/nowhere/at/all")).unwrap_err().to_string().contains("/nowhere"));
    }
}
