//! The configuration file of a robot.

use std::path::{Path, PathBuf};

use anyhow::{Context, Error, Result, ensure};
use serde::Deserialize;
use tlsdyno_base::choice::flags_of;
use tlsdyno_base::fault::{Fault, OrFault};
use tlsdyno_engine::time::Time;
use toml::Table;

use crate::store::Address;
use crate::{SiteOptions, SiteSpec};

/// How long single rounds are kept by default: 7 days.
const KEEP_ROUNDS: Time = Time::seconds(7 * 24 * 3600);
/// Largest size of a spool by default.
const SPOOL_BYTES: u64 = 64 << 20;

/// What flags and the file can say; the keys have the names of the flags.
#[derive(Clone, Debug, Default, clap::Args, Deserialize)]
pub struct Settings {
    /// A round at each site so often, for example 1m, until --for is over or Ctrl-C; at least 10s between two rounds at
    /// a host that is not this machine
    #[arg(long, value_name = "TIME")]
    pub every: Option<Time>,

    #[command(flatten)]
    #[serde(flatten)]
    pub store: StoreArgs,

    /// A name for the place that the sites are seen from: rounds of several places are kept apart in one store
    #[arg(long, value_name = "NAME", value_parser = vantage)]
    pub vantage: Option<String>,

    /// How long single rounds are kept; what they come to in each hour is kept for ever [default: 168h; with --once:
    /// all are kept]
    #[arg(long, value_name = "TIME")]
    pub keep_rounds: Option<Time>,

    /// Largest size of the file in which rounds wait for the store, in bytes [default: 64 MiB]
    #[arg(long, value_name = "BYTES")]
    spool_bytes: Option<u64>,
}

/// Where rounds are.
#[derive(Clone, Debug, Default, clap::Args, Deserialize)]
pub struct StoreArgs {
    /// Where rounds are kept: a file, or postgres://USER@HOST/DATABASE with the password in ~/.pgpass (PGPASSFILE)
    /// [default: probe.sqlite beside the records; with --once they are kept only where this is given]
    // A text, for who refuses a value repeats it, and there may be a password in it.
    #[arg(long, value_name = "FILE or URL")]
    store: Option<String>,

    /// The file whose first line is the password of the database
    #[arg(long, value_name = "FILE")]
    store_password_file: Option<PathBuf>,
}

impl StoreArgs {
    pub fn asked(&self) -> Result<Option<Address>> {
        let Some(text) = &self.store else { return Ok(None) };
        let address: Address = text.parse().context("--store").or_fault(Fault::Usage)?;
        address.with_password_file(self.store_password_file.as_deref()).map(Some)
    }

    /// The store that was asked for, else the store of the user.
    pub fn address(&self) -> Result<Address> {
        self.asked()?.map_or_else(Address::of_user, Ok)
    }
}

impl Settings {
    /// These settings, and where they say nothing, others.
    #[must_use]
    pub fn or(self, others: Settings) -> Settings {
        Settings {
            every: self.every.or(others.every),
            store: StoreArgs {
                store: self.store.store.or(others.store.store),
                store_password_file: self.store.store_password_file.or(others.store.store_password_file),
            },
            vantage: self.vantage.or(others.vantage),
            keep_rounds: self.keep_rounds.or(others.keep_rounds),
            spool_bytes: self.spool_bytes.or(others.spool_bytes),
        }
    }

    pub fn raw_hours(&self) -> u64 {
        self.keep_rounds.unwrap_or(KEEP_ROUNDS).0.as_secs().div_ceil(3600)
    }

    pub fn spool_bytes(&self) -> u64 {
        self.spool_bytes.unwrap_or(SPOOL_BYTES)
    }
}

/// The name of a place: what is compared over time has it behind its URL.
fn vantage(text: &str) -> Result<String, String> {
    match text.trim() {
        "" => Err("a place has a name".to_owned()),
        name if name.chars().any(char::is_control) => Err("a name has no control characters".to_owned()),
        name => Ok(name.to_owned()),
    }
}

/// Reads a file: its settings and its sites.
pub fn read(path: &Path) -> Result<(Settings, Vec<SiteSpec>)> {
    let text = tlsdyno_base::input::text(path)?;
    parse(&text).with_context(|| format!("in {}", path.display()))
}

fn parse(text: &str) -> Result<(Settings, Vec<SiteSpec>)> {
    let mut file: Table = toml::from_str(text)?;
    let mut part = |name: &str| file.remove(name);
    let common: Table = part("sites").map_or(Ok(Table::new()), toml::Value::try_into).context("[sites]")?;
    let sites: Vec<Table> = part("site").map_or(Ok(Vec::new()), toml::Value::try_into).context("[[site]]")?;
    let known = flags_of::<Settings>();
    let unknown = file.keys().find(|key| !known.iter().any(|flag| flag.as_str() == key.as_str()));
    ensure!(unknown.is_none(), "unknown field `{}`", unknown.map_or("", String::as_str));
    ensure!(!sites.is_empty(), "there is no [[site]]");
    let settings: Settings = file.try_into()?;
    let settings =
        Settings { vantage: settings.vantage.map(|name| vantage(&name)).transpose().map_err(Error::msg)?, ..settings };
    settings.store.asked()?;
    options(common.clone()).context("in [sites]")?;
    let numbered = sites.into_iter().enumerate();
    let sites =
        numbered.map(|(index, own)| site(&common, own).with_context(|| format!("in [[site]] number {}", index + 1)));
    Ok((settings, sites.collect::<Result<_>>()?))
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
        let (settings, sites) = parse(text).unwrap();
        let [a, b] = &sites[..] else { panic!("two sites") };
        assert_eq!((a.url.as_str(), a.every, a.options.timeout), ("https://a/", None, Some(Time::seconds(5))));
        assert_eq!((b.every, b.options.timeout), (Some(Time::seconds(600)), Some(Time::seconds(2))));
        assert_eq!(b.options.i_may_probe, ["a"]);
        assert!(b.options.version.is_some() && a.options.version.is_none());
        assert!(matches!(settings.store.asked(), Ok(Some(Address::Server(_)))));
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
            let error = format!("{:#}", parse(text).unwrap_err());
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
                match parse(&format!("{before}{slip}{after}")) {
                    Ok((_, sites)) => proptest::prop_assert!(!sites.is_empty()),
                    Err(error) => proptest::prop_assert!(!error.to_string().is_empty()),
                }
            }
        }
    }

    #[test]
    fn the_example_is_understood() {
        parse(super::super::example::CONFIG).unwrap();
    }
}
