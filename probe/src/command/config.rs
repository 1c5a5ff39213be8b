//! The configuration file of a robot.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use serde::Deserialize;
use tlsdyno_engine::time::Time;
use toml::Table;

use crate::store::Address;
use crate::{SiteOptions, SiteSpec};

/// What a file says. Flags of the command line go before it.
#[derive(Clone, Debug)]
pub struct Settings {
    pub every: Option<Time>,
    pub vantage: Option<String>,
    pub store: Option<Address>,
    pub store_password_file: Option<PathBuf>,
    pub keep_rounds: Option<Time>,
    pub spool_bytes: Option<u64>,
    pub sites: Vec<SiteSpec>,
}

/// The file as it is written.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    every: Option<Time>,
    vantage: Option<String>,
    /// A text, for a refused value is shown with its line, and there may be a password in it.
    store: Option<String>,
    store_password_file: Option<PathBuf>,
    keep_rounds: Option<Time>,
    spool_bytes: Option<u64>,
    /// Options of all sites.
    #[serde(default)]
    sites: Table,
    /// The sites, each with options of its own.
    site: Vec<Table>,
}

impl Settings {
    /// Reads a file.
    ///
    /// # Errors
    /// It cannot be read or understood; says where.
    pub fn read(path: &Path) -> Result<Settings> {
        let text = tlsdyno_base::input::text(path)?;
        Settings::parse(&text).with_context(|| format!("in {}", path.display()))
    }

    fn parse(text: &str) -> Result<Settings> {
        let file: File = toml::from_str(text)?;
        ensure!(!file.site.is_empty(), "there is no [[site]]");
        if let Some(name) = &file.vantage {
            super::vantage(name).map_err(anyhow::Error::msg)?;
        }
        options(file.sites.clone()).context("in [sites]")?;
        let mut sites = Vec::with_capacity(file.site.len());
        for (index, own) in file.site.into_iter().enumerate() {
            sites.push(site(&file.sites, own).with_context(|| format!("in [[site]] number {}", index + 1))?);
        }
        let store = file.store.map(|text| text.parse().map_err(anyhow::Error::msg)).transpose().context("`store`")?;
        Ok(Settings {
            every: file.every,
            vantage: file.vantage,
            store,
            store_password_file: file.store_password_file,
            keep_rounds: file.keep_rounds,
            spool_bytes: file.spool_bytes,
            sites,
        })
    }
}

/// A site: what all have, and in place of it what it says itself.
fn site(common: &Table, mut own: Table) -> Result<SiteSpec> {
    let url = own.remove("url").context("it has no `url`")?.try_into().context("`url` is a text")?;
    let every = own.remove("every").map(toml::Value::try_into).transpose().context("`every` is a time")?;
    let mut all = common.clone();
    all.extend(own);
    Ok(SiteSpec { url, every, options: options(all)? })
}

fn options(table: Table) -> Result<SiteOptions> {
    Ok(table.try_into()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sites_share_options_and_have_their_own() {
        let text = "every = \"1m\"\nvantage = \"Bern\"\nstore = \"postgres://me@localhost/db\"\n[sites]\n\
                    timeout = \"5s\"\n\
                    i_may_probe = [\"a\"]\n[[site]]\nurl = \"https://a/\"\n[[site]]\nurl = \"https://b/\"\n\
                    every = \"10m\"\ntls = \"1.2\"\ntimeout = \"2s\"\n";
        let settings = Settings::parse(text).unwrap();
        let [a, b] = &settings.sites[..] else { panic!("two sites") };
        assert_eq!((a.url.as_str(), a.every, a.options.timeout), ("https://a/", None, Time::seconds(5)));
        assert_eq!((b.every, b.options.timeout), (Some(Time::seconds(600)), Time::seconds(2)));
        assert_eq!(b.options.i_may_probe, ["a"]);
        assert!(b.options.version.is_some() && a.options.version.is_none());
        assert!(matches!(settings.store, Some(Address::Server(_))));
    }

    #[test]
    fn what_is_wrong_is_told_with_its_place() {
        for (text, expected) in [
            ("[[site]]\nurl = \"https://a/\"\nsurprise = 1\n", "number 1"),
            ("[[site]]\nurl = \"https://a/\"\nsurprise = 1\n", "unknown field `surprise`"),
            ("[[site]]\ntimeout = \"1s\"\n", "no `url`"),
            ("[sites]\nurl = \"x\"\n[[site]]\nurl = \"https://a/\"\n", "in [sites]"),
            ("store = \"postgres://me:secret@db/x\"\n[[site]]\nurl = \"https://a/\"\n", ".pgpass"),
            ("surprise = 1\n", "surprise"),
            ("every = \"1m\"\nsite = []\n", "no [[site]]"),
        ] {
            let error = format!("{:#}", Settings::parse(text).unwrap_err());
            assert!(error.contains(expected) && !error.contains("secret"), "{error}");
        }
    }

    proptest::proptest! {
        /// A slip of the finger in a good file: it is understood all the same, or told.
        #[test]
        fn slips_are_told(at: proptest::sample::Index, cut in 0usize..20, slip in "\\PC{0,5}") {
            let good = super::super::example::CONFIG;
            let at = at.index(good.len());
            let end = (at + cut).min(good.len());
            if let (Some(before), Some(after)) = (good.get(..at), good.get(end..)) {
                match Settings::parse(&format!("{before}{slip}{after}")) {
                    Ok(settings) => proptest::prop_assert!(!settings.sites.is_empty()),
                    Err(error) => proptest::prop_assert!(!error.to_string().is_empty()),
                }
            }
        }
    }

    #[test]
    fn the_example_is_understood() {
        Settings::parse(super::super::example::CONFIG).unwrap();
    }
}
