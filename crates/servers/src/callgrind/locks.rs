//! What processes do with locks: locked instructions, by the addresses that they executed, and calls of the functions
//! of pthreads that take a lock.

use std::collections::{BTreeMap, HashMap};
use std::fs;

use object::{Object, ObjectSegment};
use tlsdyno_record::store::{LockOperation, LockSite};

use super::format;

/// Prefixes that may stand before an instruction of x86-64 (Intel SDM volume 2, section 2.1.1).
const PREFIXES: [u8; 11] = [0x26, 0x2e, 0x36, 0x3e, 0x64, 0x65, 0x66, 0x67, LOCK, 0xf2, 0xf3];
const LOCK: u8 = 0xf0;
/// Maximum length of an instruction.
const LONGEST: usize = 15;
/// Functions that take a lock, without underscores at the beginning.
const FUNCTIONS: [(&str, LockOperation); 13] = [
    ("pthread_rwlock_rdlock", LockOperation::Read),
    ("pthread_rwlock_tryrdlock", LockOperation::Read),
    ("pthread_rwlock_timedrdlock", LockOperation::Read),
    ("pthread_rwlock_clockrdlock", LockOperation::Read),
    ("pthread_rwlock_wrlock", LockOperation::Write),
    ("pthread_rwlock_trywrlock", LockOperation::Write),
    ("pthread_rwlock_timedwrlock", LockOperation::Write),
    ("pthread_rwlock_clockwrlock", LockOperation::Write),
    ("pthread_mutex_lock", LockOperation::Mutex),
    ("pthread_mutex_trylock", LockOperation::Mutex),
    ("pthread_mutex_timedlock", LockOperation::Mutex),
    ("pthread_mutex_clocklock", LockOperation::Mutex),
    ("pthread_spin_lock", LockOperation::Mutex),
];

/// Sum over processes.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Locks {
    /// In user space.
    pub instructions: u64,
    /// Those of them whose code is in no file, such as what is compiled at run time.
    pub unplaced: u64,
    counts: BTreeMap<(LockOperation, String, String), u64>,
}

impl Locks {
    /// Options of callgrind for these counts: addresses, and who called the functions above and their callers. One
    /// pattern for each first letter: of several that begin alike callgrind keeps one.
    pub const OPTIONS: [&str; 4] = [
        "--dump-instr=yes",
        "--compress-pos=no",
        "--separate-callers10=pthread_*lock*",
        "--separate-callers10=_*pthread_*lock*",
    ];

    pub fn sites(&self) -> Vec<LockSite> {
        let site = |((operation, object, function), count): (&(LockOperation, String, String), &u64)| LockSite {
            operation: *operation,
            object: object.clone(),
            function: function.clone(),
            count: *count,
        };
        self.counts.iter().map(site).collect()
    }

    /// Adds what a file says. `None`: it is none of callgrind with [`Locks::OPTIONS`].
    pub(super) fn add(&mut self, text: &str, code: &mut Code) -> Option<()> {
        format::read(text, |line| {
            let (object, function) = (line.function.object.as_str(), line.function.name.as_str());
            let (operation, site, count) = match line.called {
                Some((callee, count)) => match taking(callee) {
                    // Those of a library call each other.
                    Some((operation, callers)) if taking(function).is_none() => (operation, site(callers), count),
                    _ => return Some(()),
                },
                None => {
                    let count = line.executed.instructions;
                    self.instructions = self.instructions.checked_add(count)?;
                    match code.is_locked(object, line.address) {
                        Some(true) => (LockOperation::Instruction, without_callers(function), count),
                        Some(false) => return Some(()),
                        None => {
                            self.unplaced = self.unplaced.checked_add(count)?;
                            return Some(());
                        }
                    }
                }
            };
            let file = object.rsplit('/').next().unwrap_or(object);
            let sum = self.counts.entry((operation, file.to_owned(), site.to_owned())).or_default();
            *sum = sum.checked_add(count)?;
            Some(())
        })
    }
}

/// What a function does that takes a lock, and who called it: callgrind writes `FUNCTION'CALLER'CALLER`, the nearest
/// first. `None`: it takes none.
fn taking(name: &str) -> Option<(LockOperation, &str)> {
    let (own, callers) = name.split_once('\'').unwrap_or((name, ""));
    // A version may stand behind the name.
    let own = own.split('@').next()?.trim_start_matches('_');
    FUNCTIONS.iter().find(|(function, _)| *function == own).map(|(_, operation)| (*operation, callers))
}

