//! `report.html` in a real browser: headless Chromium must load it without a console message, without any request but
//! the file itself, and with every chart drawn.
//!
//! Chromium is driven over the DevTools protocol (https://chromedevtools.github.io/devtools-protocol/) through a pair
//! of named pipes: no port, no library. `TLSDYNO_CHROMIUM` names another browser than `chromium`.

use crate::{old_records, questions, synthetic};

use std::fs::{File, OpenOptions};
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use serde_json::{Value, json};
use synthetic::Synthetic;
use tempfile::TempDir;
use tlsdyno::random::SplitMix64;
use tlsdyno::store::Record;
use tlsdyno::{kinds, report};
use tlsdyno_engine::load::Phase;
use tlsdyno_lab::KINDS;
use tlsdyno_probe::entry::Entry;
use tlsdyno_probe::round::{Facts, Visit as VisitTimes};
use tlsdyno_probe::store::Hour;
use tlsdyno_probe::summary::SiteSummary;
use tlsdyno_probe::{Kept, Resumption, Round};

/// Long enough for a cold start of a browser on a busy machine.
const PATIENCE: Duration = Duration::from_secs(180);
const CHARTS: [&str; 4] = ["cost-strip", "cost-intervals", "throughput", "latency"];

/// What the page says of itself once its charts are drawn: marks drawn per chart, and what a reader needs.
const INSPECT: &str = r#"function outside() {
  const shown = (element) => !element.closest("details:not([open]), pre, thead, .vega-actions, noscript, footer")
    && element.getClientRects().length > 0 && getComputedStyle(element).opacity !== "0";
  const texts = Array.from(document.querySelectorAll("h1, h2, h3, p, li, dt, dd, th, td, figcaption, svg text"));
  return texts.filter((element) => shown(element) && element.textContent.trim() !== "").filter((element) => {
    const box = element.getBoundingClientRect(), svg = element.closest("svg");
    // What leaves its drawing is cut off there, not at the edge of the page.
    const edge = svg ? svg.getBoundingClientRect() : {left: 0, right: innerWidth, top: -Infinity, bottom: Infinity};
    return [box.right - edge.right, edge.left - box.left, edge.top - box.top, box.bottom - edge.bottom]
      .concat(box.right - innerWidth, -box.left).some((beyond) => beyond > 1);
  }).map((element) => element.textContent.trim().slice(0, 60));
}
// Headings at the foot of a page, and what they head on the next. Columns break like pages, of A4 lying or standing.
function parted() {
  if (!matchMedia("print").matches) return [];
  const main = document.querySelector("main"), heads = "h2, h3, figcaption, .items dt", width = 680, gap = 40;
  const texts = Array.from(main.querySelectorAll(heads + ", p, li, dt, dd, th, td, pre, .chart svg"))
    .filter((element) => element.getClientRects().length > 0);
  const found = [];
  for (let height = 700; height < 1130; height += 30) {
    const columns = `columns: ${width}px; column-gap: ${gap}px; column-fill: auto`;
    main.style.cssText = `width: ${width}px; height: ${height}px; ${columns}`;
    const left = main.getBoundingClientRect().left;
    const page = (box) => Math.floor((box.left - left + 1) / (width + gap));
    texts.slice(0, -1).forEach((element, at) => {
      const [last] = Array.from(element.getClientRects()).slice(-1), [next] = texts[at + 1].getClientRects();
      const text = element.textContent.trim().slice(0, 60);
      if (element.matches(heads) && page(last) !== page(next)) found.push(`${height}: ${text}`);
    });
  }
  main.style.cssText = "";
  return found;
}
chartsDrawn.then(() => JSON.stringify({
  marks: Object.fromEntries(Array.from(document.querySelectorAll("figure .chart"),
    (chart) => [chart.id, ["rect path", "rule line", "symbol path", "line path"]
      .map((mark) => chart.querySelectorAll("svg .mark-" + mark).length).reduce((sum, marks) => sum + marks)])),
  unnamed: document.querySelectorAll("figure .chart:not([aria-label])").length,
  heading: document.querySelector("h1").textContent, answer: document.querySelector(".answer").textContent,
  wide: document.documentElement.scrollWidth > innerWidth + 1,
  outside: outside(), cut: Array.from(document.querySelectorAll(".scroll"))
    .filter((box) => box.scrollWidth > box.clientWidth + 1).length,
  rows: document.querySelectorAll("table tbody tr").length, warnings: document.querySelectorAll(".warnings li").length,
  parted: parted(),
}))"#;

