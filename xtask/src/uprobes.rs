//! `uprobes`: what a tool that times calls of `SSL_do_handshake` by uprobes tells of the handshakes of a server, for
//! docs/PROFILE.md. Servers that never block call it several times for a handshake; all but the last return -1.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};
use object::{Object as _, ObjectSegment as _, ObjectSymbol as _};

use crate::tlsdyno;

/// Where the kernel lets events be defined, and where those of this program go.
const TRACING: &str = "/sys/kernel/tracing";
const INSTANCE: &str = "/sys/kernel/tracing/instances/tlsdyno";
const GROUP: &str = "tlsdyno";
/// Memory for the events of each CPU.
const BUFFER_KIB: &str = "65536";
const FUNCTION: &str = "SSL_do_handshake";

/// Which servers, and for how long.
#[derive(clap::Args)]
pub struct Arguments {
    /// Servers, one after the other
    #[arg(long, value_name = "NAMES", value_delimiter = ',', default_value = "nginx,haproxy,lighttpd,apache")]
    servers: Vec<String>,
    /// How long each is measured with the events, and as long without, in seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 5)]
    seconds: u32,
    /// The library whose calls are timed
    #[arg(long, value_name = "FILE", default_value = "/usr/lib/x86_64-linux-gnu/libssl.so.3")]
    library: PathBuf,
}

/// An event: a call begins, or ends with what it returned.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Event {
    Enter { connection: u64 },
    Leave { returned: i64 },
}

/// All handshakes of one server.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Seen {
    handshakes: u64,
    calls: u64,
    /// In the calls that returned 1: what a tool tells that takes the others for failures.
    in_last_us: f64,
    /// In all calls of handshakes that came to their end.
    in_all_us: f64,
    /// From the first call to the end of the last, with what the server did and waited for between them.
    elapsed_us: f64,
}

/// Measures the servers and prints a Markdown table.
///
/// # Errors
/// Not root, no such library, a server fails, or the kernel knows no uprobes.
pub fn run(arguments: &Arguments) -> Result<()> {
    let program = tlsdyno::build()?;
    let offset = offset_of(&arguments.library)?;
    println!(
        "| server | calls per handshake | in the call that returned 1 | in all calls | from first to last | server CPU \
         per hit: with the events, without |\n|---|---:|---:|---:|---:|---:|"
    );
    for server in &arguments.servers {
        let place = tempfile::tempdir()?;
        let without_ns = cpu_per_hit_ns(&program, place.path(), server, arguments.seconds)?;
        let events = Events::define(&arguments.library, offset)?;
        let with_ns = cpu_per_hit_ns(&program, place.path(), server, arguments.seconds)?;
        let seen = seen(&events.read()?);
        drop(events);
        let cpu = format!("{:.0} µs, {:.0} µs", with_ns / 1e3, without_ns / 1e3);
        if seen.handshakes == 0 {
            // It drives its handshakes by another function, such as SSL_read.
            println!("| {server} | 0 | nothing | nothing | nothing | {cpu} |");
            continue;
        }
        let each = |us: f64| us / seen.handshakes as f64;
        println!(
            "| {server} | {:.2} | {:.0} µs | {:.0} µs | {:.0} µs | {cpu} |",
            each(seen.calls as f64),
            each(seen.in_last_us),
            each(seen.in_all_us),
            each(seen.elapsed_us),
        );
    }
    Ok(())
}

/// CPU time per hit of the untouched server, nanoseconds; each hit has a connection with a full handshake.
fn cpu_per_hit_ns(program: &Path, place: &Path, server: &str, seconds: u32) -> Result<f64> {
    let experiment = format!(
        "question = \"What does a connection take?\"\n[server]\nkind = \"{server}\"\n[tls]\ncertificate = \"p-256\"\n\
         [workload]\nkind = \"url\"\npath = \"/object\"\nbytes = 1024\nusers = 20000\nrequests_per_user = 1\n\
         [load]\nreuse_percent = 0.0\nrequests_per_connection = 1\n[measure]\ntime_s = {seconds}.0\nslice_us = 0\n\
         [[configuration]]\nname = \"as is\"\n"
    );
    let file = place.join("experiment.toml");
    fs::write(&file, experiment)?;
    let mut command = Command::new(program);
    command.args(["run", "--no-report", "--json"]).arg(&file).env("TLSDYNO_STORE", place.join("store.sqlite"));
    let report = tlsdyno::json(&mut command)?;
    let costs = &report["configurations"][0];
    costs["server_cpu_ns_per_hit"]["value"]
        .as_f64()
        .with_context(|| format!("{server}: no CPU time per hit in {costs}"))
}

/// Where in its file the function begins, which is how the kernel wants it named.
fn offset_of(library: &Path) -> Result<u64> {
    let bytes =
        fs::read(library).with_context(|| format!("read {}; name another file with --library", library.display()))?;
    let file = object::File::parse(&*bytes)?;
    let symbol = file.dynamic_symbols().find(|symbol| symbol.name() == Ok(FUNCTION));
    let address = symbol.with_context(|| format!("{} has no {FUNCTION}", library.display()))?.address();
    let segment =
        file.segments().find(|segment| (segment.address()..segment.address() + segment.size()).contains(&address));
    let segment = segment.context("the function is in no segment")?;
    Ok(address - segment.address() + segment.file_range().0)
}

