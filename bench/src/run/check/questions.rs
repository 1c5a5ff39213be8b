//! Questions of an experiment that name what is there.

use anyhow::{Result, ensure};
use tlsdyno_record::model::{Experiment, PaperModel};

/// Every name in shares, comparisons, remedies and the paper's numbers is there, once.
pub(super) fn check(experiment: &Experiment) -> Result<()> {
    let names: Vec<&str> = experiment.configurations.iter().map(|model| model.name.as_str()).collect();
    let known = |what: &str, name: &str| {
        ensure!(
            names.contains(&name),
            "{what} names configuration `{name}`, which is not in the experiment; there are: {}",
            quoted_list(&names)
        );
        Ok(())
    };
    for share in &experiment.shares {
        let what = format!("share `{}`", share.name);
        known(&what, &share.on)?;
        share.off.as_ref().map_or(Ok(()), |off| known(&what, off))?;
        ensure!(
            share.off.as_ref() != Some(&share.on),
            "{what} compares `{}` with itself; give two configurations, or leave `off` out for all that is left",
            share.on
        );
    }
    for comparison in &experiment.comparisons {
        let what = format!("comparison `{}`", comparison.question);
        known(&what, &comparison.a)?;
        known(&what, &comparison.b)?;
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
    for remedy in &experiment.remedies {
        let what = format!("remedy `{}`", remedy.name);
        known(&what, &remedy.configuration)?;
        remedy.over.as_ref().map_or(Ok(()), |over| known(&what, over))?;
        ensure!(
            remedy.over.as_ref() != Some(&remedy.configuration),
            "{what} improves on itself; name another configuration in `over`"
        );
    }
    let shares: Vec<&str> = experiment.shares.iter().map(|share| share.name.as_str()).collect();
    unique("shares", &shares)?;
    unique("comparisons", &experiment.comparisons.iter().map(|of| of.question.as_str()).collect::<Vec<_>>())?;
    unique("remedies", &experiment.remedies.iter().map(|of| of.name.as_str()).collect::<Vec<_>>())?;
    experiment.paper.as_ref().map_or(Ok(()), |paper| check_paper(paper, &names, &shares))
}

fn check_paper(paper: &PaperModel, configurations: &[&str], shares: &[&str]) -> Result<()> {
    let tables = [
        ("percent_of_plain", &paper.percent_of_plain, configurations, "configurations"),
        ("hits_per_s", &paper.hits_per_s, configurations, "configurations"),
        ("shares_percent", &paper.shares_percent, shares, "shares"),
    ];
    for (table, numbers, names, what) in tables {
        for (name, numbers) in numbers {
            ensure!(
                names.contains(&name.as_str()),
                "paper.{table} has numbers for `{name}`, which is none of the experiment's {what}: {}",
                quoted_list(names)
            );
            ensure!(
                numbers.len() == paper.machines.len(),
                "paper.{table} has {} numbers for `{name}`, but paper.machines names {} machines; write nan for a \
                 number that was not published",
                numbers.len(),
                paper.machines.len()
            );
            ensure!(
                numbers.iter().all(|number| number.is_nan() || (*number >= 0.0 && number.is_finite())),
                "paper.{table} has a negative or infinite number for `{name}`"
            );
        }
    }
    Ok(())
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
