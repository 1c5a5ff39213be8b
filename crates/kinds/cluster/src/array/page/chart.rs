//! The figure: throughput over reuse, a line for each number of proxies, as Figure 8 of Mraz et al. 2002 has it.

use tlsdyno_base::units::format_quantity;
use tlsdyno_load::over_reuse::OverReuse;
use tlsdyno_record::model::{Paper, Quantity};
use tlsdyno_runner::report::document::Chart;

use crate::array::file::PLAIN_HTTP;
use crate::array::summary::{ArraySummary, reuse_of};

/// Throughput in per cent of plain HTTP, so that the paper's points fit in; `None` without plain HTTP.
pub fn throughput(summary: &ArraySummary) -> Option<Chart> {
    let plain = summary.plain.as_ref()?.hits_per_second.value;
    let by = summary.experiment.array.by;
    let mut chart = OverReuse::new(by, ["pages per second, % of plain HTTP", "pages/s"], 100.0 / plain);
    for line in &summary.lines {
        chart.measured(&line.name, line.levels.iter().map(|level| (level.achieved_percent, level.hits_per_second)));
        let is_its = |is_of_server: bool| is_of_server == (line.proxies == 0);
        let model = summary.models.iter().find(|model| is_its(model.is_of_server) && model.spread == line.spread);
        if let Some(model) = model {
            let machines = f64::from(line.proxies.max(1));
            chart.computed(&line.name, |percent| model.costs.hits_per_second(plain, machines, percent));
        }
    }
    chart.limit(plain);
    let source = summary.experiment.paper.as_ref().and_then(|paper| published(&mut chart, paper, plain));
    let caption = format!(
        "Pages per second over reuse by {by}, a line for each number of proxies, with 95 % intervals; dashed: the \
         model; plain HTTP and half of it.{}",
        source.unwrap_or_default()
    );
    chart.chart("array-throughput".to_owned(), 320, caption)
}

/// The paper's points in the colours of their lines, by its own plain HTTP. Answers what a caption says of them.
fn published(chart: &mut OverReuse, paper: &Paper, plain: f64) -> Option<String> {
    let its_plain = paper.first(Quantity::HitsPerS, PLAIN_HTTP)?.mean();
    for (line, _, percent) in paper.all(Quantity::HalfServingPercent) {
        chart.published(line, percent.mean(), plain / 2.0, "published".to_owned());
    }
    for (line, at, rate) in paper.all(Quantity::HitsPerS).filter(|(line, ..)| *line != PLAIN_HTTP) {
        let label = format!("published: {}/s", format_quantity(rate.mean()));
        chart.published(line, reuse_of(at)?, plain * rate.mean() / its_plain, label);
    }
    Some(format!(" Crosses: published by {} (plain: {}/s).", paper.source, format_quantity(its_plain)))
}
