//! Lines of a log in JSON, read by the names of their fields: nginx's own (`log_format … escape=json`), Caddy's,
//! Traefik's, and any other line that a collector put into JSON. They are written again in combined format, so that
//! one parser and one search for the client serve all. The file depends on serde_json, time and its neighbour
//! `client.rs`, so that the fuzzer can build it.

use std::collections::HashMap;
use std::sync::LazyLock;

use serde_json::{Map, Value};
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;
use time::macros::format_description;

use super::client::of_word;

/// The kinds of fields, each with the names that it goes by: without marks, in lower case, the most telling first.
const KINDS: &str = include_str!("json_names.txt");

/// By name the kinds that it may be, each with the place among the names of that kind.
static NAMES: LazyLock<HashMap<&str, Vec<(&str, usize)>>> = LazyLock::new(|| {
    let mut names: HashMap<&str, Vec<(&str, usize)>> = HashMap::new();
    for (kind, all) in KINDS.lines().filter_map(|line| line.split_once(':')) {
        all.split_whitespace().enumerate().for_each(|(rank, name)| names.entry(name).or_default().push((kind, rank)));
    }
    names
});

/// The line in combined format, or the line that a collector put into it, if it is JSON that says so much.
pub fn as_combined(line: &[u8]) -> Option<Vec<u8>> {
    let line = line.trim_ascii_end();
    // A collector of logs may have put words before it.
    let start = line.iter().position(|byte| *byte == b'{').filter(|_| line.ends_with(b"}"))?;
    let whole: Map<String, Value> = serde_json::from_slice(&line[start..]).ok()?;
    let mut fields = Fields::default();
    fields.add(&whole, "", 0);
    let inside = || fields.find("inside").map(|text| as_combined(text.as_bytes()).unwrap_or_else(|| text.into()));
    fields.combined().map(String::into_bytes).or_else(inside)
}

/// Of each kind the field that stands furthest out, and of those the one with the most telling name.
#[derive(Default)]
struct Fields(HashMap<&'static str, ((usize, usize), String)>);

impl Fields {
    fn add(&mut self, map: &Map<String, Value>, outer: &str, depth: usize) {
        for (name, value) in map {
            let name: String = name.chars().filter(char::is_ascii_alphanumeric).collect();
            let [name, long] = [&name, &format!("{outer}{name}")].map(|name| name.to_ascii_lowercase());
            let text = match value {
                Value::String(text) => text.clone(),
                Value::Number(number) => number.to_string(),
                Value::Array(all) => all.first().and_then(Value::as_str).unwrap_or_default().to_owned(),
                Value::Object(inner) => {
                    self.add(inner, &long, depth + 1);
                    continue;
                }
                Value::Null | Value::Bool(_) => continue,
            };
            let kinds = NAMES.get(&*long).or_else(|| NAMES.get(&*name)).filter(|_| !matches!(&*text, "" | "-"));
            for (kind, rank) in kinds.into_iter().flatten() {
                let place = (depth, *rank);
                if self.0.get(kind).is_none_or(|(known, _)| place < *known) {
                    self.0.insert(kind, (place, text.clone()));
                }
            }
        }
    }

    fn find(&self, kind: &str) -> Option<&str> {
        self.0.get(kind).map(|(_, text)| &**text)
    }

    fn combined(&self) -> Option<String> {
        // What is one word there stays one.
        let word = |kind| self.find(kind).map(|text| text.split_whitespace().collect::<String>());
        let [client, bytes] = ["client", "bytes"].map(|kind| word(kind).unwrap_or_else(|| "-".to_owned()));
        let (time, status) = (time_of(self.find("time")?)?, word("status")?);
        let line = self.find("request").filter(|line| line.contains(' ')).map(str::to_owned);
        let mut request = line.or_else(|| Some(format!("{} {} HTTP/1.1", word("method")?, self.target()?)))?;
        if let Some(site) = self.find("site").filter(|site| of_word(site.as_bytes()).is_some()) {
            request = request.replacen(" /", &format!(" http://{site}/"), 1);
        }
        // As nginx escapes them in combined format.
        let quoted = |text: &str| text.replace('\\', "\\x5C").replace('"', "\\x22");
        let [agent, forwarded] = ["agent", "forwarded"].map(|kind| quoted(self.find(kind).unwrap_or("-")));
        let request = quoted(&request);
        Some(format!("{client} - - [{time}] \"{request}\" {status} {bytes} \"-\" \"{agent}\" \"{forwarded}\""))
    }

    fn target(&self) -> Option<String> {
        let target = self.find("target")?;
        let query = self.find("query").filter(|_| !target.contains('?'));
        let query = query.map_or_else(String::new, |query| format!("?{}", query.trim_start_matches('?')));
        Some(target.to_owned() + &query)
    }
}

/// As combined format writes it: of RFC 3339 or nearly so, of a number of seconds, milli-, micro- or nanoseconds since
/// 1970, or what is written so already.
fn time_of(text: &str) -> Option<String> {
    let text = Some(text.trim_matches(['[', ']'])).filter(|text| text.is_ascii())?;
    let parsed = match text.parse::<f64>() {
        Ok(number) => {
            let scale = [1e11, 1e14, 1e17].iter().filter(|bound| number.abs() >= **bound).count();
            OffsetDateTime::from_unix_timestamp((number / 1e3_f64.powi(scale as i32)) as i64).ok()
        }
        Err(_) => {
            // Caddy writes a zone without a colon, others none.
            let mut text = text.replacen(' ', "T", 1).replace('/', "-");
            match text.get(19..).map(|end| end.find(['Z', 'z', '+', '-']).map(|zone| end.len() - zone)) {
                Some(None) => text.push('Z'),
                Some(Some(5)) => text.insert(text.len() - 2, ':'),
                _ => {}
            }
            OffsetDateTime::parse(&text, &Rfc3339).ok()
        }
    };
    let format = format_description!("[day]/[month repr:short]/[year]:[hour]:[minute]:[second] +0000");
    match parsed {
        Some(at) => at.to_offset(time::UtcOffset::UTC).format(&format).ok(),
        None => text.contains('/').then(|| text.to_owned()),
    }
}

#[cfg(test)]
mod tests;
