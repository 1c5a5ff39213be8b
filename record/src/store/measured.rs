//! What a record is of: one kind of experiment. Only that kind knows what its records hold; here they are data with
//! the name of a field.

use std::any::Any;
use std::fmt::Debug;
use std::sync::OnceLock;

use anyhow::{Context, Result};
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

/// An [`OfKind`] of any type.
trait Held: Any + Debug + Send + Sync {
    fn copied(&self) -> Box<dyn Held>;
    fn json(&self) -> Value;
}

impl<T: OfKind> Held for T {
    fn copied(&self) -> Box<dyn Held> {
        Box::new(self.clone())
    }

    fn json(&self) -> Value {
        serde_json::to_value(self).expect("keys are strings only, so that it is always JSON")
    }
}

/// What was measured. As JSON it is one field of the record, with the kind's name.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(try_from = "Map<String, Value>", into = "Map<String, Value>")]
pub struct Measured {
    field: String,
    /// As it was read; empty where `held` was set first.
    read: Value,
    /// The same as its kind understands it, since it was first asked for.
    held: OnceLock<Box<dyn Held>>,
}

impl Measured {
    /// The field of the record that holds it; empty while nothing is known of what is measured.
    pub fn field(&self) -> &str {
        &self.field
    }

    /// What was measured, if it is of this kind and can be understood.
    pub fn of<T: OfKind>(&self) -> Option<&T> {
        self.understood().ok()
    }

    /// The same, to be changed.
    pub fn of_mut<T: OfKind>(&mut self) -> Option<&mut T> {
        self.of::<T>()?;
        self.read = Value::Null;
        let held: &mut dyn Any = self.held.get_mut()?.as_mut();
        held.downcast_mut()
    }

    /// The same, or why not.
    ///
    /// # Errors
    /// The record is of another kind, or a field is missing, unknown or of another type.
    pub fn understood<T: OfKind>(&self) -> Result<&T> {
        let held = match self.held.get() {
            Some(held) => held,
            None if self.field == T::FIELD => {
                let read = T::deserialize(&self.read);
                let read = read.with_context(|| format!("the record's `{}` is not understood", self.field))?;
                self.held.get_or_init(|| Box::new(read))
            }
            None => anyhow::bail!("the record is of `{}`, not of `{}`", self.field, T::FIELD),
        };
        let held: &dyn Any = held.as_ref();
        held.downcast_ref().with_context(|| format!("the record is of `{}`, not of `{}`", self.field, T::FIELD))
    }
}

impl<T: OfKind> From<T> for Measured {
    fn from(of: T) -> Measured {
        Measured { field: T::FIELD.to_owned(), read: Value::Null, held: OnceLock::from(Box::new(of) as Box<dyn Held>) }
    }
}

impl Clone for Measured {
    fn clone(&self) -> Measured {
        let held = self.held.get().map_or_else(OnceLock::new, |held| OnceLock::from(held.copied()));
        Measured { field: self.field.clone(), read: self.read.clone(), held }
    }
}

impl PartialEq for Measured {
    fn eq(&self, other: &Measured) -> bool {
        Map::from(self.clone()) == Map::from(other.clone())
    }
}

impl From<Measured> for Map<String, Value> {
    fn from(of: Measured) -> Map<String, Value> {
        let value = of.held.get().map_or(of.read, |held| held.json());
        Some((of.field, value)).into_iter().filter(|(field, _)| !field.is_empty()).collect()
    }
}

impl TryFrom<Map<String, Value>> for Measured {
    type Error = &'static str;

    fn try_from(fields: Map<String, Value>) -> Result<Measured, &'static str> {
        let mut fields = fields.into_iter();
        let (field, read) = fields.next().unwrap_or_default();
        if fields.next().is_some() {
            return Err("a record is of one kind of experiment");
        }
        Ok(Measured { field, read, held: OnceLock::new() })
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
        assert_eq!(record.measured.of(), Some(&Cells { backends: 3 }));
        assert_eq!(record.measured.of::<Points>(), None);
        let other = record.measured.understood::<Points>().unwrap_err().to_string();
        assert!(other.contains("`cells`, not of `points`"), "{other}");
        record.measured.of_mut::<Cells>().unwrap().backends = 4;
        assert_eq!(record.measured, Measured::from(Cells { backends: 4 }));
        let written = serde_json::to_value(&record).unwrap();
        assert!(written["cells"]["backends"] == 4 && written.get("points").is_none(), "{written}");
        assert_eq!(read("").unwrap().measured, Measured::default());
        let both = read(", \"cells\": {}, \"points\": null").unwrap_err();
        assert!(both.contains("one kind"), "{both}");
        let wrong = read(", \"cells\": {\"bakcends\": 3}").unwrap().measured;
        assert!(wrong.of::<Cells>().is_none());
        let wrong = format!("{:#}", wrong.understood::<Cells>().unwrap_err());
        assert!(wrong.contains("`cells`") && wrong.contains("bakcends"), "{wrong}");
    }
}
