//! The cluster experiment (Apostolopoulos et al. 2000, "Scaling an E-Commerce Site", Figures 8 and 9): servers of one
//! kind behind dispatchers of several policies, under traffic that offers more and more of its sessions again.
//!
//! All servers and dispatchers are up together; blocks of all cells (policy, reuse, load) alternate in random order
//! within each round, as in the main job.

mod locality;
pub mod place;
mod record;
mod rig;
pub mod run;
mod verify;
