//! The charts of a site: histograms as in Goldberg's Figures 2 to 4, and the time series with its spread.

use std::collections::BTreeMap;

use serde_json::{Value, json};
use tlsdyno_base::units::{format_count, format_date, format_duration, format_percent};
use tlsdyno_report::charts::{COLOURS, axis, layer, line_legend, names, palette, quantity, tooltip, with};
use tlsdyno_report::document::{Chart, Medium, Section, Table};
use tlsdyno_report::rows::Rows;

use crate::buckets::Bucket;
use crate::measures::{Measure, Measures, quantile};
use crate::summary::SiteSummary;

/// What is shown, with its name in the charts.
const SHOWN: [(Measure, &str); 4] = [
    (Measure::Tcp, "TCP (T)"),
    (Measure::Full, "full (S)"),
    (Measure::Resumed, "resumed (S)"),
    (Measure::FullWhole, "answer (H)"),
];
/// The part of the values that a histogram shows: the slowest would squeeze all others.
const SHOWN_SHARE: f64 = 0.95;
/// A series has at most so many points.
const POINTS_MAX: usize = 400;
/// About so many bins.
const BINS: f64 = 40.0;

pub fn of_site(index: usize, site: &SiteSummary) -> Option<Section> {
    let (histogram, shown) = histogram(index, site)?;
    let section = Section::titled("", site.site.clone()).on(Medium::Page);
    let section = section.charts(series(index, site)).charts(stack(index, site)).charts(cloud(index, site));
    Some(section.charts([histogram]).table(shown.columns, shown.rows))
}

/// How much of a series a histogram shows.
struct Shown {
    name: &'static str,
    values: u64,
    beyond: u64,
}

/// Where the time of a visit goes: medians of the phases, one bar for each kind of handshake.
fn stack(index: usize, site: &SiteSummary) -> Option<Chart> {
    use Measure::{
        Full, FullFirstByte, FullHello, FullWhole, Lookup, Resumed, ResumedFirstByte, ResumedHello, ResumedWhole, Tcp,
    };
    const KINDS: [(&str, [Measure; 6]); 2] = [
        ("full", [Lookup, Tcp, FullHello, Full, FullFirstByte, FullWhole]),
        ("resumed", [Lookup, Tcp, ResumedHello, Resumed, ResumedFirstByte, ResumedWhole]),
    ];
    const NAMES: [&str; 6] =
        ["name look-up", "TCP", "hello to server's hello", "rest of the handshake", "first byte", "rest of the answer"];
    let (mut rows, mut words) = (Vec::new(), Vec::new());
    for (kind, measures) in KINDS {
        let medians = measures.map(|measure| quantile(site.measures.counts(measure), 0.5));
        if medians[2..].contains(&None) {
            continue;
        }
        let [lookup, tcp, hello, handshake, first_byte, whole] = medians.map(Option::unwrap_or_default);
        // Medians of a part and of the whole are of different rounds and may cross.
        let rest = |whole: u64, part: u64| whole.saturating_sub(part);
        let parts = [lookup, tcp, hello, rest(handshake, hello), first_byte, rest(whole, first_byte)];
        for (order, (name, ns)) in NAMES.iter().zip(parts).enumerate() {
            let label = format_duration(ns as f64);
            rows.push(json!({"kind": kind, "phase": name, "order": order, "ms": ns as f64 / 1e6, "label": label}));
        }
        words.push(format!("{kind} {}", format_duration(parts.iter().sum::<u64>() as f64)));
    }
    let body = json!({
        "mark": {"type": "bar", "height": 22},
        "encoding": {
            "x": with(quantity("ms", "milliseconds"), json!({"stack": "zero"})),
            "y": names("kind", 80),
            "order": {"field": "order", "type": "quantitative"},
            "color": with(palette("phase", &NAMES, &COLOURS), json!({"legend": {"title": null, "orient": "top",
                "columns": 2, "labelLimit": 0}})),
            "tooltip": tooltip([("kind", "handshake"), ("phase", "phase"), ("label", "median")]),
        },
    });
    let caption = "Where the time of a visit goes: the median of each phase.";
    Some(
        Chart::new(format!("phases-{index}"), 70, rows, body)?
            .described(caption, format!("Bars: {}.", words.join(", "))),
    )
}

