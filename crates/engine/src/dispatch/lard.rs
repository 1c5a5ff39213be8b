//! Locality-aware request distribution: Pai, Aron, Banga, Svendsen, Druschel, Zwaenepoel, Nahum, *Locality-Aware
//! Request Distribution in Cluster-based Network Servers* (ASPLOS 1998), basic LARD of section 2.4.
//!
//! Each object goes to one backend, so that the caches of the backends add up instead of all holding the same; it moves
//! when that backend is overloaded while another is not. What is routed is a connection, by its first request: the
//! paper's front end hands connections over likewise.

use super::limits::{LARD_HIGH, LARD_LOW};
use super::memory::{Memory, Object};
use super::route::{Choices, Reason, Route, Router};

impl Router {
    /// A backend for a connection that asks for this object, which is noted for the next one. `None`: no slot is
    /// usable.
    pub fn by_object(
        &mut self,
        choices: &Choices,
        object: Object,
        memory: &Memory,
        now_s: u32,
        timeout_s: u32,
    ) -> Option<Route> {
        let before = memory.slot_of_object(object, now_s);
        let (slot, reason) = match choices.usable & before {
            0 if before == 0 => (self.least_loaded(choices)?, Reason::NewObject),
            0 => (self.least_loaded(choices)?, Reason::MovedObject),
            usable => {
                let slot = usable.trailing_zeros() as u8;
                match is_overloaded(choices, slot) {
                    true => (self.least_loaded(choices)?, Reason::MovedObject),
                    false => (slot, Reason::Object),
                }
            }
        };
        // Where all are equally overloaded it may stay where it is.
        let reason = if before == 1 << slot { Reason::Object } else { reason };
        memory.note_object(object, slot, now_s, timeout_s);
        Some(Route { slot, reason, learn: false })
    }

    fn least_loaded(&mut self, choices: &Choices) -> Option<u8> {
        self.least(choices, |slot| (choices.active[slot], 0))
    }
}

