//! Which lines of a log are left out: proxies that stand for many users, crawlers that are none, other
//! sites.

use std::collections::HashMap;
use std::net::IpAddr;

use anyhow::{Context, Result, ensure};
use ipnet::IpNet;

use super::access_log::Entry;

const CRAWLERS_PRESET: &str = "crawlers";
/// Parts of user agents, in lower case, that programs fetching sites for search engines, archives and previews write.
const CRAWLERS: &str = include_str!("crawlers.txt");
/// User agents whose verdict is remembered; real logs have far fewer, forged ones must not fill the memory.
const REMEMBERED_AGENTS: usize = 65_536;

#[derive(Debug)]
pub(super) struct Exclude {
    patterns: Vec<Pattern>,
    /// User agents seen, with the pattern that each matches.
    agents: HashMap<Box<[u8]>, Option<usize>>,
}

#[derive(Debug, PartialEq)]
enum Pattern {
    Prefix(IpNet),
    /// In lower case: equal to the client's name or the site's, or part of the user agent.
    Text(String),
    Crawlers,
}

impl Exclude {
    /// Compiles what the user wrote.
    pub(super) fn new(texts: &[String]) -> Result<Self> {
        let patterns = texts.iter().map(|text| pattern(text)).collect::<Result<_>>()?;
        Ok(Self { patterns, agents: HashMap::new() })
    }

    /// The pattern (index into the list given to [`Exclude::new`]) that leaves out this line: by its client, whatever
    /// that asks for, its site, or its user agent.
    #[inline]
    pub(super) fn pattern(&mut self, entry: &Entry<'_>) -> Option<usize> {
        if self.patterns.is_empty() {
            return None;
        }
        self.client(entry).or_else(|| entry.user_agent.and_then(|agent| self.agent(agent)))
    }

    fn client(&self, entry: &Entry<'_>) -> Option<usize> {
        let (client, site) = (&entry.client, entry.site());
        let address: Option<IpAddr> = std::str::from_utf8(client).ok().and_then(|text| text.parse().ok());
        // Behind dual-stack sockets IPv4 clients are logged as ::ffff:192.0.2.1.
        let address = address.map(|address| address.to_canonical());
        self.patterns.iter().position(|pattern| match pattern {
            Pattern::Prefix(prefix) => address.is_some_and(|address| prefix.contains(&address)),
            Pattern::Text(text) => [Some(client), site.as_ref()]
                .into_iter()
                .flatten()
                .any(|name| name.eq_ignore_ascii_case(text.as_bytes())),
            Pattern::Crawlers => false,
        })
    }

    fn agent(&mut self, agent: &[u8]) -> Option<usize> {
        if let Some(known) = self.agents.get(agent) {
            return *known;
        }
        let lower = agent.to_ascii_lowercase();
        let verdict = self.patterns.iter().position(|pattern| match pattern {
            Pattern::Prefix(_) => false,
            Pattern::Text(text) => holds(&lower, text),
            Pattern::Crawlers => CRAWLERS.lines().any(|part| holds(&lower, part)),
        });
        if self.agents.len() >= REMEMBERED_AGENTS {
            self.agents.clear();
        }
        self.agents.insert(agent.into(), verdict);
        verdict
    }
}

fn pattern(text: &str) -> Result<Pattern> {
    let text = text.trim();
    ensure!(!text.is_empty(), "an empty text to exclude would leave out every line of the log; remove it");
    if text == CRAWLERS_PRESET {
        return Ok(Pattern::Crawlers);
    }
    if let Ok(address) = text.parse::<IpAddr>() {
        return Ok(Pattern::Prefix(address.to_canonical().into()));
    }
    if let Some((address, bits)) = text.split_once('/')
        && let Ok(address) = address.parse::<IpAddr>()
    {
        let bits: u32 =
            bits.parse().with_context(|| format!("the prefix length of `{text}` to exclude is not a number"))?;
        let prefix = u8::try_from(bits).ok().and_then(|bits| IpNet::new(address, bits).ok());
        let prefix = prefix.with_context(|| format!("the prefix `{text}` to exclude is longer than its address"))?;
        return Ok(Pattern::Prefix(prefix));
    }
    Ok(Pattern::Text(text.to_ascii_lowercase()))
}

