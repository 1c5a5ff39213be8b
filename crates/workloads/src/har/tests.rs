use tlsdyno_record::model::workload::{NamesSpec, SentMethod, WorkloadSpec};

use super::*;
use crate::ServedWorkload;

fn entry(url: &str, method: &str, status: u16, second: u32, bytes: u64) -> String {
    format!(
        r#"{{"pageref": "p{}", "startedDateTime": "2026-11-20T12:0{}:{:02}.000Z", "time": 500,
        "request": {{"method": "{method}", "url": "{url}", "bodySize": 7}},
        "response": {{"status": {status}, "bodySize": {bytes}}}}}"#,
        second / 60,
        second / 60,
        second % 60
    )
}

fn site(entries: &[String], change: impl FnOnce(&mut HarSpec)) -> Result<ServedWorkload> {
    let directory = tempfile::tempdir()?;
    let path = directory.path().join("recording.har");
    std::fs::write(&path, format!(r#"{{"log": {{"entries": [{}]}}}}"#, entries.join(",")))?;
    let mut spec = HarSpec { users: 2, ..HarSpec::default() };
    change(&mut spec);
    super::super::make(&WorkloadSpec::Har { path, har: spec })
}

#[test]
fn the_site_is_that_of_the_page_opened_after_redirects() {
    let entries = [
        entry("http://shop.example/", "GET", 301, 0, 0),
        entry("https://shop.example/", "GET", 302, 1, 0),
        entry("https://WWW.shop.example:443/", "GET", 200, 2, 100),
        entry("https://www.shop.example/a", "GET", 200, 3, 100),
    ];
    let har = site(&entries, |_| ()).unwrap().summary.har.unwrap();
    assert_eq!((har.origin.as_str(), har.requests, har.other_origins), ("https://www.shop.example", 2, 2));
    let asked = site(&entries, |spec| spec.origin = Some("https://WWW.shop.example:443/".to_owned())).unwrap();
    assert_eq!(asked.summary.har.unwrap().requests, 2);
}

#[test]
fn sizes_that_a_recording_does_not_tell_are_counted_and_told() {
    let mut entries = shop();
    entries[1] = entries[1].replace("\"bodySize\": 100", "\"bodySize\": -1, \"content\": {}");
    let summary = site(&entries, |_| ()).unwrap().summary;
    assert_eq!(summary.har.as_ref().unwrap().unknown_size_count, 1);
    assert!(summary.notes()[0].contains("1 of the 4 responses"), "{:?}", summary.notes());
    assert!(site(&shop(), |_| ()).unwrap().summary.notes().is_empty());
}

fn shop() -> Vec<String> {
    vec![
        entry("https://shop.example/", "GET", 200, 0, 5_000),
        entry("https://shop.example/view?id=1", "GET", 200, 1, 100),
        entry("https://cdn.example/lib.js", "GET", 200, 1, 90_000),
        entry("https://shop.example/buy", "POST", 302, 1, 0),
        entry("https://shop.example/thanks", "GET", 200, 130, 200),
    ]
}

#[test]
fn each_user_visits_the_recorded_pages() {
    let site = site(&shop(), |_| ()).unwrap();
    assert_eq!((site.workload.users.len(), site.workload.requests.len()), (2, 8));
    let marks: Vec<(bool, bool)> =
        site.workload.requests[..4].iter().map(|request| (request.page_end, request.close_after)).collect();
    // The document; a batch of two; the next page after two minutes, longer than a connection is kept.
    assert_eq!(marks, [(true, false), (false, false), (true, true), (true, true)]);
    let har = site.summary.har.unwrap();
    assert_eq!((har.origin.as_str(), har.pages, har.other_origins), ("https://shop.example", 2, 1));
}

#[test]
fn files_stand_in_unless_the_servers_own_objects_are_asked_for() {
    let ours = site(&shop(), |_| ()).unwrap();
    assert!(ours.files.iter().any(|file| file.path.starts_with("/view~") && file.bytes == 100), "{:?}", ours.files);
    let theirs = site(&shop(), |spec| {
        (spec.names, spec.send_methods) = (NamesSpec::AsRecorded, vec![SentMethod::Post]);
    });
    let theirs = theirs.unwrap();
    assert!(theirs.files.is_empty());
    let asked: Vec<(&str, &str, u64, Option<u16>)> = theirs
        .workload
        .objects
        .iter()
        .map(|object| (object.method.as_str(), object.path.as_str(), object.body_bytes, object.expect.status))
        .collect();
    assert_eq!(
        asked,
        [
            ("GET", "/", 0, Some(200)),
            ("GET", "/view?id=1", 0, Some(200)),
            ("POST", "/buy", 7, Some(302)),
            ("GET", "/thanks", 0, Some(200))
        ]
    );
    let safe = site(&shop(), |spec| spec.names = NamesSpec::AsRecorded).unwrap();
    assert!(safe.workload.objects.iter().all(|object| object.method == "GET"));
    assert!(safe.summary.beforehand().unwrap().contains("1 POST"), "{:?}", safe.summary.beforehand());
}

#[test]
fn another_site_of_the_recording_can_be_chosen_and_an_absent_one_is_refused() {
    let cdn = site(&shop(), |spec| spec.origin = Some("https://CDN.example/".to_owned())).unwrap();
    assert_eq!(cdn.workload.objects.len(), 1);
    let error = site(&shop(), |spec| spec.origin = Some("https://a".to_owned())).unwrap_err();
    let error = format!("{error:#}");
    assert!(error.contains("no request to https://a") && error.contains("https://cdn.example"), "{error}");
}
