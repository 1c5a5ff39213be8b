//! What a record is of: one kind of experiment.

use serde::{Deserialize, Serialize};

use super::array::ArrayRecord;
use super::load::LoadRecord;
use super::primitives::PrimitivesRecord;
use super::profile::ProfileRecord;
use super::steps::StepsRecord;
use crate::model::Experiment;
use crate::model::cluster::ClusterExperiment;

/// Each kind of experiment with what its records hold besides. Of all but the first the parts are the configurations,
/// in their order. On disk a record has a field of the kind's name.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "Fields", into = "Fields")]
pub enum Measured {
    /// One server, in a record from before its experiment was kept.
    #[default]
    Untold,
    /// One server: what each configuration changes, named shares, comparisons, remedies, and a paper's numbers.
    Experiment(Box<Experiment>),
    /// The cells of a cluster.
    Cluster(Box<ClusterExperiment>),
    /// The points of a load.
    Load(Box<LoadRecord>),
    /// The cells of a profile.
    Profile(Box<ProfileRecord>),
    /// The places of an array.
    Array(Box<ArrayRecord>),
    /// Primitives of a library.
    Primitives(Box<PrimitivesRecord>),
    /// Handshakes step by step.
    Steps(Box<StepsRecord>),
}

macro_rules! kinds {
    ($($variant:ident $name:ident $name_mut:ident $type:ty),*) => {
        impl Measured {
            $(
                /// What was measured, if it is of this kind.
                pub fn $name(&self) -> Option<&$type> {
                    if let Measured::$variant(of) = self { Some(of) } else { None }
                }

                /// The same, to be changed.
                pub fn $name_mut(&mut self) -> Option<&mut $type> {
                    if let Measured::$variant(of) = self { Some(of) } else { None }
                }
            )*
        }

        $(impl From<$type> for Measured {
            fn from(of: $type) -> Measured {
                Measured::$variant(Box::new(of))
            }
        })*

        #[derive(Default, Serialize, Deserialize)]
        #[serde(default)]
        struct Fields {
            $(#[serde(skip_serializing_if = "Option::is_none")] $name: Option<Box<$type>>,)*
        }

        impl From<Measured> for Fields {
            fn from(measured: Measured) -> Fields {
                match measured {
                    Measured::Untold => Fields::default(),
                    $(Measured::$variant(of) => Fields { $name: Some(of), ..Fields::default() },)*
                }
            }
        }

        impl TryFrom<Fields> for Measured {
            type Error = &'static str;

            fn try_from(fields: Fields) -> Result<Measured, &'static str> {
                let all = [$(fields.$name.map(Measured::$variant)),*];
                let mut kinds = all.into_iter().flatten();
                let first = kinds.next().unwrap_or_default();
                if kinds.next().is_some() { Err("a record is of one kind of experiment") } else { Ok(first) }
            }
        }
    };
}
kinds!(
    Experiment experiment experiment_mut Experiment,
    Cluster cluster cluster_mut ClusterExperiment,
    Load load load_mut LoadRecord,
    Profile profile profile_mut ProfileRecord,
    Array array array_mut ArrayRecord,
    Primitives primitives primitives_mut PrimitivesRecord,
    Steps steps steps_mut StepsRecord
);

#[cfg(test)]
mod tests {
    use super::super::Record;
    use super::*;

    fn read(more: &str) -> Result<Record, String> {
        let mut text = serde_json::to_string(&Record::begun_now("q?", 1)).unwrap();
        text.insert_str(text.len() - 1, more);
        serde_json::from_str(&text).map_err(|error| error.to_string())
    }

    #[test]
    fn a_record_names_its_kind_and_has_one() {
        let cluster = serde_json::to_string(&ClusterExperiment::default()).unwrap();
        let load = serde_json::to_string(&LoadRecord::default()).unwrap();
        let record = read(&format!(", \"cluster\": {cluster}")).unwrap();
        assert!(record.measured.cluster().is_some() && record.measured.load().is_none());
        let written = serde_json::to_value(&record).unwrap();
        assert!(written["cluster"].is_object() && written.get("load").is_none(), "{written}");
        assert_eq!(read("").unwrap().measured, Measured::Untold);
        let both = read(&format!(", \"cluster\": {cluster}, \"load\": {load}")).unwrap_err();
        assert!(both.contains("one kind"), "{both}");
        let unknown = read(", \"clutser\": {}").unwrap_err();
        assert!(unknown.contains("clutser"), "{unknown}");
        let wrong = read(", \"cluster\": {\"bakcends\": 3}").unwrap_err();
        assert!(wrong.contains("bakcends"), "{wrong}");
    }
}