/// What a browser made of a page.
#[derive(Debug)]
struct Visit {
    /// Console messages, exceptions, policy violations, failed loads.
    complaints: Vec<String>,
    /// Addresses asked for, but the page's own.
    requests: Vec<String>,
    /// The answer to [`INSPECT`].
    page: Value,
}

struct Browser {
    child: Child,
    commands: File,
    messages: Receiver<Value>,
    next_id: u64,
    session: Option<String>,
    events: Vec<Value>,
    directory: TempDir,
}

impl Browser {
    fn start() -> Browser {
        let directory = tempfile::tempdir().expect("directory");
        let program = std::env::var("TLSDYNO_CHROMIUM").unwrap_or_else(|_| "chromium".to_owned());
        // The shell gives the browser the pipes as descriptors 3 and 4, where --remote-debugging-pipe expects them.
        let script = r#"mkfifo "$1/commands" "$1/messages" && echo && exec "$0" \
            --headless --no-sandbox --disable-gpu --no-first-run \
            --disable-background-networking --disable-component-update --disable-sync --user-data-dir="$1/profile" \
            --remote-debugging-pipe about:blank 3<"$1/commands" 4>"$1/messages""#;
        let mut child = Command::new("sh")
            .args(["-c", script, &program])
            .arg(directory.path())
            .stdout(Stdio::piped())
            .stderr(File::create(directory.path().join("stderr")).expect("file"))
            .spawn()
            .expect("a shell");
        // An empty line says that the pipes are there. Opening them waits for the browser to open its ends.
        BufReader::new(child.stdout.take().expect("pipe")).read_line(&mut String::new()).expect("mkfifo");
        let commands = OpenOptions::new().write(true).open(directory.path().join("commands")).expect("pipe");
        let messages = File::open(directory.path().join("messages")).expect("pipe");
        let (sender, receiver) = channel();
        std::thread::spawn(move || {
            for message in BufReader::new(messages).split(0).map_while(Result::ok) {
                let parsed = serde_json::from_slice(&message).expect("the DevTools protocol is JSON");
                if sender.send(parsed).is_err() {
                    break;
                }
            }
        });
        Browser { child, commands, messages: receiver, next_id: 0, session: None, events: Vec::new(), directory }
    }

    /// Loads a page of `width` columns of pixels and looks at it.
    fn visit(&mut self, page: &str, width: u32) -> Visit {
        self.look(page, width, "light", "screen")
    }

    /// The same on a light or dark screen, or on paper, in a tab of its own.
    fn look(&mut self, page: &str, width: u32, scheme: &str, medium: &str) -> Visit {
        let browser = self;
        let path = browser.directory.path().join("report.html");
        std::fs::write(&path, page).expect("file");
        browser.session = None;
        let target = browser.call("Target.createTarget", &json!({"url": "about:blank"}));
        let attached = browser.call("Target.attachToTarget", &json!({"targetId": target["targetId"], "flatten": true}));
        browser.session = Some(attached["sessionId"].as_str().expect("session").to_owned());
        browser.events.clear();
        for domain in ["Runtime", "Log", "Network", "Page"] {
            browser.call(&format!("{domain}.enable"), &json!({}));
        }
        let metrics = json!({"width": width, "height": 800, "deviceScaleFactor": 1, "mobile": width < 600});
        browser.call("Emulation.setDeviceMetricsOverride", &metrics);
        let scheme = json!([{"name": "prefers-color-scheme", "value": scheme}]);
        browser.call("Emulation.setEmulatedMedia", &json!({"media": medium, "features": scheme}));
        let address = format!("file://{}", path.display());
        browser.call("Page.navigate", &json!({"url": address}));
        browser.wait_for("Page.loadEventFired");
        let inspected = browser
            .call("Runtime.evaluate", &json!({"expression": INSPECT, "awaitPromise": true, "returnByValue": true}));
        let text = inspected["result"]["value"].as_str();
        let page = text.map_or_else(|| panic!("the page could not be inspected: {inspected}"), serde_json::from_str);
        let events = std::mem::take(&mut browser.events);
        Visit {
            complaints: events.iter().filter_map(complaint).collect(),
            requests: events.iter().filter_map(requested).filter(|url| *url != address).collect(),
            page: page.expect("JSON"),
        }
    }

