//! Values of the command line as people type them: shares, headers, methods, statuses.

use std::path::Path;
use std::str::FromStr;

use tlsdyno_base::input;
use tlsdyno_engine::load::{Pause, Resumption};
use tlsdyno_engine::time::Time;
use tlsdyno_record::model::Network;

/// The value of --rate: requests a second.
pub fn per_second(text: &str) -> Result<f64, String> {
    let (number, unit) = text.split_once('/').unwrap_or((text, "s"));
    let seconds = match unit.trim() {
        "s" => 1.0,
        "m" | "min" => 60.0,
        "h" => 3600.0,
        unit => return Err(format!("`{unit}` is no unit of time; write 500/s, 30/m or 100/h")),
    };
    match number.trim().parse::<f64>() {
        Ok(number) if number > 0.0 && number / seconds <= 1e7 => Ok(number / seconds),
        _ => Err(format!("`{text}` is no rate; write 500/s, 30/m or 100/h (above 0, at most 10,000,000/s)")),
    }
}

/// The value of --receive-rate and --keep: bits a second.
pub fn bandwidth(text: &str) -> Result<u64, String> {
    let kbit = Network::kbit(text.strip_suffix("/s").unwrap_or(text));
    match kbit.filter(|kbit| (1.0..=1e7).contains(kbit)) {
        Some(kbit) => Ok((kbit * 1e3) as u64),
        None => Err(format!("`{text}` is no bandwidth; write 400kbit or 1.5mbit (a second; 1kbit to 10000mbit)")),
    }
}

/// The value of --pause: how long a user waits between two of its connections.
pub fn pause(text: &str) -> Result<Pause, String> {
    let (spread, time) = text.split_once(':').unwrap_or(("const", text));
    let mean_ns = time.parse::<Time>()?.0.as_nanos() as u64;
    let spread = spread.parse().map_err(|_| format!("`{spread}` is no spread; write exp:2s or const:2s"))?;
    if mean_ns == 0 {
        return Err("a pause must be longer than nothing".to_owned());
    }
    Ok(Pause { mean_ns, spread, seed: 0 })
}

/// The value of --profile: how a client of Mraz, Witting and Dantzig 2002 (Figure 2) uses connections and sessions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Profile {
    /// One connection with one session, never resumed: a purchase. 25 requests each unless said otherwise (section 4,
    /// CDnow).
    OneTime,
    /// Many short connections, one right after the other unless --pause is given, that resume the user's session until
    /// it is up: an auction.
    Intermittent,
    /// A kept connection; when its session is up it closes, and the next begins with a full handshake: a trader's
    /// quotes.
    Continuous,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Reuse {
    /// This share of connections, 0 to 100.
    Percent(f64),
    Always,
}

impl Reuse {
    pub fn percent(self) -> Option<f64> {
        match self {
            Reuse::Percent(percent) => Some(percent),
            Reuse::Always => None,
        }
    }

    pub fn resumption(self) -> Resumption {
        match self {
            Reuse::Percent(percent) => Resumption::Share(percent / 100.0),
            Reuse::Always => Resumption::Always,
        }
    }
}

impl FromStr for Reuse {
    type Err = String;

    fn from_str(text: &str) -> Result<Reuse, String> {
        if text.eq_ignore_ascii_case("always") {
            return Ok(Reuse::Always);
        }
        let number = text.strip_suffix('%').unwrap_or(text).trim_end();
        match number.parse() {
            Ok(percent) if (0.0..=100.0).contains(&percent) => Ok(Reuse::Percent(percent)),
            _ => Err(format!("`{text}` is no share of connections; write 0% to 100%, or always")),
        }
    }
}

const FILE_BYTES_MAX: u64 = 1 << 16;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Header {
    name: String,
    pub value: String,
}

impl Header {
    pub fn is_host(&self) -> bool {
        self.is_named("host")
    }

    pub fn is_named(&self, name: &str) -> bool {
        self.name.eq_ignore_ascii_case(name)
    }

    /// As it is sent, with CRLF.
    pub fn line(&self) -> String {
        format!("{}: {}\r\n", self.name, self.value)
    }
}

impl FromStr for Header {
    type Err = String;

