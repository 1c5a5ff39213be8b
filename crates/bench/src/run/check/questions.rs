//! Questions of an experiment that name what is there.

use anyhow::{Result, bail, ensure};
use tlsdyno_record::model::{Experiment, Measure, Paper, Quantity, ShareClaimModel};

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
    for claim in &experiment.share_claims {
        check_claim(claim, &shares)?;
    }
    unique("claims", &experiment.share_claims.iter().map(|of| of.question.as_str()).collect::<Vec<_>>())?;
    unique("comparisons", &experiment.comparisons.iter().map(|of| of.question.as_str()).collect::<Vec<_>>())?;
    unique("remedies", &experiment.remedies.iter().map(|of| of.name.as_str()).collect::<Vec<_>>())?;
    experiment.paper.as_ref().map_or(Ok(()), |paper| check_own_paper(paper, &names, &shares))
}

fn check_claim(claim: &ShareClaimModel, shares: &[&str]) -> Result<()> {
    let what = format!("claim `{}`", claim.question);
    ensure!(!claim.shares.is_empty(), "{what} is of no share; name some in `shares`");
    for name in claim.shares.iter().chain(&claim.above) {
        ensure!(
            shares.contains(&name.as_str()),
            "{what} names share `{name}`, which is not in the experiment; there are: {}",
            quoted_list(shares)
        );
    }
    let [low, high] = claim.published_percent;
    ensure!(
        -100.0 <= low && low <= high && high <= 100.0,
        "{what}: `published_percent` is a range of per cent, for example [13, 58]"
    );
    Ok(())
}

fn check_own_paper(paper: &Paper, configurations: &[&str], shares: &[&str]) -> Result<()> {
    ensure!(paper.at.is_empty(), "paper.at is for other kinds of experiment: the columns here are paper.machines");
    let rows = [
        (Quantity::PercentOfPlain, configurations),
        (Quantity::HitsPerS, configurations),
        (Quantity::SharesPercent, shares),
    ];
    check_paper(paper, &rows)
}

/// A paper has numbers of what the experiment measures: of these quantities, in rows with these names.
///
/// # Errors
/// Says which number is of something else.
pub fn check_paper(paper: &Paper, rows: &[(Quantity, &[&str])]) -> Result<()> {
    for (quantity, numbers) in &paper.numbers {
        let known = rows.iter().find(|(of, _)| of == quantity);
        let Some((_, names)) = known else {
            bail!("paper.{quantity} has numbers of what this experiment does not measure; leave them out")
        };
        for (name, numbers) in numbers {
            ensure!(
                names.contains(&name.as_str()),
                "paper.{quantity} has numbers for `{name}`, which is not in the experiment; there are: {}",
                quoted_list(names)
            );
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

/// What holds for all whose servers stay up, or that have none under load, as `why` says.
///
/// # Errors
/// Measuring is too short, or servers were to take turns.
pub fn check_measure(measure: &Measure, why: &str) -> Result<()> {
    ensure!(measure.time_s >= 1.0, "--time must be at least 1 second");
    ensure!(!measure.fresh_servers && measure.turns == 1, "`fresh_servers` and `turns` are for {why}");
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
