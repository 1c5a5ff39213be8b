//! The kernel's samples of threads.

use std::io::ErrorKind;

use anyhow::{Context, Result};
use perf_event::data::Record;
use perf_event::events::Software;
use perf_event::{Builder, SampleFlag};
use tlsdyno_base::{affinity, process_tree};
use tlsdyno_servers::mapped_code;

use super::space::Space;
use super::{Sample, Settings};

/// Size of a ring where there are many threads, or little memory may be locked: in stacks of a sample.
const STACKS_LEAST: usize = 8;
const THREADS_MANY: usize = 16;
const RINGS_MOST: usize = 256;
/// Registers of x86-64 that unwinding begins with (`asm/perf_regs.h`): BP, SP, IP, in this order.
const REGISTERS: u64 = 1 << 6 | 1 << 7 | 1 << 8;
/// ESRCH (errno(3)).
const NO_SUCH_PROCESS: i32 = 3;
/// The samples of user space alone, in the type of a record (`PERF_RECORD_MISC_CPUMODE_MASK`).
const MODE_MASK: u16 = 7;
/// `PERF_RECORD_MISC_KERNEL`.
const MODE_KERNEL: u16 = 1;

/// Samples the threads of some processes.
pub struct Sampler {
    settings: Settings,
    threads: Vec<Thread>,
    spaces: Vec<(Vec<u32>, Space)>,
    sees_kernel: bool,
    is_enabled: bool,
    has_new_code: bool,
}

/// The events of a thread, on one CPU or on all.
struct Thread {
    pid: u32,
    tid: u32,
    /// Threads that it starts are sampled too.
    is_inherited: bool,
    events: perf_event::Sampler,
}

impl Sampler {
    /// Of all threads that these processes have now, and of those that they start. Nothing is sampled until
    /// [`Sampler::enable`].
    ///
    /// # Errors
    /// The kernel does not allow it, and what to do about it.
    pub fn of(pids: &[u32], settings: Settings) -> Result<Sampler> {
        anyhow::ensure!(cfg!(target_arch = "x86_64"), "sampling unwinds stacks of x86-64 only");
        let threads = threads_of(pids);
        let opened = open_all(&threads, true, &settings);
        let sees_kernel = opened.is_ok();
        let threads = opened.or_else(|_| open_all(&threads, false, &settings)).context(
            "the kernel lets nobody without privileges sample (/proc/sys/kernel/perf_event_paranoid); run tlsdyno with \
             CAP_PERFMON or as root, or as root: sysctl kernel.perf_event_paranoid=1",
        )?;
        let mut spaces = Vec::new();
        pids.iter().try_for_each(|&pid| map(&mut spaces, pid, &settings))?;
        Ok(Sampler { settings, threads, spaces, sees_kernel, is_enabled: false, has_new_code: false })
    }

    /// Time in the kernel is sampled too.
    pub fn sees_kernel(&self) -> bool {
        self.sees_kernel
    }

    /// Whether a file that the processes have mapped has a function whose name answers.
    pub fn has_function(&self, is_it: impl Fn(&str) -> bool) -> bool {
        self.spaces.iter().any(|(_, space)| space.has_function(&is_it))
    }

