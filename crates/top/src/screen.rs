//! What `tlsdyno top` shows: plain lines, or a whole screen on a terminal.

mod draw;
mod full;
mod history;
mod view;

use std::collections::BTreeSet;
use std::io::stdout;
use std::net::SocketAddr;
use std::time::Duration;

use itertools::Itertools as _;
use rustix::termios::tcgetwinsize;
use tlsdyno_base::foreign::visible;
use tlsdyno_base::units::{format_of, format_percent, format_quantity, format_short, format_tenths};

pub use self::full::Full;
use self::view::Shown;
use crate::kinds::Passed;
use crate::part::Part;
use crate::server::{PERIOD_NS, Seen, Server};
use crate::shares::BLOCKS_LEAST;
use crate::what_if::WhatIfs;

/// Columns where no terminal says how many it has.
const COLUMNS: usize = 100;
/// Ports of a server that are shown.
const PORTS_SHOWN: usize = 3;
/// Parts with a smaller share are not shown, percent.
const SHOWN: f64 = 0.05;
/// A larger part of lost or unknown samples is told.
const TOLD: f64 = 0.01;

/// What plain lines are written for.
pub struct Lines {
    columns: usize,
}

impl Lines {
    /// Standard output.
    pub fn of_stdout() -> Lines {
        let size = tcgetwinsize(stdout()).ok().map(|size| usize::from(size.ws_col)).filter(|columns| *columns > 0);
        Lines { columns: size.unwrap_or(COLUMNS) }
    }

    /// A server opened: what it uses, each part of TLS, and the handshakes that passed.
    pub fn opened(&self, server: &Server, seen: &Seen, passed: &Result<(Passed, WhatIfs), String>) -> Vec<String> {
        let mut lines = vec![format!("{}   {}", titled(server), used(seen))];
        lines.extend(self.wrapped(&share(seen), &parts(seen)));
        lines.extend(more(seen, passed));
        lines
    }

    /// A server in a line: the share of TLS, and its largest part.
    pub fn line(&self, server: &Server, seen: &Seen) -> String {
        let largest = Part::ALL.into_iter().max_by_key(|part| seen.shares.counts.of(*part));
        let largest = largest.filter(|part| seen.shares.counts.of(*part) > 0 && seen.shares.tls().has_interval());
        let largest = largest.map(|part| format!(", {}", of_part(seen, part))).unwrap_or_default();
        format!("{}   {}   {}{largest}", titled(server), used(seen), share(seen))
    }

    /// What is shown of each part behind `begin`, in as many lines as it needs.
    fn wrapped(&self, begin: &str, parts: &[String]) -> Vec<String> {
        let mut lines = vec![begin.to_owned()];
        for (at, part) in parts.iter().enumerate() {
            let last = lines.last_mut().expect("there is one");
            let joint = if at == 0 { ": " } else { " · " };
            if last.chars().count() + joint.chars().count() + part.chars().count() <= self.columns {
                last.push_str(joint);
                last.push_str(part);
            } else {
                last.push_str(joint.trim_end());
                lines.push(format!("  {part}"));
            }
        }
        lines
    }
}

/// What a screen shows of a server.
pub fn shown(server: &Server, seen: &Seen, passed: &Result<(Passed, WhatIfs), String>) -> Shown {
    let (tls, counts) = (seen.shares.tls(), &seen.shares.counts);
    let short = match tls.has_interval() {
        true => tls.with_interval(format_tenths),
        false => if counts.total() == 0 { "idle" } else { "undecided" }.to_owned(),
    };
    let part = |part: Part| {
        let share = seen.shares.part(part);
        (part.title(), [share.value, share.low, share.high])
    };
    let rate = passed.as_ref().map_or("not seen".to_owned(), |(passed, _)| format_quantity(passed.connections_per_s()));
    Shown {
        root: server.root,
        title: titled(server),
        cells: [format!("{} of {}", cpus(seen), seen.cpus_count), short, rate],
        share: format!("{} · {}", used(seen), share(seen)),
        parts: shown_parts(seen).map(part).collect(),
        lines: more(seen, passed),
    }
}

