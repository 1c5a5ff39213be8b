//! Tables of results in a page, made from what lies beside it. A line `<!-- scoreboard: FILE.json NAME... -->` begins a
//! table of these experiments' claims (all without names), `<!-- statements: FILE.json -->` one of a paper's own
//! summary; `<!-- end -->` ends it. What stands between is made, not written.

use std::path::Path;

use anyhow::{Context, Result, bail, ensure};

use super::{Entry, read, statements, tables};

const END: &str = "<!-- end -->";

/// The page with its tables replaced by those of the records. `folder`: directory of the page, and base of the paths in
/// it. Fails where a table has no end, or there is none.
pub fn splice(page: &str, folder: &Path) -> Result<String> {
    let mut spliced = String::new();
    let mut rest = page;
    let mut count = 0;
    while let Some((begin, end)) = next_marker(rest) {
        let made = table(&rest[begin..end], folder)?;
        let after = &rest[end..];
        let length = after.find(END).with_context(|| format!("{} has no {END}", &rest[begin..end]))?;
        ensure!(next_marker(&after[..length]).is_none(), "{} has no {END} before the next", &rest[begin..end]);
        spliced.push_str(&rest[..end]);
        spliced.push_str("\n\n");
        spliced.push_str(made.trim_end());
        spliced.push_str("\n\n");
        spliced.push_str(END);
        rest = &after[length + END.len()..];
        count += 1;
    }
    ensure!(count > 0, "there is no table to make; a line <!-- scoreboard: FILE.json --> begins one, {END} ends it");
    Ok(spliced + rest)
}

/// Start and end of the next marker.
fn next_marker(text: &str) -> Option<(usize, usize)> {
    let begins = ["<!-- scoreboard:", "<!-- statements:"].iter().filter_map(|marker| text.find(marker));
    let begin = begins.min()?;
    Some((begin, begin + text[begin..].find("-->")? + 3))
}

fn table(marker: &str, folder: &Path) -> Result<String> {
    let mut words = marker.trim_start_matches("<!--").trim_end_matches("-->").split_whitespace();
    let kind = words.next().unwrap_or_default();
    let file = words.next().with_context(|| format!("{marker} names no file"))?;
    let all = read(&folder.join(file))?;
    let names: Vec<&str> = words.collect();
    let is_named = |entry: &&Entry| names.is_empty() || names.contains(&entry.experiment.as_str());
    let entries: Vec<Entry> = all.iter().filter(is_named).cloned().collect();
    match names.iter().find(|name| !all.iter().any(|entry| entry.experiment == **name)) {
        Some(missing) => bail!("{file} has no record of {missing}, which {marker} names"),
        None if kind == "statements:" => Ok(statements::table(&entries)),
        None => Ok(tables(&entries)),
    }
}
