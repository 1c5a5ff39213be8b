//! The part of a record that belongs to one kind of experiment. Only that kind knows what it holds; here it is data
//! with the name of a field.

use std::any::Any;
use std::fmt::Debug;
use std::sync::{Arc, OnceLock};

use anyhow::{Context, Result, ensure};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::model::Experiment;

/// The field of loads on URLs, whose servers may be on another machine, so that their CPU is not known.
pub const LOAD: &str = "load";

/// What a kind of experiment keeps in its records besides the blocks. Of all but an ablation the parts are the
/// configurations, in their order.
pub trait OfKind: Clone + Debug + PartialEq + Serialize + DeserializeOwned + Send + Sync + 'static {
    /// The field of a record that holds it.
    const FIELD: &'static str;
}

impl OfKind for Experiment {
    const FIELD: &'static str = "experiment";
}

/// The part of a record that belongs to its kind of experiment. As JSON it is one field of the record, with the kind's
/// name.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(try_from = "Map<String, Value>", into = "Map<String, Value>")]
pub struct KindPart {
    field: String,
    value: Value,
    /// The same as its kind understands it, since it was first asked for.
    understood: OnceLock<Arc<dyn Any + Send + Sync>>,
}

impl KindPart {
    /// The field of the record that holds it; empty while nothing is known of what is measured.
    pub fn field(&self) -> &str {
        &self.field
    }

    /// What was measured, if it is of this kind and can be understood.
    pub fn of<T: OfKind>(&self) -> Option<&T> {
        self.understood().ok()
    }

    /// Changes what was measured, if it is of this kind.
    pub fn change<T: OfKind>(&mut self, change: impl FnOnce(&mut T)) {
        if let Some(mut of) = self.of::<T>().cloned() {
            change(&mut of);
            *self = KindPart::from(of);
        }
    }

    /// What was measured, or why it is not understood.
    ///
    /// # Errors
    /// The record is of another kind, or a field is missing, unknown or of another type.
    pub fn understood<T: OfKind>(&self) -> Result<&T> {
        ensure!(self.field == T::FIELD, "the record is of `{}`, not of `{}`", self.field, T::FIELD);
        let understood = match self.understood.get() {
            Some(understood) => understood,
            None => {
                let read = T::deserialize(&self.value);
                let read = read.with_context(|| format!("the record's `{}` is not understood", self.field))?;
                self.understood.get_or_init(|| Arc::new(read))
            }
        };
        understood.downcast_ref().with_context(|| format!("two kinds call their part of a record `{}`", self.field))
    }
}

impl<T: OfKind> From<T> for KindPart {
    fn from(of: T) -> KindPart {
        let value = serde_json::to_value(&of).expect("keys are strings only, so that it is always JSON");
        let of: Arc<dyn Any + Send + Sync> = Arc::new(of);
        KindPart { field: T::FIELD.to_owned(), value, understood: OnceLock::from(of) }
    }
}

impl PartialEq for KindPart {
    fn eq(&self, other: &KindPart) -> bool {
        self.field == other.field && self.value == other.value
    }
}

impl From<KindPart> for Map<String, Value> {
    fn from(KindPart { field, value, .. }: KindPart) -> Map<String, Value> {
        Some((field, value)).into_iter().filter(|(field, _)| !field.is_empty()).collect()
    }
}

impl TryFrom<Map<String, Value>> for KindPart {
    type Error = &'static str;

    fn try_from(fields: Map<String, Value>) -> Result<KindPart, &'static str> {
        let mut fields = fields.into_iter();
        let (field, value) = fields.next().unwrap_or_default();
        if fields.next().is_some() {
            return Err("a record is of one kind of experiment");
        }
        Ok(KindPart { field, value, understood: OnceLock::new() })
    }
}

#[cfg(test)]
mod tests {
    use super::super::Record;
    use super::*;

    #[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Cells {
        backends: u32,
    }

    impl OfKind for Cells {
        const FIELD: &'static str = "cells";
    }

    #[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
    struct Points;

    impl OfKind for Points {
        const FIELD: &'static str = "points";
    }

    fn read(more: &str) -> Result<Record, String> {
        let mut text = serde_json::to_string(&Record::begun_now("q?", 1)).unwrap();
        text.insert_str(text.len() - 1, more);
        serde_json::from_str(&text).map_err(|error| error.to_string())
    }

    #[test]
    fn a_record_names_its_kind_and_has_one() {
        let mut record = read(", \"cells\": {\"backends\": 3}").unwrap();
        assert_eq!(serde_json::to_value(&record).unwrap()["cells"]["backends"], 3, "before anybody asks");
        assert_eq!(record.kind_part.of(), Some(&Cells { backends: 3 }));
        assert_eq!(record.kind_part.of::<Points>(), None);
        let other = record.kind_part.understood::<Points>().unwrap_err().to_string();
        assert!(other.contains("`cells`, not of `points`"), "{other}");
        record.kind_part.change(|cells: &mut Cells| cells.backends = 4);
        assert_eq!(record.kind_part, KindPart::from(Cells { backends: 4 }));
        let written = serde_json::to_value(&record).unwrap();
        assert!(written["cells"]["backends"] == 4 && written.get("points").is_none(), "{written}");
        assert_eq!(read("").unwrap().kind_part, KindPart::default());
        let both = read(", \"cells\": {}, \"points\": null").unwrap_err();
        assert!(both.contains("one kind"), "{both}");
        let wrong = read(", \"cells\": {\"bakcends\": 3}").unwrap().kind_part;
        assert!(wrong.of::<Cells>().is_none());
        let wrong = format!("{:#}", wrong.understood::<Cells>().unwrap_err());
        assert!(wrong.contains("`cells`") && wrong.contains("bakcends"), "{wrong}");
    }
}
