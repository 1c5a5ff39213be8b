//! Addresses as people write them. Files hold IP addresses only, so that what a file means does not depend on who
//! answers for a name; a flag may name a host.

use std::net::{SocketAddr, ToSocketAddrs};

use serde::{Deserialize, Deserializer, de::Error};

/// Reads `IP:PORT`; an error says what is wrong and how to write it.
pub fn parse(text: &str) -> Result<SocketAddr, String> {
    text.parse().map_err(|_| {
        let fault = port_fault(text).unwrap_or("names are not resolved in a file");
        format!("`{text}` is no address: {fault}; write IP:PORT, as in 127.0.0.1:8443 or [::1]:8443")
    })
}

/// Reads `IP:PORT`, or `NAME:PORT` where the name has an address; an error says how to write it.
pub fn resolve(text: &str) -> Result<SocketAddr, String> {
    let write = "write IP:PORT, as in 127.0.0.1:8443 or [::1]:8443";
    if let Some(fault) = port_fault(text) {
        return Err(format!("{fault}; {write}"));
    }
    let found = text.to_socket_addrs().map_err(|error| format!("{error}; {write}"))?;
    found.into_iter().next().ok_or_else(|| format!("`{text}` has no address; {write}"))
}

fn port_fault(text: &str) -> Option<&'static str> {
    let Some((_, port)) = text.rsplit_once(':').filter(|(_, port)| !port.ends_with(']')) else {
        return Some("the port is missing");
    };
    let digits = !port.is_empty() && port.bytes().all(|byte| byte.is_ascii_digit());
    match port.parse::<u16>() {
        Ok(_) => None,
        Err(_) if digits => Some("ports end at 65535"),
        Err(_) => Some("the port is no number"),
    }
}

pub(super) fn read<'de, D: Deserializer<'de>>(from: D) -> Result<SocketAddr, D::Error> {
    parse(&String::deserialize(from)?).map_err(D::Error::custom)
}

pub(super) fn read_all<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<SocketAddr>, D::Error> {
    let texts = Vec::<String>::deserialize(from)?;
    texts.iter().map(|text| parse(text)).collect::<Result<_, _>>().map_err(D::Error::custom)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_wrong_with_an_address_is_named() {
        assert_eq!(parse("[::1]:443").unwrap().port(), 443);
        assert_eq!(resolve("localhost:9001").unwrap().port(), 9001);
        for (text, fault) in [
            ("localhost:9001", "names are not resolved"),
            ("127.0.0.1:99999", "ports end at 65535"),
            ("127.0.0.1:123456789012", "ports end at 65535"),
            ("127.0.0.1", "the port is missing"),
            ("[::1]", "the port is missing"),
            ("127.0.0.1:https", "the port is no number"),
        ] {
            let said = parse(text).unwrap_err();
            assert!(said.contains(fault) && said.contains("write IP:PORT"), "{said}");
            let flag = resolve(text).map_or_else(|said| said, |address| address.to_string());
            assert!(text.starts_with("localhost") || flag.contains(fault), "{flag}");
        }
    }
}
