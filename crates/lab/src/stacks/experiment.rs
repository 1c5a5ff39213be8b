//! `tlsdyno run stacks`: the stacks that are there become servers of one experiment of `cost` for each certificate.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};
use tlsdyno_base::exit::Exit;
use tlsdyno_base::fault::{Fault, OrFault};
use tlsdyno_base::output;
use tlsdyno_cost::file::{Cost, CostExperiment, Started};
use tlsdyno_record::model::{CertificateKind, Measure};
use tlsdyno_runner::kinds::perform::{OutputArgs, ResultArgs};
use tlsdyno_runner::kinds::{AnyExperiment, Changes, any_experiment};
use tlsdyno_servers::programs;

use super::Stacks;
use super::recipe::{Recipe, Serving};

#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct StacksExperiment {
    question: String,
    stacks: Chosen,
    /// What is measured of each; the servers are the stacks.
    #[serde(default)]
    cost: Cost,
    /// `time_s` is that of all records together.
    #[serde(default)]
    measure: Measure,
}

#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
struct Chosen {
    /// Names, or recipes; empty: all that are built or installed.
    only: Vec<String>,
    /// Each has a record of its own.
    certificates: Vec<CertificateKind>,
}

/// A stack that is there.
struct Ready {
    recipe: Recipe,
    server: Serving,
    about: String,
}

impl AnyExperiment for StacksExperiment {
    any_experiment!(Stacks);

    fn complete(&mut self, directory: &Path) -> Result<()> {
        for name in self.stacks.only.iter_mut().filter(|name| name.ends_with(".toml")) {
            *name = directory.join(&*name).display().to_string();
        }
        Ok(())
    }

    fn change(&mut self, changes: &Changes, name: &str) -> Result<()> {
        changes.refuse_workers(name)?;
        changes.refuse_libraries(name)?;
        ensure_fault!(Usage, changes.server.is_none(), "{name} measures all stacks; leave --server out");
        if let Some(certificate) = changes.cert {
            self.stacks.certificates = vec![certificate];
        }
        changes.change(&mut self.measure);
        Ok(())
    }

    fn perform(&self, output: &OutputArgs) -> Result<Exit> {
        if output.print_experiment {
            return output::answer(self.to_toml()?);
        }
        let runs = self.runs(&self.ready()?)?;
        for (_, experiment) in &runs {
            experiment.check().or_fault(Fault::Usage)?;
        }
        let mut exit = Exit::Done;
        for (name, experiment) in &runs {
            let output = if runs.len() == 1 { output.clone() } else { called(output, name) };
            match experiment.perform(&output)? {
                Exit::Interrupted => return Ok(Exit::Interrupted),
                ended if exit == Exit::Done => exit = ended,
                _ => {}
            }
        }
        Ok(exit)
    }
}

/// With a report of this name beside that of the others.
fn called(output: &OutputArgs, name: &str) -> OutputArgs {
    let report = output.results.report().map(|path| -> PathBuf {
        let stem = path.file_stem().unwrap_or_default().to_string_lossy();
        path.with_file_name(format!("{stem}-{name}.html"))
    });
    let mut results = ResultArgs::of(output.results.json, report);
    results.markdown = output.results.markdown;
    OutputArgs { results, ..output.clone() }
}

impl StacksExperiment {
    /// The stacks that are measured; tells of the others what is missing.
    fn ready(&self) -> Result<Vec<Ready>> {
        let is_chosen = !self.stacks.only.is_empty();
        let recipes = match is_chosen {
            true => self.stacks.only.iter().map(|name| Recipe::find(name)).collect::<Result<_>>()?,
            false => Recipe::all()?,
        };
        let (mut ready, mut missing) = (Vec::new(), Vec::new());
        for recipe in recipes {
            let server = recipe.server.clone().filter(|_| recipe.state().is_ok_and(|state| state.is_ready()));
            let Some(server) = server else {
                missing.push(recipe.name());
                continue;
            };
            let version = recipe.filled(&server.version)?;
            let said = programs::output_of(Path::new("sh"), &["-c", &version]);
            let lines: Vec<String> = said.lines().map(|line| line.replace('\t', " ").trim().to_owned()).collect();
            let about = lines.join(", ");
            ready.push(Ready { recipe, server, about });
        }
        let missing = missing.join(", ");
        let is_enough = !ready.is_empty() && (missing.is_empty() || !is_chosen);
        let remedy = || format!("not built or installed: {missing}; `tlsdyno stacks` says what each needs");
        is_enough.then_some(()).with_context(remedy).or_fault(Fault::Environment)?;
        if !missing.is_empty() {
            tell!("Left out, {}.", remedy());
        }
        Ok(ready)
    }

