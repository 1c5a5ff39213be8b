//! What a cost experiment says: what TOML files hold and what the flags of `tlsdyno cost` build.

use std::net::SocketAddr;

use anyhow::{Context, Result, ensure};
use serde::{Deserialize, Serialize};
use tlsdyno_base::permission;
use tlsdyno_base::url::Url;
use tlsdyno_record::model::Measure;

/// What TLS costs a server, from outside.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CostExperiment {
    /// What is asked, in one sentence ending in a question mark.
    pub question: String,
    /// Which server, and in which units the answer is wanted.
    pub cost: Cost,
    /// How long and where it is measured.
    #[serde(default)]
    pub measure: Measure,
}

/// The server, and the units of its owner.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Cost {
    /// What is requested.
    pub url: String,
    /// The process that serves it, with its children; `None`: whichever listens there.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pid: Option<u32>,
    /// New connections a second, for costs in CPUs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rate_per_s: Option<f64>,
    /// Hosts besides this machine that may be loaded.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub may_load: Vec<String>,
}

impl CostExperiment {
    /// Refuses what cannot be measured.
    ///
    /// # Errors
    /// What is wrong, and the remedy.
    pub fn check(&self) -> Result<()> {
        let url = self.url()?;
        ensure!(url.tls, "{} is plain HTTP; give the server's https:// URL", self.cost.url);
        let rate = self.cost.rate_per_s.unwrap_or(1.0);
        ensure!(rate.is_finite() && rate > 0.0, "a rate is a number of connections a second above 0");
        permission::check(&url.host, self.address()?, &self.cost.may_load)
    }

    /// The URL in its parts.
    ///
    /// # Errors
    /// It is none.
    pub fn url(&self) -> Result<Url> {
        Url::parse(&self.cost.url)
    }

    /// The address of the server.
    ///
    /// # Errors
    /// Its name is not known.
    pub fn address(&self) -> Result<SocketAddr> {
        self.url()?.resolve().with_context(|| format!("failed to find {}", self.cost.url))
    }
}
