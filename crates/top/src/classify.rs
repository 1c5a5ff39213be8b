//! Whether a sample lies in TLS, and in which part of it.
//!
//! A sample belongs to TLS if a frame of its stack lies in the TLS library, or calls one of its functions by name:
//! `SSL_do_handshake` leaves the stack by a tail call, and then only the program's call tells of it. Cryptography alone
//! on the stack (libcrypto without libssl) belongs to TLS too, because libssl leaves the stack likewise. It does not
//! where the program itself is seen to call a function of it by name, as for the hash of a password.
//!
//! The part is that of the outermost function that the library's table names, so that random numbers and memory of a
//! signature are the signature's. Time in the kernel under a frame of TLS stands apart. What no function names is
//! memory or a lock by the innermost frames, a message of the handshake where the library of TLS itself is innermost,
//! else the rest.

use tlsdyno_sampling::Frame;

use crate::libraries::{Found, Library, Rule, is_any};
use crate::part::Part;

/// What a sample belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// A part of TLS.
    Tls(Part),
    /// Anything else that the server does.
    Server,
    /// No file is known for any frame of its stack.
    Unknown,
}

#[rustfmt::skip]
const MEMORY: &[&str] = &[
    "malloc", "free", "cfree", "calloc", "realloc", "posix_memalign", "aligned_alloc", "_int_", "__libc_", "mem",
    "__mem", "bzero", "explicit_bzero", "CRYPTO_malloc", "CRYPTO_free", "CRYPTO_zalloc", "CRYPTO_clear_",
    "CRYPTO_realloc", "CRYPTO_memdup", "OPENSSL_cleanse", "OPENSSL_malloc", "OPENSSL_free", "je_", "runtime.malloc",
    "runtime.mem", "runtime.gc", "runtime.newobject", "runtime.growslice", "runtime.makeslice", "*11alloc",
    "__rust_alloc",
];
#[rustfmt::skip]
const LOCKS: &[&str] = &[
    "pthread_", "__pthread_", "___pthread_", "__lll_lock", "CRYPTO_THREAD_", "CRYPTO_atomic", "sync.",
    "runtime.lock",
];

/// Where a sample belongs, in a server with these libraries. `frames`: of user space, innermost first.
pub fn place_of(libraries: &[Found], is_kernel: bool, frames: &[Frame]) -> Place {
    let known = || frames.iter().any(|frame| !frame.file.is_empty());
    let part = libraries.iter().find_map(|found| Sight { found, frames }.part(is_kernel));
    match part {
        Some(part) => Place::Tls(part),
        None if is_kernel || known() => Place::Server,
        None => Place::Unknown,
    }
}

/// Whether one of these functions is one by which the library is known in a program.
pub fn is_of(library: &Library, function: &str) -> bool {
    is_any(library.functions, plain(function))
}

/// A function of C below Rust without the version before its name: `aws_lc_0_38_0_RSA_sign`, `ring_core_0_17_14__…`.
fn plain(function: &str) -> &str {
    let rest = ["aws_lc_fips_", "aws_lc_", "ring_core_"].iter().find_map(|of| function.strip_prefix(of));
    rest.map_or(function, |rest| rest.trim_start_matches(|c: char| c.is_ascii_digit() || c == '_'))
}

/// A stack, looked at for a library.
struct Sight<'s> {
    found: &'s Found,
    frames: &'s [Frame],
}

impl<'s> Sight<'s> {
    fn part(&self, is_kernel: bool) -> Option<Part> {
        let Found { library, .. } = self.found;
        let calls_it = |frame: &Frame| frame.calls.as_deref().is_some_and(|name| is_any(library.functions, name));
        let is_there = self.frames.iter().any(|frame| self.is_own(frame)) || self.callers().any(calls_it);
        if !is_there && !self.is_cryptography_for_it() {
            return None;
        }
        if is_kernel {
            return Some(Part::Kernel);
        }
        Some(self.named().or_else(|| self.by_innermost()).unwrap_or(Part::Rest))
    }

