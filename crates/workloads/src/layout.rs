//! Which word of a log's line is its client.
//!
//! Programs that collect logs put words before each line (container, time, host and process), and behind a proxy the
//! client's address is logged last while the proxy's stands first. docs/WORKLOADS.md gives the rules. The file depends
//! on its neighbours `client.rs` and `fields.rs` alone, so that the fuzzer can build it.

use std::borrow::Cow;

use super::client::{self, Client, Kind};
use super::fields::{fields, is_end, listed, quoted, word};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Field {
    /// The field of this number, from 1.
    Number(u32),
    Last,
}

/// Where the clients of a log stand; by default where they do in common format.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Layout {
    pub field: Option<Field>,
    /// Words that stand before the client in most lines.
    pub words_before: usize,
    /// The client is the address behind the user agent wherever there is one: what stands before the time is a proxy.
    pub behind_proxy: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Found<'line> {
    /// Before the time.
    Words {
        before: &'line [u8],
        /// There is an address behind the user agent too.
        another: bool,
    },
    /// Behind the user agent, where X-Forwarded-For is logged.
    Forwarded {
        /// Who stands before the time; `-` where nobody does.
        proxy: Cow<'line, [u8]>,
    },
    /// In the field that was asked for.
    Asked,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lack {
    /// The line says that it is not known.
    Unknown,
    /// There are other words in its place.
    OtherWords,
}

/// Words before the time, and fields behind the user agent, that are looked at; no line has so many.
const WORDS_MAX: usize = 64;

/// The client of `line`. `before_time` is its beginning up to the time, `further` what follows its last field of the
/// combined format.
#[inline]
pub fn find<'line>(
    line: &'line [u8],
    before_time: &'line [u8],
    further: &'line [u8],
    layout: &Layout,
) -> Result<(Cow<'line, [u8]>, Found<'line>), Lack> {
    if let Some(field) = layout.field {
        return asked(line, field).map(|client| (client, Found::Asked));
    }
    let first = in_words(before_time, layout.words_before);
    let forwarded = forwarded(further);
    let is_proxy = match &first {
        // An address of the site itself that a client of the internet is told for.
        Ok((client, _)) if client.kind == Kind::InnerAddress => {
            layout.behind_proxy || forwarded.as_ref().is_some_and(|client| client.kind == Kind::Address)
        }
        Ok(_) => layout.behind_proxy,
        Err(lack) => *lack == Lack::Unknown,
    };
    match (forwarded, first) {
        (Some(client), first) if is_proxy => {
            let proxy = first.map_or(Cow::Borrowed(&b"-"[..]), |(proxy, _)| proxy.text);
            Ok((client.text, Found::Forwarded { proxy }))
        }
        (another, Ok((client, before))) => Ok((client.text, Found::Words { before, another: another.is_some() })),
        (_, Err(lack)) => Err(lack),
    }
}

/// The client in the field of the line that was asked for: any text that is there, addresses in their one form.
fn asked(line: &[u8], field: Field) -> Result<Cow<'_, [u8]>, Lack> {
    let text = match field {
        Field::Number(number) => fields(line).nth(number as usize - 1),
        Field::Last => fields(line).last(),
    };
    let text = text.map(<[u8]>::trim_ascii).filter(|text| !is_unknown(text)).ok_or(Lack::Unknown)?;
    Ok(client::of_word(text).map_or(Cow::Borrowed(text), |client| client.text))
}

/// The first address in quotation marks behind the user agent.
#[inline]
fn forwarded(further: &[u8]) -> Option<Client<'_>> {
    let mut rest = further.trim_ascii_start();
    for _ in 0..WORDS_MAX {
        if rest.is_empty() {
            break;
        }
        let field = quoted(rest, is_end);
        let client = field.and_then(|(field, _)| client::of_list(field));
        if client.is_some() {
            return client;
        }
        rest = field.map_or_else(|| word(rest).1, |(_, after)| after).trim_ascii_start();
    }
    None
}

/// `-`, and what nginx logs of a client at a socket of the machine.
fn is_unknown(word: &[u8]) -> bool {
    word.is_empty() || word == b"-" || word == b"unix:"
}

/// The client among the words before the time, and what stands before it: the word in the place that most lines have it
/// in, if it can be one, else by its neighbours.
#[inline]
fn in_words(before_time: &[u8], words_before: usize) -> Result<(Client<'_>, &[u8]), Lack> {
    let mut rest = before_time;
    for _ in 0..words_before {
        rest = listed(rest).1;
    }
    let (usual, after) = listed(rest);
    if let Some(client) = client::of_word(usual)
        && (client.is_address() || word(after).0 == b"-")
    {
        let start = before_time.len() - after.len() - usual.len() + client.start;
        return Ok((client, &before_time[..start]));
    }
    by_neighbours(before_time, is_unknown(usual))
}

