//! A load made by several machines: workers dial the coordinator, get their part of it, begin together, and what they
//! did is merged. Who starts and places workers is another's work: a command, ssh, Slurm or Kubernetes.
//!
//! `coordinator` decides, and knows neither sockets nor clocks; `crew` carries it out; `worker` is the other end.

pub mod carried;
mod clock;
pub mod coordinator;
pub mod crew;
pub mod far_cpu;
pub mod gather;
pub mod job;
pub mod kubernetes;
pub mod launch;
mod link;
#[cfg(test)]
mod simulation;
pub mod slurm;
pub mod ssh;
pub mod token;
pub mod worker;
