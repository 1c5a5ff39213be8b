//! `tlsdyno probe report`: what weeks of rounds come to.

use std::fs;
use std::path::PathBuf;

use anyhow::{Context, Result};
use time::macros::format_description;
use time::{Date, PrimitiveDateTime, Time};
use tlsdyno_base::exit::Exit;
use tlsdyno_base::fault::{Fault, OrFault};
use tlsdyno_report::html;
use tlsdyno_report::terminal::{Style, text};

use super::{StoreArgs, print};
use crate::page;
use crate::store::{By, Store};
use crate::summary::SiteSummary;

/// Show what the rounds in the store come to: Goldberg's tables, what resumption saves, acceptance, changes
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Only sites whose URL holds this
    #[arg(long, value_name = "TEXT")]
    site: Option<String>,

    /// Rounds from this hour on (UTC), for example 2026-11-20 or "2026-11-20 16:00"
    #[arg(long, value_name = "DATE", value_parser = hour)]
    from: Option<i64>,

    /// Rounds before this hour (UTC)
    #[arg(long, value_name = "DATE", value_parser = hour)]
    to: Option<i64>,

    /// Put rounds together by the hour or by the day (UTC): the points of a series, the lines of --csv [default: by the
    /// hour up to 45 days, by the day beyond]
    #[arg(long, value_name = "hour|day")]
    by: Option<By>,

    #[command(flatten)]
    store: StoreArgs,

    /// Also write a page with charts, which works offline
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,

    /// Print a line for each site and hour (or day), with commas
    #[arg(long)]
    csv: bool,

    /// Print one JSON array
    #[arg(long, conflicts_with = "csv")]
    json: bool,
}

/// A moment, in microseconds since 1970; a whole hour.
pub fn hour(text: &str) -> Result<i64, String> {
    let day = format_description!("[year]-[month]-[day]");
    let minute = format_description!("[year]-[month]-[day] [hour]:[minute]");
    let date = Date::parse(text, &day).map(|date| PrimitiveDateTime::new(date, Time::MIDNIGHT));
    let moment = date
        .or_else(|_| PrimitiveDateTime::parse(text, &minute))
        .map_err(|_| format!("`{text}` is no date; write 2026-11-20 or \"2026-11-20 16:00\""))?;
    if moment.minute() != 0 {
        return Err("rounds are reported by whole hours; let the minutes be 00".to_owned());
    }
    Ok(moment.assume_utc().unix_timestamp() * 1_000_000)
}

pub fn run(args: &Args) -> Result<Exit> {
    let address = args.store.address()?;
    let mut store = Store::open_for_reading(&address)?;
    let range_us = (args.from.unwrap_or(i64::MIN), args.to.unwrap_or(i64::MAX));
    let sites = read(&mut store, args.site.as_deref(), range_us, args.by).or_fault(Fault::Input)?;
    let has_rounds = sites.iter().any(|site| site.tally.made_count + site.tally.missed_count > 0);
    ensure_fault!(Input, has_rounds, "{address} has no rounds of such a site and time");
    if let Some(path) = &args.html {
        let page = html::page(&page::page(&sites)).context("failed to make the page")?;
        fs::write(path, page)
            .with_context(|| format!("failed to write {}", path.display()))
            .or_fault(Fault::Environment)?;
    }
    print(match (args.csv, args.json) {
        (true, _) => page::csv(&sites),
        (_, true) => serde_json::to_string_pretty(&sites)? + "\n",
        _ => text(&page::document(&sites), Style::of_stdout()),
    })?;
    Ok(Exit::Done)
}

/// What the store has of sites whose names hold `part`, in that time (microseconds since 1970), all of one moment.
pub fn read(store: &mut Store, part: Option<&str>, range_us: (i64, i64), by: Option<By>) -> Result<Vec<SiteSummary>> {
    store.begin_reading()?;
    let mut sites = store.sites()?;
    sites.retain(|(_, name)| part.is_none_or(|part| name.contains(part)));
    let by = match by {
        Some(by) => by,
        None => store.by(&sites.iter().map(|(site, _)| *site).collect::<Vec<_>>(), range_us)?,
    };
    let summaries = SiteSummary::read(store, &sites, range_us, by)?;
    store.end_reading()?;
    Ok(summaries)
}
