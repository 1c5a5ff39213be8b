//! The charts of an experiment.

use std::collections::BTreeMap;
use std::f64::consts::LOG10_2;

use hdrhistogram::Histogram;
use serde_json::{Value, json};
use tlsdyno_base::units::{format_duration, format_tenths};
pub use tlsdyno_report::charts::{
    COLOURS, axis, ink, layer, legend_above, line_legend, line_mark, names, palette, quantity, rule_mark, tooltip, with,
};

use super::document::Chart;

/// The phases in the order of a connection's life, with their labels and colours.
pub const PHASES: [(&str, &str, &str); 5] = [
    ("tcp_connect", "TCP connect", "#97a3b6"),
    ("full_handshake", "full handshake", "#4269d0"),
    ("resumed_handshake", "resumed handshake", "#6cc5b0"),
    ("first_byte", "first byte", "#efb118"),
    ("whole_response", "whole response", "#ff725c"),
];

/// The percentile at a number of nines, as a Vega expression.
const PERCENTILE_LABEL: &str = "datum.value == 0 ? '0' : datum.value < 0.5 ? '50' : datum.value == 1 ? '90' \
    : datum.value == 2 ? '99' : datum.value == 3 ? '99.9' : '99.99'";

/// Parts of a strip by their widths, each beginning at the end of the one before.
pub fn side_by_side(parts: impl IntoIterator<Item = (f64, Value)>) -> Vec<Value> {
    let mut start = 0.0;
    let place = |(width, row): (f64, Value)| {
        let middle = start + width / 2.0;
        let place = json!({"start": start, "end": start + width, "middle": middle, "width": width});
        start += width;
        with(row, place)
    };
    parts.into_iter().map(place).collect()
}

/// Strips of such parts, one for each value of `names_of`, with the label of each part in it.
pub fn strips_with_labels([names_of, title]: [&str; 2], mut strips: Value, mut labels: Value) -> Value {
    let x = with(quantity("start", title), json!({"axis": {"grid": false, "tickCount": 5}}));
    strips["encoding"] = with(strips["encoding"].take(), json!({"x": x, "x2": {"field": "end"}}));
    let text = json!({"x": axis("middle"), "text": {"field": "label"}});
    labels["encoding"] = with(labels["encoding"].take(), text);
    // Narrower parts have no room for a number.
    labels["transform"] = json!([{"filter": "datum.width >= 4"}]);
    json!({"encoding": {"y": names(names_of, 180)}, "layer": [strips, labels]})
}

/// Percentile curves of the phases of one or two loads; the second is dashed.
pub fn percentile_curves<'a>(
    id: &str,
    loads: impl Iterator<Item = (&'a str, &'a BTreeMap<String, Histogram<u64>>)>,
    caption: &str,
) -> Option<Chart> {
    let (mut rows, mut words) = (Vec::new(), Vec::new());
    for (load, phases) in loads {
        for (name, label, _) in PHASES {
            let Some(histogram) = phases.get(name).filter(|histogram| !histogram.is_empty()) else {
                continue;
            };
            rows.extend(curve(histogram).into_iter().map(|(nines, value)| {
                json!({
                    "phase": label, "configuration": load, "nines": nines, "milliseconds": value as f64 / 1e6,
                    "percentile": format!("{} %", trimmed(100.0 * (1.0 - 10f64.powf(-nines)))),
                    "value": format_duration(value as f64),
                })
            }));
            let at = |quantile| format_duration(histogram.value_at_quantile(quantile) as f64);
            words.push(format!("{label} ({load}) median {}, 99th percentile {}", at(0.5), at(0.99)));
        }
    }
    let ticks = log_ticks(rows.iter().filter_map(|row| row["milliseconds"].as_f64()));
    let (labels, colours): (Vec<&str>, Vec<&str>) = PHASES.iter().map(|(_, label, colour)| (*label, *colour)).unzip();
    let nines = json!({"axis": {"values": [0.0, LOG10_2, 1.0, 2.0, 3.0, 4.0], "labelExpr": PERCENTILE_LABEL}});
    let logarithmic = json!({"scale": {"type": "log", "nice": true}, "axis": {"values": ticks, "format": "~g"}});
    let dash = json!({"field": "configuration", "type": "nominal", "sort": null, "scale": {"range": [[1, 0], [4, 4]]}});
    let fields =
        [("phase", "phase"), ("configuration", "configuration"), ("percentile", "percentile"), ("value", "latency")];
    let body = json!({
        "mark": {"type": "line", "interpolate": "monotone", "strokeWidth": 2, "point": {"size": 14, "filled": true}},
        "encoding": {
            "x": with(quantity("nines", "percentile"), nines),
            "y": with(quantity("milliseconds", "milliseconds (log scale)"), logarithmic),
            "color": with(palette("phase", &labels, &colours), line_legend(None, 3)),
            "strokeDash": with(dash, json!({"legend": null})),
            "tooltip": tooltip(fields),
        },
    });
    let words = format!("Percentile curves of latency: {}.", words.join("; "));
    Some(Chart::new(id, 300, rows, body)?.described(caption, words))
}

