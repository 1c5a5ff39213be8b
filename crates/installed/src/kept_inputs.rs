//! The function of the fuzz target of configurations, for a moment: on the inputs that are kept (`fuzz/corpus/`) and on
//! mutated ones.

use std::cell::RefCell;

use tlsdyno_base::random::SplitMix64;

use super::{ServerName, rewritten};

#[path = "../../../fuzz/src/configuration.rs"]
mod configuration;
#[path = "../../../fuzz/src/corpus.rs"]
mod corpus;

const MUTATIONS: usize = 3_000;

#[test]
fn configurations_are_understood_alike_or_refused() {
    let kept = RefCell::new(Vec::new());
    corpus::run_kept("configuration", |bytes| {
        configuration::configuration(bytes);
        let server = configuration::SERVERS[usize::from(bytes[0]) % configuration::SERVERS.len()];
        let text = std::str::from_utf8(&bytes[1..]).unwrap();
        assert!(rewritten(server, text).is_ok(), "{server}: what is kept is understood");
        kept.borrow_mut().push(bytes.to_vec());
    });
    let mut random = SplitMix64::new(40);
    for bytes in kept.into_inner() {
        for _ in 0..MUTATIONS {
            let mut changed = bytes.clone();
            for _ in 0..=random.below(3) {
                let at = 1 + random.below(changed.len() - 1);
                match random.below(4) {
                    0 => changed[at] = random.next_u64() as u8 & 0x7f,
                    1 => changed.insert(at, b" \"'\\\n{}()<>#"[random.below(12)]),
                    2 => drop(changed.remove(at)),
                    _ => {
                        let end = at + random.below((changed.len() - at).min(40));
                        let copy = changed[at..end].to_vec();
                        changed.splice(at..at, copy);
                    }
                }
            }
            configuration::configuration(&changed);
        }
    }
}
