//! Documents: how many words they have, how long their sentences are, and whether their links lead somewhere.

use std::collections::BTreeSet;

use super::files::File;
use super::finding::Finding;
use crate::tlsdyno::workspace;

/// Words of a sentence.
const SENTENCE: usize = 40;
/// Groups of pages, each with the words that it may have together, as `wc -w` counts them. What is generated (between
/// `<!-- … -->` marks that end with `<!-- …: end -->`) is not counted. Of the words of results 380 are the state of TLS
/// stacks and its three answers.
const GROUPS: [(&str, usize, &[&str]); 2] = [
    ("the front page", 700, &["README.md"]),
    ("the pages of results and habits", 2880, &["docs/ANSWERS.md", "docs/RESULTS.md", "SECURITY.md", "RELEASING.md"]),
];
/// Pages that a command makes, or a test holds against the code.
const GENERATED: [&str; 2] = ["docs/FORMAT.md", "docs/STAGES.md"];
/// Words of all other pages together with the front page. Wanted are 20,000, and 700 for each command that came later;
/// and 500 for copies of HAProxy, Apache and lighttpd, patches and remedies together; 650 for the cryptoserver; 200 for
/// front ends of a cluster and their database; 200 for what of the papers was still missing (SPECweb99_SSL's rules);
/// 790 for `top`.
const ALL_OTHERS: usize = 25_340;

/// Documents that are too long, sentences that are too long, and links that lead nowhere.
pub fn faults(files: &[File]) -> Vec<Finding> {
    let pages: Vec<&File> = files.iter().filter(|file| is_page(&file.path)).collect();
    let mut found = words_beyond(&pages);
    // What a command writes has lists for sentences.
    found.extend(pages.iter().filter(|page| page.path != GENERATED[1]).flat_map(|page| long_sentences(page)));
    let paths: BTreeSet<&str> = files.iter().map(|file| file.path.as_str()).collect();
    found.extend(pages.iter().flat_map(|page| dead_links(page, &paths, files)));
    found
}

/// What people read first: pages at the top and in docs/.
fn is_page(path: &str) -> bool {
    path.ends_with(".md") && path.strip_prefix("docs/").unwrap_or(path).split('/').count() == 1
}

/// Words as `wc -w` has them, without what is generated: it stands between two marks, of which the second says `: end`.
fn words(text: &str) -> usize {
    let (mut count, mut generated) = (0, None);
    for line in text.lines() {
        let of_line = line.split_whitespace().count();
        match (line.strip_prefix("<!-- "), &mut generated) {
            (Some(mark), _) if mark.ends_with(": end -->") => generated = None,
            (Some(_), _) => generated = Some(0),
            (None, Some(waiting)) => *waiting += of_line,
            (None, None) => count += of_line,
        }
    }
    count + generated.unwrap_or(0)
}

fn words_beyond(pages: &[&File]) -> Vec<Finding> {
    let together = |names: &dyn Fn(&str) -> bool| {
        pages.iter().filter(|page| names(&page.path)).map(|page| words(&page.text)).sum::<usize>()
    };
    let in_a_group = |path: &str| GROUPS[1].2.contains(&path) || GENERATED.contains(&path);
    let mut sums: Vec<_> =
        GROUPS.iter().map(|(name, most, of)| (of[0], *name, *most, together(&|path| of.contains(&path)))).collect();
    sums.push(("docs", "all other pages", ALL_OTHERS, together(&|path| !in_a_group(path))));
    let beyond = sums.into_iter().filter(|(_, _, most, has)| has > most);
    beyond
        .map(|(path, name, most, has)| Finding::new(path, 1, format!("{name}: {has} words, at most {most}; shorten")))
        .collect()
}

/// Whether a line begins another paragraph or item, or is none of prose.
fn breaks(line: &str) -> bool {
    let line = line.trim_start();
    line.is_empty() || ["#", "|", "- ", "* ", "<!--", "```"].iter().any(|mark| line.starts_with(mark)) || {
        let rest = line.trim_start_matches(|character: char| character.is_ascii_digit());
        rest.len() < line.len() && rest.starts_with(". ")
    }
}

/// Paragraphs and items with the line on which each begins, without code, tables and headings.
fn paragraphs(text: &str) -> Vec<(usize, String)> {
    let mut all: Vec<(usize, String)> = Vec::new();
    let (mut is_code, mut is_open) = (false, false);
    for (index, line) in text.lines().enumerate() {
        if line.trim_start().starts_with("```") {
            is_code = !is_code;
            is_open = false;
            continue;
        }
        let is_prose = !line.trim().is_empty() && !["#", "|", "<!--"].iter().any(|mark| line.starts_with(mark));
        if is_code || !is_prose {
            is_open = false;
            continue;
        }
        if is_open && !breaks(line) {
            let (_, open) = all.last_mut().expect("one is open");
            *open += " ";
            *open += line.trim();
        } else {
            all.push((index + 1, line.trim().to_owned()));
            is_open = true;
        }
    }
    all
}

/// A code span is one word, and of a link only its text is read.
fn as_read(paragraph: &str) -> String {
    let spans = paragraph.split('`').enumerate();
    let text: String = spans.map(|(index, part)| if index % 2 == 0 { part } else { "code" }).collect();
    let mut read = String::new();
    let mut rest = text.as_str();
    while let Some((before, target)) = rest.split_once("](") {
        read += before;
        rest = target.split_once(')').map_or("", |(_, after)| after);
    }
    read + rest
}