/// Points of a percentile curve as (nines, value): the percentile p is drawn at `-log10(1 - p)`, so that 90, 99 and
/// 99.9 % are equally far apart. It ends where fewer than two values are left beyond.
fn curve(histogram: &Histogram<u64>) -> Vec<(f64, u64)> {
    const STEPS_PER_NINE: u32 = 8;
    let last = (histogram.len() as f64 / 2.0).log10().clamp(0.0, 4.0);
    (0..=4 * STEPS_PER_NINE)
        .map(|step| f64::from(step) / f64::from(STEPS_PER_NINE))
        .take_while(|nines| *nines <= last)
        .map(|nines| (nines, histogram.value_at_quantile(1.0 - 10f64.powf(-nines))))
        // Zero has no logarithm.
        .filter(|(_, value)| *value > 0)
        .collect()
}

/// 1, 2 and 5 times each power of ten that the values span; only the powers when they span more than three.
fn log_ticks(values: impl Iterator<Item = f64>) -> Vec<f64> {
    let (low, high) = values.fold((f64::INFINITY, 0.0f64), |(low, high), value| (low.min(value), high.max(value)));
    if low > high {
        return Vec::new();
    }
    let powers = low.log10().floor() as i32..=high.log10().ceil() as i32;
    let steps: &[f64] = if powers.end() - powers.start() > 3 { &[1.0] } else { &[1.0, 2.0, 5.0] };
    powers.flat_map(|power| steps.iter().map(move |step| step * 10f64.powi(power))).collect()
}

fn trimmed(value: f64) -> String {
    let text = if value >= 99.0 { format!("{value:.2}") } else { format_tenths(value) };
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn curves_end_where_the_values_do() {
        let mut histogram = Histogram::<u64>::new(3).expect("histogram");
        for value in 1..=1_000u64 {
            histogram.record(value * 1_000).expect("record");
        }
        let points = curve(&histogram);
        assert_eq!(points.first().map(|(nines, _)| *nines), Some(0.0));
        assert!(points.last().is_some_and(|(nines, _)| *nines <= 2.7 && *nines > 2.4), "{points:?}");
        assert!(points.windows(2).all(|pair| pair[0].1 <= pair[1].1));
        assert!(curve(&Histogram::<u64>::new(3).expect("histogram")).is_empty());
    }

    #[test]
    fn ticks_fit() {
        assert_eq!(
            log_ticks([0.3, 12.0].into_iter()),
            [0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 200.0, 500.0]
        );
        assert!(log_ticks(std::iter::empty()).is_empty());
    }

    #[test]
    fn percentiles_read_well() {
        assert_eq!([99.9, 99.0, 50.0, 0.0, 90.0].map(trimmed), ["99.9", "99", "50", "0", "90"]);
    }
}