/// Whether what is sent to this slot had better move: it delays what it serves while another has capacity to spare, or
/// is too far behind in any case.
fn is_overloaded(choices: &Choices, slot: u8) -> bool {
    let load = |slot: u8| choices.active[usize::from(slot)];
    let is_idle = |slot: u8| choices.usable >> slot & 1 == 1 && load(slot) < LARD_LOW;
    let one_is_idle = || choices.targets.iter().any(|target| is_idle(target.slot));
    load(slot) >= 2 * LARD_HIGH || (load(slot) > LARD_HIGH && one_is_idle())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::dispatch::limits::BACKENDS_MAX;
    use crate::dispatch::{Backend, Policy, SlotBackend};

    const TIMEOUT_S: u32 = 300;

    struct Bench {
        memory: Memory,
        router: Router,
        targets: Vec<SlotBackend>,
        usable: u64,
        active: [u32; BACKENDS_MAX],
        now_s: u32,
    }

    fn memory(objects: usize) -> Memory {
        let memory = Memory::new(objects);
        memory.keep_objects();
        memory
    }

    impl Bench {
        fn new(backends: u8) -> Bench {
            let backend = |slot: u8| Backend { name: slot.to_string(), address: ([127, 0, 0, 1], slot.into()).into() };
            Bench {
                memory: memory(4096),
                router: Router::new(Policy::Lard, 0),
                targets: (0..backends).map(|slot| SlotBackend { slot, backend: backend(slot) }).collect(),
                usable: (1 << backends) - 1,
                active: [0; BACKENDS_MAX],
                now_s: 1,
            }
        }

        fn ask(&mut self, path: &str) -> Option<(u8, Reason)> {
            let choices = Choices { targets: &self.targets, usable: self.usable, active: &self.active };
            let object = self.memory.object(path.as_bytes());
            let route = self.router.by_object(&choices, object, &self.memory, self.now_s, TIMEOUT_S)?;
            Some((route.slot, route.reason))
        }

        /// With these loads, an object that was sent to slot 0.
        fn again(loads: &[u32]) -> (u8, Reason) {
            let mut site = Bench::new(loads.len() as u8);
            assert_eq!(site.ask("/a"), Some((0, Reason::NewObject)));
            site.active[..loads.len()].copy_from_slice(loads);
            site.ask("/a").unwrap()
        }
    }

    #[test]
    fn an_object_goes_to_the_least_loaded_and_stays_there() {
        let mut site = Bench::new(3);
        site.active[..3].copy_from_slice(&[5, 3, 4]);
        assert_eq!(site.ask("/a"), Some((1, Reason::NewObject)));
        site.active[1] = LARD_HIGH;
        for _ in 0..5 {
            assert_eq!(site.ask("/a"), Some((1, Reason::Object)));
        }
        assert_eq!(site.ask("/b"), Some((2, Reason::NewObject)));
    }

    /// The rule of the paper's Figure 2, at its bounds.
    #[test]
    fn an_object_moves_when_its_backend_is_overloaded() {
        let (low, high) = (LARD_LOW, LARD_HIGH);
        assert_eq!(Bench::again(&[high, 0]), (0, Reason::Object), "not above T_high");
        assert_eq!(Bench::again(&[high + 1, low]), (0, Reason::Object), "none below T_low");
        assert_eq!(Bench::again(&[high + 1, low - 1]), (1, Reason::MovedObject));
        assert_eq!(Bench::again(&[2 * high - 1, low, high]), (0, Reason::Object), "below twice T_high");
        assert_eq!(Bench::again(&[2 * high, high, high - 1]), (2, Reason::MovedObject), "at twice T_high in any case");
        assert_eq!(Bench::again(&[2 * high, 2 * high + 1]), (0, Reason::Object), "nobody is better");
    }

    #[test]
    fn a_moved_object_stays_where_it_went() {
        let mut site = Bench::new(2);
        site.ask("/a");
        site.active[0] = LARD_HIGH + 1;
        assert_eq!(site.ask("/a"), Some((1, Reason::MovedObject)));
        site.active[0] = 0;
        assert_eq!(site.ask("/a"), Some((1, Reason::Object)));
    }

    #[test]
    fn a_backend_that_is_down_loses_its_objects() {
        let mut site = Bench::new(2);
        site.ask("/a");
        site.usable = 0b10;
        assert_eq!(site.ask("/a"), Some((1, Reason::MovedObject)));
        site.usable = 0b11;
        assert_eq!(site.ask("/a"), Some((1, Reason::Object)));
        site.memory.forget_slots(0b10);
        assert!(matches!(site.ask("/a"), Some((_, Reason::NewObject))), "another backend has its place");
        site.usable = 0;
        assert_eq!(site.ask("/a"), None);
    }

    #[test]
    fn what_nobody_asks_for_is_forgotten() {
        let mut site = Bench::new(2);
        for _ in 0..10 {
            site.ask("/used");
            site.now_s += TIMEOUT_S - 1;
        }
        assert!(matches!(site.ask("/used"), Some((_, Reason::Object))));
        site.now_s += TIMEOUT_S;
        assert!(matches!(site.ask("/used"), Some((_, Reason::NewObject))));
    }

    #[test]
    fn a_full_table_gives_up_what_was_not_asked_for_the_longest() {
        let mut site = Bench { memory: memory(8), ..Bench::new(1) };
        for second in 1..=8 {
            site.now_s = second;
            site.ask(&format!("/{second}"));
        }
        site.now_s = 9;
        site.ask("/1");
        site.now_s = 10;
        site.ask("/9");
        let known = |site: &Bench, path: &str| site.memory.slot_of_object(site.memory.object(path.as_bytes()), 10) != 0;
        assert!(known(&site, "/1") && known(&site, "/9") && !known(&site, "/2") && known(&site, "/3"));
        assert_eq!(site.memory.objects().unwrap().live(10), 8);
    }

    proptest! {
        /// Whatever is asked for under whatever load: a usable backend, the paper's rule, and a bounded table.
        #[test]
        fn every_decision_follows_the_rule(
            steps in proptest::collection::vec((0..40_u8, proptest::collection::vec(0..200_u32, 4), 1..16_u64), 1..300),
        ) {
            let mut site = Bench::new(4);
            for (object, loads, usable) in steps {
                site.active[..4].copy_from_slice(&loads);
                site.usable = usable;
                let path = object.to_string();
                let before = site.memory.slot_of_object(site.memory.object(path.as_bytes()), site.now_s);
                let (slot, reason) = site.ask(&path).unwrap();
                prop_assert!(usable >> slot & 1 == 1);
                let usable_loads = || (0..4).filter(|slot| usable >> slot & 1 == 1).map(|slot| loads[slot]);
                let least = usable_loads().min().unwrap();
                let load = loads[usize::from(slot)];
                match reason {
                    Reason::NewObject => prop_assert!(before == 0 && load == least),
                    Reason::MovedObject => {
                        prop_assert!(before != 0 && before != 1 << slot && load == least);
                        let old = loads[before.trailing_zeros() as usize];
                        let overloaded = old >= 2 * LARD_HIGH || (old > LARD_HIGH && least < LARD_LOW);
                        prop_assert!(usable & before == 0 || overloaded);
                    }
                    _ => {
                        prop_assert_eq!((before, reason), (1 << slot, Reason::Object));
                        let is_light = load < 2 * LARD_HIGH && (load <= LARD_HIGH || least >= LARD_LOW);
                        prop_assert!(load == least || is_light);
                    }
                }
                prop_assert!(site.memory.objects().unwrap().live(site.now_s) <= 40);
                site.now_s += 1;
            }
        }
    }
}
