//! What a loop counts. Each loop has its own, written by it alone and read by whoever reports.

use std::sync::atomic::{AtomicU64, Ordering};

use super::limits::BACKENDS_MAX;

/// A count with one writer: no locked instruction.
#[derive(Debug, Default)]
pub struct Count(AtomicU64);

impl Count {
    /// Adds to the count; only its loop may.
    pub(super) fn add(&self, more: u64) {
        self.0.store(self.0.load(Ordering::Relaxed).wrapping_add(more), Ordering::Relaxed);
    }

    /// The count so far.
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

macro_rules! counters {
    ($(#[$about:meta])* $name:ident { $($(#[doc = $doc:literal])+ $field:ident,)+ }) => {
        $(#[$about])*
        #[derive(Debug, Default)]
        pub struct $name {
            $($(#[doc = $doc])+ pub $field: Count,)+
        }

        impl $name {
            /// Names, explanations and values, in the order of declaration.
            pub fn each(&self) -> impl Iterator<Item = (&'static str, &'static str, u64)> {
                [$((stringify!($field), concat!($($doc),+), self.$field.get())),+].into_iter()
            }
        }
    };
}

counters! {
    /// Counts of one loop. Bytes are bytes, all others numbers of connections unless said.
    LoopCounts {
        /// Connections accepted.
        accepted,
        /// Connections closed.
        closed,
        /// Handshakes in which a session was offered.
        sessions_offered,
        /// Offered sessions that the backend accepted.
        sessions_accepted,
        /// Offered sessions that the backend rejected: a full handshake took place.
        sessions_rejected,
        /// Those of the rejected sessions that went to the backend known to hold them: it had forgotten them, or
        /// changed its keys.
        sessions_refused_by_holder,
        /// Connections without a session, sent by load.
        routed_fresh,
        /// Connections sent to the backend that is known to hold the session.
        routed_known,
        /// Connections whose session nobody is known to hold, sent to a backend that has not rejected it.
        routed_tried,
        /// Connections whose session nobody can be known to hold, sent by load.
        routed_unknown,
        /// Connections whose session nobody is known to hold, sent to the backend that the address used last.
        routed_address,
        /// Connections sent to the backend that their object was sent to before.
        routed_object,
        /// Connections for an object that no backend is known for: sent to the one with the fewest connections.
        routed_new_object,
        /// Connections whose object was moved to the backend with the fewest connections, because the one it was sent
        /// to before is overloaded or down.
        routed_moved_object,
        /// Connections whose first request names no path within the limits (TLS, anything else, a line too long): sent
        /// to the backend with the fewest connections.
        routed_unkeyed,
        /// Hellos offering early data.
        hellos_early_data,
        /// Hellos with values without meaning (GREASE).
        hellos_grease,
        /// Hellos with an encrypted inner hello, or something that looks like it.
        hellos_encrypted,
        /// Connections that began with something else than TLS; sent by load.
        not_tls,
        /// Hellos that contradict themselves; sent by load.
        hellos_malformed,
        /// Hellos longer than the limit; sent by load.
        hellos_oversized,
        /// Connections refused because their address has too many.
        refused_address,
        /// Connections closed because the client did not send its hello, or its request line, in time.
        timed_out_hello,
        /// Connections closed because nothing moved for too long.
        timed_out_idle,
        /// Connections closed because no backend could be reached.
        no_backend,
        /// Times that another backend was tried, the first choice being unreachable.
        retried,
        /// Connections that ended by a reset of the client.
        reset_by_client,
        /// Connections that ended by a reset of the backend.
        reset_by_backend,
        /// Times that accepting paused because descriptors had run out.
        accept_pauses,
        /// Times that bytes were copied because there was no pipe to splice them through.
        pipes_missing,
        /// Bytes from clients to backends.
        bytes_up,
        /// Bytes from backends to clients.
        bytes_down,
    }
}

counters! {
    /// Counts of one loop about one backend.
    BackendCounts {
        /// Connections made to it.
        connections,
        /// Attempts to connect to it that failed.
        connect_failures,
        /// Connections that it reset.
        resets,
    }
}

/// All that one loop counts.
#[derive(Debug)]
#[repr(align(128))] // Loops do not share cache lines.
pub struct Counts {
    /// About the loop.
    pub all: LoopCounts,
    /// About each backend, by its slot.
    pub backends: [BackendCounts; BACKENDS_MAX],
}

impl Default for Counts {
    fn default() -> Counts {
        Counts { all: LoopCounts::default(), backends: std::array::from_fn(|_| BackendCounts::default()) }
    }
}
