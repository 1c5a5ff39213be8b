//! A chart of throughput over percent reuse: measured lines with their intervals, what was fitted to them, and what
//! they are held against.

use serde_json::{Value, json};
use tlsdyno_base::units::format_quantity;
use tlsdyno_runner::report::charts::{
    COLOURS, axis, layer, line_legend, line_mark, palette, quantity, rule_mark, tooltip, with,
};
use tlsdyno_runner::report::document::Chart;
use tlsdyno_stats::Estimate;
use tlsdyno_stats::reuse::ReuseAxis;

/// Number of points of a computed line, from 0 to 100 % reuse.
const DRAWN: usize = 101;

/// Chart of throughput over percent reuse, under construction.
#[derive(Debug)]
pub struct OverReuse {
    /// Title of the axis of throughput, and prefix of a number.
    titles: [&'static str; 2],
    /// Factor from hits per second to the unit of the axis.
    scale: f64,
    by: ReuseAxis,
    names: Vec<String>,
    rows: Vec<Value>,
    words: Vec<String>,
}

impl OverReuse {
    pub fn new(by: ReuseAxis, titles: [&'static str; 2], scale: f64) -> OverReuse {
        OverReuse { titles, scale, by, names: Vec::new(), rows: Vec::new(), words: Vec::new() }
    }

    /// Equal names have equal colours.
    fn add(&mut self, name: &str, kind: &str, reuse_percent: f64, row: Value) {
        if !self.names.iter().any(|known| known == name) {
            self.names.push(name.to_owned());
        }
        self.rows.push(with(json!({"line": name, "kind": kind, "reuse": reuse_percent}), row));
    }

    /// Each point has its percent reuse, and hits per second.
    pub fn measured(&mut self, name: &str, points: impl IntoIterator<Item = (f64, Estimate)>) {
        let mut said = Vec::new();
        for (reuse_percent, found) in points {
            let Estimate { value, low, high } = found.drawn().scaled(self.scale);
            let row = json!({"hits": value, "low": low, "high": high, "label": found.with_interval(format_quantity)});
            said.push(format!("{reuse_percent:.1} % {}", format_quantity(found.value)));
            self.add(name, "measured", reuse_percent, row);
        }
        self.words.push(format!("{name}: {}", said.join(", ")));
    }

    /// `hits_per_second`: a function of percent reuse.
    pub fn computed(&mut self, name: &str, hits_per_second: impl Fn(f64) -> f64) {
        for percent in (0..DRAWN).map(|percent| percent as f64) {
            let hits = self.scale * hits_per_second(percent);
            if hits.is_finite() {
                self.add(name, "computed", percent, json!({"hits": hits}));
            }
        }
    }

    /// Draws plain HTTP, and half of it.
    pub fn limit(&mut self, hits_per_second: f64) {
        for (name, kind, hits) in
            [("plain HTTP", "limit", hits_per_second), ("half of it", "half", hits_per_second / 2.0)]
        {
            for reuse_percent in [0.0, 100.0] {
                self.add(name, kind, reuse_percent, json!({"hits": self.scale * hits}));
            }
        }
    }

    /// A point from a paper.
    pub fn published(&mut self, name: &str, reuse_percent: f64, hits_per_second: f64, label: String) {
        self.add(name, "published", reuse_percent, json!({"hits": self.scale * hits_per_second, "label": label}));
    }

    /// Marks a reuse without a throughput.
    pub fn reuse(&mut self, name: &str, reuse_percent: f64, label: Option<f64>) {
        self.add(name, "reuse", reuse_percent, json!({"label": label}));
    }

    /// `None` without a point.
    pub fn chart(self, id: String, height: usize, caption: String) -> Option<Chart> {
        let [title, label] = self.titles;
        // A layer without a row would have no extent, of which the viewer warns.
        let of = |kind: &str, mark: Value, encoding: Value| {
            let filter = json!({"transform": [{"filter": format!("datum.kind == '{kind}'")}]});
            self.rows.iter().any(|row| row["kind"] == kind).then(|| with(layer(mark, encoding), filter))
        };
        let line = |dashes: [u32; 2]| json!({"type": "line", "strokeWidth": 1.5, "strokeDash": dashes});
        let cross = json!({"type": "point", "shape": "cross", "size": 110, "filled": true});
        let hits = || json!({"y": axis("hits")});
        let y = with(quantity("hits", title), json!({"scale": {"zero": true}}));
        let layers = [
            of("measured", rule_mark(), json!({"y": axis("low"), "y2": {"field": "high"}})),
            of("measured", line_mark(), json!({"y": y})),
            of("computed", line([6, 3]), hits()),
            of("limit", line([1, 0]), hits()),
            of("half", line([6, 6]), hits()),
            of("published", cross, hits()),
            of("reuse", rule_mark(), json!({})),
        ];
        let x = quantity("reuse", &format!("reuse, % by {}", self.by));
        let body = json!({
            "encoding": {
                "x": with(x, json!({"scale": {"domain": [0, 100]}})),
                "color": with(palette("line", &self.names, &COLOURS), line_legend(None, 6)),
                "tooltip": tooltip([("line", "line"), ("reuse", "reuse, %"), ("label", label)]),
            },
            "layer": layers.into_iter().flatten().collect::<Vec<Value>>(),
        });
        let words = format!("Lines of {title} over reuse by {}. {}.", self.by, self.words.join(". "));
        Some(Chart::new(id, height, self.rows, body)?.described(caption, words))
    }
}
