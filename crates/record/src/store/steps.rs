//! What a block of handshakes step by step holds besides.

use serde::{Deserialize, Serialize};

/// What a block of them holds besides: sums over its connections, of which `hits` says how many there were.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StepsBlock {
    /// The server's, in the order in which they came first.
    pub server: Vec<StepSum>,
    /// The client's.
    pub client: Vec<StepSum>,
    /// Server, from its first call to the end of the handshake: elapsed, nanoseconds.
    pub handshake_ns: u64,
    /// CPU time of the server's process meanwhile, nanoseconds.
    pub handshake_cpu_ns: u64,
    /// Bytes that the server sent meanwhile.
    pub sent_bytes: u64,
    /// Bytes that it received meanwhile, what it read ahead of the end included.
    pub received_bytes: u64,
    /// Bytes that the client sent and received until the end of the handshake by its own count.
    pub client_sent_bytes: u64,
    /// The same for what it received.
    pub client_received_bytes: u64,
    /// Connections of which the server's steps were lost, as the ring had no room.
    pub lost_count: u64,
    /// Events of the first connections.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub flows: Vec<Flow>,
}

/// A step over many connections.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StepSum {
    /// The message, and what is done with it.
    pub name: String,
    /// How often it came.
    pub count: u64,
    /// Elapsed time, waiting included, nanoseconds.
    pub elapsed_ns: u64,
    /// CPU time, nanoseconds.
    pub cpu_ns: u64,
    /// Bytes of the message, where that is known.
    pub bytes: u64,
}

/// One connection as a flow of events, on the clock of the client's first one.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Flow {
    /// The client's events.
    pub client: Vec<FlowEvent>,
    /// The server's.
    pub server: Vec<FlowEvent>,
}

/// What was done from one moment to another.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FlowEvent {
    /// What.
    pub name: String,
    /// Its beginning, nanoseconds.
    pub from_ns: i64,
    /// Its end.
    pub to_ns: i64,
    /// CPU time meanwhile, nanoseconds.
    pub cpu_ns: u64,
    /// Bytes of the message, where that is known.
    pub bytes: u64,
}