    /// Samples these processes from now on, and no others: what is new is opened, what is not among them is let go.
    /// What waits to be read of those that are let go is lost. With another period than before, in nanoseconds of CPU
    /// time, all are let go and opened anew. A process that ends meanwhile is left out.
    ///
    /// # Errors
    /// The kernel does not allow it any more.
    pub fn follow(&mut self, pids: &[u32], period_ns: u64) -> Result<()> {
        let all = threads_of(pids);
        let is_same = std::mem::replace(&mut self.settings.period_ns, period_ns) == period_ns;
        self.threads.retain(|thread| match thread.is_inherited {
            true => is_same && pids.contains(&thread.pid),
            false => is_same && all.contains(&(thread.pid, thread.tid)),
        });
        let is_sampled = |&(pid, tid): &(u32, u32)| {
            self.threads.iter().any(|thread| thread.pid == pid && (thread.is_inherited || thread.tid == tid))
        };
        let new: Vec<(u32, u32)> = all.into_iter().filter(|thread| !is_sampled(thread)).collect();
        let mut opened =
            open_all(&new, self.sees_kernel, &self.settings).context("sample new threads of the server")?;
        if self.is_enabled {
            // A thread that has ended meanwhile cannot be enabled, and has nothing to tell.
            opened.retain_mut(|thread| thread.events.enable().is_ok());
        }
        self.threads.extend(opened);
        for (of, _) in &mut self.spaces {
            of.retain(|pid| pids.contains(pid));
        }
        for &pid in pids {
            if !self.spaces.iter().any(|(of, _)| of.contains(&pid)) {
                // It may have ended.
                let _ = map(&mut self.spaces, pid, &self.settings);
            }
        }
        self.spaces.retain(|(of, _)| !of.is_empty());
        Ok(())
    }

    /// Whether a process has mapped other code since the last call: it executes another program, or has loaded a
    /// library.
    pub fn takes_new_code(&mut self) -> bool {
        std::mem::take(&mut self.has_new_code)
    }

    /// Starts sampling; fails where a thread has ended.
    pub fn enable(&mut self) -> Result<()> {
        self.is_enabled = true;
        self.threads.iter_mut().try_for_each(|thread| thread.events.enable()).context("sample the server")
    }

    /// Stops sampling; fails where a thread has ended. What was sampled until then can be read.
    pub fn disable(&mut self) -> Result<()> {
        self.is_enabled = false;
        self.threads.iter_mut().try_for_each(|thread| thread.events.disable()).context("sample the server")
    }

    /// Hands on the samples that wait. Returns how many found no room in the ring since the last reading.
    pub fn read(&mut self, mut take: impl FnMut(Sample)) -> u64 {
        let mut lost_count = 0;
        let Sampler { settings, threads, spaces, has_new_code, .. } = self;
        for Thread { pid, events, .. } in threads {
            let mut is_outdated = false;
            while let Some(record) = events.next_record() {
                let is_kernel = record.misc() & MODE_MASK == MODE_KERNEL;
                match record.parse_record() {
                    Ok(Record::Sample(sample)) => {
                        if std::mem::take(&mut is_outdated) {
                            *has_new_code |= map_anew(spaces, *pid, settings);
                        }
                        let space = spaces.iter_mut().find(|(pids, _)| pids.contains(pid)).map(|(_, space)| space);
                        let Some(space) = space else { continue };
                        let registers = sample.regs_user().map(|registers| registers.regs.to_vec());
                        let registers = registers.and_then(|registers| <[u64; 3]>::try_from(registers).ok());
                        let stack = sample.stack_user().unwrap_or_default();
                        let addresses = registers.map_or(Vec::new(), |registers| space.unwind(registers, stack));
                        take(Sample { is_kernel, frames: &space.frames(&addresses) });
                    }
                    Ok(Record::Mmap(_)) => is_outdated = true,
                    Ok(Record::Lost(lost)) => lost_count += lost.lost,
                    Ok(_) | Err(_) => (),
                }
            }
            *has_new_code |= is_outdated && map_anew(spaces, *pid, settings);
        }
        lost_count
    }
}

/// Processes with the code that all of them have mapped.
type Spaces = Vec<(Vec<u32>, Space)>;

/// Reads what code the process has mapped, unless another has the same.
fn map(spaces: &mut Spaces, pid: u32, settings: &Settings) -> Result<()> {
    let maps = mapped_code(pid)?;
    match spaces.iter_mut().find(|(_, space)| space.maps == maps) {
        Some((pids, _)) => pids.push(pid),
        None => {
            let searched = [settings.without_tables.clone(), settings.callers.clone()];
            spaces.push((vec![pid], Space::of(pid, maps, searched)));
        }
    }
    Ok(())
}

