use std::fmt::Write as _;

use proptest::prelude::*;

use super::super::access_log::parse;
use super::super::{LogScan, scan_log};
use super::*;

fn of_text(text: &[u8], rules: &ReplaySpec) -> Result<LogScan> {
    let directory = tempfile::tempdir()?;
    let path = directory.path().join("access.log");
    std::fs::write(&path, text)?;
    let mut scan = scan_log(&path, &[], rules)?;
    scan.workload.clear();
    Ok(scan)
}

fn scanned(text: &str) -> LogScan {
    of_text(text.as_bytes(), &ReplaySpec::default()).unwrap()
}

fn refusal(text: &str) -> String {
    of_text(text.as_bytes(), &ReplaySpec::default()).unwrap_err().to_string()
}

/// Of so many clients each ten requests, 30 s apart; the line's beginning is `client` of number and client.
fn lines(clients: usize, client: impl Fn(usize, usize) -> String, end: &str) -> String {
    let mut text = String::new();
    for number in 0..clients * 10 {
        let at_s = number / clients * 30 + number % clients;
        let (minute, second) = (37 + at_s / 60, at_s % 60);
        let client = client(number, number % clients + 1);
        let time = format!("[04/Oct/2022:04:{minute}:{second:02} +0000]");
        writeln!(text, "{client} - - {time} \"GET / HTTP/1.1\" 200 500 \"-\" \"M\"{end}").unwrap();
    }
    text
}

fn address(client: usize) -> String {
    format!("198.51.100.{client}")
}

/// Users, and percent reuse with sessions of 300 s.
fn outcome(scan: &LogScan) -> (u64, f64) {
    let row = scan.reuse.rows.iter().find(|row| row.lifetime_s == 300).unwrap();
    (scan.users, row.percent_by_limit[4])
}

#[test]
fn the_same_hits_are_the_same_reuse_however_their_clients_are_written() {
    let outcome_of = |client: &dyn Fn(usize, usize) -> String| outcome(&scanned(&lines(20, client, "")));
    let clients: [&dyn Fn(usize, usize) -> String; 9] = [
        &|_, client| address(client),
        &|_, client| format!("web-1  | {}", address(client)),
        &|number, client| format!("2022-10-04T04:37:00.{number:09}Z stdout F {}", address(client)),
        &|number, client| format!("{}:{}", address(client), 40_000 + number),
        &|_, client| format!("::ffff:{}", address(client)),
        &|number, client| {
            ["2001:db8::{}", "2001:DB8::0:{}", "[2001:db8:0::{}]:80"][number % 3].replace("{}", &client.to_string())
        },
        &|number, client| {
            ["pc{}.example.net", "PC{}.Example.Net.", "pc{}.example.net:99"][number % 3]
                .replace("{}", &client.to_string())
        },
        &|_, client| format!("{}, 10.0.0.7", address(client)),
        &|_, client| format!("www.example.org:443 {}", address(client)),
    ];
    for client in clients {
        assert_eq!(outcome_of(client), (20, 90.0), "{}", client(0, 1));
    }
}

#[test]
fn a_byte_order_mark_and_line_ends_of_windows_are_no_client() {
    let text = "\u{feff}".to_owned() + &lines(1, |_, client| address(client), "\r");
    assert_eq!(outcome(&scanned(&text)), (1, 90.0));
}

/// The address of a balancer first, the client's last.
#[test]
fn behind_a_proxy_the_client_is_the_forwarded_one_and_that_is_told() {
    let forwarded = |proxy: &str| {
        let mut text = String::new();
        for number in 0..200 {
            let line = lines(20, |_, _| proxy.to_owned(), "").lines().nth(number).unwrap().to_owned();
            writeln!(text, "{line} \"{}\" 0.003", address(number % 20 + 1)).unwrap();
        }
        text
    };
    for proxy in ["10.0.0.7", "203.0.113.80", "unix:", "balancer.example"] {
        let scan = scanned(&forwarded(proxy));
        assert_eq!(outcome(&scan), (20, 90.0), "{proxy}");
        assert_eq!(scan.read.found.forwarded_count, 200);
        let notes = scan.read.notes().join("\n");
        assert!(notes.contains("X-Forwarded-For") && notes.contains("--client-field"), "{notes}");
    }
    let first = ReplaySpec { client_field: Some(ClientField::Number(1)), ..ReplaySpec::default() };
    assert_eq!(of_text(forwarded("10.0.0.7").as_bytes(), &first).unwrap().users, 1);
    let health = lines(1, |_, _| "10.0.0.7".to_owned(), " \"-\"");
    let scan = scanned(&(health + &forwarded("10.0.0.7")));
    assert_eq!((scan.users, scan.read.found.forwarded_count), (21, 200), "checks of the balancer are its own");
}

