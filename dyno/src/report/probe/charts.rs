//! The charts of a site: histograms as in Goldberg's Figures 2 to 4, and the time series with its spread.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::super::charts::{COLOURS, axis, layer, line_legend, palette, quantity, tooltip, with};
use super::super::document::{Chart, Place, Section};
use crate::probe::measures::{Measure, quantile};
use crate::probe::summary::SiteSummary;
use crate::units::{format_count, format_date, format_duration, format_percent};

/// What is shown, with its name in the charts.
const SHOWN: [(Measure, &str); 4] = [
    (Measure::Tcp, "TCP (T)"),
    (Measure::Full, "full (S)"),
    (Measure::Resumed, "resumed (S)"),
    (Measure::FullWhole, "answer (H)"),
];
/// The part of the values that a histogram shows: the slowest would squeeze all others.
const SHOWN_SHARE: f64 = 0.95;
/// About so many bins.
const BINS: f64 = 40.0;

/// The charts of a site, on pages.
pub fn of_site(index: usize, site: &SiteSummary) -> Option<Section> {
    let (histogram, ignored) = histogram(index, site)?;
    let section = Section::titled("", site.site.clone()).on(Place::Page);
    Some(section.charts(series(index, site)).charts([histogram]).notes(ignored))
}

/// All measures in bins of one width, and how many values of each are beyond the edge.
fn histogram(index: usize, site: &SiteSummary) -> Option<(Chart, Vec<String>)> {
    let all = SHOWN.map(|(measure, name)| (name, site.ascending(measure)));
    let edge = all.iter().filter_map(|(_, counts)| quantile(counts, SHOWN_SHARE)).max()?;
    let bin_ns = bin_ns(edge as f64 / BINS);
    let (mut rows, mut ignored) = (Vec::new(), Vec::new());
    for (name, counts) in &all {
        let mut bins: BTreeMap<u64, u64> = BTreeMap::new();
        let (mut total, mut beyond) = (0, 0);
        for (ns, count) in counts {
            total += count;
            match *ns > edge {
                true => beyond += count,
                false => *bins.entry((*ns as f64 / bin_ns) as u64).or_insert(0) += count,
            }
        }
        // Lines go on at zero beside the first and the last bin, and across empty ones.
        let (first, last) = (bins.keys().next().copied(), bins.keys().next_back().copied());
        for bin in first.map_or(0, |bin| bin.saturating_sub(1))..last.map_or(0, |bin| bin + 2) {
            let (from_ns, count) = (bin as f64 * bin_ns, bins.get(&bin).copied().unwrap_or(0));
            let label = format!("{} to {}", format_duration(from_ns), format_duration(from_ns + bin_ns));
            rows.push(json!({"phase": name, "from": from_ns / 1e6, "rounds": count, "time": label}));
        }
        if beyond > 0 {
            let share = format_percent(100.0 * beyond as f64 / total as f64);
            ignored.push(format!(
                "{name}: {} of {} values ({share}) are beyond {} and not shown",
                format_count(beyond),
                format_count(total),
                format_duration(edge as f64)
            ));
        }
    }
    let names = SHOWN.map(|(_, name)| name);
    let body = json!({
        "mark": {"type": "line", "interpolate": "step-after", "strokeWidth": 2},
        "encoding": {
            "x": quantity("from", "milliseconds"),
            "y": quantity("rounds", "rounds"),
            "color": with(palette("phase", &names, &COLOURS), line_legend(None, 2)),
            "tooltip": tooltip([("phase", "phase"), ("time", "time"), ("rounds", "rounds")]),
        },
    });
    let caption = format!("How long the phases take, in bins of {}.", format_duration(bin_ns));
    let median = |(name, counts): &(&str, Vec<(u64, u64)>)| {
        let median = quantile(counts, 0.5)?;
        Some(format!("{name} median {}", format_duration(median as f64)))
    };
    let words = all.iter().filter_map(median).collect::<Vec<_>>().join(", ");
    let chart = Chart::new(format!("histogram-{index}"), 240, rows, body)?;
    Some((chart.told(caption, format!("Histograms: {words}.")), ignored))
}

/// The next of 1, 2, 5, 10, … in nanoseconds.
fn bin_ns(at_least: f64) -> f64 {
    let power = 10f64.powf(at_least.max(1.0).log10().floor());
    [1.0, 2.0, 5.0, 10.0].into_iter().map(|step| step * power).find(|bin| *bin >= at_least).unwrap_or(10.0 * power)
}

/// Median and spread by the hour, so that a busy afternoon is seen.
fn series(index: usize, site: &SiteSummary) -> Option<Chart> {
    let shown = &SHOWN[1..3];
    let mut rows: Vec<Value> = Vec::new();
    for hour in &site.hours {
        for (measure, name) in shown {
            let counts = hour.measures.ascending(*measure);
            let at = |q| quantile(&counts, q).map(|ns| ns as f64);
            let (Some(low), Some(median), Some(high)) = (at(0.05), at(0.5), at(0.95)) else {
                continue;
            };
            rows.push(json!({
                "phase": name, "ms": hour.hour_unix_s * 1000, "when": format_date(hour.hour_unix_s),
                "low": low / 1e6, "median": median / 1e6, "high": high / 1e6, "label": format_duration(median),
            }));
        }
    }
    let names: Vec<&str> = shown.iter().map(|(_, name)| *name).collect();
    let colour = with(palette("phase", &names, &COLOURS), line_legend(None, 2));
    let y = quantity("median", "milliseconds");
    let smoke = layer(
        json!({"type": "area", "opacity": 0.2}),
        json!({"y": axis("low"), "y2": {"field": "high"}, "color": colour}),
    );
    let line =
        layer(json!({"type": "line", "strokeWidth": 2, "point": {"size": 14}}), json!({"y": y, "color": colour}));
    let x = json!({"field": "ms", "type": "temporal", "title": "time (UTC)", "scale": {"type": "utc"}});
    let fields = [("when", "hour from"), ("phase", "phase"), ("label", "median")];
    let body = json!({"encoding": {"x": x, "tooltip": tooltip(fields)}, "layer": [smoke, line]});
    let caption = "Handshakes by the hour: the median, and the middle 90 % of the rounds around it.";
    let words = format!("Median handshake times of {} hours.", site.hours.len());
    Some(Chart::new(format!("series-{index}"), 240, rows, body)?.told(caption, words))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bins_are_round() {
        assert_eq!([0.3, 1.0, 1.2, 3e6, 7e6, 9.9e6].map(bin_ns), [1.0, 1.0, 2.0, 5e6, 1e7, 1e7]);
    }
}
