//! The program by which the kernel chooses packets: classic BPF, without a compiler.
//!
//! It lets pass what opens and closes connections to some ports of this machine, what clients send, and what a server
//! sends that begins like a record of a handshake, an alert or a ChangeCipherSpec. So neither acknowledgements nor
//! answers are copied.

use libc::sock_filter;

use tlsdyno_wire::record;

use crate::packet::{DESTINATION, FIN, FRAGMENT, HOP_BY_HOP, ROUTING, RST, SYN, TCP, UDP};

/// Most ports: jumps of the program reach over 255 instructions.
pub const MOST_PORTS: usize = 64;
/// Most clients of which one can be followed.
pub const MOST_SAMPLED: u32 = 1 << 16;
/// Bytes that are kept of a packet: of one that may be a hello, of others of clients, of a server, and of UDP.
const OF_HELLO: u32 = 18_000;
const OF_CLIENT: u32 = 4096;
const OF_SERVER: u32 = 2048;
const OF_DATAGRAM: u32 = 64;

/// Instructions of linux/bpf_common.h and linux/filter.h.
const LOAD_WORD: u16 = 0x20;
const LOAD_HALF: u16 = 0x28;
const LOAD_BYTE: u16 = 0x30;
/// The same behind X.
const LOAD_HALF_X: u16 = 0x48;
const LOAD_BYTE_X: u16 = 0x50;
const LOAD_KEPT: u16 = 0x60;
const KEEP: u16 = 0x02;
const KEEP_X: u16 = 0x03;
const SET_X: u16 = 0x01;
const LOAD_KEPT_X: u16 = 0x61;
/// Bytes of a header of IPv4, to X.
const HEADER_TO_X: u16 = 0xb1;
const TO_X: u16 = 0x07;
const ADD: u16 = 0x04;
const ADD_X: u16 = 0x0c;
const MULTIPLY: u16 = 0x24;
const AND: u16 = 0x54;
const SHIFT_RIGHT: u16 = 0x74;
const XOR_X: u16 = 0xac;
const JUMP: u16 = 0x05;
const IF_EQUAL: u16 = 0x15;
const IF_GREATER: u16 = 0x25;
const IF_GREATER_X: u16 = 0x2d;
const IF_AT_LEAST: u16 = 0x35;
const IF_ANY: u16 = 0x45;
const RETURN: u16 = 0x06;

/// What the kernel knows of a packet beside its bytes (`SKF_AD_OFF`).
const PROTOCOL: u32 = -0x1000_i32 as u32;
const DIRECTION: u32 = PROTOCOL + 4;
const HARDWARE: u32 = PROTOCOL + 28;
const LOOPBACK: u32 = 772;
const OUTGOING: u32 = 4;

/// What is kept for later: the length that IP says, its addresses' last four bytes, the protocol, X.
const TOTAL: u32 = 0;
const SOURCE: u32 = 1;
const TARGET: u32 = 2;
const CARRIED: u32 = 3;
const SAVED_X: u32 = 4;

const OPENS_OR_CLOSES: u32 = (FIN | SYN | RST) as u32;
/// Odd numbers that spread their products over all bits.
const MIXES_PORT: u32 = 0x9e37_79b1;
const MIXES_BOTH: u32 = 0x85eb_ca6b;

/// Places in the program.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Label {
    Next,
    AnyInterface,
    Version4,
    Version6,
    Ports,
    Client,
    Server,
    ServerHere,
    TakeHello,
    TakeClient,
    TakeServer,
    TakeDatagram,
    Drop,
}

#[derive(Clone, Copy, Debug)]
enum Line {
    Do(u16, u32),
    /// A comparison, and where the program goes on if it holds, and if not.
    If(u16, u32, Label, Label),
    Go(Label),
    At(Label),
}

use Label::{Drop, Next};
use Line::{At, Do, Go, If};

/// The program for these ports. `one_in`: of so many clients, by address and port, one passes; a power of two.
pub fn program(ports: &[u16], one_in: u32) -> Vec<sock_filter> {
    let mut lines = headers();
    let is_one = |to: Label| ports.iter().map(move |port| If(IF_EQUAL, u32::from(*port), to, Next));
    lines.extend([At(Label::Ports), Do(LOAD_HALF_X, 2)]);
    lines.extend(is_one(Label::Client));
    lines.push(Do(LOAD_HALF_X, 0));
    lines.extend(is_one(Label::Server));
    lines.push(Go(Drop));
    // What goes out to such a port is of a client on this machine, whose server is another one; or it is forwarded.
    lines.extend([At(Label::Client), Do(LOAD_WORD, DIRECTION), If(IF_EQUAL, OUTGOING, Drop, Next)]);
    lines.extend(sample(0, SOURCE, one_in));
    lines.extend([Do(LOAD_KEPT, CARRIED), If(IF_EQUAL, UDP.into(), Label::TakeDatagram, Next)]);
    lines.extend([Do(LOAD_BYTE_X, 13), If(IF_ANY, OPENS_OR_CLOSES, Label::TakeClient, Next)]);
    lines.extend(payload_to_x());
    lines.extend([
        Do(LOAD_KEPT, TOTAL),
        // What is too long for the length of IP.
        If(IF_EQUAL, 0, Label::TakeClient, Next),
        If(IF_GREATER_X, 0, Next, Drop),
        Do(LOAD_BYTE_X, 0),
        If(IF_EQUAL, record::HANDSHAKE.into(), Label::TakeHello, Label::TakeClient),
        At(Label::Server),
        Do(LOAD_WORD, HARDWARE),
        If(IF_EQUAL, LOOPBACK, Label::ServerHere, Next),
        Do(LOAD_WORD, DIRECTION),
        If(IF_EQUAL, OUTGOING, Next, Drop),
        At(Label::ServerHere),
    ]);
    lines.extend(sample(2, TARGET, one_in));
    lines.extend([
        Do(LOAD_KEPT, CARRIED),
        If(IF_EQUAL, UDP.into(), Drop, Next),
        Do(LOAD_BYTE_X, 13),
        If(IF_ANY, OPENS_OR_CLOSES, Label::TakeServer, Next),
    ]);
    lines.extend(payload_to_x());
    lines.extend([
        // A packet without this byte is dropped.
        Do(LOAD_BYTE_X, 0),
        If(IF_AT_LEAST, record::CHANGE_CIPHER_SPEC.into(), Next, Drop),
        If(IF_GREATER, record::HANDSHAKE.into(), Drop, Next),
        Do(LOAD_BYTE_X, 1),
        If(IF_EQUAL, 3, Next, Drop),
        Do(LOAD_BYTE_X, 2),
        If(IF_GREATER, 4, Drop, Label::TakeServer),
    ]);
    let ends = [
        (Label::TakeHello, OF_HELLO),
        (Label::TakeClient, OF_CLIENT),
        (Label::TakeServer, OF_SERVER),
        (Label::TakeDatagram, OF_DATAGRAM),
        (Drop, 0),
    ];
    lines.extend(ends.into_iter().flat_map(|(label, bytes)| [At(label), Do(RETURN, bytes)]));
    assemble(&lines)
}