/// The same of a process that has mapped code since. `false`: that is no file, as of what compiles itself, or the
/// process has ended.
fn map_anew(spaces: &mut Spaces, pid: u32, settings: &Settings) -> bool {
    let is_known = |maps| spaces.iter().any(|(pids, space)| pids.contains(&pid) && space.maps == maps);
    if mapped_code(pid).map_or(true, is_known) {
        return false;
    }
    spaces.iter_mut().for_each(|(pids, _)| pids.retain(|one| *one != pid));
    let mapped = map(spaces, pid, settings);
    spaces.retain(|(pids, _)| !pids.is_empty());
    mapped.is_ok()
}

/// The threads that the processes have, each with its process.
fn threads_of(pids: &[u32]) -> Vec<(u32, u32)> {
    let of = |&pid: &u32| process_tree::numbers_in(&format!("/proc/{pid}/task")).into_iter().map(move |tid| (pid, tid));
    pids.iter().flat_map(of).collect()
}

/// Events of each thread on each of its CPUs, inherited by threads that it starts. Without inheritance where there are
/// too many of both, or before Linux 5.13.
fn open_all(threads: &[(u32, u32)], kernel: bool, settings: &Settings) -> std::io::Result<Vec<Thread>> {
    let cpus = |tid: u32| affinity::of_process(Some(tid)).unwrap_or_default();
    let each: Vec<(u32, u32, Option<usize>)> =
        threads.iter().flat_map(|&(pid, tid)| cpus(tid).into_iter().map(move |cpu| (pid, tid, Some(cpu)))).collect();
    let alone = || threads.iter().map(|&(pid, tid)| (pid, tid, None)).collect::<Vec<_>>();
    if each.is_empty() || each.len() > RINGS_MOST {
        return open_each(&alone(), kernel, settings);
    }
    match open_each(&each, kernel, settings) {
        Err(error) if error.kind() != ErrorKind::PermissionDenied => open_each(&alone(), kernel, settings),
        opened => opened,
    }
}

fn open_each(threads: &[(u32, u32, Option<usize>)], kernel: bool, settings: &Settings) -> std::io::Result<Vec<Thread>> {
    let least = STACKS_LEAST * settings.stack_bytes as usize;
    let mut ring = if threads.len() < THREADS_MANY { settings.ring_bytes } else { least };
    let mut opened = Vec::new();
    for &(pid, tid, cpu) in threads {
        let events = loop {
            match open(tid, cpu, kernel, settings, ring) {
                // The rest of the memory that may be locked.
                Err(error) if error.kind() == ErrorKind::PermissionDenied && ring > least => ring /= 2,
                // The thread has ended since it was listed.
                Err(error) if error.raw_os_error() == Some(NO_SUCH_PROCESS) => break None,
                other => break Some(other?),
            }
        };
        opened.extend(events.map(|events| Thread { pid, tid, is_inherited: cpu.is_some(), events }));
    }
    Ok(opened)
}

/// `cpu`: counts there, inherited by new threads; `None`: on any CPU, not inherited.
fn open(
    tid: u32,
    cpu: Option<usize>,
    kernel: bool,
    settings: &Settings,
    ring_bytes: usize,
) -> std::io::Result<perf_event::Sampler> {
    let mut builder = Builder::new(Software::CPU_CLOCK);
    builder
        .observe_pid(tid as i32)
        .sample_period(settings.period_ns)
        .sample(SampleFlag::IP | SampleFlag::REGS_USER | SampleFlag::STACK_USER)
        .sample_regs_user(REGISTERS)
        .sample_stack_user(settings.stack_bytes)
        .exclude_kernel(!kernel)
        .exclude_hv(true)
        .mmap(true);
    match cpu {
        // The kernel lets no ring be shared by all CPUs that threads yet to come may run on.
        Some(cpu) => builder.one_cpu(cpu).inherit(true).inherit_thread(true),
        None => builder.any_cpu(),
    };
    builder.build()?.sampled(ring_bytes)
}
