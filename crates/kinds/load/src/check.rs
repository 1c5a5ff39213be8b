//! Whether an experiment on a URL is possible, as far as that is known without the server.

use anyhow::{Result, ensure};
use tlsdyno_record::model::OnLoss;
use tlsdyno_traffic::load::options::Options;
use tlsdyno_traffic::load::url::Url;

use super::{points, started_server};
use crate::curve::subject as curve;
use crate::curve::subject::Point;
use crate::file::LoadExperiment;

/// The points of the experiment. Fails if they are impossible, as far as that is known without the server.
pub fn check(experiment: &LoadExperiment, options: Option<&Options>) -> Result<Vec<Point>> {
    let measure = &experiment.measure;
    ensure!(measure.time_s > 0.0, "`measure.time_s` must be above 0");
    ensure!(
        !measure.fresh_servers && measure.turns == 1 && measure.server_cpu.is_none() && measure.load_cpu.is_none(),
        "`fresh_servers`, `turns`, `server_cpu` and `load_cpu` are for servers that tlsdyno starts, not for a URL"
    );
    ensure!(experiment.sweep.values().all(|values| !values.is_empty()), "a flag of `[sweep]` has no value");
    ensure!(
        experiment.workers.as_ref().is_none_or(|workers| workers.on_loss == OnLoss::Stop),
        "points by more and by fewer workers cannot be compared; leave --on-loss out"
    );
    ensure!(
        experiment.workers.is_none() || experiment.server.is_none(),
        "`[server]` listens on loopback, where workers do not reach it; leave one out"
    );
    ensure!(
        experiment.workers.is_none() || experiment.against.is_none(),
        "two URLs that are compared take turns of milliseconds, which workers elsewhere cannot; leave one out"
    );
    let url = Url::parse(&experiment.url)?;
    if let Some(server) = &experiment.server {
        ensure!(
            experiment.curve.is_none() && experiment.against.is_none(),
            "`[server]` starts one for `[load]` and `[sweep]`; leave out `[curve]` and `against`"
        );
        started_server::check(server, &url)?;
    }
    ensure!(
        !experiment.one_run || (experiment.curve.is_none() && experiment.against.is_none()),
        "`one_run` keeps the course of each point; leave out `[curve]` and `against`, which are measured in rounds"
    );
    ensure!(!experiment.one_run || measure.rounds.is_none(), "`one_run` measures each point once; leave out `rounds`");
    let points = experiment.points();
    if let Some(against) = &experiment.against {
        ensure!(
            experiment.sweep.is_empty() && experiment.curve.is_none(),
            "`against` compares two URLs; leave out `[sweep]` and `[curve]`"
        );
        let options = options.map_or_else(|| points::flags(&points[0]), |options| Ok(options.clone()))?;
        let sides = [("first", url), ("second", Url::parse(against)?)];
        let texts = [&experiment.url, against];
        let point = |((side, url), text)| Point::new(format!("{side}: {text}"), options.clone(), url);
        return Ok(sides.into_iter().zip(texts).map(point).collect());
    }
    let Some(of_curve) = &experiment.curve else {
        return points::of_sweep(experiment, points, &url);
    };
    ensure!(experiment.sweep.is_empty(), "`[curve]` sweeps the reuse by itself; leave out `[sweep]`");
    let options = options.map_or_else(|| points::flags(&points[0]), |options| Ok(options.clone()))?;
    curve::check(of_curve, &options)?;
    curve::points(of_curve, &options, &url)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_that_are_none_are_refused_with_the_point() {
        let read =
            |text: &str| check(&toml::from_str(text).unwrap(), None).map(drop).map_err(|error| format!("{error:#}"));
        let head = "question = \"q?\"\nurl = \"https://localhost/\"\n";
        read(&format!("{head}[sweep]\nrate = [100, \"200/s\"]\n")).unwrap();
        let said = read(&format!("{head}[load]\nconection = 3\n")).unwrap_err();
        assert!(said.contains("--conection"), "{said}");
        let said = read(&format!("{head}[load]\nduration = \"3s\"\n")).unwrap_err();
        assert!(said.contains("measure.time_s"), "{said}");
        assert!(read(&format!("{head}[measure]\nturns = 2\n")).unwrap_err().contains("URL"));
        read(&format!("{head}[curve]\nby = [\"hits\", \"connections\"]\n")).unwrap();
        let both = read(&format!("{head}[curve]\n[sweep]\nreuse = [\"5%\"]\n")).unwrap_err();
        assert!(both.contains("leave out `[sweep]`"), "{both}");
        let foreign = read(&format!("{head}[load]\nrate = 5\n[curve]\n")).unwrap_err();
        assert!(foreign.contains("--rate"), "{foreign}");
    }
}
