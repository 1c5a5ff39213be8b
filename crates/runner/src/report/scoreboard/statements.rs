//! A paper's own summary of its results, sentence by sentence: which record answers it, and what became of it.

use serde::Deserialize;
use tlsdyno_stats::scoreboard::{Claim, Fate};

use super::{Entry, line, told};

/// Statements of section 3.13 of Coarfa, Druschel and Wallach (ACM TOCS 2006).
const COARFA: &str = include_str!("../../../../../experiments/statements/coarfa-2006-s313.toml");

/// Verdict of what was not measured here, or not all of it.
const NOT_JUDGED: &str = "not judged";

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Statements {
    /// Prefix of the names of the experiments that answer them.
    experiments: String,
    /// Experiments that a statement is about, if it does not say so itself.
    needs: Vec<String>,
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
    /// The statement's range, in the unit of the claim; `None`: the claim's own.
    range: Option<[f64; 2]>,
    /// `range` in words.
    paper: Option<String>,
    /// Experiments that the statement is about: without a record of each it is not judged.
    needs: Option<Vec<String>>,
}

/// The statements as a Markdown table, with the answers of the entries.
pub(super) fn table(entries: &[Entry]) -> String {
    let statements: Statements = toml::from_str(COARFA).expect("a test reads it");
    let entries: Vec<&Entry> =
        entries.iter().filter(|entry| entry.experiment.starts_with(&statements.experiments)).collect();
    let heads = ["", "section 3.13", "the number", "here", "verdict"].map(str::to_owned);
    let rows = statements
        .statement
        .iter()
        .zip(1..)
        .map(|(statement, number)| rows(statement, number, (&entries, &statements.needs)));
    line(&heads) + &line(&vec!["---".to_owned(); heads.len()]) + &rows.collect::<String>()
}

fn rows(statement: &Statement, number: usize, (entries, needs): (&[&Entry], &[String])) -> String {
    let answer = |by: &By| answer(by, entries, by.needs.as_deref().unwrap_or(needs));
    let mut lines: Vec<[String; 3]> = statement.by.iter().map(answer).collect();
    let why = statement.not_answered.iter();
    lines.extend(why.map(|why| [String::new(), why.clone(), NOT_JUDGED.to_owned()]));
    let row = |(at, [paper, here, verdict]): (usize, [String; 3])| {
        let first = if at == 0 { [number.to_string(), statement.says.clone()] } else { [String::new(), String::new()] };
        line(&first.into_iter().chain([paper, here, verdict]).collect::<Vec<_>>())
    };
    lines.into_iter().enumerate().map(row).collect()
}

fn answer(by: &By, entries: &[&Entry], needs: &[String]) -> [String; 3] {
    let claims = entries.iter().flat_map(|entry| entry.claims.iter().map(move |claim| (*entry, claim)));
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
    let is_missing = |name: &&String| claims.iter().all(|(entry, _)| !entry.experiment.starts_with(name.as_str()));
    let missing: Vec<String> = needs.iter().filter(is_missing).map(|name| format!("`{name}`")).collect();
    let mut here: Vec<String> = claims.iter().map(cell).collect();
    here.extend((!missing.is_empty()).then(|| format!("no record of {}", missing.join(", "))));
    [about, here.join("<br>"), verdict(&fates, missing.is_empty())]
}

/// Fate of a statement about all cells: it falls with one beyond its range, and stands where all that it is about were
/// measured and stand.
fn verdict(fates: &[Fate], has_all: bool) -> String {
    let beyond = fates.iter().filter(|fate| matches!(fate, Fate::Bigger | Fate::Smaller)).count();
    let stands = fates.iter().filter(|fate| **fate == Fate::Stands).count();
    match fates.len() {
        all if beyond > 0 => format!("does not hold in {beyond} of {all}"),
        _ if !has_all => NOT_JUDGED.to_owned(),
        all if stands == all => "stands".to_owned(),
        all => format!("undecided in {} of {all}", all - stands),
    }
}