    /// For each certificate all that can stand in one table, and each group that cannot; with a name for its report.
    fn runs(&self, ready: &[Ready]) -> Result<Vec<(String, CostExperiment)>> {
        let mut tables: BTreeMap<Option<String>, Vec<&Ready>> = BTreeMap::new();
        for one in ready {
            let group = one.server.group.filter(|group| Some(*group) != self.cost.group);
            let of_group = group.map(|group| format!("agrees on keys by {group} alone"));
            tables.entry(one.server.apart.clone().or(of_group)).or_default().push(one);
        }
        let records = (self.stacks.certificates.len() * ready.len()) as f64;
        let mut runs = Vec::new();
        for (&kind, (number, (apart, stacks))) in
            self.stacks.certificates.iter().flat_map(|kind| tables.iter().enumerate().map(move |table| (kind, table)))
        {
            let why = apart.as_ref().map_or(String::new(), |why| format!(" (apart, because it {why})"));
            let question = format!("{} Certificate: {kind}{why}", self.question);
            let servers = stacks.iter().map(|one| one.started(kind)).collect::<Result<_>>()?;
            let cost = Cost { servers, ..self.cost.clone() };
            let time_s = self.measure.time_s * stacks.len() as f64 / records;
            let measure = Measure { time_s, ..self.measure.clone() };
            let name = if number == 0 { kind.to_string() } else { format!("{kind}-apart-{number}") };
            runs.push((name, CostExperiment { question, cost, measure }));
        }
        Ok(runs)
    }
}

impl Ready {
    fn started(&self, certificate: CertificateKind) -> Result<Started> {
        Ok(Started {
            name: self.recipe.name(),
            about: self.about.clone(),
            command: self.recipe.filled(&self.server.command)?,
            address: "127.0.0.1:{port}".to_owned(),
            certificate: Some(certificate),
            configuration: Some(self.recipe.filled(&self.server.configuration)?).filter(|text| !text.is_empty()),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ready(name: &str) -> Ready {
        let recipe = Recipe::find(name).unwrap();
        let server = recipe.server.clone().unwrap();
        Ready { recipe, server, about: "1.0".to_owned() }
    }

    #[test]
    fn stacks_share_a_table_unless_they_stand_apart_and_share_the_time() {
        let stacks = ["nginx/installed", "lighttpd/mbedtls", "haproxy/installed"].map(ready);
        let certificates = vec![CertificateKind::P256, CertificateKind::Rsa2048];
        let experiment = StacksExperiment {
            question: "What?".to_owned(),
            stacks: Chosen { certificates, ..Chosen::default() },
            cost: Cost { only_life: true, ..Cost::default() },
            measure: Measure { time_s: 60.0, ..Measure::default() },
        };
        let runs = experiment.runs(&stacks).unwrap();
        let told: Vec<(&str, usize, f64)> =
            runs.iter().map(|(name, of)| (&**name, of.cost.servers.len(), of.measure.time_s)).collect();
        let wanted =
            [("p-256", 2, 20.0), ("p-256-apart-1", 1, 10.0), ("rsa-2048", 2, 20.0), ("rsa-2048-apart-1", 1, 10.0)];
        assert_eq!(told, wanted);
        assert!(runs[1].1.question.contains("TLS 1.3") && runs.iter().all(|(_, of)| of.cost.only_life));
        assert!(runs.iter().all(|(_, of)| of.check().is_ok()));
    }
}