/// A function of pthread without its callers and its version; any other as it is.
fn without_callers(name: &str) -> &str {
    let is_of_pthread = name.trim_start_matches('_').starts_with("pthread_");
    name.split(['\'', '@']).next().filter(|_| is_of_pthread).unwrap_or(name)
}

/// The nearest caller that has a name and is no lock of a library itself, as `CRYPTO_THREAD_read_lock` is; else the
/// nearest one.
fn site(callers: &str) -> &str {
    let is_named = |name: &str| !name.starts_with("0x") && !name.starts_with("???");
    // The number of a recursion stands there, too.
    let all = || callers.split('\'').filter(|name| !name.bytes().all(|byte| byte.is_ascii_digit()));
    let own = || all().filter(|name| !is_of_lock(name));
    own().find(|name| is_named(name)).or_else(|| own().next()).or_else(|| all().next()).unwrap_or("(not known)")
}

/// Its name has "lock" in it, not within "block" or "clock".
fn is_of_lock(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    name.match_indices("lock").any(|(at, _)| !name[..at].ends_with(['b', 'c']))
}

/// The code of files that were executed.
#[derive(Default)]
pub struct Code(HashMap<String, Option<Image>>);

struct Image {
    bytes: Vec<u8>,
    /// Of each segment its address, its place in the file and its length.
    segments: Vec<[u64; 3]>,
}

impl Code {
    /// Whether the instruction at this address is a locked one; `None`: the file has no code there.
    fn is_locked(&mut self, object: &str, address: u64) -> Option<bool> {
        if !self.0.contains_key(object) {
            self.0.insert(object.to_owned(), Image::read(object));
        }
        self.0.get(object)?.as_ref()?.at(address).map(is_locked)
    }
}

impl Image {
    fn read(path: &str) -> Option<Image> {
        let bytes = fs::read(path).ok()?;
        let file = object::File::parse(&*bytes).ok()?;
        let of_segment =
            |segment: object::Segment<'_, '_>| [segment.address(), segment.file_range().0, segment.file_range().1];
        let segments = file.segments().map(of_segment).collect();
        Some(Image { bytes, segments })
    }

    /// At most as many bytes as an instruction has.
    fn at(&self, address: u64) -> Option<&[u8]> {
        let in_file = |[start, place, length]: &[u64; 3]| {
            let offset = address.checked_sub(*start).filter(|offset| offset < length)?;
            usize::try_from(place.checked_add(offset)?).ok()
        };
        let place = self.segments.iter().find_map(in_file)?;
        let bytes = self.bytes.get(place..)?;
        Some(&bytes[..bytes.len().min(LONGEST)])
    }
}

