use std::collections::HashSet;
use std::io::Write;
use std::path::PathBuf;

use proptest::prelude::*;
use tlsdyno_engine::load::Object;
use tlsdyno_record::model::workload::{ClientField, SentMethod, SessionsSpec, WorkloadSpec};

use super::super::{ServedWorkload, make};
use super::*;

/// The real log in the repository (tests/data/README.md).
fn semicomplete() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../tlsdyno/tests/data/semicomplete-access.log.gz")
}

fn trace(path: PathBuf, exclude: &[&str], replay: ReplaySpec) -> Result<ServedWorkload> {
    make(&WorkloadSpec::Trace { path, exclude: exclude.iter().map(|text| (*text).to_owned()).collect(), replay })
}

fn of_lines(lines: &[&str], exclude: &[&str]) -> Result<ServedWorkload> {
    let directory = tempfile::tempdir()?;
    let path = directory.path().join("access.log");
    std::fs::write(&path, lines.join("\n"))?;
    trace(path, exclude, ReplaySpec::default())
}

/// A line by this client with this request, status and size.
fn line(client: &str, request: &str, status: u16, bytes: &str) -> String {
    format!("{client} - - [17/May/2015:10:05:03 +0000] \"{request} HTTP/1.1\" {status} {bytes} \"-\" \"agent\"")
}

/// The objects requested, in order, and the size of each file.
fn replayed(lines: &[(&str, u16, &str)]) -> (Vec<Object>, ServedWorkload) {
    let lines: Vec<String> =
        lines.iter().map(|(request, status, bytes)| line("192.0.2.1", request, *status, bytes)).collect();
    let site = of_lines(&lines.iter().map(String::as_str).collect::<Vec<_>>(), &[]).unwrap();
    let objects =
        site.workload.requests.iter().map(|request| site.workload.objects[request.object as usize].clone()).collect();
    (objects, site)
}

/// The size of the file that serves this object.
fn file_bytes(site: &ServedWorkload, object: &Object) -> Option<u64> {
    let path = object.path.split('?').next().unwrap();
    site.files.iter().find(|file| file.path == path).map(|file| file.bytes)
}

/// Every number here was counted independently with awk over the uncompressed log.
#[test]
fn the_real_log_is_replayed_whole() {
    let site = trace(semicomplete(), &[], ReplaySpec::default()).unwrap();
    let summary = &site.summary;
    let log = summary.log.as_ref().unwrap();
    assert_eq!((log.read.lines, summary.hits, summary.users, summary.objects), (10_000, 10_000, 1_753, 1_721));
    assert!(log.read.malformed.is_empty() && log.read.excluded.is_empty() && log.read.damage.is_none());
    let statuses: Vec<(u16, u64)> = log.read.statuses.iter().map(|(status, count)| (*status, *count)).collect();
    assert_eq!(statuses, [(200, 9_126), (206, 45), (301, 164), (304, 445), (403, 2), (404, 213), (416, 2), (500, 3)]);
    let methods: Vec<(&str, u64)> = log.read.methods.iter().map(|(method, count)| (method.as_str(), *count)).collect();
    assert_eq!(methods, [("GET", 9_952), ("HEAD", 42), ("OPTIONS", 1), ("POST", 5)]);
    let replayed: Vec<(&str, u64)> = log.replayed_as.iter().map(|(how, count)| (*how, *count)).collect();
    assert_eq!(
        replayed,
        [
            ("conditional", 445),
            ("get", 9_091),
            ("head", 33),
            ("missing", 213),
            ("post", 2),
            ("range", 45),
            ("stand_in", 171)
        ]
    );
    assert_eq!(log.read.backward_time_stamps, 4_915);
    assert_eq!(log.read.logged_bytes, 2_747_282_740);
    assert_eq!(log.read.busiest_clients[0].client, "66.249.73.135");
    assert_eq!(log.read.busiest_clients[0].hits, 482);
}

#[test]
fn every_object_of_the_real_log_finds_its_file() {
    check_files(&trace(semicomplete(), &[], ReplaySpec::default()).unwrap());
}