/// nginx's own format logs X-Forwarded-For last; on a server that is its own front it is `-`, or what a client claims.
#[test]
fn a_claim_that_few_lines_make_is_told_and_not_believed() {
    let text = lines(20, |_, client| address(client), " \"-\"").replacen("\"-\"\n", "\"203.0.113.1\"\n", 3);
    let scan = scanned(&text);
    assert_eq!((outcome(&scan), scan.read.found.forwarded_unused_count), ((20, 90.0), 3));
    assert!(scan.read.notes()[0].contains("--client-field last"), "{:?}", scan.read.notes());
    let upstream = lines(20, |_, client| address(client), " \"10.0.0.5:8080\"");
    assert_eq!(outcome(&scanned(&upstream)), (20, 90.0), "a few servers behind many clients");
    let inner = lines(20, |_, client| format!("10.1.1.{client}"), " \"10.0.0.5:8080\"");
    assert_eq!(outcome(&scanned(&inner)), (20, 90.0));
}

#[test]
fn other_words_than_clients_are_refused_with_the_line() {
    let numbers = lines(3, |_, client| format!("{client}4600\u{1b}[31m"), "");
    let error = refusal(&numbers);
    assert!(error.contains("line 1: 14600\\x1b[31m - -") && error.contains("--client-field"), "{error}");
    let own = ReplaySpec { client_field: Some(ClientField::Number(1)), ..ReplaySpec::default() };
    assert_eq!(outcome(&of_text(numbers.as_bytes(), &own).unwrap()), (3, 90.0));
    let few = lines(20, |number, client| if number == 7 { "7".to_owned() } else { address(client) }, "");
    let scan = scanned(&few);
    assert_eq!((scan.hits, scan.read.malformed[0].reason), (199, "not_a_client"));
    let none = refusal(&lines(2, |_, _| "-".to_owned(), ""));
    assert!(none.contains("have no client"), "{none}");
}

#[test]
fn a_field_is_named_by_number_or_as_the_last() {
    let text = lines(20, |number, client| format!("{number} {}", address(21 - client)), " \"x y\"").replace("x y", "Y");
    for (field, users) in [(ClientField::Number(1), 200), (ClientField::Number(2), 20), (ClientField::Last, 1)] {
        let rules = ReplaySpec { client_field: Some(field), ..ReplaySpec::default() };
        assert_eq!(of_text(text.as_bytes(), &rules).unwrap().users, users, "{field:?}");
    }
    let beyond = ReplaySpec { client_field: Some(ClientField::Number(99)), ..ReplaySpec::default() };
    assert!(of_text(text.as_bytes(), &beyond).unwrap_err().to_string().contains("have no client"));
}

#[test]
fn a_field_is_written_in_files_as_a_number_or_a_word() {
    for (written, field) in [("4", ClientField::Number(4)), ("\"last\"", ClientField::Last)] {
        let rules: ReplaySpec = toml::from_str(&format!("client_field = {written}")).unwrap();
        assert_eq!(rules.client_field, Some(field));
        assert!(toml::to_string(&rules).unwrap().contains(&format!("client_field = {written}")));
    }
    assert!(toml::from_str::<ReplaySpec>("client_field = 0").is_err());
}

