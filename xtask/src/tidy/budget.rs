//! How many lines of code each part of the workspace may have.

use super::count;
use super::files::File;
use super::finding::Finding;

/// The budgets: a line for each part, `PART LINES REASON`.
const BUDGETS: &str = include_str!("budgets.txt");
/// The file with them.
const FILE: &str = "xtask/src/tidy/budgets.txt";

/// Parts that have more lines than their budget, or none.
pub fn exceeded(files: &[File]) -> Vec<Finding> {
    exceeded_of(files, BUDGETS)
}

fn exceeded_of(files: &[File], budgets: &str) -> Vec<Finding> {
    let budget_of = |title: &str| {
        budgets.lines().enumerate().find_map(|(index, line)| {
            let mut words = line.split_whitespace();
            (words.next() == Some(title)).then(|| (index + 1, words.next().and_then(|lines| lines.parse().ok())))
        })
    };
    let finding = |part: count::Part| match budget_of(part.title) {
        Some((_, Some(budget))) if part.lines <= budget => None,
        Some((line, Some(budget))) => {
            let what = format!(
                "{} has {} lines of code, {} more than its budget; take lines out, or raise it here with the reason",
                part.title,
                part.lines,
                part.lines - budget
            );
            Some(Finding::new(FILE, line, what))
        }
        found => {
            let line = found.map_or(1, |(line, _)| line);
            Some(Finding::new(FILE, line, format!("{} has no budget; write `{0} LINES REASON`", part.title)))
        }
    };
    count::parts(files).into_iter().filter_map(finding).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const OTHERS: &str = "tls 0 -\nengine 0 -\nbase 0 -\nreport 0 -\nnative/src 0 -\nrecord 0 -\nstats 0 -\n\
                          dispatch 0 -\ncryptoserver 0 -\nservers 0 -\ntraffic 0 -\nprobe 0 -\nbench 0 -\n\
                          cluster 0 -\ncost 0 -\nplan 0 -\n\
                          profile 0 -\nlab 0 -\nxtask 0 -\ntlsdyno 0 -\nnative 0 -\nexperiments 0 -\nscripts 0 -\n";

    #[test]
    fn a_part_may_have_just_as_many_lines_as_its_budget() {
        let files = [File::new("crates/wire/src/lib.rs", "//! A crate.\nconst A: u8 = 1;\nconst B: u8 = 2;\n")];
        let found = |budget: &str| exceeded_of(&files, &format!("{OTHERS}{budget}"));
        assert!(found("wire 2 as it is").is_empty());
        let [over] = found("wire 1 as it is").try_into().unwrap();
        assert!(over.line == OTHERS.lines().count() + 1 && over.what.contains("2 lines of code, 1 more"), "{over}");
    }

    #[test]
    fn a_part_without_a_budget_is_a_fault() {
        let files = [File::new("crates/wire/src/lib.rs", "//! A crate.\n")];
        assert_eq!(exceeded_of(&files, OTHERS).len(), 1);
        assert_eq!(exceeded_of(&files, &format!("{OTHERS}wire many lines")).len(), 1);
    }
}