    /// Sends a command and waits for its result; events that come meanwhile are kept.
    fn call(&mut self, method: &str, parameters: &Value) -> Value {
        self.next_id += 1;
        let mut command = json!({"id": self.next_id, "method": method, "params": parameters});
        if let Some(session) = &self.session {
            command["sessionId"] = json!(session);
        }
        let text = command.to_string() + "\0";
        self.commands.write_all(text.as_bytes()).unwrap_or_else(|error| self.fail(&format!("{method}: {error}")));
        let deadline = Instant::now() + PATIENCE;
        loop {
            let message = self.next_message(method, deadline);
            if message["id"] == json!(self.next_id) {
                assert!(message["error"].is_null(), "{method}: {message}");
                return message["result"].clone();
            }
            self.events.push(message);
        }
    }

    fn wait_for(&mut self, event: &str) {
        let deadline = Instant::now() + PATIENCE;
        while !self.events.iter().any(|message| message["method"] == event) {
            let message = self.next_message(event, deadline);
            self.events.push(message);
        }
    }

    fn next_message(&mut self, waiting_for: &str, deadline: Instant) -> Value {
        let left = deadline.saturating_duration_since(Instant::now());
        self.messages.recv_timeout(left).unwrap_or_else(|error| self.fail(&format!("{waiting_for}: {error}")))
    }

