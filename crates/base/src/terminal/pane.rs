//! What panes of a screen are made of.

use std::collections::VecDeque;

use ratatui::style::Style;
use ratatui::text::Line;
use ratatui::widgets::{Block, BorderType, Padding};

/// A frame with a title; what is in it stands in its inner area.
pub fn framed<'a>(title: impl Into<Line<'a>>) -> Block<'a> {
    Block::bordered()
        .border_type(BorderType::Rounded)
        .border_style(Style::new().dim())
        .title(title)
        .title_style(Style::reset())
        .padding(Padding::horizontal(1))
}

/// The last `shown` values of the past in so many columns of a curve, oldest first, each the mean of those that lie in
/// it. While there are fewer, the columns fill up as time goes on.
pub fn curve(past: &VecDeque<f64>, shown: usize, columns: usize) -> Vec<Option<f64>> {
    let skipped = past.len().saturating_sub(shown);
    let column = |column: usize| {
        let from = skipped + column * shown / columns;
        let to = (skipped + (column + 1) * shown / columns).max(from + 1);
        let values = past.range(from.min(past.len())..to.min(past.len()));
        let count = values.len();
        (count > 0).then(|| values.sum::<f64>() / count as f64)
    };
    (0..columns).map(column).collect()
}
