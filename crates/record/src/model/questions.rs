//! What an experiment is to answer: named shares, comparisons and remedies.

use serde::{Deserialize, Serialize};

use super::RemedyId;

/// A share of the cost of a hit: what the step from one configuration to another saves, relative to the untouched
/// server (Coarfa et al. 2006 section 3, Amdahl's law): `T_as_is * (1/T_on - 1/T_off)`, and `(c_on - c_off) / c_as_is`
/// for CPU.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ShareModel {
    /// Name in tables, for example `RSA`.
    pub name: String,
    /// The configuration that still has the cost.
    pub on: String,
    /// The configuration that has the cost no more. `None`: the whole cost of `on` is the share (what is left at the
    /// end).
    pub off: Option<String>,
}

/// Two configurations that answer a question: which one serves more hits per second?
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ComparisonModel {
    /// The question, for example `An accelerator or a faster CPU?`.
    pub question: String,
    /// The first configuration.
    pub a: String,
    /// The second configuration.
    pub b: String,
    /// What the paper says, for example `+11 to +24 % (section 3.4)`.
    pub paper: Option<String>,
    /// What the paper says in numbers: from how many to how many times as many hits per second `b` serves as `a`.
    pub published_times: Option<[f64; 2]>,
}

/// A range that a paper gives of shares, over all its machines and workloads: what it claims of each of them.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ShareClaimModel {
    /// What it is about, for example `Share of public-key cryptography (3.13)`.
    pub question: String,
    /// The shares: their sum is what the range is of.
    pub shares: Vec<String>,
    /// Not their sum, but each of them: the largest is told.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub each: bool,
    /// Shares that each are to be taken away: the one that leaves least is told.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub above: Vec<String>,
    /// What the paper says, for example `13 to 58 % (section 3.13)`.
    pub paper: String,
    /// What the paper says, in per cent of the cost of a hit.
    pub published_percent: [f64; 2],
}

/// A remedy: a configuration that somebody could really run, or the bound of one.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RemedyModel {
    /// What to do: the id of a remedy of the table, for example `ecdsa-certificate`, or words of one's own.
    pub name: String,
    /// The configuration that has the remedy.
    pub configuration: String,
    /// The configuration that it improves; `None`: the untouched server.
    pub over: Option<String>,
    /// The remedy cannot be had, it bounds what can: for example plain data for kernel or hardware TLS.
    #[serde(default)]
    pub bound: bool,
}

impl RemedyModel {
    /// Id of the remedy in the table. Files and records of old have its title.
    pub fn id(&self) -> Option<RemedyId> {
        self.name.parse().ok()
    }

    /// Title of the remedy; where a file has a title of its own, that.
    pub fn title(&self) -> &str {
        self.id().filter(|id| id.name() == self.name).map_or(&self.name, |id| id.remedy().title)
    }
}
