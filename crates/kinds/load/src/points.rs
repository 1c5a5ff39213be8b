//! The points of a sweep, from what a file says.

use anyhow::{Context, Result, ensure};
use clap::Parser;
use tlsdyno_traffic::load::options::Options;
use tlsdyno_traffic::load::url::Url;

use crate::curve::subject::Point;
use crate::file::{LoadExperiment, LoadPoint, SIZES};

/// Flags of a point.
#[derive(Debug, Parser)]
struct Flags {
    #[command(flatten)]
    options: Options,
}

/// The points of `[sweep]`: where sizes are swept, each has an object of its own. Fails on sizes without `[server]`.
pub fn of_sweep(experiment: &LoadExperiment, points: Vec<LoadPoint>, url: &Url) -> Result<Vec<Point>> {
    let sizes = experiment.sweep.get(SIZES).map(|_| points.iter().map(|point| point.object_bytes));
    ensure!(
        sizes.is_none() || experiment.server.is_some(),
        "`sweep.object_bytes` is for the object of `[server]`; what another server has is its own"
    );
    ensure!(
        sizes.is_none_or(|mut sizes| sizes.all(|bytes| bytes.is_some_and(|bytes| bytes > 0))),
        "`sweep.object_bytes` has whole numbers of bytes above 0"
    );
    let point = |point: LoadPoint| {
        let mut url = url.clone();
        point.object_bytes.iter().for_each(|bytes| url.path = format!("{}-{bytes}", url.path.trim_end_matches('/')));
        Ok(Point { options: flags(&point)?, name: point.name, url, object_bytes: point.object_bytes })
    };
    points.into_iter().map(point).collect()
}

pub fn flags(point: &LoadPoint) -> Result<Options> {
    let arguments = std::iter::once("load").chain(point.flags.iter().map(String::as_str));
    let flags = Flags::try_parse_from(arguments).map_err(|error| {
        let text = error.to_string();
        anyhow::anyhow!("{}", text.lines().next().unwrap_or_default().trim_start_matches("error: ").to_owned())
    });
    let options = flags.with_context(|| format!("the flags of the point \"{}\"", point.name))?.options;
    ensure!(
        options.duration.is_none()
            && options.total_connections.is_none()
            && options.requests.is_none()
            && !options.workload.searches_window(),
        "`duration`, `total-connections` and a search for the window go with `tlsdyno load` only; `measure.time_s` \
         says how long an experiment lasts"
    );
    Ok(options)
}
