use super::*;
use proptest::prelude::*;

const COMBINED: &[u8] = b"83.149.9.216 - - [17/May/2015:10:05:03 +0000] \"GET /a/b.png?x=1 HTTP/1.1\" 200 203023 \
    \"http://semicomplete.com/\" \"Mozilla/5.0 (Macintosh)\"";

fn parsed(line: &str) -> Result<Entry<'_>, LineFault> {
    parse(line.as_bytes())
}

fn with_request(request: &str) -> String {
    format!("1.2.3.4 - - [17/May/2015:10:05:03 +0000] \"{request}\" 200 5")
}

#[test]
fn a_combined_line() {
    assert_eq!(
        parse(COMBINED),
        Ok(Entry {
            client: Cow::Borrowed(b"83.149.9.216"),
            found: Found::Words { before: b"", another: false },
            time_s: 1_431_857_103,
            method: "GET",
            target: b"/a/b.png?x=1",
            status: 200,
            bytes: Some(203_023),
            user_agent: Some(b"Mozilla/5.0 (Macintosh)"),
        })
    );
}

#[test]
fn a_common_line_has_no_user_agent_and_may_lack_a_size() {
    let entry = parsed("host.example - frank [10/Oct/2000:13:55:36 -0700] \"HEAD /x HTTP/1.0\" 304 -\r\n").unwrap();
    assert_eq!((&*entry.client, entry.time_s), (&b"host.example"[..], 971_211_336));
    assert_eq!((entry.status, entry.bytes, entry.user_agent), (304, None, None));
}

#[test]
fn further_fields_are_ignored() {
    let line = format!("{} 0.003 \"more\"", String::from_utf8_lossy(COMBINED));
    assert_eq!(parsed(&line).unwrap(), parse(COMBINED).unwrap());
}

#[test]
fn lines_of_haproxy_with_and_without_syslog() {
    let own = "10.0.1.2:33317 [06/Feb/2009:12:14:14.655] http-in static/srv1 10/0/30/69/109 200 2750 - - ---- \
               1/1/1/1/0 0/0 {1wt.eu} {} \"GET /index.html HTTP/1.1\"";
    let with = format!("Feb  6 12:14:14 localhost haproxy[14389]: {own} 0/0000000000000000/0/0/0 site/TLSv1.3/A");
    for line in [own, with.as_str()] {
        let entry = parsed(line).unwrap();
        assert_eq!((&*entry.client, entry.time_s), (&b"10.0.1.2"[..], 1_233_922_454));
        assert_eq!((entry.target, entry.status, entry.bytes), (&b"/index.html"[..], 200, Some(2750)));
    }
    let v6 = own.replace("10.0.1.2:", "2001:db8::1:");
    assert_eq!(*parsed(&v6).unwrap().client, *b"2001:db8::1");
    assert_eq!(parsed(&own.replace(" 200 ", " -1 ")), Err(LineFault::BadStatus));
    assert_eq!(parsed(&own.replace("GET /index.html HTTP/1.1", "<BADREQ>")), Err(LineFault::NotHttp));
    assert_eq!(parsed(&own.replace("10.0.1.2:33317", "unix:1")), Err(LineFault::NotAClient));
}

const SQUID: &str = "1431857103.655     23 198.51.100.7 TCP_MISS/200 1234 GET https://shop.example/a?b - \
                     HIER_DIRECT/192.0.2.1 text/html";

#[test]
fn lines_of_squid() {
    let entry = parsed(SQUID).unwrap();
    assert_eq!((&*entry.client, entry.time_s), (&b"198.51.100.7"[..], 1_431_857_103));
    assert_eq!((entry.method, entry.target), ("GET", &b"https://shop.example/a?b"[..]));
    assert_eq!((entry.status, entry.bytes, entry.user_agent), (200, Some(1234), None));
    assert_eq!(*parsed(&SQUID.replace("198.51.100.7", "2001:DB8::1")).unwrap().client, *b"2001:db8::1");
    let tunnel = SQUID.replace("GET https://shop.example/a?b", "CONNECT shop.example:443");
    assert_eq!(parsed(&tunnel).unwrap().method, "CONNECT");
    let cases = [
        (SQUID.replace("TCP_MISS/200", "NONE/000"), LineFault::BadStatus),
        (SQUID.replace("/200", ""), LineFault::BadStatus),
        (SQUID.replace("1234", "many"), LineFault::BadSize),
        (SQUID.replace("https://shop.example/a?b", "error:transaction-end-before-headers"), LineFault::NotHttp),
        (SQUID.replace("198.51.100.7", "-"), LineFault::NoClient),
        (SQUID.replace(".655", ""), LineFault::NoTime),
    ];
    for (line, fault) in cases {
        assert_eq!(parsed(&line), Err(fault), "{line}");
    }
    // A user by the field of the login, which a site may fill with a cookie's value.
    let layout = Layout { field: Some(layout::Field::Number(8)), ..Layout::default() };
    let line = SQUID.replace(" - ", " s=4711 ");
    let entry = parse_with(line.as_bytes(), &mut Clock::default(), &layout).unwrap();
    assert_eq!((&*entry.client, entry.found), (&b"s=4711"[..], Found::Asked));
}

