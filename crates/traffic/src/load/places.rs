//! Where a load goes and where it comes from, as people type it.

use std::net::{IpAddr, Ipv4Addr, SocketAddr, ToSocketAddrs};
use std::str::FromStr;

use anyhow::{Context, Result};

/// Most addresses of one --source: with 28,000 ports each, more connections than a process can have.
const SOURCES_MAX: u32 = 256;

/// The value of --source: `127.0.0.2` or `127.0.0.2-127.0.0.9`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sources(pub Vec<IpAddr>);

impl FromStr for Sources {
    type Err = String;

    fn from_str(text: &str) -> Result<Sources, String> {
        let wrong = || format!("`{text}` is no address; write 127.0.0.2 or 127.0.0.2-127.0.0.9");
        let Some((from, to)) = text.split_once('-') else {
            return Ok(Sources(vec![text.parse().map_err(|_| wrong())?]));
        };
        let number = |text: &str| text.trim().parse::<Ipv4Addr>().map(u32::from).map_err(|_| wrong());
        let (from, to) = (number(from)?, number(to)?);
        if from > to || to - from >= SOURCES_MAX {
            return Err(format!("`{text}` must ascend and name at most {SOURCES_MAX} addresses"));
        }
        Ok(Sources((from..=to).map(|address| IpAddr::V4(address.into())).collect()))
    }
}

/// The address behind --connect-to HOST:PORT.
pub fn resolve(text: &str) -> Result<SocketAddr> {
    text.to_socket_addrs()
        .with_context(|| format!("failed to find `{text}` (--connect-to takes HOST:PORT)"))?
        .next()
        .with_context(|| format!("`{text}` has no address"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sources_are_addresses_or_ranges() {
        let count = |text: &str| text.parse::<Sources>().map(|sources| sources.0.len());
        assert_eq!([count("127.0.0.2"), count("::1"), count("127.0.0.2-127.0.0.9")], [Ok(1), Ok(1), Ok(8)]);
        assert!(["x", "127.0.0.9-127.0.0.2", "10.0.0.0-10.9.0.0", "::1-::2"].iter().all(|text| count(text).is_err()));
        assert_eq!(resolve("127.0.0.1:80").unwrap().port(), 80);
        assert!(resolve("127.0.0.1").unwrap_err().to_string().contains("--connect-to"));
    }
}