/// What collectors of logs put before a line; `{}` is the line's number.
fn prefix() -> impl Strategy<Value = String> {
    let word = "[a-z][a-z0-9]{0,8}(-[0-9]{1,2})?";
    let id = "[0-9a-f]{12}";
    prop_oneof![
        word.prop_map(|name| format!("{name}  | ")),
        Just("2022-10-04T04:37:00.{}Z stdout F ".to_owned()),
        Just("2022-10-04T04:37:00.{}Z ".to_owned()),
        Just("2022-10-04 04:37:00,{} INFO ".to_owned()),
        word.prop_map(|name| format!("[pod/{name}-{{}}/nginx] ")),
        (word, id).prop_map(|(pod, id)| format!("{pod} {id} ")),
        id.prop_map(|id| format!("{id} ")),
        (word, 1..99_999).prop_map(|(host, pid)| format!("Nov 26 10:00:00 {host} nginx[{pid}]: ")),
        (1..=254_u8).prop_map(|host| format!("<134>Nov  6 10:00:00 10.0.0.{host} nginx: ")),
        word.prop_map(|host| format!("<165>1 2022-10-04T04:37:00.{{}}Z {host}.example nginx - - - ")),
        word.prop_map(|host| format!("2022-10-04T04:37:00+0000 {host} nginx[12]: ")),
        word.prop_map(|file| format!("{file}.log:")),
        word.prop_map(|host| format!("{host}.example:443 ")),
        Just("[26/Nov/2026:10:00:00 +0000] ".to_owned()),
        Just("\u{feff}".to_owned()),
    ]
}

fn addresses() -> impl Strategy<Value = fn(usize) -> String> {
    prop_oneof![
        Just((|client| format!("198.51.100.{client}")) as fn(usize) -> String),
        Just((|client| format!("10.9.8.{client}:40{client:03}")) as fn(usize) -> String),
        Just((|client| format!("[2001:db8::{client:x}]")) as fn(usize) -> String),
        Just((|client| format!("::ffff:192.0.2.{client}")) as fn(usize) -> String),
    ]
}

/// What is known of the clients, without what is told of the prefix.
fn summary(mut scan: LogScan) -> LogScan {
    scan.read.found = Default::default();
    scan.read.sites.clear();
    scan
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    /// Whatever is put before the lines, the log says the same.
    #[test]
    fn a_prefix_changes_nothing(
        prefixes in proptest::collection::vec(prefix(), 1..3),
        client in addresses(),
        clients in 1_usize..15,
    ) {
        // What is glued to the client comes last.
        let (words, glued): (Vec<_>, Vec<_>) = prefixes.into_iter().partition(|prefix| prefix.ends_with(' '));
        let before = words.concat() + glued.first().map_or("", String::as_str);
        let plain = scanned(&lines(clients, |_, number| client(number), ""));
        let text = lines(clients, |number, name| before.replace("{}", &format!("{number:09}")) + &client(name), "");
        let with_prefix = scanned(&text);
        if before != "\u{feff}" {
            let cut = with_prefix.read.found.with_prefix_count;
            prop_assert_eq!(cut, with_prefix.hits, "{}", text.lines().next().unwrap());
        }
        prop_assert_eq!(summary(with_prefix), summary(plain), "{}", text.lines().next().unwrap());
    }

    /// The same log in JSON, each line behind the same words.
    #[test]
    fn a_log_in_json_is_the_same_log(before in prefix(), client in addresses(), clients in 1_usize..15) {
        let (plain, before) = (lines(clients, |_, number| client(number), ""), before.replace("{}", "7"));
        let in_json: String = plain
            .lines()
            .map(|line| {
                let entry = parse(line.as_bytes()).unwrap();
                let client = String::from_utf8_lossy(&entry.client);
                let fields = serde_json::json!({
                    "remote_addr": client, "msec": entry.time_s, "request": "GET / HTTP/1.1", "status": entry.status,
                    "body_bytes_sent": entry.bytes, "http_user_agent": "M",
                });
                format!("{before}{fields}\n")
            })
            .collect();
        prop_assert_eq!(summary(scanned(&in_json)), summary(scanned(&plain)), "{}", in_json.lines().next().unwrap());
    }

    /// The same where only the lines' names of hosts tell who asks, behind a prefix of whole words.
    #[test]
    fn a_prefix_changes_nothing_about_names(
        before in prefix().prop_filter("words", |prefix| prefix.ends_with(' ')),
        clients in 1_usize..15,
    ) {
        let name = |client: usize| format!("pc{client}.example.net");
        let plain = scanned(&lines(clients, |_, client| name(client), ""));
        let before_of = |number: usize| before.replace("{}", &format!("{number:09}"));
        let with_prefix = scanned(&lines(clients, |number, client| before_of(number) + &name(client), ""));
        prop_assert_eq!(summary(with_prefix), summary(plain), "{}", before);
    }
}

