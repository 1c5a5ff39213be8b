//! Questions of an experiment that name what is there.

use std::collections::BTreeSet;

use anyhow::{Result, bail, ensure};
use tlsdyno_record::model::{Experiment, Measure, Paper, Quantity, ShareClaimModel};

/// Every name in shares, comparisons, remedies and the paper's numbers must exist, once.
pub(super) fn check(experiment: &Experiment) -> Result<()> {
    let names: Vec<&str> = experiment.configurations.iter().map(|model| model.name.as_str()).collect();
    let shares = experiment.shares.iter().map(|of| {
        let or_else = "compares a configuration with itself; give two, or leave `off` out for all that is left";
        (format!("share `{}`", of.name), &of.on, of.off.as_ref(), or_else)
    });
    let comparisons = experiment.comparisons.iter().map(|of| {
        let or_else = "compares a configuration with itself; give two";
        (format!("comparison `{}`", of.question), &of.a, Some(&of.b), or_else)
    });
    let remedies = experiment.remedies.iter().map(|of| {
        let or_else = "improves on itself; name another configuration in `over`";
        (format!("remedy `{}`", of.name), &of.configuration, of.over.as_ref(), or_else)
    });
    for (what, one, other, or_else) in shares.chain(comparisons).chain(remedies) {
        let who = format!("{what} names configuration");
        [Some(one), other].into_iter().flatten().try_for_each(|name| known(&who, name, &names))?;
        ensure!(other != Some(one), "{what} {or_else}");
    }
    for of in &experiment.comparisons {
        ensure!(
            of.published_times.is_none_or(|[low, high]| 0.0 <= low && low <= high && high.is_finite()),
            "comparison `{}`: `published_times` is a range of times, for example [1.46, 2.11] for +46 to +111 %",
            of.question
        );
    }
    let shares: Vec<&str> = experiment.shares.iter().map(|share| share.name.as_str()).collect();
    experiment.share_claims.iter().try_for_each(|claim| check_claim(claim, &shares))?;
    unique("shares", shares.iter().copied())?;
    unique("claims", experiment.share_claims.iter().map(|of| of.question.as_str()))?;
    unique("comparisons", experiment.comparisons.iter().map(|of| of.question.as_str()))?;
    unique("remedies", experiment.remedies.iter().map(|of| of.id().map_or(of.name.as_str(), |id| id.name())))?;
    let Some(paper) = &experiment.paper else { return Ok(()) };
    ensure!(paper.at.is_empty(), "paper.at is for other kinds of experiment: the columns here are paper.machines");
    let quantities =
        [(Quantity::PercentOfPlain, &names[..]), (Quantity::HitsPerS, &names), (Quantity::SharesPercent, &shares)];
    check_paper(paper, &quantities)
}

fn check_claim(claim: &ShareClaimModel, shares: &[&str]) -> Result<()> {
    let what = format!("claim `{}`", claim.question);
    ensure!(!claim.shares.is_empty(), "{what} is of no share; name some in `shares`");
    let who = format!("{what} names share");
    claim.shares.iter().chain(&claim.above).try_for_each(|name| known(&who, name, shares))?;
    let [low, high] = claim.published_percent;
    ensure!(
        -100.0 <= low && low <= high && high <= 100.0,
        "{what}: `published_percent` is a range of per cent, for example [13, 58]"
    );
    Ok(())
}

/// Refuses a name that nothing in the experiment has.
fn known(who: &str, name: &str, names: &[&str]) -> Result<()> {
    let listed = || names.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ");
    let there = if names.is_empty() { "none".to_owned() } else { listed() };
    ensure!(names.contains(&name), "{who} `{name}`, which is not in the experiment; there are: {there}");
    Ok(())
}

/// A paper may have numbers only of these quantities, in rows with these names. The error names the number.
pub fn check_paper(paper: &Paper, rows: &[(Quantity, &[&str])]) -> Result<()> {
    for (quantity, numbers) in &paper.numbers {
        let Some((_, names)) = rows.iter().find(|(of, _)| of == quantity) else {
            bail!("paper.{quantity} has numbers of what this experiment does not measure; leave them out")
        };
        for (name, numbers) in numbers {
            known(&format!("paper.{quantity} has numbers for"), name, names)?;
            ensure!(
                numbers.len() == paper.columns().len(),
                "paper.{quantity} has {} numbers for `{name}`, but paper.{} names {}; write nan for a number that was \
                 not published",
                numbers.len(),
                if paper.at.is_empty() { "machines" } else { "at" },
                paper.columns().len()
            );
            ensure!(
                numbers.iter().all(|number| number.low.is_nan() || number.is_known() && 0.0 <= number.low),
                "paper.{quantity} has a negative or infinite number for `{name}`"
            );
        }
    }
    Ok(())
}

/// Common checks of experiments whose servers stay up, or that have none under load; `why` says which. Fails where
/// measuring is too short, or servers would take turns.
pub fn check_measure(measure: &Measure, why: &str) -> Result<()> {
    ensure!(measure.time_s >= 1.0, "--time must be at least 1 second");
    ensure!(!measure.fresh_servers && measure.turns == 1, "`fresh_servers` and `turns` are for {why}");
    Ok(())
}

fn unique<'a>(what: &str, names: impl Iterator<Item = &'a str>) -> Result<()> {
    let mut seen = BTreeSet::new();
    names.into_iter().try_for_each(|name| {
        ensure!(seen.insert(name), "two {what} are called `{name}`; give each its own name");
        Ok(())
    })
}