/// Two events in an instance of the kernel's buffers that is ours; both are gone when this is dropped.
struct Events;

impl Events {
    fn define(library: &Path, offset: u64) -> Result<Events> {
        remove();
        let place = format!("{}:{offset:#x}", library.canonicalize()?.display());
        let defined = || -> Result<()> {
            append(&format!("p:{GROUP}/enter {place} connection=%di"))?;
            append(&format!("r:{GROUP}/leave {place} returned=$retval:s32"))?;
            if !Path::new(INSTANCE).is_dir() {
                fs::create_dir(INSTANCE)?;
            }
            for (file, value) in [("trace_clock", "mono"), ("buffer_size_kb", BUFFER_KIB), ("trace", "")] {
                fs::write(Path::new(INSTANCE).join(file), value)?;
            }
            Ok(fs::write(Path::new(INSTANCE).join(format!("events/{GROUP}/enable")), "1")?)
        };
        let events = Events;
        defined()
            .with_context(|| format!("define uprobes in {TRACING}: root and a kernel with CONFIG_UPROBE_EVENTS"))?;
        Ok(events)
    }

    fn read(&self) -> Result<String> {
        Ok(fs::read_to_string(Path::new(INSTANCE).join("trace"))?)
    }
}

impl Drop for Events {
    fn drop(&mut self) {
        remove();
    }
}

/// Takes the events away, also those that a run left behind which was killed.
fn remove() {
    let _ = fs::write(Path::new(INSTANCE).join(format!("events/{GROUP}/enable")), "0");
    let _ = fs::remove_dir(INSTANCE);
    for event in ["enter", "leave"] {
        let _ = append(&format!("-:{GROUP}/{event}"));
    }
}

fn append(line: &str) -> Result<()> {
    use std::io::Write as _;
    let mut file = fs::OpenOptions::new().append(true).open(Path::new(TRACING).join("uprobe_events"))?;
    Ok(file.write_all(line.as_bytes())?)
}

/// Thread, moment in microseconds, and event of a line such as `nginx-12 [000] ..... 3.000001: enter: (0x7f)
/// connection=0x5`.
fn event(line: &str) -> Option<(u32, f64, Event)> {
    let (head, tail) = line.split_once(": ")?;
    let seconds: f64 = head.rsplit(' ').next()?.parse().ok()?;
    let thread = head.split('[').next()?.trim_end().rsplit('-').next()?.parse().ok()?;
    let event = if tail.starts_with("enter:") {
        let connection = u64::from_str_radix(tail.rsplit("connection=0x").next()?.trim(), 16).ok()?;
        Event::Enter { connection }
    } else {
        Event::Leave { returned: tail.rsplit("returned=").next()?.trim().parse().ok()? }
    };
    Some((thread, seconds * 1e6, event))
}

/// What the calls of all handshakes that came to their end took.
fn seen(trace: &str) -> Seen {
    let mut all = Seen::default();
    let mut under_way: BTreeMap<u32, (u64, f64)> = BTreeMap::new();
    // Of each connection: calls so far, time in them, and when the first began.
    let mut open: BTreeMap<u64, (u64, f64, f64)> = BTreeMap::new();
    for (thread, at_us, event) in trace.lines().filter_map(event) {
        match event {
            Event::Enter { connection } => {
                under_way.insert(thread, (connection, at_us));
            }
            Event::Leave { returned } => {
                let Some((connection, began_us)) = under_way.remove(&thread) else { continue };
                let (calls, in_calls_us, first_us) = open.remove(&connection).unwrap_or((0, 0.0, began_us));
                let (calls, in_calls_us) = (calls + 1, in_calls_us + at_us - began_us);
                if returned == 1 {
                    all.handshakes += 1;
                    all.calls += calls;
                    all.in_last_us += at_us - began_us;
                    all.in_all_us += in_calls_us;
                    all.elapsed_us += at_us - first_us;
                } else {
                    open.insert(connection, (calls, in_calls_us, first_us));
                }
            }
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_are_put_together_by_connection() {
        let trace = "\
# tracer: nop
           nginx-12      [000] DNZff 10.000000: enter: (0x7f01) connection=0x5
           nginx-12      [000] DNZff 10.000300: leave: (0x55 <- 0x7f01) returned=-1
 a name with-13      [001] DNZff 10.000310: enter: (0x7f01) connection=0x6
           nginx-12      [000] DNZff 10.000400: enter: (0x7f01) connection=0x5
 a name with-13      [001] DNZff 10.000410: leave: (0x55 <- 0x7f01) returned=-1
           nginx-12      [000] DNZff 10.000440: leave: (0x55 <- 0x7f01) returned=1
";
        let seen = seen(trace);
        assert_eq!((seen.handshakes, seen.calls), (1, 2));
        let near = |found: f64, wanted: f64| (found - wanted).abs() < 0.01;
        assert!(near(seen.in_last_us, 40.0) && near(seen.in_all_us, 340.0) && near(seen.elapsed_us, 440.0), "{seen:?}");
        assert_eq!(event("CPU:0 [LOST 12 EVENTS]"), None);
    }
}