/// A decimal, a proxy's address or the server's own name or address before the client: the same users.
#[test]
fn what_stands_before_a_client_is_not_taken_for_it() {
    let firsts = [
        "1664858220.123",
        "0.003 0.001",
        "10.0.0.1",
        "203.0.113.9",
        "203.0.113.80:443",
        "shop.example:443",
        "shop.example -",
        "10.0.0.1 -",
    ];
    for first in firsts {
        let text = lines(20, |_, client| format!("{first} {}", address(client)), "");
        assert_eq!(outcome(&scanned(&text)), outcome(&scanned(&lines(20, |_, client| address(client), ""))), "{first}");
    }
    // A client before its proxy stays one.
    let text = lines(20, |number, client| format!("{} 10.0.0.{}", address(client), number % 2), "");
    assert_eq!(scanned(&text).users, 20);
}

#[test]
fn a_log_of_several_sites_says_which_it_took() {
    let note = |scan: &LogScan| scan.read.notes().into_iter().find(|note| note.contains("sites")).unwrap_or_default();
    let one = scanned(&lines(20, |_, client| format!("shop.example:443 {}", address(client)), ""));
    assert_eq!((one.read.sites.len(), note(&one)), (1, String::new()));
    let site_of = |number: usize| if number.is_multiple_of(4) { "blog.example" } else { "Shop.example:443" };
    let two = lines(20, |number, client| format!("{} {}", site_of(number), address(client)), "");
    let both = scanned(&two);
    assert!(note(&both).contains("shop.example (150), blog.example (50)"), "{}", note(&both));
    let asked = |site: &str| {
        let site = Some(site.to_owned());
        of_text(two.as_bytes(), &ReplaySpec { site, ..ReplaySpec::default() })
    };
    let blog = asked("Blog.example:8443").unwrap();
    assert_eq!((blog.hits, blog.read.of_other_sites), (50, 150));
    assert!(note(&blog).starts_with("taken: blog.example (50); 150 requests for other sites"), "{}", note(&blog));
    let none = asked("else.example").unwrap_err().to_string();
    assert!(none.contains("200 of its 200 lines are excluded by --host"), "{none}");
    let squid: String = ["CONNECT a.example:443", "GET http://B.example/x"]
        .map(|asks| format!("1431857103.655 23 198.51.100.7 TCP_TUNNEL/200 1234 {asks} - HIER_DIRECT/192.0.2.1 -\n"))
        .concat();
    assert!(note(&scanned(&squid)).contains("a.example (1), b.example (1)"));
    let caddy = |host: &str| {
        let fields = serde_json::json!({
            "ts": 1, "ip": "192.0.2.1", "host": host, "method": "GET", "uri": "/", "status": 200,
        });
        format!("{fields}\n")
    };
    assert_eq!(scanned(&["a.example", "b.example", "192.0.2.9"].map(caddy).concat()).read.sites.len(), 2);
}

#[test]
fn a_log_that_cannot_tell_says_why() {
    let why = |text: &str| scanned(text).read.cannot_tell().unwrap_or_default();
    assert_eq!(why(&lines(20, |_, client| address(client), "")), "");
    assert!(why(&lines(2, |_, client| address(client), "")).contains("20 requests, and 100"));
    assert!(why(&lines(20, |_, _| "198.51.100.7".to_owned(), "")).contains("one client"));
    assert!(why(&lines(20, |_, client| format!("127.0.0.{client}"), "")).contains("this machine"));
    for tool in ["tlsdyno/0.2.0", "ApacheBench/2.3", "k6/0.47"] {
        let text = lines(20, |_, client| address(client), "").replace("\"M\"", &format!("\"{tool}\""));
        assert!(why(&text).contains("load tool"), "{tool}");
    }
    assert!(scanned(&lines(2, |_, client| address(client), "")).read.warnings().concat().contains("says nothing"));
}
