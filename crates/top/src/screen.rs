//! What `tlsdyno top` shows: plain lines, which a terminal draws anew.

use std::collections::BTreeSet;
use std::io::{IsTerminal, stdout};
use std::net::SocketAddr;
use std::time::Duration;

use itertools::Itertools as _;
use rustix::termios::tcgetwinsize;
use tlsdyno_base::foreign::visible;
use tlsdyno_base::units::{format_of, format_percent, format_short, format_tenths};

use crate::kinds::Passed;
use crate::part::Part;
use crate::server::{Seen, Server};
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

/// What makes text bold, and no longer (ECMA-48: SGR).
const BOLD: &str = "\x1b[1m";
const NORMAL: &str = "\x1b[0m";

/// What standard output is.
pub struct Screen {
    /// The lines before are written over.
    redraws: bool,
    bold: bool,
    columns: usize,
    /// Lines that stand there.
    drawn: usize,
}

impl Screen {
    /// `NO_COLOR` (no-color.org) and `TERM=dumb` make it plain.
    pub fn of_stdout() -> Screen {
        let set = |name| std::env::var_os(name).is_some_and(|value| !value.is_empty());
        let is_terminal = stdout().is_terminal() && std::env::var_os("TERM").is_none_or(|term| term != "dumb");
        let size = tcgetwinsize(stdout()).ok().map(|size| usize::from(size.ws_col)).filter(|columns| *columns > 0);
        let columns = size.filter(|_| is_terminal).unwrap_or(COLUMNS);
        Screen { redraws: is_terminal, bold: is_terminal && !set("NO_COLOR"), columns, drawn: 0 }
    }

    /// Lines in place of those that were drawn before.
    pub fn drawn(&mut self, lines: &[String]) -> String {
        let text: String = lines.iter().map(|line| format!("{line}\n")).collect();
        if !self.redraws {
            return text;
        }
        // Long lines go on in the next.
        let rows = lines.iter().map(|line| visible_length(line).div_ceil(self.columns).max(1)).sum();
        let before = std::mem::replace(&mut self.drawn, rows);
        // Up to the first of them, and all below is cleared (ECMA-48: CUU, ED).
        if before > 0 { format!("\x1b[{before}A\x1b[J{text}") } else { text }
    }

    /// A server opened: what it uses, each part of TLS, and the handshakes that passed.
    pub fn opened(&self, server: &Server, seen: &Seen, passed: &Result<(Passed, WhatIfs), String>) -> Vec<String> {
        let mut lines = vec![self.bold(&format!("{}   {}", titled(server), used(seen)))];
        lines.extend(self.wrapped(&share(seen), &parts(seen)));
        lines.extend(reservations(seen));
        match passed {
            Ok((passed, what_ifs)) => lines.extend(passed.lines().into_iter().chain(what_ifs.lines())),
            Err(why) => lines.push(format!("its handshakes are not seen: {}", visible(why))),
        }
        lines
    }

    /// A server in a line: the share of TLS, and its largest part.
    pub fn line(&self, server: &Server, seen: &Seen) -> String {
        let largest = Part::ALL.into_iter().max_by_key(|part| seen.shares.counts.of(*part));
        let largest = largest.filter(|part| seen.shares.counts.of(*part) > 0 && seen.shares.tls().has_interval());
        let largest = largest.map(|part| format!(", {}", of_part(seen, part))).unwrap_or_default();
        format!("{}   {}   {}{largest}", self.bold(&titled(server)), used(seen), share(seen))
    }

    fn bold(&self, text: &str) -> String {
        if self.bold { format!("{BOLD}{text}{NORMAL}") } else { text.to_owned() }
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

/// Characters of a line, without what makes it bold.
fn visible_length(line: &str) -> usize {
    [BOLD, NORMAL].iter().fold(line.to_owned(), |line, code| line.replace(code, "")).chars().count()
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
    let used = seen.cpu_ns as f64 / (seen.elapsed.as_nanos() as f64).max(1.0);
    format!("{} of {}", format_short(used), format_of(seen.cpus_count as f64, "CPU"))
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
    let is_shown = |part: &Part| {
        let share = seen.shares.part(*part);
        share.has_interval() && share.value >= SHOWN
    };
    Part::ALL.into_iter().filter(is_shown).map(|part| of_part(seen, part)).collect()
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
    [lost, unknown, kernel].into_iter().flatten().collect()
}

/// The last line: what this program used itself.
pub fn own(cpu_ns: u64, elapsed: Duration) -> String {
    let percent = 100.0 * cpu_ns as f64 / (elapsed.as_nanos() as f64).max(1.0);
    format!("own use of tlsdyno: {percent:.2} % of one CPU")
}
