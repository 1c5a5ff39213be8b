#![no_main]

#[path = "../src/dispatch/mod.rs"]
#[allow(dead_code)]
mod dispatch;

libfuzzer_sys::fuzz_target!(
    // As Rust's own `main` does: splicing to a socket that was reset raises SIGPIPE, which no flag prevents.
    // SAFETY: nothing else has a handler for it.
    init: unsafe {
        libc::signal(libc::SIGPIPE, libc::SIG_IGN);
    },
    |data: &[u8]| dispatch::relay::dispatch_relay(data)
);
