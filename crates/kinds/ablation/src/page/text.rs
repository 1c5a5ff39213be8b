//! Shares in words.

use tlsdyno_base::units::UNDECIDED;
use tlsdyno_runner::report::text::{part_interval, part_number, stage_label};

use tlsdyno_stats::PartOfWhole;

use crate::summary::{Loaded, Share};

/// Name of a share, with the stages whose cost it includes: `rest of TLS (with MAC, digest)`.
pub fn share_label(share: &Share) -> String {
    let stages: Vec<String> = share.without.iter().map(|stage| stage_label(stage)).collect();
    let label = stage_label(&share.stage);
    if stages.is_empty() { label } else { format!("{label} (with {})", stages.join(", ")) }
}

/// As [`share_label`] for narrow places: more than two stages are counted, not named.
pub fn short_share_label(share: &Share) -> String {
    match share.without.len() {
        0..=2 => share_label(share),
        stages => format!("{} (with {stages} stages)", stage_label(&share.stage)),
    }
}

/// Names of our libraries that the server had loaded.
pub fn loaded_label(loaded: Loaded) -> &'static str {
    match loaded {
        Loaded::Provider => "provider",
        Loaded::Shim => "shim",
        Loaded::Both => "provider and shim",
        Loaded::Doubler => "doubler",
    }
}

/// `41.2 % [39.0, 43.1]`.
pub fn share_with_interval(share: &Share) -> String {
    match share.part() == PartOfWhole::NotKnown || share.estimate().has_interval() {
        true => [share_number(share), share_interval(share)].join(" ").trim_end().to_owned(),
        false => UNDECIDED.to_owned(),
    }
}

/// `41.2 %`; a bound, or `not known`, in place of an impossible number.
pub fn share_number(share: &Share) -> String {
    part_number(share.part())
}

/// `[39.0, 43.1]`; empty where the whole interval is impossible.
pub fn share_interval(share: &Share) -> String {
    part_interval(share.part(), share.low, share.high)
}