#[test]
fn a_user_name_with_spaces_and_a_virtual_host_are_told_apart() {
    let user = parsed("1.2.3.4 - John Q Public [17/May/2015:10:05:03 +0000] \"GET / HTTP/1.1\" 200 5").unwrap();
    assert_eq!(*user.client, *b"1.2.3.4");
    let v6 = parsed("2001:db8::1 - a b [17/May/2015:10:05:03 +0000] \"GET / HTTP/1.1\" 200 5").unwrap();
    assert_eq!(*v6.client, *b"2001:db8::1");
    let vhost =
        parsed("www.example.org:443 192.0.2.1 - - [17/May/2015:10:05:03 +0000] \"GET / HTTP/1.1\" 200 5").unwrap();
    assert_eq!(*vhost.client, *b"192.0.2.1");
}

#[test]
fn targets_of_broken_and_odd_clients() {
    let cases: [(&str, &str); 8] = [
        ("GET /a b HTTP/1.1", "/a b"),
        ("GET /only", "/only"),
        ("GET http://x/y HTTP/1.1", "http://x/y"),
        ("OPTIONS * HTTP/1.0", "*"),
        (r#"GET /say\"hi\" HTTP/1.1"#, r#"/say\"hi\""#),
        (r"GET /caf\xc3\xa9 HTTP/1.1", r"/caf\xc3\xa9"),
        (r#"GET /"quoted" HTTP/1.1"#, "/\"quoted\""),
        (r"GET /back\\ HTTP/2.0", r"/back\\"),
    ];
    for (request, target) in cases {
        let line = with_request(request);
        assert_eq!(parsed(&line).map(|entry| entry.target), Ok(target.as_bytes()), "{request}");
    }
    let raw = b"1.2.3.4 - - [17/May/2015:10:05:03 +0000] \"GET /\xff\xfe HTTP/1.1\" 200 5";
    assert_eq!(parse(raw).unwrap().target, b"/\xff\xfe");
}

#[test]
fn each_fault_is_named() {
    let good = with_request("GET / HTTP/1.1");
    assert!(parsed(&good).is_ok());
    let cases = [
        ("", LineFault::Blank),
        (" \t\r\n", LineFault::Blank),
        ("nonsense", LineFault::NoTime),
        ("1.2.3.4 - - [17/May/2015:10:05:03 +0000", LineFault::NoTime),
        (" [17/May/2015:10:05:03 +0000] \"GET / HTTP/1.1\" 200 5", LineFault::NoTime),
        (&good.replace("May", "Mai"), LineFault::BadTime),
        (&good.replace("17/", "32/"), LineFault::BadTime),
        (&good.replace("+0000", "0000"), LineFault::BadTime),
        (&good.replace('"', "'"), LineFault::NoRequest),
        (&good.replace("HTTP/1.1\"", "HTTP/1.1"), LineFault::NoRequest),
        (&with_request("-"), LineFault::NotHttp),
        (&with_request(""), LineFault::NotHttp),
        (&with_request(r"\x16\x03\x01\x00"), LineFault::NotHttp),
        (&with_request("GET HTTP/1.1"), LineFault::NotHttp),
        (&with_request("GET"), LineFault::NotHttp),
        (&good.replace("200", "000"), LineFault::BadStatus),
        (&good.replace("200", "2000"), LineFault::BadStatus),
        (&good.replace("200 5", ""), LineFault::BadStatus),
        (&good.replace("200 5", "200"), LineFault::BadSize),
        (&good.replace("200 5", "200 5k"), LineFault::BadSize),
        (&good.replace("200 5", "200 99999999999999999999"), LineFault::HugeSize),
        (&good.replace("200 5", "200 1000000000000000000"), LineFault::HugeSize),
        (&good.replace("200 5", "200 -5"), LineFault::BadSize),
    ];
    for (line, fault) in cases {
        assert_eq!(parsed(line), Err(fault), "{line}");
    }
}

#[test]
fn times_agree_with_a_calendar() {
    let format = time::macros::format_description!(
        "[day]/[month repr:short]/[year]:[hour]:[minute]:[second] [offset_hour sign:mandatory][offset_minute]"
    );
    // Every 1,000,003 seconds passes all months, leap days and hours.
    for step in 0..5_000 {
        let seconds = -1_000_000_000 + step * 1_000_003;
        let date = time::OffsetDateTime::from_unix_timestamp(seconds).unwrap();
        assert_eq!(super::time(date.format(&format).unwrap().as_bytes()), Some(seconds), "{date}");
    }
    assert_eq!(super::time(b"01/Jan/1970:01:30:00 +0130"), Some(0));
    assert_eq!(super::time(b"31/Dec/2016:23:59:60 +0000"), Some(1_483_228_800));
}

proptest! {
    #[test]
    fn any_bytes_are_an_entry_or_a_fault(line in proptest::collection::vec(any::<u8>(), 0..300)) {
        let _ = parse(&line);
    }

    #[test]
    fn what_squid_wrote_is_read(
        seconds in 0_i64..4_000_000_000,
        millis in 0..1000,
        client in "[1-9]{1,2}\\.[1-9]\\.0\\.255|2001:db8::[1-9a-f]{1,4}",
        method in "[A-Z]{1,10}",
        target in "https?://[a-z]{1,9}/[!-~]{0,60}",
        status in 100_u16..600,
        bytes in 0..=MAX_BYTES,
    ) {
        let result = format!("TCP_HIT/{status} {bytes} {method} {target}");
        let line = format!("{seconds}.{millis:03} {bytes:6} {client} {result} - NONE/- -");
        let entry = parsed(&line).unwrap();
        prop_assert_eq!(&*entry.client, client.as_bytes());
        prop_assert_eq!((entry.time_s, entry.method, entry.target), (seconds, method.as_str(), target.as_bytes()));
        prop_assert_eq!((entry.status, entry.bytes), (status, Some(bytes)));
    }

    /// Real lines with a few bytes changed reach much deeper than random ones.
    #[test]
    fn damaged_lines_are_an_entry_or_a_fault(
        whole in proptest::sample::select(vec![COMBINED, SQUID.as_bytes()]),
        at in any::<proptest::sample::Index>(),
        byte in any::<u8>(),
        cut in any::<proptest::sample::Index>(),
    ) {
        let mut line = whole.to_vec();
        line[at.index(whole.len())] = byte;
        line.truncate(cut.index(whole.len()).max(1));
        if let Ok(entry) = parse(&line) {
            prop_assert!(!entry.client.is_empty() && !entry.target.is_empty() && !entry.method.is_empty());
            prop_assert!((100..600).contains(&entry.status));
        }
    }

    #[test]
    fn what_was_written_is_read(
        client in "[1-9]{1,2}\\.[1-9]\\.0\\.255|[a-z][a-z0-9-]{0,9}(\\.[a-z]{2,5}){0,2}",
        seconds in 0_i64..4_000_000_000,
        method in "[A-Z]{1,10}",
        target in "/[!#-\\[\\]-~]{0,60}",
        status in 100_u16..600,
        bytes in proptest::option::of(0..=MAX_BYTES),
        agent in "[ !#-\\[\\]-~]{0,40}",
    ) {
        let format = time::macros::format_description!(
            "[day]/[month repr:short]/[year]:[hour]:[minute]:[second] +0000"
        );
        let date = time::OffsetDateTime::from_unix_timestamp(seconds).unwrap().format(&format).unwrap();
        let size = bytes.map_or("-".to_owned(), |bytes| bytes.to_string());
        let request = format!("{method} {target} HTTP/1.1");
        let line = format!("{client} - - [{date}] \"{request}\" {status} {size} \"-\" \"{agent}\"");
        let entry = parsed(&line).unwrap();
        prop_assert_eq!(&*entry.client, client.as_bytes());
        prop_assert_eq!(entry.time_s, seconds);
        prop_assert_eq!(entry.method, method);
        prop_assert_eq!(entry.target, target.as_bytes());
        prop_assert_eq!((entry.status, entry.bytes), (status, bytes));
        prop_assert_eq!(entry.user_agent, Some(agent.as_bytes()));
    }
}