    /// Of the innermost frame the address is no return address, so that it calls nothing.
    fn callers(&self) -> impl Iterator<Item = &'s Frame> {
        self.frames.iter().skip(1)
    }

    /// The frame lies in the library of TLS itself.
    fn is_own(&self, frame: &Frame) -> bool {
        self.lies_in(frame, self.found.library.files, self.found.library.functions)
    }

    /// The frame lies in the cryptography of that library.
    fn is_beneath(&self, frame: &Frame) -> bool {
        self.lies_in(frame, self.found.library.beneath_files, self.found.library.beneath_functions)
    }

    fn lies_in(&self, frame: &Frame, files: &[&str], functions: &[&str]) -> bool {
        match &self.found.program {
            None => is_any(files, &frame.file),
            Some(program) => {
                frame.file == *program && frame.function.as_deref().is_some_and(|name| is_any(functions, plain(name)))
            }
        }
    }

    /// Cryptography is on the stack, and nothing shows that the program itself called it.
    fn is_cryptography_for_it(&self) -> bool {
        let Some(outermost) = self.frames.iter().rposition(|frame| self.is_beneath(frame)) else { return false };
        let caller = self.frames.get(outermost + 1);
        let is_named = |frame: &Frame| match self.found.program {
            None => frame.calls.is_some(),
            Some(_) => frame.function.is_some(),
        };
        !caller.is_some_and(is_named)
    }

    /// The part of the outermost function that a rule is about.
    fn named(&self) -> Option<Part> {
        let outwards = self.frames.iter().enumerate();
        outwards.rev().find_map(|(at, frame)| {
            let within = &self.frames[..at];
            // What the program does for the library, as a signature with a key of its own, is called by it.
            let is_callback = || self.frames.get(at + 1).is_some_and(|caller| self.is_own(caller));
            let is_named = |_: &&str| self.is_own(frame) || self.is_beneath(frame) || is_callback();
            let function = frame.function.as_deref().filter(is_named);
            let called = |name: &'s Option<String>| name.as_deref().filter(|_| at > 0);
            // What is called may have left the stack by a tail call.
            let within_it = called(&frame.calls_within).filter(|_| function.is_some() || self.is_own(frame));
            [function, called(&frame.calls), within_it].into_iter().flatten().find_map(|name| {
                let rule = self.found.library.rules.iter().find(|rule| holds(rule, name, within))?;
                Some(rule.part)
            })
        })
    }

    fn by_innermost(&self) -> Option<Part> {
        let is_inside = |frame: &&Frame| self.is_own(frame) || self.is_beneath(frame);
        let leaves = self.frames.iter().take_while(|frame| !is_inside(frame)).chain(self.frames.iter().find(is_inside));
        let names = leaves.filter_map(|frame| frame.function.as_deref());
        let plain = names.map(|name| if is_any(MEMORY, plain(name)) { Some(Part::Memory) } else { lock(plain(name)) });
        let innermost = || self.frames.iter().find(is_inside).filter(|frame| self.is_own(frame));
        plain.flatten().next().or_else(|| innermost().map(|_| Part::Messages))
    }
}

fn lock(name: &str) -> Option<Part> {
    is_any(LOCKS, name).then_some(Part::Locks)
}

