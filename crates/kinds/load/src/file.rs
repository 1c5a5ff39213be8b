//! The load on a server of which nothing but its URL is known, as data: what a file with a swept flag says, and what
//! the record of a load run says that it was.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};
use tlsdyno_record::model::{Measure, ServerName, Tls, WorkersModel, without_secrets, without_value};

use crate::curve::file::Curve;

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LoadExperiment {
    pub question: String,
    /// Request URL; of `server` only its path counts.
    pub url: String,
    /// A server that is started for the experiment.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub server: Option<StartedServer>,
    /// Each point is one run, whose course over time is kept, not blocks in rounds: shows when sessions renew.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub one_run: bool,
    /// Another URL, which is loaded in turn with the first and compared with it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub against: Option<String>,
    /// Flags of `tlsdyno load` by their long names: `reuse = "80%"`, `connections = 32`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub load: BTreeMap<String, FlagValue>,
    /// Flags with all the values that they take, and `object_bytes` of `[server]`: every combination is a point.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub sweep: BTreeMap<String, Vec<FlagValue>>,
    /// Throughput at saturation over percent reuse, instead of a sweep.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub curve: Option<Curve>,
    #[serde(default)]
    pub measure: Measure,
    /// Workers that make the load; `None`: this process.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workers: Option<WorkersModel>,
}

/// A server that is started for the experiment, with one object.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct StartedServer {
    pub kind: ServerName,
    pub object_bytes: u64,
    /// Duration of each page beside the server, one after the other, microseconds (built-in server: the transaction
    /// server of Mraz et al. 2002).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub transaction_us: Option<f64>,
    /// TLS settings of the server; what clients offer is among the flags.
    pub tls: Tls,
}

impl Default for StartedServer {
    fn default() -> StartedServer {
        StartedServer { kind: ServerName::Nginx, object_bytes: 7168, transaction_us: None, tls: Tls::default() }
    }
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum FlagValue {
    /// Whether a flag without a value is given.
    Switch(bool),
    Whole(i64),
    /// A number that is not an integer.
    Number(f64),
    Text(String),
}

impl fmt::Display for FlagValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            FlagValue::Switch(value) => value.fmt(f),
            FlagValue::Whole(value) => value.fmt(f),
            FlagValue::Number(value) => value.fmt(f),
            FlagValue::Text(value) => value.fmt(f),
        }
    }
}

/// The flag whose values no record keeps.
const HEADER: &str = "header";

/// The key of `[sweep]` that is not a flag: sizes of the object of `[server]`, bytes.
pub const SIZES: &str = "object_bytes";

/// A combination of the swept values.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct LoadPoint {
    pub name: String,
    /// All flags, as on a command line.
    pub flags: Vec<String>,
    /// Bytes, where sizes are swept.
    pub object_bytes: Option<u64>,
}

impl LoadExperiment {
    /// For a record, which may be given to others: without the values of headers.
    #[must_use]
    pub fn without_secrets(&self) -> LoadExperiment {
        let mut kept = self.clone();
        let swept = kept.sweep.get_mut(HEADER).into_iter().flatten();
        for value in kept.load.get_mut(HEADER).into_iter().chain(swept) {
            *value = FlagValue::Text(without_value(&value.to_string()));
        }
        let (question, url) = (without_secrets(&self.question), without_secrets(&self.url));
        LoadExperiment { question, url, against: self.against.as_deref().map(without_secrets), ..kept }
    }

    /// The last flag of the sweep changes fastest.
    pub fn points(&self) -> Vec<LoadPoint> {
        let mut chosen: Vec<Vec<(&String, &FlagValue)>> = vec![Vec::new()];
        for (name, values) in &self.sweep {
            let with = |point: &Vec<_>| values.iter().map(|value| [&point[..], &[(name, value)]].concat()).collect();
            chosen = chosen.iter().flat_map::<Vec<Vec<_>>, _>(with).collect();
        }
        chosen.iter().map(|swept| self.point(swept)).collect()
    }

    fn point(&self, swept: &[(&String, &FlagValue)]) -> LoadPoint {
        let told = |(name, value): &(&String, &FlagValue)| match value {
            FlagValue::Switch(true) => (*name).clone(),
            FlagValue::Switch(false) => format!("not {name}"),
            // Names stand in the record: without the value a number tells headers apart.
            value if *name == HEADER => {
                let at = self.sweep[HEADER].iter().position(|swept| swept == *value).unwrap_or(0);
                format!("{name} {} ({})", without_value(&value.to_string()), at + 1)
            }
            value => format!("{name} {value}"),
        };
        let name = swept.iter().map(told).collect::<Vec<_>>().join(", ");
        let size = swept.iter().find(|(name, _)| *name == SIZES);
        let fixed = self.load.iter().filter(|(name, _)| !self.sweep.contains_key(*name));
        let flag = |(name, value): (&String, &FlagValue)| match value {
            FlagValue::Switch(false) => None,
            FlagValue::Switch(true) => Some(format!("--{name}")),
            value => Some(format!("--{name}={value}")),
        };
        LoadPoint {
            name: if name.is_empty() { self.url.clone() } else { name },
            flags: fixed.chain(swept.iter().copied().filter(|(name, _)| *name != SIZES)).filter_map(flag).collect(),
            object_bytes: size.and_then(|(_, value)| value.to_string().parse().ok()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_of_headers_are_not_kept() {
        let text = |text: &str| FlagValue::Text(text.to_owned());
        let swept = ["X-A: hunter2", "X-A: hunter3"].map(text).to_vec();
        let experiment = LoadExperiment {
            load: [("header".to_owned(), text("Authorization: hunter2")), ("reuse".to_owned(), text("80%"))].into(),
            sweep: [("header".to_owned(), swept)].into(),
            url: "https://a/?token=hunter2".to_owned(),
            ..LoadExperiment::default()
        };
        let kept = experiment.without_secrets();
        assert_eq!(kept.load["header"], text("Authorization: …"));
        assert_eq!(kept.load["reuse"], text("80%"));
        assert_eq!(kept.sweep["header"], ["X-A: …", "X-A: …"].map(text));
        assert_eq!(kept.url, "https://a/?token=…");
        let points = experiment.points();
        assert_eq!(points[1].name, "header X-A: … (2)");
        assert!(points[1].flags.contains(&"--header=X-A: hunter3".to_owned()), "{points:?}");
    }

    #[test]
    fn every_combination_is_a_point_with_its_flags() {
        let text = "question = \"q?\"\nurl = \"https://localhost/\"\n[load]\ninsecure = true\nconnections = 8\n\
                    [sweep]\nconnections = [1, 2]\nreuse = [\"0%\", \"50%\"]\n";
        let experiment: LoadExperiment = toml::from_str(text).unwrap();
        let points = experiment.points();
        let names: Vec<&str> = points.iter().map(|point| point.name.as_str()).collect();
        assert_eq!(names[..2], ["connections 1, reuse 0%", "connections 1, reuse 50%"]);
        assert_eq!(points.len(), 4);
        assert_eq!(points[3].flags, ["--insecure", "--connections=2", "--reuse=50%"]);
        let switch = BTreeMap::from([("staggered".to_owned(), [false, true].map(FlagValue::Switch).to_vec())]);
        let switched = LoadExperiment { sweep: switch, ..experiment.clone() }.points();
        assert_eq!([&switched[0].name, &switched[1].name], ["not staggered", "staggered"]);
        let single = LoadExperiment { sweep: BTreeMap::new(), ..experiment };
        assert_eq!(single.points()[0].name, "https://localhost/");
    }
}
