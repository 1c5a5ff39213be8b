//! What `tlsdyno advise` read of an installed server, as its records keep it beside what was measured.

use serde::{Deserialize, Serialize};
use tlsdyno_record::model::RemedyId;
use tlsdyno_tls::named;

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AdviceModel {
    pub server: String,
    pub reading: Vec<(String, String)>,
    /// Remarks beside the remedies: age of the rules, and lines for a better log.
    pub notes: Vec<String>,
    pub considered: Vec<ConsideredModel>,
    pub rate_per_s: Option<f64>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ConsideredModel {
    /// `None`: a record of an older version, which has titles only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<RemedyId>,
    pub name: String,
    pub here: Here,
    pub why: String,
    /// Price of the remedy in security, memory or old clients.
    pub price: String,
    pub lines: Vec<String>,
}

impl ConsideredModel {
    /// `None`: a remedy that this version does not know.
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
