//! The parts of Vega-Lite that charts have in common.

use serde_json::{Value, json};

/// Colours that are told apart with colour-vision deficiencies: the ten-colour palette of Observable.
pub const COLOURS: [&str; 9] =
    ["#4269d0", "#efb118", "#ff725c", "#6cc5b0", "#a463f2", "#ff8ab7", "#3ca951", "#9c6b4e", OTHER_COLOUR];
/// The colour of what is left when everything else has one of its own.
pub const OTHER_COLOUR: &str = "#97a3b6";

/// A value with all fields of both, those of `more` last.
pub fn with(mut base: Value, more: Value) -> Value {
    if let (Some(fields), Value::Object(more)) = (base.as_object_mut(), more) {
        fields.extend(more);
    }
    base
}

/// A channel of numbers under the title of its axis.
pub fn quantity(field: &str, title: &str) -> Value {
    json!({"field": field, "type": "quantitative", "title": title})
}

/// The same channel where another layer has the title.
pub fn axis(field: &str) -> Value {
    json!({"field": field, "type": "quantitative"})
}

/// A channel of colours that the data name themselves.
pub fn as_given(field: &str) -> Value {
    json!({"field": field, "type": "nominal", "scale": null})
}

pub fn layer(mark: Value, encoding: Value) -> Value {
    json!({"mark": mark, "encoding": encoding})
}

/// The mark of an interval.
pub fn rule_mark() -> Value {
    json!({"type": "rule", "strokeWidth": 1.5})
}

/// Names down the left side, in the order of the data.
pub fn names(field: &str, width: usize) -> Value {
    let axis = json!({"ticks": false, "domain": false, "labelPadding": 8, "labelLimit": width});
    json!({"field": field, "type": "nominal", "sort": null, "title": null, "axis": axis})
}

/// A channel of colours without a legend, each for one name.
pub fn palette(field: &str, names: &[impl AsRef<str>], colours: &[&str]) -> Value {
    let names: Vec<&str> = names.iter().map(AsRef::as_ref).collect();
    let scale = json!({"domain": names, "range": &colours[..colours.len().min(names.len())]});
    json!({"field": field, "type": "nominal", "sort": null, "scale": scale, "legend": null})
}

pub fn legend_above(columns: usize) -> Value {
    json!({"legend": {"title": null, "orient": "top", "columns": columns, "labelLimit": 0}})
}

pub fn line_legend(title: Option<&str>, columns: usize) -> Value {
    let lines = json!({"symbolType": "stroke", "symbolStrokeWidth": 3, "symbolOpacity": 1, "labelLimit": 0});
    json!({"legend": with(json!({"title": title, "orient": "top", "columns": columns}), lines)})
}

pub fn line_mark() -> Value {
    json!({"type": "line", "strokeWidth": 2, "point": {"size": 40, "filled": true}})
}

/// What a reader sees who points at a mark: fields with their names.
pub fn tooltip<const N: usize>(fields: [(&str, &str); N]) -> Value {
    fields.map(|(field, title)| json!({"field": field, "title": title})).into_iter().collect()
}

/// A text colour that can be read on `background` (`#rrggbb`): by relative luminance, WCAG 2.2.
pub fn ink(background: &str) -> &'static str {
    let channel = |at: usize| {
        let value =
            f64::from(u8::from_str_radix(&background[at..at + 2], 16).expect("a colour is written as `#rrggbb`"))
                / 255.0;
        if value <= 0.04045 { value / 12.92 } else { ((value + 0.055) / 1.055).powf(2.4) }
    };
    let luminance = 0.2126 * channel(1) + 0.7152 * channel(3) + 0.0722 * channel(5);
    if luminance > 0.3 { "#14191f" } else { "#ffffff" }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn inks_can_be_read() {
        assert_eq!((ink("#efb118"), ink("#4269d0")), ("#14191f", "#ffffff"));
        assert!(COLOURS.iter().all(|colour| !ink(colour).is_empty()));
    }
}
