//! Health checks: whether backends take connections, or answer a TLS hello. Decisions are in [`Verdict`]; the rest
//! carries them out.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::atomic::Ordering::Relaxed;

use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags};
use tlsdyno_wire::codec::{put_u16, put_vector8, put_vector16};
use tlsdyno_wire::hello::{self, Template};
use tlsdyno_wire::{proxy_protocol, record};

use super::limits::BACKENDS_MAX;
use super::run::open;
use super::settings::{Check, CheckKind, ProxyHeader};
use super::shared::{Phase, Shared, Slot, SlotBackend};
use crate::reactor::{Interest, Reactor};

const WAKE: u64 = u64::MAX;

/// What is known of one backend from its checks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Verdict {
    successes: u32,
    failures: u32,
}

impl Verdict {
    /// Takes a result; answers whether the backend is down now, given whether it was.
    pub fn take(&mut self, ok: bool, was_down: bool, check: &Check) -> bool {
        if ok {
            (self.successes, self.failures) = (self.successes.saturating_add(1), 0);
            was_down && self.successes < check.rise
        } else {
            (self.successes, self.failures) = (0, self.failures.saturating_add(1));
            was_down || self.failures >= check.fall
        }
    }
}

struct Probe {
    socket: OwnedFd,
    deadline_ns: u64,
    asked: bool,
}

#[derive(Default)]
struct Patient {
    verdict: Verdict,
    next_ns: u64,
    probe: Option<Probe>,
    /// Tells its probes' events from those of earlier ones.
    number: u32,
}

/// The checks of a dispatcher, with everything that they need to start.
pub struct Checks<'s> {
    shared: &'s Shared,
    reactor: Reactor,
    patients: [Patient; BACKENDS_MAX],
    /// Watched: a descriptor that is closed would wake nobody.
    _wake: OwnedFd,
}

impl Checks<'_> {
    /// Whatever becomes readable on `wake` makes them look at the phase and at new settings; the bytes are left there.
    pub fn new(shared: &Shared, wake: OwnedFd) -> io::Result<Checks<'_>> {
        let reactor = Reactor::new(BACKENDS_MAX)?;
        reactor.add(&wake, WAKE, Interest::EdgeRead)?;
        Ok(Checks { shared, reactor, patients: std::array::from_fn(|_| Patient::default()), _wake: wake })
    }

    /// Checks the backends until the dispatcher ends.
    pub fn run(mut self) -> io::Result<()> {
        while self.shared.phase() == Phase::Run {
            self.turn(tlsdyno_sys::monotonic_ns())?;
        }
        Ok(())
    }

    /// One look at all backends, and what comes of it until the next is due.
    fn turn(&mut self, now_ns: u64) -> io::Result<()> {
        let Checks { shared, reactor, patients, .. } = self;
        let (snapshot, _) = shared.snapshot();
        let settings = &snapshot.settings;
        let mut wait_ns = 3_600_000_000_000;
        for target in &snapshot.targets {
            let patient = &mut patients[usize::from(target.slot)];
            let slot = &shared.slots[usize::from(target.slot)];
            let due_ns = attend(patient, target, slot, reactor, &settings.check, settings.proxy_header, now_ns);
            wait_ns = wait_ns.min(due_ns.saturating_sub(now_ns));
        }
        // A backend that was removed is not checked any more.
        for (number, patient) in patients.iter_mut().enumerate() {
            if !snapshot.targets.iter().any(|target| usize::from(target.slot) == number) {
                *patient = Patient { number: patient.number, ..Patient::default() };
            }
        }
        for index in 0..reactor.wait(wait_ns)? {
            let event = reactor.event(index);
            if event.token == WAKE {
                continue;
            }
            let (number, probe) = (event.token as u32 as usize, (event.token >> 32) as u32);
            let patient = &mut patients[number];
            if patient.number == probe
                && let Some(ok) = listen(patient, &settings.check, settings.proxy_header)
            {
                finish(patient, &shared.slots[number], ok, &settings.check);
            }
        }
        Ok(())
    }
}

