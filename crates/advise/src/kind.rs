//! The records of `tlsdyno advise`: those of an ablation on an installed server, with what was read of it beside.

use serde::Serialize;
use tlsdyno_ablation::Ablation;
use tlsdyno_ablation::summary::Summary;
use tlsdyno_record::model::Experiment;
use tlsdyno_record::store::Record;
use tlsdyno_runner::kinds::files::Written;
use tlsdyno_runner::kinds::{AnyExperiment, AnySummary, Kind};
use tlsdyno_runner::report::document::Document;
use tlsdyno_runner::report::json;

use crate::advice::Advice;
use crate::page;

/// Ablations that advise.
pub struct Advised;

impl Kind for Advised {
    fn field(&self) -> &'static str {
        Ablation.field()
    }

    fn key(&self) -> &'static str {
        "advice"
    }

    fn is_of(&self, record: &Record) -> bool {
        record.kind_part.of::<Experiment>().is_some_and(|experiment| experiment.advice.is_some())
    }

    fn read(&self, file: &Written) -> anyhow::Result<Box<dyn AnyExperiment>> {
        Ablation.read(file)
    }

    fn summary(&self, record: &Record) -> anyhow::Result<Box<dyn AnySummary>> {
        Ok(Box::new(AdvisedSummary { advice: Advice::of(record), summary: Summary::of(record) }))
    }

    fn so_far(&self, record: &Record, _rows: usize) -> String {
        Advice::of(record).map_or_else(String::new, |advice| page::so_far(&advice))
    }
}

/// Its numbers; without advice where none was requested.
struct AdvisedSummary {
    advice: Option<Advice>,
    summary: Summary,
}

/// Results of an ablation with the advice.
#[derive(Serialize)]
struct Results<'a> {
    advice: &'a Advice,
    #[serde(flatten)]
    summary: &'a Summary,
}

impl AnySummary for AdvisedSummary {
    fn document(&self, record: &Record) -> Document {
        let of_record = self.summary.document(record);
        match &self.advice {
            Some(advice) => page::document(of_record, advice),
            None => of_record,
        }
    }

    fn json(&self, record: &Record) -> String {
        let Some(advice) = &self.advice else { return self.summary.json(record) };
        let results = Results { advice, summary: &self.summary };
        json::results(record, advice.told(), self.summary.rounds, results, &self.summary.warnings)
    }
}
