//! What the loops of one dispatcher have in common, and how it is changed while they run.

use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use super::counters::Counts;
use super::limits::BACKENDS_MAX;
use super::memory::Memory;
use super::per_address::PerAddress;
use super::room::Room;
use super::settings::{Backend, Policy, Settings, SettingsError};

/// How far the end has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Phase {
    /// The loops accept and forward connections.
    Run = 0,
    /// No new ones; those that are open go on to their end.
    Drain = 1,
    /// The loops close all connections and end.
    Stop = 2,
}

/// What is known about a backend, whichever loop found it out.
#[derive(Debug, Default)]
pub struct Slot {
    /// Number of open connections to the backend.
    pub active: AtomicU32,
    /// It is not taken for up.
    pub down: AtomicBool,
    /// Whether the settings in force name the backend.
    pub wanted: AtomicBool,
    /// Failures to connect since the last success.
    pub failures_in_a_row: AtomicU32,
}

impl Slot {
    /// A connection to it was made.
    pub fn connected(&self) {
        // Written only when it changes: the line stays shared.
        if self.failures_in_a_row.load(Ordering::Relaxed) != 0 {
            self.failures_in_a_row.store(0, Ordering::Relaxed);
        }
    }

    /// Connecting to it failed. Whether it is down now and was not before.
    pub fn failed(&self, fall: u32) -> bool {
        let failures = self.failures_in_a_row.fetch_add(1, Ordering::Relaxed) + 1;
        failures >= fall && !self.down.swap(true, Ordering::Relaxed)
    }
}

/// A backend with the slot that it was given.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SlotBackend {
    /// Its number while it exists, below [`BACKENDS_MAX`].
    pub slot: u8,
    /// Name and address of the backend.
    pub backend: Backend,
}

/// Settings in force, with the slots given to the backends.
#[derive(Clone, Debug)]
pub struct Snapshot {
    /// The settings as they were given.
    pub settings: Settings,
    /// The backends in the order of the settings.
    pub targets: Vec<SlotBackend>,
}

/// What the loops have in common.
#[derive(Debug)]
pub struct Shared {
    /// State of each slot.
    pub slots: [Slot; BACKENDS_MAX],
    /// What is remembered of sessions and addresses.
    pub memory: Memory,
    pub(super) per_address: PerAddress,
    pub(super) room: Room,
    /// Counters of each loop.
    pub counts: Box<[Counts]>,
    snapshot: Mutex<Arc<Snapshot>>,
    /// Raised by each new snapshot: loops take the lock only then.
    generation: AtomicU64,
    phase: AtomicU8,
    /// Descriptors have run out and the control socket waits for one: no connection is accepted before it has it.
    pub control_waits: AtomicBool,
}

impl Shared {
    /// For so many loops, with tables of so many entries.
    pub fn new(settings: Settings, loops: usize, table_entries: usize) -> Result<Shared, SettingsError> {
        let shared = Shared {
            slots: std::array::from_fn(|_| Slot::default()),
            memory: Memory::new(table_entries),
            per_address: PerAddress::default(),
            room: Room::new(loops),
            counts: (0..loops).map(|_| Counts::default()).collect(),
            snapshot: Mutex::new(Arc::new(Snapshot { settings: settings.clone(), targets: Vec::new() })),
            generation: AtomicU64::new(0),
            phase: AtomicU8::new(Phase::Run as u8),
            control_waits: AtomicBool::new(false),
        };
        shared.replace(settings)?;
        Ok(shared)
    }

    /// The settings in force and their generation.
    pub fn snapshot(&self) -> (Arc<Snapshot>, u64) {
        let snapshot = self.snapshot.lock().unwrap_or_else(PoisonError::into_inner);
        (Arc::clone(&snapshot), self.generation.load(Ordering::Acquire))
    }

    pub(super) fn generation(&self) -> u64 {
        self.generation.load(Ordering::Acquire)
    }