/// What there is to say of a server beside its share.
fn more(seen: &Seen, passed: &Result<(Passed, WhatIfs), String>) -> Vec<String> {
    let mut lines = reservations(seen);
    match passed {
        Ok((passed, what_ifs)) => lines.extend(passed.lines().into_iter().chain(what_ifs.lines())),
        Err(why) => lines.push(format!("its handshakes are not seen: {}", visible(why))),
    }
    lines
}

/// `nginx :443 (pid 812, OpenSSL 3.0.17)`.
pub fn titled(server: &Server) -> String {
    let versions = server.libraries.iter().map(|found| found.version.as_str()).join(" and ");
    let titled = format!("{}{} (pid {}, {versions})", server.name, ports(&server.addresses), server.root);
    visible(&titled).into_owned()
}

/// Where a server listens: ` :443 :8443`.
pub fn ports(addresses: &BTreeSet<SocketAddr>) -> String {
    let all: BTreeSet<u16> = addresses.iter().map(SocketAddr::port).collect();
    let more = all.len().saturating_sub(PORTS_SHOWN);
    let shown = all.iter().take(PORTS_SHOWN).map(|port| format!(" :{port}"));
    shown.chain((more > 0).then(|| format!(" and {more} more"))).collect()
}

fn used(seen: &Seen) -> String {
    format!("{} of {}", cpus(seen), format_of(seen.cpus_count as f64, "CPU"))
}

fn cpus(seen: &Seen) -> String {
    format_short(seen.cpu_ns as f64 / (seen.elapsed.as_nanos() as f64).max(1.0))
}

fn share(seen: &Seen) -> String {
    let whose = if seen.sees_kernel { "its CPU" } else { "its CPU outside of the kernel" };
    let share = seen.shares.tls();
    if seen.shares.counts.total() == 0 {
        return "it was idle: no share can be told".to_owned();
    }
    if !share.has_interval() {
        return format!(
            "the share of TLS is undecided: fewer than {BLOCKS_LEAST} of its blocks of time have samples; watch it \
             longer (--once 60s), or when it has more work"
        );
    }
    format!("TLS is {} {} of {whose}", format_percent(share.value), share.ends(format_tenths))
}

fn parts(seen: &Seen) -> Vec<String> {
    shown_parts(seen).map(|part| of_part(seen, part)).collect()
}

fn shown_parts(seen: &Seen) -> impl Iterator<Item = Part> {
    let is_shown = move |part: &Part| {
        let share = seen.shares.part(*part);
        share.has_interval() && share.value >= SHOWN
    };
    Part::ALL.into_iter().filter(is_shown)
}

fn of_part(seen: &Seen, part: Part) -> String {
    format!("{} {}", part.title(), seen.shares.part(part).with_interval(format_tenths))
}

/// What makes the shares worth less.
fn reservations(seen: &Seen) -> Vec<String> {
    let total = seen.shares.counts.total();
    let percent = |count: u64, of: u64| format_percent(100.0 * count as f64 / of as f64);
    let is_much = |count: u64, of: u64| count as f64 > TOLD * of as f64;
    let (lost, unknown) = (seen.shares.counts.lost(), seen.shares.counts.unknown());
    let lost = is_much(lost, total + lost).then(|| {
        format!(
            "{} of its samples found no room and are in no share: the machine is too busy",
            percent(lost, total + lost)
        )
    });
    let unknown = is_much(unknown, total)
        .then(|| format!("{} of its samples lie in code of no file, and count as not TLS", percent(unknown, total)));
    let kernel = (!seen.sees_kernel)
        .then(|| "time in the kernel is not seen; run as root, or with CAP_PERFMON, to see it".to_owned());
    let thinned = (seen.period_ns > PERIOD_NS).then(|| {
        let ms = format_short(seen.period_ns as f64 / 1e6);
        format!("one sample in {ms} ms of its CPU time, to keep to the budget: intervals are wider")
    });
    [lost, unknown, kernel, thinned].into_iter().flatten().collect()
}

/// The last line: what this program used itself.
pub fn own(cpu_ns: u64, elapsed: Duration) -> String {
    let percent = 100.0 * cpu_ns as f64 / (elapsed.as_nanos() as f64).max(1.0);
    format!("own use of tlsdyno: {percent:.2} % of one CPU")
}