/// Single values over time as in Goldberg's Figure 1: each symbol stands at the middle of the rounds that it counts,
/// and its area is their number.
fn cloud(index: usize, site: &SiteSummary) -> Option<Chart> {
    const COLUMNS: i64 = 42;
    const ROWS: f64 = 25.0;
    let shown = &SHOWN[..3];
    let (first, last) = site.hours_unix_s?;
    let unit_s = site.by.length_s();
    let width_s = ((last - first) / COLUMNS / unit_s + 1) * unit_s;
    let edge = shown.iter().filter_map(|(of, _)| quantile(site.measures.counts(*of), SHOWN_SHARE)).max()?;
    let mut cells: BTreeMap<(usize, i64, u64), (f64, f64, u64)> = BTreeMap::new();
    // Looked up: a year has millions of values.
    let lowest = |number| Bucket::numbered(number as u32).map_or(0.0, |bucket| bucket.lowest() as f64);
    let below: Vec<(u64, f64)> =
        (0..=Bucket::of(edge).number()).map(lowest).map(|ns| ((ns / (edge as f64 / ROWS)) as u64, ns)).collect();
    let row = |bucket: Bucket| below.get(bucket.number()).map(|(row, _)| *row);
    for hour in &site.hours {
        for (phase, (measure, _)) in shown.iter().enumerate() {
            // Values come in order where they were read: one look-up for a row of them.
            for alike in hour.measures.counts(*measure).chunk_by(|one, next| row(one.0) == row(next.0)) {
                let Some(row) = row(alike[0].0) else { continue };
                let cell = cells.entry((phase, (hour.hour_unix_s - first) / width_s, row)).or_default();
                let middle_s = (hour.hour_unix_s + unit_s / 2) as f64;
                for (bucket, count) in alike {
                    let (ns, rounds) = (below[bucket.number()].1, f64::from(*count));
                    *cell = (cell.0 + middle_s * rounds, cell.1 + ns * rounds, cell.2 + u64::from(*count));
                }
            }
        }
    }
    let symbol = |((phase, _, _), (time_s, ns, count)): (&(usize, i64, u64), &(f64, f64, u64))| {
        let (time_s, ns) = (time_s / *count as f64, ns / *count as f64);
        json!({
            "phase": shown[*phase].1, "ms": (time_s * 1000.0) as i64, "value": (ns / 1e4).round() / 100.0,
            "rounds": count, "label": format_duration(ns), "when": format_date(time_s as i64),
        })
    };
    let rows: Vec<Value> = cells.iter().map(symbol).collect();
    let names: Vec<&str> = shown.iter().map(|(_, name)| *name).collect();
    let body = json!({
        "mark": {"type": "circle", "opacity": 0.6},
        "encoding": {
            "x": {"field": "ms", "type": "temporal", "title": "time (UTC)", "scale": {"type": "utc"}},
            "y": quantity("value", "milliseconds"),
            "size": {"field": "rounds", "type": "quantitative", "legend": null, "scale": {"range": [4, 160]}},
            "color": with(palette("phase", &names, &COLOURS), json!({"legend": {"title": null, "orient": "top",
                "columns": 3, "symbolType": "circle", "symbolOpacity": 1, "labelLimit": 0}})),
            "tooltip": tooltip([("when", "about"), ("phase", "phase"), ("label", "mean"), ("rounds", "rounds")]),
        },
    });
    let caption = "All rounds over time: each symbol stands at the middle of the rounds that it counts, and its area \
                   is their number.";
    let words = format!("{} symbols for the rounds of {} {}s.", rows.len(), site.hours.len(), site.by);
    Some(Chart::new(format!("cloud-{index}"), 260, rows, body)?.described(caption, words))
}

/// All measures in bins of one width, in per cent of the values of each, so that series of different lengths can be
/// compared; and the table of what is beyond the edge (Goldberg et al., Figures 2 to 4).
fn histogram(index: usize, site: &SiteSummary) -> Option<(Chart, Table)> {
    let all = SHOWN.map(|(measure, name)| (name, site.measures.counts(measure)));
    let edge = all.iter().filter_map(|(_, counts)| quantile(counts, SHOWN_SHARE)).max()?;
    let bin_ns = bin_ns(edge as f64 / BINS);
    let (mut rows, mut shown) = (Vec::new(), Vec::new());
    for (name, counts) in all.iter().filter(|(_, counts)| !counts.is_empty()) {
        let mut bins: BTreeMap<u64, u64> = BTreeMap::new();
        let mut of_series = Shown { name, values: 0, beyond: 0 };
        for (bucket, count) in *counts {
            let (ns, count) = (bucket.lowest(), u64::from(*count));
            of_series.values += count;
            match ns > edge {
                true => of_series.beyond += count,
                false => *bins.entry((ns as f64 / bin_ns) as u64).or_insert(0) += count,
            }
        }
        // Lines go on at zero beside the first and the last bin, and across empty ones.
        let (first, last) = (bins.keys().next().copied(), bins.keys().next_back().copied());
        for bin in first.map_or(0, |bin| bin.saturating_sub(1))..last.map_or(0, |bin| bin + 2) {
            let (from_ns, rounds) = (bin as f64 * bin_ns, bins.get(&bin).copied().unwrap_or(0));
            let label = format!("{} to {}", format_duration(from_ns), format_duration(from_ns + bin_ns));
            let percent = 100.0 * rounds as f64 / of_series.values as f64;
            let row =
                json!({"phase": name, "from": from_ns / 1e6, "percent": percent, "rounds": rounds, "time": label});
            rows.push(row);
        }
        shown.push(of_series);
    }
    let names = SHOWN.map(|(_, name)| name);
    let body = json!({
        "mark": {"type": "line", "interpolate": "step-after", "strokeWidth": 2},
        "encoding": {
            "x": quantity("from", "milliseconds"),
            "y": quantity("percent", "per cent of the series"),
            "color": with(palette("phase", &names, &COLOURS), line_legend(None, 2)),
            "tooltip": tooltip([("phase", "phase"), ("time", "time"), ("rounds", "rounds"), ("percent", "per cent")]),
        },
    });
    let caption = format!(
        "How long the phases take, in per cent of each series, in bins of {}. The table tells what is beyond the edge.",
        format_duration(bin_ns)
    );
    let median = |(name, counts): &(&str, &[(Bucket, u32)])| {
        let median = quantile(counts, 0.5)?;
        Some(format!("{name} median {}", format_duration(median as f64)))
    };
    let words = all.iter().filter_map(median).collect::<Vec<_>>().join(", ");
    let chart = Chart::new(format!("histogram-{index}"), 240, rows, body)?;
    let share = |of: &Shown| format_percent(100.0 * of.beyond as f64 / of.values as f64);
    let table = Rows::new(&shown)
        .words("series", |of| of.name.to_owned())
        .number("values", |of| format_count(of.values))
        .number(format!("beyond {}", format_duration(edge as f64)), |of| format_count(of.beyond))
        .number("of the series", share)
        .table();
    Some((chart.described(caption, format!("Histograms: {words}.")), table))
}

