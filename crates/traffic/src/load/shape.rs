//! How connections and sessions are used together.

use anyhow::{Result, ensure};
use tlsdyno_engine::load::{Resumption, SessionLimits};
use tlsdyno_tls::Version;

use crate::load::options::Options;
use crate::load::url::Url;
use crate::load::values::{Profile, Reuse};

/// Requests of a one-time connection: the objects of two pages of a shop (Mraz et al. 2002, section 4).
const ONE_TIME_REQUESTS: u32 = 25;

/// Typical limits of a session (Mraz et al. 2002, section 1).
const TYPICAL_LIFETIME_NS: u64 = 300_000_000_000;
const TYPICAL_REQUESTS: u32 = 500;

/// Shortest lifetime of a session: it must outlast its first handshake.
const LIFETIME_NS_MIN: u64 = 100_000_000;

/// How connections and sessions are used together: what --profile, --reuse, --close and the others amount to.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Shape {
    pub requests_each: Option<u32>,
    pub resumption: Resumption,
    pub session_limits: SessionLimits,
}

impl Shape {
    pub fn new(options: &Options) -> Shape {
        let given = SessionLimits {
            lifetime_ns: options.session_lifetime.map(|time| time.0.as_nanos() as u64),
            requests: options.session_limit,
            staggered: options.staggered,
        };
        let typical = SessionLimits {
            lifetime_ns: given.lifetime_ns.or(Some(TYPICAL_LIFETIME_NS)),
            requests: given.requests.or(Some(TYPICAL_REQUESTS)),
            ..given
        };
        let each = options.requests_per_connection;
        let shape = |requests_each, resumption, session_limits| Shape { requests_each, resumption, session_limits };
        if let Some(hits) = options.hits_per_handshake {
            return shape(each, Resumption::Always, SessionLimits { requests: Some(hits), ..given });
        }
        match options.profile {
            Some(Profile::OneTime) => {
                shape(each.or(Some(ONE_TIME_REQUESTS)), Resumption::Never, SessionLimits::default())
            }
            Some(Profile::Intermittent) => shape(each.or(Some(1)), Resumption::Always, typical),
            Some(Profile::Continuous) => shape(each, Resumption::Always, typical),
            None => {
                let requests_each = match (options.close, options.keep_alive, each) {
                    (true, _, _) => Some(1),
                    (_, true, _) => None,
                    (_, _, None) if options.reuse.is_some() => Some(1),
                    (_, _, each) => each,
                };
                let unasked = if options.workload.is_given() { Resumption::Always } else { Resumption::Never };
                shape(requests_each, options.reuse.map_or(unasked, Reuse::resumption), given)
            }
        }
    }

    pub fn check(&self, options: &Options, url: &Url) -> Result<()> {
        ensure!(url.tls || options.reuse.is_none(), "--reuse is about TLS sessions; the URL is plain http");
        let limited = self.session_limits.lifetime_ns.is_some() || self.session_limits.requests.is_some();
        ensure!(
            url.tls || !limited,
            "session limits, --hits-per-handshake and --profile are about TLS sessions; the URL is plain http"
        );
        ensure!(
            !options.staggered || limited,
            "--staggered is about when sessions end; give --session-lifetime, --session-limit, --hits-per-handshake or \
             a --profile that renews"
        );
        ensure!(
            !limited || !matches!(self.resumption, Resumption::Share(_)),
            "--reuse PERCENT fixes the share by itself; limits of sessions go with --reuse always, --profile or alone"
        );
        ensure!(
            options.pause.is_none() || self.requests_each.is_some() || limited,
            "--pause stands between two connections of a user, and nothing ends the first: add --profile, --close, \
             --requests-per-connection or a limit on sessions"
        );
        ensure!(
            !(options.profile == Some(Profile::OneTime)
                && (options.session_lifetime.is_some() || options.session_limit.is_some())),
            "a one-time connection is its own session; its length is --requests-per-connection"
        );
        ensure!(
            self.session_limits.lifetime_ns.is_none_or(|lifetime_ns| lifetime_ns >= LIFETIME_NS_MIN),
            "--session-lifetime must be at least 100ms: a session has to outlast its first handshake"
        );
        ensure!(!options.early_data || url.tls, "--early-data is about TLS 1.3; the URL is plain http");
        ensure!(
            !options.early_data || options.version != Some(Version::Tls12),
            "--early-data needs TLS 1.3: leave out --tls 1.2"
        );
        ensure!(
            !options.early_data || self.resumption != Resumption::Never,
            "--early-data goes with a resumed session: add --reuse always"
        );
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Debug, Parser)]
    struct Flags {
        #[command(flatten)]
        options: Options,
    }

    fn shape(flags: &[&str]) -> Result<Shape> {
        let options = Flags::try_parse_from([&["x"], flags].concat())?.options;
        let shape = Shape::new(&options);
        shape.check(&options, &Url::parse("https://localhost/")?)?;
        Ok(shape)
    }

    #[test]
    fn profiles_are_those_of_mraz() {
        let typical =
            SessionLimits { lifetime_ns: Some(300_000_000_000), requests: Some(500), ..SessionLimits::default() };
        let is = |flags: &[&str], requests_each, resumption, session_limits| {
            assert_eq!(shape(flags).unwrap(), Shape { requests_each, resumption, session_limits }, "{flags:?}");
        };
        is(&["--profile", "one-time"], Some(25), Resumption::Never, SessionLimits::default());
        is(&["--profile", "intermittent"], Some(1), Resumption::Always, typical);
        is(&["--profile", "continuous"], None, Resumption::Always, typical);
        let limits =
            SessionLimits { lifetime_ns: Some(100_000_000_000), requests: Some(50), ..SessionLimits::default() };
        is(
            &["--profile", "continuous", "--session-lifetime", "100s", "--session-limit", "50"],
            None,
            Resumption::Always,
            limits,
        );
        let ten = SessionLimits { lifetime_ns: None, requests: Some(10), ..SessionLimits::default() };
        is(&["--hits-per-handshake", "10"], None, Resumption::Always, ten);
        is(&["--reuse", "50%"], Some(1), Resumption::Share(0.5), SessionLimits::default());
        is(&["--reuse", "always", "--session-limit", "10"], Some(1), Resumption::Always, ten);
        is(&["--close"], Some(1), Resumption::Never, SessionLimits::default());
    }

    #[test]
    fn what_does_not_fit_together_is_refused() {
        for (flags, word) in [
            (&["--reuse", "50%", "--session-limit", "5"][..], "fixes the share"),
            (&["--profile", "one-time", "--session-limit", "5"], "--requests-per-connection"),
            (&["--session-lifetime", "1ms"], "at least 100ms"),
            (&["--profile", "continuous", "--reuse", "always"], "cannot be used with"),
            (&["--arrivals", "poisson"], "--rate"),
            (&["--pause", "exp:2s"], "nothing ends the first"),
            (&["--pause", "exp:2s", "--rate", "5"], "cannot be used with"),
        ] {
            let error = shape(flags).unwrap_err().to_string();
            assert!(error.contains(word), "{flags:?}: {error}");
        }
    }
}
