//! What `tlsdyno advise` read of an installed server, as its records keep it beside what was measured.

use serde::{Deserialize, Serialize};
use tlsdyno_record::model::RemedyId;
use tlsdyno_tls::named;

/// What was read, and what could be changed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AdviceModel {
    /// What the server is, in a line.
    pub server: String,
    /// Names with what was read of each.
    pub reading: Vec<(String, String)>,
    /// What is said besides: rules with their age, and lines for a better log.
    pub notes: Vec<String>,
    /// What could be changed, and what is there already.
    pub considered: Vec<ConsideredModel>,
    /// Requests a second of the site; `None`: nobody knows.
    pub rate_per_s: Option<f64>,
}

/// A remedy, and what becomes of it here.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ConsideredModel {
    /// Which it is; `None`: a record of old, which has titles only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<RemedyId>,
    /// What it is called.
    pub name: String,
    /// What becomes of it.
    pub here: Here,
    /// Why that becomes of it.
    pub why: String,
    /// What it costs in security, memory or old clients.
    pub price: String,
    /// What the operator writes.
    pub lines: Vec<String>,
}

impl ConsideredModel {
    /// Which remedy it is; `None`: one that is not known any more.
    pub fn id(&self) -> Option<RemedyId> {
        self.id.or_else(|| self.name.parse().ok())
    }
}

named! {
    /// What becomes of a remedy.
    pub enum Here: "outcome of a remedy" {
        /// It is measured.
        ToTry = "to try",
        /// The server has it.
        There = "there already",
        /// It is told from the files only.
        NotMeasured = "not measured",
        /// No remedy for CPU time: something that the server's owner should know.
        Remark = "remark",
    }
}