    /// Of the header itself, or of `@FILE` with it: what stands in a command line, every user of the machine reads.
    fn from_str(text: &str) -> Result<Header, String> {
        if let Some(file) = text.strip_prefix('@') {
            let held = input::read(Path::new(file), FILE_BYTES_MAX).map_err(|error| format!("{file}: {error:#}"))?;
            let held = String::from_utf8(held).map_err(|_| format!("{file} is no text"))?;
            // Whatever is wrong with it is told without its value.
            let wrong = || format!("{file} does not hold one header: write 'Name: value' into it, in one line");
            let header = held.trim_end_matches(['\r', '\n']);
            return if header.starts_with('@') { Err(wrong()) } else { header.parse().map_err(|_| wrong()) };
        }
        let (name, value) = text
            .split_once(':')
            .ok_or_else(|| format!("`{text}` is no header; write 'Name: value', or @FILE with that in the file"))?;
        let is_token = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
        if name.is_empty() || !name.bytes().all(is_token) {
            return Err(format!("`{name}` is no header name"));
        }
        if value.bytes().any(|byte| byte.is_ascii_control() && byte != b'\t') {
            return Err(format!("the value of `{name}` holds control characters"));
        }
        for owned in ["Connection", "Content-Length", "Transfer-Encoding"] {
            if name.eq_ignore_ascii_case(owned) {
                return Err(format!("`{owned}` is made by tlsdyno itself; use --close, --keep-alive or --body"));
            }
        }
        Ok(Header { name: name.to_owned(), value: value.trim().to_owned() })
    }
}

/// A request method in capitals.
pub fn parse_method(text: &str) -> Result<String, String> {
    if text.is_empty() || !text.bytes().all(|byte| byte.is_ascii_alphabetic()) {
        return Err(format!("`{text}` is no request method"));
    }
    if text.eq_ignore_ascii_case("connect") {
        return Err("CONNECT opens a tunnel, which is no load".to_owned());
    }
    Ok(text.to_ascii_uppercase())
}

/// A name of an application protocol that the requests can be made in.
pub fn parse_alpn(text: &str) -> Result<String, String> {
    if ["h2", "h3", "spdy"].iter().any(|other| text.starts_with(other)) {
        return Err(format!("a server that takes `{text}` would not understand what follows; HTTP/2 is --http2"));
    }
    Ok(text.to_owned())
}

/// The status of a hit; `None`: any.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExpectedStatus(pub Option<u16>);

impl FromStr for ExpectedStatus {
    type Err = String;

    fn from_str(text: &str) -> Result<ExpectedStatus, String> {
        match text.parse() {
            _ if text == "any" => Ok(ExpectedStatus(None)),
            Ok(status) if (200..=599).contains(&status) => Ok(ExpectedStatus(Some(status))),
            _ => Err(format!("`{text}` is no status of a response; write 200 to 599, or any")),
        }
    }
}

#[cfg(test)]
mod tests {
    use tlsdyno_engine::load::Spread;

    use super::*;

    #[test]
    fn values_are_read_as_people_type_them() {
        assert_eq!(["500/s", "1.5", "30/m"].map(per_second), [Ok(500.0), Ok(1.5), Ok(0.5)]);
        assert!(["0", "-1/s", "x/s", "1/y", "1e9/s", "NaN"].iter().all(|text| per_second(text).is_err()));
        let paused = |seconds: u64, spread| Ok(Pause { mean_ns: seconds * 1_000_000_000, spread, seed: 0 });
        assert_eq!(pause("exp:2s"), paused(2, Spread::Exponential));
        assert_eq!(pause("3s"), paused(3, Spread::Constant));
        assert!(["0s", "normal:2s", "exp:", ""].iter().all(|text| pause(text).is_err()));
        assert_eq!("50%".parse(), Ok(Reuse::Percent(50.0)));
        assert_eq!("99.5".parse(), Ok(Reuse::Percent(99.5)));
        assert_eq!("always".parse(), Ok(Reuse::Always));
        assert!(["101%", "-1%", "half", "", "NaN"].iter().all(|text| text.parse::<Reuse>().is_err()));
        assert_eq!(["400kbit", "320kbit/s", "1.5mbit"].map(bandwidth), [400_000, 320_000, 1_500_000].map(Ok));
        assert!(["400", "0kbit", "xkbit", "400kbit/m", ""].iter().all(|text| bandwidth(text).is_err()));
        let header: Header = "accept:  text/html ".parse().unwrap();
        assert_eq!(header.line(), "accept: text/html\r\n");
        assert!(
            ["x", ": y", "a b: c", "a: b\r\nc: d", "Connection: close"]
                .iter()
                .all(|text| text.parse::<Header>().is_err())
        );
        let file = tempfile::NamedTempFile::new().unwrap();
        let at = format!("@{}", file.path().display());
        std::fs::write(&file, "X-Key: of a file\n").unwrap();
        assert_eq!(at.parse::<Header>().unwrap().line(), "X-Key: of a file\r\n");
        for wrong in ["no secret header", "A: secret\nB: secret", "@other"] {
            std::fs::write(&file, wrong).unwrap();
            let told = at.parse::<Header>().unwrap_err();
            assert!(told.contains("does not hold one header") && !told.contains("secret"), "{told}");
        }
        assert_eq!("any".parse(), Ok(ExpectedStatus(None)));
        assert_eq!("404".parse(), Ok(ExpectedStatus(Some(404))));
        assert!(["100", "x"].iter().all(|text| text.parse::<ExpectedStatus>().is_err()));
        assert_eq!(parse_method("get"), Ok("GET".to_owned()));
        assert!(parse_method("G T").is_err() && parse_method("connect").is_err());
    }
}