/// Whatever the log: files live together, every object can be requested, and the file behind it gives what is expected.
fn check_files(site: &ServedWorkload) {
    let paths: HashSet<&str> = site.files.iter().map(|file| file.path.as_str()).collect();
    assert_eq!(paths.len(), site.files.len(), "each file once");
    let folders: HashSet<&str> =
        paths.iter().flat_map(|path| path.match_indices('/').skip(1).map(|(at, _)| &path[..at])).collect();
    assert!(folders.is_disjoint(&paths), "no file is a folder");
    for object in &site.workload.objects {
        let bytes = file_bytes(site, object);
        match object.expect.status {
            Some(404) => {
                let path = object.path.split('?').next().unwrap();
                assert!(bytes.is_none() && !folders.contains(path), "{object:?}");
            }
            Some(206) => assert!(bytes >= object.expect.body_bytes, "{object:?}"),
            Some(304) => assert!(bytes.is_some(), "{object:?}"),
            Some(200) if object.method == "GET" => assert_eq!(bytes, object.expect.body_bytes, "{object:?}"),
            Some(200) => assert!(bytes.is_some(), "{object:?}"),
            other => panic!("no object expects {other:?}: {object:?}"),
        }
        assert!(object.path.bytes().all(|byte| byte.is_ascii_graphic()), "{object:?}");
        assert!(object.path.len() < 8_000, "a request line that servers accept");
    }
}

proptest! {
    /// Logs of few, colliding targets: every line is replayed, in order, and every object has its file.
    #[test]
    fn any_log_is_replayed_whole(
        entries in proptest::collection::vec(
            (
                0..4_u8,
                "(GET|HEAD|POST|PUT)",
                "(/[ab.~?%é]{0,2}){1,3}|/stand-in/[0-9]|http://a/b|[*]",
                0..9_usize,
                0..9_u64,
            ),
            1..60,
        )
    ) {
        let statuses = [200, 200, 200, 206, 304, 404, 301, 403, 500];
        let lines: Vec<String> = entries
            .iter()
            .map(|(client, method, target, status, bytes)| {
                line(&format!("10.0.0.{client}"), &format!("{method} {target}"), statuses[*status], &bytes.to_string())
            })
            .collect();
        let site = of_lines(&lines.iter().map(String::as_str).collect::<Vec<_>>(), &[]).unwrap();
        prop_assert_eq!(site.workload.requests.len(), entries.len());
        check_files(&site);
        let ends: Vec<u32> = site.workload.users.iter().map(|user| user.requests.end).collect();
        prop_assert!(ends.is_sorted() && *ends.last().unwrap() as usize == entries.len());
    }
}

#[test]
fn warnings_name_what_distorts_the_result_and_the_remedy() {
    let good = line("192.0.2.1", "GET /a", 200, "1");
    let common = good.replace(" \"-\" \"agent\"", "");
    let site = of_lines(&["garbage", &common], &["crawlers"]).unwrap();
    let warnings = site.summary.log.unwrap().read.warnings();
    assert!(warnings[0].starts_with("1 of the 2 lines of the log could not be used: 1 has no time"), "{warnings:?}");
    assert_eq!(warnings[1], "excluding crawlers left out no line (the log does not name user agents)");
    assert!(warnings[2].contains("100 % of the requests are by 192.0.2.1"), "{warnings:?}");
    let site = trace(semicomplete(), &[], ReplaySpec::default()).unwrap();
    assert_eq!(site.summary.log.unwrap().read.warnings(), Vec::<String>::new());
}

#[test]
fn each_user_of_the_real_log_asks_in_the_order_of_the_log() {
    let site = trace(semicomplete(), &[], ReplaySpec::default()).unwrap();
    // 83.149.9.216 is the first client, with 23 requests.
    let first = &site.workload.users[0];
    assert_eq!(first.requests, 0..23);
    let paths: Vec<&str> = site.workload.requests[..3]
        .iter()
        .map(|request| site.workload.objects[request.object as usize].path.as_str())
        .collect();
    let folder = "/presentations/logstash-monitorama-2013/";
    assert_eq!(
        paths,
        ["images/kibana-search.png", "images/kibana-dashboard3.png", "plugin/highlight/highlight.js"]
            .map(|path| format!("{folder}{path}"))
    );
    assert!(site.workload.requests.iter().all(|request| request.page_end), "totally ordered");
}