/// Starts a check that is due, or ends one that takes too long; answers when to look again.
fn attend(
    patient: &mut Patient,
    target: &SlotBackend,
    slot: &Slot,
    reactor: &Reactor,
    check: &Check,
    header: ProxyHeader,
    now_ns: u64,
) -> u64 {
    if let Some(probe) = &patient.probe {
        if now_ns < probe.deadline_ns {
            return probe.deadline_ns;
        }
        finish(patient, slot, false, check);
    }
    if now_ns < patient.next_ns {
        return patient.next_ns;
    }
    patient.next_ns = now_ns + check.interval.ns();
    // Without checks, only those that could not be reached are looked at, so that they come back.
    if check.kind == CheckKind::None && !slot.down.load(Relaxed) {
        return patient.next_ns;
    }
    // Without a descriptor nothing is learned about the backend.
    let Ok(socket) = open(target.backend.address) else { return patient.next_ns };
    let connecting = rustix::net::connect(&socket, &target.backend.address);
    if !matches!(connecting, Ok(()) | Err(Errno::INPROGRESS | Errno::INTR)) {
        finish(patient, slot, false, check);
        return patient.next_ns;
    }
    patient.number = patient.number.wrapping_add(1) & (u32::MAX >> 1);
    let token = u64::from(patient.number) << 32 | u64::from(target.slot);
    if reactor.add(&socket, token, Interest::EdgeReadWrite).is_ok() {
        patient.probe = Some(Probe { socket, deadline_ns: now_ns + check.timeout.ns(), asked: false });
        if let Some(ok) = listen(patient, check, header) {
            finish(patient, slot, ok, check);
        }
    }
    patient.next_ns.min(now_ns + check.timeout.ns())
}

/// Goes on with a check; answers its result once there is one.
fn listen(patient: &mut Patient, check: &Check, header: ProxyHeader) -> Option<bool> {
    let probe = patient.probe.as_mut()?;
    if !probe.asked {
        match rustix::net::sockopt::socket_error(&probe.socket) {
            Ok(Ok(())) => {}
            _ => return Some(false),
        }
        match rustix::net::send(&probe.socket, &question(check.kind, header), SendFlags::NOSIGNAL) {
            Ok(_) => probe.asked = true,
            Err(Errno::AGAIN | Errno::NOTCONN) => return None,
            Err(_) => return Some(false),
        }
        if check.kind != CheckKind::Hello {
            return Some(true);
        }
    }
    let mut answer = [0; record::HEADER];
    match rustix::net::recv(&probe.socket, &mut answer[..], RecvFlags::empty()) {
        // Whatever it thinks of the hello: it speaks TLS.
        Ok((1.., _)) => Some(matches!(answer[0], record::HANDSHAKE | record::ALERT)),
        Err(Errno::AGAIN | Errno::INTR) => None,
        _ => Some(false),
    }
}

fn finish(patient: &mut Patient, slot: &Slot, ok: bool, check: &Check) {
    if let Some(probe) = patient.probe.take() {
        // Nobody waits for what is left of the handshake.
        let _ = rustix::net::sockopt::set_socket_linger(&probe.socket, Some(std::time::Duration::ZERO));
    }
    let down = patient.verdict.take(ok, slot.down.load(Relaxed), check);
    slot.down.store(down, Relaxed);
    if ok {
        slot.failures_in_a_row.store(0, Relaxed);
    }
}

/// What a check sends. A check that only connects sends a header at most: a server that expects one would otherwise log
/// an error each time.
fn question(kind: CheckKind, header: ProxyHeader) -> Vec<u8> {
    let mut out = Vec::new();
    match header {
        ProxyHeader::None => {}
        ProxyHeader::V1 => proxy_protocol::put_v1_own(&mut out),
        ProxyHeader::V2 => proxy_protocol::put_v2_own(&mut out),
    }
    if kind == CheckKind::Hello {
        put_hello(&mut out);
    }
    out
}

