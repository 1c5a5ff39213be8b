//! How many lines of code the core and each satellite may have.

use std::fmt::Write as _;

use super::count::{self, Part};
use super::files::File;
use super::finding::Finding;

/// The budgets, as its first lines say.
const BUDGETS: &str = include_str!("budgets.txt");
const FILE: &str = "xtask/src/tidy/budgets.txt";

/// Some parts of the workspace, and the lines of code that they may have together.
struct Group<'a> {
    line: usize,
    name: &'a str,
    budget: usize,
    /// Lines of code that it had at the last landing.
    landed: usize,
    parts: Vec<&'a str>,
}

impl Group<'_> {
    fn lines(&self, parts: &[Part]) -> usize {
        parts.iter().filter(|part| self.parts.contains(&part.title)).map(|part| part.lines).sum()
    }
}

/// The groups of the file, and what issues may add to each.
fn read(budgets: &str) -> (Vec<Group<'_>>, Vec<(&str, usize)>) {
    let (mut groups, mut allowed) = (Vec::new(), Vec::new());
    for (index, line) in budgets.lines().enumerate() {
        let words: Vec<&str> = line.split_whitespace().collect();
        match words[..] {
            ["allow", _, lines, group, ..] => allowed.extend(lines.parse().ok().map(|lines| (group, lines))),
            [name, budget, landed, ref parts @ ..] => {
                let (Ok(budget), Ok(landed)) = (budget.parse(), landed.parse()) else { continue };
                groups.push(Group { line: index + 1, name, budget, landed, parts: parts.to_vec() });
            }
            _ => {}
        }
    }
    (groups, allowed)
}

/// Each part with its lines of code, and each group.
pub fn table(files: &[File]) -> String {
    let (parts, mut text) = (count::parts(files), String::new());
    for group in read(BUDGETS).0 {
        let (lines, Group { name, budget, landed, .. }) = (group.lines(&parts), &group);
        let _ = writeln!(text, "{lines:>7}  {name} (budget {budget}, landed {landed})");
        for part in parts.iter().filter(|part| group.parts.contains(&part.title)) {
            let _ = writeln!(text, "{:>11}  {}", part.lines, part.title);
        }
    }
    text
}

/// Groups that have more lines than their budget, budgets that rose without an allowance, and parts without a group.
pub fn exceeded(files: &[File]) -> Vec<Finding> {
    exceeded_of(files, BUDGETS)
}

fn exceeded_of(files: &[File], budgets: &str) -> Vec<Finding> {
    let (parts, (groups, allowed)) = (count::parts(files), read(budgets));
    let mut found = Vec::new();
    for group in &groups {
        let mut tell = |what: String| found.push(Finding::new(FILE, group.line, format!("{} {what}", group.name)));
        let allowed = allowed.iter().filter(|(name, _)| *name == group.name).map(|(_, lines)| lines);
        let most = group.landed + allowed.sum::<usize>();
        if group.budget > most {
            tell(format!("may have {most} lines of code, what landed and what issues allow; lower {}", group.budget));
        }
        let over = group.lines(&parts).saturating_sub(group.budget);
        if over > 0 {
            tell(format!("has {over} lines of code more than its budget; take lines out"));
        }
    }
    let alone = parts.iter().filter(|part| !groups.iter().any(|group| group.parts.contains(&part.title)));
    found.extend(alone.map(|part| Finding::new(FILE, 1, format!("{} is in no group of budgets", part.title))));
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    const OTHERS: &str = "others 0 0 native experiments scripts\n";

    fn found(budgets: &str) -> Vec<String> {
        let files = [File::new("crates/wire/src/lib.rs", "//! A crate.\nconst A: u8 = 1;\nconst B: u8 = 2;\n")];
        exceeded_of(&files, &format!("{OTHERS}{budgets}")).iter().map(|one| one.what.clone()).collect()
    }

    #[test]
    fn a_group_may_have_just_as_many_lines_as_its_budget() {
        assert!(found("core 2 2 wire").is_empty());
        assert_eq!(found("core 1 2 wire"), ["core has 1 lines of code more than its budget; take lines out"]);
    }

    #[test]
    fn a_budget_rises_by_what_an_issue_allows() {
        assert!(found("core 2 1 wire\nallow 7 1 core a reason").is_empty());
        for budgets in
            ["core 2 1 wire", "core 3 1 wire\nallow 7 1 core a reason", "core 2 1 wire\nallow 7 1 others a reason"]
        {
            assert!(found(budgets).iter().any(|what| what.starts_with("core may have ")), "{budgets}");
        }
    }

    #[test]
    fn a_part_without_a_group_is_a_fault() {
        assert_eq!(found(""), ["wire is in no group of budgets"]);
    }
}
