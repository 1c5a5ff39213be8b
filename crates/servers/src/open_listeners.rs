//! A server with no-ops is a total break of TLS: nobody but this machine may reach it.

use std::net::{IpAddr, SocketAddr};

use anyhow::{Context, Result};
use tlsdyno_base::ensure_fault;
use tlsdyno_base::listening::{is_loopback, open_addresses};

/// Fails when one of these processes can be reached from another host, and not at the `permitted` address only.
pub fn refuse(pids: &[u32], permitted: IpAddr) -> Result<()> {
    let addresses = open_addresses(pids).context(
        "nobody may reach the server from another host while parts of its cryptography are switched off; run tlsdyno \
         as the same user as the server or as root, or give --allow-insecure-listen if this network is isolated",
    )?;
    refuse_addresses(&addresses, permitted)
}

fn refuse_addresses(addresses: &[SocketAddr], permitted: IpAddr) -> Result<()> {
    let is_open = |address: &&SocketAddr| !is_loopback(address.ip()) && address.ip() != permitted;
    let open: Vec<String> = addresses.iter().filter(is_open).map(ToString::to_string).collect();
    // The same command would listen there with whatever part switched off: it is of no use to go on.
    ensure_fault!(
        Environment,
        open.is_empty(),
        "the server listens on {}, which other hosts can reach, while parts of its cryptography are switched off; \
         let it listen on 127.0.0.1 only, or give --allow-insecure-listen if this network is isolated",
        open.join(" and ")
    );
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::refuse_addresses;

    #[test]
    fn listeners_beyond_loopback_are_refused_but_for_the_permitted_one() {
        let here = Ipv4Addr::LOCALHOST.into();
        refuse_addresses(&["127.0.0.1:80".parse().unwrap()], here).unwrap();
        let open = ["0.0.0.0:80", "[::1]:81", "192.0.2.1:82"].map(|text| text.parse().unwrap());
        let error = refuse_addresses(&open, here).unwrap_err();
        assert!(error.to_string().contains("192.0.2.1:82"), "{error}");
        let error = refuse_addresses(&open, "192.0.2.1".parse().unwrap()).unwrap_err();
        assert!(!error.to_string().contains("192.0.2.1:82"), "{error}");
        assert!(error.to_string().contains("0.0.0.0:80") && !error.to_string().contains("81"), "{error}");
    }
}
