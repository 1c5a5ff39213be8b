//! `tlsdyno doctor`: whether this machine can measure, and what to do about what stands in the way.

mod alone;
mod calibrate;
mod machine;
mod neighbour;
mod software;

use anyhow::Result;
use serde::Serialize;

use crate::exit::Exit;
use crate::report::document::{Column, Document, Section, row};
use crate::report::terminal::{self, Style};

/// Check this machine: OpenSSL and the no-op provider, servers, CPUs, limits, what disturbs measuring
///
/// Ends with status 6 if something must be mended before tlsdyno can measure. Remarks (`note`, `warn`) do not count.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Print one JSON object
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    calibrate: calibrate::Args,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
enum Verdict {
    /// As it should be.
    Ok,
    /// Worth knowing; costs nothing.
    Note,
    /// Measuring works, but less well.
    Warn,
    /// Something tlsdyno does will fail.
    Fail,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
struct Check {
    name: &'static str,
    verdict: Verdict,
    finding: String,
    /// What to do about it; empty where nothing needs doing.
    remedy: String,
}

impl Check {
    fn ok(name: &'static str, finding: impl Into<String>) -> Check {
        Check { name, verdict: Verdict::Ok, finding: finding.into(), remedy: String::new() }
    }

    fn but(name: &'static str, verdict: Verdict, finding: impl Into<String>, remedy: impl Into<String>) -> Check {
        Check { name, verdict, finding: finding.into(), remedy: remedy.into() }
    }

    /// The same finding with another verdict, where it is that bad.
    fn but_if(self, is_so: bool, verdict: Verdict, remedy: impl Into<String>) -> Check {
        if is_so { Check { verdict, remedy: remedy.into(), ..self } } else { self }
    }
}

#[derive(Serialize)]
struct Findings {
    able: bool,
    checks: Vec<Check>,
}

pub fn run(args: &Args) -> Result<Exit> {
    if args.calibrate.calibrate {
        return crate::output::answer(calibrate::run(&args.calibrate, args.json)?);
    }
    let mut checks = software::checks();
    checks.extend(machine::checks());
    checks.extend(neighbour::check());
    let able = checks.iter().all(|check| check.verdict < Verdict::Fail);
    let findings = Findings { able, checks };
    crate::output::print(if args.json { crate::output::json_of(&findings)? } else { table(&findings) })?;
    Ok(if able { Exit::Done } else { Exit::Environment })
}

fn table(findings: &Findings) -> String {
    let mut rows = Vec::new();
    for check in &findings.checks {
        let mark = match check.verdict {
            Verdict::Ok => "ok",
            Verdict::Note => "note",
            Verdict::Warn => "warn",
            Verdict::Fail => "FAIL",
        };
        rows.push(row([mark.to_owned(), check.name.to_owned(), check.finding.clone()], false));
        if !check.remedy.is_empty() {
            rows.push(row([String::new(), String::new(), format!("→ {}", check.remedy)], false));
        }
    }
    let warnings = findings.checks.iter().filter(|check| check.verdict == Verdict::Warn).count();
    let conclusion = match (findings.able, warnings) {
        (false, _) => "This machine cannot measure until what is marked FAIL is mended.".to_owned(),
        (true, 0) => "This machine can measure.".to_owned(),
        (true, _) => format!("This machine can measure; the {warnings} marked warn would make the numbers better."),
    };
    let columns = vec![Column::number(""), Column::words(""), Column::words("")];
    let section = Section::default().table(columns, rows).text(conclusion);
    terminal::text(&Document::from_sections([section]), Style::PLAIN)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_shows_marks_and_remedies() {
        let checks =
            vec![Check::ok("OpenSSL", "3.0.22"), Check::but("cores", Verdict::Fail, "one", "use another machine")];
        let text = table(&Findings { able: false, checks });
        assert!(text.contains("  ok  OpenSSL  3.0.22\n") && text.contains("FAIL  cores    one\n"), "{text}");
        assert!(text.contains("→ use another machine\n") && text.ends_with("mended.\n"));
    }
}
