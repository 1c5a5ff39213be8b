//! A client made of the system's libssl, which says what it did when: unpacked for one run, started on the load's CPU,
//! and asked for connections to one server.
//!
//! It is compiled from `native/stock_client` by the build script and embedded here. It runs in no server.

use std::ffi::OsString;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use openssl::x509::X509;
use tlsdyno_base::exchange::Moment;
use tlsdyno_tls::{Settings, Version};

use crate::asked::{Asked, Program};
use crate::write_file;

static PROGRAM: Program = Program {
    name: "stock client",
    file: "tlsdyno-stock-client",
    image: include_bytes!(concat!(env!("OUT_DIR"), "/tlsdyno-stock-client")),
};
/// What stands for the library's own choice on the command line.
const DEFAULT: &str = "-";
/// What RSA keys below 2048 bits need.
const SMALL_KEYS: &str = "@SECLEVEL=0";

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StockConnection {
    /// What was done when, by the names of `native/stock_client/stock_client.h`.
    pub moments: Vec<Moment>,
    pub is_resumed: bool,
    pub status: u16,
    pub sent_bytes: u64,
    pub received_bytes: u64,
}

#[derive(Debug)]
pub struct StockClient {
    program: Asked,
    pub version: String,
}

impl StockClient {
    /// Unpacks the program into `directory` and starts it on `cpu`, to ask a server with these settings.
    pub fn start(
        directory: &Path,
        cpu: usize,
        address: SocketAddr,
        settings: &Settings,
        request: &[u8],
    ) -> Result<StockClient> {
        let asked = directory.join("stock-client-request");
        write_file(&asked, request, 0o600)?;
        let trusted = trust_anchors(directory, settings)?;
        let [version, ciphers, suites, groups] = arguments(settings);
        let host = settings.server_name.as_deref().unwrap_or("localhost");
        let (ip, port) = (address.ip().to_string(), address.port().to_string());
        let mut arguments: Vec<OsString> =
            [ip, port, version, ciphers, suites, groups, host.to_owned()].map(OsString::from).into();
        arguments.extend([trusted.unwrap_or(PathBuf::from(DEFAULT)), asked].map(OsString::from));
        let (program, version) = Asked::start(&PROGRAM, directory, arguments, cpu).context("the stock client")?;
        Ok(StockClient { program, version })
    }

    /// Connections one after the other, for so long, and at least and at most so many.
    pub fn connections(
        &mut self,
        resumed: bool,
        (least, most): (u32, u32),
        time: Duration,
    ) -> Result<Vec<StockConnection>> {
        let kind = if resumed { "resumed" } else { "full" };
        self.program.ask(&format!("{kind} {least} {most} {}", time.as_nanos()))?;
        let mut connections = Vec::new();
        let mut open = StockConnection::default();
        loop {
            let line = self.program.line()?;
            let unknown = || self.program.unknown(&line);
            match line.split_once(' ') {
                None if line == "." => return Ok(connections),
                Some(("m", rest)) => open.moments.push(moment(rest).with_context(unknown)?),
                Some(("c", rest)) => {
                    let ended = ended(rest, std::mem::take(&mut open)).with_context(unknown)?;
                    connections.push(ended);
                }
                _ => bail!("{}", unknown()),
            }
        }
    }
}

fn moment(rest: &str) -> Option<Moment> {
    let mut words = rest.splitn(4, ' ');
    let mut number = || words.next()?.parse::<u64>().ok();
    let (at_ns, cpu_ns, bytes) = (number()?, number()?, number()?);
    Some(Moment { what: words.next()?.to_owned().into(), at_ns, cpu_ns, bytes })
}

fn ended(rest: &str, open: StockConnection) -> Option<StockConnection> {
    let numbers: Vec<u64> = rest.split(' ').map(|word| word.parse().ok()).collect::<Option<_>>()?;
    let [resumed, status, sent_bytes, received_bytes] = numbers[..] else { return None };
    let status = u16::try_from(status).ok()?;
    Some(StockConnection { is_resumed: resumed == 1, status, sent_bytes, received_bytes, ..open })
}

/// Version, ciphers of TLS 1.2, suites of 1.3 and groups, as the program takes them.
fn arguments(settings: &Settings) -> [String; 4] {
    let is_13 = settings.versions.contains(&Version::Tls13);
    let suites: Vec<&str> = settings.suites.iter().map(|suite| suite.openssl_name()).collect();
    let suites = if suites.is_empty() { DEFAULT.to_owned() } else { suites.join(":") };
    let ciphers = match (is_13, settings.small_rsa_keys) {
        (true, _) => DEFAULT.to_owned(),
        (false, false) => suites.clone(),
        (false, true) if suites == DEFAULT => format!("DEFAULT:{SMALL_KEYS}"),
        (false, true) => format!("{suites}:{SMALL_KEYS}"),
    };
    let groups: Vec<String> = settings.groups.iter().map(ToString::to_string).collect();
    let groups = if groups.is_empty() { DEFAULT.to_owned() } else { groups.join(":") };
    [if is_13 { "1.3" } else { "1.2" }.to_owned(), ciphers, if is_13 { suites } else { DEFAULT.to_owned() }, groups]
}

/// A file of those that the settings trust. `None`: nobody is verified.
fn trust_anchors(directory: &Path, settings: &Settings) -> Result<Option<PathBuf>> {
    if settings.trust_anchors.is_empty() {
        return Ok(None);
    }
    let pem = settings.trust_anchors.iter().map(|der| X509::from_der(der)?.to_pem());
    let pem: Vec<Vec<u8>> = pem.collect::<Result<_, openssl::error::ErrorStack>>().context("read a root")?;
    let path = directory.join("stock-client-roots.pem");
    write_file(&path, &pem.concat(), 0o600)?;
    Ok(Some(path))
}

#[cfg(test)]
mod tests {
    use super::*;
    use tlsdyno_tls::Suite;

    #[test]
    fn what_it_says_is_read() {
        let read = moment("5 3 512 client's Finished").unwrap();
        assert_eq!((read.at_ns, read.cpu_ns, read.bytes, &*read.what), (5, 3, 512, "client's Finished"));
        let read = ended("1 200 300 1500", StockConnection { moments: vec![read], ..StockConnection::default() });
        let read = read.unwrap();
        assert!(read.is_resumed && read.status == 200 && read.moments.len() == 1, "{read:?}");
        assert_eq!((read.sent_bytes, read.received_bytes), (300, 1_500));
        assert_eq!(moment("5 x 512 end"), None);
        assert_eq!(ended("1 200 300", StockConnection::default()), None);
    }

    #[test]
    fn suites_of_either_version_have_their_own_place() {
        let settings = |version, suite, small_rsa_keys| Settings {
            versions: vec![version],
            suites: vec![suite],
            small_rsa_keys,
            ..Settings::default()
        };
        let old = arguments(&settings(Version::Tls12, Suite::RsaAes128Sha, true));
        assert_eq!([&old[0], &old[1], &old[2]], ["1.2", "AES128-SHA:@SECLEVEL=0", "-"]);
        let new = arguments(&settings(Version::Tls13, Suite::Tls13Aes128Gcm, false));
        assert_eq!([&new[0], &new[1], &new[2]], ["1.3", "-", "TLS_AES_128_GCM_SHA256"]);
    }
}
