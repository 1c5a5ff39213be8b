//! `tlsdyno probe serve`: what is in the store, for Prometheus and for a browser.

use std::net::SocketAddr;
use std::sync::{Mutex, PoisonError};

use anyhow::{Context, Result};
use tlsdyno_base::exit::Exit;
use tlsdyno_base::foreign::visible;
use tlsdyno_base::pages::{Answer, Query, listen, serve};
use tlsdyno_base::{interrupt, metrics};
use tlsdyno_report::html;

use super::report::{hour, read};
use super::{StoreArgs, print};
use crate::page;
use crate::round::now_unix_us;
use crate::store::{Address, Store};

/// Serve the store: metrics for Prometheus at /metrics, and the report as a page at /
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Where to listen
    #[arg(long, value_name = "ADDRESS:PORT", default_value = "127.0.0.1:9115")]
    listen: SocketAddr,

    /// Let other machines ask too: whoever reaches the address sees which sites are probed, and how they do
    #[arg(long)]
    beyond_loopback: bool,

    #[command(flatten)]
    store: StoreArgs,
}

/// Times that the page offers, in days.
const DAYS: [(&str, &str); 4] = [("1", "1 day"), ("7", "7 days"), ("30", "30 days"), ("365", "a year")];
const DAYS_SHOWN: i64 = 7;
const DAY_US: i64 = 86_400_000_000;
const HOUR_US: i64 = DAY_US / 24;

pub fn run(args: &Args) -> Result<Exit> {
    let listener = listen(args.listen, args.beyond_loopback, "the sites")?;
    let address = args.store.address()?;
    let stop = interrupt::flag(Exit::Interrupted as i32)?;
    let own = listener.local_addr().context("failed to ask for the own address")?;
    print(format!("serving {} at http://{own}/ and http://{own}/metrics\n", visible(&address.to_string())))?;
    let served = Served { pages: Reader::of(&address), metrics: Reader::of(&address) };
    serve(&listener, &stop, &|query| served.answer(query))?;
    Ok(Exit::Interrupted)
}

/// A store that is read by one at a time, and opened anew after whatever went wrong.
struct Reader<'a> {
    address: &'a Address,
    store: Mutex<Option<Store>>,
}

impl<'a> Reader<'a> {
    fn of(address: &'a Address) -> Reader<'a> {
        Reader { address, store: Mutex::new(None) }
    }

    fn read<T>(&self, work: impl FnOnce(&mut Store) -> Result<T>) -> Result<T> {
        // After a panic the store is opened anew, like after an error.
        let mut kept = self.store.lock().unwrap_or_else(PoisonError::into_inner);
        let mut store = match kept.take() {
            Some(store) => store,
            None => Store::open_for_reading(self.address)?,
        };
        let value = work(&mut store)?;
        *kept = Some(store);
        Ok(value)
    }
}

/// A page that takes its time must not keep metrics from being read.
struct Served<'a> {
    pages: Reader<'a>,
    metrics: Reader<'a>,
}

impl Served<'_> {
    fn answer(&self, query: &Query<'_>) -> Answer {
        match query.path {
            "/metrics" => self.metrics(),
            "/" => self.page(query),
            _ => Answer::plain(404, "there is / and /metrics"),
        }
    }

    fn metrics(&self) -> Answer {
        let read = self.metrics.read(|store| {
            store.begin_reading()?;
            let totals = store.totals()?;
            let mut sites = Vec::new();
            for (site, name) in store.sites()? {
                let totals = totals.get(&site).copied().unwrap_or_default();
                sites.push(page::SiteState { name, totals, latest: store.latest(site)?.map(|entry| entry.round) });
            }
            store.end_reading()?;
            Ok(sites)
        });
        if let Err(error) = &read {
            tell!("warning: the store cannot be read: {}", visible(&format!("{error:#}")));
        }
        // A store that is down is something to be alerted of, and so no failure of the scrape.
        let body = page::metrics(read.as_deref().ok());
        Answer { status: 200, kind: metrics::KIND, body }
    }

    fn page(&self, query: &Query<'_>) -> Answer {
        let moment = |name: &str| query.get(name).map(hour).transpose();
        let (from, to) = match (moment("from"), moment("to")) {
            (Ok(from), Ok(to)) => (from, to),
            (Err(text), _) | (_, Err(text)) => return Answer::plain(400, visible(&text)),
        };
        let days = query.get("days").and_then(|days| days.parse().ok()).filter(|days| (1..=36_500).contains(days));
        // Whole hours, which are counted: the rounds of one that is cut would all be read.
        let ago_us = (now_unix_us() - days.unwrap_or(DAYS_SHOWN) * DAY_US).div_euclid(HOUR_US) * HOUR_US;
        let range_us = (from.unwrap_or(ago_us), to.unwrap_or(i64::MAX));
        let page = self.pages.read(|store| read(store, query.get("site"), range_us, None)).and_then(|sites| {
            let mut document = page::page(&sites);
            document.links = links(query, &sites.iter().map(|site| site.site.as_str()).collect::<Vec<_>>());
            html::page(&document).context("failed to make the page")
        });
        match page {
            Ok(body) => Answer { status: 200, kind: "text/html; charset=utf-8", body },
            Err(error) => Answer::plain(503, visible(&format!("the store cannot be read: {error:#}"))),
        }
    }
}

/// Other times of the same sites, and single ones of several sites.
fn links(query: &Query<'_>, sites: &[&str]) -> Vec<(String, String)> {
    let link = |name: &str, pairs: &[Option<(&str, &str)>]| {
        let pairs = pairs.iter().copied().flatten();
        (name.to_owned(), format!("/?{}", form_urlencoded::Serializer::new(String::new()).extend_pairs(pairs).finish()))
    };
    let site = query.get("site").map(|site| ("site", site));
    let days = query.get("days").filter(|days| days.parse::<u32>().is_ok()).map(|days| ("days", days));
    let mut links: Vec<_> = DAYS.iter().map(|(days, name)| link(name, &[Some(("days", days)), site])).collect();
    match site {
        Some(_) => links.push(link("all sites", &[days])),
        None if sites.len() > 1 => links.extend(sites.iter().map(|site| link(site, &[Some(("site", site)), days]))),
        None => {}
    }
    links.push(("metrics".to_owned(), "/metrics".to_owned()));
    links
}
