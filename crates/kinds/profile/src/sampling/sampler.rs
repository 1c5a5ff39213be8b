//! The kernel's samples of threads.

use std::io::ErrorKind;

use anyhow::{Context, Result};
use perf_event::data::Record;
use perf_event::events::Software;
use perf_event::{Builder, SampleFlag};
use tlsdyno_base::{affinity, process_tree};
use tlsdyno_record::store::samples::{PERIOD_NS, Samples};
use tlsdyno_servers::mapped_code;

use super::Trampolines;
use super::space::Space;

/// Bytes of the stack in a sample: a signature needs some thousands (with AVX-512 IFMA, RSA-2048 of OpenSSL 3.0 has one
/// frame of 11,328 bytes), and what calls it hundreds.
const STACK_BYTES: u32 = 16 * 1024;
/// Size of the ring in which a thread's samples wait to be read: those of a slice.
const RING_BYTES: usize = 2 * 1024 * 1024;
/// Size of a ring where there are many threads, or little memory may be locked.
const RING_BYTES_LEAST: usize = 128 * 1024;
const THREADS_MANY: usize = 16;
const RINGS_MOST: usize = 256;
/// Registers of x86-64 that unwinding begins with (`asm/perf_regs.h`): BP, SP, IP, in this order.
const REGISTERS: u64 = 1 << 6 | 1 << 7 | 1 << 8;
/// The samples of user space alone, in the type of a record (`PERF_RECORD_MISC_CPUMODE_MASK`).
const MODE_MASK: u16 = 7;
/// `PERF_RECORD_MISC_KERNEL`.
const MODE_KERNEL: u16 = 1;

/// Samples the threads of some processes.
pub struct Sampler {
    threads: Vec<(u32, perf_event::Sampler)>,
    spaces: Vec<(Vec<u32>, Space)>,
    sees_kernel: bool,
}

impl Sampler {
    /// Of all threads that these processes have now, and of those that they start. Nothing is sampled until
    /// [`Sampler::enable`].
    ///
    /// # Errors
    /// The kernel does not allow it, and what to do about it.
    pub fn of(pids: &[u32], trampolines: &Trampolines) -> Result<Sampler> {
        anyhow::ensure!(cfg!(target_arch = "x86_64"), "sampling unwinds stacks of x86-64 only");
        let threads: Vec<(u32, u32)> = pids
            .iter()
            .flat_map(|pid| process_tree::numbers_in(&format!("/proc/{pid}/task")).into_iter().map(|tid| (*pid, tid)))
            .collect();
        let opened = open_all(&threads, true);
        let sees_kernel = opened.is_ok();
        let threads = opened.or_else(|_| open_all(&threads, false)).context(
            "the kernel lets nobody without privileges sample (/proc/sys/kernel/perf_event_paranoid); run tlsdyno with \
             CAP_PERFMON or as root, or as root: sysctl kernel.perf_event_paranoid=1",
        )?;
        let mut spaces: Vec<(Vec<u32>, Space)> = Vec::new();
        for &pid in pids {
            let maps = mapped_code(pid)?;
            match spaces.iter_mut().find(|(_, space)| space.maps == maps) {
                Some((pids, _)) => pids.push(pid),
                None => spaces.push((vec![pid], Space::of(maps, trampolines))),
            }
        }
        Ok(Sampler { threads, spaces, sees_kernel })
    }

    /// Time in the kernel is sampled too.
    pub fn sees_kernel(&self) -> bool {
        self.sees_kernel
    }

    /// Starts sampling; fails where a thread has ended.
    pub fn enable(&mut self) -> Result<()> {
        self.threads.iter_mut().try_for_each(|(_, thread)| thread.enable()).context("sample the server")
    }

    /// Stops sampling, and returns the samples; fails where a thread has ended.
    pub fn disable(&mut self) -> Result<Samples> {
        let mut samples = Samples::default();
        for (pid, thread) in &mut self.threads {
            thread.disable().context("sample the server")?;
            let space = self.spaces.iter_mut().find(|(pids, _)| pids.contains(pid)).map(|(_, space)| space);
            let Some(space) = space else { continue };
            while let Some(record) = thread.next_record() {
                let is_kernel = record.misc() & MODE_MASK == MODE_KERNEL;
                match record.parse_record() {
                    Ok(Record::Sample(sample)) => {
                        let registers = sample.regs_user().map(|registers| registers.regs.to_vec());
                        let registers = registers.and_then(|registers| <[u64; 3]>::try_from(registers).ok());
                        let stack = sample.stack_user().unwrap_or_default();
                        let frames = registers.map_or(Vec::new(), |registers| space.unwind(registers, stack));
                        space.add(&mut samples, is_kernel, &frames);
                    }
                    Ok(Record::Lost(lost)) => samples.lost_count += lost.lost,
                    Ok(_) | Err(_) => (),
                }
            }
        }
        Ok(samples)
    }
}

/// Events of each thread on each of its CPUs, inherited by threads that it starts. Without inheritance where there are
/// too many of both, or before Linux 5.13.
fn open_all(threads: &[(u32, u32)], kernel: bool) -> std::io::Result<Vec<(u32, perf_event::Sampler)>> {
    let cpus = |tid: u32| affinity::of_process(Some(tid)).unwrap_or_default();
    let each: Vec<(u32, u32, Option<usize>)> =
        threads.iter().flat_map(|&(pid, tid)| cpus(tid).into_iter().map(move |cpu| (pid, tid, Some(cpu)))).collect();
    let alone = || threads.iter().map(|&(pid, tid)| (pid, tid, None)).collect::<Vec<_>>();
    if each.is_empty() || each.len() > RINGS_MOST {
        return open_each(&alone(), kernel);
    }
    match open_each(&each, kernel) {
        Err(error) if error.kind() != ErrorKind::PermissionDenied => open_each(&alone(), kernel),
        opened => opened,
    }
}

fn open_each(threads: &[(u32, u32, Option<usize>)], kernel: bool) -> std::io::Result<Vec<(u32, perf_event::Sampler)>> {
    let mut ring = if threads.len() < THREADS_MANY { RING_BYTES } else { RING_BYTES_LEAST };
    let mut opened = Vec::new();
    for &(pid, tid, cpu) in threads {
        let thread = loop {
            match open(tid, cpu, kernel, ring) {
                // The rest of the memory that may be locked.
                Err(error) if error.kind() == ErrorKind::PermissionDenied && ring > RING_BYTES_LEAST => ring /= 2,
                other => break other?,
            }
        };
        opened.push((pid, thread));
    }
    Ok(opened)
}

/// `cpu`: counts there, inherited by new threads; `None`: on any CPU, not inherited.
fn open(tid: u32, cpu: Option<usize>, kernel: bool, ring_bytes: usize) -> std::io::Result<perf_event::Sampler> {
    let mut builder = Builder::new(Software::CPU_CLOCK);
    builder
        .observe_pid(tid as i32)
        .sample_period(PERIOD_NS)
        .sample(SampleFlag::IP | SampleFlag::REGS_USER | SampleFlag::STACK_USER)
        .sample_regs_user(REGISTERS)
        .sample_stack_user(STACK_BYTES)
        .exclude_kernel(!kernel)
        .exclude_hv(true);
    match cpu {
        // The kernel lets no ring be shared by all CPUs that threads yet to come may run on.
        Some(cpu) => builder.one_cpu(cpu).inherit(true).inherit_thread(true),
        None => builder.any_cpu(),
    };
    builder.build()?.sampled(ring_bytes)
}
