//! Nobody loads somebody else's server by a slip of the keyboard: what is not this machine must be named twice.

use std::net::{IpAddr, SocketAddr, UdpSocket};

use anyhow::{Result, ensure};

use crate::listening::is_loopback;

/// Whether `host`, found at `address`, may be loaded: it is this machine, or among the hosts that the user answers for.
pub fn check(host: &str, address: SocketAddr, allowed: &[String]) -> Result<()> {
    ensure!(
        is_allowed(host, address, allowed),
        "{host} ({address}) is not this machine, and a load test of a server whose owner has not agreed is an attack; \
         if you may load it, add --i-may-load-this {host}"
    );
    Ok(())
}

/// Whether [`check`] would let this host be loaded.
pub fn is_allowed(host: &str, address: SocketAddr, allowed: &[String]) -> bool {
    let named = |name: &String| name.eq_ignore_ascii_case(host) || *name == address.ip().to_string();
    is_this_machine(address.ip()) || allowed.iter().any(named)
}

/// Whether what is sent to this address stays on this machine: what would be sent to it would come from it. Nothing is
/// sent.
pub fn is_this_machine(address: IpAddr) -> bool {
    let is_own = || {
        let socket = UdpSocket::bind(if address.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" }).ok()?;
        socket.connect((address, 9)).ok()?;
        Some(socket.local_addr().ok()?.ip() == address)
    };
    is_loopback(address) || is_own().unwrap_or(false)
}

#[cfg(test)]
mod tests {
    #[test]
    fn only_this_machine_and_hosts_answered_for_are_loaded() {
        let check = |host, address: &str, allowed: &[&str]| {
            let allowed: Vec<String> = allowed.iter().map(ToString::to_string).collect();
            super::check(host, address.parse().unwrap(), &allowed)
        };
        for address in ["127.0.0.1:80", "127.9.9.9:443", "[::1]:443", "[::ffff:127.0.0.1]:80"] {
            check("localhost", address, &[]).unwrap();
        }
        for address in ["192.0.2.1:443", "0.0.0.0:80", "[2001:db8::1]:80", "[::ffff:192.0.2.1]:80"] {
            let error = check("example.org", address, &["example.com"]).unwrap_err().to_string();
            assert!(error.contains("--i-may-load-this example.org") && error.contains(address), "{error}");
        }
        check("example.org", "192.0.2.1:443", &["Example.ORG"]).unwrap();
        check("example.org", "192.0.2.1:443", &["192.0.2.1"]).unwrap();
    }

    /// Of the addresses that this machine has in its networks, as far as it has any.
    #[test]
    fn an_address_of_this_machine_in_its_network_is_this_machine() {
        let table = std::fs::read_to_string("/proc/net/fib_trie").unwrap_or_default();
        let lines: Vec<&str> = table.lines().map(str::trim).collect();
        let own =
            lines.windows(2).filter(|pair| pair[1] == "/32 host LOCAL").filter_map(|pair| pair[0].strip_prefix("|-- "));
        own.for_each(|address| assert!(super::is_this_machine(address.parse().unwrap()), "{address}"));
        assert!(!super::is_this_machine("192.0.2.1".parse().unwrap()));
        assert!(!super::is_this_machine("0.0.0.0".parse().unwrap()));
    }
}