/// A hello without a key share: the cheapest answer, a HelloRetryRequest, shows as much as any (RFC 9846 section
/// 4.2.8).
fn put_hello(out: &mut Vec<u8>) {
    let template = Template::new(&[0x1301, 0x1302, 0x1303, 0xc02b, 0xc02f, 0xc02c, 0xc030, 0x002f], |out| {
        hello::put_extension(out, hello::SUPPORTED_VERSIONS, |out| {
            put_vector8(out, |out| [hello::TLS13, hello::TLS12].iter().for_each(|version| put_u16(out, *version)));
        });
        hello::put_extension(out, hello::SUPPORTED_GROUPS, |out| {
            put_vector16(out, |out| [29, 23, 24].iter().for_each(|group| put_u16(out, *group)));
        });
        hello::put_extension(out, hello::SIGNATURE_ALGORITHMS, |out| {
            put_vector16(out, |out| {
                [0x0403, 0x0503, 0x0804, 0x0807, 0x0401].iter().for_each(|scheme| put_u16(out, *scheme))
            });
        });
        hello::put_extension(out, hello::KEY_SHARE, |out| put_vector16(out, |_| {}));
    });
    template.write(out, 0x0301, &[0; 32], &[]).finish();
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};

    use super::*;
    use tlsdyno_wire::session_keys::ClientReader;

    #[test]
    fn a_backend_falls_and_rises_only_after_several_results() {
        let check = Check { rise: 2, fall: 3, ..Check::default() };
        let (mut verdict, mut down) = (Verdict::default(), false);
        let results = [false, false, true, false, false, false, true, false, true, true];
        let down = results.map(|ok| {
            down = verdict.take(ok, down, &check);
            down
        });
        assert_eq!(down, [false, false, false, false, false, true, true, true, true, false]);
    }

    /// Time passes by itself here: each look is at the moment that the last one named.
    #[test]
    fn a_silent_backend_falls_at_its_third_time_out_and_rises_at_its_second_answer() {
        const SECOND_NS: u64 = 1_000_000_000;
        // The kernel takes connections; nobody answers.
        let backend = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        backend.set_nonblocking(true).unwrap();
        let address = backend.local_addr().unwrap();
        let target = SlotBackend { slot: 0, backend: super::super::Backend { name: String::new(), address } };
        let check = Check { kind: CheckKind::Hello, ..Check::default() };
        let (slot, mut patient, reactor) = (Slot::default(), Patient::default(), Reactor::new(8).unwrap());
        let mut now_ns = 0;
        let mut look = |patient: &mut Patient, slot: &Slot| {
            let seen_s = now_ns / SECOND_NS;
            now_ns = attend(patient, &target, slot, &reactor, &check, ProxyHeader::None, now_ns);
            (seen_s, slot.down.load(Relaxed))
        };
        let states: [(u64, bool); 6] = std::array::from_fn(|_| look(&mut patient, &slot));
        assert_eq!(states, [(0, false), (1, false), (2, false), (3, false), (4, false), (5, true)]);
        // Those that have timed out wait in the queue, and have ended.
        for is_down in [true, false] {
            while patient.probe.is_none() {
                look(&mut patient, &slot);
            }
            let answered = std::iter::from_fn(|| backend.accept().ok()).any(|(mut stream, _)| {
                stream.set_read_timeout(Some(std::time::Duration::from_secs(10))).unwrap();
                let asked = stream.read(&mut [0; 512]).is_ok_and(|count| count > 0);
                asked && stream.write_all(b"\x15\x03\x03\x00\x02\x02\x28").is_ok()
            });
            assert!(answered, "the check asks");
            let ok = listen(&mut patient, &check, ProxyHeader::None);
            assert_eq!(ok, Some(true));
            finish(&mut patient, &slot, true, &check);
            assert_eq!(slot.down.load(Relaxed), is_down);
        }
    }

    #[test]
    fn the_hello_of_a_check_is_one() {
        let hello = question(CheckKind::Hello, ProxyHeader::None);
        assert!(matches!(ClientReader::new(1000).read(&hello), Ok(Some(_))));
        assert!(question(CheckKind::Tcp, ProxyHeader::V1).starts_with(b"PROXY"));
    }
}
