//! `specweb99`: files, popularity, connections and handshakes by the rules of SPECweb99_SSL, as Coarfa et al. 2006
//! (section 5.1) have them in short and SPEC published them. What is measured with it is no result of SPEC's.
//!
//! Published: directories of 36 files each, those of SPECweb96; the more simultaneous connections, the more directories
//! ([`directories_for`]); Zipf over directories (exponent 1); 35, 50, 14 and 1 % of the requests go to the classes, and
//! within one to its files by rank of a Zipf distribution around the middle; 70 % static, 12.45 % dynamic GETs, 0.15 %
//! by CGI, 12.6 % with a cookie and a rotating advertisement, 4.8 % POSTs; 70 % of the requests on connections of 5 to
//! 15 requests, 10 on the average, the others alone; a full handshake for about every fifth request. Chosen here:
//!
//! - a user makes 100 requests over 37 connections, of which exactly 20 begin with a full handshake, by the running
//!   counter of Apostolopoulos et al. 2000; within its session it resumes;
//! - connections are closed by the client, where HTTP/1.0 had the server close those of one request;
//! - dynamic requests go to one page of the server, named by the caller, with the file that it is to send as query: a
//!   GET with or without a cookie, or a POST. CGI is a GET like the others, nothing that a POST brings is kept, and
//!   there is no table of advertisements. Without such a page the file is sent as it is: dynamic content is free then.

use std::collections::BTreeMap;

use anyhow::{Result, ensure};
use tlsdyno_base::random::SplitMix64;
use tlsdyno_engine::load::{Expect, Object, Request, Workload};

use super::specweb96::{self, Even, FILES_PER_CLASS, PER_CLASS};
use super::{DocrootFile, Parts, add_user};

const PER_USER: usize = 100;
/// Connections of several requests among those of a user, and the requests on one: this many on the average, and so
/// many more or fewer.
const LONG: usize = 7;
const LONG_REQUESTS: usize = 10;
const LONG_SPREAD: usize = 5;
/// Connections of a user, and those that begin with a full handshake.
const CONNECTIONS: usize = LONG + PER_USER - LONG * LONG_REQUESTS;
const FULL: usize = PER_USER / 5;
/// Files of a class by popularity, the most popular first.
const BY_RANK: [usize; FILES_PER_CLASS] = [4, 3, 5, 2, 6, 1, 7, 8, 0];
/// Requests of each kind in 2,000: static, dynamic GET, CGI, GET with cookie and advertisement, POST.
const PER_KIND: [(Kind, usize); 5] =
    [(Kind::Static, 1400), (Kind::Get, 249), (Kind::Get, 3), (Kind::Cookie, 252), (Kind::Post, 96)];
/// Bytes that a POST brings: the fields of a form.
const POST_BYTES: u64 = 66;
/// Most directories: 5 GB of files each thousand.
const DIRECTORIES_MAX: u32 = 20_000;

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Kind {
    Static,
    Get,
    Cookie,
    Post,
}

/// Directories for so many simultaneous connections by the published rule: 25, and one for every five requests that are
/// made each second, of which a connection of 400,000 bits makes one for each 122,000.
pub fn directories_for(connections: u32) -> u32 {
    (25.0 + 400_000.0 / 122_000.0 * f64::from(connections) / 5.0) as u32
}

/// Makes the workload: `users` of a hundred requests each over so many directories. `dynamic` is the path of the page
/// that dynamic requests are for.
pub(super) fn make(users: u32, seed: u64, directories: u32, dynamic: Option<&str>) -> Result<Parts> {
    let most = u32::MAX / PER_USER as u32;
    ensure!((1..=most).contains(&users), "the specweb99 workload is made for 1 to {most} users, not {users}");
    ensure!(
        (1..=DIRECTORIES_MAX).contains(&directories),
        "the specweb99 workload has 1 to {DIRECTORIES_MAX} directories, not {directories}"
    );
    ensure!(
        dynamic.is_none_or(|path| path.starts_with('/') && path.bytes().all(|byte| byte.is_ascii_graphic())),
        "the page of dynamic requests is a path on the server, as /page.shtml"
    );
    let names = (0..directories).map(|directory| format!("/file_set/dir{directory:05}"));
    let files: Vec<DocrootFile> = names.flat_map(|name| specweb96::files(&name)).collect();
    let workload = Workload { objects: files.iter().map(DocrootFile::object).collect(), ..Workload::default() };
    let mut random = SplitMix64::new(seed);
    let zipf: Vec<f64> = (1..=directories).map(|rank| 1.0 / f64::from(rank)).collect();
    let ranks: Vec<f64> = (1..=FILES_PER_CLASS).map(|rank| 1.0 / rank as f64).collect();
    let mut made = Making {
        directories: specweb96::limits(&zipf),
        ranks: specweb96::limits(&ranks),
        evens: std::array::from_fn(|_| Even::new(random.next_u64())),
        classes: Deck::new((0..4).map(|class| (class, PER_CLASS[class]))),
        kinds: Deck::new(PER_KIND),
        dynamic,
        dynamic_objects: BTreeMap::new(),
        files: &files,
        workload,
        random,
    };
    (0..users).for_each(|_| made.add_user());
    Ok(Parts { workload: made.workload, files })
}

