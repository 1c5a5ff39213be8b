//! A document as one self-contained page: it works offline, without any request, and under a policy without `eval`.

use std::io::Read;

use askama::Template;
use flate2::read::GzDecoder;
use tlsdyno_base::foreign::visible;

use crate::document::{Content, Document, Medium};

/// The scripts of the viewer (`build.rs`).
const VIEWER: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/viewer.js.gz"));

#[derive(Template)]
#[template(path = "document.html")]
struct Page<'a> {
    document: &'a Document,
    answer: String,
    version: &'static str,
    viewer: String,
    licences: &'static str,
}

/// The page of a document. Characters that a browser would obey, as those that turn the direction of writing, are
/// shown.
pub fn page(document: &Document) -> Result<String, askama::Error> {
    Page {
        document,
        answer: unbroken(&document.answer),
        version: env!("CARGO_PKG_VERSION"),
        viewer: viewer(),
        licences: include_str!("../assets/vega/LICENCES.txt"),
    }
    .render()
    .map(|page| visible(&page).into_owned())
}

fn viewer() -> String {
    let mut scripts = String::new();
    GzDecoder::new(VIEWER).read_to_string(&mut scripts).expect("it was packed when this program was built");
    scripts
}

/// The same text with spaces that do not break before `%` and inside brackets.
fn unbroken(text: &str) -> String {
    let mut bracket = false;
    let text = text.replace(" %", "\u{a0}%").replace("% [", "%\u{a0}[");
    text.chars()
        .map(|character| {
            bracket = (bracket || character == '[') && character != ']';
            if bracket && character == ' ' { '\u{a0}' } else { character }
        })
        .collect()
}

/// The text as HTML: what stands between backticks is code, and no line ends within a flag (`--time`), which a browser
/// would break at its hyphens.
fn prose(text: &str) -> String {
    let escaped: String = text
        .chars()
        .map(|character| match character {
            '&' => "&amp;".to_owned(),
            '<' => "&lt;".to_owned(),
            '>' => "&gt;".to_owned(),
            '"' => "&quot;".to_owned(),
            '\'' => "&#39;".to_owned(),
            other => other.to_string(),
        })
        .collect();
    let mut html = String::new();
    let mut rest = escaped.as_str();
    while let Some(at) = rest.find("--") {
        let (before, flag) = rest.split_at(at);
        let length = flag.find(|letter: char| !letter.is_ascii_alphanumeric() && letter != '-').unwrap_or(flag.len());
        html.push_str(&format!("{before}<span class=\"flag\">{}</span>", &flag[..length]));
        rest = &flag[length..];
    }
    let html = html + rest;
    let pieces: Vec<&str> = html.split('`').collect();
    // One that has no partner stays what it is.
    let paired = (pieces.len() - 1) / 2 * 2;
    let mark = |at: usize| match at {
        0 => "",
        at if at > paired => "`",
        at if at % 2 == 1 => "<code>",
        _ => "</code>",
    };
    pieces.iter().enumerate().flat_map(|(at, piece)| [mark(at), *piece]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_are_not_broken_and_no_text_becomes_markup() {
        assert_eq!(
            prose("Longer (--time) <b>--x-y</b> --"),
            "Longer (<span class=\"flag\">--time</span>) &lt;b&gt;<span class=\"flag\">--x-y</span>&lt;/b&gt; \
             <span class=\"flag\">--</span>"
        );
        assert_eq!(
            prose("run `a <b> --c` or `d`, not `e"),
            "run <code>a &lt;b&gt; <span class=\"flag\">--c</span></code> or <code>d</code>, not `e"
        );
    }

    #[test]
    fn numbers_stay_on_one_line() {
        assert_eq!(unbroken("A (1.2 % [1.0, 1.4]) b"), "A (1.2\u{a0}%\u{a0}[1.0,\u{a0}1.4]) b");
    }

    #[test]
    fn no_text_turns_the_direction_of_what_follows() {
        let title = "Is \u{202e}exe.cod\u{2069} safe?".to_owned();
        let page = page(&Document { answer: title.clone(), title, ..Document::default() }).unwrap();
        assert_eq!(page.matches("Is \\u{202e}exe.cod\\u{2069} safe?").count(), page.matches("safe?").count());
        assert!(visible(&viewer()).len() == viewer().len(), "the scripts need no such character");
    }

    #[test]
    fn the_viewer_fits_into_a_script_element() {
        let viewer = viewer();
        assert!(
            !viewer.contains("</script") && !viewer.contains("<!--") && !viewer.contains("sourceMappingURL="),
            "it would end the element"
        );
    }
}
