//! The objects of a log: how each is requested, what the response must be, and the files that make a server give it.

use std::collections::HashMap;

use tlsdyno_engine::load::{Expect, Object};

use super::logged::{Method, Replay, Response, Target};
use super::names::{Names, encode, query_suffix, split_target};
use super::{DocrootFile, docroot};
use tlsdyno_record::model::workload::NamesSpec;

/// Folder of the files that stand in for other responses, one for each size.
const STAND_IN_FOLDER: &str = "/stand-in/";

/// Objects and files of a log.
#[derive(Debug)]
pub(super) struct Objects {
    /// One for each replay, in the same order.
    pub objects: Vec<Object>,
    /// Whether a page would embed it; for each object.
    pub embedded: Vec<bool>,
    /// The document root.
    pub files: Vec<DocrootFile>,
    /// Files that are not requested under the path of the log.
    pub renamed: u64,
    /// Files whose size the log does not tell (only asked for by HEAD or conditional requests); made empty.
    pub unknown_size_count: u64,
    /// Files whose whole response had several sizes; the most usual was taken.
    pub of_varying_size: u64,
}

/// Gives each of `replays` its object and, unless the server has its own, the files for it.
pub(super) fn make(targets: &[Target], replays: &[Replay], names: NamesSpec) -> Objects {
    let mut making = Making::new(targets);
    let objects = match names {
        NamesSpec::Files => {
            making.name_files(replays);
            replays.iter().map(|replay| making.object(replay)).collect()
        }
        NamesSpec::AsRecorded => {
            replays.iter().map(|replay| as_recorded(&targets[replay.target as usize].text, replay)).collect()
        }
    };
    let embedded =
        replays.iter().map(|replay| replay.method == Method::Get && is_embedded(&targets[replay.target as usize].text));
    let count = |counted: fn(&Target) -> bool| {
        targets.iter().zip(&making.own).filter(|(target, own)| own.is_some() && counted(target)).count() as u64
    };
    Objects {
        objects,
        embedded: embedded.collect(),
        unknown_size_count: count(|target| target.sizes.usual().is_none() && target.other_bytes == 0),
        of_varying_size: count(|target| target.sizes.varying),
        renamed: making.renamed,
        files: making.files,
    }
}

/// Where a file is in [`Making::files`].
type FileNumber = usize;

struct Making<'log> {
    targets: &'log [Target],
    names: Names,
    files: Vec<DocrootFile>,
    renamed: u64,
    /// The file of each target itself, for those that need one.
    own: Vec<Option<FileNumber>>,
    /// Files for parts longer than the object itself, by target and length.
    longer: HashMap<(u32, u64), FileNumber>,
    /// Stand-ins by size.
    stand_ins: HashMap<u64, FileNumber>,
}

impl<'log> Making<'log> {
    fn new(targets: &'log [Target]) -> Self {
        Self {
            targets,
            names: Names::default(),
            files: Vec::new(),
            renamed: 0,
            own: vec![None; targets.len()],
            longer: HashMap::new(),
            stand_ins: HashMap::new(),
        }
    }

    /// Names all files before any object is made: whether a path is free for a missing object is known only then.
    fn name_files(&mut self, replays: &[Replay]) {
        self.names.note(STAND_IN_FOLDER.as_bytes());
        for replay in replays.iter().filter(|replay| needs_own_file(replay)) {
            self.names.note(&self.targets[replay.target as usize].text);
        }
        for replay in replays {
            let text = &self.targets[replay.target as usize].text;
            let own_bytes = self.own_bytes(replay.target);
            if needs_own_file(replay) && self.own[replay.target as usize].is_none() {
                let number = self.add_file(text, own_bytes);
                self.renamed += u64::from(self.files[number].path.as_bytes() != &**text);
                self.own[replay.target as usize] = Some(number);
            }
            match replay.response {
                Response::Part(bytes) if bytes > own_bytes && !self.longer.contains_key(&(replay.target, bytes)) => {
                    let number = self.add_file(text, bytes);
                    self.longer.insert((replay.target, bytes), number);
                }
                Response::StandIn(bytes) if !self.stand_ins.contains_key(&bytes) => {
                    let number = self.add_file(format!("{STAND_IN_FOLDER}{bytes}").as_bytes(), bytes);
                    self.stand_ins.insert(bytes, number);
                }
                _ => {}
            }
        }
    }