/// Cards that are dealt one by one, and shuffled when all are: shares are exact, their order random.
struct Deck<T> {
    cards: Vec<T>,
    next: usize,
}

impl<T: Copy> Deck<T> {
    fn new(cards: impl IntoIterator<Item = (T, usize)>) -> Deck<T> {
        let cards: Vec<T> = cards.into_iter().flat_map(|(card, count)| std::iter::repeat_n(card, count)).collect();
        Deck { next: cards.len(), cards }
    }

    fn deal(&mut self, random: &mut SplitMix64) -> T {
        if self.next == self.cards.len() {
            random.shuffle(&mut self.cards);
            self.next = 0;
        }
        self.next += 1;
        self.cards[self.next - 1]
    }
}

struct Making<'a> {
    /// Where the part of each directory ends, and of each rank.
    directories: Vec<u64>,
    ranks: Vec<u64>,
    /// Files of a class are taken evenly: 1 % of the requests bring a third of the bytes.
    evens: [Even; 4],
    classes: Deck<usize>,
    kinds: Deck<Kind>,
    dynamic: Option<&'a str>,
    dynamic_objects: BTreeMap<(Kind, u32), u32>,
    files: &'a [DocrootFile],
    workload: Workload,
    random: SplitMix64,
}

impl Making<'_> {
    fn add_user(&mut self) {
        let mut lengths = [1; CONNECTIONS];
        lengths[..LONG].fill(LONG_REQUESTS);
        for pair in lengths[..LONG - LONG % 2].chunks_mut(2) {
            let more = self.random.below(LONG_SPREAD + 1);
            (pair[0], pair[1]) = (pair[0] + more, pair[1] - more);
        }
        self.random.shuffle(&mut lengths);
        let mut requests = Vec::with_capacity(PER_USER);
        for (number, length) in lengths.into_iter().enumerate() {
            // A new user has no session to forget.
            let is_new =
                number > 0 && ((number + 1) * FULL).div_ceil(CONNECTIONS) > (number * FULL).div_ceil(CONNECTIONS);
            for place in 1..=length {
                let object = self.object();
                let forget_session = is_new && place == 1;
                requests.push(Request { object, page_end: true, close_after: place == length, forget_session });
            }
        }
        add_user(&mut self.workload, requests);
    }

    fn object(&mut self) -> u32 {
        let class = self.classes.deal(&mut self.random);
        let file = BY_RANK[self.evens[class].next(&self.ranks)];
        let drawn = self.random.next_u64();
        let directory = self.directories.partition_point(|limit| *limit < drawn);
        let file = ((directory * PER_CLASS.len() + class) * FILES_PER_CLASS + file) as u32;
        let kind = self.kinds.deal(&mut self.random);
        match self.dynamic {
            Some(page) if kind != Kind::Static => self.dynamic_object(page, kind, file),
            _ => file,
        }
    }

    fn dynamic_object(&mut self, page: &str, kind: Kind, file: u32) -> u32 {
        let objects = &mut self.workload.objects;
        let path = format!("{page}?{}", self.files[file as usize].path);
        *self.dynamic_objects.entry((kind, file)).or_insert_with(|| {
            let (method, headers, body_bytes) = match kind {
                Kind::Cookie => ("GET", format!("Cookie: my_cookie=user_id={file}&last_ad={}\r\n", file % 360), 0),
                Kind::Post => ("POST", "Content-Type: application/x-www-form-urlencoded\r\n".to_owned(), POST_BYTES),
                Kind::Static | Kind::Get => ("GET", String::new(), 0),
            };
            // The page may put something around the file.
            let expect = Expect { status: Some(200), body_bytes: None };
            objects.push(Object { method: method.to_owned(), path, headers, body_bytes, expect });
            objects.len() as u32 - 1
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: Option<&str> = Some("/page.shtml");

    #[test]
    fn it_has_the_published_files_and_classes() {
        let parts = make(1_000, 1, 40, None).unwrap();
        assert_eq!((parts.files.len(), parts.workload.objects.len()), (40 * 36, 40 * 36));
        assert_eq!((parts.files[36].path.as_str(), parts.files[36].bytes), ("/file_set/dir00001/class0_1", 102));
        let mut hits = vec![0_u64; parts.files.len()];
        parts.workload.requests.iter().for_each(|request| hits[request.object as usize] += 1);
        let share = |is_counted: &dyn Fn(usize) -> bool| {
            (0..hits.len()).filter(|file| is_counted(*file)).map(|file| hits[file]).sum::<u64>() as f64 / 100_000.0
        };
        for (class, part) in [0.35, 0.50, 0.14, 0.01].into_iter().enumerate() {
            assert_eq!(share(&|file| file / 9 % 4 == class), part, "class {class}");
        }
        for (file, part) in [3.9, 5.9, 8.8, 17.7, 35.3, 11.8, 7.1, 5.0, 4.4].into_iter().enumerate() {
            let found = share(&|at| at / 9 % 4 < 3 && at % 9 == file) / 0.99;
            assert!((found * 100.0 - part).abs() < 0.2, "file {file}: {found}");
        }
        // The first of 40 directories has 1 / (1 + 1/2 + … + 1/40) of the requests, the second half as many.
        for (directory, part) in [(0, 0.2337), (1, 0.1169), (39, 0.0058)] {
            let found = share(&|file| file / 36 == directory);
            assert!((found / part - 1.0).abs() < 0.15, "directory {directory}: {found}");
        }
        let bytes: u64 = parts.files.iter().zip(&hits).map(|(file, hits)| file.bytes * hits).sum();
        let mean_bits = bytes as f64 * 8.0 / 100_000.0;
        assert!((116e3..122e3).contains(&mean_bits), "about 122,000 bits by SPEC's own rule: {mean_bits}");
    }

    #[test]
    fn a_fifth_of_the_requests_has_a_full_handshake_and_most_come_on_kept_connections() {
        let parts = make(200, 3, 2, PAGE).unwrap();
        let requests = &parts.workload.requests;
        let mut lengths = Vec::new();
        let mut length = 0;
        for request in requests {
            length += 1;
            if request.close_after {
                lengths.push(std::mem::take(&mut length));
            }
        }
        let kept: usize = lengths.iter().filter(|length| **length > 1).sum();
        assert_eq!((lengths.len(), kept), (200 * 37, 200 * 70));
        assert!(lengths.iter().all(|length| *length == 1 || (5..=15).contains(length)));
        let forgotten = requests.iter().filter(|request| request.forget_session).count();
        assert_eq!(forgotten + parts.workload.users.len(), requests.len() / 5);
    }

    #[test]
    fn a_page_of_the_server_gets_three_tenths_of_the_requests() {
        let parts = make(200, 3, 2, PAGE).unwrap();
        let object = |request: &Request| &parts.workload.objects[request.object as usize];
        let count = |is_counted: &dyn Fn(&Object) -> bool| {
            parts.workload.requests.iter().filter(|request| is_counted(object(request))).count()
        };
        let (cookies, posts) =
            (count(&|object| object.headers.contains("Cookie")), count(&|object| object.method == "POST"));
        let dynamic = count(&|object| object.path.starts_with("/page.shtml?/file_set/dir0000"));
        assert_eq!((dynamic, cookies, posts), (6_000, 2_520, 960));
        assert_eq!(count(&|object| object.expect.body_bytes.is_some()), 14_000, "files as they are have their length");
        assert!(make(1, 1, 1, Some("page")).is_err() && make(0, 1, 1, None).is_err() && make(1, 1, 0, None).is_err());
    }

    #[test]
    fn directories_grow_with_connections() {
        assert_eq!([0, 64, 1_000, 2_000].map(directories_for), [25, 66, 680, 1336]);
    }
}
