use std::time::Duration;

use tlsdyno_engine::load::{Handshakes, Phase, Recent, Resumption, Snapshot, WindowUse};
use tlsdyno_tls::{Group, Suite, Version};

use super::*;
use crate::load::screen::view::tests::{nothing, plan};

/// A run at 50 % reuse, half a second after its first second.
fn in_mid_run() -> View {
    let mut plan = plan("https://localhost:8443/1k.bin");
    plan.resumption = Resumption::Share(0.5);
    plan.connections.requests_each = Some(1);
    let mut view = View::new("https://localhost:8443/1k.bin", &plan);
    view.take(Snapshot { at_ns: 1_000_000_000, ..nothing() });
    let mut snapshot = Snapshot {
        at_ns: 1_500_000_000,
        hits: 1000,
        body_bytes: 1_024_000,
        connections: 1002,
        handshakes: Handshakes {
            full: 501,
            resumed_intended: 501,
            resumed_offered: 501,
            resumed_accepted: 500,
            ..Handshakes::default()
        },
        client_cpu_ns: 60_000_000,
        negotiated: Some((Version::Tls13, Suite::from_code(0x1302).unwrap(), Some(Group::X25519))),
        ..nothing()
    };
    for (phase, count, p50_ns, p99_ns) in [
        (Phase::TcpConnect, 1002, 21_000, 90_000),
        (Phase::FullHandshake, 501, 1_200_000, 3_400_000),
        (Phase::ResumedHandshake, 500, 400_000, 1_000_000),
        (Phase::FirstByte, 1000, 210_000, 800_000),
        (Phase::WholeResponse, 1000, 220_000, 820_000),
    ] {
        snapshot.recent[phase as usize] = Recent { count, p50_ns, p99_ns };
    }
    view.take(snapshot);
    view.elapsed = Duration::from_millis(1500);
    view
}

fn with(view: &mut View, change: impl FnOnce(&mut Snapshot)) {
    let mut next = view.now.unwrap();
    next.at_ns += 500_000_000;
    change(&mut next);
    view.take(next);
}

fn text(view: &View, columns: u16, rows: u16) -> String {
    let buffer = screen(view, Size::new(columns, rows));
    let row = |cells: &[ratatui::buffer::Cell]| cells.iter().map(|cell| cell.symbol()).collect::<String>();
    let rows = buffer.content.chunks(usize::from(buffer.area.width)).map(row);
    rows.map(|row| row.trim_end().to_owned() + "\n").collect()
}

#[test]
fn the_whole_screen() {
    let expected = "\
https://localhost:8443/1k.bin                                         q ends it
closed loop, 64 connections of one request each, 50 % resumed, effort lean
1.5 s of 10.0 s, 8.5 s left ━━━━━━━────────────────────────────────────────────
╭ throughput ──────────────────────────╮╭ TLS handshakes, 50 % to resume ─────╮
│ 2,000 hits/s               2.05 MB/s ││  50.0 % resumed ━━━━━━━━━────────── │
│ ██                                   ││ resumed      1,000 /s          500  │
│ ██                                   ││ full         1,002 /s          501  │
│ ██                                   ││ offered 501, refused 1              │
│ 2,004 connections/s       1,000 hits ││ TLS 1.3 AES_256_GCM_SHA384 X25519   │
╰──────────────────────────────────────╯╰─────────────────────────────────────╯
╭ latency, last half second ──────────────────────────────────────────────────╮
│                                   p50 ●      p99 ○  10µs   100µs   1ms 10ms │
│ TCP connect         2,004 /s    21.0 µs    90.0 µs    ●━━━━○                │
│ full handshake      1,002 /s    1.20 ms    3.40 ms                 ●━━━○    │
│ resumed handshake   1,000 /s     400 µs    1.00 ms              ●━━○        │
│ first byte          2,000 /s     210 µs     800 µs            ●━━━○         │
│ whole hit           2,000 /s     220 µs     820 µs            ●━━━○         │
╰─────────────────────────────────────────────────────────────────────────────╯
client CPU 12 % of a core
no errors
";
    assert_eq!(text(&in_mid_run(), 80, 24), expected);
}

#[test]
fn a_narrow_terminal_gets_lines_the_most_important_first() {
    let mut view = in_mid_run();
    with(&mut view, |snapshot| {
        snapshot.hits += 1000;
        snapshot.handshakes.full += 500;
        snapshot.handshakes.resumed_accepted += 501;
        snapshot.errors[2] = 12;
    });
    let expected = "\
1.5 s of 10.0 s, 8.5 s left ━──────────
2,000 hits/s   2,000 so far
12 errors: 12 reset
50.0 % of 2,002 handshakes/s resumed
whole hit            220 µs …    820 µs
first byte           210 µs …    800 µs
resumed handshake    400 µs …   1.00 ms
full handshake      1.20 ms …   3.40 ms
TCP connect         21.0 µs …   90.0 µs
";
    assert_eq!(text(&view, 40, 10), expected);
}

#[test]
fn what_is_wrong_is_said() {
    let mut view = in_mid_run();
    with(&mut view, |snapshot| {
        (snapshot.errors[0], snapshot.errors[2]) = (1, 1200);
        snapshot.client_cpu_ns += 490_000_000;
        snapshot.window = Some(WindowUse { limit: Some(10_000), largest_distance: 1234, stalls: 5 });
    });
    let text = text(&view, 90, 30);
    let end: Vec<&str> = text.lines().rev().take(3).collect();
    assert_eq!(
        end,
        [
            "1,201 errors: 1,200 reset, 1 refused",
            "order: 1,234 requests apart at most (window 10,000), 5 stalls",
            "client CPU 98 % of a core: the client is the bottleneck, latencies are its own",
        ]
    );
}

#[test]
fn plain_http_has_no_handshakes() {
    let view = View::new("http://localhost/", &plan("http://localhost/"));
    let text = text(&view, 80, 24);
    assert!(text.contains("throughput") && !text.contains("handshake"), "{text}");
}

#[test]
fn every_size_can_be_drawn_and_leaves_a_row_and_a_column_free() {
    let mut view = in_mid_run();
    with(&mut view, |snapshot| snapshot.errors = [1_000_000_000_000; _]);
    for (columns, rows) in (0..130).step_by(3).flat_map(|columns| (0..40).map(move |rows| (columns, rows))) {
        let area = screen(&view, Size::new(columns, rows)).area;
        assert!(area.width <= columns.saturating_sub(1).max(1), "{area} at {columns}x{rows}");
        assert!(area.height <= rows.saturating_sub(1).max(1), "{area} at {columns}x{rows}");
    }
}

#[test]
fn few_a_second_have_a_digit_more() {
    assert_eq!([0.0, 0.4, 9.94, 9.96, 1234.6].map(count_per_second), ["0", "0.4", "9.9", "10", "1,235"]);
}
