//! A HAR file (HTTP Archive 1.2, what a browser's developer tools save) as the batches of requests that the browser
//! made.
//!
//! Files come from many tools and are edited by hand: what is not needed is passed over, what is missing is taken as
//! unknown, and only what makes a request unknowable (no URL, no time, no believable size) is an error. The file
//! depends on anyhow, serde, time and tlsdyno-base alone, so that the fuzzer can build it.

use anyhow::{Context, Error, Result, anyhow, ensure};
use indexmap::IndexMap;
use serde::{Deserialize, Deserializer};
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;
use tlsdyno_base::foreign::quoted;

/// One request with its response, as the browser recorded it.
#[derive(Clone, Debug, PartialEq)]
pub struct Exchange {
    /// `scheme://host[:port]`, lower case.
    pub origin: String,
    /// Path and query; begins with a slash.
    pub target: String,
    pub method: String,
    /// Bytes of the request's body; 0 where unknown.
    pub posted_bytes: u64,
    /// Status code, 100 to 599.
    pub status: u16,
    /// Bytes of the response's body as transferred; of its content where the browser did not say; `None` where the
    /// recording does not tell.
    pub bytes: Option<u64>,
    /// When the request began, milliseconds since 1970.
    pub began_ms: i64,
    pub ended_ms: i64,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct Document {
    /// The pages visited, in order; each the batches that the browser had outstanding together: the document alone,
    /// then what follows until all of it has arrived, and so on. No page and no batch is empty.
    pub pages: Vec<Vec<Vec<Exchange>>>,
    /// Entries without an answer from a server: from the browser's cache, blocked, aborted, or not http (`data:`).
    pub not_requested: u64,
}

#[derive(Deserialize)]
struct File {
    log: Log,
}

#[derive(Deserialize)]
struct Log {
    entries: Vec<Entry>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Entry {
    pageref: Option<String>,
    started_date_time: String,
    time: Option<f64>,
    request: Request,
    /// `None` where no response came.
    response: Option<Response>,
    #[serde(rename = "_fromCache")]
    from_cache: Option<serde::de::IgnoredAny>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Request {
    method: String,
    url: String,
    body_size: Option<f64>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Response {
    status: Option<f64>,
    headers_size: Option<f64>,
    body_size: Option<f64>,
    content: Option<Content>,
    #[serde(default)]
    headers: Vec<Header>,
    /// Head and body as transferred, as Chrome writes it.
    #[serde(rename = "_transferSize")]
    transfer_size: Option<f64>,
}

#[derive(Deserialize)]
struct Header {
    name: String,
    value: String,
}

#[derive(Deserialize)]
struct Content {
    size: Option<f64>,
    compression: Option<f64>,
    #[serde(default, rename = "text", deserialize_with = "length")]
    text_bytes: Option<u64>,
    encoding: Option<String>,
}

/// How long a text is, bytes: those of responses are not kept.
fn length<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<u64>, D::Error> {
    Ok(Option::<String>::deserialize(deserializer)?.map(|text| text.len() as u64))
}

/// Reads a HAR file.
pub fn parse(bytes: &[u8]) -> Result<Document> {
    let bytes = bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(bytes);
    let file: File = serde_json::from_slice(bytes).map_err(|error| no_har(&error))?;
    let mut document = Document::default();
    let mut exchanges: Vec<(Option<String>, Exchange)> = Vec::new();
    for (index, entry) in file.log.entries.into_iter().enumerate() {
        let began_ms = milliseconds(&entry.started_date_time).with_context(|| {
            let text = quoted(&entry.started_date_time);
            format!("its entry {} begins at `{text}`, which is no time like 2026-11-20T19:00:00.123Z", index + 1)
        })?;
        match exchange(&entry, began_ms) {
            Some(exchange) => {
                let largest = sizes(&entry).fold(0.0, f64::max);
                ensure!(
                    largest <= MAX_BYTES,
                    "its entry {} has a size of {largest} bytes, more than 2^50; correct it in the file, or write -1 \
                     where it is not known",
                    index + 1
                );
                exchanges.push((entry.pageref, exchange));
            }
            None => document.not_requested += 1,
        }
    }
    // Stable: entries that begin together keep the order of the file.
    exchanges.sort_by_key(|(_, exchange)| exchange.began_ms);
    document.pages = pages(exchanges).into_iter().map(batches).collect();
    Ok(document)
}

/// The file's own text in what serde says may be long.
fn no_har(error: &serde_json::Error) -> Error {
    let (line, column, said) = (error.line(), error.column(), error.to_string());
    let said = quoted(said.strip_suffix(&format!(" at line {line} column {column}")).unwrap_or(&said));
    anyhow!(
        "it is not a HAR file (line {line}, column {column}: {said}); save one with the network tab of a browser's \
         developer tools"
    )
}

fn milliseconds(text: &str) -> Option<i64> {
    let nanoseconds = OffsetDateTime::parse(text, &Rfc3339).ok()?.unix_timestamp_nanos();
    i64::try_from(nanoseconds / 1_000_000).ok()
}

fn exchange(entry: &Entry, began_ms: i64) -> Option<Exchange> {
    let (origin, target) = split_url(&entry.request.url)?;
    let response = entry.response.as_ref()?;
    let status = response.status.unwrap_or(0.0);
    if entry.from_cache.is_some() || !(100.0..600.0).contains(&status) || entry.request.method.is_empty() {
        return None;
    }
    let took_ms = entry.time.filter(|time| (0.0..MAX_MS).contains(time)).unwrap_or(0.0);
    Some(Exchange {
        origin,
        target,
        method: entry.request.method.clone(),
        posted_bytes: size(entry.request.body_size).unwrap_or(0),
        status: status as u16,
        bytes: response_bytes(&entry.request.method, status as u16, response),
        began_ms,
        ended_ms: began_ms.saturating_add(took_ms as i64),
    })
}

/// A day: no response takes longer.
const MAX_MS: f64 = 86_400_000.0;
/// 2^50 bytes: no object is larger.
const MAX_BYTES: f64 = 1_125_899_906_842_624.0;

/// All sizes that an entry tells. None may be beyond [`MAX_BYTES`]: taken for unknown, it would become 0.
fn sizes(entry: &Entry) -> impl Iterator<Item = f64> {
    let response = entry.response.as_ref();
    let of_response = response.map(|response| {
        let content = response.content.as_ref().and_then(|content| content.size);
        [response.body_size, response.transfer_size, response.content_length(), content]
    });
    of_response.into_iter().flatten().chain([entry.request.body_size]).flatten()
}

/// A size in bytes; HAR writes -1 for an unknown one.
fn size(value: Option<f64>) -> Option<u64> {
    value.filter(|value| (0.0..=MAX_BYTES).contains(value)).map(|value| value as u64)
}

impl Response {
    fn content_length(&self) -> Option<f64> {
        let header = self.headers.iter().find(|header| header.name.eq_ignore_ascii_case("content-length"));
        header?.value.trim().parse().ok()
    }
}

impl Content {
    /// Bytes of the content, less what compressing it saved.
    fn bytes(&self) -> Option<u64> {
        size(self.size).map(|bytes| bytes.saturating_sub(size(self.compression).unwrap_or(0)))
    }

    /// Bytes of the content where the recording holds it; of an empty text nothing is known.
    fn held_bytes(&self) -> Option<u64> {
        let length = self.text_bytes.filter(|length| *length > 0)?;
        let is_base64 = self.encoding.as_ref().is_some_and(|encoding| encoding.eq_ignore_ascii_case("base64"));
        Some(if is_base64 { length / 4 * 3 } else { length })
    }
}

/// Bytes of a response's body by what the recording says of it, best first: Firefox, Safari and exporters leave out
/// some, Chrome others, and all write -1 or 0 for what they do not know.
fn response_bytes(method: &str, status: u16, response: &Response) -> Option<u64> {
    // A revalidated object has content, from the cache, that was not transferred.
    if method == "HEAD" || matches!(status, 100..=199 | 204 | 205 | 304) {
        return Some(0);
    }
    let content = response.content.as_ref();
    let transferred = || {
        let whole = size(response.transfer_size)?;
        Some(whole.saturating_sub(size(response.headers_size).unwrap_or(0)))
    };
    let length = || size(response.content_length());
    let found = size(response.body_size).filter(|bytes| *bytes > 0).or_else(length);
    let found = found.or_else(|| content.and_then(Content::bytes).filter(|bytes| *bytes > 0));
    let found = found.or_else(|| transferred().filter(|bytes| *bytes > 0));
    let found = found.or_else(|| content.and_then(Content::held_bytes));
    // Nothing says more than that there was nothing: so it was, where both sizes say so, and on the way elsewhere.
    let is_empty = || size(response.body_size).is_some() || content.and_then(Content::bytes).is_some();
    found.or_else(|| (is_empty() || (300..400).contains(&status)).then_some(0))
}

/// The [`origin`], and path with query; `None` for what is not requested from a web server.
fn split_url(url: &str) -> Option<(String, String)> {
    let (scheme, rest) = url.split_once("://")?;
    if !scheme.eq_ignore_ascii_case("https") && !scheme.eq_ignore_ascii_case("http") {
        return None;
    }
    let rest = rest.split('#').next().unwrap_or(rest);
    let (authority, target) = rest.split_at(rest.find(['/', '?']).unwrap_or(rest.len()));
    let authority = authority.rsplit('@').next().unwrap_or(authority);
    if authority.is_empty() {
        return None;
    }
    let slash = if target.starts_with('/') { "" } else { "/" };
    Some((origin(&format!("{scheme}://{authority}")), format!("{slash}{target}")))
}

/// `scheme://host[:port]` in lower case, without the port that the scheme has anyway.
pub fn origin(text: &str) -> String {
    let lower = text.trim_end_matches('/').to_ascii_lowercase();
    let port = if lower.starts_with("https://") { ":443" } else { ":80" };
    lower.strip_suffix(port).map_or_else(|| lower.clone(), str::to_owned)
}

/// Exchanges by page, pages in the order in which each began.
fn pages(exchanges: Vec<(Option<String>, Exchange)>) -> Vec<Vec<Exchange>> {
    let mut pages: IndexMap<Option<String>, Vec<Exchange>> = IndexMap::new();
    for (page, exchange) in exchanges {
        pages.entry(page).or_default().push(exchange);
    }
    pages.into_values().collect()
}

/// The batches of one page: the document alone, since what it embeds is known when it comes; then a batch ends where a
/// request began only after everything before it had arrived.
fn batches(exchanges: Vec<Exchange>) -> Vec<Vec<Exchange>> {
    let mut batches: Vec<Vec<Exchange>> = Vec::new();
    let mut ended_ms = i64::MIN;
    for exchange in exchanges {
        let began_ms = exchange.began_ms;
        let ended_before = ended_ms;
        ended_ms = ended_ms.max(exchange.ended_ms);
        match batches.as_mut_slice() {
            [_, .., last] if began_ms < ended_before => last.push(exchange),
            _ => batches.push(vec![exchange]),
        }
    }
    batches
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// An entry that begins and ends so many milliseconds after noon.
    fn entry(page: &str, url: &str, began_ms: u32, took_ms: u32, more: &str) -> String {
        format!(
            r#"{{"pageref": "{page}", "startedDateTime": "2026-11-20T12:00:{:02}.{:03}+00:00", "time": {took_ms}, {more}
            "request": {{"method": "GET", "url": "{url}", "headers": [], "bodySize": -1}},
            "response": {{"status": 200, "bodySize": 100, "content": {{"size": 300, "text": "x"}}}}}}"#,
            began_ms / 1000,
            began_ms % 1000
        )
    }

    fn har(entries: &[String]) -> Vec<u8> {
        format!(r#"{{"log": {{"version": "1.2", "pages": [], "entries": [{}]}}}}"#, entries.join(",")).into_bytes()
    }

    fn targets(document: &Document) -> Vec<Vec<Vec<&str>>> {
        document
            .pages
            .iter()
            .map(|page| page.iter().map(|batch| batch.iter().map(|one| one.target.as_str()).collect()).collect())
            .collect()
    }

    #[test]
    fn pages_are_batches_of_what_was_outstanding_together() {
        let bytes = har(&[
            entry("p1", "https://Shop.example/a.png", 120, 50, ""),
            entry("p1", "https://shop.example/?q=1#top", 0, 100, ""),
            entry("p1", "https://shop.example/b.png", 150, 100, ""),
            entry("p1", "https://shop.example/late.js", 400, 10, ""),
            entry("p2", "https://shop.example/next", 900, 10, ""),
        ]);
        let document = parse(&bytes).unwrap();
        assert_eq!(
            targets(&document),
            [vec![vec!["/?q=1"], vec!["/a.png", "/b.png"], vec!["/late.js"]], vec![vec!["/next"]]]
        );
        assert_eq!(document.pages[0][1][0].origin, "https://shop.example");
        assert_eq!(document.pages[0][0][0].bytes, Some(100), "as transferred, not as unpacked");
    }

    #[test]
    fn what_no_server_answered_is_left_out_and_counted() {
        let bytes = har(&[
            entry("p", "data:image/png;base64,xx", 0, 0, ""),
            entry("p", "https://a/cached.png", 0, 0, r#""_fromCache": "memory","#),
            entry("p", "https://a/blocked", 0, 0, "").replace("200", "0"),
            entry("p", "https://a/", 5, 1, ""),
        ]);
        let document = parse(&bytes).unwrap();
        assert_eq!((document.not_requested, targets(&document)), (3, vec![vec![vec!["/"]]]));
    }

    #[test]
    fn a_size_is_taken_from_whatever_tells_it() {
        let cases: [(&str, Option<u64>); 14] = [
            (r#""status": 200, "bodySize": 100, "content": {"size": 300}"#, Some(100)),
            (r#""status": 200, "bodySize": -1, "content": {"size": 300, "compression": 100}"#, Some(200)),
            (r#""status": 200, "bodySize": 0, "content": {"size": 300}"#, Some(300)),
            (
                r#""status": 200, "bodySize": -1, "content": {"size": -1},
                    "headers": [{"name": "Content-Length", "value": "70"}]"#,
                Some(70),
            ),
            (r#""status": 200, "headers": [{"name": "content-length", "value": "70"}]"#, Some(70)),
            (r#""status": 200, "bodySize": -1, "content": {}, "_transferSize": 1200"#, Some(1200)),
            (r#""status": 200, "headersSize": 200, "bodySize": -1, "content": {}, "_transferSize": 1200"#, Some(1000)),
            (r#""status": 200, "content": {"text": "12345"}"#, Some(5)),
            (r#""status": 200, "content": {"text": "MTIzNDU2", "encoding": "base64"}"#, Some(6)),
            (r#""status": 200, "bodySize": -1, "content": {"mimeType": "text/html"}"#, None),
            (r#""status": 200"#, None),
            (r#""status": 200, "bodySize": 0, "content": {"size": 0}"#, Some(0)),
            (r#""status": 304, "content": {"size": 300}"#, Some(0)),
            (r#""status": 301, "bodySize": -1"#, Some(0)),
        ];
        for (response, bytes) in cases {
            let good = entry("p", "https://a/", 0, 5, "");
            let start = good.find(r#""status": 200"#).unwrap();
            let bytes_of = har(&[format!("{}{response}}}}}", &good[..start])]);
            assert_eq!(parse(&bytes_of).unwrap().pages[0][0][0].bytes, bytes, "{response}");
        }
    }

    #[test]
    fn an_entry_without_a_response_had_none() {
        let good = entry("p", "https://a/", 0, 5, "");
        let start = good.find(r#""response""#).unwrap();
        let aborted = good[..start].trim_end().trim_end_matches(',').to_owned();
        let bytes = har(&[format!("{aborted}}}"), format!("{aborted}, \"response\": null}}"), good]);
        let document = parse(&bytes).unwrap();
        assert_eq!((document.not_requested, document.pages[0].len()), (2, 1));
    }

    #[test]
    fn one_site_has_one_origin() {
        for url in ["https://WWW.A.example/x", "https://www.a.example:443/x", "HTTPS://user@www.a.example/x"] {
            assert_eq!(split_url(url), Some(("https://www.a.example".to_owned(), "/x".to_owned())), "{url}");
        }
        assert_eq!(split_url("http://a:80").unwrap().0, "http://a");
        assert_eq!(split_url("https://a:80/").unwrap().0, "https://a:80");
        assert_eq!(split_url("https://[::443]/").unwrap().0, "https://[::443]");
    }

    #[test]
    fn what_is_no_har_says_so_with_the_remedy() {
        for bytes in [&b""[..], b"{}", b"[1]", br#"{"log": {"entries": [{}]}}"#] {
            assert!(parse(bytes).unwrap_err().to_string().contains("developer tools"));
        }
        let undated = har(&[entry("p", "https://a/", 0, 0, "").replace("2026-11-20T", "yesterday ")]);
        assert!(parse(&undated).unwrap_err().to_string().contains("entry 1 begins at `yesterday"));
        let marked = [b"\xef\xbb\xbf".to_vec(), har(&[])].concat();
        assert_eq!(parse(&marked).unwrap(), Document::default());
    }

    #[test]
    fn a_size_beyond_belief_is_refused_not_taken_for_none() {
        let good = entry("p", "https://a/", 0, 5, "");
        for (from, to) in [("\"bodySize\": 100", "\"bodySize\": 1e18"), ("\"size\": 300", "\"size\": 1e18")] {
            let error = parse(&har(&[good.clone(), good.replace(from, to)])).unwrap_err().to_string();
            assert!(error.contains("entry 2 has a size of 1000000000000000000 bytes"), "{error}");
        }
        let cached = entry("p", "https://a/", 0, 5, "\"_fromCache\": \"disk\",").replace("300", "1e18");
        assert_eq!(parse(&har(&[good, cached])).unwrap().not_requested, 1, "nothing is requested for it");
    }

    #[test]
    fn a_long_text_where_it_does_not_belong_is_quoted_shortly() {
        let long =
            entry("p", "https://a/", 0, 5, "").replace("\"time\": 5", &format!("\"time\": \"{}\"", "x".repeat(9_000)));
        let fault = parse(&har(&[long])).unwrap_err();
        let error = format!("{fault:#}");
        assert!(error.contains("line 1, column 9") && error.contains("xxx…") && error.len() < 300, "{error}");
        let time = entry("p", "https://a/", 0, 5, "").replace("2026-11-20T", &"y".repeat(9_000));
        let error = parse(&har(&[time])).unwrap_err().to_string();
        assert!(error.contains("yyy…") && error.len() < 300, "{error}");
    }

    proptest! {
        /// What the fuzz target does for long.
        #[test]
        fn damaged_recordings_are_a_fault_or_a_recording(
            changes in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..6),
            cut: prop::sample::Index,
        ) {
            let mut bytes = har(&[
                entry("p", "https://a/", 0, 5, ""),
                entry("p", "http://b:1?x", 1, 5, r#""_fromCache": null,"#),
                entry("q", "https://[::1]/y", 9, 5, ""),
            ]);
            for (at, byte) in changes {
                let at = at.index(bytes.len());
                bytes[at] = byte;
            }
            let whole = cut.index(4) > 0;
            let end = if whole { bytes.len() } else { cut.index(bytes.len()) };
            if let Ok(document) = parse(&bytes[..end]) {
                for exchange in document.pages.iter().flatten().flatten() {
                    prop_assert!(exchange.target.starts_with('/') && exchange.ended_ms >= exchange.began_ms);
                }
            }
        }

        #[test]
        fn every_exchange_is_in_one_batch_and_batches_do_not_overlap(
            times in proptest::collection::vec((0u32..50_000, 0u32..3_000, 0u8..3), 0..30),
        ) {
            let exchange = |(began, took, page): &(u32, u32, u8)| {
                entry(&page.to_string(), "https://a/x", *began, *took, "")
            };
            let entries: Vec<String> = times.iter().map(exchange).collect();
            let document = parse(&har(&entries)).unwrap();
            let exchanges = document.pages.iter().flatten().flatten().count();
            prop_assert_eq!(exchanges, times.len());
            for page in &document.pages {
                prop_assert!(!page.is_empty() && page.iter().all(|batch| !batch.is_empty()));
                prop_assert_eq!(page[0].len(), 1);
                for (index, batch) in page.iter().enumerate().skip(2) {
                    let before = page[..index].iter().flatten().map(|exchange| exchange.ended_ms).max().unwrap();
                    prop_assert!(batch[0].began_ms >= before);
                }
            }
        }
    }
}