    fn add_file(&mut self, target: &[u8], bytes: u64) -> FileNumber {
        self.files.push(DocrootFile { path: self.names.file(target), bytes });
        self.files.len() - 1
    }

    /// Size of a target's own file, bytes: of its usual whole response; else of the largest other that it must be able
    /// to give.
    fn own_bytes(&self, target: u32) -> u64 {
        let target = &self.targets[target as usize];
        target.sizes.usual().unwrap_or(target.other_bytes)
    }

    fn object(&self, replay: &Replay) -> Object {
        let text = &self.targets[replay.target as usize].text;
        let own = self.own[replay.target as usize].map(|number| &self.files[number]);
        let path_of = |file: &DocrootFile| format!("{}{}", file.path, query_suffix(text));
        let own_path = || own.map(path_of).unwrap_or_default();
        let own_bytes = own.map_or(0, |file| file.bytes);
        let (path, headers, status, bytes) = match replay.response {
            Response::Whole => (own_path(), String::new(), 200, Some(own_bytes)),
            Response::NotModified => {
                (own_path(), format!("If-Modified-Since: {}\r\n", docroot::MODIFIED), 304, Some(0))
            }
            Response::Part(bytes) => {
                let longer = self.longer.get(&(replay.target, bytes)).map(|number| path_of(&self.files[*number]));
                (longer.unwrap_or_else(own_path), format!("Range: bytes=0-{}\r\n", bytes - 1), 206, Some(bytes))
            }
            Response::Missing => {
                (format!("{}{}", self.names.missing(text), query_suffix(text)), String::new(), 404, None)
            }
            Response::StandIn(bytes) => (self.stand_in_path(bytes, text), String::new(), 200, Some(bytes)),
        };
        let body_bytes = match replay.method {
            Method::Get => bytes,
            Method::Head => Some(0),
            // What a server of files answers to POST is its own affair.
            Method::Post => None,
        };
        Object {
            method: replay.method.name().to_owned(),
            path,
            headers,
            body_bytes: 0,
            expect: Expect { status: Some(status), body_bytes },
        }
    }

    /// Path of the stand-in of this size. The original target goes along as its query: it is part of the request's
    /// length.
    fn stand_in_path(&self, bytes: u64, target: &[u8]) -> String {
        let file = self.stand_ins.get(&bytes).map_or("", |number| self.files[*number].path.as_str());
        let mut path = format!("{file}?");
        encode(target, &mut path);
        path
    }
}

/// The request as it was made, for the server that was asked then. Its objects may have changed since: any length is
/// accepted, and a status only expected where it depends on nothing but the request. What had been revalidated is
/// fetched, for what it was compared with is not recorded.
fn as_recorded(target: &[u8], replay: &Replay) -> Object {
    let (headers, status) = match replay.response {
        Response::Whole | Response::NotModified => (String::new(), Some(200)),
        Response::Part(bytes) => (format!("Range: bytes=0-{}\r\n", bytes - 1), Some(206)),
        Response::Missing => (String::new(), Some(404)),
        Response::StandIn(_) => (String::new(), None),
    };
    let (path, query) = split_target(target);
    let mut text = String::new();
    encode(path, &mut text);
    if query.is_some() {
        text += &query_suffix(target);
    }
    Object {
        method: replay.method.name().to_owned(),
        path: text,
        headers,
        body_bytes: 0,
        expect: Expect { status, body_bytes: None },
    }
}

/// Whether the target's own file must exist for this.
fn needs_own_file(replay: &Replay) -> bool {
    matches!(replay.response, Response::Whole | Response::NotModified | Response::Part(_))
}

impl Method {
    /// As on the request line.
    pub(super) fn name(self) -> &'static str {
        match self {
            Method::Get => "GET",
            Method::Head => "HEAD",
            Method::Post => "POST",
        }
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
