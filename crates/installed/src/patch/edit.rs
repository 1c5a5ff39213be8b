//! Changes of a text at places in it: whatever else stands on a line stays.

use std::ops::Range;

use super::Part;

/// A range of bytes and the text that replaces it.
pub(super) type Edit = (Range<usize>, String);

/// Lines behind a part, or in its place; none: it goes, and its line where nothing else stands there. On a line on
/// which a block begins or ends behind it they stand before that.
pub(super) fn edit(text: &str, part: &Part, is_behind: bool, lines: &[String]) -> Edit {
    let Range { start, end } = part.at.bytes;
    let before = &text[text[..start].rfind('\n').map_or(0, |at| at + 1)..start];
    let after = &text[end..text[end..].find('\n').map_or(text.len(), |at| end + at)];
    let (is_first, is_last) = (!is_behind && before.trim().is_empty(), after.trim().is_empty());
    if lines.is_empty() {
        let blanks = after.len() - after.trim_start().len();
        let whole = start - before.len()..(end + after.len() + 1).min(text.len());
        return (if is_first && is_last { whole } else { start..end + blanks }, String::new());
    }
    // What begins a section has no name, and its lines stand further in.
    let step = if part.name.is_empty() || before.contains('{') { "    " } else { "" };
    let broken = format!("\n{}{step}", &before[..before.len() - before.trim_start().len()]);
    if is_behind && (!after.contains(['{', '}']) || after.trim_start().starts_with('#')) {
        return (end + after.len()..end + after.len(), format!("{broken}{}", lines.join(&broken)));
    }
    let has_comment = |lines: &[String]| lines.iter().any(|line| line.contains('#'));
    let between = if is_first || has_comment(lines) { &broken } else { " " };
    let begin = if is_behind || !is_first && has_comment(lines) { between } else { "" };
    let rest = if !is_last && has_comment(&lines[lines.len() - 1..]) { &broken } else { "" };
    (if is_behind { end..end } else { start..end }, format!("{begin}{}{rest}", lines.join(between)))
}

/// A text with these changes. What several servers include is changed once.
pub(super) fn edited(text: &str, mut edits: Vec<Edit>) -> String {
    let mut edited = text.to_owned();
    edits.sort_by_key(|(bytes, _)| bytes.start);
    edits.dedup();
    edits.iter().rev().for_each(|(bytes, new)| edited.replace_range(bytes.clone(), new));
    edited
}
