//! The objects of a log: how each is requested, what the response must be, and the files that make a server give it.

use indexmap::IndexMap;
use tlsdyno_engine::load::{Expect, Object};
use tlsdyno_record::model::workload::NamesSpec;

use super::logged::{Method, Replay, RequestTarget, Response, Targets};
use super::names::{Names, encode, query_suffix, split_target};
use super::{DocrootFile, docroot};

/// Folder of the files that stand in for other responses, one for each size.
const STAND_IN_FOLDER: &str = "/stand-in/";

/// Objects and files of a log.
#[derive(Debug)]
pub(super) struct Objects {
    /// One for each replay, in the same order.
    pub objects: Vec<Object>,
    /// Whether a page would embed it; for each object.
    pub embedded: Vec<bool>,
    pub files: Vec<DocrootFile>,
    /// Files that are not requested under the path of the log.
    pub renamed: u64,
    /// Files whose size the log does not tell (only asked for by HEAD or conditional requests); made empty.
    pub unknown_size_count: u64,
    /// Files whose whole response had several sizes; the most usual was taken.
    pub of_varying_size: u64,
}

/// Gives each of `replays` its object and, unless the server has its own, the files for it.
pub(super) fn make(targets: &Targets, replays: &[Replay], names: NamesSpec) -> Objects {
    let text = |replay: &Replay| &**targets.get_index(replay.target as usize).expect("a replay is of a target").0;
    let mut making = Making { targets, names: Names::default(), files: IndexMap::new() };
    let objects = match names {
        NamesSpec::Files => {
            making.name_files(replays);
            replays.iter().map(|replay| making.object(text(replay), replay)).collect()
        }
        NamesSpec::AsRecorded => replays.iter().map(|replay| as_recorded(text(replay), replay)).collect(),
    };
    let is_embedded = |replay: &Replay| replay.method == Method::Get && is_embedded(text(replay));
    let count = |counted: &dyn Fn(&[u8], &RequestTarget, &DocrootFile) -> bool| {
        let own = making.files.iter().filter_map(|(source, file)| match source {
            Source::Own(target) => targets.get_index(*target as usize).map(|(text, target)| (text, target, file)),
            _ => None,
        });
        own.filter(|(text, target, file)| counted(text, target, file)).count() as u64
    };
    Objects {
        objects,
        embedded: replays.iter().map(is_embedded).collect(),
        unknown_size_count: count(&|_, target, _| target.sizes.usual().is_none() && target.other_bytes == 0),
        of_varying_size: count(&|_, target, _| target.sizes.varying),
        renamed: count(&|text, _, file| file.path.as_bytes() != text),
        files: making.files.into_values().collect(),
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Hash)]
enum Source {
    /// The target's own file.
    Own(u32),
    /// One that is longer than the target's own, for a part of so many bytes.
    Longer(u32, u64),
    /// A stand-in of this many bytes.
    StandIn(u64),
}

struct Making<'log> {
    targets: &'log Targets,
    names: Names,
    files: IndexMap<Source, DocrootFile>,
}

impl Making<'_> {
    /// Names all files before any object is made: whether a path is free for a missing object is known only then.
    fn name_files(&mut self, replays: &[Replay]) {
        let targets = self.targets;
        let sources = || replays.iter().filter_map(|replay| source(targets, replay));
        let target = |target: u32| targets.get_index(target as usize).expect("a replay is of a target");
        self.names.note(STAND_IN_FOLDER.as_bytes());
        for source in sources() {
            if let Source::Own(number) | Source::Longer(number, _) = source {
                self.names.note(target(number).0);
            }
        }
        for source in sources() {
            if self.files.contains_key(&source) {
                continue;
            }
            let (path, bytes) = match source {
                Source::Own(number) => (self.names.file(target(number).0), own_bytes(target(number).1)),
                Source::Longer(number, bytes) => (self.names.file(target(number).0), bytes),
                Source::StandIn(bytes) => (self.names.file(format!("{STAND_IN_FOLDER}{bytes}").as_bytes()), bytes),
            };
            self.files.insert(source, DocrootFile { path, bytes });
        }
    }

    fn object(&self, text: &[u8], replay: &Replay) -> Object {
        let file = source(self.targets, replay).and_then(|source| self.files.get(&source));
        let path = file.map_or_else(|| self.names.missing(text), |file| file.path.clone());
        let mut query = query_suffix(text);
        let (headers, status, bytes) = match replay.response {
            Response::Whole => (String::new(), 200, file.map(|file| file.bytes)),
            Response::NotModified => (format!("If-Modified-Since: {}\r\n", docroot::MODIFIED), 304, Some(0)),
            Response::Part(bytes) => (format!("Range: bytes=0-{}\r\n", bytes - 1), 206, Some(bytes)),
            Response::Missing => (String::new(), 404, None),
            Response::StandIn(bytes) => {
                // The original target goes along: it is part of the request's length.
                query = "?".to_owned();
                encode(text, &mut query);
                (String::new(), 200, Some(bytes))
            }
            Response::Other(status) => (String::new(), status, None),
        };
        let body_bytes = match replay.method {
            Method::Get => bytes,
            Method::Head => Some(0),
            // What a server of files answers to POST is its own affair.
            Method::Other(_) => None,
        };
        Object {
            method: replay.method.name().to_owned(),
            path: path + &query,
            headers,
            body_bytes: 0,
            expect: Expect { status: Some(status), body_bytes },
        }
    }
}

/// The file for the response; none where there must be none.
fn source(targets: &Targets, replay: &Replay) -> Option<Source> {
    match replay.response {
        Response::Missing | Response::Other(_) => None,
        Response::StandIn(bytes) => Some(Source::StandIn(bytes)),
        Response::Part(bytes) if bytes > own_bytes(&targets[replay.target as usize]) => {
            Some(Source::Longer(replay.target, bytes))
        }
        Response::Whole | Response::NotModified | Response::Part(_) => Some(Source::Own(replay.target)),
    }
}

/// Size of a target's own file, bytes: of its usual whole response; else of the largest other that it must be able to
/// give.
fn own_bytes(target: &RequestTarget) -> u64 {
    target.sizes.usual().unwrap_or(target.other_bytes)
}

/// The request as it was made, for the server that was asked then. Its objects may have changed since: any length is
/// accepted.
fn as_recorded(target: &[u8], replay: &Replay) -> Object {
    let (headers, status) = match replay.response {
        Response::Part(bytes) => (format!("Range: bytes=0-{}\r\n", bytes - 1), 206),
        Response::Other(status) => (String::new(), status),
        _ => (String::new(), 200),
    };
    let mut path = String::new();
    encode(split_target(target).0, &mut path);
    Object {
        method: replay.method.name().to_owned(),
        path: path + &query_suffix(target),
        headers,
        body_bytes: 0,
        expect: Expect { status: Some(status), body_bytes: None },
    }
}

/// Extensions of what pages embed: style, script, image, font.
const EMBEDDED: [&[u8]; 17] = [
    b"css", b"js", b"mjs", b"png", b"gif", b"jpg", b"jpeg", b"webp", b"avif", b"svg", b"ico", b"bmp", b"woff",
    b"woff2", b"ttf", b"otf", b"eot",
];

fn is_embedded(target: &[u8]) -> bool {
    let (path, _) = split_target(target);
    path.iter()
        .rposition(|byte| *byte == b'.')
        .is_some_and(|dot| EMBEDDED.iter().any(|extension| path[dot + 1..].eq_ignore_ascii_case(extension)))
}