    fn fail(&self, what: &str) -> ! {
        let said = std::fs::read_to_string(self.directory.path().join("stderr")).unwrap_or_default();
        panic!(
            "Chromium did not answer ({what}). Is `chromium` installed? TLSDYNO_CHROMIUM names another. It \
             said:\n{said}"
        )
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        // It may have ended by itself; then there is nothing to do.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Anything that a browser's console would show.
fn complaint(event: &Value) -> Option<String> {
    match event["method"].as_str()? {
        "Runtime.exceptionThrown" | "Runtime.consoleAPICalled" | "Log.entryAdded" | "Network.loadingFailed" => {
            Some(event["params"].to_string())
        }
        _ => None,
    }
}

/// The address of a request; data in the page itself is none.
fn requested(event: &Value) -> Option<String> {
    let url = event["params"]["request"]["url"].as_str()?;
    (event["method"] == "Network.requestWillBeSent" && !url.starts_with("data:")).then(|| url.to_owned())
}

fn page(synthetic: &Synthetic) -> String {
    KINDS.html(&synthetic.record()).expect("page")
}

fn assert_clean(visit: &Visit) {
    assert!(visit.complaints.is_empty(), "{:#?}", visit.complaints);
    assert!(visit.requests.is_empty(), "{:#?}", visit.requests);
}

#[test]
fn every_chart_is_drawn_offline_and_in_silence() {
    let mut browser = Browser::start();
    for width in [1280, 390] {
        let visit = browser.visit(&page(&Synthetic::default()), width);
        assert_clean(&visit);
        for chart in CHARTS {
            let marks = visit.page["marks"][chart].as_u64().unwrap_or(0);
            assert!(marks >= 9, "{chart} at {width}: {marks} marks in {}", visit.page);
        }
        assert_eq!(visit.page["unnamed"], 0);
        assert_eq!(visit.page["wide"], false, "the page scrolls sideways at {width}");
        assert!(visit.page["answer"].as_str().is_some_and(|answer| answer.starts_with("Authentication costs most: ")));
        // 9 shares, 10 configurations, 5 phases of 9 with TLS and 3 of plain HTTP.
        assert_eq!((visit.page["rows"].as_u64(), visit.page["warnings"].as_u64()), (Some(9 + 10 + 9 * 5 + 3), Some(1)));
    }
}

/// The pages that have the longest texts, and one of each kind: a share that holds many stages, remedies with lines of
/// configurations, a load run, a cluster, a probe; and what other records of real runs come to.
fn pages() -> Vec<(&'static str, String)> {
    let mut rest = Synthetic::default().record();
    rest.configurations[2..8].iter_mut().for_each(|configuration| configuration.valid = false);
    let answers = questions::record(12, 0.01);
    let accelerators = questions::accelerators(12, 0.005);
    let pages = [("rest", rest), ("answers", answers), ("accelerators", accelerators)];
    let pages = pages.map(|(name, record)| (name, KINDS.html(&record).expect("page")));
    let probe = report::html::page(&tlsdyno_probe::page::page(&probed())).expect("page");
    let more = [("load", load_page()), ("cluster", old_records::page_of_cluster()), ("probe", probe)];
    pages.into_iter().chain(more).chain(old_records::pages()).collect()
}

fn load_page() -> String {
    let histogram = |first: u64| {
        let mut histogram = Histogram::<u64>::new_with_bounds(1, 3_600_000_000_000, 3).expect("histogram");
        (0..1000).for_each(|value| histogram.record(first + value * 5_000).expect("record"));
        histogram
    };
    let mut summary = tlsdyno::store::load_run::Summary {
        url: "https://a-shop-with-a-long-name.example.test:8443/objects/with/a/long/path.html".to_owned(),
        effort: Some("lean".to_owned()),
        hits_per_second: 1737.3,
        asked: tlsdyno::store::load_run::Asked { reuse_percent: Some(80.0), ..Default::default() },
        reuse_percent_achieved: Some(80.0),
        ..Default::default()
    };
    (summary.outcome.hits, summary.outcome.elapsed_ns) = (17_373, 10_000_000_000);
    summary.outcome.negotiated.insert("1.3 TLS_AES_128_GCM_SHA256 X25519MLKEM768".to_owned(), 17_373);
    summary
        .warnings
        .push("the client's CPU was full; what a warning says can be quite long and has to wrap".to_owned());
    let slice = tlsdyno_engine::load::Slice { elapsed_ns: 1_000_000_000, hits: 1700, ..Default::default() };
    summary.outcome.slices =
        (1..10).map(|at| tlsdyno_engine::load::Slice { latency_ns_p50: 1_000_000 * at, ..slice }).collect();
    for (phase, first) in [(Phase::FullHandshake, 900_000), (Phase::WholeResponse, 200_000)] {
        summary.outcome.phases.insert(phase, histogram(first));
    }
    report::html::page(&kinds::load::run_page::document(&summary)).expect("page")
}

/// Wide and narrow screens, in the light and in the dark, and paper.
const LOOKS: [(u32, &str, &str); 3] = [(1280, "light", "screen"), (400, "dark", "screen"), (720, "dark", "print")];

/// No text stands outside of the page and no table is cut; on paper headings stay with what they head.
fn assert_within_the_page(browser: &mut Browser, name: &str, page: &str, look: (u32, &str, &str)) {
    let (width, scheme, medium) = look;
    let visit = browser.look(page, width, scheme, medium);
    let nothing = json!([]);
    assert_eq!(visit.page["parted"], nothing, "{name}: headings alone at the foot of a page of so many pixels");
    assert_eq!(visit.page["outside"], nothing, "{name} at {width}, {scheme}, {medium}");
    assert_eq!(visit.page["cut"], 0, "{name} at {width}, {scheme}, {medium}: a table is cut");
    assert_eq!(visit.page["wide"], false, "{name} at {width} scrolls sideways");
    assert_clean(&visit);
}

/// Each page in one of the ways, by turns: what draws them is common to all.
#[test]
fn every_text_is_within_the_page() {
    let mut browser = Browser::start();
    for ((name, page), look) in pages().into_iter().zip(LOOKS.into_iter().cycle()) {
        assert_within_the_page(&mut browser, name, &page, look);
    }
}

mod long {
    use super::*;

    #[test]
    #[ignore = "every page in every way: make test-long"]
    fn every_text_is_within_the_page_however_it_is_looked_at() {
        let mut browser = Browser::start();
        for (name, page) in pages() {
            for look in LOOKS {
                assert_within_the_page(&mut browser, name, &page, look);
            }
        }
    }
}

/// Three days of rounds at two sites, the second of which never resumes.
fn probed() -> Vec<SiteSummary> {
    let mut random = SplitMix64::new(11);
    let sites = [("https://near.example/", true), ("https://far.example/a-page-with-a-long-name", false)];
    let site = |(name, resumes): (&str, bool)| {
        let hour = |hour: i64| {
            let mut made = Hour { hour_unix_s: 1_795_190_400 + 3600 * hour, ..Hour::default() };
            for minute in 0..12 {
                let mut time = |ms: f64| (ms * 1e6 * (0.3 * random.normal()).exp()) as u64;
                let mut visit = |ms: f64| VisitTimes {
                    tcp_ns: time(20.0),
                    hello_ns: time(0.6 * ms),
                    handshake_ns: time(ms),
                    first_byte_ns: time(21.0),
                    whole_ns: time(25.0),
                };
                let (full, resumed) = (Some(visit(60.0)), Some(visit(30.0)).filter(|_| resumes));
                let resumption = if resumes { Resumption::Accepted } else { Resumption::Rejected };
                let kept = Some(Kept { age_s: 60 + 3540 * (minute % 2), became: resumption });
                let facts = Facts { key: format!("key {}", hour / 24), version: "1.3".into(), ..Facts::default() };
                let (lookup_ns, tcp_ns) = (Some(time(1.0)), Some(time(20.0)));
                let round = Round { lookup_ns, tcp_ns, full, resumed, resumption, kept, facts, ..Round::default() };
                made.merge(&Hour::of(&Entry::made("run", 0, round)));
            }
            made
        };
        SiteSummary::of(name, (0..72).map(hour).collect(), Vec::new())
    };
    sites.map(site).into()
}

#[test]
fn the_page_of_a_probe_is_drawn_wide_and_narrow() {
    let mut browser = Browser::start();
    let mut document = tlsdyno_probe::page::page(&probed());
    document.links = vec![("7 days".to_owned(), "/?days=7".to_owned())];
    let page = report::html::page(&document).expect("page");
    for width in [1280, 400] {
        let visit = browser.visit(&page, width);
        assert_clean(&visit);
        for chart in ["histogram-0", "series-0", "phases-0", "cloud-0", "histogram-1", "series-1", "cloud-1"] {
            let marks = visit.page["marks"][chart].as_u64().unwrap_or(0);
            assert!(marks >= 3, "{chart} at {width}: {marks} marks in {}", visit.page);
        }
        assert_eq!((&visit.page["unnamed"], &visit.page["wide"]), (&json!(0), &json!(false)), "{width}");
        let answer = visit.page["answer"].as_str().expect("text");
        assert!(answer.contains("A resumed session saves") && answer.contains("never accepted"), "{answer}");
    }
}

#[test]
fn a_record_with_next_to_nothing_in_it_is_still_a_page() {
    let mut browser = Browser::start();
    let record = Synthetic { rounds: 1, plain: false, ..Synthetic::default() }.record();
    let nothing = Record { blocks: Vec::new(), finished: false, ..record.clone() };
    for record in [record, nothing] {
        let visit = browser.visit(&KINDS.html(&record).expect("page"), 1280);
        assert_clean(&visit);
        assert!(visit.page["warnings"].as_u64() > Some(0), "{}", visit.page);
    }
}

#[test]
fn hostile_texts_stay_texts() {
    let mut browser = Browser::start();
    let mut record = Synthetic { rounds: 5, ..Synthetic::default() }.record();
    let hostile = "</script><script>console.log('in')</script><img src=http://127.0.0.1:9/x>";
    record.question = hostile.to_owned();
    record.configurations[1].name = hostile.to_owned();
    record.manifest.server_config.insert(hostile.to_owned(), hostile.to_owned());
    let visit = browser.visit(&KINDS.html(&record).expect("page"), 1280);
    assert_clean(&visit);
    assert_eq!(visit.page["heading"], hostile);
}

/// The checks above can fail: each fault is seen.
#[test]
fn faults_are_seen() {
    let mut browser = Browser::start();
    let good = page(&Synthetic { rounds: 5, ..Synthetic::default() });
    // The last one: the viewer's code holds the same letters.
    let tail = good.rfind("</body>").expect("the end of the page");
    let with =
        |page: &str, fault: &str| format!("{}{fault}{}", &page[..page.len() - (good.len() - tail)], &good[tail..]);
    let mut broken = |fault: &str| browser.visit(&with(&good, fault), 1280);
    let loud = broken("<script>console.error('loud')</script>");
    assert!(loud.complaints.iter().any(|text| text.contains("loud")), "{loud:?}");
    let forbidden = broken("<script>eval('1')</script><img src='http://127.0.0.1:9/x.png'>");
    assert!(
        forbidden.complaints.iter().any(|text| text.contains("Content Security Policy")),
        "{:?}",
        forbidden.complaints
    );
    let policy = good.find("<meta http-equiv=\"Content-Security-Policy\"").expect("the policy");
    let end = policy + good[policy..].find('>').expect("its end") + 1;
    let open = format!("{}{}", &good[..policy], &good[end..]);
    let leaking = browser.visit(&with(&open, "<img src='http://127.0.0.1:9/x.png'>"), 1280);
    assert_eq!(leaking.requests, ["http://127.0.0.1:9/x.png"]);
    // The rules of the page on which numbers were pushed out of sight: nothing wraps.
    let unwrapped = "</main><style>th, td, tbody th { white-space: nowrap !important; }\
        tr { display: table-row !important; }\
        table { display: table !important; } tbody { display: table-row-group !important; }</style>";
    let (_, page) = pages().swap_remove(0);
    for width in [1280, 400] {
        let cut = browser.visit(&page.replacen("</main>", unwrapped, 1), width);
        assert!(cut.page["outside"] != json!([]) || cut.page["cut"] != 0, "at {width}: {}", cut.page);
    }
    // A page as revision 9f1388a wrote it for remedies, its charts and their viewer left out: the same checks, on which
    // a label pushed every number out of sight.
    let old = include_str!("fixtures/page-9f1388a.html");
    for width in [1280, 400] {
        let cut = browser.visit(old, width);
        assert!(cut.page["cut"] != 0 && cut.page["outside"] != json!([]), "at {width}: {}", cut.page);
    }
    // Nothing holds headings back.
    let torn = page.replacen("</main>", "</main><style>* { break-after: auto !important; }</style>", 1);
    let torn = browser.look(&torn, 720, "light", "print");
    assert_ne!(torn.page["parted"], json!([]), "a heading stands alone at no height");
    // What a drawing cuts off stands within the page.
    let drawn = "<p><svg width=\"90\" height=\"20\"><text x=\"60\" y=\"15\">percent of a hit</text></svg></p></main>";
    let cut = browser.visit(&good.replacen("</main>", drawn, 1), 1280);
    assert_eq!(cut.page["outside"], json!(["percent of a hit"]));
    let empty = browser.visit(&good.replacen("data-chart=\"latency\"", "data-chart-off", 1), 1280);
    assert_eq!(empty.page["marks"]["latency"], 0);
}
