//! The steps of libssl's state machine by the names of their messages.
//!
//! libssl tells of a step when it is about to leave its state: having written a message, or having read the header of
//! the next one. So the time since the step before is what the message of that state took; where the state is the same
//! as before, the server waited for the client's next flight.

use tlsdyno_native::{Step, TimeStamp};
use tlsdyno_record::store::FlowEvent;

/// Name of the time in which the server waits for bytes and reads them.
const WAITING: &str = "wait and read";
/// End of the last step.
const END: &str = "end";
/// `OSSL_HANDSHAKE_STATE` in openssl/ssl.h of OpenSSL 3.0; those of a TLS server. The shim tells the states of later
/// series by these numbers.
const STATES: [(u16, &str); 24] = [
    (0, WAITING),
    (1, END),
    (19, "HelloRequest"),
    (20, "ClientHello"),
    (22, "ServerHello"),
    (23, "Certificate"),
    (24, "ServerKeyExchange"),
    (25, "CertificateRequest"),
    (26, "ServerHelloDone"),
    (27, "client's Certificate"),
    (28, "ClientKeyExchange"),
    (29, "client's CertificateVerify"),
    (31, "client's change_cipher_spec"),
    (32, "client's Finished"),
    (TICKET, "NewSessionTicket"),
    (34, "CertificateStatus"),
    (35, "change_cipher_spec"),
    (36, "Finished"),
    (37, "EncryptedExtensions"),
    (40, "CertificateVerify"),
    (42, "KeyUpdate"),
    (44, "client's KeyUpdate"),
    (46, "flight sent"),
    (49, "EndOfEarlyData"),
];
/// TLS 1.3 sends two of them, one after the other.
const TICKET: u16 = 33;

/// From the server's first call to the end of the handshake, on the clock of the machine.
pub(super) fn events(stamp: &TimeStamp) -> Vec<FlowEvent> {
    let end = Step { state: 1, after_ns: (stamp.end_ns - stamp.start_ns) as u32, cpu_ns: stamp.cpu_ns };
    let mut before = Step { state: 0, after_ns: 0, cpu_ns: 0 };
    let mut events = Vec::new();
    for step in stamp.steps.iter().copied().chain([end]) {
        let waited = step.state == before.state && step.state != TICKET;
        let known = STATES.iter().find(|(state, _)| *state == step.state);
        let name = if waited { WAITING } else { known.map_or("another state", |(_, name)| *name) };
        events.push(FlowEvent {
            name: name.to_owned(),
            from_ns: (stamp.start_ns + u64::from(before.after_ns)) as i64,
            to_ns: (stamp.start_ns + u64::from(step.after_ns)) as i64,
            cpu_ns: u64::from(step.cpu_ns.saturating_sub(before.cpu_ns)),
            bytes: 0,
        });
        before = step;
    }
    events
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_have_the_time_since_the_step_before() {
        let step = |state, after_ns, cpu_ns| Step { state, after_ns, cpu_ns };
        let stamp = TimeStamp {
            number: 1,
            kind: "full_handshakes",
            pid: 1,
            calls: 2,
            start_ns: 1_000,
            end_ns: 1_900,
            bytes_received: 1,
            bytes_sent: 1,
            cpu_ns: 500,
            steps: vec![
                step(0, 10, 5),
                step(20, 60, 50),
                step(46, 100, 90),
                step(46, 700, 95),
                step(33, 750, 140),
                step(33, 800, 180),
            ],
        };
        let events = events(&stamp);
        let names: Vec<&str> = events.iter().map(|event| event.name.as_str()).collect();
        let expected = [
            "wait and read",
            "ClientHello",
            "flight sent",
            "wait and read",
            "NewSessionTicket",
            "NewSessionTicket",
            "end",
        ];
        assert_eq!(names, expected);
        assert_eq!((events[1].from_ns, events[1].to_ns, events[1].cpu_ns), (1_010, 1_060, 45));
        assert_eq!(events.iter().map(|event| event.cpu_ns).sum::<u64>(), 500, "the parts are the whole");
    }
}