/// `within`: the frames that the function called.
fn holds(rule: &Rule, name: &str, within: &[Frame]) -> bool {
    let is_called = |frame: &Frame| frame.function.as_deref().is_some_and(|name| is_any(rule.within, plain(name)));
    is_any(rule.functions, plain(name)) && (rule.within.is_empty() || within.iter().any(is_called))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::libraries::LIBRARIES;

    /// A frame as `tests/data/stacks.txt` has it.
    fn frame(text: &str) -> Frame {
        let mut fields = text.split('|').map(|field| Some(field.to_owned()).filter(|field| field != "-"));
        let file = fields.next().flatten().unwrap_or_default();
        let mut next = || fields.next().flatten();
        Frame { file, function: next(), calls: next(), calls_within: next() }
    }

    fn found(library: &str, program: &str) -> Vec<Found> {
        let library = LIBRARIES.into_iter().find(|one| one.id == library).unwrap();
        let program = Some(program.to_owned()).filter(|program| program != "-");
        vec![Found { library, program, version: String::new() }]
    }

    fn place(library: &str, program: &str, is_kernel: bool, stack: &[&str]) -> Place {
        let frames: Vec<Frame> = stack.iter().map(|text| frame(text)).collect();
        place_of(&found(library, program), is_kernel, &frames)
    }

    #[test]
    fn stacks_of_real_servers_are_told() {
        let mut seen = 0;
        for line in include_str!("../tests/data/stacks.txt").lines().filter(|line| !line.starts_with('#')) {
            let [library, program, expected, mode, stack] = line.splitn(5, ' ').collect::<Vec<_>>()[..] else {
                panic!("{line}")
            };
            let expected = if expected == "server" { Place::Server } else { Place::Tls(expected.parse().unwrap()) };
            let stack: Vec<&str> = stack.split(" ; ").collect();
            assert_eq!(place(library, program, mode == "kernel", &stack), expected, "{line}");
            seen += 1;
        }
        assert!(seen > 40, "{seen}");
    }

    #[test]
    fn what_left_the_stack_by_a_tail_call_is_told_by_its_caller() {
        let told = |stack: &[&str]| place("openssl", "-", false, stack);
        assert_eq!(told(&["libcrypto.so.3", "nginx|-|SSL_do_handshake"]), Place::Tls(Part::Rest));
        assert_eq!(
            told(&["libcrypto.so.3", "libcrypto.so.3", "libssl.so.3|-|EVP_KDF_derive"]),
            Place::Tls(Part::KeyDerivation)
        );
        assert_eq!(told(&["libc.so.6|free", "nginx|-|SSL_free"]), Place::Tls(Part::Memory));
        assert_eq!(told(&["libc.so.6|free|SSL_free", "nginx"]), Place::Server, "the innermost frame calls nothing");
    }

    #[test]
    fn cryptography_alone_is_of_tls_unless_the_program_calls_it() {
        let told = |stack: &[&str]| place("openssl", "-", false, stack);
        assert_eq!(told(&["libcrypto.so.3", "nginx"]), Place::Tls(Part::Rest));
        assert_eq!(told(&["libcrypto.so.3|RSA_sign"]), Place::Tls(Part::Signature), "unwound no further");
        assert_eq!(told(&["libcrypto.so.3|SHA256_Update", "nginx|-|EVP_DigestUpdate"]), Place::Server);
        let callback = ["libcrypto.so.3", "nginx|-|EVP_EncryptUpdate", "libssl.so.3", "nginx|-|SSL_do_handshake"];
        assert_eq!(told(&callback), Place::Tls(Part::Encryption), "libssl called the program");
        let inside = |stack: &[&str]| place("openssl", "nginx", false, stack);
        assert_eq!(inside(&["nginx|SHA256_Update", "nginx|ngx_http_secure_link"]), Place::Server);
        assert_eq!(inside(&["nginx|SHA256_Update", "nginx|tls_finish_handshake"]), Place::Tls(Part::Messages));
    }

    #[test]
    fn a_key_of_the_programs_own_is_told_by_what_the_library_calls() {
        let signs = ["s|main.burn", "s|main.(*remote).Sign", "s|crypto/tls.(*Conn).handshake"];
        assert_eq!(place("go", "s", false, &signs), Place::Tls(Part::Signature));
        assert_eq!(place("go", "s", false, &["s|main.(*remote).Sign", "s|main.token"]), Place::Server);
        let trait_of = |name: &str| format!("s|_ZN1s3$LT$s..Own$u20$as$u20$rustls..crypto..{name}17h0E");
        let told = |name: &str| place("rustls", "s", false, &["s|_ZN1s4burn17h0E", &trait_of(name), "s|_ZN6rustls1aE"]);
        assert_eq!(told("signer..Signer$GT$4sign"), Place::Tls(Part::Signature));
        assert_eq!(told("SupportedKxGroup$GT$5start"), Place::Tls(Part::KeyAgreement));
    }

    #[test]
    fn parts_are_told_by_the_outermost_function_and_what_it_calls() {
        let told = |stack: &[&str]| place("openssl", "-", false, stack);
        let ssl = "libssl.so.1.1";
        let signed = ["libc.so.6|malloc", "libcrypto.so.1.1|RAND_bytes", "libcrypto.so.1.1|EVP_DigestSign", ssl];
        assert_eq!(told(&signed), Place::Tls(Part::Signature));
        let hkdf = ["libcrypto.so.1.1|HMAC_Update", "libcrypto.so.1.1|EVP_PKEY_derive", ssl];
        assert_eq!(told(&hkdf), Place::Tls(Part::KeyDerivation), "HKDF of 1.1.1");
        let shared = ["libcrypto.so.1.1|X25519", "libcrypto.so.1.1|EVP_PKEY_derive", ssl];
        assert_eq!(told(&shared), Place::Tls(Part::KeyAgreement));
        let mac = ["libcrypto.so.1.1|HMAC_Update", "libcrypto.so.1.1|EVP_DigestSignUpdate", ssl];
        assert_eq!(told(&mac), Place::Tls(Part::Encryption), "the MAC of records");
        assert_eq!(told(&["libc.so.6|pthread_rwlock_rdlock", "libcrypto.so.3", ssl]), Place::Tls(Part::Locks));
        assert_eq!(told(&[ssl, "nginx"]), Place::Tls(Part::Messages));
        assert_eq!(place("openssl", "-", true, &["libc.so.6|write", ssl]), Place::Tls(Part::Kernel));
        assert_eq!(place("openssl", "-", true, &[]), Place::Server, "a kernel that works for no frame");
        assert_eq!((told(&[]), told(&[""])), (Place::Unknown, Place::Unknown));
    }

    #[test]
    fn versions_before_names_of_c_are_none_of_them() {
        assert_eq!(plain("aws_lc_0_47_0_RSA_sign"), "RSA_sign");
        assert_eq!(plain("aws_lc_fips_0_13_14_EVP_DigestSign"), "EVP_DigestSign");
        assert_eq!(plain("ring_core_0_17_14__bn_powerx5"), "bn_powerx5");
        assert_eq!(plain("RSA_sign"), "RSA_sign");
    }
}