#[test]
fn how_sessions_end_changes_only_how_many_there_are() {
    let per_address = ReplaySpec { sessions: SessionsSpec::PerAddress, ..ReplaySpec::default() };
    let papers = trace(semicomplete(), &[], per_address).unwrap();
    assert_eq!(papers.summary.sessions, papers.summary.users, "the first request of each address, and no other");
    let today = trace(semicomplete(), &[], ReplaySpec::default()).unwrap();
    // The stamps of this log are an hour and the seconds of some minute; each later hour of a client is a new session.
    assert_eq!(today.summary.sessions, 3_052);
    assert_eq!(today.summary.hits, papers.summary.hits);
}

#[test]
fn crawlers_can_be_left_out() {
    let site = trace(semicomplete(), &["crawlers", "83.149.9.216"], ReplaySpec::default()).unwrap();
    let excluded = &site.summary.log.as_ref().unwrap().read.excluded;
    assert_eq!(excluded[1].lines, 23);
    assert_eq!(site.summary.hits + excluded[0].lines + excluded[1].lines, 10_000);
    assert!(excluded[0].lines > 1_500, "{excluded:?}");
}

#[test]
fn statuses_and_methods_are_replayed_as_what_they_were() {
    let (objects, site) = replayed(&[
        ("GET /a.png", 200, "1000"),
        ("GET /a.png", 304, "-"),
        ("HEAD /a.png", 200, "-"),
        ("GET /a.png", 206, "400"),
        ("GET /gone", 404, "220"),
        ("POST /form", 200, "90"),
        ("GET /dir", 301, "339"),
        ("OPTIONS *", 500, "626"),
    ]);
    let seen: Vec<(&str, &str, Option<u16>, Option<u64>)> = objects
        .iter()
        .map(|object| (object.method.as_str(), object.path.as_str(), object.expect.status, object.expect.body_bytes))
        .collect();
    assert_eq!(
        seen,
        [
            ("GET", "/a.png", Some(200), Some(1_000)),
            ("GET", "/a.png", Some(304), Some(0)),
            ("HEAD", "/a.png", Some(200), Some(0)),
            ("GET", "/a.png", Some(206), Some(400)),
            ("GET", "/gone", Some(404), None),
            ("POST", "/form", Some(200), None),
            ("GET", "/stand-in/339?/dir", Some(200), Some(339)),
            ("GET", "/stand-in/626?*", Some(200), Some(626)),
        ]
    );
    assert_eq!(objects[1].headers, "If-Modified-Since: Sun, 09 Sep 2001 01:46:40 GMT\r\n");
    assert_eq!(objects[3].headers, "Range: bytes=0-399\r\n");
    let sizes: Vec<Option<u64>> = objects.iter().map(|object| file_bytes(&site, object)).collect();
    assert_eq!(sizes[..4], [Some(1_000); 4]);
    assert_eq!(sizes[4..], [None, Some(90), Some(339), Some(626)]);
}

/// Nothing but GET and HEAD reaches an application, and no method becomes another one.
#[test]
fn what_may_change_something_is_left_out_counted_and_named() {
    let lines = [
        ("GET /", 200, "9"),
        ("HEAD /", 200, "-"),
        ("GET /old", 302, "0"),
        ("GET /old", 302, "7"),
        ("GET /", 304, "-"),
        ("GET /unsubscribe?token=1", 200, "9"),
        ("POST /pay", 302, "1"),
        ("DELETE /item/7", 200, "1"),
        ("OPTIONS /x", 200, "1"),
        ("CONNECT shop.example:443", 200, "1"),
    ];
    let made = |send_methods: Vec<SentMethod>, lines: &[(&str, u16, &str)]| {
        let lines: Vec<String> =
            lines.iter().map(|(request, status, bytes)| line("192.0.2.1", request, *status, bytes)).collect();
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(lines.join("\n").as_bytes()).unwrap();
        trace(
            file.path().to_owned(),
            &[],
            ReplaySpec { names: NamesSpec::AsRecorded, send_methods, ..ReplaySpec::default() },
        )
    };
    let asked = |site: &ServedWorkload| -> Vec<(String, Option<u16>)> {
        let object = |object: &Object| (format!("{} {}", object.method, object.path), object.expect.status);
        site.workload.objects.iter().map(object).collect()
    };
    let site = made(Vec::new(), &lines).unwrap();
    let safe = [("GET /", 200), ("HEAD /", 200), ("GET /old", 302), ("GET /unsubscribe?token=1", 200)];
    assert_eq!(asked(&site), safe.map(|(request, status)| (request.to_owned(), Some(status))));
    let unsent = site.summary.log.as_ref().unwrap().unsent.clone();
    assert_eq!(unsent.into_iter().collect::<Vec<_>>(), [("DELETE", 1), ("OPTIONS", 1), ("POST", 1), ("other", 1)]);
    let told = site.summary.beforehand().unwrap();
    assert!(told.contains("1 POST") && told.contains("--send-methods"), "{told}");
    let site = made(vec![SentMethod::Delete, SentMethod::Post], &lines).unwrap();
    assert_eq!(asked(&site)[4..], [("POST /pay".to_owned(), Some(302)), ("DELETE /item/7".to_owned(), Some(200))]);
    let error = format!("{:#}", made(Vec::new(), &lines[6..]).unwrap_err());
    assert!(error.contains("nothing of the log") && error.contains("--send-methods"), "{error}");
}

