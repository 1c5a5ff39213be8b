//! What a sample was doing: in a stage, in the kernel for a system call, in one of the libraries outside of stages, or
//! in the server's own code.

use tlsdyno_record::store::samples::{Area, Group, NO_ENTRANCE};
use tlsdyno_sampling::Frame;

pub struct Found {
    pub group: Group,
    /// `None` within a stage.
    pub function: Option<String>,
    /// Outermost function first.
    pub stack: Vec<String>,
}

/// Prefixes of the file names of libcrypto and libssl.
pub const LIBCRYPTO: &str = "libcrypto.so";
const LIBSSL: &str = "libssl.so";
/// `function` must not be called by a stage.
pub fn area_of(file: &str, function: &str) -> Area {
    let file = file.rsplit('/').next().unwrap_or(file).to_owned();
    group_of(false, &[Frame { file, function: Some(function.to_owned()), ..Frame::default() }], &[]).area
}

/// Name of the profiler's library.
pub const PROFILER: &str = "tlsdyno-profiler.so";

/// Counts a sample. `frames`: of user space, innermost first; `trampolines`: the stage of each.
pub fn found(is_kernel: bool, frames: &[Frame], trampolines: &[Option<&'static str>]) -> Found {
    let group = group_of(is_kernel, frames, trampolines);
    let function = match group.area {
        Area::Stages => None,
        Area::Kernel => Some(format!("kernel: {}", asked(frames).unwrap_or(UNASKED))),
        _ => frames.first().map(|leaf| match named(frames) {
            Some(name) => format!("{} {name}", leaf.file),
            None => format!("{} (no name)", leaf.file),
        }),
    };
    Found { stack: stack_of(&group, is_kernel, frames, trampolines), group, function }
}

fn stack_of(group: &Group, is_kernel: bool, frames: &[Frame], trampolines: &[Option<&'static str>]) -> Vec<String> {
    let mut names: Vec<String> = Vec::new();
    for frame in frames.iter().rev() {
        let name = match (&frame.function, stage_of(frame, trampolines)) {
            (_, Some(stage)) => format!("[{stage}]"),
            (Some(function), _) => function.clone(),
            (None, _) => frame.file.clone(),
        };
        // Functions without a name stand for all of their file that follow each other.
        if !name.is_empty() && names.last() != Some(&name) {
            names.push(name);
        }
    }
    if is_kernel {
        names.push(format!("kernel: {}", group.part));
    }
    names
}

/// Name of kernel work without a system call.
const UNASKED: &str = "interrupts and page faults";

fn group_of(is_kernel: bool, frames: &[Frame], trampolines: &[Option<&'static str>]) -> Group {
    if is_kernel {
        return Group::of(Area::Kernel, asked(frames).map_or(UNASKED, purpose));
    }
    let Some(leaf) = frames.first().filter(|leaf| !leaf.file.is_empty()) else {
        return Group::of(Area::Unknown, "no code of a file");
    };
    if leaf.file == PROFILER {
        return Group::of(Area::Instrument, "trampolines");
    }
    if let Some(stage) = frames.iter().find_map(|frame| stage_of(frame, trampolines)) {
        return Group::of(Area::Stages, stage);
    }
    let name = named(frames).unwrap_or_default();
    match leaf.file.as_str() {
        file if file.starts_with(LIBCRYPTO) => Group::of(Area::Libcrypto, purpose_in_libcrypto(frames, name)),
        file if file.starts_with(LIBSSL) => Group::of(Area::Libssl, entrance(frames)),
        file if is_c_library(file) => in_c_library(frames, name),
        file => Group::of(Area::Server, file),
    }
}

fn is_c_library(file: &str) -> bool {
    file.starts_with("libc.so") || file.starts_with("ld-linux") || file.starts_with("libpthread")
}

/// The innermost function with a name, in the file of the leaf: functions without a name are parts of those.
fn named(frames: &[Frame]) -> Option<&str> {
    let file = &frames.first()?.file;
    frames.iter().take_while(|frame| frame.file == *file).find_map(|frame| frame.function.as_deref())
}

/// The C library's function that made the system call.
fn asked(frames: &[Frame]) -> Option<&str> {
    let leaf = frames.first().filter(|leaf| is_c_library(&leaf.file))?;
    let name = leaf.function.as_deref()?.trim_start_matches('_');
    let name = name.strip_prefix("libc_").unwrap_or(name);
    // Whoever is interrupted while it copies has not asked for anything.
    let computes = ["mem", "str", "malloc", "calloc", "realloc", "free", "pthread_mutex", "pthread_rwlock"];
    (!computes.iter().any(|prefix| name.starts_with(prefix))).then_some(name)
}

/// Purpose of a system call.
fn purpose(call: &str) -> &'static str {
    const PURPOSES: [(&str, &[&str]); 5] = [
        (
            "setting up and ending connections",
            &[
                "accept",
                "close",
                "shutdown",
                "setsockopt",
                "getsockopt",
                "getsockname",
                "getpeername",
                "ioctl",
                "fcntl",
                "socket",
                "connect",
            ],
        ),
        ("sending", &["send", "write", "pwrite"]),
        ("receiving", &["recv", "read", "pread"]),
        ("waiting for events", &["epoll", "poll", "ppoll", "select"]),
        ("files and time", &["open", "stat", "fstat", "lstat", "newfstat", "clock", "gettimeofday", "getrandom"]),
    ];
    let is_it = |names: &[&str]| names.iter().any(|name| call.starts_with(name));
    PURPOSES.iter().find(|(_, names)| is_it(names)).map_or("other system calls", |(purpose, _)| purpose)
}

/// Purpose of libcrypto's work outside of stages: by any function of libcrypto in the stack, then by the innermost.
fn purpose_in_libcrypto(frames: &[Frame], name: &str) -> &'static str {
    let own = frames.iter().take_while(|frame| frame.file.starts_with(LIBCRYPTO));
    if own.filter_map(|frame| frame.function.as_deref()).any(|name| name.ends_with("_fetch")) {
        return "fetching algorithms";
    }
    const PURPOSES: [(&str, &[&str]); 8] = [
        ("parameters", &["OSSL_PARAM"]),
        (
            "locks and references",
            &["CRYPTO_THREAD", "CRYPTO_atomic", "CRYPTO_UP_REF", "EVP_PKEY_up_ref", "X509_up_ref"],
        ),
        ("allocation", &["CRYPTO_", "OPENSSL_cleanse", "OPENSSL_malloc", "OPENSSL_free"]),
        ("certificates and DER", &["X509", "ASN1", "d2i_", "i2d_", "PEM_", "c2i_", "i2c_"]),
        ("input and output", &["BIO_", "BUF_"]),
        ("tables and stacks", &["OPENSSL_LH", "OPENSSL_sk", "CRYPTO_ex", "CRYPTO_get_ex", "CRYPTO_set_ex"]),
        ("errors", &["ERR_"]),
        ("calling the provider", &["EVP_", "HMAC", "RAND_", "SHA", "MD5"]),
    ];
    let is_it = |prefixes: &[&str]| prefixes.iter().any(|prefix| name.starts_with(prefix));
    PURPOSES.iter().find(|(_, prefixes)| is_it(prefixes)).map_or("other", |(purpose, _)| purpose)
}

/// The function by which the server has entered libssl: the outermost with a name, or, where that has left its place
/// to the one that it calls (as `SSL_do_handshake` does), the one that the server calls.
fn entrance(frames: &[Frame]) -> &str {
    let mut inside = frames.iter().enumerate().rev().filter(|(_, frame)| frame.file.starts_with(LIBSSL));
    let called = inside.clone().next().and_then(|(outermost, _)| frames.get(outermost + 1)?.calls.as_deref());
    called.or_else(|| inside.find_map(|(_, frame)| frame.function.as_deref())).unwrap_or(NO_ENTRANCE)
}

/// Work of the C library, by its caller.
fn in_c_library(frames: &[Frame], name: &str) -> Group {
    let is_any = |prefixes: &[&str]| prefixes.iter().any(|prefix| name.trim_start_matches('_').starts_with(prefix));
    if is_any(&["malloc", "free", "cfree", "calloc", "realloc", "posix_memalign", "aligned_alloc", "libc_"]) {
        return Group::of(Area::Memory, "allocation");
    }
    if is_any(&["mem", "str", "bzero", "explicit_bzero", "bcmp"]) {
        return Group::of(Area::Memory, "copying, clearing, comparing");
    }
    let for_libcrypto = frames.iter().any(|frame| frame.file.starts_with(LIBCRYPTO));
    if is_any(&["pthread_"]) && for_libcrypto {
        return Group::of(Area::Libcrypto, "locks and references");
    }
    // The instructions around a system call.
    match asked(frames) {
        Some(call) if purpose(call) != "other system calls" => Group::of(Area::Memory, "around system calls"),
        _ => Group::of(Area::Memory, "other"),
    }
}

/// The stage of the provider's function that this frame calls.
fn stage_of(frame: &Frame, trampolines: &[Option<&'static str>]) -> Option<&'static str> {
    let function = frame.function.as_deref().filter(|_| frame.file == PROFILER)?;
    stage_of_trampoline(function, trampolines)
}

/// The stage of a function of the profiler's library, where that is a trampoline: their numbers are octal
/// (native/profiler/trampolines.c).
pub fn stage_of_trampoline(function: &str, trampolines: &[Option<&'static str>]) -> Option<&'static str> {
    let number = usize::from_str_radix(function.strip_prefix("trampoline_")?, 8).ok()?;
    *trampolines.get(number)?
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(file: &str, function: &str) -> Frame {
        let function = Some(function.to_owned()).filter(|function| !function.is_empty());
        Frame { file: file.to_owned(), function, ..Frame::default() }
    }

    fn text(is_kernel: bool, frames: &[Frame]) -> String {
        found(is_kernel, frames, &[None, Some("kdf")]).group.to_string()
    }

    #[test]
    fn a_stage_holds_all_that_is_called_in_it() {
        let trampoline = frame(PROFILER, "trampoline_001");
        let inside = [frame("libc.so.6", "malloc"), frame("libcrypto.so.3", ""), trampoline, frame("libssl.so.3", "")];
        let sample = found(false, &inside, &[None, Some("kdf")]);
        assert_eq!((sample.group.to_string().as_str(), sample.function), ("stages/kdf", None));
        assert_eq!(sample.stack, ["libssl.so.3", "[kdf]", "libcrypto.so.3", "malloc"]);
        assert_eq!(text(false, &inside[2..]), "instrument/trampolines");
        assert_eq!(text(true, &inside), format!("kernel/{UNASKED}"), "a page fault");
    }

    #[test]
    fn the_kernel_is_told_by_what_it_was_asked_for() {
        let asked_by = |function: &str| text(true, &[frame("libc.so.6", function), frame("nginx", "")]);
        assert_eq!(asked_by("accept4"), "kernel/setting up and ending connections");
        assert_eq!(asked_by("__close"), "kernel/setting up and ending connections");
        assert_eq!((asked_by("writev"), asked_by("__libc_recv")), ("kernel/sending".into(), "kernel/receiving".into()));
        assert_eq!(asked_by("epoll_wait"), "kernel/waiting for events");
        assert_eq!(asked_by("memcpy"), format!("kernel/{UNASKED}"));
        assert_eq!(found(true, &[frame("libc.so.6", "send")], &[]).function.unwrap(), "kernel: send");
        assert_eq!(text(true, &[]), format!("kernel/{UNASKED}"));
    }

    #[test]
    fn libraries_are_told_by_the_functions_that_have_names() {
        let crypto = |function: &str| frame("libcrypto.so.3", function);
        let fetching = [crypto(""), crypto("EVP_MD_fetch"), crypto("EVP_DigestSignInit_ex"), frame("libssl.so.3", "")];
        assert_eq!(text(false, &fetching), "libcrypto/fetching algorithms");
        assert_eq!(found(false, &fetching, &[]).function.unwrap(), "libcrypto.so.3 EVP_MD_fetch");
        assert_eq!(text(false, &[crypto("OSSL_PARAM_locate")]), "libcrypto/parameters");
        let ssl = [frame("libssl.so.3", ""), frame("libssl.so.3", "SSL_do_handshake"), frame("nginx", "")];
        assert_eq!(text(false, &ssl), "libssl/SSL_do_handshake");
        let caller = Frame { calls: Some("SSL_do_handshake".to_owned()), ..frame("nginx", "") };
        assert_eq!(text(false, &[frame("libssl.so.3", ""), caller]), "libssl/SSL_do_handshake", "a tail call");
        assert_eq!(text(false, &ssl[..1]), format!("libssl/{NO_ENTRANCE}"));
        assert_eq!(text(false, &[frame("libc.so.6", ""), frame("libc.so.6", "malloc")]), "C library/allocation");
        assert_eq!(text(false, &[frame("nginx", "")]), "server/nginx");
        assert_eq!(found(false, &[frame("nginx", "")], &[]).function.unwrap(), "nginx (no name)");
        assert_eq!(text(false, &[Frame::default()]), "unknown/no code of a file");
        assert_eq!(area_of("/usr/lib/libcrypto.so.3", "EVP_PKEY_new"), Area::Libcrypto);
        assert_eq!(area_of("/usr/sbin/nginx", "0x1234"), Area::Server);
        let locked = [frame("libc.so.6", "pthread_rwlock_rdlock"), crypto("CRYPTO_THREAD_read_lock")];
        assert_eq!(text(false, &locked), "libcrypto/locks and references");
    }

    #[test]
    fn groups_are_read_back() {
        let group = Group::of(Area::Memory, "copying, clearing, comparing");
        assert_eq!(group.to_string().parse(), Ok(group));
        assert!("nowhere/x".parse::<Group>().is_err() && "kernel".parse::<Group>().is_err());
        assert!(Group::of(Area::Kernel, "sending").is_named() && !Group::unseen_kernel().is_named());
        assert!(!Group::of(Area::Libcrypto, "other").is_named() && !Group::of(Area::Unknown, "x").is_named());
    }
}