/// The next of 1, 2, 5, 10, … in nanoseconds.
fn bin_ns(at_least: f64) -> f64 {
    let power = 10f64.powf(at_least.max(1.0).log10().floor());
    [1.0, 2.0, 5.0, 10.0].into_iter().map(|step| step * power).find(|bin| *bin >= at_least).unwrap_or(10.0 * power)
}

/// Median and spread by the hour, so that a busy afternoon is seen; of many weeks by the day.
fn series(index: usize, site: &SiteSummary) -> Option<Chart> {
    let shown = &SHOWN[1..3];
    let mut rows: Vec<Value> = Vec::new();
    // Weeks have more hours than a page has pixels.
    let per_point = site.hours.len().div_ceil(POINTS_MAX).max(1);
    for hours in site.hours.chunks(per_point) {
        let began_unix_s = hours[0].hour_unix_s;
        for (measure, name) in shown {
            let counts = Measures::added(*measure, hours.iter().map(|hour| &hour.measures));
            let at = |q| quantile(&counts, q).map(|ns| ns as f64);
            let (Some(low), Some(median), Some(high)) = (at(0.05), at(0.5), at(0.95)) else {
                continue;
            };
            rows.push(json!({
                "phase": name, "ms": began_unix_s * 1000, "when": format_date(began_unix_s),
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
    let fields = [("when", "from"), ("phase", "phase"), ("label", "median")];
    let mut layers = vec![smoke, line];
    let marks = marks(site);
    if !marks.is_empty() {
        let mut marked = layer(
            json!({"type": "rule", "strokeDash": [3, 3], "color": "#97a3b6"}),
            json!({"tooltip": tooltip([("when", "hour from"), ("what", "changed")])}),
        );
        marked["data"] = json!({"values": marks});
        layers.push(marked);
    }
    let body = json!({"encoding": {"x": x, "tooltip": tooltip(fields)}, "layer": layers});
    let by = if per_point == 1 { format!("by the {}", site.by) } else { format!("by {per_point} {}s", site.by) };
    let caption =
        format!("Handshakes {by}: the median, and the middle 90 % of the rounds around it. Dashed: the site changed.");
    let words = format!("Median handshake times of {} {}s.", site.hours.len(), site.by);
    Some(Chart::new(format!("series-{index}"), 240, rows, body)?.described(caption, words))
}

/// Hours in which the certificate, its key, the version, the suite or the group changed. Addresses and ticket keys
/// change as they should.
fn marks(site: &SiteSummary) -> Vec<Value> {
    const MARKED: [&str; 7] =
        ["certificate_until_unix_s", "certificate_fault", "key", "version", "suite", "group", "session"];
    let marked = site.changes.iter().filter(|change| MARKED.contains(&change.what.as_str()));
    let mark = |(hour_unix_s, names): (i64, Vec<&str>)| {
        let (when, what) = (format_date(hour_unix_s), names.join(", "));
        json!({"ms": hour_unix_s * 1000, "when": when, "what": what})
    };
    let mut hours: BTreeMap<i64, Vec<&str>> = BTreeMap::new();
    marked.for_each(|change| hours.entry(change.hour_unix_s).or_default().push(&change.what));
    hours.into_iter().map(mark).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bins_are_round() {
        assert_eq!([0.3, 1.0, 1.2, 3e6, 7e6, 9.9e6].map(bin_ns), [1.0, 1.0, 2.0, 5e6, 1e7, 1e7]);
    }
}