#[test]
fn the_usual_size_wins_and_a_longer_part_gets_a_file_of_its_own() {
    let (objects, site) = replayed(&[
        ("GET /v", 200, "10"),
        ("GET /v", 200, "30"),
        ("GET /v", 200, "10"),
        ("GET /v", 206, "500"),
        ("GET /p", 206, "500"),
        ("GET /p", 206, "200"),
        ("GET /c", 304, "0"),
        ("GET /t", 200, "1"),
        ("GET /t", 200, "2"),
    ]);
    let sizes: Vec<Option<u64>> = objects.iter().map(|object| file_bytes(&site, object)).collect();
    assert_eq!(sizes, [10, 10, 10, 500, 500, 500, 0, 2, 2].map(Some));
    assert_ne!(objects[3].path, objects[0].path);
    assert_eq!(objects[5].path, "/p");
    let log = site.summary.log.unwrap();
    assert_eq!(
        (log.files_of_varying_size, log.files_of_unknown_size, log.read.logged_bytes),
        (2, 1, 10 + 30 + 10 + 1_200 + 3)
    );
}

#[test]
fn targets_that_no_file_system_holds_are_replayed_all_the_same() {
    let (objects, site) = replayed(&[
        ("GET /a", 200, "1"),
        ("GET /a/b", 200, "2"),
        ("GET /a/b?id=1", 200, "3"),
        ("GET /../etc/passwd", 200, "4"),
        ("GET http://host/a/b", 200, "5"),
        (&format!("GET /{}", "x".repeat(400)), 200, "6"),
        ("GET /a b", 200, "7"),
        ("GET /", 200, "8"),
    ]);
    let sizes: Vec<Option<u64>> = objects.iter().map(|object| file_bytes(&site, object)).collect();
    assert_eq!(sizes, [1, 2, 3, 4, 5, 6, 7, 8].map(Some));
    assert_eq!(objects[1].path, "/a/b");
    assert!(objects[2].path.ends_with("?id=1"), "{}", objects[2].path);
    assert_eq!(site.summary.log.as_ref().unwrap().renamed_files, 7);
    let directory = tempfile::tempdir().unwrap();
    super::super::write_docroot(&site, directory.path()).unwrap();
}

#[test]
fn a_missing_path_below_a_file_that_exists_elsewhere_is_missing() {
    let (objects, site) =
        replayed(&[("GET /a/b", 200, "1"), ("GET /a", 404, "2"), ("GET /a/b", 404, "2"), ("HEAD /z", 404, "-")]);
    assert!(objects[1..].iter().all(|object| file_bytes(&site, object).is_none()));
    assert!(objects[1].path.starts_with("/a~"), "{} would be a folder", objects[1].path);
    assert_eq!(objects[3].path, "/z");
    assert_eq!(objects[3].expect.body_bytes, Some(0));
}