/// The client by what stands beside it: `client ident user`, where ident is nearly always `-`. `unknown`: its usual
/// place says that there is none, so that only an address is believed.
fn by_neighbours(before_time: &[u8], unknown: bool) -> Result<(Client<'_>, &[u8]), Lack> {
    let (mut words, mut starts): (Vec<&[u8]>, Vec<usize>) = (Vec::new(), Vec::new());
    let text = before_time.trim_ascii_end();
    let mut rest = text;
    while !rest.is_empty() && words.len() < WORDS_MAX {
        let (next, after) = listed(rest);
        words.push(next);
        starts.push(text.len() - after.len() - next.len());
        rest = after;
    }
    let clients: Vec<Option<Client<'_>>> = words.iter().map(|word| client::of_word(word)).collect();
    let count = words.len();
    let is = |at: usize, which: fn(Kind) -> bool| clients[at].as_ref().is_some_and(|client| which(client.kind));
    let public = |at: &usize| is(*at, |kind| kind == Kind::Address);
    let address = |at: &usize| is(*at, |kind| kind != Kind::Name);
    let name = |at: &usize| !unknown && is(*at, |kind| kind == Kind::Name);
    let has_ident = |at: &usize| words.get(at + 1).is_some_and(|next| *next == b"-");
    let third_last = count.checked_sub(3);
    // X-Forwarded-For first, the proxy behind it.
    let listed_first = |at: usize| if !public(&at) && count > 0 && public(&0) { 0 } else { at };
    let found = (0..count).rev().find(|at| public(at) && has_ident(at));
    let found = found.or_else(|| (0..count).rev().find(|at| address(at) && has_ident(at)).map(listed_first));
    let found = found.or_else(|| (0..count.min(1)).find(address));
    let found = found.or_else(|| third_last.filter(address));
    let found = found.or_else(|| third_last.filter(|at| name(at) && has_ident(at)));
    let found = found.or_else(|| (0..count).find(address));
    let found = found.or_else(|| (0..count).find(|at| name(at) && has_ident(at)));
    // Without ident, or with one.
    let is_word = |at: usize| words.get(at).is_none_or(|word| word.iter().any(u8::is_ascii_alphanumeric));
    let found = found.or_else(|| (0..count.min(1)).find(|at| count <= 3 && name(at) && is_word(1)));
    let says_unknown = unknown || third_last.is_some_and(|at| is_unknown(words[at]));
    let at = found.ok_or(if says_unknown { Lack::Unknown } else { Lack::OtherWords })?;
    let client = clients.into_iter().nth(at).flatten().ok_or(Lack::OtherWords)?;
    let start = starts[at] + client.start;
    Ok((client, &before_time[..start]))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(before_time: &str, words_before: usize) -> Result<String, Lack> {
        in_words(before_time.as_bytes(), words_before).map(|(client, before)| {
            format!("{}|{}", String::from_utf8_lossy(before), String::from_utf8_lossy(&client.text))
        })
    }

    #[test]
    fn a_client_is_known_by_its_neighbours() {
        let cases = [
            ("192.0.2.1 - -", "|192.0.2.1"),
            ("192.0.2.1", "|192.0.2.1"),
            ("192.0.2.1 - John Q Public", "|192.0.2.1"),
            ("host.example.net - frank", "|host.example.net"),
            ("host.example.net frank frank", "|host.example.net"),
            ("web-1  | 192.0.2.1 - -", "web-1  | |192.0.2.1"),
            ("web-1  | host - -", "web-1  | |host"),
            (
                "2022-10-04T04:37:00.000000000Z stdout F 192.0.2.1 - -",
                "2022-10-04T04:37:00.000000000Z stdout F |192.0.2.1",
            ),
            ("Nov 26 10:00:00 10.0.0.5 nginx[12]: 192.0.2.1 - a b c", "Nov 26 10:00:00 10.0.0.5 nginx[12]: |192.0.2.1"),
            (
                "<165>1 2022-10-04T04:37:00Z 10.0.0.5 nginx - - - 10.2.0.1 - -",
                "<165>1 2022-10-04T04:37:00Z 10.0.0.5 nginx - - - |10.2.0.1",
            ),
            (
                "<165>1 2022-10-04T04:37:00Z host nginx 77 - - pc.example - -",
                "<165>1 2022-10-04T04:37:00Z host nginx 77 - - |pc.example",
            ),
            ("www.example.org:443 192.0.2.1 - -", "www.example.org:443 |192.0.2.1"),
            ("www.example.org pc.example.net - -", "www.example.org |pc.example.net"),
            ("203.0.113.9 10.0.0.7 - -", "|203.0.113.9"),
            ("203.0.113.9 - 10.0.0.7 - -", "|203.0.113.9"),
            ("203.0.113.1, 10.0.0.7 - -", "|203.0.113.1"),
            ("web-1 | [2001:db8::1]:80 - -", "web-1 | |2001:db8::1"),
            ("access.log:192.0.2.1 - -", "access.log:|192.0.2.1"),
        ];
        for (words, expected) in cases {
            assert_eq!(found(words, 0).as_deref(), Ok(expected), "{words}");
        }
    }

    #[test]
    fn the_usual_place_decides_where_neighbours_mislead() {
        assert_eq!(found("192.0.2.1 - 198.51.100.1 - x", 0).as_deref(), Ok("|192.0.2.1"));
        assert_eq!(found("F host.example.net - a b c", 1).as_deref(), Ok("F |host.example.net"));
        assert_eq!(found("- 10.0.0.7 - -", 0).as_deref(), Ok("- |10.0.0.7"));
    }

    #[test]
    fn other_words_are_nobody() {
        assert_eq!(found("- - -", 0), Err(Lack::Unknown));
        assert_eq!(found("unix: - -", 0), Err(Lack::Unknown));
        assert_eq!(found("host nginx - - - - - -", 5), Err(Lack::Unknown));
        for words in ["34600 - -", "web-1 | x y z", "|", "a b c d e"] {
            assert_eq!(found(words, 0), Err(Lack::OtherWords), "{words}");
        }
    }
}