/// Keeps what IP says, and has X be where TCP or UDP begins.
fn headers() -> Vec<Line> {
    let keep_addresses =
        |source, target| [Do(LOAD_WORD, source), Do(KEEP, SOURCE), Do(LOAD_WORD, target), Do(KEEP, TARGET)];
    let mut lines = vec![
        // Loopback shows each packet twice: when it goes out, and when it comes in.
        Do(LOAD_WORD, HARDWARE),
        If(IF_EQUAL, LOOPBACK, Next, Label::AnyInterface),
        Do(LOAD_WORD, DIRECTION),
        If(IF_EQUAL, OUTGOING, Drop, Next),
        At(Label::AnyInterface),
        Do(LOAD_WORD, PROTOCOL),
        If(IF_EQUAL, libc::ETH_P_IP as u32, Label::Version4, Next),
        If(IF_EQUAL, libc::ETH_P_IPV6 as u32, Label::Version6, Drop),
        At(Label::Version4),
        // Later fragments.
        Do(LOAD_HALF, 6),
        If(IF_ANY, 0x1fff, Drop, Next),
        Do(LOAD_HALF, 2),
        Do(KEEP, TOTAL),
    ];
    lines.extend(keep_addresses(12, 16));
    lines.extend([
        Do(HEADER_TO_X, 0),
        Do(LOAD_BYTE, 9),
        Do(KEEP, CARRIED),
        If(IF_EQUAL, UDP.into(), Label::Ports, Next),
        If(IF_EQUAL, TCP.into(), Label::Ports, Drop),
        At(Label::Version6),
        Do(LOAD_HALF, 4),
        Do(ADD, 40),
        Do(KEEP, TOTAL),
    ]);
    lines.extend(keep_addresses(20, 36));
    lines.extend([Do(SET_X, 40), Do(LOAD_BYTE, 6), Do(KEEP, CARRIED)]);
    // What stands behind other headers is found by who reads the packet.
    let others = [HOP_BY_HOP, ROUTING, FRAGMENT, DESTINATION];
    lines.extend(others.map(|header| If(IF_EQUAL, header.into(), Label::TakeClient, Next)));
    lines.extend([If(IF_EQUAL, UDP.into(), Label::Ports, Next), If(IF_EQUAL, TCP.into(), Label::Ports, Drop)]);
    lines
}

/// Drops all clients but one in so many. `port`: where the client's port stands behind X.
fn sample(port: u32, address: u32, one_in: u32) -> Vec<Line> {
    if one_in <= 1 {
        return Vec::new();
    }
    vec![
        Do(KEEP_X, SAVED_X),
        Do(LOAD_HALF_X, port),
        Do(MULTIPLY, MIXES_PORT),
        Do(TO_X, 0),
        Do(LOAD_KEPT, address),
        Do(XOR_X, 0),
        Do(MULTIPLY, MIXES_BOTH),
        Do(SHIFT_RIGHT, 16),
        Do(LOAD_KEPT_X, SAVED_X),
        If(IF_ANY, one_in - 1, Drop, Next),
    ]
}

/// Has X be where the payload of TCP begins.
fn payload_to_x() -> [Line; 5] {
    [Do(LOAD_BYTE_X, 12), Do(SHIFT_RIGHT, 2), Do(AND, 0x3c), Do(ADD_X, 0), Do(TO_X, 0)]
}

fn assemble(lines: &[Line]) -> Vec<sock_filter> {
    let mut labels = Vec::new();
    let mut count = 0;
    for line in lines {
        match line {
            At(label) => labels.push((*label, count)),
            _ => count += 1,
        }
    }
    let mut program = Vec::with_capacity(count);
    for line in lines {
        let here = program.len() + 1;
        let to = |label: Label| {
            labels.iter().find(|(other, _)| *other == label).map_or(0, |(_, at)| at.saturating_sub(here))
        };
        // With at most `MOST_PORTS` no jump is longer than a byte says.
        let short = |label| u8::try_from(to(label)).unwrap_or(u8::MAX);
        program.extend(match *line {
            Do(code, k) => Some(sock_filter { code, jt: 0, jf: 0, k }),
            Go(label) => Some(sock_filter { code: JUMP, jt: 0, jf: 0, k: to(label) as u32 }),
            If(code, k, yes, no) => Some(sock_filter { code, jt: short(yes), jf: short(no), k }),
            At(_) => None,
        });
    }
    program
}