#[test]
fn malformed_lines_are_counted_by_reason_with_the_first_examples() {
    let good = line("192.0.2.1", "GET /a", 200, "1");
    let site =
        of_lines(&["garbage", &good, "", &good.replace("200 1", "200 x"), "more\x00 \x1b[31mgarbage", &good], &[])
            .unwrap();
    let log = site.summary.log.unwrap();
    assert_eq!((log.read.lines, site.summary.hits), (6, 2));
    let reasons: Vec<(&str, u64)> =
        log.read.malformed.iter().map(|malformed| (malformed.reason, malformed.lines)).collect();
    assert_eq!(reasons, [("no_time", 2), ("blank", 1), ("bad_size", 1)]);
    assert_eq!(log.read.malformed[0].examples[0], super::super::Example { line: 1, text: "garbage".to_owned() });
    assert_eq!(
        log.read.malformed[0].examples[1].text, "more\\x00 \\x1b[31mgarbage",
        "no control characters reach a terminal"
    );
}

#[test]
fn sizes_that_no_object_has_are_malformed_not_zero() {
    let good = line("192.0.2.1", "GET /a", 200, "1");
    let huge =
        ["1000000000000000000", "100000000000000000000"].map(|size| good.replace("200 1", &format!("200 {size}")));
    let log = of_lines(&[&good, &huge[0], &huge[1]], &[]).unwrap().summary.log.unwrap();
    assert_eq!((log.read.malformed[0].reason, log.read.malformed[0].lines, log.read.logged_bytes), ("huge_size", 2, 1));
    assert!(log.read.warnings()[0].contains("2 have more than 2^50 bytes"), "{:?}", log.read.warnings());
}

#[test]
fn long_names_of_clients_are_clipped() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("access.log");
    std::fs::write(&path, line(&"h".repeat(3_000), "GET /a", 200, "1")).unwrap();
    let rules = ReplaySpec { client_field: Some(ClientField::Number(1)), ..ReplaySpec::default() };
    let site = trace(path, &[], rules).unwrap();
    let client = site.summary.log.unwrap().read.busiest_clients[0].client.clone();
    assert!(client.ends_with("h…") && client.chars().count() == 254, "{client}");
}

#[test]
fn logs_without_usable_line_say_what_is_wrong() {
    let good = line("192.0.2.1", "GET /a", 200, "1");
    let message = |lines: &[&str], exclude: &[&str]| format!("{:#}", of_lines(lines, exclude).unwrap_err());
    assert!(message(&[], &[]).contains("is empty"));
    let garbage = message(&["#Version: 1.0", "#Fields: date time"], &[]);
    assert!(garbage.contains("2 have no time in square brackets") && garbage.contains("line 1: #Version"), "{garbage}");
    assert!(garbage.contains("common or combined format"), "{garbage}");
    let json = message(&[r#"{"a":1}"#], &[]);
    assert!(json.contains("1 is JSON that names no time (time_iso8601, ts, StartUTC)"), "{json}");
    let excluded = message(&[&good], &["agent"]);
    assert!(excluded.contains("1 of its 1 lines are excluded by agent"), "{excluded}");
    let missing = format!("{:#}", trace(PathBuf::from("/does/not/exist"), &[], ReplaySpec::default()).unwrap_err());
    assert!(missing.contains("failed to open the log /does/not/exist"), "{missing}");
}

#[test]
fn two_readings_make_the_same_site() {
    let site = || trace(semicomplete(), &["crawlers"], ReplaySpec::default()).unwrap();
    let (one, other) = (site(), site());
    assert_eq!(one.workload, other.workload);
    assert_eq!(one.files, other.files);
    assert_eq!(one.summary, other.summary);
}

#[test]
fn a_log_that_has_grown_makes_the_same_site_from_the_sites_description() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("access.log");
    let first = line("192.0.2.1", "GET /a", 200, "1");
    std::fs::write(&path, format!("{first}\n{first}")).unwrap();
    let site = trace(path.clone(), &[], ReplaySpec::default()).unwrap();
    std::fs::write(&path, format!("{first}\n{first}\n{}\n", line("192.0.2.2", "GET /b", 200, "9"))).unwrap();
    let again = make(&site.spec).unwrap();
    assert_eq!((again.workload, again.spec), (site.workload, site.spec.clone()));
    assert_eq!(trace(path, &[], ReplaySpec::default()).unwrap().summary.hits, 3);
}
