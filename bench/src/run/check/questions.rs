//! Questions of an experiment that name what is there.

use anyhow::{Result, ensure};

use crate::model::{Experiment, PaperModel};

/// The answers that an experiment gives, checked.
pub(super) trait CheckQuestions {
    /// Every name in shares, comparisons, remedies and the paper's numbers is there, once.
    fn check_answers(&self) -> Result<()>;
}

impl CheckQuestions for Experiment {
    fn check_answers(&self) -> Result<()> {
        let names: Vec<&str> = self.configurations.iter().map(|configuration| configuration.name.as_str()).collect();
        let known = |what: String, name: &str| {
            ensure!(
                names.contains(&name),
                "{what} names configuration `{name}`, which is not in the experiment; there are: {}",
                quoted_list(&names)
            );
            Ok(())
        };
        for share in &self.shares {
            for name in [Some(&share.on), share.off.as_ref()].into_iter().flatten() {
                known(format!("share `{}`", share.name), name)?;
            }
            ensure!(
                share.off.as_ref() != Some(&share.on),
                "share `{}` compares `{}` with itself; give two configurations, or leave `off` out for all that is \
                 left",
                share.name,
                share.on
            );
        }
        for comparison in &self.comparisons {
            let what = format!("comparison `{}`", comparison.question);
            known(what.clone(), &comparison.a)?;
            known(what.clone(), &comparison.b)?;
            ensure!(
                comparison.a != comparison.b,
                "{what} compares `{}` with itself; give two configurations",
                comparison.a
            );
            ensure!(
                comparison.published_times.is_none_or(|[low, high]| 0.0 <= low && low <= high && high.is_finite()),
                "{what}: `published_times` is a range of times, for example [1.46, 2.11] for +46 to +111 %"
            );
        }
        for remedy in &self.remedies {
            let what = format!("remedy `{}`", remedy.name);
            known(what.clone(), &remedy.configuration)?;
            if let Some(over) = &remedy.over {
                known(what.clone(), over)?;
            }
            ensure!(
                remedy.over.as_ref() != Some(&remedy.configuration),
                "{what} improves on itself; name another configuration in `over`"
            );
        }
        let shares: Vec<&str> = self.shares.iter().map(|share| share.name.as_str()).collect();
        unique("shares", &shares)?;
        unique("comparisons", &self.comparisons.iter().map(|of| of.question.as_str()).collect::<Vec<_>>())?;
        unique("remedies", &self.remedies.iter().map(|of| of.name.as_str()).collect::<Vec<_>>())?;
        self.paper.as_ref().map_or(Ok(()), |paper| paper.check(&names, &shares))
    }
}

/// What a paper published, checked.
trait CheckPaper {
    fn check(&self, configurations: &[&str], shares: &[&str]) -> Result<()>;
}

impl CheckPaper for PaperModel {
    fn check(&self, configurations: &[&str], shares: &[&str]) -> Result<()> {
        let tables = [
            ("percent_of_plain", &self.percent_of_plain, configurations, "configurations"),
            ("hits_per_s", &self.hits_per_s, configurations, "configurations"),
            ("shares_percent", &self.shares_percent, shares, "shares"),
        ];
        for (table, numbers, names, what) in tables {
            for (name, numbers) in numbers {
                ensure!(
                    names.contains(&name.as_str()),
                    "paper.{table} has numbers for `{name}`, which is none of the experiment's {what}: {}",
                    quoted_list(names)
                );
                ensure!(
                    numbers.len() == self.machines.len(),
                    "paper.{table} has {} numbers for `{name}`, but paper.machines names {} machines; write nan for a \
                     number that was not published",
                    numbers.len(),
                    self.machines.len()
                );
                ensure!(
                    numbers.iter().all(|number| number.is_nan() || (*number >= 0.0 && number.is_finite())),
                    "paper.{table} has a negative or infinite number for `{name}`"
                );
            }
        }
        Ok(())
    }
}

fn unique(what: &str, names: &[&str]) -> Result<()> {
    let twice = names.iter().enumerate().find(|(index, name)| names[..*index].contains(name));
    ensure!(twice.is_none(), "two {what} are called `{}`; give each its own name", twice.map_or("", |(_, name)| name));
    Ok(())
}

fn quoted_list(names: &[&str]) -> String {
    if names.is_empty() {
        return "none".to_owned();
    }
    names.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ")
}