/// The instruction at the beginning of `code` has the prefix `lock`, or is an exchange with memory, which locks without
/// it (Intel SDM volume 2, LOCK and XCHG). Where instructions begin is known, so that nothing else need be decoded.
fn is_locked(code: &[u8]) -> bool {
    let prefixes = code.iter().take_while(|byte| PREFIXES.contains(byte)).count();
    let (prefixes, code) = code.split_at(prefixes);
    let code = match code {
        // REX.
        [0x40..=0x4f, code @ ..] => code,
        code => code,
    };
    // An operand that is no register.
    let exchanges = matches!(code, [0x86 | 0x87, operands, ..] if *operands < 0xc0);
    prefixes.contains(&LOCK) || exchanges
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn locked_instructions_are_known_by_their_first_bytes() {
        let locked: [&[u8]; 6] = [
            &[0xf0, 0x83, 0x07, 0x01],                   // lock addl $1, (%rdi)
            &[0x66, 0xf0, 0x0f, 0xb1, 0x0a],             // lock cmpxchg %cx, (%rdx)
            &[0xf0, 0x48, 0x0f, 0xc1, 0x47, 0x08],       // lock xadd %rax, 8(%rdi)
            &[0x64, 0xf0, 0x48, 0xff, 0x04, 0x25],       // lock incq %fs:…
            &[0x87, 0x07],                               // xchg %eax, (%rdi)
            &[0x4c, 0x87, 0x05, 0x10, 0x00, 0x00, 0x00], // xchg %r8, 16(%rip)
        ];
        let others: [&[u8]; 7] = [
            &[0x66, 0x90],                   // xchg %ax, %ax
            &[0x87, 0xd8],                   // xchg %ebx, %eax
            &[0x48, 0x86, 0xc4],             // xchg %al, %spl
            &[0xb8, 0xf0, 0x87, 0x07, 0x00], // mov $0x787f0, %eax
            &[0xc5, 0xf0, 0x58, 0xc2],       // vaddps %xmm2, %xmm1, %xmm0
            &[0x48, 0x0f, 0xb1, 0x0a],       // cmpxchg without the prefix
            &[],
        ];
        assert!(locked.iter().all(|code| is_locked(code)));
        assert!(!others.iter().any(|code| is_locked(code)));
    }

    #[test]
    fn a_site_is_the_nearest_caller_with_a_name_that_is_no_lock() {
        let read = |callers| {
            let name = format!("__pthread_rwlock_rdlock@@GLIBC_2.34'{callers}");
            site(taking(&name).unwrap().1).to_owned()
        };
        assert_eq!(read("CRYPTO_THREAD_read_lock'0x0000000000230170'2'0x12'EVP_MD_fetch'SSL_accept"), "EVP_MD_fetch");
        assert_eq!(read("CRYPTO_MUTEX_lock_read'encrypt_block'main"), "encrypt_block");
        assert_eq!(read("CRYPTO_THREAD_read_lock'0x12"), "0x12");
        assert_eq!([read("CRYPTO_THREAD_read_lock"), read("")], ["CRYPTO_THREAD_read_lock", "(not known)"]);
        assert_eq!(taking("pthread_mutex_lock").unwrap().0, LockOperation::Mutex);
        assert_eq!(without_callers("pthread_rwlock_unlock@@GLIBC_2.34'a'b"), "pthread_rwlock_unlock");
        assert_eq!(without_callers("<&'static str>::clone"), "<&'static str>::clone");
        assert_eq!(taking("pthread_mutex_lock_full").or(taking("core::lock'static")), None);
    }

    /// A program calls three times a function that takes a read lock by one of its own and executes one locked
    /// instruction, and takes a mutex. Its loader's lines were left out.
    #[test]
    fn calls_and_instructions_are_summed_by_place() {
        let text = include_str!("locking.callgrind");
        let fetch = [
            &[0x48, 0x83, 0xec, 0x08, 0xe8, 0xe2, 0xff, 0xff, 0xff, 0x48, 0x8d, 0x3d, 0x32, 0x2f, 0x00, 0x00][..],
            &[0xe8, 0xbd, 0xfe, 0xff, 0xff, 0xf0, 0x48, 0x83, 0x05, 0xc4, 0x2e, 0x00, 0x00, 0x01],
            &[0x48, 0x83, 0xc4, 0x08, 0xc3],
        ];
        let bytes = fetch.concat();
        let segments = vec![[0x117e, 0, bytes.len() as u64]];
        let mut code = Code(HashMap::from([("/no/locking".to_owned(), Some(Image { bytes, segments }))]));
        let mut all = Locks::default();
        all.add(text, &mut code).unwrap();
        all.add(text, &mut code).unwrap();
        let site = |operation, function: &str, count| LockSite {
            operation,
            object: "locking".to_owned(),
            function: function.to_owned(),
            count,
        };
        let expected = [
            site(LockOperation::Instruction, "fetch", 6),
            site(LockOperation::Read, "fetch", 6),
            site(LockOperation::Mutex, "work", 2),
        ];
        assert_eq!(all.sites(), expected);
        // Those of a call hold the instructions of its way through the table of other files' functions.
        assert_eq!((all.instructions, all.unplaced), (2 * 309, 2 * (309 - 21 - 7)));
        assert_eq!(all.add("positions: instr line\nfn=(1) x\n+4 0 1\ntotals: 1\n", &mut code), None);
        let calls_itself = "positions: instr line\nfn=(1) pthread_mutex_lock'a\ncfn=(2) __pthread_mutex_lock\n\
                            calls=1 0x1 0\n0x1 0 9\ntotals: 0\n";
        let mut none = Locks::default();
        none.add(calls_itself, &mut code).unwrap();
        assert_eq!(none.sites(), []);
    }

    proptest! {
        #[test]
        fn any_file_is_read_or_refused(
            lines in vec(
                "(ob|fn|cob|cfn|calls|totals|positions)[=:] ?(\\([0-9]\\)( x|pthread_mutex_lock'?a?)?|\
                 instr line|[0-9 ]*)|\
                 (0x)?[-+*0-9 x]{0,6}",
                0..30,
            ),
        ) {
            Locks::default().add(&lines.join("\n"), &mut Code::default());
        }

        #[test]
        fn any_bytes_are_code(code in vec(any::<u8>(), 0..20), address in any::<u64>(), segment in any::<[u64; 3]>()) {
            is_locked(&code);
            let image = Image { bytes: code, segments: vec![segment, [0, 0, 20]] };
            assert!(image.at(address).is_none_or(|code| code.len() <= LONGEST));
        }
    }
}