fn long_sentences(page: &File) -> Vec<Finding> {
    let mut found = Vec::new();
    for (line, paragraph) in paragraphs(&page.text) {
        let mut count = 0;
        for word in as_read(&paragraph).split_whitespace() {
            count += usize::from(word.contains(|character: char| character.is_alphanumeric()));
            let bare = word.trim_end_matches(['*', ')', '"', '”']);
            if bare.ends_with(['.', '!', '?']) {
                found.extend((count > SENTENCE).then(|| too_long(page, line, count)));
                count = 0;
            }
        }
        found.extend((count > SENTENCE).then(|| too_long(page, line, count)));
    }
    found
}

fn too_long(page: &File, line: usize, count: usize) -> Finding {
    Finding::new(&page.path, line, format!("a sentence of {count} words, at most {SENTENCE}: make two of it"))
}

/// What a heading is called in links.
fn anchor(heading: &str) -> String {
    let kept = heading.to_lowercase();
    let kept = kept.chars().filter(|one| one.is_alphanumeric() || [' ', '-', '_'].contains(one));
    kept.collect::<String>().replace(' ', "-")
}

/// Links of a page to files that are not there, or to headings that they do not have.
fn dead_links(page: &File, paths: &BTreeSet<&str>, files: &[File]) -> Vec<Finding> {
    let folder = page.path.rsplit_once('/').map_or("", |(folder, _)| folder);
    let mut found = Vec::new();
    for (index, line) in page.text.lines().enumerate() {
        for target in line.split("](").skip(1).filter_map(|rest| rest.split(')').next()) {
            if target.contains("://") || target.starts_with("mailto:") {
                continue;
            }
            let (file, heading) =
                target.split_once('#').map_or((target, None), |(file, heading)| (file, Some(heading)));
            let path = if file.is_empty() { page.path.clone() } else { joined(folder, file) };
            let is_folder = paths.iter().any(|one| one.starts_with(&format!("{}/", path.trim_end_matches('/'))));
            if !paths.contains(path.as_str()) && !is_folder && !workspace().join(&path).is_file() {
                found.push(Finding::new(&page.path, index + 1, format!("there is no {path}")));
            } else if let Some(heading) = heading
                && !files.iter().any(|one| one.path == path && headings(&one.text).contains(heading))
            {
                found.push(Finding::new(&page.path, index + 1, format!("{path} has no heading #{heading}")));
            }
        }
    }
    found
}

fn headings(text: &str) -> BTreeSet<String> {
    let lines = text.lines().filter(|line| line.starts_with('#'));
    lines.map(|line| anchor(line.trim_start_matches('#').trim())).collect()
}

/// A path relative to a folder, from the workspace's directory.
fn joined(folder: &str, path: &str) -> String {
    let mut parts: Vec<&str> = folder.split('/').filter(|part| !part.is_empty()).collect();
    for part in path.split('/') {
        match part {
            ".." => drop(parts.pop()),
            "." => {}
            part => parts.push(part),
        }
    }
    parts.join("/")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(pages: &[(&str, &str)]) -> Vec<String> {
        let files: Vec<File> = pages.iter().map(|(path, text)| File::new(path, text)).collect();
        faults(&files).iter().map(ToString::to_string).collect()
    }

    fn of(words: usize) -> String {
        "word ".repeat(words)
    }

    #[test]
    fn words_are_those_of_a_group_without_what_is_generated() {
        let text = |words| format!("{}. \n", "word. ".repeat(words).trim_end_matches(". "));
        assert!(found(&[("README.md", &text(700))]).is_empty());
        assert_eq!(
            found(&[("README.md", &text(701))]),
            ["README.md:1: the front page: 701 words, at most 700; shorten"]
        );
        let generated = format!("{}\n<!-- results: x -->\n{}\n<!-- results: end -->\n", text(690), text(5000));
        assert!(found(&[("README.md", &generated)]).is_empty());
        assert!(found(&[("docs/LOAD.md", &text(ALL_OTHERS))]).is_empty());
        assert_eq!(found(&[("docs/LOAD.md", &text(ALL_OTHERS)), ("docs/NOOP.md", "one\n")]).len(), 1);
        assert!(found(&[("docs/FORMAT.md", &text(30_000)), ("results/a/b.md", &text(30_000))]).is_empty());
    }

    #[test]
    fn a_sentence_ends_with_its_paragraph_or_a_stop() {
        let sentences = |text: &str| found(&[("docs/LOAD.md", text)]).len();
        assert_eq!(sentences(&of(SENTENCE)), 0);
        assert_eq!(sentences(&of(SENTENCE + 1)), 1);
        assert_eq!(sentences(&format!("{}end. {}", of(30), of(30))), 0);
        assert_eq!(sentences(&format!("- {}\n- {}", of(30), of(30))), 0);
        assert_eq!(sentences(&format!("{}\n{}", of(30), of(30))), 1, "a line's end is none");
        assert_eq!(sentences(&format!("```\n{}\n```\n| {} |\n", of(60), of(60))), 0);
        assert_eq!(sentences(&format!("`{}` {}", of(60), of(30))), 0, "code is one word");
    }

    #[test]
    fn links_lead_to_files_and_headings() {
        let page = "# Title, with `code`\nSee [a](BIAS.md#the-shim), [b](../README.md), [c](#title-with-code), \
                    [d](https://example.org/x).\n";
        let others = [("docs/BIAS.md", "## The shim\n"), ("README.md", "")];
        assert!(found(&[("docs/LOAD.md", page), others[0], others[1]]).is_empty());
        let dead = "See [a](BIAS.md#no-such), [b](GONE.md), [c](#nowhere).\n";
        assert_eq!(found(&[("docs/LOAD.md", dead), others[0], others[1]]).len(), 3);
    }
}
