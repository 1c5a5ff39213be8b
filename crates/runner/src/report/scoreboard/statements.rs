//! A paper's own summary of its results, sentence by sentence: which record answers it, and what became of it.

use serde::Deserialize;
use tlsdyno_stats::scoreboard::{Claim, Fate};

use super::{Entry, line, told};

/// Statements of section 3.13 of Coarfa, Druschel and Wallach (ACM TOCS 2006).
const COARFA: &str = include_str!("../../../../../experiments/statements/coarfa-2006-s313.toml");

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Statements {
    /// Prefix of the names of the experiments that answer them.
    experiments: String,
    statement: Vec<Statement>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Statement {
    /// The paper's statement.
    says: String,
    #[serde(default)]
    by: Vec<By>,
    /// The part that is not answered, with the reason.
    not_answered: Option<String>,
}

/// Claims of records that answer a statement.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct By {
    /// Subject of the claims ([`Claim::about`]).
    claim: String,
    /// Prefix of the experiments of these claims; empty: all.
    #[serde(default)]
    of: String,
    /// The statement's range, in the unit of the claim; `None`: the claim's own.
    range: Option<[f64; 2]>,
    /// `range` in words.
    paper: Option<String>,
}

/// The statements as a Markdown table, with the answers of the entries.
pub(super) fn table(entries: &[Entry]) -> String {
    let statements: Statements = toml::from_str(COARFA).expect("a test reads it");
    let entries: Vec<&Entry> =
        entries.iter().filter(|entry| entry.experiment.starts_with(&statements.experiments)).collect();
    let heads = ["", "section 3.13", "the number", "here", "verdict"].map(str::to_owned);
    let rows = statements.statement.iter().zip(1..).map(|(statement, number)| rows(statement, number, &entries));
    line(&heads) + &line(&vec!["---".to_owned(); heads.len()]) + &rows.collect::<String>()
}

fn rows(statement: &Statement, number: usize, entries: &[&Entry]) -> String {
    let mut lines: Vec<[String; 3]> = statement.by.iter().map(|by| answer(by, entries)).collect();
    let why = statement.not_answered.iter();
    lines.extend(why.map(|why| [String::new(), why.clone(), "not answered here".to_owned()]));
    let row = |(at, [paper, here, verdict]): (usize, [String; 3])| {
        let first = if at == 0 { [number.to_string(), statement.says.clone()] } else { [String::new(), String::new()] };
        line(&first.into_iter().chain([paper, here, verdict]).collect::<Vec<_>>())
    };
    lines.into_iter().enumerate().map(row).collect()
}

fn answer(by: &By, entries: &[&Entry]) -> [String; 3] {
    let of = entries.iter().filter(|entry| entry.experiment.starts_with(&by.of));
    let claims = of.flat_map(|entry| entry.claims.iter().map(move |claim| (*entry, claim)));
    let claims: Vec<(&Entry, Claim)> = claims
        .filter(|(_, claim)| claim.about == by.claim)
        .map(|(entry, claim)| match (by.range, &by.paper) {
            (Some(range), paper) => (entry, claim.beside(range, paper.clone().unwrap_or_else(|| claim.paper.clone()))),
            (None, _) => (entry, claim.clone()),
        })
        .collect();
    let cell = |(entry, claim): &(&Entry, Claim)| {
        let ours = told(claim).unwrap_or_default();
        format!("`{}`, {}: {ours} {}", entry.experiment, entry.head(), claim.fate.word())
    };
    let mut papers: Vec<&str> = claims.iter().map(|(_, claim)| claim.paper.as_str()).collect();
    papers.dedup();
    let about = format!("{}: {}", by.claim, by.paper.clone().unwrap_or_else(|| papers.join("; ")));
    let fates: Vec<Fate> = claims.iter().map(|(_, claim)| claim.fate).collect();
    [about, claims.iter().map(cell).collect::<Vec<_>>().join("<br>"), verdict(&fates)]
}

/// Fate of a statement about all cells: it stands where all of them stand, and falls with one beyond its range.
fn verdict(fates: &[Fate]) -> String {
    let beyond = fates.iter().filter(|fate| matches!(fate, Fate::Bigger | Fate::Smaller)).count();
    let stands = fates.iter().filter(|fate| **fate == Fate::Stands).count();
    match fates.len() {
        0 => "no record answers it".to_owned(),
        all if stands == all => "stands".to_owned(),
        all if beyond > 0 => format!("does not hold in {beyond} of {all}"),
        all => format!("undecided in {} of {all}", all - stands),
    }
}