    /// Puts new settings in force. Backends whose address stays keep what is known about them; those that are gone get
    /// no new connections, and their open ones go on.
    ///
    /// # Errors
    /// The settings cannot be taken; the old ones stay in force.
    pub fn replace(&self, settings: Settings) -> Result<(), SettingsError> {
        settings.check()?;
        let mut snapshot = self.snapshot.lock().unwrap_or_else(PoisonError::into_inner);
        let targets = self.place(&settings.backends, &snapshot.targets)?;
        for (number, slot) in self.slots.iter().enumerate() {
            let wanted = targets.iter().any(|target| usize::from(target.slot) == number);
            if wanted && !slot.wanted.swap(true, Ordering::Relaxed) {
                self.memory.forget_slots(1 << number);
                slot.down.store(false, Ordering::Relaxed);
                slot.failures_in_a_row.store(0, Ordering::Relaxed);
            } else if !wanted {
                slot.wanted.store(false, Ordering::Relaxed);
            }
        }
        if settings.policy == Policy::Lard {
            self.memory.keep_objects();
        }
        *snapshot = Arc::new(Snapshot { settings, targets });
        self.generation.fetch_add(1, Ordering::Release);
        Ok(())
    }

    /// Gives each backend its slot: the one it had, or else one that nobody uses.
    fn place(&self, backends: &[Backend], old: &[SlotBackend]) -> Result<Vec<SlotBackend>, SettingsError> {
        let had = |backend: &Backend| old.iter().find(|target| target.backend.address == backend.address);
        let mut taken =
            old.iter().filter(|target| backends.iter().any(|backend| backend.address == target.backend.address));
        let mut taken = taken.by_ref().fold(0_u64, |taken, target| taken | 1 << target.slot);
        let mut targets = Vec::with_capacity(backends.len());
        for backend in backends {
            let slot = match had(backend) {
                Some(target) => target.slot,
                None => {
                    let recent = old.iter().fold(0_u64, |recent, target| recent | 1 << target.slot);
                    let slot = self.free_slot(taken | recent).or_else(|| self.free_slot(taken));
                    slot.ok_or(SettingsError::StillDraining)?
                }
            };
            taken |= 1 << slot;
            targets.push(SlotBackend { slot, backend: backend.clone() });
        }
        Ok(targets)
    }

    fn free_slot(&self, taken: u64) -> Option<u8> {
        (0..BACKENDS_MAX as u8)
            .find(|&slot| taken >> slot & 1 == 0 && self.slots[usize::from(slot)].active.load(Ordering::Relaxed) == 0)
    }

    /// Number of open connections of all loops.
    pub fn open_connections(&self) -> u64 {
        self.counts.iter().map(|counts| counts.all.accepted.get().saturating_sub(counts.all.closed.get())).sum()
    }

    /// How far the end has come.
    pub fn phase(&self) -> Phase {
        match self.phase.load(Ordering::Acquire) {
            0 => Phase::Run,
            1 => Phase::Drain,
            _ => Phase::Stop,
        }
    }

    /// Asks for the end; never takes it back. The loops notice when they are woken.
    pub fn end(&self, phase: Phase) {
        self.phase.fetch_max(phase as u8, Ordering::AcqRel);
    }

    /// Slots of `targets` that can get connections, as a mask.
    pub(super) fn usable(&self, targets: &[SlotBackend]) -> u64 {
        let up = targets.iter().filter(|target| !self.slots[usize::from(target.slot)].down.load(Ordering::Relaxed));
        up.fold(0, |mask, target| mask | 1 << target.slot)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn objects_are_kept_once_the_policy_is_lard() {
        let backend = Backend { name: "one".to_owned(), address: ([127, 0, 0, 1], 1).into() };
        let with = |policy| Settings {
            backends: vec![backend.clone()],
            policy,
            proxy_header: Default::default(),
            limits: Default::default(),
            session_timeout_s: 300,
            check: Default::default(),
        };
        let shared = Shared::new(with(Policy::Session), 1, 64).unwrap();
        assert!(shared.memory.objects().is_none(), "4 MiB that nobody needs");
        shared.replace(with(Policy::Lard)).unwrap();
        assert_eq!(shared.memory.objects().map(|objects| objects.capacity()), Some(64));
        let object = shared.memory.object(b"/a");
        shared.memory.note_object(object, 0, 1, 300);
        shared.replace(with(Policy::Session)).unwrap();
        shared.replace(with(Policy::Lard)).unwrap();
        assert_eq!(shared.memory.slot_of_object(object, 2), 1, "what was known is not thrown away");
    }
}
