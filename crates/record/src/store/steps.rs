//! What a block of handshakes step by step holds besides.

use serde::{Deserialize, Serialize};

/// Steps of the handshakes of a block: sums over its connections, of which `hits` says how many there were.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StepsBlock {
    /// Steps of the server, in the order in which they came first.
    pub server: Vec<StepSum>,
    /// Steps of the client, in the order in which they came first.
    pub client: Vec<StepSum>,
    /// Time of the server from its first call to the end of the handshake, nanoseconds.
    pub handshake_ns: u64,
    /// CPU time of the server's process in `handshake_ns`, nanoseconds.
    pub handshake_cpu_ns: u64,
    /// Bytes that the server sent from its first call to the end of the handshake.
    pub sent_bytes: u64,
    /// Bytes that the server received from its first call to the end of the handshake, what it read ahead of that end
    /// included.
    pub received_bytes: u64,
    /// Bytes that the client sent until the end of the handshake by its own count.
    pub client_sent_bytes: u64,
    /// Bytes that the client received until the end of the handshake by its own count.
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
    /// Name of the message, and what is done with it.
    pub name: String,
    /// How often the step came.
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
    /// Events of the client.
    pub client: Vec<FlowEvent>,
    /// Events of the server.
    pub server: Vec<FlowEvent>,
}

/// What was done from one moment to another.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FlowEvent {
    /// Name of what was done.
    pub name: String,
    /// Beginning, nanoseconds on the clock of the flow.
    pub from_ns: i64,
    /// End, nanoseconds on the clock of the flow.
    pub to_ns: i64,
    /// CPU time from beginning to end, nanoseconds.
    pub cpu_ns: u64,
    /// Bytes of the message, where that is known.
    pub bytes: u64,
}