fn holds(lower: &[u8], part: &str) -> bool {
    lower.windows(part.len()).any(|window| window == part.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::super::access_log::parse;
    use super::*;

    fn by(client: &[u8]) -> Entry<'_> {
        let line = b"host.example - - [17/May/2015:10:05:03 +0000] \"GET http://Shop.example/ HTTP/1.1\" 200 5";
        Entry { client: client.into(), ..parse(line).unwrap() }
    }

    fn exclude(texts: &[&str]) -> Exclude {
        Exclude::new(&texts.iter().map(|text| (*text).to_owned()).collect::<Vec<_>>()).unwrap()
    }

    #[test]
    fn addresses_and_prefixes_of_both_families() {
        let exclude = exclude(&["192.0.2.7", "10.0.0.0/8", "2001:db8::/32", "0.0.0.0/0"]);
        assert_eq!(exclude.client(&by(b"192.0.2.7")), Some(0));
        assert_eq!(exclude.client(&by(b"::ffff:192.0.2.7")), Some(0));
        assert_eq!(exclude.client(&by(b"10.255.1.1")), Some(1));
        assert_eq!(exclude.client(&by(b"11.0.0.0")), Some(3));
        assert_eq!(exclude.client(&by(b"2001:db8:1::9")), Some(2));
        assert_eq!(exclude.client(&by(b"2001:db9::1")), None);
        assert_eq!(exclude.client(&by(b"\xff\xfe")), None);
    }

    #[test]
    fn a_site_is_named_too() {
        assert_eq!(exclude(&["x", "shop.example"]).client(&by(b"192.0.2.7")), Some(1));
        assert_eq!(exclude(&["shop"]).client(&by(b"192.0.2.7")), None);
    }

    #[test]
    fn names_and_user_agents_whatever_their_case() {
        let mut exclude = exclude(&["Cache.Proxy.Example", "MSIE 5"]);
        assert_eq!(exclude.client(&by(b"cache.proxy.example")), Some(0));
        assert_eq!(exclude.client(&by(b"cache.proxy.example.org")), None);
        assert_eq!(exclude.agent(b"Mozilla/4.0 (compatible; msie 5.01)"), Some(1));
        assert_eq!(exclude.agent(b"Mozilla/4.0 (compatible; msie 5.01)"), Some(1), "remembered");
        assert_eq!(exclude.agent(b"Mozilla/5.0"), None);
    }

    #[test]
    fn the_crawlers_preset() {
        let mut exclude = exclude(&["crawlers"]);
        assert_eq!(exclude.agent(b"Mozilla/5.0 (compatible; Googlebot/2.1; +http://www.google.com/bot.html)"), Some(0));
        assert_eq!(exclude.agent(b"Mozilla/5.0 (compatible; Yahoo! Slurp)"), Some(0));
        assert_eq!(exclude.agent(b"Mozilla/5.0 (X11; Linux x86_64; rv:27.0) Gecko/20100101 Firefox/27.0"), None);
    }

    #[test]
    fn nonsense_is_refused() {
        for text in ["", "  ", "10.0.0.0/33", "10.0.0.0/x", "::/129"] {
            assert!(Exclude::new(&[text.to_owned()]).is_err(), "{text}");
        }
    }

    #[test]
    fn forged_user_agents_do_not_fill_the_memory() {
        let mut exclude = exclude(&["crawlers"]);
        for number in 0..REMEMBERED_AGENTS + 10 {
            exclude.agent(number.to_string().as_bytes());
        }
        assert!(exclude.agents.len() <= REMEMBERED_AGENTS);
    }
}
